// SPDX-License-Identifier: GPL-2.0
//! Integer operations whose meaning takes more than a line: the M extension and the 32-bit forms.
//!
//! Division never traps: by zero it gives all ones (remainder: the dividend), and the one overflow,
//! least integer by -1, gives the dividend (remainder: zero).

/// Sign-extends the low 32 bits.
#[inline(always)]
pub(crate) fn sext(value: u64) -> u64 {
    value as i32 as u64
}

/// High half of a signed product.
#[inline(always)]
pub(crate) fn mulh(a: u64, b: u64) -> u64 {
    ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64
}

/// High half of a signed by unsigned product.
#[inline(always)]
pub(crate) fn mulhsu(a: u64, b: u64) -> u64 {
    ((i128::from(a as i64) * i128::from(b)) >> 64) as u64
}

/// High half of an unsigned product.
#[inline(always)]
pub(crate) fn mulhu(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

/// div
#[inline(always)]
pub(crate) fn div(a: u64, b: u64) -> u64 {
    match b {
        0 => u64::MAX,
        _ => (a as i64).wrapping_div(b as i64) as u64,
    }
}

/// divu
#[inline(always)]
pub(crate) fn divu(a: u64, b: u64) -> u64 {
    a.checked_div(b).unwrap_or(u64::MAX)
}

/// rem
#[inline(always)]
pub(crate) fn rem(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        _ => (a as i64).wrapping_rem(b as i64) as u64,
    }
}

/// remu
#[inline(always)]
pub(crate) fn remu(a: u64, b: u64) -> u64 {
    a.checked_rem(b).unwrap_or(a)
}

/// divw
#[inline(always)]
pub(crate) fn divw(a: u64, b: u64) -> u64 {
    match b as i32 {
        0 => u64::MAX,
        b => (a as i32).wrapping_div(b) as u64,
    }
}

/// divuw
#[inline(always)]
pub(crate) fn divuw(a: u64, b: u64) -> u64 {
    let quotient = (a as u32).checked_div(b as u32).unwrap_or(u32::MAX);
    sext(u64::from(quotient))
}

/// remw
#[inline(always)]
pub(crate) fn remw(a: u64, b: u64) -> u64 {
    match b as i32 {
        0 => sext(a),
        b => (a as i32).wrapping_rem(b) as u64,
    }
}

/// remuw
#[inline(always)]
pub(crate) fn remuw(a: u64, b: u64) -> u64 {
    let rest = (a as u32).checked_rem(b as u32).unwrap_or(a as u32);
    sext(u64::from(rest))
}
