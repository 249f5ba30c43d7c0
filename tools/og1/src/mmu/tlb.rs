// SPDX-License-Identifier: GPL-2.0
//! The TLB: direct mapped, one array per page size, tagged by context.
//!
//! It is what makes stale translations real: an entry stays as it was found until it is dropped or
//! replaced, whatever the tables say meanwhile.

use crate::hw::mem;
use crate::memory::Pa;
use crate::mmu::walk::Leaf;

/// A translation.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Context, or none.
    ctx: Option<u16>,
    /// Page number.
    page: u64,
    leaf: Leaf,
}

const EMPTY: Entry = Entry {
    ctx: None,
    page: 0,
    leaf: Leaf {
        pa: Pa::NOWHERE,
        shift: mem::PAGE_SHIFT_4K,
        entry: 0,
    },
};

/// Entries for one page size.
struct Array {
    shift: u32,
    entries: Box<[Entry]>,
}

impl Array {
    fn new(shift: u32, entries: usize) -> Self {
        Self {
            shift,
            entries: vec![EMPTY; entries].into_boxed_slice(),
        }
    }

    fn place(&self, ctx: u16, page: u64) -> usize {
        // Programs like round addresses: a multiplication spreads them, the top bits are the best.
        let key = page ^ (u64::from(ctx) << 48);
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        // Lengths are powers of two.
        mixed as usize & (self.entries.len() - 1)
    }

    fn find(&self, ctx: u16, va: u64) -> Option<Leaf> {
        let page = va >> self.shift;
        let entry = &self.entries[self.place(ctx, page)];
        (entry.ctx == Some(ctx) && entry.page == page).then_some(entry.leaf)
    }

    fn insert(&mut self, ctx: u16, va: u64, leaf: Leaf) {
        let page = va >> self.shift;
        let place = self.place(ctx, page);
        self.entries[place] = Entry {
            ctx: Some(ctx),
            page,
            leaf,
        };
    }

    fn drop_if(&mut self, mut f: impl FnMut(u16, u64) -> bool) {
        for entry in &mut self.entries {
            if entry.ctx.is_some_and(|ctx| f(ctx, entry.page)) {
                *entry = EMPTY;
            }
        }
    }
}

/// The TLB of the board, shared by all engines.
pub struct Tlb {
    arrays: [Array; 3],
}

impl Default for Tlb {
    fn default() -> Self {
        Self {
            arrays: [
                Array::new(mem::PAGE_SHIFT_4K, 1024),
                Array::new(mem::PAGE_SHIFT_64K, 512),
                Array::new(mem::PAGE_SHIFT_2M, 256),
            ],
        }
    }
}

impl Tlb {
    /// The page of `va` in context `ctx`, if it is known.
    pub fn find(&self, ctx: u16, va: u64) -> Option<Leaf> {
        self.arrays.iter().find_map(|a| a.find(ctx, va))
    }

    /// Remembers a page.
    pub fn insert(&mut self, ctx: u16, va: u64, leaf: Leaf) {
        if let Some(array) = self.arrays.iter_mut().find(|a| a.shift == leaf.shift) {
            array.insert(ctx, va, leaf);
        }
    }

    /// Forgets everything.
    pub fn drop_all(&mut self) {
        for array in &mut self.arrays {
            array.drop_if(|_, _| true);
        }
    }

    /// Forgets a context.
    pub fn drop_context(&mut self, ctx: u16) {
        for array in &mut self.arrays {
            array.drop_if(|c, _| c == ctx);
        }
    }

    /// Forgets each page of a context that holds a byte of `first..=last`.
    pub fn drop_range(&mut self, ctx: u16, first: u64, last: u64) {
        for array in &mut self.arrays {
            let pages = first >> array.shift..=last >> array.shift;
            array.drop_if(|c, page| c == ctx && pages.contains(&page));
        }
    }
}
