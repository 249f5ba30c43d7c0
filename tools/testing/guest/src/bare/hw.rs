// SPDX-License-Identifier: GPL-2.0
//! The definition of the hardware that driver and board share (include/ochre).

#[path = "../../../../../include/ochre/og1_mem.rs"]
pub mod mem;
#[path = "../../../../../include/ochre/og1_regs.rs"]
pub mod regs;

/// A register, or an array of them.
#[derive(Clone, Copy, Debug)]
pub struct Reg {
    /// Where the first one is in BAR0.
    pub offset: usize,
    /// Distance between two.
    pub stride: usize,
}

/// A field of a register.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    high: u32,
    low: u32,
}

impl Field {
    /// Its value in the register's value.
    pub const fn get(self, register: u32) -> u32 {
        (register & (u32::MAX >> (31 - self.high))) >> self.low
    }
}

macro_rules! registers {
    ($(
        $(#[$doc:meta])*
        [$class:ident $access:ident = $reset:literal]
        $name:ident(u32) $([$count:literal, stride = $stride:literal])? @ $offset:literal
        { $($high:literal : $low:literal $field:ident;)* }
    )*) => {
        /// Every register by its name in the specification.
        pub mod reg {
            use super::Reg;
            $(
                $(#[$doc])*
                pub const $name: Reg = Reg { offset: $offset, stride: 4 $(- 4 + $stride)? };
            )*
        }

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

crate::og1_registers!(registers);

/// The text in which the rules are defined: a line `pub const VIOL_*` for each.
const RULES: &str = include_str!("../../../../../include/ochre/og1_mem.rs");

/// The rules of the specification that a driver can break: name (`VIOL_*`) and code.
pub fn rules() -> Vec<(&'static str, u32)> {
    let rule = |line: &'static str| {
        let (name, code) = line.strip_prefix("pub const ")?.split_once(": u32 = ")?;
        let code = code.strip_suffix(';')?.parse().ok()?;
        name.starts_with("VIOL_").then_some((name, code))
    };
    RULES.lines().filter_map(rule).collect()
}
