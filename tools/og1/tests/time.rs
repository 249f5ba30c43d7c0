// SPDX-License-Identifier: GPL-2.0
//! Board time: the gate, the alarm and its lock-step, and that two runs are one.

mod common;

use common::asm::*;
use common::space::*;
use common::*;
use og1::hw::mem::*;
use og1::hw::packets::*;
use og1::hw::regs as hw;
use og1::machine::Next;
use og1::regs::fields;
use og1::regs::Reg;
use og1::trace::Event;

fn set_alarm(bench: &Bench, time: u64, ctrl: u32) {
    bench.write(Reg::ALARM_LO, 0, time as u32);
    bench.write(Reg::ALARM_HI, 0, (time >> 32) as u32);
    bench.write(Reg::ALARM_CTRL, 0, ctrl);
}

const ENABLE: u32 = fields::ALARM_CTRL::enable.put(1);
const LOCKSTEP: u32 = fields::ALARM_CTRL::lockstep.put(1);

#[test]
fn an_idle_clock_stands_and_jumps_to_an_alarm() {
    let bench = Bench::new();
    assert_eq!(bench.run(), Next::Rest);
    let now = bench.time();
    bench.run();
    assert_eq!(bench.time(), now);
    let at = now + (3 << 32) + 7;
    set_alarm(&bench, at, ENABLE);
    assert_eq!(bench.run(), Next::Rest);
    assert_eq!(bench.time(), at);
    assert_eq!(
        bench.read(Reg::ALARM_STATUS, 0),
        fields::ALARM_STATUS::pending.put(1)
    );
    assert_eq!(bench.read(Reg::IRQ_STATUS, hw::VECTOR_TIME), hw::IRQ_ALARM);
    assert_eq!(*bench.messages.0.lock().unwrap(), [hw::VECTOR_TIME]);
    bench.write(Reg::ALARM_ACK, 0, 1);
    assert_eq!(bench.read(Reg::ALARM_STATUS, 0), 0);
    assert_eq!(bench.read(Reg::ALARM_CTRL, 0), 0);
    bench.assert_clean();
}

#[test]
fn lock_step_stops_the_engines_at_the_alarm_until_it_is_acknowledged() {
    let mut bench = Bench::new();
    let mut q = bench.queue(2);
    bench.push(&mut q, &copy(0, 0x80_0000, 8 << 20));
    let record = bench.push_fence(&mut q, 1);
    let start = bench.time();
    for sample in 1..=10 {
        let at = start + sample * 12_345;
        set_alarm(&bench, at, ENABLE | LOCKSTEP);
        assert_eq!(bench.run(), Next::Rest);
        assert!(
            bench.time() - at < 1000,
            "at most a packet late: {}",
            bench.time() - at
        );
        let halted = fields::ALARM_STATUS::halted.put(1) | fields::ALARM_STATUS::pending.put(1);
        assert_eq!(bench.read(Reg::ALARM_STATUS, 0), halted);
        assert_eq!(bench.peek(record), 0);
        let busy = bench.control(&q, control::BUSY);
        assert!(
            (busy as i64 - (sample * 12_345) as i64).abs() < 1000,
            "{busy} of {}",
            sample * 12_345
        );
    }
    bench.write(Reg::ALARM_ACK, 0, 1);
    bench.run();
    assert_eq!(bench.peek(record), 1);
    bench.assert_clean();
}

#[test]
fn an_alarm_in_the_past_goes_off_at_once() {
    let bench = Bench::new();
    set_alarm(&bench, 0, ENABLE);
    bench.run();
    assert_eq!(
        bench.read(Reg::ALARM_STATUS, 0),
        fields::ALARM_STATUS::pending.put(1)
    );
    set_alarm(&bench, 0, 0);
    assert_eq!(bench.read(Reg::ALARM_STATUS, 0), 0);
}

