// SPDX-License-Identifier: GPL-2.0

//! What a device has to be given back before it is unbound: DMA mappings and coherent memory.
//!
//! C headers: [`include/linux/device/devres.h`](srctree/include/linux/device/devres.h),
//! [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)
//!
//! An open file may keep buffers, page tables and queues long after the device is unbound; what they
//! have of the device must not last as long. `kernel::devres::Devres` sees to it for one value; it
//! searches the device's list of resources when that is dropped, and waits for an RCU grace period when
//! the device is unbound. A GPU's driver has tens of thousands. So a device has one resource for all of
//! them, with a list from which each can be taken.
//!
//! Locks: `Resources::list` guards which there are; giving back happens under it, so that unbinding
//! returns when none is left. It is a leaf, and a mutex: the DMA API may take its time.

use core::{
    cell::UnsafeCell,
    ptr, //
};

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    dma::{
        Coherent,
        DataDirection, //
    },
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

use super::scatterlist::{
    raw_device,
    Table, //
};

/// What one device has to be given back.
#[pin_data]
pub(super) struct Resources {
    dev: ARef<Device>,
    #[pin]
    list: Mutex<List<Resource>>,
}

/// Something of a device, until it is taken from the device's list.
#[pin_data]
pub(super) struct Resource {
    #[pin]
    links: ListLinks,
    owner: Arc<Resources>,
    kind: Kind,
    /// Cleared, and a grace period waited for, before unbinding takes it away.
    present: Atomic<bool>,
}

/// What it is.
enum Kind {
    /// A table that is mapped for the device.
    Mapping(Table, DataDirection),
    /// Memory that CPU and device share.
    Memory(Memory),
}

/// Coherent memory; nothing after [`Resource::give_back`].
struct Memory(UnsafeCell<Option<Coherent<[u64]>>>);

// SAFETY: The only access by a shared reference that changes the cell is `Resource::give_back`, which by
// its contract happens once and alone; all others share the memory, as `Coherent` allows.
unsafe impl Sync for Memory {}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Resource { untracked; }
}
impl_list_item! {
    impl ListItem<0> for Resource { using ListLinks { self.links }; }
}

/// What the device's entry in its list of resources has: a pointer from `Arc::into_raw`.
type Entry = *const Resources;

impl Resources {
    /// Those of `dev`. Allocates, the first time.
    fn of(dev: &Device<Bound>) -> Result<Arc<Self>> {
        let raw = raw_device(dev);
        // SAFETY: The device is valid. What is found was made below.
        let mut entry = unsafe {
            bindings::devres_find(raw, Some(give_all_back), None, ptr::null_mut()).cast::<Entry>()
        };
        if entry.is_null() {
            let resources = Arc::pin_init(
                pin_init!(Self {
                    dev: dev.into(),
                    list <- new_mutex!(List::new(), "ochre-resources"),
                }),
                GFP_KERNEL,
            )?;
            // SAFETY: Allocates room for a pointer; the name is static.
            let new = unsafe {
                bindings::__devres_alloc_node(
                    Some(give_all_back),
                    size_of::<Entry>(),
                    bindings::GFP_KERNEL,
                    bindings::NUMA_NO_NODE,
                    c"ochre-resources".as_char_ptr(),
                )
            }
            .cast::<Entry>();
            if new.is_null() {
                return Err(ENOMEM);
            }
            let pointer = Arc::into_raw(resources);
            // SAFETY: The room is ours and aligned for any pointer. The function adds it to the device,
            // or frees it, without a call of `give_all_back`, if there is one already.
            unsafe {
                new.write(pointer);
                entry = bindings::devres_get(raw, new.cast(), None, ptr::null_mut()).cast();
            }
            if !ptr::eq(entry, new) {
                // SAFETY: Nobody knows the pointer.
                drop(unsafe { Arc::from_raw(pointer) });
            }
        }
        // SAFETY: The device is bound, so the entry has its reference still, and nobody else has a
        // `UniqueArc`.
        Ok(unsafe { ArcBorrow::from_raw(*entry) }.into())
    }
}

