// SPDX-License-Identifier: GPL-2.0
//! Compute kernels: ids, memory, barriers, windows, faults, and the order of work-items.

mod common;

use common::asm::*;
use common::space::*;
use common::*;
use og1::hw::isa::*;
use og1::hw::mem::*;
use og1::hw::packets::*;
use og1::hw::regs as hw;
use og1::machine::Next;

const CODE: u64 = 0x10_0000;
const DATA: u64 = 0x20_0000;
/// Where `DATA` is mapped to.
const DATA_PA: u64 = 0x20_0000;

/// A queue on compute engine 0 with a kernel mapped at `CODE` and 1 MiB of data at `DATA`.
fn kernel(words: &[u32]) -> (Bench, Queue, Space) {
    let mut bench = Bench::new();
    let space = Space::new(&mut bench, 1);
    let pa = bench.alloc(4096);
    bench.poke_bytes(pa, &code(words));
    space.map_4k(&mut bench, CODE, pa, PTE_READ | PTE_EXEC);
    space.map(&mut bench, DATA, DATA_PA, 1 << 20, RWX);
    let q = bench.queue(0);
    (bench, q, space)
}

/// Leaves in t0 the address of this work-item's own 8 bytes of a one-dimensional grid at a0.
fn own_word() -> Vec<u32> {
    vec![
        csrr(T0, CSR_BLOCK_ID_X),
        csrr(T1, CSR_BLOCK_DIM_X),
        mul(T0, T0, T1),
        csrr(T1, CSR_THREAD_ID_X),
        add(T0, T0, T1),
        slli(T0, T0, 3),
        add(T0, T0, A0),
    ]
}

fn run_ok(bench: &mut Bench, q: &mut Queue, packet: &[u64]) {
    bench.push(q, packet);
    let record = bench.push_fence(q, 1);
    assert_eq!(bench.run(), Next::Rest);
    assert_eq!(bench.peek(record), 1, "fault {:?}", bench.last_fault());
    bench.assert_clean();
}

fn run_fault(bench: &mut Bench, q: &mut Queue, packet: &[u64]) -> (u32, u64, u8, u8) {
    bench.push(q, packet);
    bench.run();
    assert_eq!(bench.slot_state(q), hw::SLOT_FAULTED);
    bench.last_fault().unwrap()
}

#[test]
fn every_work_item_of_a_grid_runs_once_with_its_ids() {
    let mut program = own_word();
    program.extend([
        csrr(T1, CSR_BLOCK_ID_X),
        slli(T1, T1, 32),
        csrr(T2, CSR_LANE),
        add(T1, T1, T2),
        ld(T2, T0, 0),
        add(T1, T1, T2),
        sd(T1, T0, 0),
        ret(),
    ]);
    let (mut bench, mut q, _) = kernel(&program);
    run_ok(
        &mut bench,
        &mut q,
        &dispatch(CODE, DATA, [10, 1, 1], [96, 1, 1], 0),
    );
    for block in 0..10 {
        for lane in 0..96 {
            assert_eq!(
                bench.peek(DATA_PA + (block * 96 + lane) * 8),
                (block << 32) | lane
            );
        }
    }
    assert_eq!(bench.counter(1, CTR_BLOCKS), 10);
    assert_eq!(
        bench.counter(1, CTR_INSTRUCTIONS),
        960 * program.len() as u64
    );
    assert_eq!(
        bench.control(&q, control::INSTRUCTIONS),
        960 * program.len() as u64
    );
    // 10 blocks and two packets.
    assert_eq!(bench.control(&q, control::RETIRED), 12);
}

#[test]
fn blocks_of_three_dimensions_count_x_first() {
    // Atomically takes a ticket and writes z << 32 | y << 16 | x of its block there.
    let program = [
        addi(T1, ZERO, 1),
        amoadd_d(T0, A0, T1),
        slli(T0, T0, 3),
        add(T0, T0, A0),
        csrr(T1, CSR_BLOCK_ID_Z),
        slli(T1, T1, 16),
        csrr(T2, CSR_BLOCK_ID_Y),
        add(T1, T1, T2),
        slli(T1, T1, 16),
        csrr(T2, CSR_BLOCK_ID_X),
        add(T1, T1, T2),
        sd(T1, T0, 8),
        ret(),
    ];
    let (mut bench, mut q, _) = kernel(&program);
    run_ok(
        &mut bench,
        &mut q,
        &dispatch(CODE, DATA, [3, 2, 4], [1, 1, 1], 0),
    );
    for n in 0..24 {
        let (x, y, z) = (n % 3, n / 3 % 2, n / 6);
        assert_eq!(bench.peek(DATA_PA + 8 + n * 8), (z << 32) | (y << 16) | x);
    }
}

