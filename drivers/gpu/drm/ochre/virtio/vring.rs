// SPDX-License-Identifier: GPL-2.0
//! The driver's side of a split virtqueue (virtio 1.2, "Split Virtqueues").
//!
//! A chain in flight has a slot. With indirect descriptors a slot is one descriptor and the table
//! that it points to for ever, so that a chain costs no allocation and no list of free descriptors;
//! without them a slot is a run of neighbouring descriptors. Everything that is needed when a chain
//! comes back stands in the driver's own memory: descriptors are only written, and of what the
//! device writes each word is read once and checked. A lie makes [`Vring::pop`] fail, and fail
//! again until [`Vring::reset`].
//!
//! Used chains may come in any order. All indexes count modulo 65536, as virtio's do.
//!
//! Packed rings would save the device one cache line per chain, but the device has to offer them,
//! and QEMU spends its time elsewhere: on notifications, which [`Vring::publish`] avoids just the
//! same.

use kernel::{
    bits::bit_u16,
    device,
    device::Bound,
    dma::DmaAddress,
    prelude::*, //
};

use crate::ext::barrier::Peer;

#[cfg(CONFIG_KUNIT = "y")]
mod bench;
#[cfg(CONFIG_KUNIT = "y")]
mod hostile_tests;
mod memory;
#[cfg(CONFIG_KUNIT = "y")]
pub(super) mod model;
mod shape;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;
mod used;

pub(super) use memory::{
    Addresses,
    DmaMemory,
    RingMemory, //
};
pub(super) use shape::Options;
use shape::Shape;
pub(super) use used::{
    RingError,
    Used, //
};

/// In a descriptor: another one follows.
const DESC_NEXT: u16 = bit_u16(0);
/// In a descriptor: the device writes there.
const DESC_WRITE: u16 = bit_u16(1);
/// In a descriptor: it locates a table of descriptors.
const DESC_INDIRECT: u16 = bit_u16(2);
/// Flag of the available ring: no interrupts, please.
const AVAIL_NO_INTERRUPT: u16 = bit_u16(0);
/// Flag of the used ring: no notifications, please.
const USED_NO_NOTIFY: u16 = bit_u16(0);

/// Half-words of the available ring before its elements: flags and index.
const AVAIL_FLAGS: usize = 0;
const AVAIL_INDEX: usize = 1;
const AVAIL_RING: usize = 2;
/// Word of the used ring with flags and index, and the first with an element.
const USED_HEAD: usize = 0;
const USED_RING: usize = 1;

/// Bytes of a descriptor.
const DESC_BYTES: usize = 16;

/// Memory that the device reads or writes: a run of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// Where it begins.
    pub(super) addr: DmaAddress,
    /// Bytes, not 0.
    pub(super) len: u32,
}

/// Names a chain from [`Vring::claim`] until it was popped. Below [`Vring::slots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u16);

impl Slot {
    /// Index into a table of the caller's with [`Vring::slots`] elements.
    pub(super) fn index(self) -> usize {
        self.0.into()
    }
}

/// What a slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// On the list of free ones, before slot `next`; [`Vring::slots`] ends the list.
    Free { next: u16 },
    /// The caller's.
    Claimed,
    /// In the available ring, at `serial` of all chains ever.
    Pushed {
        /// Bytes that the device may write.
        room: u32,
        serial: u32,
    },
}

/// A split virtqueue as its driver sees it. Calls do not sleep, and only the constructors allocate.
///
/// Dropping it frees memory that the device knows of, so the device has to be reset first; and with
/// interrupts enabled, as `dma_free_coherent()` demands.
///
/// # Invariants
///
/// `size` is a power of two, at most 32768, and there are `size >> shift` slots. `free` begins a
/// list through exactly those of `states` that are free, `free_count` in number.
pub(super) struct Vring<M> {
    memory: M,
    /// One per slot.
    states: KVec<State>,
    /// The first free slot.
    free: u16,
    free_count: u16,

    size: u16,
    /// A slot has `1 << shift` descriptors of the table.
    shift: u32,
    /// Segments of a chain, at most.
    segments: u16,
    event_idx: bool,
    indirect: bool,
    peer: Peer,
    addresses: Addresses,

    /// Chains pushed so far.
    pushed: u32,
    /// Chains published so far: index of the available ring.
    published: u32,
    /// Chains popped so far.
    popped: u16,
    /// Index of the used ring when it was last read.
    used: u16,
}

/// The queue of a device.
pub(super) type DmaVring = Vring<DmaMemory>;

impl DmaVring {
    /// Makes an empty queue in coherent memory of `dev`. `EINVAL` if it cannot be of that size.
    pub(super) fn on_device(dev: &device::Device<Bound>, options: Options) -> Result<Self> {
        let shape = Shape::of(&options)?;
        Self::new(DmaMemory::new(dev, shape.extent())?, options)
    }
}

