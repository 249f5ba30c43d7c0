// SPDX-License-Identifier: GPL-2.0

//! For how long was a domain at each of its levels?

use kernel::prelude::*;

use super::levels::{
    LevelId,
    Table,
    LEVELS_MAX, //
};

/// Time per level of one domain, in ns of board time. A change counts for the level that it left,
/// since the board runs at that until it ends.
#[derive(Debug)]
pub(crate) struct Residency {
    ns: [u64; LEVELS_MAX],
    /// Clocks that no level has: before the firmware runs.
    other_ns: u64,
    changes: u64,
    last: Option<(u64, Option<LevelId>)>,
}

impl Residency {
    /// Has seen nothing.
    pub(crate) const fn new() -> Self {
        Self {
            ns: [0; LEVELS_MAX],
            other_ns: 0,
            changes: 0,
            last: None,
        }
    }

    /// The clock was `khz` at board time `now`: when a change has ended, and when somebody asks.
    /// Time that goes back (the device was reset) is not counted.
    pub(crate) fn note(&mut self, table: &Table, khz: u32, now: u64) {
        let level = table.levels().iter().position(|l| l.khz == khz);
        if let Some((since, at)) = self.last.replace((now, level)) {
            let passed = now.saturating_sub(since);
            let ns = at.and_then(|at| self.ns.get_mut(at));
            let ns = ns.unwrap_or(&mut self.other_ns);
            *ns = ns.saturating_add(passed);
            if at != level {
                self.changes = self.changes.saturating_add(1);
            }
        }
    }

    /// Time at a level so far, in ns.
    pub(crate) fn at(&self, level: LevelId) -> u64 {
        self.ns.get(level).copied().unwrap_or(0)
    }

    /// Time at clocks that are no level's, in ns.
    pub(crate) fn elsewhere(&self) -> u64 {
        self.other_ns
    }

    /// How often the level was another one than before.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }
}

#[kunit_tests(ochre_algo_power_residency)]
mod tests {
    use super::*;
    use crate::algo::{
        power::levels::Level,
        prng::for_each_seed, //
    };

    #[test]
    fn all_time_is_counted_once() -> Result {
        let levels = [4, 3, 2].map(|khz| Level { khz, uv: 1 });
        let table = Table::new(levels).ok_or(EINVAL)?;
        for_each_seed("residency", |rng| {
            let mut r = Residency::new();
            let start = rng.below(1_000);
            let (mut now, mut changes, mut at) = (start, 0, 0);
            r.note(&table, 4, now);
            for _ in 0..100 {
                now += rng.below(500);
                let khz = 1 + rng.below(4) as u32;
                let level = table.levels().iter().position(|l| l.khz == khz);
                let id = level.unwrap_or(9);
                changes += u64::from(id != at);
                at = id;
                r.note(&table, khz, now);
            }
            let sum: u64 = (0..4).map(|l| r.at(l)).sum();
            assert!(sum + r.elsewhere() == now - start);
            assert!(r.changes() == changes);
            Ok(())
        })
    }

    #[test]
    fn time_counts_for_the_level_that_was_left() -> Result {
        let levels = [4, 3].map(|khz| Level { khz, uv: 1 });
        let table = Table::new(levels).ok_or(EINVAL)?;
        let mut r = Residency::new();
        r.note(&table, 4, 100);
        r.note(&table, 3, 250);
        r.note(&table, 100, 300);
        r.note(&table, 4, 310);
        // A reset.
        r.note(&table, 4, 5);
        assert!((r.at(0), r.at(1), r.elsewhere()) == (150, 50, 10));
        Ok(())
    }
}
