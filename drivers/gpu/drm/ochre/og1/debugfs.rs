// SPDX-License-Identifier: GPL-2.0
//! The registers by name, with their fields decoded, for people.
//!
//! The list comes from the table of `include/ochre/og1_regs.rs`, so that none is forgotten. A dump
//! changes nothing and breaks no rule of the board: registers that can only be written are named and not
//! read; those of a unit, engine, vector or slot that is not there are left out; and what reading one
//! register latches in another is read right after it, with the lock held that guards it.

use kernel::{
    fmt,
    prelude::*, //
};

use super::{
    counters::Counters,
    discovery::Board,
    hw::regs::{
        self as hw,
        ENGINES_MAX,
        REGS_SIZE,
        SLOTS_MAX,
        UNITS_MAX, //
    },
    regs::Regs, //
};

/// Columns that a name takes.
const NAME_WIDTH: usize = 20;

/// A field of a register.
struct Field {
    high: u32,
    low: u32,
    name: &'static str,
}

/// A register, or an array of them.
struct Register {
    name: &'static str,
    /// Whether it can be read.
    readable: bool,
    offset: usize,
    /// Elements; 1 without brackets in the name.
    array: Option<Array>,
    fields: &'static [Field],
}

struct Array {
    count: usize,
    stride: usize,
}

