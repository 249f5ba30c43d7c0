// SPDX-License-Identifier: GPL-2.0
//! The device's side of a split virtqueue (2.7).
//!
//! All of it is in guest memory and may change at any time, so each value is read once, checked, and
//! then used. A chain has at most [`CHAIN_MAX`] descriptors, whatever their links say.

use std::sync::atomic::fence;
use std::sync::atomic::Ordering;

use ochre_vfio_user as vfu;
use vfu::Memory;
use vfu::MemoryError;
use vfu::View;

use crate::judge::Rule;
use crate::wire::vring;

/// Descriptors of a chain, those of an indirect table included; the same limit as QEMU's.
pub const CHAIN_MAX: usize = 1024;

/// A piece of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// DMA address.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
}

/// A chain that the driver has made available.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Its first descriptor, which is its name in the used ring.
    pub head: u16,
    /// What the device reads.
    pub readable: Vec<Segment>,
    /// What the device writes.
    pub writable: Vec<Segment>,
}

impl Chain {
    /// Bytes that the device may write.
    pub fn room(&self) -> u64 {
        self.writable.iter().map(|s| u64::from(s.len)).sum()
    }
}

/// What is wrong with a ring, and about what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFault {
    /// The rule that was broken.
    pub rule: Rule,
    /// Address, index or descriptor.
    pub info: u64,
}

impl From<MemoryError> for RingFault {
    fn from(error: MemoryError) -> Self {
        let info = match error {
            MemoryError::Unmapped { address }
            | MemoryError::NoBacking { address }
            | MemoryError::Denied { address }
            | MemoryError::Misaligned { address } => address,
            MemoryError::Overflow | MemoryError::Stale => u64::MAX,
        };
        let rule = Rule::Dma;
        Self { rule, info }
    }
}

fn wrong(rule: Rule, info: impl Into<u64>) -> RingFault {
    let info = info.into();
    RingFault { rule, info }
}

/// Addresses of the three parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Descriptor table.
    pub desc: u64,
    /// Available ring.
    pub avail: u64,
    /// Used ring.
    pub used: u64,
}

/// What was negotiated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Notifications and interrupts by index.
    pub event_idx: bool,
    /// Indirect tables.
    pub indirect: bool,
}

/// A queue that is enabled.
#[derive(Clone, Debug)]
pub struct Ring {
    size: u16,
    parts: Parts,
    options: Options,
    /// The next entry of the available ring.
    next: u16,
    /// The used index.
    used: u16,
    in_flight: Vec<bool>,
}

struct Descriptor {
    segment: Segment,
    flags: u16,
    next: u16,
}

fn descriptor(memory: &View<'_>, table: u64, index: u16) -> Result<Descriptor, MemoryError> {
    let mut bytes = [0; vring::DESCRIPTOR as usize];
    let at = table
        .checked_add(u64::from(index) * vring::DESCRIPTOR)
        .ok_or(MemoryError::Overflow)?;
    memory.read(at, &mut bytes)?;
    let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let addr = u64::from(word(0)) | (u64::from(word(4)) << 32);
    let segment = Segment { addr, len: word(8) };
    let (flags, next) = (half(12), half(14));
    Ok(Descriptor {
        segment,
        flags,
        next,
    })
}

impl Ring {
    /// A queue of `size` descriptors, which is a power of two; nothing in flight.
    pub fn new(size: u16, parts: Parts, options: Options) -> Self {
        Self {
            size,
            parts,
            options,
            next: 0,
            used: 0,
            in_flight: vec![false; usize::from(size)],
        }
    }

    /// Number of descriptors.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// The used index.
    pub fn used_index(&self) -> u16 {
        self.used
    }

    /// Whether the device holds this head.
    pub fn holds(&self, head: u16) -> bool {
        self.in_flight.get(usize::from(head)).is_some_and(|x| *x)
    }

    /// Offset of an entry of `bytes` in a ring with a header of 4 bytes.
    fn entry(&self, index: u16, bytes: u64) -> u64 {
        4 + u64::from(index & (self.size - 1)) * bytes
    }

    /// Checks that the parts are memory.
    ///
    /// # Errors
    ///
    /// One is not.
    pub fn check(&self, memory: &View<'_>) -> Result<(), RingFault> {
        let size = u64::from(self.size);
        let read = vfu::Access::READ;
        memory.check(self.parts.desc, size * vring::DESCRIPTOR, read)?;
        memory.check(self.parts.avail, 6 + 2 * size, read)?;
        memory.check(self.parts.used, 6 + 8 * size, read | vfu::Access::WRITE)?;
        Ok(())
    }

