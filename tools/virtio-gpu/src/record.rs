// SPDX-License-Identifier: GPL-2.0
//! What happened: counters and a log of commands.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::fmt;

use crate::config::QUEUES;
use crate::wire::Cmd;
use crate::wire::Resp;

/// How many commands the log keeps.
const LOG: usize = 1024;

/// A command of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its type.
    pub kind: u32,
    /// The context.
    pub ctx: u32,
    /// The resource; 0 if the command has none.
    pub resource: u32,
    /// The fence, if it has one, and the timeline of its context.
    pub fence: Option<(u64, Option<u8>)>,
    /// The response.
    pub response: u32,
}

/// The name of a command, or its number.
pub fn command_name(kind: u32) -> String {
    match Cmd::from_code(kind) {
        Some(command) => command.name().into(),
        None => format!("{kind:#x}"),
    }
}

/// The name of a response, or its number.
pub fn response_name(kind: u32) -> String {
    match Resp::from_code(kind) {
        Some(response) => response.name().into(),
        None => format!("{kind:#x}"),
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = command_name(self.kind);
        write!(f, "{name}:ctx={}:res={}", self.ctx, self.resource)?;
        if let Some((id, ring)) = self.fence {
            write!(f, ":fence={id}")?;
            if let Some(ring) = ring {
                write!(f, ":ring={ring}")?;
            }
        }
        write!(f, ":{}", response_name(self.response))
    }
}

/// Counters and log; they live as long as the board.
#[derive(Debug, Default)]
pub struct Record {
    /// Notifications by queue.
    pub notifications: [u64; QUEUES],
    /// Register accesses: reads, writes.
    pub accesses: [u64; 2],
    /// Answers put into the used rings.
    pub answers: u64,
    /// Resets of the device.
    pub resets: u64,
    /// Bytes transferred to the host, and from there.
    pub bytes: [u64; 2],
    counts: BTreeMap<u32, u64>,
    log: VecDeque<Entry>,
}

impl Record {
    /// Notes a command.
    pub fn command(&mut self, entry: Entry) {
        // Unknown types are counted as one, so that a guest cannot fill the table.
        let known = Cmd::from_code(entry.kind).map_or(0, Cmd::code);
        *self.counts.entry(known).or_default() += 1;
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(entry);
    }

    /// Number of commands.
    pub fn commands(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Number of commands by type; type 0 stands for those that do not exist.
    pub fn counts(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.counts.iter().map(|(kind, count)| (*kind, *count))
    }

    /// The latest commands, oldest first.
    pub fn log(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.log.iter()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
