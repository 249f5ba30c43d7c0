// SPDX-License-Identifier: GPL-2.0

//! First-come, first-served lists of queues, by index: a queue is in one list or in none.

use kernel::{
    alloc::AllocError,
    prelude::*, //
};

/// Number of a queue in the tables of the scheduler.
pub(super) type Index = usize;

/// Neighbours of a queue in its list, and which list that is.
#[derive(Clone, Copy, Default)]
struct Link {
    list: Option<usize>,
    before: Option<Index>,
    after: Option<Index>,
}

/// Ends of a list.
#[derive(Clone, Copy, Default)]
struct Ends {
    first: Option<Index>,
    last: Option<Index>,
    len: usize,
}

/// Doubly linked lists over the same queues. Every operation is O(1), only [`Lists::extend`]
/// allocates.
pub(super) struct Lists {
    links: KVec<Link>,
    ends: KVec<Ends>,
}

impl Lists {
    /// Makes that many lists, all empty, and no queue.
    pub(super) fn new(count: usize) -> Result<Self, AllocError> {
        Ok(Self {
            links: KVec::new(),
            ends: KVec::from_elem(Ends::default(), count, GFP_KERNEL)?,
        })
    }

    /// Makes room for one more queue, which is in no list.
    pub(super) fn extend(&mut self) -> Result<(), AllocError> {
        self.links.push(Link::default(), GFP_KERNEL)
    }

    /// The first of a list.
    pub(super) fn first(&self, list: usize) -> Option<Index> {
        self.ends.get(list)?.first
    }

    /// How many are in a list.
    pub(super) fn len(&self, list: usize) -> usize {
        self.ends.get(list).map_or(0, |e| e.len)
    }

    fn link(&self, queue: Index) -> Link {
        self.links.get(queue).copied().unwrap_or_default()
    }

    /// Moves a queue to the end of a list, or out of all; where it is already, it keeps its place.
    pub(super) fn put(&mut self, queue: Index, list: Option<usize>) {
        if self.link(queue).list != list {
            self.take_out(queue);
            self.append(queue, list);
        }
    }

    /// Moves a queue to the end of the list in which it is.
    pub(super) fn rotate(&mut self, queue: Index) {
        let list = self.link(queue).list;
        self.take_out(queue);
        self.append(queue, list);
    }

    fn take_out(&mut self, queue: Index) {
        let Link {
            list,
            before,
            after,
        } = self.link(queue);
        let Some(ends) = list.and_then(|l| self.ends.get_mut(l)) else {
            return;
        };
        ends.len = ends.len.saturating_sub(1);
        match before.and_then(|b| self.links.get_mut(b)) {
            Some(link) => link.after = after,
            None => ends.first = after,
        }
        match after.and_then(|a| self.links.get_mut(a)) {
            Some(link) => link.before = before,
            None => ends.last = before,
        }
        if let Some(link) = self.links.get_mut(queue) {
            *link = Link::default();
        }
    }

    fn append(&mut self, queue: Index, list: Option<usize>) {
        let Some(ends) = list.and_then(|l| self.ends.get_mut(l)) else {
            return;
        };
        let before = ends.last;
        let Some(link) = self.links.get_mut(queue) else {
            return;
        };
        *link = Link {
            list,
            before,
            after: None,
        };
        ends.len += 1;
        ends.last = Some(queue);
        match before.and_then(|b| self.links.get_mut(b)) {
            Some(link) => link.after = Some(queue),
            None => ends.first = Some(queue),
        }
    }
}

#[kunit_tests(ochre_algo_sched_lists)]
mod tests {
    use super::*;
    use crate::algo::prng::for_each_seed;

    fn walk(lists: &Lists, list: usize) -> impl Iterator<Item = Index> + '_ {
        core::iter::successors(lists.first(list), |q| lists.link(*q).after)
    }

    #[test]
    fn lists_agree_with_plain_vectors() -> Result {
        for_each_seed("lists", |rng| {
            let mut lists = Lists::new(3)?;
            let mut model: [KVec<Index>; 3] = [KVec::new(), KVec::new(), KVec::new()];
            for _ in 0..12 {
                lists.extend()?;
            }
            for _ in 0..2000 {
                let queue = rng.index(12);
                let from = model.iter().position(|l| l.contains(&queue));
                let to = if rng.chance(25) {
                    lists.rotate(queue);
                    from
                } else {
                    let to = Some(rng.index(4)).filter(|l| *l < 3);
                    lists.put(queue, to);
                    if from == to {
                        continue;
                    }
                    to
                };
                if let Some(from) = from {
                    model[from].retain(|q| *q != queue);
                }
                if let Some(to) = to {
                    model[to].push(queue, GFP_KERNEL)?;
                }
                for (n, model) in model.iter().enumerate() {
                    assert!(walk(&lists, n).eq(model.iter().copied()));
                    assert!(lists.len(n) == model.len());
                }
            }
            Ok(())
        })
    }
}
