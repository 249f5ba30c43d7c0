// SPDX-License-Identifier: GPL-2.0

//! A set of pages, kept as the largest aligned power-of-two blocks that it consists of.

use core::ops::Range;

use kernel::{
    alloc::AllocError,
    prelude::*, //
};

use super::bitmap::Bitmap;

/// Orders that a map can have: blocks of 2^0 to 2^31 pages, the largest 8 TiB.
pub(crate) const ORDERS: usize = 32;

/// Which end of a range a search prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Take the smallest block that fits, of these the lowest: keeps large blocks whole.
    BottomUp,
    /// Take the highest block that fits: keeps the low, CPU-visible memory free.
    TopDown,
}

/// Order of the largest block that `pages` pages hold.
pub(super) fn order_below(pages: u64) -> u32 {
    pages.checked_ilog2().unwrap_or(0)
}

/// The blocks of one order.
struct Order {
    /// Bit i: the block of pages `i << order .. (i + 1) << order` is in the set, and its buddy or
    /// the block of both is not.
    blocks: Bitmap,
    /// Bits set in `blocks`.
    count: u64,
}

/// A set of page numbers in `0..pages` as maximal buddy blocks.
///
/// # Invariants
///
/// A page is in the set if and only if exactly one of the blocks that contain it, one per order,
/// has its bit set; and no two buddies have theirs set at once. The representation of a set is
/// therefore unique: freeing everything always leads back to the initial state.
pub(super) struct FreeMap {
    orders: KVec<Order>,
    pages: u64,
    free: u64,
}

impl FreeMap {
    /// Allocates an empty set over `pages` pages; all the memory that it will ever need.
    pub(super) fn new(pages: u64) -> Result<Self, AllocError> {
        let count = pages.checked_ilog2().map_or(0, |top| top + 1);
        let mut orders = KVec::new();
        for order in (0..count).take(ORDERS) {
            let order = Order {
                blocks: Bitmap::new(pages >> order)?,
                count: 0,
            };
            orders.push(order, GFP_KERNEL)?;
        }
        Ok(Self {
            orders,
            pages,
            free: 0,
        })
    }

    /// Pages in the set.
    pub(super) fn free_pages(&self) -> u64 {
        self.free
    }

    /// Largest order that a block can have here.
    pub(super) fn top(&self) -> u32 {
        u32::try_from(self.orders.len())
            .unwrap_or(1)
            .saturating_sub(1)
    }

