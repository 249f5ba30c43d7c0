// SPDX-License-Identifier: GPL-2.0

//! Page tables of one address space: from the steps of a VM_BIND to entries that the board walks.
//!
//! The upper tables form a tree of [`Node`]s. Below them, each 2 MiB of address space, a *region*, is
//! empty, one large leaf, or a [`Bottom`] table of small ones. An [`Update`] works out the new
//! contents of every region that a VM_BIND touches and gets all the memory for it; that may fail,
//! and then nothing has changed. [`PageTable::commit`] then cannot fail: it writes new bottom
//! tables whole, beside the old ones, and switches each region over with a single store. So the
//! board never sees half a 64 KiB page, whatever runs meanwhile. What was switched off is kept
//! ([`Garbage`]) until the translations are gone from the TLB.
//!
//! Everything here is guarded by the lock of the VM.

use kernel::{
    prelude::*,
    rbtree::RBTree,
    sync::Arc, //
};

use super::bo::Piece;
use crate::{
    algo::va::{
        Backing,
        LeafRun,
        LeafSize,
        Leaves,
        Mapping,
        Step,
        VaRange, //
    },
    ext::signal,
    hal::{
        BoardAddr,
        Hal,
        Table, //
    }, //
};

/// What is behind a mapping, as far as page tables care.
pub(super) trait Backed {
    /// The pieces from the one that contains byte `offset` on, in order and without gaps.
    fn pieces_from(&self, offset: u64) -> &[Piece];
}

/// Binary logarithm of the bytes of a region.
const REGION_SHIFT: u32 = LeafSize::Size2M.shift();
/// Small pages of a region, the entries of a bottom table.
const REGION_PAGES: usize = 1 << (REGION_SHIFT - LeafSize::Size4K.shift());
/// Level of the tables whose entries are regions.
const REGION_LEVEL: u8 = 1;

/// A table of small leaves, with a copy of its entries that can be read.
struct Bottom {
    table: KBox<dyn Table>,
    entries: KVec<u64>,
}

/// What an entry of an upper table leads to.
enum Slot {
    Empty,
    /// A large leaf. Only in tables of [`REGION_LEVEL`], as [`Slot::Bottom`].
    Leaf(u64),
    Bottom(KBox<Bottom>),
    /// The next lower upper table.
    Node(KBox<Node>),
}

/// An upper table.
struct Node {
    table: KBox<dyn Table>,
    slots: KVec<Slot>,
    /// Slots that are not empty.
    used: usize,
}

impl Node {
    fn new(hal: &dyn Hal) -> Result<Self> {
        let count = 1usize << hal.info().page_table.entries_log2;
        let mut slots = KVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..count {
            slots.push(Slot::Empty, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Self {
            table: hal.new_table()?,
            slots,
            used: 0,
        })
    }

    /// Puts `new` into a slot and stores its entry. Returns what was there.
    fn replace(&mut self, index: usize, new: Slot, entry: u64) -> Slot {
        let Some(slot) = self.slots.get_mut(index) else {
            return new;
        };
        // The entry is one of the table's, so the store cannot fail.
        let _ = self.table.write(index, &[entry]);
        self.used += usize::from(!matches!(new, Slot::Empty));
        let old = core::mem::replace(slot, new);
        self.used -= usize::from(!matches!(old, Slot::Empty));
        old
    }
}

/// New contents of a region.
enum Contents {
    Empty,
    Leaf(u64),
    Small(KVec<u64>),
}

/// New contents of all regions that a VM_BIND touches, with the memory that they need.
pub(crate) struct Update {
    regions: RBTree<u64, Contents>,
    /// One new bottom table for each region of small pages, still without entries.
    bottoms: KVVec<KBox<Bottom>>,
    /// Room for what the commit takes out.
    garbage: KVVec<Slot>,
    /// All that changes.
    hull: Option<(u64, u64)>,
}

impl Update {
    /// Adds what one step changes.
    fn add<T: Backed>(&mut self, table: &PageTable, step: &Step<T>) -> Result {
        match step {
            Step::Unmap { range, left, right } => {
                self.clear(table, range)?;
                for kept in [left, right].into_iter().flatten() {
                    self.map(table, kept)?;
                }
            }
            Step::Map(mapping) => self.map(table, mapping)?,
        }
        Ok(())
    }

