// SPDX-License-Identifier: GPL-2.0

//! What an open DRM file has.
//!
//! C header: [`include/drm/drm_file.h`](srctree/include/drm/drm_file.h)

use core::ptr;

use kernel::{
    bindings,
    drm::{
        self,
        gem::{
            IntoGEMObject,
            Object, //
        }, //
    },
    ffi::c_void, //
};

use super::{
    gem::BoOps,
    sys, //
};

/// An open file of the driver of `T`.
type File<T> = drm::File<<<T as drm::gem::DriverObject>::Driver as drm::Driver>::File>;

/// Calls `each` with every object that `file` has a handle for, once per handle, and with whether others
/// have the object too.
///
/// `each` runs under a spinlock: it may not sleep.
pub(crate) fn for_each_object<T, F>(file: &File<T>, mut each: F)
where
    T: BoOps,
    T::Driver: drm::Driver<Object = Object<T>>,
    F: FnMut(&Object<T>, bool),
{
    let raw = ptr::from_ref(file).cast_mut().cast::<bindings::drm_file>();
    let data = ptr::from_mut(&mut each).cast::<c_void>();
    // SAFETY: `drm::File` is a transparent wrapper of an open `drm_file`. `step` gets back the closure
    // that it expects, and only during this call.
    unsafe { sys::ochre_drm_walk_objects(raw, Some(step::<T, F>), data) };
}

/// # Safety
///
/// `obj` is an object of `T` that lives for the call, `data` points to an `F` that nobody else uses.
unsafe extern "C" fn step<T, F>(obj: *mut bindings::drm_gem_object, shared: bool, data: *mut c_void)
where
    T: BoOps,
    T::Driver: drm::Driver<Object = Object<T>>,
    F: FnMut(&Object<T>, bool),
{
    // SAFETY: All objects of a driver are of one type, which makes even those that it imports.
    let obj: &Object<T> = unsafe { IntoGEMObject::from_raw(obj) };
    // SAFETY: By the contract of this function.
    let each = unsafe { &mut *data.cast::<F>() };
    each(obj, shared);
}
