// SPDX-License-Identifier: GPL-2.0

//! Waiting: for the fences that an EXECBUFFER comes after, and the ioctl WAIT for a BO.

use core::ops::Deref;

use kernel::{
    drm::gem::BaseObject,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    },
    time::{
        self,
        Jiffies, //
    }, //
};

use super::{
    bo::BoObject,
    device::Device,
    driver::{
        DrmFile,
        IoctlDevice, //
    },
    limits, //
};
use crate::ext::{
    dma_fence::{
        Armed,
        CallbackNode,
        DmaFence,
        FenceCallback,
        FenceRef, //
    },
    dma_resv::Usage,
    gem::ObjectExt,
    uapi_virtio as uapi,
    wait::{
        new_wait_queue,
        WaitQueue, //
    }, //
};

/// A task that waits for a fence.
#[pin_data]
struct Waiter {
    #[pin]
    task: WaitQueue,
    /// Becomes 1 when a fence is signalled: the one that is waited for, or the device's end.
    woken: Atomic<u32>,
}

impl Waiter {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            task <- new_wait_queue!("ochre_fence_waiter"),
            woken: Atomic::new(0),
        })
    }
}

/// Tells a waiter. It lives in the waiter's stack frame, which its removal from the fence keeps
/// until nobody is in [`FenceCallback::signaled`].
struct Tell<W: Deref<Target = Waiter>>(W);

impl<W: Deref<Target = Waiter> + Send + Sync> FenceCallback for Tell<W> {
    fn signaled(&self, _fence: &DmaFence) {
        self.0.woken.store(1, Release);
        self.0.task.wake_all();
    }
}

/// Waits until a fence, of whatever driver, is signalled.
///
/// Sleeps, interruptibly: no lock may be held. [`ENODEV`]: the device went away first;
/// [`ERESTARTSYS`].
pub(super) fn wait_for(device: &Arc<Device>, fence: &DmaFence) -> Result {
    if fence.is_signaled() {
        return Ok(());
    }
    // The answer may be there, with nobody having looked for it; that is cheaper than an interrupt.
    device.reap();
    sleep_until(device, fence, None).map(drop)
}

/// Waits until all that others and the device do with an object is over, at most `timeout` jiffies.
/// Returns whether it is. As [`wait_for`]; [`ENOMEM`].
pub(super) fn wait_idle(
    device: &Arc<Device>,
    obj: &BoObject,
    timeout: Option<Jiffies>,
) -> Result<bool> {
    match obj.resv().fence(Usage::Read)? {
        Some(fence) => sleep_until(device, &fence, timeout),
        None => Ok(true),
    }
}

/// Sleeps until a fence is signalled. Returns whether it is.
fn sleep_until(device: &Device, fence: &DmaFence, timeout: Option<Jiffies>) -> Result<bool> {
    if fence.is_signaled() {
        return Ok(true);
    }
    pin_init::stack_pin_init!(let waiter = Waiter::new());
    let waiter = waiter.into_ref();
    pin_init::stack_pin_init!(let gone = CallbackNode::new(Tell(waiter)));
    pin_init::stack_pin_init!(let done = CallbackNode::new(Tell(waiter)));
    if gone.as_mut().arm(device.gone_fence()) == Armed::AlreadySignaled {
        return Err(ENODEV);
    }
    if done.as_mut().arm(FenceRef::from(fence)) == Armed::AlreadySignaled {
        return Ok(true);
    }
    let woken = waiter
        .task
        .wait_interruptible(timeout, || waiter.woken.load(Acquire) != 0)?;
    device.check()?;
    Ok(woken)
}

/// `DRM_IOCTL_VIRTGPU_WAIT`.
pub(super) fn ioctl(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_virtgpu_3d_wait,
) -> Result<u32> {
    let device = dev.device();
    device.check()?;
    if args.flags & !uapi::VIRTGPU_WAIT_NOWAIT != 0 {
        return Err(EINVAL);
    }
    let obj = BoObject::lookup_handle(file, args.handle)?;
    let mut idle = obj.resv().is_signaled(Usage::Read);
    if !idle {
        // As in `wait_for`.
        device.reap();
        idle = obj.resv().is_signaled(Usage::Read);
    }
    if !idle && args.flags & uapi::VIRTGPU_WAIT_NOWAIT == 0 {
        let timeout = time::msecs_to_jiffies(limits::WAIT_SECONDS * 1000);
        idle = wait_idle(device, &obj, Some(timeout))?;
    }
    if !idle {
        return Err(EBUSY);
    }
    device.check()?;
    obj.report()?;
    if let Some(context) = file.inner().context().get() {
        context.report()?;
    }
    Ok(0)
}
