// SPDX-License-Identifier: GPL-2.0

//! Pages mapped for a device's DMA.
//!
//! C headers: [`include/linux/scatterlist.h`](srctree/include/linux/scatterlist.h),
//! [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)
//!
//! As `kernel::scatterlist::SGTable`, which takes only vmalloc memory, and for many mappings at once
//! ([`mappings`]).

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

use super::sys;

mod mappings;

use mappings::{
    Mapping,
    Mappings, //
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
    mapping: Arc<Mapping>,
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
        let owner = Mappings::of(dev)?;
        let table = Table::new(dev, pages)?;
        // SAFETY: Device and table are valid, the pages by the contract of this function.
        let mapping = unsafe { owner.map(table, direction)? };
        // SAFETY: Device and table are valid and mapped.
        let needs_sync =
            unsafe { sys::ochre_sgtable_needs_sync(raw_device(dev), mapping.table.0.get()) };
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
        if !self.mapping.owner.is_of(dev) {
            return Err(EINVAL);
        }
        // SAFETY: The table was mapped by `new` and stays so while the device is bound, which it is for
        // `'a`.
        let table = unsafe { SGTable::from_raw(self.mapping.table.0.get()) };
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
        self.mapping.owner.unmap(&self.mapping);
    }
}

/// A `struct sg_table` of its own allocation, so that it can move between owners.
struct Table(Pin<KBox<Opaque<bindings::sg_table>>>);

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
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: `new` filled the table.
        unsafe { bindings::sg_free_table(self.0.get()) };
    }
}

fn raw_device(dev: &Device) -> *mut bindings::device {
    // CAST: `Device` is a transparent wrapper.
    core::ptr::from_ref(dev).cast_mut().cast()
}
