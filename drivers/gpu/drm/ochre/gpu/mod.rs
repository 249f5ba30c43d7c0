// SPDX-License-Identifier: GPL-2.0

//! The driver proper: what the ochre ABI promises, on any board that implements [`crate::hal`].
//!
//! One job, file after file: [`submit`] reads it from user space, [`sync`] looks up what it waits
//! for and signals; it becomes a [`job`] of a [`queue`]; [`scheduler`] writes it into the ring when
//! its turn has come, rings the doorbell, and, when the board's interrupt says so, signals its
//! fence, for which [`wait`] waits. If that does not happen, [`watchdog`] finds out and [`recovery`]
//! resets what is to blame. [`power`] sets clocks meanwhile. Memory comes from [`bo`] and [`vram`] and gets GPU addresses in [`vm`] and
//! [`page_table`]. [`device`] holds what all share, [`driver`] is the table of ioctls,
//! [`file`](mod@file) what one open file owns. [`insight`] opens what people look through: [`pmu`] and
//! [`debugfs`]; [`fdinfo`] and [`trace`] are there for those who ask.
//!
//! Who keeps what alive: a job its queue, a queue its VM, a VM its BOs. A queue is in the
//! scheduler's table until the hardware has let go of it, whatever happens to its handle. Nothing
//! of this is touched by the hardware after its fence was signalled.
//!
//! Locks, from the outside inwards; what stands in one line is never taken together:
//!
//! 1. the clearer's (`device::Gpu::clearer`); that of fdinfo's looks at memory
//!    (`device::Gpu::accounting`);
//! 2. the ladder's (`device::Gpu::ladder`), only by the worker; a VM's lock;
//! 3. the scheduler's (`device::Gpu::scheduler`); a file's tables of handles;
//! 4. `power::Power::state` is taken outside the scheduler's by its own turn, and by nobody inside;
//!    a queue's ring (`queue::Queue::hardware`); the sync objects' and fences' own;
//! 5. leaves: a queue's record, VRAM, contexts, a board's registers.
//!
//! No lock is held over a wait for the hardware or for a fence, nor is `drm_dev_enter()`: what takes
//! time is begun in one turn of the worker and looked at in a later one. Fences are signalled with
//! the scheduler's lock, so nothing that waits for a fence may run under it.
//!
//! The end: `device::Gpu::unplug` wakes who waits, stops the worker, stops the board, and only then
//! signals all fences, with [`ENODEV`](kernel::error::code::ENODEV). Then the device's release takes
//! away what is mapped for DMA (`ext::dma_resources`). Afterwards open files find nothing but errors,
//! and what they have goes with the last of them.

pub(crate) mod bo;
pub(crate) mod bound;
mod clear;
mod debugfs;
pub(crate) mod device;
pub(crate) mod driver;
mod elements;
mod engine_name;
mod fdinfo;
mod file;
mod handles;
mod insight;
mod job;
mod log;
#[cfg(CONFIG_KUNIT = "y")]
mod mock;
#[cfg(CONFIG_KUNIT = "y")]
mod mock_tables;
mod page_table;
#[cfg(CONFIG_KUNIT = "y")]
mod page_table_tests;
#[cfg(CONFIG_PERF_EVENTS)]
mod pmu;
mod power;
mod query;
mod queue;
mod queue_ioctl;
mod recovery;
mod scheduler;
mod submit;
mod sync;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;
mod trace;
mod vm;
mod vram;
mod wait;
mod watchdog;

pub(crate) use device::Gpu;
pub(crate) use queue_ioctl::TIMEOUT_MAX_MS;
