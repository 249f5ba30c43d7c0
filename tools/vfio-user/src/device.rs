// SPDX-License-Identifier: GPL-2.0
//! What a device is to the transport: regions, interrupts, and a handful of calls.

use std::sync::Arc;

use thiserror::Error;

use crate::memory::SharedMemory;
use crate::memory::PAGE_SIZE;
use crate::Errno;

/// Numbers of the regions and interrupt types of a PCI device (`<linux/vfio.h>`).
pub mod index {
    /// Regions, `VFIO_PCI_*_REGION_INDEX`.
    pub mod region {
        /// Base address register 0; the others follow.
        pub const BAR0: u32 = 0;
        /// Base address register 1.
        pub const BAR1: u32 = 1;
        /// Base address register 2.
        pub const BAR2: u32 = 2;
        /// Base address register 3.
        pub const BAR3: u32 = 3;
        /// Base address register 4.
        pub const BAR4: u32 = 4;
        /// Base address register 5.
        pub const BAR5: u32 = 5;
        /// Expansion ROM.
        pub const ROM: u32 = 6;
        /// Configuration space.
        pub const CONFIG: u32 = 7;
        /// Legacy VGA ranges.
        pub const VGA: u32 = 8;
        /// How many there are.
        pub const COUNT: u32 = 9;
    }

    /// Interrupt types, `VFIO_PCI_*_IRQ_INDEX`.
    pub mod irq {
        /// The pin.
        pub const INTX: u32 = 0;
        /// Message signalled interrupts.
        pub const MSI: u32 = 1;
        /// MSI-X.
        pub const MSIX: u32 = 2;
        /// Uncorrectable errors of the host's device.
        pub const ERR: u32 = 3;
        /// The host wants its device back.
        pub const REQ: u32 = 4;
        /// How many there are.
        pub const COUNT: u32 = 5;
    }
}

/// The device behind a server.
///
/// The server calls from its own thread, one call at a time, and holds no lock meanwhile. The client
/// waits for the answer and gives up after a few seconds, so a handler does not block: long work
/// belongs to a thread of the device.
///
/// An error is sent to the client as it is; it is no way to refuse an access as hardware would (for
/// that, answer all ones or ignore the write).
pub trait Device: Send + Sync {
    /// Reads `data.len()` bytes at `offset`. The region exists, may be read, and contains the range.
    ///
    /// # Errors
    ///
    /// Any errno; the client sees the access fail.
    fn region_read(&self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno>;

    /// Writes `data` at `offset`. The region exists, may be written, and contains the range.
    ///
    /// # Errors
    ///
    /// Any errno; the client sees the access fail, unless it had asked for no reply.
    fn region_write(&self, region: u32, offset: u64, data: &[u8]) -> Result<(), Errno>;

    /// The machine was reset. (A function-level reset is a write to configuration space instead.)
    ///
    /// # Errors
    ///
    /// Any errno; the client reports it.
    fn reset(&self) -> Result<(), Errno>;

    /// A client has connected and agreed on a version.
    fn connected(&self) {}

    /// That client is gone; its memory is unmapped and its eventfds are closed. Device state stays.
    fn disconnected(&self) {}
}

/// A part of a region that the client may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapArea {
    /// Offset in the region, a multiple of [`PAGE_SIZE`].
    pub offset: u64,
    /// Size in bytes, a multiple of [`PAGE_SIZE`].
    pub size: u64,
}

/// The memory behind a region that the client may map.
#[derive(Clone, Debug)]
pub(crate) struct Backing {
    pub(crate) memory: Arc<SharedMemory>,
    /// Where the region starts in `memory`.
    pub(crate) offset: u64,
    /// The mappable parts. Always given to the client, also when it is one part that covers the
    /// region: QEMU traps every access to a region without the list.
    pub(crate) areas: Vec<MapArea>,
}

/// One region: a BAR, the configuration space, …
#[derive(Clone, Debug, Default)]
pub struct Region {
    pub(crate) size: u64,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) backing: Option<Backing>,
}

impl Region {
    /// A region whose accesses all go to the device.
    pub fn io(size: u64) -> Self {
        Self {
            size,
            readable: true,
            writable: true,
            backing: None,
        }
    }

    /// A region that the client maps as a whole. Accesses that it does not map (none, for a guest
    /// that uses the BAR as memory) still go to the device.
    pub fn mapped(size: u64, memory: Arc<SharedMemory>) -> Self {
        let areas = vec![MapArea { offset: 0, size }];
        Self {
            backing: Some(Backing {
                memory,
                offset: 0,
                areas,
            }),
            ..Self::io(size)
        }
    }

    /// Lets the client map only these parts; the rest is trapped.
    #[must_use]
    pub fn with_areas(mut self, areas: Vec<MapArea>) -> Self {
        if let Some(backing) = &mut self.backing {
            backing.areas = areas;
        }
        self
    }

