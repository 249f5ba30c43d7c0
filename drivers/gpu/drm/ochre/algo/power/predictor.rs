// SPDX-License-Identifier: GPL-2.0

//! Which level does the work deserve? The seam for whoever knows better.
//!
//! A [`Predictor`] sees what the governor measured and answers with a level; what may be had of it
//! (lock, power, heat) is not its business. [`Ewma`] takes what was for what will be.

use kernel::prelude::*;

use super::{
    fixed::{
        ewma,
        mul_div,
        of,
        share,
        ONE, //
    },
    levels::{
        LevelId,
        Table,
        LEVELS_MAX, //
    },
    sample::Interval, //
};

/// What is known when a level is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features<'a> {
    /// The levels of the domain.
    pub(crate) table: &'a Table,
    /// Fastest and slowest level that the bounds leave, both included.
    pub(crate) range: (LevelId, LevelId),
    /// The one that was chosen last.
    pub(crate) now: LevelId,
    /// Power of the board at each level with the present work, in mW.
    pub(crate) cost_mw: &'a [i64; LEVELS_MAX],
    /// Share of the busy time that goes as 1 / clock at the level `now`.
    pub(crate) bound: i64,
    /// How much longer work may take than at the fastest level of the range, as a share.
    pub(crate) stretch: i64,
}

/// Chooses a level for work that is there.
pub(crate) trait Predictor {
    /// The level that serves the work best, within the range.
    fn choose(&mut self, f: &Features<'_>) -> LevelId;
}

/// Energies that differ by less than this part are the same: 1 / this.
const SAME: i64 = 512;

/// Chooses the level that costs the least energy of those that stretch the work by no more than
/// they may.
#[derive(Debug, Default)]
pub(crate) struct Ewma;

impl Predictor for Ewma {
    fn choose(&mut self, f: &Features<'_>) -> LevelId {
        let now_khz = i64::from(f.table.level(f.now).khz);
        // Time that the work takes, in units of the time that it takes now.
        let time = |id: LevelId| {
            let khz = i64::from(f.table.level(id).khz.max(1));
            (ONE - f.bound).saturating_add(mul_div(f.bound, now_khz, khz))
        };
        let (fastest, slowest) = f.range;
        let least = time(fastest);
        let mut best = fastest;
        let mut best_energy = i64::MAX / 2;
        for id in fastest..=slowest {
            // Not down and up again when the load lies between two levels.
            let may = if id > f.now {
                f.stretch / 4 * 3
            } else {
                f.stretch
            };
            if id != fastest && time(id) > least.saturating_add(of(may, least)) {
                break;
            }
            let cost = f.cost_mw.get(id).copied().unwrap_or(i64::MAX);
            let energy = mul_div(cost, time(id), ONE);
            // Of two that cost the same the slower: rounding shall not decide.
            if energy <= best_energy.saturating_add(best_energy / SAME) {
                (best, best_energy) = (id, energy);
            }
        }
        best
    }
}

/// Time constant of the averages, in busy ns.
const TAU_NS: i64 = 1_000_000;

/// What the work waits for: core or memory.
#[derive(Debug)]
pub(crate) struct Bound {
    core: i64,
    memory: i64,
}

impl Bound {
    /// Work that waits for both, until something is known.
    pub(crate) const fn new() -> Self {
        Self {
            core: ONE,
            memory: ONE,
        }
    }

    /// Takes over an interval. Engines of the mask `compute` are slow when the core is. The memory
    /// moves `bytes_per_cycle` for each engine, so traffic says how long it has taken.
    pub(crate) fn update(&mut self, i: &Interval, compute: u16, bytes_per_cycle: u32) {
        let busy = i.busiest(u16::MAX);
        if busy <= i.dt_ns / 16 {
            return;
        }
        let rate = i64::from(bytes_per_cycle).saturating_mul(i64::from(i.memory_khz));
        let moving = mul_div(i.traffic, 1_000_000, rate.max(1));
        let memory = share(moving, busy);
        let core = if i.busiest(compute) > busy / 16 && memory < ONE / 8 * 7 {
            ONE
        } else {
            ONE - memory
        };
        // More need is heard at once, less has to last.
        let hear = |old: i64, new: i64| new.max(ewma(old, new, busy, TAU_NS));
        self.core = hear(self.core, core);
        self.memory = hear(self.memory, memory);
    }

