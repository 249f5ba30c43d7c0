// SPDX-License-Identifier: GPL-2.0

//! Messages about a GPU: as its device, if it has one.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

use crate::gpu::device::now;

/// Messages that programs can cause are printed this often in [`LOUD_NS`] at most.
const LOUD_MAX: u32 = 20;
/// Nanoseconds.
const LOUD_NS: u64 = 5_000_000_000;

/// How many messages were printed of late. Two CPUs at once may let one more through.
pub(super) struct Loudness {
    since: Atomic<u64>,
    printed: Atomic<u32>,
}

impl Loudness {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            since: Atomic::new(0),
            printed: Atomic::new(0),
        }
    }

    /// Whether one more message that a program can cause may be printed.
    pub(super) fn may_print(&self) -> bool {
        let now = now();
        if now.saturating_sub(self.since.load(Relaxed)) >= LOUD_NS {
            self.since.store(now, Relaxed);
            self.printed.store(0, Relaxed);
        }
        self.printed.fetch_add(1, Relaxed) < LOUD_MAX
    }
}

/// Prints about a [`Gpu`]: as its device, if it has one.
macro_rules! gpu_print {
    ($dev_macro:ident, $pr_macro:ident, $gpu:expr, $($arg:tt)+) => {
        match $gpu.dev() {
            Some(dev) => ::kernel::$dev_macro!(dev, $($arg)+),
            None => ::kernel::$pr_macro!($($arg)+),
        }
    };
}
pub(crate) use gpu_print;

/// An error that needs someone's attention.
macro_rules! gpu_err {
    ($gpu:expr, $($arg:tt)+) => {
        $crate::gpu::log::gpu_print!(dev_err, pr_err, $gpu, $($arg)+)
    };
}
pub(crate) use gpu_err;

/// Something is wrong, a program's doing perhaps, and the driver dealt with it. Not without limit.
macro_rules! gpu_warn {
    ($gpu:expr, $($arg:tt)+) => {
        if $gpu.loudness.may_print() {
            $crate::gpu::log::gpu_print!(dev_warn, pr_warn, $gpu, $($arg)+)
        }
    };
}
pub(crate) use gpu_warn;

/// Says which check refused something.
macro_rules! gpu_dbg {
    ($gpu:expr, $($arg:tt)+) => {
        $crate::gpu::log::gpu_print!(dev_dbg, pr_debug, $gpu, $($arg)+)
    };
}
pub(crate) use gpu_dbg;
