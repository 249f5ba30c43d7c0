// SPDX-License-Identifier: GPL-2.0
//! The short cut of `fpu` through the host's floating point.
//!
//! Rust's `f32` and `f64` operators round to nearest even and give no flags. So a result is taken from
//! the host only in that mode, and only if its exponent is well inside the normal range: then
//! neither overflow nor underflow nor an invalid operation can have happened, and what remains to know
//! is whether it is inexact. That is computed from the error term where it is cheap, and needs no
//! computing when NX is set already. In all other cases the answer is `None`: ask `softfloat`.

use crate::softfloat::{Double, Format, Single, NX};

/// A format that the host computes with.
pub(crate) trait Host: Format {
    /// a + b.
    fn add(a: u64, b: u64, flags: &mut u8) -> Option<u64>;
    /// a × b.
    fn mul(a: u64, b: u64, flags: &mut u8) -> Option<u64>;
    /// a / b.
    fn div(a: u64, b: u64, flags: &mut u8) -> Option<u64>;
    /// Square root.
    fn sqrt(a: u64, flags: &mut u8) -> Option<u64>;
    /// a × b + c, rounded once.
    fn fma(a: u64, b: u64, c: u64, flags: &mut u8) -> Option<u64>;
}

/// True for normal numbers other than the least and the greatest binade, zero excluded.
#[inline(always)]
fn is_safe<F: Format>(bits: u64) -> bool {
    let field = bits & F::INF;
    field > 1 << F::FRAC && field < F::INF - (1 << F::FRAC)
}

/// `bits` if they are safe, having noted whether they are exact.
#[inline(always)]
fn accept<F: Format>(bits: u64, exact: bool, flags: &mut u8) -> Option<u64> {
    if !is_safe::<F>(bits) {
        return None;
    }
    *flags |= if exact { 0 } else { NX };
    Some(bits)
}

/// The result of `compute` if it is safe and NX is set already, so that it does not matter whether it
/// is exact.
#[inline(always)]
fn accept_if_nx(flags: u8, compute: impl FnOnce() -> f64) -> Option<u64> {
    if flags & NX == 0 {
        return None;
    }
    let bits = compute().to_bits();
    is_safe::<Double>(bits).then_some(bits)
}

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn double(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// True if a + b = sum exactly: Knuth's error term, which is exact itself for a sum in the safe range.
macro_rules! sum_is_exact {
    ($a:expr, $b:expr, $sum:expr) => {{
        let (a, b, sum) = ($a, $b, $sum);
        let b_part = sum - a;
        let a_part = sum - b_part;
        (a - a_part) + (b - b_part) == 0.0
    }};
}

// For binary32 the host's binary64 holds products of two values exactly.
impl Host for Single {
    #[inline(always)]
    fn add(a: u64, b: u64, flags: &mut u8) -> Option<u64> {
        let (a, b) = (single(a), single(b));
        let sum = a + b;
        let exact = sum_is_exact!(a, b, sum);
        accept::<Self>(u64::from(sum.to_bits()), exact, flags)
    }

    #[inline(always)]
    fn mul(a: u64, b: u64, flags: &mut u8) -> Option<u64> {
        let product = f64::from(single(a)) * f64::from(single(b));
        let rounded = product as f32;
        let exact = f64::from(rounded) == product;
        accept::<Self>(u64::from(rounded.to_bits()), exact, flags)
    }

    #[inline(always)]
    fn div(a: u64, b: u64, flags: &mut u8) -> Option<u64> {
        let (a, b) = (single(a), single(b));
        let quotient = a / b;
        let exact = f64::from(quotient) * f64::from(b) == f64::from(a);
        accept::<Self>(u64::from(quotient.to_bits()), exact, flags)
    }

    #[inline(always)]
    fn sqrt(a: u64, flags: &mut u8) -> Option<u64> {
        let a = single(a);
        let root = a.sqrt();
        let exact = f64::from(root) * f64::from(root) == f64::from(a);
        accept::<Self>(u64::from(root.to_bits()), exact, flags)
    }

    #[inline(always)]
    fn fma(a: u64, b: u64, c: u64, flags: &mut u8) -> Option<u64> {
        /// What rounding to binary32 drops of a binary64 significand, and half a unit there.
        const DROPPED: u64 = (1 << 29) - 1;
        const HALF: u64 = 1 << 28;
        let product = f64::from(single(a)) * f64::from(single(b));
        let addend = f64::from(single(c));
        let sum = product + addend;
        let sum_exact = sum_is_exact!(product, addend, sum);
        // Rounding twice is harmless unless the first one hid on which side of a tie the sum is.
        if !sum_exact && sum.to_bits() & DROPPED == HALF {
            return None;
        }
        let rounded = sum as f32;
        let exact = sum_exact && f64::from(rounded) == sum;
        accept::<Self>(u64::from(rounded.to_bits()), exact, flags)
    }
}

impl Host for Double {
    #[inline(always)]
    fn add(a: u64, b: u64, flags: &mut u8) -> Option<u64> {
        let (a, b) = (double(a), double(b));
        let sum = a + b;
        accept::<Self>(sum.to_bits(), sum_is_exact!(a, b, sum), flags)
    }

    #[inline(always)]
    fn mul(a: u64, b: u64, flags: &mut u8) -> Option<u64> {
        let product = || double(a) * double(b);
        // With m and n significant bits the product has m + n at most.
        let significant = |a: u64| 53 - (a | (1 << 52)).trailing_zeros();
        if is_safe::<Self>(a) && is_safe::<Self>(b) && significant(a) + significant(b) <= 53 {
            return accept::<Self>(product().to_bits(), true, flags);
        }
        accept_if_nx(*flags, product)
    }

    #[inline(always)]
    fn div(a: u64, b: u64, flags: &mut u8) -> Option<u64> {
        accept_if_nx(*flags, || double(a) / double(b))
    }

    #[inline(always)]
    fn sqrt(a: u64, flags: &mut u8) -> Option<u64> {
        accept_if_nx(*flags, || double(a).sqrt())
    }

    #[inline(always)]
    fn fma(a: u64, b: u64, c: u64, flags: &mut u8) -> Option<u64> {
        accept_if_nx(*flags, || double(a).mul_add(double(b), double(c)))
    }
}
