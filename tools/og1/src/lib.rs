// SPDX-License-Identifier: GPL-2.0
//! og1, the reference GPU of Ochre, as a library: the board without any transport.
//!
//! ```text
//!   device (vfio-user) ─┐                       ┌─ engine ─ compute ─ ochre-rv64
//!   tests ──────────────┼─▶ board ─▶ front      ├─ mmu, power
//!   control (socket) ───┘      └───▶ machine ───┼─ fault, clock, firmware
//!                                               └─ memory (VRAM, guest)
//! ```
//!
//! - `front`: registers (`regs`, `discovery`), interrupts (`irq`), violations (`judge`), `counters`.
//! - `request`: what register writes ask of the machine.
//! - `machine`: one discrete-event scheduler over all engines; `sched` is its thread.
//! - `device`, `control`: the two ways in. Neither knows what is inside.
//!
//! The specification is Documentation/gpu/ochre/og1.rst; sections that comments name are there. The
//! definitions that the driver shares are in include/ochre ([`hw`]).
//!
//! Nothing that a guest writes to registers or memory may make the board panic, loop, or touch memory
//! other than VRAM and what the guest mapped. There is no unsafe code here; shared memory is reached
//! through `ochre-vfio-user`.
#![forbid(unsafe_code)]

pub mod board;
pub mod clock;
pub mod compute;
pub mod config;
pub mod control;
pub mod counters;
pub mod device;
pub mod discovery;
pub mod engine;
pub mod fault;
pub mod firmware;
pub mod front;
pub mod hw;
pub mod irq;
pub mod judge;
pub mod machine;
pub mod memory;
pub mod mmu;
pub mod power;
pub mod regs;
pub mod request;
pub mod save;
pub mod sched;
pub mod stream;
pub mod timing;
pub mod trace;
