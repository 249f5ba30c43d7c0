// SPDX-License-Identifier: GPL-2.0
//! Floating-point instructions that do not compute a rounded result of arithmetic: conversions,
//! comparisons, selection, classification, moves; NaN boxing.

mod common;

use common::float::{ap, operand, reference, widen, Double, Form, Single, MODES, NV, NX};
use common::{encode, execute, hart, rng, rounds, Ram, DATA};
use ochre_rv64::Hart;
use rustc_apfloat::ieee::IeeeFloat;
use rustc_apfloat::{Float, FloatConvert};

/// Rounds per instruction and format.
const ROUNDS: usize = 800;

/// A hart with the operands in f1 and f2.
fn with<F: Form>(a: u64, b: u64) -> Hart {
    let mut hart = hart();
    hart.set_f(1, F::boxed(a));
    hart.set_f(2, F::boxed(b));
    hart
}

/// OP-FP with destination register 4.
fn op_fp<F: Form>(funct5: u32, funct3: u32, rs2: u32) -> u32 {
    encode::r(0x53, funct3, (funct5 << 2) | F::FMT, 4, 1, rs2)
}

/// Value of a finite operand as an integer rounded by the reference, saturated, with flags.
fn expected_int<F: Form>(a: u64, round: rustc_apfloat::Round, bits: u32, signed: bool) -> (u64, u8)
where
    IeeeFloat<F>: Float + FloatConvert<IeeeFloat<F::Wide>>,
    IeeeFloat<F::Wide>: Float,
{
    let (min, max) = match signed {
        true => (-(1_i128 << (bits - 1)), (1 << (bits - 1)) - 1),
        false => (0, (1 << bits) - 1),
    };
    let positive = a & F::SIGN == 0;
    let (value, flags) = if F::is_nan(a) {
        (max, NV)
    } else {
        // Rounded in the wide format, then exact: independent of the reference's own saturation.
        let rounded = widen::<F>(a).round_to_integral(round).value;
        let exact = rounded == widen::<F>(a);
        let integer = rounded.to_i128_r(128, round, &mut false).value;
        let clamped = integer.clamp(min, max);
        let flags = match (clamped == integer && !rounded.is_infinite(), exact) {
            (false, _) => NV,
            (true, true) => 0,
            (true, false) => NX,
        };
        match rounded.is_infinite() {
            true if positive => (max, NV),
            true => (min, NV),
            false => (clamped, flags),
        }
    };
    let value = value as u64;
    (
        if bits == 32 {
            value as i32 as u64
        } else {
            value
        },
        flags,
    )
}

fn check_to_int<F: Form>()
where
    IeeeFloat<F>: Float + FloatConvert<IeeeFloat<F::Wide>>,
    IeeeFloat<F::Wide>: Float,
{
    let mut rng = rng();
    let mut ram = Ram::new();
    let bias = (1 << (F::EXP - 1)) - 1;
    for (rs2, (bits, signed)) in [(32, true), (32, false), (64, true), (64, false)]
        .into_iter()
        .enumerate()
    {
        for (rm, round) in MODES {
            let word = op_fp::<F>(0x18, rm, rs2 as u32);
            for _ in 0..rounds(ROUNDS) {
                // Mostly between a fraction and a little more than the widest integer.
                let a = match rng.bool() {
                    true => operand::<F>(&mut rng),
                    false => {
                        let field = rng.u64(bias - 3..bias + 66);
                        operand::<F>(&mut rng) & !F::INF | (field << F::FRAC)
                    }
                };
                let mut hart = with::<F>(a, 0);
                execute(&mut hart, &mut ram, word);
                let got = (hart.x(4), hart.fcsr());
                let expected = expected_int::<F>(a, round, bits, signed);
                assert_eq!(got, expected, "{a:#x} to {bits} {signed} {round:?}");
            }
        }
    }
}

#[test]
fn conversion_to_integers_rounds_and_saturates() {
    check_to_int::<Single>();
    check_to_int::<Double>();
}

fn check_from_int<F: Form>()
where
    IeeeFloat<F>: Float,
    IeeeFloat<F::Wide>: Float + FloatConvert<IeeeFloat<F>>,
{
    let mut rng = rng();
    let mut ram = Ram::new();
    let widths: [fn(u64) -> i128; 4] = [
        |x| i128::from(x as i32),
        |x| i128::from(x as u32),
        |x| i128::from(x as i64),
        i128::from,
    ];
    for (rs2, width) in (0..).zip(widths) {
        for (rm, round) in MODES {
            let word = op_fp::<F>(0x1a, rm, rs2);
            for _ in 0..rounds(ROUNDS) {
                let x = common::operand(&mut rng);
                let mut hart = hart();
                hart.set_x(1, x);
                execute(&mut hart, &mut ram, word);
                let narrow = IeeeFloat::<F>::from_i128_r(width(x), round);
                let expected = reference::<F>(narrow, || {
                    IeeeFloat::<F::Wide>::from_i128_r(width(x), round).value
                });
                let got = (hart.f(4), hart.fcsr());
                assert_eq!(got, (F::boxed(expected.0), expected.1), "{x:#x} {round:?}");
            }
        }
    }
}

