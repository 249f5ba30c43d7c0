// SPDX-License-Identifier: GPL-2.0

//! A first-in, first-out queue in which room is reserved before it is needed.

use kernel::{
    alloc::AllocError,
    prelude::*, //
};

/// A place in a [`Fifo`] that is sure to be there. Given back by [`Fifo::release`] if not used;
/// one that is dropped only keeps its place from others.
#[derive(Debug)]
#[must_use = "a ticket is for pushing, or to be released"]
pub(crate) struct Ticket(());

/// A growing ring of elements. Only [`Fifo::reserve`] allocates and only it can fail; elements are
/// pushed against the tickets that it gives, and taking one out frees its place, not memory.
///
/// # Invariants
///
/// `slots.len()` is 0 or a power of two, `len + tickets <= slots.len()`, and exactly the `len`
/// slots from `head` on, modulo the number of slots, are occupied.
pub(crate) struct Fifo<T> {
    slots: KVec<Option<T>>,
    head: usize,
    len: usize,
    tickets: usize,
}

impl<T> Fifo<T> {
    /// Makes an empty queue without any room.
    pub(crate) const fn new() -> Self {
        Self {
            slots: KVec::new(),
            head: 0,
            len: 0,
            tickets: 0,
        }
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there is no element.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Slot of the element `n` after the first.
    fn slot(&self, n: usize) -> usize {
        // A power of two, or there is no slot at all.
        (self.head + n) & self.slots.len().wrapping_sub(1)
    }

    /// Makes sure that one more element can be pushed, whatever else happens in between.
    pub(crate) fn reserve(&mut self) -> Result<Ticket, AllocError> {
        if self.len + self.tickets >= self.slots.len() {
            self.grow()?;
        }
        self.tickets += 1;
        Ok(Ticket(()))
    }

    fn grow(&mut self) -> Result<(), AllocError> {
        let capacity = (self.slots.len() * 2).max(8);
        let mut slots = KVec::with_capacity(capacity, GFP_KERNEL)?;
        for n in 0..capacity {
            let slot = self.slot(n);
            let element = if n < self.len {
                self.slots.get_mut(slot).and_then(Option::take)
            } else {
                None
            };
            // Within the capacity from above, so this does not allocate.
            slots.push(element, GFP_KERNEL)?;
        }
        // INVARIANT: The elements are in the first slots, in order; the number has doubled.
        self.slots = slots;
        self.head = 0;
        Ok(())
    }

    /// Gives a place back.
    pub(crate) fn release(&mut self, _: Ticket) {
        self.tickets = self.tickets.saturating_sub(1);
    }

    /// Appends an element in the place that the ticket, which this queue gave, stands for.
    pub(crate) fn push(&mut self, ticket: Ticket, element: T) {
        self.release(ticket);
        let slot = self.slot(self.len);
        if let Some(place) = self.slots.get_mut(slot) {
            // INVARIANT: One ticket less, one element more.
            *place = Some(element);
            self.len += 1;
        }
    }

    /// Takes the first element out.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let element = self.slots.get_mut(self.head).and_then(Option::take);
        self.head = self.slot(1);
        self.len -= 1;
        element
    }

    /// Element `n` after the first.
    pub(crate) fn get(&self, n: usize) -> Option<&T> {
        if n >= self.len {
            return None;
        }
        self.slots.get(self.slot(n))?.as_ref()
    }

    /// Element `n` after the first, to change.
    pub(crate) fn get_mut(&mut self, n: usize) -> Option<&mut T> {
        if n >= self.len {
            return None;
        }
        let slot = self.slot(n);
        self.slots.get_mut(slot)?.as_mut()
    }

    /// The first element.
    pub(crate) fn front(&self) -> Option<&T> {
        self.get(0)
    }

    /// The last element.
    pub(crate) fn back(&self) -> Option<&T> {
        self.get(self.len.checked_sub(1)?)
    }

    /// The elements, first to last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len).filter_map(|n| self.get(n))
    }
}

#[kunit_tests(ochre_algo_fifo)]
mod tests {
    use super::*;
    use crate::algo::prng::for_each_seed;

    #[test]
    fn elements_come_out_in_order_however_it_grows() -> Result {
        for_each_seed("fifo", |rng| {
            let mut fifo = Fifo::new();
            let mut tickets: KVec<Ticket> = KVec::new();
            let (mut first, mut next) = (0u64, 0u64);
            for _ in 0..5000 {
                match rng.below(5) {
                    0 | 1 => tickets.push(fifo.reserve()?, GFP_KERNEL)?,
                    2 | 3 => {
                        if let Some(ticket) = tickets.pop() {
                            if rng.chance(10) {
                                fifo.release(ticket);
                            } else {
                                fifo.push(ticket, next);
                                next += 1;
                            }
                        }
                    }
                    _ => {
                        let expected = (first < next).then_some(first);
                        assert!(fifo.pop() == expected);
                        first += u64::from(expected.is_some());
                    }
                }
                assert!(fifo.len() as u64 == next - first);
                assert!(fifo.iter().copied().eq(first..next));
                assert!(fifo.front().copied() == (first < next).then_some(first));
                assert!(fifo.back().copied() == (first < next).then(|| next - 1));
            }
            Ok(())
        })
    }

    #[test]
    fn reserved_places_outlive_the_pushes_of_others() -> Result {
        let mut fifo = Fifo::new();
        let early = fifo.reserve()?;
        for n in 0..100 {
            let ticket = fifo.reserve()?;
            fifo.push(ticket, n);
        }
        fifo.push(early, 100);
        assert!(fifo.iter().copied().eq(0..101));
        Ok(())
    }
}
