// SPDX-License-Identifier: GPL-2.0

//! One queue as the scheduler sees it: its state, its jobs, its credits.

use kernel::{
    alloc::AllocError,
    error::Error, //
};

use super::slots::{
    Class,
    SlotId, //
};
use crate::algo::{
    fifo::{
        Fifo,
        Ticket, //
    },
    timeline::Seqno, //
};

/// Levels of priority.
pub(crate) const PRIORITIES: usize = 4;

/// Priority of a queue. A higher one always goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// Whatever the others leave.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Interactive work.
    High,
    /// A compositor's, or what else may not wait.
    Realtime,
}

impl Priority {
    /// Makes a priority of its number in the ABI and in the queue descriptor.
    pub(crate) const fn from_level(level: u8) -> Option<Self> {
        match level {
            0 => Some(Self::Low),
            1 => Some(Self::Normal),
            2 => Some(Self::High),
            3 => Some(Self::Realtime),
            _ => None,
        }
    }

    /// The number.
    pub(crate) const fn level(self) -> u8 {
        match self {
            Self::Low => 0,
            Self::Normal => 1,
            Self::High => 2,
            Self::Realtime => 3,
        }
    }

    /// All of them, highest first.
    pub(super) fn descending() -> impl Iterator<Item = Self> {
        [Self::Realtime, Self::High, Self::Normal, Self::Low].into_iter()
    }
}

/// What a queue is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSpec {
    /// On which engines it can run.
    pub(crate) class: Class,
    /// How important it is.
    pub(crate) priority: Priority,
    /// What all jobs that are in flight may cost together: words of its ring.
    pub(crate) credits: u32,
}

/// Whether a queue takes and runs jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// It takes jobs and runs them in order.
    Good,
    /// It was cancelled: jobs are refused with this error, those that it had and that did not run
    /// come back in `Action::Cancel`, those in flight are forgotten, and the slot is given up.
    /// Stays so: who has to go on makes another queue.
    Failed(Error),
    /// As failed, and its id is known only until `Action::Retire`.
    Removed,
}

/// Whether a queue holds a hardware slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// It holds none: the board does not know it, no job is started. Jobs that were started keep
    /// their place in the ring and go on when it sits again.
    Away,
    /// The slot is its own, from `Action::Bind` on: jobs may run.
    Resident(SlotId),
    /// `Action::Unbind` was given: the slot is still its own, and no job is started, until the
    /// board has let go of it.
    Leaving(SlotId),
}

/// A look at a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueState {
    /// Whether it runs jobs.
    pub(crate) health: Health,
    /// Where it sits.
    pub(crate) seat: Seat,
    /// Jobs that were not started.
    pub(crate) queued: usize,
    /// Jobs that were started and are not done.
    pub(crate) in_flight: usize,
}

/// Places for one more job: from [`Queue::reserve`], for [`Queue::push`].
#[derive(Debug)]
#[must_use = "places are for a job, or to be released"]
pub(crate) struct Places {
    /// Among those that wait.
    waiting: Ticket,
    /// Among those that were started.
    started: Ticket,
}

/// A job that was not started.
struct Job<J> {
    seqno: Seqno,
    credits: u32,
    /// Dependencies that have not signaled.
    blockers: u32,
    payload: J,
    /// Its place among the jobs in flight.
    place: Ticket,
}

/// A job that was started.
struct Started {
    seqno: Seqno,
    credits: u32,
}

/// Entry of the scheduler's table.
pub(super) struct Queue<J> {
    pub(super) spec: QueueSpec,
    pub(super) health: Health,
    pub(super) seat: Seat,
    jobs: Fifo<Job<J>>,
    started: Fifo<Started>,
    /// Credits of `started`.
    used: u32,
    /// The last job that was submitted.
    last: Seqno,
    /// Time slice in which it took its seat.
    pub(super) slice: u64,
    /// When it took its seat, in the order of activities.
    pub(super) seated: u64,
    /// When it was last active, likewise.
    pub(super) active: u64,
}

