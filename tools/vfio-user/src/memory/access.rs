// SPDX-License-Identifier: GPL-2.0
//! Checked access to memory that others change at the same time.

use std::marker::PhantomData;

use super::word;
use super::Access;
use super::MemoryError;
use super::Word;
use super::PAGE_SIZE;

/// [`PAGE_SIZE`] as an offset inside a page.
const PAGE_BYTES: usize = 4096;

/// A contiguous run of host memory, from some address to the end of its mapping.
pub struct Span<'a> {
    ptr: *mut u8,
    len: usize,
    access: Access,
    mapping: PhantomData<&'a ()>,
}

impl Span<'_> {
    /// # Safety
    ///
    /// For `'a`, `ptr..ptr + len` lies in one live mapping that allows `access`; `len` is not 0.
    #[inline]
    pub(super) unsafe fn new(ptr: *mut u8, len: usize, access: Access) -> Self {
        Self {
            ptr,
            len,
            access,
            mapping: PhantomData,
        }
    }
}

/// A 4 KiB page of a [`Memory`], for a software TLB to remember.
///
/// It says where the page was found, and under which [`Memory::generation`]. Using it costs two
/// compares; it is refused ([`MemoryError::Stale`]) once the memory's map has changed.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    host: *mut u8,
    generation: u64,
    access: Access,
}

// SAFETY: The pointer is only used after `Memory::page_at` has found that the mapping it was taken
// from is still alive and borrowed by the thread that uses it; the page itself is plain data.
unsafe impl Send for Page {}
// SAFETY: As above; a `&Page` can only be copied.
unsafe impl Sync for Page {}

impl Page {
    /// What the page may be used for.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The generation of the memory that it was taken from.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// Seals [`Memory`], whose implementations vouch for raw pointers.
pub(super) mod sealed {
    use super::Access;
    use super::MemoryError;
    use super::Span;

    /// Address translation.
    pub trait Spans {
        /// The host memory at `address`, as far as it is contiguous and allows `access`.
        fn span(&self, address: u64, access: Access) -> Result<Span<'_>, MemoryError>;
    }
}

/// Memory that is shared with other threads and processes.
///
/// Addresses are DMA addresses in a [`View`](super::View), offsets in a
/// [`Mapping`](super::Mapping). Words are little-endian. A method that returns an error has
/// transferred some prefix of its range, or nothing; which, it does not say. Use [`Memory::check`]
/// first where that matters.
pub trait Memory: sealed::Spans {
    /// Names the present address map. No two maps of a process have the same generation, so a
    /// [`Page`] with this generation is a page of this memory and still valid.
    fn generation(&self) -> u64;

    /// Checks that all of `address..address + len` can be reached with `access`.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] of the first address that cannot.
    fn check(&self, address: u64, len: u64, access: Access) -> Result<(), MemoryError> {
        walk(self, address, len, access, |_, _| {})
    }

    /// Reads `dst.len()` bytes, at any alignment.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] of the first address that cannot be read.
    fn read(&self, address: u64, dst: &mut [u8]) -> Result<(), MemoryError> {
        let mut rest = dst;
        walk(self, address, rest.len() as u64, Access::READ, |ptr, n| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(n);
            // SAFETY: `walk` passes `n` bytes of a live mapping that may be read; `now` has `n`.
            unsafe { word::copy_out(ptr, now.as_mut_ptr(), n) };
            rest = later;
        })
    }

    /// Writes `src.len()` bytes, at any alignment.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] of the first address that cannot be written.
    fn write(&self, address: u64, src: &[u8]) -> Result<(), MemoryError> {
        let mut rest = src;
        walk(self, address, src.len() as u64, Access::WRITE, |ptr, n| {
            let (now, later) = rest.split_at(n);
            // SAFETY: `walk` passes `n` bytes of a live mapping that may be written; `now` has `n`.
            unsafe { word::copy_in(now.as_ptr(), ptr, n) };
            rest = later;
        })
    }

    /// Loads a naturally aligned word in one access, with acquire order.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Misaligned`], or that of an address that cannot be read.
    #[inline]
    fn load<T: Word>(&self, address: u64) -> Result<T, MemoryError> {
        let (ptr, _span) = word_at::<T, _>(self, address, Access::READ)?;
        // SAFETY: `word_at` checked alignment, size and access; `_span` holds the mapping.
        Ok(unsafe { T::load(ptr) })
    }

