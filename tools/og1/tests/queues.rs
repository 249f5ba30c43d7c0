// SPDX-License-Identifier: GPL-2.0
//! Queues in slots: the doorbell rule, turns and priorities, leaving and going on, hangs and resets.

mod common;

use std::sync::atomic::fence;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use common::asm::*;
use common::control;
use common::copy;
use common::dispatch;
use common::offset;
use common::pkt;
use common::small;
use common::space::*;
use common::Bench;
use common::Props;
use og1::config::Config;
use og1::hw::mem::*;
use og1::hw::packets::*;
use og1::hw::regs as hw;
use og1::judge::Rule;
use og1::machine::Next;
use og1::regs::fields;
use og1::regs::Reg;
use og1::request::Hang;
use og1::request::Request;
use rand::rngs::SmallRng;
use rand::Rng;
use rand::SeedableRng;

fn nop() -> Vec<u64> {
    pkt(PKT_NOP, 0, 0, &[])
}

fn seed() -> u64 {
    let seed = rand::rngs::OsRng.gen();
    println!("seed {seed:#x}");
    seed
}

// The doorbell rule.

#[test]
fn a_sleeping_queue_wakes_by_its_doorbell_only() {
    let mut bench = Bench::new();
    let q = bench.queue(2);
    assert_eq!(bench.control(&q, control::EVENT), 0);
    for word in nop() {
        bench.poke(q.ring, word);
    }
    bench.poke(q.control, 1);
    assert_eq!(bench.run(), Next::Rest);
    assert_eq!(bench.control(&q, control::RPTR), 0, "nobody rang");
    bench.ring(q.id + 1);
    bench.run();
    assert_eq!(bench.control(&q, control::RPTR), 0, "not its doorbell");
    bench.ring(q.id);
    bench.run();
    assert_eq!(bench.control(&q, control::RPTR), 1);
    assert_eq!(bench.control(&q, control::EVENT), 1);
    bench.ring(127);
    bench.run();
    bench.assert_clean();
}

#[test]
fn an_awake_queue_says_so_and_needs_no_doorbell() {
    let mut bench = Bench::new();
    let mut q = bench.queue(2);
    bench.push(&mut q, &copy(0, 0x10_0000, 8 << 20));
    bench.board.step(0);
    assert_eq!(bench.control(&q, control::EVENT), EVENT_AWAKE);
    for word in nop() {
        bench.poke(q.ring + q.wptr * 8, word);
        q.wptr += 1;
    }
    bench.poke(q.control, q.wptr);
    bench.run();
    assert_eq!(bench.control(&q, control::RPTR), q.wptr);
}

#[test]
fn binding_looks_at_what_was_queued_before() {
    let mut bench = Bench::new();
    let mut q = bench.make_queue(2, 0, 2, &Props::default());
    let record = bench.alloc(16);
    for word in common::fence(record, 3, false) {
        bench.poke(q.ring + q.wptr * 8, word);
        q.wptr += 1;
    }
    bench.poke(q.control, q.wptr);
    bench.bind(&q);
    bench.run();
    assert_eq!(bench.peek(record), 3);
}

/// A producer that follows the rule, always just when the board is about to sleep: no work is ever
/// left lying.
#[test]
fn no_work_is_lost_between_a_producer_and_a_board_that_falls_asleep() {
    let mut bench = Bench::new();
    let q = bench.queue(2);
    let scheduler = og1::sched::Scheduler::start(bench.board.clone()).unwrap();
    let mut rung = 0;
    let mut rng = SmallRng::seed_from_u64(seed());
    for at in 0..q.words {
        bench.poke(q.ring + at * 8, nop()[0]);
    }
    for n in 0..20_000 {
        // The position moves a moment before the board looks for more and sleeps.
        let limit = Instant::now() + Duration::from_secs(20);
        while bench.control(&q, control::RPTR) != n {
            assert!(
                Instant::now() < limit,
                "word {n} is lying there; {rung} rung"
            );
            std::hint::spin_loop();
        }
        // About a nanosecond each.
        for i in 0..rng.gen_range(0..400) {
            std::hint::black_box(i);
        }
        bench.poke(q.control, n + 1);
        fence(Ordering::SeqCst);
        if bench.control(&q, control::EVENT) == n {
            bench.ring(q.id);
            rung += 1;
        }
    }
    assert!(rung > 0, "it never slept");
    drop(scheduler);
    bench.assert_clean();
}

