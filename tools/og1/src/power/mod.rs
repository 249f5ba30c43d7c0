// SPDX-License-Identifier: GPL-2.0
//! Power: clocks and voltages, gating, energy, temperature, and the board's own throttling.
//!
//! ```text
//!   CLK_TARGET, VOLT_TARGET ──▶ Domain ──┐ cycles, V²
//!   GATE_CTRL ────────────────▶ Gate ────┼──▶ Load ──▶ Die ──▶ energy, temperature ──▶ throttle
//!   what engines did (Activity) ─────────┘                          │
//!                                             interrupts, violations ◀┘
//! ```
//!
//! - `domain`: a clock and a voltage, and their changes, which are events in board time.
//! - `gate`: what is switched off of an idle engine.
//! - `model`: the physics.
//! - `passing`: time that passes, and what follows from where it has got to.
//! - `report`: all of it for the control socket.
//! - this file: what is there, and what is asked of it.
//!
//! Belongs to the machine, as the clock of the board does; no lock. [`Power::elapse`] is called for
//! each piece of board time, once, in order. Interrupts and violations are collected until the machine
//! has published what they announce.

mod domain;
mod gate;
mod model;
mod passing;
mod report;

pub use domain::Domain;
pub use domain::Setting;
pub use gate::Activity;
pub use gate::Work;
pub use report::Report;

use crate::config::Config;
use crate::firmware::Firmware;
use crate::hw::mem;
use crate::hw::mem::FirmwareLimits;
use crate::hw::regs;
use crate::hw::regs::DOMAINS;
use crate::hw::regs::DOMAIN_CORE;
use crate::hw::regs::DOMAIN_MEMORY;
use crate::judge::Judge;
use crate::judge::Rule;
use crate::regs::Reg;
use crate::timing;
use gate::Gate;
use model::Die;

/// The core runs at this part of its clock while it is too hot, and while the supply asks for less.
const HOT_DIVISOR: u32 = 8;
const BRAKE_DIVISOR: u32 = 2;
/// Distance from the critical temperature at which the core is cool again, in m°C.
const HOT_HYSTERESIS_MC: i32 = 5_000;
/// Distance from the limit after which crossing it counts again, in m°C.
const OVER_HYSTERESIS_MC: i32 = 1_000;
/// Longest piece of a jump of the clock while the temperature changes, in ns.
pub const PIECE_NS: u64 = 1_000_000;

/// What the control socket does to power and temperature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The air has this temperature in m°C.
    Ambient(i32),
    /// The die has this temperature in m°C.
    Heat(i32),
    /// The supply asks for less, or does no more.
    Brake(bool),
    /// The next changes of the clock of a domain fail.
    FailClock(usize, u32),
    /// The next changes of the voltage of a domain fail.
    FailVoltage(usize, u32),
    /// The next change of the clock of a domain does not end.
    StallClock(usize),
    /// The next change of the voltage of a domain does not end.
    StallVoltage(usize),
}

/// Cycles of a clock, without loss over its changes.
#[derive(Clone, Copy, Debug, Default)]
struct Cycles {
    count: u64,
    /// Millionths of a cycle.
    rest: u64,
}

impl Cycles {
    /// `ns` pass at `khz`; returns the whole cycles.
    fn pass(&mut self, ns: u64, khz: u32) -> u64 {
        let total = u128::from(ns) * u128::from(khz) + u128::from(self.rest);
        let whole = u64::try_from(total / 1_000_000).unwrap_or(u64::MAX);
        self.rest = (total % 1_000_000) as u64;
        self.count = self.count.saturating_add(whole);
        whole
    }
}

/// Energy in µJ, without loss however long it is summed up.
#[derive(Clone, Copy, Debug, Default)]
struct Energy {
    microjoules: u64,
    rest: f64,
}

impl Energy {
    fn add(&mut self, joules: f64) {
        self.rest += joules * 1e6;
        let whole = self.rest.floor();
        self.rest -= whole;
        self.microjoules = self.microjoules.saturating_add(whole as u64);
    }
}

/// An engine as far as its power is concerned.
#[derive(Clone, Copy, Debug)]
struct Part {
    gate: Gate,
    /// Lanes of a compute engine; 0 for a copy engine.
    lanes: u32,
    /// The fuses leave it without power.
    fused: bool,
}

