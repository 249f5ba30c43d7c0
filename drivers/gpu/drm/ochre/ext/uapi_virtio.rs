// SPDX-License-Identifier: GPL-2.0

//! The userspace ABI of virtio-gpu, and the constants of the device.
//!
//! C headers: [`include/uapi/drm/virtgpu_drm.h`](srctree/include/uapi/drm/virtgpu_drm.h),
//! [`include/uapi/linux/virtio_gpu.h`](srctree/include/uapi/linux/virtio_gpu.h),
//! [`include/uapi/linux/virtio_pci.h`](srctree/include/uapi/linux/virtio_pci.h),
//! [`include/uapi/linux/virtio_ring.h`](srctree/include/uapi/linux/virtio_ring.h),
//! [`include/uapi/linux/virtio_config.h`](srctree/include/uapi/linux/virtio_config.h),
//! [`include/uapi/linux/virtio_ids.h`](srctree/include/uapi/linux/virtio_ids.h)
//!
//! Generated from the kernel's headers, `kernel::uapi` has none of them: structures and constants
//! under their C names, command numbers as `IOCTL_VIRTGPU_*`. What the device reads and writes is
//! little-endian (`__le32` is a plain integer here).

use kernel::transmute::{
    AsBytes,
    FromBytes, //
};

#[allow(
    clippy::all,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]
mod generated {
    use kernel::{
        ffi,
        uapi::*, //
    };
    include!(env!("OCHRE_UAPI_VIRTIO"));
}

pub(crate) use generated::*;

/// Declares structures of the ABI as plain bytes.
macro_rules! plain_bytes {
    ($($name:ident),+ $(,)?) => {$(
        // SAFETY: Made of integers and arrays of them: any bytes are valid.
        unsafe impl FromBytes for $name {}
        // SAFETY: Made of integers without padding between or after them; helpers.c does not
        // compile otherwise.
        unsafe impl AsBytes for $name {}
    )+};
}

plain_bytes! {
    drm_virtgpu_3d_box,
    drm_virtgpu_3d_transfer_from_host,
    drm_virtgpu_3d_transfer_to_host,
    drm_virtgpu_3d_wait,
    drm_virtgpu_context_init,
    drm_virtgpu_context_set_param,
    drm_virtgpu_execbuffer,
    drm_virtgpu_execbuffer_syncobj,
    drm_virtgpu_get_caps,
    drm_virtgpu_getparam,
    drm_virtgpu_map,
    drm_virtgpu_resource_create,
    drm_virtgpu_resource_create_blob,
    drm_virtgpu_resource_info,
}