    /// Share of the busy time that goes as 1 / core clock.
    pub(crate) fn core(&self) -> i64 {
        self.core
    }

    /// Share of the busy time that goes as 1 / memory clock.
    pub(crate) fn memory(&self) -> i64 {
        self.memory
    }
}

#[kunit_tests(ochre_algo_power_predictor)]
mod tests {
    use super::*;
    use crate::algo::power::{
        levels::Domain,
        plant::{
            pstates,
            quiet, //
        }, //
    };

    fn choose(
        bound: i64,
        now: LevelId,
        range: (LevelId, LevelId),
        stretch: i64,
    ) -> Result<LevelId> {
        let table = *pstates()?.table(Domain::Core);
        let mut cost_mw = [0; LEVELS_MAX];
        for (cost, level) in cost_mw.iter_mut().zip(table.levels()) {
            *cost = 10_000 + level.scale() / 20;
        }
        Ok(Ewma.choose(&Features {
            table: &table,
            range,
            now,
            cost_mw: &cost_mw,
            bound,
            stretch,
        }))
    }

    #[test]
    fn work_that_waits_for_the_clock_gets_the_fastest_of_the_range() -> Result {
        assert!(choose(ONE, 3, (0, 4), ONE / 100)? == 0);
        assert!(choose(ONE, 3, (2, 4), ONE / 100)? == 2);
        Ok(())
    }

    #[test]
    fn work_that_does_not_gets_the_slowest() -> Result {
        assert!(choose(0, 0, (0, 4), ONE / 100)? == 4);
        assert!(choose(0, 0, (0, 3), ONE / 100)? == 3);
        Ok(())
    }

    #[test]
    fn who_may_take_longer_gets_the_cheapest_not_the_slowest() -> Result {
        // Four times as long at 400 MHz costs more than it saves.
        assert!(choose(ONE, 0, (0, 4), 10 * ONE)? == 3);
        assert!(choose(ONE, 0, (0, 4), ONE / 3)? == 1);
        Ok(())
    }

    #[test]
    fn load_between_two_levels_stays_where_it_is() -> Result {
        // A share that stretches by nine tenths of what it may.
        let bound = ONE / 22;
        assert!(choose(bound, 0, (0, 1), ONE / 100)? == 0);
        let at_slower = mul_div(bound, 1_500, 1_250);
        assert!(choose(at_slower, 1, (0, 1), ONE / 100)? == 1);
        Ok(())
    }

    #[test]
    fn copies_are_bound_to_the_memory_and_kernels_to_the_core() {
        let mut copy = quiet();
        copy.busy_ns[2] = copy.dt_ns;
        copy.memory_khz = 1_000_000;
        // 64 bytes per ns of 1 ms.
        copy.traffic = 64_000_000;
        let mut b = Bound::new();
        for _ in 0..50 {
            b.update(&copy, 0b11, 64);
        }
        assert!(b.memory() == ONE && b.core() < ONE / 100);
        let mut kernel = quiet();
        kernel.busy_ns[0] = kernel.dt_ns;
        kernel.traffic = 64_000;
        kernel.memory_khz = 1_000_000;
        b.update(&kernel, 0b11, 64);
        assert!(b.core() == ONE);
        for _ in 0..50 {
            b.update(&kernel, 0b11, 64);
        }
        assert!(b.memory() < ONE / 500);
        // Copies by an engine that can do both.
        copy.busy_ns[2] = 0;
        copy.busy_ns[1] = copy.dt_ns;
        for _ in 0..50 {
            b.update(&copy, 0b11, 64);
        }
        assert!(b.core() < ONE / 100);
    }

    #[test]
    fn pauses_say_nothing_of_what_work_waits_for() {
        let mut b = Bound::new();
        for _ in 0..100 {
            b.update(&quiet(), 0b11, 64);
        }
        assert!(b.core() == ONE && b.memory() == ONE);
    }
}