// Turns.

#[test]
fn queues_of_one_priority_take_turns_of_their_quantum() {
    let mut bench = Bench::new();
    let props = |quantum_us| Props {
        quantum_us,
        ..Props::default()
    };
    let mut a = bench.queue_with(2, 0, 10, &props(100));
    let mut b = bench.queue_with(2, 1, 11, &props(300));
    bench.board.machine().start_trace();
    let big = copy(0, 8 << 20, 8 << 20).repeat(8);
    bench.write(Reg::GATE, 0, 1);
    bench.push(&mut a, &big);
    bench.push(&mut b, &big);
    bench.write(Reg::GATE, 0, 0);
    bench.run();
    let trace = bench.board.machine().take_trace();
    let switches: Vec<(u64, u8)> = trace
        .iter()
        .filter(|e| e.what == og1::trace::What::Switch)
        .map(|e| (e.time, e.slot))
        .collect();
    assert!(switches.len() > 4, "{switches:?}");
    for pair in switches.windows(2) {
        let turn = pair[1].0 - pair[0].0;
        let quantum = if pair[0].1 == 0 { 100_000 } else { 300_000 };
        assert_ne!(pair[0].1, pair[1].1);
        // The switch itself costs 2.5 µs; the last turns may end early.
        assert!(turn <= quantum + 3_000, "a turn of {turn}");
    }
    let first = switches[2].0 - switches[1].0;
    assert!((100_000..103_000).contains(&first) || (300_000..303_000).contains(&first));
    assert_eq!(bench.counter(3, CTR_SWITCHES), switches.len() as u64);
    assert!(bench.counter(3, CTR_PREEMPTIONS) > 0);
    bench.assert_clean();
}

#[test]
fn what_is_left_of_a_turn_is_nobodys() {
    let mut bench = Bench::new();
    let props = |quantum_us| Props {
        quantum_us,
        ..Props::default()
    };
    // A queue with a long quantum works for a moment and leaves, or rests.
    let mut brief = bench.queue_with(2, 0, 9, &props(5_000));
    bench.push(&mut brief, &nop());
    bench.run();
    bench.unbind(&brief);
    bench.run();

    let mut a = bench.queue_with(2, 0, 10, &props(100));
    let mut b = bench.queue_with(2, 1, 11, &props(100));
    bench.board.machine().start_trace();
    let big = copy(0, 8 << 20, 8 << 20);
    bench.write(Reg::GATE, 0, 1);
    bench.push(&mut a, &big);
    bench.push(&mut b, &big);
    let began = bench.time();
    bench.write(Reg::GATE, 0, 0);
    bench.run();
    let trace = bench.board.machine().take_trace();
    let first = trace
        .iter()
        .find(|e| e.what == og1::trace::What::Switch)
        .map(|e| e.time - began);
    assert!(first.is_some_and(|ns| ns <= 103_000), "{first:?}");
}

#[test]
fn a_higher_priority_takes_the_engine_within_a_quantum_of_the_clock() {
    let mut bench = Bench::new();
    let low = Props {
        priority: 0,
        quantum_us: 1_000_000,
        ..Props::default()
    };
    let high = Props {
        priority: 3,
        ..Props::default()
    };
    let mut a = bench.queue_with(2, 0, 10, &low);
    let mut b = bench.queue_with(2, 1, 11, &high);
    bench.push(&mut a, &copy(0, 8 << 20, 8 << 20).repeat(4));
    for _ in 0..10 {
        bench.board.step(0);
    }
    let asked = bench.time();
    let record = bench.push_fence(&mut b, 1);
    bench.run();
    let took = bench.peek(record + 8) - asked;
    assert!(took < 20_000, "{took} ns");
    assert_eq!(
        bench.control(&a, control::RPTR),
        a.wptr,
        "and the other goes on"
    );
}

