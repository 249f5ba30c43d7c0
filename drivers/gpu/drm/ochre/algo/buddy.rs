// SPDX-License-Identifier: GPL-2.0

//! The VRAM allocator: a binary buddy system over pages of 4 KiB.
//!
//! # Why bitmaps
//!
//! The metadata is one bitmap per order, each with summary levels ([`bitmap`]), and there are two
//! such sets ([`free_map`]): the pages that are free, and of these the pages that are known to be
//! zero. That is 4 bits per page, 2.1 MiB for 16 GiB of VRAM (0.013 %), where a design with linked
//! nodes pays 64 bytes or more for each block, when it splits one. Everything is allocated in
//! [`Buddy::new`], so [`Buddy::free`] and [`Buddy::trim`] allocate nothing and cannot fail, which
//! is what a path that runs below memory reclaim needs. A search is a few word operations per
//! order, whatever the fragmentation.
//!
//! Since a free range of any length falls into O(log n) blocks by itself, allocations need not be
//! powers of two: nothing is lost to rounding, and the tail of one can be given back.
//!
//! # Cleared memory
//!
//! The zero pages are a buddy system of their own, an overlay: both sets join buddies independently
//! of each other, so memory that was freed cleared never keeps a large block from forming (as it
//! does where each block carries the mark). An allocation tells page by page what is still to be
//! cleared, in [`Allocation::dirty`].
//!
//! # Complexity
//!
//! With n pages, allocating or freeing one contiguous range is O(log² n) bit operations; of a
//! scattered one, per extent. Zero pages inside a range that was not zero as a whole cost O(log² n)
//! per zero block, each of which an earlier free put there. Only when no aligned block holds a
//! contiguous request are runs of smaller blocks tried, of which at most [`RUN_TRIES`].

use core::ops::Range;

use kernel::{
    num::casts::FromSafeCast,
    prelude::*, //
};

mod bitmap;
mod free_map;
mod request;

pub(crate) use free_map::{
    Placement,
    ORDERS, //
};
pub(crate) use request::{
    AllocError,
    Allocation,
    Contents,
    Extent,
    Request,
    Shape,
    Stats,
    PAGE, //
};

use free_map::{
    order_below,
    FreeMap, //
};
use request::{
    Search,
    PAGE_SHIFT, //
};

/// Most blocks from which a contiguous run is tried before a request is refused.
const RUN_TRIES: u32 = 1024;

/// The allocator. Guarded by the lock of the memory region that it manages.
pub(crate) struct Buddy {
    /// The free pages.
    free: FreeMap,
    /// Of these, the pages that hold zeroes.
    zero: FreeMap,
    pages: u64,
    reserved: u64,
    visible: u64,
    visible_free: u64,
}

/// Pages of `a` that lie below `limit`.
fn below(a: &Range<u64>, limit: u64) -> u64 {
    a.end.min(limit).saturating_sub(a.start)
}

impl Buddy {
    /// Manages `size` bytes of which the first `visible` can be seen by the CPU, all of it free
    /// and not cleared but for the `reserved` ranges, which may overlap and are widened to pages.
    pub(crate) fn new(
        size: u64,
        visible: u64,
        reserved: &[Range<u64>],
    ) -> Result<Self, AllocError> {
        let pages = size >> PAGE_SHIFT;
        if pages == 0 || usize::from_safe_cast(order_below(pages)) >= ORDERS {
            return Err(AllocError::Invalid);
        }
        let mut free = FreeMap::new(pages)?;
        free.insert(0..pages);
        for r in reserved {
            if r.start >= r.end || r.end > size {
                return Err(AllocError::Invalid);
            }
            free.remove(r.start >> PAGE_SHIFT..r.end.div_ceil(PAGE));
        }
        let visible = visible.min(size) >> PAGE_SHIFT;
        let mut hidden = 0;
        let mut at = visible;
        while let Some(block) = free.next_block(at..pages) {
            hidden += block.end - block.start.max(visible);
            at = block.end;
        }
        let free_pages = free.free_pages();
        Ok(Self {
            free,
            zero: FreeMap::new(pages)?,
            pages,
            reserved: pages - free_pages,
            visible,
            visible_free: free_pages - hidden,
        })
    }