impl<M: RingMemory> Vring<M> {
    /// Makes an empty queue in `memory`, which has the extent that `options` ask for.
    pub(super) fn new(memory: M, options: Options) -> Result<Self> {
        let shape = Shape::of(&options)?;
        let slots = usize::from(shape.size >> shape.shift);
        let addresses = memory.addresses();
        let peer = if options.order_platform {
            Peer::Device
        } else {
            Peer::Cpu
        };
        let mut ring = Self {
            memory,
            states: KVec::from_elem(State::Claimed, slots, GFP_KERNEL)?,
            free: 0,
            free_count: 0,
            size: shape.size,
            shift: shape.shift,
            segments: shape.segments,
            event_idx: options.event_idx,
            indirect: shape.indirect,
            peer,
            addresses,
            pushed: 0,
            published: 0,
            popped: 0,
            used: 0,
        };
        // INVARIANT: Makes the list of free slots.
        ring.reset();
        Ok(ring)
    }

    /// Where the device finds it.
    pub(super) fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Descriptors, as the device has to know.
    pub(super) fn size(&self) -> u16 {
        self.size
    }

    /// Chains that there can be at a time.
    pub(super) fn slots(&self) -> usize {
        self.states.len()
    }

    /// Segments that a chain can have.
    pub(super) fn max_segments(&self) -> usize {
        self.segments.into()
    }

    /// Slots that can be claimed.
    pub(super) fn free(&self) -> usize {
        self.free_count.into()
    }

    /// Chains that the device has: published and not popped.
    pub(super) fn in_flight(&self) -> u16 {
        // CAST: modulo 65536; there are never more than the queue has descriptors.
        (self.published as u16).wrapping_sub(self.popped)
    }

    /// Takes a free slot, the one that was freed last. [`None`] if all are taken.
    pub(super) fn claim(&mut self) -> Option<Slot> {
        let slot = Slot(self.free);
        let state = self.states.get_mut(slot.index())?;
        let State::Free { next } = *state else {
            return None;
        };
        *state = State::Claimed;
        self.free = next;
        self.free_count -= 1;
        Some(slot)
    }

    /// Gives back a claimed slot that was not pushed.
    pub(super) fn release(&mut self, slot: Slot) {
        if self.states.get(slot.index()) == Some(&State::Claimed) {
            self.put_free(slot);
        }
    }

    /// Puts a slot on the list of free ones, on which it is not.
    fn put_free(&mut self, slot: Slot) {
        if let Some(state) = self.states.get_mut(slot.index()) {
            *state = State::Free { next: self.free };
            self.free = slot.0;
            self.free_count += 1;
        }
    }

    /// Writes a chain and puts it into the available ring. [`Self::publish`] shows it to the
    /// device.
    ///
    /// `EINVAL`, with nothing done, if `slot` is not claimed, or if there are no segments or too
    /// many, an empty one, or more than 4 GiB to write.
    pub(super) fn push(
        &mut self,
        slot: Slot,
        readable: &[Segment],
        writable: &[Segment],
    ) -> Result {
        let state = self.states.get_mut(slot.index()).ok_or(EINVAL)?;
        let count = readable.len() + writable.len();
        if *state != State::Claimed || count == 0 || count > usize::from(self.segments) {
            return Err(EINVAL);
        }

        // The chain's first descriptor, in the memory and for the device: indirect ones count from
        // their table on.
        let head = slot.0 << self.shift;
        let (mut index, mut next) = if self.indirect {
            let tables = usize::from(self.size);
            (tables + slot.index() * usize::from(self.segments), 0)
        } else {
            (usize::from(head), head)
        };
        let mut left = count;
        let mut room = 0u32;
        for (segments, flags) in [(readable, 0), (writable, DESC_WRITE)] {
            for segment in segments {
                if segment.len == 0 {
                    return Err(EINVAL);
                }
                if flags != 0 {
                    room = room.checked_add(segment.len).ok_or(EINVAL)?;
                }
                left -= 1;
                next += 1;
                let more = if left != 0 { DESC_NEXT } else { 0 };
                let tail = tail(segment.len, flags | more, next);
                self.memory.write_desc(index, segment.addr, tail);
                index += 1;
            }
        }
        if self.indirect {
            // CAST: a table is smaller than 1 MiB.
            let bytes = (count * DESC_BYTES) as u32;
            let tail = tail(bytes, DESC_INDIRECT, 0);
            self.memory.write_tail(head.into(), tail);
        }

        *state = State::Pushed {
            room,
            serial: self.pushed,
        };
        // CAST: modulo the size, which divides 65536.
        let place = self.pushed as u16 & (self.size - 1);
        self.memory
            .write_avail(AVAIL_RING + usize::from(place), head);
        self.pushed = self.pushed.wrapping_add(1);
        Ok(())
    }

