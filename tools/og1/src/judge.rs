// SPDX-License-Identifier: GPL-2.0
//! The judge: counts and names each breach of the specification by the driver.
//!
//! Counts live as long as the board; no reset clears them, only the control socket does. Lock: one
//! mutex around everything, a leaf.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use crate::hw::mem;

/// How many violations the log keeps.
const LOG: usize = 64;

/// A rule of the specification that a driver can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Rule {
    /// A register offset that is not in the map.
    RegUnknown = mem::VIOL_REG_UNKNOWN,
    /// A write to a read-only register.
    RegReadOnly = mem::VIOL_REG_READ_ONLY,
    /// A read of a write-only register.
    RegWriteOnly = mem::VIOL_REG_WRITE_ONLY,
    /// An access that is not 32 bits wide and aligned.
    RegWidth = mem::VIOL_REG_WIDTH,
    /// Bits written that no field has.
    RegReserved = mem::VIOL_REG_RESERVED,
    /// A value that the register does not take.
    RegValue = mem::VIOL_REG_VALUE,
    /// A queue bound to a slot that is not empty, or a slot emptied that holds none.
    SlotState = mem::VIOL_SLOT_STATE,
    /// A malformed queue descriptor.
    Desc = mem::VIOL_DESC,
    /// A queue id bound twice or out of range.
    QueueId = mem::VIOL_QUEUE_ID,
    /// An invalid packet in a privileged ring.
    KernelPacket = mem::VIOL_KERNEL_PACKET,
    /// A producer's position that makes no sense.
    Wptr = mem::VIOL_WPTR,
    /// A queue whose context is not valid.
    Context = mem::VIOL_CONTEXT,
    /// A malformed page-table entry.
    Pte = mem::VIOL_PTE,
    /// A privileged access to a board address that is not there.
    Address = mem::VIOL_ADDRESS,
    /// Work asked for while bus mastering was off.
    BusMaster = mem::VIOL_BUS_MASTER,
    /// An engine used before the firmware ran.
    NoFirmware = mem::VIOL_NO_FIRMWARE,
    /// A doorbell that is none.
    Doorbell = mem::VIOL_DOORBELL,
    /// A fault ring position that goes beyond what was written.
    FaultRptr = mem::VIOL_FAULT_RPTR,
    /// A clock or voltage written while a change of it was under way.
    PowerBusy = mem::VIOL_POWER_BUSY,
    /// A voltage below what the clock needs.
    Undervoltage = mem::VIOL_UNDERVOLTAGE,
    /// A temperature above the limit.
    Overtemp = mem::VIOL_OVERTEMP,
    /// A position of the stream that goes beyond what was written.
    StreamRptr = mem::VIOL_STREAM_RPTR,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Rule; 22] = [
        Rule::RegUnknown,
        Rule::RegReadOnly,
        Rule::RegWriteOnly,
        Rule::RegWidth,
        Rule::RegReserved,
        Rule::RegValue,
        Rule::SlotState,
        Rule::Desc,
        Rule::QueueId,
        Rule::KernelPacket,
        Rule::Wptr,
        Rule::Context,
        Rule::Pte,
        Rule::Address,
        Rule::BusMaster,
        Rule::NoFirmware,
        Rule::Doorbell,
        Rule::FaultRptr,
        Rule::PowerBusy,
        Rule::Undervoltage,
        Rule::Overtemp,
        Rule::StreamRptr,
    ];

    /// The number that registers and the control socket use, `VIOL_*`.
    pub fn code(self) -> u32 {
        self as u32
    }

    /// A name without blanks.
    pub fn name(self) -> &'static str {
        match self {
            Rule::RegUnknown => "reg-unknown",
            Rule::RegReadOnly => "reg-read-only",
            Rule::RegWriteOnly => "reg-write-only",
            Rule::RegWidth => "reg-width",
            Rule::RegReserved => "reg-reserved",
            Rule::RegValue => "reg-value",
            Rule::SlotState => "slot-state",
            Rule::Desc => "desc",
            Rule::QueueId => "queue-id",
            Rule::KernelPacket => "kernel-packet",
            Rule::Wptr => "wptr",
            Rule::Context => "context",
            Rule::Pte => "pte",
            Rule::Address => "address",
            Rule::BusMaster => "bus-master",
            Rule::NoFirmware => "no-firmware",
            Rule::Doorbell => "doorbell",
            Rule::FaultRptr => "fault-rptr",
            Rule::PowerBusy => "power-busy",
            Rule::Undervoltage => "undervoltage",
            Rule::Overtemp => "overtemp",
            Rule::StreamRptr => "stream-rptr",
        }
    }
}

/// One breach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// What it was about: an offset, an address, a position.
    pub info: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{:#x}",
            self.rule.code(),
            self.rule.name(),
            self.info
        )
    }
}

#[derive(Default)]
struct State {
    count: u32,
    counts: [u32; 32],
    log: VecDeque<Violation>,
}

/// The judge.
#[derive(Default)]
pub struct Judge {
    state: Mutex<State>,
}

impl Judge {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a breach of `rule` about `info`.
    pub fn report(&self, rule: Rule, info: u64) {
        let violation = Violation { rule, info };
        log::warn!("violation {violation}");
        let mut state = self.state();
        state.count = state.count.saturating_add(1);
        if let Some(count) = state.counts.get_mut(rule as usize) {
            *count = count.saturating_add(1);
        }
        if state.log.len() == LOG {
            state.log.pop_front();
        }
        state.log.push_back(violation);
    }

    /// Number of breaches.
    pub fn count(&self) -> u32 {
        self.state().count
    }

    /// Number of breaches of the rule with this code; 0 for codes that are none.
    pub fn count_of(&self, code: u32) -> u32 {
        let state = self.state();
        let index = usize::try_from(code).unwrap_or(usize::MAX);
        state.counts.get(index).copied().unwrap_or(0)
    }

    /// The latest breach.
    pub fn last(&self) -> Option<Violation> {
        self.state().log.back().copied()
    }

    /// The latest 64 breaches, oldest first.
    pub fn log(&self) -> Vec<Violation> {
        self.state().log.iter().copied().collect()
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.state() = State::default();
    }
}
