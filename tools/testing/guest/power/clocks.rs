// SPDX-License-Identifier: GPL-2.0
//! Clocks and voltages: what people set is held, and what goes wrong ends safe.

use anyhow::ensure;
use guest::errno;
use guest::eventually;
use guest::ochre::abi::*;
use guest::ochre::access::READ_WRITE;
use guest::ochre::region::VRAM;
use guest::ochre::Gpu;
use guest::ochre::Queue;
use guest::ochre::Stream;
use guest::power::Defaults;
use guest::power::PowerReport;
use guest::power::Residency;
use guest::Board;
use guest::Desk;
use guest::Errno;
use guest::Outcome;
use guest::PciDevice;

guest::tests! {
    idle_board_is_slow_and_nothing_wakes_it,
    work_runs_at_a_fast_clock,
    locked_clock_stays_in_its_range,
    wrong_lock_is_refused_and_leaves_the_old_one,
    governors_of_the_kernel_set_the_clock,
    limits_of_devfreq_hold,
    memory_clock_is_set_by_itself,
    boosted_queue_has_the_fastest_clocks,
    residency_is_that_of_the_board,
    failed_change_of_a_clock_ends_slow_and_safe,
    failed_change_of_a_voltage_ends_slow_and_safe,
    change_that_never_ends_leaves_a_board_that_works,
    lock_and_limit_hold_over_a_reset_of_the_device,
    unbinding_during_a_change_is_clean,
}

const CORE: usize = 0;
const MEMORY: usize = 1;
const FASTEST: u32 = 1_500_000;
const SLOWEST: u32 = 400_000;

/// Moves memory about for some ms of board time.
fn work(desk: &Desk<'_>, queue: &Queue<'_>) -> Outcome {
    const BYTES: u64 = 8 << 20;
    let buffer = desk.vm.buffer(VRAM, 2 * BYTES, READ_WRITE)?;
    let mut stream = Stream::new();
    for _ in 0..24 {
        stream = stream.copy(buffer.addr, buffer.addr + BYTES, BYTES);
    }
    desk.run(queue, stream)
}

/// Runs work and asks the board in its midst.
fn during_work(desk: &Desk<'_>, queue: &Queue<'_>) -> anyhow::Result<PowerReport> {
    const BYTES: u64 = 8 << 20;
    let buffer = desk.vm.buffer(VRAM, 2 * BYTES, READ_WRITE)?;
    let mut stream = Stream::new();
    for _ in 0..48 {
        stream = stream.copy(buffer.addr, buffer.addr + BYTES, BYTES);
    }
    let stream = stream.sem_wait(desk.word_addr(0), 1, guest::ochre::hw::CMP_GE);
    desk.set_word(0, 0);
    let job = desk.start(queue, stream)?;
    Board.queue_in_state(2, "waiting")?;
    let report = Board.power()?;
    desk.set_word(0, 1);
    job.ends_well()?;
    Ok(report)
}

fn idle_board_is_slow_and_nothing_wakes_it() -> Outcome {
    PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    work(&desk, &queue)?;
    let before = Board.settles_at(CORE, SLOWEST)?;
    let interrupts = eventually("the board is at rest", 30, || {
        let interrupts = Board.interrupts()?;
        std::thread::sleep(std::time::Duration::from_millis(300));
        Ok((Board.interrupts()? == interrupts).then_some(interrupts))
    })?;
    // What wakes it would do so within this time, which is what is measured here.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(Board.interrupts()?, interrupts);
    ensure!(Board.power()?.domains[CORE].clock.now == before.domains[CORE].clock.now);
    Ok(())
}

fn work_runs_at_a_fast_clock() -> Outcome {
    PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let report = during_work(&desk, &queue)?;
    ensure!(
        report.domains[MEMORY].clock.now > SLOWEST,
        "the memory is slow: {report:?}"
    );
    Ok(())
}

fn locked_clock_stays_in_its_range() -> Outcome {
    let _defaults = Defaults;
    let pci = PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    pci.files().set("clock_lock", "750000 750000")?;
    assert_eq!(pci.files().get("clock_lock")?, "750000 750000");
    Board.settles_at(CORE, 750_000)?;
    assert_eq!(during_work(&desk, &queue)?.domains[CORE].clock.now, 750_000);
    pci.files().set("clock_lock", "1000000 1300000")?;
    Board.settles_at(CORE, 1_000_000)?;
    pci.files().set("clock_lock", "\n")?;
    assert_eq!(pci.files().get("clock_lock")?, "0 0");
    Board.settles_at(CORE, SLOWEST)?;
    Ok(())
}

