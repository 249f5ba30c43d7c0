// SPDX-License-Identifier: GPL-2.0

//! What the calling task is allowed to do.
//!
//! C header: [`include/linux/capability.h`](srctree/include/linux/capability.h)

use super::sys;

/// Whether the caller may see how the whole device is used: `CAP_PERFMON`, or `CAP_SYS_ADMIN`.
pub(crate) fn perfmon() -> bool {
    // SAFETY: Only looks at the calling task.
    unsafe { sys::ochre_perfmon_capable() }
}

/// Whether the caller may raise priorities: `CAP_SYS_NICE`.
pub(crate) fn sys_nice() -> bool {
    // SAFETY: As in `perfmon`.
    unsafe { sys::ochre_sys_nice_capable() }
}

/// Whether the caller may set what concerns all users of a device: `CAP_SYS_ADMIN`.
pub(crate) fn sys_admin() -> bool {
    // SAFETY: As in `perfmon`.
    unsafe { sys::ochre_sys_admin_capable() }
}
