// SPDX-License-Identifier: GPL-2.0

//! Buffer objects that the CPU can map.
//!
//! C header: [`include/drm/drm_gem.h`](srctree/include/drm/drm_gem.h)
//!
//! `kernel::drm::gem::Object` has no memory behind it. [`new_object`] swaps the object's function
//! table for one that calls [`BoOps`], before anybody can have a handle to the object.
//!
//! How the CPU gets at a buffer: `mmap()` only sets the mapping up. A fault asks [`BoOps::fault`],
//! which, with the lock held that guards where the buffer is, answers with [`CpuPage`]s. A page can
//! be video memory (a page of a BAR, write-combined) or system memory (a page of [`SysPages`],
//! cached), and may change from one fault to the next.
//!
//! How it loses it again: [`ObjectExt::unmap_cpu`] before video memory is given to someone else;
//! the drop of [`SysPages`]; and unbinding, when `drm_dev_unplug()` removes all mappings of the
//! device and later faults give `SIGBUS`.
//!
//! Locks: the fault handler runs with the `mmap` lock held. So no lock that [`BoOps::fault`] takes
//! may be held while user memory is accessed.

use core::{
    marker::PhantomData,
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
    ffi::{
        c_int,
        c_ulong, //
    },
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::aref::ARef, //
};

use super::{
    pci::Aperture,
    sys,
    table::StaticTable, //
};

mod sys_pages;

pub(crate) use sys_pages::{
    PinnedPages,
    SysPages, //
};

/// How many pages one fault may map: the one that was touched and those after it.
const FAULT_PAGES: usize = 16;

/// Home of the object functions of one driver: a `static`, returned by [`BoOps::table`].
pub(crate) struct ObjectTable(StaticTable<bindings::drm_gem_object_funcs>);

impl ObjectTable {
    /// Creates a table that [`new_object`] fills.
    pub(crate) const fn new() -> Self {
        Self(StaticTable::new())
    }
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
    /// The static that holds this type's functions; no other type may return the same.
    fn table() -> &'static ObjectTable;

    /// Maps the page that the CPU touched.
    ///
    /// The device is bound; it must not be waited for.
    fn fault(
        obj: &Object<Self>,
        dev: &drm::Device<Self::Driver, drm::Registered>,
        fault: Fault<'_>,
    ) -> FaultResult;

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
    if size == 0 || size % PAGE_SIZE != 0 {
        return Err(EINVAL);
    }
    let obj = Object::<T>::new(dev, size, args)?;
    let raw = IntoGEMObject::as_raw(&*obj);

    // SAFETY: A new object points to the complete functions of its type.
    let original = unsafe { *(*raw).funcs };
    let funcs = T::table()
        .0
        .get_or_fill(|| bindings::drm_gem_object_funcs {
            mmap: Some(mmap),
            status: Some(status::<T>),
            rss: Some(rss::<T>),
            vm_ops: const { &vm_ops::<T>() },
            ..original
        })?;
    // SAFETY: Nobody else knows the object yet. The new functions do all that the old ones did.
    unsafe { (*raw).funcs = funcs };

    obj.create_mmap_offset()?;
    Ok(obj)
}

const fn vm_ops<T: BoOps>() -> bindings::vm_operations_struct
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    let mut ops: bindings::vm_operations_struct = pin_init::zeroed();
    ops.open = Some(bindings::drm_gem_vm_open);
    ops.close = Some(bindings::drm_gem_vm_close);
    ops.fault = Some(fault::<T>);
    ops
}

/// # Safety
///
/// As `drm_gem_object_funcs.mmap`.
unsafe extern "C" fn mmap(
    _obj: *mut bindings::drm_gem_object,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    // SAFETY: Called by `mmap()` for a new area, whose `vm_ops` are ours already.
    unsafe { sys::ochre_gem_vma_setup(vma) }
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

/// # Safety
///
/// As `vm_operations_struct.fault`, in an area that shows an object of `T`.
unsafe extern "C" fn fault<T: BoOps>(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    // SAFETY: `drm_gem_mmap_obj()` put an object of `T` with a reference behind the area; both live
    // until the area is closed, which cannot happen during a fault.
    let (raw, dev) = unsafe {
        let raw = (*(*vmf).__bindgen_anon_1.vma)
            .vm_private_data
            .cast::<bindings::drm_gem_object>();
        (
            raw,
            drm::Device::<T::Driver, drm::Ioctl>::from_raw((*raw).dev),
        )
    };
    let Some(guard) = dev.registration_guard() else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    // SAFETY: As above.
    let obj = unsafe { Object::<T>::from_raw(raw) };

    // SAFETY: As above. The page number counts from the object's offset, whatever part of the
    // object the area shows.
    let Some(fault) = (unsafe { Fault::new(vmf, raw) }) else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    T::fault(obj, &guard, fault).0
}

/// A page for [`Fault::insert`].
pub(crate) struct CpuPage<'a> {
    pfn: c_ulong,
    write_combined: bool,
    /// The system pages it comes from: they note who maps them.
    system: Option<&'a SysPages>,
    _page: PhantomData<&'a ()>,
}

