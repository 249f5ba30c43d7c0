// SPDX-License-Identifier: GPL-2.0
//! Objects made and destroyed per second.

use std::time::Duration;
use std::time::Instant;

use anyhow::Context;

use crate::row::Effort;
use crate::row::Figure;
use crate::row::Place;
use crate::row::Row;
use crate::row::SetUp;
use crate::rows::bytes;
use crate::stats::median;
use crate::virtgpu::BlobMemory;
use crate::virtgpu::Capset;
use crate::virtgpu::Features;
use crate::virtgpu::Gpu;

/// An object that is made and destroyed; blobs are mapped, written to and unmapped between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objects {
    /// A buffer of virgl.
    Resource {
        /// In bytes.
        size: u32,
    },
    /// A blob in the guest's memory.
    GuestBlob {
        /// In bytes.
        size: u32,
    },
    /// A blob in the host's memory: of Venus, which makes one of no Vulkan object for its own use.
    HostBlob {
        /// In bytes.
        size: u32,
    },
}

impl Objects {
    /// Its name in a table.
    pub fn name(self) -> String {
        match self {
            Self::Resource { size } => format!("resource of {}: create, destroy", bytes(size)),
            Self::GuestBlob { size } => {
                format!("guest blob of {}: create, map, unmap, destroy", bytes(size))
            }
            Self::HostBlob { size } => {
                format!("host blob of {}: create, map, unmap, destroy", bytes(size))
            }
        }
    }

    /// What the device lacks for it.
    pub fn lacks(self, features: &Features) -> Option<&'static str> {
        let blob = !matches!(self, Self::Resource { .. });
        let venus = self.capset() == Capset::Venus;
        match () {
            () if !features.has(Capset::Virgl) => Some("contexts of virgl"),
            () if blob && !features.blobs => Some("blobs"),
            () if venus && !features.has(Capset::Venus) => Some("contexts of Venus"),
            () if venus && !features.host_visible => Some("a window for blobs of the host"),
            () => None,
        }
    }

    /// The context that it needs.
    pub fn capset(self) -> Capset {
        match self {
            Self::Resource { .. } | Self::GuestBlob { .. } => Capset::Virgl,
            Self::HostBlob { .. } => Capset::Venus,
        }
    }

    /// Makes and destroys one.
    ///
    /// # Errors
    ///
    /// The ioctls'.
    pub fn once(self, gpu: &Gpu) -> anyhow::Result<()> {
        let blob = |memory, size| -> anyhow::Result<()> {
            let blob = gpu.blob(memory, size).context("RESOURCE_CREATE_BLOB")?;
            blob.touch().context("mapping of a blob")
        };
        // CAST: sizes of some KiB or MiB.
        match self {
            Self::Resource { size } => gpu.buffer(size).map(drop).context("RESOURCE_CREATE"),
            Self::GuestBlob { size } => blob(BlobMemory::Guest, size as usize),
            Self::HostBlob { size } => blob(BlobMemory::Host3d, size as usize),
        }
    }

    /// Objects per second. The time counts until the host has answered the last command.
    fn trial(self, gpu: &Gpu, virgl: &Gpu, time: Duration) -> anyhow::Result<f64> {
        let drain = virgl.buffer(4096).context("RESOURCE_CREATE")?;
        drain.wait().context("WAIT")?;
        let start = Instant::now();
        let mut count = 0u32;
        while start.elapsed() < time {
            self.once(gpu)?;
            count += 1;
        }
        // The device takes commands in their order.
        drain.upload(4).context("TRANSFER_TO_HOST")?;
        drain.wait().context("WAIT")?;
        Ok(f64::from(count) / start.elapsed().as_secs_f64())
    }
}

impl Row for Objects {
    fn figures(&self) -> Vec<Figure> {
        vec![Figure::rate(self.name(), "1/s")]
    }

    fn group(&self) -> &'static str {
        "objects"
    }

    fn set_up<'a>(&'a self, place: Place<'a>) -> anyhow::Result<SetUp<'a>> {
        let features = Gpu::open(place.node)?.features()?;
        if let Some(what) = self.lacks(&features) {
            return Ok(SetUp::Missing(what));
        }
        let gpu = Gpu::with_context(place.node, self.capset()).context("a context")?;
        let virgl = Gpu::with_context(place.node, Capset::Virgl).context("a context")?;
        Ok(SetUp::Ready(Box::new(move |effort: &Effort| {
            let trials = effort.each(|time| self.trial(&gpu, &virgl, time))?;
            Ok(vec![median(&trials).context("no trial")?])
        })))
    }
}
