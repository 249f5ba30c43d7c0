// SPDX-License-Identifier: GPL-2.0

//! Objects as dma-bufs, and dma-bufs as objects.
//!
//! C header: [`include/drm/drm_prime.h`](srctree/include/drm/drm_prime.h)
//!
//! Export: the core makes a dma-buf of an object the first time somebody asks; the functions here say
//! what another device, the kernel and `mmap()` get of it ([`BoOps::share`]). The dma-buf has a
//! reference to the object for as long as it lives.
//!
//! Import: a dma-buf that we exported gives its object back. For one of somebody else,
//! [`DriverExt::import`] makes an object of the driver's with [`new_imported`], which holds the
//! attachment until the object is gone.

use kernel::{
    bindings,
    drm::{
        self,
        gem::{
            BaseObject,
            IntoGEMObject,
            Object, //
        },
    },
    error::from_result,
    ffi::{
        c_int,
        c_uint, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

use super::{
    make_object,
    BoOps,
    Funcs,
    SysPages, //
};
use crate::ext::{
    dma_buf,
    dma_buf::{
        Attachment,
        DmaBuf, //
    },
    drm_drv::DriverExt,
    pci::WindowRange,
    sys,
    virtio_dma_buf, //
};

/// What others get of an object.
pub(crate) enum Shared<'a> {
    /// System memory, for other devices and for the kernel. It stays until the object is dropped.
    Pages(&'a SysPages),
    /// Memory behind a BAR, for devices that can reach it there.
    Window(WindowRange),
    /// Nothing: only `mmap()` and drivers that know the object by other means get at it.
    Nothing,
}

/// Creates an object that is the memory of `attachment`, of the dma-buf's size and with its
/// reservation object.
///
/// The object holds the attachment until it is gone. Returns [`EINVAL`] if the size is not made of
/// whole pages. `mmap()` of it is the exporter's.
pub(crate) fn new_imported<T: BoOps>(
    dev: &drm::Device<T::Driver>,
    attachment: &Attachment,
    args: T::Args,
) -> Result<ARef<Object<T>>>
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    let obj = make_object::<T>(dev, attachment.buf().size(), args)?;
    let raw = IntoGEMObject::as_raw(&*obj);
    let shared = attachment.share();
    // SAFETY: Nobody else knows the object yet. The reservation object lives as long as the dma-buf,
    // to which `shared` has a reference, and that is given up by `free`, which finds it again in
    // `import_attach`, when the object is gone.
    unsafe {
        (*raw).resv = shared.buf().resv().as_raw();
        (*raw).import_attach = shared.raw();
        let _: *const dma_buf::Shared = Arc::into_raw(shared);
    }
    obj.create_mmap_offset()?;
    Ok(obj)
}

/// Releases an object, and what [`new_imported`] gave it.
///
/// # Safety
///
/// As `drm_gem_object_funcs.free`, of an object whose functions are part of [`Funcs`].
pub(super) unsafe extern "C" fn free(raw: *mut bindings::drm_gem_object) {
    // SAFETY: By the contract of this function the functions are the first field of a static `Funcs`.
    // An attachment was stored by `new_imported`, and its `importer_priv` is the pointer that
    // `Arc::into_raw` gave.
    let (free, imported) = unsafe {
        let attach = (*raw).import_attach;
        (
            (*(*raw).funcs.cast::<Funcs>()).free,
            (!attach.is_null())
                .then(|| Arc::from_raw((*attach).importer_priv.cast::<dma_buf::Shared>())),
        )
    };
    if let Some(free) = free {
        // SAFETY: The object is handed on to the function that it had first.
        unsafe { free(raw) };
    }
    // After the object, which used the dma-buf's reservation object.
    drop(imported);
}

/// The operations of the dma-bufs of objects of `T`.
pub(super) const fn dma_buf_ops<T: BoOps>() -> bindings::dma_buf_ops
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    let mut ops: bindings::dma_buf_ops = pin_init::zeroed();
    ops.attach = Some(attach::<T>);
    ops.map_dma_buf = Some(map_dma_buf::<T>);
    ops.unmap_dma_buf = Some(unmap_dma_buf);
    ops.release = Some(bindings::drm_gem_dmabuf_release);
    ops.mmap = Some(bindings::drm_gem_dmabuf_mmap);
    ops.vmap = Some(bindings::drm_gem_dmabuf_vmap);
    ops.vunmap = Some(bindings::drm_gem_dmabuf_vunmap);
    ops
}