    /// The region starts at this offset of its memory (a multiple of [`PAGE_SIZE`]).
    #[must_use]
    pub fn at_file_offset(mut self, offset: u64) -> Self {
        if let Some(backing) = &mut self.backing {
            backing.offset = offset;
        }
        self
    }

    /// The client may not write it.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.writable = false;
        self
    }

    /// The region's size in bytes; 0 if it does not exist.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Checks that what is offered for mapping exists.
    fn check(&self, region: u32) -> Result<(), InfoError> {
        let Some(backing) = &self.backing else {
            return Ok(());
        };
        let inside = |offset: u64, size: u64, limit: u64| {
            size != 0
                && offset % PAGE_SIZE == 0
                && size % PAGE_SIZE == 0
                && offset.checked_add(size).is_some_and(|end| end <= limit)
        };
        if !inside(backing.offset, self.size, backing.memory.len()) {
            return Err(InfoError::OutsideMemory { region });
        }
        let mut end = 0;
        for area in &backing.areas {
            if area.offset < end || !inside(area.offset, area.size, self.size) {
                return Err(InfoError::BadArea { region });
            }
            end = area.offset + area.size;
        }
        if backing.areas.is_empty() || backing.areas.len() > MAX_AREAS {
            return Err(InfoError::BadArea { region });
        }
        Ok(())
    }
}

bitflags::bitflags! {
    /// Properties of an interrupt type (`VFIO_IRQ_INFO_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct IrqFlags: u32 {
        /// It signals eventfds.
        const EVENTFD = 1 << 0;
        /// The client may mask and unmask its vectors.
        const MASKABLE = 1 << 1;
    }
}

/// One interrupt type.
#[derive(Clone, Copy, Debug, Default)]
pub struct Irq {
    /// Number of vectors; 0 if the type does not exist.
    pub count: u32,
    /// Its properties.
    pub flags: IrqFlags,
}

impl Irq {
    /// MSI-X with `count` vectors. The client emulates the table, and with it the masks.
    pub fn msix(count: u32) -> Self {
        Self {
            count,
            flags: IrqFlags::EVENTFD,
        }
    }
}

/// Limits on what a device may declare: QEMU's own, and sizes of replies that stay small.
const MAX_REGIONS: usize = 100;
const MAX_IRQ_TYPES: usize = 50;
const MAX_AREAS: usize = 128;
/// MSI-X has at most this many vectors.
const MAX_VECTORS: u32 = 2048;

/// What a device consists of; fixed for the life of a server.
#[derive(Clone, Debug, Default)]
pub struct DeviceInfo {
    /// By region number, see [`index::region`].
    pub regions: Vec<Region>,
    /// By interrupt type, see [`index::irq`].
    pub irqs: Vec<Irq>,
}

/// A device declares what cannot be.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum InfoError {
    /// The region is not made of whole pages inside its memory.
    #[error("region {region} does not lie inside its memory")]
    OutsideMemory {
        /// The region's number.
        region: u32,
    },
    /// The mappable areas are not whole pages inside the region, in ascending order.
    #[error("region {region} has a bad list of mappable areas")]
    BadArea {
        /// The region's number.
        region: u32,
    },
    /// More regions, interrupt types or vectors than a client accepts.
    #[error("too many regions, interrupt types or vectors")]
    TooMany,
}

impl DeviceInfo {
    /// A PCI device without any region or interrupt.
    pub fn pci() -> Self {
        Self {
            regions: vec![Region::default(); index::region::COUNT as usize],
            irqs: vec![Irq::default(); index::irq::COUNT as usize],
        }
    }

    /// Declares a region.
    #[must_use]
    pub fn with_region(mut self, index: u32, region: Region) -> Self {
        place(&mut self.regions, index, region);
        self
    }

    /// Declares an interrupt type.
    #[must_use]
    pub fn with_irq(mut self, index: u32, irq: Irq) -> Self {
        place(&mut self.irqs, index, irq);
        self
    }

    /// Checks the declarations against each other.
    pub(crate) fn check(&self) -> Result<(), InfoError> {
        if self.regions.len() > MAX_REGIONS
            || self.irqs.len() > MAX_IRQ_TYPES
            || self.irqs.iter().any(|irq| irq.count > MAX_VECTORS)
        {
            return Err(InfoError::TooMany);
        }
        (0..)
            .zip(&self.regions)
            .try_for_each(|(number, region)| region.check(number))
    }
}

/// Puts `value` at `index`, making room as needed; a wild index is left to [`DeviceInfo::check`].
fn place<T: Clone + Default>(list: &mut Vec<T>, index: u32, value: T) {
    let index = (index as usize).min(MAX_REGIONS);
    if list.len() <= index {
        list.resize(index + 1, T::default());
    }
    list[index] = value;
}
