// SPDX-License-Identifier: GPL-2.0

//! What every queue has to do, and the worker that has it done.
//!
//! `algo::sched` decides; this file gives it its inputs and carries out its actions:
//!
//! - SUBMIT puts jobs in ([`Gpu::submit`]), in one step for all of them;
//! - fences that jobs wait for mark their queue and kick the worker ([`Scheduler::count_down`]);
//! - engine events bring fence values ([`Gpu::on_engine_event`]): jobs retire, their fences are
//!   signalled, room and turns become free;
//! - the worker ([`Gpu::run_actions`]) takes one action at a time under the lock and carries it out
//!   without the lock.
//!
//! A queue that is lost (hang, fault, destroyed while it works) is *condemned*: it takes no more
//! jobs and what it has is cancelled, but what is in its ring stays until the hardware has let go
//! of it, which is `recovery`'s part. Only then are its fences signalled ([`Scheduler::settle`]):
//! a signalled fence promises that the hardware does not touch the job's memory any more.

use kernel::{
    prelude::*,
    sync::{
        atomic::Acquire,
        Arc, //
    }, //
};

use crate::{
    algo::timeline::Seqno,
    ext::dma_fence::FenceRef,
    gpu::{
        job::{
            Issued,
            Job, //
        },
        log::gpu_warn,
        queue::Queue,
        recovery::Cause,
        submit::Prepared,
        sync,
        trace,
        watchdog,
        Gpu, //
    },
    hal::{
        EngineId,
        SlotState, //
    }, //
};

mod table;

pub(super) use table::{
    Entry,
    Scheduler, //
};
use table::{
    Place,
    Step, //
};

impl Gpu {
    /// Gives a new queue a hardware id and an engine, and makes it.
    ///
    /// `engine`: [`None`] chooses among `candidates` the one with the fewest queues. [`ENOSPC`]: no
    /// more hardware ids.
    pub(super) fn create_queue(
        self: &Arc<Self>,
        candidates: &[EngineId],
        make: impl FnOnce(u16, EngineId) -> Result<Arc<Queue>>,
    ) -> Result<Arc<Queue>> {
        let mut reserved = self.scheduler.lock().reserve_id(candidates);
        if reserved == Err(ENOSPC) {
            // Ids of queues that were just destroyed come back when the worker has seen to them.
            self.flush();
            reserved = self.scheduler.lock().reserve_id(candidates);
        }
        let (id, engine) = reserved?;
        let queue = make(id, engine);
        let mut scheduler = self.scheduler.lock();
        let added = queue.and_then(|queue| {
            scheduler.add(&queue)?;
            Ok(queue)
        });
        if added.is_err() {
            scheduler.free_id(id);
        }
        added
    }

    /// Ends a queue: jobs that have not begun are cancelled, what runs is stopped. Does not wait.
    pub(crate) fn destroy_queue(self: &Arc<Self>, queue: &Arc<Queue>) {
        let mut scheduler = self.scheduler.lock();
        let index = usize::from(queue.id());
        let Ok(entry) = scheduler.entry_of(queue) else {
            // The board is gone, and the queue with it.
            return;
        };
        let (id, works) = (entry.id, entry.in_ring());
        queue.close();
        if works {
            scheduler.condemn(index, Cause::Destroyed);
        }
        // An error says that it has been removed before.
        let _ = scheduler.sched.remove_queue(id);
        if !scheduler.is_stopped() {
            self.kick();
            if works {
                self.watch_in(0);
            }
        }
    }

