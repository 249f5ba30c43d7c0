// SPDX-License-Identifier: GPL-2.0
//! Pages of the guest behind a resource, in pieces.

use ochre_vfio_user as vfu;
use vfu::Access;
use vfu::Memory;
use vfu::View;

use crate::gpu::Fail;
use crate::gpu::Reader;
use crate::judge::Rule;
use crate::ring::RingFault;
use crate::ring::Segment;
use crate::wire::Fields;
use crate::wire::Resp;

/// Pieces that a resource can have; the same limit as QEMU's.
pub const ENTRIES_MAX: u32 = 16384;
/// Bytes of an entry (`virtio_gpu_mem_entry`).
const ENTRY: usize = 16;

/// The pieces.
#[derive(Clone, Debug, Default)]
pub struct Backing {
    /// Each with its offset in the resource.
    pieces: Vec<(u64, Segment)>,
    bytes: u64,
}

impl Backing {
    /// Reads the list that follows a command.
    ///
    /// # Errors
    ///
    /// The command is too short, or names what is no memory; too many pieces.
    pub fn read(reader: &mut Reader<'_>, memory: &View<'_>, entries: u32) -> Result<Self, Fail> {
        if entries > ENTRIES_MAX {
            return Err(Fail::Refused(Resp::ErrUnspec));
        }
        let mut backing = Self::default();
        for _ in 0..entries {
            let mut bytes = [0; ENTRY];
            reader.read(&mut bytes)?;
            let mut fields = Fields(&bytes);
            let (addr, len, padding) = (fields.u64(), fields.u32(), fields.u32());
            if len == 0 || padding != 0 {
                return Err(Fail::Broke(Rule::Backing, addr, Resp::ErrParameter));
            }
            memory
                .check(addr, len.into(), Access::READ | Access::WRITE)
                .map_err(|error| Fail::memory(RingFault::from(error)))?;
            backing.pieces.push((backing.bytes, Segment { addr, len }));
            backing.bytes += u64::from(len);
        }
        Ok(backing)
    }

    /// Number of pieces.
    pub fn entries(&self) -> usize {
        self.pieces.len()
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Calls `f(address, range of the buffer)` for the pieces of `offset..offset + len`.
    fn walk(
        &self,
        offset: u64,
        len: usize,
        mut f: impl FnMut(u64, std::ops::Range<usize>) -> Result<(), vfu::MemoryError>,
    ) -> Result<(), Fail> {
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(Fail::Refused(Resp::ErrParameter));
        }
        let mut done = 0;
        let first = self.pieces.partition_point(|(at, _)| *at <= offset);
        for (at, piece) in &self.pieces[first.saturating_sub(1)..] {
            if done == len {
                break;
            }
            let skip = offset + done as u64 - at;
            let left = u64::from(piece.len) - skip;
            // Fits: it is at most `len - done`.
            let n = left.min((len - done) as u64) as usize;
            f(piece.addr + skip, done..done + n)
                .map_err(|error| Fail::memory(RingFault::from(error)))?;
            done += n;
        }
        Ok(())
    }

    /// Reads bytes of the guest.
    ///
    /// # Errors
    ///
    /// They are not there.
    pub fn load(&self, memory: &View<'_>, offset: u64, bytes: &mut [u8]) -> Result<(), Fail> {
        let len = bytes.len();
        self.walk(offset, len, |at, range| memory.read(at, &mut bytes[range]))
    }

    /// Writes bytes of the guest.
    ///
    /// # Errors
    ///
    /// They are not there.
    pub fn store(&self, memory: &View<'_>, offset: u64, bytes: &[u8]) -> Result<(), Fail> {
        self.walk(offset, bytes.len(), |at, range| {
            memory.write(at, &bytes[range])
        })
    }
}
