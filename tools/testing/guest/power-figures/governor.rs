// SPDX-License-Identifier: GPL-2.0
//! What the governor is worth, in board time. Each test prints its figures.
//!
//! All work is queued behind the closed gate, waits for nothing from outside, and is sampled in
//! lock-step with the board, so that the figures are those of the board and hardly of the machine.

use anyhow::ensure;
use guest::ochre::abi::*;
use guest::ochre::access::READ_WRITE;
use guest::ochre::region::VRAM;
use guest::ochre::Buffer;
use guest::ochre::Gpu;
use guest::ochre::Queue;
use guest::ochre::Stream;
use guest::power::Defaults;
use guest::Board;
use guest::Desk;
use guest::Outcome;
use guest::PciDevice;
use guest::Pending;

guest::tests! {
    more_work_under_a_power_limit_than_with_three_levels,
    the_temperature_limit_is_not_passed_on_a_step_of_the_load,
    thirty_per_cent_of_load_take_less_energy_and_hardly_longer,
}

/// Bytes of one copy: 100 µs or so.
const COPY: u64 = 8 << 20;
/// The word that a queue stores the time of its begin in; that of its end follows.
const BEGIN: [usize; 4] = [16, 18, 20, 22];

/// The queues that work, one on each engine, and their memory.
struct Load<'g> {
    desk: Desk<'g>,
    queues: Vec<Queue<'g>>,
    memory: Buffer<'g>,
}

/// What a run took.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Board time from the first begin to the last end, in ns.
    ns: u64,
    /// Mean power from before the gate was opened until all was over, in mW.
    power_mw: u64,
    /// The hottest that the sensor showed, in m°C.
    temp_mc: i32,
}

impl<'g> Load<'g> {
    fn new(gpu: &'g Gpu) -> anyhow::Result<Self> {
        let desk = Desk::new(gpu)?;
        let memory = desk.vm.buffer(VRAM, 8 * COPY, READ_WRITE)?;
        let timeout = (DRM_OCHRE_QUEUE_TIMEOUT_MS, 60_000);
        let mut queues = Vec::new();
        for class in [DRM_OCHRE_ENGINE_COMPUTE, DRM_OCHRE_ENGINE_COPY] {
            for instance in [0, 1] {
                queues.push(Queue::with(&desk.vm, class, instance, &[timeout])?);
            }
        }
        Ok(Self {
            desk,
            queues,
            memory,
        })
    }

    /// One burst of `copies` copies of the engine with this index.
    fn burst(&self, engine: usize, copies: usize, mut stream: Stream) -> Stream {
        let from = self.memory.addr + 2 * engine as u64 * COPY;
        for _ in 0..copies {
            stream = stream.copy(from, from + COPY, COPY);
        }
        stream
    }

    /// Runs what `stream` makes for each of the first `engines` engines, which adds the work to
    /// the packets that it is given.
    fn run(&self, engines: usize, stream: impl Fn(usize, Stream) -> Stream) -> anyhow::Result<Run> {
        Board.settles_at(0, 400_000)?;
        let gate = Board.close_gate()?;
        let before = Board.power()?;
        let mut jobs: Vec<Pending<'_>> = Vec::new();
        for (engine, &begin) in BEGIN.iter().enumerate().take(engines) {
            let word = self.desk.word_addr(begin);
            let packets = stream(engine, Stream::new().timestamp(word));
            let packets = packets.timestamp(word + 8);
            jobs.push(self.desk.start(&self.queues[engine], packets)?);
        }
        drop(gate);
        let mut temp_mc = before.temp_mc;
        for job in &jobs {
            while job.is_at_work()? {
                temp_mc = temp_mc.max(Board.power()?.temp_mc);
            }
            job.ends_well()?;
        }
        let after = Board.power()?;
        let words = &BEGIN[..engines];
        let begin = words.iter().map(|&w| self.desk.word(w)).min().unwrap_or(0);
        let end = words
            .iter()
            .map(|&w| self.desk.word(w + 1))
            .max()
            .unwrap_or(0);
        Ok(Run {
            ns: end - begin,
            power_mw: (after.energy_uj - before.energy_uj) * 1_000_000
                / (after.time_ns - before.time_ns),
            temp_mc: temp_mc.max(after.temp_mc),
        })
    }

    /// Everything copies without a pause.
    fn flat_out(&self, copies: usize) -> anyhow::Result<Run> {
        self.run(4, |engine, stream| self.burst(engine, copies, stream))
    }
}

