// SPDX-License-Identifier: GPL-2.0

//! What a clock domain can do, and what of that is allowed now.

use kernel::prelude::*;

/// Most P-states that a firmware has.
pub(crate) const LEVELS_MAX: usize = 8;

/// The clock domains, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// Engines and everything around them.
    Core = 0,
    /// VRAM and its bus.
    Memory = 1,
}

/// A clock and the voltage that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    /// kHz, not 0.
    pub(crate) khz: u32,
    /// µV, not 0.
    pub(crate) uv: u32,
}

impl Level {
    /// V² f, to which dynamic power is proportional: mV² MHz / 1000. At most 2^53.
    pub(super) fn scale(self) -> i64 {
        let mv = i64::from(self.uv / 1000);
        mv.saturating_mul(mv)
            .saturating_mul(i64::from(self.khz / 1000))
            / 1000
    }
}

/// Index of a level in its [`Table`]; 0 is the fastest.
pub(crate) type LevelId = usize;

/// The levels of one domain, fastest first, each clock once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    levels: [Level; LEVELS_MAX],
    len: usize,
}

impl Table {
    /// Makes a table of levels given fastest first. Of levels with the same clock the last counts,
    /// whose voltage is the least that the clock needs. None if there is no level, there are too
    /// many, one has no clock or voltage, or clocks or voltages rise.
    pub(crate) fn new(levels: impl IntoIterator<Item = Level>) -> Option<Self> {
        let mut table = Self {
            levels: [Level::default(); LEVELS_MAX],
            len: 0,
        };
        let mut before: Option<Level> = None;
        for level in levels {
            if level.khz == 0 || level.uv == 0 {
                return None;
            }
            if before.is_some_and(|b| level.khz > b.khz || level.uv > b.uv) {
                return None;
            }
            if before.is_none_or(|b| level.khz < b.khz) {
                table.len += 1;
            }
            *table.levels.get_mut(table.len.checked_sub(1)?)? = level;
            before = Some(level);
        }
        before.is_some().then_some(table)
    }

    /// The levels, fastest first; at least one.
    pub(crate) fn levels(&self) -> &[Level] {
        self.levels.get(..self.len).unwrap_or(&[])
    }

    /// That level, or the slowest if there are not so many.
    pub(crate) fn level(&self, id: LevelId) -> Level {
        let slowest = self.slowest();
        self.levels
            .get(id.min(slowest))
            .copied()
            .unwrap_or_default()
    }

    /// The slowest level.
    pub(crate) fn slowest(&self) -> LevelId {
        self.len.saturating_sub(1)
    }

    /// Voltage that a clock needs, in µV: that of the slowest level that is at least as fast. None
    /// if no level is.
    pub(crate) fn needed_uv(&self, khz: u32) -> Option<u32> {
        let fast_enough = |l: &&Level| l.khz >= khz;
        self.levels().iter().rev().find(fast_enough).map(|l| l.uv)
    }

    /// The fastest level that is not faster than `khz`, or the slowest.
    pub(crate) fn at_most(&self, khz: u32) -> LevelId {
        let found = self.levels().iter().position(|l| l.khz <= khz);
        found.unwrap_or(self.slowest())
    }

    /// The slowest level that is not slower than `khz`, or the fastest.
    pub(crate) fn at_least(&self, khz: u32) -> LevelId {
        let found = self.levels().iter().rposition(|l| l.khz >= khz);
        found.unwrap_or(0)
    }
}

/// The board's P-states: pairs of levels that belong together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pstates {
    core: Table,
    memory: Table,
    /// Levels of each P-state, core and memory.
    pairs: [(LevelId, LevelId); LEVELS_MAX],
    len: usize,
}

impl Pstates {
    /// Takes over the firmware's table, fastest first, core and memory. None if one of both is not
    /// as [`Table::new`] demands.
    pub(crate) fn new(states: &[(Level, Level)]) -> Option<Self> {
        let core = Table::new(states.iter().map(|s| s.0))?;
        let memory = Table::new(states.iter().map(|s| s.1))?;
        let mut pairs = [(0, 0); LEVELS_MAX];
        for (pair, (c, m)) in pairs.iter_mut().zip(states) {
            *pair = (core.at_most(c.khz), memory.at_most(m.khz));
        }
        Some(Self {
            core,
            memory,
            pairs,
            len: states.len().min(LEVELS_MAX),
        })
    }

    /// The levels of one domain.
    pub(crate) fn table(&self, domain: Domain) -> &Table {
        match domain {
            Domain::Core => &self.core,
            Domain::Memory => &self.memory,
        }
    }

    /// The P-states as levels of core and memory, fastest first.
    pub(crate) fn pairs(&self) -> &[(LevelId, LevelId)] {
        self.pairs.get(..self.len).unwrap_or(&[])
    }
}

/// What limits the choice of a level in one domain, from the weakest word to the strongest: boost
/// wants no less, the lock allows only so much, and caps hold against both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Fastest and slowest level that the user allows.
    lock: (LevelId, LevelId),
    /// No level slower than this is wanted.
    boost: Option<LevelId>,
    /// No level faster than this is allowed.
    cap: LevelId,
}

impl Bounds {
    /// No bounds.
    pub(crate) fn new(table: &Table) -> Self {
        Self {
            lock: (0, table.slowest()),
            boost: None,
            cap: 0,
        }
    }