fn wrong_lock_is_refused_and_leaves_the_old_one() -> Outcome {
    let _defaults = Defaults;
    let files = PciDevice::bound()?.files();
    files.set("clock_lock", "750000 1000000")?;
    for wrong in [
        "1000000 750000",
        "1 2",
        "1600000 1700000",
        "750000",
        "750000 1000000 1",
        "-1 1000000",
        "750000 5000000000",
        "fast",
        "\u{e9}",
    ] {
        let refused = errno(files.set("clock_lock", wrong));
        ensure!(refused == Some(Errno::EINVAL), "'{wrong}': {refused:?}");
    }
    assert_eq!(files.get("clock_lock")?, "750000 1000000");
    Ok(())
}

fn governors_of_the_kernel_set_the_clock() -> Outcome {
    let _defaults = Defaults;
    let pci = PciDevice::bound()?;
    // What was learnt of other work, or a tight limit, would hold the fastest level back.
    pci.rebind()?;
    pci.hwmon()?.set("power1_cap", "150000000")?;
    let devfreq = pci.devfreq()?;
    assert_eq!(devfreq.get("governor")?, "ochre");
    assert_eq!(
        devfreq.get("available_frequencies")?,
        "400000000 750000000 1000000000 1250000000 1500000000"
    );
    devfreq.set("governor", "performance")?;
    Board.settles_at(CORE, FASTEST)?;
    assert_eq!(devfreq.number("cur_freq")?, i64::from(FASTEST) * 1000);
    devfreq.set("governor", "powersave")?;
    Board.settles_at(CORE, SLOWEST)?;
    devfreq.set("governor", "userspace")?;
    devfreq.set("userspace/set_freq", "1000000000")?;
    Board.settles_at(CORE, 1_000_000)?;
    devfreq.set("governor", "simple_ondemand")?;
    Board.settles_at(CORE, SLOWEST)?;
    devfreq.set("governor", "ochre")?;
    Board.settles_at(CORE, SLOWEST)?;
    Ok(pci.hwmon()?.set("power1_cap", "100000000")?)
}

fn limits_of_devfreq_hold() -> Outcome {
    let _defaults = Defaults;
    let pci = PciDevice::bound()?;
    let devfreq = pci.devfreq()?;
    let set = |file: &str, hz: &str| -> Outcome {
        devfreq.set(file, hz)?;
        // People's limits reach our governor with its next look.
        Ok(pci.files().set("clock_lock", "0 0")?)
    };
    set("min_freq", "1000000000")?;
    Board.settles_at(CORE, 1_000_000)?;
    set("min_freq", "0")?;
    Board.settles_at(CORE, SLOWEST)?;
    Ok(())
}

fn memory_clock_is_set_by_itself() -> Outcome {
    let _defaults = Defaults;
    let pci = PciDevice::bound()?;
    pci.files().set("memory_clock_lock", "800000 800000")?;
    let report = Board.settles_at(MEMORY, 800_000)?;
    assert_eq!(report.domains[CORE].clock.now, SLOWEST);
    pci.memory_devfreq()?.set("governor", "performance")?;
    pci.files().set("memory_clock_lock", "0 0")?;
    Board.settles_at(MEMORY, 1_250_000)?;
    Ok(())
}

fn boosted_queue_has_the_fastest_clocks() -> Outcome {
    PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let boost = (DRM_OCHRE_QUEUE_BOOST, 1);
    let queue = Queue::with(&desk.vm, DRM_OCHRE_ENGINE_COPY, 0, &[boost])?;
    let report = during_work(&desk, &queue)?;
    assert_eq!(report.domains[CORE].clock.now, FASTEST);
    assert_eq!(report.domains[MEMORY].clock.now, 1_250_000);
    drop(queue);
    for wrong in [2, u64::MAX] {
        let wrong = (DRM_OCHRE_QUEUE_BOOST, wrong);
        let refused = errno(Queue::with(&desk.vm, DRM_OCHRE_ENGINE_COPY, 0, &[wrong]));
        assert_eq!(refused, Some(Errno::EINVAL));
    }
    Ok(())
}

