// SPDX-License-Identifier: GPL-2.0

//! What a GPU address space maps, and the steps from one state of it to the next.
//!
//! A [`VaSpace`] is a tree of disjoint [`Mapping`]s in which neighbours that go on in each other
//! are one. All changes go through a [`Plan`], which is made for a whole array of VM_BIND
//! operations: each operation changes the tree at once, so that the next one sees it, but is
//! logged. Then the caller takes the list of [`Step`]s, gets the memory for page tables that it
//! needs, and either applies the plan, which cannot fail, or drops it, which leads back to where
//! it began and cannot fail either: taking nodes out of a tree and putting them back allocates
//! nothing. That is how an error in the last operation of an array leaves no trace of the first.
//!
//! Page sizes are chosen per mapping when it is written ([`Leaves`]), and not recorded: whoever
//! cuts a mapping rewrites what is left of it up to the next boundary of the largest page, which
//! is right whatever is there. Each [`Step::Unmap`] names those parts.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    }, //
};

mod leaf;
mod mapping;

pub(crate) use leaf::{
    LeafRun,
    LeafSize,
    Leaves, //
};
pub(crate) use mapping::{
    Attrs,
    Backing,
    Mapping,
    MemoryType,
    VaError,
    VaRange, //
};

/// Bytes of the largest page: up to its boundaries a cut has to rewrite.
const LARGEST: u64 = LeafSize::Size2M.bytes();

/// What has to be done to the page tables, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step<T> {
    /// Clear the entries of `range`, and write those of `left` and `right` in the same go: they
    /// stay mapped as they were, but may share a page with what goes.
    Unmap {
        /// What goes.
        range: VaRange,
        /// What stays of the mapping just below, within the same 2 MiB.
        left: Option<Mapping<T>>,
        /// What stays of the mapping just above, within the same 2 MiB.
        right: Option<Mapping<T>>,
    },
    /// Write the entries of a mapping where there is none now.
    Map(Mapping<T>),
}

/// The mappings of one address space. Guarded by the lock of the VM.
///
/// `T` names an object: cloning it must be cheap, and two that are equal are the same object.
pub(crate) struct VaSpace<T> {
    /// By the last address of each, so that the first key that is not below an address belongs to
    /// the only mapping that can contain it.
    tree: RBTree<u64, Mapping<T>>,
    mapped: u64,
}

impl<T: Clone + PartialEq> VaSpace<T> {
    /// Makes an empty address space.
    pub(crate) fn new() -> Self {
        Self {
            tree: RBTree::new(),
            mapped: 0,
        }
    }

    /// The first mapping that ends beyond an address.
    fn first_beyond(&self, va: u64) -> Option<&Mapping<T>> {
        let key = *self.tree.cursor_lower_bound(&va)?.current().0;
        self.tree.get(&key)
    }

    /// Returns the mapping of an address.
    pub(crate) fn lookup(&self, va: u64) -> Option<&Mapping<T>> {
        self.first_beyond(va).filter(|m| m.range.contains(va))
    }

    /// Returns the mappings that touch a range, in ascending order, whole.
    pub(crate) fn iter(&self, range: VaRange) -> Iter<'_, T> {
        Iter {
            space: self,
            at: range.start(),
            end: range.end(),
        }
    }

    /// Bytes of address space that are mapped.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.mapped
    }

    /// Begins to plan changes.
    pub(crate) fn plan(&mut self) -> Plan<'_, T> {
        Plan {
            space: self,
            log: KVVec::new(),
            steps: KVVec::new(),
        }
    }

    fn insert(&mut self, node: RBTreeNode<u64, Mapping<T>>, len: u64) {
        self.tree.insert(node);
        self.mapped += len;
    }

    fn remove(&mut self, key: u64) -> Option<RBTreeNode<u64, Mapping<T>>> {
        self.mapped -= self.tree.get(&key)?.range.len();
        self.tree.remove_node(&key)
    }
}

/// Iterator of [`VaSpace::iter`].
pub(crate) struct Iter<'a, T> {
    space: &'a VaSpace<T>,
    at: u64,
    end: u64,
}

impl<'a, T: Clone + PartialEq> Iterator for Iter<'a, T> {
    type Item = &'a Mapping<T>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.space.first_beyond(self.at)?;
        if found.range.start() >= self.end {
            return None;
        }
        self.at = found.range.end();
        Some(found)
    }
}

