// SPDX-License-Identifier: GPL-2.0

//! Work queues of a driver's own, and calling work back.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)
//!
//! `kernel::workqueue` offers the system's queues and no way to cancel. A driver that goes away has
//! to know that its work runs no more, and its submission must not queue behind other people's
//! work.

use core::{
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    prelude::*,
    sync::Arc,
    time::Jiffies,
    workqueue::{
        HasDelayedWork,
        HasWork,
        Queue,
        Work,
        WorkItem, //
    },
};

use super::sys;

/// Properties of an [`OwnedQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFlags(u32);

impl QueueFlags {
    /// Work may run on any CPU, and long. The base of all other flags.
    pub(crate) const UNBOUND: Self = Self(bindings::wq_flags_WQ_UNBOUND);
    /// One item at a time, in the order in which they were queued.
    pub(crate) const ORDERED: Self =
        Self(bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags___WQ_ORDERED);

    /// Work runs before that of normal queues.
    pub(crate) const fn high_priority(self) -> Self {
        Self(self.0 | bindings::wq_flags_WQ_HIGHPRI)
    }

    /// Work makes progress when memory is short: for work that others wait for to free memory, as
    /// they do for fences. It must not allocate with `GFP_KERNEL`.
    pub(crate) const fn for_reclaim(self) -> Self {
        Self(self.0 | bindings::wq_flags_WQ_MEM_RECLAIM)
    }
}

/// A work queue that ends with its owner.
///
/// Dropping it waits until all work that is on it has run. Delayed work whose time has not come is
/// not on it yet: cancel that first ([`cancel_delayed_sync`]).
///
/// # Invariants
///
/// The queue is valid and belongs to `self`.
pub(crate) struct OwnedQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: Work queues may be used and destroyed from any thread.
unsafe impl Send for OwnedQueue {}
// SAFETY: As above.
unsafe impl Sync for OwnedQueue {}

impl OwnedQueue {
    /// Creates a queue that appears as `name` in the list of kernel threads.
    pub(crate) fn new(name: &CStr, flags: QueueFlags) -> Result<Self> {
        let ordered = flags.0 & bindings::wq_flags___WQ_ORDERED != 0;
        // SAFETY: The name ends with NUL and is copied. 0 items at a time stands for the default.
        let raw =
            unsafe { sys::ochre_alloc_workqueue(name.as_char_ptr(), flags.0, i32::from(ordered)) };
        Ok(Self(NonNull::new(raw).ok_or(ENOMEM)?))
    }

    /// Waits until all work that is on the queue now has run.
    ///
    /// Not from its own work, nor with a lock held that the work takes.
    pub(crate) fn flush(&self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::__flush_workqueue(self.0.as_ptr()) };
    }
}

impl Deref for OwnedQueue {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        // SAFETY: By the type invariant, for as long as `self` is borrowed.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for OwnedQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. All enqueueing goes through a borrow of `self`.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}

/// Takes back the reference that the queue held for `item`.
fn release_queued<T>(item: &Arc<T>) {
    // SAFETY: Enqueueing an `Arc` turns one reference into a raw pointer, which the function of the
    // work turns back. The caller found that this function will not run for it.
    drop(unsafe { Arc::from_raw(Arc::as_ptr(item)) });
}

fn raw_work<T, const ID: u64>(item: &Arc<T>) -> *mut bindings::work_struct
where
    T: HasWork<T, ID>,
{
    // SAFETY: The pointer is to a live `T`; the field is reached without a reference to it.
    unsafe { Work::raw_get(T::raw_get_work(Arc::as_ptr(item).cast_mut())) }
}

/// Takes `item` off its queue, or waits until it has run.
///
/// Afterwards it is not on a queue and not running, unless somebody enqueues it again. Returns
/// whether it was taken off. Not from the item's own work, nor with a lock held that it takes.
pub(crate) fn cancel_sync<T, const ID: u64>(item: &Arc<T>) -> bool
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID>,
{
    // SAFETY: The work is initialised, as every `Work` is.
    let was_queued = unsafe { bindings::cancel_work_sync(raw_work(item)) };
    if was_queued {
        release_queued(item);
    }
    was_queued
}

/// As [`cancel_sync`], for delayed work: stops its timer too.
pub(crate) fn cancel_delayed_sync<T, const ID: u64>(item: &Arc<T>) -> bool
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID>,
{
    // SAFETY: `HasDelayedWork` says that the work is part of an initialised `delayed_work`.
    let was_queued = unsafe {
        bindings::cancel_delayed_work_sync(kernel::container_of!(
            raw_work(item),
            bindings::delayed_work,
            work
        ))
    };
    if was_queued {
        release_queued(item);
    }
    was_queued
}

/// Queues `item` to run in `delay` jiffies from now, whether or not it was queued for another time.
///
/// In any context but NMI.
pub(crate) fn enqueue_or_move<T, const ID: u64>(queue: &Queue, item: Arc<T>, delay: Jiffies)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID> + Send + Sync + 'static,
{
    // The reference that the queue will hold.
    let item = Arc::into_raw(item);
    // SAFETY: The pointer is to a live `T`, and `HasDelayedWork` as above.
    let was_queued = unsafe {
        let work = Work::raw_get(T::raw_get_work(item.cast_mut()));
        bindings::mod_delayed_work_on(
            // CAST: A number of CPUs, small.
            bindings::wq_misc_consts_WORK_CPU_UNBOUND as kernel::ffi::c_int,
            core::ptr::from_ref(queue).cast_mut().cast(),
            kernel::container_of!(work, bindings::delayed_work, work),
            delay,
        )
    };
    if was_queued {
        // SAFETY: The queue holds a reference from the first time; this one is ours still.
        drop(unsafe { Arc::from_raw(item) });
    }
}

#[kunit_tests(ochre_ext_workqueue)]
mod tests {
    use core::sync::atomic::{
        AtomicU32,
        Ordering, //
    };