fn residency_is_that_of_the_board() -> Outcome {
    let _defaults = Defaults;
    let pci = PciDevice::bound()?;
    pci.rebind()?;
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    for lock in ["750000 750000", "1250000 1250000"] {
        pci.files().set("clock_lock", lock)?;
        work(&desk, &queue)?;
    }
    pci.files().set("clock_lock", "0 0")?;
    let report = Board.settles_at(CORE, SLOWEST)?;
    let text = pci.files().get("clock_residency")?;
    let total: u64 = report.domains[CORE].residency.iter().map(|r| r.ns).sum();
    for Residency { khz, ns } in &report.domains[CORE].residency {
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix(&format!("{khz} ")));
        let shown: u64 = line.unwrap_or("0").parse()?;
        ensure!(
            shown.abs_diff(*ns) * 100 <= total,
            "{khz} kHz: the driver shows {shown} ns, the board says {ns} ns\n{text}"
        );
    }
    Ok(())
}

/// Has changes of the core go wrong and looks at what becomes of it.
fn goes_wrong(order: &str) -> Outcome {
    let _defaults = Defaults;
    let pci = PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    Board.settles_at(CORE, SLOWEST)?;
    let failures = pci.files().get("clock_failures")?;
    Board.ask(order)?;
    pci.files().set("clock_lock", "1250000 1250000")?;
    let reason = pci.files().get("clock_reason")?;
    eventually(
        &format!("the driver counts a failure; reason {reason}"),
        30,
        || {
            let now = pci.files().get("clock_failures")?;
            Ok((now != failures).then_some(()))
        },
    )?;
    work(&desk, &queue)?;
    ensure!(Board.violations()?.is_empty());
    Ok(())
}

fn failed_change_of_a_clock_ends_slow_and_safe() -> Outcome {
    goes_wrong("fail-clock core 1")?;
    let report = Board.power()?;
    assert_eq!(report.domains[CORE].clock.now, SLOWEST);
    PciDevice::find()?.reset()?;
    Ok(())
}

fn failed_change_of_a_voltage_ends_slow_and_safe() -> Outcome {
    goes_wrong("fail-voltage core 1")?;
    let report = Board.power()?;
    assert_eq!(report.domains[CORE].clock.now, SLOWEST);
    PciDevice::find()?.reset()?;
    Ok(())
}

fn change_that_never_ends_leaves_a_board_that_works() -> Outcome {
    goes_wrong("stall-clock core")?;
    // Only a reset of the board ends it.
    let pci = PciDevice::find()?;
    pci.reset()?;
    pci.files().set("clock_lock", "1000000 1000000")?;
    Board.settles_at(CORE, 1_000_000)?;
    pci.files().set("clock_lock", "0 0")?;
    Ok(())
}

fn lock_and_limit_hold_over_a_reset_of_the_device() -> Outcome {
    let _defaults = Defaults;
    let pci = PciDevice::bound()?;
    pci.files().set("clock_lock", "1250000 1250000")?;
    pci.hwmon()?.set("power1_cap", "90000000")?;
    Board.settles_at(CORE, 1_250_000)?;
    pci.reset()?;
    Board.settles_at(CORE, 1_250_000)?;
    assert_eq!(pci.files().get("clock_lock")?, "1250000 1250000");
    assert_eq!(pci.hwmon()?.number("power1_cap")?, 90_000_000);
    pci.hwmon()?.set("power1_cap", "100000000")?;
    Ok(())
}

fn unbinding_during_a_change_is_clean() -> Outcome {
    let pci = PciDevice::bound()?;
    for lock in ["1500000 1500000", "400000 400000", "1000000 1000000"] {
        // The change stands while the gate is closed.
        let gate = Board.close_gate()?;
        pci.files().set("clock_lock", lock)?;
        pci.unbind()?;
        drop(gate);
        pci.bind()?;
        assert_eq!(pci.files().get("clock_lock")?, "0 0");
    }
    Board.settles_at(CORE, SLOWEST)?;
    Ok(())
}
