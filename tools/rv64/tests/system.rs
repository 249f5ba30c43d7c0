// SPDX-License-Identifier: GPL-2.0
//! CSRs, barrier, exit, traps and the counting of instructions.

mod common;

use common::{
    encode, execute, fault_of, hart, is_illegal, run, Ram, Refusal, BASE, CODE, DATA, SIZE,
};
use ochre_rv64::{isa, Access, Cause, CodeCache, Fault, Hart, Stop, WorkItem};

const ECALL: u32 = 0x0000_0073;
const EBREAK: u32 = 0x0010_0073;

fn item() -> WorkItem {
    WorkItem {
        block_id: [1, 2, 3],
        thread_id: [4, 5, 6],
        grid_dim: [70, 80, 90],
        block_dim: [10, 11, u32::MAX],
        lds_size: 0x1234,
    }
}

/// Value that csrrs rd, csr, x0 reads.
fn read(hart: &mut Hart, csr: u16) -> u64 {
    execute(hart, &mut Ram::new(), encode::csr(2, 5, 0, csr));
    hart.x(5)
}

#[test]
fn a_work_item_starts_as_the_specification_says() {
    let hart = Hart::new(0x4000, 0xabcd, item());
    assert_eq!(hart.pc(), 0x4000);
    for i in 0..32 {
        let expected = match i {
            isa::ENTRY_RA => isa::EXIT_PC,
            isa::ENTRY_SP => isa::STACK_BASE + isa::STACK_SIZE,
            isa::ENTRY_A0 => 0xabcd,
            _ => 0,
        };
        assert_eq!((hart.x(i), hart.f(i)), (expected, 0), "register {i}");
    }
    assert_eq!((hart.fcsr(), hart.instret()), (0, 0));
}

#[test]
fn a_work_item_reads_its_place_from_its_csrs() {
    let mut hart = Hart::new(CODE, 0, item());
    let expected = [
        (isa::CSR_BLOCK_ID_X, 1),
        (isa::CSR_BLOCK_ID_Y, 2),
        (isa::CSR_BLOCK_ID_Z, 3),
        (isa::CSR_THREAD_ID_X, 4),
        (isa::CSR_THREAD_ID_Y, 5),
        (isa::CSR_THREAD_ID_Z, 6),
        (isa::CSR_GRID_DIM_X, 70),
        (isa::CSR_GRID_DIM_Y, 80),
        (isa::CSR_GRID_DIM_Z, 90),
        (isa::CSR_BLOCK_DIM_X, 10),
        (isa::CSR_BLOCK_DIM_Y, 11),
        (isa::CSR_BLOCK_DIM_Z, 0xffff_ffff),
        (isa::CSR_LANE, (6 * 11 + 5) * 10 + 4),
        (isa::CSR_LDS_BASE, isa::LDS_BASE),
        (isa::CSR_LDS_SIZE, 0x1234),
    ];
    for (csr, value) in expected {
        assert_eq!(read(&mut hart, csr), value, "{csr:#x}");
    }
}

#[test]
fn absent_and_read_only_csrs_are_illegal_and_change_nothing() {
    let present = |csr: u16| match csr {
        1..=3 | 0x800 | 0xc00..=0xc02 | 0xcd0..=0xcd2 => true,
        0xcc0..=0xccf => csr & 3 != 3,
        _ => false,
    };
    for csr in 0..0x1000 {
        let mut hart = Hart::new(CODE, 0, item());
        assert_eq!(
            is_illegal(&mut hart, encode::csr(2, 5, 0, csr)),
            !present(csr),
            "{csr:#x}"
        );
        let read_only = csr >= 0xc00;
        for funct3 in [1, 2, 3, 5, 6, 7] {
            // Any form with a source writes, except set and clear of x0 or 0.
            let writing = encode::csr(funct3, 5, 1, csr);
            let illegal = !present(csr) || read_only;
            hart.set_x(5, 77);
            assert_eq!(is_illegal(&mut hart, writing), illegal, "{csr:#x} {funct3}");
            assert!(!illegal || hart.x(5) == 77, "{csr:#x} {funct3}");
        }
        // csrrw with x0 writes zero: illegal for a register that is read only.
        let writing = encode::csr(1, 5, 0, csr);
        assert_eq!(
            is_illegal(&mut hart, writing),
            !present(csr) || read_only,
            "{csr:#x}"
        );
    }
}

