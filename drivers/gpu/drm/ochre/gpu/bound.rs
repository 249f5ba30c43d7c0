// SPDX-License-Identifier: GPL-2.0

//! What may only be used while the driver is bound.
//!
//! It lives in the DRM registration, so that an ioctl or a page fault reaches it through the
//! guard that keeps the device bound, and not otherwise.

use kernel::device;

use crate::ext::pci::Aperture;

/// The registration data of the DRM device.
pub(crate) struct Bound<'a> {
    /// The device, for mappings that it makes.
    pub(crate) dev: &'a device::Device<device::Bound>,
    /// The part of VRAM that the CPU can reach; `None` if it reaches nothing.
    pub(crate) aperture: Option<Aperture<'a>>,
}
