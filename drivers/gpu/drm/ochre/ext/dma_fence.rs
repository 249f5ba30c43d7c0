// SPDX-License-Identifier: GPL-2.0

//! Fences: "this work is done", across drivers.
//!
//! C header: [`include/linux/dma-fence.h`](srctree/include/linux/dma-fence.h)
//!
//! Two sides of one object:
//!
//! - [`Fence`] is the signalling side. It is made in two steps, because a fence that is published
//!   must signal in finite time and so nothing may fail between publication and the hardware's
//!   work: [`Fence::prealloc`] allocates and may fail, [`FenceSlot::init`] cannot. A `Fence` that
//!   is dropped signals with [`ECANCELED`], so no path can leave a waiter behind.
//! - [`DmaFence`] behind an [`ARef`] is anyone's view: ours and those of other drivers.
//!
//! A fence detaches from this module when it signals (its operations have neither `release` nor
//! `wait`), so that only unsignalled fences would pin the module; [`ModuleGuard`] closes the gap.
//!
//! [`ModuleGuard`]: super::ModuleGuard

use core::{
    cell::UnsafeCell,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::{
        self,
        NonNull, //
    },
};

use kernel::{
    alloc::Flags,
    bindings,
    ffi::{
        c_char,
        c_long, //
    },
    prelude::*,
    sync::aref::{
        ARef,
        AlwaysRefCounted, //
    },
    task::MAX_SCHEDULE_TIMEOUT,
    time::{
        Instant,
        Jiffies,
        Monotonic, //
    },
    types::Opaque, //
};

use super::{
    sys,
    timekeeping, //
};

mod callback;
mod demand;
mod unwrap;

use demand::Demand;

pub(crate) use self::{
    callback::{
        Armed,
        CallbackNode,
        FenceCallback, //
    },
    demand::WantSignal,
};

/// What a fence calls itself in traces and in `sync_file` information.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimelineName {
    /// The driver that signals it.
    pub(crate) driver: &'static CStr,
    /// The timeline that it is a point of.
    pub(crate) timeline: &'static CStr,
}

/// A counted reference to any fence.
pub(crate) type FenceRef = ARef<DmaFence>;

/// Any `struct dma_fence`, ours or of another driver.
///
/// # Invariants
///
/// `self.0` is an initialised fence with a non-zero reference count.
#[repr(transparent)]
pub(crate) struct DmaFence(Opaque<bindings::dma_fence>);

// SAFETY: A `struct dma_fence` may be used and released from any thread.
unsafe impl Send for DmaFence {}
// SAFETY: All functions of a `struct dma_fence` may run concurrently.
unsafe impl Sync for DmaFence {}

// SAFETY: `get` and `put` count references, and the memory is freed after an RCU grace period when
// the last one is gone.
unsafe impl AlwaysRefCounted for DmaFence {
    fn inc_ref(&self) {
        // SAFETY: By the type invariant the fence is valid and has a reference.
        unsafe { sys::ochre_dma_fence_get(self.as_raw()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller owns a reference and gives it up.
        unsafe { sys::ochre_dma_fence_put(obj.cast().as_ptr()) };
    }
}

/// What became of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FenceStatus {
    /// The work is not done yet.
    Pending,
    /// The work is done.
    Done,
    /// The work ended, but not as it should.
    Failed(Error),
}

/// How a wait ended, other than by a signal to the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// The fence is signalled.
    Signaled,
    /// The time was over first.
    TimedOut,
}

impl DmaFence {
    pub(super) fn as_raw(&self) -> *mut bindings::dma_fence {
        self.0.get()
    }

    /// Takes over a reference that C handed out.
    ///
    /// # Safety
    ///
    /// `ptr` is null or a valid fence of which the caller owns one reference.
    pub(super) unsafe fn from_owned(ptr: *mut bindings::dma_fence) -> Option<FenceRef> {
        let ptr = NonNull::new(ptr)?.cast();
        // SAFETY: By the contract of this function; `DmaFence` is a transparent wrapper.
        Some(unsafe { ARef::from_raw(ptr) })
    }

    /// Returns a fence that is signalled already.
    pub(crate) fn stub() -> Option<FenceRef> {
        // SAFETY: Returns a reference to a fence that always exists.
        unsafe { Self::from_owned(bindings::dma_fence_get_stub()) }
    }

    /// Whether the work is done, be it with an error.
    pub(crate) fn is_signaled(&self) -> bool {
        // SAFETY: By the type invariant.
        unsafe { sys::ochre_dma_fence_is_signaled(self.as_raw()) }
    }

    /// What became of the work. Of a point of a timeline: of the work that was submitted for it.
    pub(crate) fn status(&self) -> FenceStatus {
        // SAFETY: By the type invariant.
        match unsafe { sys::ochre_dma_fence_status(self.as_raw()) } {
            0 => FenceStatus::Pending,
            error if error < 0 => FenceStatus::Failed(Error::from_errno(error)),
            _ => FenceStatus::Done,
        }
    }

