// SPDX-License-Identifier: GPL-2.0
//! Board time passes: what it takes, what ends meanwhile, and what registers show of it.

use crate::counters::Counters;
use crate::front::Front;
use crate::hw::mem;
use crate::hw::regs;
use crate::hw::regs::DOMAIN_CORE;
use crate::hw::regs::DOMAIN_MEMORY;
use crate::judge::Judge;
use crate::judge::Rule;
use crate::regs::fields;
use crate::regs::Reg;
use crate::stream::Sample;

use super::gate::Shares;
use super::model;
use super::model::Load;
use super::Activity;
use super::Domain;
use super::Part;
use super::Power;
use super::Work;
use super::HOT_HYSTERESIS_MC;
use super::OVER_HYSTERESIS_MC;

/// Seconds of ns.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Part {
    /// Switched capacity times cycles in F: `cycles` of the core's clock passed.
    fn farad_cycles(&self, cycles: u64, shares: Shares, work: &Work) -> f64 {
        let tree = model::TREE_F * shares.clock * cycles as f64;
        if self.lanes == 0 {
            return tree + model::COPY_F * work.cycles as f64;
        }
        let lanes = work.instructions as f64 / f64::from(self.lanes);
        tree + model::COMPUTE_F * work.cycles as f64 + model::LANES_F * lanes
    }
}

