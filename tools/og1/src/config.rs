// SPDX-License-Identifier: GPL-2.0
//! What the user chose about the board.

use thiserror::Error;

use crate::hw::regs::BAR0_SIZE;
use crate::hw::regs::ENGINES_MAX;
use crate::hw::regs::SLOTS_MAX;

/// One mebibyte.
pub const MIB: u64 = 1 << 20;

/// Shape of a board; constant while it lives.
#[derive(Clone, Debug)]
pub struct Config {
    /// VRAM in bytes, a multiple of 2 MiB.
    pub vram: u64,
    /// The part of VRAM that BAR2 shows, in bytes: a power of two, at least 1 MiB.
    pub aperture: u64,
    /// Compute engines. They come first in the order of engines.
    pub compute: usize,
    /// Copy engines.
    pub copy: usize,
    /// Hardware slots of each engine.
    pub slots: usize,
    /// Instructions that a compute engine executes per clock, at most.
    pub lanes: u32,
    /// Size of BAR0 in bytes, a power of two. Smaller than the specification's for tests of drivers.
    pub bar0: u64,
    /// Board time never runs ahead of the wall clock.
    pub pace: bool,
    /// Silence ends with a reset, not only by the control socket.
    pub silence_until_reset: bool,
    /// Temperature of the air, and of the die at power-on, in m°C.
    pub ambient_mc: i32,
}

/// Temperatures in m°C that the air and the die can be given.
pub const TEMPS_MC: std::ops::RangeInclusive<i32> = -40_000..=200_000;

impl Default for Config {
    fn default() -> Self {
        Self {
            vram: 256 * MIB,
            aperture: 256 * MIB,
            compute: 2,
            copy: 2,
            slots: 2,
            lanes: 32,
            bar0: BAR0_SIZE as u64,
            pace: false,
            silence_until_reset: false,
            ambient_mc: 30_000,
        }
    }
}

/// A board that cannot be built.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// VRAM size.
    #[error("VRAM of {0:#x} bytes: it has to be a multiple of 2 MiB, from 2 MiB to 1 TiB")]
    Vram(u64),
    /// Aperture size.
    #[error(
        "aperture of {0:#x} bytes: it has to be a power of two, from 1 MiB to the VRAM's size"
    )]
    Aperture(u64),
    /// Number of engines.
    #[error("{0} engines: a board has 1 to {ENGINES_MAX}")]
    Engines(usize),
    /// Number of slots.
    #[error("{0} slots: an engine has 1 to {SLOTS_MAX}")]
    Slots(usize),
    /// Lanes.
    #[error("{0} lanes: a compute engine has 1 to 1024")]
    Lanes(u32),
    /// BAR0 size.
    #[error("BAR0 of {0:#x} bytes: it has to be a power of two, from 4 KiB to 16 MiB")]
    Bar0(u64),
    /// Temperature of the air.
    #[error("air of {0} m°C: it has to be from -40,000 to 200,000")]
    Ambient(i32),
}

impl Config {
    /// Checks every value.
    ///
    /// # Errors
    ///
    /// The first value that a board cannot have.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.vram % (2 * MIB) != 0 || !(2 * MIB..=1 << 40).contains(&self.vram) {
            return Err(ConfigError::Vram(self.vram));
        }
        if !self.aperture.is_power_of_two() || !(MIB..=self.vram).contains(&self.aperture) {
            return Err(ConfigError::Aperture(self.aperture));
        }
        let engines = self.compute.saturating_add(self.copy);
        if !(1..=ENGINES_MAX).contains(&engines) {
            return Err(ConfigError::Engines(engines));
        }
        if !(1..=SLOTS_MAX).contains(&self.slots) {
            return Err(ConfigError::Slots(self.slots));
        }
        if !(1..=1024).contains(&self.lanes) {
            return Err(ConfigError::Lanes(self.lanes));
        }
        if !self.bar0.is_power_of_two() || !(4096..=BAR0_SIZE as u64).contains(&self.bar0) {
            return Err(ConfigError::Bar0(self.bar0));
        }
        if !TEMPS_MC.contains(&self.ambient_mc) {
            return Err(ConfigError::Ambient(self.ambient_mc));
        }
        Ok(())
    }

    /// Number of engines.
    pub fn engines(&self) -> usize {
        self.compute + self.copy
    }

    /// Number of interrupt vectors.
    pub fn vectors(&self) -> usize {
        crate::hw::regs::VECTOR_ENGINE0 + self.engines()
    }
}
