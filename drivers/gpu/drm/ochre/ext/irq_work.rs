// SPDX-License-Identifier: GPL-2.0

//! Work that is done as soon as interrupts are on again.
//!
//! C header: [`include/linux/irq_work.h`](srctree/include/linux/irq_work.h)
//!
//! For what must not be done where it is found out, because of a lock that is held there, and cannot
//! wait for a thread.

use core::ops::Deref;

use kernel::{
    bindings,
    prelude::*,
    types::Opaque, //
};

/// What an [`IrqWork`] does.
pub(crate) trait Run: Send + Sync {
    /// Does it, in a hard interrupt, with no other lock held than what that interrupted.
    fn run(&self);
}

/// One piece of work, which is pending or not.
///
/// # Invariants
///
/// It is pinned, since it can only be made in place.
#[pin_data(PinnedDrop)]
pub(crate) struct IrqWork<T: Run> {
    #[pin]
    work: Opaque<bindings::irq_work>,
    inner: T,
}

// SAFETY: `work` is meant to be queued from anywhere, `inner` is `Send`.
unsafe impl<T: Run> Send for IrqWork<T> {}
// SAFETY: As above; `inner` is `Sync`.
unsafe impl<T: Run> Sync for IrqWork<T> {}

impl<T: Run> IrqWork<T> {
    /// Returns an initialiser for work that is not pending.
    pub(crate) fn new(inner: T) -> impl PinInit<Self> {
        let work = bindings::irq_work {
            func: Some(Self::trampoline),
            ..Default::default()
        };
        pin_init!(Self {
            work: Opaque::new(work),
            inner,
        })
    }

    /// Makes it run soon, once, on this CPU. In any context. Returns `false` if it was pending.
    pub(crate) fn queue(&self) -> bool {
        // SAFETY: The work is initialised and pinned; its drop waits until it is not used any more.
        unsafe { bindings::irq_work_queue(self.work.get()) }
    }

    /// Waits until it is neither pending nor running. Sleeps.
    pub(crate) fn sync(&self) {
        // SAFETY: The work is initialised and pinned.
        unsafe { bindings::irq_work_sync(self.work.get()) };
    }

    /// # Safety
    ///
    /// `work` is part of a `Self` that was queued.
    unsafe extern "C" fn trampoline(work: *mut bindings::irq_work) {
        // SAFETY: By the contract of this function. The drop of `Self` waits for the end of this.
        let this = unsafe { &*kernel::container_of!(Opaque::cast_from(work), Self, work) };
        this.inner.run();
    }
}

impl<T: Run> Deref for IrqWork<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

#[pinned_drop]
impl<T: Run> PinnedDrop for IrqWork<T> {
    fn drop(self: Pin<&mut Self>) {
        self.sync();
    }
}

#[kunit_tests(ochre_ext_irq_work)]
mod tests {
    use kernel::sync::atomic::{
        Atomic,
        Relaxed, //
    };

    use super::*;

    struct Counter(Atomic<u32>);

    impl Run for Counter {
        fn run(&self) {
            self.0.add(1, Relaxed);
        }
    }

    #[test]
    fn work_runs_when_interrupts_are_on_and_once_for_each_time_it_was_queued() -> Result {
        let counter = Counter(Atomic::new(0));
        let work = KBox::pin_init(IrqWork::new(counter), GFP_KERNEL)?;
        for count in 1..=3 {
            let off = kernel::interrupt::local_interrupt_disable();
            assert!(work.queue());
            assert!(!work.queue());
            assert_eq!(work.0.load(Relaxed), count - 1);
            drop(off);
            // SAFETY: The work is initialised.
            unsafe { bindings::irq_work_sync(work.work.get()) };
            assert_eq!(work.0.load(Relaxed), count);
        }
        Ok(())
    }
}
