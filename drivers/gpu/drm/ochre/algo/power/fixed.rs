// SPDX-License-Identifier: GPL-2.0

//! Arithmetic without fractions, overflow or panic.
//!
//! The kernel has neither floating point nor division of 128 bits, and the numbers come from a
//! device that may say anything: so all that is multiplied and then divided goes through
//! [`mul_div`], which keeps the product whole and saturates.
//!
//! Units stand in the names: `_ns` board time, `_uj` µJ, `_mw` mW, `_mc` m°C, `_mk` mK, `_khz`,
//! `_uv` µV. Shares are in units of 1/[`ONE`].

use kernel::prelude::*;

/// A share of all.
pub(crate) const ONE: i64 = 1 << 16;

/// One thousandth of all, about.
pub(super) const PERMILLE: i64 = ONE / 1000;

/// The product of both as upper and lower word.
fn wide_mul(a: u64, b: u64) -> (u64, u64) {
    const LOW: u64 = u32::MAX as u64;
    let (ah, al, bh, bl) = (a >> 32, a & LOW, b >> 32, b & LOW);
    let low = al * bl;
    let mid = (ah * bl).wrapping_add(low >> 32);
    let mid2 = (al * bh).wrapping_add(mid & LOW);
    let high = (ah * bh).wrapping_add(mid >> 32).wrapping_add(mid2 >> 32);
    (high, (mid2 << 32) | (low & LOW))
}

/// `a * b / c` rounded down; `u64::MAX` if that does not fit or `c` is 0.
fn mul_div_unsigned(a: u64, b: u64, c: u64) -> u64 {
    if let Some(quotient) = a.checked_mul(b).and_then(|product| product.checked_div(c)) {
        return quotient;
    }
    let (high, low) = wide_mul(a, b);
    if high >= c {
        return u64::MAX;
    }
    let (mut rest, mut quotient) = (high, 0u64);
    for bit in (0..64).rev() {
        let carry = rest >> 63 != 0;
        rest = (rest << 1) | ((low >> bit) & 1);
        quotient <<= 1;
        if carry || rest >= c {
            rest = rest.wrapping_sub(c);
            quotient |= 1;
        }
    }
    quotient
}

/// `a * b / c` rounded towards 0, with a product of any size; saturates, also if `c` is 0.
pub(crate) fn mul_div(a: i64, b: i64, c: i64) -> i64 {
    let quotient = mul_div_unsigned(a.unsigned_abs(), b.unsigned_abs(), c.unsigned_abs());
    let quotient = i64::try_from(quotient).unwrap_or(i64::MAX);
    if (a < 0) ^ (b < 0) ^ (c < 0) {
        quotient.saturating_neg()
    } else {
        quotient
    }
}

/// Ratio of both as a share, at most [`ONE`]; 0 of nothing.
pub(crate) fn share(part: i64, whole: i64) -> i64 {
    if whole <= 0 {
        return 0;
    }
    mul_div(part.max(0), ONE, whole).min(ONE)
}

/// That share of a value.
pub(crate) fn of(share: i64, value: i64) -> i64 {
    mul_div(value, share, ONE)
}

/// Exponentially weighted moving average: where `old` goes when it has seen `new` for `dt` with a
/// time constant of `tau`. Sampling seldom weighs the same as sampling often, nearly.
pub(crate) fn ewma(old: i64, new: i64, dt: i64, tau: i64) -> i64 {
    let step = new.saturating_sub(old);
    old.saturating_add(mul_div(
        step,
        dt.max(0),
        tau.max(1).saturating_add(dt.max(0)),
    ))
}

/// A number of the device's, as far as it fits.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A number that is not negative, as far as it is not.
pub(crate) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

#[kunit_tests(ochre_algo_power_fixed)]
mod tests {
    use super::*;
    use crate::algo::prng::for_each_seed;

    #[test]
    fn product_is_whole_before_it_is_divided() -> Result {
        for_each_seed("fixed", |rng| {
            for _ in 0..200 {
                // q * c + r over c, with q * c too large for 64 bits, is q.
                let c = rng.next() >> rng.below(60) | 1;
                let q = rng.next() >> rng.below(64) >> 1;
                assert!(mul_div_unsigned(q, c, c) == q);
                let (a, b) = (rng.next() >> 33, rng.next() >> 33);
                assert!(wide_mul(a, b) == (0, a * b));
                let (high, low) = wide_mul(a << 32, b << 32);
                assert!((high, low) == (a * b, 0));
            }
            Ok(())
        })
    }

    #[test]
    fn nothing_overflows() {
        for a in [i64::MIN, -1, 0, 1, i64::MAX] {
            for b in [i64::MIN, -1, 0, 1, i64::MAX] {
                for c in [i64::MIN, -1, 0, 1, i64::MAX] {
                    let _ = mul_div(a, b, c);
                    let _ = ewma(a, b, c, c);
                    let _ = (share(a, b), of(a, b));
                }
            }
        }
        assert!(mul_div(i64::MAX, i64::MAX, 1) == i64::MAX);
        assert!(mul_div(i64::MIN, i64::MAX, 1) == -i64::MAX);
        assert!(mul_div(-7, 3, 2) == -10);
        assert!(mul_div(1, 1, 0) == i64::MAX);
    }

    #[test]
    fn average_arrives_after_some_time_constants() {
        let mut v = 0;
        for _ in 0..100 {
            v = ewma(v, 1_000_000, 100, 1_000);
        }
        assert!(v > 990_000 && v <= 1_000_000);
        let half = ewma(0, 1_000_000, 1_000, 1_000);
        assert!(half == 500_000);
    }
}
