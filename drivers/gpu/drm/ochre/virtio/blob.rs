// SPDX-License-Identifier: GPL-2.0

//! Blobs: resources that are plain memory. The ioctl RESOURCE_CREATE_BLOB.
//!
//! A blob is made of pages of the guest, of memory of the host that a context names by a blob id,
//! or of both, between which TRANSFER copies. Memory of the host becomes visible to the CPU through
//! the [window](super::window).

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
    buffers::DmaBuf,
    context::Live,
    control::Command,
    device::Caps,
    driver::{
        DrmFile,
        IoctlDevice, //
    },
    execbuffer,
    keep::Keep,
    limits,
    view::Show,
    wire, //
};
use crate::ext::uapi_virtio as uapi;

/// Whose memory a blob is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// Pages of the guest.
    Guest,
    /// Memory of the host.
    Host,
    /// Memory of the host, with pages of the guest to copy from and to.
    HostGuest,
}

impl Memory {
    fn from_uapi(value: u32) -> Result<Self> {
        match value {
            uapi::VIRTGPU_BLOB_MEM_GUEST => Ok(Self::Guest),
            uapi::VIRTGPU_BLOB_MEM_HOST3D => Ok(Self::Host),
            uapi::VIRTGPU_BLOB_MEM_HOST3D_GUEST => Ok(Self::HostGuest),
            _ => Err(EINVAL),
        }
    }

    /// As in the ABI, and on the wire.
    pub(super) fn to_uapi(self) -> u32 {
        match self {
            Self::Guest => uapi::VIRTGPU_BLOB_MEM_GUEST,
            Self::Host => uapi::VIRTGPU_BLOB_MEM_HOST3D,
            Self::HostGuest => uapi::VIRTGPU_BLOB_MEM_HOST3D_GUEST,
        }
    }

    /// Whether it has pages of the guest.
    pub(super) fn is_guest(self) -> bool {
        self != Self::Host
    }

    /// Whether it has memory of the host.
    pub(super) fn is_host(self) -> bool {
        self != Self::Guest
    }
}

/// What makes a BO a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    /// Whose memory it is.
    pub(super) mem: Memory,
    /// `VIRTGPU_BLOB_FLAG_USE_*`.
    flags: u32,
}

impl Blob {
    /// A blob of guest pages that other devices and processes may use.
    pub(super) fn shareable_guest() -> Self {
        Self {
            mem: Memory::Guest,
            flags: uapi::VIRTGPU_BLOB_FLAG_USE_SHAREABLE,
        }
    }

    /// As on the wire.
    pub(super) fn flags(&self) -> u32 {
        self.flags
    }

    /// Whether other devices may know it.
    pub(super) fn crosses_devices(&self) -> bool {
        self.flags & uapi::VIRTGPU_BLOB_FLAG_USE_CROSS_DEVICE != 0
    }

    /// Whether the CPU may map it.
    pub(super) fn is_mappable(&self) -> bool {
        self.flags & uapi::VIRTGPU_BLOB_FLAG_USE_MAPPABLE != 0
    }
}

/// What a program wants, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    blob: Blob,
    /// Bytes, a multiple of the page size and not 0.
    size: u64,
    /// The CPU's view is made when it is first needed.
    map_later: bool,
}

