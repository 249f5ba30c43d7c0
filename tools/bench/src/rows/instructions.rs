// SPDX-License-Identifier: GPL-2.0
//! Instructions of the guest for what programs do most. They hardly depend on the machine and not
//! at all on how busy it is.

use anyhow::Context;

use crate::idle::instructions;
use crate::row::Effort;
use crate::row::Figure;
use crate::row::Place;
use crate::row::Row;
use crate::row::SetUp;
use crate::rows::latency::Latency;
use crate::rows::objects::Objects;
use crate::rows::submit::Stream;
use crate::stats::median;
use crate::virtgpu::Capset;
use crate::virtgpu::Gpu;
use crate::virtgpu::Submit;

/// How often it is done before anything is counted.
const WARM_UP: u32 = 50;
/// Size of a transfer.
const SIZE: u32 = 4096;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instructions {
    /// Submissions, of which only the last is waited for.
    Submit(Stream),
    /// Submissions each of which is waited for.
    SubmitAndWait(Latency),
    /// Objects made and destroyed.
    Object(Objects),
    /// Transfers to the host, each waited for.
    Upload,
    /// And from it.
    Download,
}

impl Instructions {
    /// All of them.
    pub fn all() -> Vec<Self> {
        const KIB: u32 = 1 << 10;
        vec![
            Self::Submit(Stream::Empty),
            Self::Submit(Stream::FourKib),
            Self::SubmitAndWait(Latency::OfAFence),
            Self::SubmitAndWait(Latency::OfABuffer),
            Self::Object(Objects::Resource { size: 4 * KIB }),
            Self::Object(Objects::Resource { size: 1024 * KIB }),
            Self::Object(Objects::GuestBlob { size: 64 * KIB }),
            Self::Object(Objects::HostBlob { size: 64 * KIB }),
            Self::Upload,
            Self::Download,
        ]
    }

    fn name(self) -> String {
        match self {
            Self::Submit(stream) => format!("EXECBUFFER, {}", stream.name()),
            Self::SubmitAndWait(latency) => format!("EXECBUFFER, {}", latency.name()),
            Self::Object(object) => object.name(),
            Self::Upload => "TRANSFER_TO_HOST of 4 KiB and WAIT".to_string(),
            Self::Download => "TRANSFER_FROM_HOST of 4 KiB and WAIT".to_string(),
        }
    }

    /// How often in a trial: what takes long less often.
    fn count(self) -> u32 {
        match self {
            Self::Submit(_) => 1000,
            Self::SubmitAndWait(_) | Self::Upload | Self::Download => 100,
            Self::Object(Objects::Resource { .. }) => 60,
            Self::Object(Objects::GuestBlob { .. } | Objects::HostBlob { .. }) => 30,
        }
    }
}

impl Row for Instructions {
    fn figures(&self) -> Vec<Figure> {
        vec![Figure::cost(
            format!("instructions, {}", self.name()),
            "count",
        )]
    }

    fn group(&self) -> &'static str {
        "instructions"
    }

    fn set_up<'a>(&'a self, place: Place<'a>) -> anyhow::Result<SetUp<'a>> {
        let features = Gpu::open(place.node)?.features()?;
        if !features.has(Capset::Virgl) {
            return Ok(SetUp::Missing("contexts of virgl"));
        }
        let mut capset = Capset::Virgl;
        if let Self::Object(object) = self {
            if let Some(what) = object.lacks(&features) {
                return Ok(SetUp::Missing(what));
            }
            capset = object.capset();
        }
        let gpu = Gpu::with_context(place.node, capset).context("a context")?;
        let virgl = Gpu::with_context(place.node, Capset::Virgl).context("a context")?;
        Ok(SetUp::Ready(Box::new(move |effort: &Effort| {
            self.work(&gpu, &virgl, WARM_UP)?;
            let each = (0..effort.trials).map(|_| {
                let all = instructions(|| self.work(&gpu, &virgl, self.count()))?;
                Ok(all / f64::from(self.count()))
            });
            let each = each.collect::<anyhow::Result<Vec<_>>>()?;
            Ok(vec![median(&each).context("no trial")?])
        })))
    }
}

impl Instructions {
    /// Does it so often, and waits until the host has done it all.
    fn work(self, gpu: &Gpu, virgl: &Gpu, count: u32) -> anyhow::Result<()> {
        let buffer = virgl.buffer(SIZE).context("RESOURCE_CREATE")?;
        match self {
            Self::Submit(stream) => {
                let words = stream.words();
                let submit = Submit {
                    stream: &words,
                    handles: &[],
                };
                for _ in 1..count {
                    gpu.submit(submit).context("EXECBUFFER")?;
                }
                gpu.submit_fenced(submit).context("EXECBUFFER")?.wait()?;
            }
            Self::SubmitAndWait(latency) => {
                let words = Stream::FourKib.words();
                for _ in 0..count {
                    latency.submit_and_wait(virgl, &buffer, &words)?;
                }
            }
            Self::Object(object) => {
                for _ in 0..count {
                    object.once(gpu)?;
                }
                // The device takes commands in their order.
                buffer.upload(4).context("TRANSFER_TO_HOST")?;
                buffer.wait().context("WAIT")?;
            }
            Self::Upload => {
                for _ in 0..count {
                    buffer.upload(SIZE).context("TRANSFER_TO_HOST")?;
                    buffer.wait().context("WAIT")?;
                }
            }
            Self::Download => {
                for _ in 0..count {
                    buffer.download(SIZE).context("TRANSFER_FROM_HOST")?;
                    buffer.wait().context("WAIT")?;
                }
            }
        }
        Ok(())
    }
}
