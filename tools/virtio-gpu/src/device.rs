// SPDX-License-Identifier: GPL-2.0
//! The board as a PCI function behind a vfio-user server: configuration space with virtio's
//! capabilities (4.1.4), BARs, interrupts, resets.
//!
//! BARs are where QEMU's virtio-gpu-pci has them: the MSI-X table in 1, the window in 2, registers in
//! 4. There is no capability for access through configuration space (4.1.4.9), which no driver with
//! memory BARs uses.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use anyhow::Context;
use ochre_vfio_user as vfu;
use vfu::index;
use vfu::pci::capability;
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
use vfu::IrqFlags;
use vfu::Memory;
use vfu::Region;
use vfu::SharedMemory;

use crate::board::Board;
use crate::config::Config;
use crate::config::REGISTERS;
use crate::config::VECTORS;
use crate::irq::Sink;
use crate::transport::place;
use crate::wire::cap;

/// BAR of the MSI-X table.
const BAR_MSIX: u8 = 1;
/// Bytes of that BAR, and where the pending bits are in it.
const MSIX_BYTES: u64 = 0x1000;
const MSIX_PBA: u32 = 0x800;
/// BAR of the window.
const BAR_WINDOW: u8 = 2;
/// BAR of the registers.
const BAR_REGISTERS: u8 = 4;

/// Sends interrupts through the transport.
struct Lines(Arc<Interrupts>);

impl Sink for Lines {
    fn message(&self, vector: u16) -> bool {
        let delivery = self.0.fire(index::irq::MSIX, vector.into());
        matches!(delivery, Delivery::Delivered | Delivery::Masked)
    }

    fn pin(&self) -> bool {
        let delivery = self.0.fire(index::irq::INTX, 0);
        matches!(delivery, Delivery::Delivered | Delivery::Masked)
    }
}

