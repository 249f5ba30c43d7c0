// SPDX-License-Identifier: GPL-2.0
//! How often guest and host have to call each other: notifications are exits of the virtual
//! machine, interrupts the way back.

use anyhow::Context;

use crate::row::Effort;
use crate::row::Figure;
use crate::row::Place;
use crate::row::Row;
use crate::row::SetUp;
use crate::rows::latency::Latency;
use crate::rows::submit::Stream;
use crate::trace::Trace;
use crate::virtgpu::Capset;
use crate::virtgpu::Gpu;
use crate::virtgpu::Submit;

/// Submissions in a row, of which only the last is waited for.
const BURST: u32 = 2000;
/// Submissions each of which is waited for.
const SINGLE: u32 = 300;

/// Calls per submission, without and with a wait for each.
#[derive(Clone, Copy, Debug)]
pub struct Exits;

impl Row for Exits {
    fn figures(&self) -> Vec<Figure> {
        vec![
            Figure::cost("notifications per EXECBUFFER, not waited for", "count"),
            Figure::cost("interrupts per EXECBUFFER, not waited for", "count"),
            Figure::cost(
                "notifications per EXECBUFFER, out fence and poll()",
                "count",
            ),
            Figure::cost("interrupts per EXECBUFFER, out fence and poll()", "count"),
        ]
    }

    fn group(&self) -> &'static str {
        "latency"
    }

    fn set_up<'a>(&'a self, place: Place<'a>) -> anyhow::Result<SetUp<'a>> {
        let Some(trace) = place.trace.filter(|trace| trace.shows_device()) else {
            return Ok(SetUp::Missing("trace of its notifications in QEMU"));
        };
        if !Gpu::open(place.node)?.features()?.has(Capset::Virgl) {
            return Ok(SetUp::Missing("contexts of virgl"));
        }
        let gpu = Gpu::with_context(place.node, Capset::Virgl).context("a context")?;
        let words = Stream::FourKib.words();
        Ok(SetUp::Ready(Box::new(move |_: &Effort| {
            let buffer = gpu.buffer(4096).context("RESOURCE_CREATE")?;
            let submit = Submit {
                stream: &words,
                handles: &[],
            };
            let mut values = counted(place, trace, BURST, || {
                for _ in 1..BURST {
                    gpu.submit(submit).context("EXECBUFFER")?;
                }
                Ok(gpu.submit_fenced(submit).context("EXECBUFFER")?.wait()?)
            })?;
            values.extend(counted(place, trace, SINGLE, || {
                (0..SINGLE)
                    .try_for_each(|_| Latency::OfAFence.submit_and_wait(&gpu, &buffer, &words))
            })?);
            Ok(values)
        })))
    }
}

/// Notifications and interrupts of `work`, for each of its `submissions`. No call at all counts as
/// one, so that ratios exist.
fn counted(
    place: Place<'_>,
    trace: &Trace,
    submissions: u32,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<f64>> {
    let before = place.card.interrupts()?;
    let ((), notifications) = trace.notifications(work)?;
    let interrupts = place.card.interrupts()? - before;
    let each = |count: u64| count.max(1) as f64 / f64::from(submissions);
    Ok(vec![each(notifications as u64), each(interrupts)])
}
