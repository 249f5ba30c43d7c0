// SPDX-License-Identifier: GPL-2.0

//! The pure parts: arithmetic, bookkeeping and decisions that know no register, no ioctl and no
//! lock.
//!
//! What flows in are numbers that somebody else has read (a ring's read pointer, a fence's value,
//! the board's time) and requests that somebody else has taken from user space; what flows out are
//! ranges, steps and actions that somebody else carries out. So each part can be tested alone, in
//! KUnit, against a model simple enough to be obviously right.
//!
//! - [`buddy`] hands out VRAM, [`va`] keeps what a GPU address space maps;
//! - [`ring`] is the arithmetic between producer and board, [`timeline`] the fences of one queue;
//! - [`sched`] decides which queue sits in which hardware slot and which job runs next;
//! - [`watchdog`] finds hangs, silence and lost interrupts, [`recovery`] how far to go about them;
//! - [`usage`] counts engine time for fdinfo, [`monotonic`] carries counters over resets; [`fifo`] is
//!   a queue whose room is reserved ahead.
//! - [`power`] decides about clocks, voltages and gates from the board's telemetry;
//! - [`usage`] counts engine time for fdinfo; [`fifo`] is a queue whose room is reserved ahead.
//!
//! Nothing here locks: a structure belongs to whoever holds the lock around it, which `gpu/` names.
//! Nothing here allocates or fails on a path that gives something back (freeing memory, completing
//! a fence, undoing a plan): what such a path needs was reserved when the thing was taken. Values
//! that come from the device are checked against what the driver knows before they are believed.
//! There is no `unsafe` and no loop without a bound in this folder.

pub(crate) mod buddy;
pub(crate) mod fifo;
pub(crate) mod monotonic;
// Until gpu/ uses all of it.
#[allow(dead_code)]
pub(crate) mod power;
pub(crate) mod recovery;
pub(crate) mod ring;
pub(crate) mod sched;
pub(crate) mod timeline;
pub(crate) mod usage;
pub(crate) mod va;
pub(crate) mod watchdog;

#[cfg(CONFIG_KUNIT = "y")]
pub(crate) mod prng;
