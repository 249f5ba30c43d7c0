// SPDX-License-Identifier: GPL-2.0

//! What the device offers, what of it the driver takes, and what that means for programs.

use kernel::{
    fmt,
    prelude::*, //
};

use super::{
    caps::Region,
    regs::feature, //
};
use crate::ext::{
    dma_mapping::Addressing,
    uapi_virtio as uapi, //
};

const fn bit(number: u32) -> u64 {
    1 << number
}

/// 3D: contexts, streams, capability sets.
const VIRGL: u64 = bit(uapi::VIRTIO_GPU_F_VIRGL);
/// The device knows the displays' EDID. (There is no mode setting that would ask for it.)
const EDID: u64 = bit(uapi::VIRTIO_GPU_F_EDID);
/// Resources can be shared with other virtio devices, by UUID.
const RESOURCE_UUID: u64 = bit(uapi::VIRTIO_GPU_F_RESOURCE_UUID);
/// Resources that are plain memory.
const RESOURCE_BLOB: u64 = bit(uapi::VIRTIO_GPU_F_RESOURCE_BLOB);
/// Contexts say which capability set they use, and have several rings.
const CONTEXT_INIT: u64 = bit(uapi::VIRTIO_GPU_F_CONTEXT_INIT);
/// Blobs are aligned to a number in the configuration.
const BLOB_ALIGNMENT: u64 = bit(uapi::VIRTIO_GPU_F_BLOB_ALIGNMENT);

/// What the driver takes if it is offered.
const WANTED: u64 = VIRGL
    | EDID
    | RESOURCE_UUID
    | RESOURCE_BLOB
    | CONTEXT_INIT
    | BLOB_ALIGNMENT
    | feature::VERSION_1
    | feature::ACCESS_PLATFORM
    | feature::ORDER_PLATFORM
    | feature::EVENT_IDX
    | feature::INDIRECT_DESC;

/// Why a device cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is older than virtio 1.0.
    Legacy,
    /// It reaches memory by physical addresses, but something translates them.
    Bypasses,
    /// It reaches memory by physical addresses, but not all of it.
    Bounces,
}

impl Refusal {
    /// What is wrong and what helps.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Legacy => "the device does not speak virtio 1.0; use disable-legacy=on",
            Self::Bypasses => {
                "the device bypasses the IOMMU that it is behind; use iommu_platform=on"
            }
            Self::Bounces => {
                "the device does not know of bounce buffers, which are needed; use iommu_platform=on"
            }
        }
    }
}

/// Which of the `offered` features to take, for a function that addresses memory like this.
///
/// `ACCESS_PLATFORM` says that the device's addresses are those of its bus, so that the DMA API is
/// right. Without it they are physical, and the DMA API must be doing nothing.
pub(super) fn choose(offered: u64, addressing: Addressing) -> Result<u64, Refusal> {
    let features = offered & WANTED;
    if features & feature::VERSION_1 == 0 {
        return Err(Refusal::Legacy);
    }
    if features & feature::ACCESS_PLATFORM == 0 {
        match addressing {
            Addressing::Physical => {}
            Addressing::Translated => return Err(Refusal::Bypasses),
            Addressing::Bounced => return Err(Refusal::Bounces),
        }
    }
    Ok(features)
}

/// What programs can have of the device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Caps {
    /// 3D.
    pub(super) virgl: bool,
    /// The device knows the displays' EDID.
    pub(super) edid: bool,
    /// Resources have UUIDs.
    pub(super) resource_uuid: bool,
    /// Blobs.
    pub(super) resource_blob: bool,
    /// Contexts of a capability set and with rings.
    pub(super) context_init: bool,
    /// What sizes and places of blobs are a multiple of, a power of two; [`None`]: of pages.
    pub(super) blob_alignment: Option<u32>,
    /// Where the device shows memory of the host.
    pub(super) host_visible: Option<Region>,
}

impl Caps {
    /// Follows from the features that were taken and what the configuration says. [`EINVAL`]: the
    /// alignment is no power of two.
    pub(super) fn new(
        features: u64,
        blob_alignment: Option<u32>,
        host_visible: Option<Region>,
    ) -> Result<Self> {
        if blob_alignment.is_some_and(|alignment| !alignment.is_power_of_two()) {
            return Err(EINVAL);
        }
        let has = |feature| features & feature != 0;
        Ok(Self {
            virgl: has(VIRGL),
            edid: has(EDID),
            resource_uuid: has(RESOURCE_UUID),
            resource_blob: has(RESOURCE_BLOB),
            context_init: has(CONTEXT_INIT),
            blob_alignment,
            host_visible,
        })
    }

    /// Whether the configuration has an alignment of blobs.
    pub(super) fn have_alignment(features: u64) -> bool {
        features & BLOB_ALIGNMENT != 0
    }
}

impl fmt::Display for Caps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [
            (self.virgl, "virgl"),
            (self.edid, "edid"),
            (self.resource_uuid, "resource_uuid"),
            (self.resource_blob, "resource_blob"),
            (self.host_visible.is_some(), "host_visible"),
            (self.context_init, "context_init"),
            (self.blob_alignment.is_some(), "blob_alignment"),
        ];
        for (at, (has, name)) in flags.into_iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            let sign = if has { '+' } else { '-' };
            write!(f, "{space}{sign}{name}")?;
        }
        Ok(())
    }
}

/// Offsets in the configuration: `struct virtio_gpu_config`.
pub(super) mod config {
    /// Events that are pending.
    pub(in crate::virtio) const EVENTS_READ: usize = 0;
    /// Events that are not any more, when they are written here.
    pub(in crate::virtio) const EVENTS_CLEAR: usize = 4;
    /// Capability sets.
    pub(in crate::virtio) const NUM_CAPSETS: usize = 12;
    /// With `VIRTIO_GPU_F_BLOB_ALIGNMENT`.
    pub(in crate::virtio) const BLOB_ALIGNMENT: usize = 16;
}

#[kunit_tests(ochre_virtio_features)]
mod tests {
    use super::*;

    #[test]
    fn device_behind_an_iommu_has_to_know_it() {
        let plain = feature::VERSION_1 | VIRGL;
        let platform = plain | feature::ACCESS_PLATFORM;
        assert_eq!(choose(plain, Addressing::Physical), Ok(plain));
        assert_eq!(
            choose(plain, Addressing::Translated),
            Err(Refusal::Bypasses)
        );
        assert_eq!(choose(plain, Addressing::Bounced), Err(Refusal::Bounces));
        for addressing in [
            Addressing::Physical,
            Addressing::Translated,
            Addressing::Bounced,
        ] {
            assert_eq!(choose(platform, addressing), Ok(platform));
        }
        assert_eq!(choose(VIRGL, Addressing::Physical), Err(Refusal::Legacy));
    }

    #[test]
    fn unknown_features_are_not_taken() {
        let taken = choose(u64::MAX, Addressing::Physical);
        assert_eq!(taken, Ok(WANTED));
    }

    #[test]
    fn alignment_of_blobs_has_to_be_a_power_of_two() {
        for (alignment, valid) in [(0, false), (1, true), (0x3000, false), (0x4000, true)] {
            assert_eq!(Caps::new(0, Some(alignment), None).is_ok(), valid);
        }
    }
}
