// SPDX-License-Identifier: GPL-2.0

//! The governor that looks back: three levels, slower when something is too much, faster when it is
//! not any more. It is what the predictive one is compared with, and what is left when that is not
//! wanted.

use super::{
    fixed::ewma,
    gating::Gate,
    governor::{
        Config,
        Decision,
        Governor,
        Reason, //
    },
    levels::{
        Bounds,
        Domain, //
    },
    sample::{
        Garbage,
        Sample,
        Sampler,
        ENGINES_MAX, //
    }, //
};

/// Time between samples, in ns.
const PERIOD_NS: u64 = 250_000;
/// Time constant over which power is measured, in ns.
const TAU_NS: i64 = 1_000_000;
/// It goes faster when power is below the limit by a 20th, and the temperature by so many m°C.
const POWER_BACK: i64 = 20;
const HEAT_BACK_MC: i64 = 2_000;
/// A step up follows no sooner than this after the last step, in ns.
const UP_NS: u64 = 1_000_000;
/// It goes to the slowest level when there was no work for so long, in ns.
const IDLE_NS: i64 = 10_000_000;

/// The governor that looks back.
#[derive(Debug)]
pub(crate) struct Reactive {
    config: Config,
    sampler: Sampler,
    core_bounds: Bounds,
    memory_bounds: Bounds,
    power_limit_mw: i64,
    /// Mean, in mW.
    power_mw: i64,
    idle_ns: i64,
    /// 0, 1 or 2: the first, the middle and the last P-state.
    step: usize,
    stepped_at: u64,
    reason: Reason,
}

impl Reactive {
    /// Starts at the middle level.
    pub(crate) fn new(config: Config) -> Self {
        Self {
            sampler: Sampler::default(),
            core_bounds: Bounds::new(config.pstates.table(Domain::Core)),
            memory_bounds: Bounds::new(config.pstates.table(Domain::Memory)),
            power_limit_mw: config.power_limit_mw.map_or(i64::MAX, i64::from),
            power_mw: 0,
            idle_ns: 0,
            step: 1,
            stepped_at: 0,
            reason: Reason::Load,
            config,
        }
    }

    fn step(&mut self, s: &Sample) {
        let now = s.time_ns;
        let temp = i64::from(s.temp_mc);
        let heat_limit = self.config.temp_limit_mc.map_or(i64::MAX, i64::from);
        let too_hot = s.hot || temp >= heat_limit;
        let too_much = self.power_mw > self.power_limit_mw;
        let cool = temp < heat_limit.saturating_sub(HEAT_BACK_MC);
        let little = self.power_mw < self.power_limit_mw - self.power_limit_mw / POWER_BACK;
        if self.idle_ns >= IDLE_NS {
            (self.step, self.reason) = (2, Reason::Idle);
        } else if too_hot || too_much {
            self.step = (self.step + 1).min(2);
            self.stepped_at = now;
            self.reason = if too_hot { Reason::Heat } else { Reason::Power };
        } else if cool && little && now.saturating_sub(self.stepped_at) >= UP_NS && self.step > 0 {
            self.step -= 1;
            self.stepped_at = now;
            self.reason = Reason::Load;
        }
    }

    fn decision(&self, next: Option<u64>) -> Decision {
        let pairs = self.config.pstates.pairs();
        let last = pairs.len().saturating_sub(1);
        let index = match self.step {
            0 => 0,
            1 => last / 2,
            _ => last,
        };
        let (core, memory) = pairs.get(index).copied().unwrap_or_default();
        Decision {
            core: self.core_bounds.apply(core, 0),
            memory: self.memory_bounds.apply(memory, 0),
            gates: [Gate::Open; ENGINES_MAX],
            next,
            reason: self.reason,
        }
    }
}

impl Governor for Reactive {
    fn sample(&mut self, s: &Sample, outstanding: bool) -> Decision {
        match self.sampler.take(s) {
            Err(Garbage) => self.step = 2,
            Ok(None) => self.idle_ns = 0,
            Ok(Some(i)) => {
                self.power_mw = ewma(self.power_mw, i.power_mw, i.dt_ns, TAU_NS);
                self.idle_ns = if i.busiest(u16::MAX) > 0 {
                    0
                } else {
                    self.idle_ns.saturating_add(i.dt_ns)
                };
                self.step(s);
            }
        }
        let go_on = outstanding || self.idle_ns < IDLE_NS;
        let next = s.time_ns.checked_add(PERIOD_NS).filter(|_| go_on);
        self.decision(next)
    }

    fn work(&mut self, now: u64) -> Decision {
        if self.reason == Reason::Idle {
            (self.step, self.reason) = (0, Reason::Load);
            self.stepped_at = now;
        }
        self.idle_ns = 0;
        self.decision(Some(now.saturating_add(PERIOD_NS)))
    }

    fn set_power_limit(&mut self, mw: Option<u32>) {
        self.power_limit_mw = mw.map_or(i64::MAX, i64::from);
    }

    fn bounds(&mut self, domain: Domain) -> &mut Bounds {
        match domain {
            Domain::Core => &mut self.core_bounds,
            Domain::Memory => &mut self.memory_bounds,
        }
    }
}