// Leaving and going on.

/// What a queue is to have done in the end.
struct Work {
    words: Vec<u64>,
    memory: Vec<(u64, u64)>,
}

/// A mix of everything that can be interrupted. `kernel` adds 1 to the word of each work-item.
fn mixed_work(kernel: u64, buffer: u64) -> Work {
    let va = 0x4000_0000_0000;
    let mut words = copy(0x20_0000, 0x60_0000, 0x10_0004);
    let two = |a: u64, b: u64| a | (b << 32);
    words.extend(pkt(
        PKT_COPY_2D,
        FLAG_PHYSICAL,
        0,
        &[0x20_0000, 0x80_0000, two(1024, 2048), two(1000, 900)],
    ));
    words.extend(pkt(
        PKT_FILL,
        FLAG_PHYSICAL,
        0x0505_0505,
        &[0xc0_0000, 0x8_0000],
    ));
    words.extend(dispatch(kernel, va, [200, 1, 1], [64, 1, 1], 0));
    words.extend(pkt(PKT_WAIT_UNTIL, FLAG_RELATIVE, 0, &[100_000]));
    words.extend(pkt(PKT_INDIRECT, 0, 300, &[buffer]));
    let memory = vec![
        (0x60_0000, 0),
        (0x70_0000, 0x10_0000 / 8),
        (0x80_0000 + 2048 * 899 + 992, (1024 * 899 + 992) / 8),
        (0xc7_fff8, 0x0505_0505_0505_0505),
        (0xe0_0000, 1),
        (0xe0_0000 + (200 * 64 - 1) * 8, 1),
        // The buffer's hundred additions.
        (0xf8_0000, 100),
    ];
    Work { words, memory }
}

fn mixed_bench() -> (Bench, Work) {
    let mut bench = Bench::with(Config {
        compute: 2,
        copy: 2,
        ..small()
    });
    let space = Space::new(&mut bench, 1);
    let pa = bench.alloc(4096);
    bench.poke_bytes(
        pa,
        &code(&[
            csrr(T0, og1::hw::isa::CSR_BLOCK_ID_X),
            slli(T0, T0, 6),
            csrr(T1, og1::hw::isa::CSR_LANE),
            add(T0, T0, T1),
            slli(T0, T0, 3),
            add(T0, T0, A0),
            ld(T1, T0, 0),
            addi(T1, T1, 1),
            sd(T1, T0, 0),
            ret(),
        ]),
    );
    space.map_4k(&mut bench, 0x10_0000, pa, PTE_READ | PTE_EXEC);
    space.map(&mut bench, 0x4000_0000_0000, 0xe0_0000, 0x20_0000, RWX);
    let buffer = bench.alloc(4096);
    space.map_4k(&mut bench, 0x5000_0000_0000, buffer, PTE_READ);
    let adds = pkt(PKT_ATOMIC_ADD, 0, 0, &[0x4000_0018_0000, 1]).repeat(100);
    for (i, word) in adds.iter().enumerate() {
        bench.poke(buffer + i as u64 * 8, *word);
    }
    for i in 0..0x10_0004u64.div_ceil(8) {
        bench.poke(0x20_0000 + i * 8, i);
    }
    let work = mixed_work(0x10_0000, 0x5000_0000_0000);
    (bench, work)
}

