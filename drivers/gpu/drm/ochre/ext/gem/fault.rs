// SPDX-License-Identifier: GPL-2.0

//! Page faults of objects.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)

use core::marker::PhantomData;

use kernel::{
    bindings,
    drm::{
        self,
        gem::{
            IntoGEMObject,
            Object, //
        },
    },
    ffi::c_ulong,
    page::PAGE_SHIFT,
    prelude::*, //
};

use super::{
    BoOps,
    SysPages, //
};
use crate::ext::{
    pci::{
        Aperture,
        WindowRange, //
    },
    sys, //
};

/// How many pages one fault may map: the one that was touched and those after it.
const FAULT_PAGES: usize = 16;
/// As [`FAULT_PAGES`], of a window. Its pages never move one by one, so the more the better; the limit
/// is a page of page table entries.
const WINDOW_FAULT_PAGES: usize = 512;

/// # Safety
///
/// As `vm_operations_struct.fault`, in an area that shows an object of `T`.
pub(super) unsafe extern "C" fn fault<T: BoOps>(
    vmf: *mut bindings::vm_fault,
) -> bindings::vm_fault_t
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    // SAFETY: `drm_gem_mmap_obj()` or `drm_gem_prime_mmap()` put an object of `T` with a reference
    // behind the area; both live until the area is closed, which cannot happen during a fault.
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

/// Whose page it is.
enum Owner<'a> {
    Aperture,
    /// The system pages it comes from: they note who maps them.
    System(&'a SysPages),
    Window(&'a WindowRange),
}

/// A page for [`Fault::insert`].
pub(crate) struct CpuPage<'a> {
    pfn: c_ulong,
    owner: Owner<'a>,
    _page: PhantomData<&'a ()>,
}

impl<'a> CpuPage<'a> {
    /// The page of video memory that contains byte `offset` of the aperture.
    pub(crate) fn from_aperture(aperture: &'a Aperture<'_>, offset: u64) -> Option<Self> {
        let addr = aperture.page_address(offset)?;
        Some(Self {
            pfn: c_ulong::try_from(addr >> PAGE_SHIFT).ok()?,
            owner: Owner::Aperture,
            _page: PhantomData,
        })
    }

    /// Page number `index` of `range`, with the caching that
    /// [`CpuMapping::Window`](super::CpuMapping::Window) named for the mapping.
    pub(crate) fn from_window(range: &'a WindowRange, index: usize) -> Option<Self> {
        let addr = range.page_address(index)?;
        Some(Self {
            pfn: c_ulong::try_from(addr >> PAGE_SHIFT).ok()?,
            owner: Owner::Window(range),
            _page: PhantomData,
        })
    }

    /// Page frame `pfn`, which `pages` has pinned.
    pub(super) fn from_system(pages: &'a SysPages, pfn: c_ulong) -> Self {
        Self {
            pfn,
            owner: Owner::System(pages),
            _page: PhantomData,
        }
    }
}

/// A page fault in a mapping of an object.
pub(crate) struct Fault<'a> {
    vmf: *mut bindings::vm_fault,
    /// The page of the object that was touched.
    page: usize,
    /// How many pages object and area have, from that one on.
    pages: usize,
    /// Where the object lies in the device's space of mmap offsets, in pages.
    node_start: u64,
    /// The device that is bound.
    parent: *mut bindings::device,
    _vmf: PhantomData<&'a mut bindings::vm_fault>,
}

impl Fault<'_> {
    /// # Safety
    ///
    /// `vmf` is a fault in an area that shows `obj`, and both are valid for the lifetime chosen. The
    /// object's device is bound.
    unsafe fn new(
        vmf: *mut bindings::vm_fault,
        obj: *mut bindings::drm_gem_object,
    ) -> Option<Self> {
        // SAFETY: By the contract of this function. The mmap offset does not change while the
        // object lives.
        let (address, pgoff, vm_end, node_start, size, parent) = unsafe {
            let fault = &(*vmf).__bindgen_anon_1;
            (
                fault.address,
                fault.pgoff,
                (*fault.vma).__bindgen_anon_1.__bindgen_anon_1.vm_end,
                (*obj).vma_node.vm_node.start,
                (*obj).size,
                (*(*obj).dev).dev,
            )
        };
        let page = usize::try_from(u64::try_from(pgoff).ok()?.checked_sub(node_start)?).ok()?;
        let of_object = (size >> PAGE_SHIFT).checked_sub(page).filter(|&n| n > 0)?;
        let of_area = vm_end.checked_sub(address)? >> PAGE_SHIFT;
        Some(Self {
            vmf,
            page,
            pages: of_object.min(of_area),
            node_start,
            parent,
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
        let Some(first) = page_at(self.page) else {
            return FaultResult(bindings::vm_fault_reason_VM_FAULT_SIGBUS);
        };
        let mut result = self.insert_one(0, &first);
        if result.0 != bindings::vm_fault_reason_VM_FAULT_NOPAGE {
            return result;
        }
        // Whatever goes wrong now only costs another fault.
        if let Owner::Window(range) = first.owner {
            self.continue_run(range);
            return result;
        }
        for ahead in 1..self.pages.min(FAULT_PAGES) {
            let Some(page) = page_at(self.page + ahead) else {
                break;
            };
            result = self.insert_one(ahead, &page);
            if result.0 != bindings::vm_fault_reason_VM_FAULT_NOPAGE {
                break;
            }
        }
        FaultResult(bindings::vm_fault_reason_VM_FAULT_NOPAGE)
    }

    /// Maps what follows the first page in a window: an object in a window is all of its range, page
    /// by page, and has one memory type, so nothing has to be found out for each of them.
    fn continue_run(&self, range: &WindowRange) {
        let of_range = usize::try_from(range.pages()).unwrap_or(usize::MAX);
        let pages = self.pages.min(of_range.saturating_sub(self.page));
        let count = pages.min(WINDOW_FAULT_PAGES).saturating_sub(1);
        if count != 0 {
            // SAFETY: As in `insert_one`, for the page that faulted and `count` after it, all within
            // the area and the range.
            unsafe { sys::ochre_vmf_continue_pfn(self.vmf, count) };
        }
    }

    fn insert_one(&self, ahead: usize, page: &CpuPage<'_>) -> FaultResult {
        let (fits, write_combined) = match page.owner {
            Owner::Aperture => (true, true),
            // Pages of one object shown by another would not be found when they are freed.
            Owner::System(system) => (system.node_start() == self.node_start, false),
            // Of another device nobody knows whether it is bound.
            Owner::Window(range) => (range.is_of(self.parent), false),
        };
        if !fits {
            return FaultResult(bindings::vm_fault_reason_VM_FAULT_SIGBUS);
        }
        // SAFETY: The fault is valid, and `ahead` pages after it are within its area, which the
        // mmap callback set up for page frames. The page cannot be freed while it is mapped: memory
        // behind a BAR is unmapped by `drm_dev_unplug()` before its BAR is released (the device is
        // bound now, and the area can be found), system memory by the drop of `SysPages`, which
        // cannot run now, since `page` borrows it.
        FaultResult(unsafe { sys::ochre_vmf_insert_pfn(self.vmf, ahead, page.pfn, write_combined) })
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
