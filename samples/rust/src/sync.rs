// SPDX-License-Identifier: GPL-2.0
//! SyncOp objects, and waiting for them.

use std::io;

use drm::control::syncobj;
use drm::control::Device as _;

use crate::abi;
use crate::abi::count;
use crate::abi::pointer;
use crate::abi::stride;
use crate::gpu::Gpu;

/// Something to wait for or to signal.
pub type SyncOp = abi::drm_ochre_sync;

impl SyncOp {
    /// A user fence: the 64-bit word at `addr` of the queue's VM. As a wait, until it is at least
    /// `value`.
    pub fn user_fence(addr: u64, value: u64) -> Self {
        Self {
            type_: abi::DRM_OCHRE_SYNC_USER_FENCE,
            addr,
            value,
            ..Default::default()
        }
    }

    /// The same thing to be signalled.
    pub fn signal(self) -> Self {
        Self {
            flags: abi::DRM_OCHRE_SYNC_SIGNAL,
            ..self
        }
    }
}

/// A sync object: binary or timeline, as it is used.
#[derive(Debug)]
pub struct Syncobj<'g> {
    gpu: &'g Gpu,
    handle: syncobj::Handle,
}

impl<'g> Syncobj<'g> {
    /// One without a fence.
    ///
    /// # Errors
    ///
    /// See `DRM_IOCTL_SYNCOBJ_CREATE`.
    pub fn new(gpu: &'g Gpu) -> io::Result<Self> {
        let handle = gpu.create_syncobj(false)?;
        Ok(Self { gpu, handle })
    }

    /// Handle.
    pub fn handle(&self) -> u32 {
        self.handle.into()
    }

    /// Handle as the drm crate has it.
    pub fn raw(&self) -> syncobj::Handle {
        self.handle
    }

    /// To wait for its fence.
    pub fn wait(&self) -> SyncOp {
        SyncOp {
            type_: abi::DRM_OCHRE_SYNC_SYNCOBJ,
            handle: self.handle(),
            ..Default::default()
        }
    }

    /// To give it a fence.
    pub fn signal(&self) -> SyncOp {
        self.wait().signal()
    }

    /// To wait for a point of the timeline.
    pub fn point(&self, value: u64) -> SyncOp {
        SyncOp {
            type_: abi::DRM_OCHRE_SYNC_TIMELINE,
            handle: self.handle(),
            value,
            ..Default::default()
        }
    }
}

impl Drop for Syncobj<'_> {
    fn drop(&mut self) {
        // A device that is gone has no handles any more.
        let _ = self.gpu.destroy_syncobj(self.handle);
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// Index of the first sync that is signalled.
    pub first: u32,
    /// 0, or the errno that the first failed fence carries.
    pub error: i32,
}

/// The time on CLOCK_MONOTONIC in so many seconds, in ns.
pub fn in_seconds(seconds: u64) -> i64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: Stores the time there; this clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    now.tv_sec
        .saturating_add(seconds)
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec)
}

impl Gpu {
    /// Waits for all of `syncs` until `timeout_ns` on CLOCK_MONOTONIC.
    ///
    /// # Errors
    ///
    /// See WAIT.
    pub fn wait(&self, syncs: &[SyncOp], timeout_ns: i64) -> io::Result<Waited> {
        self.wait_flags(syncs, timeout_ns, 0)
    }

    /// Waits for one of `syncs` until `timeout_ns` on CLOCK_MONOTONIC.
    ///
    /// # Errors
    ///
    /// See WAIT.
    pub fn wait_any(&self, syncs: &[SyncOp], timeout_ns: i64) -> io::Result<Waited> {
        self.wait_flags(syncs, timeout_ns, abi::DRM_OCHRE_WAIT_ANY)
    }

    fn wait_flags(&self, syncs: &[SyncOp], timeout_ns: i64, flags: u32) -> io::Result<Waited> {
        let mut wait = abi::drm_ochre_wait {
            syncs: pointer(syncs),
            sync_count: count(syncs),
            sync_stride: stride::<SyncOp>(),
            timeout_ns,
            flags,
            ..Default::default()
        };
        // SAFETY: The array is as long as the structure says.
        unsafe { abi::ioctl(self, &mut wait)? };
        Ok(Waited {
            first: wait.first,
            error: wait.error,
        })
    }
}
