// SPDX-License-Identifier: GPL-2.0

//! What driver and device say to each other in the control queue.
//!
//! C header: [`include/uapi/linux/virtio_gpu.h`](srctree/include/uapi/linux/virtio_gpu.h)
//!
//! A request is a header and a few fields behind it, all little-endian and made of 32-bit words. It
//! is built on the stack as an array of words, with the structure of the C header in mind, and
//! copied to the device's memory in one go. What follows it (a command stream, the places of pages)
//! is a payload of its own.

use kernel::{
    prelude::*,
    transmute::AsBytes, //
};

use crate::ext::uapi_virtio as uapi;

#[cfg(CONFIG_KUNIT = "y")]
mod tests;

/// Words of a header: `struct virtio_gpu_ctrl_hdr`.
const HEADER_WORDS: usize = 6;
/// Bytes of a header, of a request and of an answer.
pub(super) const HEADER_BYTES: usize = HEADER_WORDS * 4;
/// Words of the longest request, that of [`ctx_create`].
pub(super) const REQUEST_WORDS: usize = 24;
/// Bytes that tell where a run of pages is: `struct virtio_gpu_mem_entry`.
pub(super) const MEM_ENTRY_BYTES: usize = 16;
/// Bytes of the answer to [`get_display_info`] behind its header.
pub(super) const DISPLAY_INFO_BYTES: usize = uapi::VIRTIO_GPU_MAX_SCANOUTS as usize * 24;
/// Bytes of the answer to [`get_capset_info`] behind its header.
pub(super) const CAPSET_INFO_BYTES: usize = 16;
/// Bytes of a context's name.
const NAME_WORDS: usize = 16;

/// Words of the header.
const TYPE: usize = 0;
const FLAGS: usize = 1;
const FENCE_ID: usize = 2;
const CONTEXT: usize = 4;
/// The index of the ring in its lowest byte.
const RING: usize = 5;

/// A request without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// As the device reads them.
    words: [u32; REQUEST_WORDS],
    /// How many of them.
    len: usize,
}

impl Request {
    /// A request of type `kind` with `body` behind the header.
    #[inline]
    fn new<const N: usize>(kind: u32, context: u32, body: [u32; N]) -> Self {
        const { assert!(HEADER_WORDS + N <= REQUEST_WORDS) };
        let mut words = [0; REQUEST_WORDS];
        words[TYPE] = kind.to_le();
        words[CONTEXT] = context.to_le();
        for (to, from) in words.iter_mut().skip(HEADER_WORDS).zip(body) {
            *to = from.to_le();
        }
        Self {
            words,
            len: HEADER_WORDS + N,
        }
    }

    /// Asks the device to answer when all is done that the request begins, under the number `id`;
    /// with a ring, when the ring of the request's context is through with it.
    #[inline]
    pub(super) fn set_fence(&mut self, id: u64, ring: Option<u8>) {
        let mut flags = uapi::VIRTIO_GPU_FLAG_FENCE;
        if let Some(ring) = ring {
            flags |= uapi::VIRTIO_GPU_FLAG_INFO_RING_IDX;
            self.words[RING] = u32::from(ring).to_le();
        }
        self.words[FLAGS] = flags.to_le();
        let [low, high] = halves(id);
        self.words[FENCE_ID] = low.to_le();
        self.words[FENCE_ID + 1] = high.to_le();
    }

    /// What it asks for, as a number of the C header. For messages.
    #[inline]
    pub(super) fn kind(&self) -> u32 {
        u32::from_le(self.words[TYPE])
    }

    /// What the device reads.
    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        let words = self.words.get(..self.len).unwrap_or(&[]);
        AsBytes::as_bytes(words)
    }

    /// All words, used or not, as the device reads them.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(super) fn words(&self) -> [u32; REQUEST_WORDS] {
        self.words
    }

    /// Bytes that are used.
    #[inline]
    pub(super) fn bytes(&self) -> u32 {
        // CAST: At most 96.
        (self.len * 4) as u32
    }
}

