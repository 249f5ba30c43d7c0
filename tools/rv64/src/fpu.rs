// SPDX-License-Identifier: GPL-2.0
//! Floating-point state of a hart and the F and D instructions on it.

use crate::hostfp::Host;
use crate::op::Insn;
use crate::softfloat::{self as soft, Double, Format, Rounding, Single, NV};

/// Bits above a boxed single: all ones.
const BOX: u64 = 0xffff_ffff_0000_0000;

/// Format of an operand in the 64-bit floating-point registers.
pub(crate) trait Reg: Host {
    /// The operand in a register; a single that is not properly boxed reads as the canonical NaN.
    fn unbox(reg: u64) -> u64;
    /// The register that holds an operand.
    fn boxed(value: u64) -> u64;
}

impl Reg for Single {
    #[inline(always)]
    fn unbox(reg: u64) -> u64 {
        if reg & BOX == BOX {
            reg & !BOX
        } else {
            Single::NAN
        }
    }
    #[inline(always)]
    fn boxed(value: u64) -> u64 {
        value | BOX
    }
}

impl Reg for Double {
    #[inline(always)]
    fn unbox(reg: u64) -> u64 {
        reg
    }
    #[inline(always)]
    fn boxed(value: u64) -> u64 {
        value
    }
}

/// The instruction's rounding mode is reserved, so it is illegal.
#[derive(Debug)]
pub(crate) struct BadRounding;

/// Registers f0–f31, `fflags` and `frm`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fpu {
    pub(crate) f: [u64; 32],
    pub(crate) flags: u8,
    pub(crate) frm: u8,
}

impl Fpu {
    /// Operand in register `reg`.
    #[inline(always)]
    pub(crate) fn get<F: Reg>(&self, reg: u8) -> u64 {
        F::unbox(self.f[usize::from(reg & 31)])
    }

    /// Result to register `reg`.
    #[inline(always)]
    pub(crate) fn set<F: Reg>(&mut self, reg: u8, value: u64) {
        self.f[usize::from(reg & 31)] = F::boxed(value);
    }

    /// Value of `fcsr`.
    pub(crate) fn fcsr(&self) -> u8 {
        (self.frm << 5) | self.flags
    }

    /// Writes `fcsr`; the upper bits are reserved and ignored.
    pub(crate) fn set_fcsr(&mut self, value: u64) {
        self.flags = (value & 0x1f) as u8;
        self.frm = ((value >> 5) & 7) as u8;
    }

    #[inline(always)]
    fn rounding(&self, i: Insn) -> Result<Rounding, BadRounding> {
        const DYNAMIC: u8 = 7;
        let rm = match i.rm() {
            DYNAMIC => self.frm,
            rm => rm,
        };
        Rounding::new(rm).ok_or(BadRounding)
    }

    /// fadd, or fsub with `negate` the sign bit of the format.
    #[inline(always)]
    pub(crate) fn add<F: Reg>(&mut self, i: Insn, negate: bool) -> Result<(), BadRounding> {
        let rm = self.rounding(i)?;
        let a = self.get::<F>(i.rs1);
        let b = self.get::<F>(i.rs2) ^ if negate { F::SIGN } else { 0 };
        let fast = match rm {
            Rounding::Rne => F::add(a, b, &mut self.flags),
            _ => None,
        };
        let r = fast.unwrap_or_else(|| soft::add::<F>(a, b, rm, &mut self.flags));
        self.set::<F>(i.rd, r);
        Ok(())
    }

    /// fmul.
    #[inline(always)]
    pub(crate) fn mul<F: Reg>(&mut self, i: Insn) -> Result<(), BadRounding> {
        let rm = self.rounding(i)?;
        let (a, b) = (self.get::<F>(i.rs1), self.get::<F>(i.rs2));
        let fast = match rm {
            Rounding::Rne => F::mul(a, b, &mut self.flags),
            _ => None,
        };
        let r = fast.unwrap_or_else(|| soft::mul::<F>(a, b, rm, &mut self.flags));
        self.set::<F>(i.rd, r);
        Ok(())
    }

    /// fdiv.
    pub(crate) fn div<F: Reg>(&mut self, i: Insn) -> Result<(), BadRounding> {
        let rm = self.rounding(i)?;
        let (a, b) = (self.get::<F>(i.rs1), self.get::<F>(i.rs2));
        let fast = match rm {
            Rounding::Rne => F::div(a, b, &mut self.flags),
            _ => None,
        };
        let r = fast.unwrap_or_else(|| soft::div::<F>(a, b, rm, &mut self.flags));
        self.set::<F>(i.rd, r);
        Ok(())
    }

    /// fsqrt.
    pub(crate) fn sqrt<F: Reg>(&mut self, i: Insn) -> Result<(), BadRounding> {
        let rm = self.rounding(i)?;
        let a = self.get::<F>(i.rs1);
        let fast = match rm {
            Rounding::Rne => F::sqrt(a, &mut self.flags),
            _ => None,
        };
        let r = fast.unwrap_or_else(|| soft::sqrt::<F>(a, rm, &mut self.flags));
        self.set::<F>(i.rd, r);
        Ok(())
    }

