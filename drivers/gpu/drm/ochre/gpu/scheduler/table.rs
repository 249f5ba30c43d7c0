// SPDX-License-Identifier: GPL-2.0

//! The scheduler's table: all queues, and what each has to do.
//!
//! Everything here is under the scheduler's lock and touches no register. What the hardware has
//! to be told comes out as a [`Step`].

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    algo::{
        sched::{
            Action,
            Class,
            EngineSpec,
            QueueId,
            QueueSpec,
            Sched,
            SlotId, //
        },
        timeline::{
            Seqno,
            Timeline, //
        },
        watchdog::{
            BoardTime,
            QueueWatch, //
        },
    },
    gpu::{
        device::now,
        job::{
            Issued,
            Job, //
        },
        queue::{
            Health,
            Queue, //
        },
        recovery::Cause,
        trace,
        watchdog,
        Gpu, //
    },
    hal::{
        self,
        EngineId, //
    }, //
};

/// Whether actions are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Yes.
    Running,
    /// Not while more than a queue is being reset.
    Paused,
    /// Never again: there is no board.
    Stopped,
}

/// A queue and what it has to do.
pub(in crate::gpu) struct Entry {
    pub(in crate::gpu) queue: Arc<Queue>,
    pub(super) id: QueueId,
    pub(super) timeline: Timeline<Issued>,
    pub(in crate::gpu) watch: QueueWatch,
    /// Busy time (board, ns) at the watchdog's last look, and whether it had grown until then.
    pub(in crate::gpu) busy_seen: u64,
    pub(in crate::gpu) ran: bool,
    /// Board time of the watchdog's last look while there was work.
    pub(in crate::gpu) looked_at: Option<BoardTime>,
    /// Board time in ns during which its engine worked for others only.
    pub(in crate::gpu) starved_ns: u64,
    /// The slot that holds it.
    pub(in crate::gpu) slot: Option<SlotId>,
    /// Since when (CPU, ns) it is being taken out of its slot.
    pub(in crate::gpu) leaving: Option<u64>,
    /// Since when (CPU, ns) it is seen to stand still for a fault.
    pub(in crate::gpu) faulted: Option<u64>,
    /// Its save area holds where it was.
    saved: bool,
    /// The last job that was written into the ring.
    written: Seqno,
    /// Why it is lost.
    pub(in crate::gpu) condemned: Option<Cause>,
    /// It is lost and the hardware has let go of it.
    settled: bool,
}

impl Entry {
    /// Whether jobs are in the ring that the board has not completed.
    pub(in crate::gpu) fn in_ring(&self) -> bool {
        self.written > self.timeline.completed()
    }

    /// Whether neither the hardware nor a fence has anything to do with it.
    pub(in crate::gpu) fn is_idle(&self) -> bool {
        let condemned = self.condemned.is_some() && !self.settled;
        !self.in_ring() && self.leaving.is_none() && !condemned
    }

    /// Seqnos of the jobs that were issued, written into the ring, and completed last.
    pub(in crate::gpu) fn progress(&self) -> [u64; 3] {
        let issued = self.timeline.next_seqno().get().saturating_sub(1);
        [issued, self.written.get(), self.timeline.completed().get()]
    }

    /// The last job whose fence was signalled.
    pub(in crate::gpu) fn signaled(&self) -> u64 {
        self.timeline.signaled().get()
    }

    /// Signals what is over, in order, and drops the entry, which is in the table no more.
    pub(in crate::gpu) fn retire(mut self: KBox<Self>, gpu: &Gpu) {
        // Finitely many.
        while let Some(retired) = self.timeline.pop() {
            self.queue.leave_backlog();
            retired.payload.fence.signal(retired.result);
            trace::job_done(gpu, &self.queue, retired.seqno, retired.result);
        }
        self.queue.release_hardware();
    }

    /// Whether the board began none of the jobs in the ring.
    fn untouched(&self) -> bool {
        let Ok(position) = self.queue.position() else {
            return false;
        };
        let next = self.timeline.completed().next();
        let first = self.timeline.pending().find(|(seqno, _)| *seqno == next);
        match first {
            Some((seqno, issued)) if seqno <= self.written => {
                issued.job.is_untouched_at(position.get())
            }
            _ => true,
        }
    }
}

/// A job that is over; its fence was signalled.
pub(super) struct Over {
    /// To be dropped without the scheduler's lock.
    pub(super) job: Arc<Job>,
    pub(super) seqno: Seqno,
    pub(super) result: Result,
}

