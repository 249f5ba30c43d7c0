// SPDX-License-Identifier: GPL-2.0

//! The hardware slots, and who sits in them.

use kernel::{
    alloc::AllocError,
    prelude::*, //
};

use super::lists::Index;

/// A class of interchangeable engines: those on which the same queues can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(u8);

impl Class {
    /// Makes a class of its number. Numbers best begin at 0 and leave no gap.
    pub(crate) const fn new(class: u8) -> Self {
        Self(class)
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// One engine of the board.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineSpec {
    /// What it can do.
    pub(crate) class: Class,
    /// How many queues it can hold.
    pub(crate) slots: u8,
}

/// A hardware slot: the index of its engine, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId {
    /// Index of the engine as given to `Sched::new`.
    pub(crate) engine: u8,
    /// Number of the slot of that engine.
    pub(crate) slot: u8,
}

/// A slot and the queue that it holds.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) id: SlotId,
    pub(super) class: Class,
    pub(super) occupant: Option<Index>,
}

/// All slots of the board, engine by engine.
pub(super) struct Slots(KVec<Slot>);

impl Slots {
    pub(super) fn new(engines: &[EngineSpec]) -> Result<Self, AllocError> {
        let mut slots = KVec::new();
        for (engine, spec) in (0..=u8::MAX).zip(engines) {
            for slot in 0..spec.slots {
                let slot = Slot {
                    id: SlotId { engine, slot },
                    class: spec.class,
                    occupant: None,
                };
                slots.push(slot, GFP_KERNEL)?;
            }
        }
        Ok(Self(slots))
    }

    /// The classes up to the last that has a slot.
    pub(super) fn classes(&self) -> impl Iterator<Item = Class> {
        let last = self.0.iter().map(|s| s.class.0).max();
        let count = last.map_or(0, |last| u16::from(last) + 1);
        (0..=u8::MAX).map(Class).take(usize::from(count))
    }

    /// The slots of a class.
    pub(super) fn of(&self, class: Class) -> impl Iterator<Item = &Slot> {
        self.0.iter().filter(move |s| s.class == class)
    }

    /// Returns a free slot of the class, on the engine where the fewest queues are `busy`.
    pub(super) fn free(&self, class: Class, busy: impl Fn(Index) -> bool) -> Option<SlotId> {
        let load = |engine| {
            self.of(class)
                .filter(|s| s.id.engine == engine && s.occupant.is_some_and(&busy))
                .count()
        };
        self.of(class)
            .filter(|s| s.occupant.is_none())
            .min_by_key(|s| load(s.id.engine))
            .map(|s| s.id)
    }

    /// Notes who holds a slot.
    pub(super) fn set(&mut self, id: SlotId, occupant: Option<Index>) {
        if let Some(slot) = self.0.iter_mut().find(|s| s.id == id) {
            slot.occupant = occupant;
        }
    }
}
