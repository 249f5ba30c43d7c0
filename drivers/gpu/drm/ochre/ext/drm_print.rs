// SPDX-License-Identifier: GPL-2.0

//! Output of `fdinfo` and other DRM text files.
//!
//! C headers: [`include/drm/drm_print.h`](srctree/include/drm/drm_print.h),
//! [`include/drm/drm_file.h`](srctree/include/drm/drm_file.h)
//!
//! The keys of `fdinfo` are fixed by `Documentation/gpu/drm-usage-stats.rst`.

use core::ptr;

use kernel::{
    bindings,
    drm,
    ffi::c_void,
    fmt,
    prelude::*,
    types::NotThreadSafe, //
};

use super::sys;

/// Where DRM text goes: a seq file, the log, a coredump.
///
/// # Invariants
///
/// `raw` is valid, and nobody else uses it, for `'a`.
pub(crate) struct Printer<'a> {
    raw: &'a mut sys::drm_printer,
    _not_send: NotThreadSafe,
}

impl Printer<'_> {
    /// # Safety
    ///
    /// `raw` points to an initialised printer that this call has alone for the lifetime chosen.
    pub(super) unsafe fn from_raw(raw: *mut bindings::drm_printer) -> Self {
        Self {
            // SAFETY: By the contract of this function.
            raw: unsafe { &mut *raw.cast::<sys::drm_printer>() },
            _not_send: NotThreadSafe,
        }
    }

    /// Prints formatted text; [`drm_print!`] is the short form.
    pub(crate) fn print(&mut self, args: fmt::Arguments<'_>) {
        // SAFETY: The printer is valid, and `%pA` takes a pointer to `Arguments`.
        unsafe {
            sys::drm_printf(
                self.raw,
                c"%pA".as_char_ptr(),
                ptr::from_ref(&args).cast::<c_void>(),
            )
        };
    }

    /// Prints `PREFIX-STAT-REGION:\tBYTES` with the unit that fits, for example
    /// `drm-resident-vram0:` and `64 MiB`.
    pub(crate) fn size(&mut self, prefix: &CStr, stat: &CStr, region: &CStr, bytes: u64) {
        // SAFETY: The printer is valid, the strings end with NUL.
        unsafe {
            bindings::drm_fdinfo_print_size(
                ptr::from_mut(self.raw).cast(),
                prefix.as_char_ptr(),
                stat.as_char_ptr(),
                region.as_char_ptr(),
                bytes,
            )
        };
    }

    /// Prints the sums over all buffers that `file` has handles for, as region `memory`.
    ///
    /// Calls `status` and `rss` of each object under the file's `table_lock`.
    pub(crate) fn memory_stats<F: drm::file::DriverFile>(&mut self, file: &drm::File<F>) {
        // SAFETY: The printer is valid; `drm::File` is a transparent wrapper of an open `drm_file`.
        unsafe {
            bindings::drm_show_memory_stats(
                ptr::from_mut(self.raw).cast(),
                ptr::from_ref(file).cast_mut().cast(),
            )
        };
    }
}

/// Prints to a [`Printer`]: `drm_print!(p, "drm-engine-copy:\t{} ns\n", busy)`.
macro_rules! drm_print {
    ($printer:expr, $($arg:tt)+) => {
        $printer.print(::kernel::prelude::fmt!($($arg)+))
    };
}
pub(crate) use drm_print;
