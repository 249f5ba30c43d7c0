// SPDX-License-Identifier: GPL-2.0
//! Each rule of the judge fires when it is broken, once, by name; and nothing else does.

mod common;

use common::space::*;
use common::*;
use og1::firmware;
use og1::hw::mem::*;
use og1::hw::packets::*;
use og1::hw::regs as hw;
use og1::judge::Rule;
use og1::power::Order;
use og1::regs::Reg;
use og1::request::Request;

#[test]
fn reg_unknown() {
    let bench = Bench::new();
    for at in [
        0x38,
        0x2fff0,
        0x4_0000,
        0x7f_fffc,
        offset(Reg::ENG_ID, 4),
        offset(Reg::SLOT_CTRL, 2),
        offset(Reg::GATE_CTRL, 4),
        offset(Reg::GATE_STATUS, 15),
    ] {
        assert_eq!(bench.read_at(at), 0);
        bench.assert_broken(&[Rule::RegUnknown]);
        bench.write_at(at, 1);
        bench.assert_broken(&[Rule::RegUnknown]);
    }
    bench.read(Reg::IRQ_STATUS, 6);
    bench.assert_broken(&[Rule::RegUnknown]);
}

#[test]
fn reg_read_only_and_write_only() {
    let bench = Bench::new();
    bench.write(Reg::ID, 0, 5);
    bench.assert_broken(&[Rule::RegReadOnly]);
    assert_eq!(bench.read(Reg::ID, 0), hw::ID_MAGIC);
    assert_eq!(bench.read(Reg::SLOT_COMMIT, 0), 0);
    bench.assert_broken(&[Rule::RegWriteOnly]);
    assert_eq!(bench.read_at(hw::DOORBELL_BASE as u64), 0);
    bench.assert_broken(&[Rule::RegWriteOnly]);
}

#[test]
fn reg_width() {
    let bench = Bench::new();
    for (at, len) in [
        (0x14, 1),
        (0x14, 2),
        (0x14, 8),
        (0x15, 4),
        (0x16, 2),
        (0x14, 0),
    ] {
        let mut data = vec![0x5a; len];
        bench.board.mmio_read(at, &mut data);
        assert_eq!(data, vec![0; len]);
        bench.board.mmio_write(at, &data);
        bench.assert_broken(&[Rule::RegWidth, Rule::RegWidth]);
    }
}

#[test]
fn reg_reserved() {
    let bench = Bench::new();
    bench.write(Reg::IRQ_MASK, 0, 0xffff_fff1);
    bench.assert_broken(&[Rule::RegReserved]);
    assert_eq!(
        bench.read(Reg::IRQ_MASK, 0),
        1,
        "the other bits take effect"
    );
    bench.write(Reg::SLOT_CTRL, 0, 2);
    bench.assert_broken(&[Rule::RegReserved]);
}

#[test]
fn reg_value() {
    let mut bench = Bench::new();
    let cases = [
        (Reg::DEVICE_RESET, 0, 1),
        (Reg::TLB_INVALIDATE, 0, 0),
        (Reg::CTR_SELECT, 0, 5 << 8),
        (Reg::CTR_SELECT, 0, CTR_INTERRUPTS + 1),
        (Reg::CTR_SELECT, 0, CTR_ENERGY - 1),
        (Reg::CTR_SELECT, 0, CTR_CLOCK_CHANGES + 1),
        (Reg::CTR_SELECT, 0, (1 << 8) | (CTR_WAKES + 1)),
        (Reg::CLK_TARGET, 0, 999_999),
        (Reg::CLK_TARGET, 1, 1_500_000),
        (Reg::VOLT_TARGET, 0, hw::VOLT_MIN_UV - 1),
        (Reg::VOLT_TARGET, 1, hw::VOLT_MAX_UV + 1),
        (Reg::ENG_RESET, 0, 4),
        (Reg::SLOT_COMMIT, 0, 4),
        (Reg::FW_CTRL, 0, 0),
        (Reg::CTX_COMMIT, 0, 0),
        (Reg::ALARM_ACK, 0, 0),
    ];
    for (reg, i, value) in cases {
        let before = bench.board.front().get(reg, i);
        bench.write(reg, i, value);
        bench.run();
        bench.assert_broken(&[Rule::RegValue]);
        assert_eq!(bench.board.front().get(reg, i), before);
    }
    bench.write(Reg::CTX_TABLE_LO, 0, 8);
    bench.write(Reg::CTX_COMMIT, 0, 1);
    bench.assert_broken(&[Rule::RegValue]);
    bench.write(Reg::CTX_TABLE_LO, 0, 0);
    bench.write(Reg::CTX_COUNT, 0, CTX_MAX as u32 + 1);
    bench.write(Reg::CTX_COMMIT, 0, 1);
    bench.assert_broken(&[Rule::RegValue]);
    bench.write(Reg::FAULT_SIZE, 0, 13);
    bench.write(Reg::FAULT_CTRL, 0, 1);
    bench.assert_broken(&[Rule::RegValue]);
    // Firmware under the feet of a queue.
    bench.queue(2);
    bench.write(Reg::FW_CTRL, 0, 1);
    assert_eq!(bench.read(Reg::FW_VERSION, 0), 1 << 16);
    bench.assert_broken(&[Rule::RegValue]);
}

