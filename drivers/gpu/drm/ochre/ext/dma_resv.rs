// SPDX-License-Identifier: GPL-2.0

//! Reservation objects: which fences a buffer's users have to wait for.
//!
//! C header: [`include/linux/dma-resv.h`](srctree/include/linux/dma-resv.h)
//!
//! Each GEM object has one ([`ObjectExt::resv`]), which it shares with its dma-buf and so with the
//! other drivers that use the memory. A driver adds a fence for what it queues on the buffer
//! ([`DmaResv::publish`]) and waits for the fences of others ([`DmaResv::wait`]).
//!
//! Locks: the lock of a reservation object is taken before a driver's own locks, and page faults take
//! it in some drivers, so user memory must not be touched with it held. Several are locked at once
//! only by [`ObjectArray::publish`], which resolves deadlocks.
//!
//! [`ObjectExt::resv`]: super::gem::ObjectExt::resv
//! [`ObjectArray::publish`]: super::gem::ObjectArray::publish

use kernel::{
    bindings,
    error::to_result,
    ffi::c_ulong,
    prelude::*,
    task::MAX_SCHEDULE_TIMEOUT,
    time::Jiffies,
    types::{
        NotThreadSafe,
        Opaque, //
    }, //
};

use super::{
    dma_fence::{
        DmaFence,
        FenceRef,
        WaitOutcome, //
    },
    sys, //
};

/// What a fence does to the buffer. Each kind includes those before it: a wait for one of them waits
/// for those, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Usage {
    /// The kernel moves or clears the memory: everybody has to wait.
    Kernel = bindings::dma_resv_usage_DMA_RESV_USAGE_KERNEL,
    /// Writes: implicitly synchronised readers and writers wait.
    Write = bindings::dma_resv_usage_DMA_RESV_USAGE_WRITE,
    /// Reads: implicitly synchronised writers wait.
    Read = bindings::dma_resv_usage_DMA_RESV_USAGE_READ,
    /// Nobody waits for it implicitly.
    Bookkeep = bindings::dma_resv_usage_DMA_RESV_USAGE_BOOKKEEP,
}

impl Usage {
    pub(super) const fn into_raw(self) -> bindings::dma_resv_usage {
        // CAST: The values are C's.
        self as bindings::dma_resv_usage
    }
}

/// A `struct dma_resv`.
///
/// # Invariants
///
/// `self.0` is initialised.
#[repr(transparent)]
pub(crate) struct DmaResv(Opaque<bindings::dma_resv>);

// SAFETY: All functions of a reservation object may run concurrently; what needs its lock takes it.
unsafe impl Sync for DmaResv {}

impl DmaResv {
    /// # Safety
    ///
    /// `ptr` points to an initialised reservation object that stays so for the lifetime chosen.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::dma_resv) -> &'a Self {
        // SAFETY: By the contract of this function; `Self` is a transparent wrapper.
        unsafe { &*ptr.cast() }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::dma_resv {
        self.0.get()
    }

    /// Waits until all fences of `usage` are signalled, at most `timeout` jiffies, for ever with
    /// [`None`]. Errors of the fences do not show.
    ///
    /// Returns [`ERESTARTSYS`] when the task got a signal. Sleeps: no lock that a signaller needs may
    /// be held, nor a `drm_dev_enter()` section. Does not take the object's lock.
    pub(crate) fn wait(&self, usage: Usage, timeout: Option<Jiffies>) -> Result<WaitOutcome> {
        // CAST: The limit is positive.
        let limit = MAX_SCHEDULE_TIMEOUT as c_ulong;
        let timeout = timeout.map_or(limit, |t| c_ulong::from(t).min(limit));
        // SAFETY: By the type invariant.
        let left = unsafe {
            bindings::dma_resv_wait_timeout(self.as_raw(), usage.into_raw(), true, timeout)
        };
        match left {
            0 => Ok(WaitOutcome::TimedOut),
            left if left > 0 => Ok(WaitOutcome::Signaled),
            error => Err(i32::try_from(error).map_or(EINVAL, Error::from_errno)),
        }
    }

    /// One fence for all of `usage`, which may be an array. [`None`] if there is none. [`ENOMEM`].
    ///
    /// For whoever has to end its wait for another reason than those of [`Self::wait`].
    pub(crate) fn fence(&self, usage: Usage) -> Result<Option<FenceRef>> {
        let mut fence = core::ptr::null_mut();
        // SAFETY: By the type invariant; the place for the result is valid for writing.
        to_result(unsafe {
            bindings::dma_resv_get_singleton(self.as_raw(), usage.into_raw(), &mut fence)
        })?;
        // SAFETY: A fence comes with a reference, which is ours.
        Ok(unsafe { DmaFence::from_owned(fence) })
    }

