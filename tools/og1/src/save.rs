// SPDX-License-Identifier: GPL-2.0
//! The context-save area: a queue that left its slot, as it is to go on.
//!
//! The record is consumed when the queue is bound again, so that a queue that was dropped by a reset
//! does not go on from an older state. Section "Context-save area" of the specification has the layout.

use crate::hw::packets::INDIRECT_WORDS_MAX;
use crate::hw::Fields;
use crate::memory::BusError;
use crate::memory::Mem;
use crate::memory::Pa;

/// "OG1S".
const MAGIC: u32 = 0x5331_474f;
/// Version of the layout.
const VERSION: u32 = 1;
/// Words of the record.
const WORDS: usize = 16;
/// Bytes of the record.
const BYTES: usize = WORDS * 8;

/// How far a packet got that takes more than one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// Not begun, or a packet of one step.
    #[default]
    Start,
    /// Bytes of a copy or fill that are done.
    Bytes(u64),
    /// Rows of a 2D copy that are done, and bytes of the next one.
    Rows(u64, u64),
    /// Blocks of a dispatch that are done.
    Blocks(u64),
    /// Board time that is waited for.
    Until(u64),
}

/// An indirect buffer and the position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its address in the queue's context.
    pub addr: u64,
    /// Its length in words.
    pub words: u64,
    /// Position of the next word.
    pub pos: u64,
}

/// What a queue has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Packets, blocks and chunks retired.
    pub retired: u64,
    /// When the latest was.
    pub retired_at: u64,
    /// Board time that it held its engine.
    pub busy_ns: u64,
    /// Cycles.
    pub cycles: u64,
    /// Instructions.
    pub instructions: u64,
}

/// A saved queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Queue id.
    pub queue: u16,
    /// Board address of the ring.
    pub ring: u64,
    /// Position in the ring.
    pub rptr: u64,
    /// Indirect buffer that the packet there has begun.
    pub buffer: Option<Buffer>,
    /// How far the packet at the position got.
    pub progress: Progress,
    /// What the queue has done.
    pub work: Work,
}

/// What a save area holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No record: the queue begins at its descriptor's start.
    Nothing,
    /// A record.
    Record(Record),
    /// A record that is damaged or belongs to another queue.
    Damaged,
}

fn checksum(bytes: &[u8; BYTES]) -> u32 {
    let mut copy = *bytes;
    copy[8..12].fill(0);
    crc32fast::hash(&copy)
}

impl Record {
    fn bytes(&self) -> [u8; BYTES] {
        let buffer = self.buffer.unwrap_or(Buffer {
            addr: 0,
            words: 0,
            pos: 0,
        });
        let (kind, a, b) = match self.progress {
            Progress::Start => (0, 0, 0),
            Progress::Bytes(n) => (1, n, 0),
            Progress::Rows(row, column) => (2, row, column),
            Progress::Blocks(n) => (3, n, 0),
            Progress::Until(time) => (4, time, 0),
        };
        let words: [u64; WORDS] = [
            u64::from(MAGIC) | (u64::from(VERSION) << 32),
            0,
            u64::from(self.queue),
            self.ring,
            self.rptr,
            buffer.addr,
            buffer.words | (buffer.pos << 32),
            kind,
            a,
            b,
            self.work.retired,
            self.work.retired_at,
            self.work.busy_ns,
            self.work.cycles,
            self.work.instructions,
            0,
        ];
        let mut bytes = [0; BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let crc = checksum(&bytes);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8; BYTES]) -> Option<Self> {
        let mut f = Fields::new(bytes);
        let (_magic, version, crc, pad) = (f.u32(), f.u32(), f.u32(), f.u32());
        if version != VERSION || crc != checksum(bytes) || pad != 0 {
            return None;
        }
        let queue = u16::try_from(f.u64()).ok()?;
        let (ring, rptr, addr) = (f.u64(), f.u64(), f.u64());
        let (words, pos) = (u64::from(f.u32()), u64::from(f.u32()));
        let (kind, a, b) = (f.u64(), f.u64(), f.u64());
        let progress = match kind {
            0 => Progress::Start,
            1 => Progress::Bytes(a),
            2 => Progress::Rows(a, b),
            3 => Progress::Blocks(a),
            4 => Progress::Until(a),
            _ => return None,
        };
        if words > u64::from(INDIRECT_WORDS_MAX) || pos > words {
            return None;
        }
        let work = Work {
            retired: f.u64(),
            retired_at: f.u64(),
            busy_ns: f.u64(),
            cycles: f.u64(),
            instructions: f.u64(),
        };
        let buffer = (words != 0).then_some(Buffer { addr, words, pos });
        Some(Self {
            queue,
            ring,
            rptr,
            buffer,
            progress,
            work,
        })
    }

    /// Writes the record to a save area.
    ///
    /// # Errors
    ///
    /// The save area is not there.
    pub fn store(&self, mem: &Mem<'_>, area: Pa) -> Result<(), BusError> {
        mem.write(area, &self.bytes())
    }
}

/// Takes the record for a queue out of a save area.
///
/// # Errors
///
/// The save area is not there.
pub fn take(mem: &Mem<'_>, area: Pa, queue: u16, ring: u64) -> Result<Found, BusError> {
    let mut bytes = [0; BYTES];
    mem.read(area, &mut bytes)?;
    if bytes[..4] != MAGIC.to_le_bytes() {
        return Ok(Found::Nothing);
    }
    match Record::parse(&bytes) {
        Some(record) if record.queue == queue && record.ring == ring => {
            mem.store::<u64>(area, 0)?;
            Ok(Found::Record(record))
        }
        _ => Ok(Found::Damaged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_way_through_memory_and_each_flipped_bit_is_found() {
        let record = Record {
            queue: 7,
            ring: (1 << 63) | 0x4000,
            rptr: 1 << 40,
            buffer: Some(Buffer {
                addr: 0x1000,
                words: 100,
                pos: 30,
            }),
            progress: Progress::Rows(3, 64),
            work: Work {
                retired: 1,
                retired_at: 2,
                busy_ns: 3,
                cycles: 4,
                instructions: 5,
            },
        };
        let bytes = record.bytes();
        assert_eq!(Record::parse(&bytes), Some(record));
        // The magic is not part of what `parse` looks at beyond the checksum.
        for bit in 0..BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::parse(&bad), None, "bit {bit}");
        }
    }
}
