// SPDX-License-Identifier: GPL-2.0

//! `DRM_IOCTL_OCHRE_QUERY`: what the board is and how it is doing.

use kernel::{
    bindings,
    prelude::*,
    sync::Arc,
    time::{
        BootTime,
        ClockSource,
        Monotonic,
        RealTime, //
    },
    transmute::AsBytes, //
};

use super::{
    device::Gpu,
    driver::{
        DrmFile,
        IoctlDevice, //
    },
    elements::{
        BINDS_MAX,
        JOBS_MAX,
        SYNCS_MAX, //
    },
    queue_ioctl::TIMEOUT_MAX_MS, //
};
use crate::{
    algo::{
        buddy::PAGE,
        va::LeafSize, //
    },
    ext::{
        ioctl::user_slice,
        mm,
        timekeeping::MonotonicRaw,
        uapi, //
    }, //
};

/// Instance of the region of system memory, its bit in a mask of regions.
pub(crate) const SYSTEM_REGION: u32 = 0;
/// Instance of the region of VRAM.
pub(crate) const VRAM_REGION: u32 = 1;

/// `DRM_IOCTL_OCHRE_QUERY`.
pub(crate) fn ioctl(
    dev: &IoctlDevice,
    _file: &DrmFile,
    args: &mut uapi::drm_ochre_query,
) -> Result<u32> {
    let gpu: &Arc<Gpu> = dev;
    gpu.check()?;
    if args.extensions != 0 {
        return Err(EINVAL);
    }
    match args.kind {
        uapi::drm_ochre_query_kind_DRM_OCHRE_QUERY_HARDWARE => {
            answer(args, &[hardware(gpu)])?;
        }
        uapi::drm_ochre_query_kind_DRM_OCHRE_QUERY_REGIONS => {
            answer(args, &[system_region(), vram_region(gpu)])?;
        }
        uapi::drm_ochre_query_kind_DRM_OCHRE_QUERY_ENGINES => {
            answer(args, &engines(gpu)?)?;
        }
        uapi::drm_ochre_query_kind_DRM_OCHRE_QUERY_CLOCKS => {
            if args.size == 0 {
                return answer(args, &[uapi::drm_ochre_query_clocks::default()]);
            }
            answer(args, &[clocks(gpu)?])?;
        }
        uapi::drm_ochre_query_kind_DRM_OCHRE_QUERY_TIME => {
            if args.size == 0 {
                return answer(args, &[uapi::drm_ochre_query_time::default()]);
            }
            let question = time_question(args)?;
            answer(args, &[time(gpu, question)?])?;
        }
        _ => return Err(EINVAL),
    }
    Ok(0)
}

/// Stores `values` at the program's pointer, or only their size if it gave no room.
fn answer<T: AsBytes>(args: &mut uapi::drm_ochre_query, values: &[T]) -> Result<u32> {
    let bytes = core::mem::size_of_val(values);
    let size = u32::try_from(bytes)?;
    if args.size != 0 {
        if args.size < size {
            return Err(EINVAL);
        }
        let mut writer = user_slice(args.data, bytes)?.writer();
        for value in values {
            writer.write(value)?;
        }
    }
    args.size = size;
    Ok(0)
}

fn hardware(gpu: &Gpu) -> uapi::drm_ochre_query_hardware {
    let info = gpu.info();
    let sizes = [LeafSize::Size4K, LeafSize::Size64K, LeafSize::Size2M];
    uapi::drm_ochre_query_hardware {
        name: info.name,
        vendor: info.vendor,
        device: info.device,
        revision: info.revision,
        firmware: info.firmware,
        va_start: info.va.start,
        va_end: info.va.end,
        page_sizes: sizes.iter().fold(0, |mask, size| mask | size.bytes()),
        job_words_max: info.job_words_max,
        jobs_max: JOBS_MAX,
        binds_max: BINDS_MAX,
        syncs_max: SYNCS_MAX,
        timeout_ms: gpu.timeout_ms(),
        timeout_max_ms: TIMEOUT_MAX_MS,
        resets: gpu.resets(),
        ..Default::default()
    }
}

/// Whether the caller may know how much memory others use.
fn may_see_usage() -> bool {
    crate::ext::capability::perfmon()
}

