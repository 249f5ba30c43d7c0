// SPDX-License-Identifier: GPL-2.0
//! Bytes per second between a buffer's memory in the guest and the host.

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
use crate::virtgpu::Capset;
use crate::virtgpu::Gpu;
use crate::virtgpu::Resource;

/// Transfers, and bytes, that may be on their way at once.
const IN_FLIGHT: u32 = 64;
const BYTES_IN_FLIGHT: u32 = 16 << 20;

/// Way of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// As a program uploads: not each is waited for.
    ToHost,
    /// As a program reads back: each is waited for.
    FromHost,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::ToHost, Self::FromHost];
}

/// Transfers of the whole of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Way.
    pub direction: Direction,
    /// Of the buffer, in bytes.
    pub size: u32,
}

impl Row for Transfer {
    fn figures(&self) -> Vec<Figure> {
        let direction = match self.direction {
            Direction::ToHost => "TO_HOST",
            Direction::FromHost => "FROM_HOST",
        };
        let name = format!("TRANSFER_{direction} of {}", bytes(self.size));
        vec![Figure::rate(name, "MiB/s")]
    }

    fn group(&self) -> &'static str {
        "transfer"
    }

    fn set_up<'a>(&'a self, place: Place<'a>) -> anyhow::Result<SetUp<'a>> {
        if !Gpu::open(place.node)?.features()?.has(Capset::Virgl) {
            return Ok(SetUp::Missing("contexts of virgl"));
        }
        let gpu = Gpu::with_context(place.node, Capset::Virgl).context("a context")?;
        Ok(SetUp::Ready(Box::new(move |effort: &Effort| {
            let buffer = gpu.buffer(self.size).context("RESOURCE_CREATE")?;
            let trials = effort.each(|time| self.trial(&buffer, time))?;
            Ok(vec![median(&trials).context("no trial")?])
        })))
    }
}

impl Transfer {
    /// MiB per second, until the last has arrived.
    fn trial(&self, buffer: &Resource<'_>, time: Duration) -> anyhow::Result<f64> {
        let at_once = IN_FLIGHT.min(BYTES_IN_FLIGHT / self.size);
        let start = Instant::now();
        let mut count = 0u32;
        loop {
            match self.direction {
                Direction::ToHost => {
                    buffer.upload(self.size).context("TRANSFER_TO_HOST")?;
                    if count % at_once == at_once - 1 {
                        buffer.wait().context("WAIT")?;
                    }
                }
                Direction::FromHost => {
                    buffer.download(self.size).context("TRANSFER_FROM_HOST")?;
                    buffer.wait().context("WAIT")?;
                }
            }
            count += 1;
            if start.elapsed() >= time {
                break;
            }
        }
        buffer.wait().context("WAIT")?;
        let mib = f64::from(count) * f64::from(self.size) / f64::from(1 << 20);
        Ok(mib / start.elapsed().as_secs_f64())
    }
}
