// SPDX-License-Identifier: GPL-2.0
//! What a failed ioctl could have left behind.

use anyhow::ensure;
use drm::control::Device as _;
use ochre::abi::drm_ochre_query_region;
use ochre::abi::DRM_OCHRE_ENGINE_COPY;
use ochre::region;
use ochre::Bo;
use ochre::Gpu;
use ochre::Queue;
use ochre::Syncobj;
use ochre::Vm;

use crate::harness::eventually;

/// How long what is given back may take to arrive.
const SECONDS: u64 = 20;

/// A state of an open file and of VRAM: bytes that are free, and the next handle of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    vram_free: u64,
    vram_visible_free: u64,
    next_bo: u32,
    next_vm: u32,
    next_queue: u32,
    next_syncobj: u32,
}

impl Ledger {
    /// Reads the state. Needs CAP_PERFMON, without which nobody is told what is free.
    ///
    /// # Errors
    ///
    /// Something of each kind has to be made for it; that may fail.
    pub fn read(gpu: &Gpu) -> anyhow::Result<Self> {
        let regions = gpu.query::<drm_ochre_query_region>()?;
        let vm = Vm::new(gpu)?;
        let queue = Queue::new(&vm, DRM_OCHRE_ENGINE_COPY)?;
        let bo = Bo::new(gpu, region::SYSTEM, 4096)?;
        let syncobj = Syncobj::new(gpu)?;
        Ok(Self {
            vram_free: regions[1].free,
            vram_visible_free: regions[1].cpu_visible_free,
            next_bo: bo.handle(),
            next_vm: vm.handle(),
            next_queue: queue.handle(),
            next_syncobj: syncobj.handle(),
        })
    }

    /// Whether nothing of it was taken. More may be free: a queue that a test before destroyed at
    /// work lets go of its memory when the hardware has let go of the queue.
    fn is_whole(&self, now: &Self) -> bool {
        let handles = |ledger: &Self| Self {
            vram_free: 0,
            vram_visible_free: 0,
            ..ledger.clone()
        };
        now.vram_free >= self.vram_free
            && now.vram_visible_free >= self.vram_visible_free
            && handles(now) == handles(self)
    }

    /// Checks that the state is this one again.
    ///
    /// # Errors
    ///
    /// It is not: `what` left something.
    pub fn check(&self, gpu: &Gpu, what: &str) -> anyhow::Result<()> {
        let mut now = self.clone();
        let same = eventually("all is as before", SECONDS, || {
            now = Self::read(gpu)?;
            Ok(self.is_whole(&now).then_some(()))
        });
        ensure!(
            same.is_ok(),
            "{what} left something: {now:?} after {self:?}"
        );
        Ok(())
    }

    /// Closes a GEM handle that may be there.
    pub fn forget_bo(gpu: &Gpu, handle: u32) {
        if let Some(handle) = std::num::NonZeroU32::new(handle) {
            let _ = gpu.close_buffer(handle.into());
        }
    }
}
