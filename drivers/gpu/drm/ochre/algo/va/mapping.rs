// SPDX-License-Identifier: GPL-2.0

//! What a GPU address space is made of: ranges, attributes, mappings.

use kernel::{
    alloc,
    error::Error,
    prelude::*, //
};

use super::leaf::LeafSize;

/// Bits of a GPU virtual address.
pub(super) const VA_BITS: u32 = 48;

/// Smallest page; ranges, offsets and addresses are multiples of it.
const PAGE: u64 = LeafSize::Size4K.bytes();

/// Why an operation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VaError {
    /// Not aligned to 4 KiB, empty, or beyond the address space: `EINVAL`.
    Range,
    /// The offset in the object is not aligned to 4 KiB, or the end does not fit: `EINVAL`.
    Offset,
    /// No memory for the bookkeeping: `ENOMEM`.
    NoMemory,
}

impl From<alloc::AllocError> for VaError {
    fn from(_: alloc::AllocError) -> Self {
        Self::NoMemory
    }
}

impl From<VaError> for Error {
    fn from(e: VaError) -> Self {
        match e {
            VaError::Range | VaError::Offset => EINVAL,
            VaError::NoMemory => ENOMEM,
        }
    }
}

/// A range of GPU virtual addresses.
///
/// # Invariants
///
/// `start < end <= 2^48`, both multiples of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VaRange {
    start: u64,
    end: u64,
}

impl VaRange {
    /// Checks a range from user space: a multiple of 4 KiB, not empty, within 48 bits.
    pub(crate) fn new(start: u64, len: u64) -> Result<Self, VaError> {
        let end = start.checked_add(len).ok_or(VaError::Range)?;
        if len == 0 || start % PAGE != 0 || len % PAGE != 0 || end > 1 << VA_BITS {
            return Err(VaError::Range);
        }
        // INVARIANT: Just checked.
        Ok(Self { start, end })
    }

    /// The part of a range between two addresses that are multiples of 4 KiB, if any.
    pub(super) fn clip(&self, start: u64, end: u64) -> Option<Self> {
        let start = self.start.max(start);
        let end = self.end.min(end);
        // INVARIANT: Within a range that is one, and not empty.
        (start < end).then_some(Self { start, end })
    }

    /// A range from the start of this one to the end of another, later one.
    pub(super) fn up_to(&self, other: &Self) -> Self {
        // INVARIANT: Both are ranges; `max` keeps it from being empty.
        Self {
            start: self.start,
            end: self.end.max(other.end),
        }
    }

    /// First address.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// First address after it.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Last address.
    pub(super) fn last(&self) -> u64 {
        self.end - 1
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Returns whether an address is inside.
    pub(crate) fn contains(&self, va: u64) -> bool {
        self.start <= va && va < self.end
    }

    /// What two ranges have in common.
    pub(crate) fn intersect(&self, other: &Self) -> Option<Self> {
        self.clip(other.start, other.end)
    }
}

/// How the board caches accesses through a mapping: the three bits of a page-table entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryType(u8);

impl MemoryType {
    /// Checks a type: 0 to 7.
    pub(crate) const fn new(raw: u8) -> Option<Self> {
        if raw < 8 {
            Some(Self(raw))
        } else {
            None
        }
    }

    /// The three bits.
    pub(crate) const fn get(self) -> u8 {
        self.0
    }
}

/// What may be done through a mapping, and how it is cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attrs {
    /// May be read.
    pub(crate) read: bool,
    /// May be written.
    pub(crate) write: bool,
    /// May be executed.
    pub(crate) exec: bool,
    /// Takes atomic operations.
    pub(crate) atomic: bool,
    /// Snoops the caches of the CPU.
    pub(crate) snoop: bool,
    /// Memory type.
    pub(crate) memory_type: MemoryType,
}

/// What is behind a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Backing<T> {
    /// An object, from `offset` bytes on.
    Object {
        /// The object, or a key of it.
        object: T,
        /// Bytes, a multiple of 4 KiB.
        offset: u64,
    },
    /// Nothing: reads give zero, writes are dropped.
    Sparse,
}

/// A range with one backing and one set of attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping<T> {
    /// Where.
    pub(crate) range: VaRange,
    /// What.
    pub(crate) backing: Backing<T>,
    /// How.
    pub(crate) attrs: Attrs,
}

impl<T: Clone + PartialEq> Mapping<T> {
    /// Checks that the offset is one, and that it does not overflow within the range.
    pub(super) fn check(&self) -> Result<(), VaError> {
        match &self.backing {
            Backing::Object { offset, .. } => {
                let fits = offset.checked_add(self.range.len()).is_some();
                if offset % PAGE != 0 || !fits {
                    return Err(VaError::Offset);
                }
                Ok(())
            }
            Backing::Sparse => Ok(()),
        }
    }

    /// The part of the mapping between two addresses.
    pub(super) fn clip(&self, start: u64, end: u64) -> Option<Self> {
        let range = self.range.clip(start, end)?;
        let backing = match &self.backing {
            Backing::Object { object, offset } => Backing::Object {
                object: object.clone(),
                offset: offset + (range.start - self.range.start),
            },
            Backing::Sparse => Backing::Sparse,
        };
        Some(Self {
            range,
            backing,
            attrs: self.attrs,
        })
    }

    /// Returns whether `next` goes on where this one ends, so that both are one mapping.
    pub(super) fn continues_in(&self, next: &Self) -> bool {
        let backing = match (&self.backing, &next.backing) {
            (
                Backing::Object { object, offset },
                Backing::Object {
                    object: next_object,
                    offset: next_offset,
                },
            ) => object == next_object && offset + self.range.len() == *next_offset,
            (Backing::Sparse, Backing::Sparse) => true,
            _ => false,
        };
        backing && self.range.end == next.range.start && self.attrs == next.attrs
    }
}
