// SPDX-License-Identifier: GPL-2.0
//! Ioctls with arguments that no sane program would pass.

use std::io;
use std::os::fd::AsRawFd;

use libc::c_ulong;
use nix::errno::Errno;
use ochre::abi;
use ochre::abi::Argument;
use ochre::Gpu;

/// Calls an ioctl once.
///
/// Pointers in `argument` have to lead to memory of the test that lives and that the answer may
/// overwrite, or nowhere; the tests make them with [`crate::pointers`] or from live arrays.
///
/// # Errors
///
/// The ioctl's.
pub fn call<A: Argument>(gpu: &Gpu, argument: &mut A) -> Result<(), Errno> {
    // SAFETY: See above; this is a program for tests, in which nothing is lost.
    let result: io::Result<()> = unsafe { abi::ioctl_once(gpu, argument) };
    result.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
}

/// Calls an ioctl by number with whatever address as its argument.
///
/// # Errors
///
/// The ioctl's.
pub fn call_at(gpu: &Gpu, request: u32, address: u64) -> Result<(), Errno> {
    let fd = gpu.file().as_raw_fd();
    // SAFETY: As for `call`.
    let status = unsafe { libc::ioctl(fd, c_ulong::from(request), address) };
    Errno::result(status).map(drop)
}

/// The ioctls of the driver: name, request number, bytes of the argument.
pub fn requests() -> Vec<(&'static str, u32, usize)> {
    fn entry<A: Argument>() -> (&'static str, u32, usize) {
        let name = std::any::type_name::<A>();
        let name = name.rsplit("drm_ochre_").next().unwrap_or(name);
        (name, A::REQUEST, size_of::<A>())
    }
    vec![
        entry::<abi::drm_ochre_query>(),
        entry::<abi::drm_ochre_gem_create>(),
        entry::<abi::drm_ochre_gem_mmap_offset>(),
        entry::<abi::drm_ochre_vm_create>(),
        entry::<abi::drm_ochre_vm_destroy>(),
        entry::<abi::drm_ochre_vm_bind>(),
        entry::<abi::drm_ochre_queue_create>(),
        entry::<abi::drm_ochre_queue_destroy>(),
        entry::<abi::drm_ochre_submit>(),
        entry::<abi::drm_ochre_wait>(),
        entry::<abi::drm_ochre_reset_query>(),
    ]
}

/// A request number with another size of its argument.
pub fn with_size(request: u32, bytes: usize) -> u32 {
    const SHIFT: u32 = 16;
    const MASK: u32 = 0x3fff;
    // CAST: masked to 14 bits.
    request & !(MASK << SHIFT) | (bytes as u32 & MASK) << SHIFT
}
