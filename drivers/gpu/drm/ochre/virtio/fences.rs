// SPDX-License-Identifier: GPL-2.0

//! Fences that are signalled in the order in which they were made.
//!
//! A `dma_fence` promises that the earlier ones of its timeline are over, too. The device answers
//! commands of one ring in order, as a rule: one that it refuses is answered at once, before those
//! that the host's GPU is still working on. [`Order`] holds back what comes too early.
//!
//! It is a table beside that of the records of commands in flight, with the same indexes: each
//! entry knows its neighbours on its timeline. A [`Timeline`] knows its last one, so the table and
//! the timelines need no references to each other. All of it is guarded by the control queue's
//! lock, which is also why the atomics are relaxed.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use crate::ext::dma_fence::TimelineName;

/// The names under which our fences appear.
pub(super) const NAME: TimelineName = TimelineName {
    driver: c"virtio_gpu",
    timeline: c"controlq",
};

/// An order of fences: all commands together that name no ring, or one ring of a context.
pub(super) struct Timeline {
    context: u64,
    seqno: Atomic<u64>,
    /// Where the last one is in the table, if it is still there under the number `last_order`.
    last: Atomic<u32>,
    last_order: Atomic<u64>,
}

impl Timeline {
    /// A timeline for the `dma_fence` context `context`, which is nobody else's.
    pub(super) fn new(context: u64) -> Self {
        Self {
            context,
            seqno: Atomic::new(0),
            last: Atomic::new(0),
            last_order: Atomic::new(0),
        }
    }

    /// The context of its fences.
    pub(super) fn context(&self) -> u64 {
        self.context
    }

    /// The number of the next fence. With the queue's lock.
    pub(super) fn next_seqno(&self) -> u64 {
        let seqno = self.seqno.load(Relaxed) + 1;
        self.seqno.store(seqno, Relaxed);
        seqno
    }
}

/// Index into the table.
pub(super) type Index = u16;
/// No entry.
pub(super) const NONE: Index = Index::MAX;

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Tells it from others that used the place earlier; 0 if it is on no timeline.
    order: u64,
    before: Index,
    after: Index,
    /// The answer, if it came too early.
    early: Option<Result>,
}

const VACANT: Entry = Entry {
    order: 0,
    before: NONE,
    after: NONE,
    early: None,
};

/// The order of the fences in flight.
pub(super) struct Order {
    entries: KVec<Entry>,
}

impl Order {
    /// A table of `count` entries, none of which is used.
    pub(super) fn new(count: usize) -> Result<Self> {
        Ok(Self {
            entries: KVec::from_elem(VACANT, count, GFP_KERNEL)?,
        })
    }

    fn get(&mut self, index: Index) -> Option<&mut Entry> {
        self.entries.get_mut(usize::from(index))
    }

    /// Puts the vacant entry `index` at the end of `timeline`. `order` is not 0 and never the same.
    pub(super) fn join(&mut self, index: Index, timeline: &Timeline, order: u64) {
        let last = Index::try_from(timeline.last.load(Relaxed)).unwrap_or(NONE);
        let last_order = timeline.last_order.load(Relaxed);
        let mut before = NONE;
        if let Some(entry) = self.get(last) {
            if entry.order == last_order && last_order != 0 {
                entry.after = index;
                before = last;
            }
        }
        if let Some(entry) = self.get(index) {
            *entry = Entry {
                order,
                before,
                ..VACANT
            };
            timeline.last.store(index.into(), Relaxed);
            timeline.last_order.store(order, Relaxed);
        }
    }

    /// The device has answered the command at `index`. Calls `over` for each entry that is over by
    /// that, in order: that one and those held back behind it, or none if others come first. An
    /// entry on no timeline is over at once.
    pub(super) fn answer(
        &mut self,
        index: Index,
        result: Result,
        mut over: impl FnMut(Index, Result),
    ) {
        let count = self.entries.len();
        let Some(entry) = self.get(index) else {
            return;
        };
        if entry.before != NONE {
            entry.early = Some(result);
            return;
        }
        let (mut index, mut result) = (index, result);
        for _ in 0..count {
            let Some(entry) = self.get(index) else {
                return;
            };
            let after = core::mem::replace(entry, VACANT).after;
            over(index, result);
            let Some(entry) = self.get(after) else {
                return;
            };
            entry.before = NONE;
            let Some(early) = entry.early.take() else {
                return;
            };
            (index, result) = (after, early);
        }
    }

    /// The entry before this one on its timeline.
    pub(super) fn before(&self, index: Index) -> Index {
        self.entries
            .get(usize::from(index))
            .map_or(NONE, |entry| entry.before)
    }

