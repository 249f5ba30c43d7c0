// SPDX-License-Identifier: GPL-2.0

//! Dma-bufs that other virtio devices know by UUID.
//!
//! C header: [`include/linux/virtio_dma_buf.h`](srctree/include/linux/virtio_dma_buf.h)
//!
//! A virtio driver that is given a dma-buf of another virtio device tells its own device the UUID
//! under which the host knows the memory. It recognises such a dma-buf by the address of
//! `virtio_dma_buf_attach()`, which is in a module of its own. We take the address if that module was
//! there when ours was loaded, as it is for `modprobe`; else our dma-bufs are plain ones, and nothing
//! but this way of sharing is missing.

use kernel::{
    bindings,
    drm::{
        self,
        gem::Object, //
    },
    ffi::c_int,
    prelude::*, //
};

use super::{
    gem::BoOps,
    sys, //
};

/// Operations of a dma-buf, with the UUID; of those that are no virtio dma-bufs nobody looks behind
/// `ops`.
pub(super) type Ops = sys::virtio_dma_buf_ops;

/// Makes `ops` those of a virtio dma-buf, if `T` asks for it and the module is there.
pub(super) fn extend<T: BoOps>(ops: bindings::dma_buf_ops) -> Ops
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    // SAFETY: The function returns the address of a function of a module that ours then depends on, or
    // null.
    let attach = unsafe { sys::ochre_virtio_dma_buf_attach() };
    if !T::VIRTIO_DMA_BUF || attach.is_none() {
        return Ops {
            ops,
            ..Ops::default()
        };
    }
    Ops {
        device_attach: ops.attach,
        get_uuid: Some(get_uuid::<T>),
        ops: bindings::dma_buf_ops { attach, ..ops },
    }
}

/// # Safety
///
/// As `virtio_dma_buf_ops.get_uuid`, of a dma-buf of an object of `T`.
unsafe extern "C" fn get_uuid<T: BoOps>(
    dma_buf: *mut bindings::dma_buf,
    uuid: *mut bindings::uuid_t,
) -> c_int
where
    T::Driver: drm::Driver<Object = Object<T>>,
{
    // SAFETY: By the contract of this function the private pointer is an object, to which the dma-buf
    // has a reference.
    let obj = unsafe {
        <Object<T> as drm::gem::IntoGEMObject>::from_raw(
            (*dma_buf).priv_.cast::<bindings::drm_gem_object>(),
        )
    };
    match T::uuid(obj) {
        Ok(bytes) => {
            // SAFETY: The caller gave us memory for one UUID.
            unsafe { (*uuid).b = bytes };
            0
        }
        Err(error) => error.to_errno(),
    }
}

#[kunit_tests(ochre_ext_virtio_dma_buf)]
mod tests {
    use super::{
        super::gem::test_driver::{
            dma_buf_of,
            object,
            with_device, //
        },
        *,
    };

    #[test]
    fn uuid_is_offered_where_the_module_is_there() -> Result {
        with_device(c"ochre-uuid", |drm, dev| {
            let obj = object(drm, dev, 1)?;
            let buf = dma_buf_of(&obj)?;
            // SAFETY: The dma-buf is valid and its operations are the first field of `Ops`.
            unsafe {
                let ops = (*buf.as_raw()).ops.cast::<Ops>();
                let theirs = sys::ochre_virtio_dma_buf_attach();
                assert_eq!((*ops).get_uuid.is_some(), theirs.is_some());
                if let (Some(get_uuid), Some(theirs)) = ((*ops).get_uuid, theirs) {
                    // CAST: Addresses of functions, to compare.
                    assert_eq!((*ops).ops.attach.map(|f| f as usize), Some(theirs as usize));
                    let mut uuid = bindings::uuid_t::default();
                    assert_eq!(get_uuid(buf.as_raw(), &mut uuid), 0);
                    assert_eq!(uuid.b, *b"0123456789abcdef");
                }
            }
            Ok(())
        })
    }
}