#[test]
fn conversion_from_integers_rounds() {
    check_from_int::<Single>();
    check_from_int::<Double>();
}

#[test]
fn conversion_between_the_formats_rounds() {
    let mut rng = rng();
    let mut ram = Ram::new();
    let wide_of = |a| widen::<Double>(a);
    for (rm, round) in MODES {
        for _ in 0..4 * rounds(ROUNDS) {
            // Doubles in and around the range of singles too.
            let a = match rng.bool() {
                true => operand::<Double>(&mut rng),
                false => {
                    let field = match rng.bool() {
                        true => rng.u64(1023 - 152..1023 - 124),
                        false => rng.u64(1023 + 125..1023 + 130),
                    };
                    operand::<Double>(&mut rng) & !Double::INF | (field << 52)
                }
            };
            let mut hart = with::<Double>(a, 0);
            execute(&mut hart, &mut ram, op_fp::<Single>(0x08, rm, 1));
            let narrow = ap::<Double>(a).convert_r(round, &mut false);
            let (value, mut flags) =
                reference::<Single>(narrow, || wide_of(a).convert_r(round, &mut false).value);
            if Double::is_signalling(a) {
                flags = NV;
            }
            let got = (hart.f(4), hart.fcsr());
            assert_eq!(got, (Single::boxed(value), flags), "{a:#x} {round:?}");

            // The other way is exact.
            let a = operand::<Single>(&mut rng);
            let mut hart = with::<Single>(a, 0);
            execute(&mut hart, &mut ram, op_fp::<Double>(0x08, rm, 0));
            let expected = match Single::is_nan(a) {
                true => Double::NAN,
                false => f64::from(f32::from_bits(a as u32)).to_bits(),
            };
            let flags = if Single::is_signalling(a) { NV } else { 0 };
            assert_eq!((hart.f(4), hart.fcsr()), (expected, flags), "{a:#x}");
        }
    }
}

/// The value of an operand as f64, exact for both formats.
fn value<F: Form>(a: u64) -> f64 {
    match F::FMT {
        0 => f64::from(f32::from_bits(a as u32)),
        _ => f64::from_bits(a),
    }
}

fn check_compare_and_select<F: Form>() {
    let mut rng = rng();
    let mut ram = Ram::new();
    for _ in 0..4 * rounds(ROUNDS) {
        let a = operand::<F>(&mut rng);
        let b = match rng.u8(..4) {
            0 => a,
            1 => a ^ F::SIGN,
            _ => operand::<F>(&mut rng),
        };
        let (x, y) = (value::<F>(a), value::<F>(b));
        let nan = F::is_nan(a) || F::is_nan(b);
        let signalling = F::is_signalling(a) || F::is_signalling(b);
        let flag = |raised| if raised { NV } else { 0 };
        for (funct3, holds, invalid) in [(2, x == y, signalling), (1, x < y, nan), (0, x <= y, nan)]
        {
            let mut hart = with::<F>(a, b);
            execute(&mut hart, &mut ram, op_fp::<F>(0x14, funct3, 2));
            let expected = (u64::from(holds), flag(invalid));
            assert_eq!((hart.x(4), hart.fcsr()), expected, "{funct3} {a:#x} {b:#x}");
        }
        for (funct3, max) in [(0, false), (1, true)] {
            let expected = match (F::is_nan(a), F::is_nan(b)) {
                (true, true) => F::NAN,
                (true, false) => b,
                (false, true) => a,
                // Zeros of different sign: the negative one is less.
                _ if x == y && (a & F::SIGN != 0) == max => b,
                _ if x == y => a,
                _ if (x < y) == max => b,
                _ => a,
            };
            let mut hart = with::<F>(a, b);
            execute(&mut hart, &mut ram, op_fp::<F>(0x05, funct3, 2));
            let expected = (F::boxed(expected), flag(signalling));
            assert_eq!((hart.f(4), hart.fcsr()), expected, "{funct3} {a:#x} {b:#x}");
        }
        let signs = [b & F::SIGN, !b & F::SIGN, (a ^ b) & F::SIGN];
        for (funct3, sign) in (0..).zip(signs) {
            let mut hart = with::<F>(a, b);
            execute(&mut hart, &mut ram, op_fp::<F>(0x04, funct3, 2));
            // Payloads of NaNs stay, and nothing is raised.
            let expected = F::boxed(a & !F::SIGN | sign);
            assert_eq!((hart.f(4), hart.fcsr()), (expected, 0), "{funct3} {a:#x}");
        }
    }
}

#[test]
fn comparison_minimum_maximum_and_sign_injection_treat_zeros_and_nans_right() {
    check_compare_and_select::<Single>();
    check_compare_and_select::<Double>();
}