    /// Whether the entry was answered and is held back.
    pub(super) fn is_held_back(&self, index: Index) -> bool {
        self.entries
            .get(usize::from(index))
            .is_some_and(|entry| entry.early.is_some())
    }
}

#[kunit_tests(ochre_virtio_fences)]
mod tests {
    use super::*;
    use crate::algo::prng::for_each_seed;

    fn answer(order: &mut Order, index: Index, result: Result) -> KVec<(Index, Result)> {
        let mut over = KVec::new();
        order.answer(index, result, |index, result| {
            // Without memory the comparison fails.
            let _ = over.push((index, result), GFP_KERNEL);
        });
        over
    }

    #[test]
    fn answer_in_order_is_over_at_once() -> Result {
        let mut order = Order::new(4)?;
        let timeline = Timeline::new(1);
        order.join(0, &timeline, 1);
        order.join(1, &timeline, 2);
        assert!(answer(&mut order, 0, Ok(()))[..] == [(0, Ok(()))]);
        assert!(answer(&mut order, 1, Err(EIO))[..] == [(1, Err(EIO))]);
        Ok(())
    }

    #[test]
    fn early_answer_waits_for_those_before_it_and_keeps_its_error() -> Result {
        let mut order = Order::new(4)?;
        let timeline = Timeline::new(1);
        for index in 0..4 {
            order.join(index, &timeline, u64::from(index) + 1);
        }
        assert!(answer(&mut order, 2, Err(ENOMEM)).is_empty());
        assert!(order.is_held_back(2));
        assert!(answer(&mut order, 1, Ok(())).is_empty());
        let over = answer(&mut order, 0, Ok(()));
        assert!(over[..] == [(0, Ok(())), (1, Ok(())), (2, Err(ENOMEM))]);
        assert!(answer(&mut order, 3, Ok(()))[..] == [(3, Ok(()))]);
        Ok(())
    }

    #[test]
    fn timelines_do_not_wait_for_each_other() -> Result {
        let mut order = Order::new(4)?;
        let (one, other) = (Timeline::new(1), Timeline::new(2));
        order.join(0, &one, 1);
        order.join(1, &other, 2);
        assert!(answer(&mut order, 1, Ok(()))[..] == [(1, Ok(()))]);
        // On no timeline.
        assert!(answer(&mut order, 2, Ok(()))[..] == [(2, Ok(()))]);
        Ok(())
    }

    #[test]
    fn place_that_was_used_again_is_not_taken_for_the_last_one() -> Result {
        let mut order = Order::new(4)?;
        let (one, other) = (Timeline::new(1), Timeline::new(2));
        order.join(0, &one, 1);
        assert!(answer(&mut order, 0, Ok(())).len() == 1);
        order.join(0, &other, 2);
        order.join(1, &one, 3);
        assert!(answer(&mut order, 1, Ok(()))[..] == [(1, Ok(()))]);
        Ok(())
    }

    #[test]
    fn whatever_the_device_answers_first_each_timeline_keeps_its_order() -> Result {
        const COUNT: usize = 32;
        for_each_seed("virtio_fences", |rng| {
            let mut order = Order::new(COUNT)?;
            let timelines = [Timeline::new(1), Timeline::new(2), Timeline::new(3)];
            let mut free: KVec<Index> = KVec::new();
            for index in 0..COUNT {
                free.push(Index::try_from(index)?, GFP_KERNEL)?;
            }
            // What is in flight and not answered: index, timeline, number.
            let mut flying: KVec<(Index, usize, u64)> = KVec::new();
            let mut places = [(0usize, 0u64); COUNT];
            let (mut made, mut seen) = ([0u64; 3], [0u64; 3]);
            for number in 1..4000 {
                if rng.chance(2) {
                    let Some(index) = free.pop() else { continue };
                    // CAST: below 3.
                    let which = rng.below(3) as usize;
                    order.join(index, &timelines[which], number);
                    made[which] += 1;
                    places[usize::from(index)] = (which, made[which]);
                    flying.push((index, which, made[which]), GFP_KERNEL)?;
                } else if !flying.is_empty() {
                    // CAST: an index.
                    let at = rng.below(flying.len() as u64) as usize;
                    let (index, ..) = flying.remove(at)?;
                    for (index, _) in answer(&mut order, index, Ok(())) {
                        let (which, place) = places[usize::from(index)];
                        seen[which] += 1;
                        assert!(seen[which] == place);
                        free.push(index, GFP_KERNEL)?;
                    }
                }
            }
            while let Some((index, ..)) = flying.pop() {
                for (index, _) in answer(&mut order, index, Ok(())) {
                    let (which, place) = places[usize::from(index)];
                    seen[which] += 1;
                    assert!(seen[which] == place);
                }
            }
            assert!(seen == made);
            Ok(())
        })
    }
}
