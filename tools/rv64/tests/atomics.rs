// SPDX-License-Identifier: GPL-2.0
//! The A extension.

mod common;

use std::sync::atomic::{AtomicU32, AtomicU64};

use common::{encode, execute, hart, operand, rng, rounds, Ram, DATA};
use ochre_rv64::{AmoOp, AtomicWidth, Bus, Hart};

/// Five-bit function, the bus's operation, meaning on signed and on unsigned values.
type Amo = (u32, AmoOp, fn(i128, i128, i128, i128) -> i128);

/// Operands: signed old, signed operand, unsigned old, unsigned operand.
const AMOS: &[Amo] = &[
    (0x00, AmoOp::Add, |a, b, _, _| a + b),
    (0x01, AmoOp::Swap, |_, b, _, _| b),
    (0x04, AmoOp::Xor, |a, b, _, _| a ^ b),
    (0x08, AmoOp::Or, |a, b, _, _| a | b),
    (0x0c, AmoOp::And, |a, b, _, _| a & b),
    (0x10, AmoOp::Min, |a, b, _, _| a.min(b)),
    (0x14, AmoOp::Max, |a, b, _, _| a.max(b)),
    (0x18, AmoOp::MinU, |_, _, a, b| a.min(b)),
    (0x1c, AmoOp::MaxU, |_, _, a, b| a.max(b)),
];

fn addressing(addr: u64, operand: u64) -> Hart {
    let mut hart = hart();
    hart.set_x(6, addr);
    hart.set_x(7, operand);
    hart
}

#[test]
fn each_amo_returns_the_old_value_and_stores_the_new_one() {
    let mut rng = rng();
    let mut ram = Ram::new();
    for &(function, op, meaning) in AMOS {
        for _ in 0..rounds(1000) {
            let (old, operand) = (operand(&mut rng), operand(&mut rng));

            ram.store(DATA, old).expect("in memory");
            let mut hart = addressing(DATA, operand);
            execute(&mut hart, &mut ram, encode::amo(function, 3, 5, 6, 7));
            let new = meaning(
                i128::from(old as i64),
                i128::from(operand as i64),
                i128::from(old),
                i128::from(operand),
            ) as u64;
            assert_eq!(hart.x(5), old, "{op:?}");
            assert_eq!(ram.peek::<u64>(DATA), new, "{op:?} {old:#x} {operand:#x}");
            let cell = AtomicU64::new(old);
            assert_eq!(u64::fetch(&cell, op, operand), old);
            assert_eq!(u64::load(&cell), new, "{op:?} on the host's cell");

            // The word form: the old value sign-extended, the word behind untouched.
            ram.store(DATA, old).expect("in memory");
            execute(&mut hart, &mut ram, encode::amo(function, 2, 5, 6, 7));
            let new = meaning(
                i128::from(old as i32),
                i128::from(operand as i32),
                i128::from(old as u32),
                i128::from(operand as u32),
            ) as u32;
            assert_eq!(hart.x(5), old as i32 as u64, "{op:?}");
            let expected = old & !0xffff_ffff | u64::from(new);
            assert_eq!(
                ram.peek::<u64>(DATA),
                expected,
                "{op:?} {old:#x} {operand:#x}"
            );
            let cell = AtomicU32::new(old as u32);
            assert_eq!(u32::fetch(&cell, op, operand as u32), old as u32);
            assert_eq!(u32::load(&cell), new, "{op:?} on the host's cell");
        }
    }
}

#[test]
fn ordering_bits_do_not_change_an_amo() {
    let mut ram = Ram::new();
    for order in 0..4 {
        ram.store(DATA, 40_u64).expect("in memory");
        let mut hart = addressing(DATA, 2);
        execute(
            &mut hart,
            &mut ram,
            encode::amo(0, 3, 5, 6, 7) | (order << 25),
        );
        assert_eq!((hart.x(5), ram.peek::<u64>(DATA)), (40, 42));
    }
}

/// LR and SC of a width, rd 5 and 8, address x6, value x7.
fn lr(funct3: u32) -> u32 {
    encode::amo(2, funct3, 5, 6, 0)
}
fn sc(funct3: u32) -> u32 {
    encode::amo(3, funct3, 8, 6, 7)
}

#[test]
fn store_conditional_stores_after_load_reserved_once() {
    let mut ram = Ram::new();
    for (funct3, old, seen, after) in [
        (
            2,
            0x1111_2222_8333_4444_u64,
            0xffff_ffff_8333_4444,
            0x1111_2222_0000_0007,
        ),
        (3, 0x1111_2222_8333_4444, 0x1111_2222_8333_4444, 7),
    ] {
        ram.store(DATA, old).expect("in memory");
        let mut hart = addressing(DATA, 7);
        execute(&mut hart, &mut ram, lr(funct3));
        assert_eq!(hart.x(5), seen);
        execute(&mut hart, &mut ram, sc(funct3));
        assert_eq!((hart.x(8), ram.peek::<u64>(DATA)), (0, after));
        execute(&mut hart, &mut ram, sc(funct3));
        assert_eq!((hart.x(8), ram.peek::<u64>(DATA)), (1, after));
    }
}

#[test]
fn store_conditional_fails_without_a_matching_reservation() {
    type Between = fn(&mut Hart, &mut Ram);
    let between: [(&str, Between); 6] = [
        ("another agent wrote", |_, ram| {
            ram.store(DATA, 99_u64).expect("in memory");
        }),
        ("the reservation was cleared", |hart, _| {
            hart.clear_reservation()
        }),
        ("another address", |hart, _| hart.set_x(6, DATA + 8)),
        ("a second LR elsewhere", |hart, ram| {
            hart.set_x(6, DATA + 8);
            execute(hart, ram, lr(3));
            hart.set_x(6, DATA);
        }),
        ("LR of another width", |hart, ram| execute(hart, ram, lr(2))),
        ("an SC in between", |hart, ram| {
            hart.set_x(6, DATA + 8);
            execute(hart, ram, sc(3));
            hart.set_x(6, DATA);
        }),
    ];
    for (what, act) in between {
        let mut ram = Ram::new();
        let mut hart = addressing(DATA, 7);
        execute(&mut hart, &mut ram, lr(3));
        act(&mut hart, &mut ram);
        let before = ram.bytes.clone();
        execute(&mut hart, &mut ram, sc(3));
        assert_eq!(hart.x(8), 1, "{what}");
        // The instruction word changed, nothing else.
        assert_eq!(ram.bytes[4..], before[4..], "{what}");
    }
}

#[test]
fn host_cells_compare_and_exchange() {
    let cell = AtomicU64::new(5);
    assert!(!u64::compare_exchange(&cell, 4, 9));
    assert!(u64::compare_exchange(&cell, 5, 9));
    assert_eq!(u64::load(&cell), 9);
    let cell = AtomicU32::new(5);
    assert!(!u32::compare_exchange(&cell, 4, 9));
    assert!(u32::compare_exchange(&cell, 5, 9));
    assert_eq!(u32::load(&cell), 9);
}