#[test]
fn a_barrier_lets_each_see_what_all_wrote() {
    // lds[lane] = lane + 1; barrier; out[lane] = lds[(lane + 1) % 64]
    let mut program = own_word();
    program.extend([
        csrr(A1, CSR_LDS_BASE),
        csrr(T1, CSR_LANE),
        slli(T2, T1, 3),
        add(T2, T2, A1),
        addi(T1, T1, 1),
        sd(T1, T2, 0),
        csrw(CSR_BARRIER, ZERO),
        addi(A2, ZERO, 64),
        bne(T1, A2, 8),
        addi(T1, ZERO, 0),
        slli(T2, T1, 3),
        add(T2, T2, A1),
        ld(T2, T2, 0),
        sd(T2, T0, 0),
        ret(),
    ]);
    let (mut bench, mut q, _) = kernel(&program);
    run_ok(
        &mut bench,
        &mut q,
        &dispatch(CODE, DATA, [3, 1, 1], [64, 1, 1], 512),
    );
    for item in 0..3 * 64 {
        assert_eq!(bench.peek(DATA_PA + item * 8), (item + 1) % 64 + 1);
    }
}

#[test]
fn work_items_that_end_before_a_barrier_of_others_are_a_fault() {
    let program = [
        csrr(T0, CSR_LANE),
        bne(T0, ZERO, 8),
        ret(),
        csrw(CSR_BARRIER, ZERO),
        ret(),
    ];
    let (mut bench, mut q, _) = kernel(&program);
    let fault = run_fault(
        &mut bench,
        &mut q,
        &dispatch(CODE, DATA, [1, 1, 1], [4, 1, 1], 0),
    );
    assert_eq!(fault.0, FAULT_BARRIER);
    bench.assert_clean();
}

#[test]
fn a_work_item_that_spins_for_a_later_one_gets_what_it_waits_for() {
    // Item 0 waits until item 1 has stored; item 1 waits at nothing.
    let program = [
        csrr(T0, CSR_LANE),
        bne(T0, ZERO, 16),
        ld(T1, A0, 0),
        beq(T1, ZERO, -4),
        ret(),
        sd(T0, A0, 0),
        ret(),
    ];
    let (mut bench, mut q, _) = kernel(&program);
    run_ok(
        &mut bench,
        &mut q,
        &dispatch(CODE, DATA, [1, 1, 1], [2, 1, 1], 0),
    );
}

#[test]
fn lr_and_sc_count_every_increment() {
    let program = [
        addi(T2, ZERO, 100),
        lr_d(T0, A0),
        addi(T0, T0, 1),
        sc_d(T1, A0, T0),
        bne(T1, ZERO, -12),
        addi(T2, T2, -1),
        bne(T2, ZERO, -20),
        ret(),
    ];
    let (mut bench, mut q, _) = kernel(&program);
    run_ok(
        &mut bench,
        &mut q,
        &dispatch(CODE, DATA, [2, 1, 1], [32, 1, 1], 0),
    );
    assert_eq!(bench.peek(DATA_PA), 6400);
}

#[test]
fn stack_window_and_block_local_memory_start_as_zeros_in_each_block() {
    // out[item] = old stack word + old lds word; then both are dirtied.
    let mut program = own_word();
    program.extend([
        csrr(A1, CSR_LDS_BASE),
        csrr(T1, CSR_LANE),
        slli(T1, T1, 3),
        add(A1, A1, T1),
        ld(T1, SP, -8),
        ld(T2, A1, 0),
        add(T1, T1, T2),
        sd(T1, T0, 0),
        addi(T1, ZERO, 7),
        sd(T1, SP, -8),
        sd(T1, A1, 0),
        ld(T2, SP, -8),
        beq(T1, T2, 8),
        ecall(),
        ret(),
    ]);
    let (mut bench, mut q, _) = kernel(&program);
    for item in 0..64 {
        bench.poke(DATA_PA + item * 8, !0);
    }
    run_ok(
        &mut bench,
        &mut q,
        &dispatch(CODE, DATA, [8, 1, 1], [8, 1, 1], 64),
    );
    for item in 0..64 {
        assert_eq!(bench.peek(DATA_PA + item * 8), 0, "item {item}");
    }
}