fn check_class<F: Form>() {
    let subnormal = 1;
    let normal = 1 << F::FRAC;
    let signalling = F::INF + 1;
    let cases = [
        (F::SIGN | F::INF, 0),
        (F::SIGN | normal, 1),
        (F::SIGN | (F::INF - 1), 1),
        (F::SIGN | subnormal, 2),
        (F::SIGN | (normal - 1), 2),
        (F::SIGN, 3),
        (0, 4),
        (subnormal, 5),
        (normal - 1, 5),
        (normal, 6),
        (F::INF - 1, 6),
        (F::INF, 7),
        (signalling, 8),
        (F::SIGN | signalling, 8),
        (F::NAN, 9),
        (F::SIGN | F::NAN, 9),
    ];
    let mut ram = Ram::new();
    for (a, bit) in cases {
        let mut hart = with::<F>(a, 0);
        execute(&mut hart, &mut ram, op_fp::<F>(0x1c, 1, 0));
        assert_eq!((hart.x(4), hart.fcsr()), (1 << bit, 0), "{a:#x}");
    }
}

#[test]
fn fclass_names_each_of_the_ten_classes() {
    check_class::<Single>();
    check_class::<Double>();
}

#[test]
fn singles_that_are_not_boxed_read_as_the_canonical_nan() {
    let mut ram = Ram::new();
    let one = u64::from(1.0_f32.to_bits());
    let mut hart = hart();
    hart.set_f(1, one);
    hart.set_f(2, Single::boxed(one));
    for (word, expected) in [
        (op_fp::<Single>(0x00, 0, 2), Single::NAN),
        // fmin takes the operand that is a number.
        (op_fp::<Single>(0x05, 0, 2), one),
        // fsgnj.s f4, f1, f1
        (op_fp::<Single>(0x04, 0, 1), Single::NAN),
    ] {
        execute(&mut hart, &mut ram, word);
        assert_eq!(hart.f(4), Single::boxed(expected), "{word:#010x}");
        assert_eq!(hart.fcsr(), 0);
    }
    execute(&mut hart, &mut ram, op_fp::<Single>(0x1c, 1, 0));
    assert_eq!(hart.x(4), 1 << 9);
}

#[test]
fn moves_loads_and_stores_transfer_bits_unchanged() {
    let mut ram = Ram::new();
    let signalling = 0x7f80_0001_u64;
    let bits = 0x1234_5678_ff80_0001;
    let mut hart = hart();
    hart.set_x(6, DATA);

    // fmv.w.x boxes; fmv.x.w sign-extends and does not look at the box.
    hart.set_x(1, 0xdead_beef_0000_0000 | signalling);
    execute(&mut hart, &mut ram, op_fp::<Single>(0x1e, 0, 0));
    assert_eq!(hart.f(4), Single::boxed(signalling));
    hart.set_f(1, bits);
    execute(&mut hart, &mut ram, op_fp::<Single>(0x1c, 0, 0));
    assert_eq!(hart.x(4), bits as i32 as u64);
    execute(&mut hart, &mut ram, op_fp::<Double>(0x1c, 0, 0));
    assert_eq!(hart.x(4), bits);
    hart.set_x(1, bits);
    execute(&mut hart, &mut ram, op_fp::<Double>(0x1e, 0, 0));
    assert_eq!(hart.f(4), bits);

    // fsd, fsw, fld, flw
    hart.set_f(1, bits);
    execute(&mut hart, &mut ram, encode::s(0x27, 3, 6, 1, 8));
    assert_eq!(ram.peek::<u64>(DATA + 8), bits);
    execute(&mut hart, &mut ram, encode::s(0x27, 2, 6, 1, -4));
    assert_eq!(ram.peek::<u32>(DATA - 4), bits as u32);
    execute(&mut hart, &mut ram, encode::i(0x07, 3, 4, 6, 8));
    assert_eq!(hart.f(4), bits);
    execute(&mut hart, &mut ram, encode::i(0x07, 2, 4, 6, -4));
    assert_eq!(hart.f(4), Single::boxed(bits & 0xffff_ffff));
    assert_eq!(hart.fcsr(), 0);
}

#[test]
fn flags_accumulate_until_the_program_clears_them() {
    let mut ram = Ram::new();
    let one = Single::boxed(1.0_f32.to_bits().into());
    let three = Single::boxed(3.0_f32.to_bits().into());
    let mut hart = hart();
    hart.set_f(1, one);
    hart.set_f(2, three);
    execute(&mut hart, &mut ram, op_fp::<Single>(0x03, 0, 2));
    assert_eq!(hart.fcsr(), NX);
    hart.set_f(2, Single::boxed(0));
    execute(&mut hart, &mut ram, op_fp::<Single>(0x03, 0, 2));
    assert_eq!(hart.fcsr(), NX | common::float::DZ);
    // csrrwi x5, fflags, 0
    execute(&mut hart, &mut ram, encode::csr(5, 5, 0, 1));
    assert_eq!(
        (hart.x(5), hart.fcsr()),
        (u64::from(NX | common::float::DZ), 0)
    );
}