    /// The timeline of the fence: of two fences with one context, [`Self::seqno`] says which is
    /// later.
    pub(crate) fn context(&self) -> u64 {
        // SAFETY: By the type invariant; the field is constant after initialisation.
        unsafe { (*self.as_raw()).context }
    }

    /// The position on the timeline.
    pub(crate) fn seqno(&self) -> u64 {
        // SAFETY: By the type invariant; the field is constant after initialisation.
        unsafe { (*self.as_raw()).seqno }
    }

    /// When the fence was signalled, or [`None`] if it is not.
    pub(crate) fn timestamp(&self) -> Option<Instant<Monotonic>> {
        if !self.is_signaled() {
            return None;
        }
        // SAFETY: By the type invariant; the fence is signalled and we hold a reference, so its
        // timestamp is or will right away be set.
        let ktime = unsafe { sys::ochre_dma_fence_timestamp(self.as_raw()) };
        Some(timekeeping::instant_from_nanos(ktime))
    }

    /// Waits until the fence is signalled, at most `timeout` jiffies, for ever with [`None`].
    ///
    /// Returns [`ERESTARTSYS`] when the task got a signal. Sleeps: no lock that the fence's
    /// signaller needs may be held, nor a `drm_dev_enter()` section.
    pub(crate) fn wait_interruptible(&self, timeout: Option<Jiffies>) -> Result<WaitOutcome> {
        let limit = MAX_SCHEDULE_TIMEOUT;
        let timeout = timeout.map_or(limit, |t| c_long::try_from(t).unwrap_or(limit));
        // SAFETY: By the type invariant; `timeout` is not negative.
        match unsafe { bindings::dma_fence_wait_timeout(self.as_raw(), true, timeout) } {
            0 => Ok(WaitOutcome::TimedOut),
            left if left > 0 => Ok(WaitOutcome::Signaled),
            error => Err(i32::try_from(error).map_or(EINVAL, Error::from_errno)),
        }
    }
}

/// Reserves `count` timelines and returns the first; the others follow it.
pub(crate) fn context_alloc(count: u32) -> u64 {
    // SAFETY: An atomic addition. (The C function warns for 0, which reserves nothing.)
    unsafe { bindings::dma_fence_context_alloc(count.max(1)) }
}

/// Our fence as C sees it.
#[repr(C)]
struct Inner {
    /// At offset 0, since `dma_fence_free()` passes its address to `kfree_rcu()`.
    base: bindings::dma_fence,
    name: TimelineName,
    /// Who is told that somebody waits. Written before the fence is one and when it has been signalled,
    /// read in between.
    demand: UnsafeCell<Option<Demand>>,
}

const _: () = assert!(core::mem::offset_of!(Inner, base) == 0);

/// The operations of our fences.
struct Ops(bindings::dma_fence_ops);

// SAFETY: A table of function pointers that nobody writes.
unsafe impl Sync for Ops {}

static OPS: Ops = Ops(bindings::dma_fence_ops {
    get_driver_name: Some(driver_name),
    get_timeline_name: Some(timeline_name),
    enable_signaling: Some(demand::enable_signaling),
    signaled: None,
    wait: None,
    release: None,
    set_deadline: None,
});

/// # Safety
///
/// `fence` is a fence with [`OPS`].
unsafe extern "C" fn driver_name(fence: *mut bindings::dma_fence) -> *const c_char {
    // SAFETY: Only fences that `FenceSlot::init` made have `OPS`; they are `Inner` from offset 0
    // on.
    unsafe { (*fence.cast::<Inner>()).name.driver }.as_char_ptr()
}

/// # Safety
///
/// `fence` is a fence with [`OPS`].
unsafe extern "C" fn timeline_name(fence: *mut bindings::dma_fence) -> *const c_char {
    // SAFETY: As in `driver_name`.
    unsafe { (*fence.cast::<Inner>()).name.timeline }.as_char_ptr()
}

/// Memory for one fence that is not a fence yet.
pub(crate) struct FenceSlot(KBox<core::mem::MaybeUninit<Inner>>);

impl FenceSlot {
    /// Makes the fence number `seqno` of the timeline `context`. Cannot fail.
    ///
    /// It is signalled whether or not somebody waits for it.
    pub(crate) fn init(self, name: TimelineName, context: u64, seqno: u64) -> Fence {
        self.init_with(name, context, seqno, None)
    }

    fn init_with(
        self,
        name: TimelineName,
        context: u64,
        seqno: u64,
        demand: Option<Demand>,
    ) -> Fence {
        let inner = KBox::into_raw(self.0).cast::<Inner>();

        // SAFETY: `inner` is a live allocation of the right size that we own. A null lock selects
        // the lock inside the fence. `OPS` is static, and code that runs it under RCU ends before
        // the module goes (see `ModuleGuard`).
        unsafe {
            (&raw mut (*inner).name).write(name);
            (&raw mut (*inner).demand).write(UnsafeCell::new(demand));
            bindings::dma_fence_init64(
                &raw mut (*inner).base,
                &OPS.0,
                ptr::null_mut(),
                context,
                seqno,
            );
        }

        // SAFETY: Initialisation made one reference, which we take. From now on the memory belongs
        // to the count: `kfree_rcu()` frees what `Kmalloc` allocated. The pointer is not null.
        Fence(unsafe { ARef::from_raw(NonNull::new_unchecked(inner.cast())) })
    }
}

