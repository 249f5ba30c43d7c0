// SPDX-License-Identifier: GPL-2.0
//! Rounding instructions of F and D against rustc_apfloat in each rounding mode (value and flags), and
//! against the host's floating point in the one that it has.

mod common;

use common::float::{addend, ap, operand, reference, widen, Double, Form, Single};
use common::float::{MODES, NV, NX, UF};
use common::{encode, execute, hart, rng, rounds, Ram};
use rustc_apfloat::ieee::IeeeFloat;
use rustc_apfloat::{Float, FloatConvert, Round, StatusAnd};

/// Rounds per operation, format and rounding mode.
const ROUNDS: usize = 800;

/// What a reference computes from the operands.
type Reference<S> = fn([IeeeFloat<S>; 3], Round) -> StatusAnd<IeeeFloat<S>>;

/// Executes `word` on f1, f2, f3 and returns f4 unboxed and the flags raised, beginning with `before`.
fn compute<F: Form>(ram: &mut Ram, word: u32, args: [u64; 3], frm: u32, before: u8) -> (u64, u8) {
    let mut hart = hart();
    for (i, arg) in (1..).zip(args) {
        hart.set_f(i, F::boxed(arg));
    }
    hart.set_fcsr((frm << 5) as u8 | before);
    execute(&mut hart, ram, word);
    let result = hart.f(4);
    let bits = result & (F::SIGN | (F::SIGN - 1));
    assert_eq!(result, F::boxed(bits), "{word:#010x}: result is boxed");
    (bits, hart.fcsr() & 0x1f)
}

/// Checks one instruction: `encode` gets the rounding-mode field.
fn check<F: Form>(
    name: &str,
    encode: impl Fn(u32) -> u32,
    narrow: Reference<F>,
    wide: Reference<F::Wide>,
) where
    IeeeFloat<F>: Float + FloatConvert<IeeeFloat<F::Wide>>,
    IeeeFloat<F::Wide>: Float + FloatConvert<IeeeFloat<F>>,
{
    let mut rng = rng();
    let mut ram = Ram::new();
    for (rm, round) in MODES {
        for n in 0..rounds(ROUNDS) {
            let (a, b) = (operand::<F>(&mut rng), operand::<F>(&mut rng));
            let args = [a, b, addend::<F>(&mut rng, a, b)];
            // The mode comes from the instruction or from frm; NX may be set before.
            let (field, frm) = if n % 2 == 0 { (rm, 0) } else { (7, rm) };
            let before = if rng.bool() { NX } else { 0 };
            let got = compute::<F>(&mut ram, encode(field), args, frm, before);
            let expected = reference::<F>(narrow(args.map(ap), round), || {
                wide(args.map(widen::<F>), round).value
            });
            // The reference lets a quiet addend hide the invalid product of zero and infinity.
            let hidden = name.starts_with('f') && name.contains("ma") && {
                let product = ap::<F>(a).mul_r(ap(b), round);
                !F::is_nan(a) && !F::is_nan(b) && product.value.is_nan()
            };
            let flags = expected.1 | before | if hidden { NV } else { 0 };
            let expected = (expected.0, flags);
            assert_eq!(got, expected, "{name} {args:#x?} {round:?} {before}");
        }
    }
}

/// Both formats of an instruction of the R format.
macro_rules! binary {
    ($test:ident, $name:literal, $funct5:literal, $reference:expr) => {
        #[test]
        fn $test() {
            let word = |fmt: u32| move |rm| encode::r(0x53, rm, $funct5 << 2 | fmt, 4, 1, 2);
            check::<Single>(concat!($name, ".s"), word(0), $reference, $reference);
            check::<Double>(concat!($name, ".d"), word(1), $reference, $reference);
        }
    };
}
binary!(fadd_rounds_as_the_reference, "fadd", 0, |[a, b, _], r| {
    a.add_r(b, r)
});
binary!(fsub_rounds_as_the_reference, "fsub", 1, |[a, b, _], r| {
    a.sub_r(b, r)
});
binary!(fmul_rounds_as_the_reference, "fmul", 2, |[a, b, _], r| {
    a.mul_r(b, r)
});
binary!(fdiv_rounds_as_the_reference, "fdiv", 3, |[a, b, _], r| {
    a.div_r(b, r)
});

