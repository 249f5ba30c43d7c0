// SPDX-License-Identifier: GPL-2.0
//! Binary floating point of IEEE 754 in integers: every rounding mode, exact exception flags.
//!
//! The authority on results; `fpu` takes a short cut through the host's floating point where that
//! provably gives the same. Follows the RISC-V manual where IEEE 754 leaves a choice: results that are
//! NaN are canonical, and tininess is detected after rounding.
//!
//! All operations have one form: unpack, settle the special values, compute the exact result as a
//! 128-bit significand (bits that do not fit are or-ed into the lowest, *jammed*: it lies far below
//! the rounding position, so rounding still sees on which side of a tie the value is), round once.

/// Inexact.
pub(crate) const NX: u8 = 1 << 0;
/// Underflow.
pub(crate) const UF: u8 = 1 << 1;
/// Overflow.
pub(crate) const OF: u8 = 1 << 2;
/// Division by zero.
pub(crate) const DZ: u8 = 1 << 3;
/// Invalid operation.
pub(crate) const NV: u8 = 1 << 4;

/// Rounding mode, encoded as in `frm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To nearest, ties to even.
    Rne = 0,
    /// Towards zero.
    Rtz = 1,
    /// Towards minus infinity.
    Rdn = 2,
    /// Towards plus infinity.
    Rup = 3,
    /// To nearest, ties away from zero.
    Rmm = 4,
}

impl Rounding {
    /// From the encoding; `None` for reserved and dynamic ones.
    pub(crate) fn new(rm: u8) -> Option<Self> {
        Some(match rm {
            0 => Self::Rne,
            1 => Self::Rtz,
            2 => Self::Rdn,
            3 => Self::Rup,
            4 => Self::Rmm,
            _ => return None,
        })
    }
}

/// A floating-point format. Values are handled as their bits in the low end of a `u64`.
pub(crate) trait Format {
    /// Stored bits of the significand.
    const FRAC: u32;
    /// Bits of the exponent.
    const EXP: u32;

    /// Sign bit.
    const SIGN: u64 = 1 << (Self::FRAC + Self::EXP);
    /// Plus infinity; also the mask of the exponent.
    const INF: u64 = ((1 << Self::EXP) - 1) << Self::FRAC;
    /// The canonical NaN: quiet, positive, no payload.
    const NAN: u64 = Self::INF | Self::QUIET;
    /// The bit that tells a quiet NaN from a signalling one.
    const QUIET: u64 = 1 << (Self::FRAC - 1);
    /// Exponent bias, also the largest exponent of a finite value.
    const BIAS: i32 = (1 << (Self::EXP - 1)) - 1;
}

/// binary32.
pub(crate) struct Single;
impl Format for Single {
    const FRAC: u32 = 23;
    const EXP: u32 = 8;
}

/// binary64.
pub(crate) struct Double;
impl Format for Double {
    const FRAC: u32 = 52;
    const EXP: u32 = 11;
}

/// A finite value that is not zero: (-1)^sign × sig × 2^exp.
#[derive(Clone, Copy)]
struct Number {
    sign: bool,
    exp: i32,
    sig: u128,
}

enum Value {
    Nan,
    Inf(bool),
    Zero(bool),
    Number(Number),
}

pub(crate) fn is_nan<F: Format>(a: u64) -> bool {
    a & !F::SIGN > F::INF
}

pub(crate) fn is_signalling<F: Format>(a: u64) -> bool {
    is_nan::<F>(a) && a & F::QUIET == 0
}

/// Significands of numbers come with their leading one at bit `F::FRAC`.
fn unpack<F: Format>(a: u64) -> Value {
    let sign = a & F::SIGN != 0;
    let magnitude = a & !F::SIGN;
    let frac = magnitude & ((1 << F::FRAC) - 1);
    let biased = (magnitude >> F::FRAC) as i32;
    let min_exp = 1 - F::BIAS - F::FRAC as i32;
    if magnitude == 0 {
        Value::Zero(sign)
    } else if magnitude > F::INF {
        Value::Nan
    } else if magnitude == F::INF {
        Value::Inf(sign)
    } else if biased == 0 {
        let shift = F::FRAC + frac.leading_zeros() - 63;
        Value::Number(Number {
            sign,
            exp: min_exp - shift as i32,
            sig: u128::from(frac << shift),
        })
    } else {
        Value::Number(Number {
            sign,
            exp: min_exp + biased - 1,
            sig: u128::from(frac | (1 << F::FRAC)),
        })
    }
}

