// SPDX-License-Identifier: GPL-2.0

//! The calling task.
//!
//! C header: [`include/linux/sched.h`](srctree/include/linux/sched.h)

use super::sys;

/// Bytes of a task's name, with the NUL at the end.
pub(crate) const COMM_LEN: usize = 16;

/// The name of the calling task, filled up with NULs.
pub(crate) fn current_comm() -> [u8; COMM_LEN] {
    let mut name = [0; COMM_LEN];
    // SAFETY: The function writes `COMM_LEN` bytes, which helpers.c compares with the kernel's
    // number.
    unsafe { sys::ochre_current_comm(name.as_mut_ptr().cast()) };
    name
}