#[test]
fn a_queue_that_leaves_its_slot_at_random_moments_goes_on_exactly() {
    let seed = seed();
    let mut rng = SmallRng::seed_from_u64(seed);
    for round in 0..20 {
        let (mut bench, work) = mixed_bench();
        let mut q = bench.queue(0);
        bench.push(&mut q, &work.words);
        let record = bench.push_fence(&mut q, 1);
        let mut moves = 0;
        while bench.peek(record) == 0 {
            for _ in 0..rng.gen_range(1..30) {
                bench.board.step(0);
            }
            bench.unbind(&q);
            while bench.slot_state(&q) != hw::SLOT_EMPTY {
                bench.board.step(0);
            }
            // Now and then to another slot and engine.
            q.slot = rng.gen_range(0..2);
            q.engine = rng.gen_range(0..2);
            bench.bind(&q);
            moves += 1;
            assert!(moves < 100_000);
        }
        bench.run();
        for (at, value) in &work.memory {
            assert_eq!(
                bench.peek(*at),
                *value,
                "seed {seed:#x} round {round} at {at:#x}"
            );
        }
        // Six packets, the buffer's hundred, the fence, blocks and chunks: nothing counted twice.
        let chunks = 0x10_0004 / 0x1_0000 + 900_000 / 0x1_0000 + 0x8_0000 / 0x1_0000;
        let retired = bench.control(&q, control::RETIRED);
        assert_eq!(
            retired,
            6 + 100 + 1 + 200 + chunks,
            "seed {seed:#x}, {moves} moves"
        );
        assert_eq!(bench.control(&q, control::INSTRUCTIONS), 200 * 64 * 10);
        bench.assert_clean();
    }
}

#[test]
fn emptying_a_slot_tells_by_interrupt_and_status() {
    let mut bench = Bench::new();
    let q = bench.queue(2);
    bench.unbind(&q);
    assert_eq!(bench.slot_state(&q), hw::SLOT_EMPTY);
    assert_eq!(bench.read(Reg::IRQ_STATUS, 4), hw::IRQ_SLOT);
    assert_eq!(bench.control(&q, control::STATE) as u32, hw::SLOT_EMPTY);
    bench.assert_clean();
}

#[test]
fn a_waiting_queue_leaves_and_waits_on_elsewhere() {
    let mut bench = Bench::new();
    let mut q = bench.queue(2);
    bench.push(
        &mut q,
        &pkt(PKT_SEM_WAIT, FLAG_PHYSICAL | CMP_EQ, 0, &[0x1000, 8]),
    );
    let record = bench.push_fence(&mut q, 1);
    bench.run();
    bench.unbind(&q);
    q.engine = 3;
    bench.bind(&q);
    assert_eq!(bench.run(), Next::Later);
    assert_eq!(bench.slot_state(&q), hw::SLOT_WAITING);
    bench.poke(0x1000, 8);
    bench.run();
    assert_eq!(bench.peek(record), 1);
    bench.assert_clean();
}

#[test]
fn a_dispatch_leaves_between_blocks_only() {
    let (mut bench, _) = mixed_bench();
    // A block of one item takes far more than a quantum; the work-item stores at its end.
    let pa = bench.alloc(4096);
    let count = [
        addi(T0, ZERO, 1),
        slli(T0, T0, 14),
        addi(T0, T0, -1),
        bne(T0, ZERO, -4),
    ];
    let mut program = count.to_vec();
    program.extend([addi(T1, ZERO, 1), amoadd_d(T1, A0, T1), ret()]);
    bench.poke_bytes(pa, &code(&program));
    let space = Space::new(&mut bench, 2);
    space.map_4k(&mut bench, 0x1000, pa, PTE_READ | PTE_EXEC);
    space.map_4k(&mut bench, 0x2000, 0, RWX);
    let mut q = bench.queue_with(
        0,
        0,
        5,
        &Props {
            ctx: 2,
            ..Props::default()
        },
    );
    bench.push(&mut q, &dispatch(0x1000, 0x2000, [3, 1, 1], [1, 1, 1], 0));
    bench.board.step(0);
    bench.unbind(&q);
    assert_eq!(bench.slot_state(&q), hw::SLOT_UNBINDING);
    assert_eq!(bench.peek(0), 0);
    bench.run();
    assert_eq!(bench.slot_state(&q), hw::SLOT_EMPTY);
    assert_eq!(bench.peek(0), 1, "the block that ran came to its end");
    bench.bind(&q);
    bench.run();
    assert_eq!(bench.peek(0), 3);
    bench.assert_clean();
}

