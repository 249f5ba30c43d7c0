// SPDX-License-Identifier: GPL-2.0

//! Who is master of a DRM device.
//!
//! C header: [`include/drm/drm_auth.h`](srctree/include/drm/drm_auth.h)

use kernel::drm;

use super::sys;

/// Whether `file` is master: the one that may set modes, and what else the driver leaves to it.
pub(crate) fn is_current_master<F: drm::file::DriverFile>(file: &drm::File<F>) -> bool {
    // SAFETY: `drm::File` is a transparent wrapper of an open `drm_file`.
    unsafe { sys::drm_is_current_master(core::ptr::from_ref(file).cast_mut().cast()) }
}
