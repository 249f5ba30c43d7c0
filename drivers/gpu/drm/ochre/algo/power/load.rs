// SPDX-License-Identifier: GPL-2.0

//! How busy the engines are: averages that forget.

use kernel::prelude::*;

use super::{
    fixed::{
        ewma,
        share, //
    },
    sample::{
        Interval,
        ENGINES_MAX, //
    }, //
};

/// Time constant of what governs, in ns.
const FAST_NS: i64 = 2_000_000;
/// Time constant of what tells a habit from an exception, in ns.
const SLOW_NS: i64 = 50_000_000;

/// The load of each engine, and of the busiest, as shares of [`ONE`](super::fixed::ONE).
#[derive(Debug, Default)]
pub(crate) struct Load {
    fast: [i64; ENGINES_MAX],
    slow: [i64; ENGINES_MAX],
}

impl Load {
    /// Takes over what the engines did.
    pub(crate) fn update(&mut self, i: &Interval) {
        let averages = self.fast.iter_mut().zip(self.slow.iter_mut());
        for ((fast, slow), &busy) in averages.zip(&i.busy_ns) {
            let now = share(busy, i.dt_ns);
            *fast = ewma(*fast, now, i.dt_ns, FAST_NS);
            *slow = ewma(*slow, now, i.dt_ns, SLOW_NS);
        }
    }

    /// Load of one engine, over some ms.
    pub(crate) fn engine(&self, engine: usize) -> i64 {
        self.fast.get(engine).copied().unwrap_or(0)
    }

    /// Load of the busiest engine, over some ms.
    pub(crate) fn busiest(&self) -> i64 {
        self.fast.iter().copied().max().unwrap_or(0)
    }

    /// Load of the busiest engine, over some tens of ms.
    pub(crate) fn habit(&self) -> i64 {
        self.slow.iter().copied().max().unwrap_or(0)
    }
}

#[kunit_tests(ochre_algo_power_load)]
mod tests {
    use super::*;
    use crate::algo::power::{
        fixed::ONE,
        plant::quiet, //
    };

    #[test]
    fn load_follows_and_habit_follows_slowly() {
        let mut load = Load::default();
        let mut i = quiet();
        i.busy_ns[1] = i.dt_ns / 2;
        for _ in 0..20 {
            load.update(&i);
        }
        assert!(load.engine(1).abs_diff(ONE / 2) < 200);
        assert!(load.engine(0) == 0 && load.engine(99) == 0);
        assert!(load.busiest() == load.engine(1));
        assert!(load.habit() < ONE / 4);
        for _ in 0..500 {
            load.update(&i);
        }
        assert!(load.habit().abs_diff(ONE / 2) < 200);
        i.busy_ns[1] = 0;
        for _ in 0..20 {
            load.update(&i);
        }
        assert!(load.busiest() < ONE / 100 && load.habit() > ONE / 4);
    }
}