/// Both formats of a fused multiply-add.
macro_rules! fused {
    ($test:ident, $name:literal, $opcode:literal, $reference:expr) => {
        #[test]
        fn $test() {
            let word = |fmt| move |rm| encode::r4($opcode, rm, fmt, [4, 1, 2, 3]);
            check::<Single>(concat!($name, ".s"), word(0), $reference, $reference);
            check::<Double>(concat!($name, ".d"), word(1), $reference, $reference);
        }
    };
}
fused!(fmadd_rounds_once, "fmadd", 0x43, |[a, b, c], r| a
    .mul_add_r(b, c, r));
fused!(fmsub_rounds_once, "fmsub", 0x47, |[a, b, c], r| a
    .mul_add_r(b, -c, r));
fused!(fnmsub_rounds_once, "fnmsub", 0x4b, |[a, b, c], r| (-a)
    .mul_add_r(b, c, r));
fused!(fnmadd_rounds_once, "fnmadd", 0x4f, |[a, b, c], r| (-a)
    .mul_add_r(b, -c, r));

/// The reference has no square root: checks that the result is the representable value on the right
/// side of the root, by squaring it and its neighbour exactly in binary128.
fn check_sqrt<F: Form>()
where
    IeeeFloat<F>: Float + FloatConvert<rustc_apfloat::ieee::Quad>,
{
    use rustc_apfloat::ieee::Quad;
    let mut rng = rng();
    let mut ram = Ram::new();
    let quad = |bits: u64| -> Quad { ap::<F>(bits).convert(&mut false).value };
    for (rm, round) in MODES {
        let word = encode::r(0x53, rm, (0x0b << 2) | F::FMT, 4, 1, 0);
        for _ in 0..rounds(ROUNDS) {
            let a = operand::<F>(&mut rng);
            let before = if rng.bool() { NX } else { 0 };
            let (root, flags) = compute::<F>(&mut ram, word, [a, 0, 0], 0, before);
            let zero = a & !F::SIGN == 0;
            if F::is_nan(a) || (a & F::SIGN != 0 && !zero) {
                let invalid = !F::is_nan(a) || F::is_signalling(a);
                let expected = before | if invalid { NV } else { 0 };
                assert_eq!((root, flags), (F::NAN, expected), "{a:#x}");
                continue;
            }
            if zero || a == F::INF {
                assert_eq!((root, flags), (a, before), "{a:#x}");
                continue;
            }
            // Products of two values of the format are exact in binary128.
            let square = |r: u64| (quad(r) * quad(r)).value;
            let (down, up) = match round {
                Round::TowardZero | Round::TowardNegative => (root, root + 1),
                Round::TowardPositive => (root - 1, root),
                _ => (root - 1, root + 1),
            };
            let exact = square(root) == quad(a);
            if !exact {
                assert!(
                    square(down) < quad(a) && quad(a) < square(up),
                    "{a:#x} {round:?}"
                );
            }
            if !exact && down + 2 == up {
                // Nearest: the root lies between the midpoints. Twice a midpoint has one bit more
                // than the format, so its square still is exact, as is four times the radicand.
                let twice = |x: u64, y: u64| (quad(x) + quad(y)).value;
                let four = Quad::from_u128(4).value;
                let radicand = (quad(a) * four).value;
                let (low, high) = (twice(root, root - 1), twice(root, root + 1));
                assert!((low * low).value < radicand, "{a:#x} {round:?}");
                assert!(radicand < (high * high).value, "{a:#x} {round:?}");
            }
            let expected = before | if exact { 0 } else { NX };
            assert_eq!(flags, expected, "{a:#x} {round:?}");
        }
    }
}

#[test]
fn fsqrt_gives_the_neighbour_of_the_root_that_the_mode_asks_for() {
    check_sqrt::<Single>();
    check_sqrt::<Double>();
}

/// Result with NaNs made canonical.
fn canonical<F: Form>(bits: u64) -> u64 {
    if F::is_nan(bits) {
        F::NAN
    } else {
        bits
    }
}

