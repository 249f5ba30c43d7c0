// SPDX-License-Identifier: GPL-2.0
//! Counters: what the board and its engines have done, kept growing over resets.
//!
//! A counter is selected by one register and read through two others, so the three belong together
//! under a lock; a raw one, since perf asks with interrupts off. A reset of the board sets most
//! counters to 0: [`Counters::freeze`] reads them all before, and until [`Counters::thaw`] says that
//! the board is back everyone gets those values. Specification, section "Counters".

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    hw::mem,
    regs::{
        self,
        Regs, //
    },
    slots::Slots, //
};
use crate::{
    algo::monotonic::Monotonic,
    ext::raw_spinlock::{
        new_raw_spinlock,
        RawSpinLock, //
    },
    hal::{
        BoardCounter,
        Counter,
        EngineCounter,
        EngineId, //
    }, //
};

/// What is known of the counters.
struct Bank {
    /// By [`Counters::place`].
    values: KVec<Monotonic>,
    /// The board is being reset: its registers say nothing.
    frozen: bool,
}

/// The counters of a board.
#[pin_data]
pub(super) struct Counters {
    /// Version of the unit, 0 if the board has none.
    version: u16,
    slots: Arc<Slots>,
    /// Also guards the registers of the unit.
    #[pin]
    bank: RawSpinLock<Bank>,
}

/// A counter as `CTR_SELECT` has it.
#[derive(Clone, Copy)]
struct Select {
    unit: u32,
    counter: u32,
}

impl Counters {
    /// Counters at 0, by version `version` of the unit; [`Self::thaw`] before they are read.
    pub(super) fn new(version: u16, slots: Arc<Slots>) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let engines = slots.engines().len();
            let places = BoardCounter::ALL.len() + engines * EngineCounter::ALL.len();
            let bank = Bank {
                values: KVec::from_elem(Monotonic::default(), places, GFP_KERNEL)?,
                frozen: true,
            };
            Ok(try_pin_init!(Self {
                version,
                slots,
                bank <- new_raw_spinlock!(bank, "ochre_counters"),
            }))
        })
    }

    /// Whether the board has a counter.
    pub(super) fn has(&self, counter: Counter) -> bool {
        self.select(counter).is_ok()
    }

    /// How a counter is selected. [`EINVAL`] if the board does not have it.
    fn select(&self, counter: Counter) -> Result<Select> {
        let (unit, (number, since)) = match counter {
            Counter::Board(counter) => (0, board_number(counter)),
            Counter::Engine(engine, counter) => {
                let index = self.slots.engines().get(engine.index()).ok_or(EINVAL)?;
                (1 + u32::from(*index), engine_number(counter))
            }
        };
        if self.version < since {
            return Err(EINVAL);
        }
        Ok(Select {
            unit,
            counter: number,
        })
    }

    /// Where the value of a counter stands.
    fn place(counter: Counter) -> usize {
        match counter {
            Counter::Board(counter) => counter.index(),
            Counter::Engine(engine, counter) => {
                let engines = BoardCounter::ALL.len();
                engines + engine.index() * EngineCounter::ALL.len() + counter.index()
            }
        }
    }

    /// All counters that the board has.
    fn all(&self) -> impl Iterator<Item = Counter> + '_ {
        let board = BoardCounter::ALL.iter().copied().map(Counter::Board);
        let engines = (0u8..).zip(self.slots.engines()).flat_map(|(id, _)| {
            let counters = EngineCounter::ALL.iter().copied();
            counters.map(move |counter| Counter::Engine(EngineId(id), counter))
        });
        Iterator::chain(board, engines).filter(|&counter| self.has(counter))
    }

    /// Value of a counter. In any context but a non-maskable interrupt.
    pub(super) fn read(&self, regs: &Regs, counter: Counter) -> Result<u64> {
        let select = self.select(counter)?;
        let mut bank = self.bank.lock();
        let frozen = bank.frozen;
        let value = bank.values.get_mut(Self::place(counter)).ok_or(EINVAL)?;
        if !frozen {
            value.advance(fetch(regs, select)?);
        }
        Ok(value.value())
    }

    /// The registers of the unit as they are: `CTR_SELECT`, `CTR_LO`, `CTR_HI`.
    pub(super) fn registers(&self, regs: &Regs) -> Result<[u32; 3]> {
        let _bank = self.bank.lock();
        Ok([
            regs.read::<regs::CTR_SELECT>()?.into(),
            regs.read::<regs::CTR_LO>()?.into(),
            regs.read::<regs::CTR_HI>()?.into(),
        ])
    }

    /// The board is about to be reset.
    pub(super) fn freeze(&self, regs: &Regs) {
        {
            let mut bank = self.bank.lock();
            if core::mem::replace(&mut bank.frozen, true) {
                return;
            }
        }
        // Each one for itself: together they would keep interrupts off for long.
        for counter in self.all() {
            let mut bank = self.bank.lock();
            let register = self.select(counter).and_then(|select| fetch(regs, select));
            let Ok(register) = register else {
                // A board that is silent has nothing more to say.
                break;
            };
            if let Some(value) = bank.values.get_mut(Self::place(counter)) {
                value.advance(register);
            }
        }
        for counter in self.all().filter(|&counter| !survives_reset(counter)) {
            let mut bank = self.bank.lock();
            if let Some(value) = bank.values.get_mut(Self::place(counter)) {
                value.fold();
            }
        }
    }

    /// The board has been reset.
    pub(super) fn thaw(&self) {
        self.bank.lock().frozen = false;
    }
}