/// A change of the tree, to be undone.
enum Change<T> {
    /// A mapping with this key was put in.
    Inserted { key: u64 },
    /// A mapping was taken out.
    Removed {
        node: RBTreeNode<u64, Mapping<T>>,
        len: u64,
    },
}

/// Changes to an address space that are not final yet. Dropping it undoes them.
#[must_use = "a plan that is dropped is undone"]
pub(crate) struct Plan<'a, T: Clone + PartialEq> {
    space: &'a mut VaSpace<T>,
    log: KVVec<Change<T>>,
    steps: KVVec<Step<T>>,
}

impl<T: Clone + PartialEq> Plan<'_, T> {
    /// The address space with what was planned so far.
    pub(crate) fn space(&self) -> &VaSpace<T> {
        self.space
    }

    /// What there is to do for what was planned so far.
    pub(crate) fn steps(&self) -> &[Step<T>] {
        &self.steps
    }

    /// Plans a mapping in place of whatever is there. An error leaves the plan as it was.
    pub(crate) fn map(&mut self, new: Mapping<T>) -> Result<(), VaError> {
        new.check()?;
        self.atomically(|plan| {
            plan.clear(new.range)?;
            plan.push(Step::Map(new.clone()))?;
            plan.insert_joined(new)
        })
    }

    /// Plans that nothing is mapped in a range. An error leaves the plan as it was.
    pub(crate) fn unmap(&mut self, range: VaRange) -> Result<(), VaError> {
        self.atomically(|plan| plan.clear(range))
    }

    /// Makes the changes final and returns what there is to do. Cannot fail.
    pub(crate) fn apply(mut self) -> Applied<T> {
        // With an empty log there is nothing for `drop` to undo.
        Applied {
            steps: core::mem::take(&mut self.steps),
            _old: core::mem::take(&mut self.log),
        }
    }

    /// Runs an operation and undoes what it did so far if it fails.
    fn atomically(
        &mut self,
        operation: impl FnOnce(&mut Self) -> Result<(), VaError>,
    ) -> Result<(), VaError> {
        let changes = self.log.len();
        let steps = self.steps.len();
        let result = operation(self);
        if result.is_err() {
            self.undo_to(changes);
            self.steps.truncate(steps);
        }
        result
    }

    fn undo_to(&mut self, changes: usize) {
        while self.log.len() > changes {
            match self.log.pop() {
                Some(Change::Inserted { key }) => drop(self.space.remove(key)),
                Some(Change::Removed { node, len }) => self.space.insert(node, len),
                None => return,
            }
        }
    }

    fn push(&mut self, step: Step<T>) -> Result<(), VaError> {
        self.steps.push(step, GFP_KERNEL_ACCOUNT)?;
        Ok(())
    }

    /// Logs a change for which there is room.
    fn note(&mut self, change: Change<T>) -> Result<(), VaError> {
        self.log
            .push_within_capacity(change)
            .map_err(|_| VaError::NoMemory)
    }

    fn insert(&mut self, new: Mapping<T>) -> Result<(), VaError> {
        let key = new.range.last();
        let len = new.range.len();
        self.log.reserve(1, GFP_KERNEL_ACCOUNT)?;
        let node = RBTreeNode::new(key, new, GFP_KERNEL_ACCOUNT).map_err(|_| VaError::NoMemory)?;
        self.space.insert(node, len);
        self.note(Change::Inserted { key })
    }

    fn remove(&mut self, range: VaRange) -> Result<(), VaError> {
        self.log.reserve(1, GFP_KERNEL_ACCOUNT)?;
        match self.space.remove(range.last()) {
            Some(node) => self.note(Change::Removed {
                node,
                len: range.len(),
            }),
            None => Ok(()),
        }
    }

    /// Takes everything out of a range, cutting the mappings at its ends.
    fn clear(&mut self, range: VaRange) -> Result<(), VaError> {
        // Each turn takes at least a page off the range.
        let mut left_over = Some(range);
        while let Some(range) = left_over {
            let Some(old) = self.space.iter(range).next().cloned() else {
                return Ok(());
            };
            let (start, end) = (range.start(), range.end());
            if let Some(gone) = old.range.intersect(&range) {
                let below = start - start % LARGEST;
                let above = end.next_multiple_of(LARGEST);
                self.push(Step::Unmap {
                    range: gone,
                    left: old.clip(below, start),
                    right: old.clip(end, above),
                })?;
            }
            self.remove(old.range)?;
            let kept = [old.clip(0, start), old.clip(end, u64::MAX)];
            for kept in kept.into_iter().flatten() {
                self.insert(kept)?;
            }
            left_over = range.clip(old.range.end(), end);
        }
        Ok(())
    }

    /// Puts a mapping into a gap, joined with those neighbours that it continues.
    fn insert_joined(&mut self, new: Mapping<T>) -> Result<(), VaError> {
        let mut new = new;
        let left = match new.range.start().checked_sub(1) {
            Some(va) => self.space.lookup(va).cloned(),
            None => None,
        };
        if let Some(left) = left.filter(|left| left.continues_in(&new)) {
            self.remove(left.range)?;
            let range = left.range.up_to(&new.range);
            new = Mapping { range, ..left };
        }
        let right = self.space.lookup(new.range.end()).cloned();
        if let Some(right) = right.filter(|right| new.continues_in(right)) {
            self.remove(right.range)?;
            new.range = new.range.up_to(&right.range);
        }
        self.insert(new)
    }
}

