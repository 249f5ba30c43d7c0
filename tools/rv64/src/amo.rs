// SPDX-License-Identifier: GPL-2.0
//! The A extension: atomic memory operations, load-reserved and store-conditional.

use crate::bus::{AmoOp, AtomicWidth, Bus};
use crate::hart::{Cause, Hart, Reservation};
use crate::op::Insn;

/// An atomic access that failed: cause and address.
pub(crate) type Failed<F> = (Cause<F>, u64);

/// The operation with the five-bit function `function`, one of those that `decode` lets through.
fn amo_op(function: i32) -> AmoOp {
    match function {
        0x01 => AmoOp::Swap,
        0x04 => AmoOp::Xor,
        0x08 => AmoOp::Or,
        0x0c => AmoOp::And,
        0x10 => AmoOp::Min,
        0x14 => AmoOp::Max,
        0x18 => AmoOp::MinU,
        0x1c => AmoOp::MaxU,
        _ => AmoOp::Add,
    }
}

impl Hart {
    /// rs1, if it is aligned for `W`.
    fn atomic_addr<W: AtomicWidth, F>(&self, i: Insn) -> Result<u64, Failed<F>> {
        let addr = self.read_x(i.rs1);
        if addr % W::BYTES != 0 {
            return Err((Cause::Misaligned, addr));
        }
        Ok(addr)
    }

    /// AMO; `extend` widens the former value as the width requires.
    pub(crate) fn amo<W: AtomicWidth, B: Bus>(
        &mut self,
        bus: &mut B,
        i: Insn,
        extend: impl Fn(u64) -> u64,
    ) -> Result<(), Failed<B::Fault>> {
        let addr = self.atomic_addr::<W, _>(i)?;
        let op = amo_op(i.imm);
        let operand = W::truncate(self.read_x(i.rs2));
        let old = bus
            .amo(addr, op, operand)
            .map_err(|fault| (Cause::Memory(fault), addr))?;
        self.write_x(i.rd, extend(old.to_u64()));
        Ok(())
    }

    /// LR.
    pub(crate) fn load_reserved<W: AtomicWidth, B: Bus>(
        &mut self,
        bus: &mut B,
        i: Insn,
        extend: impl Fn(u64) -> u64,
    ) -> Result<(), Failed<B::Fault>> {
        let addr = self.atomic_addr::<W, _>(i)?;
        let value: W = bus
            .load_reserved(addr)
            .map_err(|fault| (Cause::Memory(fault), addr))?;
        let value = value.to_u64();
        self.reservation = Some(Reservation {
            addr,
            bytes: W::BYTES,
            value,
        });
        self.write_x(i.rd, extend(value));
        Ok(())
    }

    /// SC: 0 to rd if it stored, else 1. The reservation is gone either way, except on a fault.
    pub(crate) fn store_conditional<W: AtomicWidth, B: Bus>(
        &mut self,
        bus: &mut B,
        i: Insn,
    ) -> Result<(), Failed<B::Fault>> {
        let addr = self.atomic_addr::<W, _>(i)?;
        let held = self
            .reservation
            .filter(|r| r.addr == addr && r.bytes == W::BYTES);
        let stored = match held {
            Some(r) => {
                let new = W::truncate(self.read_x(i.rs2));
                bus.store_conditional(addr, W::truncate(r.value), new)
                    .map_err(|fault| (Cause::Memory(fault), addr))?
            }
            None => false,
        };
        self.reservation = None;
        self.write_x(i.rd, u64::from(!stored));
        Ok(())
    }
}