impl<J> Queue<J> {
    pub(super) fn new(spec: QueueSpec) -> Self {
        Self {
            spec,
            health: Health::Good,
            seat: Seat::Away,
            jobs: Fifo::new(),
            started: Fifo::new(),
            used: 0,
            last: Seqno::default(),
            slice: 0,
            seated: 0,
            active: 0,
        }
    }

    pub(super) fn state(&self) -> QueueState {
        QueueState {
            health: self.health,
            seat: self.seat,
            queued: self.jobs.len(),
            in_flight: self.started.len(),
        }
    }

    /// Makes sure of the places of one more job.
    pub(super) fn reserve(&mut self) -> Result<Places, AllocError> {
        let waiting = self.jobs.reserve()?;
        match self.started.reserve() {
            Ok(started) => Ok(Places { waiting, started }),
            Err(e) => {
                self.jobs.release(waiting);
                Err(e)
            }
        }
    }

    /// Gives places back.
    pub(super) fn release(&mut self, places: Places) {
        self.jobs.release(places.waiting);
        self.started.release(places.started);
    }

    /// Appends a job. One that costs more than there is waits until it is alone.
    pub(super) fn push(
        &mut self,
        places: Places,
        seqno: Seqno,
        credits: u32,
        blockers: u32,
        payload: J,
    ) {
        let job = Job {
            seqno,
            credits: credits.min(self.spec.credits),
            blockers,
            payload,
            place: places.started,
        };
        self.last = self.last.max(seqno);
        self.jobs.push(places.waiting, job);
    }

    /// Whether there is a job that was not started.
    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Whether the first job waits for nothing but a seat and credits.
    fn is_ready(&self) -> bool {
        self.jobs.front().is_some_and(|j| j.blockers == 0)
    }

    /// Whether the first job could be started in its ring.
    pub(super) fn can_start(&self) -> bool {
        let left = self.spec.credits.saturating_sub(self.used);
        self.jobs
            .front()
            .is_some_and(|j| j.blockers == 0 && j.credits <= left)
    }

    /// Whether a seat is of use to it: there is something to start or to go on with.
    pub(super) fn is_busy(&self) -> bool {
        self.is_ready() || !self.started.is_empty()
    }

    /// Position of a job among those that were not started. Seqnos ascend.
    fn position(&self, seqno: Seqno) -> Option<usize> {
        let (mut low, mut high) = (0, self.jobs.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let found = self.jobs.get(middle)?.seqno;
            if found == seqno {
                return Some(middle);
            }
            if found < seqno {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        None
    }

    /// Notes that one dependency of a job has signaled.
    pub(super) fn unblock(&mut self, seqno: Seqno) {
        let job = self.position(seqno).and_then(|n| self.jobs.get_mut(n));
        if let Some(job) = job {
            job.blockers = job.blockers.saturating_sub(1);
        }
    }

    /// Starts the first job.
    pub(super) fn start(&mut self) -> Option<(Seqno, J)> {
        let job = self.jobs.pop()?;
        self.used = self.used.saturating_add(job.credits);
        self.started.push(
            job.place,
            Started {
                seqno: job.seqno,
                credits: job.credits,
            },
        );
        Some((job.seqno, job.payload))
    }

    /// Takes the first job back, not started.
    pub(super) fn withdraw(&mut self) -> Option<(Seqno, J)> {
        let job = self.jobs.pop()?;
        self.started.release(job.place);
        Some((job.seqno, job.payload))
    }

    /// Forgets all started jobs.
    pub(super) fn forget(&mut self) {
        self.finish(self.last);
    }

    /// Forgets the started jobs up to a seqno.
    pub(super) fn finish(&mut self, upto: Seqno) {
        while self.started.front().is_some_and(|s| s.seqno <= upto) {
            if let Some(s) = self.started.pop() {
                self.used = self.used.saturating_sub(s.credits);
            }
        }
    }
}
