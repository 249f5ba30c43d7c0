// SPDX-License-Identifier: GPL-2.0
//! The F and D instructions: from an operation to what `fpu` does, and the moves between the register
//! files and memory.

use crate::bus::Bus;
use crate::exec::Trap;
use crate::fpu::BadRounding;
use crate::hart::Hart;
use crate::int::sext;
use crate::op::{Insn, Op};
use crate::softfloat::{Double, Single};

impl<F> From<BadRounding> for Trap<F> {
    fn from(_: BadRounding) -> Self {
        Trap::illegal()
    }
}

/// Sign and magnitude of a signed integer.
fn split(value: i64) -> (bool, u64) {
    (value < 0, value.unsigned_abs())
}

impl Hart {
    /// Executes one floating-point instruction.
    #[inline(always)]
    pub(crate) fn step_fp<B: Bus>(&mut self, bus: &mut B, i: Insn) -> Result<(), Trap<B::Fault>> {
        let fpu = &mut self.fpu;
        match i.op {
            Op::Flw => {
                let value = self.load::<u32, B>(bus, i)?;
                self.fpu.set::<Single>(i.rd, value);
            }
            Op::Fld => {
                let value = self.load::<u64, B>(bus, i)?;
                self.fpu.set::<Double>(i.rd, value);
            }
            // Stores and moves to x take the low bits as they are, boxed or not.
            Op::Fsw => self.store::<u32, B>(bus, i, self.fpu.get::<Double>(i.rs2))?,
            Op::Fsd => self.store::<u64, B>(bus, i, self.fpu.get::<Double>(i.rs2))?,
            Op::FaddS => fpu.add::<Single>(i, false)?,
            Op::FsubS => fpu.add::<Single>(i, true)?,
            Op::FmulS => fpu.mul::<Single>(i)?,
            Op::FaddD => fpu.add::<Double>(i, false)?,
            Op::FsubD => fpu.add::<Double>(i, true)?,
            Op::FmulD => fpu.mul::<Double>(i)?,
            Op::FmaddS => fpu.fma::<Single>(i, false, false)?,
            Op::FmsubS => fpu.fma::<Single>(i, false, true)?,
            Op::FnmsubS => fpu.fma::<Single>(i, true, false)?,
            Op::FnmaddS => fpu.fma::<Single>(i, true, true)?,
            Op::FmaddD => fpu.fma::<Double>(i, false, false)?,
            Op::FmsubD => fpu.fma::<Double>(i, false, true)?,
            Op::FnmsubD => fpu.fma::<Double>(i, true, false)?,
            Op::FnmaddD => fpu.fma::<Double>(i, true, true)?,
            _ => return self.step_fp_rare(i),
        }
        Ok(())
    }

    /// The operations that inner loops seldom consist of; none touches memory.
    #[inline(never)]
    fn step_fp_rare<F>(&mut self, i: Insn) -> Result<(), Trap<F>> {
        let x = self.read_x(i.rs1);
        let fpu = &mut self.fpu;
        match i.op {
            Op::FdivS => fpu.div::<Single>(i)?,
            Op::FdivD => fpu.div::<Double>(i)?,
            Op::FsqrtS => fpu.sqrt::<Single>(i)?,
            Op::FsqrtD => fpu.sqrt::<Double>(i)?,
            Op::FsgnjS => fpu.inject_sign::<Single>(i, |_, b| b),
            Op::FsgnjnS => fpu.inject_sign::<Single>(i, |_, b| !b),
            Op::FsgnjxS => fpu.inject_sign::<Single>(i, |a, b| a ^ b),
            Op::FsgnjD => fpu.inject_sign::<Double>(i, |_, b| b),
            Op::FsgnjnD => fpu.inject_sign::<Double>(i, |_, b| !b),
            Op::FsgnjxD => fpu.inject_sign::<Double>(i, |a, b| a ^ b),
            Op::FminS => fpu.min_max::<Single>(i, false),
            Op::FmaxS => fpu.min_max::<Single>(i, true),
            Op::FminD => fpu.min_max::<Double>(i, false),
            Op::FmaxD => fpu.min_max::<Double>(i, true),
            Op::FcvtSW => fpu.int_to::<Single>(i, split(i64::from(x as i32)))?,
            Op::FcvtSWu => fpu.int_to::<Single>(i, (false, u64::from(x as u32)))?,
            Op::FcvtSL => fpu.int_to::<Single>(i, split(x as i64))?,
            Op::FcvtSLu => fpu.int_to::<Single>(i, (false, x))?,
            Op::FcvtDW => fpu.int_to::<Double>(i, split(i64::from(x as i32)))?,
            Op::FcvtDWu => fpu.int_to::<Double>(i, (false, u64::from(x as u32)))?,
            Op::FcvtDL => fpu.int_to::<Double>(i, split(x as i64))?,
            Op::FcvtDLu => fpu.int_to::<Double>(i, (false, x))?,
            Op::FcvtSD => fpu.convert::<Double, Single>(i)?,
            Op::FcvtDS => fpu.convert::<Single, Double>(i)?,
            Op::FmvWX => fpu.set::<Single>(i.rd, x & u64::from(u32::MAX)),
            Op::FmvDX => fpu.set::<Double>(i.rd, x),
            _ => {
                let value = self.fp_to_x(i)?;
                self.write_x(i.rd, value);
            }
        }
        Ok(())
    }

    /// The operations whose result goes to an integer register.
    fn fp_to_x<F>(&mut self, i: Insn) -> Result<u64, Trap<F>> {
        const I32: (i128, i128) = (i32::MIN as i128, i32::MAX as i128);
        const U32: (i128, i128) = (0, u32::MAX as i128);
        const I64: (i128, i128) = (i64::MIN as i128, i64::MAX as i128);
        const U64: (i128, i128) = (0, u64::MAX as i128);
        let fpu = &mut self.fpu;
        Ok(match i.op {
            Op::FmvXW => sext(fpu.get::<Double>(i.rs1)),
            Op::FmvXD => fpu.get::<Double>(i.rs1),
            Op::FeqS => fpu.eq::<Single>(i),
            Op::FltS => fpu.less::<Single>(i, false),
            Op::FleS => fpu.less::<Single>(i, true),
            Op::FeqD => fpu.eq::<Double>(i),
            Op::FltD => fpu.less::<Double>(i, false),
            Op::FleD => fpu.less::<Double>(i, true),
            Op::FclassS => fpu.class::<Single>(i),
            Op::FclassD => fpu.class::<Double>(i),
            // The unsigned word form sign-extends its result too.
            Op::FcvtWS => sext(fpu.int_from::<Single>(i, I32)?),
            Op::FcvtWuS => sext(fpu.int_from::<Single>(i, U32)?),
            Op::FcvtLS => fpu.int_from::<Single>(i, I64)?,
            Op::FcvtLuS => fpu.int_from::<Single>(i, U64)?,
            Op::FcvtWD => sext(fpu.int_from::<Double>(i, I32)?),
            Op::FcvtWuD => sext(fpu.int_from::<Double>(i, U32)?),
            Op::FcvtLD => fpu.int_from::<Double>(i, I64)?,
            Op::FcvtLuD => fpu.int_from::<Double>(i, U64)?,
            // All others are integer instructions, which `step` has dealt with.
            _ => return Err(Trap::illegal()),
        })
    }
}
