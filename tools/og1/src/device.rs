// SPDX-License-Identifier: GPL-2.0
//! The board as a PCI function behind a vfio-user server: configuration space, BARs, MSI-X, resets.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use anyhow::Context;
use ochre_vfio_user as vfu;
use vfu::index;
use vfu::pci::Bar;
use vfu::pci::ConfigEvent;
use vfu::pci::ConfigSpace;
use vfu::pci::Express;
use vfu::pci::Identity;
use vfu::pci::Msix;
use vfu::pci::MsixTable;
use vfu::pci::PmCaps;
use vfu::pci::ResetKind;
use vfu::Delivery;
use vfu::Device;
use vfu::DeviceInfo;
use vfu::Errno;
use vfu::Interrupts;
use vfu::Irq;
use vfu::Memory;
use vfu::Region;

use crate::board::Board;
use crate::config::Config;
use crate::hw::regs;
use crate::irq::MessageSink;

/// BAR of the registers and doorbells.
const BAR_REGS: usize = 0;
/// BAR of the aperture.
const BAR_APERTURE: usize = 2;
/// BAR of the MSI-X table.
const BAR_MSIX: usize = 4;

/// Bytes of configuration space.
const CONFIG_BYTES: u64 = 4096;

/// Sends interrupt messages through the transport, if the function may send any.
pub struct MsixSink {
    interrupts: Arc<Interrupts>,
    enabled: Arc<AtomicBool>,
}

impl MessageSink for MsixSink {
    fn send(&self, vector: usize) -> bool {
        if !self.enabled.load(Ordering::SeqCst) {
            return false;
        }
        let Ok(vector) = u32::try_from(vector) else {
            return false;
        };
        let delivery = self.interrupts.fire(index::irq::MSIX, vector);
        matches!(delivery, Delivery::Delivered | Delivery::Masked)
    }
}

/// What of the function is not the board's.
struct Function {
    config: ConfigSpace,
    msix: MsixTable,
}

/// The PCI function.
///
/// Lock: `function` guards configuration space and the MSI-X table; released before the board is
/// called.
pub struct PciBoard {
    board: Arc<Board>,
    interrupts: Arc<Interrupts>,
    /// MSI-X enabled and bus master on.
    messages: Arc<AtomicBool>,
    function: Mutex<Function>,
}

fn config_space(config: &Config, vectors: u16, serial: u64) -> anyhow::Result<ConfigSpace> {
    let identity = Identity {
        vendor: regs::PCI_VENDOR,
        device: regs::PCI_DEVICE,
        subsystem_vendor: regs::PCI_VENDOR,
        subsystem: regs::PCI_DEVICE,
        class: regs::PCI_CLASS,
        revision: 1,
    };
    let msix = Msix {
        vectors,
        table_bar: BAR_MSIX as u8,
        table_offset: 0,
        pba_bar: BAR_MSIX as u8,
        pba_offset: regs::MSIX_PBA as u32,
    };
    ConfigSpace::builder(identity)
        .bar(BAR_REGS, Bar::mem32(config.bar0))
        .bar(BAR_APERTURE, Bar::mem64(config.aperture).prefetchable())
        .bar(BAR_MSIX, Bar::mem32(regs::BAR4_SIZE as u64))
        .power_management(PmCaps {
            no_soft_reset: true,
            ..PmCaps::default()
        })
        .msix(msix)
        .express(Express {
            flr: true,
            max_payload: 1,
            link_speed: 4,
            link_width: 16,
        })
        .aer()
        .serial_number(serial)
        .build()
        .context("configuration space")
}

/// What the transport has to know of a board of this shape, whose VRAM is `vram`.
pub fn device_info(config: &Config, vram: &Arc<vfu::SharedMemory>) -> DeviceInfo {
    let vectors = u32::try_from(config.vectors()).unwrap_or(u32::MAX);
    DeviceInfo::pci()
        .with_region(index::region::BAR0, Region::io(config.bar0))
        .with_region(
            index::region::BAR2,
            Region::mapped(config.aperture, vram.clone()),
        )
        .with_region(index::region::BAR4, Region::io(regs::BAR4_SIZE as u64))
        .with_region(index::region::CONFIG, Region::io(CONFIG_BYTES))
        .with_irq(index::irq::MSIX, Irq::msix(vectors))
}