    /// Locks the clock to a range of kHz, both ends in it, as far as there are levels: at least
    /// one always remains. False, without effect, if `min` is above `max`.
    pub(crate) fn lock(&mut self, table: &Table, min: u32, max: u32) -> bool {
        if min > max {
            return false;
        }
        let fastest = table.at_most(max);
        self.lock = (fastest, table.at_least(min).max(fastest));
        true
    }

    /// Takes the lock off.
    pub(crate) fn unlock(&mut self, table: &Table) {
        self.lock = (0, table.slowest());
    }

    /// Sets the fastest level that a cooling device (or whoever else has to) allows.
    pub(crate) fn set_cap(&mut self, cap: LevelId) {
        self.cap = cap;
    }

    /// Sets what the queues that run wish at least.
    pub(crate) fn set_boost(&mut self, boost: Option<LevelId>) {
        self.boost = boost;
    }

    /// Fastest and slowest level that may be chosen, both included, the first never above the
    /// second, under one more cap.
    pub(crate) fn range(&self, cap: LevelId) -> (LevelId, LevelId) {
        let fastest = self.lock.0.max(self.cap).max(cap);
        let slowest = self
            .lock
            .1
            .min(self.boost.unwrap_or(LEVELS_MAX))
            .max(fastest);
        (fastest, slowest)
    }

    /// The level nearest to `wish` that may be chosen under one more cap.
    pub(crate) fn apply(&self, wish: LevelId, cap: LevelId) -> LevelId {
        let (fastest, slowest) = self.range(cap);
        wish.clamp(fastest, slowest)
    }
}

#[kunit_tests(ochre_algo_power_levels)]
mod tests {
    use super::*;
    use crate::algo::prng::for_each_seed;

    fn level(khz: u32, uv: u32) -> Level {
        Level { khz, uv }
    }

    fn table() -> Result<Table> {
        Table::new([
            level(1_500, 1_000),
            level(1_250, 925),
            level(1_250, 900),
            level(1_000, 850),
            level(400, 700),
        ])
        .ok_or(EINVAL)
    }

    #[test]
    fn table_has_each_clock_once_with_the_least_voltage() -> Result {
        let t = table()?;
        assert!(t.levels().len() == 4);
        assert!(t.level(1) == level(1_250, 900));
        assert!(t.level(99) == level(400, 700));
        assert!(t.needed_uv(1_500) == Some(1_000));
        assert!(t.needed_uv(1_251) == Some(1_000));
        assert!(t.needed_uv(1_250) == Some(900));
        assert!(t.needed_uv(100) == Some(700));
        assert!(t.needed_uv(1_501).is_none());
        Ok(())
    }

    #[test]
    fn table_that_cannot_be_is_refused() {
        assert!(Table::new([]).is_none());
        assert!(Table::new([level(0, 1)]).is_none());
        assert!(Table::new([level(1, 0)]).is_none());
        assert!(Table::new([level(5, 5), level(6, 5)]).is_none());
        assert!(Table::new([level(5, 5), level(4, 6)]).is_none());
        assert!(Table::new((0..9).map(|n| level(20 - n, 5))).is_none());
        assert!(Table::new((0..8).map(|n| level(20 - n, 5))).is_some());
    }

    #[test]
    fn pstates_that_share_a_memory_clock_share_its_level() -> Result {
        let states = [
            (level(1_500, 1_000), level(1_250, 1_100)),
            (level(1_250, 925), level(1_250, 1_100)),
            (level(400, 700), level(400, 950)),
        ];
        let p = Pstates::new(&states).ok_or(EINVAL)?;
        assert!(p.pairs() == [(0, 0), (1, 0), (2, 1)]);
        assert!(p.table(Domain::Memory).levels().len() == 2);
        Ok(())
    }

    #[test]
    fn lock_takes_the_levels_in_the_range() -> Result {
        let t = table()?;
        let mut b = Bounds::new(&t);
        assert!(b.range(0) == (0, 3));
        assert!(b.lock(&t, 900, 1_300));
        assert!(b.range(0) == (1, 2));
        assert!(!b.lock(&t, 2, 1));
        assert!(b.range(0) == (1, 2));
        // Between two levels, above all, below all: the next that there is.
        assert!(b.lock(&t, 1_100, 1_200) && b.range(0) == (2, 2));
        assert!(b.lock(&t, 9_000, 9_999) && b.range(0) == (0, 0));
        assert!(b.lock(&t, 1, 2) && b.range(0) == (3, 3));
        b.unlock(&t);
        assert!(b.range(0) == (0, 3));
        Ok(())
    }

    #[test]
    fn caps_hold_against_the_lock_and_the_lock_against_boost() -> Result {
        let t = table()?;
        for_each_seed("bounds", |rng| {
            for _ in 0..100 {
                let mut b = Bounds::new(&t);
                let (x, y) = (rng.below(1_600) as u32, rng.below(1_600) as u32);
                assert!(b.lock(&t, x.min(y), x.max(y)));
                let (lock, cap, more) = (b.lock, rng.index(4), rng.index(4));
                b.set_cap(cap);
                let boost = rng.chance(50).then(|| rng.index(4));
                b.set_boost(boost);
                let got = b.apply(rng.index(4), more);
                assert!(got >= cap && got >= more && got < t.levels().len());
                assert!(got >= lock.0);
                assert!(got <= lock.1.max(cap).max(more));
                if let Some(boost) = boost {
                    assert!(got <= boost.max(lock.0).max(cap).max(more));
                }
            }
            Ok(())
        })
    }
}