    /// Gives jobs to a queue, all or none, and makes sync objects hold their fences. Returns the
    /// fence of the last one.
    ///
    /// [`EAGAIN`]: no room now; [`ECANCELED`]: the queue is lost or destroyed; [`ENODEV`].
    pub(super) fn submit(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        jobs: &mut KVec<Prepared>,
    ) -> Result<FenceRef> {
        let mut guard = self.scheduler.lock();
        if guard.is_stopped() {
            return Err(ENODEV);
        }
        let Scheduler { sched, places, .. } = &mut *guard;
        let entry = match places.get_mut(usize::from(queue.id())) {
            Some(Place::Used(entry)) if Arc::ptr_eq(&entry.queue, queue) => entry,
            _ => return Err(ECANCELED),
        };
        if entry.condemned.is_some() || queue.is_closed() {
            return Err(ECANCELED);
        }
        let count = u32::try_from(jobs.len())?;
        if !queue.has_room(count) {
            return Err(EAGAIN);
        }

        // Everything that can fail comes first.
        let mut tickets = KVec::with_capacity(jobs.len(), GFP_KERNEL)?;
        let reserved = (0..jobs.len()).try_for_each(|_| -> Result {
            let timeline = entry.timeline.reserve()?;
            match sched.reserve(entry.id) {
                Ok(sched) => Ok(tickets.push((timeline, sched), GFP_KERNEL)?),
                Err(error) => {
                    entry.timeline.release(timeline);
                    Err(error.into())
                }
            }
        });
        if let Err(error) = reserved {
            for (timeline, ticket) in tickets {
                entry.timeline.release(timeline);
                sched.release(entry.id, ticket);
            }
            return Err(error);
        }

        // From here on nothing fails.
        let mut last = None;
        for (prepared, (timeline, ticket)) in jobs.drain_all().zip(tickets) {
            let Prepared {
                job,
                fence,
                signals,
            } = prepared;
            let seqno = entry.timeline.next_seqno();
            let fence = fence.init(queue.timeline_name(), queue.fence_context(), seqno.get());
            let reference = fence.reference();
            let issued = Issued {
                job: job.clone(),
                fence,
            };
            entry.timeline.issue(timeline, issued);
            let deps = job.outstanding();
            trace::job_queue(self, &job, seqno, deps);
            sched.submit(ticket, entry.id, seqno, job.ring_words(), deps, job);
            sync::publish(signals, &reference);
            last = Some(reference);
        }
        queue.enter_backlog(count);
        self.kick();
        last.ok_or(EINVAL)
    }

    /// The board signalled something about an engine: a fence, a slot. From its interrupt handler,
    /// which may sleep.
    pub(crate) fn on_engine_event(self: &Arc<Self>, engine: EngineId) {
        let works = |entry: &Entry| entry.queue.engine() == engine && !entry.is_idle();
        let mut from = 0;
        while let Some(index) = self.next_queue(from, works) {
            self.collect(index);
            from = index + 1;
        }
        let scheduler = self.scheduler.lock();
        if !scheduler.is_stopped() {
            self.kick();
        }
    }

    /// The next queue for which `f` holds, from hardware id `from` on.
    fn next_queue(&self, from: usize, f: impl Fn(&Entry) -> bool) -> Option<usize> {
        let scheduler = self.scheduler.lock();
        let rest = scheduler.places.get(from..)?;
        let found = rest
            .iter()
            .position(|place| matches!(place, Place::Used(entry) if f(entry)))?;
        from.checked_add(found)
    }

    /// Signals what ended at a hardware id.
    pub(super) fn collect(self: &Arc<Self>, index: usize) {
        // Each turn takes one job out of a timeline that holds finitely many.
        loop {
            let mut scheduler = self.scheduler.lock();
            match scheduler.collect_one(index) {
                Ok(Some(over)) => {
                    drop(scheduler);
                    trace::job_done(self, over.job.queue(), over.seqno, over.result);
                    over.job.queue().room().wake_all();
                }
                Ok(None) => return,
                Err(error) => {
                    gpu_warn!(
                        self,
                        "queue {index}: its fence makes no sense ({error:?})\n"
                    );
                    scheduler.condemn(index, Cause::Corrupt);
                    if !scheduler.is_stopped() {
                        self.watch_in(0);
                    }
                    return;
                }
            }
        }
    }

