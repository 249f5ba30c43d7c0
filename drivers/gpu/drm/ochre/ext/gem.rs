// SPDX-License-Identifier: GPL-2.0

//! Buffer objects that the CPU can map.
//!
//! C header: [`include/drm/drm_gem.h`](srctree/include/drm/drm_gem.h)
//!
//! `kernel::drm::gem::Object` has no memory behind it. [`new_object`] swaps the object's function
//! table for one that calls [`BoOps`], before anybody can have a handle to the object.
//!
//! How the CPU gets at a buffer: `mmap()` only sets the mapping up ([`BoOps::mmap`]). A fault asks
//! [`BoOps::fault`], which, with the lock held that guards where the buffer is, answers with
//! [`CpuPage`]s. A page can be video memory (a page of a BAR, write-combined), system memory (a page
//! of [`SysPages`], cached), or a page of a [`Window`](super::pci::Window), cached as the mapping says,
//! and may change from one fault to the next.
//!
//! How it loses it again: [`ObjectExt::unmap_cpu`] before video memory is given to someone else;
//! the drop of [`SysPages`]; and unbinding, when `drm_dev_unplug()` removes all mappings of the
//! device and later faults give `SIGBUS`.
//!
//! How others get at it: as a dma-buf, see [`Shared`] and [`new_imported`].
//!
//! Locks: the fault handler runs with the `mmap` lock held. So no lock that [`BoOps::fault`] takes
//! may be held while user memory is accessed.

use core::{
    ops::Deref,
    ptr, //
};

use kernel::{
    bindings,
    drm::{
        self,
        gem::{
            BaseObject,
            DriverObject,
            IntoGEMObject,
            Object, //
        },
    },
    error::to_result,
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef, //
};

use super::{
    dma_resv::DmaResv,
    sys,
    table::StaticTable,
    virtio_dma_buf, //
};

mod array;
mod bare;
mod fault;
mod mapping;
mod prime;
mod sys_pages;
#[cfg(CONFIG_KUNIT = "y")]
pub(super) mod test_driver;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;

pub(super) use prime::import;

pub(crate) use self::{
    array::ObjectArray,
    fault::{
        CpuPage,
        Fault,
        FaultResult, //
    },
    mapping::{
        Caching,
        CpuMapping, //
    },
    prime::{
        new_imported,
        Shared, //
    },
    sys_pages::{
        PinnedPages,
        SysPages, //
    },
};

/// Home of the object functions of one driver: a `static`, returned by [`BoOps::table`].
pub(crate) struct ObjectTable {
    funcs: StaticTable<Funcs>,
    /// Their address tells our dma-bufs from those of others.
    dma_buf_ops: StaticTable<virtio_dma_buf::Ops>,
}

impl ObjectTable {
    /// Creates tables that [`new_object`] and the first export fill.
    pub(crate) const fn new() -> Self {
        Self {
            funcs: StaticTable::new(),
            dma_buf_ops: StaticTable::new(),
        }
    }
}

/// What an object's function table points to.
#[repr(C)]
struct Funcs {
    /// First, so that whoever has the one has the other.
    table: bindings::drm_gem_object_funcs,
    /// The function that `table.free` ends with.
    free: Option<unsafe extern "C" fn(*mut bindings::drm_gem_object)>,
    /// Of the object that has them.
    layout: bare::Layout,
}

/// Where a buffer counts in `fdinfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// It has memory.
    pub(crate) resident: bool,
    /// Its memory may be taken at any time.
    pub(crate) purgeable: bool,
}

