// SPDX-License-Identifier: GPL-2.0
//! The fault ring: entries that the board writes and the driver takes out, oldest first.
//!
//! Specification, section "Faults".

use core::mem::{
    offset_of,
    size_of, //
};

use kernel::{
    device,
    device::Bound,
    new_mutex,
    prelude::*,
    sync::{
        barrier::{
            dma_mb,
            Read, //
        },
        Mutex, //
    }, //
};

use super::{
    hw::mem::{
        FaultEntry,
        ACCESS_ATOMIC,
        ACCESS_EXEC,
        ACCESS_WRITE, //
    },
    memory::{
        encode_addr,
        SharedWords,
        WORD, //
    },
    regs::{
        self,
        Regs, //
    }, //
};
use crate::hal::{
    Access,
    Fault, //
};

/// Binary logarithm of the number of entries.
const LOG2: u32 = 8;
const ENTRIES: u32 = 1 << LOG2;
const ENTRY_WORDS: usize = size_of::<FaultEntry>() / WORD;

/// The ring and how far the driver has read it.
#[pin_data]
pub(super) struct FaultRing {
    words: SharedWords,
    /// Entries taken, modulo 2^32. Guards the register that says so.
    #[pin]
    taken: Mutex<u32>,
}

// `entry` takes the fields out of whole words.
const _: () = assert!(
    offset_of!(FaultEntry, ctx) == 24
        && offset_of!(FaultEntry, queue) == 26
        && offset_of!(FaultEntry, engine) == 28
        && offset_of!(FaultEntry, access) == 30
        && offset_of!(FaultEntry, code) % WORD == 0
);

impl FaultRing {
    /// An empty ring. Sleeps.
    pub(super) fn new(dev: &device::Device<Bound>) -> impl PinInit<Self, Error> + '_ {
        try_pin_init!(Self {
            words: SharedWords::new(dev, ENTRIES as usize * ENTRY_WORDS, GFP_KERNEL)?,
            taken <- new_mutex!(0),
        })
    }

    /// Has the board use the ring from its start; needed after each reset.
    pub(super) fn enable(&self, regs: &Regs) -> Result {
        let mut taken = self.taken.lock();
        regs.stage_pair::<regs::FAULT_RING_LO, regs::FAULT_RING_HI>(encode_addr(
            self.words.address(0),
        ))?;
        regs.stage(regs::FAULT_SIZE::from(LOG2))?;
        regs.write_ordered(regs::FAULT_CTRL::zeroed().with_const_enable::<1>())?;
        *taken = 0;
        Ok(())
    }

    /// Takes the oldest entry out. Says in the log when the board had to drop some.
    pub(super) fn next(&self, dev: &device::Device, regs: &Regs) -> Result<Option<Fault>> {
        let mut taken = self.taken.lock();
        let written = u32::from(regs.read::<regs::FAULT_WPTR>()?);
        let waiting = written.wrapping_sub(*taken);
        if waiting == 0 {
            self.report_overflow(dev, regs)?;
            return Ok(None);
        }
        if waiting > ENTRIES {
            dev_err!(
                dev,
                "the fault ring says {} entries, {} fit\n",
                waiting,
                ENTRIES
            );
            return Err(EIO);
        }
        dma_mb(Read);
        let fault = self.entry(*taken % ENTRIES)?;
        *taken = taken.wrapping_add(1);
        regs.write_ordered(regs::FAULT_RPTR::from(*taken))?;
        Ok(Some(fault))
    }

    fn report_overflow(&self, dev: &device::Device, regs: &Regs) -> Result {
        let status = regs.read::<regs::FAULT_STATUS>()?;
        if u32::from(status.overflow()) != 0 {
            dev_warn!(
                dev,
                "faults came faster than they were taken, some are lost\n"
            );
            regs.write(status)?;
        }
        Ok(())
    }

    fn entry(&self, index: u32) -> Result<Fault> {
        let base = usize::try_from(index)? * ENTRY_WORDS;
        let word = |offset: usize| self.words.read(base + offset / WORD);

        let who = word(offset_of!(FaultEntry, ctx))?.to_le_bytes();
        let (code, _token) = regs::split(word(offset_of!(FaultEntry, code))?);
        Ok(Fault {
            queue: u16::from_le_bytes([who[2], who[3]]),
            code,
            addr: word(offset_of!(FaultEntry, addr))?,
            pc: word(offset_of!(FaultEntry, pc))?,
            access: match who[6] {
                ACCESS_WRITE => Access::Write,
                ACCESS_EXEC => Access::Exec,
                ACCESS_ATOMIC => Access::Atomic,
                _ => Access::Read,
            },
        })
    }
}