impl Wanted {
    /// Understands what a program wants. All that is wrong with it is [`EINVAL`].
    fn new(caps: &Caps, args: &uapi::drm_virtgpu_resource_create_blob) -> Result<Self> {
        let flags = uapi::VIRTGPU_BLOB_FLAG_USE_MAPPABLE
            | uapi::VIRTGPU_BLOB_FLAG_USE_SHAREABLE
            | uapi::VIRTGPU_BLOB_FLAG_USE_CROSS_DEVICE;
        let defer = uapi::DRM_VIRTGPU_BLOB_FLAG_HINT_DEFER_MAPPING;
        if !caps.resource_blob || args.pad != 0 || args.pad2 != 0 {
            return Err(EINVAL);
        }
        if args.blob_flags & !flags != 0 || args.blob_hints & !defer != 0 {
            return Err(EINVAL);
        }
        if args.blob_flags & uapi::VIRTGPU_BLOB_FLAG_USE_CROSS_DEVICE != 0 && !caps.resource_uuid {
            return Err(EINVAL);
        }
        let mem = Memory::from_uapi(args.blob_mem)?;
        if mem.is_host() {
            if !caps.virgl {
                return Err(EINVAL);
            }
            let stream = args.cmd_size;
            if stream % limits::STREAM_ALIGN != 0 || stream > limits::BLOB_STREAM_MAX {
                return Err(EINVAL);
            }
        } else if args.blob_id != 0 || args.cmd_size != 0 {
            return Err(EINVAL);
        }
        let align = u64::from(caps.blob_alignment.unwrap_or(1).max(1));
        let page = u64::try_from(PAGE_SIZE)?;
        let size = args.size.checked_next_multiple_of(page).ok_or(EINVAL)?;
        // What is beyond isize cannot be an object of the kernel's.
        if size == 0 || args.size % align != 0 || isize::try_from(size).is_err() {
            return Err(EINVAL);
        }
        Ok(Self {
            blob: Blob {
                mem,
                flags: args.blob_flags,
            },
            size,
            map_later: args.blob_hints & defer != 0,
        })
    }
}

/// What else goes with a blob of the host.
#[derive(Default)]
struct Origin<'a> {
    /// The context that names the memory.
    context: Option<&'a Live>,
    /// How it names it.
    id: u64,
    /// What it has to do before.
    stream: Option<DmaBuf>,
}

/// Makes a blob. Whoever calls has to flush.
///
/// Waits for room, interruptibly. [`EINVAL`]: it is to be mapped and the device has no window;
/// [`ENOSPC`]: the window is full; [`ENOMEM`], [`EIO`], [`ENODEV`], [`ERESTARTSYS`].
fn create(dev: &IoctlDevice, wanted: &Wanted, origin: Origin<'_>) -> Result<ARef<BoObject>> {
    let device = dev.device();
    let blob = wanted.blob;
    let obj = bo::new(dev, wanted.size, Some(blob))?;
    let pages = match blob.mem.is_guest() {
        true => Some(bo::attach_pages(dev, &obj)?),
        false => None,
    };
    let show = match blob.mem.is_guest() || !blob.is_mappable() || wanted.map_later {
        true => None,
        false => Some(Show::new(device, dev.window()?, wanted.size)?),
    };

    let mut room = device.reserve(3)?;
    let owner = match origin.context {
        Some(context) => {
            context.check(room.generation())?;
            context.id()
        }
        None => 0,
    };
    if let Some(stream) = origin.stream {
        let request = wire::submit_3d(owner, u32::try_from(stream.len())?);
        device.submit(&mut room, Command::new(request).payload(stream));
    }
    let count = pages.as_ref().map_or(0, |(_, count)| *count);
    let request = wire::resource_create_blob(
        owner,
        obj.id(),
        blob.mem.to_uapi(),
        blob.flags(),
        origin.id,
        wanted.size,
        count,
    );
    let mut command = Command::new(request).keep(Keep::Verdict(obj.verdict().clone()));
    if let Some((entries, _)) = pages {
        command = command.payload(entries);
    }
    obj.set_created(room.generation());
    device.submit(&mut room, command);
    if let Some(show) = show {
        obj.view().ask(device, &mut room, obj.id(), show);
    }
    Ok(obj)
}

/// Makes a blob of guest pages, `size` bytes. As [`create`].
pub(super) fn create_guest(dev: &IoctlDevice, size: u64, blob: Blob) -> Result<ARef<BoObject>> {
    let wanted = Wanted {
        blob,
        size,
        map_later: false,
    };
    create(dev, &wanted, Origin::default())
}

/// `DRM_IOCTL_VIRTGPU_RESOURCE_CREATE_BLOB`.
pub(super) fn ioctl(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_virtgpu_resource_create_blob,
) -> Result<u32> {
    let device = dev.device();
    device.check()?;
    let wanted = Wanted::new(device.caps(), args)?;

    let inner = file.inner();
    let context = match device.caps().virgl {
        true => Some(inner.context().get_or_make(device)?),
        false => None,
    };
    let mut origin = Origin::default();
    if wanted.blob.mem.is_host() {
        origin.context = context;
        origin.id = args.blob_id;
        origin.stream = execbuffer::read_stream(dev, args.cmd, usize::try_from(args.cmd_size)?)?;
    }
    let obj = create(dev, &wanted, origin)?;
    // Opening the handle attaches the blob to the context, and flushes.
    args.bo_handle = obj.create_handle(file)?;
    args.res_handle = obj.id();
    Ok(0)
}

