// SPDX-License-Identifier: GPL-2.0

//! Sync files: fences as file descriptors.
//!
//! C header: [`include/linux/sync_file.h`](srctree/include/linux/sync_file.h)
//!
//! An ioctl that returns a fence reserves the descriptor and makes the file while it can still fail,
//! and joins the two when it cannot fail any more. The fence may come last:
//!
//! ```ignore
//! let fd = FileDescriptorReservation::get_unused_fd_flags(file::flags::O_CLOEXEC)?;
//! let mut out = SyncFile::reserve()?;
//! out.set_fence(&submit());
//! args.fence_fd = out.install(fd);
//! ```

use core::ptr::{
    self,
    NonNull, //
};

use kernel::{
    bindings,
    ffi::c_int,
    fs::{
        file::FileDescriptorReservation,
        File, //
    },
    prelude::*,
    sync::aref::ARef, //
};

use super::{
    dma_fence::{
        DmaFence,
        FenceRef, //
    },
    sys, //
};

/// The fence of the sync file `fd` of the calling task. It may stand for several; see
/// [`DmaFence::try_for_each`].
///
/// Returns [`EINVAL`] if `fd` is not open or is another kind of file. Process context.
pub(crate) fn fence_of(fd: c_int) -> Result<FenceRef> {
    // SAFETY: The function accepts any number; its result is null or a reference that is ours.
    unsafe { DmaFence::from_owned(sys::sync_file_get_fence(fd)) }.ok_or(EINVAL)
}

/// A sync file that has no descriptor yet.
///
/// # Invariants
///
/// `self.0` is the only reference to the file of a `struct sync_file`, which is its private data.
pub(crate) struct SyncFile(ARef<File>);

impl SyncFile {
    /// Makes a file for `fence`. Allocates. Returns [`ENOMEM`].
    pub(crate) fn new(fence: &DmaFence) -> Result<Self> {
        // SAFETY: The fence is valid; the file takes a reference of its own to it.
        let raw = unsafe { sys::sync_file_create(fence.as_raw()) };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        // SAFETY: The structure lives as long as its file, to which creation gave us the only
        // reference. Nobody uses the file's position.
        let file = unsafe { NonNull::new_unchecked((*raw.as_ptr()).file) };
        // SAFETY: As above; `File` is a transparent wrapper of `struct file`.
        // INVARIANT: `sync_file_create()` stored the structure in the file.
        Ok(Self(unsafe { ARef::from_raw(file.cast()) }))
    }

    /// Makes a file for a fence that does not exist yet: it has one that is signalled. Allocates.
    pub(crate) fn reserve() -> Result<Self> {
        Self::new(&*DmaFence::stub().ok_or(ENOMEM)?)
    }

    /// Gives the file another fence. Cannot fail.
    pub(crate) fn set_fence(&mut self, fence: &DmaFence) {
        let new = ARef::into_raw(FenceRef::from(fence));
        // SAFETY: By the type invariant the private data is the structure, and nobody else has the
        // file, so nobody else looks at the field. It holds a reference, which is replaced by ours.
        let old = unsafe {
            let file = (*self.0.as_ptr()).private_data.cast::<sys::sync_file>();
            DmaFence::from_owned(ptr::replace(
                &raw mut (*file).fence,
                new.as_ptr().cast::<bindings::dma_fence>(),
            ))
        };
        drop(old);
    }

    /// Gives the file the descriptor that was reserved and returns its number. Cannot fail. From now
    /// on user space can use it.
    pub(crate) fn install(self, fd: FileDescriptorReservation) -> c_int {
        // Descriptors are not negative, so nothing is lost.
        let number = c_int::try_from(fd.reserved_fd()).unwrap_or(c_int::MAX);
        fd.fd_install(self.0);
        number
    }
}

#[kunit_tests(ochre_ext_sync_file)]
mod tests {
    use kernel::fs::file::flags::O_CLOEXEC;

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

    /// A sync file's number, closed when it is dropped.
    struct Fd(c_int);

    impl Fd {
        fn of(fence: &DmaFence) -> Result<Self> {
            let reserved = FileDescriptorReservation::get_unused_fd_flags(O_CLOEXEC)?;
            Ok(Self(SyncFile::new(fence)?.install(reserved)))
        }
    }

    impl Drop for Fd {
        fn drop(&mut self) {
            // SAFETY: The descriptor is ours. (A test runs in a kernel thread, whose table of files
            // nobody else uses.)
            unsafe { sys::ochre_close_fd(self.0) };
        }
    }

    #[test]
    fn fence_comes_back_from_its_file() -> Result {
        let fence = new_fence(5)?;
        let fd = Fd::of(&fence)?;
        let seen = fence_of(fd.0)?;
        assert_eq!(seen.context(), fence.context());
        assert_eq!(seen.seqno(), 5);
        assert_eq!(seen.status(), FenceStatus::Pending);
        fence.signal(Err(EIO));
        assert_eq!(seen.status(), FenceStatus::Failed(EIO));
        Ok(())
    }

    #[test]
    fn file_keeps_the_fence_alive() -> Result {
        let fd = Fd::of(&*new_fence(5)?)?;
        assert_eq!(fence_of(fd.0)?.status(), FenceStatus::Failed(ECANCELED));
        Ok(())
    }

    #[test]
    fn file_made_ahead_takes_its_fence_later() -> Result {
        let fence = new_fence(5)?;
        let reserved = FileDescriptorReservation::get_unused_fd_flags(O_CLOEXEC)?;
        let mut file = SyncFile::reserve()?;
        file.set_fence(&fence);
        let fd = Fd(file.install(reserved));
        let seen = fence_of(fd.0)?;
        assert_eq!(seen.seqno(), 5);
        assert_eq!(seen.status(), FenceStatus::Pending);
        fence.signal(Ok(()));
        assert_eq!(seen.status(), FenceStatus::Done);
        Ok(())
    }

    #[test]
    fn what_is_no_sync_file_is_refused() {
        assert_eq!(fence_of(-1).err(), Some(EINVAL));
        assert_eq!(fence_of(c_int::MAX).err(), Some(EINVAL));
    }

    #[test]
    fn file_without_a_descriptor_and_descriptor_without_a_file_are_given_back() -> Result {
        let fence = new_fence(1)?;
        let reserved = FileDescriptorReservation::get_unused_fd_flags(O_CLOEXEC)?;
        let number = reserved.reserved_fd();
        drop(SyncFile::new(&fence)?);
        drop(reserved);
        let again = FileDescriptorReservation::get_unused_fd_flags(O_CLOEXEC)?;
        assert_eq!(again.reserved_fd(), number);
        Ok(())
    }
}
