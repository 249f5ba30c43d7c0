// SPDX-License-Identifier: GPL-2.0
//! A small device to learn from, after QEMU's `edu`: registers, memory, DMA, interrupts, reset.
//!
//! ```text
//! cargo run --example edu -- /tmp/edu.sock &
//! qemu-system-x86_64 -machine q35,memory-backend=mem -m 256M -monitor stdio -S \
//!     -object memory-backend-memfd,id=mem,size=256M,share=on \
//!     -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"/tmp/edu.sock"}}'
//! (qemu) info pci
//! ```
//!
//! BAR0: identification (0x00), liveness check (0x04: reads back inverted), interrupt by number
//! (0x08), DMA address (0x10, 64 bits), offset in BAR2 (0x18), length (0x1c), command and result
//! (0x20: 1 reads from the guest into BAR2, 2 writes; then 0 for done, all ones for an error).
//! BAR2: 64 KiB of memory. BAR4: MSI-X.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use ochre_vfio_user as vfu;
use vfu::index::irq;
use vfu::index::region;
use vfu::pci;
use vfu::Errno;
use vfu::Memory;

const REGISTERS: u64 = 0x1000;
const MEMORY: u64 = 0x10000;
const MSIX: u64 = 0x2000;
const PBA: u64 = 0x1000;
const VECTORS: u16 = 4;

const ID: u32 = 0x0100_00ed;

#[derive(Default)]
struct Registers {
    liveness: u32,
    address: u64,
    offset: u32,
    length: u32,
    result: u32,
}

struct State {
    registers: Registers,
    config: pci::ConfigSpace,
    msix: pci::MsixTable,
}

struct Edu {
    /// Everything that a register access touches; nothing else is locked inside, but a view of the
    /// guest's memory.
    state: Mutex<State>,
    memory: Arc<vfu::SharedMemory>,
    guest: Arc<vfu::GuestMemory>,
    interrupts: Arc<vfu::Interrupts>,
}

impl Edu {
    fn read_register(&self, state: &State, offset: u64) -> u32 {
        let registers = &state.registers;
        match offset {
            0x00 => ID,
            0x04 => !registers.liveness,
            0x10 => registers.address as u32,
            0x14 => (registers.address >> 32) as u32,
            0x18 => registers.offset,
            0x1c => registers.length,
            0x20 => registers.result,
            _ => 0,
        }
    }