/// The lower and the upper half.
#[inline]
fn halves(value: u64) -> [u32; 2] {
    // CAST: To each half.
    [value as u32, (value >> 32) as u32]
}

/// `VIRTIO_GPU_CMD_GET_DISPLAY_INFO`.
pub(super) fn get_display_info() -> Request {
    Request::new(uapi::VIRTIO_GPU_CMD_GET_DISPLAY_INFO, 0, [])
}

/// `VIRTIO_GPU_CMD_GET_CAPSET_INFO`, of the capability set at `index`.
pub(super) fn get_capset_info(index: u32) -> Request {
    Request::new(uapi::VIRTIO_GPU_CMD_GET_CAPSET_INFO, 0, [index, 0])
}

/// `VIRTIO_GPU_CMD_GET_CAPSET`.
pub(super) fn get_capset(id: u32, version: u32) -> Request {
    Request::new(uapi::VIRTIO_GPU_CMD_GET_CAPSET, 0, [id, version])
}

/// `VIRTIO_GPU_CMD_CTX_CREATE`. `context_init` is the id of the capability set, 0 for virgl's; a
/// longer name is cut.
pub(super) fn ctx_create(context: u32, context_init: u32, name: &[u8]) -> Request {
    let mut body = [0; 2 + NAME_WORDS];
    body[0] = u32::try_from(name.len().min(NAME_WORDS * 4)).unwrap_or(0);
    body[1] = context_init;
    for (word, text) in body.iter_mut().skip(2).zip(name.chunks(4)) {
        let mut bytes = [0; 4];
        for (to, from) in bytes.iter_mut().zip(text) {
            *to = *from;
        }
        *word = u32::from_le_bytes(bytes);
    }
    Request::new(uapi::VIRTIO_GPU_CMD_CTX_CREATE, context, body)
}

/// `VIRTIO_GPU_CMD_CTX_DESTROY`.
pub(super) fn ctx_destroy(context: u32) -> Request {
    Request::new(uapi::VIRTIO_GPU_CMD_CTX_DESTROY, context, [])
}

/// `VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE`.
pub(super) fn ctx_attach_resource(context: u32, resource: u32) -> Request {
    let kind = uapi::VIRTIO_GPU_CMD_CTX_ATTACH_RESOURCE;
    Request::new(kind, context, [resource, 0])
}

/// `VIRTIO_GPU_CMD_CTX_DETACH_RESOURCE`.
pub(super) fn ctx_detach_resource(context: u32, resource: u32) -> Request {
    let kind = uapi::VIRTIO_GPU_CMD_CTX_DETACH_RESOURCE;
    Request::new(kind, context, [resource, 0])
}

/// `VIRTIO_GPU_CMD_SUBMIT_3D`; the stream of `size` bytes is the payload.
#[inline]
pub(super) fn submit_3d(context: u32, size: u32) -> Request {
    Request::new(uapi::VIRTIO_GPU_CMD_SUBMIT_3D, context, [size, 0])
}

/// An image of a device without 3D.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Create2d {
    /// A `VIRTIO_GPU_FORMAT_*`.
    pub(super) format: u32,
    /// Pixels.
    pub(super) width: u32,
    /// Pixels.
    pub(super) height: u32,
}

/// `VIRTIO_GPU_CMD_RESOURCE_CREATE_2D`.
pub(super) fn resource_create_2d(resource: u32, what: &Create2d) -> Request {
    Request::new(
        uapi::VIRTIO_GPU_CMD_RESOURCE_CREATE_2D,
        0,
        [resource, what.format, what.width, what.height],
    )
}

