// SPDX-License-Identifier: GPL-2.0

//! What is known of the board's clocks, and how they get to where the governor wants them.

use kernel::prelude::*;

use super::{
    board::{
        self,
        Seen, //
    },
    settings::Wishes,
    DOMAINS, //
};
use crate::{
    algo::power::{
        fixed::{
            mul_div,
            signed, //
        },
        gating::Gate,
        governor::{
            Config,
            Decision,
            Governor,
            Predictive,
            Reason, //
        },
        levels::{
            Domain,
            Table, //
        },
        predictor::Ewma,
        reactive::Reactive,
        residency::Residency,
        sample::ENGINES_MAX,
        transition::{
            Failure,
            Step,
            Transition, //
        }, //
    },
    hal::{
        self,
        EngineId,
        Limits,
        Power, //
    }, //
};

/// Shortest time over which power is averaged, in ns of board time.
const AVERAGE_NS: u64 = 10_000_000;
/// How long a domain whose changes went wrong is left alone, in ns of board time.
const RETRY_NS: u64 = 100_000_000;

/// Which governor decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// The one that looks ahead.
    Predictive,
    /// The three-level one that looks back.
    Reactive,
}

/// A governor.
enum Engine {
    Predictive(KBox<Predictive>),
    Reactive(KBox<Reactive>),
}

impl Engine {
    fn new(policy: Policy, config: Config) -> Result<Self> {
        Ok(match policy {
            Policy::Predictive => {
                Self::Predictive(KBox::new(Predictive::new(config, Ewma), GFP_KERNEL)?)
            }
            Policy::Reactive => Self::Reactive(KBox::new(Reactive::new(config), GFP_KERNEL)?),
        })
    }

    fn governor(&mut self) -> &mut dyn Governor {
        match self {
            Self::Predictive(governor) => &mut **governor,
            Self::Reactive(governor) => &mut **governor,
        }
    }
}

/// One clock domain.
struct Way {
    transition: Transition,
    residency: Residency,
    /// The range that people have locked the clock to, in kHz.
    lock: Option<(u32, u32)>,
    /// Board time at which changes are tried again.
    retry_at: Option<u64>,
    /// Board time before which what was written cannot be over.
    look_at: u64,
    /// People know that changes go wrong.
    told: bool,
    /// The clock as it was last seen, in kHz.
    khz: u32,
    /// It is another one since [`State::take_changes`]: kHz and µV.
    changed: Option<(u32, u32)>,
}

/// Whether the board may be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Yes,
    /// Not while it is being reset.
    Held,
    /// Never again.
    Gone,
}

/// Board time and energy at a moment.
#[derive(Clone, Copy, Default)]
struct Mark {
    time: u64,
    energy_uj: u64,
}

/// Everything about power that one lock guards.
pub(super) struct State {
    access: Access,
    config: Config,
    limits: Option<Limits>,
    engines: usize,
    policy: Policy,
    engine: Engine,
    power_limit_mw: Option<u32>,
    ways: [Way; 2],
    /// What the board last said.
    last: hal::Sample,
    /// Two moments for the average: the older is at least [`AVERAGE_NS`] ago, if any is.
    marks: [Mark; 2],
    decision: Option<Decision>,
    /// Gates as they are set.
    gates: [Gate; ENGINES_MAX],
    /// Somebody changed what is wanted: decide whatever time it is.
    changed: bool,
    /// The alarm, if it is armed.
    armed: Option<u64>,
    /// The board will tell when it is as hot as it may be.
    alert: bool,
    was_hot: bool,
    tell_hot: bool,
}

impl State {
    /// Of a board as it is after its reset. [`None`]: it has no levels.
    pub(super) fn new(power: &dyn Power, info: &hal::Info) -> Result<Option<KBox<Self>>> {
        let Some(config) = board::config(power, info) else {
            return Ok(None);
        };
        let (core, memory) = Self::initial(&config);
        let way = |level| Way {
            transition: Transition::new(config.timing, level),
            residency: Residency::new(),
            lock: None,
            retry_at: None,
            look_at: 0,
            told: false,
            khz: 0,
            changed: None,
        };
        let policy = Policy::Predictive;
        let state = Self {
            access: Access::Yes,
            limits: power.limits(),
            engines: info.engines.len().min(ENGINES_MAX),
            policy,
            engine: Engine::new(policy, config)?,
            power_limit_mw: config.power_limit_mw,
            ways: [way(core), way(memory)],
            last: hal::Sample::default(),
            marks: [Mark::default(); 2],
            decision: None,
            gates: [Gate::Open; ENGINES_MAX],
            changed: true,
            armed: None,
            alert: false,
            was_hot: false,
            tell_hot: false,
            config,
        };
        Ok(Some(KBox::new(state, GFP_KERNEL)?))
    }