impl<T: Clone + PartialEq> Drop for Plan<'_, T> {
    fn drop(&mut self) {
        self.undo_to(0);
    }
}

/// A plan that was applied. Drop it without the lock of the VM: with it go the last references to
/// objects that are no longer mapped.
#[must_use = "the page tables do not follow by themselves"]
pub(crate) struct Applied<T> {
    steps: KVVec<Step<T>>,
    _old: KVVec<Change<T>>,
}

impl<T> Applied<T> {
    /// What has to be done to the page tables, in order.
    pub(crate) fn steps(&self) -> &[Step<T>] {
        &self.steps
    }
}

#[kunit_tests(ochre_algo_va)]
mod tests {
    use super::*;
    use crate::algo::prng::{
        for_each_seed,
        Prng, //
    };

    const PAGE: u64 = 4096;
    /// Pages of the modelled address space: four of the largest leaves.
    const PAGES: u64 = 2048;

    type Object = u8;

    /// What one page maps: object (`None` is sparse), page in it, attributes.
    type Page = Option<(Option<Object>, u64, Attrs)>;

    fn range(start: u64, pages: u64) -> Result<VaRange, VaError> {
        VaRange::new(start * PAGE, pages * PAGE)
    }

    fn mapping(start: u64, pages: u64, object: Object, offset: u64) -> Result<Mapping<Object>> {
        Ok(Mapping {
            range: range(start, pages)?,
            backing: Backing::Object {
                object,
                offset: offset * PAGE,
            },
            attrs: Attrs::default(),
        })
    }

    /// Page `n` of the address space, if a mapping covers it.
    fn page(m: &Mapping<Object>, n: u64) -> Page {
        let at = n * PAGE - m.range.start();
        Some(match &m.backing {
            Backing::Object { object, offset } => (Some(*object), (offset + at) / PAGE, m.attrs),
            Backing::Sparse => (None, 0, m.attrs),
        })
    }

    fn pages(r: &VaRange) -> core::ops::Range<usize> {
        (r.start() / PAGE) as usize..(r.end() / PAGE) as usize
    }

    fn fill(model: &mut [Page], m: &Mapping<Object>) {
        for n in pages(&m.range) {
            model[n] = page(m, n as u64);
        }
    }

    /// Page tables as the board sees them: what a page maps, and the first page of its leaf.
    struct Tables {
        entries: KVec<(Page, u64)>,
    }

    impl Tables {
        fn new() -> Result<Self> {
            Ok(Self {
                entries: KVec::from_elem((None, 0), PAGES as usize, GFP_KERNEL)?,
            })
        }

        fn write(&mut self, m: &Mapping<Object>) {
            // Objects lie at multiples of 1 GiB, so offsets decide the leaves.
            let pa = match &m.backing {
                Backing::Object { object, offset } => (u64::from(*object) << 30) + offset,
                Backing::Sparse => m.range.start(),
            };
            for run in Leaves::new(m.range.start(), pa, m.range.len()) {
                for n in run.va / PAGE..(run.va + run.len) / PAGE {
                    let leaf = n * PAGE / run.size.bytes() * run.size.bytes() / PAGE;
                    self.entries[n as usize] = (page(m, n), leaf);
                }
            }
        }