/// A [`DriverObject`] with memory behind it.
pub(crate) trait BoOps: DriverObject
where
    Self::Driver: drm::Driver<Object = Object<Self>>,
{
    /// Whether objects have a shared memory file, for [`PinnedPages::new`]. Without one they cost less.
    /// (The first of all has one in any case.)
    const MEMORY_FILE: bool = true;

    /// The static that holds this type's functions; no other type may return the same.
    fn table() -> &'static ObjectTable;

    /// Says what a new mapping is like, or refuses it.
    ///
    /// Runs in `mmap(2)` with the `mmap` lock of the program held; may wait, interruptibly. The device
    /// may be unbound. Not called for objects of [`new_imported`], which their exporter maps.
    fn mmap(_obj: &Object<Self>) -> Result<CpuMapping> {
        Ok(CpuMapping::Faults)
    }

    /// Maps the page that the CPU touched.
    ///
    /// The device is bound; it must not be waited for.
    fn fault(
        obj: &Object<Self>,
        dev: &drm::Device<Self::Driver, drm::Registered>,
        fault: Fault<'_>,
    ) -> FaultResult;

    /// What a dma-buf of the object offers to other devices and to the kernel.
    ///
    /// Runs with the object's reservation object locked, and must give the same for as long as the
    /// object lives, once it was asked; but part of a window becomes nothing when the device goes.
    fn share(_obj: &Object<Self>) -> Shared<'_> {
        Shared::Nothing
    }

    /// The object is about to become a dma-buf, for the first time since it last had no handle.
    ///
    /// Runs with the device's `object_name_lock` held. An error refuses it.
    fn export(_obj: &Object<Self>) -> Result {
        Ok(())
    }

    /// Whether other virtio devices know dma-bufs of the objects by their UUID.
    const VIRTIO_DMA_BUF: bool = false;

    /// The UUID of the object, for [`Self::VIRTIO_DMA_BUF`].
    ///
    /// May wait, interruptibly. Returns [`ENODEV`] if the object has none.
    fn uuid(_obj: &Object<Self>) -> Result<[u8; 16]> {
        Err(ENODEV)
    }

    /// Where the object counts in `fdinfo`. Called with a spinlock held.
    fn status(obj: &Object<Self>) -> Status;

    /// Bytes of memory that the object has now. Called with a spinlock held.
    fn rss(obj: &Object<Self>) -> usize;
}

/// Creates an object of `size` bytes, a multiple of the page size and not 0, else [`EINVAL`].
///
/// Its mmap offset exists from the beginning, so that all mappings can be found.
pub(crate) fn new_object<T: BoOps>(
    dev: &drm::Device<T::Driver>,
    size: usize,
    args: T::Args,
) -> Result<ARef<Object<T>>>
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    let obj = make_object::<T>(dev, size, args)?;
    obj.create_mmap_offset()?;
    Ok(obj)
}

/// As [`new_object`], without an mmap offset.
fn make_object<T: BoOps>(
    dev: &drm::Device<T::Driver>,
    size: usize,
    args: T::Args,
) -> Result<ARef<Object<T>>>
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    if size == 0 || size % PAGE_SIZE != 0 {
        return Err(EINVAL);
    }
    if let (false, Some(funcs)) = (T::MEMORY_FILE, T::table().funcs.get()) {
        return bare::make(dev, size, args, funcs);
    }
    let obj = Object::<T>::new(dev, size, args)?;
    let raw = IntoGEMObject::as_raw(&*obj);

    // SAFETY: A new object points to the complete functions of its type.
    let original = unsafe { *(*raw).funcs };
    let funcs = T::table().funcs.get_or_fill(|| Funcs {
        table: bindings::drm_gem_object_funcs {
            free: Some(prime::free),
            export: Some(prime::export::<T>),
            get_sg_table: Some(prime::get_sg_table::<T>),
            vmap: Some(prime::vmap::<T>),
            vunmap: Some(prime::vunmap),
            mmap: Some(mapping::mmap::<T>),
            status: Some(status::<T>),
            rss: Some(rss::<T>),
            vm_ops: const { &vm_ops::<T>() },
            ..original
        },
        free: original.free,
        layout: bare::Layout::of(&*obj),
    })?;
    // SAFETY: Nobody else knows the object yet. The new functions do all that the old ones did.
    unsafe { (*raw).funcs = ptr::from_ref(funcs).cast() };
    Ok(obj)
}

