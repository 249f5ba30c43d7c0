// SPDX-License-Identifier: GPL-2.0

//! The ioctl GETPARAM: what the device can do.

use kernel::prelude::*;

use super::{
    device::Caps,
    driver::{
        DrmFile,
        IoctlDevice, //
    }, //
};
use crate::ext::{
    ioctl::user_slice,
    uapi_virtio as uapi, //
};

/// The value of a parameter. [`EINVAL`]: there is no such parameter; [`ENOENT`]: the device has none.
fn value(param: u64, caps: &Caps, capsets: u64) -> Result<u32> {
    let Ok(param) = u32::try_from(param) else {
        return Err(EINVAL);
    };
    match param {
        uapi::VIRTGPU_PARAM_3D_FEATURES => Ok(caps.virgl.into()),
        uapi::VIRTGPU_PARAM_CAPSET_QUERY_FIX => Ok(1),
        uapi::VIRTGPU_PARAM_RESOURCE_BLOB => Ok(caps.resource_blob.into()),
        uapi::VIRTGPU_PARAM_HOST_VISIBLE => Ok(caps.host_visible.is_some().into()),
        uapi::VIRTGPU_PARAM_CROSS_DEVICE => Ok(caps.resource_uuid.into()),
        uapi::VIRTGPU_PARAM_CONTEXT_INIT => Ok(caps.context_init.into()),
        // The ABI writes an `int`: the sets with ids up to 31, which are all that exist.
        uapi::VIRTGPU_PARAM_SUPPORTED_CAPSET_IDs => {
            Ok(u32::try_from(capsets & u64::from(u32::MAX))?)
        }
        uapi::VIRTGPU_PARAM_EXPLICIT_DEBUG_NAME => Ok(caps.context_init.into()),
        uapi::VIRTGPU_PARAM_BLOB_ALIGNMENT => caps.blob_alignment.ok_or(ENOENT),
        _ => Err(EINVAL),
    }
}

/// `DRM_IOCTL_VIRTGPU_GETPARAM`.
pub(super) fn ioctl(
    dev: &IoctlDevice,
    _file: &DrmFile,
    args: &mut uapi::drm_virtgpu_getparam,
) -> Result<u32> {
    let device = dev.device();
    let value = value(args.param, device.caps(), device.capset_mask())?;
    // Only 32 bits are written, whatever the program reserves.
    user_slice(args.value, 4)?.writer().write(&value)?;
    Ok(0)
}

#[kunit_tests(ochre_virtio_param)]
mod tests {
    use super::*;

    const PARAMS: core::ops::RangeInclusive<u32> =
        uapi::VIRTGPU_PARAM_3D_FEATURES..=uapi::VIRTGPU_PARAM_EXPLICIT_DEBUG_NAME;

    #[test]
    fn device_that_can_nothing_has_only_the_fix_of_the_query() {
        let caps = Caps::default();
        for param in PARAMS {
            let fix = param == uapi::VIRTGPU_PARAM_CAPSET_QUERY_FIX;
            assert_eq!(value(param.into(), &caps, 0), Ok(fix.into()));
        }
        let alignment = uapi::VIRTGPU_PARAM_BLOB_ALIGNMENT;
        assert_eq!(value(alignment.into(), &caps, 0), Err(ENOENT));
    }

    #[test]
    fn unknown_parameter_is_refused_also_one_of_64_bits() {
        let caps = Caps::default();
        for param in [0, 10, 1 << 32 | 1, u64::MAX] {
            assert_eq!(value(param, &caps, 0), Err(EINVAL));
        }
    }

    #[test]
    fn what_the_device_can_is_told() {
        let caps = Caps {
            virgl: true,
            context_init: true,
            blob_alignment: Some(0x4000),
            ..Caps::default()
        };
        let told = |param: u32| value(param.into(), &caps, 1 << 63 | 0x16);
        assert_eq!(told(uapi::VIRTGPU_PARAM_3D_FEATURES), Ok(1));
        assert_eq!(told(uapi::VIRTGPU_PARAM_CONTEXT_INIT), Ok(1));
        assert_eq!(told(uapi::VIRTGPU_PARAM_EXPLICIT_DEBUG_NAME), Ok(1));
        assert_eq!(told(uapi::VIRTGPU_PARAM_RESOURCE_BLOB), Ok(0));
        assert_eq!(told(uapi::VIRTGPU_PARAM_BLOB_ALIGNMENT), Ok(0x4000));
        assert_eq!(told(uapi::VIRTGPU_PARAM_SUPPORTED_CAPSET_IDs), Ok(0x16));
    }
}
