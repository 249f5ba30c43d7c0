// SPDX-License-Identifier: GPL-2.0

//! Being told when a fence is signalled.
//!
//! C header: [`include/linux/dma-fence.h`](srctree/include/linux/dma-fence.h)

use core::ops::Deref;

use kernel::{
    bindings,
    prelude::*,
    types::Opaque, //
};

use super::{
    DmaFence,
    FenceRef, //
};

/// What to do when a fence of a [`CallbackNode`] is signalled.
pub(crate) trait FenceCallback: Send + Sync {
    /// Called once, with interrupts off and `fence`'s lock held, from whoever signals.
    ///
    /// So: atomics, waking, queueing work. No sleeping, no call on `fence` that takes its lock
    /// (only [`DmaFence::context`] and [`DmaFence::seqno`] do not), no signalling of another fence,
    /// whose lock is of the same class, and no drop of a [`CallbackNode`].
    fn signaled(&self, fence: &DmaFence);
}

/// Room for one callback on one fence at a time, so that adding it cannot fail.
#[pin_data(PinnedDrop)]
pub(crate) struct CallbackNode<T: FenceCallback> {
    #[pin]
    cb: Opaque<bindings::dma_fence_cb>,
    /// The fence that `cb` was added to.
    fence: Option<FenceRef>,
    inner: T,
}

// SAFETY: `cb` is guarded by the fence's lock, the rest is `Send`.
unsafe impl<T: FenceCallback> Send for CallbackNode<T> {}
// SAFETY: A shared node gives access to `T` and to the fence, which are `Sync`.
unsafe impl<T: FenceCallback> Sync for CallbackNode<T> {}

/// Whether [`CallbackNode::arm`] left something to wait for.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Armed {
    /// The callback will be, or was already, called.
    Pending,
    /// The fence was signalled before: the callback is not called.
    AlreadySignaled,
}

impl<T: FenceCallback> CallbackNode<T> {
    /// Returns an initialiser for a node that is on no fence.
    pub(crate) fn new(inner: T) -> impl PinInit<Self> {
        pin_init!(Self {
            cb: Opaque::uninit(),
            fence: None,
            inner,
        })
    }

    /// Asks for [`FenceCallback::signaled`] when `fence` is signalled.
    ///
    /// A node that is on another fence leaves it first.
    pub(crate) fn arm(mut self: Pin<&mut Self>, fence: FenceRef) -> Armed {
        self.as_mut().disarm();

        let this = self.project();
        // SAFETY: `cb` is pinned and on no list. It stays valid until `disarm`, which drop calls
        // too. `fence` is held for as long in `this.fence`.
        let ret = unsafe {
            bindings::dma_fence_add_callback(fence.as_raw(), this.cb.get(), Some(Self::trampoline))
        };
        if ret != 0 {
            return Armed::AlreadySignaled;
        }
        *this.fence = Some(fence);
        Armed::Pending
    }

    /// Takes the callback off its fence, which is returned.
    ///
    /// Afterwards the callback does not run and will not run: if it is running on another CPU, this
    /// waits for it, since both hold the fence's lock.
    pub(crate) fn disarm(self: Pin<&mut Self>) -> Option<FenceRef> {
        let this = self.project();
        let fence = this.fence.take()?;
        // SAFETY: `cb` was added to this fence by `arm`. The function does nothing if the callback
        // ran already.
        unsafe { bindings::dma_fence_remove_callback(fence.as_raw(), this.cb.get()) };
        Some(fence)
    }

    /// The fence that the node is on.
    pub(crate) fn fence(&self) -> Option<&DmaFence> {
        self.fence.as_deref()
    }

    /// # Safety
    ///
    /// `cb` is the callback of a node that [`Self::arm`] put on `fence`, whose lock is held.
    unsafe extern "C" fn trampoline(
        fence: *mut bindings::dma_fence,
        cb: *mut bindings::dma_fence_cb,
    ) {
        // SAFETY: `cb` is inside a `Self` that `arm` added; it lives until after this call, as the
        // lock that this runs under is taken by `disarm`. Only its shared parts are used.
        //
        // The node may be borrowed mutably by `arm`, which has not stored the fence yet, or by
        // `disarm`; so take a reference to `inner` alone, which neither of them touches.
        let inner = unsafe {
            let this = kernel::container_of!(Opaque::cast_from(cb), Self, cb);
            &(*this).inner
        };
        // SAFETY: The caller holds a reference for the time of the call.
        inner.signaled(unsafe { &*fence.cast::<DmaFence>() });
    }
}

