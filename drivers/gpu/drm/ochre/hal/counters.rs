// SPDX-License-Identifier: GPL-2.0

//! What a board counts.
//!
//! A board need not have all of them: [`Hal::has_counter`](super::Hal::has_counter).

use super::EngineId;

macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// All of them.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its place in [`Self::ALL`].
            pub(crate) const fn index(self) -> usize {
                // CAST: The discriminants count from 0.
                self as usize
            }
        }
    };
}

counters! {
    /// A counter of the whole board.
    BoardCounter {
        /// Board time in ns.
        Time,
        /// Bytes that engines read from VRAM.
        VramRead,
        /// Bytes that engines wrote to VRAM.
        VramWrite,
        /// Bytes that engines read from system memory.
        BusRead,
        /// Bytes that engines wrote to system memory.
        BusWrite,
        /// Translations that the TLB had.
        TlbHits,
        /// Translations that needed a walk of the page tables.
        TlbMisses,
        /// Faults.
        Faults,
        /// Interrupts sent.
        Interrupts,
        /// Energy in µJ.
        Energy,
        /// Cycles of the core clock, whether anything worked or not.
        CoreCycles,
        /// Cycles of the memory clock, likewise.
        MemoryCycles,
        /// Board time in ns during which the board itself ran slower than its clock says.
        Throttled,
        /// Changes of a clock.
        ClockChanges,
    }
}

counters! {
    /// A counter of one engine.
    EngineCounter {
        /// Cycles of the core clock during which it worked.
        Cycles,
        /// Board time in ns during which it worked.
        Busy,
        /// Cycles of those in [`Self::Cycles`] in which it waited for memory.
        Stall,
        /// Packets retired.
        Packets,
        /// Blocks of work-items retired.
        Blocks,
        /// Instructions executed, each of one work-item.
        Instructions,
        /// Changes from one queue to another.
        Switches,
        /// Changes that interrupted a queue which had more to do.
        Preemptions,
        /// Board time in ns during which its clock was switched off.
        ClockGated,
        /// Board time in ns during which it was without power.
        PowerGated,
        /// How often it was switched on again.
        Wakes,
    }
}

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Of the board.
    Board(BoardCounter),
    /// Of an engine.
    Engine(EngineId, EngineCounter),
}