        /// Executes a step as hardware would: a leaf goes as a whole.
        fn execute(&mut self, step: &Step<Object>) {
            match step {
                Step::Unmap { range, left, right } => {
                    for n in pages(range) {
                        let (page, leaf) = self.entries[n];
                        if page.is_some() {
                            let around = leaf as usize..(leaf as usize + 512).min(PAGES as usize);
                            for entry in &mut self.entries[around] {
                                if entry.1 == leaf {
                                    entry.0 = None;
                                }
                            }
                        }
                    }
                    for kept in [left, right].into_iter().flatten() {
                        self.write(kept);
                    }
                }
                Step::Map(m) => self.write(m),
            }
        }

        fn equal(&self, model: &[Page]) -> bool {
            self.entries.iter().map(|(page, _)| page).eq(model)
        }
    }

    fn agrees(space: &VaSpace<Object>, model: &[Page]) -> Result<bool> {
        let mut seen = KVec::from_elem(None, PAGES as usize, GFP_KERNEL)?;
        let mut mapped = 0;
        let mut last: Option<&Mapping<Object>> = None;
        for m in space.iter(range(0, PAGES)?) {
            if last.is_some_and(|l| l.continues_in(m) || l.range.end() > m.range.start()) {
                return Ok(false);
            }
            fill(&mut seen, m);
            mapped += m.range.len();
            last = Some(m);
        }
        let same_lookup = (0..PAGES)
            .step_by(7)
            .all(|n| space.lookup(n * PAGE + 5).and_then(|m| page(m, n)) == model[n as usize]);
        Ok(seen[..] == *model && mapped == space.mapped_bytes() && same_lookup)
    }

    fn random_mapping(rng: &mut Prng, r: VaRange) -> Mapping<Object> {
        let backing = if rng.chance(20) {
            Backing::Sparse
        } else {
            // Mostly so that neighbours continue each other and large leaves are possible.
            let skew = if rng.chance(70) { 0 } else { rng.below(3) };
            Backing::Object {
                object: rng.below(2) as Object,
                offset: r.start() + skew * PAGE,
            }
        };
        Mapping {
            range: r,
            backing,
            attrs: Attrs {
                read: true,
                write: rng.chance(80),
                ..Attrs::default()
            },
        }
    }

    #[test]
    fn random_plans_agree_with_a_map_of_pages_and_so_do_the_page_tables() -> Result {
        for_each_seed("va", |rng| {
            let mut space = VaSpace::new();
            let mut tables = Tables::new()?;
            let mut model: KVec<Page> = KVec::from_elem(None, PAGES as usize, GFP_KERNEL)?;
            for _ in 0..150 {
                let mut planned: KVec<Page> = KVec::new();
                planned.extend_from_slice(&model, GFP_KERNEL)?;
                let mut plan = space.plan();
                for _ in 0..1 + rng.below(5) {
                    let start = rng.below(PAGES);
                    let most = if rng.chance(50) { PAGES - start } else { 16 };
                    let r = range(start, 1 + rng.below(most.min(PAGES - start)))?;
                    if rng.chance(40) {
                        plan.unmap(r)?;
                        planned[pages(&r)].fill(None);
                    } else {
                        let m = random_mapping(rng, r);
                        fill(&mut planned, &m);
                        plan.map(m)?;
                    }
                    assert!(agrees(plan.space(), &planned)?);
                }
                if rng.chance(30) {
                    drop(plan);
                } else {
                    for step in plan.apply().steps() {
                        tables.execute(step);
                    }
                    model = planned;
                }
                assert!(agrees(&space, &model)?);
                assert!(tables.equal(&model));
            }
            Ok(())
        })
    }

    #[test]
    fn neighbours_that_continue_each_other_become_one() -> Result {
        let mut space = VaSpace::new();
        let mut plan = space.plan();
        plan.map(mapping(0, 4, 1, 10)?)?;
        plan.map(mapping(8, 4, 1, 18)?)?;
        plan.map(mapping(4, 4, 1, 14)?)?;
        let _ = plan.apply();
        assert!(space.lookup(0) == Some(&mapping(0, 12, 1, 10)?));
        // Another offset, another object, other attributes: not one.
        let mut plan = space.plan();
        plan.map(mapping(12, 4, 1, 23)?)?;
        plan.map(mapping(16, 4, 2, 27)?)?;
        let _ = plan.apply();
        assert!(space.iter(range(0, 20)?).count() == 3);
        Ok(())
    }

