// SPDX-License-Identifier: GPL-2.0
//! The C header `ochre_drm.h` as bindgen reads it, and the call of its ioctls.

use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;

mod header {
    #![allow(missing_docs, non_camel_case_types, non_upper_case_globals)]
    #![allow(clippy::all, unreachable_pub)]
    include!(concat!(env!("OUT_DIR"), "/ochre_drm.rs"));
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
    drm_ochre_query => DRM_IOCTL_OCHRE_QUERY,
    drm_ochre_gem_create => DRM_IOCTL_OCHRE_GEM_CREATE,
    drm_ochre_gem_mmap_offset => DRM_IOCTL_OCHRE_GEM_MMAP_OFFSET,
    drm_ochre_vm_create => DRM_IOCTL_OCHRE_VM_CREATE,
    drm_ochre_vm_destroy => DRM_IOCTL_OCHRE_VM_DESTROY,
    drm_ochre_vm_bind => DRM_IOCTL_OCHRE_VM_BIND,
    drm_ochre_queue_create => DRM_IOCTL_OCHRE_QUEUE_CREATE,
    drm_ochre_queue_destroy => DRM_IOCTL_OCHRE_QUEUE_DESTROY,
    drm_ochre_submit => DRM_IOCTL_OCHRE_SUBMIT,
    drm_ochre_wait => DRM_IOCTL_OCHRE_WAIT,
    drm_ochre_reset_query => DRM_IOCTL_OCHRE_RESET_QUERY,
}

/// Calls an ioctl once.
///
/// # Safety
///
/// Each pointer in `argument` is valid for what the ioctl reads or writes there, or one at which
/// the kernel finds no memory of this process.
pub unsafe fn ioctl_once<A: Argument>(device: impl AsFd, argument: &mut A) -> io::Result<()> {
    let fd = device.as_fd().as_raw_fd();
    // SAFETY: The argument has the type that the request names; for the pointers in it the caller
    // vouches.
    let status = unsafe { libc::ioctl(fd, A::REQUEST.into(), std::ptr::from_mut(argument)) };
    match status {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Calls an ioctl, again if a signal interrupts it.
///
/// # Safety
///
/// As for [`ioctl_once`].
pub unsafe fn ioctl<A: Argument>(device: impl AsFd, argument: &mut A) -> io::Result<()> {
    loop {
        // SAFETY: The caller vouches.
        match unsafe { ioctl_once(device.as_fd(), argument) } {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A pointer as it travels in a structure.
pub fn pointer<T>(data: &[T]) -> u64 {
    match data {
        [] => 0,
        _ => data.as_ptr() as u64,
    }
}

/// The size of a structure as a stride.
pub const fn stride<T>() -> u32 {
    std::mem::size_of::<T>() as u32
}

/// The number of elements of an array.
///
/// # Panics
///
/// If it does not fit: no array that the driver takes is that long.
pub fn count<T>(data: &[T]) -> u32 {
    u32::try_from(data.len()).expect("an array of 2^32 elements")
}