    /// Bytes that are managed.
    pub(crate) fn size(&self) -> u64 {
        self.pages << PAGE_SHIFT
    }

    /// Bytes from the start that the CPU can see.
    pub(crate) fn visible(&self) -> u64 {
        self.visible << PAGE_SHIFT
    }

    /// Takes memory. An error leaves no trace.
    pub(crate) fn alloc(&mut self, request: &Request) -> Result<Allocation, AllocError> {
        let search = Search::new(request, self.pages)?;
        if search.len > self.free.free_pages() {
            return Err(AllocError::NoSpace);
        }
        let mut allocation = Allocation::empty(request.size);
        let result = match request.shape {
            Shape::Contiguous => self.alloc_contiguous(&search, &mut allocation),
            Shape::Scattered => self.alloc_scattered(&search, &mut allocation),
        };
        match result {
            Ok(()) => Ok(allocation),
            Err(e) => {
                self.undo(allocation);
                Err(e)
            }
        }
    }

    fn alloc_contiguous(&mut self, s: &Search, to: &mut Allocation) -> Result<(), AllocError> {
        let order = order_below(s.len.next_power_of_two().max(s.align));
        let start = self
            .find(order, s)
            .map(|block| match s.placement {
                Placement::BottomUp => block,
                Placement::TopDown => {
                    let start = block + (1 << order) - s.len;
                    start & !(s.align - 1)
                }
            })
            .or_else(|| {
                let range = s.range.clone();
                self.free
                    .find_run(s.len, s.align, range, s.placement, RUN_TRIES)
            })
            .ok_or(AllocError::NoSpace)?;
        self.take(start..start + s.len, to)
    }

    fn alloc_scattered(&mut self, s: &Search, to: &mut Allocation) -> Result<(), AllocError> {
        let least = order_below(s.align);
        let mut left = s.len;
        let mut order = self.free.top();
        // Each turn either takes a block or goes one order down, never up again.
        while let Some(fits) = left.checked_ilog2() {
            order = order.min(fits);
            match self.find(order, s) {
                Some(start) => {
                    self.take(start..start + (1 << order), to)?;
                    left -= 1 << order;
                }
                None if order > least => order -= 1,
                None => return Err(AllocError::NoSpace),
            }
        }
        Ok(())
    }

    /// Finds an aligned block, zero if that is preferred and there is one of this order.
    fn find(&self, order: u32, s: &Search) -> Option<u64> {
        let zero = if s.prefer_cleared {
            self.zero.find(order, s.range.clone(), s.placement)
        } else {
            None
        };
        zero.or_else(|| self.free.find(order, s.range.clone(), s.placement))
    }

    /// Moves free pages to an allocation. After an error the pages are still here, and the
    /// allocation is good for [`Self::undo`] only.
    fn take(&mut self, pages: Range<u64>, to: &mut Allocation) -> Result<(), AllocError> {
        let new = Extent::from_pages(&pages);
        let whole = match to.extents.last() {
            Some(last) => {
                let mut whole = *last;
                whole.join(&new).then_some(whole)
            }
            None => None,
        };
        to.extents.reserve(1, GFP_KERNEL)?;
        let within = whole.unwrap_or(new);
        let mut at = pages.start;
        while at < pages.end {
            let zero = self.zero.next_block(at..pages.end);
            let gap = at..zero.as_ref().map_or(pages.end, |z| z.start.max(at));
            if !gap.is_empty() {
                to.note_dirty(&within, Extent::from_pages(&gap))?;
            }
            at = zero.map_or(pages.end, |z| z.end);
        }
        match (whole, to.extents.last_mut()) {
            (Some(whole), Some(last)) => *last = whole,
            _ => to
                .extents
                .push_within_capacity(new)
                .map_err(|_| AllocError::NoMemory)?,
        }
        self.visible_free -= below(&pages, self.visible);
        self.zero.remove(pages.clone());
        self.free.remove(pages);
        Ok(())
    }

    /// Gives an unfinished allocation back, what was zero as zero.
    fn undo(&mut self, a: Allocation) {
        for extent in &a.extents {
            self.give(extent.pages(), Contents::Cleared);
        }
        for extent in &a.dirty {
            self.zero.remove(extent.pages());
        }
    }

