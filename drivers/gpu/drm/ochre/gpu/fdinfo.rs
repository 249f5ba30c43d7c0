// SPDX-License-Identifier: GPL-2.0

//! What `/proc/PID/fdinfo` says of an open file: engine time and memory.
//!
//! The keys are those of `Documentation/gpu/drm-usage-stats.rst`. Engine time is board time, the
//! time for which the file's queues held an engine: in ns, and in ticks of the board's clock beside that
//! clock itself, so that a reader needs no other clock than the board's.
//!
//! Memory is summed over the handles of the file when somebody asks. A BO is active while jobs are in
//! an address space that it is mapped in: a job may use all of it. Those BOs are marked with the number
//! of this look first, one look at a time, since the handles are walked under a spinlock.

use kernel::{
    prelude::*,
    sync::atomic::Relaxed, //
};

use super::{
    bo::{
        Bo,
        BoObject,
        Region, //
    },
    device::Gpu,
    driver::DrmFile,
    engine_name::class_name, //
};
use crate::{
    ext::{
        drm_file::for_each_object,
        drm_print::{
            drm_print,
            Printer, //
        }, //
    },
    hal::EngineClass, //
};

/// The sums for one region, in bytes.
#[derive(Clone, Copy, Default)]
struct Memory {
    total: u64,
    shared: u64,
    active: u64,
}

impl Memory {
    fn add(&mut self, bo: &Bo, shared: bool, active: bool) {
        let of = |condition: bool| if condition { bo.size() } else { 0 };
        self.total = self.total.saturating_add(bo.size());
        self.shared = self.shared.saturating_add(of(shared));
        self.active = self.active.saturating_add(of(active));
    }

    fn print(&self, region: &CStr, printer: &mut Printer<'_>) {
        printer.size(c"drm", c"total", region, self.total);
        printer.size(c"drm", c"shared", region, self.shared);
        printer.size(c"drm", c"active", region, self.active);
        // Nothing is evicted, so all of it is resident; nor can a program give any of it up.
        printer.size(c"drm", c"resident", region, self.total);
        printer.size(c"drm", c"purgeable", region, 0);
    }
}

/// Marks what jobs of the file may use with `look`.
fn mark_active(file: &DrmFile, look: u64) -> Result {
    for vm in file.inner().vms().all()? {
        if vm.is_active() {
            vm.for_each_mapped(|bo| bo.seen_active.store(look, Relaxed))?;
        }
    }
    Ok(())
}

fn show_memory(gpu: &Gpu, file: &DrmFile, printer: &mut Printer<'_>) -> Result {
    let (mut system, mut vram) = (Memory::default(), Memory::default());
    let mut look = gpu.accounting.lock();
    *look = look.wrapping_add(1);
    let number = *look;
    mark_active(file, number)?;
    for_each_object(file, |obj: &BoObject, shared| {
        let bo: &Bo = obj;
        let sums = match bo.region() {
            Region::System => &mut system,
            Region::Vram => &mut vram,
        };
        sums.add(bo, shared, bo.seen_active.load(Relaxed) == number);
    });
    drop(look);
    system.print(c"system0", printer);
    vram.print(c"vram0", printer);
    Ok(())
}

const NS_PER_S: u64 = 1_000_000_000;

/// `ns` in ticks of a clock that has `hz` in a second.
fn ticks(ns: u64, hz: u64) -> u64 {
    let (seconds, rest) = (ns / NS_PER_S, ns % NS_PER_S);
    // The rate is one that the board has in 32 bits.
    seconds.saturating_mul(hz) + rest.saturating_mul(hz) / NS_PER_S
}

/// Prints what the file has used.
pub(crate) fn show(gpu: &Gpu, file: &DrmFile, printer: &mut Printer<'_>) {
    let info = gpu.info();
    let busy = file.inner().busy_ns();
    // Read after what it is set against, so that a file is never busier than time has passed.
    let time = gpu.hal().time();
    for class in EngineClass::ALL {
        let name = class_name(class);
        let count = info.engines.iter().filter(|e| e.class == class).count();
        if count == 0 {
            continue;
        }
        let ns = busy.get(class.index()).copied().unwrap_or(0);
        drm_print!(printer, "drm-engine-{}:\t{} ns\n", name, ns);
        drm_print!(printer, "drm-engine-capacity-{}:\t{}\n", name, count);
        if let Ok(time) = time {
            let cycles = ticks(ns, info.timestamp_hz);
            drm_print!(printer, "drm-cycles-{}:\t{}\n", name, cycles);
            drm_print!(printer, "drm-total-cycles-{}:\t{}\n", name, time);
        }
    }
    // Without memory to find it out there is nothing to say.
    let _ = show_memory(gpu, file, printer);
}
