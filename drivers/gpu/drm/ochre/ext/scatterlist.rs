// SPDX-License-Identifier: GPL-2.0

//! Pages mapped for a device's DMA.
//!
//! C headers: [`include/linux/scatterlist.h`](srctree/include/linux/scatterlist.h),
//! [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)
//!
//! As `kernel::scatterlist::SGTable`, which takes only vmalloc memory, and for many mappings at once
//! (`dma_resources`).

use core::ptr::NonNull;

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    dma::{
        DataDirection,
        DmaAddress, //
    },
    error::to_result,
    page::PAGE_SIZE,
    prelude::*,
    scatterlist::SGTable,
    sync::Arc,
    types::Opaque, //
};

use super::{
    dma_resources::Resource,
    sys, //
};

/// A run of addresses on the device's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Where it begins.
    pub(crate) addr: DmaAddress,
    /// Its length in bytes.
    pub(crate) len: u64,
}

/// A DMA mapping that ends when it is dropped or the device is unbound, whichever is first.
pub(crate) struct DmaMap {
    mapping: Arc<Resource>,
    needs_sync: bool,
}

impl DmaMap {
    /// Maps `pages` for `dev`.
    ///
    /// # Safety
    ///
    /// The pages stay valid until the returned value is dropped.
    pub(super) unsafe fn new(
        dev: &Device<Bound>,
        pages: &[NonNull<bindings::page>],
        direction: DataDirection,
    ) -> Result<Self> {
        let table = Table::new(dev, pages)?;
        let raw_table = table.as_raw();
        // SAFETY: The pages stay by the contract of this function.
        let mapping = unsafe { Resource::map(dev, table, direction)? };
        // SAFETY: Device and table are valid and mapped: `mapping` has the table.
        let needs_sync = unsafe { sys::ochre_sgtable_needs_sync(raw_device(dev), raw_table) };
        Ok(Self {
            mapping,
            needs_sync,
        })
    }

    /// The runs of device addresses in the order of the pages.
    ///
    /// Returns [`EINVAL`] if `dev` is not the device of the mapping.
    pub(crate) fn segments<'a>(
        &'a self,
        dev: &'a Device<Bound>,
    ) -> Result<impl Iterator<Item = Segment> + 'a> {
        let table = self.mapping.table().ok_or(EINVAL)?;
        if !self.mapping.is_of(dev) {
            return Err(EINVAL);
        }
        // SAFETY: The table was mapped by `new` and stays so while the device is bound, which it is for
        // `'a`.
        let table = unsafe { SGTable::from_raw(table.as_raw()) };
        Ok(table.iter().map(|entry| Segment {
            addr: entry.dma_address(),
            len: entry.dma_len(),
        }))
    }

    /// Whether CPU and device see each other's writes only after a sync: the device is not coherent, or
    /// cannot reach the pages and has copies of them.
    pub(crate) fn needs_sync(&self) -> bool {
        self.needs_sync
    }

    /// Makes what the CPU wrote visible to the device. In any context. Does nothing once the device is
    /// unbound.
    pub(crate) fn sync_for_device(&self) {
        if self.needs_sync {
            self.mapping.with_mapped(|dev, table, direction| {
                // SAFETY: The table is mapped for the device during this call.
                unsafe { sys::ochre_sync_sgtable_for_device(dev, table, direction) };
            });
        }
    }

    /// Makes what the device wrote visible to the CPU. In any context. Does nothing once the device is
    /// unbound, which did the same for the last time.
    pub(crate) fn sync_for_cpu(&self) {
        if self.needs_sync {
            self.mapping.with_mapped(|dev, table, direction| {
                // SAFETY: The table is mapped for the device during this call.
                unsafe { sys::ochre_sync_sgtable_for_cpu(dev, table, direction) };
            });
        }
    }
}

impl Drop for DmaMap {
    fn drop(&mut self) {
        // SAFETY: All calls borrow `self`, which is going.
        unsafe { self.mapping.end() };
    }
}

/// A `struct sg_table` of its own allocation, so that it can move between owners.
pub(super) struct Table(Pin<KBox<Opaque<bindings::sg_table>>>);

// SAFETY: The table may be used and freed on any thread.
unsafe impl Send for Table {}
// SAFETY: It does not change after it was made and mapped.
unsafe impl Sync for Table {}