    fn give(&mut self, pages: Range<u64>, contents: Contents) {
        self.visible_free += below(&pages, self.visible);
        if contents == Contents::Cleared {
            self.zero.insert(pages.clone());
        }
        self.free.insert(pages);
    }

    /// Gives memory back. Allocates nothing, cannot fail.
    ///
    /// The allocation must come from this allocator.
    pub(crate) fn free(&mut self, a: Allocation, contents: Contents) {
        for extent in &a.extents {
            self.give(extent.pages(), contents);
        }
    }

    /// Gives the tail of an allocation back, so that `size` bytes stay: a multiple of [`PAGE`],
    /// not 0 and not more than there are (`Invalid`, and nothing changes). Allocates nothing.
    pub(crate) fn trim(
        &mut self,
        a: &mut Allocation,
        size: u64,
        contents: Contents,
    ) -> Result<(), AllocError> {
        if size == 0 || size % PAGE != 0 || size > a.size {
            return Err(AllocError::Invalid);
        }
        while a.size > size {
            let Some(last) = a.extents.last_mut() else {
                break;
            };
            let cut = Extent {
                start: last.end - last.len().min(a.size - size),
                end: last.end,
            };
            last.end = cut.start;
            if last.len() == 0 {
                a.extents.pop();
            }
            a.dirty.retain(|d| {
                if d.start < cut.end && cut.start < d.end {
                    d.end = cut.start.max(d.start);
                }
                d.len() > 0
            });
            a.size -= cut.len();
            self.give(cut.pages(), contents);
        }
        Ok(())
    }

    /// Returns the figures: O(orders).
    pub(crate) fn stats(&self) -> Stats {
        let mut free_blocks = [0; ORDERS];
        let mut largest_free = 0;
        for ((order, to), count) in (0u32..).zip(&mut free_blocks).zip(self.free.counts()) {
            *to = count;
            if count > 0 {
                largest_free = PAGE << order;
            }
        }
        Stats {
            total: self.size(),
            reserved: self.reserved << PAGE_SHIFT,
            free: self.free.free_pages() << PAGE_SHIFT,
            free_cleared: self.zero.free_pages() << PAGE_SHIFT,
            visible: self.visible(),
            visible_free: self.visible_free << PAGE_SHIFT,
            largest_free,
            free_blocks,
        }
    }
}

#[kunit_tests(ochre_algo_buddy)]
mod tests {
    use super::*;
    use crate::algo::prng::{
        for_each_seed,
        Prng, //
    };

    const MIB: u64 = 1 << 20;

    /// What the model knows of a page.
    #[derive(Clone, Copy, PartialEq)]
    enum Page {
        Reserved,
        Free,
        FreeZero,
        Taken,
    }

    /// One entry per page, and everything by walking over them.
    struct Model {
        pages: KVec<Page>,
        visible: usize,
    }

    fn indexes(r: Range<u64>) -> Range<usize> {
        (r.start / PAGE) as usize..(r.end / PAGE) as usize
    }

    impl Model {
        fn count(&self, range: Range<usize>, what: impl Fn(Page) -> bool) -> u64 {
            self.pages[range].iter().filter(|p| what(**p)).count() as u64 * PAGE
        }

        fn is_free(p: Page) -> bool {
            matches!(p, Page::Free | Page::FreeZero)
        }

        /// Whether a run exists that a contiguous request could have had.
        fn has_run(&self, r: &Request) -> bool {
            let range = indexes(r.range.start..r.range.end.min(self.pages.len() as u64 * PAGE));
            let len = (r.size / PAGE) as usize;
            let align = (r.align / PAGE) as usize;
            let mut free = 0;
            for i in range {
                free = if Self::is_free(self.pages[i]) {
                    free + 1
                } else {
                    0
                };
                // The last aligned start from which `len` pages end here or before.
                if free >= len && (i + 1 - len) % align == 0 {
                    return true;
                }
            }
            false
        }

        /// Pages that a scattered request of this alignment could have had.
        fn aligned_free(&self, r: &Request) -> u64 {
            let align = r.align;
            let end = r.range.end.min(self.pages.len() as u64 * PAGE);
            let mut at = r.range.start.next_multiple_of(align);
            let mut sum = 0;
            while at + align <= end {
                if self.count(indexes(at..at + align), Self::is_free) == align {
                    sum += align;
                }
                at += align;
            }
            sum
        }