/// Reads a counter. With the bank locked.
fn fetch(regs: &Regs, select: Select) -> Result<u64> {
    let select = regs::CTR_SELECT::zeroed()
        .try_with_unit(select.unit)?
        .try_with_counter(select.counter)?;
    regs.write_ordered(select)?;
    regs.read_pair::<regs::CTR_LO, regs::CTR_HI>()
}

/// Number of a counter, and the version of the unit that brought it.
fn board_number(counter: BoardCounter) -> (u32, u16) {
    match counter {
        BoardCounter::Time => (mem::CTR_TIME, 1),
        BoardCounter::VramRead => (mem::CTR_VRAM_READ, 1),
        BoardCounter::VramWrite => (mem::CTR_VRAM_WRITE, 1),
        BoardCounter::BusRead => (mem::CTR_BUS_READ, 1),
        BoardCounter::BusWrite => (mem::CTR_BUS_WRITE, 1),
        BoardCounter::TlbHits => (mem::CTR_TLB_HITS, 1),
        BoardCounter::TlbMisses => (mem::CTR_TLB_MISSES, 1),
        BoardCounter::Faults => (mem::CTR_FAULTS, 1),
        BoardCounter::Interrupts => (mem::CTR_INTERRUPTS, 1),
        BoardCounter::Energy => (mem::CTR_ENERGY, 2),
        BoardCounter::CoreCycles => (mem::CTR_CORE_CYCLES, 2),
        BoardCounter::MemoryCycles => (mem::CTR_MEMORY_CYCLES, 2),
        BoardCounter::Throttled => (mem::CTR_THROTTLED, 2),
        BoardCounter::ClockChanges => (mem::CTR_CLOCK_CHANGES, 2),
    }
}

/// As [`board_number`].
fn engine_number(counter: EngineCounter) -> (u32, u16) {
    match counter {
        EngineCounter::Cycles => (mem::CTR_CYCLES, 1),
        EngineCounter::Busy => (mem::CTR_BUSY, 1),
        EngineCounter::Stall => (mem::CTR_STALL, 1),
        EngineCounter::Packets => (mem::CTR_PACKETS, 1),
        EngineCounter::Blocks => (mem::CTR_BLOCKS, 1),
        EngineCounter::Instructions => (mem::CTR_INSTRUCTIONS, 1),
        EngineCounter::Switches => (mem::CTR_SWITCHES, 1),
        EngineCounter::Preemptions => (mem::CTR_PREEMPTIONS, 1),
        EngineCounter::ClockGated => (mem::CTR_CLOCK_GATED, 2),
        EngineCounter::PowerGated => (mem::CTR_POWER_GATED, 2),
        EngineCounter::Wakes => (mem::CTR_WAKES, 2),
    }
}

/// Whether a reset of the board leaves a counter as it is.
fn survives_reset(counter: Counter) -> bool {
    matches!(
        counter,
        Counter::Board(BoardCounter::Time | BoardCounter::Interrupts | BoardCounter::Energy)
    )
}