fn signed<F: Format>(sign: bool, magnitude: u64) -> u64 {
    if sign {
        magnitude | F::SIGN
    } else {
        magnitude
    }
}

/// `sig` / 2^`shift` as an integer rounded by `rm`, and whether that lost something. `sig` is below 2^127.
fn round_shift(sign: bool, sig: u128, shift: u32, rm: Rounding) -> (u128, bool) {
    let (quotient, rest, half) = match shift {
        0 => return (sig, false),
        1..=127 => (sig >> shift, sig & ((1 << shift) - 1), 1 << (shift - 1)),
        // All of the value lies below half a unit.
        _ => (0, sig.min(1), 2),
    };
    let up = match rm {
        Rounding::Rne => rest > half || (rest == half && quotient & 1 == 1),
        Rounding::Rtz => false,
        Rounding::Rdn => sign && rest != 0,
        Rounding::Rup => !sign && rest != 0,
        Rounding::Rmm => rest >= half,
    };
    (quotient + u128::from(up), rest != 0)
}

/// `sig` >> `shift` with the lost bits jammed.
fn shift_right_jam(sig: u128, shift: u32) -> u128 {
    match shift {
        0 => sig,
        1..=127 => (sig >> shift) | u128::from(sig & ((1 << shift) - 1) != 0),
        _ => u128::from(sig != 0),
    }
}

/// Rounds a number with any significand in 1..2^127 into the format: the only place where the
/// inexact, underflow and overflow flags of arithmetic come from.
fn round_pack<F: Format>(n: Number, rm: Rounding, flags: &mut u8) -> u64 {
    let frac = F::FRAC as i32;
    let min_exp = 1 - F::BIAS - frac;
    let top = 127 - n.sig.leading_zeros() as i32;
    // Exponent of the last place, if the exponent range had no lower end and with it.
    let unbounded = n.exp + top - frac;
    let mut exp = unbounded.max(min_exp);
    let at = |exp: i32| {
        if exp <= n.exp {
            // Only a significand shorter than the format's moves left, so this cannot overflow.
            (n.sig << (n.exp - exp), false)
        } else {
            round_shift(n.sign, n.sig, (exp - n.exp) as u32, rm)
        }
    };
    let (mut sig, inexact) = at(exp);
    if sig == 2 << F::FRAC {
        sig >>= 1;
        exp += 1;
    }
    if inexact {
        *flags |= NX;
        // Tiny after rounding: below the least normal number if the range had no lower end.
        if unbounded < min_exp && !(unbounded == min_exp - 1 && at(unbounded).0 == 2 << F::FRAC) {
            *flags |= UF;
        }
    }
    if exp + frac > F::BIAS {
        *flags |= OF | NX;
        let to_inf = match rm {
            Rounding::Rne | Rounding::Rmm => true,
            Rounding::Rtz => false,
            Rounding::Rdn => n.sign,
            Rounding::Rup => !n.sign,
        };
        return signed::<F>(n.sign, if to_inf { F::INF } else { F::INF - 1 });
    }
    // A subnormal has exponent field 0 and no hidden bit: adding the significand to the field minus
    // one serves both cases.
    let field = (exp - min_exp) as u64;
    signed::<F>(n.sign, (field << F::FRAC) + sig as u64)
}

/// The NaN that comes of invalid operations.
fn invalid<F: Format>(flags: &mut u8) -> u64 {
    *flags |= NV;
    F::NAN
}

/// Raises invalid if one of the operands is signalling.
fn note_signalling<F: Format>(operands: &[u64], flags: &mut u8) {
    if operands.iter().any(|&a| is_signalling::<F>(a)) {
        *flags |= NV;
    }
}

/// The sign of a sum that is exactly zero.
fn zero_sum<F: Format>(a: bool, b: bool, rm: Rounding) -> u64 {
    signed::<F>(if a == b { a } else { rm == Rounding::Rdn }, 0)
}

