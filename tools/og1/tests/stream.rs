// SPDX-License-Identifier: GPL-2.0
//! The sampled counter stream: records at their time, what they tell, and what happens without room.

mod common;

use common::*;
use og1::hw::mem::*;
use og1::hw::packets::*;
use og1::hw::regs as hw;
use og1::judge::Rule;
use og1::machine::Next;
use og1::regs::Reg;

struct Ring {
    at: u64,
    records: u64,
}

/// A record: its words.
struct Record(Vec<u64>);

impl Record {
    fn time(&self) -> u64 {
        self.0[1]
    }

    fn flags(&self) -> u32 {
        self.0[5] as u32
    }

    fn lost(&self) -> u64 {
        self.0[5] >> 32
    }

    /// Busy ns and instructions of an engine.
    fn engine(&self, i: usize) -> (u64, u64) {
        (self.0[16 + 2 * i], self.0[17 + 2 * i])
    }
}

/// Starts the stream.
fn start(bench: &mut Bench, log2: u32, period: u32, watermark: u32) -> Ring {
    let at = bench.alloc((STREAM_BYTES as u64) << log2);
    setup(bench, at, log2, period, watermark);
    Ring {
        at,
        records: 1 << log2,
    }
}

fn setup(bench: &Bench, at: u64, log2: u32, period: u32, watermark: u32) {
    bench.write(Reg::STREAM_RING_LO, 0, at as u32);
    bench.write(Reg::STREAM_RING_HI, 0, (at >> 32) as u32);
    bench.write(Reg::STREAM_SIZE, 0, log2);
    bench.write(Reg::STREAM_PERIOD, 0, period);
    bench.write(Reg::STREAM_WATERMARK, 0, watermark);
    bench.write(Reg::STREAM_CTRL, 0, 1);
}

fn record(bench: &Bench, ring: &Ring, n: u64) -> Record {
    let at = ring.at + n % ring.records * STREAM_BYTES as u64;
    Record((0..64).map(|i| bench.peek(at + i * 8)).collect())
}

fn events(bench: &Bench) -> u32 {
    let bits = bench.read(Reg::IRQ_STATUS, hw::VECTOR_FAULT);
    bench.write(Reg::IRQ_STATUS, hw::VECTOR_FAULT, bits);
    bits
}

#[test]
fn records_come_at_their_time_and_tell_what_the_counters_tell() {
    let mut bench = Bench::new();
    events(&bench);
    let ring = start(&mut bench, 5, 20_000, 4);
    let mut q = bench.queue(2);
    // 8 MiB at 64 bytes a cycle: 131 µs.
    bench.push(&mut q, &copy(0, 0x80_0000, 8 << 20));
    bench.run();
    assert_eq!(bench.read(Reg::STREAM_WPTR, 0), 6);
    assert_eq!(events(&bench), hw::IRQ_STREAM);
    let mut energy = 0;
    for n in 0..6 {
        let r = record(&bench, &ring, n);
        assert_eq!(r.0[0], n, "sequence");
        let time = (n + 1) * 20_000;
        assert!((time..time + 10_000).contains(&r.time()), "{}", r.time());
        assert!(r.0[2] > energy, "energy");
        energy = r.0[2];
        assert_eq!(r.0[4], 1_000_000 | (1_000_000 << 32), "clocks");
        assert_eq!((r.flags(), r.lost()), (0, 0));
        assert_eq!(r.0[6], r.time(), "core cycles at 1 GHz");
        assert_eq!(r.0[8], r.0[9], "a copy reads what it writes");
        let (busy, instructions) = r.engine(2);
        assert!(busy.abs_diff(r.time()) < 1100, "{busy} of {}", r.time());
        assert_eq!((instructions, r.engine(3)), (0, (0, 0)));
        let power = r.0[3] as u32;
        assert!((20_000..100_000).contains(&power), "{power} mW");
    }
    // The last record and the registers agree once time stands at it.
    bench.write(Reg::STREAM_CTRL, 0, 0);
    assert_eq!(bench.read(Reg::STREAM_WPTR, 0), 0);
    let ring = start(&mut bench, 5, 20_000, 4);
    let at = bench.time() + 20_000;
    bench.write(Reg::ALARM_LO, 0, at as u32);
    bench.write(Reg::ALARM_CTRL, 0, 3);
    bench.run();
    let r = record(&bench, &ring, 0);
    assert_eq!(r.time(), at);
    assert_eq!(r.0[2], bench.counter(0, CTR_ENERGY));
    assert_eq!(r.0[3] as u32, bench.read(Reg::POWER_NOW, 0));
    assert_eq!((r.0[3] >> 32) as u32, bench.read(Reg::TEMP, 0));
    for (word, counter) in (6..14).zip([
        CTR_CORE_CYCLES,
        CTR_MEMORY_CYCLES,
        CTR_VRAM_READ,
        CTR_VRAM_WRITE,
        CTR_BUS_READ,
        CTR_BUS_WRITE,
        CTR_TLB_HITS,
        CTR_TLB_MISSES,
    ]) {
        assert_eq!(r.0[word], bench.counter(0, counter), "counter {counter}");
    }
    assert_eq!(r.engine(2).0, bench.counter(3, CTR_BUSY));
    bench.assert_clean();
}

