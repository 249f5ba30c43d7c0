// SPDX-License-Identifier: GPL-2.0
//! Counts the instructions of what is done, in a guest with one processor whose clocks count
//! instructions (tools/vm/run, ICOUNT=1).
//!
//! There the time between two moments is the number of instructions between them, those of the
//! kernel's interrupts and workers too, as long as the processor is never idle: then its clock
//! would follow the wall's. So a thread that runs only when nothing else wants to counts rounds of a
//! loop. What is left without its rounds is what was done.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::anyhow;
use anyhow::ensure;

/// How long nothing is done, to learn what a round takes.
const REST: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct Rounds {
    count: AtomicU64,
    stop: AtomicBool,
}

/// How many instructions `work` takes.
///
/// # Errors
///
/// Those of `work`; there is more than one processor.
pub fn instructions(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let processors = thread::available_parallelism()?.get();
    ensure!(
        processors == 1,
        "instructions are counted on one processor, there are {processors}"
    );
    let rounds = Rounds::default();
    thread::scope(|scope| {
        let idler = scope.spawn(|| rounds.turn());
        let done = rounds.measure(work);
        rounds.stop.store(true, Relaxed);
        idler.join().map_err(|_| anyhow!("a thread panicked"))??;
        done
    })
}

impl Rounds {
    /// Turns until it is stopped, when nothing else wants to run.
    fn turn(&self) -> io::Result<()> {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: Changes this thread only.
        if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) } != 0 {
            return Err(io::Error::last_os_error());
        }
        while !self.stop.load(Relaxed) {
            self.count.store(self.count.load(Relaxed) + 1, Relaxed);
        }
        Ok(())
    }

    fn measure(&self, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
        let (time, rounds) = self.during(|| {
            thread::sleep(REST);
            Ok(())
        })?;
        ensure!(
            rounds > 0.0,
            "the thread that counts idle time does not run"
        );
        let round = time / rounds;
        let (time, rounds) = self.during(work)?;
        Ok(time - round * rounds)
    }

    /// Instructions, and rounds of the loop, while `work` runs.
    fn during(&self, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<(f64, f64)> {
        let before = self.count.load(Relaxed);
        let start = Instant::now();
        work()?;
        let time = start.elapsed();
        let rounds = self.count.load(Relaxed) - before;
        // CAST: far below 2^53.
        Ok((time.as_secs_f64() * 1e9, rounds as f64))
    }
}