#[test]
fn behind_a_closed_gate_nothing_starts_and_no_time_passes() {
    let mut bench = Bench::new();
    let mut q = bench.queue(2);
    bench.push(&mut q, &copy(0, 0x80_0000, 4 << 20));
    bench.board.step(0);
    bench.write(Reg::GATE, 0, 1);
    let record = bench.push_fence(&mut q, 1);
    assert_eq!(bench.run(), Next::Rest);
    assert_eq!(
        bench.control(&q, control::RPTR),
        4,
        "what ran went on to its end"
    );
    let now = bench.time();
    set_alarm(&bench, now + 1000, ENABLE);
    let mut other = bench.queue(3);
    bench.push(&mut other, &pkt(PKT_NOP, 0, 0, &[]));
    assert_eq!(bench.run(), Next::Rest);
    assert_eq!(bench.time(), now);
    assert_eq!(bench.peek(record), 0);
    bench.write(Reg::GATE, 0, 0);
    bench.run();
    assert_eq!(bench.peek(record), 1);
    assert_eq!(
        bench.peek(record + 8),
        now + 32,
        "starts at the time at which the gate opened"
    );
    bench.assert_clean();
}

#[test]
fn a_latched_time_pairs_with_the_cpus_clock() {
    let mut bench = Bench::new();
    let mut q = bench.queue(2);
    bench.push(&mut q, &copy(0, 0x80_0000, 1 << 20));
    bench.run();
    bench.write(Reg::LATCH, 0, 1);
    let now = bench.time();
    let latched =
        u64::from(bench.read(Reg::LATCH_LO, 0)) | (u64::from(bench.read(Reg::LATCH_HI, 0)) << 32);
    assert_eq!(latched, now);
    bench.push(&mut q, &copy(0, 0x80_0000, 1 << 20));
    bench.run();
    assert_eq!(u64::from(bench.read(Reg::LATCH_LO, 0)), now);
}

#[test]
fn a_queue_that_waits_for_the_end_of_time_does_not_take_the_board_there() {
    let mut bench = Bench::new();
    let mut q = bench.queue(2);
    bench.push(&mut q, &pkt(PKT_WAIT_UNTIL, 0, 0, &[u64::MAX]));
    assert_eq!(bench.run(), Next::Later);
    bench.pass(1_000_000);
    assert!(bench.time() < 2_000_000);
    // An hour is a jump.
    bench.unbind(&q);
    let mut q = bench.queue(3);
    bench.push(
        &mut q,
        &pkt(PKT_WAIT_UNTIL, FLAG_RELATIVE, 0, &[3_000_000_000_000]),
    );
    assert_eq!(bench.run(), Next::Rest);
    assert!(bench.time() > 3_000_000_000_000);
}

/// A load with everything in it: four engines, two slots each, semaphores between them, compute with
/// TLB misses, waits. What the doorbells' order and the steps between them are is up to `shuffle`.
fn mixed_load(shuffle: u64) -> (Vec<Event>, Vec<u8>, Vec<u64>) {
    let mut bench = Bench::new();
    let space = Space::new(&mut bench, 1);
    let pa = bench.alloc(4096);
    let program = [
        csrr(T0, og1::hw::isa::CSR_BLOCK_ID_X),
        slli(T0, T0, 12),
        csrr(T1, og1::hw::isa::CSR_LANE),
        slli(T1, T1, 3),
        add(T0, T0, T1),
        add(T0, T0, A0),
        ld(T1, T0, 0),
        csrr(T2, og1::hw::isa::CSR_TIME),
        add(T1, T1, T2),
        sd(T1, T0, 0),
        csrw(og1::hw::isa::CSR_BARRIER, ZERO),
        ld(T2, T0, 0),
        add(T1, T1, T2),
        sd(T1, T0, 8),
        ret(),
    ];
    bench.poke_bytes(pa, &code(&program));
    let (kernel, data) = (0x10_0000, 0x4000_0000_0000);
    space.map_4k(&mut bench, kernel, pa, PTE_READ | PTE_EXEC);
    space.map(&mut bench, data, 0x10_0000, 0x20_0000, RWX);
    let sem = 0x40_0000u64;
    let mut queues = Vec::new();
    for engine in 0..4 {
        for slot in 0..2 {
            let props = Props {
                quantum_us: 20 + 17 * slot as u32,
                ..Props::default()
            };
            queues.push(bench.queue_with(engine, slot, (engine * 2 + slot) as u16, &props));
        }
    }
    let mut records = Vec::new();
    bench.board.machine().start_trace();
    bench.write(Reg::GATE, 0, 1);
    let mut order: Vec<usize> = (0..8).collect();
    order.rotate_left(shuffle as usize % 8);
    for i in order {
        let n = i as u64;
        let mut words = Vec::new();
        for round in 0..3 {
            words.extend(copy(
                0x60_0000 + n * 0x1000,
                0x80_0000 + n * 0x4_0000,
                0x3_0000 + n * 4096,
            ));
            if i < 4 {
                let args = data + n * 0x4_0000;
                words.extend(dispatch(
                    kernel,
                    args,
                    [20, 1, 1],
                    [16 + i as u32 * 8, 1, 1],
                    0,
                ));
            }
            words.extend(pkt(
                PKT_SEM_SIGNAL,
                FLAG_PHYSICAL,
                0,
                &[sem + n * 8, round + 1],
            ));
            let other = (n + 3) % 8;
            words.extend(pkt(
                PKT_SEM_WAIT,
                FLAG_PHYSICAL | CMP_GE,
                0,
                &[sem + other * 8, round + 1],
            ));
            words.extend(pkt(PKT_WAIT_UNTIL, FLAG_RELATIVE, 0, &[3_000 * (n % 3)]));
        }
        bench.push(&mut queues[i], &words);
        records.push(bench.push_fence(&mut queues[i], n));
        for _ in 0..shuffle % 5 {
            bench.board.step(0);
        }
    }
    bench.write(Reg::GATE, 0, 0);
    while bench.run() != Next::Rest {
        bench.board.step(10_000);
    }
    for record in &records {
        assert_ne!(bench.peek(record + 8), 0, "{:?}", bench.last_fault());
    }
    bench.assert_clean();
    let trace = bench.board.machine().take_trace();
    let memory = bench.peek_bytes(0, 16 << 20);
    let mut counters = Vec::new();
    for unit in 0..=4 {
        let n = if unit == 0 {
            CTR_FAULTS
        } else {
            CTR_PREEMPTIONS
        };
        counters.extend((0..=n).map(|c| bench.counter(unit, c)));
    }
    (trace, memory, counters)
}

