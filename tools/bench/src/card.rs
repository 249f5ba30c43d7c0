// SPDX-License-Identifier: GPL-2.0
//! The device as a PCI function, and its change from one driver to the other.
//!
//! The kernel's driver is two: virtio-pci has the function and makes a virtio device of it, which
//! virtio_gpu drives. Ours drives the function itself and is chosen by `driver_override`.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context;

const BUS: &str = "/sys/bus/pci";
const NODES: &str = "/sys/class/drm";
/// virtio-gpu, as the transport of version 1 names it.
const VIRTIO_GPU: (&str, &str) = ("0x1af4", "0x1050");
/// How long a driver may take until there is a node.
const LIMIT: Duration = Duration::from_secs(60);
/// How often to look for it: no event tells.
const LOOK: Duration = Duration::from_millis(2);

/// A driver of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Driver {
    /// This project's.
    Ochre,
    /// The kernel's, in C.
    C,
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ochre => "ochre",
            Self::C => "virtio_gpu",
        })
    }
}

impl Driver {
    /// The name of its PCI driver.
    fn pci_driver(self) -> &'static str {
        match self {
            Self::Ochre => "ochre_virtio",
            Self::C => "virtio-pci",
        }
    }

    /// Loads its module, unless it is.
    fn load(self, ochre: &Path) -> anyhow::Result<()> {
        match self {
            Self::Ochre if Path::new("/sys/module/ochre").exists() => Ok(()),
            Self::Ochre => run(Command::new("insmod").arg(ochre)),
            Self::C => run(Command::new("modprobe").arg("virtio_gpu")),
        }
    }
}

/// The PCI function.
#[derive(Debug)]
pub struct Card {
    path: PathBuf,
    address: String,
    /// Our module.
    ochre: PathBuf,
}

impl Card {
    /// Finds the first virtio-gpu; `ochre` is our module, which is loaded when it is needed.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn find(ochre: &Path) -> anyhow::Result<Self> {
        let is = |path: &Path, file: &str, id: &str| {
            fs::read_to_string(path.join(file)).is_ok_and(|text| text.trim() == id)
        };
        for entry in fs::read_dir(Path::new(BUS).join("devices"))? {
            let path = fs::canonicalize(entry?.path())?;
            if is(&path, "vendor", VIRTIO_GPU.0) && is(&path, "device", VIRTIO_GPU.1) {
                let address = path.file_name().unwrap_or_default();
                return Ok(Self {
                    address: address.to_string_lossy().into_owned(),
                    ochre: ochre.to_path_buf(),
                    path,
                });
            }
        }
        bail!("this guest has no virtio-gpu")
    }

    /// Takes the device from whoever has it and gives it to `driver`; returns its render node.
    ///
    /// # Errors
    ///
    /// The driver does not take it.
    pub fn give_to(&self, driver: Driver) -> anyhow::Result<PathBuf> {
        driver.load(&self.ochre)?;
        let bound = self.path.join("driver");
        if bound.exists() {
            fs::write(bound.join("unbind"), &self.address).context("unbind")?;
        }
        fs::write(self.path.join("driver_override"), driver.pci_driver())?;
        let probe = Path::new(BUS).join("drivers_probe");
        let probed = fs::write(probe, &self.address);
        ensure!(
            bound.exists(),
            "the driver {} does not take the device {}{}: its module may not know this board, or \
             its probe failed; the end of the kernel's log may say why",
            driver.pci_driver(),
            self.address,
            probed
                .err()
                .map_or(String::new(), |error| format!(" ({error})")),
        );
        self.node()
            .with_context(|| format!("{driver} has bound, but"))
    }

    /// Gives the device back to the kernel's choice.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn give_back(&self) -> io::Result<()> {
        let bound = self.path.join("driver");
        if bound.exists() {
            fs::write(bound.join("unbind"), &self.address)?;
        }
        fs::write(self.path.join("driver_override"), "\n")?;
        fs::write(Path::new(BUS).join("drivers_probe"), &self.address)
    }

    /// Interrupts that it has sent.
    ///
    /// # Errors
    ///
    /// The kernel does not tell.
    pub fn interrupts(&self) -> io::Result<u64> {
        let lines = fs::read_to_string("/proc/interrupts")?;
        let ours = self.vectors()?;
        Ok(count_interrupts(&lines, &ours))
    }

    /// Numbers of the interrupts that it has.
    fn vectors(&self) -> io::Result<Vec<String>> {
        match fs::read_dir(self.path.join("msi_irqs")) {
            Ok(entries) => entries
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                .collect(),
            Err(_) => Ok(vec![fs::read_to_string(self.path.join("irq"))?
                .trim()
                .to_string()]),
        }
    }

    fn node(&self) -> anyhow::Result<PathBuf> {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(node) = self.find_node()? {
                return Ok(node);
            }
            ensure!(
                Instant::now() < end,
                "there is no render node after {} s",
                LIMIT.as_secs()
            );
            thread::sleep(LOOK);
        }
    }

    fn find_node(&self) -> io::Result<Option<PathBuf>> {
        for entry in fs::read_dir(NODES)? {
            let entry = entry?;
            let name = entry.file_name();
            let node = Path::new("/dev/dri").join(&name);
            if name.to_string_lossy().starts_with("renderD")
                && fs::canonicalize(entry.path())?.starts_with(&self.path)
                && node.exists()
            {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }
}

/// Sums the lines of /proc/interrupts that begin with one of `numbers`.
fn count_interrupts(lines: &str, numbers: &[String]) -> u64 {
    let ours = lines.lines().filter_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim();
        numbers.iter().any(|ours| ours == number).then_some(rest)
    });
    ours.flat_map(|rest| {
        rest.split_whitespace()
            .map_while(|word| word.parse::<u64>().ok())
    })
    .sum()
}

/// Runs a program that has to end well.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| program.clone())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}", said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERRUPTS: &str = "           CPU0       CPU1
  0:         12          0   IO-APIC   2-edge      timer
 24:          3          4  PCI-MSIX-0000:00:02.0   0-edge      virtio1-config
 25:        100       2000  PCI-MSIX-0000:00:02.0   1-edge      virtio1-control
250:          7          7  PCI-MSIX-0000:00:03.0   1-edge      other
NMI:          0          0   Non-maskable interrupts
";

    #[test]
    fn interrupts_of_all_processors_and_only_of_the_device_are_counted() {
        let ours = ["24".to_string(), "25".to_string()];
        assert_eq!(count_interrupts(INTERRUPTS, &ours), 2107);
        assert_eq!(count_interrupts(INTERRUPTS, &["26".to_string()]), 0);
    }
}
