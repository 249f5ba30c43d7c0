// SPDX-License-Identifier: GPL-2.0
//! From power-on to a fence: discovery, firmware, a queue, a copy, its interrupt.

mod common;

use common::*;
use og1::firmware;
use og1::firmware::Damage;
use og1::hw::mem::*;
use og1::hw::packets::*;
use og1::hw::regs as hw;
use og1::machine::Next;
use og1::regs::fields;
use og1::regs::Reg;

#[test]
fn discovery_lists_what_is_built_and_nothing_else() {
    let bench = Bench::cold(small());
    assert_eq!(bench.read(Reg::ID, 0), hw::ID_MAGIC);
    let units = bench.read(Reg::UNITS, 0) as usize;
    let kinds: Vec<u32> = (0..units)
        .map(|i| fields::UNIT_ID::kind.get(bench.read(Reg::UNIT_ID, i)))
        .collect();
    assert_eq!(
        kinds,
        [
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            8,
            hw::UNIT_COMPUTE,
            hw::UNIT_COPY,
            hw::UNIT_POWER,
            hw::UNIT_THERMAL,
            hw::UNIT_STREAM
        ]
    );
    let copy = units - 4;
    assert_eq!(bench.read(Reg::UNIT_OFFSET, copy), 0x12000);
    let count = bench.read(Reg::UNIT_COUNT, copy);
    assert_eq!(fields::UNIT_COUNT::count.get(count), 2);
    assert_eq!(fields::UNIT_COUNT::stride.get(count), 0x1000);
    assert_eq!(bench.read(Reg::UNIT_INFO, copy), 2);
    for i in units..hw::UNITS_MAX {
        assert_eq!(bench.read(Reg::UNIT_ID, i), 0);
    }
    bench.assert_clean();
}

#[test]
fn firmware_is_taken_or_refused_with_the_reason() {
    let mut bench = Bench::cold(small());
    let good = firmware::default_image(0x0001_0007).image();
    let bad = firmware::damage(good.clone(), Damage::Checksum);
    assert_eq!(bench.load_firmware(&bad), (hw::FW_FAILED, FW_ERR_CHECKSUM));
    assert_eq!(bench.load_firmware(&good), (hw::FW_RUNNING, 0));
    assert_eq!(bench.read(Reg::FW_VERSION, 0), 0x0001_0007);
    assert_eq!(bench.read(Reg::CORE_CLOCK, 0), 1_000_000);
    assert_eq!(
        bench.read(Reg::IRQ_STATUS, hw::VECTOR_FAULT),
        hw::IRQ_FIRMWARE
    );
    bench.assert_clean();
}

#[test]
fn a_copy_ends_with_its_fence_and_one_interrupt() {
    let mut bench = Bench::new();
    let mut q = bench.queue(2);
    let src = bench.alloc(1 << 20);
    for i in 0..1 << 17 {
        bench.poke(src + i * 8, i * 3);
    }
    bench.push(&mut q, &copy(src, 0x10_0000, 1 << 20));
    let record = bench.push_fence(&mut q, 42);
    assert_eq!(bench.run(), Next::Rest);
    assert_eq!(bench.peek(record), 42);
    for i in (0..1 << 17).step_by(77) {
        assert_eq!(bench.peek(0x10_0000 + i * 8), i * 3);
    }
    assert_eq!(*bench.messages.0.lock().unwrap(), [hw::VECTOR_ENGINE0 + 2]);
    assert_eq!(
        bench.read(Reg::IRQ_STATUS, hw::VECTOR_ENGINE0 + 2),
        hw::IRQ_FENCE
    );
    assert_eq!(bench.control(&q, control::RPTR), q.wptr);
    assert_eq!(
        bench.control(&q, control::EVENT),
        q.wptr,
        "asleep, asks for a doorbell"
    );
    // 16 pieces and two packets.
    assert_eq!(bench.control(&q, control::RETIRED), 18);
    // 1 MiB at 64 bytes per cycle of 1 GHz, and two packets.
    let time = bench.peek(record + 8);
    assert_eq!(time, 16384 + 2 * 32, "the figures of the timing model");
    bench.assert_clean();
}

#[test]
fn a_no_op_of_any_length_is_skipped() {
    let mut bench = Bench::new();
    let mut q = bench.queue(3);
    for n in [1, 2, 255] {
        bench.push(&mut q, &pkt(PKT_NOP, 0, 7, &vec![!0; n - 1]));
    }
    let record = bench.push_fence(&mut q, 1);
    bench.run();
    assert_eq!(bench.peek(record), 1);
    bench.assert_clean();
}
