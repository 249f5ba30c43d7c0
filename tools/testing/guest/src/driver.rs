// SPDX-License-Identifier: GPL-2.0
//! The driver's module and its probe.

use std::fs;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context;
use nix::errno::Errno;
use ochre::abi::DRM_OCHRE_ENGINE_COPY;
use ochre::Gpu;
use ochre::Stream;

use crate::harness::errno;
use crate::kmsg::Messages;
use crate::sysfs::PciDevice;
use crate::work::Desk;

/// How often a board is bound to see that nothing was left behind.
const BINDS: usize = 3;

/// The loaded module. It is unloaded when this is dropped.
#[derive(Debug)]
pub struct Driver {
    /// The board.
    pub pci: PciDevice,
    messages: Messages,
    loaded: bool,
}

/// What the driver has claimed: addresses, interrupts, nodes.
fn claims() -> anyhow::Result<Vec<String>> {
    let mut claims = Vec::new();
    for file in ["/proc/iomem", "/proc/interrupts"] {
        let text = fs::read_to_string(file).context(file)?;
        let ours = text.lines().filter(|line| line.contains("ochre"));
        claims.extend(ours.map(|line| format!("{file}: {}", line.trim())));
    }
    if Gpu::open().is_ok() {
        claims.push("a render node".to_string());
    }
    Ok(claims)
}

/// A job on the board comes out right.
fn job_is_right(value: u64) -> anyhow::Result<()> {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    desk.run(&queue, Stream::new().write(desk.word_addr(0), value))?;
    ensure!(desk.word(0) == value, "the job wrote {:#x}", desk.word(0));
    Ok(())
}

impl Driver {
    /// Loads the module, which probes the board.
    ///
    /// # Errors
    ///
    /// The module cannot be loaded. A probe that fails is no error here.
    pub fn load() -> anyhow::Result<Self> {
        let pci = PciDevice::find()?;
        let messages = Messages::from_now()?;
        PciDevice::load_module()?;
        let loaded = true;
        Ok(Self {
            pci,
            messages,
            loaded,
        })
    }

    /// Checks that the probe failed while the module was loaded and fails in the same way again:
    /// with this errno, one line in the kernel's log that holds `words`, and nothing left.
    ///
    /// # Errors
    ///
    /// Says what is not so.
    pub fn refuses(&mut self, reason: Errno, words: &[&str]) -> anyhow::Result<()> {
        for attempt in ["insmod", "bind", "bind again"] {
            if attempt != "insmod" {
                self.messages = Messages::from_now()?;
                let got = errno(self.pci.bind());
                ensure!(
                    got == Some(reason),
                    "{attempt}: {got:?} instead of {reason}"
                );
            }
            ensure!(!self.pci.is_bound(), "{attempt}: the board is bound");
            self.messages.expect(words).context(attempt)?;
            let claims = claims()?;
            ensure!(claims.is_empty(), "{attempt}: {claims:#?} left");
        }
        Ok(())
    }

    /// Checks that the board is bound and works, and does so after it was unbound and bound some
    /// more times. Leaves it unbound.
    ///
    /// # Errors
    ///
    /// Says what is not so.
    pub fn works(&self) -> anyhow::Result<()> {
        ensure!(self.pci.is_bound(), "the board is not bound");
        for bind in 1.. {
            job_is_right(bind).with_context(|| format!("bind {bind}"))?;
            ensure!(!claims()?.is_empty(), "no claims of a driver that is bound");
            self.pci.unbind().context("unbind")?;
            let claims = claims()?;
            ensure!(claims.is_empty(), "{claims:#?} left by unbind");
            if bind > BINDS as u64 {
                break;
            }
            self.pci.bind().context("bind")?;
        }
        Ok(())
    }

    /// Unloads the module.
    ///
    /// # Errors
    ///
    /// It is in use.
    pub fn unload(mut self) -> anyhow::Result<()> {
        self.loaded = false;
        PciDevice::unload_module()?;
        if self.pci.is_bound() {
            bail!("the board is bound to a driver that has gone");
        }
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.loaded {
            if let Err(error) = PciDevice::unload_module() {
                println!("# {error}");
            }
        }
    }
}
