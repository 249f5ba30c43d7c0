// SPDX-License-Identifier: GPL-2.0
//! How a virtqueue is divided: into slots, and its memory into areas.

use kernel::{
    bits::bit_u16,
    prelude::*, //
};

use super::{
    memory::Extent,
    AVAIL_RING,
    USED_RING, //
};

/// The largest queue that the specification allows.
pub(super) const SIZE_MAX: u16 = bit_u16(15);

/// How a queue shall be.
#[derive(Clone, Copy, Debug)]
pub(in crate::virtio) struct Options {
    /// Descriptors, a power of two. Not more than the device allows.
    pub(in crate::virtio) size: u16,
    /// Segments of the longest chain. Without indirect descriptors there may be room for fewer, see
    /// [`super::Vring::max_segments`].
    pub(in crate::virtio) segments: u16,
    /// Whether `VIRTIO_F_EVENT_IDX` was negotiated.
    pub(in crate::virtio) event_idx: bool,
    /// Whether `VIRTIO_F_INDIRECT_DESC` was negotiated.
    pub(in crate::virtio) indirect: bool,
    /// Whether `VIRTIO_F_ORDER_PLATFORM` was negotiated.
    pub(in crate::virtio) order_platform: bool,
}

/// Chains without indirect descriptors share the queue; at least so many shall fit.
const SLOTS_MIN: u16 = 8;

/// What follows from [`Options`].
pub(super) struct Shape {
    /// Descriptors.
    pub(super) size: u16,
    /// A slot has `1 << shift` of them.
    pub(super) shift: u32,
    /// Segments of the longest chain.
    pub(super) segments: u16,
    /// Whether a slot has a table of indirect descriptors.
    pub(super) indirect: bool,
}

impl Shape {
    /// `EINVAL` if there is no such queue.
    pub(super) fn of(options: &Options) -> Result<Self> {
        let size = options.size;
        if !size.is_power_of_two() || size > SIZE_MAX || options.segments == 0 {
            return Err(EINVAL);
        }
        // A chain may have as many descriptors as the queue, indirect ones or not.
        let wanted = options.segments.min(size);
        let (shift, segments) = if options.indirect {
            (0, wanted)
        } else {
            let most = (size / SLOTS_MIN).max(1);
            let run = wanted.next_power_of_two().min(most);
            (run.trailing_zeros(), run.min(wanted))
        };
        Ok(Self {
            size,
            shift,
            segments,
            indirect: options.indirect,
        })
    }

    /// The memory that it takes.
    pub(super) fn extent(&self) -> Extent {
        let size = usize::from(self.size);
        let tables = if self.indirect {
            size * usize::from(self.segments)
        } else {
            0
        };
        Extent {
            desc: size + tables,
            avail: AVAIL_RING + size + 1,
            used: USED_RING + size + 1,
        }
    }
}