#[test]
fn a_stream_changes_nothing_of_what_it_watches_and_wakes_nobody() {
    let run = |stream: bool| {
        let mut bench = Bench::new();
        if stream {
            start(&mut bench, 12, 10_000, 1);
        }
        assert_eq!(bench.run(), Next::Rest);
        assert_eq!(bench.time(), 0, "an idle board stays idle");
        let mut q = bench.queue(2);
        bench.push(&mut q, &copy(0, 0x80_0000, 4 << 20));
        let record = bench.push_fence(&mut q, 1);
        bench.run();
        let traffic = bench.counter(0, CTR_BUS_WRITE);
        (
            bench.peek(record + 8),
            bench.time(),
            traffic,
            bench.counter(0, CTR_ENERGY),
        )
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn without_room_records_are_lost_and_the_next_one_tells() {
    let mut bench = Bench::new();
    let ring = start(&mut bench, 2, 10_000, 4);
    let mut q = bench.queue(2);
    bench.push(&mut q, &copy(0, 0x80_0000, 8 << 20));
    bench.run();
    assert_eq!(bench.read(Reg::STREAM_WPTR, 0), 4);
    let lost = bench.read(Reg::STREAM_LOST, 0);
    assert!((8..=10).contains(&lost), "{lost}");
    bench.write(Reg::STREAM_RPTR, 0, 2);
    bench.push(&mut q, &copy(0, 0x80_0000, 1 << 20));
    bench.run();
    assert!(bench.read(Reg::STREAM_WPTR, 0) >= 5);
    let r = record(&bench, &ring, 4);
    assert_eq!(r.flags(), STREAM_FLAG_LOST);
    assert_eq!(r.0[0], 4 + u64::from(lost), "the sequence shows the gap");
    assert_eq!(r.lost(), u64::from(lost));
    assert_eq!(record(&bench, &ring, 3).flags(), 0);
    bench.assert_clean();
}

#[test]
fn the_watermark_raises_the_vector_once_and_again_when_enough_are_left() {
    let mut bench = Bench::new();
    events(&bench);
    start(&mut bench, 4, 10_000, 3);
    let mut q = bench.queue(2);
    bench.push(&mut q, &copy(0, 0x80_0000, 1 << 20));
    bench.run();
    assert!(bench.read(Reg::STREAM_WPTR, 0) < 3);
    assert_eq!(events(&bench), 0);
    bench.push(&mut q, &copy(0, 0x80_0000, 4 << 20));
    bench.run();
    assert_eq!(events(&bench), hw::IRQ_STREAM);
    let wptr = bench.read(Reg::STREAM_WPTR, 0);
    assert!(wptr >= 6);
    bench.write(Reg::STREAM_RPTR, 0, wptr - 3);
    assert_eq!(events(&bench), hw::IRQ_STREAM);
    bench.write(Reg::STREAM_RPTR, 0, wptr - 2);
    assert_eq!(events(&bench), 0);
    bench.write(Reg::STREAM_RPTR, 0, wptr + 1);
    bench.assert_broken(&[Rule::StreamRptr]);
    assert_eq!(bench.read(Reg::STREAM_RPTR, 0), wptr - 2);
}

#[test]
fn a_jump_gives_a_record_for_each_piece_that_reaches_one() {
    let mut bench = Bench::new();
    let ring = start(&mut bench, 4, 400_000, 1);
    let mut q = bench.queue(2);
    bench.push(&mut q, &pkt(PKT_WAIT_UNTIL, FLAG_RELATIVE, 0, &[3_000_000]));
    bench.run();
    let wptr = u64::from(bench.read(Reg::STREAM_WPTR, 0));
    assert!((2..8).contains(&wptr), "{wptr}");
    let times: Vec<u64> = (0..wptr).map(|n| record(&bench, &ring, n).time()).collect();
    assert!(times.windows(2).all(|w| w[1] > w[0]), "{times:?}");
    bench.assert_clean();
}

#[test]
fn setups_that_cannot_be_are_counted_and_start_nothing() {
    let mut bench = Bench::new();
    let at = bench.alloc(STREAM_BYTES as u64 * 16);
    for (at, log2, period, watermark) in [
        (at + 8, 4, 10_000, 1),
        (at | (1 << 62), 4, 10_000, 1),
        (at, 13, 10_000, 1),
        (at, 4, 9_999, 1),
        (at, 4, 10_000, 0),
        (at, 4, 10_000, 17),
    ] {
        setup(&bench, at, log2, period, watermark);
        bench.assert_broken(&[Rule::RegValue]);
        assert_eq!(bench.read(Reg::STREAM_CTRL, 0), 0);
    }
    setup(&bench, 16 << 20, 4, 10_000, 1);
    bench.assert_broken(&[Rule::Address]);
    bench.board.set_bus_master(false);
    setup(&bench, at, 4, 10_000, 1);
    bench.assert_broken(&[Rule::BusMaster]);
    bench.board.set_bus_master(true);
    setup(&bench, at, 4, 10_000, 1);
    bench.write(Reg::DEVICE_RESET, 0, hw::RESET_MAGIC);
    assert_eq!(bench.read(Reg::STREAM_CTRL, 0), 0);
    bench.assert_clean();
}
