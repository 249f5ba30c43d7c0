// SPDX-License-Identifier: GPL-2.0

//! Capability sets: what the renderers in the host can do. The ioctl GET_CAPS.
//!
//! A set is asked of the device once for each version and then remembered, until the device is
//! reset: it may come back with other renderers.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use super::{
    control::{
        Command,
        Reply, //
    },
    device::Device,
    driver::{
        DrmFile,
        IoctlDevice, //
    },
    limits,
    wire::{
        self,
        CapsetInfo, //
    }, //
};
use crate::ext::{
    ioctl::user_slice,
    uapi_virtio as uapi, //
};

/// A capability set of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    id: u32,
    version: u32,
    /// Of the device, when it was asked.
    generation: u64,
}

/// The sets that the device told.
#[pin_data]
pub(super) struct Capsets {
    /// A leaf: the device is asked and user memory is written without it.
    #[pin]
    known: Mutex<KVec<(Key, Arc<KVVec<u8>>)>>,
}

impl Capsets {
    /// Nothing is known yet.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            known <- new_mutex!(KVec::new(), "ochre_capsets"),
        })
    }

    fn find(&self, key: Key) -> Option<Arc<KVVec<u8>>> {
        let known = self.known.lock();
        let (_, data) = known.iter().find(|(k, _)| *k == key)?;
        Some(data.clone())
    }

    /// Remembers a set. What is in the way is forgotten; that there is no room for it, too.
    fn remember(&self, key: Key, data: &Arc<KVVec<u8>>) {
        let mut known = self.known.lock();
        known.retain(|(k, _)| k.generation == key.generation);
        if known.len() < limits::CAPSETS_CACHED_MAX && known.iter().all(|(k, _)| *k != key) {
            // Without memory the device is asked again the next time.
            let _ = known.push((key, data.clone()), GFP_KERNEL);
        }
    }

    /// The set, from memory or from the device, for which it waits interruptibly.
    fn get(&self, device: &Arc<Device>, info: &CapsetInfo, version: u32) -> Result<Arc<KVVec<u8>>> {
        let key = Key {
            id: info.id,
            version,
            generation: device.generation(),
        };
        if let Some(data) = self.find(key) {
            return Ok(data);
        }
        let len = usize::try_from(info.max_size.min(limits::CAPSET_BYTES_MAX))?;
        let mut data = KVVec::with_capacity(len, GFP_KERNEL)?;
        data.resize(len, 0, GFP_KERNEL)?;

        let reply = Reply::new(device, len)?;
        let mut room = device.reserve(1)?;
        let request = wire::get_capset(info.id, version);
        device.submit(&mut room, Command::new(request).reply(reply.clone()));
        device.flush();
        reply.wait(None)?;
        // What the device did not write stays zero.
        reply.read(&mut data)?;

        let data = Arc::new(data, GFP_KERNEL)?;
        self.remember(key, &data);
        Ok(data)
    }
}

/// The set that a program asks for. [`EINVAL`]: the device has none of this id and version.
fn select(infos: &[CapsetInfo], id: u32, version: u32) -> Result<&CapsetInfo> {
    infos
        .iter()
        .find(|info| info.id == id && info.max_version >= version)
        .ok_or(EINVAL)
}

/// `DRM_IOCTL_VIRTGPU_GET_CAPS`.
pub(super) fn ioctl(
    dev: &IoctlDevice,
    _file: &DrmFile,
    args: &mut uapi::drm_virtgpu_get_caps,
) -> Result<u32> {
    let device = dev.device();
    device.check()?;
    if device.capsets().is_empty() {
        return Err(ENOSYS);
    }
    if args.size == 0 || args.pad != 0 {
        return Err(EINVAL);
    }
    let info = select(device.capsets(), args.cap_set_id, args.cap_set_ver)?;
    let data = dev.capsets().get(device, info, args.cap_set_ver)?;
    // A program that is older than the host's renderer takes the beginning, a newer one finds what
    // it prepared in the rest.
    let len = data.len().min(usize::try_from(args.size)?);
    let part = data.get(..len).ok_or(EIO)?;
    user_slice(args.addr, len)?.writer().write_slice(part)?;
    Ok(0)
}

#[kunit_tests(ochre_virtio_capset)]
mod tests {
    use super::*;

    fn infos() -> [CapsetInfo; 3] {
        let info = |id, max_version, max_size| CapsetInfo {
            id,
            max_version,
            max_size,
        };
        [info(1, 1, 308), info(2, 2, 1384), info(4, 0, 160)]
    }

    #[test]
    fn set_is_found_by_id_up_to_its_highest_version() -> Result {
        let infos = infos();
        assert_eq!(select(&infos, 2, 0)?.max_size, 1384);
        assert_eq!(select(&infos, 2, 2)?.max_size, 1384);
        assert_eq!(select(&infos, 2, 3).err(), Some(EINVAL));
        assert_eq!(select(&infos, 3, 0).err(), Some(EINVAL));
        assert_eq!(select(&infos, 4, u32::MAX).err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn set_is_remembered_until_the_device_was_reset() -> Result {
        let capsets = KBox::pin_init(Capsets::new(), GFP_KERNEL)?;
        let old = Key {
            id: 2,
            version: 1,
            generation: 0,
        };
        let new = Key {
            generation: 1,
            ..old
        };
        let data = Arc::new(KVVec::new(), GFP_KERNEL)?;
        capsets.remember(old, &data);
        assert!(capsets.find(old).is_some());
        assert!(capsets.find(new).is_none());
        capsets.remember(new, &data);
        assert!(capsets.find(old).is_none());
        assert!(capsets.find(new).is_some());
        Ok(())
    }

    #[test]
    fn asking_for_many_versions_does_not_fill_the_memory() -> Result {
        let capsets = KBox::pin_init(Capsets::new(), GFP_KERNEL)?;
        let data = Arc::new(KVVec::new(), GFP_KERNEL)?;
        for version in 0..1000 {
            let key = Key {
                id: 2,
                version,
                generation: 0,
            };
            capsets.remember(key, &data);
        }
        assert!(capsets.known.lock().len() <= limits::CAPSETS_CACHED_MAX);
        Ok(())
    }
}
