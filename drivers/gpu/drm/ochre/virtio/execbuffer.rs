// SPDX-License-Identifier: GPL-2.0

//! The ioctl EXECBUFFER: a command stream for a context.
//!
//! First everything that can fail or wait: looking up, memory, the fences that the stream comes after,
//! reading it, room in the control queue, the BOs' locks. Then the stream is sent, and what the
//! program gets in return is published, which cannot fail. So an ioctl that fails leaves no trace.

use kernel::{
    fs::file::{
        flags::O_CLOEXEC,
        FileDescriptorReservation, //
    },
    prelude::*,
    sync::Arc, //
};

use super::{
    bo::Bo,
    bound::Bound,
    buffers::DmaBuf,
    context::Live,
    control::{
        Command,
        FenceArg, //
    },
    device::Device,
    driver::{
        DrmFile,
        IoctlDevice, //
    },
    fences::Timeline,
    keep::Keep,
    limits,
    syncobjs::{
        Array,
        Signals,
        Waited, //
    },
    wait,
    wire, //
};
use crate::ext::{
    dma_fence::{
        Fence,
        FenceRef, //
    },
    dma_resv::Usage,
    drm_drv::Enter,
    drm_event::Event,
    gem::ObjectArray,
    ioctl::user_slice,
    sync_file::{
        self,
        SyncFile, //
    },
    uapi_virtio as uapi, //
};

/// Where the fence of a stream goes, and with it its order.
struct Target<'a> {
    context: &'a Live,
    timeline: &'a Timeline,
    /// The context's command ring; [`None`] is the order of all contexts together.
    ring: Option<u8>,
    /// The program wants to be told by an event.
    polled: bool,
}

impl<'a> Target<'a> {
    /// [`EINVAL`]: an unknown flag, or a ring that the context does not have.
    fn new(
        dev: &'a IoctlDevice,
        file: &'a DrmFile,
        args: &uapi::drm_virtgpu_execbuffer,
    ) -> Result<Self> {
        let device = dev.device();
        let place = file.inner().get_ref().context();
        if args.flags & uapi::VIRTGPU_EXECBUF_RING_IDX == 0 {
            return Ok(Self {
                context: place.get_or_make(device)?,
                timeline: device.timeline(),
                ring: None,
                polled: false,
            });
        }
        // Only CONTEXT_INIT makes rings.
        let context = place.get().ok_or(EINVAL)?;
        Ok(Self {
            context,
            timeline: context.ring(args.ring_idx)?,
            ring: Some(u8::try_from(args.ring_idx)?),
            polled: context.is_polled(args.ring_idx),
        })
    }

    /// Waits for a fence that the stream comes after. What it comes after anyway, by the order of
    /// its timeline, needs no wait.
    fn wait_for(&self, device: &Arc<Device>, fence: &FenceRef) -> Result {
        fence.try_for_each(|fence| {
            if fence.context() == self.timeline.context() {
                return Ok(());
            }
            wait::wait_for(device, fence)
        })
    }
}

/// Checks the length of a stream. Venus asks for a signalled fence with one of no bytes.
fn check_size(size: u32) -> Result<usize> {
    if size % limits::STREAM_ALIGN != 0 || size > limits::STREAM_MAX {
        return Err(EINVAL);
    }
    Ok(usize::try_from(size)?)
}

/// Copies a stream of `len` bytes at user address `addr` to memory of the device. [`None`]: of none.
pub(super) fn read_stream(dev: &IoctlDevice, addr: u64, len: usize) -> Result<Option<DmaBuf>> {
    if len == 0 {
        return Ok(None);
    }
    let mut stream = alloc(dev, len)?;
    if stream.copy_from_user_nofault(addr).is_ok() {
        return Ok(Some(stream));
    }
    // A page that is not there may be long in coming. Memory of the device must not wait for it.
    drop(stream);
    let mut bytes = KVVec::new();
    user_slice(addr, len)?.read_all(&mut bytes, GFP_KERNEL_ACCOUNT)?;
    let mut stream = alloc(dev, len)?;
    stream.write(0, &bytes)?;
    Ok(Some(stream))
}

