// SPDX-License-Identifier: GPL-2.0

//! What lets people look into a bound GPU from outside the ABI: perf counters and debugfs.
//!
//! It is there from the registration of the DRM device to the begin of [`Gpu::unplug`]. None of it is
//! needed for work, so what cannot be had is missing, with a message, and nothing else fails.

use kernel::{
    drm,
    prelude::*,
    sync::Arc, //
};

use super::{
    debugfs,
    driver::Driver,
    Gpu, //
};
use crate::ext::debugfs::Folder;

#[cfg(CONFIG_PERF_EVENTS)]
use super::pmu::{
    self,
    GpuPmu, //
};

/// What is there to look through. Dropping it takes it away from who has it open.
#[derive(Default)]
pub(super) struct Insight {
    #[cfg(CONFIG_PERF_EVENTS)]
    _pmu: Option<GpuPmu>,
    _debugfs: Option<Folder>,
}

impl Insight {
    /// Opens everything that can be had of a GPU that programs see as `drm`.
    pub(super) fn open(gpu: &Arc<Gpu>, drm: &drm::Device<Driver>) -> Self {
        let Some(dev) = gpu.dev() else {
            return Self::default();
        };
        Self {
            #[cfg(CONFIG_PERF_EVENTS)]
            _pmu: pmu::register(dev, gpu.hal_arc()).unwrap_or_else(|error| {
                dev_warn!(dev, "no perf counters: {:?}\n", error);
                None
            }),
            _debugfs: debugfs::open(gpu, drm)
                .inspect_err(|error| dev_warn!(dev, "no files in debugfs: {:?}\n", error))
                .ok(),
        }
    }
}
