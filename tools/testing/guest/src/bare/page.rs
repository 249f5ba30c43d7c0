// SPDX-License-Identifier: GPL-2.0
//! A page of the guest's memory whose address the board can use.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::ensure;
use anyhow::Context;
use memmap2::MmapMut;

/// Bytes.
const BYTES: usize = 4096;
/// Entry of /proc/self/pagemap: the page is there; see Documentation/admin-guide/mm/pagemap.rst.
const PRESENT: u64 = 1 << 63;
/// Entry of /proc/self/pagemap: number of the page.
const NUMBER: u64 = (1 << 55) - 1;

/// A page that stays in memory. The guest has no IOMMU, so that its physical address is its DMA
/// address.
#[derive(Debug)]
pub struct Page {
    memory: MmapMut,
}

impl Page {
    /// Takes a page and fills it with `contents`.
    ///
    /// # Errors
    ///
    /// The contents are too long, or the page cannot be locked.
    pub fn with(contents: &[u8]) -> anyhow::Result<Self> {
        ensure!(contents.len() <= BYTES, "{} bytes", contents.len());
        let mut memory = MmapMut::map_anon(BYTES)?;
        memory.lock().context("mlock")?;
        memory[..contents.len()].copy_from_slice(contents);
        Ok(Self { memory })
    }

    /// Its physical address.
    ///
    /// # Errors
    ///
    /// The kernel does not tell: it needs CAP_SYS_ADMIN.
    pub fn address(&self) -> anyhow::Result<u64> {
        let pagemap = File::open("/proc/self/pagemap")?;
        let mut entry = [0; 8];
        let index = self.memory.as_ptr() as u64 / BYTES as u64;
        pagemap.read_exact_at(&mut entry, index * 8)?;
        let entry = u64::from_le_bytes(entry);
        ensure!(entry & PRESENT != 0, "the page is not there");
        ensure!(entry & NUMBER != 0, "the kernel does not tell the address");
        Ok((entry & NUMBER) * BYTES as u64)
    }
}
