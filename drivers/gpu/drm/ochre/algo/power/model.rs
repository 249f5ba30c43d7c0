// SPDX-License-Identifier: GPL-2.0

//! How much power would it take at another level?
//!
//! `P = S + M x_m + A x_c` with x = V² f of each domain. A is the activity: what is switched in the
//! core at each clock. It changes with the work, so it follows from the latest interval alone. S
//! (leakage, fans) and M (what the memory takes for being clocked) change slowly: whenever a level
//! changed while the engines did the same before and after, they are corrected by what the
//! prediction was wrong by. As S starts low, the first predictions of faster levels are too high.

use kernel::prelude::*;

use super::{
    fixed::{
        ewma,
        mul_div, //
    },
    levels::Level,
    sample::Interval, //
};

/// Fraction bits of A and M.
const Q: u32 = 20;
/// A correction takes away so much of the error: 1 / this.
const CAUTION: i64 = 4;
/// Engines did the same if their busy time differs by less than a 16th of the interval.
const SAME: i64 = 16;
/// The part of the guess that the memory's clock is believed to be: 1 / this.
const MEMORY_PART: i64 = 32;
/// Time constant with which the remembered activity falls, in ns.
const MEMORY_NS: i64 = 40_000_000;

/// The latest interval at constant levels.
#[derive(Clone, Copy, Debug)]
struct Last {
    core: Level,
    memory: Level,
    power_mw: i64,
    dt_ns: i64,
    busy_ns: i64,
}

/// What is known of the power that the board takes.
#[derive(Debug)]
pub(crate) struct Model {
    /// S in mW.
    base_mw: i64,
    /// M, mW per unit of scale, with Q fraction bits.
    memory: i64,
    /// A now, likewise.
    activity: i64,
    /// A of the heaviest work of late.
    peak: i64,
    /// Whether that was measured.
    is_measured: bool,
    /// Least mean power seen, in mW: more than S.
    least_mw: i64,
    last: Option<Last>,
}

impl Model {
    /// Knows nothing but that the board at those levels may take `power_mw` when it works hard: what
    /// to expect of the first job.
    pub(crate) fn new(core: Level, memory: Level, power_mw: i64) -> Self {
        Self {
            base_mw: 0,
            memory: mul_div(power_mw / MEMORY_PART, 1 << Q, memory.scale().max(1)),
            activity: 0,
            peak: mul_div(power_mw, 1 << Q, core.scale().max(1)),
            is_measured: false,
            least_mw: power_mw.max(0),
            last: None,
        }
    }

    fn memory_mw(&self, memory: Level) -> i64 {
        mul_div(memory.scale(), self.memory, 1 << Q)
    }

    fn at(&self, activity: i64, core: Level, memory: Level) -> i64 {
        let core = mul_div(core.scale(), activity, 1 << Q);
        self.base_mw
            .saturating_add(self.memory_mw(memory))
            .saturating_add(core)
    }

    /// Power with the present work at those levels, in mW.
    pub(crate) fn predict(&self, core: Level, memory: Level) -> i64 {
        self.at(self.activity, core, memory)
    }

    /// Power with the heaviest work of late at those levels, in mW.
    pub(crate) fn predict_peak(&self, core: Level, memory: Level) -> i64 {
        self.at(self.peak.max(self.activity), core, memory)
    }

    /// Whether work was seen at all.
    pub(crate) fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// Board time went on unseen.
    pub(crate) fn restart(&mut self) {
        self.last = None;
    }

    /// Takes over an interval.
    pub(crate) fn update(&mut self, i: &Interval) {
        let is_full = i.busiest(u16::MAX) >= i.dt_ns;
        let (core, memory) = match i.levels {
            Ok(levels) => levels,
            Err((core, memory)) => {
                // A level changed: at the faster one all the time it had switched as much at least.
                let least = self.switched(i.power_mw, core, memory);
                if is_full && self.is_measured {
                    self.activity = self.activity.max(least);
                }
                return;
            }
        };
        let now = Last {
            core,
            memory,
            power_mw: i.power_mw,
            dt_ns: i.dt_ns,
            busy_ns: i
                .busy_ns
                .iter()
                .fold(0, |sum: i64, &b| sum.saturating_add(b)),
        };
        self.least_mw = self.least_mw.min(i.power_mw);
        if let Some(before) = self.last.replace(now) {
            self.correct(&before, &now);
        }
        self.base_mw = self.base_mw.clamp(0, self.least_mw);
        self.activity = self.switched(i.power_mw, core, memory);
        if is_full && !self.is_measured {
            (self.peak, self.is_measured) = (self.activity, true);
        } else if is_full {
            let fallen = ewma(self.peak, self.activity, i.dt_ns, MEMORY_NS);
            self.peak = fallen.max(self.activity);
        }
    }

    /// The activity that makes up for that power.
    fn switched(&self, power_mw: i64, core: Level, memory: Level) -> i64 {
        let switched = power_mw
            .saturating_sub(self.base_mw)
            .saturating_sub(self.memory_mw(memory));
        mul_div(switched.max(0), 1 << Q, core.scale().max(1))
    }

