// SPDX-License-Identifier: GPL-2.0

//! Being told when somebody waits for a fence.
//!
//! C header: [`include/linux/dma-fence.h`](srctree/include/linux/dma-fence.h)
//!
//! Hardware that interrupts only when asked to can save the interrupts of fences that nobody waits for.
//! Such a fence is still signalled in the end, when the driver finds the time to look.

use kernel::{
    bindings,
    prelude::*,
    sync::Arc, //
};

use super::{
    Fence,
    FenceSlot,
    Inner,
    TimelineName, //
};

/// Who made a fence of [`FenceSlot::init_on_demand`].
pub(crate) trait WantSignal: Send + Sync {
    /// Somebody waits for the fence that was made with `cookie`: from now on it has to be signalled soon
    /// after its work is done.
    ///
    /// Called at most once per fence, in any context, with interrupts off and the fence's lock held. So
    /// it may take a spinlock under which nothing is signalled, and must not signal the fence.
    fn wanted(&self, cookie: u64);
}

/// What a fence has of its maker.
pub(super) struct Demand {
    owner: Arc<dyn WantSignal>,
    cookie: u64,
}

impl FenceSlot {
    /// As [`FenceSlot::init`], for a fence whose maker wants to know whether somebody waits.
    ///
    /// The fence holds `owner` until it is signalled; the reference is given up by who signals, in that
    /// context.
    pub(crate) fn init_on_demand(
        self,
        name: TimelineName,
        context: u64,
        seqno: u64,
        owner: Arc<dyn WantSignal>,
        cookie: u64,
    ) -> Fence {
        self.init_with(name, context, seqno, Some(Demand { owner, cookie }))
    }
}

/// # Safety
///
/// As `dma_fence_ops.enable_signaling`, of a fence that [`FenceSlot`] made.
pub(super) unsafe extern "C" fn enable_signaling(fence: *mut bindings::dma_fence) -> bool {
    // SAFETY: By the contract of this function the fence is an `Inner`. Its lock is held and it is not
    // signalled: the field is not written now.
    if let Some(demand) = unsafe { &*(*fence.cast::<Inner>()).demand.get() } {
        demand.owner.wanted(demand.cookie);
    }
    true
}

#[kunit_tests(ochre_ext_dma_fence_demand)]
mod tests {
    use kernel::sync::atomic::{
        Atomic,
        Relaxed, //
    };

    use super::{
        super::{
            context_alloc,
            FenceStatus,
            WaitOutcome,
            TEST_NAME, //
        },
        *,
    };

    struct Owner {
        calls: Atomic<u32>,
        cookie: Atomic<u64>,
    }

    impl WantSignal for Owner {
        fn wanted(&self, cookie: u64) {
            self.calls.add(1, Relaxed);
            self.cookie.store(cookie, Relaxed);
        }
    }

    fn owner() -> Result<Arc<Owner>> {
        Ok(Arc::new(
            Owner {
                calls: Atomic::new(0),
                cookie: Atomic::new(0),
            },
            GFP_KERNEL,
        )?)
    }

    fn fence_of(owner: &Arc<Owner>, cookie: u64) -> Result<Fence> {
        let slot = Fence::prealloc(GFP_KERNEL)?;
        Ok(slot.init_on_demand(TEST_NAME, context_alloc(1), 1, owner.clone(), cookie))
    }

    #[test]
    fn owner_hears_of_the_first_waiter_only() -> Result {
        let owner = owner()?;
        let fence = fence_of(&owner, 77)?;
        let seen = fence.reference();
        assert!(!seen.is_signaled());
        assert_eq!(owner.calls.load(Relaxed), 0);
        assert_eq!(seen.wait_interruptible(Some(1))?, WaitOutcome::TimedOut);
        assert_eq!(seen.wait_interruptible(Some(1))?, WaitOutcome::TimedOut);
        assert_eq!(owner.calls.load(Relaxed), 1);
        assert_eq!(owner.cookie.load(Relaxed), 77);
        fence.signal(Ok(()));
        assert_eq!(seen.wait_interruptible(None)?, WaitOutcome::Signaled);
        Ok(())
    }

    #[test]
    fn owner_of_a_fence_without_waiters_hears_nothing_and_is_let_go() -> Result {
        let owner = owner()?;
        let fence = fence_of(&owner, 1)?;
        let seen = fence.reference();
        fence.signal(Ok(()));
        assert_eq!(seen.wait_interruptible(None)?, WaitOutcome::Signaled);
        assert_eq!(owner.calls.load(Relaxed), 0);
        // The fence lives on without it.
        assert!(Arc::into_unique_or_drop(owner).is_some());
        assert_eq!(seen.status(), FenceStatus::Done);
        Ok(())
    }

    #[test]
    fn dropped_fence_lets_its_owner_go() -> Result {
        let owner = owner()?;
        let seen = {
            let fence = fence_of(&owner, 1)?;
            fence.reference()
        };
        assert!(Arc::into_unique_or_drop(owner).is_some());
        assert_eq!(seen.status(), FenceStatus::Failed(ECANCELED));
        Ok(())
    }
}
