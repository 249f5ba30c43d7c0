// SPDX-License-Identifier: GPL-2.0
//! Registers of og1 as types, and [`Regs`], through which all accesses to BAR0 go.
//!
//! The table of `include/ochre/og1_regs.rs` becomes one `register!` type per line here. The access
//! class of a register is a trait of its type, so that a forgotten barrier in front of an ordered
//! register does not compile:
//!
//! - [`Immediate`]: takes [`Regs::write`];
//! - [`Ordered`]: takes [`Regs::write_ordered`], which makes earlier writes to memory visible first;
//! - [`Batched`]: takes [`Regs::stage`]; the value waits for the unit's ordered register.
//!
//! BAR0 may go away at any time (unbind, hot unplug, a board that died). Every access takes the
//! mapping under RCU and gives `ENODEV` when it is gone. A read of all ones is checked against
//! `ID`, which reads so only when nothing answers.

use kernel::{
    io::{
        register,
        register::{
            FixedRegister,
            Register,
            RegisterArray, //
        },
        Io, //
    },
    pci,
    prelude::*,
    sync::barrier::{
        mb,
        Write, //
    }, //
};

use super::hw::regs::{
    ALL_ONES,
    BAR0_SIZE,
    DOORBELLS as DOORBELLS_COUNT, //
    DOORBELL_BASE,
    DOORBELL_SHIFT,
};

/// Takes effect at once and reads back what it does.
pub(super) trait Immediate {}
/// Everything written to memory before has to be visible to the board first.
pub(super) trait Ordered {}
/// Waits in a shadow copy for an ordered register of the same unit.
pub(super) trait Batched {}
/// May be read.
pub(super) trait Readable: Register<Storage = u32> + From<u32> {}
/// May be written.
pub(super) trait Writable: Register<Storage = u32> + Into<u32> {}

