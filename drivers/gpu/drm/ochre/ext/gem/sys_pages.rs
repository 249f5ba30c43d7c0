// SPDX-License-Identifier: GPL-2.0

//! System memory behind a buffer object.
//!
//! C headers: [`include/drm/drm_gem.h`](srctree/include/drm/drm_gem.h),
//! [`include/linux/mm.h`](srctree/include/linux/mm.h)

use core::ptr::NonNull;

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    dma::DataDirection,
    drm::{
        self,
        gem::{
            BaseObject,
            IntoGEMObject,
            Object, //
        },
    },
    fs::File,
    page::PAGE_SHIFT,
    prelude::*,
    sync::aref::ARef, //
};

use super::{
    bare,
    BoOps,
    CpuPage, //
};
use crate::ext::{
    pages,
    scatterlist::{
        DmaMap,
        Segment, //
    },
    shmem,
    sys, //
};

/// System memory of an object: pinned, mapped for the device's DMA, and mappable for the CPU.
///
/// Dropping it takes it away from CPU and device before the pages are released, and sleeps. It
/// holds the memory, not the object, so it can be part of the object.
///
/// # Invariants
///
/// CPU mappings of `pages` exist only within `range` of its device's mmap offsets.
pub(crate) struct SysPages {
    range: CpuRange,
    // Dropped in this order.
    dma: DmaMap,
    pages: Memory,
}

/// Where pages come from, and go to when it is dropped.
enum Memory {
    /// The object's memory file.
    File(shmem::Pages),
    /// The system.
    Own(pages::Pages),
}

impl Memory {
    fn as_slice(&self) -> &[NonNull<bindings::page>] {
        match self {
            Self::File(pages) => pages.as_slice(),
            Self::Own(pages) => pages.as_slice(),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::File(pages) => pages.size(),
            Self::Own(pages) => pages.size(),
        }
    }
}

impl SysPages {
    /// Maps the pinned memory of an object for `dev`.
    pub(crate) fn new(
        pinned: PinnedPages,
        dev: &Device<Bound>,
        direction: DataDirection,
    ) -> Result<Self> {
        let PinnedPages { range, pages } = pinned;
        // SAFETY: `pages` is dropped after `dma`.
        let dma = unsafe { DmaMap::new(dev, pages.as_slice(), direction)? };
        Ok(Self { range, dma, pages })
    }

    /// The runs of device addresses, in order. See [`DmaMap::segments`].
    pub(crate) fn segments<'a>(
        &'a self,
        dev: &'a Device<Bound>,
    ) -> Result<impl Iterator<Item = Segment> + 'a> {
        self.dma.segments(dev)
    }

    /// Whether what the device wrote has to be copied before the CPU sees it, and the other way round.
    pub(crate) fn needs_sync(&self) -> bool {
        self.dma.needs_sync()
    }

    /// Makes what the CPU wrote visible to the device. In any context. Does nothing once the device is
    /// unbound.
    pub(crate) fn sync_for_device(&self) {
        self.dma.sync_for_device();
    }

    /// Makes what the device wrote visible to the CPU. In any context. Does nothing once the device is
    /// unbound: what it had written then became visible at that time.
    pub(crate) fn sync_for_cpu(&self) {
        self.dma.sync_for_cpu();
    }

    /// The pages, in order.
    pub(super) fn as_slice(&self) -> &[NonNull<bindings::page>] {
        self.pages.as_slice()
    }

    /// Where the object lies in its device's space of mmap offsets, in pages.
    pub(super) fn node_start(&self) -> u64 {
        self.range.start
    }

    /// Bytes in all.
    pub(crate) fn size(&self) -> usize {
        self.pages.size()
    }

    /// Page number `index`, for [`Fault::insert`].
    pub(crate) fn page(&self, index: usize) -> Option<CpuPage<'_>> {
        let page = self.as_slice().get(index)?;
        // SAFETY: The page is pinned.
        let pfn = unsafe { sys::ochre_page_to_pfn(page.as_ptr()) };
        Some(CpuPage::from_system(self, pfn))
    }
}

