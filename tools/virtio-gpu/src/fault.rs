// SPDX-License-Identifier: GPL-2.0
//! Faults on demand: what the board is to do wrong, for how long.
//!
//! They belong to the board: no reset ends them, only the control socket does, or that their count
//! is used up.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::config::Capset;
use crate::wire::Cmd;

/// Commands that a fault is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// Every command.
    Any,
    /// Those of a type.
    Kind(Cmd),
}

impl Which {
    /// Whether a command of this type is meant.
    pub fn is(self, kind: u32) -> bool {
        match self {
            Self::Any => true,
            Self::Kind(command) => command.code() == kind,
        }
    }
}

/// An answer that is to be another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// To which commands.
    pub which: Which,
    /// The response.
    pub response: u32,
    /// The command is carried out all the same.
    pub executed: bool,
    /// So many commands are answered as they should be first.
    pub after: u32,
    /// So many are then answered like this.
    pub count: u32,
}

/// What is wrong with an entry of the used ring or with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// An id that the ring does not have.
    BadId,
    /// An id that is not in flight.
    FreeId,
    /// The same entry twice.
    Twice,
    /// A length beyond the room.
    Long,
    /// A response that ends before its header does.
    Short,
    /// The length of a response of which only the header was written.
    Hollow,
    /// An index far ahead.
    Jump,
    /// An index that goes back.
    Back,
    /// Random bytes for a response.
    Garbage,
    /// The response to another fence.
    Fence,
}

impl Lie {
    /// All, with their names.
    pub const ALL: [(&'static str, Self); 10] = [
        ("bad-id", Self::BadId),
        ("free-id", Self::FreeId),
        ("twice", Self::Twice),
        ("long", Self::Long),
        ("short", Self::Short),
        ("hollow", Self::Hollow),
        ("jump", Self::Jump),
        ("back", Self::Back),
        ("garbage", Self::Garbage),
        ("fence", Self::Fence),
    ];
}

/// The faults.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Other answers, in the order in which they were asked for.
    pub answers: Vec<Answer>,
    /// Neither fetches commands nor answers any.
    pub stalled: bool,
    /// Each answer is late by this.
    pub late: Duration,
    /// Answers that are kept until they are released.
    pub held: BTreeSet<Which>,
    /// The next entry of the control queue's used ring is a lie, so often.
    pub lie: Option<(Lie, u32)>,
    /// So many fenced answers are still to be collected, and given back in reverse order.
    pub reorder: u32,
    /// What GET_CAPSET_INFO answers instead, by index.
    pub capsets: Vec<(u32, Capset)>,
    /// How many capsets the configuration tells of.
    pub capset_count: Option<u32>,
    /// Reads are all ones, writes are ignored, nothing happens.
    pub silent: bool,
    /// A reset by the driver does not happen before this ends.
    pub refuse_reset: bool,
}

/// Faults of one kind that can be asked for at the same time.
pub const PENDING_MAX: usize = 64;

impl Faults {
    /// The answer that a command of this type is to get instead of its own, if any; counts it.
    pub fn answer(&mut self, kind: u32) -> Option<Answer> {
        let at = self.answers.iter().position(|a| a.which.is(kind))?;
        let answer = &mut self.answers[at];
        if answer.after > 0 {
            answer.after -= 1;
            return None;
        }
        let found = *answer;
        answer.count -= 1;
        if answer.count == 0 {
            self.answers.remove(at);
        }
        Some(found)
    }

    /// The lie that the next answer is to be; counts it.
    pub fn lie(&mut self) -> Option<Lie> {
        let (lie, count) = self.lie?;
        self.lie = (count > 1).then_some((lie, count - 1));
        Some(lie)
    }

    /// Whether the answer to a command of this type is kept.
    pub fn holds(&self, kind: u32) -> bool {
        self.held.iter().any(|which| which.is(kind))
    }

    /// What is told of a capset at an index instead of the truth.
    pub fn capset(&self, index: u32) -> Option<Capset> {
        let found = self.capsets.iter().find(|(at, _)| *at == index)?;
        Some(found.1)
    }
}
