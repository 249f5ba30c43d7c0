// SPDX-License-Identifier: GPL-2.0

//! All DMA mappings of a device.
//!
//! C headers: [`include/linux/device/devres.h`](srctree/include/linux/device/devres.h),
//! [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)
//!
//! A mapping has to end before its device is unbound. `kernel::devres::Devres` sees to it for one value;
//! it searches the device's list of resources when that is dropped, and waits for an RCU grace period
//! when the device is unbound. A GPU's driver has a mapping for each buffer, tens of thousands. So a
//! device has one resource for all of them, with a list from which each can be taken.
//!
//! Locks: `Mappings::list` guards which mappings exist; unmapping happens under it, so that unbinding
//! returns when none is left. It is a leaf, and a mutex: the DMA API may take its time.

use core::ptr;

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    dma::DataDirection,
    error::to_result,
    ffi::c_void,
    list::{
        impl_list_arc_safe,
        impl_list_item,
        List,
        ListArc,
        ListLinks, //
    },
    new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        rcu,
        Arc,
        ArcBorrow,
        Mutex, //
    }, //
};

use super::{
    raw_device,
    Table, //
};

/// The mappings of one device.
#[pin_data]
pub(super) struct Mappings {
    dev: ARef<Device>,
    #[pin]
    list: Mutex<List<Mapping>>,
}

/// A table that is mapped for a device until it is taken from the device's list.
#[pin_data]
pub(super) struct Mapping {
    #[pin]
    links: ListLinks,
    pub(super) table: Table,
    pub(super) owner: Arc<Mappings>,
    direction: DataDirection,
    /// Cleared, and a grace period waited for, before unbinding ends the mapping.
    mapped: Atomic<bool>,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Mapping { untracked; }
}
impl_list_item! {
    impl ListItem<0> for Mapping { using ListLinks { self.links }; }
}

/// What the device's resource holds: a pointer from `Arc::into_raw`.
type Resource = *const Mappings;

impl Mappings {
    /// The mappings of `dev`. Allocates, the first time.
    pub(super) fn of(dev: &Device<Bound>) -> Result<Arc<Self>> {
        let raw = raw_device(dev);
        // SAFETY: The device is valid. What is found was made below.
        let mut resource = unsafe {
            bindings::devres_find(raw, Some(unmap_all), None, ptr::null_mut()).cast::<Resource>()
        };
        if resource.is_null() {
            let mappings = Arc::pin_init(
                pin_init!(Self {
                    dev: dev.into(),
                    list <- new_mutex!(List::new(), "ochre-mappings"),
                }),
                GFP_KERNEL,
            )?;
            // SAFETY: Allocates room for a pointer; the name is static.
            let new = unsafe {
                bindings::__devres_alloc_node(
                    Some(unmap_all),
                    size_of::<Resource>(),
                    bindings::GFP_KERNEL,
                    bindings::NUMA_NO_NODE,
                    c"ochre-mappings".as_char_ptr(),
                )
            }
            .cast::<Resource>();
            if new.is_null() {
                return Err(ENOMEM);
            }
            let pointer = Arc::into_raw(mappings);
            // SAFETY: The room is ours and aligned for any pointer. The function adds it to the device,
            // or frees it, without a call of `unmap_all`, if there is one already.
            unsafe {
                new.write(pointer);
                resource = bindings::devres_get(raw, new.cast(), None, ptr::null_mut()).cast();
            }
            if !ptr::eq(resource, new) {
                // SAFETY: Nobody knows the pointer.
                drop(unsafe { Arc::from_raw(pointer) });
            }
        }
        // SAFETY: The device is bound, so the resource has its reference still, and nobody else has a
        // `UniqueArc`.
        Ok(unsafe { ArcBorrow::from_raw(*resource) }.into())
    }

    /// Whether `dev` is their device.
    pub(super) fn is_of(&self, dev: &Device<Bound>) -> bool {
        let dev: &Device = dev;
        ptr::eq::<Device>(&*self.dev, dev)
    }