/// The memory of an object, pinned and not mapped yet. It takes as long as the system needs to find
/// that much memory, so it is not for a `drm_dev_enter()` section.
pub(crate) struct PinnedPages {
    range: CpuRange,
    pages: Memory,
}

impl PinnedPages {
    /// Takes the memory of `obj` into use. What it contained before it was last dropped is still
    /// there; at first it is zeros.
    ///
    /// Sleeps and allocates. [`EINVAL`] if it has no memory file ([`BoOps::MEMORY_FILE`]).
    pub(crate) fn new<T: BoOps>(obj: &Object<T>) -> Result<Self>
    where
        T::Driver: drm::Driver<Object = Object<T>>,
    {
        if !bare::has_file(obj) {
            return Err(EINVAL);
        }
        let raw = IntoGEMObject::as_raw(obj);
        // SAFETY: The object has a shared memory file of its size, from `drm_gem_object_init()`, which
        // it keeps; no descriptor refers to it.
        let pages = unsafe {
            let file = ARef::from(File::from_raw_file((*raw).filp));
            shmem::Pages::pin(file, (*raw).size >> PAGE_SHIFT)?
        };
        Ok(Self {
            // SAFETY: The object is valid. INVARIANT: `insert_one` compares the range.
            range: unsafe { CpuRange::of(raw) },
            pages: Memory::File(pages),
        })
    }

    /// Makes memory for `obj`, as large as it is and zeroed, without a file. For an object whose memory
    /// stays where it is until it goes: it costs less.
    ///
    /// As [`Pages::new`](pages::Pages::new).
    pub(crate) fn alloc<T: BoOps>(obj: &Object<T>) -> Result<Self>
    where
        T::Driver: drm::Driver<Object = Object<T>>,
    {
        Ok(Self {
            pages: Memory::Own(pages::Pages::new(BaseObject::size(obj) >> PAGE_SHIFT)?),
            // SAFETY: The object is valid. INVARIANT: `insert_one` compares the range.
            range: unsafe { CpuRange::of(IntoGEMObject::as_raw(obj)) },
        })
    }
}

/// A range of a device's mmap offsets, and the device kept alive for it.
///
/// Dropping it removes all CPU mappings of the range.
///
/// # Invariants
///
/// `dev` is a valid device to which `self` has a reference.
struct CpuRange {
    dev: NonNull<bindings::drm_device>,
    /// In pages.
    start: u64,
    /// In bytes.
    len: u64,
}

// SAFETY: A `drm_device` may be used and released from any thread.
unsafe impl Send for CpuRange {}
// SAFETY: A shared `CpuRange` offers its constants only.
unsafe impl Sync for CpuRange {}

impl CpuRange {
    /// # Safety
    ///
    /// `obj` is a valid object with an mmap offset.
    unsafe fn of(obj: *mut bindings::drm_gem_object) -> Self {
        // SAFETY: By the contract of this function; an object keeps its device alive.
        unsafe {
            bindings::drm_dev_get((*obj).dev);
            Self {
                // INVARIANT: The reference was taken just now. Devices are not null.
                dev: NonNull::new_unchecked((*obj).dev),
                start: (*obj).vma_node.vm_node.start,
                // CAST: usize to u64 does not truncate on 64-bit kernels, which Kconfig asks for.
                len: (*obj).size as u64,
            }
        }
    }
}

impl Drop for CpuRange {
    fn drop(&mut self) {
        let start = self.start.wrapping_shl(bindings::PAGE_SHIFT);
        // SAFETY: By the type invariant the device is valid, and so is its anonymous inode, whose
        // mapping all mappings of its objects belong to. If the object is gone and its range has
        // another owner, that one's pages fault in again.
        unsafe {
            bindings::unmap_mapping_range(
                (*(*self.dev.as_ptr()).anon_inode).i_mapping,
                start.try_into().unwrap_or(0),
                self.len.try_into().unwrap_or(0),
                1,
            );
            bindings::drm_dev_put(self.dev.as_ptr());
        }
    }
}