#[test]
fn slot_state() {
    let mut bench = Bench::new();
    let q = bench.queue(2);
    let mut twice = q.clone();
    twice.id = 9;
    bench.bind(&twice);
    bench.assert_broken(&[Rule::SlotState]);
    let mut empty = q.clone();
    empty.slot = 1;
    bench.unbind(&empty);
    bench.assert_broken(&[Rule::SlotState]);
    // An engine that the fuses disable.
    let mut bench = Bench::cold(small());
    let mut fused = firmware::default_image(1 << 16);
    fused.engines = 0b0111;
    assert_eq!(bench.load_firmware(&fused.image()).0, hw::FW_RUNNING);
    assert_eq!(bench.read(Reg::ENG_ID, 3), 0);
    assert_ne!(bench.read(Reg::ENG_ID, 2), 0);
    let q = bench.make_queue(3, 0, 1, &Props::default());
    bench.bind(&q);
    bench.assert_broken(&[Rule::SlotState]);
}

#[test]
fn desc() {
    let mut bench = Bench::new();
    let q = bench.make_queue(2, 0, 2, &Props::default());
    let good: Vec<u64> = (0..16).map(|i| bench.peek(q.desc + i * 8)).collect();
    let cases: [(u64, u64); 16] = [
        (0, good[0] ^ 1),
        (0, good[0] | (1 << 33)),
        (1, good[1] | (4 << 32)),
        (1, good[1] | (1 << 40)),
        (1, good[1] | (4096 << 16)),
        (2, good[2] & !0xffff_ffff),
        (2, good[2] & !0xffff_ffff | 1_000_001),
        (2, good[2] & 0xffff_ffff | (5 << 32)),
        (2, good[2] & 0xffff_ffff | (17 << 32)),
        (2, good[2] & 0xffff_ffff | (0xff << 32)),
        (3, good[3] + 8),
        (3, good[3] | (1 << 52)),
        (4, good[4] + 2048),
        (5, good[5] + 1),
        (7, 1),
        (15, 1 << 63),
    ];
    for (word, value) in cases {
        bench.poke(q.desc + word * 8, value);
        bench.bind(&q);
        assert_eq!(bench.slot_state(&q), hw::SLOT_EMPTY);
        bench.assert_broken(&[Rule::Desc]);
        bench.poke(q.desc + word * 8, good[word as usize]);
    }
    for desc in [q.desc + 8, q.desc | (1 << 60)] {
        bench.bind(&Queue { desc, ..q.clone() });
        bench.assert_broken(&[Rule::Desc]);
    }
    bench.bind(&q);
    assert_eq!(bench.slot_state(&q), hw::SLOT_IDLE);
    bench.assert_clean();
}

#[test]
fn queue_id() {
    let mut bench = Bench::new();
    bench.queue_with(2, 0, 7, &Props::default());
    let same = bench.make_queue(3, 1, 7, &Props::default());
    bench.bind(&same);
    bench.assert_broken(&[Rule::QueueId]);
    let far = bench.make_queue(3, 1, 128, &Props::default());
    bench.bind(&far);
    bench.assert_broken(&[Rule::QueueId]);
}

#[test]
fn kernel_packet() {
    let mut bench = Bench::new();
    let mut q = bench.queue(2);
    bench.push(&mut q, &[0]);
    bench.run();
    assert_eq!(bench.error(&q), FAULT_PACKET);
    bench.assert_broken(&[Rule::KernelPacket]);
    // A packet that its WPTR cuts.
    let mut q = bench.queue(3);
    bench.push(&mut q, &fence(0, 0, false)[..2]);
    bench.run();
    assert_eq!(bench.error(&q), FAULT_PACKET);
    bench.assert_broken(&[Rule::KernelPacket]);
}

#[test]
fn wptr() {
    for wptr in [513, u64::MAX] {
        let mut bench = Bench::new();
        let q = bench.queue(2);
        bench.poke(q.control, wptr);
        bench.ring(q.id);
        bench.run();
        assert_eq!(bench.error(&q), FAULT_RING);
        assert_eq!(
            bench.last_fault().map(|f| (f.0, f.1)),
            Some((FAULT_RING, wptr))
        );
        bench.assert_broken(&[Rule::Wptr]);
    }
    let mut bench = Bench::new();
    let mut q = bench.queue(2);
    bench.push(&mut q, &pkt(PKT_NOP, 0, 0, &[0, 0, 0]));
    bench.run();
    bench.poke(q.control, 3);
    bench.ring(q.id);
    bench.run();
    assert_eq!(bench.error(&q), FAULT_RING);
    bench.assert_broken(&[Rule::Wptr]);
}