#[test]
fn a_queue_that_faults_or_is_freed_while_it_is_to_leave_leaves() {
    let (mut bench, _) = mixed_bench();
    // Two quanta of counting, then a fault.
    let pa = bench.alloc(4096);
    let mut program = vec![addi(T0, ZERO, 1), slli(T0, T0, 13), addi(T0, T0, -1)];
    program.extend([bne(T0, ZERO, -4), ecall()]);
    bench.poke_bytes(pa, &code(&program));
    let space = Space::new(&mut bench, 2);
    space.map_4k(&mut bench, 0x1000, pa, PTE_READ | PTE_EXEC);
    let props = Props {
        ctx: 2,
        ..Props::default()
    };
    let mut q = bench.queue_with(0, 0, 5, &props);
    bench.push(&mut q, &dispatch(0x1000, 0, [1, 1, 1], [1, 1, 1], 0));
    bench.board.step(0);
    bench.unbind(&q);
    assert_eq!(bench.slot_state(&q), hw::SLOT_UNBINDING);
    assert_eq!(bench.run(), Next::Rest);
    assert_eq!(bench.slot_state(&q), hw::SLOT_EMPTY);
    assert_eq!(bench.error(&q), FAULT_ILLEGAL);

    let q = bench.queue(2);
    hang(&bench, Hang::Engine(2));
    bench.unbind(&q);
    bench.run();
    assert_eq!(bench.slot_state(&q), hw::SLOT_UNBINDING);
    bench.board.request(Request::Unhang);
    bench.run();
    assert_eq!(bench.slot_state(&q), hw::SLOT_EMPTY);
    bench.assert_clean();
}

#[test]
fn a_damaged_save_area_is_not_believed() {
    let mut bench = Bench::new();
    let q = bench.queue(2);
    bench.unbind(&q);
    let word = bench.peek(q.save + 32);
    bench.poke(q.save + 32, word ^ 1);
    bench.bind(&q);
    assert_eq!(bench.slot_state(&q), hw::SLOT_EMPTY);
    bench.assert_broken(&[Rule::Desc]);
    // Cleared, the queue begins anew.
    bench.poke(q.save, 0);
    bench.bind(&q);
    assert_eq!(bench.slot_state(&q), hw::SLOT_IDLE);
}

// Hangs and resets.

fn hang(bench: &Bench, what: Hang) {
    bench.board.request(Request::Hang(what));
}

#[test]
fn a_hung_queue_uses_time_without_progress_and_its_neighbours_finish() {
    let mut bench = Bench::new();
    let mut q = bench.queue_with(2, 0, 10, &Props::default());
    let mut same = bench.queue_with(2, 1, 11, &Props::default());
    let mut other = bench.queue(3);
    hang(&bench, Hang::Queue(10));
    bench.push(&mut q, &nop());
    let records = [
        bench.push_fence(&mut same, 1),
        bench.push_fence(&mut other, 2),
    ];
    bench.pass(3_000_000);
    assert_eq!(records.map(|r| bench.peek(r)), [1, 2]);
    assert_eq!(bench.control(&q, control::RETIRED), 0);
    let busy = bench.control(&q, control::BUSY);
    bench.pass(1_000_000);
    assert!(
        bench.control(&q, control::BUSY) >= busy + 900_000,
        "it holds its engine"
    );
    assert_eq!(bench.slot_state(&q), hw::SLOT_READY);
    let status = bench.read(Reg::ENG_STATUS, 2);
    assert_eq!(status, fields::ENG_STATUS::busy.put(1));
    bench.write(Reg::ENG_RESET, 2, 1);
    let status = bench.read(Reg::ENG_RESET_STATUS, 2);
    assert_eq!(fields::ENG_RESET_STATUS::slots_done.get(status), 1);
    assert_eq!(bench.read(Reg::ENG_STATUS, 2), 0xff00);
    assert_eq!(bench.slot_state(&q), hw::SLOT_EMPTY);
    assert_eq!(bench.control(&q, control::RPTR), 0);
    // Bound again it is well.
    bench.bind(&q);
    bench.run();
    assert_eq!(bench.control(&q, control::RPTR), 1);
    bench.assert_clean();
}

