// SPDX-License-Identifier: GPL-2.0
//! The registers that say what the board is: identity, sizes and the table of units.

use crate::config::Config;
use crate::config::MIB;
use crate::hw::isa::LDS_MAX;
use crate::hw::mem::STREAM_BYTES;
use crate::hw::mem::VA_BITS;
use crate::hw::regs;
use crate::regs::fields;
use crate::regs::Reg;

/// Most work-items of a block.
pub const BLOCK_ITEMS: u32 = 1024;

struct Unit {
    kind: u32,
    version: u32,
    first: Reg,
    index: usize,
    count: usize,
    stride: usize,
    info: u32,
}

fn narrow<T: TryInto<u32>>(n: T) -> u32 {
    n.try_into().unwrap_or(u32::MAX)
}

fn units(config: &Config) -> Vec<Unit> {
    let one = |kind, first, info| Unit {
        kind,
        version: 1,
        first,
        index: 0,
        count: 1,
        stride: 0,
        info,
    };
    let stride = Reg::ENG_ID.def().stride;
    let engines = |kind, index, count| Unit {
        kind,
        version: 1,
        first: Reg::ENG_ID,
        index,
        count,
        stride,
        info: narrow(index),
    };
    let mut units = vec![
        one(regs::UNIT_GLOBAL, Reg::ID, 0),
        one(regs::UNIT_IRQ, Reg::IRQ_STATUS, narrow(config.vectors())),
        one(regs::UNIT_TIME, Reg::TIME_LO, 1_000_000_000),
        one(regs::UNIT_FIRMWARE, Reg::FW_ADDR_LO, 0),
        one(regs::UNIT_MMU, Reg::CTX_TABLE_LO, VA_BITS),
        one(regs::UNIT_FAULT, Reg::FAULT_RING_LO, 0),
        Unit {
            version: 2,
            ..one(regs::UNIT_COUNTERS, Reg::CTR_SELECT, 0)
        },
        one(regs::UNIT_JUDGE, Reg::VIOL_COUNT, 0),
        engines(regs::UNIT_COMPUTE, 0, config.compute),
        engines(regs::UNIT_COPY, config.compute, config.copy),
        Unit {
            count: regs::DOMAINS,
            stride: Reg::CLK_TARGET.def().stride,
            ..one(regs::UNIT_POWER, Reg::CLK_TARGET, 0)
        },
        one(regs::UNIT_THERMAL, Reg::TEMP, 0),
        one(regs::UNIT_STREAM, Reg::STREAM_RING_LO, narrow(STREAM_BYTES)),
    ];
    units.retain(|unit| unit.count != 0);
    units
}

/// Calls `set` for each constant register: register, index in its array, value.
pub fn constants(config: &Config, mut set: impl FnMut(Reg, usize, u32)) {
    let units = units(config);
    set(Reg::ID, 0, regs::ID_MAGIC);
    set(Reg::VERSION, 0, Reg::VERSION.def().reset);
    set(Reg::UNITS, 0, narrow(units.len()));
    set(Reg::VRAM_SIZE, 0, narrow(config.vram / MIB));
    set(Reg::APERTURE_SIZE, 0, narrow(config.aperture / MIB));
    let doorbells = fields::DOORBELLS_CAPS::count.put(narrow(regs::DOORBELLS))
        | fields::DOORBELLS_CAPS::shift.put(regs::DOORBELL_SHIFT);
    set(Reg::DOORBELLS_CAPS, 0, doorbells);
    set(Reg::DOORBELLS_OFFSET, 0, narrow(regs::DOORBELL_BASE));
    let engines = fields::ENGINES::slots.put(narrow(config.slots))
        | fields::ENGINES::count.put(narrow(config.engines()));
    set(Reg::ENGINES, 0, engines);
    for (i, unit) in units.iter().enumerate() {
        let def = unit.first.def();
        let id = fields::UNIT_ID::version.put(unit.version) | fields::UNIT_ID::kind.put(unit.kind);
        let count = fields::UNIT_COUNT::stride.put(narrow(unit.stride))
            | fields::UNIT_COUNT::count.put(narrow(unit.count));
        set(Reg::UNIT_ID, i, id);
        set(
            Reg::UNIT_OFFSET,
            i,
            narrow(def.offset + unit.index * def.stride),
        );
        set(Reg::UNIT_COUNT, i, count);
        set(Reg::UNIT_INFO, i, unit.info);
    }
    for engine in 0..config.engines() {
        let compute = engine < config.compute;
        set(Reg::ENG_ID, engine, engine_id(config, engine));
        if compute {
            let caps = fields::ENG_CAPS::block_items.put(BLOCK_ITEMS)
                | fields::ENG_CAPS::lanes.put(config.lanes);
            set(Reg::ENG_CAPS, engine, caps);
            set(Reg::ENG_LDS, engine, narrow(LDS_MAX));
        }
    }
}

/// `ENG_ID` of an engine that the fuses leave enabled.
pub fn engine_id(config: &Config, engine: usize) -> u32 {
    let kind = if engine < config.compute {
        regs::UNIT_COMPUTE
    } else {
        regs::UNIT_COPY
    };
    fields::ENG_ID::slots.put(narrow(config.slots))
        | fields::ENG_ID::index.put(narrow(engine))
        | fields::ENG_ID::kind.put(kind)
}
