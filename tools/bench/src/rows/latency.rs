// SPDX-License-Identifier: GPL-2.0
//! From a submission to the moment at which the program knows that it is done.

use std::time::Duration;
use std::time::Instant;

use anyhow::Context;

use crate::cpu::Moment;
use crate::cpu::Spent;
use crate::row::Effort;
use crate::row::Figure;
use crate::row::Place;
use crate::row::Row;
use crate::row::SetUp;
use crate::rows::submit::Stream;
use crate::stats::median;
use crate::stats::quantile;
use crate::virtgpu::Capset;
use crate::virtgpu::Gpu;
use crate::virtgpu::Resource;
use crate::virtgpu::Submit;

/// Size of the buffer that is waited for.
const SIZE: u32 = 4096;

/// How a program waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Latency {
    /// For the fence that EXECBUFFER gives, with `poll()`.
    OfAFence,
    /// For a buffer that the submission uses, with WAIT.
    OfABuffer,
}

impl Row for Latency {
    fn figures(&self) -> Vec<Figure> {
        let how = self.name();
        vec![
            Figure::cost(format!("latency, {how}, p50"), "µs"),
            Figure::cost(format!("latency, {how}, p99"), "µs"),
            Figure::cost(format!("CPU time of the process, {how}"), "µs"),
            Figure::cost(format!("CPU time of the guest, {how}"), "µs"),
        ]
    }

    fn group(&self) -> &'static str {
        "latency"
    }

    fn set_up<'a>(&'a self, place: Place<'a>) -> anyhow::Result<SetUp<'a>> {
        if !Gpu::open(place.node)?.features()?.has(Capset::Virgl) {
            return Ok(SetUp::Missing("contexts of virgl"));
        }
        let gpu = Gpu::with_context(place.node, Capset::Virgl).context("a context")?;
        let words = Stream::FourKib.words();
        Ok(SetUp::Ready(Box::new(move |effort: &Effort| {
            let buffer = gpu.buffer(SIZE).context("RESOURCE_CREATE")?;
            let trials = effort.each(|time| self.trial(&gpu, &buffer, &words, time))?;
            let times: Vec<f64> = trials
                .iter()
                .flat_map(|trial| trial.times.clone())
                .collect();
            let costs = |of: fn(&Spent) -> Duration| {
                let each = trials
                    .iter()
                    .map(|trial| of(&trial.spent).as_secs_f64() * 1e6 / trial.times.len() as f64);
                median(&each.collect::<Vec<_>>()).context("no trial")
            };
            Ok(vec![
                quantile(&times, 0.5).context("no trial")?,
                quantile(&times, 0.99).context("no trial")?,
                costs(|spent| spent.process)?,
                costs(|spent| spent.guest)?,
            ])
        })))
    }
}

struct Trial {
    /// Each in µs.
    times: Vec<f64>,
    spent: Spent,
}

impl Latency {
    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::OfAFence => "out fence and poll()",
            Self::OfABuffer => "buffer and WAIT",
        }
    }

    fn trial(
        self,
        gpu: &Gpu,
        buffer: &Resource<'_>,
        words: &[u32],
        time: Duration,
    ) -> anyhow::Result<Trial> {
        let begin = Moment::now()?;
        let end = Instant::now() + time;
        let mut times = Vec::new();
        loop {
            let start = Instant::now();
            self.submit_and_wait(gpu, buffer, words)?;
            let done = Instant::now();
            times.push((done - start).as_secs_f64() * 1e6);
            if done >= end {
                break;
            }
        }
        Ok(Trial {
            times,
            spent: begin.spent()?,
        })
    }

    /// One submission, until it is known to be done.
    ///
    /// # Errors
    ///
    /// The ioctls'.
    pub fn submit_and_wait(
        self,
        gpu: &Gpu,
        buffer: &Resource<'_>,
        words: &[u32],
    ) -> anyhow::Result<()> {
        match self {
            Self::OfAFence => {
                let submit = Submit {
                    stream: words,
                    handles: &[],
                };
                gpu.submit_fenced(submit).context("EXECBUFFER")?.wait()?;
            }
            Self::OfABuffer => {
                gpu.submit(Submit {
                    stream: words,
                    handles: &[buffer.handle()],
                })
                .context("EXECBUFFER")?;
                buffer.wait().context("WAIT")?;
            }
        }
        Ok(())
    }
}