#[test]
fn a_hung_queue_can_not_be_asked_to_leave() {
    let mut bench = Bench::new();
    let mut q = bench.queue(2);
    hang(&bench, Hang::Queue(q.id));
    bench.push(&mut q, &nop());
    bench.run();
    bench.unbind(&q);
    bench.pass(100_000);
    assert_eq!(bench.slot_state(&q), hw::SLOT_UNBINDING);
    bench.write(Reg::ENG_RESET, 2, 1);
    assert_eq!(bench.slot_state(&q), hw::SLOT_EMPTY);
}

#[test]
fn a_hung_engine_refuses_slot_resets_and_obeys_its_own() {
    let mut bench = Bench::new();
    let mut q = bench.queue(2);
    let mut other = bench.queue(3);
    hang(&bench, Hang::Engine(2));
    bench.push(&mut q, &nop());
    let record = bench.push_fence(&mut other, 1);
    bench.pass(100_000);
    assert_eq!(bench.peek(record), 1, "other engines go on");
    assert_eq!(bench.control(&q, control::RPTR), 0);
    bench.write(Reg::ENG_RESET, 2, 1);
    let status = bench.read(Reg::ENG_RESET_STATUS, 2);
    assert_eq!(status, fields::ENG_RESET_STATUS::slots_refused.put(1));
    assert_eq!(bench.slot_state(&q), hw::SLOT_READY);
    bench.write(Reg::ENG_RESET, 2, 1 << 31);
    let status = bench.read(Reg::ENG_RESET_STATUS, 2);
    assert_eq!(status, fields::ENG_RESET_STATUS::engine_done.put(1));
    assert_eq!(bench.slot_state(&q), hw::SLOT_EMPTY);
    bench.bind(&q);
    bench.run();
    assert_eq!(bench.control(&q, control::RPTR), 1);
    bench.assert_clean();
}

#[test]
fn a_hung_device_obeys_the_device_reset_only() {
    let mut bench = Bench::new();
    let mut q = bench.queue(2);
    hang(&bench, Hang::Device);
    bench.push(&mut q, &nop());
    bench.pass(100_000);
    bench.write(Reg::ENG_RESET, 2, (1 << 31) | 1);
    let status = bench.read(Reg::ENG_RESET_STATUS, 2);
    assert!(fields::ENG_RESET_STATUS::engine_refused.is_set(status));
    assert_eq!(fields::ENG_RESET_STATUS::slots_refused.get(status), 1);
    bench.write(Reg::DEVICE_RESET, 0, hw::RESET_MAGIC);
    assert_eq!(
        bench.read(Reg::STATUS, 0),
        fields::STATUS::bus_master.put(1)
    );
    assert_eq!(bench.slot_state(&q), hw::SLOT_EMPTY);
    bench.bring_up();
    let mut q = bench.queue(2);
    let record = bench.push_fence(&mut q, 1);
    bench.run();
    assert_eq!(bench.peek(record), 1);
    bench.assert_clean();
}

