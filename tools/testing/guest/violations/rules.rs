// SPDX-License-Identifier: GPL-2.0
//! Each rule of the specification counts when it is broken, once and by name; nothing else does.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::sync::Mutex;
use std::sync::PoisonError;

use anyhow::ensure;
use guest::bare::hw::fields;
use guest::bare::hw::mem::*;
use guest::bare::hw::reg;
use guest::bare::hw::regs::*;
use guest::bare::hw::rules;
use guest::bare::packet;
use guest::bare::Bench;
use guest::bare::Page;
use guest::bare::Queue;
use guest::ochre::hw::*;
use guest::Board;
use guest::Outcome;

guest::tests! {
    work_that_keeps_the_rules_is_not_counted,
    access_where_no_register_is_is_counted,
    write_to_a_read_only_register_is_counted,
    read_of_a_write_only_register_is_counted,
    access_of_another_width_than_32_bits_is_counted,
    write_of_bits_that_no_field_has_is_counted,
    value_that_the_register_does_not_take_is_counted,
    bind_to_a_taken_slot_and_emptying_an_empty_one_are_counted,
    malformed_queue_descriptor_is_counted,
    queue_id_that_is_taken_or_out_of_range_is_counted,
    invalid_packet_in_a_privileged_ring_is_counted,
    invalid_packet_in_a_user_ring_is_not_counted,
    producer_position_that_makes_no_sense_is_counted,
    use_of_a_context_that_is_not_valid_is_counted,
    malformed_page_table_entry_is_counted,
    privileged_access_to_an_address_that_is_not_there_is_counted,
    work_asked_for_without_bus_mastering_is_counted,
    use_of_an_engine_before_the_firmware_runs_is_counted,
    doorbell_that_is_none_is_counted,
    fault_ring_position_beyond_what_was_written_is_counted,
    clock_or_voltage_written_while_it_changes_is_counted,
    voltage_below_what_the_clock_needs_is_counted,
    temperature_above_the_limit_is_counted,
    stream_position_beyond_what_was_written_is_counted,
    registers_of_the_judge_tell_what_was_counted_and_no_reset_clears_them,
    each_rule_was_broken_in_one_of_these_tests,
}

/// Copy engine, which does all that is needed here.
const ENGINE: usize = 2;
const OTHER_ENGINE: usize = 3;

/// Rules that were counted so far.
static BROKEN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// The board has counted exactly these rules in this order; it forgets them.
fn expect(bench: &Bench, expected: &[u32]) -> Outcome {
    let names: BTreeMap<u32, &str> = rules()
        .into_iter()
        .map(|(name, code)| (code, name))
        .collect();
    let name = |code: &u32| names.get(code).copied().unwrap_or("a code without a name");
    let counted = bench.counted()?;
    let got: Vec<_> = counted
        .iter()
        .map(|violation| name(&violation.code))
        .collect();
    let expected_names: Vec<_> = expected.iter().map(name).collect();
    ensure!(
        got == expected_names,
        "counted {counted:x?} instead of {expected_names:?}"
    );
    for violation in &counted {
        // The board's own name for the rule: `reg-unknown` for VIOL_REG_UNKNOWN.
        let own = violation.rule.to_uppercase().replace('-', "_");
        ensure!(
            name(&violation.code) == format!("VIOL_{own}"),
            "{violation:?}"
        );
    }
    Board.clear_violations()?;
    ensure!(bench.counted()?.is_empty(), "the counts are not cleared");
    let mut broken = BROKEN.lock().unwrap_or_else(PoisonError::into_inner);
    broken.extend(expected);
    Ok(())
}

/// A fence packet.
fn fence(record: u64, value: u64) -> Vec<u64> {
    packet(PKT_FENCE, FLAG_INTERRUPT, &[record, value])
}

fn work_that_keeps_the_rules_is_not_counted() -> Outcome {
    let bench = Bench::new()?;
    let page = bench.alloc(4096);
    let root = bench.make_context(1);
    let leaf = page | PTE_VALID | PTE_LEAF | PTE_READ | PTE_WRITE;
    bench.map(root, 0x7000, leaf);
    let queue = bench.queue(ENGINE)?;
    let mut words = packet(PKT_WRITE_IMM, 0, &[0x7020, 0x1234]);
    words.extend(fence(page, 77));
    bench.push(&queue, &words);
    guest::eventually("the fence is written", 20, || {
        Ok((bench.peek(page) == 77).then_some(()))
    })?;
    ensure!(bench.peek(page + 0x20) == 0x1234);
    bench.unbind(&queue);
    bench.wait_for(&queue, SLOT_EMPTY)?;
    expect(&bench, &[])
}

