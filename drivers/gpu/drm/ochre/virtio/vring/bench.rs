// SPDX-License-Identifier: GPL-2.0

//! A virtqueue with its device and the record of what went through it, for the tests.

use kernel::prelude::*;

use super::{
    model::{
        Chain,
        Device,
        Plain, //
    },
    *,
};
use crate::algo::prng::Prng;

/// A small queue, so that it is full now and then.
pub(super) const OPTIONS: Options = Options {
    size: 16,
    segments: 5,
    event_idx: true,
    indirect: true,
    order_platform: false,
};

/// All combinations of the features that change the queue.
pub(super) fn all_options() -> [Options; 4] {
    [(true, true), (true, false), (false, true), (false, false)].map(|(event_idx, indirect)| {
        Options {
            event_idx,
            indirect,
            ..OPTIONS
        }
    })
}

/// A chain that the driver made.
pub(super) struct Sent {
    slot: Slot,
    readable: KVec<Segment>,
    writable: KVec<Segment>,
}

/// Both sides.
pub(super) struct Bench<'a> {
    pub(super) ring: Vring<&'a Plain>,
    pub(super) device: Device<'a>,
    /// Pushed, and not seen by the device yet, in order.
    pub(super) sent: KVec<Sent>,
    /// What the device has.
    pub(super) held: KVec<Chain>,
    /// What it gave back, in order: slot and bytes.
    pub(super) back: KVec<(Slot, u32)>,
}

impl<'a> Bench<'a> {
    /// A queue whose indexes stand at `start`.
    pub(super) fn new(memory: &'a Plain, options: &Options, start: u64) -> Result<Self> {
        let mut ring = Vring::new(memory, *options)?;
        ring.pushed = start as u32;
        ring.published = start as u32;
        ring.popped = start as u16;
        ring.used = start as u16;
        memory.write_avail(AVAIL_INDEX, start as u16);
        ring.disarm();
        Ok(Self {
            ring,
            device: Device::new(memory, options, start),
            sent: KVec::new(),
            held: KVec::new(),
            back: KVec::new(),
        })
    }

    fn segments(rng: &mut Prng, count: usize) -> Result<KVec<Segment>> {
        let mut segments = KVec::new();
        for _ in 0..count {
            let segment = Segment {
                addr: rng.next(),
                len: 1 + rng.below(1 << 20) as u32,
            };
            segments.push(segment, GFP_KERNEL)?;
        }
        Ok(segments)
    }

    /// Pushes a random chain. [`None`] if the queue is full.
    pub(super) fn push(&mut self, rng: &mut Prng) -> Result<Option<Slot>> {
        let Some(slot) = self.ring.claim() else {
            return Ok(None);
        };
        let count = 1 + rng.index(self.ring.max_segments());
        let writable = rng.index(count + 1);
        let sent = Sent {
            slot,
            readable: Self::segments(rng, count - writable)?,
            writable: Self::segments(rng, writable)?,
        };
        self.ring.push(slot, &sent.readable, &sent.writable)?;
        self.sent.push(sent, GFP_KERNEL)?;
        Ok(Some(slot))
    }

    fn slot_of(&self, head: u16) -> Slot {
        Slot(head >> self.ring.shift)
    }

    /// Lets the device take a chain. Returns whether it is as it was pushed; [`None`] if there is
    /// none.
    pub(super) fn take(&mut self) -> Result<Option<bool>> {
        let Some(chain) = self.device.take()? else {
            return Ok(None);
        };
        let sent = self.sent.remove(0).map_err(|_| EINVAL)?;
        let same = sent.slot == self.slot_of(chain.head)
            && *sent.readable == *chain.readable
            && *sent.writable == *chain.writable;
        self.held.push(chain, GFP_KERNEL)?;
        Ok(Some(same))
    }

    /// Lets the device give back some chain that it has.
    pub(super) fn give_back(&mut self, rng: &mut Prng) -> Result {
        if self.held.is_empty() {
            return Ok(());
        }
        let which = rng.index(self.held.len());
        let chain = self.held.remove(which).map_err(|_| EINVAL)?;
        let written = rng.below(u64::from(chain.room()) + 1) as u32;
        self.device.give_back(chain.head, written);
        let slot = self.slot_of(chain.head);
        self.back.push((slot, written), GFP_KERNEL)?;
        Ok(())
    }

    /// Pops a chain. Returns whether it is the one that the device gave back first.
    pub(super) fn pop(&mut self) -> Result<bool> {
        let used = self.ring.pop()?;
        let expected = if self.back.is_empty() {
            None
        } else {
            Some(self.back.remove(0).map_err(|_| EINVAL)?)
        };
        Ok(used.map(|used| (used.slot, used.written)) == expected)
    }

    /// Sends a chain of `room` bytes to write through to the device.
    pub(super) fn send(&mut self, room: u32) -> Result<Slot> {
        let slot = self.ring.claim().ok_or(ENOSPC)?;
        let segment = |len| Segment { addr: 0x1000, len };
        self.ring.push(slot, &[segment(8)], &[segment(room)])?;
        self.ring.publish();
        self.device.take()?.ok_or(EINVAL)?;
        Ok(slot)
    }

    pub(super) fn head(&self, slot: Slot) -> u16 {
        slot.0 << self.ring.shift
    }
}
