// SPDX-License-Identifier: GPL-2.0

//! Is an idle engine worth stopping?
//!
//! The board stops an engine by itself when it is idle, and wakes it when it has something to do;
//! the driver says of each engine how far that may go. Without its clock an engine takes nothing
//! but leakage, and is back at once. Without power it does not leak either, but waking takes time
//! and energy, so that is worth it only for pauses longer than the break-even, and felt only by
//! bursts that are not much longer than the wake.
//!
//! What decides is measured: how long each engine's pauses and bursts have been.

use kernel::prelude::*;

use super::{
    fixed::{
        mul_div,
        signed,
        unsigned, //
    },
    sample::{
        Interval,
        ENGINES_MAX, //
    }, //
};

/// How far an engine is stopped while it is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gate {
    /// It goes on.
    #[default]
    Open,
    /// Its clock is stopped.
    Clock,
    /// It is switched off.
    Power,
}

impl Gate {
    /// As GATE_CTRL has it.
    pub(crate) const fn bits(self) -> u32 {
        match self {
            Self::Open => 0,
            Self::Clock => 1,
            Self::Power => 3,
        }
    }
}

/// What gating costs and saves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GateCosts {
    /// Time that an engine takes to wake from having been switched off, in ns.
    pub(crate) wake_ns: u64,
    /// Energy for that, in µJ.
    pub(crate) wake_uj: u32,
    /// What an engine leaks, in mW, about.
    pub(crate) leak_mw: u32,
}

/// A pause has to be so many times longer than the break-even.
const CLEARLY: u64 = 2;
/// A burst is hardly longer for a wake of which it is this multiple.
const HARDLY: u64 = 40;
/// Pauses this many wakes long are worth it however short the bursts.
const ANYHOW: u64 = 1000;
/// A pause that is shorter than this is not worth stopping the clock either, in ns.
const CLOCK_NS: u64 = 1_000;
/// Averages take over an eighth of the latest value.
const WEIGHT: u64 = 8;

/// What is known of one engine's pauses and bursts, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Habit {
    /// Means; 0: there was none yet.
    pause: u64,
    burst: u64,
    /// The one that is under way.
    busy: bool,
    length: u64,
}

impl Habit {
    fn mean(old: u64, new: u64) -> u64 {
        match old {
            0 => new,
            old => old - old / WEIGHT + new / WEIGHT,
        }
    }

    fn change(&mut self) {
        if self.busy {
            self.burst = Self::mean(self.burst, self.length);
        } else {
            self.pause = Self::mean(self.pause, self.length);
        }
        self.busy = !self.busy;
        self.length = 0;
    }

    fn update(&mut self, busy: u64, dt: u64) {
        let idle = dt.saturating_sub(busy);
        let (same, other) = if self.busy {
            (busy, idle)
        } else {
            (idle, busy)
        };
        self.length = self.length.saturating_add(same);
        if other > 0 {
            self.change();
            self.length = other;
        }
    }

    /// How long a pause is expected to be: as the mean, and at least as long as this one is.
    fn expected_pause(&self) -> u64 {
        let now = if self.busy { 0 } else { self.length };
        self.pause.max(now)
    }
}

/// Decides for all engines.
#[derive(Debug)]
pub(crate) struct Gating {
    costs: GateCosts,
    engines: [Habit; ENGINES_MAX],
    gates: [Gate; ENGINES_MAX],
}

impl Gating {
    /// Starts with all gates open.
    pub(crate) fn new(costs: GateCosts) -> Self {
        Self {
            costs,
            engines: [Habit::default(); ENGINES_MAX],
            gates: [Gate::Open; ENGINES_MAX],
        }
    }

    /// Shortest pause over which switching an engine off saves energy, in ns.
    pub(crate) fn break_even_ns(&self) -> u64 {
        let saved = i64::from(self.costs.leak_mw.max(1));
        let pays = unsigned(mul_div(i64::from(self.costs.wake_uj), 1_000_000, saved));
        pays.max(self.costs.wake_ns)
    }

