// SPDX-License-Identifier: GPL-2.0
//! Where a device's structures are: the walk through the capabilities of its configuration space.
//!
//! All that stands there is the device's word. The walk ends after as many steps as configuration
//! space has room for, and a structure that it returns lies within its BAR, so that nobody after it
//! has to ask again. Capabilities of a type or in a BAR that virtio reserves are passed over, as
//! the specification demands ("Virtio Structure PCI Capabilities"); one that contradicts the
//! device's own BARs makes the whole walk fail, because such a device is not one to talk to.

use kernel::{
    error::Error,
    fmt,
    prelude::*, //
};

use super::regs::{
    cap,
    common,
    pci,
    Reg, //
};

#[cfg(CONFIG_KUNIT = "y")]
mod tests;

/// Read access to the first 256 bytes of a configuration space.
pub(super) trait Config {
    /// Reads a byte.
    fn read8(&self, offset: usize) -> u8;
    /// Reads two bytes, at an even offset.
    fn read16(&self, offset: usize) -> u16;
    /// Reads four bytes, at a multiple of 4.
    fn read32(&self, offset: usize) -> u32;
}

/// Bytes of each BAR that is memory; 0 for the others.
pub(super) type BarSizes = [u64; pci::BARS];

/// A range of a BAR, and within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    /// Number of the BAR.
    pub(crate) bar: u32,
    /// Where the range begins in it.
    pub(crate) offset: u64,
    /// How long it is.
    pub(crate) len: u64,
}

/// The window for notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotifyWindow {
    /// Where it is.
    pub(super) region: Region,
    /// Bytes per unit of a queue's notify offset.
    pub(super) multiplier: u32,
}

/// Regions of shared memory that a device may have, at most. virtio-gpu defines one.
const SHARED_MAX: usize = 4;

/// Shared memory is handed out by pages.
const SHARED_ALIGN: u64 = 4096;

/// What the capabilities locate.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The common configuration.
    pub(super) common: Region,
    /// Where to notify.
    pub(super) notify: NotifyWindow,
    /// The interrupt status.
    pub(super) isr: Region,
    /// The configuration of this kind of device.
    pub(super) device: Region,
    /// Shared memory, by its identifier.
    shared: [Option<(u8, Region)>; SHARED_MAX],
}

impl Layout {
    /// The shared memory that the device calls `id`.
    pub(super) fn shared(&self, id: u8) -> Option<Region> {
        let mut all = self.shared.iter().flatten();
        all.find(|(which, _)| *which == id)
            .map(|(_, region)| *region)
    }
}

/// Why there is no [`Layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CapsError {
    /// Reading gives all ones.
    Gone,
    /// The function has no capabilities.
    None,
    /// The list has more elements than there is room for, so it runs in a circle.
    Endless,
    /// The capability at this offset is shorter than its type demands, or leaves the space.
    Short(usize),
    /// The structure that the capability at this offset locates is not within its BAR, too small
    /// for what it is, or not aligned.
    Misplaced(usize),
    /// There is no capability of this type.
    Missing(u8),
}

impl fmt::Display for CapsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("configuration space does not answer"),
            Self::None => f.write_str("no capabilities"),
            Self::Endless => f.write_str("the list of capabilities does not end"),
            Self::Short(at) => write!(f, "capability at {at:#x} is too short"),
            Self::Misplaced(at) => {
                write!(f, "capability at {at:#x} points outside of what there is")
            }
            Self::Missing(kind) => write!(f, "no virtio capability of type {kind}"),
        }
    }
}

impl From<CapsError> for Error {
    fn from(error: CapsError) -> Self {
        match error {
            CapsError::Gone => ENODEV,
            _ => EINVAL,
        }
    }
}

/// A capability of the vendor, at an offset that is a multiple of 4.
struct Capability<'a, C> {
    config: &'a C,
    at: usize,
}

impl<C: Config> Capability<'_, C> {
    fn read8(&self, reg: Reg<u8>) -> u8 {
        self.config.read8(self.at + reg.offset())
    }

    fn read32(&self, reg: Reg<u32>) -> u32 {
        self.config.read32(self.at + reg.offset())
    }

    /// Checks that the capability has `bytes` bytes, of which configuration space has all.
    fn require(&self, bytes: u8) -> Result<(), CapsError> {
        let len = self.config.read8(self.at + cap::LEN.offset());
        if len < bytes || self.at + usize::from(len) > pci::CAP_END {
            return Err(CapsError::Short(self.at));
        }
        Ok(())
    }

    /// The region from `offset` on, if it lies in its BAR, has at least `min` bytes and begins at a
    /// multiple of `align`.
    fn region(
        &self,
        bars: &BarSizes,
        (offset, len): (u64, u64),
        min: u64,
        align: u64,
    ) -> Result<Region, CapsError> {
        let bar = self.read8(cap::BAR);
        let size = bars.get(usize::from(bar)).copied().unwrap_or(0);
        let end = offset.checked_add(len);
        let fits = end.is_some_and(|end| end <= size);
        if !fits || len < min || offset % align != 0 {
            return Err(CapsError::Misplaced(self.at));
        }
        Ok(Region {
            bar: bar.into(),
            offset,
            len,
        })
    }

    /// [`Self::region`] for a capability with 32-bit values.
    fn region32(&self, bars: &BarSizes, min: u64, align: u64) -> Result<Region, CapsError> {
        let range = (
            self.read32(cap::OFFSET).into(),
            self.read32(cap::LENGTH).into(),
        );
        self.region(bars, range, min, align)
    }

    /// [`Self::region`] for a capability with 64-bit values.
    fn region64(&self, bars: &BarSizes, min: u64, align: u64) -> Result<Region, CapsError> {
        self.require(cap::BYTES_64)?;
        let wide = |low, high| u64::from(self.read32(high)) << 32 | u64::from(self.read32(low));
        let range = (
            wide(cap::OFFSET, cap::OFFSET_HIGH),
            wide(cap::LENGTH, cap::LENGTH_HIGH),
        );
        self.region(bars, range, min, align)
    }
}

