// SPDX-License-Identifier: GPL-2.0

//! The governor that looks ahead.
//!
//! With each sample it learns (load, beat of the work, heat, power), wishes (the level that serves
//! the work with the least energy), and limits the wish such that neither the power limit, as a
//! mean over 5 ms, nor the temperature limit, ever, will be passed before it looks again.
//!
//! Work runs as fast as the limits let it, for what is saved by running it slower is paid for with
//! latency; energy is saved where nobody feels it: in pauses, in engines that have nothing to do,
//! and in the clock of whichever domain the work does not wait for. In a pause whose end is known
//! the clocks go down and are back in time; in one whose end is not known they stay for a while,
//! with the engines gated, and then go down.

use super::{
    budget::Budget,
    fixed::{
        signed,
        unsigned,
        PERMILLE, //
    },
    gating::{
        Gate,
        GateCosts,
        Gating, //
    },
    levels::{
        Bounds,
        Domain,
        LevelId,
        Pstates,
        LEVELS_MAX, //
    },
    load::Load,
    model::Model,
    predictor::{
        Bound,
        Ewma,
        Features,
        Predictor, //
    },
    rhythm::{
        until,
        Rhythm, //
    },
    sample::{
        Garbage,
        Interval,
        Sample,
        Sampler,
        ENGINES_MAX, //
    },
    thermal::Thermal,
    transition::Timing, //
};

/// Time between samples while a limit is near or a pause is expected to end, in ns.
const CLOSE_NS: u64 = 250_000;
/// While work runs otherwise.
const RELAXED_NS: u64 = 500_000;
/// In a long pause of work that waits for something.
const SLOW_NS: u64 = 2_000_000;
/// A pause without a beat holds the clocks for so long while work is outstanding.
const HOLD_NS: u64 = 20_000_000;
/// The same when none is.
const HOLD_DONE_NS: u64 = 2_000_000;
/// After so long a pause samples are slow.
const LONG_NS: u64 = 100_000_000;
/// Samples are never further apart, so that the thermal fit goes on.
const APART_MAX_NS: u64 = 10_000_000;
/// A limit that gave way is not followed up again before this, in ns.
const DWELL_NS: u64 = 500_000;
/// Horizon of the temperature, in ns, at least.
const HORIZON_NS: i64 = 2_000_000;
/// Samples that may be garbage before the board is taken to be anywhere.
const BLIND_MAX: u32 = 3;
/// The work may take so much longer for core and memory each, as a share.
const STRETCH: i64 = 10 * PERMILLE;
/// Board time that the driver itself may take for a step, in ns, when it plans to be in time.
const SLACK_NS: u64 = 10_000;
/// A limit is near when the fastest level would take this part of what is allowed.
const NEAR: (i64, i64) = (9, 10);

/// What a governor has to know of the board.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// The firmware's P-states.
    pub(crate) pstates: Pstates,
    /// The one that the board is in: index of a pair.
    pub(crate) initial: usize,
    /// How long changes take.
    pub(crate) timing: Timing,
    /// What gating costs.
    pub(crate) gates: GateCosts,
    /// Engines that go with the core clock.
    pub(crate) compute: u16,
    /// Bytes that an engine moves per cycle of the memory clock.
    pub(crate) bytes_per_cycle: u32,
    /// Power limit; None: none.
    pub(crate) power_limit_mw: Option<u32>,
    /// Temperature limit; None: none.
    pub(crate) temp_limit_mc: Option<i32>,
    /// What the board may take at its fastest level, as long as nothing is known.
    pub(crate) power_guess_mw: u32,
}

/// Why a level was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It serves the work.
    Load,
    /// There is no work, but there may be soon.
    Hold,
    /// There is no work.
    Idle,
    /// The power limit allows no more.
    Power,
    /// The temperature limit allows no more.
    Heat,
    /// The board cannot be believed.
    Blind,
}

/// What has to be done after a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Level of the core.
    pub(crate) core: LevelId,
    /// Level of the memory.
    pub(crate) memory: LevelId,
    /// How far each engine may be stopped.
    pub(crate) gates: [Gate; ENGINES_MAX],
    /// Board time of the next sample. None: no alarm until [`Governor::work`].
    pub(crate) next: Option<u64>,
    /// Why this core level.
    pub(crate) reason: Reason,
}

