// SPDX-License-Identifier: GPL-2.0
//! What is on the board: identity registers and the discovery table, read once at probe.
//!
//! Everything the board says is checked here against what the driver can handle, and is typed
//! afterwards. Specification, section "Discovery".

use kernel::{
    device,
    prelude::*, //
};

use super::{
    hw::regs::{
        ENGINES_MAX,
        ID_MAGIC,
        SLOTS_MAX,
        UNITS_MAX,
        UNIT_COMPUTE,
        UNIT_COPY,
        UNIT_COUNTERS,
        UNIT_FAULT,
        UNIT_FIRMWARE,
        UNIT_IRQ,
        UNIT_MMU,
        UNIT_POWER,
        UNIT_THERMAL,
        UNIT_TIME, //
    },
    regs::{
        self,
        Regs, //
    }, //
};

/// Version of the specification that this driver follows; another minor one is compatible.
const MAJOR: u32 = 1;

/// What an engine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineKind {
    /// Runs compute kernels, copies and fills.
    Compute,
    /// Copies and fills.
    Copy,
}

/// An engine as the board describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Engine {
    /// Number of its registers.
    pub(super) index: u8,
    /// What it does.
    pub(super) kind: EngineKind,
    /// Hardware slots, 1 to `SLOTS_MAX`.
    pub(super) slots: u8,
    /// Compute: instructions per clock, otherwise 0.
    pub(super) lanes: u32,
    /// Compute: most work-items of a block, otherwise 0.
    pub(super) block_items: u32,
    /// Compute: bytes of block-local memory, otherwise 0.
    pub(super) local_bytes: u32,
}

/// The board.
pub(super) struct Board {
    /// Version of the specification that it follows: major << 16 | minor.
    pub(super) version: u32,
    /// Bytes of VRAM.
    pub(super) vram: u64,
    /// Bytes of VRAM, from its start, that BAR2 shows.
    pub(super) aperture: u64,
    /// Rate of the clock in Hz.
    pub(super) time_hz: u64,
    /// Bits of a GPU address.
    pub(super) va_bits: u32,
    /// Number of queue ids.
    pub(super) queue_ids: u16,
    /// Interrupt vectors.
    pub(super) vectors: u32,
    /// Version of the counters, 0 without any.
    pub(super) counters: u16,
    /// Bit `kind` is set for each kind of unit that is there, below 64.
    pub(super) kinds: u64,
    /// Entries of the discovery table.
    pub(super) units: usize,
    /// Engines in the registers, fused off or not.
    pub(super) engine_count: usize,
    /// Hardware slots of each engine.
    pub(super) slots: usize,
    /// Clocks, voltages, energy and temperature are there.
    pub(super) power: bool,
    /// The engines by index.
    pub(super) engines: KVec<Engine>,
}

/// The units without which the driver cannot work, as they are met in the table.
#[derive(Default)]
struct Found {
    vectors: Option<u32>,
    time_hz: Option<u64>,
    va_bits: Option<u32>,
    firmware: bool,
    fault: bool,
    counters: u16,
    kinds: u64,
    units: usize,
    power: bool,
    thermal: bool,
    engines: usize,
}

impl Board {
    /// Reads and checks everything. Errors: `ENODEV` (nothing answers, or no og1), `EINVAL` (a board that
    /// this driver cannot handle; the log says why).
    pub(super) fn read(dev: &device::Device, regs: &Regs) -> Result<Self> {
        let id = regs.read::<regs::ID>().inspect_err(|_| {
            dev_err!(
                dev,
                "the board does not answer, its registers read all ones: is it powered?\n"
            );
        })?;
        let id = u32::from(id);
        if id != ID_MAGIC {
            dev_err!(dev, "BAR0 says {:#010x}, which is no og1\n", id);
            return Err(ENODEV);
        }
        let version = regs.read::<regs::VERSION>()?;
        if u32::from(version.major()) != MAJOR {
            dev_err!(
                dev,
                "the board follows version {} of the specification, the driver version {}\n",
                u32::from(version.major()),
                MAJOR
            );
            return Err(EINVAL);
        }

        let found = Self::walk_table(dev, regs)?;
        let (Some(vectors), Some(time_hz), Some(va_bits)) =
            (found.vectors, found.time_hz, found.va_bits)
        else {
            dev_err!(dev, "the board lacks interrupts, a clock or an MMU\n");
            return Err(EINVAL);
        };
        if !found.firmware || !found.fault || found.engines == 0 {
            dev_err!(
                dev,
                "the board lacks a firmware loader, a fault ring or engines\n"
            );
            return Err(EINVAL);
        }

        let engines = Self::read_engines(dev, regs, found.engines)?;
        let vram = Self::mebibytes(u32::from(regs.read::<regs::VRAM_SIZE>()?))?;
        let aperture = Self::mebibytes(u32::from(regs.read::<regs::APERTURE_SIZE>()?))?;
        if vram == 0 || aperture > vram {
            dev_err!(
                dev,
                "the board says {} bytes of VRAM, {} of them visible\n",
                vram,
                aperture
            );
            return Err(EINVAL);
        }
        let doorbells = regs.read::<regs::DOORBELLS_CAPS>()?;
        let queue_ids = u16::try_from(u32::from(doorbells.count()))?;

        Ok(Self {
            version: version.into(),
            vram,
            aperture,
            time_hz,
            va_bits,
            queue_ids: queue_ids.min(super::hw::regs::DOORBELLS as u16),
            vectors,
            counters: found.counters,
            kinds: found.kinds,
            units: found.units,
            engine_count: found.engines,
            slots: usize::from(u8::try_from(u32::from(
                regs.read::<regs::ENGINES>()?.slots(),
            ))?),
            power: found.power && found.thermal,
            engines,
        })
    }

