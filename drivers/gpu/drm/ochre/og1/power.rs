// SPDX-License-Identifier: GPL-2.0
//! Clocks, voltages, gates, temperature and the alarm: [`hal::Power`](crate::hal::Power) for og1.
//!
//! What the driver may do with clocks and voltages stands in the firmware image, which is parsed
//! here a second time after the board has checked it. Specification, sections "Power", "Thermal" and
//! "Alarm".

use core::mem::{
    offset_of,
    size_of, //
};

use kernel::prelude::*;

use super::{
    board::Og1,
    firmware,
    hw::{
        mem::{
            FirmwareBlock,
            FirmwareHeader,
            FirmwareLimits,
            FirmwarePstate,
            FW_BLOCK_LIMITS, //
        },
        regs::{
            THROTTLE_BRAKE,
            THROTTLE_HOT, //
        }, //
    },
    regs::{
        self,
        split, //
    }, //
};
use crate::hal::{
    Change,
    Costs,
    Domain,
    DomainSample,
    EngineId,
    Gate,
    Level,
    Limits,
    Point,
    Power,
    Sample, //
};

/// Blocks of an image, at most.
const BLOCKS_MAX: usize = 64;
/// Temperatures in m°C that make sense.
const TEMPERATURES: core::ops::RangeInclusive<i32> = -100_000..=300_000;

/// What the specification says of changes and gates, sections "Power" and "Timing model". What of it the governor can measure, it does.
const COSTS: Costs = Costs {
    clock_ns: 20_000,
    voltage_ns: 2_000,
    mv_ns: 100,
    wake_ns: 20_000,
    wake_uj: 150,
    leak_mw: 1_500,
    bytes_per_cycle: 64,
};

/// What the firmware says of power.
pub(super) struct Table {
    /// P-states, fastest first.
    levels: KVec<Level>,
    /// The one to start in.
    initial: usize,
    limits: Option<Limits>,
}

impl Table {
    /// Reads the table of an image, of which `count` P-states were found. `EINVAL` when the levels
    /// are in no order or limits contradict each other.
    pub(super) fn parse(data: &[u8], count: usize) -> Result<Self> {
        let mut levels: KVec<Level> = KVec::with_capacity(count, GFP_KERNEL)?;
        for index in 0..count {
            let at = size_of::<FirmwareHeader>() + index * size_of::<FirmwarePstate>();
            let word = |offset| firmware::word(data, at + offset);
            let level = [
                Point {
                    khz: word(offset_of!(FirmwarePstate, core_khz))?,
                    uv: word(offset_of!(FirmwarePstate, core_uv))?,
                },
                Point {
                    khz: word(offset_of!(FirmwarePstate, memory_khz))?,
                    uv: word(offset_of!(FirmwarePstate, memory_uv))?,
                },
            ];
            let falls = |before: &Level| {
                let mut pairs = before.iter().zip(&level);
                pairs.all(|(before, point)| point.khz <= before.khz && point.uv <= before.uv)
            };
            if level.iter().any(|point| point.khz == 0) || !levels.last().is_none_or(falls) {
                return Err(EINVAL);
            }
            levels.push(level, GFP_KERNEL)?;
        }
        let blocks = size_of::<FirmwareHeader>() + count * size_of::<FirmwarePstate>();
        let limits = match find_block(data, blocks, FW_BLOCK_LIMITS)? {
            Some(block) => Some(parse_limits(block)?),
            None => None,
        };
        let initial = firmware::word(data, offset_of!(FirmwareHeader, initial))?;
        let initial = usize::try_from(initial)?;
        if initial >= levels.len() {
            return Err(EINVAL);
        }
        Ok(Self {
            levels,
            initial,
            limits,
        })
    }
}

/// The data of the block of a kind in the chain from offset `at` on, if there is one.
fn find_block(data: &[u8], mut at: usize, kind: u32) -> Result<Option<&[u8]>> {
    for _ in 0..BLOCKS_MAX {
        if at >= data.len() {
            return Ok(None);
        }
        let found = firmware::word(data, at + offset_of!(FirmwareBlock, kind))?;
        let bytes = firmware::word(data, at + offset_of!(FirmwareBlock, bytes))?;
        let start = at + size_of::<FirmwareBlock>();
        let end = start.checked_add(usize::try_from(bytes)?).ok_or(EINVAL)?;
        let block = data.get(start..end).ok_or(EINVAL)?;
        if found == kind {
            return Ok(Some(block));
        }
        at = end;
    }
    Err(EINVAL)
}

fn parse_limits(block: &[u8]) -> Result<Limits> {
    let word = |offset| firmware::word(block, offset);
    let temp = |offset| Ok::<_, Error>(i32::try_from(word(offset)?)?);
    let limits = Limits {
        power_mw: word(offset_of!(FirmwareLimits, power_limit_mw))?,
        power_min_mw: word(offset_of!(FirmwareLimits, power_min_mw))?,
        power_max_mw: word(offset_of!(FirmwareLimits, power_max_mw))?,
        temp_limit_mc: temp(offset_of!(FirmwareLimits, temp_limit_mc))?,
        temp_crit_mc: temp(offset_of!(FirmwareLimits, temp_crit_mc))?,
    };
    let power = limits.power_min_mw..=limits.power_max_mw;
    let sound = limits.temp_limit_mc < limits.temp_crit_mc
        && TEMPERATURES.contains(&limits.temp_limit_mc)
        && TEMPERATURES.contains(&limits.temp_crit_mc)
        && power.contains(&limits.power_mw);
    sound.then_some(limits).ok_or(EINVAL)
}