    /// Whether all fences of `usage` are signalled. In any context.
    pub(crate) fn is_signaled(&self, usage: Usage) -> bool {
        // SAFETY: By the type invariant.
        unsafe { bindings::dma_resv_test_signaled(self.as_raw(), usage.into_raw()) }
    }

    /// Adds the fence that `f` returns, with the object locked around the call of `f`, so that the
    /// fences of a buffer are in the order of its work.
    ///
    /// All that can fail is done before `f` is called: returns [`ERESTARTSYS`] when the task got a
    /// signal while it waited for the lock, and [`ENOMEM`]. `f` must not wait for hardware, touch user
    /// memory, or lock another reservation object. The fence must not be an array or a chain.
    pub(crate) fn publish(
        &self,
        usage: Usage,
        f: impl FnOnce() -> Option<FenceRef>,
    ) -> Result<Option<FenceRef>> {
        let locked = Locked::new(self)?;
        // SAFETY: The object is locked.
        unsafe { self.reserve()? };
        let fence = f();
        if let Some(fence) = &fence {
            // SAFETY: The object has been locked since there was room for one more fence.
            unsafe { self.add(fence, usage) };
        }
        drop(locked);
        Ok(fence)
    }

    /// Makes room for one fence. Allocates.
    ///
    /// # Safety
    ///
    /// The caller holds the object's lock.
    pub(super) unsafe fn reserve(&self) -> Result {
        // SAFETY: By the contract of this function.
        to_result(unsafe { bindings::dma_resv_reserve_fences(self.as_raw(), 1) })
    }

    /// # Safety
    ///
    /// The caller holds the object's lock and has called [`Self::reserve`] under it once for each call
    /// of this function.
    pub(super) unsafe fn add(&self, fence: &DmaFence, usage: Usage) {
        // SAFETY: By the contract of this function; the fence is valid and gets a reference.
        unsafe {
            bindings::dma_resv_add_fence(self.as_raw(), fence.as_raw(), usage.into_raw());
        };
    }
}

/// The lock of one reservation object, held.
pub(super) struct Locked<'a> {
    resv: &'a DmaResv,
    _not_send: NotThreadSafe,
}

impl<'a> Locked<'a> {
    /// Locks. Sleeps. Returns [`ERESTARTSYS`] when the task got a signal.
    pub(super) fn new(resv: &'a DmaResv) -> Result<Self> {
        // SAFETY: The object is valid. No context stands for a lock that is taken alone.
        to_result(unsafe { sys::ochre_dma_resv_lock_interruptible(resv.as_raw()) })?;
        Ok(Self {
            resv,
            _not_send: NotThreadSafe,
        })
    }

    /// Locks, whatever signals come. For the way down, where nothing else can be done.
    pub(super) fn uninterruptible(resv: &'a DmaResv) -> Self {
        // SAFETY: As in `new`. Without a context the call cannot fail.
        unsafe { bindings::dma_resv_lock(resv.as_raw(), core::ptr::null_mut()) };
        Self {
            resv,
            _not_send: NotThreadSafe,
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: This task locked the object when `self` was made.
        unsafe { bindings::dma_resv_unlock(self.resv.as_raw()) };
    }
}

#[kunit_tests(ochre_ext_dma_resv)]
mod tests {
    use kernel::sync::Arc;

    use super::{
        super::{
            dma_fence::{
                context_alloc,
                Fence,
                TEST_NAME, //
            },
            workqueue::{
                OwnedQueue,
                QueueFlags, //
            },
        },
        *,
    };

    /// A reservation object of its own.
    struct Owned(Pin<KBox<Opaque<bindings::dma_resv>>>);

    // SAFETY: See `DmaResv`.
    unsafe impl Send for Owned {}
    // SAFETY: See `DmaResv`.
    unsafe impl Sync for Owned {}

    impl Owned {
        fn new() -> Result<Self> {
            let memory = KBox::pin(Opaque::zeroed(), GFP_KERNEL)?;
            // SAFETY: The memory is ours and stays where it is.
            unsafe { bindings::dma_resv_init(memory.get()) };
            Ok(Self(memory))
        }

        fn get(&self) -> &DmaResv {
            // SAFETY: Initialised by `new`.
            unsafe { DmaResv::from_raw(self.0.get()) }
        }
    }