    /// Stores a naturally aligned word in one access, with release order.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Misaligned`], or that of an address that cannot be written.
    #[inline]
    fn store<T: Word>(&self, address: u64, value: T) -> Result<(), MemoryError> {
        let (ptr, _span) = word_at::<T, _>(self, address, Access::WRITE)?;
        // SAFETY: `word_at` checked alignment, size and access; `_span` holds the mapping.
        unsafe { T::store(ptr, value) };
        Ok(())
    }

    /// Replaces a naturally aligned word by `f` of it, atomically; returns the old one.
    ///
    /// Sequentially consistent. `f` runs again when somebody else was faster.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Misaligned`], or that of an address that cannot be read and written.
    #[inline]
    fn update<T: Word>(&self, address: u64, f: impl FnMut(T) -> T) -> Result<T, MemoryError> {
        let (ptr, _span) = word_at::<T, _>(self, address, Access::READ | Access::WRITE)?;
        // SAFETY: `word_at` checked alignment, size and access; `_span` holds the mapping.
        Ok(unsafe { T::update(ptr, f) })
    }

    /// Stores `new` if the naturally aligned word is `expected`, atomically; returns the old word.
    ///
    /// The exchange has happened if, and only if, the old word is `expected`.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Misaligned`], or that of an address that cannot be read and written.
    #[inline]
    fn compare_exchange<T: Word>(
        &self,
        address: u64,
        expected: T,
        new: T,
    ) -> Result<T, MemoryError> {
        let (ptr, _span) = word_at::<T, _>(self, address, Access::READ | Access::WRITE)?;
        // SAFETY: `word_at` checked alignment, size and access; `_span` holds the mapping.
        Ok(unsafe { T::compare_exchange(ptr, expected, new) })
    }

    /// Stores `value` into `count` consecutive words; `address` is aligned to the word.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Misaligned`], [`MemoryError::Overflow`], or that of the first address that
    /// cannot be written.
    fn fill<T: Word>(&self, address: u64, count: u64, value: T) -> Result<(), MemoryError> {
        let size = size_of::<T>();
        if address % size as u64 != 0 {
            return Err(MemoryError::Misaligned { address });
        }
        let len = count
            .checked_mul(size as u64)
            .ok_or(MemoryError::Overflow)?;
        walk(self, address, len, Access::WRITE, |ptr, n| {
            let ptr = ptr.cast::<T>();
            for i in 0..n / size {
                // SAFETY: `walk` passes `n` bytes of a live mapping that may be written. Mappings
                // start and end at page boundaries, so that `address` aligned makes `ptr` aligned,
                // and no word straddles two of them.
                unsafe { T::store(ptr.add(i), value) };
            }
        })
    }

    /// The page that holds `address`, to be used with the `page_…` methods.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] if there is nothing mapped.
    fn page(&self, address: u64) -> Result<Page, MemoryError> {
        let span = self.span(address & !(PAGE_SIZE - 1), Access::empty())?;
        Ok(Page {
            host: span.ptr,
            generation: self.generation(),
            access: span.access,
        })
    }

    /// [`Memory::load`] at `offset` in a page.
    ///
    /// # Errors
    ///
    /// [`MemoryError::Stale`] if the map has changed since the page was taken;
    /// [`MemoryError::Misaligned`] or [`MemoryError::Denied`], with the offset as address.
    #[inline]
    fn page_load<T: Word>(&self, page: &Page, offset: usize) -> Result<T, MemoryError> {
        let ptr = page_at::<T, _>(self, page, offset, Access::READ)?;
        // SAFETY: `page_at` checked that the page is alive and holds an aligned, readable `T` there.
        Ok(unsafe { T::load(ptr) })
    }

    /// [`Memory::store`] at `offset` in a page.
    ///
    /// # Errors
    ///
    /// As for [`Memory::page_load`].
    #[inline]
    fn page_store<T: Word>(&self, page: &Page, offset: usize, value: T) -> Result<(), MemoryError> {
        let ptr = page_at::<T, _>(self, page, offset, Access::WRITE)?;
        // SAFETY: `page_at` checked that the page is alive and holds an aligned, writable `T` there.
        unsafe { T::store(ptr, value) };
        Ok(())
    }

    /// [`Memory::update`] at `offset` in a page.
    ///
    /// # Errors
    ///
    /// As for [`Memory::page_load`].
    #[inline]
    fn page_update<T: Word>(
        &self,
        page: &Page,
        offset: usize,
        f: impl FnMut(T) -> T,
    ) -> Result<T, MemoryError> {
        let ptr = page_at::<T, _>(self, page, offset, Access::READ | Access::WRITE)?;
        // SAFETY: `page_at` checked that the page is alive and holds an aligned, read-write `T` there.
        Ok(unsafe { T::update(ptr, f) })
    }

