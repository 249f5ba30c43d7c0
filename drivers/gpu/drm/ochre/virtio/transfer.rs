// SPDX-License-Identifier: GPL-2.0

//! Copies between a resource's guest pages and the host's storage: the ioctls TRANSFER_TO_HOST and
//! TRANSFER_FROM_HOST.

use kernel::{
    drm::gem::BaseObject,
    prelude::*, //
};

use super::{
    blob::Blob,
    bo::BoObject,
    control::{
        Command,
        FenceArg, //
    },
    driver::{
        DrmFile,
        IoctlDevice, //
    },
    keep::Keep,
    wait,
    wire, //
};
use crate::ext::{
    dma_fence::Fence,
    dma_resv::Usage,
    gem::ObjectExt,
    uapi_virtio as uapi, //
};

/// Hardly any format has more bytes in a pixel.
const PIXEL_BYTES: u64 = 16;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToHost,
    FromHost,
}

/// Whether a BO can be transferred. [`EINVAL`]: a blob without storage in the host has nothing to
/// copy; without a blob the host computes the strides itself.
fn check(blob: Option<&Blob>, strides: &[u32; 2]) -> Result {
    match blob {
        Some(blob) if blob.mem.is_host() => Ok(()),
        Some(_) => Err(EINVAL),
        None if *strides == [0; 2] => Ok(()),
        None => Err(EINVAL),
    }
}

fn region(area: &uapi::drm_virtgpu_3d_box) -> [u32; 6] {
    [area.x, area.y, area.z, area.w, area.h, area.d]
}

fn transfer(
    dev: &IoctlDevice,
    file: &DrmFile,
    handle: u32,
    direction: Direction,
    what: &wire::Transfer3d,
) -> Result<u32> {
    let device = dev.device();
    device.check()?;
    let file_inner = file.inner();
    let context = match (device.caps().virgl, direction) {
        (true, _) => Some(file_inner.context().get_or_make(device)?),
        (false, Direction::ToHost) => None,
        (false, Direction::FromHost) => return Err(ENOSYS),
    };
    let obj = BoObject::lookup_handle(file, handle)?;
    if context.is_some() {
        check(obj.blob(), &[what.stride, what.layer_stride])?;
    } else {
        check(obj.blob(), &[0; 2])?;
    }
    let request = match (context, direction) {
        (None, _) => wire::transfer_to_host_2d(obj.id(), what),
        (Some(context), Direction::ToHost) => {
            wire::transfer_to_host_3d(context.id(), obj.id(), what)
        }
        (Some(context), Direction::FromHost) => {
            wire::transfer_from_host_3d(context.id(), obj.id(), what)
        }
    };
    let keep = match direction {
        Direction::ToHost => Keep::Object(obj.clone().into()),
        Direction::FromHost => Keep::Readback(obj.clone().into()),
    };

    let fence = Fence::prealloc(GFP_KERNEL_ACCOUNT)?;
    let mut command = Some(
        Command::new(request)
            .fence(FenceArg::new(fence, device.timeline()))
            .keep(keep),
    );
    let mut room = device.reserve(1)?;
    if let Some(context) = context {
        context.check(room.generation())?;
    }
    obj.check(room.generation())?;
    // One turn, but for pages of which the device has copies.
    while command.is_some() {
        if obj.takes_turns() {
            wait::wait_idle(device, &obj, None)?;
        }
        obj.resv().publish(Usage::Write, || {
            if obj.takes_turns() {
                if !obj.resv().is_signaled(Usage::Read) {
                    return None;
                }
                obj.show_to_device();
            }
            device.submit(&mut room, command.take()?)
        })?;
    }
    match direction {
        Direction::ToHost => device.flush_soon(bytes_about(obj.bytes(), &what.region)),
        // Who reads back waits for it.
        Direction::FromHost => device.flush(),
    }
    Ok(0)
}

/// About how many bytes a region of a resource of `size` bytes has: only the host knows its format.
fn bytes_about(size: u64, region: &[u32; 6]) -> u64 {
    let [_, _, _, w, h, d] = region.map(u64::from);
    let pixels = w.checked_mul(h).and_then(|area| area.checked_mul(d));
    let bytes = pixels.and_then(|pixels| pixels.checked_mul(PIXEL_BYTES));
    bytes.unwrap_or(u64::MAX).min(size)
}

/// `DRM_IOCTL_VIRTGPU_TRANSFER_TO_HOST`.
pub(super) fn ioctl_to_host(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_virtgpu_3d_transfer_to_host,
) -> Result<u32> {
    let what = wire::Transfer3d {
        region: region(&args.box_),
        offset: args.offset.into(),
        level: args.level,
        stride: args.stride,
        layer_stride: args.layer_stride,
    };
    transfer(dev, file, args.bo_handle, Direction::ToHost, &what)
}

/// `DRM_IOCTL_VIRTGPU_TRANSFER_FROM_HOST`.
pub(super) fn ioctl_from_host(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_virtgpu_3d_transfer_from_host,
) -> Result<u32> {
    let what = wire::Transfer3d {
        region: region(&args.box_),
        offset: args.offset.into(),
        level: args.level,
        stride: args.stride,
        layer_stride: args.layer_stride,
    };
    transfer(dev, file, args.bo_handle, Direction::FromHost, &what)
}

#[kunit_tests(ochre_virtio_transfer)]
mod tests {
    use super::*;

    #[test]
    fn region_has_no_more_bytes_than_its_resource() {
        assert_eq!(bytes_about(4096, &[0, 0, 0, 16, 2, 1]), 512);
        assert_eq!(bytes_about(4096, &[0, 0, 0, 4096, 1, 1]), 4096);
        assert_eq!(bytes_about(4096, &[0; 6]), 0);
        assert_eq!(bytes_about(4096, &[u32::MAX; 6]), 4096);
    }
}
