// SPDX-License-Identifier: GPL-2.0
//! Hardware slots: putting a queue in, taking it out, looking, and resets of a slot or an engine.
//!
//! The scheduler gives a slot to one queue at a time, so nothing here locks: each slot has registers
//! of its own, and `SLOT_COMMIT` applies only the slots that its mask names. Specification, section
//! "Slots".

use kernel::prelude::*;

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

/// Number of the slot's registers.
fn index(slot: SlotId) -> Result<usize> {
    let within = usize::from(slot.slot);
    if within >= SLOTS_MAX {
        return Err(EINVAL);
    }
    Ok(usize::from(slot.engine) * SLOTS_MAX + within)
}

/// The slot's bit in the masks of its engine.
fn bit(slot: SlotId) -> Result<u32> {
    if usize::from(slot.slot) >= SLOTS_MAX {
        return Err(EINVAL);
    }
    Ok(1 << slot.slot)
}

/// Puts the queue whose descriptor is at `descriptor` into an empty slot.
pub(super) fn bind(regs: &Regs, slot: SlotId, descriptor: u64) -> Result {
    let i = index(slot)?;
    regs.stage_pair_at::<regs::SLOT_DESC_LO, regs::SLOT_DESC_HI>(i, descriptor)?;
    regs.stage_at(i, regs::SLOT_CTRL::zeroed().with_const_bind::<1>())?;
    commit(regs, slot)
}

/// Begins to empty a slot; its queue is saved.
pub(super) fn unbind(regs: &Regs, slot: SlotId) -> Result {
    regs.stage_at(index(slot)?, regs::SLOT_CTRL::zeroed())?;
    commit(regs, slot)
}

fn commit(regs: &Regs, slot: SlotId) -> Result {
    let mask = regs::SLOT_COMMIT::from(bit(slot)?);
    regs.write_ordered_at(usize::from(slot.engine), mask)
}

/// What a slot holds.
pub(super) fn state(regs: &Regs, slot: SlotId) -> Result<SlotState> {
    let status = regs.read_at::<regs::SLOT_STATUS>(index(slot)?)?;
    Ok(match u32::from(status.state()) {
        SLOT_EMPTY => SlotState::Empty,
        SLOT_UNBINDING => SlotState::Unbinding,
        _ => SlotState::Holds {
            queue: u16::try_from(u32::from(status.queue()))?,
        },
    })
}

/// Begins a reset of one slot.
pub(super) fn reset(regs: &Regs, slot: SlotId) -> Result {
    let mask = regs::ENG_RESET::from(bit(slot)?);
    regs.write_ordered_at(usize::from(slot.engine), mask)
}

/// How far the reset of a slot is.
pub(super) fn poll_reset(regs: &Regs, slot: SlotId) -> Result<ResetProgress> {
    let status = regs.read_at::<regs::ENG_RESET_STATUS>(usize::from(slot.engine))?;
    let bit = bit(slot)?;
    Ok(if u32::from(status.slots_done()) & bit != 0 {
        ResetProgress::Done
    } else if u32::from(status.slots_refused()) & bit != 0 {
        ResetProgress::Refused
    } else {
        ResetProgress::Pending
    })
}

/// Begins a reset of an engine with all its slots.
pub(super) fn reset_engine(regs: &Regs, engine: EngineId) -> Result {
    let all = regs::ENG_RESET::zeroed().with_const_engine::<1>();
    regs.write_ordered_at(engine.index(), all)
}

/// How far the reset of an engine is.
pub(super) fn poll_reset_engine(regs: &Regs, engine: EngineId) -> Result<ResetProgress> {
    let status = regs.read_at::<regs::ENG_RESET_STATUS>(engine.index())?;
    Ok(if u32::from(status.engine_done()) != 0 {
        ResetProgress::Done
    } else if u32::from(status.engine_refused()) != 0 {
        ResetProgress::Refused
    } else {
        ResetProgress::Pending
    })
}