impl<T: FenceCallback> Deref for CallbackNode<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

#[pinned_drop]
impl<T: FenceCallback> PinnedDrop for CallbackNode<T> {
    fn drop(self: Pin<&mut Self>) {
        self.disarm();
    }
}

#[kunit_tests(ochre_ext_dma_fence_callback)]
mod tests {
    use core::sync::atomic::{
        AtomicU32,
        Ordering, //
    };

    use kernel::sync::Arc;

    use super::{
        super::{
            context_alloc,
            Fence,
            TEST_NAME, //
        },
        *,
    };
    use crate::ext::workqueue::{
        OwnedQueue,
        QueueFlags, //
    };

    fn new_fence(seqno: u64) -> Result<Fence> {
        Ok(Fence::prealloc(GFP_KERNEL)?.init(TEST_NAME, context_alloc(1), seqno))
    }

    struct Count(Arc<AtomicU32>);

    impl FenceCallback for Count {
        fn signaled(&self, _fence: &DmaFence) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    type CountingNode = Pin<KBox<CallbackNode<Count>>>;

    fn counting_node() -> Result<(CountingNode, Arc<AtomicU32>)> {
        let calls = Arc::new(AtomicU32::new(0), GFP_KERNEL)?;
        let node = KBox::pin_init(CallbackNode::new(Count(calls.clone())), GFP_KERNEL)?;
        Ok((node, calls))
    }

    #[test]
    fn callback_runs_once_when_the_fence_is_signalled() -> Result {
        let (mut node, calls) = counting_node()?;
        let fence = new_fence(1)?;
        assert_eq!(node.as_mut().arm(fence.reference()), Armed::Pending);
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        fence.signal(Ok(()));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        Ok(())
    }

    #[test]
    fn signalled_fence_does_not_call_back() -> Result {
        let (mut node, calls) = counting_node()?;
        let fence = new_fence(1)?;
        let seen = fence.reference();
        fence.signal(Ok(()));
        assert_eq!(node.as_mut().arm(seen), Armed::AlreadySignaled);
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        Ok(())
    }

    #[test]
    fn disarmed_and_dropped_nodes_are_not_called() -> Result {
        let (mut disarmed, calls) = counting_node()?;
        let (mut dropped, more_calls) = counting_node()?;
        let fence = new_fence(3)?;
        assert_eq!(disarmed.as_mut().arm(fence.reference()), Armed::Pending);
        assert_eq!(dropped.as_mut().arm(fence.reference()), Armed::Pending);
        assert_eq!(disarmed.as_mut().disarm().map(|f| f.seqno()), Some(3));
        drop(dropped);
        fence.signal(Ok(()));
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        assert_eq!(more_calls.load(Ordering::Relaxed), 0);
        Ok(())
    }

    #[test]
    fn disarmed_node_is_not_called_by_a_signal_on_another_cpu() -> Result {
        let queue = OwnedQueue::new(c"ochre-test", QueueFlags::UNBOUND)?;
        for seqno in 0..200 {
            let (mut node, calls) = counting_node()?;
            let fence = new_fence(seqno)?;
            let _ = node.as_mut().arm(fence.reference());
            queue.try_spawn(GFP_KERNEL, move || fence.signal(Ok(())))?;
            node.as_mut().disarm();
            let before = calls.load(Ordering::Relaxed);
            queue.flush();
            assert_eq!(calls.load(Ordering::Relaxed), before);
        }
        Ok(())
    }

    #[test]
    fn node_moves_from_one_fence_to_the_next() -> Result {
        let (mut node, calls) = counting_node()?;
        let first = new_fence(1)?;
        let second = new_fence(2)?;
        assert_eq!(node.as_mut().arm(first.reference()), Armed::Pending);
        assert_eq!(node.as_mut().arm(second.reference()), Armed::Pending);
        first.signal(Ok(()));
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        second.signal(Ok(()));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        Ok(())
    }
}
