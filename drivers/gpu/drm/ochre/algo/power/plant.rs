// SPDX-License-Identifier: GPL-2.0

//! A board for the tests of this folder: the equations of the reference board (og1.rst, sections
//! "Power" and "Thermal") in integers, engines with simple work, and a driver around a governor.
//!
//! It is exact to its quantum of 10 µs. It counts what the real one calls violations.

use kernel::prelude::*;

use super::{
    fixed::mul_div,
    gating::{
        Gate,
        GateCosts, //
    },
    governor::{
        Config,
        Decision,
        Governor, //
    },
    levels::{
        Domain,
        Level,
        Pstates,
        Table, //
    },
    sample::{
        Interval,
        Sample,
        ENGINES_MAX, //
    },
    transition::{
        ChangeStatus,
        DomainStatus,
        Step,
        Timing,
        Transition, //
    }, //
};

pub(super) const US: u64 = 1_000;
pub(super) const MS: u64 = 1_000_000;
/// Engines: two compute, two copy.
pub(super) const ENGINES: usize = 4;
const QUANTUM: u64 = 10 * US;

pub(super) const TIMING: Timing = Timing {
    clock_ns: 20 * US,
    voltage_ns: 2 * US,
    mv_ns: 100,
    timeout_ns: MS,
};

const GATES: GateCosts = GateCosts {
    wake_ns: 20 * US,
    wake_uj: 150,
    leak_mw: 1_500,
};

/// The reference board's P-states.
pub(super) fn pstates() -> Result<Pstates> {
    let l = |mhz: u32, mv: u32| Level {
        khz: mhz * 1000,
        uv: mv * 1000,
    };
    Pstates::new(&[
        (l(1500, 1000), l(1250, 1100)),
        (l(1250, 925), l(1250, 1100)),
        (l(1000, 850), l(1000, 1050)),
        (l(750, 775), l(800, 1000)),
        (l(400, 700), l(400, 950)),
    ])
    .ok_or(EINVAL)
}

/// The reference board's configuration.
pub(super) fn config() -> Result<Config> {
    Ok(Config {
        pstates: pstates()?,
        initial: 2,
        timing: TIMING,
        gates: GATES,
        compute: 0b0011,
        bytes_per_cycle: 64,
        power_limit_mw: Some(100_000),
        temp_limit_mc: Some(95_000),
        power_guess_mw: 150_000,
    })
}

/// What an engine does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Idle,
    /// Work for ever, with so many lanes in 1000.
    Constant {
        lanes: i64,
    },
    /// From `from` on each `period` ns a job of so many core cycles (compute) or bytes (copy).
    Every {
        from: u64,
        period: u64,
        amount: u64,
        lanes: i64,
    },
    /// A job, then a pause of so many ns, and so on.
    After {
        pause: u64,
        amount: u64,
        lanes: i64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Engine {
    work: Work,
    /// When the job that is under way, or the next one, is due.
    due: u64,
    /// Of the job under way, still to be done.
    left: u64,
    /// While it wakes: until when.
    waking: Option<u64>,
    /// It is asleep as far as its gate allows.
    idle: bool,
    gate: Gate,
    busy_ns: u64,
    done: u64,
    jobs: u64,
    latency_ns: u64,
}

/// One clock domain: what it is at and what it changes to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocked {
    pub(super) khz: u32,
    /// Start, target, when it began.
    slew: (u32, u32, u64),
    clock: Option<(u32, u64)>,
    clock_failed: bool,
    slewing: bool,
    voltage_failed: bool,
    /// The next changes of clock or voltage fail, the next clock change hangs.
    pub(super) fail_clock: u32,
    pub(super) fail_voltage: u32,
    pub(super) stall: bool,
    pub(super) undervoltage: u32,
    pub(super) misuse: u32,
    pub(super) changes: u32,
}

impl Clocked {
    pub(super) fn new(level: Level) -> Self {
        Self {
            khz: level.khz,
            slew: (level.uv, level.uv, 0),
            clock: None,
            clock_failed: false,
            slewing: false,
            voltage_failed: false,
            fail_clock: 0,
            fail_voltage: 0,
            stall: false,
            undervoltage: 0,
            misuse: 0,
            changes: 0,
        }
    }

