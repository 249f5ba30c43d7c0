// SPDX-License-Identifier: GPL-2.0
//! Probe of a board in a state that no driver would wish.

use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context;
use guest::bare::hw::mem::QUEUE_PRIVILEGED;
use guest::bare::hw::reg;
use guest::bare::hw::regs::SLOT_IDLE;
use guest::bare::packet;
use guest::bare::Bench;
use guest::errno;
use guest::ochre::hw::PKT_NOP;
use guest::Board;
use guest::Driver;
use guest::Errno;
use guest::Outcome;

guest::tests! {
    silent_board_is_refused_and_leaves_nothing,
    board_left_in_disorder_is_brought_up,
    hanging_board_is_brought_up,
    bound_board_cannot_be_bound_again,
    module_is_loaded_and_unloaded_again_and_again,
}

/// A probe that ends has ended by then.
const PROBE: Duration = Duration::from_secs(30);

fn silent_board_is_refused_and_leaves_nothing() -> Outcome {
    let silence = Board.silence()?;
    let begin = Instant::now();
    let mut driver = Driver::load()?;
    driver.refuses(Errno::ENODEV, &["ochre 0000:", "does not answer"])?;
    ensure!(begin.elapsed() < PROBE, "{:?}", begin.elapsed());
    driver.unload()?;

    let driver = Driver::load()?;
    ensure!(!driver.pci.is_bound(), "a silent board is bound");
    drop(silence);
    driver.pci.bind()?;
    driver.works()?;
    driver.unload()
}

fn board_left_in_disorder_is_brought_up() -> Outcome {
    let bench = Bench::new()?;
    // Two queues are bound, one has work that it may not begin, interrupts are asked for, and the
    // alarm is armed.
    bench.write(reg::GATE, 0, 1);
    let queue = bench.queue(2)?;
    bench.push(&queue, &packet(PKT_NOP, 0, &[]));
    let second = bench.make_queue(3, 1, 5, QUEUE_PRIVILEGED);
    bench.bind(&second);
    bench.wait_for(&second, SLOT_IDLE)?;
    bench.write(reg::ALARM_LO, 0, 1);
    bench.write(reg::ALARM_CTRL, 0, 3);
    for vector in 0..4 {
        bench.write(reg::IRQ_MASK, vector, 0);
        bench.write(reg::IRQ_TEST, vector, 1);
    }
    ensure!(bench.counted()?.is_empty(), "the disorder broke a rule");
    bench.abandon();

    let driver = Driver::load()?;
    driver.works()?;
    driver.unload()
}

fn hanging_board_is_brought_up() -> Outcome {
    for what in ["device", "engine 0", "engine 2"] {
        let hang = Board.hang(what)?;
        let driver = Driver::load()?;
        // The reset has to end it, so it is not taken back before.
        driver.works().with_context(|| format!("hanging: {what}"))?;
        drop(hang);
        driver.unload()?;
    }
    Ok(())
}

fn bound_board_cannot_be_bound_again() -> Outcome {
    let driver = Driver::load()?;
    let got = errno(driver.pci.bind());
    ensure!(got == Some(Errno::EBUSY), "{got:?}");
    driver.works()?;
    let got = errno(driver.pci.unbind());
    ensure!(
        got == Some(Errno::ENODEV),
        "unbind without a driver: {got:?}"
    );
    driver.unload()
}

fn module_is_loaded_and_unloaded_again_and_again() -> Outcome {
    for _ in 0..5 {
        let driver = Driver::load()?;
        ensure!(driver.pci.is_bound(), "the board is not bound");
        driver.unload()?;
    }
    Ok(())
}
