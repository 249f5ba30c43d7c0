// SPDX-License-Identifier: GPL-2.0

//! How much memory the machine has.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)

use super::sys;

/// Bytes of memory that the kernel manages.
pub(crate) fn total_bytes() -> u64 {
    // SAFETY: Reads a counter.
    unsafe { sys::ochre_total_bytes() }
}

/// Bytes that could be allocated without swapping; an estimate.
pub(crate) fn available_bytes() -> u64 {
    // SAFETY: Reads counters.
    unsafe { sys::ochre_available_bytes() }
}
