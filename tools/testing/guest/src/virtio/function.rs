// SPDX-License-Identifier: GPL-2.0
//! The virtio-gpu in sysfs.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;

use crate::harness::eventually;

const DEVICES: &str = "/sys/bus/pci/devices";
const DRIVERS: &str = "/sys/bus/pci/drivers";

/// Who drives the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// ochre.ko.
    Ochre,
    /// The kernel's virtio-gpu, through virtio-pci.
    C,
}

impl Driver {
    /// The name of its PCI driver.
    fn pci_name(self) -> &'static str {
        match self {
            Self::Ochre => "ochre_virtio",
            Self::C => "virtio-pci",
        }
    }
}

/// The PCI function.
#[derive(Clone, Debug)]
pub struct Function {
    path: PathBuf,
    address: String,
    driver: Driver,
}

impl Function {
    /// Finds it and its driver.
    ///
    /// # Errors
    ///
    /// There is none, or nobody drives it.
    pub fn find() -> anyhow::Result<Self> {
        let is = |path: &Path, name: &str, id: &str| {
            fs::read_to_string(path.join(name)).is_ok_and(|text| text.trim() == id)
        };
        for entry in fs::read_dir(DEVICES)? {
            let entry = entry?;
            let path = entry.path();
            if is(&path, "vendor", "0x1af4") && is(&path, "device", "0x1050") {
                let address = entry.file_name().to_string_lossy().into_owned();
                let link = fs::read_link(path.join("driver")).context("nobody drives it")?;
                let driver = if link.ends_with(Driver::C.pci_name()) {
                    Driver::C
                } else {
                    Driver::Ochre
                };
                return Ok(Self {
                    path,
                    address,
                    driver,
                });
            }
        }
        anyhow::bail!("there is no virtio-gpu")
    }

    /// Who drives it, or did until it was unbound.
    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// Path of its render node.
    ///
    /// # Errors
    ///
    /// It has none.
    pub fn render_node(&self) -> anyhow::Result<PathBuf> {
        self.node("renderD")
    }

    /// Path of its primary node.
    ///
    /// # Errors
    ///
    /// It has none.
    pub fn primary_node(&self) -> anyhow::Result<PathBuf> {
        self.node("card")
    }

    fn node(&self, kind: &str) -> anyhow::Result<PathBuf> {
        for entry in fs::read_dir(self.path.join("drm")).context("it has no DRM device")? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with(kind) {
                return Ok(Path::new("/dev/dri").join(name));
            }
        }
        anyhow::bail!("it has no node {kind}*")
    }

    fn tell(&self, what: &str) -> io::Result<()> {
        let driver = Path::new(DRIVERS).join(self.driver.pci_name());
        fs::write(driver.join(what), &self.address)
    }

    /// Takes the driver off.
    ///
    /// # Errors
    ///
    /// It is not bound.
    pub fn unbind(&self) -> io::Result<()> {
        self.tell("unbind")
    }

    /// Binds the driver again, and waits until there is a render node.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn bind(&self) -> anyhow::Result<()> {
        self.tell("bind")?;
        eventually("the render node is there", 60, || {
            Ok(self.render_node().ok().filter(|node| node.exists()))
        })?;
        Ok(())
    }
}