    pub(super) fn uv(&self, now: u64) -> u32 {
        let (from, to, since) = self.slew;
        let moved = (now - since).saturating_sub(TIMING.voltage_ns) * 1000 / TIMING.mv_ns;
        let moved = u32::try_from(moved).unwrap_or(u32::MAX);
        if to > from {
            from.saturating_add(moved).min(to)
        } else {
            from.saturating_sub(moved).max(to)
        }
    }

    /// Lets time go on to `now`, in steps small enough to see each voltage.
    pub(super) fn advance(&mut self, table: &Table, now: u64) {
        let end = |s: &Self| {
            let way = u64::from(s.slew.0.abs_diff(s.slew.1)) * TIMING.mv_ns / 1000;
            s.slew.2 + TIMING.voltage_ns + way
        };
        if self.slewing && now >= end(self) {
            self.slewing = false;
            if self.fail_voltage > 0 {
                self.fail_voltage -= 1;
                self.voltage_failed = true;
                self.slew.1 = self.slew.0;
            }
        }
        if let Some((khz, at)) = self.clock {
            if now >= at {
                self.clock = None;
                if self.fail_clock > 0 {
                    self.fail_clock -= 1;
                    self.clock_failed = true;
                } else {
                    self.khz = khz;
                    self.changes += 1;
                }
            }
        }
        self.check(table, now);
    }

    fn check(&mut self, table: &Table, now: u64) {
        let khz = self.clock.map_or(self.khz, |(khz, _)| khz.max(self.khz));
        if table.needed_uv(khz).is_some_and(|uv| self.uv(now) < uv) {
            self.undervoltage += 1;
        }
    }

    pub(super) fn set_clock(&mut self, table: &Table, khz: u32, now: u64) {
        if self.clock.is_some() || !table.levels().iter().any(|l| l.khz == khz) {
            self.misuse += 1;
            return;
        }
        self.clock_failed = false;
        let at = if core::mem::take(&mut self.stall) {
            u64::MAX
        } else {
            now + TIMING.clock_ns
        };
        self.clock = Some((khz, at));
        self.check(table, now);
    }

    pub(super) fn set_voltage(&mut self, uv: u32, now: u64) {
        if self.slewing || !(400_000..=1_500_000).contains(&uv) {
            self.misuse += 1;
            return;
        }
        self.voltage_failed = false;
        self.slew = (self.uv(now), uv, now);
        self.slewing = true;
    }

    pub(super) fn status(&self, now: u64) -> DomainStatus {
        let change = |busy, failed| match (busy, failed) {
            (true, _) => ChangeStatus::Busy,
            (_, true) => ChangeStatus::Failed,
            _ => ChangeStatus::Done,
        };
        DomainStatus {
            khz: self.khz,
            uv: self.uv(now),
            clock: change(self.clock.is_some(), self.clock_failed),
            voltage: change(self.slewing, self.voltage_failed),
        }
    }

    /// V² f in µW per nF.
    fn per_nf(&self, now: u64) -> i64 {
        let mv = i64::from(self.uv(now) / 1000);
        mv * mv * i64::from(self.khz) / 1_000_000
    }
}

/// The board.
pub(super) struct Plant {
    pub(super) now: u64,
    pub(super) domains: [Clocked; 2],
    engines: [Engine; ENGINES],
    pstates: Pstates,
    /// k in µW/K, C in µJ/K.
    pub(super) k: i64,
    pub(super) c: i64,
    pub(super) ambient_mc: i64,
    /// µK.
    temp: i64,
    /// nJ.
    energy: u64,
    traffic: u64,
    /// What moving a byte takes at 1.1 V, in pJ.
    pub(super) pj_per_byte: u64,
    pub(super) hottest_mc: i64,
}

