// SPDX-License-Identifier: GPL-2.0
//! Structures and numbers of `uapi/drm/virtgpu_drm.h`, and of the few others that the tests need.

#![allow(non_camel_case_types)]

/// The argument of an ioctl.
///
/// # Safety
///
/// The type has the size and layout that the kernel knows under the request number.
pub unsafe trait Argument {
    /// The number of the ioctl.
    const REQUEST: u32;
}

/// `_IOWR`.
const fn read_write(kind: u8, number: u8, bytes: usize) -> u32 {
    // CAST: the arguments of ioctls are small.
    3 << 30 | (bytes as u32) << 16 | (kind as u32) << 8 | number as u32
}

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident [$($request:expr)?] {
        $($field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[$doc])*
            #[allow(missing_docs)]
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $name { $(pub $field: $type,)* }

            $(
                // SAFETY: The fields are those of the header, in its order, which gives the sizes checked
                // at the end of this file.
                unsafe impl Argument for $name {
                    const REQUEST: u32 = {
                        let (kind, number) = $request;
                        read_write(kind, number, size_of::<$name>())
                    };
                }
            )?
        )*
    };
}

/// Numbers of the driver's ioctls start here (`DRM_COMMAND_BASE`).
const DRIVER: u8 = 0x40;

structures! {
    /// Where a BO can be mapped.
    drm_virtgpu_map [(b'd', DRIVER + 1)] {
        offset: u64, handle: u32, pad: u32,
    }
    /// Work for the GPU.
    drm_virtgpu_execbuffer [(b'd', DRIVER + 2)] {
        flags: u32, size: u32, command: u64, bo_handles: u64, num_bo_handles: u32, fence_fd: i32,
        ring_idx: u32, syncobj_stride: u32, num_in_syncobjs: u32, num_out_syncobjs: u32,
        in_syncobjs: u64, out_syncobjs: u64,
    }
    /// A syncobj of an EXECBUFFER.
    drm_virtgpu_execbuffer_syncobj [] {
        handle: u32, flags: u32, point: u64,
    }
    /// A property; `value` is where to put it.
    drm_virtgpu_getparam [(b'd', DRIVER + 3)] {
        param: u64, value: u64,
    }
    /// A 2D or 3D resource.
    drm_virtgpu_resource_create [(b'd', DRIVER + 4)] {
        target: u32, format: u32, bind: u32, width: u32, height: u32, depth: u32, array_size: u32,
        last_level: u32, nr_samples: u32, flags: u32, bo_handle: u32, res_handle: u32, size: u32,
        stride: u32,
    }
    /// What a BO is to the device.
    drm_virtgpu_resource_info [(b'd', DRIVER + 5)] {
        bo_handle: u32, res_handle: u32, size: u32, blob_mem: u32,
    }
    /// A part of a resource.
    drm_virtgpu_3d_box [] {
        x: u32, y: u32, z: u32, w: u32, h: u32, d: u32,
    }
    /// From the device's side of a resource to the guest's.
    drm_virtgpu_3d_transfer_from_host [(b'd', DRIVER + 6)] {
        bo_handle: u32, part: drm_virtgpu_3d_box, level: u32, offset: u32, stride: u32,
        layer_stride: u32,
    }
    /// The other way.
    drm_virtgpu_3d_transfer_to_host [(b'd', DRIVER + 7)] {
        bo_handle: u32, part: drm_virtgpu_3d_box, level: u32, offset: u32, stride: u32,
        layer_stride: u32,
    }
    /// Waits for a BO.
    drm_virtgpu_3d_wait [(b'd', DRIVER + 8)] {
        handle: u32, flags: u32,
    }
    /// A capset.
    drm_virtgpu_get_caps [(b'd', DRIVER + 9)] {
        cap_set_id: u32, cap_set_ver: u32, addr: u64, size: u32, pad: u32,
    }
    /// A blob resource.
    drm_virtgpu_resource_create_blob [(b'd', DRIVER + 10)] {
        blob_mem: u32, blob_flags: u32, bo_handle: u32, res_handle: u32, size: u64, pad: u32,
        cmd_size: u32, cmd: u64, blob_id: u64, blob_hints: u32, pad2: u32,
    }
    /// A parameter of a context.
    drm_virtgpu_context_set_param [] {
        param: u64, value: u64,
    }
    /// The context of a file.
    drm_virtgpu_context_init [(b'd', DRIVER + 11)] {
        num_params: u32, pad: u32, ctx_set_params: u64,
    }
    /// Closes a handle. (The C header has it write-only; see [`GEM_CLOSE`].)
    drm_gem_close [] {
        handle: u32, pad: u32,
    }
    /// Attaches a fence to a buffer of vgem's, which ends by itself after ten seconds.
    drm_vgem_fence_attach [(b'd', DRIVER + 1)] {
        handle: u32, flags: u32, out_fence: u32, pad: u32,
    }
    /// What became of a sync file.
    sync_file_info [(b'>', 4)] {
        name: [u8; 32], status: i32, flags: u32, num_fences: u32, pad: u32, sync_fence_info: u64,
    }
}

// SAFETY: As above; `_IOW`.
unsafe impl Argument for drm_gem_close {
    const REQUEST: u32 = GEM_CLOSE;
}

/// `DRM_IOCTL_GEM_CLOSE`.
pub const GEM_CLOSE: u32 = 0x4008_6409;

