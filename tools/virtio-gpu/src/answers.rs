// SPDX-License-Identifier: GPL-2.0
//! Answers on their way: executed commands whose chain is still to be given back.
//!
//! An answer is due at a time. Answers with a fence are due not before those before them on the same
//! timeline. There are at most as many as descriptors, since each has a chain.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::ring::Chain;

/// What happens on the device's side when an answer is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Nothing.
    None,
    /// The place at this offset of the window is free.
    Unmapped(u64),
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The queue.
    pub queue: usize,
    /// The chain.
    pub chain: Chain,
    /// Type of the command.
    pub kind: u32,
    /// It has a fence.
    pub fenced: bool,
    /// The response.
    pub bytes: Vec<u8>,
    /// What is left to do.
    pub finish: Finish,
}

/// A timeline of fences: the device's, or one of a context.
pub type Timeline = Option<(u32, u8)>;

/// Contexts that can have timelines of their own at a time.
const TIMELINES: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
struct Line {
    due: Instant,
    fence: u64,
}

/// All answers that were not given yet.
#[derive(Debug, Default)]
pub struct Answers {
    due: BTreeMap<(Instant, u64), Answer>,
    held: Vec<Answer>,
    reversed: Vec<Answer>,
    next: u64,
    lines: BTreeMap<Timeline, Line>,
}

impl Answers {
    /// Notes a fence on a timeline that could signal at `due`; returns when it does, and whether its
    /// id is above those before it.
    pub fn fence(&mut self, line: Timeline, fence: u64, due: Instant) -> (Instant, bool) {
        if self.lines.len() >= TIMELINES {
            self.lines.clear();
        }
        let entry = self.lines.entry(line).or_insert(Line { due, fence: 0 });
        let in_order = fence > entry.fence;
        entry.due = entry.due.max(due);
        entry.fence = fence;
        (entry.due, in_order)
    }

    /// A context is gone, and its timelines with it.
    pub fn forget_context(&mut self, ctx: u32) {
        let of = Some((ctx, u8::MIN))..=Some((ctx, u8::MAX));
        let lines: Vec<Timeline> = self.lines.range(of).map(|(line, _)| *line).collect();
        for line in lines {
            self.lines.remove(&line);
        }
    }

    /// Adds one that is due at this time.
    pub fn push(&mut self, due: Instant, answer: Answer) {
        self.next += 1;
        self.due.insert((due, self.next), answer);
    }

    /// Adds one that waits for its release.
    pub fn hold(&mut self, answer: Answer) {
        self.held.push(answer);
    }

    /// Adds one of those that come in reverse order.
    pub fn reverse(&mut self, answer: Answer) {
        self.reversed.push(answer);
    }

    /// Those that were to come in reverse order are due now.
    pub fn release_reversed(&mut self, now: Instant) {
        while let Some(answer) = self.reversed.pop() {
            self.push(now, answer);
        }
    }

    /// Those that waited and for which `which` says so are due now; returns how many.
    pub fn release(&mut self, now: Instant, which: impl Fn(u32) -> bool) -> usize {
        let (go, stay): (Vec<_>, Vec<_>) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|answer| which(answer.kind));
        self.held = stay;
        let count = go.len();
        for answer in go {
            self.push(now, answer);
        }
        count
    }

    /// Takes one that is due.
    pub fn pop(&mut self, now: Instant) -> Option<Answer> {
        let first = self.due.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// When the next is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((due, _), _)| *due)
    }

    /// How many were not given yet, and how many of them wait for their release.
    pub fn counts(&self) -> (usize, usize) {
        let waiting = self.held.len() + self.reversed.len();
        (self.due.len() + waiting, waiting)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