impl Table {
    fn new(dev: &Device<Bound>, pages: &[NonNull<bindings::page>]) -> Result<Self> {
        if pages.is_empty() {
            return Err(EINVAL);
        }
        let size = pages.len().checked_mul(PAGE_SIZE).ok_or(EOVERFLOW)?;
        // SAFETY: The device is valid. 0 stands for "no limit".
        let max_segment = match unsafe { bindings::dma_max_mapping_size(raw_device(dev)) } {
            0 => u32::MAX,
            limit => u32::try_from(limit).unwrap_or(u32::MAX),
        };

        let table = KBox::pin(Opaque::zeroed(), GFP_KERNEL_ACCOUNT)?;
        // SAFETY: The table is zeroed memory. The function reads the array, which C declares
        // without const, and does not keep it. On failure it frees what it allocated.
        to_result(unsafe {
            bindings::sg_alloc_table_from_pages_segment(
                table.get(),
                pages.as_ptr().cast_mut().cast(),
                u32::try_from(pages.len())?,
                0,
                size,
                max_segment,
                bindings::GFP_KERNEL_ACCOUNT,
            )
        })?;
        Ok(Self(table))
    }

    /// The C structure.
    pub(super) fn as_raw(&self) -> *mut bindings::sg_table {
        self.0.get()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: `new` filled the table.
        unsafe { bindings::sg_free_table(self.0.get()) };
    }
}

/// The C structure of a device.
pub(super) fn raw_device(dev: &Device) -> *mut bindings::device {
    // CAST: `Device` is a transparent wrapper.
    core::ptr::from_ref(dev).cast_mut().cast()
}

#[kunit_tests(ochre_ext_scatterlist)]
mod tests {
    use kernel::page::Page;

    use super::{
        super::gem::test_driver::with_dma_device,
        *, //
    };

    fn pages(count: usize) -> Result<KVec<Page>> {
        let mut pages = KVec::new();
        for _ in 0..count {
            pages.push(Page::alloc_page(GFP_KERNEL)?, GFP_KERNEL)?;
        }
        Ok(pages)
    }

    fn map(dev: &Device<Bound>, pages: &[Page]) -> Result<DmaMap> {
        let mut raw = KVec::new();
        for page in pages {
            raw.push(NonNull::new(page.as_ptr()).ok_or(EINVAL)?, GFP_KERNEL)?;
        }
        // SAFETY: The callers keep the pages longer.
        unsafe { DmaMap::new(dev, &raw, DataDirection::Bidirectional) }
    }

    #[test]
    fn dropped_mappings_are_forgotten_in_any_order() -> Result {
        let pages = pages(3)?;
        with_dma_device(c"ochre-mappings", |dev| {
            let mut maps = KVec::new();
            for _ in 0..5 {
                maps.push(map(dev, &pages)?, GFP_KERNEL)?;
            }
            assert_eq!(Resource::count(dev)?, 5);
            drop(maps.remove(2).map_err(|_| EINVAL)?);
            drop(maps.remove(0).map_err(|_| EINVAL)?);
            assert_eq!(Resource::count(dev)?, 3);
            let total: u64 = maps[0].segments(dev)?.map(|segment| segment.len).sum();
            assert_eq!(total, 3 * PAGE_SIZE as u64);
            drop(maps);
            assert_eq!(Resource::count(dev)?, 0);
            Ok(())
        })
    }

    #[test]
    fn unbinding_ends_the_mappings_that_are_left() -> Result {
        let pages = pages(2)?;
        let (first, second) = with_dma_device(c"ochre-mappings", |dev| {
            Ok((map(dev, &pages)?, map(dev, &pages)?))
        })?;
        for map in [first, second] {
            let mut called = false;
            map.mapping.with_mapped(|_, _, _| called = true);
            assert!(!called);
        }
        Ok(())
    }

    #[test]
    fn mapping_of_another_device_has_no_addresses_here() -> Result {
        let pages = pages(1)?;
        with_dma_device(c"ochre-mappings", |dev| {
            let map = map(dev, &pages)?;
            with_dma_device(c"ochre-others", |other| {
                assert_eq!(map.segments(other).err(), Some(EINVAL));
                Ok(())
            })
        })
    }
}
