// SPDX-License-Identifier: GPL-2.0
//! Floating-point operands that reach the corners, and the reference arithmetic of rustc_apfloat.
#![allow(dead_code)]

use rustc_apfloat::ieee::{IeeeFloat, Semantics};
use rustc_apfloat::{Float, FloatConvert, Round, Status, StatusAnd};

pub const NX: u8 = 1;
pub const UF: u8 = 2;
pub const OF: u8 = 4;
pub const DZ: u8 = 8;
pub const NV: u8 = 16;

/// Encoding of the rounding modes, with the reference's name of each.
pub const MODES: [(u32, Round); 5] = [
    (0, Round::NearestTiesToEven),
    (1, Round::TowardZero),
    (2, Round::TowardNegative),
    (3, Round::TowardPositive),
    (4, Round::NearestTiesToAway),
];

/// A format under test.
pub trait Form: Semantics {
    /// The same precision with an exponent range that no test leaves.
    type Wide: Semantics;
    /// Stored bits of the significand.
    const FRAC: u32;
    /// Bits of the exponent.
    const EXP: u32;
    /// The `fmt` field of the instruction.
    const FMT: u32;
    /// funct3 of its load and store.
    const WIDTH: u32;

    /// Canonical NaN.
    const NAN: u64 = ((2 << Self::EXP) - 1) << (Self::FRAC - 1);
    /// Infinity.
    const INF: u64 = ((1 << Self::EXP) - 1) << Self::FRAC;
    /// Sign bit.
    const SIGN: u64 = 1 << (Self::FRAC + Self::EXP);

    /// As the register holds it.
    fn boxed(bits: u64) -> u64 {
        if Self::FMT == 0 {
            bits | 0xffff_ffff_0000_0000
        } else {
            bits
        }
    }

    fn is_nan(bits: u64) -> bool {
        bits & !Self::SIGN > Self::INF
    }

    fn is_signalling(bits: u64) -> bool {
        Self::is_nan(bits) && (bits >> (Self::FRAC - 1)) & 1 == 0
    }
}

macro_rules! wide {
    ($name:ident, $precision:expr) => {
        pub struct $name;
        impl Semantics for $name {
            const BITS: usize = $precision + 15;
            const EXP_BITS: usize = 15;
        }
    };
}
wide!(WideSingle, 24);
wide!(WideDouble, 53);

pub use rustc_apfloat::ieee::{DoubleS as Double, SingleS as Single};

impl Form for Single {
    type Wide = WideSingle;
    const FRAC: u32 = 23;
    const EXP: u32 = 8;
    const FMT: u32 = 0;
    const WIDTH: u32 = 2;
}

impl Form for Double {
    type Wide = WideDouble;
    const FRAC: u32 = 52;
    const EXP: u32 = 11;
    const FMT: u32 = 1;
    const WIDTH: u32 = 3;
}

/// An operand: uniform, or near one of the places where something changes.
pub fn operand<F: Form>(rng: &mut fastrand::Rng) -> u64 {
    let max_field = (1 << F::EXP) - 1;
    let bias = max_field / 2;
    let precision = u64::from(F::FRAC) + 1;
    let frac_mask = (1 << F::FRAC) - 1;
    let special = [
        0,
        1,
        2,
        frac_mask,
        1 << F::FRAC,
        (1 << F::FRAC) + 1,
        bias << F::FRAC,
        F::INF - 1,
        F::INF,
        F::INF + 1,
        F::NAN,
        F::NAN | rng.u64(..) & frac_mask,
    ];
    let sign = if rng.bool() { F::SIGN } else { 0 };
    let frac = rng.u64(..) & frac_mask;
    // Few significant bits: exact results and ties become likely.
    let sparse = frac & (u64::MAX << rng.u32(..F::FRAC)) & frac_mask;
    let frac = if rng.bool() { frac } else { sparse };
    let field = match rng.u8(..7) {
        0 => return rng.u64(..) & (F::SIGN | (F::SIGN - 1)),
        1 => return sign | special[rng.usize(..special.len())],
        2 => rng.u64(..precision + 3),
        3 => max_field - 1 - rng.u64(..4),
        4 => rng.u64(bias / 2 - 4..bias / 2 + 4),
        5 => rng.u64(bias + bias / 2 - 4..bias + bias / 2 + 4),
        _ => rng.u64(bias - precision..bias + precision),
    };
    sign | (field << F::FRAC) | frac
}

/// A third operand that nearly cancels the product of two, or is any other.
pub fn addend<F: Form>(rng: &mut fastrand::Rng, a: u64, b: u64) -> u64
where
    IeeeFloat<F>: Float,
{
    if rng.bool() {
        return operand::<F>(rng);
    }
    let product = ap::<F>(a).mul_r(ap(b), Round::TowardZero).value;
    let near = (-product).to_bits() as u64;
    near.wrapping_add(rng.u64(..3)).wrapping_sub(1) & (F::SIGN | (F::SIGN - 1))
}

pub fn ap<F: Semantics>(bits: u64) -> IeeeFloat<F>
where
    IeeeFloat<F>: Float,
{
    IeeeFloat::from_bits(u128::from(bits))
}

/// Flags of the reference in their RISC-V encoding.
pub fn flags(status: Status) -> u8 {
    [
        (Status::INEXACT, NX),
        (Status::UNDERFLOW, UF),
        (Status::OVERFLOW, OF),
        (Status::DIV_BY_ZERO, DZ),
        (Status::INVALID_OP, NV),
    ]
    .into_iter()
    .filter(|&(theirs, _)| status.contains(theirs))
    .fold(0, |all, (_, ours)| all | ours)
}

/// The RISC-V reading of a result of the reference: NaNs canonical, overflow raised in all modes,
/// tininess detected after rounding.
///
/// The reference does not raise overflow when the result is the greatest finite number, and looks for
/// tininess before rounding, which makes a difference where rounding reaches the least normal number.
/// In both places `wide`, the same operation without ends of the exponents, tells.
pub fn reference<F: Form>(
    got: StatusAnd<IeeeFloat<F>>,
    wide: impl Fn() -> IeeeFloat<F::Wide>,
) -> (u64, u8)
where
    IeeeFloat<F>: Float,
    IeeeFloat<F::Wide>: Float + FloatConvert<IeeeFloat<F>>,
{
    let bits = got.value.to_bits() as u64;
    let mut flags = flags(got.status);
    let magnitude = bits & !F::SIGN;
    if magnitude == 1 << F::FRAC && flags & NX != 0 {
        let tiny = wide().ilogb() < IeeeFloat::<F>::smallest_normalized().ilogb();
        flags = if tiny { flags | UF } else { flags & !UF };
    }
    if magnitude == F::INF - 1 && wide().ilogb() > IeeeFloat::<F>::largest().ilogb() {
        flags |= OF;
    }
    (if F::is_nan(bits) { F::NAN } else { bits }, flags)
}

/// The exact value of an operand in the wide format (subnormals become normal there).
pub fn widen<F: Form>(bits: u64) -> IeeeFloat<F::Wide>
where
    IeeeFloat<F>: Float + FloatConvert<IeeeFloat<F::Wide>>,
    IeeeFloat<F::Wide>: Float,
{
    ap::<F>(bits).convert(&mut false).value
}