fn alloc(dev: &IoctlDevice, len: usize) -> Result<DmaBuf> {
    let buffers = dev.device().buffers();
    match buffers.pooled(len) {
        Some(found) => Ok(found),
        None => dev
            .enter()?
            .registration_data_with(|bound: &Bound<'_>| buffers.alloc(bound.dev, len)),
    }
}

/// `DRM_IOCTL_VIRTGPU_EXECBUFFER`.
pub(super) fn ioctl(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_virtgpu_execbuffer,
) -> Result<u32> {
    let device = dev.device();
    device.check()?;
    if !device.caps().virgl {
        return Err(ENOSYS);
    }
    if args.flags & !uapi::VIRTGPU_EXECBUF_FLAGS != 0 {
        return Err(EINVAL);
    }
    let wants_fd = args.flags & uapi::VIRTGPU_EXECBUF_FENCE_FD_OUT != 0;
    let len = check_size(args.size)?;
    let ins = Array::new(args.in_syncobjs, args.num_in_syncobjs, args.syncobj_stride)?;
    let outs = Array::new(
        args.out_syncobjs,
        args.num_out_syncobjs,
        args.syncobj_stride,
    )?;
    let target = Target::new(dev, file, args)?;

    let objs = match args.num_bo_handles {
        0 => None,
        count => {
            let (handles, max) = (args.bo_handles, limits::EXEC_BOS_MAX);
            let objs = ObjectArray::<Bo>::lookup(file, handles, count, max)?;
            Some(Arc::new(objs, GFP_KERNEL_ACCOUNT)?)
        }
    };
    let fenced = wants_fd || target.polled || !outs.is_empty() || objs.is_some();
    let fence = match fenced {
        true => Some(Fence::prealloc(GFP_KERNEL_ACCOUNT)?),
        false => None,
    };
    let event = match target.polled {
        true => Some(Event::reserve(file, uapi::VIRTGPU_EVENT_FENCE_SIGNALED)?),
        false => None,
    };
    let out_fence = match wants_fd {
        true => Some((
            FileDescriptorReservation::get_unused_fd_flags(O_CLOEXEC)?,
            SyncFile::reserve()?,
        )),
        false => None,
    };
    let signals = match outs.is_empty() {
        true => None,
        false => Some(Signals::read(file, &outs)?),
    };

    let waited = match ins.is_empty() {
        true => None,
        false => {
            let wait = |fence| target.wait_for(device, &fence);
            Some(Waited::read(file, &ins, wait)?)
        }
    };
    if args.flags & uapi::VIRTGPU_EXECBUF_FENCE_FD_IN != 0 {
        let fence = sync_file::fence_of(args.fence_fd)?;
        target.wait_for(device, &fence)?;
    }

    // Late, as it must not wait for any of the above.
    let stream = read_stream(dev, args.command, len)?;
    let mut room = device.reserve(1)?;
    target.context.check(room.generation())?;
    for obj in objs.iter().flat_map(|objs| objs.iter()) {
        obj.check(room.generation())?;
    }
    // Last: it is told once, and by a call that nothing else is wrong with.
    target.context.report()?;
    let mut command = Command::new(wire::submit_3d(target.context.id(), args.size));
    if let Some(stream) = stream {
        command = command.payload(stream);
    }
    if let Some(fence) = fence {
        let arg = FenceArg::new(fence, target.timeline)
            .ring(target.ring)
            .event(event);
        command = command.fence(arg);
    }
    let fence = match objs {
        None if fenced => device.submit(&mut room, command),
        None => {
            let streams = target.context.streams().clone();
            device.submit(&mut room, command.keep(Keep::Verdict(streams)))
        }
        // The command has them, too, and may be over before they are unlocked.
        Some(objs) => {
            let command = command.keep(Keep::Objects(objs.clone()));
            objs.publish(Usage::Write, || device.submit(&mut room, command))?
        }
    };
    drop(room);
    device.flush();

    if let Some(waited) = waited {
        waited.reset();
    }
    if let Some(fence) = fence {
        if let Some(signals) = signals {
            signals.publish(&fence);
        }
        if let Some((fd, mut file)) = out_fence {
            file.set_fence(&fence);
            args.fence_fd = file.install(fd);
        }
    }
    Ok(0)
}

#[kunit_tests(ochre_virtio_execbuffer)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_made_of_dwords_and_has_a_limit() -> Result {
        assert_eq!(check_size(0)?, 0);
        assert_eq!(check_size(4)?, 4);
        assert_eq!(check_size(limits::STREAM_MAX)?, 16 << 20);
        for bad in [1, 2, 3, 5, limits::STREAM_MAX + 4, u32::MAX] {
            assert_eq!(check_size(bad).err(), Some(EINVAL));
        }
        Ok(())
    }
}