    fn write_register(&self, state: &mut State, offset: u64, value: u32) {
        let master = state.config.bus_master();
        let registers = &mut state.registers;
        match offset {
            0x04 => registers.liveness = value,
            0x08 if master => {
                let delivery = self.interrupts.fire(irq::MSIX, value);
                println!("edu: interrupt {value}: {delivery:?}");
            }
            0x10 => registers.address = registers.address & !0xffff_ffff | u64::from(value),
            0x14 => {
                registers.address = registers.address & 0xffff_ffff | (u64::from(value) << 32);
            }
            0x18 => registers.offset = value,
            0x1c => registers.length = value,
            0x20 => {
                let (at, len) = (u64::from(registers.offset), u64::from(registers.length));
                let guest = self.guest.view();
                let result = match value {
                    1 if master => vfu::copy(&**self.memory, at, &guest, registers.address, len),
                    2 if master => vfu::copy(&guest, registers.address, &**self.memory, at, len),
                    _ => Err(vfu::MemoryError::Overflow),
                };
                println!(
                    "edu: DMA {value} {:#x}+{len:#x}: {result:?}",
                    registers.address
                );
                registers.result = if result.is_ok() { 0 } else { !0 };
            }
            _ => {}
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl vfu::Device for Edu {
    fn region_read(&self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        let state = self.lock();
        match region {
            region::BAR0 => {
                let value = self.read_register(&state, offset & !3).to_le_bytes();
                let bytes = value
                    .iter()
                    .skip((offset & 3) as usize)
                    .chain(std::iter::repeat(&0));
                data.iter_mut()
                    .zip(bytes)
                    .for_each(|(to, from)| *to = *from);
            }
            region::BAR2 => self.memory.read(offset, data).map_err(|_| Errno::FAULT)?,
            region::BAR4 => {
                state.msix.read(offset, data, |vector| {
                    self.interrupts.pending(irq::MSIX, vector)
                });
            }
            region::CONFIG => state.config.read(offset, data),
            _ => data.fill(0),
        }
        Ok(())
    }

    fn region_write(&self, region: u32, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let mut state = self.lock();
        match region {
            // Registers take whole words.
            region::BAR0 => {
                if let Ok(word) = data.try_into() {
                    self.write_register(&mut state, offset, u32::from_le_bytes(word));
                }
            }
            region::BAR2 => self.memory.write(offset, data).map_err(|_| Errno::FAULT)?,
            region::BAR4 => state.msix.write(offset, data),
            region::CONFIG => {
                for event in state.config.write(offset, data) {
                    println!("edu: {event:?}");
                    if event == pci::ConfigEvent::FunctionLevelReset {
                        state.registers = Registers::default();
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn reset(&self) -> Result<(), Errno> {
        let mut state = self.lock();
        state.registers = Registers::default();
        state.config.reset(pci::ResetKind::Warm);
        println!("edu: reset");
        Ok(())
    }

    fn connected(&self) {
        println!("edu: connected");
    }

    fn disconnected(&self) {
        println!("edu: disconnected");
    }
}

fn config() -> Result<pci::ConfigSpace, pci::BuildError> {
    let identity = pci::Identity {
        vendor: 0x1234,
        device: 0x11e8,
        subsystem_vendor: 0x1234,
        subsystem: 0x0001,
        class: 0x00ff00,
        revision: 0x10,
    };
    pci::ConfigSpace::builder(identity)
        .bar(0, pci::Bar::mem32(REGISTERS))
        .bar(2, pci::Bar::mem64(MEMORY).prefetchable())
        .bar(4, pci::Bar::mem32(MSIX))
        .power_management(pci::PmCaps {
            no_soft_reset: true,
            ..Default::default()
        })
        .msix(pci::Msix {
            vectors: VECTORS,
            table_bar: 4,
            table_offset: 0,
            pba_bar: 4,
            pba_offset: PBA as u32,
        })
        .express(pci::Express {
            flr: true,
            max_payload: 1,
            link_speed: 3,
            link_width: 16,
        })
        .aer()
        .serial_number(0x0123_4567_89ab_cdef)
        .build()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: edu SOCKET")?;
    Ok(listen(&path)?.serve()?)
}

/// The device with its server.
pub struct Board {
    server: vfu::Server,
    device: Edu,
}

impl Board {
    /// Serves one client.
    pub fn serve(&self) -> Result<(), vfu::ServerError> {
        self.server.serve(&self.device, vfu::Serve::Once)
    }
}

/// Builds the device and the socket.
pub fn listen(path: &str) -> Result<Board, Box<dyn std::error::Error>> {
    let memory = Arc::new(vfu::SharedMemory::new("edu", MEMORY)?);
    let info = vfu::DeviceInfo::pci()
        .with_region(region::BAR0, vfu::Region::io(REGISTERS))
        .with_region(
            region::BAR2,
            vfu::Region::mapped(MEMORY, Arc::clone(&memory)),
        )
        .with_region(region::BAR4, vfu::Region::io(MSIX))
        .with_region(region::CONFIG, vfu::Region::io(pci::CONFIG_SIZE))
        .with_irq(irq::MSIX, vfu::Irq::msix(VECTORS.into()));
    let server = vfu::Server::bind(path, info)?;
    let device = Edu {
        state: Mutex::new(State {
            registers: Registers::default(),
            config: config()?,
            msix: pci::MsixTable::new(VECTORS, 0, PBA),
        }),
        memory,
        guest: Arc::clone(server.memory()),
        interrupts: Arc::clone(server.interrupts()),
    };
    Ok(Board { server, device })
}