/// The power unit.
pub struct Power {
    domains: [Domain; DOMAINS],
    parts: Vec<Part>,
    /// All 0 if there are none.
    limits: FirmwareLimits,
    die: Die,
    ambient_mc: i32,
    alert_mc: Option<i32>,
    over: bool,
    hot: bool,
    brake: bool,
    energy: Energy,
    cycles: [Cycles; DOMAINS],
    /// Time at each clock of the P-states.
    residency: [Vec<(u32, u64)>; DOMAINS],
    /// Energy in J and bytes that the next piece of time takes beside its own.
    wake_joules: f64,
    bytes: u64,
    /// Mean power of the latest quantum in which an engine worked, in W.
    watts: f64,
    /// All engines are idle.
    rests: bool,
    /// `IRQ_*` of `VECTOR_FAULT` to raise.
    irq: u32,
    /// Something happened that registers show.
    changed: bool,
}

/// Where a register is, for the judge.
fn offset(reg: Reg, index: usize) -> u64 {
    (reg.def().offset + index * reg.def().stride) as u64
}

/// In m°C, as registers show it.
fn millidegrees(temp: f64) -> i32 {
    (temp * 1e3).floor() as i32
}

impl Power {
    /// As after power-on.
    pub fn new(config: &Config) -> Self {
        let part = |i| Part {
            gate: Gate::default(),
            lanes: if i < config.compute { config.lanes } else { 0 },
            fused: false,
        };
        let mut power = Self {
            domains: Default::default(),
            parts: (0..config.engines()).map(part).collect(),
            limits: FirmwareLimits::default(),
            die: Die::new(f64::from(config.ambient_mc) / 1e3),
            ambient_mc: config.ambient_mc,
            alert_mc: None,
            over: false,
            hot: false,
            brake: false,
            energy: Energy::default(),
            cycles: Default::default(),
            residency: Default::default(),
            wake_joules: 0.0,
            bytes: 0,
            watts: 0.0,
            rests: true,
            irq: 0,
            changed: true,
        };
        power.stop();
        power
    }

    /// A reset: temperature and energy stay, and what the control socket ordered.
    pub fn reset(&mut self) {
        self.stop();
        self.cycles = Default::default();
        self.alert_mc = None;
        self.hot = false;
        self.irq = 0;
        for part in &mut self.parts {
            part.gate = Gate::default();
        }
    }

    /// No firmware runs.
    pub fn stop(&mut self) {
        for (domain, residency) in self.domains.iter_mut().zip(&mut self.residency) {
            domain.start(Vec::new(), (timing::RESET_KHZ, timing::RESET_UV));
            residency.clear();
        }
        self.limits = FirmwareLimits::default();
        for part in &mut self.parts {
            part.fused = false;
        }
        self.over = false;
        self.changed = true;
    }

    /// A firmware runs from now on.
    pub fn start(&mut self, firmware: &Firmware) {
        self.stop();
        let clamp = |uv: u32| uv.clamp(regs::VOLT_MIN_UV, regs::VOLT_MAX_UV);
        for (d, domain) in self.domains.iter_mut().enumerate() {
            let level = |p: &mem::FirmwarePstate| match d {
                DOMAIN_CORE => (p.core_khz, clamp(p.core_uv)),
                _ => (p.memory_khz, clamp(p.memory_uv)),
            };
            let levels: Vec<_> = firmware.pstates.iter().map(level).collect();
            let initial = levels.get(firmware.initial).copied();
            domain.start(
                levels,
                initial.unwrap_or((timing::RESET_KHZ, timing::RESET_UV)),
            );
            let clocks = domain.clocks().into_iter().map(|khz| (khz, 0));
            self.residency[d] = clocks.collect();
        }
        self.limits = firmware.limits.unwrap_or_default();
        for (i, part) in self.parts.iter_mut().enumerate() {
            part.fused = (firmware.engines >> i) & 1 == 0;
        }
    }

    /// Clock of the core as it really runs, in kHz.
    pub fn core_khz(&self) -> u32 {
        let divisor = match self.throttle() {
            0 => 1,
            reasons if reasons & regs::THROTTLE_HOT != 0 => HOT_DIVISOR,
            _ => BRAKE_DIVISOR,
        };
        (self.domains[DOMAIN_CORE].khz() / divisor).max(1)
    }

