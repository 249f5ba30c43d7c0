// SPDX-License-Identifier: GPL-2.0

//! The ioctls QUEUE_CREATE, QUEUE_DESTROY and RESET_QUERY.

use kernel::prelude::*;

use crate::{
    algo::sched::Priority,
    ext::{
        capability,
        drm_auth,
        uapi, //
    },
    gpu::{
        driver::{
            DrmFile,
            IoctlDevice, //
        },
        elements,
        log::gpu_dbg,
        queue::{
            Properties,
            Queue, //
        },
        Gpu, //
    },
    hal::{
        EngineClass,
        EngineId, //
    }, //
};

/// Time slice of a queue that asks for none, in µs.
const QUANTUM_US: u32 = 5_000;
/// Shortest time slice that a queue may ask for, in µs.
const QUANTUM_MIN_US: u32 = 100;
/// Longest time slice that a queue may ask for, in µs.
const QUANTUM_MAX_US: u32 = 1_000_000;
/// Longest time without progress that a queue may ask for, in ms.
pub(crate) const TIMEOUT_MAX_MS: u32 = 60_000;
/// Properties that there are; each may be given once.
const PROPERTIES_MAX: u32 = 4;

/// `DRM_IOCTL_OCHRE_QUEUE_CREATE`.
pub(crate) fn create(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_ochre_queue_create,
) -> Result<u32> {
    let gpu = dev.gpu();
    gpu.check()?;
    if args.flags != 0 || args.extensions != 0 {
        return Err(EINVAL);
    }
    let properties = read_properties(gpu, file, args.props, args.prop_count, args.prop_stride)?;
    let class = EngineClass::from_raw(args.engine_class).ok_or(EINVAL)?;
    let engines = candidates(gpu, class, args.engine_instance)?;
    let inner = file.inner();
    let vm = inner.vms().get(args.vm)?;

    let queue = gpu.create_queue(&engines, |id, engine| {
        Queue::new(gpu, id, engine, vm, properties, inner.usage().clone())
    })?;
    match inner.queues().insert(queue.clone()) {
        Ok(handle) => {
            args.queue = handle;
            Ok(0)
        }
        Err(error) => {
            gpu.destroy_queue(&queue);
            Err(error)
        }
    }
}

/// Engines of a class: all, or the one with number `instance`.
fn candidates(gpu: &Gpu, class: EngineClass, instance: u16) -> Result<KVec<EngineId>> {
    let mut engines = KVec::new();
    for (index, engine) in (0..).zip(&gpu.info().engines) {
        let fits = u32::from(instance) == uapi::DRM_OCHRE_ENGINE_ANY || instance == engine.instance;
        if engine.class == class && fits {
            engines.push(EngineId(index), GFP_KERNEL)?;
        }
    }
    if engines.is_empty() {
        gpu_dbg!(gpu, "no engine {instance} of class {class:?}\n");
        return Err(EINVAL);
    }
    Ok(engines)
}

/// Reads and checks properties.
fn read_properties(
    gpu: &Gpu,
    file: &DrmFile,
    addr: u64,
    count: u32,
    stride: u32,
) -> Result<Properties> {
    let props = elements::read::<uapi::drm_ochre_queue_prop>(addr, count, stride, PROPERTIES_MAX)?;
    let (mut priority, mut timeout_ms, mut quantum_us) = (None, None, None);
    let mut boost = None;
    for prop in &props {
        if prop.pad != 0 {
            return Err(EINVAL);
        }
        let known = match prop.name {
            uapi::drm_ochre_queue_property_DRM_OCHRE_QUEUE_PRIORITY => {
                priority.replace(read_priority(file, prop.value)?).is_none()
            }
            uapi::drm_ochre_queue_property_DRM_OCHRE_QUEUE_TIMEOUT_MS => timeout_ms
                .replace(ranged(prop.value, 1, TIMEOUT_MAX_MS)?)
                .is_none(),
            uapi::drm_ochre_queue_property_DRM_OCHRE_QUEUE_QUANTUM_US => quantum_us
                .replace(ranged(prop.value, QUANTUM_MIN_US, QUANTUM_MAX_US)?)
                .is_none(),
            uapi::drm_ochre_queue_property_DRM_OCHRE_QUEUE_BOOST => {
                boost.replace(ranged(prop.value, 0, 1)? != 0).is_none()
            }
            _ => false,
        };
        if !known {
            gpu_dbg!(
                gpu,
                "queue property {} is unknown or given twice\n",
                prop.name
            );
            return Err(EINVAL);
        }
    }
    Ok(Properties {
        priority: priority.unwrap_or(Priority::Normal),
        timeout_ms: timeout_ms.unwrap_or(gpu.timeout_ms()),
        quantum_us: quantum_us.unwrap_or(QUANTUM_US),
        boost: boost.unwrap_or(false),
    })
}

/// A value between `min` and `max`, both included.
fn ranged(value: u64, min: u32, max: u32) -> Result<u32> {
    u32::try_from(value)
        .ok()
        .filter(|value| (min..=max).contains(value))
        .ok_or(EINVAL)
}

/// A priority that the calling task may use for a queue of `file`.
fn read_priority(file: &DrmFile, value: u64) -> Result<Priority> {
    let priority = match u32::try_from(value) {
        Ok(uapi::drm_ochre_priority_DRM_OCHRE_PRIORITY_LOW) => Priority::Low,
        Ok(uapi::drm_ochre_priority_DRM_OCHRE_PRIORITY_NORMAL) => Priority::Normal,
        Ok(uapi::drm_ochre_priority_DRM_OCHRE_PRIORITY_HIGH) => Priority::High,
        Ok(uapi::drm_ochre_priority_DRM_OCHRE_PRIORITY_REALTIME) => Priority::Realtime,
        _ => return Err(EINVAL),
    };
    let allowed = match priority {
        Priority::Low | Priority::Normal => true,
        Priority::High => capability::sys_nice() || drm_auth::is_current_master(file),
        Priority::Realtime => capability::sys_nice(),
    };
    if !allowed {
        return Err(EACCES);
    }
    Ok(priority)
}

/// `DRM_IOCTL_OCHRE_QUEUE_DESTROY`.
pub(crate) fn destroy(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_ochre_queue_destroy,
) -> Result<u32> {
    if args.pad != 0 {
        return Err(EINVAL);
    }
    let queue = file.inner().queues().remove(args.queue)?;
    dev.gpu().destroy_queue(&queue);
    Ok(0)
}

/// `DRM_IOCTL_OCHRE_RESET_QUERY`.
pub(crate) fn reset_query(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_ochre_reset_query,
) -> Result<u32> {
    if args.flags != 0 || args.pad != 0 || args.extensions != 0 {
        return Err(EINVAL);
    }
    let queue = file.inner().queues().get(args.queue)?;
    let record = queue.record();
    let fault = record.fault;
    args.state = record.health.raw();
    args.fault_code = fault.map_or(0, |fault| fault.code);
    args.fault_addr = fault.map_or(0, |fault| fault.addr);
    args.fault_pc = fault.map_or(0, |fault| fault.pc);
    args.fault_access = fault.map_or(0, |fault| fault.access.raw());
    args.device_resets = dev.gpu().resets();
    args.queue_resets = record.resets;
    Ok(0)
}