    fn touch(&mut self, start: u64, end: u64) {
        let (low, high) = self.hull.unwrap_or((start, end));
        self.hull = Some((low.min(start), high.max(end)));
    }

    /// The new contents of a region, which are the old ones until they are changed.
    ///
    /// There may be very many, so [`ERESTARTSYS`] when the task is being killed.
    fn region(&mut self, table: &PageTable, region: u64) -> Result<&mut Contents> {
        if self.regions.get(&region).is_none() {
            if signal::is_fatal_pending() {
                return Err(ERESTARTSYS);
            }
            let contents = table.contents(region)?;
            self.regions
                .try_create_and_insert(region, contents, GFP_KERNEL_ACCOUNT)?;
        }
        self.regions.get_mut(&region).ok_or(ENOMEM)
    }

    /// The small entries of a region. A large leaf becomes empty: who cuts one rewrites what
    /// stays of it.
    fn small(&mut self, table: &PageTable, region: u64) -> Result<&mut [u64]> {
        let contents = self.region(table, region)?;
        if !matches!(contents, Contents::Small(_)) {
            let zeros = KVec::from_elem(0, REGION_PAGES, GFP_KERNEL_ACCOUNT)?;
            *contents = Contents::Small(zeros);
        }
        match contents {
            Contents::Small(entries) => Ok(entries),
            _ => Err(EINVAL),
        }
    }

    /// Empties a range.
    fn clear(&mut self, table: &PageTable, range: &VaRange) -> Result {
        self.touch(range.start(), range.end());
        let mut va = range.start();
        while va < range.end() {
            let region = va >> REGION_SHIFT;
            let end = range.end().min((region + 1) << REGION_SHIFT);
            if end - va == 1 << REGION_SHIFT {
                *self.region(table, region)? = Contents::Empty;
            } else {
                let (first, last) = (page_in_region(va), page_in_region(end - 1));
                let entries = self.small(table, region)?;
                entries.get_mut(first..=last).ok_or(EINVAL)?.fill(0);
                if entries.iter().all(|&entry| entry == 0) {
                    *self.region(table, region)? = Contents::Empty;
                }
            }
            va = end;
        }
        Ok(())
    }

    /// Writes the leaves of a mapping.
    fn map<T: Backed>(&mut self, table: &PageTable, mapping: &Mapping<T>) -> Result {
        self.touch(mapping.range.start(), mapping.range.end());
        let hal = table.hal.clone();
        match &mapping.backing {
            Backing::Sparse => {
                let (va, len) = (mapping.range.start(), mapping.range.len());
                for run in Leaves::new(va, va, len) {
                    self.write_run(table, &run, |_| Some(hal.sparse_leaf(run.size)))?;
                }
            }
            Backing::Object { object, offset } => {
                let (mut va, mut at) = (mapping.range.start(), *offset);
                for piece in object.pieces_from(at) {
                    if va == mapping.range.end() {
                        break;
                    }
                    let skip = at.checked_sub(piece.offset).ok_or(EINVAL)?;
                    let rest = piece.len.checked_sub(skip).ok_or(EINVAL)?;
                    let len = rest.min(mapping.range.end() - va);
                    let base = piece.addr.checked_add(skip).ok_or(EINVAL)?;
                    let start = va;
                    for run in Leaves::new(va, base.offset(), len) {
                        self.write_run(table, &run, |va| {
                            let addr = base.checked_add(va - start)?;
                            Some(hal.leaf(addr, run.size, mapping.attrs))
                        })?;
                    }
                    va += len;
                    at += len;
                }
                if va < mapping.range.end() {
                    return Err(EINVAL);
                }
            }
        }
        Ok(())
    }