/// Leading one to bit 125: room for a carry, and 72 bits below a significand of the formats.
fn normalise(n: Number) -> Number {
    let shift = n.sig.leading_zeros() as i32 - 2;
    Number {
        sig: n.sig << shift,
        exp: n.exp - shift,
        ..n
    }
}

/// Sum of two numbers of at most 106 significant bits, rounded once.
///
/// Jamming is sound: bits fall off only when the smaller operand moves by more than 20 places, and
/// then cancellation takes at most one bit of the larger one.
fn add_numbers<F: Format>(a: Number, b: Number, rm: Rounding, flags: &mut u8) -> u64 {
    let (a, b) = (normalise(a), normalise(b));
    let (a, b) = if a.exp >= b.exp { (a, b) } else { (b, a) };
    let small = shift_right_jam(b.sig, (a.exp - b.exp) as u32);
    let (sign, sig) = if a.sign == b.sign {
        (a.sign, a.sig + small)
    } else if a.sig >= small {
        (a.sign, a.sig - small)
    } else {
        (b.sign, small - a.sig)
    };
    if sig == 0 {
        return zero_sum::<F>(a.sign, b.sign, rm);
    }
    let exp = a.exp;
    round_pack::<F>(Number { sign, exp, sig }, rm, flags)
}

/// a + b.
pub(crate) fn add<F: Format>(a: u64, b: u64, rm: Rounding, flags: &mut u8) -> u64 {
    use Value::{Inf, Nan, Number, Zero};
    match (unpack::<F>(a), unpack::<F>(b)) {
        (Nan, _) | (_, Nan) => {
            note_signalling::<F>(&[a, b], flags);
            F::NAN
        }
        (Inf(s), Inf(t)) if s != t => invalid::<F>(flags),
        (Inf(_), _) => a,
        (_, Inf(_)) => b,
        (Zero(s), Zero(t)) => zero_sum::<F>(s, t, rm),
        (Zero(_), _) => b,
        (_, Zero(_)) => a,
        (Number(m), Number(n)) => add_numbers::<F>(m, n, rm, flags),
    }
}

fn product(a: Number, b: Number) -> Number {
    Number {
        sign: a.sign != b.sign,
        exp: a.exp + b.exp,
        sig: a.sig * b.sig,
    }
}

/// a × b.
pub(crate) fn mul<F: Format>(a: u64, b: u64, rm: Rounding, flags: &mut u8) -> u64 {
    use Value::{Inf, Nan, Number, Zero};
    let sign = (a ^ b) & F::SIGN;
    match (unpack::<F>(a), unpack::<F>(b)) {
        (Nan, _) | (_, Nan) => {
            note_signalling::<F>(&[a, b], flags);
            F::NAN
        }
        (Inf(_), Zero(_)) | (Zero(_), Inf(_)) => invalid::<F>(flags),
        (Inf(_), _) | (_, Inf(_)) => sign | F::INF,
        (Zero(_), _) | (_, Zero(_)) => sign,
        (Number(m), Number(n)) => round_pack::<F>(product(m, n), rm, flags),
    }
}

/// a × b + c with one rounding.
pub(crate) fn fma<F: Format>(a: u64, b: u64, c: u64, rm: Rounding, flags: &mut u8) -> u64 {
    use Value::{Inf, Nan, Number, Zero};
    let sign = (a ^ b) & F::SIGN != 0;
    match (unpack::<F>(a), unpack::<F>(b), unpack::<F>(c)) {
        // Invalid even if the addend is a quiet NaN.
        (Inf(_), Zero(_), _) | (Zero(_), Inf(_), _) => invalid::<F>(flags),
        (Nan, _, _) | (_, Nan, _) | (_, _, Nan) => {
            note_signalling::<F>(&[a, b, c], flags);
            F::NAN
        }
        (Inf(_), _, Inf(s)) | (_, Inf(_), Inf(s)) if s != sign => invalid::<F>(flags),
        (Inf(_), _, _) | (_, Inf(_), _) => signed::<F>(sign, F::INF),
        (_, _, Inf(_)) => c,
        (Zero(_), _, Zero(s)) | (_, Zero(_), Zero(s)) => zero_sum::<F>(sign, s, rm),
        (Zero(_), _, _) | (_, Zero(_), _) => c,
        (Number(l), Number(m), Zero(_)) => round_pack::<F>(product(l, m), rm, flags),
        (Number(l), Number(m), Number(n)) => add_numbers::<F>(product(l, m), n, rm, flags),
    }
}

