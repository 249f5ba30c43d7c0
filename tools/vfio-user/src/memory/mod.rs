// SPDX-License-Identifier: GPL-2.0
//! Memory shared with the guest.
//!
//! - `word`: the only place that touches shared bytes: atomic words, and block copies made of them.
//! - `access`: the [`Memory`] trait, checked access by address; [`Page`], its cacheable form.
//! - `mapping`: [`Mapping`], a mapped piece of a file; [`SharedMemory`], a memfd of our own (VRAM).
//! - `dma`: [`GuestMemory`], the map from DMA addresses to the client's memory, and [`View`], which
//!   holds that map still.
//!
//! A pointer into shared memory is good as long as its mapping lives. A `Mapping` lives as long as
//! it is borrowed; a client's piece as long as a `View` exists, because unmapping takes the lock
//! for writing. Every map has a process-wide unique generation, so that a remembered page can be
//! checked with one compare.

mod access;
mod dma;
mod mapping;
mod word;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use thiserror::Error;

pub use access::copy;
pub use access::Memory;
pub use access::Page;
pub use dma::GuestMemory;
pub use dma::View;
pub use mapping::Mapping;
pub use mapping::SharedMemory;
pub use word::Word;

/// The unit of mapping: the smallest page size of every supported client.
pub const PAGE_SIZE: u64 = 4096;

bitflags::bitflags! {
    /// What may be done with a piece of memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u32 {
        /// The device may read it.
        const READ = 1 << 0;
        /// The device may write it.
        const WRITE = 1 << 1;
    }
}

/// Why memory could not be accessed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum MemoryError {
    /// Nothing is mapped there.
    #[error("nothing is mapped at {address:#x}")]
    Unmapped {
        /// The first address without a mapping.
        address: u64,
    },
    /// The client mapped it without a file descriptor: it exists, but cannot be reached from here.
    #[error("memory at {address:#x} was mapped without a file descriptor")]
    NoBacking {
        /// The first address of that kind.
        address: u64,
    },
    /// The mapping does not allow this access.
    #[error("access to {address:#x} is not allowed")]
    Denied {
        /// The first address that refuses.
        address: u64,
    },
    /// The address is not a multiple of the word's size.
    #[error("address {address:#x} is not aligned")]
    Misaligned {
        /// The address.
        address: u64,
    },
    /// Address and length leave the 64-bit space.
    #[error("the range exceeds 64 bits")]
    Overflow,
    /// The page was taken from another map than the present one.
    #[error("the memory map has changed")]
    Stale,
}

/// A generation that no other memory map of this process has or had.
fn next_generation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
