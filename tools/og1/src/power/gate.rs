// SPDX-License-Identifier: GPL-2.0
//! What is switched off of an engine while it is idle.

use crate::hw::regs::ENGINES_MAX;
use crate::regs::fields;
use crate::timing;

/// What an engine did in a piece of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Core cycles in which it worked.
    pub cycles: u64,
    /// The same in ns.
    pub busy_ns: u64,
    /// Instructions that it executed.
    pub instructions: u64,
}

/// What all engines did.
pub type Activity = [Work; ENGINES_MAX];

/// What has power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Everything.
    #[default]
    On,
    /// All but the clock.
    ClockOff,
    /// Nothing.
    Off,
    /// Everything, but it does not work until this time.
    Waking(u64),
}

/// Shares of a piece of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// With power.
    pub power: f64,
    /// With clock.
    pub clock: f64,
}

/// The gate of an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gate {
    clock: bool,
    power: bool,
    state: State,
}

impl Gate {
    /// `GATE_CTRL`.
    pub fn set(&mut self, ctrl: u32) {
        self.clock = fields::GATE_CTRL::clock.is_set(ctrl);
        self.power = fields::GATE_CTRL::power.is_set(ctrl);
    }

    /// `GATE_STATUS`.
    pub fn status(&self) -> u32 {
        fields::GATE_STATUS::power_gated.put((self.state == State::Off).into())
            | fields::GATE_STATUS::clock_gated.put((self.state == State::ClockOff).into())
    }

    /// Whether the engine may work.
    pub fn open(&self) -> bool {
        matches!(self.state, State::On | State::ClockOff)
    }

    /// When it wakes, if it is about to.
    pub fn wakes_at(&self) -> Option<u64> {
        match self.state {
            State::Waking(until) => Some(until),
            _ => None,
        }
    }

    /// Switches what is to be switched, at time `now`; whether a wake began.
    pub fn update(&mut self, now: u64, idle: bool) -> bool {
        let was = self.state;
        self.state = match was {
            State::Waking(until) if now < until => was,
            _ if idle && self.power => State::Off,
            State::Off => State::Waking(now.saturating_add(timing::WAKE_NS)),
            _ if idle && self.clock => State::ClockOff,
            _ => State::On,
        };
        was == State::Off && self.state != State::Off
    }

    /// Shares of the `ns` that have passed since the last update, at whose end the engine is `idle`, and
    /// ns without clock and without power. What it was busy for comes first.
    pub fn shares(&self, ns: u64, busy_ns: u64, idle: bool) -> (Shares, u64, u64) {
        let rest = ns.saturating_sub(busy_ns);
        let (clock_off, power_off) = match self.state {
            State::Off => (0, ns),
            State::Waking(_) => (0, 0),
            _ if idle && self.power => (0, rest),
            _ if idle && self.clock => (rest, 0),
            _ => (0, 0),
        };
        let share = |off: u64| 1.0 - off as f64 / ns.max(1) as f64;
        let shares = Shares {
            power: share(power_off),
            clock: share(power_off + clock_off),
        };
        (shares, clock_off, power_off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_goes_when_the_engine_is_idle_and_comes_back_after_the_wake() {
        let mut gate = Gate::default();
        gate.set(fields::GATE_CTRL::power.put(1) | fields::GATE_CTRL::clock.put(1));
        assert!(!gate.update(0, false) && gate.open());
        assert!(!gate.update(10, true));
        assert_eq!(gate.status(), fields::GATE_STATUS::power_gated.put(1));
        assert!(!gate.open());
        assert!(gate.update(100, false));
        assert_eq!((gate.open(), gate.status()), (false, 0));
        assert_eq!(gate.wakes_at(), Some(100 + timing::WAKE_NS));
        assert!(!gate.update(20_099, false) && !gate.open());
        assert!(!gate.update(20_100, false) && gate.open());
    }

    #[test]
    fn taking_the_bit_back_wakes_the_engine() {
        let mut gate = Gate::default();
        gate.set(fields::GATE_CTRL::power.put(1));
        gate.update(0, true);
        gate.set(0);
        assert!(gate.update(5, true));
        assert!(!gate.open());
        gate.update(20_005, true);
        assert!(gate.open());
    }

    #[test]
    fn shares_are_those_of_the_time_in_which_it_was_idle() {
        let mut gate = Gate::default();
        gate.set(fields::GATE_CTRL::clock.put(1));
        gate.update(0, false);
        let full = Shares {
            power: 1.0,
            clock: 1.0,
        };
        assert_eq!(gate.shares(1000, 250, false), (full, 0, 0));
        let (shares, clock_off, power_off) = gate.shares(1000, 250, true);
        assert_eq!((shares.power, shares.clock), (1.0, 0.25));
        assert_eq!((clock_off, power_off), (750, 0));
        gate.set(fields::GATE_CTRL::power.put(1));
        let (shares, clock_off, power_off) = gate.shares(1000, 2000, true);
        assert_eq!((shares, clock_off, power_off), (full, 0, 0));
        gate.update(1000, true);
        let (shares, clock_off, power_off) = gate.shares(1000, 0, true);
        assert_eq!((shares.power, shares.clock), (0.0, 0.0));
        assert_eq!((clock_off, power_off), (0, 1000));
    }
}