    /// The worker.
    pub(super) fn run_actions(self: &Arc<Self>) {
        if self.held.load(Acquire) {
            // The watchdog will have it run again.
            return;
        }
        self.look_after_leaving();
        // Each turn carries out one action, and what causes actions is finite.
        loop {
            let mut scheduler = self.scheduler.lock();
            let Some(step) = scheduler.next_step() else {
                if scheduler.sched.needs_timeslice() && !scheduler.is_stopped() {
                    self.start_time_slice();
                }
                return;
            };
            drop(scheduler);
            self.carry_out(step);
        }
    }

    fn carry_out(self: &Arc<Self>, step: Step) {
        let (index, result) = match step {
            Step::Bind(queue, slot, resume) => (queue.id(), queue.bind(slot, resume)),
            Step::Unbind(queue, slot) => (queue.id(), queue.unbind(slot)),
            Step::Write(job, seqno) => {
                let queue = job.queue();
                let skip = self.skips(&job, seqno);
                self.power_before_work();
                let written = queue.write(&job, seqno, skip);
                if written.is_ok() {
                    trace::job_run(self, &job, seqno);
                }
                (queue.id(), written)
            }
            Step::Collect(index) => return self.collect(index),
            Step::Retire(entry) => {
                let id = entry.queue.id();
                entry.retire(self);
                return self.scheduler.lock().free_id(id);
            }
        };
        let index = usize::from(index);
        let mut scheduler = self.scheduler.lock();
        match result {
            Ok(()) => {}
            // The watchdog finds out what became of the board.
            Err(error) if error == ENODEV => {}
            Err(error) => {
                gpu_warn!(self, "queue {index}: cannot be served ({error:?})\n");
                scheduler.condemn(index, Cause::Corrupt);
            }
        }
        if scheduler.is_stopped() {
            return;
        }
        if result.is_err() {
            self.watch_in(0);
        } else if let Some(entry) = scheduler.entry(index) {
            if entry.in_ring() || entry.leaving.is_some() {
                self.watch_at_latest_in(watchdog::first_look_ms(entry.queue.properties()));
            }
        }
    }

    /// Whether a job whose turn it is does not run, because what it waited for failed. Its fence
    /// then carries that error.
    fn skips(&self, job: &Job, seqno: Seqno) -> bool {
        let Err(error) = job.check_dependencies() else {
            return false;
        };
        if let Ok(entry) = self.scheduler.lock().entry_of(job.queue()) {
            entry.timeline.fail(seqno..=seqno, error);
        }
        true
    }

    /// Asks the board about queues that are being taken out of their slots.
    pub(super) fn look_after_leaving(&self) {
        let mut from = 0;
        while let Some(index) = self.next_queue(from, |entry| entry.leaving.is_some()) {
            from = index + 1;
            let slot = self.scheduler.lock().entry(index).and_then(|e| e.slot);
            let Some(slot) = slot else { continue };
            if self.hal().slot(slot) == Ok(SlotState::Empty) {
                self.scheduler.lock().left(index, slot);
            }
        }
    }

    /// Lets queues of equal priority have their turn.
    pub(super) fn end_time_slice(self: &Arc<Self>) {
        let mut scheduler = self.scheduler.lock();
        if !scheduler.is_stopped() {
            scheduler.sched.timeslice();
            self.kick();
        }
    }

    /// The board is stopped for good: all jobs are over, with [`ENODEV`], and all queues gone.
    pub(super) fn abandon_all(self: &Arc<Self>) {
        for index in 0..usize::from(self.info().queues) {
            let entry = self.scheduler.lock().give_up(index);
            if let Some(entry) = entry {
                entry.retire(self);
            }
        }
        // Jobs that have not begun are still with the algorithm, finitely many.
        loop {
            let action = self.scheduler.lock().sched.next_action();
            if action.is_none() {
                return;
            }
        }
    }
}
