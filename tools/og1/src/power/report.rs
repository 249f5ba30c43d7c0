// SPDX-License-Identifier: GPL-2.0
//! Power and temperature for the control socket, as JSON.

use serde::Serialize;

use crate::hw::regs::DOMAINS;
use crate::regs::fields;

use super::Power;

/// A clock or a voltage.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Value {
    now: u32,
    target: u32,
    busy: bool,
    failed: bool,
}

/// Time at a clock.
#[derive(Clone, Copy, Debug, Serialize)]
struct Residency {
    khz: u32,
    ns: u64,
}

/// A domain.
#[derive(Clone, Debug, Default, Serialize)]
struct DomainReport {
    /// In kHz.
    clock: Value,
    /// In µV.
    voltage: Value,
    /// Board time at each clock of the firmware since that was started.
    residency: Vec<Residency>,
}

/// What the power unit is at.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    time_ns: u64,
    power_mw: u32,
    energy_uj: u64,
    temp_mc: i32,
    ambient_mc: i32,
    limit_mc: u32,
    crit_mc: u32,
    power_limit_mw: u32,
    brake: bool,
    hot: bool,
    /// Clock of the core as it really runs, in kHz.
    core_khz: u32,
    domains: [DomainReport; DOMAINS],
    /// For each engine: "on", "clock" or "power", whichever is switched off.
    gates: Vec<&'static str>,
}

impl Power {
    /// Everything, at time `now`.
    pub fn report(&self, now: u64) -> Report {
        let value = |s: &super::Setting, now| Value {
            now,
            target: s.target(),
            busy: s.busy(),
            failed: s.failed(),
        };
        let domain = |d: usize| DomainReport {
            clock: value(&self.domains[d].clock, self.domains[d].khz()),
            voltage: value(&self.domains[d].voltage, self.domains[d].uv(now)),
            residency: self.residency[d]
                .iter()
                .map(|&(khz, ns)| Residency { khz, ns })
                .collect(),
        };
        let gate = |status| {
            if fields::GATE_STATUS::power_gated.is_set(status) {
                "power"
            } else if fields::GATE_STATUS::clock_gated.is_set(status) {
                "clock"
            } else {
                "on"
            }
        };
        Report {
            time_ns: now,
            power_mw: self.power_mw(now),
            energy_uj: self.energy.microjoules,
            temp_mc: self.temp_mc(),
            ambient_mc: self.ambient_mc,
            limit_mc: self.limits.temp_limit_mc,
            crit_mc: self.limits.temp_crit_mc,
            power_limit_mw: self.limits.power_limit_mw,
            brake: self.brake,
            hot: self.hot,
            core_khz: self.core_khz(),
            domains: std::array::from_fn(domain),
            gates: self
                .parts
                .iter()
                .map(|part| gate(part.gate.status()))
                .collect(),
        }
    }
}