impl Plant {
    /// A board with a heat sink of k µW/K and a time constant of `tau_ns`, at `temp_mc`.
    pub(super) fn new(k: i64, tau_ns: u64, ambient_mc: i64, temp_mc: i64) -> Result<Self> {
        let pstates = pstates()?;
        let level = |d| Clocked::new(pstates.table(d).level(2));
        Ok(Self {
            now: 0,
            domains: [level(Domain::Core), level(Domain::Memory)],
            engines: [Engine {
                work: Work::Idle,
                due: u64::MAX,
                left: 0,
                waking: None,
                idle: true,
                gate: Gate::Open,
                busy_ns: 0,
                done: 0,
                jobs: 0,
                latency_ns: 0,
            }; ENGINES],
            pstates,
            k,
            c: mul_div(k, tau_ns as i64, 1_000_000_000),
            ambient_mc,
            temp: temp_mc * 1000,
            energy: 0,
            traffic: 0,
            pj_per_byte: 100,
            hottest_mc: temp_mc,
        })
    }

    /// The reference board, in a room of 30 °C.
    pub(super) fn reference() -> Result<Self> {
        Self::new(1_666_700, 50 * MS, 30_000, 30_000)
    }

    pub(super) fn set_work(&mut self, engine: usize, work: Work) {
        let e = &mut self.engines[engine];
        e.work = work;
        (e.due, e.left) = match work {
            Work::Idle => (u64::MAX, 0),
            Work::Constant { .. } => (self.now, u64::MAX),
            Work::Every { from, amount, .. } => (from.max(self.now), amount),
            Work::After { amount, .. } => (self.now, amount),
        };
    }

    pub(super) fn temp_mc(&self) -> i64 {
        self.temp / 1000
    }

    pub(super) fn energy_uj(&self) -> u64 {
        self.energy / 1000
    }

    /// Core cycles and bytes that were done.
    pub(super) fn done(&self) -> u64 {
        self.engines.iter().map(|e| e.done).sum()
    }

    /// Jobs that came to an end and the sum of what they took from when they were due.
    pub(super) fn jobs(&self) -> (u64, u64) {
        let jobs = self.engines.iter().map(|e| e.jobs).sum();
        (jobs, self.engines.iter().map(|e| e.latency_ns).sum())
    }

    pub(super) fn gate(&mut self, engine: usize, gate: Gate) {
        if let Some(e) = self.engines.get_mut(engine) {
            if e.idle && e.gate == Gate::Power && gate != Gate::Power {
                self.energy += 150_000;
            }
            e.gate = gate;
        }
    }

    pub(super) fn gates(&self) -> [Gate; ENGINES] {
        self.engines.map(|e| e.gate)
    }

    pub(super) fn violations(&self) -> u32 {
        self.domains.iter().map(|d| d.undervoltage + d.misuse).sum()
    }

    fn table(&self, domain: usize) -> Table {
        *self.pstates.table([Domain::Core, Domain::Memory][domain])
    }

    /// Lets an engine work until `end`; returns for how long it was busy and what it moved.
    fn run_engine(&mut self, index: usize, end: u64) -> (u64, u64) {
        let [core, memory] = self.domains;
        let e = &mut self.engines[index];
        let (mut busy, mut bytes) = (0, 0);
        let mut t = self.now;
        let is_copy = index >= 2;
        // Units per µs, so that jobs are exact to a ns.
        let rate = u64::from(if is_copy {
            memory.khz / 1000 * 64
        } else {
            core.khz / 1000
        });
        while t < end {
            if e.due > t {
                e.idle = true;
                t = e.due.min(end);
                continue;
            }
            if core::mem::take(&mut e.idle) && e.gate == Gate::Power {
                e.waking = Some(t + GATES.wake_ns);
                self.energy += 150_000;
            }
            if let Some(at) = e.waking {
                t = at.min(end).max(t);
                if at > t || t == end {
                    continue;
                }
                e.waking = None;
            }
            let room = (end - t) * rate / 1000;
            let part = e.left.min(room.max(1));
            let ns = (part * 1000).div_ceil(rate).clamp(1, end - t);
            busy += ns;
            t += ns;
            e.done += part;
            if is_copy {
                bytes += part;
            }
            if let Work::Constant { .. } = e.work {
                continue;
            }
            e.left -= part;
            if e.left == 0 {
                e.jobs += 1;
                e.latency_ns += t - e.due;
                (e.due, e.left) = match e.work {
                    Work::Every { period, amount, .. } => (e.due + period, amount),
                    Work::After { pause, amount, .. } => (t + pause, amount),
                    Work::Idle | Work::Constant { .. } => (u64::MAX, 0),
                };
                e.idle = e.due > t;
            }
        }
        e.busy_ns += busy;
        (busy, bytes)
    }