impl Resource {
    fn new(dev: &Device<Bound>, kind: Kind) -> Result<ListArc<Self>> {
        let owner = Resources::of(dev)?;
        ListArc::pin_init(
            try_pin_init!(Self {
                links <- ListLinks::new(),
                owner,
                kind,
                present: Atomic::new(false),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Puts it into its device's list, which is bound.
    fn enter(item: ListArc<Self>) -> Arc<Self> {
        item.present.store(true, Relaxed);
        let resource = item.clone_arc();
        resource.owner.list.lock().push_back(item);
        resource
    }

    /// Maps `table` for `dev`.
    ///
    /// # Safety
    ///
    /// The pages of the table stay until [`Self::end`] was called with the result.
    pub(super) unsafe fn map(
        dev: &Device<Bound>,
        table: Table,
        direction: DataDirection,
    ) -> Result<Arc<Self>> {
        let raw_table = table.as_raw();
        let item = Self::new(dev, Kind::Mapping(table, direction))?;
        // SAFETY: Device and table are valid; the pages by the contract of this function.
        to_result(unsafe {
            bindings::dma_map_sgtable(raw_device(dev), raw_table, direction.into(), 0)
        })?;
        Ok(Self::enter(item))
    }

    /// Takes `memory` of `dev` over.
    pub(super) fn share(dev: &Device<Bound>, memory: Coherent<[u64]>) -> Result<Arc<Self>> {
        let memory = Memory(UnsafeCell::new(Some(memory)));
        Ok(Self::enter(Self::new(dev, Kind::Memory(memory))?))
    }

    /// Whether it is of `dev`.
    pub(super) fn is_of(&self, dev: &Device<Bound>) -> bool {
        let dev: &Device = dev;
        ptr::eq::<Device>(&*self.owner.dev, dev)
    }

    /// Gives it back, unless unbinding has.
    ///
    /// # Safety
    ///
    /// No other call on it is at work, and none follows.
    pub(super) unsafe fn end(&self) {
        let mut list = self.owner.list.lock();
        // SAFETY: Only `enter` puts resources into a list, each into that of its owner.
        if let Some(item) = unsafe { list.remove(self) } {
            // SAFETY: It was in the list, and nobody uses it by the contract of this function.
            unsafe { item.give_back() };
        }
    }

    /// # Safety
    ///
    /// Called once, with the lock of the list that it was taken from, when nobody uses it any more.
    unsafe fn give_back(&self) {
        match &self.kind {
            // SAFETY: It was mapped before it was put into the list. The table is freed later, the
            // pages later still.
            Kind::Mapping(table, direction) => unsafe {
                bindings::dma_unmap_sgtable(
                    raw_device(&self.owner.dev),
                    table.as_raw(),
                    (*direction).into(),
                    0,
                )
            },
            // SAFETY: Nobody else has a reference to what is inside, by the contract of this function.
            Kind::Memory(memory) => drop(unsafe { (*memory.0.get()).take() }),
        }
    }

    /// The table, if it is one. It says where it is mapped as long as the device is bound.
    pub(super) fn table(&self) -> Option<&Table> {
        match &self.kind {
            Kind::Mapping(table, _) => Some(table),
            Kind::Memory(_) => None,
        }
    }

    /// Calls `f` with device, table and direction, if a table is mapped, and keeps it so during the
    /// call, which must not sleep.
    pub(super) fn with_mapped(
        &self,
        f: impl FnOnce(*mut bindings::device, *mut bindings::sg_table, bindings::dma_data_direction),
    ) {
        let _guard = rcu::Guard::new();
        if let (true, Kind::Mapping(table, direction)) = (self.present.load(Relaxed), &self.kind) {
            f(
                raw_device(&self.owner.dev),
                table.as_raw(),
                (*direction).into(),
            );
        }
    }

    /// Calls `f` with the memory, if it is there, and keeps it so during the call, which must not sleep.
    /// [`ENODEV`] otherwise.
    #[inline]
    pub(super) fn with_memory<R>(
        &self,
        f: impl FnOnce(&Coherent<[u64]>) -> Result<R>,
    ) -> Result<R> {
        let _guard = rcu::Guard::new();
        match &self.kind {
            Kind::Memory(memory) if self.present.load(Relaxed) => {
                // SAFETY: While it is marked as present, unbinding gives it back only after a grace
                // period, which the guard holds up, and `end` by its contract not during this call.
                let memory = unsafe { (*memory.0.get()).as_ref() };
                f(memory.ok_or(ENODEV)?)
            }
            _ => Err(ENODEV),
        }
    }

    /// How many `dev` has to be given back.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(super) fn count(dev: &Device<Bound>) -> Result<usize> {
        Ok(Resources::of(dev)?.list.lock().iter().count())
    }
}

/// Takes back all that a device was given.
///
/// # Safety
///
/// As a release function of device resources, for one that [`Resources::of`] made.
unsafe extern "C" fn give_all_back(_dev: *mut bindings::device, entry: *mut c_void) {
    // SAFETY: `Resources::of` stored the pointer, and it is taken once.
    let resources = unsafe { Arc::from_raw(*entry.cast::<Entry>()) };
    let mut list = resources.list.lock();
    if list.is_empty() {
        return;
    }
    for resource in list.iter() {
        resource.present.store(false, Relaxed);
    }
    // SAFETY: Unbinding runs in process context, where sleeping is fine.
    unsafe { bindings::synchronize_rcu() };
    while let Some(item) = list.pop_front() {
        // SAFETY: It was in the list, and whoever used it when it was still present has ended.
        unsafe { item.give_back() };
    }
}
