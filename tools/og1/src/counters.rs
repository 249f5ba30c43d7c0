// SPDX-License-Identifier: GPL-2.0
//! The counters that software can select: of the board and of each engine.
//!
//! The scheduler writes them, register reads may come at any time; each is one atomic word.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use crate::hw::mem;
use crate::hw::regs::ENGINES_MAX;

/// Numbers of the counters of the board, `CTR_TIME` to `CTR_CLOCK_CHANGES`.
pub const BOARD_COUNTERS: usize = mem::CTR_CLOCK_CHANGES as usize + 1;
/// Counters of an engine, `CTR_CYCLES` to `CTR_WAKES`.
pub const ENGINE_COUNTERS: usize = mem::CTR_WAKES as usize + 1;
/// Numbers between the counters of the board that name none.
const NONE: std::ops::Range<u32> = mem::CTR_INTERRUPTS + 1..mem::CTR_ENERGY;

/// All counters.
#[derive(Default)]
pub struct Counters {
    board: [AtomicU64; BOARD_COUNTERS],
    engines: [[AtomicU64; ENGINE_COUNTERS]; ENGINES_MAX],
}

fn add(counter: Option<&AtomicU64>, n: u64) {
    if let Some(counter) = counter {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

impl Counters {
    /// Adds to a counter of the board, `CTR_*`.
    pub fn board(&self, counter: u32, n: u64) {
        add(self.board.get(counter as usize), n);
    }

    /// Adds to a counter of engine `engine`, `CTR_*`.
    pub fn engine(&self, engine: usize, counter: u32, n: u64) {
        add(
            self.engines
                .get(engine)
                .and_then(|e| e.get(counter as usize)),
            n,
        );
    }

    /// Value by the encoding of `CTR_SELECT`: unit 0 is the board, 1 + i engine i.
    pub fn get(&self, unit: u32, counter: u32) -> Option<u64> {
        if unit == 0 && NONE.contains(&counter) {
            return None;
        }
        let counter = counter as usize;
        let cell = match (unit as usize).checked_sub(1) {
            None => self.board.get(counter),
            Some(engine) => self.engines.get(engine)?.get(counter),
        };
        cell.map(|c| c.load(Ordering::Relaxed))
    }

    /// All to zero.
    pub fn reset(&self) {
        for counter in self.board.iter().chain(self.engines.iter().flatten()) {
            counter.store(0, Ordering::Relaxed);
        }
    }
}
