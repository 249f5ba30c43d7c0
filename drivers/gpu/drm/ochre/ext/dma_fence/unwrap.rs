// SPDX-License-Identifier: GPL-2.0

//! Fences that stand for several: arrays and chains.
//!
//! C header: [`include/linux/dma-fence-unwrap.h`](srctree/include/linux/dma-fence-unwrap.h)

use kernel::{
    bindings,
    prelude::*,
    types::Opaque, //
};

use super::DmaFence;
use crate::ext::sys;

/// Where an iteration is.
///
/// # Invariants
///
/// `chain` of the structure is null or a fence of which the structure owns a reference.
struct Cursor(Opaque<sys::dma_fence_unwrap>);

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, and nobody else has the structure. The function accepts
        // null.
        unsafe { sys::ochre_dma_fence_put((*self.0.get()).chain) };
    }
}

impl DmaFence {
    /// Calls `f` for each fence that this one stands for, which is itself if it is neither array nor
    /// chain, until one call fails.
    ///
    /// Parts that are signalled may be left out. May be called in any context in which `f` may.
    pub(crate) fn try_for_each(&self, mut f: impl FnMut(&DmaFence) -> Result) -> Result {
        // INVARIANT: `chain` is null.
        let cursor = Cursor(Opaque::zeroed());
        // SAFETY: The fence and the cursor are valid. The function takes a reference of its own to
        // the fence, into `chain`.
        let mut fence = unsafe { sys::dma_fence_unwrap_first(self.as_raw(), cursor.0.get()) };
        while !fence.is_null() {
            // SAFETY: The fence is, or is part of, what the cursor has a reference to, and stays so
            // until the cursor moves.
            f(unsafe { &*fence.cast::<DmaFence>() })?;
            // SAFETY: The cursor was set by `dma_fence_unwrap_first()`. When it moves from one link of
            // a chain to the next, it gives up the one and takes a reference to the other.
            fence = unsafe { sys::dma_fence_unwrap_next(cursor.0.get()) };
        }
        Ok(())
    }

    /// Whether each fence that this one stands for is a point of the timeline `context`, so that work
    /// on that timeline comes after it without a wait.
    pub(crate) fn is_all_of(&self, context: u64) -> bool {
        self.try_for_each(|fence| {
            if fence.context() == context {
                Ok(())
            } else {
                Err(EINVAL)
            }
        })
        .is_ok()
    }
}

#[kunit_tests(ochre_ext_dma_fence_unwrap)]
mod tests {
    use super::{
        super::{
            context_alloc,
            Fence,
            FenceRef,
            TEST_NAME, //
        },
        *,
    };
    use crate::ext::syncobj::{
        ChainNode,
        Syncobj, //
    };

    fn new_fence(context: u64, seqno: u64) -> Result<Fence> {
        Ok(Fence::prealloc(GFP_KERNEL)?.init(TEST_NAME, context, seqno))
    }

    /// An array of two fences.
    fn array(first: &DmaFence, second: &DmaFence) -> Result<FenceRef> {
        let mut fences = [first.as_raw(), second.as_raw()];
        let mut cursors: [Opaque<sys::dma_fence_unwrap>; 2] = [Opaque::zeroed(), Opaque::zeroed()];
        // SAFETY: Both arrays have two elements; the function takes its own references.
        let merged = unsafe {
            sys::__dma_fence_unwrap_merge(2, fences.as_mut_ptr(), cursors.as_mut_ptr().cast())
        };
        // SAFETY: The result is null or a fence with a reference for us.
        unsafe { DmaFence::from_owned(merged) }.ok_or(ENOMEM)
    }

    /// A chain of two fences.
    fn chain(first: &DmaFence, second: &DmaFence) -> Result<FenceRef> {
        let object = Syncobj::create(None)?;
        object.add_point(ChainNode::new()?, first, 10);
        object.add_point(ChainNode::new()?, second, 20);
        object.find_fence(20)
    }

    /// The sequence numbers of the parts of `fence`, ascending.
    fn parts(fence: &DmaFence) -> Result<KVec<u64>> {
        let mut seqnos = KVec::new();
        fence.try_for_each(|part| Ok(seqnos.push(part.seqno(), GFP_KERNEL)?))?;
        seqnos.sort_unstable();
        Ok(seqnos)
    }

    #[test]
    fn plain_fence_stands_for_itself() -> Result {
        let fence = new_fence(context_alloc(1), 7)?;
        assert_eq!(parts(&fence)?.as_slice(), &[7]);
        assert!(fence.is_all_of(fence.context()));
        assert!(!fence.is_all_of(fence.context() + 1));
        Ok(())
    }

    #[test]
    fn array_and_chain_stand_for_their_parts() -> Result {
        let context = context_alloc(2);
        let first = new_fence(context, 1)?;
        let second = new_fence(context + 1, 2)?;
        assert_eq!(parts(&*array(&first, &second)?)?.as_slice(), &[1, 2]);
        assert_eq!(parts(&*chain(&first, &second)?)?.as_slice(), &[1, 2]);
        Ok(())
    }

    #[test]
    fn chain_of_arrays_stands_for_all_their_parts() -> Result {
        let context = context_alloc(3);
        let fences = [
            new_fence(context, 1)?,
            new_fence(context + 1, 2)?,
            new_fence(context + 2, 3)?,
        ];
        let nested = chain(&*array(&fences[0], &fences[1])?, &fences[2])?;
        assert_eq!(parts(&nested)?.as_slice(), &[1, 2, 3]);
        Ok(())
    }

    #[test]
    fn one_foreign_part_makes_the_whole_foreign() -> Result {
        let context = context_alloc(2);
        let own = [new_fence(context, 1)?, new_fence(context, 2)?];
        let foreign = new_fence(context + 1, 3)?;
        assert!(chain(&own[0], &own[1])?.is_all_of(context));
        assert!(!array(&own[0], &foreign)?.is_all_of(context));
        assert!(!chain(&foreign, &own[1])?.is_all_of(context));
        Ok(())
    }

    #[test]
    fn error_ends_the_iteration_and_the_container_lives_on() -> Result {
        let context = context_alloc(2);
        let first = new_fence(context, 1)?;
        let second = new_fence(context + 1, 2)?;
        let container = chain(&first, &second)?;
        let mut calls = 0;
        let result = container.try_for_each(|_| {
            calls += 1;
            Err(EINTR)
        });
        assert_eq!(result, Err(EINTR));
        assert_eq!(calls, 1);
        assert_eq!(parts(&container)?.len(), 2);
        Ok(())
    }
}