    /// Writes leaves of one size; `leaf` gives the entry for an address.
    fn write_run(
        &mut self,
        table: &PageTable,
        run: &LeafRun,
        leaf: impl Fn(u64) -> Option<u64>,
    ) -> Result {
        let place = table.hal.leaf_place(run.size);
        let end = run.va + run.len;
        let mut va = run.va;
        while va < end {
            let region = va >> REGION_SHIFT;
            if place.level == REGION_LEVEL {
                *self.region(table, region)? = Contents::Leaf(leaf(va).ok_or(EINVAL)?);
                va += run.size.bytes();
                continue;
            }
            // All leaves of the run that lie in this region.
            let stop = end.min((region + 1) << REGION_SHIFT);
            let entries = self.small(table, region)?;
            while va < stop {
                let entry = leaf(va).ok_or(EINVAL)?;
                let first = page_in_region(va);
                let group = first..first + usize::from(place.entries);
                let mut step = 0;
                for slot in entries.get_mut(group).ok_or(EINVAL)? {
                    *slot = entry + step;
                    step += place.step;
                }
                va += run.size.bytes();
            }
        }
        Ok(())
    }
}

/// Number of a small page within its region.
fn page_in_region(va: u64) -> usize {
    // Below 512, so it fits.
    usize::try_from(va >> LeafSize::Size4K.shift()).unwrap_or(0) % REGION_PAGES
}

/// Tables that nothing points to any more. To be dropped once the TLB has been invalidated.
#[must_use = "drop it only after the TLB has been invalidated"]
pub(crate) struct Garbage {
    _slots: KVVec<Slot>,
}

/// The page tables of one address space.
pub(crate) struct PageTable {
    hal: Arc<dyn Hal>,
    root: Node,
}

impl PageTable {
    /// Tables that map nothing.
    pub(crate) fn new(hal: Arc<dyn Hal>) -> Result<Self> {
        let root = Node::new(&*hal)?;
        Ok(Self { hal, root })
    }

    /// Where the root is.
    pub(crate) fn root(&self) -> BoardAddr {
        self.root.table.address()
    }

    /// Binary logarithm of the regions that one entry of a table of `level` spans.
    fn span_log2(&self, level: u8) -> u32 {
        u32::from(level.saturating_sub(REGION_LEVEL))
            * u32::from(self.hal.info().page_table.entries_log2)
    }

    /// Entry number of region `region` in a table of `level`.
    fn index(&self, level: u8, region: u64) -> usize {
        let mask = (1u64 << self.hal.info().page_table.entries_log2) - 1;
        // Below 512, so it fits.
        usize::try_from(region >> self.span_log2(level) & mask).unwrap_or(0)
    }

    /// Level of the root.
    fn top(&self) -> u8 {
        self.hal.info().page_table.levels.saturating_sub(1)
    }

    /// The table that holds the entry of a region, if it is there.
    fn find(&self, region: u64) -> Option<&Node> {
        let mut node = &self.root;
        for level in (REGION_LEVEL + 1..=self.top()).rev() {
            match node.slots.get(self.index(level, region))? {
                Slot::Node(next) => node = next,
                _ => return None,
            }
        }
        Some(node)
    }

    /// The table that holds the entry of a region; makes what is missing on the way, empty.
    fn find_or_make(&mut self, region: u64) -> Result<&mut Node> {
        let hal = self.hal.clone();
        let mut indices = [0usize; 8];
        let top = self.top();
        for level in REGION_LEVEL + 1..=top {
            *indices.get_mut(usize::from(level)).ok_or(EINVAL)? = self.index(level, region);
        }
        let mut node = &mut self.root;
        for level in (REGION_LEVEL + 1..=top).rev() {
            let index = *indices.get(usize::from(level)).ok_or(EINVAL)?;
            if matches!(node.slots.get(index), Some(Slot::Empty)) {
                let new = KBox::new(Node::new(&*hal)?, GFP_KERNEL_ACCOUNT)?;
                let entry = hal.table_entry(new.table.address());
                node.replace(index, Slot::Node(new), entry);
            }
            match node.slots.get_mut(index) {
                Some(Slot::Node(next)) => node = next,
                _ => return Err(EINVAL),
            }
        }
        Ok(node)
    }

    /// What a region holds now.
    fn contents(&self, region: u64) -> Result<Contents> {
        let slot = self
            .find(region)
            .and_then(|node| node.slots.get(self.index(REGION_LEVEL, region)));
        Ok(match slot {
            Some(Slot::Leaf(entry)) => Contents::Leaf(*entry),
            Some(Slot::Bottom(bottom)) => {
                let mut entries = KVec::with_capacity(REGION_PAGES, GFP_KERNEL_ACCOUNT)?;
                entries.extend_from_slice(&bottom.entries, GFP_KERNEL_ACCOUNT)?;
                Contents::Small(entries)
            }
            _ => Contents::Empty,
        })
    }

