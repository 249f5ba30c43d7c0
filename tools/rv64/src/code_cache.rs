// SPDX-License-Identifier: GPL-2.0
//! Decoded code, by physical page, shared by all harts of an engine.
//!
//! Memory may change behind the cache: code is uploaded again, a page is given to another program. As
//! on a real machine the cache does not watch; the owner says when to look again
//! ([`CodeCache::invalidate_all`], or a hart's FENCE.I). Invalidation is a generation number: at its
//! next use a page is compared with memory, which costs far less than decoding it, and decoded again
//! only where it differs.

use crate::bus::{Bus, CODE_PAGE_BYTES, CODE_PAGE_WORDS};
use crate::decode::decode;
use crate::op::Insn;

/// Pages in a set.
const WAYS: usize = 4;

/// A page of code as memory has it and decoded.
pub(crate) struct Page {
    /// The bus's name of the physical page.
    key: u64,
    /// Cache generation in which the page was last known to equal memory.
    generation: u64,
    pub(crate) words: Box<[u32; CODE_PAGE_WORDS]>,
    pub(crate) ops: Box<[Insn; CODE_PAGE_WORDS]>,
}

impl Page {
    fn new() -> Self {
        Self {
            key: 0,
            generation: 0,
            words: Box::new([0; CODE_PAGE_WORDS]),
            ops: Box::new([decode(0); CODE_PAGE_WORDS]),
        }
    }

    /// Takes over `words`, decoding those that are new.
    fn update(&mut self, words: &[u32; CODE_PAGE_WORDS]) {
        for ((old, op), &new) in self.words.iter_mut().zip(self.ops.iter_mut()).zip(words) {
            if *old != new {
                *old = new;
                *op = decode(new);
            }
        }
    }
}

#[derive(Default)]
struct Set {
    /// At most [`WAYS`] pages.
    pages: Vec<Page>,
    /// Which one goes next.
    victim: usize,
}

/// Cache of decoded pages: set associative, replaced round robin, so deterministic.
pub struct CodeCache {
    sets: Vec<Set>,
    generation: u64,
    /// Where the last page found is: set, way. Valid as far as its key matches.
    last: (usize, usize),
}

impl Default for CodeCache {
    fn default() -> Self {
        Self::new()
    }
}

impl CodeCache {
    /// Room for 256 pages, 1 MiB of code; about 3 MiB when full.
    pub fn new() -> Self {
        Self::with_pages(256)
    }

    /// Room for at least `pages` pages, each of about 12 KiB once used.
    pub fn with_pages(pages: usize) -> Self {
        let sets = pages.div_ceil(WAYS).max(1).next_power_of_two();
        Self {
            sets: (0..sets).map(|_| Set::default()).collect(),
            generation: 1,
            last: (0, 0),
        }
    }

    /// Has each page compared with memory before its next use. Cheap.
    pub fn invalidate_all(&mut self) {
        // At one per nanosecond this lasts for centuries.
        self.generation = self.generation.wrapping_add(1);
    }

    /// As [`invalidate_all`](Self::invalidate_all) for the page that [`Bus::fetch`] names `key`.
    pub fn invalidate(&mut self, key: u64) {
        let set = self.set_of(key);
        if let Some(page) = self.sets[set].pages.iter_mut().find(|p| p.key == key) {
            page.generation = 0;
        }
    }

    fn set_of(&self, key: u64) -> usize {
        // Page numbers sit anywhere in the key: multiply to mix, take the top.
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        mixed as usize & (self.sets.len() - 1)
    }

    /// Decoded code of the page at virtual address `page`.
    pub(crate) fn page<B: Bus>(&mut self, bus: &mut B, page: u64) -> Result<&Page, B::Fault> {
        debug_assert_eq!(page % CODE_PAGE_BYTES, 0);
        let key = bus.fetch(page)?;
        let (mut set, mut way) = self.last;
        let hit = |p: &Page| p.key == key && p.generation == self.generation;
        if !self.sets[set].pages.get(way).is_some_and(hit) {
            set = self.set_of(key);
            way = self.fill(bus, page, key, set)?;
            self.last = (set, way);
        }
        Ok(&self.sets[set].pages[way])
    }

    /// Makes the page current in its set and returns where.
    fn fill<B: Bus>(
        &mut self,
        bus: &mut B,
        page: u64,
        key: u64,
        set: usize,
    ) -> Result<usize, B::Fault> {
        let generation = self.generation;
        let set = &mut self.sets[set];
        let found = set.pages.iter().position(|p| p.key == key);
        if let Some(way) = found.filter(|&way| set.pages[way].generation == generation) {
            return Ok(way);
        }
        let mut words = [0; CODE_PAGE_WORDS];
        bus.read_code(page, &mut words)?;
        let way = found.unwrap_or_else(|| {
            if set.pages.len() < WAYS {
                set.pages.push(Page::new());
                return set.pages.len() - 1;
            }
            set.victim = (set.victim + 1) % WAYS;
            set.victim
        });
        let page = &mut set.pages[way];
        page.update(&words);
        page.key = key;
        page.generation = generation;
        Ok(way)
    }
}
