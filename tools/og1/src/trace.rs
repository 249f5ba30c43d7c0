// SPDX-License-Identifier: GPL-2.0
//! A record of what happened, in board time: the means by which two runs are compared.

use std::fmt;

/// Most events that a trace keeps.
const TRACE_MAX: usize = 1 << 20;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A slot took a queue.
    Bind,
    /// A slot became empty.
    Empty,
    /// The engine turned to the slot.
    Switch,
    /// The queue began a packet: its opcode.
    Start(u8),
    /// The queue retired a packet: its opcode.
    Retire(u8),
    /// The queue retired a block of work-items: its index in the grid.
    Block(u64),
    /// The queue went to sleep.
    Sleep,
    /// The queue waits for a semaphore or a time.
    Wait,
    /// The queue faulted: the code.
    Fault(u32),
    /// A fence was written: its value.
    Fence(u64),
    /// The alarm went off.
    Alarm,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Board time in ns.
    pub time: u64,
    /// Engine; 0xff for the board.
    pub engine: u8,
    /// Slot; 0xff for the engine or the board.
    pub slot: u8,
    /// What happened.
    pub what: What,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.time)?;
        match self.engine {
            u8::MAX => write!(f, "board")?,
            engine => write!(f, "{engine}.{}", self.slot)?,
        }
        write!(f, " {:?}", self.what)
    }
}

/// The record; off until it is started.
#[derive(Default)]
pub struct Trace {
    events: Option<Vec<Event>>,
}

impl Trace {
    /// Starts an empty record.
    pub fn start(&mut self) {
        self.events = Some(Vec::new());
    }

    /// Ends the record and returns it.
    pub fn take(&mut self) -> Vec<Event> {
        self.events.take().unwrap_or_default()
    }

    /// Adds an event; dropped if the record is off or full.
    pub fn add(&mut self, time: u64, engine: usize, slot: usize, what: What) {
        let short = |n| u8::try_from(n).unwrap_or(u8::MAX);
        match &mut self.events {
            Some(events) if events.len() < TRACE_MAX => {
                events.push(Event {
                    time,
                    engine: short(engine),
                    slot: short(slot),
                    what,
                });
            }
            _ => {}
        }
    }
}
