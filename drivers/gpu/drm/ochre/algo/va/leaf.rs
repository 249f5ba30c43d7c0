// SPDX-License-Identifier: GPL-2.0

//! Which page sizes a mapping gets.

/// Sizes of a page-table leaf (og1.rst, section "Page tables").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LeafSize {
    /// 4 KiB.
    Size4K,
    /// 64 KiB: 16 equal entries with a hint.
    Size64K,
    /// 2 MiB.
    Size2M,
}

impl LeafSize {
    /// Binary logarithm of the bytes.
    pub(crate) const fn shift(self) -> u32 {
        match self {
            Self::Size4K => 12,
            Self::Size64K => 16,
            Self::Size2M => 21,
        }
    }

    /// Bytes.
    pub(crate) const fn bytes(self) -> u64 {
        1 << self.shift()
    }

    /// The next larger size.
    const fn larger(self) -> Option<Self> {
        match self {
            Self::Size4K => Some(Self::Size64K),
            Self::Size64K => Some(Self::Size2M),
            Self::Size2M => None,
        }
    }
}

/// Leaves of one size in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafRun {
    /// First virtual address.
    pub(crate) va: u64,
    /// Its physical address.
    pub(crate) pa: u64,
    /// Bytes, a multiple of the size.
    pub(crate) len: u64,
    /// Size of each leaf.
    pub(crate) size: LeafSize,
}

/// Iterator over the largest leaves that map one physically contiguous piece: at most five runs,
/// since sizes first grow with the alignment and then shrink with what is left.
#[derive(Clone, Debug)]
pub(crate) struct Leaves {
    va: u64,
    pa: u64,
    len: u64,
}

impl Leaves {
    /// Covers `len` bytes at `va` that lie at `pa`, all multiples of 4 KiB (what is not, is
    /// rounded down). For sparse mappings, which have no physical address, `pa = va` gives the
    /// largest leaves.
    pub(crate) fn new(va: u64, pa: u64, len: u64) -> Self {
        let mask = !(LeafSize::Size4K.bytes() - 1);
        Self {
            va: va & mask,
            pa: pa & mask,
            len: len & mask,
        }
    }

    /// Bytes from the current position to the next place where a larger leaf begins.
    fn to_larger(&self, size: LeafSize) -> Option<u64> {
        let larger = size.larger()?.bytes();
        let offset = self.va % larger;
        if offset != self.pa % larger || offset == 0 {
            return None;
        }
        let skip = larger - offset;
        (self.len.checked_sub(skip)? >= larger).then_some(skip)
    }
}

impl Iterator for Leaves {
    type Item = LeafRun;

    fn next(&mut self) -> Option<LeafRun> {
        let fits =
            |size: &LeafSize| (self.va | self.pa) % size.bytes() == 0 && self.len >= size.bytes();
        let size = [LeafSize::Size2M, LeafSize::Size64K, LeafSize::Size4K]
            .into_iter()
            .find(fits)?;
        let len = self
            .to_larger(size)
            .unwrap_or(self.len - self.len % size.bytes());
        let run = LeafRun {
            va: self.va,
            pa: self.pa,
            len,
            size,
        };
        self.va = self.va.wrapping_add(len);
        self.pa = self.pa.wrapping_add(len);
        self.len -= len;
        Some(run)
    }
}