#[test]
fn csr_instructions_swap_set_and_clear() {
    let mut ram = Ram::new();
    let mut hart = hart();
    // funct3, operand, fcsr before, fcsr after
    let cases = [
        (1, 0x15_u8, 0xea, 0x15),
        (2, 0x15, 0xea, 0xff),
        (3, 0x2a, 0xea, 0xc0),
        (5, 0x15, 0xea, 0x15),
        (6, 0x15, 0xea, 0xff),
        (7, 0x0a, 0xea, 0xe0),
    ];
    for (funct3, operand, before, after) in cases {
        hart.set_fcsr(before);
        hart.set_x(6, u64::from(operand));
        let rs1 = if funct3 < 4 { 6 } else { u32::from(operand) };
        execute(
            &mut hart,
            &mut ram,
            encode::csr(funct3, 5, rs1, isa::CSR_FCSR),
        );
        assert_eq!(
            (hart.x(5), hart.fcsr()),
            (u64::from(before), after),
            "{funct3}"
        );
    }
    // Source and destination may be one register.
    hart.set_fcsr(0x11);
    hart.set_x(6, 0x22);
    execute(&mut hart, &mut ram, encode::csr(1, 6, 6, isa::CSR_FCSR));
    assert_eq!((hart.x(6), hart.fcsr()), (0x11, 0x22));
}

#[test]
fn fflags_frm_and_fcsr_are_views_of_one_register() {
    let mut ram = Ram::new();
    let mut hart = hart();
    hart.set_x(6, u64::MAX);
    execute(&mut hart, &mut ram, encode::csr(1, 0, 6, isa::CSR_FRM));
    assert_eq!(hart.fcsr(), 0xe0);
    execute(&mut hart, &mut ram, encode::csr(1, 0, 6, isa::CSR_FFLAGS));
    assert_eq!(hart.fcsr(), 0xff);
    assert_eq!(read(&mut hart, isa::CSR_FRM), 7);
    assert_eq!(read(&mut hart, isa::CSR_FFLAGS), 0x1f);
    assert_eq!(read(&mut hart, isa::CSR_FCSR), 0xff);
    execute(&mut hart, &mut ram, encode::csr(5, 0, 9, isa::CSR_FFLAGS));
    assert_eq!(hart.fcsr(), 0xe9);
}

#[test]
fn counters_read_the_instructions_before_them() {
    let mut ram = Ram::with_code(&[
        encode::addi(0, 0, 0),
        encode::csr(2, 5, 0, isa::CSR_INSTRET),
        encode::csr(2, 6, 0, isa::CSR_CYCLE),
        encode::csr(2, 7, 0, isa::CSR_TIME),
    ]);
    let mut hart = hart();
    let mut cache = CodeCache::new();
    // The bus counts from the start of a run, instret from the start of the hart.
    assert_eq!(hart.run(&mut ram, &mut cache, 2).executed, 2);
    assert_eq!(hart.x(5), 1);
    assert_eq!(hart.run(&mut ram, &mut cache, 2).executed, 2);
    assert_eq!((hart.x(6), hart.x(7)), (1000, 5000 + 3));
    assert_eq!(hart.instret(), 4);
}

#[test]
fn any_write_of_the_barrier_stops_behind_it_and_a_read_does_not() {
    for (funct3, rs1, stops) in [
        (1, 0, true),
        (1, 6, true),
        (2, 6, true),
        (3, 6, true),
        (5, 0, true),
        (6, 1, true),
        (2, 0, false),
        (3, 0, false),
        (6, 0, false),
        (7, 0, false),
    ] {
        let mut ram = Ram::with_code(&[encode::csr(funct3, 5, rs1, isa::CSR_BARRIER)]);
        let mut hart = hart();
        hart.set_x(5, 99);
        let run = run(&mut hart, &mut ram, 1);
        let stop = if stops { Stop::Barrier } else { Stop::Budget };
        assert_eq!((run.executed, run.stop), (1, stop), "{funct3} {rs1}");
        assert_eq!((hart.x(5), hart.pc()), (0, CODE + 4));
    }
}