    /// Takes over an interval.
    pub(crate) fn update(&mut self, i: &Interval) {
        let break_even = self.break_even_ns();
        let wake = self.costs.wake_ns;
        let engines = self.engines.iter_mut().zip(&mut self.gates);
        for ((habit, gate), &busy) in engines.zip(&i.busy_ns) {
            habit.update(unsigned(busy), unsigned(i.dt_ns));
            let pause = habit.expected_pause();
            let pays = pause >= break_even.saturating_mul(CLEARLY);
            // Of an engine that never worked nothing is known of its bursts.
            let burst = if habit.burst == 0 {
                u64::MAX
            } else {
                habit.burst
            };
            let felt = burst < wake.saturating_mul(HARDLY);
            *gate = if pays && (!felt || pause >= wake.saturating_mul(ANYHOW)) {
                Gate::Power
            } else if pause >= CLOCK_NS {
                Gate::Clock
            } else {
                Gate::Open
            };
        }
    }

    /// How far each engine may be stopped.
    pub(crate) fn gates(&self) -> &[Gate; ENGINES_MAX] {
        &self.gates
    }

    /// The same, but engines with bursts are kept ready, since the next is about to begin.
    pub(crate) fn awake(&self) -> [Gate; ENGINES_MAX] {
        let mut gates = self.gates;
        for (gate, habit) in gates.iter_mut().zip(&self.engines) {
            let lately = signed(habit.length) < signed(habit.pause.saturating_mul(2));
            if habit.burst > 0 && lately {
                *gate = (*gate).min(Gate::Clock);
            }
        }
        gates
    }
}

#[kunit_tests(ochre_algo_power_gating)]
mod tests {
    use super::*;
    use crate::algo::power::plant::quiet;

    const COSTS: GateCosts = GateCosts {
        wake_ns: 20_000,
        wake_uj: 150,
        leak_mw: 1_500,
    };

    /// Engine 0 works for `busy` and rests for `idle`, both in µs, for some time.
    fn after(busy: u64, idle: u64) -> Gating {
        let mut g = Gating::new(COSTS);
        let mut i = quiet();
        for _ in 0..40 {
            for (length, is_busy) in [(busy, true), (idle, false)] {
                if length > 0 {
                    i.dt_ns = signed(length * 1_000);
                    i.busy_ns[0] = if is_busy { i.dt_ns } else { 0 };
                    g.update(&i);
                }
            }
        }
        g
    }

    #[test]
    fn break_even_is_where_leakage_pays_for_the_wake() {
        assert!(Gating::new(COSTS).break_even_ns() == 100_000);
        let free = GateCosts {
            wake_uj: 0,
            ..COSTS
        };
        assert!(Gating::new(free).break_even_ns() == 20_000);
        let dense = GateCosts {
            leak_mw: 0,
            ..COSTS
        };
        assert!(Gating::new(dense).break_even_ns() == 150_000_000);
    }

    #[test]
    fn engine_that_never_works_is_switched_off() {
        let g = after(0, 1_000);
        assert!(g.gates()[0] == Gate::Power && g.gates()[9] == Gate::Power);
        assert!(g.awake()[9] == Gate::Power);
    }

    #[test]
    fn engine_that_never_rests_is_left_alone() {
        assert!(after(1_000, 0).gates()[0] == Gate::Open);
    }

    #[test]
    fn pause_below_the_break_even_stops_the_clock_only() {
        assert!(after(3_000, 150).gates()[0] == Gate::Clock);
        assert!(after(3_000, 500).gates()[0] == Gate::Power);
    }

    #[test]
    fn wake_is_not_put_before_bursts_that_feel_it() {
        assert!(after(300, 2_000).gates()[0] == Gate::Clock);
        assert!(after(1_000, 2_000).gates()[0] == Gate::Power);
        // But a long rest is.
        assert!(after(300, 60_000).gates()[0] == Gate::Power);
    }

    #[test]
    fn engine_is_kept_ready_for_a_burst_that_is_expected() {
        let g = after(3_000, 7_000);
        assert!(g.gates()[0] == Gate::Power);
        assert!(g.awake()[0] == Gate::Clock);
        assert!(g.awake()[1] == Gate::Power);
    }
}