fn system_region() -> uapi::drm_ochre_query_region {
    let size = mm::total_bytes();
    let free = if may_see_usage() {
        mm::available_bytes().min(size)
    } else {
        size
    };
    uapi::drm_ochre_query_region {
        klass: uapi::drm_ochre_region_class_DRM_OCHRE_REGION_SYSTEM,
        instance: SYSTEM_REGION,
        alignment: PAGE,
        size,
        free,
        cpu_visible_size: size,
        cpu_visible_free: free,
        page_size: LeafSize::Size4K.bytes(),
        ..Default::default()
    }
}

fn vram_region(gpu: &Gpu) -> uapi::drm_ochre_query_region {
    let stats = gpu.vram.stats();
    let (free, visible_free) = if may_see_usage() {
        (stats.free, stats.visible_free)
    } else {
        (stats.total, stats.visible)
    };
    uapi::drm_ochre_query_region {
        klass: uapi::drm_ochre_region_class_DRM_OCHRE_REGION_VRAM,
        instance: VRAM_REGION,
        alignment: PAGE,
        size: stats.total,
        free,
        cpu_visible_size: stats.visible,
        cpu_visible_free: visible_free,
        page_size: LeafSize::Size2M.bytes(),
        ..Default::default()
    }
}

fn engines(gpu: &Gpu) -> Result<KVec<uapi::drm_ochre_query_engine>> {
    let engines = &gpu.info().engines;
    let mut answers = KVec::with_capacity(engines.len(), GFP_KERNEL)?;
    for engine in engines {
        answers.push(
            uapi::drm_ochre_query_engine {
                // CAST: there are two classes.
                klass: engine.class.index() as u16,
                instance: engine.instance,
                slots: engine.slots.into(),
                lanes: engine.lanes,
                block_items_max: engine.block_items_max,
                local_bytes: engine.local_bytes,
                ..Default::default()
            },
            GFP_KERNEL,
        )?;
    }
    Ok(answers)
}

fn clocks(gpu: &Gpu) -> Result<uapi::drm_ochre_query_clocks> {
    let clocks = gpu.hal().clocks()?;
    Ok(uapi::drm_ochre_query_clocks {
        core_khz: clocks.core_khz,
        core_max_khz: clocks.core_max_khz,
        memory_khz: clocks.memory_khz,
        memory_max_khz: clocks.memory_max_khz,
        timestamp_hz: gpu.info().timestamp_hz,
        ..Default::default()
    })
}

/// Reads which clock the program wants; everything else in its structure has to be zero.
fn time_question(args: &uapi::drm_ochre_query) -> Result<uapi::drm_ochre_query_time> {
    let bytes = core::mem::size_of::<uapi::drm_ochre_query_time>();
    if usize::try_from(args.size)? < bytes {
        return Err(EINVAL);
    }
    let question: uapi::drm_ochre_query_time = user_slice(args.data, bytes)?.reader().read()?;
    if question.pad != 0 || question.reserved.iter().any(|&word| word != 0) {
        return Err(EINVAL);
    }
    Ok(question)
}

fn time(gpu: &Gpu, question: uapi::drm_ochre_query_time) -> Result<uapi::drm_ochre_query_time> {
    let mut cpu: fn() -> i64 = match question.clock {
        bindings::CLOCK_MONOTONIC => Monotonic::ktime_get,
        bindings::CLOCK_MONOTONIC_RAW => MonotonicRaw::ktime_get,
        bindings::CLOCK_BOOTTIME => BootTime::ktime_get,
        bindings::CLOCK_REALTIME => RealTime::ktime_get,
        _ => return Err(EINVAL),
    };
    let both = gpu.hal().correlate(&mut cpu)?;
    Ok(uapi::drm_ochre_query_time {
        clock: question.clock,
        // The clocks count up from 0 or from 1970, so they are not negative.
        cpu_ns: u64::try_from(both.cpu_before)?,
        cpu_delta_ns: u64::try_from(both.cpu_after.saturating_sub(both.cpu_before)).unwrap_or(0),
        gpu_ticks: both.board,
        ..Default::default()
    })
}
