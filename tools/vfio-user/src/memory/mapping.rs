// SPDX-License-Identifier: GPL-2.0
//! A piece of a file mapped into this process, and the memfd that both sides share.

use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::FallocateFlags;
use rustix::fs::FileType;
use rustix::fs::MemfdFlags;
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;

use super::access::sealed::Spans;
use super::access::Memory;
use super::access::Span;
use super::next_generation;
use super::Access;
use super::MemoryError;
use super::PAGE_SIZE;

/// `HUGETLBFS_MAGIC`, the file system of huge pages (`<linux/magic.h>`).
const HUGETLBFS: rustix::fs::FsWord = 0x9584_58f6;

/// A range of a shared file, mapped into this process until the value is dropped.
///
/// As a [`Memory`] its addresses are offsets from the start of the range.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    access: Access,
    generation: u64,
}

// SAFETY: The mapping belongs to the process, not to a thread; `base` is only used for atomic
// accesses through `Memory`, and unmapped once, by `Drop`.
unsafe impl Send for Mapping {}
// SAFETY: All access through `&Mapping` is atomic (see `word.rs`); nothing in it changes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset`.
    ///
    /// `offset` and `len` are multiples of [`PAGE_SIZE`], `len` is not 0. Access beyond the end of
    /// the file would be a SIGBUS, so the range has to lie inside it. An owner that shrinks the file
    /// later still causes one; QEMU seals its memfds against that.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is malformed, beyond the end of the file, or `fd` is no regular file (a
    /// memfd is); `ENOTSUP` for huge pages, which cannot be mapped in pieces of [`PAGE_SIZE`]; the
    /// errno of mmap(2) otherwise.
    pub fn new(fd: BorrowedFd<'_>, offset: u64, len: u64, access: Access) -> Result<Self, Errno> {
        if len == 0 || len % PAGE_SIZE != 0 || offset % PAGE_SIZE != 0 {
            return Err(Errno::INVAL);
        }
        let end = offset.checked_add(len).ok_or(Errno::INVAL)?;
        let stat = rustix::fs::fstat(fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
            || u64::try_from(stat.st_size).map_or(true, |size| end > size)
        {
            return Err(Errno::INVAL);
        }
        if rustix::fs::fstatfs(fd)?.f_type == HUGETLBFS {
            log::error!("guest memory in huge pages is not supported");
            return Err(Errno::NOTSUP);
        }
        let len = usize::try_from(len).map_err(|_| Errno::INVAL)?;

        let mut prot = ProtFlags::empty();
        prot.set(ProtFlags::READ, access.contains(Access::READ));
        prot.set(ProtFlags::WRITE, access.contains(Access::WRITE));
        // SAFETY: The kernel chooses a free address range, so no existing object is replaced. The
        // memory is shared with other processes and is therefore only accessed as `word.rs` says.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                prot,
                MapFlags::SHARED,
                fd,
                offset,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self {
            base,
            len,
            access,
            generation: next_generation(),
        })
    }

    /// Size in bytes; never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// What the mapping may be used for.
    pub fn access(&self) -> Access {
        self.access
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base..base + len` is the range that `new` mapped, and nothing uses it any more:
        // spans borrow the mapping, pages are checked against it.
        let result = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        if let Err(error) = result {
            log::warn!("munmap of {:#x} bytes: {error}", self.len);
        }
    }
}

impl Spans for Mapping {
    #[inline]
    fn span(&self, address: u64, access: Access) -> Result<Span<'_>, MemoryError> {
        if !self.access.contains(access) {
            return Err(MemoryError::Denied { address });
        }
        match usize::try_from(address) {
            // SAFETY: `offset < len`, so the pointer and the `len - offset` bytes from it lie in the
            // mapping, which `access` was checked against and which the span borrows.
            Ok(offset) if offset < self.len => Ok(unsafe {
                Span::new(
                    self.base.as_ptr().add(offset),
                    self.len - offset,
                    self.access,
                )
            }),
            _ => Err(MemoryError::Unmapped { address }),
        }
    }
}

impl Memory for Mapping {
    #[inline]
    fn generation(&self) -> u64 {
        self.generation
    }
}

/// Anonymous shared memory: a memfd, mapped here and ready to be mapped by a client.
///
/// Its size is sealed, so that no client can truncate it under the device.
#[derive(Debug)]
pub struct SharedMemory {
    fd: OwnedFd,
    mapping: Mapping,
}

impl SharedMemory {
    /// Makes `size` zeroed bytes (a multiple of [`PAGE_SIZE`]); `name` shows up in /proc.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a bad size or name, otherwise what the kernel says.
    pub fn new(name: &str, size: u64) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags)?;
        rustix::fs::ftruncate(&fd, size)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals)?;
        let mapping = Mapping::new(fd.as_fd(), 0, size, Access::READ | Access::WRITE)?;
        Ok(Self { fd, mapping })
    }

    /// The memfd, to hand to a client.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sets all bytes to 0 and gives the pages back to the host.
    ///
    /// # Errors
    ///
    /// What fallocate(2) says.
    pub fn zero(&self) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(
            &self.fd,
            flags,
            0,
            self.mapping.len(),
        )?)
    }
}

impl Deref for SharedMemory {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}