    /// Clock of the memory in kHz.
    pub fn memory_khz(&self) -> u32 {
        self.domains[DOMAIN_MEMORY].khz()
    }

    /// Cycles of the core clock since the reset.
    pub fn core_cycles(&self) -> u64 {
        self.cycles[DOMAIN_CORE].count
    }

    fn throttle(&self) -> u32 {
        let brake = if self.brake { regs::THROTTLE_BRAKE } else { 0 };
        let hot = if self.hot { regs::THROTTLE_HOT } else { 0 };
        brake | hot
    }

    /// Temperature in m°C.
    pub fn temp_mc(&self) -> i32 {
        millidegrees(self.die.temp())
    }

    /// Whether more time in which nothing happens would change the temperature no more.
    pub fn settled(&self) -> bool {
        self.die.settled()
    }

    /// Whether an interrupt is to be raised.
    pub fn interrupts(&self) -> bool {
        self.irq != 0
    }

    /// Whether an engine may work: it has power.
    pub fn open(&self, engine: usize) -> bool {
        self.parts.get(engine).is_some_and(|part| part.gate.open())
    }

    /// When the next change or wake ends.
    pub fn next_event(&self) -> Option<u64> {
        let changes = self.domains.iter().filter_map(Domain::next_event);
        let wakes = self.parts.iter().filter_map(|part| part.gate.wakes_at());
        changes.chain(wakes).min()
    }

    // What is asked.

    /// `CLK_TARGET` at time `now`.
    pub fn set_clock(&mut self, judge: &Judge, domain: usize, khz: u32, now: u64) {
        let offset = offset(Reg::CLK_TARGET, domain);
        let Some(d) = self.domains.get_mut(domain) else {
            return;
        };
        if !d.has(khz) {
            judge.report(Rule::RegValue, offset);
        } else if !d.set_clock(khz, now) {
            judge.report(Rule::PowerBusy, offset);
        }
        self.changed = true;
        self.check_voltages(judge, now);
    }

    /// `VOLT_TARGET` at time `now`.
    pub fn set_voltage(&mut self, judge: &Judge, domain: usize, uv: u32, now: u64) {
        let offset = offset(Reg::VOLT_TARGET, domain);
        let Some(d) = self.domains.get_mut(domain) else {
            return;
        };
        if !(regs::VOLT_MIN_UV..=regs::VOLT_MAX_UV).contains(&uv) {
            judge.report(Rule::RegValue, offset);
        } else if !d.set_voltage(uv, now) {
            judge.report(Rule::PowerBusy, offset);
        }
        self.changed = true;
    }

    /// `GATE_CTRL`.
    pub fn set_gate(&mut self, engine: usize, ctrl: u32) {
        if let Some(part) = self.parts.get_mut(engine) {
            part.gate.set(ctrl);
        }
    }

    /// `TEMP_ALERT`.
    pub fn set_alert(&mut self, judge: &Judge, value: u32) {
        self.alert_mc = (value != regs::TEMP_ALERT_OFF).then_some(value as i32);
        self.check_temperature(judge);
    }

    /// What the control socket asks for.
    pub fn order(&mut self, judge: &Judge, order: Order) {
        match order {
            Order::Ambient(mc) => self.ambient_mc = mc,
            Order::Heat(mc) => {
                self.die = Die::new(f64::from(mc) / 1e3);
                self.check_temperature(judge);
            }
            Order::Brake(on) => {
                let was = self.throttle();
                self.brake = on;
                self.throttled(was);
            }
            Order::FailClock(d, n) => self.with(d, |d| d.clock.fail_next(n)),
            Order::FailVoltage(d, n) => self.with(d, |d| d.voltage.fail_next(n)),
            Order::StallClock(d) => self.with(d, |d| d.clock.stall_next()),
            Order::StallVoltage(d) => self.with(d, |d| d.voltage.stall_next()),
        }
        self.changed = true;
    }

    fn with(&mut self, domain: usize, f: impl FnOnce(&mut Domain)) {
        if let Some(domain) = self.domains.get_mut(domain) {
            f(domain);
        }
    }
}
