// SPDX-License-Identifier: GPL-2.0

//! The fences of one queue: what was issued, what is complete, and with which error.
//!
//! A seqno is 64 bits, starts at 1, and never wraps. The board writes the seqno of the last job
//! that it finished (og1.rst, section "Packets", fence); [`Timeline::advance`] takes it over if it
//! can be true, and [`Timeline::pop`] then hands the payloads back, in order, one at a time, so
//! that the caller can signal each without the lock. Nothing there allocates: the room for a job
//! was reserved before it was issued.

use core::ops::RangeInclusive;

use kernel::{
    alloc::AllocError,
    error::Error,
    prelude::*, //
};

use super::fifo::{
    Fifo,
    Ticket, //
};

/// Number of a job in its queue, from 1. 0 stands for "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seqno(u64);

impl Seqno {
    /// Makes a seqno of a number.
    pub(crate) const fn new(seqno: u64) -> Self {
        Self(seqno)
    }

    /// The number.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// The one after it.
    pub(crate) const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A completed seqno that the device cannot have meant: `EIO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimelineError {
    /// Less than what it said before.
    Backwards {
        /// What was read before.
        seen: Seqno,
        /// What was read now.
        read: Seqno,
    },
    /// More than was issued.
    Beyond {
        /// The last that was issued.
        issued: Seqno,
        /// What was read.
        read: Seqno,
    },
}

impl From<TimelineError> for Error {
    fn from(_: TimelineError) -> Self {
        EIO
    }
}

/// A job that has left the timeline.
#[derive(Debug)]
pub(crate) struct Retired<P> {
    /// Its number.
    pub(crate) seqno: Seqno,
    /// What was issued with it.
    pub(crate) payload: P,
    /// How it ended.
    pub(crate) result: Result,
}

/// A job that is on its way.
struct Pending<P> {
    payload: P,
    error: Option<Error>,
}

/// The timeline of one queue. Guarded by the fence lock of the queue.
///
/// # Invariants
///
/// `pending` holds the jobs `issued - pending.len() + 1 ..= issued`, and
/// `device <= completed <= issued`.
pub(crate) struct Timeline<P> {
    pending: Fifo<Pending<P>>,
    issued: Seqno,
    /// Jobs up to here may leave.
    completed: Seqno,
    /// What the device said last. Less than `completed` after [`Timeline::abandon`].
    device: Seqno,
}

impl<P> Timeline<P> {
    /// Makes a timeline on which nothing was issued.
    pub(crate) const fn new() -> Self {
        Self {
            pending: Fifo::new(),
            issued: Seqno(0),
            completed: Seqno(0),
            device: Seqno(0),
        }
    }

    /// Makes sure that one more job can be issued.
    pub(crate) fn reserve(&mut self) -> Result<Ticket, AllocError> {
        self.pending.reserve()
    }

    /// Gives up what was reserved.
    pub(crate) fn release(&mut self, ticket: Ticket) {
        self.pending.release(ticket);
    }

    /// Issues a job and returns its number, the next. Cannot fail.
    pub(crate) fn issue(&mut self, ticket: Ticket, payload: P) -> Seqno {
        self.pending.push(
            ticket,
            Pending {
                payload,
                error: None,
            },
        );
        self.issued = self.issued.next();
        self.issued
    }

    /// The seqno that [`Timeline::issue`] will give next.
    pub(crate) fn next_seqno(&self) -> Seqno {
        self.issued.next()
    }

    /// The last seqno that is complete, well or badly.
    pub(crate) fn completed(&self) -> Seqno {
        self.completed
    }

    /// Returns whether everything that was issued has left.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Last seqno that has left.
    fn retired(&self) -> Seqno {
        let pending = u64::try_from(self.pending.len()).unwrap_or(0);
        Seqno(self.issued.0.saturating_sub(pending))
    }

    /// The last seqno that has been handed out by [`Timeline::pop`].
    pub(crate) fn signaled(&self) -> Seqno {
        self.retired()
    }

    /// The jobs that have not left, in order.
    pub(crate) fn pending(&self) -> impl Iterator<Item = (Seqno, &P)> {
        let first = self.retired().0.saturating_add(1);
        (first..)
            .map(Seqno)
            .zip(self.pending.iter().map(|p| &p.payload))
    }

    /// Takes over the completed seqno that was read from the device, and returns how many jobs
    /// that adds. A value that cannot be is an error, and nothing changes.
    pub(crate) fn advance(&mut self, read: u64) -> Result<u64, TimelineError> {
        let read = Seqno(read);
        if read < self.device {
            return Err(TimelineError::Backwards {
                seen: self.device,
                read,
            });
        }
        if read > self.issued {
            return Err(TimelineError::Beyond {
                issued: self.issued,
                read,
            });
        }
        self.device = read;
        let before = self.completed;
        self.completed = before.max(read);
        Ok(self.completed.0 - before.0)
    }

    /// Takes the next complete job out: call it until there is none.
    pub(crate) fn pop(&mut self) -> Option<Retired<P>> {
        let seqno = self.retired().next();
        if seqno > self.completed {
            return None;
        }
        let job = self.pending.pop()?;
        Some(Retired {
            seqno,
            payload: job.payload,
            result: job.error.map_or(Ok(()), Err),
        })
    }

    /// Marks those jobs of a range that are not complete as failed, and returns how many that
    /// were. They leave when they complete, in their turn. A job keeps its first error.
    pub(crate) fn fail(&mut self, range: RangeInclusive<Seqno>, error: Error) -> usize {
        let retired = self.retired();
        let first = (*range.start()).max(self.completed.next()).0;
        let last = (*range.end()).min(self.issued).0;
        let mut marked = 0;
        for seqno in first..=last {
            let job = usize::try_from(seqno - retired.0 - 1)
                .ok()
                .and_then(|n| self.pending.get_mut(n));
            if let Some(job) = job {
                if job.error.is_none() {
                    job.error = Some(error);
                    marked += 1;
                }
            }
        }
        marked
    }

    /// Completes everything that is not complete, with `error` where there is none, and returns
    /// how many jobs that were: the device has been reset and will complete them no more.
    pub(crate) fn abandon(&mut self, error: Error) -> u64 {
        self.fail(self.completed.next()..=self.issued, error);
        let before = self.completed;
        self.completed = self.issued;
        self.completed.0 - before.0
    }
}

#[kunit_tests(ochre_algo_timeline)]
mod tests {
    use super::*;
    use crate::algo::prng::for_each_seed;

    fn issue(t: &mut Timeline<u64>, n: u64) -> Result {
        for _ in 0..n {
            let ticket = t.reserve()?;
            let payload = t.next_seqno().get() * 10;
            assert!(t.issue(ticket, payload).get() * 10 == payload);
        }
        Ok(())
    }

    #[test]
    fn jobs_leave_in_order_and_only_once_complete() -> Result {
        let mut t = Timeline::new();
        issue(&mut t, 3)?;
        assert!(t.pop().is_none());
        assert!(t.advance(2) == Ok(2));
        for seqno in 1..=2 {
            let job = t.pop();
            assert!(job.is_some_and(|j| j.seqno.get() == seqno
                && j.payload == seqno * 10
                && j.result.is_ok()));
        }
        assert!(t.pop().is_none());
        assert!(t.pending().map(|(s, _)| s.get()).eq([3]));
        Ok(())
    }

    #[test]
    fn seqno_that_cannot_be_is_refused_and_changes_nothing() -> Result {
        let mut t = Timeline::new();
        issue(&mut t, 5)?;
        assert!(t.advance(3) == Ok(3));
        let (seen, issued) = (Seqno::new(3), Seqno::new(5));
        let read = Seqno::new(2);
        assert!(t.advance(2) == Err(TimelineError::Backwards { seen, read }));
        let read = Seqno::new(6);
        assert!(t.advance(6) == Err(TimelineError::Beyond { issued, read }));
        assert!(t.advance(u64::MAX).is_err());
        assert!(t.completed() == seen);
        assert!(t.advance(3) == Ok(0));
        Ok(())
    }

    #[test]
    fn guilty_job_carries_its_error_and_its_neighbours_none() -> Result {
        let mut t = Timeline::new();
        issue(&mut t, 4)?;
        assert!(t.fail(Seqno::new(2)..=Seqno::new(2), ETIME) == 1);
        // Once failed, the first error stays.
        assert!(t.fail(Seqno::new(2)..=Seqno::new(2), EIO) == 0);
        assert!(t.advance(4) == Ok(4));
        for seqno in 1..=4 {
            let expected = if seqno == 2 { Err(ETIME) } else { Ok(()) };
            assert!(t.pop().is_some_and(|j| j.result == expected));
        }
        Ok(())
    }

    #[test]
    fn abandoned_jobs_end_with_the_error_exactly_once() -> Result {
        let mut t = Timeline::new();
        issue(&mut t, 5)?;
        assert!(t.advance(2) == Ok(2));
        assert!(t.fail(Seqno::new(4)..=Seqno::new(4), ETIME) == 1);
        assert!(t.abandon(ECANCELED) == 3);
        assert!(t.abandon(ECANCELED) == 0);
        let expected = [Ok(()), Ok(()), Err(ECANCELED), Err(ETIME), Err(ECANCELED)];
        for result in expected {
            assert!(t.pop().is_some_and(|j| j.result == result));
        }
        assert!(t.is_idle());
        // The device's word from before the reset is late, not wrong.
        assert!(t.advance(3) == Ok(0));
        Ok(())
    }

    #[test]
    fn random_use_hands_each_job_back_once_and_in_order() -> Result {
        for_each_seed("timeline", |rng| {
            let mut t = Timeline::new();
            let mut errors: KVec<Option<Error>> = KVec::new();
            let (mut device, mut completed, mut popped) = (0u64, 0u64, 0u64);
            for _ in 0..4000 {
                let issued = errors.len() as u64;
                match rng.below(8) {
                    0..=3 => {
                        issue(&mut t, 1)?;
                        errors.push(None, GFP_KERNEL)?;
                    }
                    4 | 5 => {
                        let read = rng.below(issued + 4);
                        let fits = device <= read && read <= issued;
                        assert!(t.advance(read).is_ok() == fits);
                        if fits {
                            device = read;
                            completed = completed.max(read);
                        }
                    }
                    6 => {
                        let first = rng.below(issued + 2);
                        let last = first + rng.below(4);
                        t.fail(Seqno::new(first)..=Seqno::new(last), EIO);
                        for seqno in first.max(completed + 1)..=last.min(issued) {
                            errors[seqno as usize - 1].get_or_insert(EIO);
                        }
                    }
                    _ if rng.chance(5) => {
                        assert!(t.abandon(ECANCELED) == issued - completed);
                        for error in &mut errors[completed as usize..] {
                            error.get_or_insert(ECANCELED);
                        }
                        completed = issued;
                    }
                    _ => {
                        while let Some(job) = t.pop() {
                            popped += 1;
                            assert!(job.seqno.get() == popped && job.payload == popped * 10);
                            assert!(job.result.err() == errors[popped as usize - 1]);
                        }
                        assert!(popped == completed);
                    }
                }
                assert!(t.completed().get() == completed);
                assert!(t.pending().count() == errors.len() - popped as usize);
            }
            Ok(())
        })
    }
}
