// SPDX-License-Identifier: GPL-2.0

//! How `mmap()` sets a mapping of an object up.
//!
//! C headers: [`include/drm/drm_gem.h`](srctree/include/drm/drm_gem.h),
//! [`include/linux/pgtable.h`](srctree/include/linux/pgtable.h)

use kernel::{
    bindings,
    drm::{
        self,
        gem::{
            IntoGEMObject,
            Object, //
        },
    },
    error::to_result,
    ffi::{
        c_int,
        c_ulong, //
    },
    page::PAGE_SHIFT,
    prelude::*, //
};

use super::BoOps;
use crate::ext::{
    pci::WindowRange,
    sys, //
};

/// How the CPU caches what it reads and writes in a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Caching {
    /// As normal memory.
    Cached = sys::ochre_caching_OCHRE_CACHED,
    /// Reads go to the memory, writes are gathered.
    WriteCombined = sys::ochre_caching_OCHRE_WRITE_COMBINED,
    /// Each access goes to the memory.
    Uncached = sys::ochre_caching_OCHRE_UNCACHED,
}

/// What a new mapping of an object is like, as [`BoOps::mmap`] answers. Either way its pages come
/// through [`BoOps::fault`]: then the area can be found by who has to take the pages away again.
pub(crate) enum CpuMapping {
    /// System memory, cached, or pages of an aperture, write-combined.
    Faults,
    /// The object, from its first byte on, is this part of a window.
    Window {
        /// Where; at least as long as the mapping.
        range: WindowRange,
        /// The memory type of all its mappings. When it is mapped with another type already, or the
        /// CPU cannot have it so, the mapping takes the other type, or is refused with [`EINVAL`].
        caching: Caching,
    },
}

/// # Safety
///
/// As `drm_gem_object_funcs.mmap`, of an object of `T`.
pub(super) unsafe extern "C" fn mmap<T: BoOps>(
    raw: *mut bindings::drm_gem_object,
    vma: *mut bindings::vm_area_struct,
) -> c_int
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    // SAFETY: Called for an object with the table of `T`, to which the caller has a reference.
    let (obj, imported) = unsafe { (Object::<T>::from_raw(raw), !(*raw).import_attach.is_null()) };
    if imported {
        // SAFETY: The object is valid and imported, the area is new and its `vm_ops` are ours.
        return unsafe { sys::ochre_gem_mmap_imported(raw, vma) };
    }
    // SAFETY: Called by `mmap()` for a new area, whose `vm_ops` are ours already.
    let result = to_result(unsafe { sys::ochre_gem_vma_setup(vma) }).and_then(|()| {
        match T::mmap(obj)? {
            CpuMapping::Faults => Ok(()),
            // SAFETY: As above. The area shows `raw`.
            CpuMapping::Window { range, caching } => unsafe {
                map_window(raw, vma, &range, caching)
            },
        }
    });
    result.map_or_else(|error| error.to_errno(), |()| 0)
}

/// Gives an area the memory type of a window. Maps nothing.
///
/// # Safety
///
/// `vma` is a new area that shows `obj` and was set up for page frames.
unsafe fn map_window(
    obj: *mut bindings::drm_gem_object,
    vma: *mut bindings::vm_area_struct,
    range: &WindowRange,
    caching: Caching,
) -> Result {
    // SAFETY: By the contract of this function.
    let (first, pages) = unsafe {
        let area = &(*vma).__bindgen_anon_1.__bindgen_anon_1;
        let node_start = (*obj).vma_node.vm_node.start;
        (
            u64::try_from((*vma).vm_pgoff)?
                .checked_sub(node_start)
                .ok_or(EINVAL)?,
            u64::try_from(area.vm_end.checked_sub(area.vm_start).ok_or(EINVAL)? >> PAGE_SHIFT)?,
        )
    };
    if first
        .checked_add(pages)
        .is_none_or(|end| end > range.pages())
    {
        return Err(EINVAL);
    }
    let start = (range.start() >> PAGE_SHIFT)
        .checked_add(first)
        .ok_or(EINVAL)?;
    // CAST: The values are C's.
    let caching = caching as sys::ochre_caching;
    // SAFETY: By the contract of this function. The frames are within a memory BAR. When the function
    // returns, none of them is mapped.
    to_result(unsafe { sys::ochre_gem_set_caching(vma, c_ulong::try_from(start)?, caching) })
}