        /// Checks an allocation against the request and the map, and takes it from the map.
        fn take(&mut self, r: &Request, a: &Allocation) -> bool {
            let mut sum = 0;
            let mut zero = 0;
            for e in a.extents() {
                sum += e.len();
                let inside = r.range.start <= e.start() && e.end() <= r.range.end;
                let aligned = e.start() % r.align == 0
                    && (r.shape == Shape::Contiguous || e.len() % r.align == 0);
                let range = indexes(e.start()..e.end());
                let free = self.count(range.clone(), Self::is_free) == e.len();
                if !inside || !aligned || !free {
                    return false;
                }
                zero += self.count(range.clone(), |p| p == Page::FreeZero);
            }
            let mut dirty = 0;
            for d in a.dirty() {
                dirty += d.len();
                let range = indexes(d.start()..d.end());
                if self.count(range.clone(), |p| p == Page::Free) != d.len() {
                    return false;
                }
                self.pages[range].fill(Page::Taken);
            }
            for e in a.extents() {
                self.pages[indexes(e.start()..e.end())].fill(Page::Taken);
            }
            let single = r.shape == Shape::Scattered || a.contiguous_start().is_some();
            sum == r.size && a.size() == r.size && dirty + zero == r.size && single
        }

        fn give(&mut self, extents: &[Extent], contents: Contents) {
            let page = match contents {
                Contents::Dirty => Page::Free,
                Contents::Cleared => Page::FreeZero,
            };
            for e in extents {
                self.pages[indexes(e.start()..e.end())].fill(page);
            }
        }

        /// The figures, each counted from scratch.
        fn stats(&self) -> Stats {
            let all = 0..self.pages.len();
            let mut free_blocks = [0; ORDERS];
            let mut largest_free = 0;
            let mut at = 0;
            while at < self.pages.len() {
                let mut order = 0;
                let whole = |order: u32| {
                    let end = at + (1 << order);
                    at % (1 << order) == 0
                        && end <= self.pages.len()
                        && self.pages[at..end].iter().all(|p| Self::is_free(*p))
                };
                if !whole(0) {
                    at += 1;
                    continue;
                }
                while whole(order + 1) {
                    order += 1;
                }
                free_blocks[order as usize] += 1;
                largest_free = largest_free.max(PAGE << order);
                at += 1 << order;
            }
            Stats {
                total: all.len() as u64 * PAGE,
                reserved: self.count(all.clone(), |p| p == Page::Reserved),
                free: self.count(all.clone(), Self::is_free),
                free_cleared: self.count(all, |p| p == Page::FreeZero),
                visible: self.visible as u64 * PAGE,
                visible_free: self.count(0..self.visible, Self::is_free),
                largest_free,
                free_blocks,
            }
        }
    }

    fn contents(rng: &mut Prng) -> Contents {
        if rng.chance(50) {
            Contents::Cleared
        } else {
            Contents::Dirty
        }
    }

    fn request(rng: &mut Prng, pages: u64, visible: u64) -> Request {
        let align = if rng.chance(60) {
            PAGE
        } else {
            PAGE << rng.below(6)
        };
        let most = if rng.chance(80) { 24 } else { pages / 2 };
        let len = 1 + rng.below(most);
        let mut r = Request::new((len * PAGE).next_multiple_of(align)).align(align);
        match rng.below(4) {
            0 => r = r.range(0..visible * PAGE),
            1 => {
                let lo = rng.below(pages);
                r = r.range(lo * PAGE..(lo + 1 + rng.below(pages - lo)) * PAGE);
            }
            _ => (),
        }
        if rng.chance(50) {
            r = r.contiguous();
        }
        if rng.chance(50) {
            r = r.top_down();
        }
        if rng.chance(50) {
            r = r.prefer_cleared();
        }
        r
    }

