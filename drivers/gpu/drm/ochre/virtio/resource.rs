// SPDX-License-Identifier: GPL-2.0

//! Classic resources: images and buffers that the host stores, with guest pages from and to which
//! TRANSFER copies. The ioctls RESOURCE_CREATE and RESOURCE_INFO.

use kernel::{
    drm::gem::BaseObject,
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef, //
};

use super::{
    bo::{
        self,
        BoObject, //
    },
    control::{
        Command,
        FenceArg, //
    },
    device::Caps,
    driver::{
        DrmFile,
        IoctlDevice, //
    },
    keep::Keep,
    wire, //
};
use crate::ext::{
    dma_fence::Fence,
    dma_resv::Usage,
    gem::ObjectExt,
    uapi_virtio as uapi, //
};

/// The only target that a device without 3D knows: a two-dimensional image.
const TARGET_2D: u32 = 2;

/// What the host stores.
pub(super) enum Kind {
    /// An image of a device without 3D.
    Image(wire::Create2d),
    /// Anything of a device with 3D, which checks it.
    Any(wire::Create3d),
}

impl Kind {
    /// Understands what a program wants. [`EINVAL`]: something that a device without 3D cannot store.
    fn new(caps: &Caps, args: &uapi::drm_virtgpu_resource_create) -> Result<Self> {
        if caps.virgl {
            return Ok(Self::Any(wire::Create3d {
                target: args.target,
                format: args.format,
                bind: args.bind,
                width: args.width,
                height: args.height,
                depth: args.depth,
                array_size: args.array_size,
                last_level: args.last_level,
                nr_samples: args.nr_samples,
                flags: args.flags,
            }));
        }
        let plain = [
            args.depth,
            args.array_size,
            args.last_level,
            args.nr_samples,
        ];
        if args.target != TARGET_2D || plain.iter().any(|&n| n > 1) {
            return Err(EINVAL);
        }
        Ok(Self::Image(wire::Create2d {
            format: args.format,
            width: args.width,
            height: args.height,
        }))
    }

    fn request(&self, id: u32) -> wire::Request {
        match self {
            Self::Image(image) => wire::resource_create_2d(id, image),
            Self::Any(any) => wire::resource_create_3d(id, any),
        }
    }
}

/// Makes a resource with `size` bytes of guest pages. Whoever calls has to flush.
///
/// Waits for room, interruptibly. [`EINVAL`], [`ENOMEM`], [`ENODEV`], [`ERESTARTSYS`].
pub(super) fn create(dev: &IoctlDevice, kind: &Kind, size: u64) -> Result<ARef<BoObject>> {
    let device = dev.device();
    let obj = bo::new(dev, size, None)?;
    let (entries, count) = bo::attach_pages(dev, &obj)?;
    let fence = Fence::prealloc(GFP_KERNEL_ACCOUNT)?;
    let mut room = device.reserve(2)?;
    let create = Command::new(kind.request(obj.id()))
        .fence(FenceArg::new(fence, device.timeline()).on_response())
        .keep(Keep::Verdict(obj.verdict().clone()));
    let attach = Command::new(wire::resource_attach_backing(obj.id(), count))
        .payload(entries)
        .keep(Keep::Verdict(obj.verdict().clone()));
    obj.resv().publish(Usage::Write, || {
        obj.set_created(room.generation());
        device.submit(&mut room, create)
    })?;
    device.submit(&mut room, attach);
    Ok(obj)
}

/// `DRM_IOCTL_VIRTGPU_RESOURCE_CREATE`.
pub(super) fn ioctl_create(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_virtgpu_resource_create,
) -> Result<u32> {
    let device = dev.device();
    device.check()?;
    let kind = Kind::new(device.caps(), args)?;
    if device.caps().virgl {
        file.inner().context().get_or_make(device)?;
    }
    let size = match args.size {
        0 => u64::try_from(PAGE_SIZE)?,
        size => u64::from(size),
    };
    let obj = create(dev, &kind, size)?;
    // Opening the handle attaches the resource to the context, and flushes.
    args.bo_handle = obj.create_handle(file)?;
    args.res_handle = obj.id();
    Ok(0)
}

/// `DRM_IOCTL_VIRTGPU_RESOURCE_INFO`. [`EOVERFLOW`]: the blob has 4 GiB or more.
pub(super) fn ioctl_info(
    _dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_virtgpu_resource_info,
) -> Result<u32> {
    let obj = BoObject::lookup_handle(file, args.bo_handle)?;
    args.res_handle = obj.id();
    // The field has 32 bits. A size that was cut would be believed.
    args.size = u32::try_from(obj.bytes()).map_err(|_| EOVERFLOW)?;
    args.blob_mem = obj.blob().map_or(0, |blob| blob.mem.to_uapi());
    Ok(0)
}

#[kunit_tests(ochre_virtio_resource)]
mod tests {
    use super::*;

    fn args() -> uapi::drm_virtgpu_resource_create {
        uapi::drm_virtgpu_resource_create {
            target: TARGET_2D,
            format: 1,
            width: 64,
            height: 32,
            depth: 1,
            array_size: 1,
            size: 64 * 32 * 4,
            ..Default::default()
        }
    }

    fn caps(virgl: bool) -> Caps {
        Caps {
            virgl,
            ..Caps::default()
        }
    }

    #[test]
    fn device_without_3d_stores_plain_images_only() {
        let refused = |change: fn(&mut uapi::drm_virtgpu_resource_create)| {
            let mut args = args();
            change(&mut args);
            Kind::new(&caps(false), &args).err() == Some(EINVAL)
        };
        assert!(matches!(
            Kind::new(&caps(false), &args()),
            Ok(Kind::Image(_))
        ));
        assert!(refused(|a| a.target = 0));
        assert!(refused(|a| a.depth = 2));
        assert!(refused(|a| a.array_size = 2));
        assert!(refused(|a| a.last_level = 2));
        assert!(refused(|a| a.nr_samples = 2));
    }

    #[test]
    fn device_with_3d_judges_itself() {
        let mut args = args();
        args.target = 0;
        args.depth = 7;
        assert!(matches!(Kind::new(&caps(true), &args), Ok(Kind::Any(_))));
    }
}