#[test]
fn context() {
    let mut bench = Bench::new();
    for (i, ctx) in [0, 63, 4095].into_iter().enumerate() {
        Space::new(&mut bench, 1);
        let props = Props {
            ctx,
            ..Props::default()
        };
        let mut q = bench.queue_with(2 + i % 2, i / 2, 40 + i as u16, &props);
        bench.push(&mut q, &pkt(PKT_TIMESTAMP, 0, 0, &[0]));
        bench.run();
        assert_eq!(bench.error(&q), FAULT_CONTEXT);
        bench.assert_broken(&[Rule::Context]);
    }
}

#[test]
fn pte() {
    let mut bench = Bench::new();
    let space = Space::new(&mut bench, 1);
    space.map_4k(&mut bench, 0x1000, 0x1000, RW | (1 << 9));
    let mut q = bench.queue(2);
    bench.push(&mut q, &pkt(PKT_TIMESTAMP, 0, 0, &[0x1000]));
    bench.run();
    assert_eq!(bench.error(&q), FAULT_PTE);
    bench.assert_broken(&[Rule::Pte]);
}

#[test]
fn address() {
    let mut bench = Bench::new();
    let q = bench.make_queue(2, 0, 2, &Props::default());
    let nowhere = PA_SYSTEM | 0x10_0000;
    bench.bind(&Queue {
        desc: nowhere,
        ..q.clone()
    });
    bench.assert_broken(&[Rule::Address]);
    for word in [3, 4, 5] {
        let good = bench.peek(q.desc + word * 8);
        for bad in [nowhere, 16 << 20, PA_SYSTEM | (DMA + SYSTEM_BYTES)] {
            bench.poke(q.desc + word * 8, bad);
            bench.bind(&q);
            bench.assert_broken(&[Rule::Address]);
        }
        bench.poke(q.desc + word * 8, good);
    }
    bench.write(Reg::CTX_TABLE_LO, 0, 0x0100_0000);
    bench.write(Reg::CTX_COUNT, 0, 4);
    bench.write(Reg::CTX_COMMIT, 0, 1);
    bench.assert_broken(&[Rule::Address]);
    bench.write(Reg::FAULT_RING_HI, 0, 0);
    bench.write(Reg::FAULT_RING_LO, 0, 0x0100_0000);
    bench.write(Reg::FAULT_CTRL, 0, 1);
    bench.assert_broken(&[Rule::Address]);
}

#[test]
fn bus_master() {
    let mut bench = Bench::new();
    let bound = bench.queue(3);
    let q = bench.make_queue(2, 0, 2, &Props::default());
    bench.board.set_bus_master(false);
    bench.bind(&q);
    bench.assert_broken(&[Rule::BusMaster]);
    bench.ring(bound.id);
    bench.run();
    bench.assert_broken(&[Rule::BusMaster]);
    // Neither save area nor control page can be written.
    bench.unbind(&bound);
    bench.assert_broken(&[Rule::BusMaster, Rule::BusMaster]);
    bench.write(Reg::FW_CTRL, 0, 1);
    assert_eq!(
        bench.read(Reg::FW_STATUS, 0),
        (FW_ERR_BUS << 8) | hw::FW_FAILED
    );
    bench.assert_broken(&[Rule::BusMaster]);
}

#[test]
fn no_firmware() {
    let mut bench = Bench::cold(small());
    let q = bench.make_queue(2, 0, 2, &Props::default());
    bench.bind(&q);
    bench.assert_broken(&[Rule::NoFirmware]);
    assert_eq!(bench.slot_state(&q), hw::SLOT_EMPTY);
}

#[test]
fn doorbell() {
    let bench = Bench::new();
    let base = hw::DOORBELL_BASE as u64;
    bench.write_at(base + 4, 1);
    bench.assert_broken(&[Rule::Doorbell]);
    bench.board.mmio_write(base, &[1, 0]);
    bench.assert_broken(&[Rule::Doorbell]);
    bench.board.mmio_write(base, &[0; 8]);
    bench.assert_broken(&[Rule::Doorbell]);
    bench.write_at(base + (128 << 16), 1);
    bench.assert_broken(&[Rule::Doorbell]);
    bench.write_at(u64::MAX - 3, 1);
    bench.assert_broken(&[Rule::Doorbell]);
}

