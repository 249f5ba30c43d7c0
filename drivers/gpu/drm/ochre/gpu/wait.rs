// SPDX-License-Identifier: GPL-2.0

//! Waiting for fences on the CPU: one or all of several, until a time, a signal or the end of the
//! device. And the ioctl WAIT.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    },
    time::Jiffies, //
};

use crate::{
    ext::{
        dma_fence::{
            Armed,
            CallbackNode,
            DmaFence,
            FenceCallback,
            FenceRef,
            FenceStatus, //
        },
        timekeeping,
        uapi,
        wait::{
            new_wait_queue,
            WaitQueue, //
        }, //
    },
    gpu::{
        driver::{
            DrmFile,
            IoctlDevice, //
        },
        sync::{
            Allow,
            Syncs, //
        },
        Gpu, //
    },
};

/// How many fences have to be signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// One.
    Any,
    /// All.
    All,
}

/// A task that waits, as the fences see it.
#[pin_data]
struct Waiter {
    #[pin]
    tasks: WaitQueue,
    /// Fences that were signalled while it waited.
    hits: Atomic<u32>,
    /// Becomes 1 when the device goes away.
    gone: Atomic<u32>,
}

/// Counts a fence that was waited for.
struct Hit(Arc<Waiter>);

impl FenceCallback for Hit {
    fn signaled(&self, _fence: &DmaFence) {
        self.0.hits.fetch_add(1, Full);
        self.0.tasks.wake_all();
    }
}

/// Tells that the device goes away.
struct Gone(Arc<Waiter>);

impl FenceCallback for Gone {
    fn signaled(&self, _fence: &DmaFence) {
        self.0.gone.xchg(1, Full);
        self.0.tasks.wake_all();
    }
}

/// Waits until one or all of `fences` are signalled, at most `timeout` jiffies, for ever with
/// [`None`]. With no fence there is nothing to wait for.
///
/// Sleeps, interruptibly: no lock may be held, nor a `drm_dev_enter()` section. [`ETIME`]: the time
/// was over first; [`ENODEV`]: the device went away first; [`ERESTARTSYS`].
pub(crate) fn wait(
    gpu: &Gpu,
    fences: &[FenceRef],
    until: Until,
    timeout: Option<Jiffies>,
) -> Result {
    let pending = fences.iter().filter(|f| !f.is_signaled()).count();
    let enough = |pending: usize| match until {
        Until::Any => pending < fences.len() || fences.is_empty(),
        Until::All => pending == 0,
    };
    if enough(pending) {
        return Ok(());
    }
    if timeout == Some(0) {
        return Err(ETIME);
    }

    let waiter = Arc::pin_init(
        pin_init!(Waiter {
            tasks <- new_wait_queue!("ochre_waiter"),
            hits: Atomic::new(0),
            gone: Atomic::new(0),
        }),
        GFP_KERNEL,
    )?;
    let mut gone = KBox::pin_init(CallbackNode::new(Gone(waiter.clone())), GFP_KERNEL)?;
    if gone.as_mut().arm(gpu.gone_fence()) == Armed::AlreadySignaled {
        return Err(ENODEV);
    }

    let mut nodes = KVec::with_capacity(pending, GFP_KERNEL)?;
    for fence in fences {
        let mut node = KBox::pin_init(CallbackNode::new(Hit(waiter.clone())), GFP_KERNEL)?;
        if node.as_mut().arm(fence.clone()) == Armed::Pending {
            nodes.push(node, GFP_KERNEL)?;
        }
    }
    if enough(nodes.len()) {
        return Ok(());
    }
    let needed = match until {
        Until::Any => 1,
        Until::All => u32::try_from(nodes.len())?,
    };

    let done = || waiter.hits.load(Acquire) >= needed;
    let is_gone = || waiter.gone.load(Acquire) != 0;
    let woken = waiter
        .tasks
        .wait_interruptible(timeout, || done() || is_gone())?;
    if is_gone() {
        // Whatever the fences say: they are all signalled now.
        Err(ENODEV)
    } else if woken {
        Ok(())
    } else {
        Err(ETIME)
    }
}

/// `DRM_IOCTL_OCHRE_WAIT`.
pub(crate) fn ioctl(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_ochre_wait,
) -> Result<u32> {
    let gpu = dev.gpu();
    let until = match args.flags {
        0 => Until::All,
        uapi::DRM_OCHRE_WAIT_ANY => Until::Any,
        _ => return Err(EINVAL),
    };
    if args.pad != 0 || args.extensions != 0 || args.sync_count == 0 {
        return Err(EINVAL);
    }
    let allow = Allow {
        user_fence: false,
        signal: false,
    };
    let syncs = Syncs::read(
        gpu,
        file,
        args.syncs,
        args.sync_count,
        args.sync_stride,
        allow,
        &[],
    )?;
    let fences = syncs.fences()?;

    // Ticks that were late come fast one after the other, so jiffies can be over before the time is.
    loop {
        let timeout = timekeeping::jiffies_until(args.timeout_ns);
        match wait(gpu, &fences, until, timeout) {
            Err(error) if error == ETIME && timeout != Some(0) => {}
            result => break result?,
        }
    }

    let first = fences.iter().position(|f| f.is_signaled()).ok_or(EIO)?;
    args.first = u32::try_from(first)?;
    args.error = fences
        .iter()
        .find_map(|fence| match fence.status() {
            FenceStatus::Failed(error) => Some(error.to_errno().wrapping_neg()),
            FenceStatus::Pending | FenceStatus::Done => None,
        })
        .unwrap_or(0);
    Ok(0)
}
