// SPDX-License-Identifier: GPL-2.0
//! The board's PCI function in sysfs, and the module.

use std::fs;
use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use anyhow::ensure;
use anyhow::Context;
use memmap2::MmapOptions;
use memmap2::MmapRaw;

const DEVICES: &str = "/sys/bus/pci/devices";
const DRIVER: &str = "/sys/bus/pci/drivers/ochre";
const VENDOR: &str = "0x1234";
const DEVICE: &str = "0x0c47";
/// Where the driver is in the guest.
const MODULE: &str = "/ochre/ochre.ko";

/// The board's PCI function.
#[derive(Clone, Debug)]
pub struct PciDevice {
    path: PathBuf,
    address: String,
}

impl PciDevice {
    /// Finds it.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn find() -> anyhow::Result<Self> {
        let is = |path: &Path, file: &str, id: &str| {
            fs::read_to_string(path.join(file)).is_ok_and(|text| text.trim() == id)
        };
        for entry in fs::read_dir(DEVICES)? {
            let entry = entry?;
            let path = entry.path();
            if is(&path, "vendor", VENDOR) && is(&path, "device", DEVICE) {
                let address = entry.file_name().to_string_lossy().into_owned();
                return Ok(Self { path, address });
            }
        }
        anyhow::bail!("there is no board")
    }

    /// Finds it, and binds the driver if a test before has left it without.
    ///
    /// # Errors
    ///
    /// There is none; the driver's.
    pub fn bound() -> anyhow::Result<Self> {
        let pci = Self::find()?;
        if !pci.is_bound() {
            if !Path::new(DRIVER).exists() {
                Self::load_module()?;
            } else {
                pci.bind()?;
            }
        }
        Ok(pci)
    }

    /// Its address on the bus, by which the kernel names it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether a driver is bound.
    pub fn is_bound(&self) -> bool {
        self.path.join("driver").exists()
    }

    /// Binds the driver.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn bind(&self) -> io::Result<()> {
        fs::write(Path::new(DRIVER).join("bind"), &self.address)
    }

    /// Takes the driver off.
    ///
    /// # Errors
    ///
    /// It is not bound.
    pub fn unbind(&self) -> io::Result<()> {
        fs::write(Path::new(DRIVER).join("unbind"), &self.address)
    }

    /// Takes the driver off and binds it again.
    ///
    /// # Errors
    ///
    /// As for both.
    pub fn rebind(&self) -> io::Result<()> {
        self.unbind()?;
        self.bind()
    }

    /// Enables the function, or takes that back, as a driver does.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn enable(&self, on: bool) -> io::Result<()> {
        fs::write(self.path.join("enable"), if on { "1" } else { "0" })
    }

    /// Maps a BAR.
    ///
    /// # Errors
    ///
    /// A driver has it, or there is none.
    pub fn map(&self, bar: u32) -> anyhow::Result<MmapRaw> {
        let path = self.path.join(format!("resource{bar}"));
        let file = File::options().read(true).write(true).open(&path);
        let file = file.with_context(|| path.display().to_string())?;
        let len = usize::try_from(file.metadata()?.len())?;
        Ok(MmapOptions::new().len(len).map_raw(&file)?)
    }

    /// The 16-bit word at `offset` of the configuration space.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn config(&self, offset: u64) -> io::Result<u16> {
        let mut file = File::open(self.path.join("config"))?;
        file.seek(SeekFrom::Start(offset))?;
        let mut word = [0; 2];
        file.read_exact(&mut word)?;
        Ok(u16::from_le_bytes(word))
    }

    /// Writes the 16-bit word at `offset` of the configuration space.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn set_config(&self, offset: u64, value: u16) -> io::Result<()> {
        let mut file = File::options().write(true).open(self.path.join("config"))?;
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(&value.to_le_bytes())
    }

    /// Whether it may read and write system memory.
    ///
    /// # Errors
    ///
    /// The configuration space cannot be read.
    pub fn is_master(&self) -> io::Result<bool> {
        const COMMAND: u64 = 4;
        const BUS_MASTER: u16 = 1 << 2;
        Ok(self.config(COMMAND)? & BUS_MASTER != 0)
    }

    /// Resets the function (FLR).
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn reset(&self) -> io::Result<()> {
        fs::write(self.path.join("reset"), "1")
    }

    /// Loads the module.
    ///
    /// # Errors
    ///
    /// What insmod says.
    pub fn load_module() -> anyhow::Result<()> {
        run(Command::new("insmod").arg(MODULE))
    }

    /// Unloads the module.
    ///
    /// # Errors
    ///
    /// What rmmod says.
    pub fn unload_module() -> anyhow::Result<()> {
        run(Command::new("rmmod").arg("ochre"))
    }
}

/// Runs a program that has to end well.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{}: {}",
        output.status,
        said.trim()
    );
    Ok(())
}