/// Something that decides.
pub(crate) trait Governor {
    /// Takes a sample. `outstanding`: the board has work that has not come back, even if all of it
    /// waits.
    fn sample(&mut self, s: &Sample, outstanding: bool) -> Decision;

    /// Work is about to be handed to a board that had none.
    fn work(&mut self, now: u64) -> Decision;

    /// Sets the power limit; None: none.
    fn set_power_limit(&mut self, mw: Option<u32>);

    /// The bounds of a domain, to be changed.
    fn bounds(&mut self, domain: Domain) -> &mut Bounds;
}

/// What the work deserves.
struct Wish {
    core: LevelId,
    memory: LevelId,
    gates: [Gate; ENGINES_MAX],
    next: Option<u64>,
    reason: Reason,
}

/// The governor that looks ahead; its predictor chooses levels for work that is there.
#[derive(Debug)]
pub(crate) struct Predictive<P: Predictor = Ewma> {
    config: Config,
    sampler: Sampler,
    load: Load,
    rhythm: Rhythm,
    bound: Bound,
    thermal: Thermal,
    model: Model,
    budget: Budget,
    gating: Gating,
    core_bounds: Bounds,
    memory_bounds: Bounds,
    predictor: P,
    /// Levels that the latest work deserved.
    busy_core: LevelId,
    busy_memory: LevelId,
    /// The latest decision.
    last: Decision,
    /// When a limit last gave way or took away.
    limited_at: u64,
    /// Whether a limit holds the memory below what the load deserves.
    memory_held: bool,
    /// Longest time between samples of late, in ns.
    apart_ns: i64,
    blind: u32,
}

impl<P: Predictor> Predictive<P> {
    /// Starts at the P-state that the board is in.
    pub(crate) fn new(config: Config, predictor: P) -> Self {
        let core = config.pstates.table(Domain::Core);
        let memory = config.pstates.table(Domain::Memory);
        let pair = config.pstates.pairs().get(config.initial);
        let (at_core, at_memory) = pair.copied().unwrap_or((core.slowest(), memory.slowest()));
        Self {
            config,
            sampler: Sampler::default(),
            load: Load::default(),
            rhythm: Rhythm::default(),
            bound: Bound::new(),
            thermal: Thermal::new(),
            model: Model::new(
                core.level(0),
                memory.level(0),
                i64::from(config.power_guess_mw),
            ),
            budget: Budget::new(limit(config.power_limit_mw)),
            gating: Gating::new(config.gates),
            core_bounds: Bounds::new(core),
            memory_bounds: Bounds::new(memory),
            predictor,
            busy_core: 0,
            busy_memory: 0,
            last: Decision {
                core: at_core,
                memory: at_memory,
                gates: [Gate::Open; ENGINES_MAX],
                next: None,
                reason: Reason::Idle,
            },
            limited_at: 0,
            memory_held: false,
            apart_ns: 0,
            blind: 0,
        }
    }

    /// Load of the engines.
    pub(crate) fn load(&self) -> &Load {
        &self.load
    }

    /// What is known of the heat.
    pub(crate) fn thermal(&self) -> &Thermal {
        &self.thermal
    }

    /// What is known of the power.
    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    fn learn(&mut self, i: &Interval) {
        self.load.update(i);
        self.rhythm.update(i);
        self.bound
            .update(i, self.config.compute, self.config.bytes_per_cycle);
        self.thermal.update(i);
        self.model.update(i);
        self.budget.book(i.energy_uj, i.dt_ns);
        self.gating.update(i);
        self.apart_ns = i.dt_ns.max(self.apart_ns - self.apart_ns / 8);
    }

    /// Power at each core level, with the memory at one of its levels. For work that does not run
    /// yet, as with the heaviest of late.
    fn costs(&self, memory: LevelId, is_steady: bool) -> [i64; LEVELS_MAX] {
        let memory = self.config.pstates.table(Domain::Memory).level(memory);
        let core = self.config.pstates.table(Domain::Core);
        core::array::from_fn(|id| {
            let level = core.level(id);
            if is_steady {
                self.model.predict(level, memory)
            } else {
                self.model.predict_peak(level, memory)
            }
        })
    }

    fn memory_costs(&self) -> [i64; LEVELS_MAX] {
        let core = self
            .config
            .pstates
            .table(Domain::Core)
            .level(self.busy_core);
        let memory = self.config.pstates.table(Domain::Memory);
        core::array::from_fn(|id| self.model.predict(core, memory.level(id)))
    }