fn access_where_no_register_is_is_counted() -> Outcome {
    let bench = Bench::cold()?;
    let engines = reg::ENG_ID.offset + 15 * reg::ENG_ID.stride;
    for at in [0x38, 0x2fff0, 0x4_0000, 0x7f_fffc, engines] {
        ensure!(bench.read_at::<u32>(at) == 0, "{at:#x} reads something");
        expect(&bench, &[VIOL_REG_UNKNOWN])?;
        bench.write_at(at, 1u32);
        expect(&bench, &[VIOL_REG_UNKNOWN])?;
    }
    Ok(())
}

fn write_to_a_read_only_register_is_counted() -> Outcome {
    let bench = Bench::cold()?;
    bench.write(reg::ID, 0, 5);
    ensure!(bench.read(reg::ID, 0) == ID_MAGIC);
    expect(&bench, &[VIOL_REG_READ_ONLY])
}

fn read_of_a_write_only_register_is_counted() -> Outcome {
    let bench = Bench::cold()?;
    ensure!(bench.read(reg::SLOT_COMMIT, 0) == 0);
    expect(&bench, &[VIOL_REG_WRITE_ONLY])?;
    ensure!(bench.read_at::<u32>(bench.doorbell(0)) == 0);
    expect(&bench, &[VIOL_REG_WRITE_ONLY])
}

fn access_of_another_width_than_32_bits_is_counted() -> Outcome {
    let bench = Bench::cold()?;
    let at = reg::SCRATCH.offset;
    bench.write(reg::SCRATCH, 0, 0x5555_5555);
    ensure!(bench.read_at::<u8>(at) == 0);
    expect(&bench, &[VIOL_REG_WIDTH])?;
    ensure!(bench.read_at::<u16>(at) == 0);
    expect(&bench, &[VIOL_REG_WIDTH])?;
    bench.write_at(at, 0xaau8);
    expect(&bench, &[VIOL_REG_WIDTH])?;
    bench.write_at(at + 2, 0xaaaau16);
    expect(&bench, &[VIOL_REG_WIDTH])?;
    ensure!(bench.read(reg::SCRATCH, 0) == 0x5555_5555);
    expect(&bench, &[])
}

fn write_of_bits_that_no_field_has_is_counted() -> Outcome {
    let bench = Bench::cold()?;
    bench.write(reg::IRQ_MASK, 0, 0xffff_fff0);
    expect(&bench, &[VIOL_REG_RESERVED])?;
    ensure!(
        bench.read(reg::IRQ_MASK, 0) == 0,
        "the other bits take effect"
    );
    Ok(())
}

fn value_that_the_register_does_not_take_is_counted() -> Outcome {
    let bench = Bench::new()?;
    bench.write(reg::SCRATCH, 0, 1);
    for (reg, value) in [
        (reg::DEVICE_RESET, RESET_MAGIC ^ 1),
        (reg::TLB_INVALIDATE, 0),
        (reg::CTR_SELECT, 0xff << 8),
        (reg::ENG_RESET, 1 << 3),
        (reg::SLOT_COMMIT, 1 << 3),
        (reg::FW_CTRL, 0),
        (reg::CTX_COMMIT, 0),
        (reg::ALARM_ACK, 0),
    ] {
        bench.write(reg, 0, value);
        expect(&bench, &[VIOL_REG_VALUE])?;
    }
    ensure!(bench.read(reg::SCRATCH, 0) == 1, "the board was reset");
    bench.write(reg::CTX_COUNT, 0, CTX_MAX as u32 + 1);
    bench.write(reg::CTX_COMMIT, 0, 1);
    expect(&bench, &[VIOL_REG_VALUE])?;
    bench.write(reg::FAULT_SIZE, 0, 13);
    bench.write(reg::FAULT_CTRL, 0, 1);
    expect(&bench, &[VIOL_REG_VALUE])?;
    // Firmware under the feet of a queue.
    bench.queue(ENGINE)?;
    bench.write(reg::FW_CTRL, 0, 1);
    expect(&bench, &[VIOL_REG_VALUE])?;
    let status = bench.read(reg::FW_STATUS, 0);
    ensure!(fields::FW_STATUS::state.get(status) == FW_RUNNING);
    Ok(())
}

