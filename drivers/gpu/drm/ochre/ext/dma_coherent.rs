// SPDX-License-Identifier: GPL-2.0

//! Memory that CPU and device share, seen as words of 64 bits, and given back in time.
//!
//! C header: [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)
//!
//! As `kernel::dma::Coherent`, which lasts as long as its owner does, even when that is longer than the
//! device is bound.

use kernel::{
    alloc::Flags,
    device::{
        Bound,
        Device, //
    },
    dma::{
        Coherent,
        DmaAddress, //
    },
    io::{
        io_read,
        io_write, //
    },
    prelude::*,
    sync::Arc, //
};

use super::dma_resources::Resource;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Zeroed coherent memory, little-endian, that is freed when it is dropped or its device is unbound,
/// whichever is first. Afterwards nothing in it can be read or written: [`ENODEV`].
///
/// Each word is read and written whole, since the device may change it at any moment.
pub(crate) struct CoherentWords {
    memory: Arc<Resource>,
    address: DmaAddress,
}

impl CoherentWords {
    /// Allocates `words` words, aligned to a page. Sleeps. `flags`: who has to account for it.
    pub(crate) fn new(dev: &Device<Bound>, words: usize, flags: Flags) -> Result<Self> {
        let memory = Coherent::zeroed_slice(dev, words, flags)?;
        Ok(Self {
            address: memory.dma_address(),
            memory: Resource::share(dev, memory)?,
        })
    }

    /// Where the device finds word `index`. A number, which the device no longer may use when the memory
    /// is gone.
    pub(crate) fn dma_address(&self, index: usize) -> DmaAddress {
        // CAST: `usize` has no more than 64 bits.
        self.address + (index * WORD) as u64
    }

    /// Reads word `index`. [`EINVAL`] beyond the end.
    #[inline]
    pub(crate) fn read(&self, index: usize) -> Result<u64> {
        self.memory.with_memory(|memory| {
            if index >= memory.len() {
                return Err(EINVAL);
            }
            Ok(u64::from_le(io_read!(memory, [try: index])))
        })
    }

    /// Writes word `index`. [`EINVAL`] beyond the end.
    #[inline]
    pub(crate) fn write(&self, index: usize, value: u64) -> Result {
        self.memory.with_memory(|memory| {
            if index >= memory.len() {
                return Err(EINVAL);
            }
            io_write!(memory, [try: index], value.to_le());
            Ok(())
        })
    }

    /// Writes `values` from word `first` on. [`EINVAL`], with nothing written, if they do not all fit.
    pub(crate) fn write_all(&self, first: usize, values: &[u64]) -> Result {
        let end = first.checked_add(values.len()).ok_or(EINVAL)?;
        self.memory.with_memory(|memory| {
            if end > memory.len() {
                return Err(EINVAL);
            }
            for (index, value) in (first..end).zip(values) {
                io_write!(memory, [try: index], value.to_le());
            }
            Ok(())
        })
    }
}

impl Drop for CoherentWords {
    fn drop(&mut self) {
        // SAFETY: All calls borrow `self`, which is going.
        unsafe { self.memory.end() };
    }
}

#[kunit_tests(ochre_ext_dma_coherent)]
mod tests {
    use super::{
        super::gem::test_driver::with_dma_device,
        *, //
    };

    #[test]
    fn words_are_zero_at_first_and_kept() -> Result {
        with_dma_device(c"ochre-coherent-kept", |dev| {
            let words = CoherentWords::new(dev, 600, GFP_KERNEL)?;
            assert_eq!(words.read(599)?, 0);
            words.write(599, 7)?;
            words.write_all(0, &[1, 2, 3])?;
            assert_eq!((words.read(599)?, words.read(2)?), (7, 3));
            assert_eq!(words.dma_address(2) - words.dma_address(0), 16);
            Ok(())
        })
    }

    #[test]
    fn words_beyond_the_end_are_refused() -> Result {
        with_dma_device(c"ochre-coherent-end", |dev| {
            let words = CoherentWords::new(dev, 4, GFP_KERNEL)?;
            assert_eq!(words.read(4), Err(EINVAL));
            assert_eq!(words.write(4, 1), Err(EINVAL));
            assert_eq!(words.write_all(3, &[1, 2]), Err(EINVAL));
            assert_eq!(words.write_all(usize::MAX, &[1]), Err(EINVAL));
            assert_eq!(words.read(3)?, 0);
            assert_eq!(CoherentWords::new(dev, 0, GFP_KERNEL).err(), Some(EINVAL));
            Ok(())
        })
    }

    #[test]
    fn dropped_memory_is_given_back_at_once() -> Result {
        with_dma_device(c"ochre-coherent-dropped", |dev| {
            let first = CoherentWords::new(dev, 512, GFP_KERNEL)?;
            let second = CoherentWords::new(dev, 512, GFP_KERNEL)?;
            drop(first);
            assert_eq!(Resource::count(dev)?, 1);
            second.write(0, 1)?;
            drop(second);
            assert_eq!(Resource::count(dev)?, 0);
            Ok(())
        })
    }

    #[test]
    fn memory_that_outlives_the_binding_is_gone() -> Result {
        let words = with_dma_device(c"ochre-coherent-outlives", |dev| {
            let words = CoherentWords::new(dev, 512, GFP_KERNEL)?;
            words.write(0, 1)?;
            Ok(words)
        })?;
        assert_eq!(words.read(0), Err(ENODEV));
        assert_eq!(words.write(0, 1), Err(ENODEV));
        assert_eq!(words.write_all(0, &[1]), Err(ENODEV));
        Ok(())
    }
}