    /// Chooses levels for the work that is there.
    fn choose(&mut self) {
        let pstates = &self.config.pstates;
        self.busy_memory = self.predictor.choose(&Features {
            table: pstates.table(Domain::Memory),
            range: self.memory_bounds.range(0),
            now: self.last.memory,
            cost_mw: &self.memory_costs(),
            bound: self.bound.memory(),
            stretch: STRETCH,
        });
        self.busy_core = self.predictor.choose(&Features {
            table: pstates.table(Domain::Core),
            range: self.core_bounds.range(0),
            now: self.last.core,
            cost_mw: &self.costs(self.busy_memory, true),
            bound: self.bound.core(),
            stretch: STRETCH,
        });
    }

    /// Time from the slowest levels to those of the work, and until all engines are there.
    fn lead_ns(&self) -> u64 {
        let way = |domain, to| {
            let table = self.config.pstates.table(domain);
            let from = table.level(table.slowest());
            self.config.timing.change(from, table.level(to))
        };
        way(Domain::Core, self.busy_core)
            .max(way(Domain::Memory, self.busy_memory))
            .saturating_add(self.config.gates.wake_ns)
            .saturating_add(SLACK_NS)
    }

    fn ready(&self, next: u64) -> Wish {
        Wish {
            core: self.busy_core,
            memory: self.busy_memory,
            gates: self.gating.awake(),
            next: Some(next),
            reason: Reason::Hold,
        }
    }

    fn asleep(&self, next: Option<u64>) -> Wish {
        Wish {
            core: self.config.pstates.table(Domain::Core).slowest(),
            memory: self.config.pstates.table(Domain::Memory).slowest(),
            gates: *self.gating.gates(),
            next,
            reason: Reason::Idle,
        }
    }

    /// What a pause deserves.
    fn pause(&mut self, now: u64, outstanding: bool) -> Wish {
        let idle = self.rhythm.idle_for(now);
        if !outstanding {
            // One more alarm at most.
            let left = HOLD_DONE_NS.saturating_sub(idle);
            if left == 0 {
                return self.asleep(None);
            }
            return Wish {
                gates: *self.gating.gates(),
                ..self.ready(now.saturating_add(left))
            };
        }
        if let Some(beat) = self.rhythm.next() {
            let lead = self.lead_ns().saturating_add(beat.spread_ns);
            let left = until(now, beat.at_ns).saturating_sub(signed(lead));
            if left >= signed(lead.saturating_mul(2)) {
                return self.asleep(Some(now.saturating_add(unsigned(left))));
            }
            let late = until(beat.at_ns, now);
            if late <= signed(beat.spread_ns.saturating_add(CLOSE_NS)) {
                return self.ready(now.saturating_add(CLOSE_NS));
            }
            self.rhythm.forget();
        }
        if idle < HOLD_NS {
            return Wish {
                gates: *self.gating.gates(),
                ..self.ready(now.saturating_add(RELAXED_NS))
            };
        }
        let apart = if idle < LONG_NS { RELAXED_NS } else { SLOW_NS };
        self.asleep(Some(now.saturating_add(apart)))
    }

    /// What the limits leave: power in mW, and which of them says so.
    fn allowed(&self) -> (i64, Reason) {
        let heat = self.config.temp_limit_mc.map_or(i64::MAX, |limit| {
            let horizon = HORIZON_NS.max(self.apart_ns.saturating_mul(4));
            self.thermal.allowed_mw(i64::from(limit), horizon)
        });
        let power = self.budget.allowed_mw(signed(CLOSE_NS));
        if heat < power {
            (heat, Reason::Heat)
        } else {
            (power, Reason::Power)
        }
    }

    /// The fastest core level that takes at most `allowed` mW beside the memory's, if one does, and
    /// whether the fastest of all is near that or beyond.
    fn cap(&self, memory: LevelId, is_steady: bool, allowed: i64) -> (Option<LevelId>, bool) {
        let costs = self.costs(memory, is_steady);
        let levels = self.config.pstates.table(Domain::Core).levels().len();
        let cap = costs.iter().take(levels).position(|&cost| cost <= allowed);
        let top = costs.first().copied().unwrap_or(0);
        (cap, top > allowed / NEAR.1 * NEAR.0)
    }