    fn quantum(&mut self, end: u64) {
        let dt = end - self.now;
        let now = self.now;
        let [core, memory] = self.domains;
        let mut farad_ns = 4 * dt as i64 * 1000;
        let mut powered = 0;
        let mut bytes = 0;
        for index in 0..ENGINES {
            let (busy, moved) = self.run_engine(index, end);
            bytes += moved;
            let e = &self.engines[index];
            let awake = if e.gate == Gate::Open { dt } else { busy };
            farad_ns += 4_000 * awake as i64;
            let each = match e.work {
                Work::Constant { lanes }
                | Work::Every { lanes, .. }
                | Work::After { lanes, .. } => {
                    if index < 2 {
                        10_000 + 10 * lanes
                    } else {
                        4_000
                    }
                }
                Work::Idle => 0,
            };
            farad_ns += each * busy as i64;
            powered += if e.gate == Gate::Power { busy } else { dt } as i64;
        }
        // nJ: µW/nF * pF * ns / 1e3 / 1e6.
        let mut nj = core.per_nf(now) as u64 * (farad_ns as u64 / 1000) / 1_000_000;
        nj += memory.per_nf(now) as u64 * 6 * dt / 1_000_000;
        let mv = u64::from(memory.uv(now) / 1000);
        nj += bytes * self.pj_per_byte * mv * mv / 1_210_000_000;
        // Leakage: 2 W and 1.5 W per engine at 1 V and 25 °C.
        let warm = 75_000 + self.temp / 1000;
        let leak_uw = (2_000 * dt as i64 + 1_500 * powered) / dt as i64 * warm / 100
            * i64::from(core.uv(now) / 1000)
            / 1_000;
        nj += leak_uw.max(0) as u64 * dt / 1_000_000;
        nj += 5 * dt;
        self.energy += nj;
        let lost_uw = mul_div(self.k, self.temp - self.ambient_mc * 1000, 1_000_000);
        // nJ to µK.
        let net = nj as i64 - lost_uw * dt as i64 / 1_000_000;
        self.temp += net * 1000 / self.c;
        self.traffic += bytes;
        self.now = end;
        self.hottest_mc = self.hottest_mc.max(self.temp_mc());
        for d in 0..2 {
            let table = self.table(d);
            self.domains[d].advance(&table, end);
        }
    }

    pub(super) fn run_to(&mut self, until: u64) {
        while self.now < until {
            // Ends of changes lie between quanta.
            let mut end = (self.now / QUANTUM + 1) * QUANTUM;
            for d in &self.domains {
                if let Some((_, at)) = d.clock {
                    if at > self.now {
                        end = end.min(at);
                    }
                }
            }
            self.quantum(end.min(until));
        }
    }

    pub(super) fn sample(&self) -> Sample {
        let mut busy_ns = [0; ENGINES_MAX];
        for (busy, e) in busy_ns.iter_mut().zip(&self.engines) {
            *busy = e.busy_ns;
        }
        Sample {
            time_ns: self.now,
            energy_uj: self.energy_uj(),
            temp_mc: self.temp_mc() as i32,
            ambient_mc: self.ambient_mc as i32,
            hot: false,
            braked: false,
            domains: self.domains.map(|d| d.status(self.now)),
            busy_ns,
            traffic: self.traffic,
        }
    }

    /// Work that has not come back: also what waits for its time.
    fn outstanding(&self) -> bool {
        self.engines.iter().any(|e| e.due != u64::MAX)
    }
}

/// A board with a driver.
pub(super) struct Rig<G: Governor> {
    pub(super) plant: Plant,
    pub(super) governor: G,
    transitions: [Transition; 2],
    waits: [Option<u64>; 2],
    pub(super) next: Option<u64>,
    pub(super) samples: u64,
    pub(super) last: Option<Decision>,
    /// The driver is this much late with each sample, at most, in ns.
    pub(super) lateness: u64,
    /// Energy at the last 250 µs, to find the greatest mean power over 5 ms.
    trail: [u64; 20],
    trailed: u64,
    pub(super) worst_mw: u64,
}