    /// Levels of both domains after a reset.
    fn initial(config: &Config) -> (usize, usize) {
        let pair = config.pstates.pairs().get(config.initial);
        pair.copied().unwrap_or_default()
    }

    /// Levels of a domain.
    pub(super) fn table(&self, domain: Domain) -> &Table {
        self.config.pstates.table(domain)
    }

    /// Limits of the firmware.
    pub(super) fn limits(&self) -> Option<Limits> {
        self.limits
    }

    /// Whether the board must not be touched.
    pub(super) fn is_held(&self) -> bool {
        self.access != Access::Yes
    }

    /// [`ENODEV`] once there is no board.
    pub(super) fn check(&self) -> Result {
        match self.access {
            Access::Gone => Err(ENODEV),
            Access::Yes | Access::Held => Ok(()),
        }
    }

    /// The board is about to be reset.
    pub(super) fn hold(&mut self) {
        if self.access == Access::Yes {
            self.access = Access::Held;
        }
    }

    /// The board was reset, and runs at its initial P-state with no gate and no alarm.
    pub(super) fn resume(&mut self) {
        if self.access != Access::Held {
            return;
        }
        self.access = Access::Yes;
        let (core, memory) = Self::initial(&self.config);
        for (way, level) in self.ways.iter_mut().zip([core, memory]) {
            way.transition.reset(level);
            way.retry_at = None;
            way.look_at = 0;
        }
        self.gates = [Gate::Open; ENGINES_MAX];
        self.armed = None;
        self.alert = false;
        self.changed = true;
    }

    /// There is no board any more.
    pub(super) fn end(&mut self) {
        self.access = Access::Gone;
    }

    /// Somebody changed what is wanted.
    pub(super) fn change(&mut self) {
        self.changed = true;
    }

    /// Whether the board was of late as hot as its limit, or cooler by no more than `margin_mc`.
    pub(super) fn is_near_limit(&self, margin_mc: i32) -> bool {
        let temp = self.last.temp_mc.saturating_add(margin_mc);
        self.limits
            .is_some_and(|limits| temp >= limits.temp_limit_mc)
    }

    /// Takes over what limits the choice of levels.
    pub(super) fn limit(&mut self, wishes: &Wishes, boost: bool) {
        let governor = self.engine.governor();
        for (domain, way) in DOMAINS.into_iter().zip(&self.ways) {
            let table = self.config.pstates.table(domain);
            let bounds = governor.bounds(domain);
            match way.lock {
                Some((min, max)) => {
                    // Checked when it was set.
                    let _ = bounds.lock(table, min, max);
                }
                None => bounds.unlock(table),
            }
            let (min, max) = wishes.range(domain);
            let least = if boost { 0 } else { table.at_least(min) };
            let wanted = boost || min > table.level(table.slowest()).khz;
            bounds.set_boost(wanted.then_some(least));
            let cooling = match domain {
                Domain::Core => usize::try_from(wishes.cooling()).unwrap_or(usize::MAX),
                Domain::Memory => 0,
            };
            bounds.set_cap(table.at_most(max).max(cooling.min(table.slowest())));
        }
    }

