// SPDX-License-Identifier: GPL-2.0
//! The C header as bindgen reads it, and the call of its ioctls.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;

mod header {
    #![allow(missing_docs, non_camel_case_types, non_upper_case_globals, dead_code)]
    #![allow(clippy::all, unreachable_pub)]
    include!(concat!(env!("OUT_DIR"), "/virtgpu_drm.rs"));
}
pub use header::*;

/// The argument of an ioctl of the driver.
pub trait Argument {
    /// The number of the ioctl.
    const REQUEST: u32;
}

macro_rules! arguments {
    ($($argument:ident => $request:ident,)*) => {
        $(impl Argument for $argument {
            const REQUEST: u32 = $request;
        })*
    };
}

arguments! {
    drm_gem_close => DRM_IOCTL_GEM_CLOSE,
    drm_virtgpu_context_init => DRM_IOCTL_VIRTGPU_CONTEXT_INIT,
    drm_virtgpu_getparam => DRM_IOCTL_VIRTGPU_GETPARAM,
    drm_virtgpu_execbuffer => DRM_IOCTL_VIRTGPU_EXECBUFFER,
    drm_virtgpu_map => DRM_IOCTL_VIRTGPU_MAP,
    drm_virtgpu_resource_create => DRM_IOCTL_VIRTGPU_RESOURCE_CREATE,
    drm_virtgpu_resource_create_blob => DRM_IOCTL_VIRTGPU_RESOURCE_CREATE_BLOB,
    drm_virtgpu_3d_transfer_to_host => DRM_IOCTL_VIRTGPU_TRANSFER_TO_HOST,
    drm_virtgpu_3d_transfer_from_host => DRM_IOCTL_VIRTGPU_TRANSFER_FROM_HOST,
    drm_virtgpu_3d_wait => DRM_IOCTL_VIRTGPU_WAIT,
}

/// Where the bytes of a blob are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobMemory {
    /// In pages of the guest.
    Guest,
    /// In the host, seen through the device's window.
    Host3d,
}

impl BlobMemory {
    /// As the ioctl has it.
    pub fn code(self) -> u32 {
        match self {
            Self::Guest => VIRTGPU_BLOB_MEM_GUEST,
            Self::Host3d => VIRTGPU_BLOB_MEM_HOST3D,
        }
    }
}

/// Calls an ioctl, again if a signal interrupts it.
///
/// # Safety
///
/// Each pointer in `argument` is valid for what the ioctl reads or writes there.
pub unsafe fn ioctl<A: Argument>(device: BorrowedFd<'_>, argument: &mut A) -> io::Result<()> {
    loop {
        // SAFETY: The argument has the type that the request names; for the pointers in it the
        // caller vouches.
        let status = unsafe {
            libc::ioctl(
                device.as_raw_fd(),
                A::REQUEST.into(),
                std::ptr::from_mut(argument),
            )
        };
        if status != -1 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