#[test]
fn a_mixed_load_behind_the_gate_leaves_one_trace_however_it_was_queued() {
    let (trace, memory, counters) = mixed_load(0);
    assert!(trace.len() > 500, "{}", trace.len());
    for shuffle in [0, 3, 6, 9] {
        let again = mixed_load(shuffle);
        for (i, (a, b)) in trace.iter().zip(&again.0).enumerate() {
            assert_eq!(a, b, "event {i} of run {shuffle}");
        }
        assert_eq!(trace.len(), again.0.len());
        assert!(memory == again.1, "memory of run {shuffle}");
        assert_eq!(counters, again.2);
    }
}

#[test]
fn the_scheduler_thread_gives_the_same_times_as_a_test_that_steps() {
    let run = |threaded: bool| {
        let mut bench = Bench::new();
        let scheduler =
            threaded.then(|| og1::sched::Scheduler::start(bench.board.clone()).unwrap());
        let mut queues = [bench.queue(2), bench.queue(3)];
        bench.write(Reg::GATE, 0, 1);
        let mut records = Vec::new();
        for q in &mut queues {
            bench.push(q, &copy(0, 0x80_0000, 0x12_3456));
            records.push(bench.push_fence(q, 1));
        }
        bench.write(Reg::GATE, 0, 0);
        if threaded {
            let limit = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while records.iter().any(|r| bench.peek(*r) == 0) {
                assert!(std::time::Instant::now() < limit);
                std::thread::yield_now();
            }
            drop(scheduler);
        } else {
            bench.run();
        }
        records
            .iter()
            .map(|r| bench.peek(r + 8))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_paced_board_is_not_ahead_of_the_wall() {
    let mut bench = Bench::with(og1::config::Config {
        pace: true,
        ..small()
    });
    let scheduler = og1::sched::Scheduler::start(bench.board.clone()).unwrap();
    let mut q = bench.queue(2);
    let start = std::time::Instant::now();
    bench.push(
        &mut q,
        &pkt(PKT_WAIT_UNTIL, FLAG_RELATIVE, 0, &[30_000_000]),
    );
    let record = bench.push_fence(&mut q, 1);
    while bench.peek(record) == 0 {
        std::thread::yield_now();
    }
    assert!(start.elapsed().as_millis() >= 29, "{:?}", start.elapsed());
    drop(scheduler);
}