impl<'a> CpuPage<'a> {
    /// The page of video memory that contains byte `offset` of the aperture.
    pub(crate) fn from_aperture(aperture: &'a Aperture<'_>, offset: u64) -> Option<Self> {
        let addr = aperture.page_address(offset)?;
        Some(Self {
            pfn: c_ulong::try_from(addr >> PAGE_SHIFT).ok()?,
            write_combined: true,
            system: None,
            _page: PhantomData,
        })
    }
}

/// A page fault in a mapping of an object.
pub(crate) struct Fault<'a> {
    vmf: *mut bindings::vm_fault,
    /// The page of the object that was touched.
    page: usize,
    /// How many pages may be mapped, from that one on.
    pages: usize,
    /// Where the object lies in the device's space of mmap offsets, in pages.
    node_start: u64,
    _vmf: PhantomData<&'a mut bindings::vm_fault>,
}

impl Fault<'_> {
    /// # Safety
    ///
    /// `vmf` is a fault in an area that shows `obj`, and both are valid for the lifetime chosen.
    unsafe fn new(
        vmf: *mut bindings::vm_fault,
        obj: *mut bindings::drm_gem_object,
    ) -> Option<Self> {
        // SAFETY: By the contract of this function. The mmap offset does not change while the
        // object lives.
        let (address, pgoff, vm_end, node_start, size) = unsafe {
            let fault = &(*vmf).__bindgen_anon_1;
            (
                fault.address,
                fault.pgoff,
                (*fault.vma).__bindgen_anon_1.__bindgen_anon_1.vm_end,
                (*obj).vma_node.vm_node.start,
                (*obj).size,
            )
        };
        let page = usize::try_from(u64::try_from(pgoff).ok()?.checked_sub(node_start)?).ok()?;
        let of_object = (size >> PAGE_SHIFT).checked_sub(page).filter(|&n| n > 0)?;
        let of_area = vm_end.checked_sub(address)? >> PAGE_SHIFT;
        Some(Self {
            vmf,
            page,
            pages: of_object.min(of_area).min(FAULT_PAGES),
            node_start,
            _vmf: PhantomData,
        })
    }

    /// The number of the page in the object.
    pub(crate) fn page_index(&self) -> usize {
        self.page
    }

    /// Maps the page, and some after it if `page_at` has them.
    ///
    /// `page_at` takes page numbers of the object; for the first of them [`None`] gives `SIGBUS`.
    /// The lock that keeps the pages where they are has to be held around this call.
    pub(crate) fn insert<'p>(
        self,
        mut page_at: impl FnMut(usize) -> Option<CpuPage<'p>>,
    ) -> FaultResult {
        let mut result = self.insert_one(0, page_at(self.page));
        if result.0 != bindings::vm_fault_reason_VM_FAULT_NOPAGE {
            return result;
        }
        // Whatever goes wrong now only costs another fault.
        for ahead in 1..self.pages {
            let Some(page) = page_at(self.page + ahead) else {
                break;
            };
            result = self.insert_one(ahead, Some(page));
            if result.0 != bindings::vm_fault_reason_VM_FAULT_NOPAGE {
                break;
            }
        }
        FaultResult(bindings::vm_fault_reason_VM_FAULT_NOPAGE)
    }

    fn insert_one(&self, ahead: usize, page: Option<CpuPage<'_>>) -> FaultResult {
        let Some(page) = page else {
            return FaultResult(bindings::vm_fault_reason_VM_FAULT_SIGBUS);
        };
        if page
            .system
            .is_some_and(|system| system.node_start() != self.node_start)
        {
            // Pages of one object shown by another would not be found when they are freed.
            return FaultResult(bindings::vm_fault_reason_VM_FAULT_SIGBUS);
        }
        // SAFETY: The fault is valid, and `ahead` pages after it are within its area, which the
        // mmap callback set up for page frames. The page cannot be freed while it is mapped: video
        // memory is unmapped by `drm_dev_unplug()` before its BAR is released, system memory by the
        // drop of `SysPages`, which cannot run now, since `page` borrows it.
        FaultResult(unsafe {
            sys::ochre_vmf_insert_pfn(self.vmf, ahead, page.pfn, page.write_combined)
        })
    }

    /// Kills the access with `SIGBUS`: the object has no memory that the CPU can map.
    pub(crate) fn sigbus(self) -> FaultResult {
        FaultResult(bindings::vm_fault_reason_VM_FAULT_SIGBUS)
    }

    /// There is no memory: lets the kernel make room and the access happen again, or kill the task.
    pub(crate) fn out_of_memory(self) -> FaultResult {
        FaultResult(bindings::vm_fault_reason_VM_FAULT_OOM)
    }

    /// Lets the access happen again, for example after a signal.
    pub(crate) fn retry(self) -> FaultResult {
        FaultResult(bindings::vm_fault_reason_VM_FAULT_NOPAGE)
    }
}

/// How a [`Fault`] was handled.
#[must_use]
pub(crate) struct FaultResult(bindings::vm_fault_t);

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
