// SPDX-License-Identifier: GPL-2.0
//! Power: what the board says of itself, and what the driver shows and lets people set.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use serde::Deserialize;

use crate::board::Board;
use crate::harness::eventually;
use crate::sysfs::PciDevice;

/// A clock or a voltage, as the board has it.
#[derive(Clone, Debug, Deserialize)]
pub struct Setting {
    /// Value now.
    pub now: u32,
    /// Value that was asked for.
    pub target: u32,
    /// A change is under way.
    pub busy: bool,
    /// The last change failed.
    pub failed: bool,
}

/// Board time at a clock.
#[derive(Clone, Debug, Deserialize)]
pub struct Residency {
    /// The clock.
    pub khz: u32,
    /// For so long, in ns.
    pub ns: u64,
}

/// A domain, as the board has it.
#[derive(Clone, Debug, Deserialize)]
pub struct DomainReport {
    /// In kHz.
    pub clock: Setting,
    /// In µV.
    pub voltage: Setting,
    /// Since the firmware was started.
    pub residency: Vec<Residency>,
}

/// What the control port says to `power`.
#[derive(Clone, Debug, Deserialize)]
pub struct PowerReport {
    /// Board time.
    pub time_ns: u64,
    /// Power of late.
    pub power_mw: u32,
    /// Since power-on.
    pub energy_uj: u64,
    /// Temperature of the die.
    pub temp_mc: i32,
    /// Temperature of the inlet.
    pub ambient_mc: i32,
    /// Core and memory.
    pub domains: [DomainReport; 2],
    /// For each engine what is switched off: "on" (nothing), "clock" or "power".
    pub gates: Vec<String>,
}

impl Board {
    /// What the board says of its power.
    ///
    /// # Errors
    ///
    /// As [`Board::ask`], or the reply is not what it should be.
    pub fn power(&self) -> anyhow::Result<PowerReport> {
        let reply = self.ask("power")?;
        serde_json::from_str(&reply).with_context(|| reply.clone())
    }

    /// Waits until the clock of a domain stands at `khz` and nothing of the domain changes.
    ///
    /// # Errors
    ///
    /// It does not within 30 s.
    pub fn settles_at(&self, domain: usize, khz: u32) -> anyhow::Result<PowerReport> {
        eventually(&format!("clock {domain} at {khz} kHz"), 30, || {
            let report = self.power()?;
            let d = &report.domains[domain];
            let quiet = !d.clock.busy && !d.voltage.busy;
            Ok((d.clock.now == khz && quiet).then_some(report))
        })
    }

    /// Interrupts that the board has sent.
    ///
    /// # Errors
    ///
    /// As [`Board::ask`].
    pub fn interrupts(&self) -> anyhow::Result<u64> {
        let stat = self.ask("stat")?;
        let word = stat
            .split_whitespace()
            .find_map(|word| word.strip_prefix("interrupts="));
        Ok(word.context("no number of interrupts")?.parse()?)
    }
}

/// A folder of small files with one value each.
#[derive(Clone, Debug)]
pub struct Files(PathBuf);

impl Files {
    /// The text of a file.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn get(&self, name: &str) -> io::Result<String> {
        Ok(fs::read_to_string(self.0.join(name))?
            .trim_end()
            .to_string())
    }

    /// The number in a file.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is none.
    pub fn number(&self, name: &str) -> anyhow::Result<i64> {
        let text = self.get(name)?;
        text.parse().with_context(|| format!("{name}: '{text}'"))
    }

    /// Writes a file.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn set(&self, name: &str, text: &str) -> io::Result<()> {
        fs::write(self.0.join(name), text)
    }

    /// The folders in `parent` whose names begin so.
    ///
    /// # Errors
    ///
    /// There is no such parent.
    pub fn all(parent: &Path, prefix: &str) -> anyhow::Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(parent).with_context(|| parent.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(prefix) {
                found.push(Self(path));
            }
        }
        Ok(found)
    }

    /// Where the folder is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// The only folder in `parent` whose name begins so.
fn only(parent: &Path, prefix: &str) -> anyhow::Result<Files> {
    let found = Files::all(parent, prefix)?.into_iter().next();
    found.with_context(|| format!("{}: nothing begins with {prefix}", parent.display()))
}

impl PciDevice {
    /// Its own files.
    pub fn files(&self) -> Files {
        Files(Path::new("/sys/bus/pci/devices").join(self.address()))
    }

    /// Its sensors.
    ///
    /// # Errors
    ///
    /// There are none.
    pub fn hwmon(&self) -> anyhow::Result<Files> {
        only(&self.files().path().join("hwmon"), "hwmon")
    }

    /// The core clock under devfreq.
    ///
    /// # Errors
    ///
    /// It is not.
    pub fn devfreq(&self) -> anyhow::Result<Files> {
        only(&self.files().path().join("devfreq"), self.address())
    }

    /// The memory clock under devfreq.
    ///
    /// # Errors
    ///
    /// It is not.
    pub fn memory_devfreq(&self) -> anyhow::Result<Files> {
        only(
            Path::new("/sys/class/devfreq"),
            &format!("{}-memory", self.address()),
        )
    }
}

/// Sets everything back that the tests of power set, when it is dropped.
#[derive(Debug)]
pub struct Defaults;

impl Drop for Defaults {
    fn drop(&mut self) {
        let reset = || -> anyhow::Result<()> {
            let pci = PciDevice::find()?;
            for (file, text) in [
                ("clock_lock", "0 0"),
                ("memory_clock_lock", "0 0"),
                ("power_policy", "predictive"),
            ] {
                pci.files().set(file, text)?;
            }
            pci.devfreq()?.set("governor", "ochre")?;
            pci.memory_devfreq()?.set("governor", "ochre")?;
            Ok(())
        };
        if let Err(error) = reset() {
            println!("# setting power back: {error:?}");
        }
    }
}
