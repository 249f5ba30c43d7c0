// SPDX-License-Identifier: GPL-2.0
//! Hardware slots: putting a queue in, taking it out, looking, and resets of a slot or an engine.
//!
//! Fuses may have switched engines off, so the driver's engine numbers, which have no gaps, are not
//! those of the registers; [`Slots`] translates.
//!
//! The scheduler gives a slot to one queue at a time, so nothing here locks: each slot has registers
//! of its own, and `SLOT_COMMIT` applies only the slots that its mask names. Specification, section
//! "Slots".

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    hw::regs::{
        SLOTS_MAX,
        SLOT_EMPTY,
        SLOT_UNBINDING, //
    },
    regs::{
        self,
        Regs, //
    }, //
};
use crate::{
    algo::sched::SlotId,
    hal::{
        EngineId,
        ResetProgress,
        SlotState, //
    }, //
};

/// The slots of all engines that are there.
pub(super) struct Slots {
    regs: Arc<Regs>,
    /// Number in the registers of each engine, by [`EngineId`].
    engines: KVec<u8>,
}

impl Slots {
    /// `engines`: see the field.
    pub(super) fn new(regs: Arc<Regs>, engines: KVec<u8>) -> Self {
        Self { regs, engines }
    }

    /// The registers.
    pub(super) fn regs(&self) -> &Regs {
        &self.regs
    }

    /// Number in the registers of each engine, by [`EngineId`].
    pub(super) fn engines(&self) -> &[u8] {
        &self.engines
    }

    /// The engine whose registers have number `index`, if it is there.
    pub(super) fn engine_at(&self, index: u8) -> Option<EngineId> {
        let position = self.engines.iter().position(|&engine| engine == index)?;
        u8::try_from(position).ok().map(EngineId)
    }

    /// Number of the engine's registers.
    fn engine(&self, engine: EngineId) -> Result<usize> {
        let index = self.engines.get(engine.index()).ok_or(EINVAL)?;
        Ok(usize::from(*index))
    }

    /// Numbers of the engine's and of the slot's registers, and the slot's bit in the engine's masks.
    fn place(&self, slot: SlotId) -> Result<(usize, usize, u32)> {
        let within = usize::from(slot.slot);
        if within >= SLOTS_MAX {
            return Err(EINVAL);
        }
        let engine = self.engine(EngineId(slot.engine))?;
        Ok((engine, engine * SLOTS_MAX + within, 1 << slot.slot))
    }

    /// Puts the queue whose descriptor is at `descriptor` into an empty slot.
    pub(super) fn bind(&self, slot: SlotId, descriptor: u64) -> Result {
        let (engine, index, bit) = self.place(slot)?;
        let bind = regs::SLOT_CTRL::zeroed().with_const_bind::<1>();
        self.regs
            .stage_pair_at::<regs::SLOT_DESC_LO, regs::SLOT_DESC_HI>(index, descriptor)?;
        self.regs.stage_at(index, bind)?;
        self.regs
            .write_ordered_at(engine, regs::SLOT_COMMIT::from(bit))
    }

    /// Begins to empty a slot; its queue is saved.
    pub(super) fn unbind(&self, slot: SlotId) -> Result {
        let (engine, index, bit) = self.place(slot)?;
        self.regs.stage_at(index, regs::SLOT_CTRL::zeroed())?;
        self.regs
            .write_ordered_at(engine, regs::SLOT_COMMIT::from(bit))
    }

    /// What a slot holds.
    pub(super) fn state(&self, slot: SlotId) -> Result<SlotState> {
        let (_, index, _) = self.place(slot)?;
        let status = self.regs.read_at::<regs::SLOT_STATUS>(index)?;
        Ok(match u32::from(status.state()) {
            SLOT_EMPTY => SlotState::Empty,
            SLOT_UNBINDING => SlotState::Unbinding,
            _ => SlotState::Holds {
                queue: u16::try_from(u32::from(status.queue()))?,
            },
        })
    }

    /// Begins a reset of one slot.
    pub(super) fn reset(&self, slot: SlotId) -> Result {
        let (engine, _, bit) = self.place(slot)?;
        self.regs
            .write_ordered_at(engine, regs::ENG_RESET::from(bit))
    }

    /// How far the reset of a slot is.
    pub(super) fn poll_reset(&self, slot: SlotId) -> Result<ResetProgress> {
        let (engine, _, bit) = self.place(slot)?;
        let status = self.regs.read_at::<regs::ENG_RESET_STATUS>(engine)?;
        Ok(progress(
            u32::from(status.slots_done()) & bit,
            u32::from(status.slots_refused()) & bit,
        ))
    }

    /// Begins a reset of an engine with all its slots.
    pub(super) fn reset_engine(&self, engine: EngineId) -> Result {
        let all = regs::ENG_RESET::zeroed().with_const_engine::<1>();
        self.regs.write_ordered_at(self.engine(engine)?, all)
    }

    /// How far the reset of an engine is.
    pub(super) fn poll_reset_engine(&self, engine: EngineId) -> Result<ResetProgress> {
        let index = self.engine(engine)?;
        let status = self.regs.read_at::<regs::ENG_RESET_STATUS>(index)?;
        Ok(progress(
            status.engine_done().into(),
            status.engine_refused().into(),
        ))
    }
}

/// What the bits of a reset's status come to.
fn progress(done: u32, refused: u32) -> ResetProgress {
    if done != 0 {
        ResetProgress::Done
    } else if refused != 0 {
        ResetProgress::Refused
    } else {
        ResetProgress::Pending
    }
}
