// SPDX-License-Identifier: GPL-2.0
//! A hart: its state, and the outer loop that goes from page to page of code.

use crate::bus::{Bus, CODE_PAGE_BYTES};
use crate::code_cache::CodeCache;
use crate::csr::WorkItem;
use crate::exec::{Leave, Meter};
use crate::fpu::Fpu;
use crate::isa;

/// What kind of access faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Instruction fetch, also the target of a misaligned jump.
    Fetch,
    /// Load.
    Load,
    /// Store.
    Store,
    /// AMO, LR or SC.
    Atomic,
}

/// Why an instruction could not be executed; `F` is the bus's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause<F> {
    /// Not an instruction, a CSR that is absent or read only, or a reserved rounding mode. Holds the
    /// instruction word.
    IllegalInstruction(u32),
    /// EBREAK.
    Breakpoint,
    /// ECALL: there is nobody to call.
    EnvironmentCall,
    /// The address is not a multiple of the access's size (jumps: of four).
    Misaligned,
    /// The bus refused the access.
    Memory(F),
}

/// A fault: the hart stands at `pc`, unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault<F> {
    /// Why.
    pub cause: Cause<F>,
    /// During which access; [`Access::Fetch`] for causes that have none.
    pub access: Access,
    /// Address of the instruction.
    pub pc: u64,
    /// Address accessed; `pc` for causes that have none.
    pub addr: u64,
}

/// Why a run ended; `F` is the bus's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop<F> {
    /// The budget is used up.
    Budget,
    /// The program jumped to [`isa::EXIT_PC`].
    Exit,
    /// The program wrote the barrier CSR; the hart stands behind that instruction.
    Barrier,
    /// An instruction faulted.
    Fault(Fault<F>),
}

/// Outcome of [`Hart::run`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run<F> {
    /// Instructions executed, exactly; a faulting one is not among them.
    pub executed: u64,
    /// Why it ended.
    pub stop: Stop<F>,
}

/// What LR leaves for SC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) addr: u64,
    /// Width in bytes: SC must match it.
    pub(crate) bytes: u64,
    pub(crate) value: u64,
}

/// One hardware thread, executing one work-item.
#[derive(Clone, Debug)]
pub struct Hart {
    pub(crate) x: [u64; 32],
    pub(crate) pc: u64,
    pub(crate) fpu: Fpu,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) instret: u64,
    pub(crate) item: WorkItem,
}

impl Hart {
    /// A work-item at its entry `pc`: a0 = `arg`, ra = [`isa::EXIT_PC`], sp at the end of the stack
    /// window, all else zero.
    pub fn new(pc: u64, arg: u64, item: WorkItem) -> Self {
        let mut hart = Self {
            x: [0; 32],
            pc,
            fpu: Fpu::default(),
            reservation: None,
            instret: 0,
            item,
        };
        hart.x[isa::ENTRY_RA] = isa::EXIT_PC;
        hart.x[isa::ENTRY_SP] = isa::STACK_BASE + isa::STACK_SIZE;
        hart.x[isa::ENTRY_A0] = arg;
        hart
    }

    /// Executes up to `budget` instructions.
    ///
    /// Ends at once with [`Stop::Exit`] if the hart stands at [`isa::EXIT_PC`] already.
    pub fn run<B: Bus>(
        &mut self,
        bus: &mut B,
        cache: &mut CodeCache,
        budget: u64,
    ) -> Run<B::Fault> {
        let mut meter = Meter::new(budget);
        let stop = loop {
            if self.pc == isa::EXIT_PC {
                break Stop::Exit;
            }
            // Before any fetch: each turn of this loop executes an instruction or ends it.
            if meter.is_empty() {
                break Stop::Budget;
            }
            if self.pc % 4 != 0 {
                break self.fetch_fault(Cause::Misaligned);
            }
            let page = self.pc & !(CODE_PAGE_BYTES - 1);
            let leave = match cache.page(bus, page) {
                Ok(code) => self.run_page(bus, code, page, &mut meter),
                Err(fault) => break self.fetch_fault(Cause::Memory(fault)),
            };
            match leave {
                Leave::Page => {}
                Leave::FenceI => cache.invalidate_all(),
                Leave::Stop(stop) => break stop,
            }
        };
        let executed = meter.executed();
        self.instret = self.instret.wrapping_add(executed);
        Run { executed, stop }
    }

    fn fetch_fault<F>(&self, cause: Cause<F>) -> Stop<F> {
        Stop::Fault(Fault {
            cause,
            access: Access::Fetch,
            pc: self.pc,
            addr: self.pc,
        })
    }

    /// Register `x[i]`, i below 32 (taken modulo 32).
    pub fn x(&self, i: usize) -> u64 {
        self.x[i % 32]
    }

    /// Sets `x[i]`; x0 stays zero.
    pub fn set_x(&mut self, i: usize, value: u64) {
        self.x[i % 32] = value;
        self.x[0] = 0;
    }

    /// Bits of register `f[i]` (a single is boxed: its upper 32 bits are ones).
    pub fn f(&self, i: usize) -> u64 {
        self.fpu.f[i % 32]
    }

    /// Sets the bits of register `f[i]`.
    pub fn set_f(&mut self, i: usize, bits: u64) {
        self.fpu.f[i % 32] = bits;
    }

    /// Address of the next instruction.
    pub fn pc(&self) -> u64 {
        self.pc
    }

    /// Moves the hart to `pc`.
    pub fn set_pc(&mut self, pc: u64) {
        self.pc = pc;
    }

    /// CSR `fcsr`: rounding mode in bits 7:5, exception flags in 4:0.
    pub fn fcsr(&self) -> u8 {
        self.fpu.fcsr()
    }

    /// Sets CSR `fcsr`.
    pub fn set_fcsr(&mut self, value: u8) {
        self.fpu.set_fcsr(u64::from(value));
    }

    /// Instructions executed since the hart was made.
    pub fn instret(&self) -> u64 {
        self.instret
    }

    /// The work-item that the hart executes.
    pub fn work_item(&self) -> &WorkItem {
        &self.item
    }

    /// Drops the reservation of LR, so that the next SC fails.
    ///
    /// To be called when another hart of the same memory runs between two runs of this one. With
    /// slices of 64 instructions and more, loops of LR and SC as the RISC-V manual allows them make
    /// progress all the same.
    pub fn clear_reservation(&mut self) {
        self.reservation = None;
    }

    /// Result of an instruction.
    #[inline(always)]
    pub(crate) fn write_x(&mut self, rd: u8, value: u64) {
        self.x[usize::from(rd & 31)] = value;
        self.x[0] = 0;
    }

    /// Operand of an instruction.
    #[inline(always)]
    pub(crate) fn read_x(&self, rs: u8) -> u64 {
        self.x[usize::from(rs & 31)]
    }
}