impl Power {
    /// Engines moved so many bytes; the next piece of time takes the energy for it.
    pub fn moved(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Board time goes from `from` to `to`. `activity` is what engines did in it, `idle` has a bit for
    /// each that has nothing to do at the end.
    pub fn elapse(
        &mut self,
        counters: &Counters,
        (from, to): (u64, u64),
        activity: &Activity,
        idle: u32,
    ) {
        let ns = to.saturating_sub(from);
        if ns == 0 {
            return;
        }
        let clocks = [self.core_khz(), self.memory_khz()];
        let numbers = [mem::CTR_CORE_CYCLES, mem::CTR_MEMORY_CYCLES];
        let mut cycles = [0; 2];
        for (d, khz) in clocks.into_iter().enumerate() {
            cycles[d] = self.cycles[d].pass(ns, khz);
            counters.board(numbers[d], cycles[d]);
        }
        if self.throttle() != 0 {
            counters.board(mem::CTR_THROTTLED, ns);
        }
        for (domain, residency) in self.domains.iter().zip(&mut self.residency) {
            let at = residency.iter_mut().find(|at| at.0 == domain.khz());
            if let Some((_, time)) = at {
                *time = time.saturating_add(ns);
            }
        }
        let load = self.load(counters, (from, to), cycles, activity, idle);
        let ambient = f64::from(self.ambient_mc) / 1e3;
        let joules = self.die.pass(seconds(ns), ambient, &load);
        self.energy.add(joules);
        if activity.iter().any(|work| work.cycles != 0) {
            self.watts = joules / seconds(ns);
        }
        self.changed = true;
    }

    /// What a piece of time takes; counts what is switched off in it.
    fn load(
        &mut self,
        counters: &Counters,
        (from, to): (u64, u64),
        cycles: [u64; 2],
        activity: &Activity,
        idle: u32,
    ) -> Load {
        let ns = to - from;
        let mut capacity = model::CORE_F * cycles[DOMAIN_CORE] as f64;
        let mut leaks = model::LEAK_W;
        for (i, part) in self.parts.iter().enumerate().filter(|(_, p)| !p.fused) {
            let work = &activity[i];
            let idle = (idle >> i) & 1 != 0;
            let (shares, clock_off, power_off) = part.gate.shares(ns, work.busy_ns, idle);
            capacity += part.farad_cycles(cycles[DOMAIN_CORE], shares, work);
            leaks += model::LEAK_ENGINE_W * shares.power;
            counters.engine(i, mem::CTR_CLOCK_GATED, clock_off);
            counters.engine(i, mem::CTR_POWER_GATED, power_off);
        }
        let (volts, core_square) = self.domains[DOMAIN_CORE].means(from, to);
        let (_, memory_square) = self.domains[DOMAIN_MEMORY].means(from, to);
        let bytes = std::mem::take(&mut self.bytes) as f64;
        let traffic =
            model::TRAFFIC_J * bytes * memory_square / (model::TRAFFIC_V * model::TRAFFIC_V);
        let memory = memory_square * model::MEMORY_F * cycles[DOMAIN_MEMORY] as f64;
        Load {
            joules: model::BOARD_W * seconds(ns)
                + core_square * capacity
                + memory
                + traffic
                + std::mem::take(&mut self.wake_joules),
            leakage: volts * leaks,
        }
    }

    /// Power in W of a board none of whose engines has anything to do.
    fn standing(&self, now: u64) -> f64 {
        let (volts, core_square) = self.domains[DOMAIN_CORE].means(now, now);
        let (_, memory_square) = self.domains[DOMAIN_MEMORY].means(now, now);
        let mut capacity = model::CORE_F;
        let mut leaks = model::LEAK_W;
        for part in self.parts.iter().filter(|part| !part.fused) {
            let (shares, _, _) = part.gate.shares(1, 0, true);
            capacity += model::TREE_F * shares.clock;
            leaks += model::LEAK_ENGINE_W * shares.power;
        }
        model::BOARD_W
            + core_square * capacity * f64::from(self.core_khz()) * 1e3
            + memory_square * model::MEMORY_F * f64::from(self.memory_khz()) * 1e3
            + model::leakage(volts * leaks, self.die.temp())
    }

    /// `POWER_NOW`.
    pub(super) fn power_mw(&self, now: u64) -> u32 {
        let watts = if self.rests {
            self.standing(now)
        } else {
            self.watts
        };
        (watts * 1e3).round() as u32
    }

    /// What the counter stream tells of it.
    pub fn sample(&self, now: u64) -> Sample {
        Sample {
            time: now,
            energy_uj: self.energy.microjoules,
            power_mw: self.power_mw(now),
            temp_mc: self.temp_mc(),
            core_khz: self.core_khz(),
            memory_khz: self.memory_khz(),
        }
    }

    /// What follows from the time that it is: changes that have ended, voltages, temperatures.
    pub fn check(&mut self, counters: &Counters, judge: &Judge, now: u64) {
        for domain in &mut self.domains {
            let ended = domain.check(now);
            if ended.changes != 0 {
                self.irq |= regs::IRQ_POWER;
                self.changed = true;
                counters.board(mem::CTR_CLOCK_CHANGES, ended.clocks.into());
            }
        }
        self.check_voltages(judge, now);
        self.check_temperature(judge);
    }

    pub(super) fn check_voltages(&mut self, judge: &Judge, now: u64) {
        for (d, domain) in (0u64..).zip(&mut self.domains) {
            if let Some(uv) = domain.check_voltage(now) {
                judge.report(Rule::Undervoltage, (d << 32) | u64::from(uv));
            }
        }
    }

    pub(super) fn check_temperature(&mut self, judge: &Judge) {
        let temp = self.temp_mc();
        if self.alert_mc.is_some_and(|alert| temp >= alert) {
            self.alert_mc = None;
            self.irq |= regs::IRQ_THERMAL;
        }
        let (limit, crit) = self.limits_mc();
        if limit.is_some_and(|limit| temp > limit) {
            if !std::mem::replace(&mut self.over, true) {
                judge.report(Rule::Overtemp, u64::from(temp.unsigned_abs()));
            }
        } else if limit.is_none_or(|limit| temp <= limit - OVER_HYSTERESIS_MC) {
            self.over = false;
        }
        let was = self.throttle();
        if crit.is_some_and(|crit| temp > crit) {
            self.hot = true;
        } else if crit.is_none_or(|crit| temp <= crit - HOT_HYSTERESIS_MC) {
            self.hot = false;
        }
        self.throttled(was);
    }

    /// `THROTTLE` was this before something changed.
    pub(super) fn throttled(&mut self, was: u32) {
        if self.throttle() != was {
            self.irq |= regs::IRQ_THROTTLE;
            self.changed = true;
        }
    }

    /// The temperatures of the limits in m°C: limit, critical.
    fn limits_mc(&self) -> (Option<i32>, Option<i32>) {
        let some = |mc: u32| i32::try_from(mc).ok().filter(|&mc| mc != 0);
        (
            some(self.limits.temp_limit_mc),
            some(self.limits.temp_crit_mc),
        )
    }

    /// Switches engines on and off; `idle` has a bit for each that has nothing to do.
    pub fn update_gates(&mut self, counters: &Counters, now: u64, idle: u32) {
        for (i, part) in self.parts.iter_mut().enumerate().filter(|(_, p)| !p.fused) {
            let was = part.gate.status();
            if part.gate.update(now, (idle >> i) & 1 != 0) {
                self.wake_joules += model::WAKE_J;
                counters.engine(i, mem::CTR_WAKES, 1);
            }
            self.changed |= part.gate.status() != was;
        }
        let rests = idle.count_ones() as usize == self.parts.len();
        self.changed |= rests != std::mem::replace(&mut self.rests, rests);
    }

    /// Shows everything in registers, if anything has changed.
    pub fn publish(&mut self, front: &Front, now: u64) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        for (d, domain) in self.domains.iter().enumerate() {
            publish_domain(front, d, domain, now);
        }
        front.show(Reg::POWER_NOW, 0, self.power_mw(now));
        front.show(
            Reg::POWER_BRAKE,
            0,
            fields::POWER_BRAKE::active.put(self.brake.into()),
        );
        front.show(Reg::THROTTLE, 0, self.throttle());
        for (i, part) in self.parts.iter().enumerate() {
            front.show(Reg::GATE_STATUS, i, part.gate.status());
        }
        front.show(Reg::TEMP, 0, self.temp_mc() as u32);
        front.show(Reg::TEMP_AMBIENT, 0, self.ambient_mc as u32);
        front.show(Reg::TEMP_LIMIT, 0, self.limits.temp_limit_mc);
        front.show(Reg::TEMP_CRIT, 0, self.limits.temp_crit_mc);
        front.publish_energy(self.energy.microjoules);
    }

    /// Raises the interrupts of what has happened; it has to be published before.
    pub fn raise(&mut self, front: &Front) {
        let bits = std::mem::take(&mut self.irq);
        if bits != 0 {
            front.irq.raise(regs::VECTOR_FAULT, bits);
        }
    }
}

fn publish_domain(front: &Front, d: usize, domain: &Domain, now: u64) {
    let clock = fields::CLK_STATUS::failed.put(domain.clock.failed().into())
        | fields::CLK_STATUS::busy.put(domain.clock.busy().into());
    let voltage = fields::VOLT_STATUS::failed.put(domain.voltage.failed().into())
        | fields::VOLT_STATUS::busy.put(domain.voltage.busy().into());
    front.show(Reg::CLK_TARGET, d, domain.clock.target());
    front.show(Reg::CLK_STATUS, d, clock);
    front.show(Reg::CLK_NOW, d, domain.khz());
    front.show(Reg::VOLT_TARGET, d, domain.voltage.target());
    front.show(Reg::VOLT_STATUS, d, voltage);
    front.show(Reg::VOLT_NOW, d, domain.uv(now));
    let global = if d == DOMAIN_CORE {
        Reg::CORE_CLOCK
    } else {
        Reg::MEMORY_CLOCK
    };
    front.show(global, 0, domain.khz());
}
