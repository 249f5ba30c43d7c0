// SPDX-License-Identifier: GPL-2.0

//! Dumb buffers: images of a plain format for programs that draw with the CPU.
//!
//! Nothing shows them here, since there is no mode setting. But some programs use them on the primary
//! node as plain shareable memory.

use kernel::{
    drm::gem::BaseObject,
    page::PAGE_SIZE,
    prelude::*, //
};

use super::{
    blob::{
        self,
        Blob, //
    },
    driver::{
        DrmFile,
        IoctlDevice, //
    },
    resource::{
        self,
        Kind, //
    },
    wire, //
};
use crate::ext::{
    drm_drv::{
        Dumb,
        DumbRequest, //
    },
    uapi_virtio as uapi, //
};

/// Bits of a pixel, of the one format that there is.
const BPP: u32 = 32;

/// Bytes of a row and of the image. [`EINVAL`]: other pixels, or an image that overflows.
fn layout(request: &DumbRequest) -> Result<(u32, u64)> {
    if request.bpp != BPP || request.width == 0 || request.height == 0 {
        return Err(EINVAL);
    }
    let pitch = request.width.checked_mul(BPP / 8).ok_or(EINVAL)?;
    // A product of two numbers of 32 bits, rounded to pages, fits 64.
    let bytes = u64::from(pitch) * u64::from(request.height);
    let size = bytes.next_multiple_of(u64::try_from(PAGE_SIZE)?);
    Ok((pitch, size))
}

/// Makes a dumb buffer.
pub(super) fn create(dev: &IoctlDevice, file: &DrmFile, request: DumbRequest) -> Result<Dumb> {
    let device = dev.device();
    device.check()?;
    let (pitch, size) = layout(&request)?;
    let caps = device.caps();
    let obj = if caps.resource_blob && !caps.virgl {
        blob::create_guest(dev, size, Blob::shareable_guest())?
    } else {
        let image = wire::Create2d {
            format: uapi::VIRTIO_GPU_FORMAT_B8G8R8X8_UNORM,
            width: request.width,
            height: request.height,
        };
        resource::create(dev, &Kind::Image(image), size)?
    };
    Ok(Dumb {
        handle: obj.create_handle(file)?,
        pitch,
        size,
    })
}

#[kunit_tests(ochre_virtio_dumb)]
mod tests {
    use super::*;

    fn request(width: u32, height: u32, bpp: u32) -> DumbRequest {
        DumbRequest { width, height, bpp }
    }

    #[test]
    fn image_has_whole_pages_and_rows_without_gaps() -> Result {
        assert_eq!(layout(&request(100, 10, 32))?, (400, 4096));
        assert_eq!(layout(&request(1920, 1080, 32))?, (7680, 8294400));
        Ok(())
    }

    #[test]
    fn other_pixels_and_images_that_overflow_are_refused() {
        for (width, height, bpp) in [
            (100, 10, 16),
            (100, 10, 0),
            (0, 10, 32),
            (10, 0, 32),
            (1 << 30, 1, 32),
            (u32::MAX, u32::MAX, 32),
        ] {
            assert_eq!(layout(&request(width, height, bpp)).err(), Some(EINVAL));
        }
    }
}