const fn vm_ops<T: BoOps>() -> bindings::vm_operations_struct
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    let mut ops: bindings::vm_operations_struct = pin_init::zeroed();
    ops.open = Some(bindings::drm_gem_vm_open);
    ops.close = Some(bindings::drm_gem_vm_close);
    ops.fault = Some(fault::fault::<T>);
    ops
}

/// # Safety
///
/// As `drm_gem_object_funcs.status`, of an object of `T`.
unsafe extern "C" fn status<T: BoOps>(
    obj: *mut bindings::drm_gem_object,
) -> bindings::drm_gem_object_status
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    // SAFETY: Called for objects with the table of `T`, which has a handle and so is alive.
    let status = T::status(unsafe { Object::<T>::from_raw(obj) });
    let mut bits = 0;
    if status.resident {
        bits |= bindings::drm_gem_object_status_DRM_GEM_OBJECT_RESIDENT;
    }
    if status.purgeable {
        bits |= bindings::drm_gem_object_status_DRM_GEM_OBJECT_PURGEABLE;
    }
    bits
}

/// # Safety
///
/// As `drm_gem_object_funcs.rss`, of an object of `T`.
unsafe extern "C" fn rss<T: BoOps>(obj: *mut bindings::drm_gem_object) -> usize
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    // SAFETY: As in `status`.
    T::rss(unsafe { Object::<T>::from_raw(obj) })
}

/// What all objects can do beyond [`BaseObject`].
pub(crate) trait ObjectExt: IntoGEMObject {
    /// Takes the object away from all CPU mappings; the next access faults.
    ///
    /// To be called with the lock held that [`BoOps::fault`] takes, before memory of the aperture
    /// gets another owner.
    fn unmap_cpu(&self) {
        // SAFETY: The object and its device are valid.
        unsafe { sys::ochre_gem_unmap(self.as_raw()) };
    }

    /// The fences of the object's users; of an imported one, also those in other drivers.
    fn resv(&self) -> &DmaResv {
        // SAFETY: The object is valid. Its reservation object does not change once it is known, and
        // lives as long as it: it is a part of it or of the dma-buf that it holds.
        unsafe { DmaResv::from_raw((*self.as_raw()).resv) }
    }

    /// Whether both are the same object.
    fn is_same(&self, other: &Self) -> bool {
        ptr::eq(self.as_raw(), other.as_raw())
    }
}

impl<T: IntoGEMObject> ObjectExt for T {}

/// A reference to an object that can be kept anywhere and used from any thread.
///
/// Two are equal if they are references to the same object.
pub(crate) struct ObjectRef<T: DriverObject>(ARef<Object<T>>);

// SAFETY: The reference count of a GEM object is atomic, and the object's constants and locks may be
// used from any thread. `T` is `Send` and `Sync` by its trait.
unsafe impl<T: DriverObject> Send for ObjectRef<T> {}
// SAFETY: As above.
unsafe impl<T: DriverObject> Sync for ObjectRef<T> {}

impl<T: DriverObject> From<ARef<Object<T>>> for ObjectRef<T> {
    fn from(object: ARef<Object<T>>) -> Self {
        Self(object)
    }
}

impl<T: DriverObject> Clone for ObjectRef<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: DriverObject> PartialEq for ObjectRef<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }
}

impl<T: DriverObject> Deref for ObjectRef<T> {
    type Target = Object<T>;

    fn deref(&self) -> &Object<T> {
        &self.0
    }
}

/// Takes a handle away from a file. Returns [`EINVAL`] if there is none.
///
/// For the way back of an ioctl that had created it.
pub(crate) fn delete_handle<F: drm::file::DriverFile>(file: &drm::File<F>, handle: u32) -> Result {
    // SAFETY: `drm::File` is a transparent wrapper of an open `drm_file`.
    to_result(unsafe {
        bindings::drm_gem_handle_delete(ptr::from_ref(file).cast_mut().cast(), handle)
    })
}