    /// Takes the next chain, if there is one.
    ///
    /// # Errors
    ///
    /// The ring or the chain is malformed. The queue is not to be used any more.
    pub fn pop(&mut self, memory: &View<'_>) -> Result<Option<Chain>, RingFault> {
        let index: u16 = memory.load(self.parts.avail + 2)?;
        let waiting = index.wrapping_sub(self.next);
        if waiting == 0 {
            return Ok(None);
        }
        if waiting > self.size {
            return Err(wrong(Rule::Avail, index));
        }
        let at = self.parts.avail + self.entry(self.next, 2);
        let head: u16 = memory.load(at)?;
        if head >= self.size {
            return Err(wrong(Rule::Avail, head));
        }
        let held = &mut self.in_flight[usize::from(head)];
        if std::mem::replace(held, true) {
            return Err(wrong(Rule::InFlight, head));
        }
        self.next = self.next.wrapping_add(1);
        self.chain(memory, head).map(Some)
    }

    fn chain(&self, memory: &View<'_>, head: u16) -> Result<Chain, RingFault> {
        let bad = || wrong(Rule::Descriptor, head);
        let mut chain = Chain {
            head,
            ..Chain::default()
        };
        let (mut table, mut size) = (self.parts.desc, self.size);
        let mut nested = false;
        let mut index = head;
        // One more for the descriptor that leads to the table.
        for _ in 0..=CHAIN_MAX {
            if index >= size {
                return Err(bad());
            }
            let Descriptor {
                segment,
                flags,
                next,
            } = descriptor(memory, table, index)?;
            if flags & vring::INDIRECT != 0 {
                let len = u64::from(segment.len);
                let entries = len / vring::DESCRIPTOR;
                let good = self.options.indirect
                    && !nested
                    && flags & vring::NEXT == 0
                    && len % vring::DESCRIPTOR == 0
                    && (1..=CHAIN_MAX as u64).contains(&entries);
                if !good {
                    return Err(bad());
                }
                nested = true;
                table = segment.addr;
                size = u16::try_from(entries).unwrap_or(u16::MAX);
                index = 0;
                continue;
            }
            if flags & vring::WRITE != 0 {
                chain.writable.push(segment);
            } else if chain.writable.is_empty() {
                chain.readable.push(segment);
            } else {
                // What is read comes first (2.7.4.2).
                return Err(bad());
            }
            if flags & vring::NEXT == 0 {
                return Ok(chain);
            }
            index = next;
        }
        Err(bad())
    }

    /// Gives a chain back: `len` bytes were written.
    ///
    /// # Errors
    ///
    /// The used ring is no memory any more.
    pub fn give_back(&mut self, memory: &View<'_>, head: u16, len: u32) -> Result<bool, RingFault> {
        self.forget(head);
        self.put(memory, head.into(), len)
    }

    /// The device does not hold this head any more.
    pub fn forget(&mut self, head: u16) {
        if let Some(held) = self.in_flight.get_mut(usize::from(head)) {
            *held = false;
        }
    }

    /// Puts an entry into the used ring, whatever it says; returns whether to interrupt.
    ///
    /// # Errors
    ///
    /// The used ring is no memory any more.
    pub fn put(&mut self, memory: &View<'_>, id: u32, len: u32) -> Result<bool, RingFault> {
        let at = self.parts.used + self.entry(self.used, 8);
        memory.store(at, id)?;
        memory.store(at + 4, len)?;
        self.move_used(memory, self.used.wrapping_add(1))
    }

    /// Sets the used index; returns whether to interrupt (2.7.7).
    ///
    /// # Errors
    ///
    /// The used ring is no memory any more.
    pub fn move_used(&mut self, memory: &View<'_>, index: u16) -> Result<bool, RingFault> {
        let old = std::mem::replace(&mut self.used, index);
        memory.store(self.parts.used + 2, index)?;
        // The driver stores what it wants, then looks at the index; here it is the other way round.
        fence(Ordering::SeqCst);
        if self.options.event_idx {
            let at = self.parts.avail + 4 + 2 * u64::from(self.size);
            let event: u16 = memory.load(at)?;
            let past = index.wrapping_sub(event).wrapping_sub(1);
            Ok(past < index.wrapping_sub(old))
        } else {
            let flags: u16 = memory.load(self.parts.avail)?;
            Ok(flags & vring::NO_INTERRUPT == 0)
        }
    }

    /// Asks for a notification, or for none. True if there is a chain all the same, so that none
    /// will come (2.7.10).
    ///
    /// # Errors
    ///
    /// The rings are no memory any more.
    pub fn ask_for_notification(&self, memory: &View<'_>, wanted: bool) -> Result<bool, RingFault> {
        if self.options.event_idx {
            // An index that was passed already asks for nothing.
            if !wanted {
                return Ok(false);
            }
            let at = self.parts.used + 4 + 8 * u64::from(self.size);
            memory.store(at, self.next)?;
        } else {
            let flags = if wanted { 0 } else { vring::NO_NOTIFY };
            memory.store(self.parts.used, flags)?;
        }
        fence(Ordering::SeqCst);
        let index: u16 = memory.load(self.parts.avail + 2)?;
        Ok(index != self.next)
    }
}
