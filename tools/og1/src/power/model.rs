// SPDX-License-Identifier: GPL-2.0
//! The physics of the reference board: what it takes, and how warm that makes it.
//!
//! Section "Power and energy" of the specification lists the same figures. Everything is computed
//! with the operations that IEEE 754 defines exactly and with the exponential of `libm`, so that the
//! last bit is the same on every machine.

/// What the rest of the board takes, in W.
pub const BOARD_W: f64 = 5.0;
/// Switched capacity of the core beside the engines, in F.
pub const CORE_F: f64 = 4e-9;
/// Of the clock tree of an engine.
pub const TREE_F: f64 = 4e-9;
/// Of a compute engine that works.
pub const COMPUTE_F: f64 = 10e-9;
/// Of a compute engine that uses all its lanes, in addition.
pub const LANES_F: f64 = 10e-9;
/// Of a copy engine that works.
pub const COPY_F: f64 = 4e-9;
/// Of the memory.
pub const MEMORY_F: f64 = 6e-9;
/// Energy that moves a byte at [`TRAFFIC_V`], in J.
pub const TRAFFIC_J: f64 = 100e-12;
/// Voltage of the memory for which [`TRAFFIC_J`] holds.
pub const TRAFFIC_V: f64 = 1.1;
/// Energy of a wake of an engine, in J.
pub const WAKE_J: f64 = 150e-6;
/// Leakage of the core beside the engines at 1 V and [`LEAK_C`], in W.
pub const LEAK_W: f64 = 2.0;
/// The same of an engine with power.
pub const LEAK_ENGINE_W: f64 = 1.5;
/// Temperature for which the leakage is given, in °C.
pub const LEAK_C: f64 = 25.0;
/// Degrees by which the leakage doubles.
pub const LEAK_K: f64 = 100.0;
/// Heat that the die gives to the air, in W/K.
pub const COOLING: f64 = 5.0 / 3.0;
/// Heat capacity of the die, in J/K.
pub const CAPACITY: f64 = 1.0 / 12.0;

/// Below this distance, in K, a temperature counts as settled.
const SETTLED_K: f64 = 1e-4;

/// What a piece of time takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Energy in J without the leakage.
    pub joules: f64,
    /// Leakage in W that there were at [`LEAK_C`].
    pub leakage: f64,
}

/// Leakage in W of what leaks `at_25` at [`LEAK_C`], at a temperature in °C.
pub fn leakage(at_25: f64, temp: f64) -> f64 {
    at_25 * (1.0 + (temp - LEAK_C) / LEAK_K)
}

/// The die and its temperature.
#[derive(Clone, Copy, Debug)]
pub struct Die {
    temp: f64,
    /// How far the temperature was from where the latest load takes it.
    gap: f64,
}

impl Die {
    /// A die of a temperature in °C.
    pub fn new(temp: f64) -> Self {
        Self {
            temp,
            gap: f64::INFINITY,
        }
    }

    /// Temperature in °C.
    pub fn temp(&self) -> f64 {
        self.temp
    }

    /// Whether more time under the latest load changes the temperature no more.
    pub fn settled(&self) -> bool {
        self.gap.abs() < SETTLED_K
    }

    /// `seconds` pass, more than 0, under a load that is spread evenly over them, in air of `ambient`
    /// °C. Returns the energy that was taken, in J.
    ///
    /// The leakage rises with the temperature in a straight line, so that the equation of the
    /// temperature is linear and is solved exactly: however a time is cut into pieces, the end is the
    /// same but for rounding.
    pub fn pass(&mut self, seconds: f64, ambient: f64, load: &Load) -> f64 {
        let slope = load.leakage / LEAK_K;
        let cold = load.leakage * (1.0 - LEAK_C / LEAK_K);
        let cooling = COOLING - slope;
        let end = (load.joules / seconds + cold + COOLING * ambient) / cooling;
        let above = self.temp - end;
        // How much of the distance is left after the time, less 1.
        let fall = libm::expm1(-seconds * cooling / CAPACITY);
        let kelvin_seconds = end * seconds - above * (CAPACITY / cooling) * fall;
        self.temp += above * fall;
        self.gap = self.temp - end;
        load.joules + cold * seconds + slope * kelvin_seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Power in W, without leakage.
    fn watts(w: f64, seconds: f64) -> Load {
        Load {
            joules: w * seconds,
            leakage: 0.0,
        }
    }

    #[test]
    fn a_step_of_power_warms_the_die_as_the_exponential_says() {
        let mut die = Die::new(30.0);
        for ms in 1..=200 {
            die.pass(1e-3, 30.0, &watts(100.0, 1e-3));
            let expected = 30.0 + 60.0 * (1.0 - (-f64::from(ms) / 50.0).exp());
            assert!(
                (die.temp() - expected).abs() < 1e-9,
                "{ms} ms: {}",
                die.temp()
            );
        }
    }

    #[test]
    fn one_piece_ends_where_many_do() {
        let load = |seconds: f64| Load {
            joules: 80.0 * seconds,
            leakage: 12.0,
        };
        let (mut one, mut many) = (Die::new(90.0), Die::new(90.0));
        let joules = one.pass(0.25, 20.0, &load(0.25));
        let sum: f64 = (0..25_000)
            .map(|_| many.pass(1e-5, 20.0, &load(1e-5)))
            .sum();
        assert!((one.temp() - many.temp()).abs() < 1e-8, "{one:?} {many:?}");
        assert!((joules - sum).abs() < 1e-8, "{joules} {sum}");
    }

    #[test]
    fn the_temperature_settles_where_heat_and_cooling_are_equal() {
        let mut die = Die::new(30.0);
        let load = Load {
            joules: 50.0 * 3.0,
            leakage: 8.0,
        };
        assert!(!die.settled());
        die.pass(3.0, 30.0, &load);
        assert!(die.settled());
        let heat = 50.0 + leakage(8.0, die.temp());
        assert!((heat - COOLING * (die.temp() - 30.0)).abs() < 1e-9);
    }

    #[test]
    fn what_was_taken_is_what_went_into_the_die_and_the_air() {
        let mut die = Die::new(70.0);
        let (mut taken, mut given) = (0.0, 0.0);
        for _ in 0..10_000 {
            let before = die.temp();
            let load = Load {
                joules: 30.0 * 1e-5,
                leakage: 10.0,
            };
            taken += die.pass(1e-5, 25.0, &load);
            given += COOLING * ((before + die.temp()) / 2.0 - 25.0) * 1e-5;
        }
        let stored = CAPACITY * (die.temp() - 70.0);
        assert!(
            (taken - given - stored).abs() < 1e-6,
            "{taken} {given} {stored}"
        );
    }

    #[test]
    fn a_short_and_violent_piece_stays_a_number() {
        let mut die = Die::new(30.0);
        let joules = die.pass(1e-9, 30.0, &watts(150_000.0, 1e-9));
        assert!((joules - WAKE_J).abs() < 1e-12);
        assert!((die.temp() - 30.0 - WAKE_J / CAPACITY).abs() < 1e-7);
    }
}