/// What the worker has to carry out, without the lock.
pub(super) enum Step {
    /// Put the queue into the slot; resume where it was saved.
    Bind(Arc<Queue>, SlotId, bool),
    /// Take the queue out of the slot.
    Unbind(Arc<Queue>, SlotId),
    /// Write the job into its queue's ring.
    Write(Arc<Job>, Seqno),
    /// Signal what ended at this hardware id.
    Collect(usize),
    /// Signal what a queue still has that is gone, and drop it.
    Retire(KBox<Entry>),
}

/// A hardware id.
pub(super) enum Place {
    Free,
    /// A queue is being made.
    Reserved,
    Used(KBox<Entry>),
}

/// All queues. Guarded by one lock, the scheduler's; nobody waits for hardware under it.
pub(in crate::gpu) struct Scheduler {
    pub(super) sched: Sched<Arc<Job>>,
    /// By hardware id.
    pub(super) places: KVec<Place>,
    mode: Mode,
}

impl Scheduler {
    /// No queue yet.
    pub(in crate::gpu) fn new(info: &hal::Info) -> Result<Self> {
        let mut engines = KVec::with_capacity(info.engines.len(), GFP_KERNEL)?;
        for (index, engine) in info.engines.iter().enumerate() {
            // A queue is for one engine, so each is a class of its own to the algorithm.
            engines.push(
                EngineSpec {
                    class: Class::new(u8::try_from(index)?),
                    slots: engine.slots,
                },
                GFP_KERNEL,
            )?;
        }
        let mut places = KVec::with_capacity(usize::from(info.queues), GFP_KERNEL)?;
        for _ in 0..info.queues {
            places.push(Place::Free, GFP_KERNEL)?;
        }
        Ok(Self {
            sched: Sched::new(&engines)?,
            places,
            mode: Mode::Running,
        })
    }

    /// Carries out no action any more.
    pub(in crate::gpu) fn stop(&mut self) {
        self.mode = Mode::Stopped;
        self.entries().for_each(|entry| entry.queue.close());
    }

    /// Whether there is a board to work with.
    pub(in crate::gpu) fn is_stopped(&self) -> bool {
        self.mode == Mode::Stopped
    }

    /// Carries out no action until [`Self::resume`].
    pub(in crate::gpu) fn pause(&mut self) {
        if self.mode == Mode::Running {
            self.mode = Mode::Paused;
        }
    }

    /// Carries out actions again.
    pub(in crate::gpu) fn resume(&mut self) {
        if self.mode == Mode::Paused {
            self.mode = Mode::Running;
        }
    }

    /// All queues.
    pub(in crate::gpu) fn entries(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.places.iter_mut().filter_map(|place| match place {
            Place::Used(entry) => Some(&mut **entry),
            Place::Free | Place::Reserved => None,
        })
    }

    /// The queue with a hardware id.
    pub(in crate::gpu) fn entry(&mut self, id: usize) -> Option<&mut Entry> {
        match self.places.get_mut(id)? {
            Place::Used(entry) => Some(entry),
            Place::Free | Place::Reserved => None,
        }
    }

    /// The entry of `queue`. [`ENOENT`]: it is gone, and its hardware id may be another's.
    pub(super) fn entry_of(&mut self, queue: &Arc<Queue>) -> Result<&mut Entry> {
        self.entry(usize::from(queue.id()))
            .filter(|entry| Arc::ptr_eq(&entry.queue, queue))
            .ok_or(ENOENT)
    }

    /// Hardware id of the queue that the algorithm knows as `id`.
    fn find(&self, id: QueueId) -> Option<usize> {
        self.places
            .iter()
            .position(|place| matches!(place, Place::Used(entry) if entry.id == id))
    }

    /// Sets a hardware id aside, and chooses among `candidates` the engine with the fewest queues.
    ///
    /// [`ENOSPC`]: no more ids; [`ENODEV`]; [`EINVAL`]: no candidate.
    pub(super) fn reserve_id(&mut self, candidates: &[EngineId]) -> Result<(u16, EngineId)> {
        if self.is_stopped() {
            return Err(ENODEV);
        }
        let on = |place: &Place, engine: &EngineId| matches!(place, Place::Used(e) if e.queue.engine() == *engine);
        let load = |engine: &EngineId| self.places.iter().filter(|p| on(p, engine)).count();
        let engine = candidates.iter().min_by_key(|e| load(e)).ok_or(EINVAL)?;
        let free = |place: &Place| matches!(place, Place::Free);
        let index = self.places.iter().position(free).ok_or(ENOSPC)?;
        *self.places.get_mut(index).ok_or(EINVAL)? = Place::Reserved;
        Ok((u16::try_from(index)?, *engine))
    }

