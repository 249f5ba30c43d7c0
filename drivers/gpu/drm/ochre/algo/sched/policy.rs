// SPDX-License-Identifier: GPL-2.0

//! Who gets a slot, and who has to give one up for it ("Policy" in [`super`]).

use super::{
    action::Action,
    lists::Index,
    queue::{
        Priority,
        Seat, //
    },
    slots::Class,
    waiting,
    Sched, //
};

/// Time slices for which a seat is safe from queues of the same priority: so it is held for at
/// least one whole.
pub(super) const SAFE_SLICES: u64 = 2;

impl<J> Sched<J> {
    /// Gives a seat to the next queue of a class that waits for one, or makes one free.
    pub(super) fn seat(&mut self, class: Class) -> Option<Action<J>> {
        let first = Priority::descending().find_map(|p| self.lists.first(waiting(class, p)))?;
        if let Some(slot) = self.slots.free(class, |index| self.is_busy(index)) {
            let queue = self.id(first);
            let (slice, now) = (self.slice, self.stamp());
            self.slots.set(slot, Some(first));
            self.change(first, |q| {
                q.seat = Seat::Resident(slot);
                q.slice = slice;
                q.seated = now;
                q.active = now;
            });
            return Some(Action::Bind { queue, slot });
        }
        let victim = self.victim(class, self.unserved(class)?)?;
        let Some(Seat::Resident(slot)) = self.queue(victim).map(|q| q.seat) else {
            return None;
        };
        self.change(victim, |q| q.seat = Seat::Leaving(slot));
        let queue = self.id(victim);
        Some(Action::Unbind { queue, slot })
    }

    /// Priority of the first queue that still waits when all slots that are being left are given
    /// to those before it.
    fn unserved(&self, class: Class) -> Option<Priority> {
        let is_leaving = |index| {
            self.queue(index)
                .is_some_and(|q| matches!(q.seat, Seat::Leaving(_)))
        };
        let mut leaving = self
            .slots
            .of(class)
            .filter(|s| s.occupant.is_some_and(is_leaving))
            .count();
        Priority::descending().find(|p| {
            let waiting = self.lists.len(waiting(class, *p));
            let unserved = waiting > leaving;
            leaving = leaving.saturating_sub(waiting);
            unserved
        })
    }

    /// Who has to give up its seat to a queue of this class and priority, if anyone.
    fn victim(&self, class: Class, priority: Priority) -> Option<Index> {
        let seated = || {
            self.slots
                .of(class)
                .filter_map(|s| s.occupant)
                .filter_map(|index| Some((index, self.queue(index)?)))
                .filter(|(_, q)| matches!(q.seat, Seat::Resident(_)))
        };
        let idle = seated()
            .filter(|(_, q)| !q.is_busy())
            .min_by_key(|(_, q)| (q.spec.priority, q.active));
        let lower = || {
            seated()
                .filter(|(_, q)| q.spec.priority < priority)
                .min_by_key(|(_, q)| (q.spec.priority, q.seated))
        };
        let equal = || {
            seated()
                .filter(|(_, q)| q.spec.priority == priority)
                .filter(|(_, q)| self.slice.saturating_sub(q.slice) >= SAFE_SLICES)
                .min_by_key(|(_, q)| q.seated)
        };
        idle.or_else(lower).or_else(equal).map(|(index, _)| index)
    }
}
