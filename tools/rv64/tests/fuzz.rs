// SPDX-License-Identifier: GPL-2.0
//! Random programs: nothing panics, budgets hold, equal starts give equal runs.

mod common;

use common::{hart, is_illegal, rng, rounds, Ram, Refusal, BASE, CODE, DATA, SIZE};
use ochre_rv64::{Cause, CodeCache, Hart, Run, Stop, WorkItem};

/// The major opcodes that RV64IMAFD uses.
const OPCODES: [u32; 20] = [
    0x03, 0x07, 0x0f, 0x13, 0x17, 0x1b, 0x23, 0x27, 0x2f, 0x33, 0x37, 0x3b, 0x43, 0x47, 0x4b, 0x4f,
    0x53, 0x63, 0x67, 0x6f,
];

/// A word that is a legal instruction rather often.
fn word(rng: &mut fastrand::Rng) -> u32 {
    let word = rng.u32(..);
    let opcode = OPCODES[rng.usize(..OPCODES.len())];
    match rng.u8(..10) {
        0 => word,
        1 => word & !0x7f | 0x73,
        // The function fields that are zero most often.
        2..=5 => word & 0x01ff_ff80 | opcode,
        _ => word & !0x7f | opcode,
    }
}

/// A memory full of such words, most of them legal, and a hart whose registers point into it.
fn machine(rng: &mut fastrand::Rng) -> (Hart, Ram) {
    let legal: Vec<u32> = (0..4000)
        .map(|_| word(rng))
        .filter(|&word| !is_illegal(&mut hart(), word))
        .collect();
    let mut ram = Ram::new();
    for at in (0..SIZE as u64).step_by(4) {
        let word = match rng.u8(..32) {
            0 => word(rng),
            _ => legal[rng.usize(..legal.len())],
        };
        ram.put(BASE + at, &[word]);
    }
    let mut hart = Hart::new(CODE, DATA, WorkItem::default());
    for i in 1..32 {
        let near = (BASE + rng.u64(..SIZE as u64)) & !7;
        hart.set_x(i, if rng.bool() { near } else { rng.u64(..) });
        hart.set_f(i, rng.u64(..));
    }
    hart.set_fcsr(rng.u8(..));
    (hart, ram)
}

/// Gives each register an address in the memory.
fn repoint(hart: &mut Hart) {
    for i in 1..32 {
        hart.set_x(i, DATA + 0x800 * i as u64);
    }
}

/// Runs, steps over what faults, and returns all outcomes.
fn drive(hart: &mut Hart, ram: &mut Ram, slices: &[u64]) -> Vec<Run<Refusal>> {
    let mut cache = CodeCache::with_pages(16);
    let mut outcomes = Vec::new();
    for &budget in slices {
        let run = hart.run(ram, &mut cache, budget);
        assert!(run.executed <= budget, "{run:?} with a budget of {budget}");
        match &run.stop {
            Stop::Budget => assert_eq!(run.executed, budget),
            Stop::Fault(fault) => {
                assert_eq!(fault.pc, hart.pc());
                if matches!(fault.cause, Cause::Memory(_) | Cause::Misaligned) {
                    repoint(hart);
                }
                let next = match fault.cause {
                    Cause::Memory(_) if fault.addr == fault.pc => BASE + fault.pc % SIZE as u64,
                    _ => fault.pc.wrapping_add(4),
                };
                hart.set_pc(next & !3);
            }
            Stop::Exit => hart.set_pc(CODE),
            Stop::Barrier => {}
        }
        outcomes.push(run);
    }
    outcomes
}

#[test]
fn random_programs_never_panic_and_never_exceed_their_budget() {
    const SLICES: usize = 10_000;
    let mut rng = rng();
    let machines = rounds(8);
    let mut total = 0;
    for _ in 0..machines {
        let (mut hart, mut ram) = machine(&mut rng);
        let slices: Vec<u64> = (0..SLICES).map(|_| rng.u64(..100)).collect();
        let outcomes = drive(&mut hart, &mut ram, &slices);
        let executed: u64 = outcomes.iter().map(|run| run.executed).sum();
        assert_eq!(hart.instret(), executed);
        assert_eq!(hart.x(0), 0);
        total += executed;
    }
    // Slices end early, mostly by a fault: two to three instructions each. Far fewer would mean that
    // the programs are too illegal to try anything.
    let slices = (machines * SLICES) as u64;
    assert!(
        total > slices / 2,
        "{total} instructions in {slices} slices"
    );
}

#[test]
fn equal_starts_give_equal_runs() {
    let seed = rng().u64(..);
    let trace = || {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut hart, mut ram) = machine(&mut rng);
        let slices: Vec<u64> = (0..2000).map(|_| rng.u64(..100)).collect();
        let outcomes = drive(&mut hart, &mut ram, &slices);
        let registers: Vec<u64> = (0..32).flat_map(|i| [hart.x(i), hart.f(i)]).collect();
        (outcomes, registers, hart.pc(), hart.fcsr(), ram.bytes)
    };
    assert!(trace() == trace());
}

#[test]
fn words_that_are_not_four_bytes_long_are_illegal() {
    let mut rng = rng();
    for _ in 0..rounds(2000) {
        // Compressed, and longer than 32 bits (low five bits all ones).
        let compressed = rng.u32(..) & !3 | rng.u32(..3);
        let long = rng.u32(..) | 0x1f;
        assert!(is_illegal(&mut hart(), compressed), "{compressed:#010x}");
        assert!(is_illegal(&mut hart(), long), "{long:#010x}");
    }
    for word in [0, u32::MAX] {
        assert!(is_illegal(&mut hart(), word));
    }
}