    /// Works out what `steps` come to and gets the memory for it. An error changes no translation;
    /// upper tables that were made by then stay, empty, for the next use.
    pub(crate) fn prepare<T: Backed>(&mut self, steps: &[Step<T>]) -> Result<Update> {
        let mut update = Update {
            regions: RBTree::new(),
            bottoms: KVVec::new(),
            garbage: KVVec::new(),
            hull: None,
        };
        for step in steps {
            update.add(self, step)?;
        }
        self.reserve(&mut update)?;
        Ok(update)
    }

    /// Gets the memory that `commit` needs.
    fn reserve(&mut self, update: &mut Update) -> Result {
        let mut regions = 0;
        for (region, contents) in update.regions.iter() {
            regions += 1;
            match contents {
                Contents::Empty => continue,
                Contents::Small(_) => {
                    let bottom = Bottom {
                        table: self.hal.new_table()?,
                        entries: KVec::new(),
                    };
                    let bottom = KBox::new(bottom, GFP_KERNEL_ACCOUNT)?;
                    update.bottoms.push(bottom, GFP_KERNEL_ACCOUNT)?;
                }
                Contents::Leaf(_) => (),
            }
            self.find_or_make(*region)?;
        }
        // A region, and at most one upper table per level above it.
        let most = regions * usize::from(self.top());
        update.garbage.reserve(most, GFP_KERNEL_ACCOUNT)?;
        Ok(())
    }

    /// Switches every region of `update` over. Cannot fail.
    ///
    /// Returns what has to be forgotten by the TLB, and the tables to be freed after that.
    pub(crate) fn commit(&mut self, update: Update) -> (Option<VaRange>, Garbage) {
        let Update {
            mut regions,
            mut bottoms,
            mut garbage,
            hull,
        } = update;

        for (region, contents) in regions.iter_mut() {
            let index = self.index(REGION_LEVEL, *region);
            let (slot, entry) = match core::mem::replace(contents, Contents::Empty) {
                Contents::Empty => (Slot::Empty, 0),
                Contents::Leaf(entry) => (Slot::Leaf(entry), entry),
                Contents::Small(entries) => {
                    // There is one per region of small pages.
                    let Some(mut bottom) = bottoms.pop() else {
                        continue;
                    };
                    bottom.entries = entries;
                    // As many entries as the table has, so this cannot fail.
                    let _ = bottom.table.write(0, &bottom.entries);
                    let entry = self.hal.table_entry(bottom.table.address());
                    (Slot::Bottom(bottom), entry)
                }
            };
            // What is not there has been reserved, or is empty and to be left so.
            if matches!(slot, Slot::Empty) && self.find(*region).is_none() {
                continue;
            }
            if let Ok(node) = self.find_or_make(*region) {
                let old = node.replace(index, slot, entry);
                let _ = garbage.push_within_capacity(old);
            }
        }
        self.prune(&regions, &mut garbage);

        let range = hull.and_then(|(start, end)| VaRange::new(start, end - start).ok());
        (range, Garbage { _slots: garbage })
    }

    /// Takes upper tables out that have become empty, around the given regions.
    fn prune(&mut self, regions: &RBTree<u64, Contents>, garbage: &mut KVVec<Slot>) {
        let mut last = None;
        for (region, _) in regions.iter() {
            let parent = region >> self.span_log2(REGION_LEVEL + 1);
            if last == Some(parent) {
                continue;
            }
            last = Some(parent);
            // From the lowest upward: each turn can empty the one above.
            for level in REGION_LEVEL + 1..=self.top() {
                self.prune_one(level, *region, garbage);
            }
        }
    }

    /// Takes the table below `level` on the way to `region` out if it is empty.
    fn prune_one(&mut self, level: u8, region: u64, garbage: &mut KVVec<Slot>) {
        let top = self.top();
        let mut indices = [0usize; 8];
        for above in level..=top {
            if let Some(index) = indices.get_mut(usize::from(above)) {
                *index = self.index(above, region);
            }
        }
        let index_at = |level: u8| indices.get(usize::from(level)).copied().unwrap_or(0);

        let mut node = &mut self.root;
        for above in (level + 1..=top).rev() {
            match node.slots.get_mut(index_at(above)) {
                Some(Slot::Node(next)) => node = next,
                _ => return,
            }
        }
        let index = index_at(level);
        let empty = matches!(node.slots.get(index), Some(Slot::Node(next)) if next.used == 0);
        if empty {
            let old = node.replace(index, Slot::Empty, 0);
            let _ = garbage.push_within_capacity(old);
        }
    }
}