fn bind_to_a_taken_slot_and_emptying_an_empty_one_are_counted() -> Outcome {
    let bench = Bench::new()?;
    let queue = bench.queue(ENGINE)?;
    let second = bench.make_queue(ENGINE, 0, 9, QUEUE_PRIVILEGED);
    bench.bind(&second);
    expect(&bench, &[VIOL_SLOT_STATE])?;
    ensure!(bench.slot_state(&queue) == SLOT_IDLE, "the queue has gone");
    bench.unbind(&Queue { slot: 1, ..queue });
    expect(&bench, &[VIOL_SLOT_STATE])
}

fn malformed_queue_descriptor_is_counted() -> Outcome {
    let bench = Bench::new()?;
    let queue = bench.make_queue(ENGINE, 0, 2, 0);
    // What is wrong, the word of the descriptor, the change.
    type Case = (&'static str, u64, fn(u64) -> u64);
    let cases: [Case; 12] = [
        ("magic", 0, |word| word ^ 1),
        ("unknown flag", 0, |word| word | 1 << 33),
        ("context out of range", 1, |word| word | 0xffff << 16),
        ("priority out of range", 1, |word| word | 4 << 32),
        ("reserved byte", 1, |word| word | 1 << 40),
        ("no quantum", 2, |word| word & !0xffff_ffff),
        ("ring too small", 2, |word| word & 0xffff_ffff | 5 << 32),
        ("ring too large", 2, |word| word & 0xffff_ffff | 17 << 32),
        ("ring not aligned", 3, |word| word + 8),
        ("control page not aligned", 4, |word| word + 2048),
        ("save area not aligned", 5, |word| word + 1),
        ("reserved word", 15, |_| 1 << 63),
    ];
    for (what, word, spoil) in cases {
        let at = queue.desc + 8 * word;
        let good = bench.peek(at);
        bench.poke(at, spoil(good));
        bench.bind(&queue);
        expect(&bench, &[VIOL_DESC]).map_err(|error| error.context(what))?;
        ensure!(bench.slot_state(&queue) == SLOT_EMPTY, "{what} was bound");
        bench.poke(at, good);
    }
    let desc = queue.desc + 64;
    bench.bind(&Queue { desc, ..queue });
    expect(&bench, &[VIOL_DESC])?;
    bench.bind(&queue);
    bench.wait_for(&queue, SLOT_IDLE)?;
    expect(&bench, &[])
}

fn queue_id_that_is_taken_or_out_of_range_is_counted() -> Outcome {
    let bench = Bench::new()?;
    let queue = bench.queue(ENGINE)?;
    let last = DOORBELLS as u16 - 1;
    for id in [queue.id, last + 1, u16::MAX] {
        let wrong = bench.make_queue(OTHER_ENGINE, 1, id, 0);
        bench.bind(&wrong);
        expect(&bench, &[VIOL_QUEUE_ID])?;
        ensure!(bench.slot_state(&wrong) == SLOT_EMPTY, "{id} was bound");
    }
    let right = bench.make_queue(OTHER_ENGINE, 1, last, 0);
    bench.bind(&right);
    bench.wait_for(&right, SLOT_IDLE)?;
    expect(&bench, &[])
}

fn invalid_packet_in_a_privileged_ring_is_counted() -> Outcome {
    let bench = Bench::new()?;
    let queue = bench.queue(ENGINE)?;
    bench.push(&queue, &packet(0x7f, 0, &[]));
    ensure!(bench.fault(&queue)? == FAULT_PACKET);
    expect(&bench, &[VIOL_KERNEL_PACKET])?;
    // One that ends behind the producer's position.
    let queue = bench.queue(OTHER_ENGINE)?;
    bench.push(&queue, &fence(0, 0)[..2]);
    ensure!(bench.fault(&queue)? == FAULT_PACKET);
    expect(&bench, &[VIOL_KERNEL_PACKET])
}

fn invalid_packet_in_a_user_ring_is_not_counted() -> Outcome {
    let bench = Bench::new()?;
    for (slot, packet, fault) in [
        (0, packet(0x7f, 0, &[]), FAULT_PACKET),
        (1, fence(0, 0), FAULT_PRIVILEGE),
    ] {
        let queue = bench.make_queue(ENGINE, slot, 20 + slot as u16, 0);
        bench.bind(&queue);
        bench.push(&queue, &packet);
        ensure!(bench.fault(&queue)? == fault);
        expect(&bench, &[])?;
    }
    Ok(())
}

fn producer_position_that_makes_no_sense_is_counted() -> Outcome {
    // Further than the ring is long, and the largest number.
    for wptr in [513, u64::MAX] {
        let bench = Bench::new()?;
        let queue = bench.queue(ENGINE)?;
        bench.set_wptr(&queue, wptr);
        ensure!(bench.fault(&queue)? == FAULT_RING);
        expect(&bench, &[VIOL_WPTR])?;
    }
    let bench = Bench::new()?;
    let queue = bench.queue(ENGINE)?;
    let record = bench.alloc(4096);
    bench.push(&queue, &fence(record, 1));
    guest::eventually("the fence is written", 20, || {
        Ok((bench.peek(record) == 1).then_some(()))
    })?;
    bench.wait_for(&queue, SLOT_IDLE)?;
    // Backwards.
    bench.set_wptr(&queue, 2);
    ensure!(bench.fault(&queue)? == FAULT_RING);
    expect(&bench, &[VIOL_WPTR])
}

fn use_of_a_context_that_is_not_valid_is_counted() -> Outcome {
    let bench = Bench::new()?;
    let queue = bench.queue(ENGINE)?;
    bench.push(&queue, &packet(PKT_TIMESTAMP, 0, &[0x1000]));
    ensure!(bench.fault(&queue)? == FAULT_CONTEXT);
    expect(&bench, &[VIOL_CONTEXT])
}

fn malformed_page_table_entry_is_counted() -> Outcome {
    let bench = Bench::new()?;
    let root = bench.make_context(1);
    let page = bench.alloc(4096);
    let leaf = page | PTE_VALID | PTE_LEAF | PTE_READ | PTE_WRITE;
    bench.map(root, 0x1000, leaf | 1 << 9);
    let queue = bench.queue(ENGINE)?;
    bench.push(&queue, &packet(PKT_TIMESTAMP, 0, &[0x1000]));
    ensure!(bench.fault(&queue)? == FAULT_PTE);
    expect(&bench, &[VIOL_PTE])
}

fn privileged_access_to_an_address_that_is_not_there_is_counted() -> Outcome {
    let bench = Bench::new()?;
    let beyond = u64::from(bench.read(reg::VRAM_SIZE, 0)) << 20;
    let queue = bench.make_queue(ENGINE, 0, 2, QUEUE_PRIVILEGED);
    bench.bind(&Queue {
        desc: beyond,
        ..queue
    });
    expect(&bench, &[VIOL_ADDRESS])?;
    bench.write_pair(reg::FAULT_RING_LO, reg::FAULT_RING_HI, 0, beyond);
    bench.write(reg::FAULT_CTRL, 0, 1);
    expect(&bench, &[VIOL_ADDRESS])?;
    // Otherwise the faults that follow would be written there.
    bench.write(reg::FAULT_CTRL, 0, 0);
    for (engine, address) in [
        (ENGINE, beyond),
        (OTHER_ENGINE, PA_SYSTEM | PA_MASK & !0xfff),
    ] {
        let queue = bench.queue(engine)?;
        bench.push(&queue, &fence(address, 1));
        ensure!(bench.fault(&queue)? == FAULT_BUS);
        expect(&bench, &[VIOL_ADDRESS])?;
    }
    Ok(())
}

fn work_asked_for_without_bus_mastering_is_counted() -> Outcome {
    let bench = Bench::new()?;
    let queue = bench.queue(ENGINE)?;
    bench.set_bus_master(false)?;
    bench.write_at(bench.doorbell(queue.id), 1u32);
    expect(&bench, &[VIOL_BUS_MASTER])?;
    drop(bench);

    let image = fs::read("/lib/firmware/ochre/og1.bin")?;
    let page = Page::with(&image)?;
    let bench = Bench::cold()?;
    bench.set_bus_master(false)?;
    let status = bench.load_firmware(page.address()?, u32::try_from(image.len())?)?;
    ensure!(fields::FW_STATUS::state.get(status) == FW_FAILED);
    ensure!(fields::FW_STATUS::error.get(status) == FW_ERR_BUS);
    expect(&bench, &[VIOL_BUS_MASTER])
}

fn use_of_an_engine_before_the_firmware_runs_is_counted() -> Outcome {
    let bench = Bench::cold()?;
    let queue = bench.make_queue(ENGINE, 0, 2, QUEUE_PRIVILEGED);
    bench.bind(&queue);
    expect(&bench, &[VIOL_NO_FIRMWARE])?;
    ensure!(bench.slot_state(&queue) == SLOT_EMPTY, "it was bound");
    Ok(())
}

fn doorbell_that_is_none_is_counted() -> Outcome {
    let bench = Bench::new()?;
    let at = bench.doorbell(0);
    bench.write_at(at + 4, 1u32);
    expect(&bench, &[VIOL_DOORBELL])?;
    bench.write_at(at, 1u16);
    expect(&bench, &[VIOL_DOORBELL])?;
    bench.write_at(bench.doorbell(DOORBELLS as u16) - 4, 1u32);
    expect(&bench, &[VIOL_DOORBELL])?;
    // One that no slot holds is none of the driver's business, but no mistake either.
    bench.write_at(at, 1u32);
    expect(&bench, &[])
}

fn fault_ring_position_beyond_what_was_written_is_counted() -> Outcome {
    let bench = Bench::new()?;
    bench.write(reg::FAULT_RPTR, 0, 1);
    expect(&bench, &[VIOL_FAULT_RPTR])?;
    ensure!(bench.read(reg::FAULT_RPTR, 0) == 0, "it was taken");
    Ok(())
}

fn clock_or_voltage_written_while_it_changes_is_counted() -> Outcome {
    let bench = Bench::new()?;
    // No time passes, so the change stays under way.
    bench.write(reg::GATE, 0, 1);
    for (now, target) in [
        (reg::CLK_NOW, reg::CLK_TARGET),
        (reg::VOLT_NOW, reg::VOLT_TARGET),
    ] {
        let value = bench.read(now, DOMAIN_MEMORY);
        bench.write(target, DOMAIN_MEMORY, value);
        expect(&bench, &[])?;
        bench.write(target, DOMAIN_MEMORY, value);
        expect(&bench, &[VIOL_POWER_BUSY])?;
    }
    bench.write(reg::GATE, 0, 0);
    Ok(())
}

fn voltage_below_what_the_clock_needs_is_counted() -> Outcome {
    let bench = Bench::new()?;
    let needed = bench.read(reg::VOLT_NOW, DOMAIN_CORE);
    for uv in [needed - 1000, needed] {
        bench.write(reg::VOLT_TARGET, DOMAIN_CORE, uv);
        guest::eventually("the voltage has changed", 20, || {
            let busy = bench.read(reg::VOLT_STATUS, DOMAIN_CORE) & 1 != 0;
            Ok((!busy).then_some(()))
        })?;
    }
    expect(&bench, &[VIOL_UNDERVOLTAGE])
}

fn temperature_above_the_limit_is_counted() -> Outcome {
    let bench = Bench::new()?;
    let limit = bench.read(reg::TEMP_LIMIT, 0);
    Board.ask(&format!("heat {limit}"))?;
    expect(&bench, &[])?;
    let _cool = Board.until_dropped(&format!("heat {}", limit + 1), "heat 30000")?;
    expect(&bench, &[VIOL_OVERTEMP])
}

fn stream_position_beyond_what_was_written_is_counted() -> Outcome {
    let bench = Bench::new()?;
    bench.write(reg::STREAM_RPTR, 0, 1);
    expect(&bench, &[VIOL_STREAM_RPTR])?;
    ensure!(bench.read(reg::STREAM_RPTR, 0) == 0, "it was taken");
    Ok(())
}

fn registers_of_the_judge_tell_what_was_counted_and_no_reset_clears_them() -> Outcome {
    let bench = Bench::cold()?;
    for _ in 0..3 {
        bench.write(reg::ID, 0, 0);
    }
    bench.read_at::<u32>(0x0f04);
    for reset in [false, true] {
        if reset {
            bench.reset()?;
        }
        ensure!(bench.read(reg::VIOL_COUNT, 0) == 4);
        ensure!(bench.read(reg::VIOL_LAST, 0) == VIOL_REG_UNKNOWN);
        ensure!(bench.read(reg::VIOL_INFO_LO, 0) == 0x0f04);
        ensure!(bench.read(reg::VIOL_INFO_HI, 0) == 0);
        bench.write(reg::VIOL_SELECT, 0, VIOL_REG_READ_ONLY);
        ensure!(bench.read(reg::VIOL_SELECTED, 0) == 3);
    }
    let read_only = VIOL_REG_READ_ONLY;
    expect(&bench, &[read_only, read_only, read_only, VIOL_REG_UNKNOWN])
}

fn each_rule_was_broken_in_one_of_these_tests() -> Outcome {
    let broken = BROKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let rules = rules();
    ensure!(rules.len() >= 22, "only {} rules were found", rules.len());
    let missing: Vec<_> = rules
        .iter()
        .filter(|(_, code)| !broken.contains(code))
        .collect();
    ensure!(missing.is_empty(), "no test breaks {missing:?}");
    Ok(())
}