/// # Safety
///
/// `dma_buf` has the operations of `T`.
unsafe fn object_of<'a, T: BoOps>(dma_buf: *mut bindings::dma_buf) -> &'a Object<T>
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    // SAFETY: `export` stored the object, to which the dma-buf has a reference.
    unsafe { Object::<T>::from_raw((*dma_buf).priv_.cast()) }
}

/// # Safety
///
/// As `drm_gem_object_funcs.export`, of an object of `T`.
pub(super) unsafe extern "C" fn export<T: BoOps>(
    raw: *mut bindings::drm_gem_object,
    flags: c_int,
) -> *mut bindings::dma_buf
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    // SAFETY: Called for an object with the table of `T`, which has a handle.
    let obj = unsafe { Object::<T>::from_raw(raw) };
    let ops = T::export(obj).and_then(|()| {
        let table = &T::table().dma_buf_ops;
        table.get_or_fill(|| virtio_dma_buf::extend::<T>(dma_buf_ops::<T>()))
    });
    let ops = match ops {
        Ok(ops) => &ops.ops,
        Err(error) => return error.to_ptr(),
    };
    // SAFETY: The object is valid and so is its device, whose driver's functions name the module that
    // the operations are in. On success the dma-buf takes its own references to object and device.
    unsafe {
        let dev = (*raw).dev;
        let mut info = bindings::dma_buf_export_info {
            exp_name: c"ochre".as_char_ptr(),
            owner: (*(*(*dev).driver).fops).owner,
            ops,
            size: (*raw).size,
            flags,
            resv: (*raw).resv,
            priv_: raw.cast(),
        };
        bindings::drm_gem_dmabuf_export(dev, &mut info)
    }
}

/// # Safety
///
/// As `dma_buf_ops.attach`, of a dma-buf with the operations of `T`.
unsafe extern "C" fn attach<T: BoOps>(
    dma_buf: *mut bindings::dma_buf,
    _attach: *mut bindings::dma_buf_attachment,
) -> c_int
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    // SAFETY: By the contract of this function.
    match T::share(unsafe { object_of::<T>(dma_buf) }) {
        Shared::Pages(_) | Shared::Window(_) => 0,
        Shared::Nothing => EOPNOTSUPP.to_errno(),
    }
}

/// # Safety
///
/// As `dma_buf_ops.map_dma_buf`, of a dma-buf with the operations of `T`.
unsafe extern "C" fn map_dma_buf<T: BoOps>(
    attach: *mut bindings::dma_buf_attachment,
    direction: bindings::dma_data_direction,
) -> *mut bindings::sg_table
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    // SAFETY: By the contract of this function.
    match T::share(unsafe { object_of::<T>((*attach).dmabuf) }) {
        // SAFETY: The attachment is valid. The core asks `get_sg_table` for the pages, which stay until
        // the object is dropped: not before the dma-buf, and that not before it is unmapped.
        Shared::Pages(_) => unsafe { bindings::drm_gem_map_dma_buf(attach, direction) },
        // SAFETY: The attachment and its device are valid.
        Shared::Window(range) => unsafe {
            if !(*attach).peer2peer {
                // The importer would look for pages.
                return EOPNOTSUPP.to_ptr();
            }
            let Ok(len) = usize::try_from(range.len()) else {
                return EFBIG.to_ptr();
            };
            sys::ochre_map_window((*attach).dev, range.start(), len, direction)
        },
        Shared::Nothing => EOPNOTSUPP.to_ptr(),
    }
}

/// # Safety
///
/// As `dma_buf_ops.unmap_dma_buf`, for a table from [`map_dma_buf`].
unsafe extern "C" fn unmap_dma_buf(
    attach: *mut bindings::dma_buf_attachment,
    table: *mut bindings::sg_table,
    direction: bindings::dma_data_direction,
) {
    // SAFETY: By the contract of this function. The table says which of the two made it.
    unsafe {
        if !sys::ochre_unmap_window((*attach).dev, table, direction) {
            bindings::drm_gem_unmap_dma_buf(attach, table, direction);
        }
    }
}

