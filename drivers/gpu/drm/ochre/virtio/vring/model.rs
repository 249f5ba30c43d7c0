// SPDX-License-Identifier: GPL-2.0

//! The other side of a virtqueue for tests: memory without a device, and a device that reads it as
//! the specification says. Its counters do not wrap, so that it does not make the driver's mistakes.

use core::cell::Cell;

use kernel::prelude::*;

use super::*;

/// Where the descriptors are for the device.
const DESC_ADDR: u64 = 0x10_0000_0000;

/// Ring memory that is just memory.
pub(in crate::virtio) struct Plain {
    desc: KVec<Cell<(u64, u64)>>,
    avail: KVec<Cell<u16>>,
    used: KVec<Cell<u64>>,
}

fn cells<T: Copy + Default>(count: usize) -> Result<KVec<Cell<T>>> {
    let mut cells = KVec::with_capacity(count, GFP_KERNEL)?;
    for _ in 0..count {
        cells.push(Cell::new(T::default()), GFP_KERNEL)?;
    }
    Ok(cells)
}

fn load<T: Copy + Default>(cells: &[Cell<T>], index: usize) -> T {
    cells.get(index).map_or(T::default(), Cell::get)
}

fn store<T>(cells: &[Cell<T>], index: usize, value: T) {
    if let Some(cell) = cells.get(index) {
        cell.set(value);
    }
}

impl Plain {
    /// Memory for a queue of this kind.
    pub(in crate::virtio) fn new(options: &Options) -> Result<Self> {
        let extent = Shape::of(options)?.extent();
        Ok(Self {
            desc: cells(extent.desc)?,
            avail: cells(extent.avail)?,
            used: cells(extent.used)?,
        })
    }

    /// Overwrites everything with what `value` gives.
    pub(in crate::virtio) fn scribble(&self, mut value: impl FnMut() -> u64) {
        for cell in &self.used {
            cell.set(value());
        }
        for cell in &self.desc {
            cell.set((value(), value()));
        }
        for cell in &self.avail {
            cell.set(value() as u16);
        }
    }

    /// Sets flags and index of the used ring.
    pub(in crate::virtio) fn set_used_head(&self, flags: u16, index: u16) {
        let word = u64::from(flags) << 32 | u64::from(index) << 48;
        store(&self.used, USED_HEAD, word);
    }

    /// Sets the element of the used ring at `index`, of a queue of `size`.
    pub(in crate::virtio) fn set_used(&self, size: u16, index: u16, id: u32, written: u32) {
        let word = USED_RING + usize::from(index & size.wrapping_sub(1));
        store(&self.used, word, u64::from(id) | u64::from(written) << 32);
    }
}

impl RingMemory for &Plain {
    fn addresses(&self) -> Addresses {
        Addresses {
            desc: DESC_ADDR,
            avail: 0x20_0000_0000,
            used: 0x30_0000_0004,
        }
    }

    fn write_desc(&self, index: usize, addr: u64, tail: u64) {
        store(&self.desc, index, (addr, tail));
    }

    fn write_tail(&self, index: usize, tail: u64) {
        let (addr, _) = load(&self.desc, index);
        store(&self.desc, index, (addr, tail));
    }

    fn write_avail(&self, half: usize, value: u16) {
        store(&self.avail, half, value);
    }

    fn read_used(&self, word: usize) -> u64 {
        load(&self.used, word)
    }

    fn clear_used(&self) {
        for cell in &self.used {
            cell.set(0);
        }
    }
}

/// A chain as the device sees it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::virtio) struct Chain {
    /// What it is called in the rings.
    pub(in crate::virtio) head: u16,
    /// Segments that the device may read.
    pub(in crate::virtio) readable: KVec<Segment>,
    /// Segments that it may write.
    pub(in crate::virtio) writable: KVec<Segment>,
}

impl Chain {
    /// Bytes that the device may write.
    pub(in crate::virtio) fn room(&self) -> u32 {
        self.writable.iter().map(|segment| segment.len).sum()
    }
}

/// An honest device.
pub(in crate::virtio) struct Device<'a> {
    memory: &'a Plain,
    size: u16,
    event_idx: bool,
    /// Chains taken, and done with, ever.
    pub(in crate::virtio) taken: u64,
    pub(in crate::virtio) done: u64,
    /// Chains done with when the driver was last considered for an interrupt.
    told: u64,
}