#[test]
fn every_kind_of_device_reset_gives_the_same_state() {
    let dump = |bench: &Bench| -> Vec<u32> {
        og1::regs::all()
            .filter(|(reg, _)| !matches!(reg, Reg::RESET_COUNT | Reg::STATUS))
            .filter(|(reg, _)| {
                !matches!(reg, Reg::TIME_LO | Reg::TIME_HI | Reg::CTR_LO | Reg::CTR_HI)
            })
            // A reset leaves temperature and energy as they are.
            .filter(|(reg, _)| {
                !matches!(
                    reg,
                    Reg::TEMP | Reg::POWER_NOW | Reg::ENERGY_LO | Reg::ENERGY_HI
                )
            })
            .filter(|(reg, _)| reg.def().access != og1::regs::Access::Wo)
            .filter(|(reg, i)| bench.board.front().find(offset(*reg, *i)).is_some())
            .map(|(reg, i)| bench.read(reg, i))
            .collect()
    };
    let fresh = dump(&Bench::cold(small()));
    for flr in [false, true] {
        let mut bench = Bench::new();
        Space::new(&mut bench, 1);
        let mut q = bench.queue(2);
        bench.push(&mut q, &copy(0, 0x1000, 8));
        bench.poke(0x5000, 123);
        bench.run();
        bench.write(Reg::SCRATCH, 0, 9);
        bench.write(Reg::GATE, 0, 1);
        let time = bench.time();
        if flr {
            bench.board.bus_reset();
            bench.board.set_bus_master(true);
        } else {
            bench.write(Reg::DEVICE_RESET, 0, hw::RESET_MAGIC);
        }
        assert_eq!(dump(&bench), fresh);
        assert_eq!(bench.read(Reg::RESET_COUNT, 0), 1);
        assert_eq!(bench.peek(0x5000), 123, "VRAM is kept");
        assert!(bench.time() >= time, "time goes on");
        bench.assert_clean();
    }
}

#[test]
fn a_silent_board_reads_all_ones_and_does_nothing() {
    let mut bench = Bench::new();
    let mut q = bench.queue(2);
    bench.board.front().set_silent(true);
    assert_eq!(bench.read(Reg::ID, 0), hw::ALL_ONES);
    assert_eq!(bench.read_at(0x3_fff0), hw::ALL_ONES);
    bench.write(Reg::SCRATCH, 0, 5);
    bench.push(&mut q, &nop());
    assert_eq!(bench.run(), Next::Rest);
    assert_eq!(bench.control(&q, control::RPTR), 0);
    bench.board.front().set_silent(false);
    assert_eq!(bench.read(Reg::ID, 0), hw::ID_MAGIC);
    assert_eq!(bench.read(Reg::SCRATCH, 0), 0);
    bench.ring(q.id);
    bench.run();
    assert_eq!(bench.control(&q, control::RPTR), 1);
    bench.assert_clean();
}

#[test]
fn silence_ends_with_a_reset_only_if_it_was_asked_for() {
    for silence_until_reset in [false, true] {
        let bench = Bench::with(Config {
            silence_until_reset,
            ..small()
        });
        bench.board.front().set_silent(true);
        bench.board.bus_reset();
        let id = bench.read(Reg::ID, 0);
        assert_eq!(id == hw::ID_MAGIC, silence_until_reset);
    }
}

#[test]
fn the_fault_ring_overflows_with_a_bit_and_goes_on_when_it_is_read() {
    let mut bench = Bench::new();
    let mut count = 0;
    let mut fault = |bench: &mut Bench| {
        let mut q = bench.make_queue(
            2,
            0,
            2,
            &Props {
                privileged: false,
                ..Props::default()
            },
        );
        bench.bind(&q);
        bench.push(&mut q, &[0]);
        bench.run();
        assert_eq!(bench.error(&q), FAULT_PACKET);
        bench.write(Reg::ENG_RESET, 2, 1);
        count += 1;
    };
    for _ in 0..16 {
        fault(&mut bench);
    }
    assert_eq!(bench.read(Reg::FAULT_STATUS, 0), 0);
    fault(&mut bench);
    assert_eq!(bench.read(Reg::FAULT_WPTR, 0), 16);
    assert_eq!(bench.read(Reg::FAULT_STATUS, 0), 1);
    assert_eq!(
        bench.read(Reg::IRQ_STATUS, 0),
        hw::IRQ_FAULT | hw::IRQ_OVERFLOW
    );
    bench.write(Reg::FAULT_STATUS, 0, 1);
    bench.write(Reg::FAULT_RPTR, 0, 16);
    fault(&mut bench);
    assert_eq!(bench.read(Reg::FAULT_WPTR, 0), 17);
    assert_eq!(bench.read(Reg::FAULT_STATUS, 0), 0);
    assert_eq!(bench.counter(0, CTR_FAULTS), 18);
    bench.assert_clean();
}