    /// Number of blocks of each order.
    pub(super) fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.orders.iter().map(|o| o.count)
    }

    fn order(&self, order: u32) -> Option<&Order> {
        self.orders.get(usize::try_from(order).ok()?)
    }

    fn has(&self, order: u32, block: u64) -> bool {
        self.order(order).is_some_and(|o| o.blocks.get(block))
    }

    fn flip(&mut self, order: u32, block: u64, present: bool) {
        let Some(o) = usize::try_from(order)
            .ok()
            .and_then(|i| self.orders.get_mut(i))
        else {
            return;
        };
        if present {
            o.blocks.set(block);
            o.count += 1;
            self.free += 1 << order;
        } else {
            o.blocks.clear(block);
            o.count = o.count.saturating_sub(1);
            self.free = self.free.saturating_sub(1 << order);
        }
    }

    /// Adds pages that are not in the set, joining buddies: O(log² n), and O(log n) for a block.
    pub(super) fn insert(&mut self, pages: Range<u64>) {
        let end = pages.end.min(self.pages);
        let mut at = pages.start;
        while at < end {
            let fits = order_below(end - at).min(self.top());
            let order = at.trailing_zeros().min(fits);
            self.insert_block(order, at >> order);
            at += 1 << order;
        }
    }

    fn insert_block(&mut self, order: u32, block: u64) {
        let mut order = order;
        let mut block = block;
        while order < self.top() && self.has(order, block ^ 1) {
            self.flip(order, block ^ 1, false);
            block >>= 1;
            order += 1;
        }
        self.flip(order, block, true);
    }

    /// Takes away those pages of the range that are in the set.
    ///
    /// O(log² n) for each block that the range touches; of those, all but the two at its ends were
    /// put in one by one before.
    pub(super) fn remove(&mut self, pages: Range<u64>) {
        let mut at = pages.start;
        while let Some(block) = self.next_block(at..pages.end) {
            let order = order_below(block.end - block.start);
            self.flip(order, block.start >> order, false);
            if block.start < pages.start {
                self.insert(block.start..pages.start);
            }
            if block.end > pages.end {
                self.insert(pages.end..block.end);
            }
            at = block.end;
        }
    }

    /// Returns the block that contains a page: O(log n).
    pub(super) fn block_at(&self, page: u64) -> Option<Range<u64>> {
        (0..=self.top()).find_map(|order| {
            let block = page >> order;
            self.has(order, block)
                .then(|| block << order..(block + 1) << order)
        })
    }

    /// Returns the first block that touches the range, in ascending order: O(log n).
    pub(super) fn next_block(&self, pages: Range<u64>) -> Option<Range<u64>> {
        if pages.is_empty() {
            return None;
        }
        if let Some(block) = self.block_at(pages.start) {
            return Some(block);
        }
        let mut best: Option<Range<u64>> = None;
        for (order, o) in (0u32..).zip(&self.orders) {
            let end = best.as_ref().map_or(pages.end, |b| b.start);
            let blocks = (pages.start >> order)..(end.saturating_sub(1) >> order) + 1;
            if o.count == 0 || end == 0 {
                continue;
            }
            if let Some(block) = o.blocks.first_in(blocks) {
                let block = block << order..(block + 1) << order;
                if block.start >= pages.start && block.start < end {
                    best = Some(block);
                }
            }
        }
        best
    }

    /// Returns the first page of a free, aligned block of 2^`order` pages in `pages`: O(log n).
    pub(super) fn find(&self, order: u32, pages: Range<u64>, placement: Placement) -> Option<u64> {
        let size = 1u64.checked_shl(order)?;
        let lo = pages.start.checked_next_multiple_of(size)?;
        let hi = pages.end.min(self.pages) & !(size - 1);
        if lo >= hi {
            return None;
        }
        let mut best = None;
        for o in order..=self.top() {
            let Some(map) = self.order(o) else { break };
            if map.count == 0 {
                continue;
            }
            // Both ends are aligned to `size`, so any block that touches the range holds a fit.
            let blocks = (lo >> o)..((hi - 1) >> o) + 1;
            match placement {
                Placement::BottomUp => {
                    if let Some(block) = map.blocks.first_in(blocks) {
                        return Some(lo.max(block << o));
                    }
                }
                Placement::TopDown => {
                    if let Some(block) = map.blocks.last_in(blocks) {
                        best = best.max(Some(hi.min((block + 1) << o) - size));
                    }
                }
            }
        }
        best
    }

    /// Returns the first page of a run of `len` free pages that starts at a multiple of `align`, a
    /// power of two, though no single block holds it.
    ///
    /// Each run of `len` pages contains an aligned block of at least a quarter of that, so only
    /// blocks of that order and above are looked at, and each is extended by its neighbours; of
    /// these there are at most two of each order, or else they would have been joined. At most
    /// `tries` blocks are looked at: O(tries * log² n).
    pub(super) fn find_run(
        &self,
        len: u64,
        align: u64,
        pages: Range<u64>,
        placement: Placement,
        tries: u32,
    ) -> Option<u64> {
        let end = pages.end.min(self.pages);
        let order = order_below(len.checked_add(1)?).saturating_sub(1);
        let mut tries = tries;
        for o in (order..=self.top()).rev() {
            let Some(map) = self.order(o) else { break };
            let mut blocks = (pages.start >> o)..(end.checked_sub(1)? >> o) + 1;
            while let Some(block) = match placement {
                Placement::BottomUp => map.blocks.first_in(blocks.clone()),
                Placement::TopDown => map.blocks.last_in(blocks.clone()),
            } {
                tries = tries.checked_sub(1)?;
                match placement {
                    Placement::BottomUp => blocks.start = block + 1,
                    Placement::TopDown => blocks.end = block,
                }
                let run = self.run_around(block << o..(block + 1) << o);
                let lo = run.start.max(pages.start);
                let hi = run.end.min(end);
                let start = match placement {
                    Placement::BottomUp => lo.checked_add(align - 1).map(|s| s & !(align - 1)),
                    Placement::TopDown => hi.checked_sub(len).map(|s| s & !(align - 1)),
                };
                if let Some(start) = start {
                    if start >= lo && start.checked_add(len).is_some_and(|e| e <= hi) {
                        return Some(start);
                    }
                }
            }
        }
        None
    }

    /// Extends a block by its free neighbours on both sides.
    fn run_around(&self, block: Range<u64>) -> Range<u64> {
        let mut run = block;
        for _ in 0..2 * ORDERS {
            let Some(left) = run.start.checked_sub(1).and_then(|p| self.block_at(p)) else {
                break;
            };
            run.start = left.start;
        }
        for _ in 0..2 * ORDERS {
            let Some(right) = self.block_at(run.end) else {
                break;
            };
            run.end = right.end;
        }
        run
    }
}