/// The sink for a board's interrupt messages and the switch that `PciBoard` operates.
pub fn sink(interrupts: &Arc<Interrupts>) -> (Box<dyn MessageSink>, Arc<AtomicBool>) {
    let enabled = Arc::new(AtomicBool::new(false));
    let sink = MsixSink {
        interrupts: interrupts.clone(),
        enabled: enabled.clone(),
    };
    (Box::new(sink), enabled)
}

impl PciBoard {
    /// Puts a board behind a function with this serial number. `messages` comes from [`sink`].
    ///
    /// # Errors
    ///
    /// A shape that configuration space cannot describe.
    pub fn new(
        board: Arc<Board>,
        interrupts: Arc<Interrupts>,
        messages: Arc<AtomicBool>,
        serial: u64,
    ) -> anyhow::Result<Self> {
        let config = board.front().config();
        let vectors = u16::try_from(config.vectors())?;
        let function = Function {
            config: config_space(config, vectors, serial)?,
            msix: MsixTable::new(vectors, 0, regs::MSIX_PBA as u64),
        };
        Ok(Self {
            board,
            interrupts,
            messages,
            function: Mutex::new(function),
        })
    }

    fn function(&self) -> MutexGuard<'_, Function> {
        self.function.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes on what configuration space says about bus mastering and messages.
    fn update(&self) {
        let (master, msix) = {
            let function = self.function();
            (function.config.bus_master(), function.config.msix_enabled())
        };
        self.messages.store(master && msix, Ordering::SeqCst);
        self.board.set_bus_master(master);
    }

    fn power_cycle(&self) {
        {
            let mut function = self.function();
            function.config.reset(ResetKind::Cold);
            let config = self.board.front().config();
            let vectors = u16::try_from(config.vectors()).unwrap_or(1);
            function.msix = MsixTable::new(vectors, 0, regs::MSIX_PBA as u64);
        }
        self.messages.store(false, Ordering::SeqCst);
        self.board.bus_reset();
    }

    fn config_write(&self, offset: u64, data: &[u8]) {
        let events = self.function().config.write(offset, data);
        for event in events {
            log::debug!("configuration: {event:?}");
            match event {
                ConfigEvent::FunctionLevelReset => {
                    self.messages.store(false, Ordering::SeqCst);
                    self.board.bus_reset();
                }
                ConfigEvent::BusMaster(_) | ConfigEvent::MsixEnable(_) => self.update(),
                _ => {}
            }
        }
    }
}

impl Device for PciBoard {
    fn region_read(&self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        match region {
            index::region::BAR0 => self.board.mmio_read(offset, data),
            index::region::BAR2 => {
                self.board
                    .vram()
                    .read(offset, data)
                    .map_err(|_| Errno::INVAL)?;
            }
            index::region::BAR4 => {
                let pending = |v| self.interrupts.pending(index::irq::MSIX, v);
                self.function().msix.read(offset, data, pending);
            }
            index::region::CONFIG => self.function().config.read(offset, data),
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn region_write(&self, region: u32, offset: u64, data: &[u8]) -> Result<(), Errno> {
        match region {
            index::region::BAR0 => self.board.mmio_write(offset, data),
            index::region::BAR2 => {
                self.board
                    .vram()
                    .write(offset, data)
                    .map_err(|_| Errno::INVAL)?;
            }
            index::region::BAR4 => self.function().msix.write(offset, data),
            index::region::CONFIG => self.config_write(offset, data),
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn reset(&self) -> Result<(), Errno> {
        log::info!("reset of the machine");
        self.power_cycle();
        Ok(())
    }

    fn connected(&self) {
        log::info!("client connected");
    }

    fn disconnected(&self) {
        log::info!("client gone");
        self.power_cycle();
        // The machine is switched off: what was in VRAM is not for the next one.
        if let Err(error) = self.board.vram().zero() {
            log::warn!("VRAM is not cleared: {error}");
        }
    }
}
