// SPDX-License-Identifier: GPL-2.0

//! The objects that a submission uses.
//!
//! C headers: [`include/drm/drm_gem.h`](srctree/include/drm/drm_gem.h),
//! [`include/linux/dma-resv.h`](srctree/include/linux/dma-resv.h)

use core::{
    marker::PhantomData,
    ptr,
    ptr::NonNull, //
};

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
    ffi::c_int,
    prelude::*,
    types::Opaque, //
};

use super::{
    BoOps,
    ObjectExt, //
};
use crate::ext::{
    dma_fence::FenceRef,
    dma_resv::Usage,
    ioctl, //
};

/// Objects that are used together, each with a reference.
///
/// Dropping it gives the references up, which may free objects: process context only.
///
/// # Invariants
///
/// Each element is an object of type `Object<T>` to which `self` has a reference.
pub(crate) struct ObjectArray<T: BoOps>
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    objects: KVVec<NonNull<bindings::drm_gem_object>>,
    _type: PhantomData<Object<T>>,
}

// SAFETY: The reference counts of GEM objects are atomic, and what an object offers may be used from
// any thread. `T` is `Send` and `Sync` by its trait.
unsafe impl<T: BoOps> Send for ObjectArray<T> where T::Driver: drm::Driver<Object = Object<T>> {}
// SAFETY: As above.
unsafe impl<T: BoOps> Sync for ObjectArray<T> where T::Driver: drm::Driver<Object = Object<T>> {}

impl<T: BoOps> ObjectArray<T>
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    /// Looks up `count` handles of `file`, an array of 32-bit numbers in user space at `handles`.
    ///
    /// Allocates and sleeps. Returns [`EINVAL`] for more than `max`, [`EFAULT`] if the array cannot be
    /// read, [`ENOENT`] for a handle that does not exist. No handles are an array without objects.
    pub(crate) fn lookup(
        file: &drm::File<<T::Driver as drm::Driver>::File>,
        handles: u64,
        count: u32,
        max: u32,
    ) -> Result<Self> {
        if count > max {
            return Err(EINVAL);
        }
        if count == 0 {
            return Ok(Self {
                objects: KVVec::new(),
                _type: PhantomData,
            });
        }
        let handles = ioctl::user_ptr(handles)?;
        let mut objects: *mut *mut bindings::drm_gem_object = ptr::null_mut();
        // SAFETY: `drm::File` is a transparent wrapper of an open `drm_file`. The function checks the
        // user pointer.
        to_result(unsafe {
            bindings::drm_gem_objects_lookup(
                ptr::from_ref(file).cast_mut().cast(),
                handles.as_mut_ptr(),
                c_int::try_from(count).map_err(|_| EINVAL)?,
                &mut objects,
            )
        })?;
        let count = usize::try_from(count)?;
        // SAFETY: On success this is an array of `count` pointers, none of them null, which
        // kvmalloc() allocated and which is ours.
        let objects = unsafe { KVVec::from_raw_parts(objects.cast(), count, count) };
        // INVARIANT: A file of the driver has handles of the driver's type of objects only. The
        // look-up took the references.
        Ok(Self {
            objects,
            _type: PhantomData,
        })
    }

    /// An array of these objects.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(super) fn of(objects: &[&Object<T>]) -> Result<Self> {
        // INVARIANT: Empty; each object that is pushed comes with a reference.
        let mut this = Self {
            objects: KVVec::with_capacity(objects.len(), GFP_KERNEL)?,
            _type: PhantomData,
        };
        for object in objects {
            let raw = IntoGEMObject::as_raw(*object);
            this.objects
                .push(NonNull::new(raw).ok_or(EINVAL)?, GFP_KERNEL)?;
            // SAFETY: The object is valid.
            unsafe { bindings::drm_gem_object_get(raw) };
        }
        Ok(this)
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The objects in the order of their handles.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Object<T>> {
        self.objects.iter().map(|object| {
            // SAFETY: By the type invariant, for as long as `self` is borrowed.
            unsafe { Object::<T>::from_raw(object.as_ptr()) }
        })
    }

    /// As [`DmaResv::publish`](crate::ext::dma_resv::DmaResv::publish), for all objects at once.
    ///
    /// Returns [`EALREADY`] if an object, or two that share a reservation object, are in the array.
    pub(crate) fn publish(
        &self,
        usage: Usage,
        f: impl FnOnce() -> Option<FenceRef>,
    ) -> Result<Option<FenceRef>> {
        match self.objects.as_slice() {
            [] => return Ok(f()),
            [object] => {
                // SAFETY: By the type invariant, for as long as `self` is borrowed.
                let object = unsafe { Object::<T>::from_raw(object.as_ptr()) };
                return object.resv().publish(usage, f);
            }
            _ => (),
        }
        // Stays in place until it is used no more: below.
        let ticket = Opaque::<bindings::ww_acquire_ctx>::zeroed();
        let locked = LockedArray::new(self, &ticket)?;
        for object in self.iter() {
            // SAFETY: All objects are locked.
            unsafe { object.resv().reserve()? };
        }
        let fence = f();
        if let Some(fence) = &fence {
            for object in self.iter() {
                // SAFETY: The object is locked since there was room for one fence more; each
                // reservation object is in the array once, else it could not be locked.
                unsafe { object.resv().add(fence, usage) };
            }
        }
        drop(locked);
        Ok(fence)
    }

    fn raw_array(&self) -> *mut *mut bindings::drm_gem_object {
        // The C functions only read the array, though they do not say so.
        self.objects.as_ptr().cast_mut().cast()
    }
}

impl<T: BoOps> Drop for ObjectArray<T>
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    fn drop(&mut self) {
        for object in self.objects.iter() {
            // SAFETY: By the type invariant; the reference is given up.
            unsafe { bindings::drm_gem_object_put(object.as_ptr()) };
        }
    }
}

/// All locks of an array, held.
struct LockedArray<'a, T: BoOps>
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    array: &'a ObjectArray<T>,
    ticket: &'a Opaque<bindings::ww_acquire_ctx>,
    count: c_int,
}

impl<'a, T: BoOps> LockedArray<'a, T>
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    fn new(
        array: &'a ObjectArray<T>,
        ticket: &'a Opaque<bindings::ww_acquire_ctx>,
    ) -> Result<Self> {
        let count = c_int::try_from(array.len())?;
        // SAFETY: The array has `count` valid objects. The ticket stays in place, and the locks refer
        // to it, until `drop`.
        to_result(unsafe {
            bindings::drm_gem_lock_reservations(array.raw_array(), count, ticket.get())
        })?;
        Ok(Self {
            array,
            ticket,
            count,
        })
    }
}

impl<T: BoOps> Drop for LockedArray<'_, T>
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    fn drop(&mut self) {
        // SAFETY: `new` locked these objects with this ticket, on this task: the type is not `Send`,
        // as `Opaque` is not `Sync`.
        unsafe {
            bindings::drm_gem_unlock_reservations(
                self.array.raw_array(),
                self.count,
                self.ticket.get(),
            )
        };
    }
}