    /// Learns from two intervals, one after the other, with the same work at different levels.
    fn correct(&mut self, last: &Last, now: &Last) {
        // Shares of the intervals, compared crosswise.
        let before = mul_div(last.busy_ns, now.dt_ns, last.dt_ns.max(1));
        if before.abs_diff(now.busy_ns) > now.dt_ns.unsigned_abs() / SAME.unsigned_abs() {
            return;
        }
        let (x0, x1) = (last.core.scale().max(1), now.core.scale().max(1));
        let (m0, m1) = (last.memory.scale(), now.memory.scale());
        let error = now
            .power_mw
            .saturating_sub(self.predict(now.core, now.memory))
            / CAUTION;
        if x0 != x1 && m0 == m1 {
            // Had S been larger by d, the prediction had been larger by d (1 - x1 / x0).
            self.base_mw = self.base_mw.saturating_add(mul_div(error, x0, x0 - x1));
        } else if x0 == x1 && m0 != m1 {
            let correction = mul_div(error, 1 << Q, m1 - m0);
            self.memory = self.memory.saturating_add(correction).clamp(0, 1 << 30);
        }
    }
}

#[kunit_tests(ochre_algo_power_model)]
mod tests {
    use super::*;
    use crate::algo::{
        power::{
            levels::Domain,
            plant::{
                pstates,
                quiet, //
            }, //
        },
        prng::for_each_seed, //
    };

    /// A board of which all is known: mW of leakage, of the memory and of the core, per scale.
    fn power(s: i64, m: i64, a: i64, core: Level, memory: Level) -> i64 {
        s + mul_div(memory.scale(), m, 1_000_000) + mul_div(core.scale(), a, 1_000_000)
    }

    fn show(model: &mut Model, core: Level, memory: Level, power_mw: i64) {
        let mut i = quiet();
        i.levels = Ok((core, memory));
        i.power_mw = power_mw;
        i.busy_ns[0] = i.dt_ns;
        model.update(&i);
    }

    #[test]
    fn power_at_other_levels_is_learned_from_changes() -> Result {
        let p = pstates()?;
        let (core, memory) = (p.table(Domain::Core), p.table(Domain::Memory));
        for_each_seed("model", |rng| {
            let (s, m) = (
                3_000 + rng.below(12_000) as i64,
                3_000 + rng.below(9_000) as i64,
            );
            let mut a = 20_000 + rng.below(50_000) as i64;
            let mut model = Model::new(core.level(0), memory.level(0), 150_000);
            let (mut c, mut v) = (0, 0);
            for n in 0..400 {
                match n % 4 {
                    0 => c = rng.index(5),
                    2 => v = rng.index(4),
                    _ => {}
                }
                // The work is another one from time to time.
                if n % 50 == 49 {
                    a = 20_000 + rng.below(50_000) as i64;
                }
                let (c, v) = (core.level(c), memory.level(v));
                show(&mut model, c, v, power(s, m, a, c, v));
            }
            for c in core.levels() {
                for v in memory.levels() {
                    let (is, predicted) = (power(s, m, a, *c, *v), model.predict(*c, *v));
                    assert!(predicted.abs_diff(is) <= is.unsigned_abs() / 20);
                }
            }
            Ok(())
        })
    }

    #[test]
    fn first_prediction_of_a_faster_level_is_not_too_low() -> Result {
        let p = pstates()?;
        let (core, memory) = (p.table(Domain::Core), p.table(Domain::Memory));
        let (slow, fast, v) = (core.level(3), core.level(0), memory.level(1));
        let mut model = Model::new(fast, memory.level(0), 150_000);
        assert!(model.predict_peak(fast, v) >= 150_000);
        show(&mut model, slow, v, power(8_000, 6_000, 40_000, slow, v));
        assert!(model.predict(fast, v) >= power(8_000, 6_000, 40_000, fast, v));
        Ok(())
    }

    #[test]
    fn work_that_stopped_is_remembered_and_pauses_are_not_taken_for_work() -> Result {
        let p = pstates()?;
        let (fast, v) = (
            p.table(Domain::Core).level(0),
            p.table(Domain::Memory).level(0),
        );
        let mut model = Model::new(fast, v, 150_000);
        show(&mut model, fast, v, 90_000);
        let mut i = quiet();
        i.levels = Ok((fast, v));
        i.power_mw = 20_000;
        for _ in 0..1_000 {
            model.update(&i);
        }
        assert!(model.predict(fast, v) <= 21_000);
        assert!(model.predict_peak(fast, v) >= 85_000);
        Ok(())
    }

    #[test]
    fn heavier_work_is_seen_while_levels_change() -> Result {
        let p = pstates()?;
        let (core, v) = (p.table(Domain::Core), p.table(Domain::Memory).level(0));
        let mut model = Model::new(core.level(0), v, 150_000);
        show(&mut model, core.level(3), v, 30_000);
        let before = model.predict(core.level(0), v);
        let mut i = quiet();
        i.levels = Err((core.level(1), v));
        i.busy_ns[0] = i.dt_ns;
        i.power_mw = 100_000;
        model.update(&i);
        assert!(model.predict(core.level(1), v) >= 99_000);
        assert!(model.predict(core.level(0), v) > before);
        Ok(())
    }

    #[test]
    fn no_input_makes_it_overflow() -> Result {
        for_each_seed("model garbage", |rng| {
            let level = |rng: &mut crate::algo::prng::Prng| Level {
                khz: (rng.next() >> rng.below(64)) as u32,
                uv: (rng.next() >> rng.below(64)) as u32,
            };
            let mut model = Model::new(level(rng), level(rng), rng.next() as i64);
            for _ in 0..500 {
                let mut i = quiet();
                let levels = (level(rng), level(rng));
                i.levels = if rng.chance(80) {
                    Ok(levels)
                } else {
                    Err(levels)
                };
                i.power_mw = rng.below(10_000_000) as i64;
                i.busy_ns[1] = rng.below(1_000_001) as i64;
                model.update(&i);
                let _ = model.predict(level(rng), level(rng));
                let _ = model.predict_peak(level(rng), level(rng));
                assert!(model.base_mw >= 0 && model.activity >= 0);
            }
            Ok(())
        })
    }
}