    #[test]
    fn random_use_agrees_with_a_plain_page_map() -> Result {
        for_each_seed("buddy", |rng| {
            let pages = 300 + rng.below(500);
            let visible = rng.below(pages + 1);
            let bad = rng.below(pages - 3);
            let reserved = bad * PAGE + 7..(bad + 3) * PAGE - 9;
            let mut buddy = Buddy::new(pages * PAGE + 5, visible * PAGE, &[reserved])?;
            let mut model = Model {
                pages: KVec::from_elem(Page::Free, pages as usize, GFP_KERNEL)?,
                visible: visible as usize,
            };
            model.pages[bad as usize..bad as usize + 3].fill(Page::Reserved);
            let initial = buddy.stats();
            let mut live: KVec<Allocation> = KVec::new();
            for _ in 0..1500 {
                if rng.chance(60) || live.is_empty() {
                    let r = request(rng, pages, visible);
                    match buddy.alloc(&r) {
                        Ok(a) => {
                            assert!(model.take(&r, &a));
                            live.push(a, GFP_KERNEL)?;
                        }
                        Err(AllocError::NoSpace) => match r.shape {
                            Shape::Contiguous => assert!(!model.has_run(&r)),
                            Shape::Scattered => assert!(model.aligned_free(&r) < r.size),
                        },
                        Err(e) => {
                            // Only a range that is empty once it is clipped.
                            assert!(e == AllocError::Invalid && r.range.is_empty());
                        }
                    }
                } else if rng.chance(70) {
                    let at = rng.index(live.len());
                    let c = contents(rng);
                    let Ok(a) = live.remove(at) else { break };
                    model.give(a.extents(), c);
                    buddy.free(a, c);
                } else {
                    let at = rng.index(live.len());
                    let c = contents(rng);
                    let a = &mut live[at];
                    let size = (1 + rng.below(a.size() / PAGE)) * PAGE;
                    // Everything goes back, and what stays is taken again.
                    model.give(a.extents(), c);
                    assert!(buddy.trim(a, size, c).is_ok());
                    assert!(a.size() == size);
                    for e in a.extents() {
                        model.pages[indexes(e.start()..e.end())].fill(Page::Taken);
                    }
                    for d in a.dirty() {
                        assert!(a.extents().iter().any(|e| e.contains(d)));
                    }
                }
                assert!(buddy.stats() == model.stats());
            }
            for a in live.drain_all() {
                buddy.free(a, Contents::Dirty);
            }
            let mut end = buddy.stats();
            end.free_cleared = 0;
            assert!(end == initial);
            Ok(())
        })
    }

    #[test]
    fn refused_request_leaves_no_trace() -> Result {
        let mut buddy = Buddy::new(MIB, MIB, &[])?;
        // A chequerboard of zero, dirty and taken pages.
        let mut kept = KVec::new();
        for i in 0..MIB / PAGE {
            let place = i * PAGE..(i + 1) * PAGE;
            let a = buddy.alloc(&Request::new(PAGE).range(place))?;
            match i % 3 {
                0 => buddy.free(a, Contents::Cleared),
                1 => kept.push(a, GFP_KERNEL)?,
                _ => buddy.free(a, Contents::Dirty),
            }
        }
        let before = buddy.stats();
        let most = before.free;
        let refused = buddy.alloc(&Request::new(most).range(0..MIB - PAGE));
        assert!(matches!(refused, Err(AllocError::NoSpace)));
        assert!(buddy.stats() == before);
        let refused = buddy.alloc(&Request::new(8 * PAGE).align(4 * PAGE).prefer_cleared());
        assert!(matches!(refused, Err(AllocError::NoSpace)));
        assert!(buddy.stats() == before);
        Ok(())
    }

    #[test]
    fn requests_that_make_no_sense_are_refused() -> Result {
        let mut buddy = Buddy::new(MIB, MIB, &[])?;
        let before = buddy.stats();
        for r in [
            Request::new(0),
            Request::new(PAGE + 1),
            Request::new(PAGE).align(0),
            Request::new(PAGE).align(PAGE / 2),
            Request::new(PAGE).align(3 * PAGE),
            Request::new(PAGE).align(2 * PAGE),
            Request::new(PAGE).range(PAGE..PAGE),
        ] {
            assert!(matches!(buddy.alloc(&r), Err(AllocError::Invalid)));
        }
        for r in [
            Request::new(2 * MIB),
            Request::new(u64::MAX & !(PAGE - 1)).contiguous(),
            Request::new(PAGE).align(1 << 63).contiguous(),
            Request::new(PAGE).range(MIB..2 * MIB),
            Request::new(PAGE).range(1..PAGE + 4095),
        ] {
            if let Ok(a) = buddy.alloc(&r) {
                // Only byte 0 is aligned to 2^63.
                assert!(a.contiguous_start() == Some(0));
                buddy.free(a, Contents::Dirty);
            }
        }
        assert!(buddy.stats() == before);
        assert!(matches!(
            Buddy::new(PAGE - 1, 0, &[]),
            Err(AllocError::Invalid)
        ));
        assert!(matches!(
            Buddy::new(u64::MAX, 0, &[]),
            Err(AllocError::Invalid)
        ));
        let outside = MIB..MIB + PAGE;
        assert!(matches!(
            Buddy::new(MIB, 0, &[outside]),
            Err(AllocError::Invalid)
        ));
        Ok(())
    }