/// What was found so far; of each type the first counts.
#[derive(Default)]
struct Found {
    common: Option<Region>,
    notify: Option<NotifyWindow>,
    isr: Option<Region>,
    device: Option<Region>,
    shared: [Option<(u8, Region)>; SHARED_MAX],
}

impl Found {
    fn take<C: Config>(
        &mut self,
        capability: &Capability<'_, C>,
        bars: &BarSizes,
    ) -> Result<(), CapsError> {
        // Higher numbers are reserved, and to be passed over. (A capability begins at 252 at most.)
        let kind = capability.read8(cap::TYPE);
        let reserved = match kind {
            cap::COMMON | cap::NOTIFY | cap::ISR | cap::DEVICE | cap::SHARED_MEMORY => {
                capability.require(cap::BYTES)?;
                usize::from(capability.read8(cap::BAR)) >= pci::BARS
            }
            _ => true,
        };
        if reserved {
            return Ok(());
        }
        match kind {
            cap::COMMON if self.common.is_none() => {
                self.common = Some(capability.region32(bars, common::LEN, 4)?);
            }
            cap::NOTIFY if self.notify.is_none() => {
                capability.require(cap::NOTIFY_BYTES)?;
                self.notify = Some(NotifyWindow {
                    region: capability.region32(bars, 2, 2)?,
                    multiplier: capability.read32(cap::NOTIFY_MULTIPLIER),
                });
            }
            cap::ISR if self.isr.is_none() => {
                self.isr = Some(capability.region32(bars, 1, 1)?);
            }
            cap::DEVICE if self.device.is_none() => {
                self.device = Some(capability.region32(bars, 4, 4)?);
            }
            cap::SHARED_MEMORY => {
                let region = capability.region64(bars, 0, SHARED_ALIGN)?;
                let id = capability.read8(cap::WHICH);
                if region.len != 0 {
                    if let Some(free) = self.shared.iter_mut().find(|entry| entry.is_none()) {
                        *free = Some((id, region));
                    }
                }
            }
            // Another one of a type that we have.
            _ => {}
        }
        Ok(())
    }
}

/// Sizes of the BARs that are memory, of a function whose resources `len` tells.
pub(super) fn bar_sizes(config: &impl Config, len: impl Fn(u32) -> u64) -> BarSizes {
    let mut sizes = [0; pci::BARS];
    for (number, size) in (0..).zip(&mut sizes) {
        // The upper half of a 64-bit BAR has no resource, so what its bits look like is the same.
        let bar = config.read32(pci::BAR0 + 4 * (number as usize));
        if bar & pci::BAR_IO == 0 {
            *size = len(number);
        }
    }
    sizes
}

/// Walks through the capabilities.
pub(super) fn walk(config: &impl Config, bars: &BarSizes) -> Result<Layout, CapsError> {
    if config.read16(pci::STATUS.offset()) & pci::STATUS_CAP_LIST == 0 {
        return Err(CapsError::None);
    }

    let mut found = Found::default();
    let mut at = usize::from(config.read8(pci::CAP_POINTER.offset()) & !3);
    // Each takes four bytes at least, so an honest list ends before this does.
    for _ in 0..(pci::CAP_END - pci::CAP_FIRST) / 4 {
        if at < pci::CAP_FIRST {
            return found.try_into();
        }
        let id = config.read8(at + cap::ID.offset());
        let next = usize::from(config.read8(at + cap::NEXT.offset()) & !3);
        if id == u8::MAX {
            return Err(CapsError::Gone);
        }
        if id == pci::CAP_ID_VENDOR {
            found.take(&Capability { config, at }, bars)?;
        }
        at = next;
    }
    Err(CapsError::Endless)
}

impl TryFrom<Found> for Layout {
    type Error = CapsError;

    fn try_from(found: Found) -> Result<Self, CapsError> {
        Ok(Self {
            common: found.common.ok_or(CapsError::Missing(cap::COMMON))?,
            notify: found.notify.ok_or(CapsError::Missing(cap::NOTIFY))?,
            isr: found.isr.ok_or(CapsError::Missing(cap::ISR))?,
            device: found.device.ok_or(CapsError::Missing(cap::DEVICE))?,
            shared: found.shared,
        })
    }
}