#[kunit_tests(ochre_algo_free_map)]
mod tests {
    use super::*;
    use crate::algo::prng::for_each_seed;

    const PAGES: u64 = 1000;

    /// Number of blocks into which a range falls if nothing around it is free.
    fn blocks(map: &FreeMap) -> u64 {
        map.counts().sum()
    }

    #[test]
    fn a_set_that_is_no_power_of_two_has_several_roots() -> Result {
        let mut map = FreeMap::new(PAGES)?;
        map.insert(0..PAGES);
        // 512 + 256 + 128 + 64 + 32 + 8.
        assert!(blocks(&map) == 6);
        assert!(map.free_pages() == PAGES);
        Ok(())
    }

    #[test]
    fn insertion_in_any_order_leads_to_the_same_blocks() -> Result {
        for_each_seed("free_map", |rng| {
            let mut map = FreeMap::new(PAGES)?;
            let mut model = KVec::from_elem(false, PAGES as usize, GFP_KERNEL)?;
            for _ in 0..100 {
                let page = rng.below(PAGES);
                let len = rng.below(20).min(PAGES - page);
                let range = page as usize..(page + len) as usize;
                if rng.chance(50) {
                    map.remove(page..page + len);
                    model[range].fill(false);
                } else if model[range.clone()].iter().all(|free| !free) {
                    map.insert(page..page + len);
                    model[range].fill(true);
                }
                let mut rebuilt = FreeMap::new(PAGES)?;
                for page in 0..PAGES {
                    assert!(map.block_at(page).is_some() == model[page as usize]);
                    if model[page as usize] {
                        rebuilt.insert(page..page + 1);
                    }
                }
                assert!(map.counts().eq(rebuilt.counts()));
                assert!(map.free_pages() == rebuilt.free_pages());
            }
            map.remove(0..PAGES);
            assert!(map.free_pages() == 0);
            map.insert(0..PAGES);
            assert!(blocks(&map) == 6);
            Ok(())
        })
    }

    #[test]
    fn a_run_without_an_aligned_block_is_found_and_nothing_else() -> Result {
        for_each_seed("free_map_run", |rng| {
            let mut map = FreeMap::new(PAGES)?;
            map.insert(0..PAGES);
            for _ in 0..90 {
                let page = rng.below(PAGES);
                map.remove(page..page + 1);
                let len = 1 + rng.below(40);
                let align = 1 << rng.below(4);
                let lo = rng.below(PAGES);
                let hi = lo + rng.below(PAGES - lo + 1);
                let fits = |start: u64| {
                    start % align == 0
                        && start + len <= hi
                        && (start..start + len).all(|p| map.block_at(p).is_some())
                };
                for placement in [Placement::BottomUp, Placement::TopDown] {
                    match map.find_run(len, align, lo..hi, placement, u32::MAX) {
                        Some(start) => assert!(start >= lo && fits(start)),
                        None => assert!(!(lo..hi).any(fits)),
                    }
                }
            }
            Ok(())
        })
    }
}
