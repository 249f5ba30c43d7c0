// SPDX-License-Identifier: GPL-2.0

//! What `/proc/PID/fdinfo` says of an open file: engine time and memory.
//!
//! The keys are those of `Documentation/gpu/drm-usage-stats.rst`. Engine time is board time, the
//! time for which the file's queues held an engine.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

use super::{
    bo::Region,
    device::Gpu,
    driver::DrmFile,
    engine_name::class_name, //
};
use crate::{
    ext::drm_print::{
        drm_print,
        Printer, //
    },
    hal::EngineClass, //
};

/// Memory of the BOs that a file has handles for, by region.
pub(crate) struct Memory {
    system: Atomic<u64>,
    vram: Atomic<u64>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            system: Atomic::new(0),
            vram: Atomic::new(0),
        }
    }
}

impl Memory {
    fn region(&self, region: Region) -> &Atomic<u64> {
        match region {
            Region::System => &self.system,
            Region::Vram => &self.vram,
        }
    }

    /// The file got a handle for a BO.
    pub(super) fn charge(&self, region: Region, bytes: u64) {
        self.region(region).add(bytes, Relaxed);
    }

    /// A handle of the file for a BO goes.
    pub(super) fn uncharge(&self, region: Region, bytes: u64) {
        self.region(region).add(bytes.wrapping_neg(), Relaxed);
    }
}

/// Prints what the file has used.
pub(crate) fn show(gpu: &Gpu, file: &DrmFile, printer: &mut Printer<'_>) {
    let inner = file.inner();
    let busy = inner.busy_ns();
    for class in EngineClass::ALL {
        let name = class_name(class);
        let engines = &gpu.info().engines;
        let count = engines.iter().filter(|e| e.class == class).count();
        let ns = busy.get(class.index()).copied().unwrap_or(0);
        drm_print!(printer, "drm-engine-{}:\t{} ns\n", name, ns);
        drm_print!(printer, "drm-engine-capacity-{}:\t{}\n", name, count);
    }

    for (region, name) in [(Region::System, c"system0"), (Region::Vram, c"vram0")] {
        let bytes = inner.memory.region(region).load(Relaxed);
        // Nothing is evicted, so all of it is resident.
        printer.size(c"drm", c"total", name, bytes);
        printer.size(c"drm", c"resident", name, bytes);
    }
}