#[test]
fn the_return_of_the_entry_function_ends_the_work_item() {
    let mut ram = Ram::with_code(&[encode::addi(5, 0, 1), encode::ret()]);
    let mut hart = hart();
    let first = run(&mut hart, &mut ram, 1000);
    assert_eq!((first.executed, first.stop), (2, Stop::Exit));
    let second = run(&mut hart, &mut ram, 1000);
    assert_eq!((second.executed, second.stop), (0, Stop::Exit));
}

#[test]
fn the_budget_is_used_exactly_and_runs_can_be_cut_anywhere() {
    // A loop of three instructions, 100 times, across two pages.
    let program = |ram: &mut Ram| {
        ram.put(
            CODE + 0xffc,
            &[encode::addi(5, 5, 1), encode::addi(6, 6, -1)],
        );
        ram.put(CODE + 0x1004, &[encode::b(1, 6, 0, -8), encode::ret()]);
    };
    let start = || {
        let mut hart = Hart::new(CODE + 0xffc, 0, WorkItem::default());
        hart.set_x(6, 100);
        hart
    };
    for slice in [1, 2, 3, 7, 64, 300, 301, 302] {
        let mut ram = Ram::new();
        program(&mut ram);
        let mut hart = start();
        let mut cache = CodeCache::new();
        let mut total = 0;
        loop {
            let run = hart.run(&mut ram, &mut cache, slice);
            assert!(run.executed <= slice);
            total += run.executed;
            match run.stop {
                Stop::Budget => assert_eq!(run.executed, slice),
                Stop::Exit => break,
                stop => panic!("{stop:?}"),
            }
        }
        assert_eq!(
            (total, hart.x(5), hart.instret()),
            (301, 100, 301),
            "{slice}"
        );
    }
    let none = run(&mut start(), &mut Ram::new(), 0);
    assert_eq!((none.executed, none.stop), (0, Stop::Budget));
}

#[test]
fn ecall_and_ebreak_are_faults_at_their_own_address() {
    let mut ram = Ram::new();
    for (word, cause) in [(ECALL, Cause::EnvironmentCall), (EBREAK, Cause::Breakpoint)] {
        let expected = Fault {
            cause,
            access: Access::Fetch,
            pc: CODE,
            addr: CODE,
        };
        assert_eq!(fault_of(&mut hart(), &mut ram, word), expected);
    }
}

/// Instructions that access memory at x6 + offset, with access kind and width; rd is 5, rs2 7.
fn memory_instructions(offset: i32) -> Vec<(u32, Access, u64)> {
    let widths = [1, 2, 4, 8];
    let mut all = Vec::new();
    for (funct3, width) in (0..).zip(widths) {
        all.push((encode::i(0x03, funct3, 5, 6, offset), Access::Load, width));
        all.push((encode::s(0x23, funct3, 6, 7, offset), Access::Store, width));
    }
    for (funct3, width) in [(4, 1), (5, 2), (6, 4)] {
        all.push((encode::i(0x03, funct3, 5, 6, offset), Access::Load, width));
    }
    for (funct3, width) in [(2, 4), (3, 8)] {
        all.push((encode::i(0x07, funct3, 5, 6, offset), Access::Load, width));
        all.push((encode::s(0x27, funct3, 6, 7, offset), Access::Store, width));
        if offset == 0 {
            for function in [0x00, 0x01, 0x04, 0x08, 0x0c, 0x10, 0x14, 0x18, 0x1c] {
                all.push((
                    encode::amo(function, funct3, 5, 6, 7),
                    Access::Atomic,
                    width,
                ));
            }
            all.push((encode::amo(0x02, funct3, 5, 6, 0), Access::Atomic, width));
        }
    }
    all
}

