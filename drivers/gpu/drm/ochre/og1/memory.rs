// SPDX-License-Identifier: GPL-2.0
//! Memory that the driver and the board share: coherent system memory, seen as 64-bit words.
//!
//! What is read is data to be checked, never a reference into the memory. All of it is given back when
//! the device is unbound, whoever still has it: afterwards reads and writes give `ENODEV`.

use kernel::{
    alloc::Flags,
    device::{
        Bound,
        Device, //
    },
    prelude::*, //
};

use super::hw::mem::{
    PA_MASK,
    PA_SYSTEM, //
};
use crate::{
    ext::dma_coherent::CoherentWords,
    hal::BoardAddr, //
};

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
pub(super) struct SharedWords(CoherentWords);

impl SharedWords {
    /// Allocates `words` words, aligned to a page. Sleeps. `flags`: who has to account for it.
    pub(super) fn new(dev: &Device<Bound>, words: usize, flags: Flags) -> Result<Self> {
        CoherentWords::new(dev, words, flags).map(Self)
    }

    /// Allocates as many words as hold `bytes`, which are copied there. Sleeps.
    pub(super) fn from_bytes(dev: &Device<Bound>, bytes: &[u8], flags: Flags) -> Result<Self> {
        let memory = Self::new(dev, bytes.len().div_ceil(WORD), flags)?;
        for (index, chunk) in bytes.chunks(WORD).enumerate() {
            let mut word = [0; WORD];
            word.iter_mut()
                .zip(chunk)
                .for_each(|(to, from)| *to = *from);
            memory.write(index, u64::from_le_bytes(word))?;
        }
        Ok(memory)
    }

    /// Where the board finds word `index`.
    pub(super) fn address(&self, index: usize) -> BoardAddr {
        BoardAddr::System(self.0.dma_address(index))
    }

    /// Reads word `index`. `EINVAL` beyond the end.
    pub(super) fn read(&self, index: usize) -> Result<u64> {
        self.0.read(index)
    }

    /// Writes word `index`. `EINVAL` beyond the end.
    pub(super) fn write(&self, index: usize, value: u64) -> Result {
        self.0.write(index, value)
    }

    /// Writes `values` from word `first` on. `EINVAL`, with nothing written, if they do not all fit.
    pub(super) fn write_all(&self, first: usize, values: &[u64]) -> Result {
        self.0.write_all(first, values)
    }
}
