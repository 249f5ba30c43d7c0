// SPDX-License-Identifier: GPL-2.0

//! What is asked of the allocator, and what it gives.

use core::ops::Range;

use kernel::{
    alloc,
    error::Error,
    prelude::*, //
};

use super::free_map::{
    Placement,
    ORDERS, //
};

/// Bytes of a page, the smallest unit.
pub(crate) const PAGE: u64 = 1 << PAGE_SHIFT;

pub(super) const PAGE_SHIFT: u32 = 12;

/// Whether a request may be served in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One extent.
    Contiguous,
    /// As many extents as it takes, the largest that there are.
    Scattered,
}

/// What memory holds as it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Anything.
    Dirty,
    /// Zeroes only, and no one can write to it any more.
    Cleared,
}

/// Why there is no allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocError {
    /// A size, alignment or range that makes no sense: `EINVAL`.
    Invalid,
    /// VRAM, or the range that was asked for, has no room for it: `ENOSPC`.
    NoSpace,
    /// No system memory for the list of extents: `ENOMEM`.
    NoMemory,
}

impl From<alloc::AllocError> for AllocError {
    fn from(_: alloc::AllocError) -> Self {
        Self::NoMemory
    }
}

impl From<AllocError> for Error {
    fn from(e: AllocError) -> Self {
        match e {
            AllocError::Invalid => EINVAL,
            AllocError::NoSpace => ENOSPC,
            AllocError::NoMemory => ENOMEM,
        }
    }
}

/// What to allocate. All sizes in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// A multiple of [`PAGE`], not 0.
    pub(super) size: u64,
    /// Power of two, at least [`PAGE`]. A contiguous allocation starts at a multiple of it; each
    /// extent of a scattered one starts at a multiple and is one, which its size then must be too.
    pub(super) align: u64,
    /// Where it has to lie as a whole.
    pub(super) range: Range<u64>,
    pub(super) shape: Shape,
    pub(super) placement: Placement,
    pub(super) prefer_cleared: bool,
}

impl Request {
    /// Asks for `size` bytes anywhere, scattered in pages, lowest first.
    pub(crate) fn new(size: u64) -> Self {
        Self {
            size,
            align: PAGE,
            range: 0..u64::MAX,
            shape: Shape::Scattered,
            placement: Placement::BottomUp,
            prefer_cleared: false,
        }
    }

    /// Aligns the start, or each extent if scattered.
    pub(crate) fn align(mut self, align: u64) -> Self {
        self.align = align;
        self
    }

    /// Restricts where the memory may lie; a range of the size asks for exactly that place.
    pub(crate) fn range(mut self, range: Range<u64>) -> Self {
        self.range = range;
        self
    }

    /// Asks for a single extent.
    pub(crate) fn contiguous(mut self) -> Self {
        self.shape = Shape::Contiguous;
        self
    }

    /// Takes the highest memory first, so that the low, CPU-visible part stays free.
    pub(crate) fn top_down(mut self) -> Self {
        self.placement = Placement::TopDown;
        self
    }

    /// Takes memory that is known to be zero first.
    pub(crate) fn prefer_cleared(mut self) -> Self {
        self.prefer_cleared = true;
        self
    }
}

/// A piece of VRAM, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Extent {
    pub(super) fn from_pages(pages: &Range<u64>) -> Self {
        Self {
            start: pages.start << PAGE_SHIFT,
            end: pages.end << PAGE_SHIFT,
        }
    }

    pub(super) fn pages(&self) -> Range<u64> {
        self.start >> PAGE_SHIFT..self.end >> PAGE_SHIFT
    }

    /// First byte.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// First byte after it.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    pub(super) fn contains(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Joins a neighbour; false if it is none.
    pub(super) fn join(&mut self, other: &Self) -> bool {
        if self.end == other.start {
            self.end = other.end;
        } else if other.end == self.start {
            self.start = other.start;
        } else {
            return false;
        }
        true
    }
}

/// Memory that was taken from a [`Buddy`] and has to go back to it with [`Buddy::free`].
///
/// It is a plain value without a destructor, since it does not know its allocator: what is dropped
/// stays taken.
#[derive(Debug)]
#[must_use = "dropped VRAM stays taken"]
pub(crate) struct Allocation {
    pub(super) extents: KVec<Extent>,
    /// Each within one of `extents`.
    pub(super) dirty: KVec<Extent>,
    pub(super) size: u64,
}

impl Allocation {
    /// An allocation of `size` bytes that holds nothing yet.
    pub(super) fn empty(size: u64) -> Self {
        Self {
            extents: KVec::new(),
            dirty: KVec::new(),
            size,
        }
    }

    /// Notes that a range is not zero, joined with the last one of the same extent, `within`.
    pub(super) fn note_dirty(&mut self, within: &Extent, new: Extent) -> Result<(), AllocError> {
        if let Some(last) = self.dirty.last_mut() {
            if within.contains(last) && last.join(&new) {
                return Ok(());
            }
        }
        self.dirty.push(new, GFP_KERNEL)?;
        Ok(())
    }

    /// Bytes in all.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The pieces, in the order of the bytes of the buffer; neighbours are joined.
    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// What was not known to be zero when it was taken, in no particular order.
    pub(crate) fn dirty(&self) -> &[Extent] {
        &self.dirty
    }

    /// First byte, if it is one piece.
    pub(crate) fn contiguous_start(&self) -> Option<u64> {
        match &*self.extents {
            [only] => Some(only.start),
            _ => None,
        }
    }
}

/// A look at the state. All in bytes, `free_blocks` in blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stats {
    /// Memory that is managed, reserved ranges included.
    pub(crate) total: u64,
    /// Ranges that were reserved at the start.
    pub(crate) reserved: u64,
    /// Free memory.
    pub(crate) free: u64,
    /// Of that, known to be zero.
    pub(crate) free_cleared: u64,
    /// Of `total`, visible to the CPU.
    pub(crate) visible: u64,
    /// Of `free`, visible to the CPU.
    pub(crate) visible_free: u64,
    /// Largest free aligned block; a run of neighbours can be larger.
    pub(crate) largest_free: u64,
    /// Free blocks of each order, from 4 KiB up.
    pub(crate) free_blocks: [u64; ORDERS],
}

/// A request that was checked, in pages.
pub(super) struct Search {
    pub(super) len: u64,
    pub(super) align: u64,
    pub(super) range: Range<u64>,
    pub(super) placement: Placement,
    pub(super) prefer_cleared: bool,
}

impl Search {
    pub(super) fn new(r: &Request, pages: u64) -> Result<Self, AllocError> {
        let len = r.size >> PAGE_SHIFT;
        let align = r.align >> PAGE_SHIFT;
        let range = r.range.start.div_ceil(PAGE)..(r.range.end >> PAGE_SHIFT).min(pages);
        if len == 0
            || r.size % PAGE != 0
            || align == 0
            || !r.align.is_power_of_two()
            || r.range.is_empty()
            || (r.shape == Shape::Scattered && len % align != 0)
        {
            return Err(AllocError::Invalid);
        }
        if range.is_empty() || range.end - range.start < len {
            return Err(AllocError::NoSpace);
        }
        Ok(Self {
            len,
            align,
            range,
            placement: r.placement,
            prefer_cleared: r.prefer_cleared,
        })
    }
}
