// SPDX-License-Identifier: GPL-2.0

//! Sync objects: how user space names fences.
//!
//! C header: [`include/drm/drm_syncobj.h`](srctree/include/drm/drm_syncobj.h)
//!
//! A binary sync object holds one fence, a timeline one a chain of them by point. An ioctl looks up
//! and allocates first ([`Syncobj::lookup`], [`ChainNode::new`]) and publishes when nothing can
//! fail any more ([`Syncobj::replace_fence`], [`Syncobj::add_point`]).

use core::{
    mem::ManuallyDrop,
    ptr::{
        self,
        NonNull, //
    },
};

use kernel::{
    bindings,
    drm,
    error::to_result,
    prelude::*,
    sync::aref::{
        ARef,
        AlwaysRefCounted, //
    },
    types::Opaque, //
};

use super::{
    dma_fence::{
        DmaFence,
        FenceRef, //
    },
    sys, //
};

/// A `struct drm_syncobj`.
///
/// # Invariants
///
/// `self.0` is initialised and has a non-zero reference count.
#[repr(transparent)]
pub(crate) struct Syncobj(Opaque<sys::drm_syncobj>);

// SAFETY: Sync objects may be used and released from any thread.
unsafe impl Send for Syncobj {}
// SAFETY: All functions of a sync object may run concurrently.
unsafe impl Sync for Syncobj {}

// SAFETY: `get` and `put` count references and free at zero.
unsafe impl AlwaysRefCounted for Syncobj {
    fn inc_ref(&self) {
        // SAFETY: By the type invariant.
        unsafe { sys::ochre_drm_syncobj_get(self.as_raw()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller owns a reference and gives it up.
        unsafe { sys::ochre_drm_syncobj_put(obj.cast().as_ptr()) };
    }
}

impl Syncobj {
    fn as_raw(&self) -> *mut sys::drm_syncobj {
        self.0.get()
    }

    /// Creates a sync object that holds `fence`.
    pub(crate) fn create(fence: Option<&DmaFence>) -> Result<ARef<Self>> {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is valid for writing, the fence is valid or null.
        to_result(unsafe {
            sys::drm_syncobj_create(&mut raw, 0, fence.map_or(ptr::null_mut(), DmaFence::as_raw))
        })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: Success made one reference, which we take.
        Ok(unsafe { ARef::from_raw(raw.cast()) })
    }

    /// Looks a handle of `file` up. Returns [`ENOENT`] when there is none.
    pub(crate) fn lookup<F: drm::file::DriverFile>(
        file: &drm::File<F>,
        handle: u32,
    ) -> Result<ARef<Self>> {
        // SAFETY: `drm::File` is a transparent wrapper of an open `drm_file`.
        let raw = unsafe { sys::drm_syncobj_find(ptr::from_ref(file).cast_mut().cast(), handle) };
        let raw = NonNull::new(raw).ok_or(ENOENT)?;
        // SAFETY: The look-up took one reference for us.
        Ok(unsafe { ARef::from_raw(raw.cast()) })
    }

    /// Creates a handle of `file` for the object.
    pub(crate) fn create_handle<F: drm::file::DriverFile>(
        &self,
        file: &drm::File<F>,
    ) -> Result<u32> {
        let mut handle = 0;
        // SAFETY: `drm::File` is a transparent wrapper of an open `drm_file`; the rest is valid.
        to_result(unsafe {
            sys::drm_syncobj_get_handle(
                ptr::from_ref(file).cast_mut().cast(),
                self.as_raw(),
                &mut handle,
            )
        })?;
        Ok(handle)
    }

    /// The fence that the object holds now: of a timeline, the newest link of its chain.
    pub(crate) fn fence(&self) -> Option<FenceRef> {
        // SAFETY: By the type invariant; the result is null or a reference that is ours.
        unsafe { DmaFence::from_owned(sys::ochre_drm_syncobj_fence_get(self.as_raw())) }
    }

    /// The fence to wait for so that `point` is reached; 0 for a binary object.
    ///
    /// Returns [`EINVAL`] when nobody has submitted work for that point yet. Never waits for that.
    pub(crate) fn find_fence(&self, point: u64) -> Result<FenceRef> {
        let fence = self.fence().ok_or(EINVAL)?;
        let mut raw = ARef::into_raw(fence).cast::<bindings::dma_fence>().as_ptr();
        // SAFETY: `raw` is a fence and the reference to it is ours. On success the function
        // replaced both by those of the link found, which is null if it is signalled already.
        let ret = unsafe { sys::dma_fence_chain_find_seqno(&mut raw, point) };
        // SAFETY: As said. On failure `raw` is still what it was.
        let found = unsafe { DmaFence::from_owned(raw) };
        to_result(ret)?;
        match found {
            Some(fence) => Ok(fence),
            None => DmaFence::stub().ok_or(ENOMEM),
        }
    }

    /// Makes the object hold `fence`, or nothing. Wakes who waits for a submission.
    pub(crate) fn replace_fence(&self, fence: Option<&DmaFence>) {
        // SAFETY: By the type invariant; the function takes its own reference to the fence.
        unsafe {
            sys::drm_syncobj_replace_fence(
                self.as_raw(),
                fence.map_or(ptr::null_mut(), DmaFence::as_raw),
            )
        };
    }

    /// Appends `fence` as `point` to the timeline. Wakes who waits for a submission.
    ///
    /// A point that is not above the last one is accepted by the C side, which then cannot tell
    /// when the points between are reached; callers refuse it where their ABI says so.
    pub(crate) fn add_point(&self, node: ChainNode, fence: &DmaFence, point: u64) {
        let node = ManuallyDrop::new(node);
        // SAFETY: By the type invariant. The node is fresh and now belongs to the chain; the
        // function takes its own reference to the fence.
        unsafe {
            sys::drm_syncobj_add_point(self.as_raw(), node.0.as_ptr(), fence.as_raw(), point)
        };
    }
}

/// Memory for one point of a timeline.
pub(crate) struct ChainNode(NonNull<sys::dma_fence_chain>);

// SAFETY: Memory that only its owner knows.
unsafe impl Send for ChainNode {}
// SAFETY: A shared node offers nothing.
unsafe impl Sync for ChainNode {}

impl ChainNode {
    /// Allocates the node. Sleeps.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: Allocates.
        let raw = unsafe { sys::ochre_dma_fence_chain_alloc() };
        Ok(Self(NonNull::new(raw).ok_or(ENOMEM)?))
    }
}

impl Drop for ChainNode {
    fn drop(&mut self) {
        // SAFETY: The node was allocated by `new` and not used, else it would not be dropped.
        unsafe { sys::ochre_dma_fence_chain_free(self.0.as_ptr()) };
    }
}

#[kunit_tests(ochre_ext_syncobj)]
mod tests {
    use super::{
        super::dma_fence::{
            context_alloc,
            Fence,
            FenceStatus,
            TEST_NAME, //
        },
        *,
    };

