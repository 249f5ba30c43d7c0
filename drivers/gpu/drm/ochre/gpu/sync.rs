// SPDX-License-Identifier: GPL-2.0

//! What an ioctl waits for and what it signals: `struct drm_ochre_sync`.
//!
//! Everything that can fail (handles, addresses, memory) is done while an array is read, so that
//! signalling at the end cannot.

use core::ptr;

use kernel::{
    prelude::*,
    sync::aref::ARef, //
};

use crate::{
    ext::{
        dma_fence::{
            DmaFence,
            FenceRef,
            FenceStatus, //
        },
        syncobj::{
            ChainNode,
            Syncobj, //
        },
        uapi, //
    },
    gpu::{
        driver::DrmFile,
        elements,
        wait::{
            self,
            Until, //
        },
        Gpu, //
    },
};

/// A 64-bit word at a GPU address, and a value of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserFence {
    /// GPU address, a multiple of 8 inside the address space.
    pub(crate) addr: u64,
    /// Waiting: at least this. Signalling: exactly this.
    pub(crate) value: u64,
}

/// Something to wait for on the CPU's side.
pub(crate) enum Wait {
    /// A fence.
    Fence(FenceRef),
    /// What an earlier job of the same ioctl will signal: its index.
    Earlier(usize),
}

/// A sync object to signal.
pub(crate) struct Signal {
    object: ARef<Syncobj>,
    target: Target,
}

enum Target {
    Binary,
    Timeline { point: u64, node: ChainNode },
}

impl Signal {
    /// Whether who waits for `point` of `object` (0: its newest) waits for this.
    fn covers(&self, object: &Syncobj, point: u64) -> bool {
        ptr::eq::<Syncobj>(&*self.object, object)
            && match self.target {
                Target::Binary => point == 0,
                Target::Timeline { point: own, .. } => own >= point,
            }
    }

    /// Makes the object hold `fence`. Cannot fail.
    fn publish(self, fence: &DmaFence) {
        match self.target {
            Target::Binary => self.object.replace_fence(Some(fence)),
            Target::Timeline { point, node } => self.object.add_point(node, fence, point),
        }
    }
}

/// What an array of syncs may hold, beside waits for sync objects.
#[derive(Clone, Copy)]
pub(crate) struct Allow {
    /// User fences.
    pub(crate) user_fence: bool,
    /// Signals.
    pub(crate) signal: bool,
}

/// One array of syncs, looked up.
#[derive(Default)]
pub(crate) struct Syncs {
    /// What to wait for, in the order of the array.
    pub(crate) waits: KVec<Wait>,
    /// What to signal.
    pub(crate) signals: KVec<Signal>,
    /// User fences to wait for.
    pub(crate) user_waits: KVec<UserFence>,
    /// User fences to signal.
    pub(crate) user_signals: KVec<UserFence>,
}

impl Syncs {
    /// Reads an array of `count` syncs, `stride` bytes apart, at user address `addr`.
    ///
    /// `earlier` are the arrays of the jobs before it in the same ioctl: a wait for what one of
    /// them signals is a wait for that job. [`ENOENT`]: no such sync object; [`EINVAL`]: a field
    /// out of range, something that `allow` does not allow, or a wait for what nobody submitted.
    pub(crate) fn read(
        gpu: &Gpu,
        file: &DrmFile,
        addr: u64,
        count: u32,
        stride: u32,
        allow: Allow,
        earlier: &[Syncs],
    ) -> Result<Self> {
        let mut syncs = Self::default();
        for sync in
            &elements::read::<uapi::drm_ochre_sync>(addr, count, stride, elements::SYNCS_MAX)?
        {
            syncs.add(gpu, file, sync, allow, earlier)?;
        }
        Ok(syncs)
    }