    /// Puts the wish under the limits.
    fn decide(&mut self, now: u64, wish: Wish, is_steady: bool) -> Decision {
        let slowest = self.config.pstates.table(Domain::Core).slowest();
        let slowest_memory = self.config.pstates.table(Domain::Memory).slowest();
        let (allowed, limit) = self.allowed();
        let (first, near) = self.cap(wish.memory, is_steady, allowed);
        // Where the memory alone takes too much, it has to give way, too.
        let mut memory_cap = 0;
        let mut fits = first;
        for memory in wish.memory.saturating_add(1)..=slowest_memory {
            if fits.is_some() {
                break;
            }
            memory_cap = memory;
            fits = self.cap(memory, is_steady, allowed).0;
        }
        let mut cap = fits.unwrap_or(slowest);
        let was_limited = matches!(self.last.reason, Reason::Power | Reason::Heat);
        let is_early = was_limited && now.saturating_sub(self.limited_at) < DWELL_NS;
        if is_early && memory_cap < self.last.memory && self.memory_held {
            memory_cap = self.last.memory;
        }
        if is_early && cap < self.last.core {
            cap = self.last.core;
        }
        let free = self.core_bounds.apply(wish.core, 0);
        let core = self.core_bounds.apply(wish.core, cap);
        if core > free && cap >= slowest {
            memory_cap = slowest_memory;
        }
        let free_memory = self.memory_bounds.apply(wish.memory, 0);
        let memory = self.memory_bounds.apply(wish.memory, memory_cap);
        self.memory_held = memory > free_memory;
        let limited = core > free || self.memory_held;
        let close = |next: u64| {
            let near = near && wish.reason != Reason::Idle;
            next.min(now.saturating_add(if near { CLOSE_NS } else { APART_MAX_NS }))
        };
        if limited && (core, memory) != (self.last.core, self.last.memory) {
            self.limited_at = now;
        }
        self.last = Decision {
            core,
            memory,
            gates: wish.gates,
            next: wish.next.map(close),
            reason: if limited { limit } else { wish.reason },
        };
        self.last
    }

    /// The board says what cannot be true: as slow as it goes, until it does not.
    fn blind(&mut self, time_ns: u64, outstanding: bool) -> Decision {
        self.blind = self.blind.saturating_add(1);
        let next = time_ns.checked_add(CLOSE_NS).filter(|_| outstanding);
        if self.blind >= BLIND_MAX {
            let wish = self.asleep(next);
            self.last.core = wish.core;
            self.last.memory = wish.memory;
            self.last.reason = Reason::Blind;
        }
        self.last.next = next;
        self.last
    }
}

/// A limit as a number; none is more than any.
fn limit(mw: Option<u32>) -> i64 {
    mw.map_or(i64::MAX, i64::from)
}

impl<P: Predictor> Governor for Predictive<P> {
    fn sample(&mut self, s: &Sample, outstanding: bool) -> Decision {
        let now = s.time_ns;
        let mut is_steady = false;
        match self.sampler.take(s) {
            Err(Garbage) => return self.blind(now, outstanding),
            Ok(None) => {
                self.thermal.restart(s.temp_mc, s.ambient_mc);
                self.model.restart();
                self.rhythm.restart();
                if outstanding {
                    self.rhythm.work(now);
                }
            }
            Ok(Some(i)) => {
                self.learn(&i);
                is_steady = self.model.is_measured() && i.busiest(u16::MAX) >= i.dt_ns;
            }
        }
        self.blind = 0;
        let mut wish = if self.rhythm.is_busy() {
            self.choose();
            Wish {
                gates: *self.gating.gates(),
                reason: Reason::Load,
                ..self.ready(now.saturating_add(RELAXED_NS))
            }
        } else {
            self.pause(now, outstanding)
        };
        if s.hot {
            wish.core = self.config.pstates.table(Domain::Core).slowest();
        }
        self.decide(now, wish, is_steady)
    }

    fn work(&mut self, now: u64) -> Decision {
        self.rhythm.work(now);
        let wish = Wish {
            reason: Reason::Load,
            ..self.ready(now.saturating_add(CLOSE_NS))
        };
        self.decide(now, wish, false)
    }

    fn set_power_limit(&mut self, mw: Option<u32>) {
        self.budget.set_limit(limit(mw));
    }

    fn bounds(&mut self, domain: Domain) -> &mut Bounds {
        match domain {
            Domain::Core => &mut self.core_bounds,
            Domain::Memory => &mut self.memory_bounds,
        }
    }
}