/// A resource of a device with 3D, which knows what the numbers mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Create3d {
    /// A Gallium `PIPE_*` target.
    pub(super) target: u32,
    /// A `VIRGL_FORMAT_*`.
    pub(super) format: u32,
    /// `VIRGL_BIND_*`: what it is for.
    pub(super) bind: u32,
    /// Texels, or bytes of a buffer.
    pub(super) width: u32,
    /// Texels.
    pub(super) height: u32,
    /// Texels.
    pub(super) depth: u32,
    /// Layers.
    pub(super) array_size: u32,
    /// Highest mipmap level.
    pub(super) last_level: u32,
    /// Samples of a texel.
    pub(super) nr_samples: u32,
    /// `VIRTIO_GPU_RESOURCE_FLAG_*`.
    pub(super) flags: u32,
}

/// `VIRTIO_GPU_CMD_RESOURCE_CREATE_3D`.
#[inline]
pub(super) fn resource_create_3d(resource: u32, what: &Create3d) -> Request {
    Request::new(
        uapi::VIRTIO_GPU_CMD_RESOURCE_CREATE_3D,
        0,
        [
            resource,
            what.target,
            what.format,
            what.bind,
            what.width,
            what.height,
            what.depth,
            what.array_size,
            what.last_level,
            what.nr_samples,
            what.flags,
            0,
        ],
    )
}

/// `VIRTIO_GPU_CMD_RESOURCE_CREATE_BLOB`; the payload is `count` entries of [`mem_entry`].
pub(super) fn resource_create_blob(
    context: u32,
    resource: u32,
    mem: u32,
    flags: u32,
    blob_id: u64,
    size: u64,
    count: u32,
) -> Request {
    let [id_low, id_high] = halves(blob_id);
    let [size_low, size_high] = halves(size);
    Request::new(
        uapi::VIRTIO_GPU_CMD_RESOURCE_CREATE_BLOB,
        context,
        [
            resource, mem, flags, count, id_low, id_high, size_low, size_high,
        ],
    )
}

/// `VIRTIO_GPU_CMD_RESOURCE_UNREF`.
pub(super) fn resource_unref(resource: u32) -> Request {
    Request::new(uapi::VIRTIO_GPU_CMD_RESOURCE_UNREF, 0, [resource, 0])
}

/// `VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING`; the payload is `count` entries of [`mem_entry`].
#[inline]
pub(super) fn resource_attach_backing(resource: u32, count: u32) -> Request {
    let kind = uapi::VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING;
    Request::new(kind, 0, [resource, count])
}

/// `VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING`.
pub(super) fn resource_detach_backing(resource: u32) -> Request {
    let kind = uapi::VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING;
    Request::new(kind, 0, [resource, 0])
}

/// Says that `len` bytes of a resource are at `addr`: `struct virtio_gpu_mem_entry`.
#[inline]
pub(super) fn mem_entry(addr: u64, len: u32) -> [u8; MEM_ENTRY_BYTES] {
    let entry = u128::from(addr) | u128::from(len) << 64;
    entry.to_le_bytes()
}

/// What a transfer copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Transfer3d {
    /// Part of the image: x, y, z, width, height, depth.
    pub(super) region: [u32; 6],
    /// Where in the resource's pages it begins, in bytes.
    pub(super) offset: u64,
    /// Mipmap level.
    pub(super) level: u32,
    /// Bytes of a line in the pages; 0 if the host shall compute it.
    pub(super) stride: u32,
    /// Bytes of a layer in the pages; 0 if the host shall compute it.
    pub(super) layer_stride: u32,
}

#[inline]
fn transfer_3d(kind: u32, context: u32, resource: u32, what: &Transfer3d) -> Request {
    let [x, y, z, width, height, depth] = what.region;
    let [low, high] = halves(what.offset);
    Request::new(
        kind,
        context,
        [
            x,
            y,
            z,
            width,
            height,
            depth,
            low,
            high,
            resource,
            what.level,
            what.stride,
            what.layer_stride,
        ],
    )
}

