// SPDX-License-Identifier: GPL-2.0

//! Signals to the calling task.
//!
//! C header: [`include/linux/sched/signal.h`](srctree/include/linux/sched/signal.h)

use super::sys;

/// Whether the caller is being killed: what it does is of no use to anyone any more.
pub(crate) fn is_fatal_pending() -> bool {
    // SAFETY: Only looks at the calling task.
    unsafe { sys::ochre_fatal_signal_pending() }
}