    fn new_fence(seqno: u64) -> Result<Fence> {
        Ok(Fence::prealloc(GFP_KERNEL)?.init(TEST_NAME, context_alloc(1), seqno))
    }

    #[test]
    fn empty_object_has_no_fence_to_wait_for() -> Result {
        let object = Syncobj::create(None)?;
        assert!(object.fence().is_none());
        assert_eq!(object.find_fence(0).err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn binary_object_gives_the_fence_it_holds() -> Result {
        let fence = new_fence(5)?;
        let object = Syncobj::create(None)?;
        object.replace_fence(Some(&fence));
        assert_eq!(object.find_fence(0)?.context(), fence.context());
        object.replace_fence(None);
        assert!(object.fence().is_none());
        Ok(())
    }

    #[test]
    fn object_keeps_its_fence_alive_and_shows_its_error() -> Result {
        let object = Syncobj::create(Some(&*new_fence(5)?))?;
        let fence = object.find_fence(0)?;
        assert_eq!(fence.status(), FenceStatus::Failed(ECANCELED));
        Ok(())
    }

    #[test]
    fn timeline_point_is_reached_when_its_fence_is() -> Result {
        let object = Syncobj::create(None)?;
        let first = new_fence(1)?;
        let second = new_fence(2)?;
        object.add_point(ChainNode::new()?, &first, 10);
        object.add_point(ChainNode::new()?, &second, 20);

        // A point that was never submitted.
        assert_eq!(object.find_fence(21).err(), Some(EINVAL));
        let at_ten = object.find_fence(10)?;
        let at_fifteen = object.find_fence(15)?;
        first.signal(Ok(()));
        assert!(at_ten.is_signaled());
        assert!(!at_fifteen.is_signaled());
        // What lies behind the signalled part is reached.
        assert!(object.find_fence(3)?.is_signaled());
        second.signal(Ok(()));
        assert!(object.find_fence(20)?.is_signaled());
        Ok(())
    }

    #[test]
    fn unused_node_is_freed() -> Result {
        drop(ChainNode::new()?);
        Ok(())
    }
}