impl<'a> Device<'a> {
    /// A device whose indexes stand at `start`.
    pub(in crate::virtio) fn new(memory: &'a Plain, options: &Options, start: u64) -> Self {
        let device = Self {
            memory,
            size: options.size,
            event_idx: options.event_idx,
            taken: start,
            done: start,
            told: start,
        };
        device.show_index();
        device.want_notification();
        device
    }

    /// Writes the index of the used ring.
    fn show_index(&self) {
        self.memory.set_used_head(0, self.done as u16);
    }

    /// Asks to be notified of the chain that it would take next.
    pub(in crate::virtio) fn want_notification(&self) {
        self.set_event(self.taken);
    }

    /// Asks to be notified of chain number `event`.
    pub(in crate::virtio) fn set_event(&self, event: u64) {
        let word = USED_RING + usize::from(self.size);
        // The rest of the word is not the device's; the driver must not care.
        store(&self.memory.used, word, 0xdead_beef_0000 | event & 0xffff);
    }

    /// Asks not to be notified; without event indexes.
    pub(in crate::virtio) fn set_no_notify(&self, no_notify: bool) {
        let flags = if no_notify { USED_NO_NOTIFY } else { 0 };
        self.memory.set_used_head(flags, self.done as u16);
    }

    /// Index of the available ring.
    fn avail_index(&self) -> u16 {
        load(&self.memory.avail, AVAIL_INDEX)
    }

    fn descriptor(&self, index: usize) -> (Segment, u16, u16) {
        let (addr, tail) = load(&self.memory.desc, index);
        let len = tail as u32;
        (
            Segment { addr, len },
            (tail >> 32) as u16,
            (tail >> 48) as u16,
        )
    }

    /// Takes the next chain, if there is one. `EINVAL` if it is not well-formed.
    pub(in crate::virtio) fn take(&mut self) -> Result<Option<Chain>> {
        if self.avail_index() == self.taken as u16 {
            return Ok(None);
        }
        let place = usize::from(self.taken as u16 & (self.size - 1));
        let head = load(&self.memory.avail, AVAIL_RING + place);
        if head >= self.size {
            return Err(EINVAL);
        }
        self.taken += 1;

        // Where the table begins, its length, and the first descriptor in it.
        let (mut base, mut count, mut at) = (0, self.size, head);
        let (table, flags, _) = self.descriptor(head.into());
        if flags & DESC_INDIRECT != 0 {
            base = usize::try_from(table.addr.checked_sub(DESC_ADDR).ok_or(EINVAL)?)? / DESC_BYTES;
            count = u16::try_from(table.len / 16)?;
            at = 0;
            if flags != DESC_INDIRECT || table.len % 16 != 0 {
                return Err(EINVAL);
            }
        }

        let mut chain = Chain {
            head,
            readable: KVec::new(),
            writable: KVec::new(),
        };
        for _ in 0..count {
            if at >= count {
                return Err(EINVAL);
            }
            let (segment, flags, next) = self.descriptor(base + usize::from(at));
            if segment.len == 0 || flags & !(DESC_NEXT | DESC_WRITE) != 0 {
                return Err(EINVAL);
            }
            if flags & DESC_WRITE != 0 {
                chain.writable.push(segment, GFP_KERNEL)?;
            } else if chain.writable.is_empty() {
                chain.readable.push(segment, GFP_KERNEL)?;
            } else {
                return Err(EINVAL);
            }
            if flags & DESC_NEXT == 0 {
                return Ok(Some(chain));
            }
            at = next;
        }
        Err(EINVAL)
    }

    /// Gives a chain back. [`Self::interrupts`] says whether the driver wants to know.
    pub(in crate::virtio) fn give_back(&mut self, head: u16, written: u32) {
        self.memory
            .set_used(self.size, self.done as u16, head.into(), written);
        self.done += 1;
        self.show_index();
    }

    /// Whether the driver asked for an interrupt for what was given back since the last call.
    pub(in crate::virtio) fn interrupts(&mut self) -> bool {
        let (old, new) = (self.told, self.done);
        self.told = new;
        if self.event_idx {
            let event = load(&self.memory.avail, AVAIL_RING + usize::from(self.size));
            (old..new).any(|index| index as u16 == event)
        } else {
            new != old && load(&self.memory.avail, AVAIL_FLAGS) & AVAIL_NO_INTERRUPT == 0
        }
    }
}