#[test]
fn to_nearest_even_gives_what_the_host_computes() {
    let mut rng = rng();
    let mut ram = Ram::new();
    let mut check = |word: u32, double: bool, args: [u64; 3], host: u64| {
        let before = if rng_bit(args) { NX } else { 0 };
        let got = if double {
            compute::<Double>(&mut ram, word, args, 0, before).0
        } else {
            compute::<Single>(&mut ram, word, args, 0, before).0
        };
        let host = if double {
            canonical::<Double>(host)
        } else {
            canonical::<Single>(host)
        };
        assert_eq!(got, host, "{word:#010x} {args:#x?}");
    };
    for operation in 0..6 {
        for _ in 0..4 * rounds(ROUNDS) {
            let r = |fmt: u32| match operation {
                4 => encode::r(0x53, 0, (0x0b << 2) | fmt, 4, 1, 0),
                5 => encode::r4(0x43, 0, fmt, [4, 1, 2, 3]),
                f => encode::r(0x53, 0, (f << 2) | fmt, 4, 1, 2),
            };
            let (a, b) = (operand::<Double>(&mut rng), operand::<Double>(&mut rng));
            let args = [a, b, addend::<Double>(&mut rng, a, b)];
            let [x, y, z] = args.map(f64::from_bits);
            let host = [x + y, x - y, x * y, x / y, x.sqrt(), x.mul_add(y, z)];
            check(r(1), true, args, host[operation as usize].to_bits());

            let (a, b) = (operand::<Single>(&mut rng), operand::<Single>(&mut rng));
            let args = [a, b, addend::<Single>(&mut rng, a, b)];
            let [x, y, z] = args.map(|a| f32::from_bits(a as u32));
            let host = [x + y, x - y, x * y, x / y, x.sqrt(), x.mul_add(y, z)];
            check(r(0), false, args, host[operation as usize].to_bits().into());
        }
    }
}

/// A bit that depends on the operands only.
fn rng_bit(args: [u64; 3]) -> bool {
    args.iter().fold(0, |n, a| n + a.count_ones()) % 2 == 1
}

#[test]
fn reserved_rounding_modes_are_illegal() {
    let words = [
        |rm| encode::r(0x53, rm, 0x00, 4, 1, 2),
        |rm| encode::r(0x53, rm, 0x01, 4, 1, 2),
        |rm| encode::r(0x53, rm, 0x2c, 4, 1, 0),
        |rm| encode::r(0x53, rm, 0x60, 4, 1, 0),
        |rm| encode::r4(0x43, rm, 1, [4, 1, 2, 3]),
        // Exact, yet it has a rounding mode.
        |rm| encode::r(0x53, rm, 0x21, 4, 1, 0),
    ];
    for word in words {
        for field in [5, 6] {
            assert!(common::is_illegal(&mut hart(), word(field)), "{field}");
        }
        for frm in [5, 6, 7] {
            let mut hart = hart();
            hart.set_fcsr(frm << 5);
            assert!(common::is_illegal(&mut hart, word(7)), "frm {frm}");
            // A mode in the instruction does not look at frm.
            execute(&mut hart, &mut Ram::new(), word(0));
        }
    }
}

#[test]
fn tininess_is_detected_after_rounding() {
    // 2^-126 × (1 - 2^-25 - 2^-27) rounds to 2^-126 in the format, but to less than that with its
    // precision alone; 2^-126 × (1 - 2^-26) rounds to 2^-126 in both.
    let scale = f64::from(f32::MIN_POSITIVE);
    let tiny = scale * (1.0 - 2.0_f64.powi(-25) - 2.0_f64.powi(-27));
    let not_tiny = scale * (1.0 - 2.0_f64.powi(-26));
    let mut ram = Ram::new();
    for (value, expected) in [(tiny, NX | UF), (not_tiny, NX)] {
        let mut hart = hart();
        hart.set_f(1, value.to_bits());
        execute(&mut hart, &mut ram, encode::r(0x53, 0, 0x20, 4, 1, 1));
        assert_eq!(hart.f(4), Single::boxed(f32::MIN_POSITIVE.to_bits().into()));
        assert_eq!(hart.fcsr(), expected, "{value:e}");
    }
}

/// Products that round to the least normal number, from below: of it and the number before one (tiny
/// with the precision alone), and of its neighbour above and the second number before one (not tiny).
fn check_products_at_the_least_normal<F: Form>() {
    let least = 1 << F::FRAC;
    let one = (F::INF >> 1) & F::INF;
    let mut ram = Ram::new();
    for fused in [false, true] {
        let word = match fused {
            false => encode::r(0x53, 0, (2 << 2) | F::FMT, 4, 1, 2),
            true => encode::r4(0x43, 0, F::FMT, [4, 1, 2, 3]),
        };
        for before in [0, NX] {
            let got = compute::<F>(&mut ram, word, [least, one - 1, 0], 0, before);
            assert_eq!(got, (least, NX | UF), "{fused} {before}");
            let got = compute::<F>(&mut ram, word, [least + 1, one - 2, 0], 0, before);
            assert_eq!(got, (least, NX), "{fused} {before}");
        }
    }
}

#[test]
fn products_that_round_to_the_least_normal_number_underflow_only_if_tiny() {
    check_products_at_the_least_normal::<Single>();
    check_products_at_the_least_normal::<Double>();
}