#[test]
fn misaligned_accesses_fault_with_their_address() {
    let mut ram = Ram::new();
    for (word, access, width) in memory_instructions(0) {
        for off in 0..8 {
            let mut hart = hart();
            hart.set_x(6, DATA + off);
            if off % width == 0 {
                execute(&mut hart, &mut ram, word);
                continue;
            }
            let expected = Fault {
                cause: Cause::Misaligned,
                access,
                pc: CODE,
                addr: DATA + off,
            };
            assert_eq!(
                fault_of(&mut hart, &mut ram, word),
                expected,
                "{word:#010x}"
            );
        }
    }
    // Aligned by its offset.
    for (word, _, _) in memory_instructions(3) {
        let mut hart = hart();
        hart.set_x(6, DATA + 5);
        execute(&mut hart, &mut ram, word);
    }
}

#[test]
fn a_refused_access_changes_nothing_and_can_be_retried() {
    let mut ram = Ram::new();
    for (word, access, _) in memory_instructions(0) {
        let mut hart = hart();
        hart.set_x(5, 0x55);
        hart.set_f(5, 0x66);
        hart.set_x(6, DATA);
        hart.set_x(7, 1);
        ram.denied = DATA..DATA + 8;
        let fault = fault_of(&mut hart, &mut ram, word);
        let expected = Fault {
            cause: Cause::Memory(Refusal::Denied),
            access,
            pc: CODE,
            addr: DATA,
        };
        assert_eq!(fault, expected, "{word:#010x}");
        assert_eq!((hart.x(5), hart.f(5), hart.instret()), (0x55, 0x66, 0));
        ram.denied = 0..0;
        execute(&mut hart, &mut ram, word);
    }
}

#[test]
fn accesses_beyond_the_memory_are_the_bus_s_to_refuse() {
    let mut ram = Ram::new();
    let end = BASE + SIZE as u64;
    for (word, access, _) in memory_instructions(0) {
        for addr in [0, BASE - 8, end, u64::MAX - 7, isa::LDS_BASE] {
            let mut hart = hart();
            hart.set_x(6, addr);
            let fault = fault_of(&mut hart, &mut ram, word);
            assert_eq!(fault.cause, Cause::Memory(Refusal::Unmapped));
            assert_eq!((fault.access, fault.addr), (access, addr));
        }
    }
}

#[test]
fn jumps_to_odd_halves_fault_before_they_link() {
    let mut ram = Ram::new();
    for (word, target) in [
        (encode::jal(5, 6), CODE + 6),
        (encode::jal(5, -2), CODE - 2),
        (encode::jalr(5, 6, 0), DATA + 2),
        (encode::b(0, 0, 0, 10), CODE + 10),
    ] {
        let mut hart = hart();
        hart.set_x(5, 0x55);
        hart.set_x(6, DATA + 3);
        let expected = Fault {
            cause: Cause::Misaligned,
            access: Access::Fetch,
            pc: CODE,
            addr: target,
        };
        assert_eq!(fault_of(&mut hart, &mut ram, word), expected);
        assert_eq!(hart.x(5), 0x55);
    }
    // A branch that is not taken does not care.
    execute(&mut hart(), &mut ram, encode::b(1, 0, 0, 10));
}

#[test]
fn fetch_from_where_no_code_is_faults_at_the_target() {
    let mut ram = Ram::with_code(&[encode::jalr(5, 6, 0)]);
    for target in [
        0,
        BASE - 4,
        BASE + SIZE as u64,
        u64::MAX - 3,
        isa::EXIT_PC + 4,
    ] {
        let mut hart = hart();
        hart.set_x(6, target);
        let run = run(&mut hart, &mut ram, 10);
        let expected = Fault {
            cause: Cause::Memory(Refusal::Unmapped),
            access: Access::Fetch,
            pc: target,
            addr: target,
        };
        assert_eq!((run.executed, run.stop), (1, Stop::Fault(expected)));
        assert_eq!(hart.x(5), CODE + 4);
    }
    let mut hart = hart();
    hart.set_pc(CODE + 2);
    let run = run(&mut hart, &mut ram, 10);
    assert_eq!(run.executed, 0);
    assert!(matches!(
        run.stop,
        Stop::Fault(Fault {
            cause: Cause::Misaligned,
            ..
        })
    ));
}