/// The sink for a board's interrupts.
pub fn sink(interrupts: &Arc<Interrupts>) -> Box<dyn Sink> {
    Box::new(Lines(interrupts.clone()))
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
pub struct PciFunction {
    board: Arc<Board>,
    interrupts: Arc<Interrupts>,
    window: Option<Arc<SharedMemory>>,
    function: Mutex<Function>,
}

/// The bytes of a vendor capability after identifier and link (`struct virtio_pci_cap`).
fn structure(kind: u8, bar: u8, id: u8, offset: u64, bytes: u64, more: Option<u32>) -> Vec<u8> {
    let length = 16 + if more.is_some() { 4 } else { 0 };
    let mut body = vec![length, kind, bar, id, 0, 0];
    // Lower halves; offsets and sizes above 4 GiB have their upper halves in `shared_memory`.
    body.extend((offset as u32).to_le_bytes());
    body.extend((bytes as u32).to_le_bytes());
    body.extend(more.into_iter().flat_map(u32::to_le_bytes));
    body
}

/// The capability of the window (`struct virtio_pci_cap64`).
fn shared_memory(bytes: u64) -> Vec<u8> {
    let mut body = structure(
        cap::SHARED_MEMORY,
        BAR_WINDOW,
        cap::HOST_VISIBLE,
        0,
        bytes,
        Some(0),
    );
    body.extend(((bytes >> 32) as u32).to_le_bytes());
    body[0] += 4;
    body
}

fn config_space(config: &Config) -> anyhow::Result<ConfigSpace> {
    let identity = Identity {
        vendor: 0x1af4,
        device: 0x1050,
        subsystem_vendor: 0x1af4,
        subsystem: 0x1100,
        // A display controller that is no VGA.
        class: 0x03_8000,
        revision: 1,
    };
    let at = |kind, offset, bytes, more| structure(kind, BAR_REGISTERS, 0, offset, bytes, more);
    let vendor = capability::VENDOR_SPECIFIC;
    let common = at(cap::COMMON, place::COMMON, place::COMMON_BYTES, None);
    let isr = at(cap::ISR, place::ISR, 1, None);
    let device = at(cap::DEVICE, place::DEVICE, 0x1000, None);
    let stride = u32::try_from(place::NOTIFY_STRIDE)?;
    let notify = at(cap::NOTIFY, place::NOTIFY, 0x1000, Some(stride));
    let mut builder = ConfigSpace::builder(identity)
        .interrupt_pin(1)
        .bar(BAR_REGISTERS.into(), Bar::mem64(REGISTERS).prefetchable())
        .power_management(PmCaps {
            no_soft_reset: true,
            ..PmCaps::default()
        });
    if config.msix {
        builder = builder
            .bar(BAR_MSIX.into(), Bar::mem32(MSIX_BYTES))
            .msix(Msix {
                vectors: VECTORS,
                table_bar: BAR_MSIX,
                table_offset: 0,
                pba_bar: BAR_MSIX,
                pba_offset: MSIX_PBA,
            });
    }
    if config.window != 0 {
        builder = builder
            .bar(BAR_WINDOW.into(), Bar::mem64(config.window).prefetchable())
            .capability(vendor, &shared_memory(config.window), &[]);
    }
    builder
        .capability(vendor, &common, &[])
        .capability(vendor, &isr, &[])
        .capability(vendor, &device, &[])
        .capability(vendor, &notify, &[])
        .express(Express {
            flr: true,
            max_payload: 1,
            link_speed: 4,
            link_width: 16,
        })
        .build()
        .context("configuration space")
}

/// What the transport has to know of a board of this shape.
pub fn device_info(config: &Config, window: Option<&Arc<SharedMemory>>) -> DeviceInfo {
    let pin = Irq {
        count: 1,
        flags: IrqFlags::EVENTFD | IrqFlags::MASKABLE,
    };
    let mut info = DeviceInfo::pci()
        .with_region(BAR_REGISTERS.into(), Region::io(REGISTERS))
        .with_region(index::region::CONFIG, Region::io(vfu::pci::CONFIG_SIZE))
        .with_irq(index::irq::INTX, pin);
    if config.msix {
        info = info
            .with_region(BAR_MSIX.into(), Region::io(MSIX_BYTES))
            .with_irq(index::irq::MSIX, Irq::msix(VECTORS.into()));
    }
    if let Some(window) = window {
        let region = Region::mapped(config.window, window.clone());
        info = info.with_region(BAR_WINDOW.into(), region);
    }
    info
}

impl PciFunction {
    /// Puts a board of this shape behind a function.
    ///
    /// # Errors
    ///
    /// A shape that configuration space cannot describe.
    pub fn new(
        board: Arc<Board>,
        config: &Config,
        interrupts: Arc<Interrupts>,
        window: Option<Arc<SharedMemory>>,
    ) -> anyhow::Result<Self> {
        let function = Function {
            config: config_space(config)?,
            msix: MsixTable::new(VECTORS, 0, MSIX_PBA.into()),
        };
        Ok(Self {
            board,
            interrupts,
            window,
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
        let mut machine = self.board.machine();
        machine.set_bus_master(master);
        machine.irq.set_messages(msix);
        drop(machine);
        self.board.wake();
    }

    /// A reset that does not come from the driver.
    fn bus_reset(&self, kind: ResetKind) {
        {
            let mut function = self.function();
            function.config.reset(kind);
            function.msix = MsixTable::new(VECTORS, 0, MSIX_PBA.into());
        }
        self.board.machine().reset();
        self.update();
    }

    fn config_write(&self, offset: u64, data: &[u8]) {
        let events = self.function().config.write(offset, data);
        for event in events {
            log::debug!("configuration: {event:?}");
            match event {
                ConfigEvent::FunctionLevelReset => self.bus_reset(ResetKind::FunctionLevel),
                ConfigEvent::BusMaster(_) | ConfigEvent::MsixEnable(_) => self.update(),
                _ => {}
            }
        }
    }

    fn window(&self) -> Result<&SharedMemory, Errno> {
        self.window.as_deref().ok_or(Errno::INVAL)
    }
}

impl Device for PciFunction {
    fn region_read(&self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        let bar = u8::try_from(region).unwrap_or(u8::MAX);
        match bar {
            BAR_REGISTERS => self.board.read(offset, data),
            BAR_WINDOW => self
                .window()?
                .read(offset, data)
                .map_err(|_| Errno::INVAL)?,
            BAR_MSIX => {
                let pending = |v| self.interrupts.pending(index::irq::MSIX, v);
                self.function().msix.read(offset, data, pending);
            }
            _ if region == index::region::CONFIG => self.function().config.read(offset, data),
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn region_write(&self, region: u32, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let bar = u8::try_from(region).unwrap_or(u8::MAX);
        match bar {
            BAR_REGISTERS => self.board.write(offset, data),
            BAR_WINDOW => self
                .window()?
                .write(offset, data)
                .map_err(|_| Errno::INVAL)?,
            BAR_MSIX => self.function().msix.write(offset, data),
            _ if region == index::region::CONFIG => self.config_write(offset, data),
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn reset(&self) -> Result<(), Errno> {
        log::info!("reset of the machine");
        self.bus_reset(ResetKind::Cold);
        Ok(())
    }

    fn connected(&self) {
        log::info!("client connected");
    }

    fn disconnected(&self) {
        log::info!("client gone");
        self.bus_reset(ResetKind::Cold);
        // The machine is switched off: what was in the window is not for the next one.
        if let Some(Err(error)) = self.window.as_ref().map(|window| window.zero()) {
            log::warn!("the window is not cleared: {error}");
        }
    }
}
