// SPDX-License-Identifier: GPL-2.0
//! Memory that the driver and the board share: coherent system memory, seen as 64-bit words.
//!
//! Each word is read and written whole (volatile), since the board may change it at any moment;
//! what is read is data to be checked, never a reference into the memory.

use kernel::{
    alloc::Flags,
    device::{
        Bound,
        Device, //
    },
    dma::Coherent,
    io::{
        io_read,
        io_write, //
    },
    prelude::*, //
};

use super::hw::mem::{
    PA_MASK,
    PA_SYSTEM, //
};
use crate::hal::BoardAddr;

/// Bytes of a word.
pub(super) const WORD: usize = size_of::<u64>();

/// `addr` in the form that descriptors, tables and packets hold. Specification, section
/// "Addresses".
pub(super) fn encode_addr(addr: BoardAddr) -> u64 {
    match addr {
        BoardAddr::Vram(offset) => offset & PA_MASK,
        BoardAddr::System(dma) => (dma & PA_MASK) | PA_SYSTEM,
    }
}

/// Zeroed coherent memory of a whole number of words.
pub(super) struct SharedWords {
    memory: Coherent<[u64]>,
}

impl SharedWords {
    /// Allocates `words` words, aligned to a page. Sleeps. `flags`: who has to account for it.
    pub(super) fn new(dev: &Device<Bound>, words: usize, flags: Flags) -> Result<Self> {
        let memory = Coherent::zeroed_slice(dev, words, flags)?;
        Ok(Self { memory })
    }

    /// Where the board finds word `index`.
    pub(super) fn address(&self, index: usize) -> BoardAddr {
        // CAST: `usize` has 64 bits here, see Kconfig.
        BoardAddr::System(self.memory.dma_address() + (index * WORD) as u64)
    }

    /// Reads word `index`. `EINVAL` beyond the end.
    pub(super) fn read(&self, index: usize) -> Result<u64> {
        (|| -> Result<u64> { Ok(u64::from_le(io_read!(&self.memory, [try: index]))) })()
    }

    /// Writes word `index`. `EINVAL` beyond the end.
    pub(super) fn write(&self, index: usize, value: u64) -> Result {
        io_write!(&self.memory, [try: index], value.to_le());
        Ok(())
    }

    /// Writes `values` from word `first` on. `EINVAL`, with nothing written, if they do not all fit.
    pub(super) fn write_all(&self, first: usize, values: &[u64]) -> Result {
        let end = first.checked_add(values.len()).ok_or(EINVAL)?;
        if end > self.memory.len() {
            return Err(EINVAL);
        }
        for (index, value) in (first..end).zip(values) {
            self.write(index, *value)?;
        }
        Ok(())
    }
}