#[test]
fn stacks_in_memory_are_one_per_work_item() {
    let program = [csrr(T0, CSR_LANE), sd(T0, SP, -8), ret()];
    let (mut bench, mut q, _) = kernel(&program);
    let mut packet = dispatch(CODE, DATA, [1, 1, 1], [4, 1, 1], 0);
    packet[6] = DATA;
    packet[7] = 256;
    run_ok(&mut bench, &mut q, &packet);
    for lane in 0..4 {
        assert_eq!(bench.peek(DATA_PA + (lane + 1) * 256 - 8), lane);
    }
}

#[test]
fn faults_of_a_kernel_stop_its_queue_and_name_the_access() {
    let cases: [(&[u32], u32, u64, u8); 8] = [
        (&[ecall()], FAULT_ILLEGAL, CODE, ACCESS_EXEC),
        (&[0], FAULT_ILLEGAL, CODE, ACCESS_EXEC),
        (&[ld(T0, A0, 4)], FAULT_ALIGNMENT, DATA + 4, ACCESS_READ),
        (&[ld(T0, ZERO, 8)], FAULT_NOT_PRESENT, 8, ACCESS_READ),
        (&[sd(T0, ZERO, 16)], FAULT_NOT_PRESENT, 16, ACCESS_WRITE),
        (
            &[amoadd_d(T0, ZERO, T0)],
            FAULT_NOT_PRESENT,
            0,
            ACCESS_ATOMIC,
        ),
        (
            &[csrr(A1, CSR_LDS_BASE), ld(T0, A1, 0)],
            FAULT_RANGE,
            LDS_BASE,
            ACCESS_READ,
        ),
        (
            &[addi(RA, ZERO, 0), ret()],
            FAULT_NOT_PRESENT,
            0,
            ACCESS_EXEC,
        ),
    ];
    for (n, (program, code, addr, access)) in cases.into_iter().enumerate() {
        let (mut bench, mut q, _) = kernel(program);
        let packet = dispatch(CODE, DATA, [1, 1, 1], [1, 1, 1], 0);
        let fault = run_fault(&mut bench, &mut q, &packet);
        assert_eq!(
            (fault.0, fault.1, fault.2),
            (code, addr, access),
            "case {n}"
        );
        assert_eq!(bench.error(&q), code);
        bench.assert_clean();
    }
}

#[test]
fn permissions_hold_for_kernels() {
    let (mut bench, mut q, space) = kernel(&[sd(T0, A0, 0), ret()]);
    space.map_4k(&mut bench, DATA, DATA_PA, PTE_READ);
    let fault = run_fault(
        &mut bench,
        &mut q,
        &dispatch(CODE, DATA, [1, 1, 1], [1, 1, 1], 0),
    );
    assert_eq!(fault.0, FAULT_PERMISSION);
    // Code in pages without EXEC.
    let (mut bench, mut q, space) = kernel(&[ret()]);
    let pa = bench.alloc(4096);
    space.map_4k(&mut bench, CODE, pa, RW);
    let fault = run_fault(
        &mut bench,
        &mut q,
        &dispatch(CODE, DATA, [1, 1, 1], [1, 1, 1], 0),
    );
    assert_eq!((fault.0, fault.2), (FAULT_PERMISSION, ACCESS_EXEC));
}

#[test]
fn pages_without_memory_read_zero_to_kernels() {
    let (mut bench, mut q, space) = kernel(&[
        sd(A0, A0, 0),
        ld(T0, A0, 0),
        beq(T0, ZERO, 8),
        ecall(),
        ret(),
    ]);
    space.map_4k(&mut bench, DATA, 0, PTE_NULL);
    run_ok(
        &mut bench,
        &mut q,
        &dispatch(CODE, DATA, [1, 1, 1], [1, 1, 1], 0),
    );
}