#[test]
fn fault_rptr() {
    let bench = Bench::new();
    bench.write(Reg::FAULT_RPTR, 0, 1);
    bench.assert_broken(&[Rule::FaultRptr]);
    assert_eq!(bench.read(Reg::FAULT_RPTR, 0), 0);
}

#[test]
fn power_busy() {
    let bench = Bench::new();
    bench.write(Reg::CLK_TARGET, 0, 750_000);
    bench.assert_clean();
    bench.write(Reg::CLK_TARGET, 0, 400_000);
    bench.assert_broken(&[Rule::PowerBusy]);
    assert_eq!(bench.read(Reg::CLK_TARGET, 0), 750_000);
    bench.write(Reg::VOLT_TARGET, 1, 1_100_000);
    bench.write(Reg::VOLT_TARGET, 1, 1_100_000);
    bench.assert_broken(&[Rule::PowerBusy]);
    bench.run();
    bench.write(Reg::CLK_TARGET, 0, 400_000);
    bench.assert_clean();
}

#[test]
fn undervoltage() {
    let bench = Bench::new();
    let info = || bench.board.front().judge.last().map(|v| v.info);
    // A clock that the voltage is not enough for, from the beginning of the change on.
    bench.write(Reg::CLK_TARGET, 0, 1_500_000);
    assert_eq!(info(), Some(850_000));
    bench.run();
    bench.assert_broken(&[Rule::Undervoltage]);
    // Made good, and a voltage that falls too far.
    bench.write(Reg::VOLT_TARGET, 0, 1_000_000);
    bench.run();
    bench.write(Reg::VOLT_TARGET, 0, 999_000);
    bench.run();
    assert_eq!(info(), Some(999_000));
    bench.assert_broken(&[Rule::Undervoltage]);
    bench.write(Reg::VOLT_TARGET, 1, 1_000_000);
    bench.run();
    assert_eq!(info(), Some((1 << 32) | 1_000_000));
    bench.assert_broken(&[Rule::Undervoltage]);
    // The rule looks at the old clock until the change has ended.
    let bench = Bench::new();
    bench.write(Reg::CLK_TARGET, 0, 750_000);
    bench.write(Reg::VOLT_TARGET, 0, 775_000);
    bench.run();
    bench.assert_broken(&[Rule::Undervoltage]);
    let bench = Bench::new();
    bench.write(Reg::CLK_TARGET, 0, 750_000);
    bench.run();
    bench.write(Reg::VOLT_TARGET, 0, 775_000);
    bench.run();
    bench.assert_clean();
}

#[test]
fn overtemp() {
    let bench = Bench::new();
    let order = |order| {
        bench.board.request(Request::Power(order));
    };
    order(Order::Heat(95_000));
    bench.assert_clean();
    order(Order::Heat(95_001));
    assert_eq!(
        bench.board.front().judge.last().map(|v| v.info),
        Some(95_001)
    );
    order(Order::Heat(94_001));
    order(Order::Heat(96_000));
    bench.assert_broken(&[Rule::Overtemp]);
    order(Order::Heat(94_000));
    order(Order::Heat(96_000));
    bench.assert_broken(&[Rule::Overtemp]);
}

#[test]
fn stream_rptr() {
    let bench = Bench::new();
    bench.write(Reg::STREAM_RPTR, 0, 1);
    bench.assert_broken(&[Rule::StreamRptr]);
    assert_eq!(bench.read(Reg::STREAM_RPTR, 0), 0);
}

#[test]
fn the_registers_of_the_judge_show_what_it_counted_and_no_reset_clears_it() {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.write(Reg::ID, 0, 0);
    }
    bench.read_at(0x0f04);
    assert_eq!(bench.read(Reg::VIOL_COUNT, 0), 4);
    bench.write(Reg::VIOL_SELECT, 0, VIOL_REG_READ_ONLY);
    assert_eq!(bench.read(Reg::VIOL_SELECTED, 0), 3);
    assert_eq!(bench.read(Reg::VIOL_LAST, 0), VIOL_REG_UNKNOWN);
    assert_eq!(bench.read(Reg::VIOL_INFO_LO, 0), 0x0f04);
    bench.write(Reg::DEVICE_RESET, 0, hw::RESET_MAGIC);
    assert_eq!(bench.read(Reg::VIOL_COUNT, 0), 4);
    bench.write(Reg::VIOL_SELECT, 0, 0xffff);
    assert_eq!(bench.read(Reg::VIOL_SELECTED, 0), 0);
}

#[test]
fn every_rule_has_a_code_and_a_name_of_its_own() {
    let codes: Vec<u32> = Rule::ALL.iter().map(|r| r.code()).collect();
    assert_eq!(codes, (1..=22).collect::<Vec<_>>());
    let names: std::collections::HashSet<_> = Rule::ALL.iter().map(|r| r.name()).collect();
    assert_eq!(names.len(), Rule::ALL.len());
}
