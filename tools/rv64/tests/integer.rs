// SPDX-License-Identifier: GPL-2.0
//! Each integer instruction against a reference that is written from the manual in wide arithmetic.

mod common;

use common::{encode, execute, hart, operand, rng, rounds, Ram, CODE, DATA};

/// Rounds of each property.
const ROUNDS: usize = 800;

const RD: u32 = 5;
const RS1: u32 = 6;
const RS2: u32 = 7;

/// Name, opcode, funct3, meaning.
type ImmOp = (&'static str, u32, u32, fn(i128, i128) -> i128);

/// Name, opcode, funct3, width, bit that asks for an arithmetic shift, meaning.
type ShiftOp = (&'static str, u32, u32, u32, i32, fn(i128, i128) -> i128);

/// Name, funct3, condition.
type Branch = (&'static str, u32, fn(u64, u64) -> bool);

/// Name, funct3, funct7, meaning.
type RegOp = (&'static str, u32, u32, fn(i128, i128) -> i128);

fn s64(a: i128) -> i128 {
    i128::from(a as i64)
}
fn u64_(a: i128) -> i128 {
    i128::from(a as u64)
}
fn s32(a: i128) -> i128 {
    i128::from(a as i32)
}
fn u32_(a: i128) -> i128 {
    i128::from(a as u32)
}

/// Quotient as the manual defines it, for operands of any width.
fn quotient(a: i128, b: i128) -> i128 {
    if b == 0 {
        -1
    } else {
        a / b
    }
}
fn remainder(a: i128, b: i128) -> i128 {
    if b == 0 {
        a
    } else {
        a % b
    }
}

/// OP: operands come as the signed 64-bit values of the registers; the low 64 bits of the result count.
const OP: &[RegOp] = &[
    ("add", 0, 0x00, |a, b| a + b),
    ("sub", 0, 0x20, |a, b| a - b),
    ("sll", 1, 0x00, |a, b| u64_(a) << (b & 63)),
    ("slt", 2, 0x00, |a, b| i128::from(a < b)),
    ("sltu", 3, 0x00, |a, b| i128::from(u64_(a) < u64_(b))),
    ("xor", 4, 0x00, |a, b| a ^ b),
    ("srl", 5, 0x00, |a, b| u64_(a) >> (b & 63)),
    ("sra", 5, 0x20, |a, b| a >> (b & 63)),
    ("or", 6, 0x00, |a, b| a | b),
    ("and", 7, 0x00, |a, b| a & b),
    ("mul", 0, 0x01, |a, b| a * b),
    ("mulh", 1, 0x01, |a, b| (a * b) >> 64),
    ("mulhsu", 2, 0x01, |a, b| (a * u64_(b)) >> 64),
    ("mulhu", 3, 0x01, |a, b| {
        ((u64_(a) as u128 * u64_(b) as u128) >> 64) as i128
    }),
    ("div", 4, 0x01, quotient),
    ("divu", 5, 0x01, |a, b| quotient(u64_(a), u64_(b))),
    ("rem", 6, 0x01, remainder),
    ("remu", 7, 0x01, |a, b| remainder(u64_(a), u64_(b))),
];

/// OP-32: the low 32 bits of the result count, sign-extended.
const OP_32: &[RegOp] = &[
    ("addw", 0, 0x00, |a, b| a + b),
    ("subw", 0, 0x20, |a, b| a - b),
    ("sllw", 1, 0x00, |a, b| u32_(a) << (b & 31)),
    ("srlw", 5, 0x00, |a, b| u32_(a) >> (b & 31)),
    ("sraw", 5, 0x20, |a, b| s32(a) >> (b & 31)),
    ("mulw", 0, 0x01, |a, b| s32(a) * s32(b)),
    ("divw", 4, 0x01, |a, b| quotient(s32(a), s32(b))),
    ("divuw", 5, 0x01, |a, b| quotient(u32_(a), u32_(b))),
    ("remw", 6, 0x01, |a, b| remainder(s32(a), s32(b))),
    ("remuw", 7, 0x01, |a, b| remainder(u32_(a), u32_(b))),
];

#[test]
fn each_register_operation_gives_what_the_manual_says() {
    let mut rng = rng();
    let mut ram = Ram::new();
    for (table, opcode, width) in [(OP, 0x33, s64 as fn(i128) -> i128), (OP_32, 0x3b, s32)] {
        for &(name, funct3, funct7, reference) in table {
            let word = encode::r(opcode, funct3, funct7, RD, RS1, RS2);
            for _ in 0..rounds(ROUNDS) {
                let (a, b) = (operand(&mut rng), operand(&mut rng));
                let mut hart = hart();
                hart.set_x(RS1 as usize, a);
                hart.set_x(RS2 as usize, b);
                execute(&mut hart, &mut ram, word);
                let expected = width(reference(s64(a.into()), s64(b.into()))) as u64;
                assert_eq!(hart.x(RD as usize), expected, "{name} {a:#x}, {b:#x}");
                assert_eq!(hart.pc(), CODE + 4);
            }
        }
    }
}

#[test]
fn each_immediate_operation_gives_what_the_manual_says() {
    let ops: &[ImmOp] = &[
        ("addi", 0x13, 0, |a, b| a + b),
        ("slti", 0x13, 2, |a, b| i128::from(a < b)),
        ("sltiu", 0x13, 3, |a, b| i128::from(u64_(a) < u64_(b))),
        ("xori", 0x13, 4, |a, b| a ^ b),
        ("ori", 0x13, 6, |a, b| a | b),
        ("andi", 0x13, 7, |a, b| a & b),
        ("addiw", 0x1b, 0, |a, b| s32(a + b)),
    ];
    let mut rng = rng();
    let mut ram = Ram::new();
    for &(name, opcode, funct3, reference) in ops {
        for _ in 0..rounds(ROUNDS) {
            let (a, imm) = (operand(&mut rng), rng.i32(-2048..2048));
            let mut hart = hart();
            hart.set_x(RS1 as usize, a);
            execute(&mut hart, &mut ram, encode::i(opcode, funct3, RD, RS1, imm));
            let expected = reference(s64(a.into()), imm.into()) as u64;
            assert_eq!(hart.x(RD as usize), expected, "{name} {a:#x}, {imm}");
        }
    }
}

#[test]
fn each_shift_by_an_immediate_gives_what_the_manual_says() {
    let ops: &[ShiftOp] = &[
        ("slli", 0x13, 1, 64, 0, |a, n| a << n),
        ("srli", 0x13, 5, 64, 0, |a, n| u64_(a) >> n),
        ("srai", 0x13, 5, 64, 0x400, |a, n| a >> n),
        ("slliw", 0x1b, 1, 32, 0, |a, n| s32(a << n)),
        ("srliw", 0x1b, 5, 32, 0, |a, n| s32(u32_(a) >> n)),
        ("sraiw", 0x1b, 5, 32, 0x400, |a, n| s32(a) >> n),
    ];
    let mut rng = rng();
    let mut ram = Ram::new();
    for &(name, opcode, funct3, width, arithmetic, reference) in ops {
        for amount in 0..width as i32 {
            for _ in 0..16 {
                let a = operand(&mut rng);
                let mut hart = hart();
                hart.set_x(RS1 as usize, a);
                let word = encode::i(opcode, funct3, RD, RS1, amount | arithmetic);
                execute(&mut hart, &mut ram, word);
                let expected = reference(s64(a.into()), amount.into()) as u64;
                assert_eq!(hart.x(RD as usize), expected, "{name} {a:#x}, {amount}");
            }
        }
    }
}

#[test]
fn division_by_zero_and_overflow_do_not_trap() {
    const MIN: u64 = i64::MIN as u64;
    const MIN32: u64 = i32::MIN as u64;
    const ALL: u64 = u64::MAX;
    // opcode, funct3, dividend, divisor, result
    let cases = [
        (0x33, 4, 7, 0, ALL),
        (0x33, 5, 7, 0, ALL),
        (0x33, 6, 7, 0, 7),
        (0x33, 7, 7, 0, 7),
        (0x33, 4, MIN, ALL, MIN),
        (0x33, 6, MIN, ALL, 0),
        (0x33, 5, MIN, ALL, 0),
        (0x33, 7, MIN, ALL, MIN),
        (0x3b, 4, 7, 0, ALL),
        (0x3b, 5, 7, 0, ALL),
        (0x3b, 6, 0xffff_ffff, 1 << 32, ALL),
        (0x3b, 7, 0x8000_0000, 1 << 32, MIN32),
        (0x3b, 4, MIN32, ALL, MIN32),
        (0x3b, 6, MIN32, ALL, 0),
    ];
    let mut ram = Ram::new();
    for (opcode, funct3, a, b, expected) in cases {
        let mut hart = hart();
        hart.set_x(RS1 as usize, a);
        hart.set_x(RS2 as usize, b);
        execute(
            &mut hart,
            &mut ram,
            encode::r(opcode, funct3, 1, RD, RS1, RS2),
        );
        let got = hart.x(RD as usize);
        assert_eq!(got, expected, "{opcode:#x}/{funct3}: {a:#x}, {b:#x}");
    }
}

#[test]
fn lui_and_auipc_build_signed_upper_immediates() {
    let mut ram = Ram::new();
    for imm in [0, 1, 0x7_ffff, 0x8_0000, 0xf_ffff] {
        let value = (imm << 12) as i32 as u64;
        let mut hart = hart();
        execute(&mut hart, &mut ram, encode::u(0x37, RD, imm));
        assert_eq!(hart.x(RD as usize), value);
        execute(&mut hart, &mut ram, encode::u(0x17, RD, imm));
        assert_eq!(hart.x(RD as usize), CODE.wrapping_add(value));
    }
}

#[test]
fn branches_are_taken_exactly_when_their_condition_holds() {
    let ops: &[Branch] = &[
        ("beq", 0, |a, b| a == b),
        ("bne", 1, |a, b| a != b),
        ("blt", 4, |a, b| (a as i64) < b as i64),
        ("bge", 5, |a, b| a as i64 >= b as i64),
        ("bltu", 6, |a, b| a < b),
        ("bgeu", 7, |a, b| a >= b),
    ];
    let mut rng = rng();
    let mut ram = Ram::new();
    for &(name, funct3, holds) in ops {
        for _ in 0..rounds(ROUNDS) {
            let a = operand(&mut rng);
            let b = if rng.bool() { a } else { operand(&mut rng) };
            let offset = rng.i32(-1024..1024) * 4;
            let mut hart = hart();
            hart.set_x(RS1 as usize, a);
            hart.set_x(RS2 as usize, b);
            execute(&mut hart, &mut ram, encode::b(funct3, RS1, RS2, offset));
            let step = if holds(a, b) { offset } else { 4 };
            let expected = CODE.wrapping_add(step as u64);
            assert_eq!(hart.pc(), expected, "{name} {a:#x}, {b:#x}, {offset}");
        }
    }
}

#[test]
fn jumps_link_and_reach_their_targets() {
    let mut rng = rng();
    let mut ram = Ram::new();
    for _ in 0..rounds(ROUNDS) {
        let offset = rng.i32(-(1 << 18)..1 << 18) * 4;
        let mut hart = hart();
        execute(&mut hart, &mut ram, encode::jal(RD, offset));
        assert_eq!(hart.pc(), CODE.wrapping_add(offset as u64));
        assert_eq!(hart.x(RD as usize), CODE + 4);

        // The link may overwrite the register that the target comes from; bit 0 is cleared.
        let (target, imm) = (rng.u64(..) & !3, rng.i32(-2048..2048));
        let address = target.wrapping_sub(imm as u64) | u64::from(imm % 2 == 0);
        hart.set_x(RD as usize, address);
        execute(&mut hart, &mut ram, encode::jalr(RD, RD, imm));
        assert_eq!(hart.pc(), address.wrapping_add(imm as u64) & !1);
        assert_eq!(hart.x(RD as usize), CODE + 4);
    }
}

#[test]
fn loads_extend_and_stores_truncate() {
    // funct3, bytes, signed
    let loads = [
        (0, 1, true),
        (1, 2, true),
        (2, 4, true),
        (3, 8, true),
        (4, 1, false),
        (5, 2, false),
        (6, 4, false),
    ];
    let mut rng = rng();
    let mut ram = Ram::new();
    for (funct3, bytes, signed) in loads {
        for _ in 0..rounds(ROUNDS) {
            let value = operand(&mut rng);
            let offset = rng.i32(-2048 / bytes..2048 / bytes) * bytes;
            let base = DATA.wrapping_sub(offset as u64);
            let mut hart = hart();
            hart.set_x(RS1 as usize, base);
            hart.set_x(RS2 as usize, value);
            ram.put(DATA, &[0xa5a5_a5a5, 0x5a5a_5a5a]);
            let store = encode::s(0x23, funct3 & 3, RS1, RS2, offset);
            execute(&mut hart, &mut ram, store);
            let unused = 64 - 8 * bytes as u32;
            let kept = u64::MAX >> unused;
            let expected = (0x5a5a_5a5a_a5a5_a5a5 & !kept) | (value & kept);
            assert_eq!(ram.peek::<u64>(DATA), expected);

            execute(
                &mut hart,
                &mut ram,
                encode::i(0x03, funct3, RD, RS1, offset),
            );
            let expected = if signed {
                ((value << unused) as i64 >> unused) as u64
            } else {
                value & kept
            };
            assert_eq!(hart.x(RD as usize), expected, "funct3 {funct3} {value:#x}");
        }
    }
}

#[test]
fn register_zero_stays_zero() {
    let mut ram = Ram::new();
    let words = [
        encode::addi(0, RS1, 5),
        encode::u(0x37, 0, 1),
        encode::i(0x03, 3, 0, RS1, 0),
        encode::jal(0, 8),
        encode::amo(1, 3, 0, RS1, RS2),
        encode::csr(2, 0, 0, 0xc00),
        encode::r(0x53, 0, 0x71, 0, 1, 0),
    ];
    for word in words {
        let mut hart = hart();
        hart.set_x(RS1 as usize, DATA);
        hart.set_f(1, u64::MAX);
        ram.put(DATA, &[7, 7]);
        execute(&mut hart, &mut ram, word);
        assert_eq!(hart.x(0), 0, "{word:#010x}");
        hart.set_x(0, 1);
        assert_eq!(hart.x(0), 0);
    }
}

#[test]
fn fences_reach_the_bus_whatever_their_reserved_fields_hold() {
    let mut ram = Ram::new();
    // fence rw,rw; fence.tso; pause; with rd and rs1 set
    for word in [0x0330_000f, 0x8330_000f, 0x0100_000f, 0xfff0_8f8f] {
        execute(&mut hart(), &mut ram, word);
    }
    assert_eq!(ram.fences, 4);
}
