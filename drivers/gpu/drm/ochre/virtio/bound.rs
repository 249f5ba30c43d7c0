// SPDX-License-Identifier: GPL-2.0

//! What may only be used while the driver is bound.
//!
//! It lives in the DRM registration, so that an ioctl reaches it through the guard that keeps the
//! device bound, and not otherwise.

use kernel::device;

/// The registration data of the DRM device.
pub(crate) struct Bound<'a> {
    /// The device, for memory that it reads and writes.
    pub(crate) dev: &'a device::Device<device::Bound>,
}
