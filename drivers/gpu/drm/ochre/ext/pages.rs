// SPDX-License-Identifier: GPL-2.0

//! Pages that belong to nobody else.
//!
//! C header: [`include/linux/gfp.h`](srctree/include/linux/gfp.h)
//!
//! For memory that a device uses from the beginning to the end of its life, so that it can neither
//! be swapped out nor moved, and that no file needs to know: without the page cache's bookkeeping,
//! and in runs as long as the system has at hand.

use core::ptr::NonNull;

use kernel::{
    bindings,
    error::to_result,
    page::PAGE_SIZE,
    prelude::*, //
};

use super::sys;

/// Some pages, zeroed when they were made, and accounted to whoever made them.
///
/// # Invariants
///
/// The elements are all pages, in order, of allocations that `self` owns: compound pages, or pages of
/// their own.
pub(crate) struct Pages(KVVec<NonNull<bindings::page>>);

// SAFETY: Pages can be released from any thread.
unsafe impl Send for Pages {}
// SAFETY: A shared `Pages` only tells which pages it holds.
unsafe impl Sync for Pages {}

impl Pages {
    /// Makes `count` pages. Sleeps and allocates.
    ///
    /// Returns [`ENOMEM`] when memory is short and [`ERESTARTSYS`] when the task is being killed.
    pub(crate) fn new(count: usize) -> Result<Self> {
        let mut pages = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        let spare: *mut *mut bindings::page = pages.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: There is room for `count` pointers. On success the function has written all of them,
        // none of which is null; else it has kept nothing.
        unsafe {
            to_result(sys::ochre_pages_alloc(spare, count))?;
            pages.inc_len(count);
        }
        // INVARIANT: As the function says.
        Ok(Self(pages))
    }

    /// Bytes in all.
    pub(crate) fn size(&self) -> usize {
        // No overflow: the pages exist.
        self.0.len().wrapping_mul(PAGE_SIZE)
    }

    /// All pages, in order.
    pub(super) fn as_slice(&self) -> &[NonNull<bindings::page>] {
        &self.0
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { sys::ochre_pages_free(self.0.as_mut_ptr().cast(), self.0.len()) };
    }
}

#[kunit_tests(ochre_ext_pages)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_all_there_and_differ_and_are_zero() -> Result {
        for count in [1, 2, 3, 33, 513] {
            let pages = Pages::new(count)?;
            assert_eq!(pages.size(), count * PAGE_SIZE);
            assert_eq!(pages.as_slice().len(), count);
            for (index, page) in pages.as_slice().iter().enumerate() {
                assert!(!pages.as_slice()[..index].contains(page));
                let mut bytes = [1u8; 2];
                // SAFETY: The page is ours and nobody else uses it.
                unsafe {
                    let page = kernel::page::BorrowedPage::from_raw(*page);
                    page.read_raw(bytes.as_mut_ptr(), PAGE_SIZE - 2, 2)?;
                }
                assert_eq!(bytes, [0, 0]);
            }
        }
        Ok(())
    }
}
