// SPDX-License-Identifier: GPL-2.0
//! The judge: counts and names each breach of the specification by the driver.
//!
//! Counts live as long as the board; no reset clears them, only the control socket does.

use std::collections::VecDeque;
use std::fmt;

/// How many violations the log keeps.
const LOG: usize = 64;

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $code:literal, $name:literal;)*) => {
        /// A rule of the specification that a driver can break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Rule { $($(#[$doc])* $rule = $code),* }

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Rule] = &[$(Rule::$rule),*];

            /// A name without blanks.
            pub fn name(self) -> &'static str {
                match self { $(Rule::$rule => $name),* }
            }
        }
    };
}

rules! {
    /// An access to a register that is not there.
    RegUnknown = 1, "reg-unknown";
    /// An access that is not as wide as the field (4.1.3.1).
    RegWidth = 2, "reg-width";
    /// A write to a read-only register.
    RegReadOnly = 3, "reg-read-only";
    /// A device status that the driver may not set, or bits of it taken back (2.1.1, 3.1.1).
    Status = 4, "status";
    /// Features accepted that were not offered, or too late (2.2.1).
    Features = 5, "features";
    /// A queue set up with values that cannot be, or at the wrong time (4.1.4.3.2).
    QueueSetup = 6, "queue-setup";
    /// A notification of a queue that is not enabled, before DRIVER_OK, or with a wrong value.
    Notify = 7, "notify";
    /// Work while bus mastering was off.
    BusMaster = 8, "bus-master";
    /// An address that is no memory.
    Dma = 9, "dma";
    /// An index of the available ring that jumps, or a head that is no descriptor (2.7.6).
    Avail = 10, "avail";
    /// A malformed chain of descriptors (2.7.5).
    Descriptor = 11, "descriptor";
    /// A descriptor made available that the device still holds.
    InFlight = 12, "in-flight";
    /// A command that is shorter than its structure, or than what it announces.
    CommandShort = 13, "command-short";
    /// A command that does not exist, or does not exist in this queue.
    CommandUnknown = 14, "command-unknown";
    /// No room for the response.
    ResponseRoom = 15, "response-room";
    /// A field with a value that it cannot have, padding that is not 0.
    CommandField = 16, "command-field";
    /// A command or flag of a feature that was not accepted.
    FeatureMissing = 17, "feature-missing";
    /// A resource that does not exist, or does not any more.
    ResourceUnknown = 18, "resource-unknown";
    /// A resource id given again while the resource, or its mapping, still exists.
    ResourceExists = 19, "resource-exists";
    /// A mapped resource unreferenced.
    UnrefMapped = 20, "unref-mapped";
    /// Pages attached twice, taken off that were not there, too few, or none where some are needed.
    Backing = 21, "backing";
    /// A context that does not exist.
    ContextUnknown = 22, "context-unknown";
    /// A context id given again.
    ContextExists = 23, "context-exists";
    /// A mapping that cannot be: no blob, not mappable, twice, not aligned, outside, none there.
    Map = 24, "map";
    /// A place in the window that another mapping still has.
    WindowBusy = 25, "window-busy";
    /// A fence id that is not above the one before on its timeline, or a ring that cannot be.
    Fence = 26, "fence";
    /// A capset that does not exist.
    Capset = 27, "capset";
    /// A display that does not exist, or a place outside.
    Scanout = 28, "scanout";
    /// A blob without bytes, or not aligned.
    BlobSize = 29, "blob-size";
}

/// One breach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// What it was about: an offset, an address, an id.
    pub info: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (code, name) = (self.rule as u32, self.rule.name());
        write!(f, "{code}:{name}:{:#x}", self.info)
    }
}

/// The judge.
#[derive(Debug, Default)]
pub struct Judge {
    count: u32,
    log: VecDeque<Violation>,
}

impl Judge {
    /// Counts a breach of `rule` about `info`.
    pub fn report(&mut self, rule: Rule, info: u64) {
        let violation = Violation { rule, info };
        log::warn!("violation {violation}");
        self.count = self.count.saturating_add(1);
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(violation);
    }

    /// Number of breaches.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The latest breaches, oldest first.
    pub fn log(&self) -> impl Iterator<Item = &Violation> {
        self.log.iter()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