    impl Drop for Owned {
        fn drop(&mut self) {
            // SAFETY: Initialised by `new`, and nobody uses it any more.
            unsafe { bindings::dma_resv_fini(self.0.get()) };
        }
    }

    fn new_fence(seqno: u64) -> Result<Fence> {
        Ok(Fence::prealloc(GFP_KERNEL)?.init(TEST_NAME, context_alloc(1), seqno))
    }

    #[test]
    fn new_object_has_nothing_to_wait_for() -> Result {
        let resv = Owned::new()?;
        assert!(resv.get().is_signaled(Usage::Bookkeep));
        assert_eq!(
            resv.get().wait(Usage::Bookkeep, Some(0))?,
            WaitOutcome::Signaled
        );
        Ok(())
    }

    #[test]
    fn written_buffer_is_busy_until_the_fence_is_signalled() -> Result {
        let resv = Owned::new()?;
        let fence = new_fence(1)?;
        let published = resv
            .get()
            .publish(Usage::Write, || Some(fence.reference()))?;
        assert!(published.is_some_and(|seen| seen.context() == fence.context()));
        assert!(!resv.get().is_signaled(Usage::Write));
        assert!(!resv.get().is_signaled(Usage::Read));
        assert!(resv.get().is_signaled(Usage::Kernel));
        assert_eq!(
            resv.get().wait(Usage::Read, Some(1))?,
            WaitOutcome::TimedOut
        );
        fence.signal(Ok(()));
        assert!(resv.get().is_signaled(Usage::Bookkeep));
        assert_eq!(resv.get().wait(Usage::Read, None)?, WaitOutcome::Signaled);
        Ok(())
    }

    #[test]
    fn reader_does_not_make_readers_wait() -> Result {
        let resv = Owned::new()?;
        let fence = new_fence(1)?;
        resv.get()
            .publish(Usage::Read, || Some(fence.reference()))?;
        assert!(resv.get().is_signaled(Usage::Write));
        assert!(!resv.get().is_signaled(Usage::Read));
        Ok(())
    }

    #[test]
    fn many_fences_of_different_timelines_all_count() -> Result {
        let resv = Owned::new()?;
        let mut fences = KVec::new();
        for seqno in 1..=20 {
            let fence = new_fence(seqno)?;
            resv.get()
                .publish(Usage::Write, || Some(fence.reference()))?;
            fences.push(fence, GFP_KERNEL)?;
        }
        while let Some(fence) = fences.pop() {
            assert!(!resv.get().is_signaled(Usage::Write));
            fence.signal(Ok(()));
        }
        assert!(resv.get().is_signaled(Usage::Write));
        Ok(())
    }

    #[test]
    fn one_fence_stands_for_all_that_are_not_over() -> Result {
        let resv = Owned::new()?;
        assert!(resv.get().fence(Usage::Read)?.is_none());
        let (first, second) = (new_fence(1)?, new_fence(1)?);
        for fence in [&first, &second] {
            resv.get()
                .publish(Usage::Write, || Some(fence.reference()))?;
        }
        let all = resv.get().fence(Usage::Read)?.ok_or(EINVAL)?;
        first.signal(Ok(()));
        assert!(!all.is_signaled());
        second.signal(Ok(()));
        // What tells it of the others is only there once somebody waits.
        assert!(resv
            .get()
            .fence(Usage::Read)?
            .is_none_or(|fence| fence.is_signaled()));
        Ok(())
    }

    #[test]
    fn work_without_a_fence_leaves_the_object_unlocked_and_idle() -> Result {
        let resv = Owned::new()?;
        assert!(resv.get().publish(Usage::Write, || None)?.is_none());
        assert!(resv.get().publish(Usage::Write, || None)?.is_none());
        assert!(resv.get().is_signaled(Usage::Bookkeep));
        Ok(())
    }

    #[test]
    fn signal_on_another_thread_ends_the_wait() -> Result {
        let resv = Arc::new(Owned::new()?, GFP_KERNEL)?;
        let queue = OwnedQueue::new(c"ochre-test", QueueFlags::UNBOUND)?;
        let fence = new_fence(1)?;
        resv.get()
            .publish(Usage::Write, || Some(fence.reference()))?;
        queue.try_spawn(GFP_KERNEL, move || fence.signal(Ok(())))?;
        assert_eq!(resv.get().wait(Usage::Write, None)?, WaitOutcome::Signaled);
        Ok(())
    }
}
