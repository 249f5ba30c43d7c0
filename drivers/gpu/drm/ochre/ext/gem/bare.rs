// SPDX-License-Identifier: GPL-2.0

//! Objects without a memory file.
//!
//! C header: [`include/drm/drm_gem.h`](srctree/include/drm/drm_gem.h)
//!
//! `kernel::drm::gem::Object::new` gives each object a shared memory file, with an inode and all. For
//! an object whose memory is elsewhere that is most of what its making and its end cost. The kernel
//! crate has no other constructor; this one makes the same thing with
//! `drm_gem_private_object_init()`, on the model of an object that was made the ordinary way.

use core::ptr::{
    self,
    NonNull, //
};

use kernel::{
    alloc::AllocError,
    bindings,
    drm::{
        self,
        gem::{
            IntoGEMObject,
            Object, //
        },
    },
    prelude::*,
    sync::aref::ARef, //
};

use super::{
    BoOps,
    Funcs, //
};

/// Where the driver's part is in an [`Object`], in bytes.
#[derive(Clone, Copy)]
pub(super) struct Layout(usize);

impl Layout {
    /// Looks at an object.
    pub(super) fn of<T: BoOps>(obj: &Object<T>) -> Self
    where
        T::Driver: drm::Driver<Object = Object<T>>,
    {
        let data: *const T = &**obj;
        // No wrap: it is a part of the object.
        Self(data.addr().wrapping_sub(ptr::from_ref(obj).addr()))
    }
}

/// Makes an object of `size` bytes, a multiple of the page size, without a memory file. [`ENOMEM`],
/// and what [`DriverObject::new`](drm::gem::DriverObject::new) returns.
///
/// `funcs` are those of `T`, made on the model of another object.
pub(super) fn make<T: BoOps>(
    dev: &drm::Device<T::Driver>,
    size: usize,
    args: T::Args,
    funcs: &'static Funcs,
) -> Result<ARef<Object<T>>>
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    let memory = KBox::<Object<T>>::new_uninit(GFP_KERNEL_ACCOUNT).map_err(|AllocError| ENOMEM)?;
    let object: *mut Object<T> = KBox::into_raw(memory).cast();
    // SAFETY: `Object` is `repr(C)` and begins with the C structure. The layout is that of all objects
    // of this type, so the driver's part is within the memory, where it stays. Besides these two an
    // `Object` has no data.
    let (raw, result) = unsafe {
        let raw: *mut bindings::drm_gem_object = object.cast();
        raw.write(Default::default());
        let data: *mut T = object.byte_add(funcs.layout.0).cast();
        (raw, pin_init::raw_try_init(data, T::new(dev, size, args)))
    };
    if let Err(error) = result {
        // SAFETY: The memory is ours, and nothing in it has to be dropped.
        drop(unsafe { KBox::<core::mem::MaybeUninit<Object<T>>>::from_raw(object.cast()) });
        return Err(error);
    }
    // SAFETY: Device and object are valid, and nobody else knows the object. This makes one reference,
    // which we take; the last one frees the memory as the model's does.
    unsafe {
        (*raw).funcs = ptr::from_ref(funcs).cast();
        // CAST: `drm::Device` is `repr(C)` and begins with its `drm_device`.
        let dev: *mut bindings::drm_device = ptr::from_ref(dev).cast_mut().cast();
        bindings::drm_gem_private_object_init(dev, raw, size);
        Ok(ARef::from_raw(NonNull::new_unchecked(object)))
    }
}

/// Whether an object has a memory file.
pub(super) fn has_file<T: BoOps>(obj: &Object<T>) -> bool
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    // SAFETY: The object is valid; the field does not change.
    unsafe { !(*IntoGEMObject::as_raw(obj)).filp.is_null() }
}