    /// Gives back a hardware id that was set aside.
    pub(super) fn free_id(&mut self, id: u16) {
        if let Some(place @ Place::Reserved) = self.places.get_mut(usize::from(id)) {
            *place = Place::Free;
        }
    }

    /// Adds a queue, whose hardware id was set aside.
    pub(super) fn add(&mut self, queue: &Arc<Queue>) -> Result {
        if self.is_stopped() {
            return Err(ENODEV);
        }
        let Self { sched, places, .. } = self;
        let place = places.get_mut(usize::from(queue.id())).ok_or(EINVAL)?;
        let entry = KBox::new_uninit(GFP_KERNEL)?;
        let id = sched.add_queue(QueueSpec {
            class: Class::new(queue.engine().0),
            priority: queue.properties().priority,
            credits: queue.credits(),
        })?;
        *place = Place::Used(KBox::write(
            entry,
            Entry {
                queue: queue.clone(),
                id,
                timeline: Timeline::new(),
                watch: watchdog::new_watch(queue.properties()),
                busy_seen: 0,
                ran: false,
                looked_at: None,
                starved_ns: 0,
                slot: None,
                leaving: None,
                faulted: None,
                saved: false,
                written: Seqno::default(),
                condemned: None,
                settled: false,
            },
        ));
        Ok(())
    }

    /// The board has let go of a queue that was taken out of `slot`.
    pub(super) fn left(&mut self, index: usize, slot: SlotId) {
        let Self { sched, places, .. } = self;
        let Some(Place::Used(entry)) = places.get_mut(index) else {
            return;
        };
        if entry.slot != Some(slot) || entry.leaving.take().is_none() {
            return;
        }
        entry.slot = None;
        entry.saved = true;
        // What became of a condemned queue is told when its jobs are over.
        if entry.condemned.is_none() {
            sched.slot_released(entry.id);
        }
    }

    /// Tells the algorithm of fences that were signalled since the last call.
    fn count_down(&mut self) {
        let Self { sched, places, .. } = self;
        for place in places.iter() {
            let Place::Used(entry) = place else { continue };
            if !entry.queue.take_mark() {
                continue;
            }
            for (seqno, issued) in entry.timeline.pending() {
                if seqno <= entry.written {
                    continue;
                }
                for _ in 0..issued.job.newly_signaled() {
                    sched.dependency_signaled(entry.id, seqno);
                }
            }
        }
    }

    /// The next thing for the worker to do.
    pub(super) fn next_step(&mut self) -> Option<Step> {
        self.count_down();
        // Each turn takes one action out of the algorithm, which has finitely many.
        while self.mode == Mode::Running {
            let step = match self.sched.next_action()? {
                Action::Bind { queue, slot } => self.bind(queue, slot),
                Action::Unbind { queue, slot } => self.unbind(queue, slot),
                Action::Run { queue, seqno, job } => self.run(queue, seqno, job),
                Action::Cancel {
                    queue,
                    seqno,
                    job: _,
                    error,
                } => self.cancelled(queue, seqno, error),
                Action::Retire { queue } => self.retired(queue),
            };
            if step.is_some() {
                return step;
            }
        }
        None
    }

    fn bind(&mut self, queue: QueueId, slot: SlotId) -> Option<Step> {
        let index = self.find(queue)?;
        let entry = self.entry(index)?;
        entry.slot = Some(slot);
        entry.watch.restart();
        let resume = core::mem::replace(&mut entry.saved, false);
        Some(Step::Bind(entry.queue.clone(), slot, resume))
    }

    fn unbind(&mut self, queue: QueueId, slot: SlotId) -> Option<Step> {
        let index = self.find(queue)?;
        let entry = self.entry(index)?;
        if entry.condemned.is_some() {
            // A reset will empty the slot.
            return None;
        }
        entry.leaving = Some(now());
        Some(Step::Unbind(entry.queue.clone(), slot))
    }

    fn run(&mut self, queue: QueueId, seqno: Seqno, job: Arc<Job>) -> Option<Step> {
        let index = self.find(queue)?;
        let entry = self.entry(index)?;
        if entry.condemned.is_some() {
            // Decided before it was condemned. It ends with the others.
            return None;
        }
        if !entry.in_ring() {
            entry.watch.restart();
        }
        entry.written = seqno;
        Some(Step::Write(job, seqno))
    }

    /// A job was cancelled that has not run.
    fn cancelled(&mut self, queue: QueueId, seqno: Seqno, error: Error) -> Option<Step> {
        let index = self.find(queue)?;
        let entry = self.entry(index)?;
        entry.timeline.fail(seqno..=seqno, error);
        if entry.in_ring() {
            // Fences are signalled in order: after those of the jobs in the ring.
            return None;
        }
        entry.timeline.abandon(error);
        Some(Step::Collect(index))
    }

