// SPDX-License-Identifier: GPL-2.0
//! Addresses at which a program has no memory, or not the memory that is needed.

use std::num::NonZeroUsize;

use memmap2::Mmap;
use memmap2::MmapMut;
use memmap2::MmapOptions;
use nix::sys::mman::mmap_anonymous;
use nix::sys::mman::munmap;
use nix::sys::mman::MapFlags;
use nix::sys::mman::ProtFlags;

const PAGE: usize = 4096;

/// An address of the kernel on the guest's architecture.
const KERNEL: u64 = 0xffff_8880_0000_0000;
/// An address that no page table can translate.
const NOT_CANONICAL: u64 = 0x8000_0000_0000_0000;

/// Addresses that can be neither read nor written, each with a name.
pub fn bad() -> Vec<(&'static str, u64)> {
    vec![
        ("NULL", 0),
        ("the first page", 8),
        ("no longer mapped", unmapped()),
        ("an address of the kernel", KERNEL),
        ("an address that cannot be", NOT_CANONICAL),
        ("the end of the address space", u64::MAX - 7),
    ]
}

/// An address at which nothing is mapped.
pub fn unmapped() -> u64 {
    let size = NonZeroUsize::MIN.saturating_add(PAGE - 1);
    // SAFETY: A new mapping at an address that the kernel chooses, unused when it goes.
    unsafe {
        let page = mmap_anonymous(None, size, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE)
            .expect("a page of addresses");
        munmap(page, PAGE).expect("munmap() of a mapping");
        page.as_ptr() as u64
    }
}

/// A page that can only be read.
#[derive(Debug)]
pub struct ReadOnly {
    page: Mmap,
}

impl ReadOnly {
    /// A page of zeros but for `bytes` at its start.
    pub fn with(bytes: &[u8]) -> Self {
        let mut page = MmapMut::map_anon(PAGE).expect("a page");
        page[..bytes.len()].copy_from_slice(bytes);
        let page = page.make_read_only().expect("mprotect()");
        Self { page }
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.page.as_ptr() as u64
    }
}

/// Memory that ends where nothing is mapped.
#[derive(Debug)]
pub struct Cliff {
    pages: MmapMut,
}

impl Cliff {
    /// A page, and behind it one that cannot be accessed.
    pub fn new() -> Self {
        let pages = MmapOptions::new().len(2 * PAGE).map_anon().expect("pages");
        let second = pages.as_ptr() as usize + PAGE;
        // SAFETY: The second page is ours and no one uses it.
        let status = unsafe { libc::mprotect(second as *mut _, PAGE, libc::PROT_NONE) };
        assert_eq!(status, 0, "mprotect()");
        Self { pages }
    }

    /// Puts `bytes` right before the edge; returns their address.
    pub fn put(&mut self, bytes: &[u8]) -> u64 {
        let start = PAGE - bytes.len();
        self.pages[start..PAGE].copy_from_slice(bytes);
        self.pages[start..].as_ptr() as u64
    }
}

impl Default for Cliff {
    fn default() -> Self {
        Self::new()
    }
}