    /// [`Memory::compare_exchange`] at `offset` in a page.
    ///
    /// # Errors
    ///
    /// As for [`Memory::page_load`].
    #[inline]
    fn page_compare_exchange<T: Word>(
        &self,
        page: &Page,
        offset: usize,
        expected: T,
        new: T,
    ) -> Result<T, MemoryError> {
        let ptr = page_at::<T, _>(self, page, offset, Access::READ | Access::WRITE)?;
        // SAFETY: `page_at` checked that the page is alive and holds an aligned, read-write `T` there.
        Ok(unsafe { T::compare_exchange(ptr, expected, new) })
    }
}

/// Copies `len` bytes between two memories, or inside one, in ascending order.
///
/// If the destination overlaps the source and lies above it, the result is some mixture of both.
///
/// # Errors
///
/// [`MemoryError`] of the first address that cannot be read or written; what lies before it is copied.
pub fn copy<D, S>(
    dst: &D,
    dst_address: u64,
    src: &S,
    src_address: u64,
    len: u64,
) -> Result<(), MemoryError>
where
    D: Memory + ?Sized,
    S: Memory + ?Sized,
{
    let Some(last) = len.checked_sub(1) else {
        return Ok(());
    };
    dst_address.checked_add(last).ok_or(MemoryError::Overflow)?;
    src_address.checked_add(last).ok_or(MemoryError::Overflow)?;
    let mut done = 0;
    while done < len {
        let from = src.span(src_address + done, Access::READ)?;
        let to = dst.span(dst_address + done, Access::WRITE)?;
        let room = from.len.min(to.len);
        // Fits: it is at most `room`.
        let n = (len - done).min(room as u64) as usize;
        // SAFETY: `n` bytes from each pointer lie in their live mapping, with the access asked for.
        unsafe { word::copy_shared(from.ptr, to.ptr, n) };
        done += n as u64;
    }
    Ok(())
}

/// Calls `f(host pointer, length)` for each contiguous part of `address..address + len`.
///
/// The pointers lie in live mappings that allow `access`, for the duration of the call.
#[inline]
fn walk<M: Memory + ?Sized>(
    memory: &M,
    address: u64,
    len: u64,
    access: Access,
    mut f: impl FnMut(*mut u8, usize),
) -> Result<(), MemoryError> {
    let Some(last) = len.checked_sub(1) else {
        return Ok(());
    };
    address.checked_add(last).ok_or(MemoryError::Overflow)?;
    let mut done = 0;
    while done < len {
        let span = memory.span(address + done, access)?;
        // Fits: a span's length is a usize.
        let n = (len - done).min(span.len as u64) as usize;
        f(span.ptr, n);
        done += n as u64;
    }
    Ok(())
}

/// Finds an aligned word; the pointer is good while the span lives.
#[inline]
fn word_at<T: Word, M: Memory + ?Sized>(
    memory: &M,
    address: u64,
    access: Access,
) -> Result<(*mut T, Span<'_>), MemoryError> {
    if address % size_of::<T>() as u64 != 0 {
        return Err(MemoryError::Misaligned { address });
    }
    // Mappings start and end at page boundaries, so an aligned word never leaves its span, and the
    // host pointer is aligned like the address.
    let span = memory.span(address, access)?;
    Ok((span.ptr.cast(), span))
}

/// Finds an aligned word in a page; the pointer is good while `memory` is borrowed.
#[inline]
fn page_at<T: Word, M: Memory + ?Sized>(
    memory: &M,
    page: &Page,
    offset: usize,
    access: Access,
) -> Result<*mut T, MemoryError> {
    if page.generation != memory.generation() {
        return Err(MemoryError::Stale);
    }
    // An aligned offset below the page size leaves room for the word: sizes divide the page size.
    if offset % size_of::<T>() != 0 || offset >= PAGE_BYTES {
        return Err(MemoryError::Misaligned {
            address: offset as u64,
        });
    }
    if !page.access.contains(access) {
        return Err(MemoryError::Denied {
            address: offset as u64,
        });
    }
    // SAFETY: Generations are unique in the process, so the page was taken from this very memory and
    // its map has not changed since: the mapping is alive, and `offset` lies in its page.
    Ok(unsafe { page.host.add(offset) }.cast())
}
