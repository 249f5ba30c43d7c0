// SPDX-License-Identifier: GPL-2.0
//! The register table, made from the one definition that the driver uses too.
//!
//! [`DEFS`] says of each register where it is, who may do what, and which bits exist; [`fields`] has
//! the fields by name. Nothing here knows what a register does.

use std::sync::LazyLock;

use crate::hw::regs::REGS_SIZE;

/// When a write takes effect; see `og1_regs.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// At once.
    Immediate,
    /// After all earlier writes to memory.
    Ordered,
    /// When an ordered register of the unit is written.
    Batched,
}

/// What software may do with a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Ro,
    /// Read and write.
    Rw,
    /// Write.
    Wo,
    /// Read; writing ones clears.
    W1c,
}

/// A field of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    high: u32,
    low: u32,
}

impl Field {
    /// The bits of the field.
    pub const fn mask(self) -> u32 {
        (u32::MAX >> (31 - self.high)) & (u32::MAX << self.low)
    }

    /// The field's value in the register's value.
    pub const fn get(self, register: u32) -> u32 {
        (register & self.mask()) >> self.low
    }

    /// Whether any bit of the field is set.
    pub const fn is_set(self, register: u32) -> bool {
        self.get(register) != 0
    }

    /// The register's bits for a value of the field; what does not fit is cut off.
    pub const fn put(self, value: u32) -> u32 {
        (value << self.low) & self.mask()
    }
}

/// One line of the register table: a register or an array of registers.
#[derive(Debug)]
pub struct Def {
    /// Which one.
    pub reg: Reg,
    /// Its name in the specification.
    pub name: &'static str,
    /// When a write takes effect.
    pub class: Class,
    /// What software may do.
    pub access: Access,
    /// Value after a reset.
    pub reset: u32,
    /// Offset of the first one in BAR0.
    pub offset: usize,
    /// How many there are.
    pub count: usize,
    /// Distance between two.
    pub stride: usize,
    /// Bits that belong to a field.
    pub mask: u32,
}

macro_rules! class {
    (immediate) => {
        Class::Immediate
    };
    (ordered) => {
        Class::Ordered
    };
    (batched) => {
        Class::Batched
    };
}

macro_rules! access {
    (ro) => {
        Access::Ro
    };
    (rw) => {
        Access::Rw
    };
    (wo) => {
        Access::Wo
    };
    (w1c) => {
        Access::W1c
    };
}

macro_rules! board_registers {
    ($(
        $(#[$doc:meta])*
        [$class:ident $access:ident = $reset:literal]
        $name:ident(u32) $([$count:literal, stride = $stride:literal])? @ $offset:literal
        { $($high:literal : $low:literal $field:ident;)* }
    )*) => {
        /// Every register by its name in the specification.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reg {
            $($(#[$doc])* $name,)*
        }

        /// The register table, in the order of [`Reg`].
        pub const DEFS: &[Def] = &[
            $(Def {
                reg: Reg::$name,
                name: stringify!($name),
                class: class!($class),
                access: access!($access),
                reset: $reset,
                offset: $offset,
                count: 1 $(- 1 + $count)?,
                stride: 4 $(- 4 + $stride)?,
                mask: 0 $(| Field { high: $high, low: $low }.mask())*,
            },)*
        ];

        /// The fields: a module per register.
        #[allow(missing_docs, non_snake_case, non_upper_case_globals)]
        pub mod fields {
            $(pub mod $name {
                use super::super::Field;
                $(pub const $field: Field = Field { high: $high, low: $low };)*
            })*
        }
    };
}

crate::og1_registers!(board_registers);

impl Reg {
    /// The register's line in the table.
    pub fn def(self) -> &'static Def {
        &DEFS[self as usize]
    }
}

/// Where the values of each register begin in a flat array of all, and the array's length.
struct Layout {
    /// Per register word of BAR0: 1 + flat index, or 0.
    words: Box<[u16]>,
    /// Per flat index: the register and which of its array.
    flat: Vec<(Reg, usize)>,
    /// Per register: its first flat index.
    first: Vec<usize>,
}

static LAYOUT: LazyLock<Layout> = LazyLock::new(|| {
    let mut words = vec![0u16; REGS_SIZE / 4].into_boxed_slice();
    let mut flat = Vec::new();
    let mut first = Vec::new();
    for def in DEFS {
        first.push(flat.len());
        for i in 0..def.count {
            flat.push((def.reg, i));
            let word = words.get_mut((def.offset + i * def.stride) / 4);
            if let (Some(word), Ok(id)) = (word, u16::try_from(flat.len())) {
                *word = id;
            }
        }
    }
    Layout { words, flat, first }
});

/// The register at an aligned offset in BAR0, and which of its array.
pub fn lookup(offset: u64) -> Option<(Reg, usize)> {
    let layout = &*LAYOUT;
    let word = usize::try_from(offset / 4).ok()?;
    let id = usize::from(*layout.words.get(word)?);
    layout.flat.get(id.checked_sub(1)?).copied()
}

/// Place of a register in a flat array of all. `index` beyond the array gives its last one.
pub fn flat(reg: Reg, index: usize) -> usize {
    let def = reg.def();
    LAYOUT.first[reg as usize] + index.min(def.count - 1)
}

/// All registers with their place in the array.
pub fn all() -> impl Iterator<Item = (Reg, usize)> {
    LAYOUT.flat.iter().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_register_is_found_at_its_offset_and_no_two_share_one() {
        let mut seen = std::collections::HashSet::new();
        for (reg, i) in all() {
            let def = reg.def();
            let offset = def.offset + i * def.stride;
            assert!(offset < REGS_SIZE && offset % 4 == 0, "{}", def.name);
            assert!(seen.insert(offset), "{}[{i}] overlaps another", def.name);
            assert_eq!(lookup(offset as u64), Some((reg, i)));
        }
        assert_eq!(seen.len(), DEFS.iter().map(|def| def.count).sum::<usize>());
    }

    #[test]
    fn reset_values_have_only_bits_of_fields() {
        for def in DEFS {
            assert_eq!(def.reset & !def.mask, 0, "{}", def.name);
        }
    }
}