    use kernel::{
        impl_has_delayed_work,
        impl_has_work,
        new_delayed_work,
        new_work,
        workqueue::DelayedWork, //
    };

    use super::*;

    #[pin_data]
    struct Counter {
        #[pin]
        now: Work<Counter, 0>,
        #[pin]
        later: DelayedWork<Counter, 1>,
        runs: AtomicU32,
    }

    impl_has_work! {
        impl HasWork<Self, 0> for Counter { self.now }
    }
    impl_has_delayed_work! {
        impl HasDelayedWork<Self, 1> for Counter { self.later }
    }

    impl WorkItem<0> for Counter {
        type Pointer = Arc<Self>;

        fn run(this: Arc<Self>) {
            this.runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl WorkItem<1> for Counter {
        type Pointer = Arc<Self>;

        fn run(this: Arc<Self>) {
            this.runs.fetch_add(100, Ordering::Relaxed);
        }
    }

    fn counter() -> Result<Arc<Counter>> {
        Arc::pin_init(
            pin_init!(Counter {
                now <- new_work!("ochre-test"),
                later <- new_delayed_work!("ochre-test-delayed"),
                runs: AtomicU32::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether nobody but the caller holds a reference.
    fn is_unique(item: Arc<Counter>) -> bool {
        Arc::into_unique_or_drop(item).is_some()
    }

    #[test]
    fn dropped_queue_has_run_its_work() -> Result {
        let item = counter()?;
        let queue = OwnedQueue::new(c"ochre-test", QueueFlags::ORDERED.for_reclaim())?;
        assert!(queue.enqueue::<_, 0>(item.clone()).is_ok());
        drop(queue);
        assert_eq!(item.runs.load(Ordering::Relaxed), 1);
        assert!(is_unique(item));
        Ok(())
    }

    #[test]
    fn flushed_queue_has_run_its_work() -> Result {
        let item = counter()?;
        let queue = OwnedQueue::new(c"ochre-test", QueueFlags::UNBOUND.high_priority())?;
        assert!(queue.enqueue::<_, 0>(item.clone()).is_ok());
        queue.flush();
        assert_eq!(item.runs.load(Ordering::Relaxed), 1);
        Ok(())
    }

    #[test]
    fn cancelled_delayed_work_gives_its_reference_back() -> Result {
        let item = counter()?;
        let queue = OwnedQueue::new(c"ochre-test", QueueFlags::UNBOUND)?;
        assert!(queue
            .enqueue_delayed::<_, 1>(item.clone(), 1_000_000)
            .is_ok());
        assert!(cancel_delayed_sync::<_, 1>(&item));
        assert!(!cancel_delayed_sync::<_, 1>(&item));
        assert_eq!(item.runs.load(Ordering::Relaxed), 0);
        assert!(is_unique(item));
        Ok(())
    }

    #[test]
    fn work_that_is_not_queued_has_nothing_to_cancel() -> Result {
        let item = counter()?;
        assert!(!cancel_sync::<_, 0>(&item));
        assert!(is_unique(item));
        Ok(())
    }

    #[test]
    fn moved_work_runs_once_at_its_new_time() -> Result {
        let item = counter()?;
        let queue = OwnedQueue::new(c"ochre-test", QueueFlags::UNBOUND)?;
        enqueue_or_move::<_, 1>(&queue, item.clone(), 1_000_000);
        enqueue_or_move::<_, 1>(&queue, item.clone(), 0);
        queue.flush();
        assert_eq!(item.runs.load(Ordering::Relaxed), 100);
        assert!(!cancel_delayed_sync::<_, 1>(&item));
        drop(queue);
        assert!(is_unique(item));
        Ok(())
    }
}