    /// ±(rs1 × rs2) ± rs3: all four fused instructions, by which signs they turn.
    #[inline(always)]
    pub(crate) fn fma<F: Reg>(
        &mut self,
        i: Insn,
        negate_product: bool,
        negate_addend: bool,
    ) -> Result<(), BadRounding> {
        let rm = self.rounding(i)?;
        let sign = |negate| if negate { F::SIGN } else { 0 };
        let a = self.get::<F>(i.rs1) ^ sign(negate_product);
        let b = self.get::<F>(i.rs2);
        let c = self.get::<F>(i.rs3()) ^ sign(negate_addend);
        let fast = match rm {
            Rounding::Rne => F::fma(a, b, c, &mut self.flags),
            _ => None,
        };
        let r = fast.unwrap_or_else(|| soft::fma::<F>(a, b, c, rm, &mut self.flags));
        self.set::<F>(i.rd, r);
        Ok(())
    }

    /// fsgnj, fsgnjn, fsgnjx: `sign` computes the sign bit from the two operands.
    #[inline(always)]
    pub(crate) fn inject_sign<F: Reg>(&mut self, i: Insn, sign: impl Fn(u64, u64) -> u64) {
        let (a, b) = (self.get::<F>(i.rs1), self.get::<F>(i.rs2));
        self.set::<F>(i.rd, (a & !F::SIGN) | (sign(a, b) & F::SIGN));
    }

    /// fmin, fmax (IEEE 754-2019 minimumNumber, maximumNumber).
    pub(crate) fn min_max<F: Reg>(&mut self, i: Insn, max: bool) {
        let (a, b) = (self.get::<F>(i.rs1), self.get::<F>(i.rs2));
        if soft::is_signalling::<F>(a) || soft::is_signalling::<F>(b) {
            self.flags |= NV;
        }
        let r = match (soft::is_nan::<F>(a), soft::is_nan::<F>(b)) {
            (true, true) => F::NAN,
            (true, false) => b,
            (false, true) => a,
            (false, false) if (order::<F>(a) < order::<F>(b)) != max => a,
            (false, false) => b,
        };
        self.set::<F>(i.rd, r);
    }

    /// feq: only signalling NaNs are invalid.
    #[inline(always)]
    pub(crate) fn eq<F: Reg>(&mut self, i: Insn) -> u64 {
        let (a, b) = (self.get::<F>(i.rs1), self.get::<F>(i.rs2));
        if soft::is_nan::<F>(a) || soft::is_nan::<F>(b) {
            if soft::is_signalling::<F>(a) || soft::is_signalling::<F>(b) {
                self.flags |= NV;
            }
            return 0;
        }
        u64::from(a == b || (a | b) & !F::SIGN == 0)
    }

    /// flt, or fle with `or_equal`: any NaN is invalid.
    #[inline(always)]
    pub(crate) fn less<F: Reg>(&mut self, i: Insn, or_equal: bool) -> u64 {
        let (a, b) = (self.get::<F>(i.rs1), self.get::<F>(i.rs2));
        if soft::is_nan::<F>(a) || soft::is_nan::<F>(b) {
            self.flags |= NV;
            return 0;
        }
        if (a | b) & !F::SIGN == 0 {
            return u64::from(or_equal);
        }
        u64::from(order::<F>(a) < order::<F>(b) || (or_equal && a == b))
    }

    /// fclass: one bit of ten.
    pub(crate) fn class<F: Reg>(&self, i: Insn) -> u64 {
        let a = self.get::<F>(i.rs1);
        let negative = a & F::SIGN != 0;
        let magnitude = a & !F::SIGN;
        let bit = if soft::is_nan::<F>(a) {
            if soft::is_signalling::<F>(a) {
                8
            } else {
                9
            }
        } else {
            let kind = if magnitude == F::INF {
                0
            } else if magnitude > (1 << F::FRAC) - 1 {
                1
            } else if magnitude != 0 {
                2
            } else {
                3
            };
            if negative {
                kind
            } else {
                7 - kind
            }
        };
        1 << bit
    }

    /// fcvt from an integer given as sign and magnitude.
    pub(crate) fn int_to<F: Reg>(
        &mut self,
        i: Insn,
        (sign, magnitude): (bool, u64),
    ) -> Result<(), BadRounding> {
        let rm = self.rounding(i)?;
        let r = soft::from_int::<F>(sign, magnitude, rm, &mut self.flags);
        self.set::<F>(i.rd, r);
        Ok(())
    }

    /// fcvt to an integer in `range`, both ends included, in two's complement.
    pub(crate) fn int_from<F: Reg>(
        &mut self,
        i: Insn,
        range: (i128, i128),
    ) -> Result<u64, BadRounding> {
        let rm = self.rounding(i)?;
        let a = self.get::<F>(i.rs1);
        Ok(soft::to_int::<F>(a, range, rm, &mut self.flags))
    }

    /// fcvt between the formats.
    pub(crate) fn convert<F: Reg, G: Reg>(&mut self, i: Insn) -> Result<(), BadRounding> {
        let rm = self.rounding(i)?;
        let a = self.get::<F>(i.rs1);
        let r = soft::convert::<F, G>(a, rm, &mut self.flags);
        self.set::<G>(i.rd, r);
        Ok(())
    }
}

/// Integer that orders as the value does, -0 below +0. Not for NaN.
#[inline(always)]
fn order<F: Format>(a: u64) -> i64 {
    let magnitude = (a & !F::SIGN) as i64;
    if a & F::SIGN != 0 {
        !magnitude
    } else {
        magnitude
    }
}
