// SPDX-License-Identifier: GPL-2.0
//! How much processor time something takes: that of this process, and that of the whole guest,
//! which counts the kernel's interrupts and workers as well.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;
use std::time::Instant;

/// A moment, with all the processor time until then.
#[derive(Debug)]
pub struct Moment {
    at: Instant,
    process: Duration,
    idle: Duration,
    processors: u32,
}

/// Processor time between two moments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// By this process.
    pub process: Duration,
    /// By all, in user space, the kernel and its interrupts.
    pub guest: Duration,
}

impl Moment {
    /// Now.
    ///
    /// # Errors
    ///
    /// /proc/stat cannot be read.
    pub fn now() -> io::Result<Self> {
        let (idle, processors) = idle(&fs::read_to_string("/proc/stat")?, ticks_per_second());
        Ok(Self {
            at: Instant::now(),
            process: process()?,
            idle,
            processors,
        })
    }

    /// What was spent since then.
    ///
    /// # Errors
    ///
    /// As for [`Moment::now`].
    pub fn spent(&self) -> io::Result<Spent> {
        let now = Self::now()?;
        let all = (now.at - self.at) * self.processors;
        Ok(Spent {
            process: now.process - self.process,
            guest: all.saturating_sub(now.idle.saturating_sub(self.idle)),
        })
    }
}

/// Time that the processors were idle, and their number, from /proc/stat.
fn idle(stat: &str, ticks_per_second: u64) -> (Duration, u32) {
    const IDLE: usize = 4;
    const IO_WAIT: usize = 5;
    let mut ticks = 0;
    let mut processors = 0;
    for line in stat.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let number = words.first().and_then(|name| name.strip_prefix("cpu"));
        if number.is_some_and(|number| !number.is_empty()) {
            processors += 1;
            for field in [IDLE, IO_WAIT] {
                ticks += words
                    .get(field)
                    .and_then(|word| word.parse().ok())
                    .unwrap_or(0);
            }
        }
    }
    let millis = ticks * 1000 / ticks_per_second.max(1);
    (Duration::from_millis(millis), processors)
}

fn ticks_per_second() -> u64 {
    // SAFETY: Asks for a number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).unwrap_or(100)
}

fn process() -> io::Result<Duration> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: Stores a whole structure there, if it succeeds.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: It has succeeded.
    let usage = unsafe { usage.assume_init() };
    let sum = |time: libc::timeval| {
        // CAST: neither is negative.
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    Ok(sum(usage.ru_utime) + sum(usage.ru_stime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_summed_over_processors() {
        let stat = "cpu  52 0 431 445 104 0 32 0 0 0\n\
                    cpu0 24 0 270 210 37 0 16 0 0 0\n\
                    cpu1 27 0 162 234 66 0 16 0 0 0\n\
                    intr 1 2 3\n";
        let (idle, processors) = idle(stat, 100);
        assert_eq!(processors, 2);
        assert_eq!(idle, Duration::from_millis(5470));
    }

    #[test]
    fn work_of_this_process_is_counted() {
        let start = Moment::now().unwrap();
        while process().unwrap() - start.process < Duration::from_millis(20) {}
        let spent = start.spent().unwrap();
        assert!(spent.process >= Duration::from_millis(20));
    }
}