    fn add(
        &mut self,
        gpu: &Gpu,
        file: &DrmFile,
        sync: &uapi::drm_ochre_sync,
        allow: Allow,
        earlier: &[Syncs],
    ) -> Result {
        let signal = match sync.flags {
            0 => false,
            uapi::DRM_OCHRE_SYNC_SIGNAL => true,
            _ => return Err(EINVAL),
        };
        if sync.pad != 0 || (signal && !allow.signal) {
            return Err(EINVAL);
        }
        match sync.type_ {
            uapi::drm_ochre_sync_type_DRM_OCHRE_SYNC_SYNCOBJ => {
                if sync.value != 0 || sync.addr != 0 {
                    return Err(EINVAL);
                }
                self.add_object(file, sync.handle, 0, signal, earlier)
            }
            uapi::drm_ochre_sync_type_DRM_OCHRE_SYNC_TIMELINE => {
                if sync.value == 0 || sync.addr != 0 {
                    return Err(EINVAL);
                }
                self.add_object(file, sync.handle, sync.value, signal, earlier)
            }
            uapi::drm_ochre_sync_type_DRM_OCHRE_SYNC_USER_FENCE => {
                if sync.handle != 0 || !allow.user_fence {
                    return Err(EINVAL);
                }
                check_va(gpu, sync.addr, 8)?;
                let fence = UserFence {
                    addr: sync.addr,
                    value: sync.value,
                };
                let list = if signal {
                    &mut self.user_signals
                } else {
                    &mut self.user_waits
                };
                Ok(list.push(fence, GFP_KERNEL_ACCOUNT)?)
            }
            _ => Err(EINVAL),
        }
    }

    /// Adds a sync object; `point` is 0 for a binary one.
    fn add_object(
        &mut self,
        file: &DrmFile,
        handle: u32,
        point: u64,
        signal: bool,
        earlier: &[Syncs],
    ) -> Result {
        let object = Syncobj::lookup(file, handle)?;
        if signal {
            let target = match point {
                0 => Target::Binary,
                _ => Target::Timeline {
                    point,
                    node: ChainNode::new()?,
                },
            };
            self.signals
                .push(Signal { object, target }, GFP_KERNEL_ACCOUNT)?;
            return Ok(());
        }
        let job = earlier
            .iter()
            .rposition(|syncs| syncs.signals.iter().any(|s| s.covers(&object, point)));
        let Some(index) = job else {
            let fence = object.find_fence(point)?;
            return Ok(self.waits.push(Wait::Fence(fence), GFP_KERNEL_ACCOUNT)?);
        };
        self.waits.push(Wait::Earlier(index), GFP_KERNEL_ACCOUNT)?;
        // A point is reached only with those before it, which other queues may have to reach.
        if point != 0 {
            if let Some(before) = object.find_fence(point).ok().or_else(|| object.fence()) {
                self.waits.push(Wait::Fence(before), GFP_KERNEL_ACCOUNT)?;
            }
        }
        Ok(())
    }

    /// Waits until all fences are signalled, without end. Interruptible; no lock may be held.
    ///
    /// [`EIO`]: one of them carries an error; [`ENODEV`]: the device went away; [`ERESTARTSYS`].
    pub(crate) fn wait(&self, gpu: &Gpu) -> Result {
        let fences = self.fences()?;
        wait::wait(gpu, &fences, Until::All, None)?;
        let failed = |f: &FenceRef| matches!(f.status(), FenceStatus::Failed(_));
        if fences.iter().any(failed) {
            return Err(EIO);
        }
        Ok(())
    }

    /// The fences to wait for, in the order of the array.
    pub(crate) fn fences(&self) -> Result<KVec<FenceRef>> {
        let mut fences = KVec::with_capacity(self.waits.len(), GFP_KERNEL)?;
        for wait in &self.waits {
            match wait {
                Wait::Fence(fence) => fences.push(fence.clone(), GFP_KERNEL)?,
                // Only SUBMIT has earlier jobs, and it does not wait here.
                Wait::Earlier(_) => return Err(EINVAL),
            }
        }
        Ok(fences)
    }

    /// Makes all sync objects to signal hold `fence`. Cannot fail.
    pub(crate) fn signal(self, fence: &DmaFence) {
        publish(self.signals, fence);
    }
}

/// Makes all of `signals` hold `fence`. Cannot fail.
pub(crate) fn publish(signals: KVec<Signal>, fence: &DmaFence) {
    for signal in signals {
        signal.publish(fence);
    }
}

/// Checks that `bytes` bytes at GPU address `addr`, a multiple of 8, lie in the address space.
pub(crate) fn check_va(gpu: &Gpu, addr: u64, bytes: u64) -> Result {
    let va = &gpu.info().va;
    let end = addr.checked_add(bytes).ok_or(EINVAL)?;
    if addr % 8 != 0 || addr < va.start || end > va.end {
        return Err(EINVAL);
    }
    Ok(())
}