    /// Goes on from a sample. Returns whether to look again: whether the alarm is armed.
    pub(super) fn turn(
        &mut self,
        power: &dyn Power,
        seen: &Seen,
        work: bool,
        outstanding: bool,
    ) -> Result<bool> {
        let now = seen.raw.time;
        self.note(&seen.raw);
        let due = self.changed
            || self
                .decision
                .and_then(|d| d.next)
                .is_none_or(|at| now >= at);
        if work {
            let decision = self.engine.governor().work(now);
            self.decision = Some(decision);
        } else if due {
            let decision = self.engine.governor().sample(&seen.sample, outstanding);
            self.decision = Some(decision);
        }
        self.changed = false;
        let Some(decision) = self.decision else {
            return Ok(false);
        };
        let mut next = decision.next;
        for (domain, level) in DOMAINS.into_iter().zip([decision.core, decision.memory]) {
            if let Some(at) = self.advance(power, domain, level)? {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        self.set_gates(power, &decision.gates)?;
        self.set_alert(power)?;
        self.arm(power, next)?;
        Ok(next.is_some())
    }

    /// Moves a domain a step towards a level. Returns when to look again.
    fn advance(&mut self, power: &dyn Power, domain: Domain, level: usize) -> Result<Option<u64>> {
        let hal_domain = match domain {
            Domain::Core => hal::Domain::Core,
            Domain::Memory => hal::Domain::Memory,
        };
        let now = self.last.time;
        let way = self.way(domain);
        if way.retry_at.is_some_and(|at| now >= at) {
            way.transition.retry();
            way.retry_at = None;
        }
        way.transition.request(level);
        if now < way.look_at {
            // The board may not have seen yet what was written.
            return Ok(Some(way.look_at));
        }
        let costs = power.costs();
        let wait = match self.step(domain) {
            Step::SetVoltage(uv) => {
                let from = self
                    .last
                    .domains
                    .get(hal_domain.index())
                    .map_or(uv, |d| d.uv);
                let way_mv = u64::from(uv.abs_diff(from).div_ceil(1000));
                power.set_voltage(hal_domain, uv)?;
                costs
                    .voltage_ns
                    .saturating_add(way_mv.saturating_mul(costs.mv_ns))
            }
            Step::SetClock(khz) => {
                power.set_clock(hal_domain, khz)?;
                costs.clock_ns
            }
            Step::Wait(ns) => ns,
            Step::Settled(_) => {
                self.way(domain).told = false;
                return Ok(None);
            }
            Step::Stuck => return Ok(None),
            Step::Safe => {
                // No reason to look then, if there is no other.
                let at = now.saturating_add(RETRY_NS);
                self.way(domain).retry_at.get_or_insert(at);
                return Ok(None);
            }
        };
        let look_at = now.saturating_add(wait);
        self.way(domain).look_at = look_at;
        Ok(Some(look_at))
    }

    /// The next step of a domain from where the board last was.
    fn step(&mut self, domain: Domain) -> Step {
        let table = self.config.pstates.table(domain);
        let [core, memory] = &mut self.ways;
        let (way, sample) = match domain {
            Domain::Core => (core, &self.last.domains[0]),
            Domain::Memory => (memory, &self.last.domains[1]),
        };
        let status = board::status(sample);
        way.transition.step(table, &status, self.last.time)
    }

    /// Sets the gates that are not as they should be.
    fn set_gates(&mut self, power: &dyn Power, wanted: &[Gate; ENGINES_MAX]) -> Result {
        let gates = self.gates.iter_mut().zip(wanted).take(self.engines);
        for (id, (is, wanted)) in (0..).zip(gates) {
            if *is != *wanted {
                let gate = hal::Gate {
                    clock: *wanted >= Gate::Clock,
                    power: *wanted == Gate::Power,
                };
                power.set_gate(EngineId(id), gate)?;
                *is = *wanted;
            }
        }
        Ok(())
    }

    /// Has the board tell when it is as hot as it may be, once each time.
    fn set_alert(&mut self, power: &dyn Power) -> Result {
        let Some(limits) = self.limits else {
            return Ok(());
        };
        if self.last.temp_mc >= limits.temp_limit_mc {
            self.alert = false;
        } else if !self.alert {
            power.alert_at(limits.temp_limit_mc)?;
            self.alert = true;
        }
        Ok(())
    }

    /// Takes the alarm back, if the board can be told: one that halted the board would do so for
    /// ever.
    pub(super) fn let_go(&mut self, power: &dyn Power) {
        let _ = power.disarm();
        self.armed = None;
    }

    /// Arms the alarm, which lets a clock that it halted go on; or disarms it.
    fn arm(&mut self, power: &dyn Power, next: Option<u64>) -> Result {
        match (next, self.armed) {
            (Some(at), _) => power.arm(at, true)?,
            (None, Some(_)) => power.disarm()?,
            (None, None) => {}
        }
        self.armed = next;
        Ok(())
    }

    /// Takes note of what the board says.
    fn note(&mut self, sample: &hal::Sample) {
        self.last = *sample;
        self.tell_hot |= sample.hot && !self.was_hot;
        self.was_hot = sample.hot;
        let domains = DOMAINS.into_iter().zip(&sample.domains);
        for ((domain, now), way) in domains.zip(&mut self.ways) {
            let table = self.config.pstates.table(domain);
            way.residency.note(table, now.khz, sample.time);
            if way.khz != now.khz {
                way.khz = now.khz;
                way.changed = Some((now.khz, now.uv));
            }
        }
        let [old, young] = &mut self.marks;
        if sample.time.saturating_sub(young.time) >= AVERAGE_NS {
            *old = *young;
            *young = Mark {
                time: sample.time,
                energy_uj: sample.energy_uj,
            };
        }
    }

    /// Reads the board, if it may be touched, or says what it last said.
    pub(super) fn look(&mut self, power: &dyn Power) -> Result<hal::Sample> {
        self.check()?;
        if self.access == Access::Yes {
            let sample = power.sample()?;
            self.note(&sample);
        }
        Ok(self.last)
    }

    /// Mean power of late in mW.
    pub(super) fn average_mw(&self) -> u32 {
        let [old, _] = self.marks;
        let time = self.last.time.saturating_sub(old.time);
        let energy = self.last.energy_uj.saturating_sub(old.energy_uj);
        if old.time == 0 || time == 0 {
            return self.last.power_mw;
        }
        // µJ per ns are 10^6 mW.
        let mw = mul_div(signed(energy), 1_000_000, signed(time));
        u32::try_from(mw).unwrap_or(u32::MAX)
    }

    /// Time per level of a domain, and how often it changed.
    pub(super) fn residency(&self, domain: Domain) -> &Residency {
        let [core, memory] = &self.ways;
        match domain {
            Domain::Core => &core.residency,
            Domain::Memory => &memory.residency,
        }
    }

    fn way(&mut self, domain: Domain) -> &mut Way {
        let [core, memory] = &mut self.ways;
        match domain {
            Domain::Core => core,
            Domain::Memory => memory,
        }
    }

    /// The range that people have locked a clock to, in kHz.
    pub(super) fn lock(&mut self, domain: Domain) -> Option<(u32, u32)> {
        self.way(domain).lock
    }

    /// Locks a clock to a range in kHz, or unlocks it. [`EINVAL`]: no range, or one without a level.
    pub(super) fn set_lock(&mut self, domain: Domain, range: Option<(u32, u32)>) -> Result {
        self.check()?;
        if let Some((min, max)) = range {
            let levels = self.table(domain).levels();
            if min > max || !levels.iter().any(|level| (min..=max).contains(&level.khz)) {
                return Err(EINVAL);
            }
        }
        self.way(domain).lock = range;
        self.changed = true;
        Ok(())
    }

    /// The power limit in mW.
    pub(super) fn power_limit_mw(&self) -> Option<u32> {
        self.power_limit_mw
    }

    /// Sets the power limit in mW. [`EINVAL`] beyond the firmware's range; [`EOPNOTSUPP`] without one.
    pub(super) fn set_power_limit(&mut self, mw: u32) -> Result {
        self.check()?;
        let limits = self.limits.ok_or(EOPNOTSUPP)?;
        if !(limits.power_min_mw..=limits.power_max_mw).contains(&mw) {
            return Err(EINVAL);
        }
        self.power_limit_mw = Some(mw);
        self.engine.governor().set_power_limit(Some(mw));
        self.changed = true;
        Ok(())
    }

    /// Which governor decides.
    pub(super) fn policy(&self) -> Policy {
        self.policy
    }

    /// Starts over with a governor.
    pub(super) fn set_policy(&mut self, policy: Policy) -> Result {
        self.check()?;
        let config = Config {
            power_limit_mw: self.power_limit_mw,
            ..self.config
        };
        self.engine = Engine::new(policy, config)?;
        self.policy = policy;
        self.changed = true;
        Ok(())
    }

    /// Why the core is not faster.
    pub(super) fn reason(&self) -> Option<Reason> {
        self.decision.map(|decision| decision.reason)
    }

    /// The levels that were decided, in kHz.
    pub(super) fn decided_khz(&self) -> Option<[u32; 2]> {
        let decision = self.decision?;
        Some([
            self.table(Domain::Core).level(decision.core).khz,
            self.table(Domain::Memory).level(decision.memory).khz,
        ])
    }

    /// Takes out why changes went wrong, once until one went right.
    pub(super) fn take_failures(&mut self) -> impl Iterator<Item = (Domain, Failure)> + '_ {
        let ways = DOMAINS.into_iter().zip(&mut self.ways);
        ways.filter_map(|(domain, way)| {
            let failure = way.transition.take_failure()?;
            let told = core::mem::replace(&mut way.told, true);
            (!told).then_some((domain, failure))
        })
    }

    /// Clocks that are others since the last call: kHz, and the voltage in µV.
    pub(super) fn take_changes(&mut self) -> impl Iterator<Item = (Domain, (u32, u32))> + '_ {
        let ways = DOMAINS.into_iter().zip(&mut self.ways);
        ways.filter_map(|(domain, way)| Some((domain, way.changed.take()?)))
    }

    /// How often changes of a domain went wrong.
    pub(super) fn failures(&mut self, domain: Domain) -> u64 {
        self.way(domain).transition.failures()
    }

    /// Whether the board has begun to slow itself down for heat since the last call.
    pub(super) fn take_hot(&mut self) -> bool {
        core::mem::take(&mut self.tell_hot)
    }
}