/// # Safety
///
/// As `drm_gem_object_funcs.get_sg_table`, of an object of `T`.
pub(super) unsafe extern "C" fn get_sg_table<T: BoOps>(
    raw: *mut bindings::drm_gem_object,
) -> *mut bindings::sg_table
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    // SAFETY: Called for an object with the table of `T`, to which the caller has a reference.
    let (obj, dev) = unsafe { (Object::<T>::from_raw(raw), (*raw).dev) };
    let Shared::Pages(pages) = T::share(obj) else {
        return EOPNOTSUPP.to_ptr();
    };
    let pages = pages.as_slice();
    let Ok(count) = c_uint::try_from(pages.len()) else {
        return EFBIG.to_ptr();
    };
    // SAFETY: The device is valid. The function reads the array, which C declares without const, and
    // does not keep it.
    unsafe { bindings::drm_prime_pages_to_sg(dev, pages.as_ptr().cast_mut().cast(), count) }
}

/// # Safety
///
/// As `drm_gem_object_funcs.vmap`, of an object of `T`.
pub(super) unsafe extern "C" fn vmap<T: BoOps>(
    raw: *mut bindings::drm_gem_object,
    map: *mut bindings::iosys_map,
) -> c_int
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    // SAFETY: Called for an object with the table of `T`, to which the caller has a reference.
    let obj = unsafe { Object::<T>::from_raw(raw) };
    from_result(|| {
        let Shared::Pages(pages) = T::share(obj) else {
            return Err(EOPNOTSUPP);
        };
        let pages = pages.as_slice();
        let count = c_uint::try_from(pages.len()).map_err(|_| EFBIG)?;
        // SAFETY: The array is valid and only read, `map` is valid for writing. The pages stay until
        // the object is dropped, to which the caller has a reference until it unmaps.
        Ok(unsafe { sys::ochre_gem_vmap(pages.as_ptr().cast_mut().cast(), count, map) })
    })
}

/// # Safety
///
/// As `drm_gem_object_funcs.vunmap`, for a mapping from [`vmap`].
pub(super) unsafe extern "C" fn vunmap(
    _raw: *mut bindings::drm_gem_object,
    map: *mut bindings::iosys_map,
) {
    // SAFETY: By the contract of this function.
    unsafe { sys::ochre_gem_vunmap(map) };
}

/// # Safety
///
/// As `drm_driver.gem_prime_import`, of a device of `D`.
pub(in crate::ext) unsafe extern "C" fn import<D: DriverExt>(
    dev: *mut bindings::drm_device,
    dma_buf: *mut bindings::dma_buf,
) -> *mut bindings::drm_gem_object {
    // SAFETY: DRM calls this in an ioctl of a device of `D`, with a dma-buf that the caller has a
    // reference to. The operations are compared before the private pointer is looked at.
    unsafe {
        let own = <D::Bo as BoOps>::table().dma_buf_ops.get();
        if own.is_some_and(|own| core::ptr::eq(&own.ops, (*dma_buf).ops)) {
            let raw = (*dma_buf).priv_.cast::<bindings::drm_gem_object>();
            if (*raw).dev == dev {
                bindings::drm_gem_object_get(raw);
                return raw;
            }
        }
    }
    // SAFETY: As above.
    let (device, buf) = unsafe {
        (
            drm::Device::<D, drm::Ioctl>::from_raw(dev),
            DmaBuf::from_raw(dma_buf),
        )
    };
    let obj = match D::import(device, buf) {
        Ok(obj) => obj,
        Err(error) => return error.to_ptr(),
    };
    let raw = IntoGEMObject::as_raw(&*obj);
    // SAFETY: The object is valid; an attachment that it has stays as long as the object.
    let fits = unsafe {
        let attach = (*raw).import_attach;
        (*raw).dev == dev && !attach.is_null() && (*attach).dmabuf == dma_buf
    };
    if !fits {
        // The core would take another object for this dma-buf.
        return EINVAL.to_ptr();
    }
    // The caller takes the reference over.
    let _: core::ptr::NonNull<Object<D::Bo>> = ARef::into_raw(obj);
    raw
}