impl<G: Governor> Rig<G> {
    pub(super) fn new(plant: Plant, governor: G) -> Self {
        let way = |d| Transition::new(TIMING, plant.pstates.pairs()[2].d(d));
        Self {
            transitions: [way(0), way(1)],
            waits: [None, None],
            next: Some(plant.now),
            samples: 0,
            last: None,
            lateness: 0,
            trail: [0; 20],
            trailed: 0,
            worst_mw: 0,
            plant,
            governor,
        }
    }

    fn carry_out(&mut self, d: Decision) {
        self.next = d.next;
        self.last = Some(d);
        for (engine, &gate) in d.gates.iter().take(ENGINES).enumerate() {
            if self.plant.engines[engine].gate != gate {
                self.plant.gate(engine, gate);
            }
        }
        for (way, level) in self.transitions.iter_mut().zip([d.core, d.memory]) {
            way.request(level);
        }
        self.go(0);
        self.go(1);
    }

    /// Takes a domain's steps until it has to wait.
    fn go(&mut self, domain: usize) {
        let table = self.plant.table(domain);
        let now = self.plant.now;
        self.waits[domain] = None;
        for _ in 0..8 {
            let status = self.plant.domains[domain].status(now);
            match self.transitions[domain].step(&table, &status, now) {
                Step::SetVoltage(uv) => self.plant.domains[domain].set_voltage(uv, now),
                Step::SetClock(khz) => self.plant.domains[domain].set_clock(&table, khz, now),
                Step::Wait(ns) => {
                    self.waits[domain] = Some(now + ns.max(1));
                    return;
                }
                Step::Settled(_) | Step::Safe | Step::Stuck => return,
            }
        }
    }

    /// The driver hands over work.
    pub(super) fn submit(&mut self, engine: usize, work: Work) {
        let first = !self.plant.outstanding();
        self.plant.set_work(engine, work);
        if first {
            let d = self.governor.work(self.plant.now);
            self.carry_out(d);
        }
    }

    pub(super) fn run_to(&mut self, until: u64) {
        while self.plant.now < until {
            let mut at = until;
            for event in [self.waits[0], self.waits[1], self.next].iter().flatten() {
                at = at.min((*event).max(self.plant.now));
            }
            while self.trailed + 250 * US <= at {
                self.trailed += 250 * US;
                self.plant.run_to(self.trailed);
                let energy = self.plant.energy_uj();
                let slot = (self.trailed / (250 * US)) as usize % self.trail.len();
                let before = core::mem::replace(&mut self.trail[slot], energy);
                if self.trailed > 5 * MS {
                    self.worst_mw = self.worst_mw.max((energy - before) / 5);
                }
            }
            self.plant.run_to(at);
            for domain in 0..2 {
                if self.waits[domain].is_some_and(|w| w <= at) {
                    self.go(domain);
                }
            }
            if self.next.is_some_and(|n| n <= at) && self.plant.now < until {
                self.samples += 1;
                let s = self.plant.sample();
                let d = self.governor.sample(&s, self.plant.outstanding());
                self.carry_out(d);
                if self.lateness > 0 {
                    let late = self.plant.now * 2_654_435_761 % self.lateness;
                    self.next = self.next.map(|n| n + late);
                }
            }
        }
    }
}

/// A pair by number.
trait Pair {
    fn d(&self, domain: usize) -> usize;
}

impl Pair for (usize, usize) {
    fn d(&self, domain: usize) -> usize {
        [self.0, self.1][domain]
    }
}

/// An interval of 1 ms in which nothing happened.
pub(super) fn quiet() -> Interval {
    Interval {
        end_ns: MS,
        dt_ns: 1_000_000,
        energy_uj: 0,
        power_mw: 0,
        from_mc: 30_000,
        to_mc: 30_000,
        ambient_mc: 30_000,
        busy_ns: [0; ENGINES_MAX],
        traffic: 0,
        levels: Ok((Level::default(), Level::default())),
        memory_khz: 1,
    }
}