/// Cools the board down to where each run begins.
fn cool(mc: i32) -> Outcome {
    Board.ask(&format!("heat {mc}")).map(drop)
}

fn more_work_under_a_power_limit_than_with_three_levels() -> Outcome {
    let _defaults = Defaults;
    let pci = PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let load = Load::new(&gpu)?;
    pci.hwmon()?.set("power1_cap", "60000000")?;
    let mut times = Vec::new();
    for policy in ["predictive", "reactive"] {
        pci.files().set("power_policy", policy)?;
        cool(45_000)?;
        let run = load.flat_out(500)?;
        println!(
            "# {policy}: {:.3} ms, {:.1} W, {} m°C",
            run.ns as f64 / 1e6,
            run.power_mw as f64 / 1e3,
            run.temp_mc
        );
        times.push(run.ns);
    }
    pci.hwmon()?.set("power1_cap", "100000000")?;
    let more = times[1] as f64 / times[0] as f64 * 100.0 - 100.0;
    println!("# {more:.1} % more work per second at 60 W");
    ensure!(more >= 10.0, "only {more:.1} %");
    Ok(())
}

fn the_temperature_limit_is_not_passed_on_a_step_of_the_load() -> Outcome {
    let _defaults = Defaults;
    let pci = PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let load = Load::new(&gpu)?;
    pci.hwmon()?.set("power1_cap", "150000000")?;
    // So warm that the limit is reached within the step.
    let ambient = Board.until_dropped("ambient 60000", "ambient 30000")?;
    cool(70_000)?;
    let run = load.flat_out(700)?;
    println!(
        "# {:.3} ms, at most {} m°C",
        run.ns as f64 / 1e6,
        run.temp_mc
    );
    drop(ambient);
    pci.hwmon()?.set("power1_cap", "100000000")?;
    ensure!(Board.violations()?.is_empty(), "the board got too hot");
    ensure!(run.temp_mc > 90_000, "the load did not heat the board");
    Ok(())
}

fn thirty_per_cent_of_load_take_less_energy_and_hardly_longer() -> Outcome {
    let _defaults = Defaults;
    let pci = PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let load = Load::new(&gpu)?;
    let mut runs = Vec::new();
    for fixed in [true, false] {
        if fixed {
            pci.files().set("clock_lock", "1500000 1500000")?;
            pci.files().set("memory_clock_lock", "1250000 1250000")?;
        } else {
            pci.files().set("clock_lock", "0 0")?;
            pci.files().set("memory_clock_lock", "0 0")?;
        }
        cool(45_000)?;
        runs.push(duty(&load, fixed)?);
    }
    let [fixed, governed] = runs[..] else {
        return Ok(());
    };
    let less = 100.0 - governed.energy_uj as f64 / fixed.energy_uj as f64 * 100.0;
    let longer = governed.busy_ns as f64 / fixed.busy_ns as f64 * 100.0 - 100.0;
    println!(
        "# fixed P0: {} µJ, bursts of {} ns; governed: {} µJ, {} ns",
        fixed.energy_uj, fixed.busy_ns, governed.energy_uj, governed.busy_ns
    );
    println!("# {less:.1} % less energy, {longer:.1} % more latency");
    ensure!(less >= 25.0 && longer < 5.0, "not as it should be");
    Ok(())
}

/// Energy of a run with pauses, and the mean length of its bursts.
#[derive(Clone, Copy, Debug)]
struct Duty {
    energy_uj: u64,
    busy_ns: u64,
}

/// Bursts of 3 ms or so in a beat of 10 ms, on one engine.
fn duty(load: &Load<'_>, fixed: bool) -> anyhow::Result<Duty> {
    const BURSTS: usize = 20;
    let (first, last) = (32, 32 + 2 * BURSTS);
    if !fixed {
        Board.settles_at(0, 400_000)?;
    }
    let gate = Board.close_gate()?;
    let before = Board.power()?;
    let desk = &load.desk;
    let mut stream = Stream::new();
    for burst in 0..BURSTS {
        let word = desk.word_addr(first + 2 * burst);
        stream = stream.wait_for(7_000_000).timestamp(word);
        stream = load.burst(2, 27, stream).timestamp(word + 8);
    }
    let job = desk.start(&load.queues[2], stream)?;
    drop(gate);
    job.ends_well()?;
    let after = Board.power()?;
    let total: u64 = (first..last)
        .step_by(2)
        .map(|word| desk.word(word + 1) - desk.word(word))
        .sum();
    Ok(Duty {
        energy_uj: after.energy_uj - before.energy_uj,
        busy_ns: total / BURSTS as u64,
    })
}
