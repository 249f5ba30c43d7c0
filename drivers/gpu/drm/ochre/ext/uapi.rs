// SPDX-License-Identifier: GPL-2.0

//! The driver's userspace ABI.
//!
//! C header: [`include/uapi/drm/ochre_drm.h`](srctree/include/uapi/drm/ochre_drm.h)
//!
//! Generated from the C header, so that there is one definition: structures and constants under
//! their C names, command numbers as `IOCTL_*`.

use kernel::transmute::{
    AsBytes,
    FromBytes, //
};

#[allow(
    clippy::all,
    clippy::ptr_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub
)]
mod generated {
    use kernel::{
        ffi,
        uapi::*, //
    };
    include!(env!("OCHRE_UAPI"));
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
    drm_ochre_bind,
    drm_ochre_ext,
    drm_ochre_gem_create,
    drm_ochre_gem_mmap_offset,
    drm_ochre_job,
    drm_ochre_query,
    drm_ochre_query_clocks,
    drm_ochre_query_engine,
    drm_ochre_query_hardware,
    drm_ochre_query_region,
    drm_ochre_query_time,
    drm_ochre_queue_create,
    drm_ochre_queue_destroy,
    drm_ochre_queue_prop,
    drm_ochre_reset_query,
    drm_ochre_submit,
    drm_ochre_sync,
    drm_ochre_vm_bind,
    drm_ochre_vm_create,
    drm_ochre_vm_destroy,
    drm_ochre_wait,
}
