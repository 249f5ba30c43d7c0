// SPDX-License-Identifier: GPL-2.0

//! Pages of a shared memory file, pinned.
//!
//! C header: [`include/linux/shmem_fs.h`](srctree/include/linux/shmem_fs.h)
//!
//! Such a file is what backs a GEM object in system memory. While nobody pins its pages they can be
//! swapped out; while a device uses them they must not move.

use core::ptr::NonNull;

use kernel::{
    bindings,
    error::from_err_ptr,
    fs::File,
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef, //
};

use super::{
    signal,
    sys, //
};

/// The pinned pages at the beginning of a shared memory file.
///
/// # Invariants
///
/// `file` is a shared memory file, and each element of `pages` is a page of it that `self` has a
/// reference to.
pub(crate) struct Pages {
    file: ARef<File>,
    pages: KVVec<NonNull<bindings::page>>,
}

// SAFETY: Pages can be released from any thread.
unsafe impl Send for Pages {}
// SAFETY: A shared `Pages` only tells which pages it holds.
unsafe impl Sync for Pages {}

impl Pages {
    /// Pins the first `count` pages of `file`. Pages that were never written are made, with zeros.
    ///
    /// Sleeps and allocates. Returns [`ERESTARTSYS`] when the task is being killed, [`ENOMEM`] when
    /// memory is short.
    ///
    /// # Safety
    ///
    /// `file` is a shared memory file (`shmem_file_setup()`) of at least `count` pages.
    pub(super) unsafe fn pin(file: ARef<File>, count: usize) -> Result<Self> {
        let pages = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        // SAFETY: The file is valid. (Undone by drop.)
        unsafe { sys::ochre_shmem_pin(file.as_ptr()) };

        // INVARIANT: Empty; each page that is pushed comes with a reference.
        let mut this = Self { file, pages };
        for index in 0..count {
            if signal::is_fatal_pending() {
                return Err(ERESTARTSYS);
            }
            // SAFETY: By the contract of this function.
            let page = unsafe { sys::ochre_shmem_read_page(this.file.as_ptr(), index) };
            // An error drops `this` with what it has.
            let page = from_err_ptr(page)?;
            // Within the capacity, so this neither allocates nor fails.
            this.pages
                .push(NonNull::new(page).ok_or(ENOMEM)?, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(this)
    }

    /// How many pages there are.
    pub(crate) fn count(&self) -> usize {
        self.pages.len()
    }

    /// Bytes in all.
    pub(crate) fn size(&self) -> usize {
        // No overflow: the pages exist.
        self.count().wrapping_mul(PAGE_SIZE)
    }

    /// The page number `index` of the file.
    pub(super) fn page(&self, index: usize) -> Option<NonNull<bindings::page>> {
        self.pages.get(index).copied()
    }

    /// All pages, in order.
    pub(super) fn as_slice(&self) -> &[NonNull<bindings::page>] {
        &self.pages
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: By the type invariant these are pages of the file with a reference that is given
        // up here. The device may have written to them, hence dirty. `pin` marked the file.
        unsafe {
            sys::ochre_shmem_unpin(self.file.as_ptr());
            sys::ochre_shmem_put_pages(self.pages.as_mut_ptr().cast(), self.pages.len(), true);
        }
    }
}

#[kunit_tests(ochre_ext_shmem)]
mod tests {
    use super::*;

    fn new_file(pages: usize) -> Result<ARef<File>> {
        // SAFETY: Makes a new file of the given size; the name ends with NUL.
        let raw = from_err_ptr(unsafe {
            sys::shmem_file_setup(
                c"ochre-test".as_char_ptr(),
                (pages * PAGE_SIZE).try_into()?,
                Default::default(),
            )
        })?;
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: The one reference is ours; nobody else knows the file.
        Ok(unsafe { ARef::from_raw(raw.cast()) })
    }

    #[test]
    fn pinned_pages_are_all_there_and_differ() -> Result {
        // SAFETY: The file was made with shmem_file_setup() and has 33 pages.
        let pages = unsafe { Pages::pin(new_file(33)?, 33)? };
        assert_eq!(pages.count(), 33);
        assert_eq!(pages.size(), 33 * PAGE_SIZE);
        for (index, page) in pages.as_slice().iter().enumerate() {
            assert!(!pages.as_slice()[..index].contains(page));
        }
        assert!(pages.page(33).is_none());
        Ok(())
    }

    #[test]
    fn contents_outlive_the_pin() -> Result {
        let file = new_file(2)?;
        // SAFETY: The file was made with shmem_file_setup() and has 2 pages.
        let pages = unsafe { Pages::pin(file.clone(), 2)? };
        let page = pages.page(1).ok_or(EINVAL)?;
        // SAFETY: The page is pinned and nobody else uses it.
        unsafe { kernel::page::BorrowedPage::from_raw(page).write_raw([42u8].as_ptr(), 7, 1)? };
        drop(pages);

        // SAFETY: As above.
        let pages = unsafe { Pages::pin(file, 2)? };
        let page = pages.page(1).ok_or(EINVAL)?;
        let mut bytes = [0u8; 2];
        // SAFETY: As above.
        unsafe { kernel::page::BorrowedPage::from_raw(page).read_raw(bytes.as_mut_ptr(), 7, 2)? };
        assert_eq!(bytes, [42, 0]);
        Ok(())
    }
}
