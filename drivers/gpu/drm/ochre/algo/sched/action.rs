// SPDX-License-Identifier: GPL-2.0

//! What the scheduler says: what there is to do, and why it takes a job or not.

use kernel::{
    alloc,
    error::Error,
    prelude::*, //
};

use super::slots::SlotId;
use crate::algo::timeline::Seqno;

/// Names a queue; of one that is gone, never another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// What the caller has to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action<J> {
    /// Put the queue into the slot.
    Bind {
        /// Which.
        queue: QueueId,
        /// Where.
        slot: SlotId,
    },
    /// Take the queue out of the slot, even if it is at work, and call [`Sched::slot_released`]
    /// when the board has let go of it.
    Unbind {
        /// Which.
        queue: QueueId,
        /// Where.
        slot: SlotId,
    },
    /// Write the job into the ring of the queue, which is in a slot, and ring.
    Run {
        /// Whose.
        queue: QueueId,
        /// Its number.
        seqno: Seqno,
        /// The job.
        job: J,
    },
    /// The job will not run: end its fence with the error.
    Cancel {
        /// Whose.
        queue: QueueId,
        /// Its number.
        seqno: Seqno,
        /// The job.
        job: J,
        /// Why.
        error: Error,
    },
    /// The queue that was removed is in no slot, has no job, and will not be heard of again.
    Retire {
        /// Which.
        queue: QueueId,
    },
}

/// Why a queue takes no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no such queue: `ENOENT`.
    NoQueue,
    /// The queue was cancelled with this error.
    Failed(Error),
    /// No memory: `ENOMEM`.
    NoMemory,
}

impl From<alloc::AllocError> for Refusal {
    fn from(_: alloc::AllocError) -> Self {
        Self::NoMemory
    }
}

impl From<Refusal> for Error {
    fn from(r: Refusal) -> Self {
        match r {
            Refusal::NoQueue => ENOENT,
            Refusal::Failed(e) => e,
            Refusal::NoMemory => ENOMEM,
        }
    }
}