    #[test]
    fn cleared_memory_is_preferred_and_the_rest_is_named() -> Result {
        let mut buddy = Buddy::new(MIB, MIB, &[])?;
        let a = buddy.alloc(&Request::new(4 * PAGE).range(64 * PAGE..68 * PAGE))?;
        assert!(a.dirty() == a.extents());
        buddy.free(a, Contents::Cleared);

        let a = buddy.alloc(&Request::new(4 * PAGE).prefer_cleared().contiguous())?;
        assert!(a.contiguous_start() == Some(64 * PAGE));
        assert!(a.dirty().is_empty());
        buddy.free(a, Contents::Cleared);

        let around = 62 * PAGE..70 * PAGE;
        let a = buddy.alloc(&Request::new(8 * PAGE).range(around).contiguous())?;
        let dirty = a.dirty().iter().map(|d| (d.start() / PAGE, d.len() / PAGE));
        assert!(dirty.eq([(62, 2), (68, 2)]));
        Ok(())
    }

    #[test]
    fn cleared_memory_does_not_keep_large_blocks_apart() -> Result {
        let mut buddy = Buddy::new(MIB, MIB, &[])?;
        let a = buddy.alloc(&Request::new(MIB / 2))?;
        buddy.free(a, Contents::Cleared);
        assert!(buddy.stats().largest_free == MIB);
        assert!(buddy.stats().free_cleared == MIB / 2);
        Ok(())
    }

    #[test]
    fn top_down_keeps_the_visible_part_free() -> Result {
        let mut buddy = Buddy::new(16 * MIB, 4 * MIB, &[])?;
        let a = buddy.alloc(&Request::new(12 * MIB).top_down())?;
        assert!(buddy.stats().visible_free == 4 * MIB);
        let b = buddy.alloc(&Request::new(4 * MIB).range(0..buddy.visible()).contiguous())?;
        assert!(buddy.stats().free == 0);
        buddy.free(a, Contents::Dirty);
        buddy.free(b, Contents::Dirty);
        assert!(buddy.stats().largest_free == 16 * MIB);
        Ok(())
    }

    #[test]
    fn nothing_is_lost_to_rounding() -> Result {
        let mut buddy = Buddy::new(8 * MIB, 0, &[])?;
        let mut all = KVec::new();
        // 5 MiB and 3 MiB, neither a power of two, fill 8 MiB.
        all.push(
            buddy.alloc(&Request::new(5 * MIB).contiguous())?,
            GFP_KERNEL,
        )?;
        all.push(
            buddy.alloc(&Request::new(3 * MIB).contiguous())?,
            GFP_KERNEL,
        )?;
        assert!(buddy.stats().free == 0);
        for a in all.drain_all() {
            buddy.free(a, Contents::Dirty);
        }
        assert!(buddy.stats().largest_free == 8 * MIB);
        Ok(())
    }

    #[test]
    fn sixteen_gib_are_managed_and_come_back_whole() -> Result {
        let mut buddy = Buddy::new(16 << 30, 256 * MIB, &[])?;
        let initial = buddy.stats();
        let a = buddy.alloc(&Request::new(10 << 30).contiguous().align(1 << 30))?;
        let b = buddy.alloc(&Request::new(PAGE).top_down())?;
        assert!(b.contiguous_start() == Some((16 << 30) - PAGE));
        buddy.free(a, Contents::Cleared);
        buddy.free(b, Contents::Cleared);
        let end = buddy.stats();
        assert!(end.free_cleared == (10 << 30) + PAGE);
        assert!(end.free_blocks == initial.free_blocks);
        Ok(())
    }
}