/// The right, and the duty, to signal one fence.
pub(crate) struct Fence(FenceRef);

impl Fence {
    /// Allocates what a fence needs.
    pub(crate) fn prealloc(flags: Flags) -> Result<FenceSlot> {
        Ok(FenceSlot(KBox::new_uninit(flags)?))
    }

    /// Returns a reference to hand out.
    pub(crate) fn reference(&self) -> FenceRef {
        self.0.clone()
    }

    /// Signals that the work ended now, in any context. Runs the callbacks of others.
    pub(crate) fn signal(self, result: Result) {
        self.signal_at(result, Instant::now());
    }

    /// As [`Self::signal`], for work that ended at `when`.
    pub(crate) fn signal_at(self, result: Result, when: Instant<Monotonic>) {
        let this = ManuallyDrop::new(self);
        this.finish(result, when);
        // SAFETY: `this` is not used or dropped after this, so the reference moves out.
        drop(unsafe { ptr::read(&this.0) });
    }

    /// The one place that signals; called once per fence.
    fn finish(&self, result: Result, when: Instant<Monotonic>) {
        if let Err(error) = result {
            // SAFETY: The fence is ours and not signalled: only `signal_at` and `drop` do that, and
            // each of them ends `self`. The error is a valid negative number by `Error`'s
            // invariant.
            unsafe { sys::ochre_dma_fence_set_error(self.0.as_raw(), error.to_errno()) };
        }
        // SAFETY: As above.
        unsafe {
            bindings::dma_fence_signal_timestamp(
                self.0.as_raw(),
                timekeeping::nanos_from_instant(when),
            )
        };
        let inner = self.0.as_raw().cast::<Inner>();
        // SAFETY: Our fences are `Inner`, and this is the only call for this one. Who reads the field
        // does so with the fence's lock held, if the fence is not signalled: signalling took the lock,
        // so nobody reads it any more.
        drop(unsafe { (*(*inner).demand.get()).take() });
    }
}

impl Deref for Fence {
    type Target = DmaFence;

    fn deref(&self) -> &DmaFence {
        &self.0
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.finish(Err(ECANCELED), Instant::now());
    }
}

/// The name of fences in tests.
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) const TEST_NAME: TimelineName = TimelineName {
    driver: c"ochre",
    timeline: c"test",
};

#[kunit_tests(ochre_ext_dma_fence)]
mod tests {
    use super::*;

    fn new_fence(seqno: u64) -> Result<Fence> {
        Ok(Fence::prealloc(GFP_KERNEL)?.init(TEST_NAME, context_alloc(1), seqno))
    }

    #[test]
    fn new_fence_is_pending_and_has_no_timestamp() -> Result {
        let fence = new_fence(7)?;
        assert_eq!(fence.status(), FenceStatus::Pending);
        assert!(!fence.is_signaled());
        assert!(fence.timestamp().is_none());
        assert_eq!(fence.seqno(), 7);
        Ok(())
    }

    #[test]
    fn signalled_fence_is_done_at_the_given_time() -> Result {
        let fence = new_fence(1)?;
        let seen = fence.reference();
        let when = Instant::now();
        fence.signal_at(Ok(()), when);
        assert_eq!(seen.status(), FenceStatus::Done);
        assert_eq!(
            seen.timestamp().map(timekeeping::nanos_from_instant),
            Some(timekeeping::nanos_from_instant(when))
        );
        Ok(())
    }

    #[test]
    fn error_reaches_whoever_holds_the_fence() -> Result {
        let fence = new_fence(1)?;
        let seen = fence.reference();
        fence.signal(Err(ETIMEDOUT));
        assert_eq!(seen.status(), FenceStatus::Failed(ETIMEDOUT));
        Ok(())
    }

    #[test]
    fn dropped_fence_is_signalled_as_cancelled() -> Result {
        let fence = new_fence(1)?;
        let seen = fence.reference();
        drop(fence);
        assert_eq!(seen.status(), FenceStatus::Failed(ECANCELED));
        Ok(())
    }

    #[test]
    fn unused_slot_frees_its_memory_without_becoming_a_fence() -> Result {
        drop(Fence::prealloc(GFP_KERNEL)?);
        Ok(())
    }

    #[test]
    fn wait_times_out_on_a_pending_fence_and_ends_on_a_signalled_one() -> Result {
        let fence = new_fence(1)?;
        let seen = fence.reference();
        assert_eq!(seen.wait_interruptible(Some(1))?, WaitOutcome::TimedOut);
        fence.signal(Ok(()));
        assert_eq!(seen.wait_interruptible(None)?, WaitOutcome::Signaled);
        Ok(())
    }

    #[test]
    fn stub_is_signalled() {
        assert!(DmaFence::stub().is_some_and(|fence| fence.is_signaled()));
    }
}