macro_rules! registers {
    ($(
        $(#[$meta:meta])*
        [$class:ident $access:ident = $reset:expr] $name:ident(u32)
            $([$count:expr, stride = $stride:expr])? @ $offset:literal { $($fields:tt)* }
    )*) => {
        register! {
            $(
                $(#[$meta])*
                pub(in crate::og1) $name(u32) $([$count, stride = $stride])? @ $offset { $($fields)* }
            )*
        }
        $(
            registers!(@class $class $name);
            registers!(@access $access $name);
        )*
    };
    (@class immediate $name:ident) => { impl Immediate for $name {} };
    (@class ordered $name:ident) => { impl Ordered for $name {} };
    (@class batched $name:ident) => { impl Batched for $name {} };
    (@access ro $name:ident) => { impl Readable for $name {} };
    (@access wo $name:ident) => { impl Writable for $name {} };
    (@access rw $name:ident) => { impl Readable for $name {} impl Writable for $name {} };
    (@access w1c $name:ident) => { impl Readable for $name {} impl Writable for $name {} };
}

/// The register types, one per line of the shared table.
#[allow(dead_code)]
mod map {
    use super::*;

    crate::og1_registers!(registers);
}
pub(super) use map::*;

/// BAR0 while the driver is bound.
pub(super) struct Regs {
    bar: pci::DevresBar<BAR0_SIZE>,
}

impl Regs {
    /// Wraps a mapping of the whole of BAR0.
    pub(super) fn new(bar: pci::DevresBar<BAR0_SIZE>) -> Self {
        Self { bar }
    }

    fn read_raw(&self, offset: usize) -> Result<u32> {
        let bar = self.bar.try_access().ok_or(ENODEV)?;
        let bar = &*bar;
        let value = bar.try_read32(offset)?;
        if value == ALL_ONES && bar.try_read32(ID::OFFSET)? == ALL_ONES {
            return Err(ENODEV);
        }
        Ok(value)
    }

    fn write_raw(&self, offset: usize, value: u32) -> Result {
        let bar = self.bar.try_access().ok_or(ENODEV)?;
        let bar = &*bar;
        bar.try_write32(value, offset)
    }

    /// Reads whatever register is at `offset`, for people to look at. Some cannot be read, and some
    /// latch another.
    pub(super) fn peek(&self, offset: usize) -> Result<u32> {
        self.read_raw(offset)
    }

    /// Offset of element `index`; `EINVAL` when the array has no such element.
    fn element<R: RegisterArray>(index: usize) -> Result<usize> {
        if index >= R::SIZE {
            return Err(EINVAL);
        }
        Ok(R::OFFSET + index * R::STRIDE)
    }

    /// Reads a register.
    pub(super) fn read<R: FixedRegister + Readable>(&self) -> Result<R> {
        self.read_raw(R::OFFSET).map(Into::into)
    }

    /// Reads element `index` of an array of registers.
    pub(super) fn read_at<R: RegisterArray + Readable>(&self, index: usize) -> Result<R> {
        self.read_raw(Self::element::<R>(index)?).map(Into::into)
    }

    /// Reads a pair of registers that hold one 64-bit value; reading `Lo` latches `Hi`.
    pub(super) fn read_pair<Lo, Hi>(&self) -> Result<u64>
    where
        Lo: FixedRegister + Readable,
        Hi: FixedRegister + Readable,
    {
        let low = self.read_raw(Lo::OFFSET)?;
        let high = self.read_raw(Hi::OFFSET)?;
        let value = u64::from(high) << 32 | u64::from(low);
        if value == u64::MAX {
            return Err(ENODEV);
        }
        Ok(value)
    }

    /// Writes an immediate register.
    pub(super) fn write<R: FixedRegister + Writable + Immediate>(&self, value: R) -> Result {
        self.write_raw(R::OFFSET, value.into())
    }

    /// Writes element `index` of an array of immediate registers.
    pub(super) fn write_at<R>(&self, index: usize, value: R) -> Result
    where
        R: RegisterArray + Writable + Immediate,
    {
        self.write_raw(Self::element::<R>(index)?, value.into())
    }

    /// Writes an ordered register once all earlier writes to memory are visible to the board.
    pub(super) fn write_ordered<R: FixedRegister + Writable + Ordered>(&self, value: R) -> Result {
        mb(Write);
        self.write_raw(R::OFFSET, value.into())
    }

    /// As [`Self::write_ordered`], for element `index` of an array.
    pub(super) fn write_ordered_at<R>(&self, index: usize, value: R) -> Result
    where
        R: RegisterArray + Writable + Ordered,
    {
        mb(Write);
        self.write_raw(Self::element::<R>(index)?, value.into())
    }

    /// Writes the shadow copy of a batched register.
    pub(super) fn stage<R: FixedRegister + Writable + Batched>(&self, value: R) -> Result {
        self.write_raw(R::OFFSET, value.into())
    }

    /// Writes the shadow copies of a pair that holds one 64-bit value.
    pub(super) fn stage_pair<Lo, Hi>(&self, value: u64) -> Result
    where
        Lo: FixedRegister + Writable + Batched,
        Hi: FixedRegister + Writable + Batched,
    {
        let (low, high) = split(value);
        self.write_raw(Lo::OFFSET, low)?;
        self.write_raw(Hi::OFFSET, high)
    }

    /// As [`Self::stage`], for element `index` of an array.
    pub(super) fn stage_at<R>(&self, index: usize, value: R) -> Result
    where
        R: RegisterArray + Writable + Batched,
    {
        self.write_raw(Self::element::<R>(index)?, value.into())
    }

    /// As [`Self::stage_pair`], for elements `index` of two arrays.
    pub(super) fn stage_pair_at<Lo, Hi>(&self, index: usize, value: u64) -> Result
    where
        Lo: RegisterArray + Writable + Batched,
        Hi: RegisterArray + Writable + Batched,
    {
        let (low, high) = split(value);
        self.write_raw(Self::element::<Lo>(index)?, low)?;
        self.write_raw(Self::element::<Hi>(index)?, high)
    }

    /// Rings the doorbell of queue id `queue`, after all earlier writes to memory.
    pub(super) fn ring_doorbell(&self, queue: u16) -> Result {
        let index = usize::from(queue);
        if index >= DOORBELLS_COUNT {
            return Err(EINVAL);
        }
        mb(Write);
        self.write_raw(DOORBELL_BASE + (index << DOORBELL_SHIFT), 1)
    }
}

/// The low and the high word of `value`.
pub(super) fn split(value: u64) -> (u32, u32) {
    // CAST: each keeps the 32 bits that it is for.
    (value as u32, (value >> 32) as u32)
}
