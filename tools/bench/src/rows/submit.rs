// SPDX-License-Identifier: GPL-2.0
//! Submissions per second, and what one costs.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::anyhow;
use anyhow::Context;

use crate::cpu::Moment;
use crate::cpu::Spent;
use crate::row::Effort;
use crate::row::Figure;
use crate::row::Place;
use crate::row::Row;
use crate::row::SetUp;
use crate::stats::median;
use crate::virtgpu::Capset;
use crate::virtgpu::Gpu;
use crate::virtgpu::Submit;

/// Submissions between two looks at the clock.
const BATCH: u32 = 16;

/// What is submitted: nothing that the host has to work for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// No word at all.
    Empty,
    /// 4 KiB in one command of virgl's that does nothing.
    FourKib,
}

impl Stream {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Empty, Self::FourKib];

    /// Its words.
    pub fn words(self) -> Vec<u32> {
        const WORDS: u32 = 1024;
        match self {
            Self::Empty => Vec::new(),
            Self::FourKib => {
                // CAST: 1024 fits everywhere.
                let mut words = vec![0; WORDS as usize];
                // VIRGL_CCMD_NOP is 0; the upper half counts the words behind that belong to it.
                words[0] = (WORDS - 1) << 16;
                words
            }
        }
    }

    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty stream",
            Self::FourKib => "4 KiB stream",
        }
    }
}

/// Threads that submit as fast as they can, each in a context of its own. The time counts until
/// the host has done all of it, so a driver does not gain by queueing.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// What is submitted.
    pub stream: Stream,
    /// How many submit.
    pub threads: usize,
}

impl Row for Rate {
    fn figures(&self) -> Vec<Figure> {
        let name = self.stream.name();
        let threads = match self.threads {
            1 => "1 thread".to_string(),
            n => format!("{n} threads"),
        };
        let mut figures = vec![Figure::rate(
            format!("EXECBUFFER, {name}, {threads}"),
            "1/s",
        )];
        if self.threads == 1 {
            let what = format!("per EXECBUFFER, {name}");
            figures.push(Figure::cost(
                format!("CPU time of the process {what}"),
                "µs",
            ));
            figures.push(Figure::cost(format!("CPU time of the guest {what}"), "µs"));
        }
        figures
    }

    fn group(&self) -> &'static str {
        "submit"
    }

    fn set_up<'a>(&'a self, place: Place<'a>) -> anyhow::Result<SetUp<'a>> {
        if !Gpu::open(place.node)?.features()?.has(Capset::Virgl) {
            return Ok(SetUp::Missing("contexts of virgl"));
        }
        let contexts = (0..self.threads)
            .map(|_| Gpu::with_context(place.node, Capset::Virgl))
            .collect::<Result<Vec<_>, _>>()
            .context("a context")?;
        let words = self.stream.words();
        Ok(SetUp::Ready(Box::new(move |effort: &Effort| {
            let trials = effort.each(|time| trial(&contexts, &words, time))?;
            let each = |of: fn(&Trial) -> f64| {
                let values: Vec<_> = trials.iter().map(of).collect();
                median(&values).context("no trial")
            };
            let mut values = vec![each(|trial| trial.rate)?];
            if self.threads == 1 {
                values.push(each(|trial| trial.cost(trial.spent.process))?);
                values.push(each(|trial| trial.cost(trial.spent.guest))?);
            }
            Ok(values)
        })))
    }
}

/// What came out of a trial.
struct Trial {
    submissions: f64,
    rate: f64,
    spent: Spent,
}

impl Trial {
    /// µs for each submission.
    fn cost(&self, spent: Duration) -> f64 {
        spent.as_secs_f64() * 1e6 / self.submissions
    }
}

fn trial(contexts: &[Gpu], words: &[u32], time: Duration) -> anyhow::Result<Trial> {
    let start = Barrier::new(contexts.len() + 1);
    let mut spent = Spent::default();
    let counted = thread::scope(|scope| {
        let workers: Vec<_> = contexts
            .iter()
            .map(|gpu| {
                scope.spawn(|| {
                    start.wait();
                    submit_for(gpu, words, time)
                })
            })
            .collect();
        start.wait();
        let begin = Moment::now()?;
        let joined = workers.into_iter().map(|worker| {
            let done = worker.join();
            done.map_err(|_| anyhow!("a thread panicked"))?
        });
        let joined = joined.collect::<anyhow::Result<Vec<_>>>();
        spent = begin.spent()?;
        joined
    })?;
    Ok(Trial {
        submissions: counted.iter().map(|(count, _)| f64::from(*count)).sum(),
        rate: counted
            .iter()
            .map(|(count, took)| f64::from(*count) / took.as_secs_f64())
            .sum(),
        spent,
    })
}

/// Submits for a time, then waits until the host has done it all. Returns how many, and how long
/// both took.
fn submit_for(gpu: &Gpu, words: &[u32], time: Duration) -> anyhow::Result<(u32, Duration)> {
    let submit = Submit {
        stream: words,
        handles: &[],
    };
    let start = Instant::now();
    let mut count = 1;
    while start.elapsed() < time {
        for _ in 0..BATCH {
            gpu.submit(submit).context("EXECBUFFER")?;
        }
        count += BATCH;
    }
    gpu.submit_fenced(submit).context("EXECBUFFER")?.wait()?;
    Ok((count, start.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_of_4_kib_is_one_command_that_fills_it() {
        let words = Stream::FourKib.words();
        assert_eq!(size_of_val(words.as_slice()), 4096);
        // The length in the header does not count the header.
        assert_eq!(words[0] >> 16, 1023);
        assert_eq!(words[0] & 0xffff, 0);
    }
}