    fn mebibytes(count: u32) -> Result<u64> {
        // 2^52 bytes are what an address can reach.
        if count >= 1 << 31 {
            return Err(EINVAL);
        }
        Ok(u64::from(count) << 20)
    }

    fn walk_table(dev: &device::Device, regs: &Regs) -> Result<Found> {
        let units = usize::from(u16::try_from(u32::from(
            regs.read::<regs::UNITS>()?.count(),
        ))?);
        if units > UNITS_MAX {
            dev_err!(
                dev,
                "the discovery table has {} entries, {} fit\n",
                units,
                UNITS_MAX
            );
            return Err(EINVAL);
        }

        let mut found = Found {
            units,
            ..Default::default()
        };
        for unit in 0..units {
            let id = regs.read_at::<regs::UNIT_ID>(unit)?;
            let kind = u32::from(id.kind());
            let info = u32::from(regs.read_at::<regs::UNIT_INFO>(unit)?);
            found.kinds |= 1u64.checked_shl(kind).unwrap_or(0);
            match kind {
                UNIT_IRQ => found.vectors = Some(info),
                UNIT_TIME => found.time_hz = Some(u64::from(info)),
                UNIT_MMU => found.va_bits = Some(info),
                UNIT_FIRMWARE => found.firmware = true,
                UNIT_FAULT => found.fault = true,
                UNIT_COUNTERS => found.counters = u16::try_from(u32::from(id.version()))?,
                UNIT_POWER => found.power = true,
                UNIT_THERMAL => found.thermal = true,
                UNIT_COMPUTE | UNIT_COPY => {
                    let count = u32::from(regs.read_at::<regs::UNIT_COUNT>(unit)?.count());
                    found.engines += usize::try_from(count)?;
                }
                // A unit that this driver does not know is one that it does not use.
                _ => (),
            }
        }
        Ok(found)
    }

    fn read_engines(dev: &device::Device, regs: &Regs, count: usize) -> Result<KVec<Engine>> {
        if count > ENGINES_MAX {
            dev_err!(
                dev,
                "the board says {} engines, {} fit\n",
                count,
                ENGINES_MAX
            );
            return Err(EINVAL);
        }
        let mut engines = KVec::with_capacity(count, GFP_KERNEL)?;
        for index in 0..count {
            let number = u8::try_from(index)?;
            let id = regs.read_at::<regs::ENG_ID>(index)?;
            let slots = u8::try_from(u32::from(id.slots()))?;
            if slots == 0 || usize::from(slots) > SLOTS_MAX {
                dev_err!(dev, "engine {} says {} slots\n", index, slots);
                return Err(EINVAL);
            }
            let engine = match u32::from(id.kind()) {
                UNIT_COMPUTE => {
                    let caps = regs.read_at::<regs::ENG_CAPS>(index)?;
                    Engine {
                        index: number,
                        kind: EngineKind::Compute,
                        slots,
                        lanes: caps.lanes().into(),
                        block_items: caps.block_items().into(),
                        local_bytes: regs.read_at::<regs::ENG_LDS>(index)?.into(),
                    }
                }
                UNIT_COPY => Engine {
                    index: number,
                    kind: EngineKind::Copy,
                    slots,
                    lanes: 0,
                    block_items: 0,
                    local_bytes: 0,
                },
                other => {
                    dev_err!(dev, "engine {} is of the unknown kind {}\n", index, other);
                    return Err(EINVAL);
                }
            };
            engines.push(engine, GFP_KERNEL)?;
        }
        Ok(engines)
    }
}
