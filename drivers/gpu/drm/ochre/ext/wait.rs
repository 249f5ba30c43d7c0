// SPDX-License-Identifier: GPL-2.0

//! Waiting for a condition that no lock guards.
//!
//! C header: [`include/linux/wait.h`](srctree/include/linux/wait.h)
//!
//! [`kernel::sync::CondVar`] waits with a lock held. Completion of GPU work is announced by an
//! atomic that an interrupt handler or a callback under a foreign spinlock sets, hence this.

use core::ptr;

use kernel::{
    bindings,
    ffi::{
        c_int,
        c_long, //
    },
    prelude::*,
    sync::LockClassKey,
    task::{
        MAX_SCHEDULE_TIMEOUT,
        TASK_INTERRUPTIBLE,
        TASK_NORMAL,
        TASK_UNINTERRUPTIBLE, //
    },
    time::Jiffies,
    types::Opaque, //
};

/// Tasks that wait until something they look at changes.
#[pin_data]
pub(crate) struct WaitQueue {
    #[pin]
    head: Opaque<bindings::wait_queue_head>,
}

// SAFETY: A wait queue has a lock of its own and may be used from any thread.
unsafe impl Send for WaitQueue {}
// SAFETY: As above.
unsafe impl Sync for WaitQueue {}

impl WaitQueue {
    /// Returns an initialiser; [`new_wait_queue!`] fills in the arguments.
    pub(crate) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            head <- Opaque::ffi_init(|head| {
                // SAFETY: `head` is valid for writing, name and key are static.
                unsafe {
                    bindings::__init_waitqueue_head(head, name.as_char_ptr(), key.as_ptr())
                }
            }),
        })
    }

    /// Makes all waiting tasks look again. In any context.
    ///
    /// The change that they look for has to be made before the call.
    pub(crate) fn wake_all(&self) {
        // SAFETY: `self.head` is initialised.
        unsafe { bindings::__wake_up(self.head.get(), TASK_NORMAL, 0, ptr::null_mut()) };
    }

    /// Waits until `condition` holds, at most `timeout` jiffies, for ever with [`None`].
    ///
    /// Returns whether `condition` held, and [`ERESTARTSYS`] when the task got a signal first.
    /// `condition` is called several times and must not sleep.
    pub(crate) fn wait_interruptible(
        &self,
        timeout: Option<Jiffies>,
        condition: impl FnMut() -> bool,
    ) -> Result<bool> {
        self.wait(TASK_INTERRUPTIBLE, timeout, condition)
    }

    /// As [`Self::wait_interruptible`], whatever signals come, at most `timeout` jiffies: for the way
    /// down, where nothing else can be done.
    pub(crate) fn wait_uninterruptible(
        &self,
        timeout: Jiffies,
        condition: impl FnMut() -> bool,
    ) -> bool {
        let held = self.wait(TASK_UNINTERRUPTIBLE, Some(timeout), condition);
        held.unwrap_or(false)
    }

    fn wait(
        &self,
        state: c_int,
        timeout: Option<Jiffies>,
        mut condition: impl FnMut() -> bool,
    ) -> Result<bool> {
        let limit = MAX_SCHEDULE_TIMEOUT;
        let mut left = timeout.map_or(limit, |t| c_long::try_from(t).unwrap_or(limit));

        let entry = Opaque::<bindings::wait_queue_entry>::uninit();
        // SAFETY: `entry` is valid for writing. It stays in place until `finish_wait` below.
        unsafe { bindings::init_wait_entry(entry.get(), 0) };

        let outcome = loop {
            // SAFETY: Head and entry are initialised.
            let interrupted =
                unsafe { bindings::prepare_to_wait_event(self.head.get(), entry.get(), state) };
            // The entry is queued before the condition is looked at: a change that comes after the
            // look wakes us.
            if condition() {
                break Ok(true);
            }
            if interrupted != 0 {
                break Err(ERESTARTSYS);
            }
            if left == 0 {
                break Ok(false);
            }
            // SAFETY: The task state is set, `left` is not negative.
            left = unsafe { bindings::schedule_timeout(left) };
        };

        // SAFETY: The entry is initialised; afterwards it is on no list.
        unsafe { bindings::finish_wait(self.head.get(), entry.get()) };
        outcome
    }
}

/// Creates a [`WaitQueue`] initialiser with a lock class of its own.
macro_rules! new_wait_queue {
    ($name:literal) => {
        $crate::ext::wait::WaitQueue::new(::kernel::c_str!($name), ::kernel::static_lock_class!())
    };
}
pub(crate) use new_wait_queue;

#[kunit_tests(ochre_ext_wait)]
mod tests {
    use core::sync::atomic::{
        AtomicBool,
        Ordering, //
    };

    use kernel::{
        sync::Arc,
        workqueue, //
    };

    use super::*;

    #[pin_data]
    struct Shared {
        #[pin]
        queue: WaitQueue,
        done: AtomicBool,
    }

    fn shared() -> Result<Arc<Shared>> {
        Arc::pin_init(
            pin_init!(Shared {
                queue <- new_wait_queue!("ochre-test"),
                done: AtomicBool::new(false),
            }),
            GFP_KERNEL,
        )
    }

    #[test]
    fn condition_that_holds_does_not_wait() -> Result {
        assert!(shared()?.queue.wait_interruptible(Some(0), || true)?);
        Ok(())
    }

    #[test]
    fn condition_that_never_holds_times_out() -> Result {
        assert!(!shared()?.queue.wait_interruptible(Some(1), || false)?);
        assert!(!shared()?.queue.wait_uninterruptible(1, || false));
        assert!(shared()?.queue.wait_uninterruptible(0, || true));
        Ok(())
    }

    #[test]
    fn waker_on_another_thread_ends_the_wait() -> Result {
        let shared = shared()?;
        let waker = shared.clone();
        workqueue::system().try_spawn(GFP_KERNEL, move || {
            waker.done.store(true, Ordering::Release);
            waker.queue.wake_all();
        })?;
        assert!(shared
            .queue
            .wait_interruptible(None, || shared.done.load(Ordering::Acquire))?);
        Ok(())
    }
}