/// a / b.
pub(crate) fn div<F: Format>(a: u64, b: u64, rm: Rounding, flags: &mut u8) -> u64 {
    use Value::{Inf, Nan, Number, Zero};
    let sign = (a ^ b) & F::SIGN;
    match (unpack::<F>(a), unpack::<F>(b)) {
        (Nan, _) | (_, Nan) => {
            note_signalling::<F>(&[a, b], flags);
            F::NAN
        }
        (Inf(_), Inf(_)) | (Zero(_), Zero(_)) => invalid::<F>(flags),
        (Inf(_), _) => sign | F::INF,
        (Zero(_), _) | (_, Inf(_)) => sign,
        (Number(_), Zero(_)) => {
            *flags |= DZ;
            sign | F::INF
        }
        (Number(m), Number(n)) => {
            let dividend = m.sig << 64;
            let quotient = (dividend / n.sig) | u128::from(dividend % n.sig != 0);
            let n = self::Number {
                sign: sign != 0,
                exp: m.exp - n.exp - 64,
                sig: quotient,
            };
            round_pack::<F>(n, rm, flags)
        }
    }
}

/// Square root.
pub(crate) fn sqrt<F: Format>(a: u64, rm: Rounding, flags: &mut u8) -> u64 {
    match unpack::<F>(a) {
        Value::Nan => {
            note_signalling::<F>(&[a], flags);
            F::NAN
        }
        Value::Zero(_) | Value::Inf(false) => a,
        Value::Inf(true) | Value::Number(Number { sign: true, .. }) => invalid::<F>(flags),
        Value::Number(n) => {
            let odd = n.exp & 1;
            let radicand = n.sig << (64 + odd);
            let root = radicand.isqrt();
            let n = Number {
                sign: false,
                exp: (n.exp - odd - 64) / 2,
                sig: root | u128::from(root * root != radicand),
            };
            round_pack::<F>(n, rm, flags)
        }
    }
}

/// From one format to another.
pub(crate) fn convert<F: Format, G: Format>(a: u64, rm: Rounding, flags: &mut u8) -> u64 {
    match unpack::<F>(a) {
        Value::Nan => {
            note_signalling::<F>(&[a], flags);
            G::NAN
        }
        Value::Inf(sign) => signed::<G>(sign, G::INF),
        Value::Zero(sign) => signed::<G>(sign, 0),
        Value::Number(n) => round_pack::<G>(n, rm, flags),
    }
}

/// From an integer given as sign and magnitude.
pub(crate) fn from_int<F: Format>(sign: bool, magnitude: u64, rm: Rounding, flags: &mut u8) -> u64 {
    if magnitude == 0 {
        return 0;
    }
    let sig = u128::from(magnitude);
    round_pack::<F>(Number { sign, exp: 0, sig }, rm, flags)
}

/// To an integer in `range`, both ends included, as a two's complement `u64`. Out of range and NaN: invalid, and the
/// nearest bound (NaN: the upper one).
pub(crate) fn to_int<F: Format>(a: u64, range: (i128, i128), rm: Rounding, flags: &mut u8) -> u64 {
    let (value, inexact) = match unpack::<F>(a) {
        Value::Zero(_) => (0, false),
        Value::Nan | Value::Inf(false) => (i128::MAX, false),
        Value::Inf(true) => (i128::MIN, false),
        Value::Number(n) => {
            let (magnitude, inexact) = if n.exp >= 0 {
                // Beyond 2^64 all values are out of range alike.
                (n.sig << n.exp.min(65), false)
            } else {
                round_shift(n.sign, n.sig, n.exp.unsigned_abs(), rm)
            };
            // At most 53 + 65 bits, so the conversion keeps the value.
            let magnitude = magnitude as i128;
            (if n.sign { -magnitude } else { magnitude }, inexact)
        }
    };
    let clamped = value.clamp(range.0, range.1);
    if clamped != value {
        *flags |= NV;
    } else if inexact {
        *flags |= NX;
    }
    clamped as u64
}
