// SPDX-License-Identifier: GPL-2.0

//! The host-visible window: the part of a BAR where the device shows memory of the host.
//!
//! Where a blob is shown is the driver's choice: [`algo::buddy`](crate::algo::buddy) places it. A
//! place is taken before the device is asked to show something there, and is free again only when
//! the device has answered that it does not show it any more.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    }, //
};

use crate::{
    algo::buddy::{
        Allocation,
        Buddy,
        Contents,
        Request,
        PAGE, //
    },
    ext::pci::{
        self,
        WindowRange, //
    },
};

/// The window.
pub(crate) struct Window {
    memory: pci::Window,
    space: Arc<Space>,
}

impl Window {
    /// Takes charge of `memory`, all of it free. Blobs are placed at multiples of `align` bytes, a
    /// power of two, or of a page if that is more.
    pub(crate) fn new(memory: pci::Window, align: u32) -> Result<Self> {
        Ok(Self {
            space: Space::new(memory.len(), align)?,
            memory,
        })
    }

    /// Takes a place for `len` bytes, a multiple of the page size and not 0.
    ///
    /// [`ENOSPC`]: no gap is as long; [`ENOMEM`].
    pub(super) fn take(&self, len: u64) -> Result<Place> {
        let block = Space::take(&self.space, len)?;
        Ok(Place {
            range: self.memory.range(block.offset, len)?,
            block,
        })
    }

    /// Whether a place is about to come back.
    pub(super) fn is_being_left(&self) -> bool {
        self.space.leaving.load(Acquire) != 0
    }
}

/// A part of the window. Dropping it gives it back.
pub(super) struct Place {
    range: WindowRange,
    block: Block,
}

impl Place {
    /// First byte, from the beginning of the window.
    pub(super) fn offset(&self) -> u64 {
        self.block.offset
    }

    /// Takes note that the device is being told to show nothing there any more.
    pub(super) fn leave(&mut self) {
        if !self.block.leaving {
            self.block.leaving = true;
            self.block.space.leaving.add(1, Relaxed);
        }
    }

    /// Where the CPU finds it.
    pub(super) fn range(&self) -> &WindowRange {
        &self.range
    }
}

/// Which parts of the window are free.
#[pin_data]
struct Space {
    /// What the place of a blob is a multiple of, in bytes.
    align: u64,
    /// How many parts in use are about to come back.
    leaving: Atomic<usize>,
    /// A leaf: nothing else is taken while it is held.
    #[pin]
    buddy: Mutex<Buddy>,
}

impl Space {
    fn new(len: u64, align: u32) -> Result<Arc<Self>> {
        let align = u64::from(align).max(PAGE);
        if !align.is_power_of_two() {
            return Err(EINVAL);
        }
        let buddy = Buddy::new(len, len, &[])?;
        Arc::pin_init(
            pin_init!(Self {
                align,
                leaving: Atomic::new(0),
                buddy <- new_mutex!(buddy, "ochre_window"),
            }),
            GFP_KERNEL,
        )
    }

    fn take(this: &Arc<Self>, len: u64) -> Result<Block> {
        let request = Request::new(len).contiguous().align(this.align);
        let allocation = this.buddy.lock().alloc(&request)?;
        Ok(Block {
            space: this.clone(),
            // A contiguous allocation is one piece, so it has a start.
            offset: allocation.contiguous_start().unwrap_or(0),
            leaving: false,
            allocation: Some(allocation),
        })
    }
}

/// A part of a space that is in use.
struct Block {
    space: Arc<Space>,
    offset: u64,
    /// It is about to come back.
    leaving: bool,
    /// [`None`] only while it is dropped.
    allocation: Option<Allocation>,
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(allocation) = self.allocation.take() {
            self.space.buddy.lock().free(allocation, Contents::Dirty);
        }
        if self.leaving {
            self.space.leaving.fetch_sub(1, Release);
        }
    }
}

#[kunit_tests(ochre_virtio_window)]
mod tests {
    use super::*;

    fn space(pages: u64, align: u32) -> Result<Arc<Space>> {
        Space::new(pages * PAGE, align)
    }

    #[test]
    fn blocks_do_not_overlap_and_lie_in_the_window() -> Result {
        let space = space(64, 1)?;
        let mut blocks = KVec::new();
        for pages in [1, 7, 16, 3, 8] {
            let len = pages * PAGE;
            blocks.push((Space::take(&space, len)?, len), GFP_KERNEL)?;
        }
        for (i, (a, a_len)) in blocks.iter().enumerate() {
            assert!(a.offset + a_len <= 64 * PAGE);
            for (b, b_len) in blocks.iter().skip(i + 1) {
                assert!(a.offset + a_len <= b.offset || b.offset + b_len <= a.offset);
            }
        }
        Ok(())
    }

    #[test]
    fn full_window_is_no_space_and_dropped_blocks_are_free_again() -> Result {
        let space = space(8, 1)?;
        let block = Space::take(&space, 8 * PAGE)?;
        assert_eq!(Space::take(&space, PAGE).err(), Some(ENOSPC));
        drop(block);
        assert_eq!(space.buddy.lock().stats().free, 8 * PAGE);
        let block = Space::take(&space, 3 * PAGE)?;
        assert_eq!(Space::take(&space, 8 * PAGE).err(), Some(ENOSPC));
        drop(block);
        assert!(Space::take(&space, 8 * PAGE).is_ok());
        Ok(())
    }

    #[test]
    fn blob_larger_than_the_window_is_no_space_whatever_its_size() -> Result {
        let space = space(8, 1)?;
        for len in [9 * PAGE, 1 << 40, (u64::MAX / PAGE) * PAGE] {
            assert_eq!(Space::take(&space, len).err(), Some(ENOSPC));
        }
        Ok(())
    }

    #[test]
    fn blocks_keep_the_alignment_of_the_device() -> Result {
        let space = space(64, 0x4000)?;
        let first = Space::take(&space, 4 * PAGE)?;
        let second = Space::take(&space, 4 * PAGE)?;
        assert_eq!(first.offset % 0x4000, 0);
        assert_eq!(second.offset % 0x4000, 0);
        Ok(())
    }

    #[test]
    fn window_that_makes_no_sense_is_refused() {
        assert_eq!(space(1, 0x3000).err(), Some(EINVAL));
        assert_eq!(space(0, 1).err(), Some(EINVAL));
    }
}
