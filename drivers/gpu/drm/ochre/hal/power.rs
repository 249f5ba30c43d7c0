// SPDX-License-Identifier: GPL-2.0

//! Clocks, voltages, temperature and power of a board that lets them be set.
//!
//! A board need not: [`Hal::power`](super::Hal::power). All values are the board's and are not
//! checked beyond what their documentation says.

use kernel::prelude::*;

use super::EngineId;

/// A part of the board with a clock and a voltage of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Domain {
    /// The engines.
    Core = 0,
    /// VRAM.
    Memory = 1,
}

impl Domain {
    /// Both, by [`Self::index`].
    pub(crate) const ALL: [Self; 2] = [Self::Core, Self::Memory];

    /// As an index.
    pub(crate) const fn index(self) -> usize {
        // CAST: The discriminants count from 0.
        self as usize
    }
}

/// A clock, and the voltage that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Point {
    /// Clock in kHz, not 0.
    pub(crate) khz: u32,
    /// Voltage in µV.
    pub(crate) uv: u32,
}

/// A P-state: a point of each domain, by [`Domain::index`].
pub(crate) type Level = [Point; Domain::ALL.len()];

/// What the board must not exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Power in mW at first, at least `power_min_mw` and at most `power_max_mw`.
    pub(crate) power_mw: u32,
    /// The least that it may be limited to, in mW.
    pub(crate) power_min_mw: u32,
    /// The most that it may be limited to, in mW.
    pub(crate) power_max_mw: u32,
    /// Temperature in m°C, below `temp_crit_mc`.
    pub(crate) temp_limit_mc: i32,
    /// Temperature in m°C at which the board saves itself.
    pub(crate) temp_crit_mc: i32,
}

/// What changes and gates cost, by the board's specification. Times are board time in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// A change of a clock.
    pub(crate) clock_ns: u64,
    /// A change of a voltage, whatever the way.
    pub(crate) voltage_ns: u64,
    /// In addition, for each mV of the way.
    pub(crate) mv_ns: u64,
    /// Until an engine that was switched off is back.
    pub(crate) wake_ns: u64,
    /// Energy for that, in µJ.
    pub(crate) wake_uj: u32,
    /// What an engine takes for nothing else than being switched on, in mW, about.
    pub(crate) leak_mw: u32,
    /// Bytes that go over the memory bus in a cycle of the memory clock, at most.
    pub(crate) bytes_per_cycle: u32,
}

/// How a change is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// It is under way.
    pub(crate) busy: bool,
    /// The last one failed: the value is as before it.
    pub(crate) failed: bool,
}

/// One domain at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DomainSample {
    /// Clock in kHz, not 0.
    pub(crate) khz: u32,
    /// The change of the clock.
    pub(crate) clock: Change,
    /// Voltage in µV.
    pub(crate) uv: u32,
    /// The change of the voltage.
    pub(crate) voltage: Change,
}

/// The board at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Board time, in ticks of [`Info::timestamp_hz`](super::Info::timestamp_hz).
    pub(crate) time: u64,
    /// Energy since power-on in µJ. No reset sets it back.
    pub(crate) energy_uj: u64,
    /// Power of late in mW.
    pub(crate) power_mw: u32,
    /// Temperature of the die in m°C, -100 °C to 300 °C.
    pub(crate) temp_mc: i32,
    /// Temperature of the inlet in m°C, within the same.
    pub(crate) ambient_mc: i32,
    /// The supply asks for less, so that the board itself runs slower.
    pub(crate) brake: bool,
    /// The board is too hot, so that it runs slower.
    pub(crate) hot: bool,
    /// By [`Domain::index`].
    pub(crate) domains: [DomainSample; Domain::ALL.len()],
}

/// What an engine does without while it is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gate {
    /// Its clock.
    pub(crate) clock: bool,
    /// Its supply. Waking takes time and energy.
    pub(crate) power: bool,
}

/// Clocks, voltages, temperature and power.
///
/// Methods may take locks of their own, short ones, and wait for nothing. [`ENODEV`] as for all of
/// [`Hal`](super::Hal). Not to be called while the board is being reset.
///
/// What happened is told by `Gpu::on_power_event`: the alarm went off, a change ended, a temperature
/// was reached, the board slowed itself down or stopped doing so.
pub(crate) trait Power: Send + Sync {
    /// The P-states, fastest first: no clock and no voltage of one is above that of the one before.
    fn levels(&self) -> &[Level];

    /// Limits, if the firmware has any.
    fn limits(&self) -> Option<Limits>;

    /// The P-state that the board is in after a reset: an index of [`Self::levels`].
    fn initial(&self) -> usize;

    /// What changes and gates cost.
    fn costs(&self) -> Costs;

    /// How the board is.
    fn sample(&self) -> Result<Sample>;

    /// Begins to change a clock. To one that a level has, and not while it is being changed.
    fn set_clock(&self, domain: Domain, khz: u32) -> Result;

    /// Begins to change a voltage. Not while it is being changed.
    fn set_voltage(&self, domain: Domain, uv: u32) -> Result;

    /// Has the alarm go off at a time, in ticks, instead of when it was to go off before.
    ///
    /// `lockstep`: the board's clock halts then, until the alarm is armed or disarmed, so that what
    /// is decided upon a sample takes effect at the very moment of the sample. A board that cannot
    /// halt does not.
    fn arm(&self, time: u64, lockstep: bool) -> Result;

    /// Has it not go off.
    fn disarm(&self) -> Result;

    /// Has the board tell when it gets as hot as this, in m°C, once.
    fn alert_at(&self, temp_mc: i32) -> Result;

    /// What an engine is to do without while it is idle.
    fn set_gate(&self, engine: EngineId, gate: Gate) -> Result;
}