    #[test]
    fn cut_names_what_may_share_a_large_page() -> Result {
        let mut space = VaSpace::new();
        let mut plan = space.plan();
        plan.map(mapping(0, 2048, 1, 0)?)?;
        let _ = plan.apply();
        let mut plan = space.plan();
        plan.unmap(range(600, 700)?)?;
        let unmap = Step::Unmap {
            range: range(600, 700)?,
            left: Some(mapping(512, 88, 1, 512)?),
            right: Some(mapping(1300, 236, 1, 1300)?),
        };
        assert!(plan.steps() == [unmap]);
        drop(plan);
        // On boundaries of the largest page nothing is shared.
        let mut plan = space.plan();
        plan.unmap(range(512, 512)?)?;
        let unmap = Step::Unmap {
            range: range(512, 512)?,
            left: None,
            right: None,
        };
        assert!(plan.steps() == [unmap]);
        Ok(())
    }

    #[test]
    fn refused_operation_leaves_the_plan_as_it_was() -> Result {
        let mut space = VaSpace::new();
        let mut plan = space.plan();
        plan.map(mapping(4, 4, 1, 0)?)?;
        let mut bad = mapping(0, 16, 1, 0)?;
        bad.backing = Backing::Object {
            object: 1,
            offset: 7,
        };
        assert!(plan.map(bad.clone()) == Err(VaError::Offset));
        bad.backing = Backing::Object {
            object: 1,
            offset: u64::MAX - 4095,
        };
        assert!(plan.map(bad) == Err(VaError::Offset));
        assert!(plan.steps().len() == 1);
        assert!(plan.space().mapped_bytes() == 4 * PAGE);
        Ok(())
    }

    #[test]
    fn ranges_are_checked_where_they_enter() {
        let top = 1 << mapping::VA_BITS;
        assert!(VaRange::new(0, top).is_ok());
        assert!(VaRange::new(top - PAGE, PAGE).is_ok());
        for (start, len) in [
            (0, 0),
            (1, PAGE),
            (0, PAGE + 1),
            (top, PAGE),
            (0, top + PAGE),
            (u64::MAX - 4095, PAGE),
            (PAGE, u64::MAX - 4095),
        ] {
            assert!(VaRange::new(start, len) == Err(VaError::Range));
        }
        assert!(MemoryType::new(7).is_some());
        assert!(MemoryType::new(8).is_none());
    }

    #[test]
    fn leaves_are_the_largest_that_alignment_allows() {
        const KIB: u64 = 1 << 10;
        const MIB: u64 = 1 << 20;
        let run = |va, pa, len, size| LeafRun { va, pa, len, size };
        // All five runs.
        let start = 2 * MIB - 68 * KIB;
        let pa = 8 * MIB + start;
        let len = 68 * KIB + 4 * MIB + 132 * KIB;
        let at = |va, len, size| run(va, va + 8 * MIB, len, size);
        assert!(Leaves::new(start, pa, len).eq([
            at(start, 4 * KIB, LeafSize::Size4K),
            at(2 * MIB - 64 * KIB, 64 * KIB, LeafSize::Size64K),
            at(2 * MIB, 4 * MIB, LeafSize::Size2M),
            at(6 * MIB, 128 * KIB, LeafSize::Size64K),
            at(6 * MIB + 128 * KIB, 4 * KIB, LeafSize::Size4K),
        ]));
        // Addresses that never meet at a boundary get small pages only.
        let only = run(0, 4 * KIB, 4 * MIB, LeafSize::Size4K);
        assert!(Leaves::new(0, 4 * KIB, 4 * MIB).eq([only]));
        let only = run(0, 64 * KIB, 4 * MIB, LeafSize::Size64K);
        assert!(Leaves::new(0, 64 * KIB, 4 * MIB).eq([only]));
        assert!(Leaves::new(0, 0, 0).next().is_none());
    }

    #[test]
    fn random_leaves_cover_the_piece_in_at_most_five_runs() -> Result {
        for_each_seed("leaves", |rng| {
            for _ in 0..2000 {
                let skew = [0, 0, 4096, 65536][rng.index(4)];
                let (va, len) = (rng.below(2048) * PAGE, (1 + rng.below(2048)) * PAGE);
                let pa = va + (rng.below(4) << 21) + skew;
                let (mut at, mut runs) = (va, 0);
                for run in Leaves::new(va, pa, len) {
                    let size = run.size.bytes();
                    assert!(run.va == at && run.pa == pa + (at - va) && run.len > 0);
                    assert!((run.va | run.pa | run.len) % size == 0);
                    at += run.len;
                    runs += 1;
                }
                assert!(at == va + len && runs <= 5);
            }
            Ok(())
        })
    }
}
