// SPDX-License-Identifier: GPL-2.0
//! The compute core of og1: an interpreter of RV64IMAFD (with Zicsr and Zifencei) in user mode.
//!
//! A [`Hart`] runs one work-item. It touches the world through a [`Bus`] only, which its caller
//! implements: address translation, memory, clocks. [`CodeCache`] holds decoded code, one per engine.
//! Nothing here knows of queues, page tables or dispatches.
//!
//! ```text
//! Hart::run ── page transition ─→ CodeCache ── miss ─→ Bus::fetch, Bus::read_code ─→ decode
//!     └─ exec: one page of decoded code ─→ int, fpu (hostfp, else softfloat), amo, csr ─→ Bus
//! ```
//!
//! What holds for any program and any content of memory:
//!
//! - No panic, no unbounded loop; a run executes at most its budget, and the same state, memory
//!   and budget give the same run.
//! - Traps are precise: an instruction that faults has changed nothing and is not counted; the hart
//!   stands at it. Running it again is how a replayable fault is retried.
//! - There is no C extension: instructions are 32 bits at addresses that are multiples of four.
//! - A load, store, AMO or jump whose address is not naturally aligned is [`Cause::Misaligned`]. Stock
//!   clang emits none for this target unless the program asks for them.
//! - Instruction fetch is not coherent with stores: see [`CodeCache`].
#![forbid(unsafe_code)]

mod amo;
mod bus;
mod code_cache;
mod csr;
mod decode;
mod exec;
mod exec_fp;
mod fpu;
mod hart;
mod hostfp;
mod int;
#[path = "../../../include/ochre/og1_isa.rs"]
pub mod isa;

mod op;
mod softfloat;

pub use bus::{AmoOp, AtomicWidth, Bus, Width, CODE_PAGE_BYTES, CODE_PAGE_WORDS};
pub use code_cache::CodeCache;
pub use csr::WorkItem;
pub use hart::{Access, Cause, Fault, Hart, Run, Stop};