    /// Maps `table`.
    ///
    /// # Safety
    ///
    /// The device is bound. The pages of the table stay until [`Self::unmap`] was called with the result.
    pub(super) unsafe fn map(
        self: Arc<Self>,
        table: Table,
        direction: DataDirection,
    ) -> Result<Arc<Mapping>> {
        let item = ListArc::pin_init(
            try_pin_init!(Mapping {
                links <- ListLinks::new(),
                table,
                owner: self,
                direction,
                mapped: Atomic::new(false),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: Device and table are valid; the pages by the contract of this function.
        to_result(unsafe {
            bindings::dma_map_sgtable(
                raw_device(&item.owner.dev),
                item.table.0.get(),
                direction.into(),
                0,
            )
        })?;
        item.mapped.store(true, Relaxed);
        let mapping = item.clone_arc();
        mapping.owner.list.lock().push_back(item);
        Ok(mapping)
    }

    /// Ends `mapping`, unless unbinding has.
    pub(super) fn unmap(&self, mapping: &Mapping) {
        let mut list = self.list.lock();
        // SAFETY: Only `map` puts mappings into a list, each into that of its owner.
        if let Some(item) = unsafe { list.remove(mapping) } {
            // SAFETY: It was in the list.
            unsafe { item.unmap() };
        }
    }
}

/// Ends all mappings of a device.
///
/// # Safety
///
/// As a release function of device resources, for one that [`Mappings::of`] made.
unsafe extern "C" fn unmap_all(_dev: *mut bindings::device, resource: *mut c_void) {
    // SAFETY: `Mappings::of` stored the pointer, and it is taken once.
    let mappings = unsafe { Arc::from_raw(*resource.cast::<Resource>()) };
    let mut list = mappings.list.lock();
    if list.is_empty() {
        return;
    }
    for mapping in list.iter() {
        mapping.mapped.store(false, Relaxed);
    }
    // SAFETY: Unbinding runs in process context, where sleeping is fine.
    unsafe { bindings::synchronize_rcu() };
    while let Some(item) = list.pop_front() {
        // SAFETY: It was in the list.
        unsafe { item.unmap() };
    }
}

impl Mapping {
    /// # Safety
    ///
    /// The table is mapped; called with the lock of the list that it was taken from.
    unsafe fn unmap(&self) {
        // SAFETY: By the contract of this function. The table is freed later, the pages later still.
        unsafe {
            bindings::dma_unmap_sgtable(
                raw_device(&self.owner.dev),
                self.table.0.get(),
                self.direction.into(),
                0,
            )
        };
    }

    /// Calls `f` with device, table and direction, if the table is mapped, and keeps it so during the
    /// call, which must not sleep.
    pub(super) fn with_mapped(
        &self,
        f: impl FnOnce(*mut bindings::device, *mut bindings::sg_table, bindings::dma_data_direction),
    ) {
        let _guard = rcu::Guard::new();
        if self.mapped.load(Relaxed) {
            f(
                raw_device(&self.owner.dev),
                self.table.0.get(),
                self.direction.into(),
            );
        }
    }
}

#[kunit_tests(ochre_ext_scatterlist)]
mod tests {
    use kernel::page::Page;

    use super::{
        super::{
            super::gem::test_driver::with_dma_device,
            DmaMap, //
        },
        *,
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
            raw.push(ptr::NonNull::new(page.as_ptr()).ok_or(EINVAL)?, GFP_KERNEL)?;
        }
        // SAFETY: The callers keep the pages longer.
        unsafe { DmaMap::new(dev, &raw, DataDirection::Bidirectional) }
    }

    fn count(dev: &Device<Bound>) -> Result<usize> {
        Ok(Mappings::of(dev)?.list.lock().iter().count())
    }

    #[test]
    fn dropped_mappings_are_forgotten_in_any_order() -> Result {
        let pages = pages(3)?;
        with_dma_device(c"ochre-mappings", |dev| {
            let mut maps = KVec::new();
            for _ in 0..5 {
                maps.push(map(dev, &pages)?, GFP_KERNEL)?;
            }
            assert_eq!(count(dev)?, 5);
            drop(maps.remove(2).map_err(|_| EINVAL)?);
            drop(maps.remove(0).map_err(|_| EINVAL)?);
            assert_eq!(count(dev)?, 3);
            let total: u64 = maps[0].segments(dev)?.map(|segment| segment.len).sum();
            assert_eq!(total, 3 * kernel::page::PAGE_SIZE as u64);
            drop(maps);
            assert_eq!(count(dev)?, 0);
            Ok(())
        })
    }

    #[test]
    fn unbinding_ends_the_mappings_that_are_left() -> Result {
        let pages = pages(2)?;
        let (first, second) = with_dma_device(c"ochre-mappings", |dev| {
            Ok((map(dev, &pages)?, map(dev, &pages)?))
        })?;
        assert!(!first.mapping.mapped.load(Relaxed));
        let mut called = false;
        second.mapping.with_mapped(|_, _, _| called = true);
        assert!(!called);
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
