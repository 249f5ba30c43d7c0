// SPDX-License-Identifier: GPL-2.0
//! The memory that both sides of a virtqueue share.
//!
//! [`super::Vring`] sees three areas. The device reads two of them and writes the third, and of
//! that the driver reads each word once. Values are little-endian in memory; here they are numbers.

use kernel::{
    device,
    device::Bound,
    dma::{
        Coherent,
        DmaAddress, //
    },
    io::{
        io_project,
        io_read,
        io_write, //
    },
    prelude::*, //
};

/// Where the parts of a queue are for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::virtio) struct Addresses {
    /// The descriptor table; the indirect tables follow it.
    pub(in crate::virtio) desc: DmaAddress,
    /// The available ring.
    pub(in crate::virtio) avail: DmaAddress,
    /// The used ring.
    pub(in crate::virtio) used: DmaAddress,
}

/// How large the areas are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Descriptors, with those of the indirect tables.
    pub(super) desc: usize,
    /// Half-words of the available ring.
    pub(super) avail: usize,
    /// Words of the used ring.
    pub(super) used: usize,
}

/// Memory of a virtqueue.
///
/// An index outside of it reads 0 and is not written; the ring makes none.
pub(in crate::virtio) trait RingMemory {
    /// Where it is.
    fn addresses(&self) -> Addresses;

    /// Writes descriptor `index`: its address, and length, flags and next one in a word.
    fn write_desc(&self, index: usize, addr: u64, tail: u64);

    /// Writes the second word of descriptor `index` only.
    fn write_tail(&self, index: usize, tail: u64);

    /// Writes 16 bits of the available ring.
    fn write_avail(&self, half: usize, value: u16);

    /// Reads 64 bits of the used ring.
    ///
    /// The ring begins in the middle of word 0, where only four bytes are asked for, so that each
    /// element is a word: flags and index are the upper half of word 0, element `n` is word
    /// `n + 1`, and the event index the lowest quarter of the word after the last.
    fn read_used(&self, word: usize) -> u64;

    /// Makes the used ring what it is for a new queue. The device must not know of it at the time.
    fn clear_used(&self);
}

/// Ring memory that a device reaches by DMA.
pub(in crate::virtio) struct DmaMemory {
    desc: Coherent<[[u64; 2]]>,
    avail: Coherent<[u16]>,
    used: Coherent<[u64]>,
}

impl DmaMemory {
    /// Allocates zeroed memory.
    pub(super) fn new(dev: &device::Device<Bound>, extent: Extent) -> Result<Self> {
        Ok(Self {
            desc: Coherent::zeroed_slice(dev, extent.desc, GFP_KERNEL)?,
            avail: Coherent::zeroed_slice(dev, extent.avail, GFP_KERNEL)?,
            used: Coherent::zeroed_slice(dev, extent.used, GFP_KERNEL)?,
        })
    }

    #[inline(always)]
    fn try_read_used(&self, word: usize) -> Result<u64> {
        Ok(io_read!(&self.used, [try: word]))
    }

    #[inline(always)]
    fn try_write_desc(&self, index: usize, addr: u64, tail: u64) -> Result {
        let desc = io_project!(&self.desc, [try: index]);
        io_write!(desc, [build: 0], addr);
        io_write!(desc, [build: 1], tail);
        Ok(())
    }

    #[inline(always)]
    fn try_write_tail(&self, index: usize, tail: u64) -> Result {
        io_write!(&self.desc, [try: index][build: 1], tail);
        Ok(())
    }

    #[inline(always)]
    fn try_write_avail(&self, half: usize, value: u16) -> Result {
        io_write!(&self.avail, [try: half], value);
        Ok(())
    }

    fn try_clear_used(&self) -> Result {
        for word in 0..self.used.len() {
            io_write!(&self.used, [try: word], 0);
        }
        Ok(())
    }
}

impl RingMemory for DmaMemory {
    fn addresses(&self) -> Addresses {
        Addresses {
            desc: self.desc.dma_address(),
            avail: self.avail.dma_address(),
            used: self.used.dma_address() + 4,
        }
    }

    #[inline(always)]
    fn write_desc(&self, index: usize, addr: u64, tail: u64) {
        let _ = self.try_write_desc(index, addr.to_le(), tail.to_le());
    }

    #[inline(always)]
    fn write_tail(&self, index: usize, tail: u64) {
        let _ = self.try_write_tail(index, tail.to_le());
    }

    #[inline(always)]
    fn write_avail(&self, half: usize, value: u16) {
        let _ = self.try_write_avail(half, value.to_le());
    }

    #[inline(always)]
    fn read_used(&self, word: usize) -> u64 {
        u64::from_le(self.try_read_used(word).unwrap_or(0))
    }

    fn clear_used(&self) {
        let _ = self.try_clear_used();
    }
}