macro_rules! describe {
    ($(
        $(#[$meta:meta])*
        [$class:ident $access:ident = $reset:expr] $name:ident(u32)
            $([$count:expr, stride = $stride:expr])? @ $offset:literal
            { $($high:literal : $low:literal $field:ident;)* }
    )*) => {
        /// All registers.
        const REGISTERS: &[Register] = &[$(
            Register {
                name: stringify!($name),
                readable: describe!(@readable $access),
                offset: $offset,
                array: describe!(@array $($count, $stride)?),
                fields: &[$(
                    Field { high: $high, low: $low, name: stringify!($field) },
                )*],
            },
        )*];
    };
    (@readable wo) => { false };
    (@readable $access:ident) => { true };
    (@array) => { None };
    (@array $count:expr, $stride:expr) => { Some(Array { count: $count, stride: $stride }) };
}

crate::og1_registers!(describe);

/// Registers that stand together.
struct Group {
    /// Where they begin; they end where the next group begins.
    start: usize,
    /// The unit without which they are not there, [`hw`]`::UNIT_*`.
    unit: u32,
}

const fn group(start: usize, unit: u32) -> Group {
    Group { start, unit }
}

/// Names of the groups: of their files.
pub(super) const GROUP_NAMES: &[&CStr] = &[
    c"global",
    c"discovery",
    c"interrupts",
    c"time",
    c"firmware",
    c"mmu",
    c"faults",
    c"counters",
    c"judge",
    c"power",
    c"thermal",
    c"nvram",
    c"stream",
    c"access",
    c"engines",
    c"slots",
];

const GROUPS: [Group; GROUP_NAMES.len()] = [
    group(0x0000, hw::UNIT_GLOBAL),
    group(DISCOVERY, hw::UNIT_GLOBAL),
    group(INTERRUPTS, hw::UNIT_IRQ),
    group(0x3000, hw::UNIT_TIME),
    group(0x4000, hw::UNIT_FIRMWARE),
    group(0x5000, hw::UNIT_MMU),
    group(0x6000, hw::UNIT_FAULT),
    group(COUNTERS, hw::UNIT_COUNTERS),
    group(0x8000, hw::UNIT_JUDGE),
    group(0x9000, hw::UNIT_POWER),
    group(0xa000, hw::UNIT_THERMAL),
    group(0xb000, hw::UNIT_NVRAM),
    group(0xc000, hw::UNIT_STREAM),
    group(0xd000, hw::UNIT_ACCESS),
    group(0x10000, hw::UNIT_GLOBAL),
    group(SLOTS, hw::UNIT_GLOBAL),
];

const DISCOVERY: usize = 0x1000;
const INTERRUPTS: usize = 0x2000;
const COUNTERS: usize = 0x7000;
const SLOTS: usize = 0x20000;

/// What of the register map a board has.
pub(super) struct Present {
    kinds: u64,
    units: usize,
    vectors: usize,
    engines: usize,
    slots: usize,
}

impl Present {
    /// As `board` says.
    pub(super) fn new(board: &Board) -> Self {
        Self {
            kinds: board.kinds,
            units: board.units,
            // CAST: `usize` has 64 bits here, see Kconfig.
            vectors: board.vectors as usize,
            engines: board.engine_count,
            slots: board.slots,
        }
    }

    /// Whether there is element `index` of an array in the group that begins at `start`.
    fn has(&self, start: usize, array: &Array, index: usize) -> bool {
        match start {
            DISCOVERY => index < self.units.min(UNITS_MAX),
            INTERRUPTS => index < self.vectors,
            SLOTS => index / SLOTS_MAX < self.engines && index % SLOTS_MAX < self.slots,
            _ if array.count == ENGINES_MAX => index < self.engines,
            _ => true,
        }
    }

    /// Writes the registers of a group. With what they latch locked, but for the counters.
    pub(super) fn dump(
        &self,
        number: usize,
        regs: &Regs,
        counters: &Counters,
        out: &mut dyn fmt::Write,
    ) -> Result {
        let group = GROUPS.get(number).ok_or(EINVAL)?;
        let end = GROUPS.get(number + 1).map_or(REGS_SIZE, |next| next.start);
        if self.kinds >> group.unit & 1 == 0 {
            return line(out, fmt!("this board has no such unit"));
        }
        if group.start == COUNTERS {
            return dump_counters(&counters.registers(regs)?, out);
        }
        for register in REGISTERS {
            if !(group.start..end).contains(&register.offset) {
                continue;
            }
            let Some(array) = &register.array else {
                show(register, register.offset, None, regs, out)?;
                continue;
            };
            for index in 0..array.count {
                if self.has(group.start, array, index) {
                    let offset = register.offset + index * array.stride;
                    show(register, offset, Some(index), regs, out)?;
                }
            }
        }
        Ok(())
    }
}

/// The window on the counters, which was read under its own lock.
fn dump_counters(values: &[u32; 3], out: &mut dyn fmt::Write) -> Result {
    let unit = REGISTERS.iter().filter(|r| r.offset & !0xfff == COUNTERS);
    for (register, value) in unit.zip(values) {
        decode(register, register.offset, None, *value, out)?;
    }
    Ok(())
}

/// Reads a register, if that can be done, and writes what it says.
fn show(
    register: &Register,
    offset: usize,
    index: Option<usize>,
    regs: &Regs,
    out: &mut dyn fmt::Write,
) -> Result {
    if register.readable {
        return decode(register, offset, index, regs.peek(offset)?, out);
    }
    let name = Name(register.name, index);
    line(out, fmt!("{offset:#07x} {name} write-only"))
}

/// Writes what a register says.
fn decode(
    register: &Register,
    offset: usize,
    index: Option<usize>,
    value: u32,
    out: &mut dyn fmt::Write,
) -> Result {
    let (name, fields) = (Name(register.name, index), Fields(register.fields, value));
    line(out, fmt!("{offset:#07x} {name} {value:#010x}{fields}"))
}

fn line(out: &mut dyn fmt::Write, text: fmt::Arguments<'_>) -> Result {
    writeln!(out, "{text}").map_err(|_| ENOMEM)
}

/// `NAME` or `NAME[3]`, padded.
struct Name(&'static str, Option<usize>);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        let mut used = self.0.len();
        if let Some(index) = self.1 {
            write!(f, "[{index}]")?;
            used += if index < 10 { 3 } else { 4 };
        }
        for _ in used..NAME_WIDTH {
            f.write_str(" ")?;
        }
        Ok(())
    }
}

/// The fields of a value, unless there is only one that has all of it.
struct Fields(&'static [Field], u32);

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [Field {
            high: 31, low: 0, ..
        }] = self.0
        {
            return Ok(());
        }
        for field in self.0 {
            let mask = u32::MAX >> (31 - (field.high - field.low));
            write!(f, " {}={:#x}", field.name, self.1 >> field.low & mask)?;
        }
        Ok(())
    }
}

/// Every register is in a group, and every group's registers are in ascending order of the groups.
const _: () = {
    let mut at = 1;
    while at < GROUPS.len() {
        assert!(GROUPS[at - 1].start < GROUPS[at].start);
        at += 1;
    }
    let mut at = 0;
    while at < REGISTERS.len() {
        let register = &REGISTERS[at];
        assert!(register.offset < REGS_SIZE);
        // A gap between two groups would put a register of a new unit with the one below.
        let page = register.offset & !0xfff;
        let mut known = register.offset >= 0x10000;
        let mut group = 0;
        while group < GROUPS.len() {
            known |= GROUPS[group].start == page;
            group += 1;
        }
        assert!(known);
        at += 1;
    }
};