    /// The last word about a queue that was destroyed.
    fn retired(&mut self, queue: QueueId) -> Option<Step> {
        let index = self.find(queue)?;
        // The id is free when the hardware's side is gone too.
        match core::mem::replace(self.places.get_mut(index)?, Place::Reserved) {
            Place::Used(mut entry) => {
                // It was in no slot, so nobody waited for a reset.
                entry.timeline.abandon(ECANCELED);
                Some(Step::Retire(entry))
            }
            Place::Free | Place::Reserved => None,
        }
    }

    /// Takes a queue out of the table, all its jobs over with [`ENODEV`].
    pub(super) fn give_up(&mut self, index: usize) -> Option<KBox<Entry>> {
        let place = core::mem::replace(self.places.get_mut(index)?, Place::Free);
        let Place::Used(mut entry) = place else {
            return None;
        };
        // An error says that it has been removed before.
        let _ = self.sched.remove_queue(entry.id);
        self.sched.slot_released(entry.id);
        entry.queue.note_lost(Health::Innocent, None);
        entry.queue.close();
        entry.timeline.abandon(ENODEV);
        Some(entry)
    }

    /// Takes over the fence value of a queue and lets the first job that is over go. Its fence is
    /// signalled here, under the lock, so that fences of a queue are signalled in order.
    ///
    /// An error means that the value cannot be.
    pub(super) fn collect_one(&mut self, index: usize) -> Result<Option<Over>> {
        let Self { sched, places, .. } = self;
        let Some(Place::Used(entry)) = places.get_mut(index) else {
            return Ok(None);
        };
        if let (false, Some(value)) = (entry.settled, entry.queue.fence_value()) {
            // What is not in the ring cannot be over.
            if value.seqno > entry.written.get() {
                return Err(EIO);
            }
            if entry.timeline.advance(value.seqno)? != 0 {
                trace::fence(&entry.queue, value.seqno);
            }
        }
        let Some(retired) = entry.timeline.pop() else {
            return Ok(None);
        };
        if retired.seqno <= entry.written {
            sched.job_done(entry.id, retired.seqno);
        }
        entry.queue.leave_backlog();
        let Issued { job, fence } = retired.payload;
        fence.signal(retired.result);
        Ok(Some(Over {
            job,
            seqno: retired.seqno,
            result: retired.result,
        }))
    }

    /// Condemns a queue: no more jobs, and what has not begun is cancelled.
    pub(in crate::gpu) fn condemn(&mut self, index: usize, cause: Cause) {
        let Self { sched, places, .. } = self;
        let Some(Place::Used(entry)) = places.get_mut(index) else {
            return;
        };
        if entry.condemned.is_some() {
            return;
        }
        entry.queue.note_lost(cause.health(), cause.fault());
        entry.queue.close();
        entry.condemned = Some(cause);
        sched.cancel(entry.id, ECANCELED);
    }

    /// The hardware has let go of a condemned queue: its jobs are over.
    pub(in crate::gpu) fn settle(&mut self, index: usize) {
        let Self { sched, places, .. } = self;
        let Some(Place::Used(entry)) = places.get_mut(index) else {
            return;
        };
        let Some(cause) = entry.condemned else {
            return;
        };
        if entry.settled {
            return;
        }
        // What was completed until the reset is completed, if the value can be believed.
        if let Some(value) = entry.queue.fence_value() {
            if value.seqno <= entry.written.get() {
                let _ = entry.timeline.advance(value.seqno);
            }
        }
        let first = entry.timeline.completed().next();
        if first <= entry.written {
            entry.timeline.fail(first..=first, cause.error());
        }
        entry.timeline.abandon(cause.error_of_later());
        entry.settled = true;
        entry.slot = None;
        entry.leaving = None;
        entry.saved = false;
        sched.job_done(entry.id, entry.written);
        sched.slot_released(entry.id);
    }

    /// A reset has emptied the slot of a queue that is not to blame. It goes on if the board had
    /// begun none of its jobs; otherwise it is lost.
    pub(in crate::gpu) fn lose_slot(&mut self, index: usize) {
        let Some(entry) = self.entry(index) else {
            return;
        };
        if entry.condemned.is_none() && !entry.untouched() {
            self.condemn(index, Cause::Innocent);
        }
        let Self { sched, places, .. } = self;
        let Some(Place::Used(entry)) = places.get_mut(index) else {
            return;
        };
        if entry.condemned.is_some() {
            self.settle(index);
            return;
        }
        entry.slot = None;
        entry.leaving = None;
        entry.saved = false;
        sched.slot_released(entry.id);
    }
}