impl Og1 {
    fn domain_sample(&self, domain: Domain) -> Result<DomainSample> {
        let index = domain.index();
        let clock = self.regs().read_at::<regs::CLK_STATUS>(index)?;
        let voltage = self.regs().read_at::<regs::VOLT_STATUS>(index)?;
        let khz = u32::from(self.regs().read_at::<regs::CLK_NOW>(index)?);
        if khz == 0 {
            return Err(EIO);
        }
        Ok(DomainSample {
            khz,
            clock: Change {
                busy: u32::from(clock.busy()) != 0,
                failed: u32::from(clock.failed()) != 0,
            },
            uv: self.regs().read_at::<regs::VOLT_NOW>(index)?.into(),
            voltage: Change {
                busy: u32::from(voltage.busy()) != 0,
                failed: u32::from(voltage.failed()) != 0,
            },
        })
    }

    /// Number of an engine in the registers.
    fn gated_engine(&self, engine: EngineId) -> Result<usize> {
        let index = self.slots().engines().get(engine.index()).ok_or(EINVAL)?;
        Ok(usize::from(*index))
    }
}

/// A temperature of the board. `EIO` when there can be none such.
fn temperature(raw: u32) -> Result<i32> {
    // CAST: The register has the bits of a signed number.
    let temp = raw as i32;
    TEMPERATURES.contains(&temp).then_some(temp).ok_or(EIO)
}

impl Power for Og1 {
    fn levels(&self) -> &[Level] {
        &self.image().power().levels
    }

    fn limits(&self) -> Option<Limits> {
        self.image().power().limits
    }

    fn initial(&self) -> usize {
        self.image().power().initial
    }

    fn costs(&self) -> Costs {
        COSTS
    }

    fn sample(&self) -> Result<Sample> {
        let (time, energy_uj) = {
            let _latch = self.latch().lock();
            (
                self.regs().read_pair::<regs::TIME_LO, regs::TIME_HI>()?,
                self.regs()
                    .read_pair::<regs::ENERGY_LO, regs::ENERGY_HI>()?,
            )
        };
        let throttle = u32::from(self.regs().read::<regs::THROTTLE>()?);
        Ok(Sample {
            time,
            energy_uj,
            power_mw: self.regs().read::<regs::POWER_NOW>()?.into(),
            temp_mc: temperature(self.regs().read::<regs::TEMP>()?.into())?,
            ambient_mc: temperature(self.regs().read::<regs::TEMP_AMBIENT>()?.into())?,
            brake: throttle & THROTTLE_BRAKE != 0,
            hot: throttle & THROTTLE_HOT != 0,
            domains: [
                self.domain_sample(Domain::Core)?,
                self.domain_sample(Domain::Memory)?,
            ],
        })
    }

    fn set_clock(&self, domain: Domain, khz: u32) -> Result {
        let target = regs::CLK_TARGET::from(khz);
        self.regs().write_ordered_at(domain.index(), target)
    }

    fn set_voltage(&self, domain: Domain, uv: u32) -> Result {
        let target = regs::VOLT_TARGET::from(uv);
        self.regs().write_ordered_at(domain.index(), target)
    }

    fn arm(&self, time: u64, lockstep: bool) -> Result {
        let ctrl = regs::ALARM_CTRL::zeroed().with_const_enable::<1>();
        let ctrl = if lockstep {
            ctrl.with_const_lockstep::<1>()
        } else {
            ctrl
        };
        let (low, high) = split(time);
        let _latch = self.latch().lock();
        self.regs().stage(regs::ALARM_LO::from(low))?;
        self.regs().stage(regs::ALARM_HI::from(high))?;
        self.regs().write_ordered(ctrl)
    }

    fn disarm(&self) -> Result {
        let _latch = self.latch().lock();
        self.regs().write_ordered(regs::ALARM_CTRL::zeroed())
    }

    fn alert_at(&self, temp_mc: i32) -> Result {
        // CAST: The register takes the bits of a signed number.
        self.regs()
            .write_ordered(regs::TEMP_ALERT::from(temp_mc as u32))
    }

    fn set_gate(&self, engine: EngineId, gate: Gate) -> Result {
        let clock = if gate.clock {
            regs::GATE_CTRL::zeroed().with_const_clock::<1>()
        } else {
            regs::GATE_CTRL::zeroed()
        };
        let ctrl = if gate.power {
            clock.with_const_power::<1>()
        } else {
            clock
        };
        self.regs()
            .write_ordered_at(self.gated_engine(engine)?, ctrl)
    }
}