#[kunit_tests(ochre_virtio_blob)]
mod tests {
    use super::*;

    type Args = uapi::drm_virtgpu_resource_create_blob;

    fn caps() -> Caps {
        Caps {
            virgl: true,
            resource_blob: true,
            ..Caps::default()
        }
    }

    fn args(mem: u32, flags: u32, size: u64) -> Args {
        Args {
            blob_mem: mem,
            blob_flags: flags,
            size,
            ..Default::default()
        }
    }

    fn refused(caps: &Caps, args: &Args) -> bool {
        Wanted::new(caps, args).err() == Some(EINVAL)
    }

    #[test]
    fn size_is_rounded_to_pages_and_one_that_overflows_is_refused() -> Result {
        let size = |size| Wanted::new(&caps(), &args(2, 1, size)).map(|w| w.size);
        assert_eq!(size(1)?, 4096);
        assert_eq!(size(4096)?, 4096);
        assert_eq!(size(4097)?, 8192);
        for bad in [0, u64::MAX, u64::MAX - 4094, 1 << 63] {
            assert_eq!(size(bad).err(), Some(EINVAL));
        }
        Ok(())
    }

    #[test]
    fn unknown_flags_hints_and_padding_are_refused() {
        assert!(refused(&caps(), &args(2, 8, 4096)));
        for change in [
            |a: &mut Args| a.blob_hints = 2,
            |a: &mut Args| a.blob_hints = 1 << 31,
            |a: &mut Args| a.pad = 1,
            |a: &mut Args| a.pad2 = 1,
            |a: &mut Args| a.blob_mem = 0,
            |a: &mut Args| a.blob_mem = 4,
            |a: &mut Args| a.cmd_size = 2,
            |a: &mut Args| a.cmd_size = limits::BLOB_STREAM_MAX + 4,
        ] {
            let mut args = args(2, 1, 4096);
            assert!(!refused(&caps(), &args));
            change(&mut args);
            assert!(refused(&caps(), &args));
        }
    }

    #[test]
    fn guest_blob_has_neither_id_nor_commands() {
        let mut args = args(1, 1, 4096);
        assert!(!refused(&caps(), &args));
        args.blob_id = 1;
        assert!(refused(&caps(), &args));
        args.blob_id = 0;
        args.cmd_size = 4;
        assert!(refused(&caps(), &args));
    }

    #[test]
    fn only_what_the_device_can_do_is_accepted() {
        let none = Caps::default();
        assert!(refused(&none, &args(1, 0, 4096)));
        let blobs = Caps {
            resource_blob: true,
            ..Caps::default()
        };
        assert!(!refused(&blobs, &args(1, 0, 4096)));
        assert!(refused(&blobs, &args(2, 0, 4096)));
        assert!(refused(&blobs, &args(3, 0, 4096)));
        let cross = uapi::VIRTGPU_BLOB_FLAG_USE_CROSS_DEVICE;
        assert!(refused(&caps(), &args(2, cross, 4096)));
        let uuids = Caps {
            resource_uuid: true,
            ..caps()
        };
        assert!(!refused(&uuids, &args(2, cross, 4096)));
    }

    #[test]
    fn size_has_the_alignment_of_the_device() {
        let caps = Caps {
            blob_alignment: Some(0x4000),
            ..caps()
        };
        assert!(refused(&caps, &args(2, 1, 0x5000)));
        assert!(!refused(&caps, &args(2, 1, 0x8000)));
    }

    #[test]
    fn mapping_is_deferred_when_the_hint_says_so() -> Result {
        let mut args = args(2, 1, 4096);
        assert!(!Wanted::new(&caps(), &args)?.map_later);
        args.blob_hints = uapi::DRM_VIRTGPU_BLOB_FLAG_HINT_DEFER_MAPPING;
        assert!(Wanted::new(&caps(), &args)?.map_later);
        Ok(())
    }
}