    /// Shows the device all that was pushed. Returns whether it has to be notified.
    pub(super) fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.pushed);
        if old == new {
            return false;
        }
        // What was written to memory, chains and what they locate, comes before the index.
        self.peer.write();
        // CAST: the index counts modulo 65536.
        self.memory.write_avail(AVAIL_INDEX, new as u16);
        self.published = new;
        // The device publishes where it wants to be notified and then looks at the index once more;
        // we have to do the same the other way round.
        self.peer.full();
        if self.event_idx {
            let word = USED_RING + usize::from(self.size);
            // CAST: the event index is the lowest 16 bits.
            let event = self.memory.read_used(word) as u16;
            crossed(old as u16, new as u16, event)
        } else {
            let (flags, _) = used_head(self.memory.read_used(USED_HEAD));
            flags & USED_NO_NOTIFY == 0
        }
    }

    /// Takes a chain that the device has done with. What it wrote there is visible then.
    pub(super) fn pop(&mut self) -> Result<Option<Used>, RingError> {
        if self.popped == self.used {
            let (_, index) = used_head(self.memory.read_used(USED_HEAD));
            if index == self.popped {
                return Ok(None);
            }
            let jump = index.wrapping_sub(self.popped);
            let in_flight = self.in_flight();
            if jump > in_flight {
                return Err(RingError::BadIndex { jump, in_flight });
            }
            // The index comes before the elements that it tells of, and before what their chains
            // locate.
            self.peer.read();
            self.used = index;
        }

        let place = usize::from(self.popped & (self.size - 1));
        let element = self.memory.read_used(USED_RING + place);
        // CAST: the lower and the upper half.
        let (id, written) = (element as u32, (element >> 32) as u32);
        let slot = u16::try_from(id)
            .ok()
            .filter(|id| id & ((1 << self.shift) - 1) == 0)
            .map(|id| Slot(id >> self.shift))
            .ok_or(RingError::BadId(id))?;
        match self.states.get(slot.index()) {
            None => Err(RingError::BadId(id)),
            // The device has not seen it if it is one of those that were pushed since.
            Some(&State::Pushed { room, serial })
                if serial.wrapping_sub(self.published)
                    >= self.pushed.wrapping_sub(self.published) =>
            {
                if written > room {
                    return Err(RingError::TooLong {
                        slot,
                        written,
                        room,
                    });
                }
                self.popped = self.popped.wrapping_add(1);
                self.put_free(slot);
                Ok(Some(Used { slot, written }))
            }
            Some(_) => Err(RingError::NotInFlight(slot)),
        }
    }

    /// Asks for an interrupt when the device has done with `after` chains more than were popped, at
    /// least 1. Returns whether it has already: then there may be no interrupt.
    pub(super) fn arm(&mut self, after: u16) -> bool {
        let after = after.max(1);
        if self.event_idx {
            self.set_event(self.popped.wrapping_add(after - 1));
        } else {
            self.memory.write_avail(AVAIL_FLAGS, 0);
        }
        // The device writes its index and then looks whether we want to know; see `publish`.
        self.peer.full();
        let (_, index) = used_head(self.memory.read_used(USED_HEAD));
        index.wrapping_sub(self.popped) >= after
    }

    /// Asks for no interrupts.
    ///
    /// With event indexes there still is one when the device has done with some 65000 chains.
    pub(super) fn disarm(&mut self) {
        if self.event_idx {
            // It is past that one.
            self.set_event(self.popped.wrapping_sub(1));
        } else {
            self.memory.write_avail(AVAIL_FLAGS, AVAIL_NO_INTERRUPT);
        }
    }

    fn set_event(&self, index: u16) {
        let half = AVAIL_RING + usize::from(self.size);
        self.memory.write_avail(half, index);
    }

    /// Empties the queue and makes its memory that of a new one, disarmed. The device must have
    /// been reset, so that it does not know of the queue any more.
    pub(super) fn reset(&mut self) {
        self.memory.clear_used();
        if self.indirect {
            let tables = self.addresses.desc + u64::from(self.size) * DESC_BYTES as u64;
            let bytes = u64::from(self.segments) * DESC_BYTES as u64;
            for slot in 0..self.slots() {
                let table = tables + slot as u64 * bytes;
                self.memory
                    .write_desc(slot, table, tail(0, DESC_INDIRECT, 0));
            }
        }
        self.memory.write_avail(AVAIL_FLAGS, 0);
        self.memory.write_avail(AVAIL_INDEX, 0);
        self.pushed = 0;
        self.published = 0;
        self.popped = 0;
        self.used = 0;
        self.disarm();

        // INVARIANT: All are free and on the list, the first one first.
        self.free = 0;
        self.free_count = 0;
        for (state, next) in self.states.iter_mut().zip(1..) {
            *state = State::Free { next };
            self.free_count += 1;
        }
    }
}

/// The second word of a descriptor.
#[inline]
fn tail(len: u32, flags: u16, next: u16) -> u64 {
    u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48
}

/// Flags and index of the used ring, of the word that they stand in.
#[inline]
fn used_head(word: u64) -> (u16, u16) {
    // CAST: the third and the highest quarter.
    ((word >> 32) as u16, (word >> 48) as u16)
}

/// Whether an index that went from `old` to `new` passed over `event`: the element at `event` is
/// one of the new ones.
#[inline]
fn crossed(old: u16, new: u16, event: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