/// `VIRTIO_GPU_CMD_TRANSFER_TO_HOST_3D`.
#[inline]
pub(super) fn transfer_to_host_3d(context: u32, resource: u32, what: &Transfer3d) -> Request {
    let kind = uapi::VIRTIO_GPU_CMD_TRANSFER_TO_HOST_3D;
    transfer_3d(kind, context, resource, what)
}

/// `VIRTIO_GPU_CMD_TRANSFER_FROM_HOST_3D`.
#[inline]
pub(super) fn transfer_from_host_3d(context: u32, resource: u32, what: &Transfer3d) -> Request {
    let kind = uapi::VIRTIO_GPU_CMD_TRANSFER_FROM_HOST_3D;
    transfer_3d(kind, context, resource, what)
}

/// `VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D`, of the part in the plane.
pub(super) fn transfer_to_host_2d(resource: u32, what: &Transfer3d) -> Request {
    let [x, y, _, width, height, _] = what.region;
    let [low, high] = halves(what.offset);
    Request::new(
        uapi::VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D,
        0,
        [x, y, width, height, low, high, resource, 0],
    )
}

/// `VIRTIO_GPU_CMD_RESOURCE_MAP_BLOB`, at `offset` of the host-visible window.
pub(super) fn resource_map_blob(resource: u32, offset: u64) -> Request {
    let [low, high] = halves(offset);
    let kind = uapi::VIRTIO_GPU_CMD_RESOURCE_MAP_BLOB;
    Request::new(kind, 0, [resource, 0, low, high])
}

/// `VIRTIO_GPU_CMD_RESOURCE_UNMAP_BLOB`.
pub(super) fn resource_unmap_blob(resource: u32) -> Request {
    Request::new(uapi::VIRTIO_GPU_CMD_RESOURCE_UNMAP_BLOB, 0, [resource, 0])
}

/// `VIRTIO_GPU_CMD_RESOURCE_ASSIGN_UUID`.
pub(super) fn resource_assign_uuid(resource: u32) -> Request {
    Request::new(uapi::VIRTIO_GPU_CMD_RESOURCE_ASSIGN_UUID, 0, [resource, 0])
}

/// What the device answered, of the type in the answer's header and how many bytes it wrote.
///
/// An error for each `VIRTIO_GPU_RESP_ERR_*`; [`EIO`] for what is no answer.
pub(super) fn outcome(kind: u32, written: u32) -> Result {
    if (written as usize) < HEADER_BYTES {
        return Err(EIO);
    }
    match kind {
        uapi::VIRTIO_GPU_RESP_OK_NODATA..=uapi::VIRTIO_GPU_RESP_OK_MAP_INFO => Ok(()),
        uapi::VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY => Err(ENOMEM),
        uapi::VIRTIO_GPU_RESP_ERR_INVALID_SCANOUT_ID
        | uapi::VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID
        | uapi::VIRTIO_GPU_RESP_ERR_INVALID_CONTEXT_ID => Err(ENOENT),
        uapi::VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER => Err(EINVAL),
        _ => Err(EIO),
    }
}

/// A capability set that the device has: `struct virtio_gpu_resp_capset_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CapsetInfo {
    /// Which kind of set, 1 to 63.
    pub(super) id: u32,
    /// The highest version.
    pub(super) max_version: u32,
    /// Bytes of the largest version.
    pub(super) max_size: u32,
}

/// Highest id of a capability set (virtio 1.2, "GPU Device").
pub(super) const CAPSET_ID_MAX: u32 = 63;

impl CapsetInfo {
    /// Reads the answer to [`get_capset_info`]. [`None`]: there is no such set.
    pub(super) fn decode(body: &[u8; CAPSET_INFO_BYTES]) -> Option<Self> {
        let word = |at: usize| {
            let bytes = body.get(at * 4..at * 4 + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let info = Self {
            id: word(0)?,
            max_version: word(1)?,
            max_size: word(2)?,
        };
        (1..=CAPSET_ID_MAX).contains(&info.id).then_some(info)
    }
}
