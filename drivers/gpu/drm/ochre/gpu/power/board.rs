// SPDX-License-Identifier: GPL-2.0

//! Between the words of `hal` and those of `algo::power`.

use kernel::prelude::*;

use crate::{
    algo::power::{
        gating::GateCosts,
        governor::Config,
        levels::{
            Level,
            Pstates,
            LEVELS_MAX, //
        },
        sample::{
            Sample,
            ENGINES_MAX, //
        },
        transition::{
            ChangeStatus,
            DomainStatus,
            Timing, //
        }, //
    },
    hal::{
        self,
        BoardCounter,
        Change,
        Counter,
        DomainSample,
        EngineClass,
        EngineCounter,
        EngineId,
        Hal,
        Power, //
    },
};

/// A change that takes this many times longer than it should has failed.
const PATIENCE: u64 = 10;
/// Longest way of a voltage, in mV.
const WAY_MV: u64 = 1_100;
/// What a board without limits is taken to need at its fastest, in mW.
const GUESS_MW: u32 = 100_000;

/// Everything that the governor wants to know of the board now.
pub(super) struct Seen {
    /// In the governor's words.
    pub(super) sample: Sample,
    /// In the board's.
    pub(super) raw: hal::Sample,
}

fn change(change: Change) -> ChangeStatus {
    match change {
        Change { busy: true, .. } => ChangeStatus::Busy,
        Change { failed: true, .. } => ChangeStatus::Failed,
        _ => ChangeStatus::Done,
    }
}

/// A domain in the governor's words.
pub(super) fn status(domain: &DomainSample) -> DomainStatus {
    DomainStatus {
        khz: domain.khz,
        uv: domain.uv,
        clock: change(domain.clock),
        voltage: change(domain.voltage),
    }
}

/// Reads everything.
pub(super) fn read(hal: &dyn Hal, power: &dyn Power) -> Result<Seen> {
    let raw = power.sample()?;
    let mut busy_ns = [0; ENGINES_MAX];
    for (id, busy) in (0..).zip(busy_ns.iter_mut().take(hal.info().engines.len())) {
        *busy = hal.counter(Counter::Engine(EngineId(id), EngineCounter::Busy))?;
    }
    let mut traffic: u64 = 0;
    for counter in [
        BoardCounter::VramRead,
        BoardCounter::VramWrite,
        BoardCounter::BusRead,
        BoardCounter::BusWrite,
    ] {
        traffic = traffic.saturating_add(hal.counter(Counter::Board(counter))?);
    }
    let [core, memory] = &raw.domains;
    let sample = Sample {
        time_ns: raw.time,
        energy_uj: raw.energy_uj,
        temp_mc: raw.temp_mc,
        ambient_mc: raw.ambient_mc,
        hot: raw.hot,
        braked: raw.brake,
        domains: [status(core), status(memory)],
        busy_ns,
        traffic,
    };
    Ok(Seen { sample, raw })
}

/// What a governor has to know of a board. [`None`]: its levels are none.
pub(super) fn config(power: &dyn Power, info: &hal::Info) -> Option<Config> {
    let mut states = [(Level::default(), Level::default()); LEVELS_MAX];
    let level = |point: hal::Point| Level {
        khz: point.khz,
        uv: point.uv,
    };
    let levels = power.levels();
    for (state, &[core, memory]) in states.iter_mut().zip(levels) {
        *state = (level(core), level(memory));
    }
    let pstates = Pstates::new(states.get(..levels.len())?)?;

    let costs = power.costs();
    let longest = WAY_MV
        .saturating_mul(costs.mv_ns)
        .saturating_add(costs.voltage_ns)
        .max(costs.clock_ns);
    let limits = power.limits();
    let compute = (0u32..)
        .zip(&info.engines)
        .filter(|(_, engine)| engine.class == EngineClass::Compute)
        .fold(0u16, |mask, (index, _)| {
            mask | 1u16.checked_shl(index).unwrap_or(0)
        });
    Some(Config {
        pstates,
        initial: power.initial(),
        timing: Timing {
            clock_ns: costs.clock_ns,
            voltage_ns: costs.voltage_ns,
            mv_ns: costs.mv_ns,
            timeout_ns: longest.saturating_mul(PATIENCE),
        },
        gates: GateCosts {
            wake_ns: costs.wake_ns,
            wake_uj: costs.wake_uj,
            leak_mw: costs.leak_mw,
        },
        compute,
        bytes_per_cycle: costs.bytes_per_cycle,
        power_limit_mw: limits.map(|limits| limits.power_mw),
        temp_limit_mc: limits.map(|limits| limits.temp_limit_mc),
        power_guess_mw: limits.map_or(GUESS_MW, |limits| limits.power_mw),
    })
}