#[test]
fn an_endless_kernel_shares_its_engine_and_ends_with_a_slot_reset() {
    let (mut bench, mut q, _) = kernel(&[spin()]);
    let props = Props {
        ctx: 1,
        ..Props::default()
    };
    let mut other = bench.queue_with(0, 1, 50, &props);
    bench.push(&mut q, &dispatch(CODE, DATA, [1, 1, 1], [1, 1, 1], 0));
    let record = bench.push_fence(&mut other, 9);
    for _ in 0..400 {
        assert_eq!(bench.board.step(0), Next::Again);
    }
    assert_eq!(bench.peek(record), 9, "the neighbour had its turn");
    assert_eq!(bench.control(&q, control::RETIRED), 0);
    assert!(bench.control(&q, control::BUSY) > 1_000_000);
    bench.write(og1::regs::Reg::ENG_RESET, 0, 1);
    assert_eq!(bench.run(), Next::Rest);
    assert_eq!(bench.slot_state(&q), hw::SLOT_EMPTY);
    bench.assert_clean();
}

#[test]
fn a_dispatch_that_is_malformed_is_a_packet_fault() {
    let good = dispatch(CODE, DATA, [1, 1, 1], [1, 1, 1], 0);
    let change = |i: usize, word: u64| {
        let mut bad = good.clone();
        bad[i] = word;
        bad
    };
    let bad = [
        dispatch(CODE, DATA, [0, 1, 1], [1, 1, 1], 0),
        dispatch(CODE, DATA, [1, GRID_MAX + 1, 1], [1, 1, 1], 0),
        dispatch(CODE, DATA, [1, 1, 1], [0, 1, 1], 0),
        dispatch(CODE, DATA, [1, 1, 1], [1025, 1, 1], 0),
        dispatch(CODE, DATA, [1, 1, 1], [1 << 16, 1 << 16, 1], 0),
        dispatch(CODE, DATA, [1, 1, 1], [1, 1, 1], LDS_MAX as u32 + 1),
        change(6, 8),
        change(7, 8),
        change(7, 1 << 32),
    ];
    for (n, packet) in bad.iter().enumerate() {
        let (mut bench, mut q, _) = kernel(&[ret()]);
        let fault = run_fault(&mut bench, &mut q, packet);
        assert_eq!(fault.0, FAULT_PACKET, "case {n}");
        bench.assert_broken(&[og1::judge::Rule::KernelPacket]);
    }
}

#[test]
fn new_code_is_seen_by_the_next_dispatch() {
    let (mut bench, mut q, space) = kernel(&[ret()]);
    run_ok(
        &mut bench,
        &mut q,
        &dispatch(CODE, DATA, [1, 1, 1], [1, 1, 1], 0),
    );
    let at = space.slot(&mut bench, CODE, 0);
    let pa = bench.peek(at) & PTE_ADDR | PA_SYSTEM;
    bench.poke_bytes(pa, &code(&[addi(T0, ZERO, 5), sd(T0, A0, 0), ret()]));
    run_ok(
        &mut bench,
        &mut q,
        &dispatch(CODE, DATA, [1, 1, 1], [1, 1, 1], 0),
    );
    assert_eq!(bench.peek(DATA_PA), 5);
}

#[test]
fn one_work_item_executes_one_instruction_per_cycle_and_a_full_block_one_per_lane() {
    // 1000 times three instructions.
    let program = [
        addi(T0, ZERO, 1000),
        addi(T0, T0, -1),
        add(T1, T1, T0),
        bne(T0, ZERO, -8),
        ret(),
    ];
    let time = |items: u32| {
        let (mut bench, mut q, _) = kernel(&program);
        bench.push(&mut q, &dispatch(CODE, DATA, [1, 1, 1], [items, 1, 1], 0));
        let record = bench.push_fence(&mut q, 1);
        bench.run();
        bench.peek(record + 8)
    };
    // Packets, the start of the block, and the TLB miss of the code page.
    let fixed = 2 * 32 + 16 + 100;
    assert_eq!(time(1), fixed + 3002);
    assert_eq!(time(32), fixed + 3002);
    assert_eq!(time(64), fixed + 6004);
}
