// SPDX-License-Identifier: GPL-2.0
//! og1, the reference PCIe GPU: implements [`crate::hal`] and binds to the board.
//!
//! The hardware is specified in `Documentation/gpu/ochre/og1.rst`; its definitions stand in
//! `include/ochre` and come in through [`hw`].
//!
//! What flows in: `gpu/` asks through the trait `Hal`, and [`board`] hands each question to the
//! file that knows: [`slots`], [`queue`], [`page_table`], [`faults`], [`firmware`], [`counters`],
//! [`power`], [`discovery`].
//! What flows out: interrupts, from [`irq`] to `Gpu::on_engine_event` and `Gpu::on_fault`.
//! Everything that touches a register goes through [`regs::Regs`].
//!
//! Life: [`probe`] maps BAR0, reads what is there, loads the firmware, brings the board up, makes the
//! `Gpu` with its DRM device, and unmasks the interrupts. Unbind goes the other way: `Gpu::unplug`
//! wakes everyone and stops the board, then the DRM device is unregistered, then handlers and BARs
//! go. Open files keep the `Gpu` and with it the board's object alive; every access then gives
//! `ENODEV`.
//!
//! Locks, all leaves, none held while waiting for the board:
//! `Contexts::staging` (the MMU unit's staged values), `FaultRing::taken` (position in the fault
//! ring), `Og1::reset` (the reset in progress), `Og1::latch` (the latched times), `Og1::bound` (held while DMA
//! memory is allocated), `Counters::bank` (the counters and their registers; raw, for perf).

mod board;
mod counters;
mod debugfs;
mod discovery;
mod faults;
mod firmware;
mod hw;
mod irq;
mod memory;
mod page_table;
mod power;
mod probe;
mod queue;
mod regs;
mod slots;

pub(crate) use probe::Driver;