/// The caller brings a fence.
pub const VIRTGPU_EXECBUF_FENCE_FD_IN: u32 = 1;
/// The caller wants one.
pub const VIRTGPU_EXECBUF_FENCE_FD_OUT: u32 = 2;
/// `ring_idx` names the timeline.
pub const VIRTGPU_EXECBUF_RING_IDX: u32 = 4;
/// The fence is of a writer.
pub const VGEM_FENCE_WRITE: u32 = 1;
/// Does not wait.
pub const VIRTGPU_WAIT_NOWAIT: u32 = 1;

/// Whether there is 3D.
pub const VIRTGPU_PARAM_3D_FEATURES: u64 = 1;
/// Whether there are blobs.
pub const VIRTGPU_PARAM_RESOURCE_BLOB: u64 = 3;
/// Whether there is a host-visible window.
pub const VIRTGPU_PARAM_HOST_VISIBLE: u64 = 4;
/// Whether contexts have parameters.
pub const VIRTGPU_PARAM_CONTEXT_INIT: u64 = 6;
/// Which capsets there are, a bit each.
pub const VIRTGPU_PARAM_SUPPORTED_CAPSET_IDS: u64 = 7;

/// Pages of the guest.
pub const VIRTGPU_BLOB_MEM_GUEST: u32 = 1;
/// Memory of the host.
pub const VIRTGPU_BLOB_MEM_HOST3D: u32 = 2;
/// Memory of the host, and pages of the guest.
pub const VIRTGPU_BLOB_MEM_HOST3D_GUEST: u32 = 3;
/// The blob can be mapped.
pub const VIRTGPU_BLOB_FLAG_USE_MAPPABLE: u32 = 1;
/// It can be given to other processes.
pub const VIRTGPU_BLOB_FLAG_USE_SHAREABLE: u32 = 2;
/// It can be given to other devices.
pub const VIRTGPU_BLOB_FLAG_USE_CROSS_DEVICE: u32 = 4;
/// It need not be in the window before it is mapped.
pub const DRM_VIRTGPU_BLOB_FLAG_HINT_DEFER_MAPPING: u32 = 1;

/// The capset of a context.
pub const VIRTGPU_CONTEXT_PARAM_CAPSET_ID: u64 = 1;
/// The number of its timelines.
pub const VIRTGPU_CONTEXT_PARAM_NUM_RINGS: u64 = 2;
/// Those that make events.
pub const VIRTGPU_CONTEXT_PARAM_POLL_RINGS_MASK: u64 = 3;
/// Its name.
pub const VIRTGPU_CONTEXT_PARAM_DEBUG_NAME: u64 = 4;

/// A sync object is empty after the wait for it.
pub const VIRTGPU_EXECBUF_SYNCOBJ_RESET: u32 = 1;
/// A fence of a timeline that is polled is over (`VIRTGPU_EVENT_FENCE_SIGNALED`).
pub const VIRTGPU_EVENT_FENCE_SIGNALED: u32 = 0x9000_0000;

/// The ioctls: name and request number.
pub const REQUESTS: [(&str, u32); 11] = [
    ("MAP", drm_virtgpu_map::REQUEST),
    ("EXECBUFFER", drm_virtgpu_execbuffer::REQUEST),
    ("GETPARAM", drm_virtgpu_getparam::REQUEST),
    ("RESOURCE_CREATE", drm_virtgpu_resource_create::REQUEST),
    ("RESOURCE_INFO", drm_virtgpu_resource_info::REQUEST),
    (
        "TRANSFER_FROM_HOST",
        drm_virtgpu_3d_transfer_from_host::REQUEST,
    ),
    ("TRANSFER_TO_HOST", drm_virtgpu_3d_transfer_to_host::REQUEST),
    ("WAIT", drm_virtgpu_3d_wait::REQUEST),
    ("GET_CAPS", drm_virtgpu_get_caps::REQUEST),
    (
        "RESOURCE_CREATE_BLOB",
        drm_virtgpu_resource_create_blob::REQUEST,
    ),
    ("CONTEXT_INIT", drm_virtgpu_context_init::REQUEST),
];

// Requests as a C compiler makes them of the header.
const _: () = {
    assert!(drm_virtgpu_map::REQUEST == 0xc010_6441);
    assert!(drm_vgem_fence_attach::REQUEST == 0xc010_6441);
    assert!(drm_virtgpu_execbuffer::REQUEST == 0xc040_6442);
    assert!(drm_virtgpu_getparam::REQUEST == 0xc010_6443);
    assert!(drm_virtgpu_resource_create::REQUEST == 0xc038_6444);
    assert!(drm_virtgpu_resource_info::REQUEST == 0xc010_6445);
    assert!(drm_virtgpu_3d_transfer_from_host::REQUEST == 0xc02c_6446);
    assert!(drm_virtgpu_3d_transfer_to_host::REQUEST == 0xc02c_6447);
    assert!(drm_virtgpu_3d_wait::REQUEST == 0xc008_6448);
    assert!(drm_virtgpu_get_caps::REQUEST == 0xc018_6449);
    assert!(drm_virtgpu_resource_create_blob::REQUEST == 0xc038_644a);
    assert!(drm_virtgpu_context_init::REQUEST == 0xc010_644b);
    assert!(sync_file_info::REQUEST == 0xc038_3e04);
};
