// SPDX-License-Identifier: GPL-2.0

//! The scheduler: which queue sits in which hardware slot, and which job is started next.
//!
//! # The board's share and ours
//!
//! A board has engines, an engine a few hardware slots, and a slot holds one queue. Among the
//! queues in its slots an engine divides its time by itself, by priority and quantum. There can be
//! any number of queues, so what is left to do is to give the slots to the queues that need one,
//! and to write jobs into rings once their dependencies have signaled and the ring has room.
//!
//! # How it is used
//!
//! It is a state machine without a lock, a clock or a device. Inputs (`submit`,
//! `dependency_signaled`, `job_done`, `slot_released`, …) only change the state. After any of
//! them the caller takes [`Sched::next_action`] until there is none, and carries each out. Inputs
//! about a queue that is gone are ignored, since callbacks may be late. Only [`Sched::reserve`] and
//! [`Sched::add_queue`] allocate; whatever happens to a job later has its room already.
//!
//! # Policy
//!
//! Jobs of one queue start in order. A queue wants a seat if its first job is ready, or if it was
//! unseated before its started jobs were done. Among waiting queues the higher priority goes
//! first, at equal priority who has waited longest. If no slot of the class is free, one queue per
//! waiting queue has to go:
//!
//! 1. one that has nothing to do, of these the one with the lowest priority, longest inactive;
//! 2. else one that is busy at a lower priority, the lowest, seated longest;
//! 3. else one that is busy at the same priority and has had its seat for a whole time slice
//!    ([`Sched::timeslice`]), the one seated longest.
//!
//! By the third rule nobody starves among equals, and a queue that waits on a semaphore cannot keep
//! out, for ever, the one that would signal it. A lower priority can starve, as it is meant to.

use kernel::{
    alloc,
    error::Error,
    prelude::*, //
};

use super::timeline::Seqno;

mod action;
mod lists;
mod policy;
mod queue;
mod slots;

pub(crate) use action::{
    Action,
    QueueId,
    Refusal, //
};
pub(crate) use queue::{
    Health,
    Places,
    Priority,
    QueueSpec,
    QueueState,
    Seat, //
};
pub(crate) use slots::{
    Class,
    EngineSpec,
    SlotId, //
};

use lists::{
    Index,
    Lists, //
};
use queue::{
    Queue,
    PRIORITIES, //
};
use slots::Slots;

/// List of the queues that are on their way out.
const DRAINING: usize = 0;
/// First of the lists of queues that can start a job, by priority.
const STARTING: usize = DRAINING + 1;
/// First of the lists of queues that wait for a seat, by class and priority.
const WAITING: usize = STARTING + PRIORITIES;

fn starting(priority: Priority) -> usize {
    STARTING + usize::from(priority.level())
}

fn waiting(class: Class, priority: Priority) -> usize {
    WAITING + class.index() * PRIORITIES + usize::from(priority.level())
}

/// A place in the table: generations tell the queues apart that were in it.
struct Entry<J> {
    generation: u32,
    queue: Option<Queue<J>>,
}

/// The scheduler of a board; `J` is what the caller needs to run a job. Guarded by the scheduler's
/// lock.
pub(crate) struct Sched<J> {
    entries: KVec<Entry<J>>,
    slots: Slots,
    lists: Lists,
    /// Time slices so far.
    slice: u64,
    /// Counts activities, to tell who was active last.
    activity: u64,
}

impl<J> Sched<J> {
    /// Makes a scheduler for a board with these engines.
    pub(crate) fn new(engines: &[EngineSpec]) -> Result<Self, alloc::AllocError> {
        let slots = Slots::new(engines)?;
        let lists = WAITING + slots.classes().count() * PRIORITIES;
        Ok(Self {
            entries: KVec::new(),
            slots,
            lists: Lists::new(lists)?,
            slice: 0,
            activity: 0,
        })
    }

    fn index(&self, id: QueueId) -> Option<Index> {
        let index = usize::try_from(id.index).ok()?;
        let entry = self.entries.get(index)?;
        (entry.generation == id.generation && entry.queue.is_some()).then_some(index)
    }

    fn id(&self, index: Index) -> QueueId {
        QueueId {
            // The table is never longer: `add_queue` checks it.
            index: u32::try_from(index).unwrap_or(u32::MAX),
            generation: self.entries.get(index).map_or(0, |e| e.generation),
        }
    }

    fn queue(&self, index: Index) -> Option<&Queue<J>> {
        self.entries.get(index)?.queue.as_ref()
    }

    fn queue_mut(&mut self, index: Index) -> Option<&mut Queue<J>> {
        self.entries.get_mut(index)?.queue.as_mut()
    }

    fn is_busy(&self, index: Index) -> bool {
        self.queue(index).is_some_and(Queue::is_busy)
    }

    /// Puts a queue into the list where its state belongs.
    fn refresh(&mut self, index: Index) {
        let list = self.queue(index).and_then(|q| match (q.health, q.seat) {
            (Health::Good, Seat::Away) if q.is_busy() => {
                Some(waiting(q.spec.class, q.spec.priority))
            }
            (Health::Good, Seat::Resident(_)) if q.can_start() => Some(starting(q.spec.priority)),
            (Health::Good, _) => None,
            (Health::Failed(_) | Health::Removed, Seat::Resident(_)) => Some(DRAINING),
            (Health::Failed(_), _) => q.has_jobs().then_some(DRAINING),
            (Health::Removed, Seat::Away) => Some(DRAINING),
            (Health::Removed, Seat::Leaving(_)) => q.has_jobs().then_some(DRAINING),
        });
        self.lists.put(index, list);
    }

    /// Changes a queue and puts it into the list where it belongs then.
    fn change<R>(&mut self, index: Index, change: impl FnOnce(&mut Queue<J>) -> R) -> Option<R> {
        let result = self.queue_mut(index).map(change);
        self.refresh(index);
        result
    }

    fn stamp(&mut self) -> u64 {
        self.activity += 1;
        self.activity
    }

    /// Adds a queue: `EINVAL` if no engine of the board is of its class, `ENOMEM`. Allocates.
    pub(crate) fn add_queue(&mut self, spec: QueueSpec) -> Result<QueueId> {
        if self.slots.of(spec.class).next().is_none() {
            return Err(EINVAL);
        }
        let index = match self.entries.iter().position(|e| e.queue.is_none()) {
            Some(index) => index,
            None => {
                let index = self.entries.len();
                u32::try_from(index).map_err(|_| ENOMEM)?;
                self.entries.reserve(1, GFP_KERNEL)?;
                self.lists.extend()?;
                let entry = Entry {
                    generation: 0,
                    queue: None,
                };
                self.entries.push(entry, GFP_KERNEL)?;
                index
            }
        };
        if let Some(entry) = self.entries.get_mut(index) {
            entry.queue = Some(Queue::new(spec));
        }
        Ok(self.id(index))
    }

    /// Makes sure that a queue can take one more job, whatever else happens. Allocates.
    pub(crate) fn reserve(&mut self, queue: QueueId) -> Result<Places, Refusal> {
        let index = self.index(queue).ok_or(Refusal::NoQueue)?;
        let q = self.queue_mut(index).ok_or(Refusal::NoQueue)?;
        match q.health {
            Health::Good => Ok(q.reserve()?),
            Health::Failed(e) => Err(Refusal::Failed(e)),
            Health::Removed => Err(Refusal::NoQueue),
        }
    }

    /// Gives up what was reserved for a queue.
    pub(crate) fn release(&mut self, queue: QueueId, places: Places) {
        if let Some(q) = self.index(queue).and_then(|index| self.queue_mut(index)) {
            q.release(places);
        }
    }

    /// Gives a job to the queue for which the places were reserved, to be started when `blockers`
    /// dependencies have signaled and its ring has `credits` left.
    ///
    /// Seqnos ascend in a queue. Cannot fail: of a queue that was cancelled meanwhile, the job
    /// comes back in [`Action::Cancel`]; of one that was retired, it is dropped. A caller that has
    /// to do something between this and the start counts that as one dependency more.
    pub(crate) fn submit(
        &mut self,
        places: Places,
        queue: QueueId,
        seqno: Seqno,
        credits: u32,
        blockers: u32,
        job: J,
    ) {
        if let Some(index) = self.index(queue) {
            self.change(index, |q| q.push(places, seqno, credits, blockers, job));
        }
    }

    /// One dependency of a job has signaled, well or badly.
    pub(crate) fn dependency_signaled(&mut self, queue: QueueId, seqno: Seqno) {
        if let Some(index) = self.index(queue) {
            self.change(index, |q| q.unblock(seqno));
        }
    }

    /// The board has finished all jobs of a queue up to `upto`.
    pub(crate) fn job_done(&mut self, queue: QueueId, upto: Seqno) {
        if let Some(index) = self.index(queue) {
            let active = self.stamp();
            self.change(index, |q| {
                q.finish(upto);
                q.active = active;
            });
        }
    }

    /// The board has let go of the slot of a queue, because of [`Action::Unbind`] or of a reset.
    pub(crate) fn slot_released(&mut self, queue: QueueId) {
        let Some(index) = self.index(queue) else {
            return;
        };
        match self.queue(index).map(|q| q.seat) {
            Some(Seat::Resident(slot) | Seat::Leaving(slot)) => self.slots.set(slot, None),
            Some(Seat::Away) | None => return,
        }
        self.change(index, |q| q.seat = Seat::Away);
    }

    /// Stops a queue: jobs that were not started come back with `error`, those that were started
    /// are no longer waited for, and further ones are refused. A second error changes nothing.
    pub(crate) fn cancel(&mut self, queue: QueueId, error: Error) {
        if let Some(index) = self.index(queue) {
            self.change(index, |q| {
                if q.health == Health::Good {
                    q.health = Health::Failed(error);
                    q.forget();
                }
            });
        }
    }

    /// Removes a queue: as [`Sched::cancel`], and [`Action::Retire`] is the last of it. `ENOENT`
    /// if that was done before.
    pub(crate) fn remove_queue(&mut self, queue: QueueId) -> Result {
        let index = self.index(queue).ok_or(ENOENT)?;
        self.change(index, |q| {
            q.forget();
            match core::mem::replace(&mut q.health, Health::Removed) {
                Health::Good | Health::Failed(_) => Ok(()),
                Health::Removed => Err(ENOENT),
            }
        })
        .unwrap_or(Err(ENOENT))
    }

    /// A time slice is over: seats may change hands among equals.
    pub(crate) fn timeslice(&mut self) {
        self.slice += 1;
    }

    /// Returns whether somebody waits for the time slice of a queue of the same priority to be
    /// over, so that the timer has to run.
    pub(crate) fn needs_timeslice(&self) -> bool {
        self.slots.classes().any(|class| {
            self.slots.of(class).any(|slot| {
                slot.occupant
                    .and_then(|index| self.queue(index))
                    .is_some_and(|q| {
                        q.is_busy() && self.lists.len(waiting(class, q.spec.priority)) > 0
                    })
            })
        })
    }

    /// Returns a look at a queue.
    pub(crate) fn state(&self, queue: QueueId) -> Option<QueueState> {
        Some(self.queue(self.index(queue)?)?.state())
    }

    /// Returns the next thing to do; to be called until there is none. Allocates nothing.
    pub(crate) fn next_action(&mut self) -> Option<Action<J>> {
        if let Some(action) = self.drain() {
            return Some(action);
        }
        if let Some(action) = self.start() {
            return Some(action);
        }
        self.slots.classes().find_map(|class| self.seat(class))
    }

    /// The next step of a queue that is on its way out.
    fn drain(&mut self) -> Option<Action<J>> {
        let index = self.lists.first(DRAINING)?;
        let queue = self.id(index);
        let q = self.queue_mut(index)?;
        if let Seat::Resident(slot) = q.seat {
            self.change(index, |q| q.seat = Seat::Leaving(slot));
            return Some(Action::Unbind { queue, slot });
        }
        let error = match q.health {
            Health::Failed(e) => e,
            Health::Good | Health::Removed => ECANCELED,
        };
        if let Some((seqno, job)) = self.change(index, Queue::withdraw).flatten() {
            return Some(Action::Cancel {
                queue,
                seqno,
                job,
                error,
            });
        }
        // Removed, away, and without a job: the place is free for another.
        let entry = self.entries.get_mut(index)?;
        entry.queue = None;
        entry.generation = entry.generation.wrapping_add(1);
        self.refresh(index);
        Some(Action::Retire { queue })
    }

    /// Starts a job of the next queue that can, in turn.
    fn start(&mut self) -> Option<Action<J>> {
        let index = Priority::descending().find_map(|p| self.lists.first(starting(p)))?;
        let queue = self.id(index);
        let active = self.stamp();
        self.lists.rotate(index);
        let (seqno, job) = self
            .change(index, |q| {
                q.active = active;
                q.start()
            })
            .flatten()?;
        Some(Action::Run { queue, seqno, job })
    }
}

#[kunit_tests(ochre_algo_sched)]
mod tests {
    use super::*;
    use crate::algo::prng::{
        for_each_seed,
        Prng, //
    };

    /// Two compute engines of two slots and a copy engine of one.
    const SLOTS: [(Class, SlotId); 5] = [
        at(0, 0, 0),
        at(0, 0, 1),
        at(0, 1, 0),
        at(0, 1, 1),
        at(1, 2, 0),
    ];

    const fn at(class: u8, engine: u8, slot: u8) -> (Class, SlotId) {
        (Class::new(class), SlotId { engine, slot })
    }

    fn board() -> [EngineSpec; 3] {
        [(0, 2), (0, 2), (1, 1)].map(|(c, slots)| EngineSpec {
            class: Class::new(c),
            slots,
        })
    }

    fn spec(c: u8, priority: Priority) -> QueueSpec {
        QueueSpec {
            class: Class::new(c),
            priority,
            credits: 10,
        }
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Fate {
        Queued,
        Running,
        Done,
        Cancelled,
    }

    struct SimJob {
        blockers: u32,
        credits: u32,
        fate: Fate,
    }

    /// What the outside knows of a queue.
    struct SimQueue {
        id: QueueId,
        spec: QueueSpec,
        jobs: KVec<SimJob>,
        seat: Option<SlotId>,
        leaving: bool,
        failed: Option<Error>,
        removed: bool,
        retired: bool,
    }

    impl SimQueue {
        fn first(&self, fate: Fate) -> Option<usize> {
            self.jobs.iter().position(|j| j.fate == fate)
        }

        fn used(&self) -> u32 {
            let running = self.jobs.iter().filter(|j| j.fate == Fate::Running);
            running.map(|j| j.credits).sum()
        }

        fn is_good(&self) -> bool {
            self.failed.is_none() && !self.removed
        }

        fn is_ready(&self) -> bool {
            self.first(Fate::Queued)
                .is_some_and(|n| self.jobs[n].blockers == 0)
        }

        fn is_busy(&self) -> bool {
            self.is_ready() || self.first(Fate::Running).is_some()
        }

        fn waits(&self) -> bool {
            self.seat.is_none() && self.is_good() && self.is_busy()
        }

        fn can_start(&self) -> bool {
            self.first(Fate::Queued).is_some_and(|n| {
                let job = &self.jobs[n];
                job.blockers == 0 && self.used() + job.credits <= self.spec.credits
            })
        }
    }

    /// A board that holds queues in slots and finishes jobs when it is told to.
    struct Sim {
        sched: Sched<usize>,
        queues: KVec<SimQueue>,
        /// Queues in the order of `Action::Unbind`.
        unbound: KVec<usize>,
    }

    /// Payload of a job: names it among all.
    fn payload(queue: usize, job: usize) -> usize {
        queue * 1_000_000 + job
    }

    impl Sim {
        fn new() -> Result<Self> {
            Ok(Self {
                sched: Sched::new(&board())?,
                queues: KVec::new(),
                unbound: KVec::new(),
            })
        }

        fn add(&mut self, spec: QueueSpec) -> Result<usize> {
            let queue = SimQueue {
                id: self.sched.add_queue(spec)?,
                spec,
                jobs: KVec::new(),
                seat: None,
                leaving: false,
                failed: None,
                removed: false,
                retired: false,
            };
            self.queues.push(queue, GFP_KERNEL)?;
            Ok(self.queues.len() - 1)
        }

        fn submit(&mut self, n: usize, credits: u32, blockers: u32) -> Result<bool> {
            let q = &mut self.queues[n];
            let seqno = Seqno::new(q.jobs.len() as u64 + 1);
            let job = payload(n, q.jobs.len());
            let places = self.sched.reserve(q.id);
            let taken = places.is_ok();
            if let Ok(places) = places {
                self.sched
                    .submit(places, q.id, seqno, credits, blockers, job);
                let job = SimJob {
                    blockers,
                    credits,
                    fate: Fate::Queued,
                };
                q.jobs.push(job, GFP_KERNEL)?;
            }
            Ok(taken == (q.is_good() && !q.retired))
        }

        fn waiting(&self, class: Class) -> usize {
            let waits = |q: &&SimQueue| q.spec.class == class && q.waits();
            self.queues.iter().filter(waits).count()
        }

        fn leaving(&self, class: Class) -> usize {
            let leaves = |q: &&SimQueue| q.spec.class == class && q.leaving;
            self.queues.iter().filter(leaves).count()
        }

        fn occupant(&self, slot: SlotId) -> Option<&SimQueue> {
            self.queues.iter().find(|q| q.seat == Some(slot))
        }

        /// Carries an action out, if it may be.
        fn execute(&mut self, action: Action<usize>) -> bool {
            let (Action::Bind { queue, .. }
            | Action::Unbind { queue, .. }
            | Action::Run { queue, .. }
            | Action::Cancel { queue, .. }
            | Action::Retire { queue }) = action;
            let Some(n) = self.queues.iter().position(|q| q.id == queue && !q.retired) else {
                return false;
            };
            if let Action::Unbind { .. } = action {
                // Nobody has to go for whom no one waits.
                let class = self.queues[n].spec.class;
                if self.queues[n].is_good() && self.waiting(class) <= self.leaving(class) {
                    return false;
                }
            }
            if let Action::Bind { slot, .. } = action {
                let c = self.queues[n].spec.class;
                if self.occupant(slot).is_some() || !SLOTS.contains(&(c, slot)) {
                    return false;
                }
            }
            let q = &mut self.queues[n];
            let next = q.first(Fate::Queued);
            match action {
                Action::Bind { slot, .. } => q.seat.replace(slot).is_none() && q.is_good(),
                Action::Unbind { slot, .. } => {
                    let noted = self.unbound.push(n, GFP_KERNEL).is_ok();
                    noted && !core::mem::replace(&mut q.leaving, true) && q.seat == Some(slot)
                }
                Action::Run { seqno, job, .. } => {
                    let startable = q.can_start() && q.seat.is_some() && !q.leaving;
                    let Some(next) = next.filter(|_| startable && q.is_good()) else {
                        return false;
                    };
                    q.jobs[next].fate = Fate::Running;
                    seqno.get() == next as u64 + 1 && job == payload(n, next)
                }
                Action::Cancel { error, job, .. } => {
                    let Some(next) = next.filter(|_| !q.is_good()) else {
                        return false;
                    };
                    q.jobs[next].fate = Fate::Cancelled;
                    let expected = q.failed.filter(|_| !q.removed).unwrap_or(ECANCELED);
                    job == payload(n, next) && error == expected
                }
                Action::Retire { .. } => {
                    q.retired = true;
                    q.removed && q.seat.is_none() && next.is_none()
                }
            }
        }

        /// Takes all actions, and looks whether anything was left undone.
        fn settle(&mut self) -> bool {
            let mut actions = 0;
            while let Some(action) = self.sched.next_action() {
                actions += 1;
                if !self.execute(action) || actions > 10_000 {
                    return false;
                }
            }
            let startable =
                |q: &SimQueue| q.seat.is_some() && !q.leaving && q.is_good() && q.can_start();
            !self.queues.iter().any(startable) && (0..2).all(|c| self.is_fully_used(c))
        }

        /// Whether nobody waits while a slot of the class is free or its holder has nothing to do
        /// or less to say.
        fn is_fully_used(&self, c: u8) -> bool {
            let of_class = || self.queues.iter().filter(|q| q.spec.class == Class::new(c));
            let leaving = self.leaving(Class::new(c));
            if self.waiting(Class::new(c)) <= leaving {
                return true;
            }
            let slots = SLOTS.iter().filter(|s| s.0 == Class::new(c)).count();
            let seated = || of_class().filter(|q| q.seat.is_some());
            // With none on its way out, the first of those that wait has no claim on any seat.
            let first = of_class().filter(|q| q.waits());
            let first = first.map(|q| q.spec.priority).max();
            seated().count() == slots
                && seated().filter(|q| !q.leaving).all(|q| q.is_busy())
                && (leaving > 0 || seated().all(|q| Some(q.spec.priority) >= first))
        }

        fn release(&mut self, n: usize) {
            let q = &mut self.queues[n];
            q.seat = None;
            q.leaving = false;
            self.sched.slot_released(q.id);
        }

        /// The board finishes the first `count` running jobs of a queue.
        fn finish(&mut self, n: usize, count: usize) {
            let q = &mut self.queues[n];
            let mut last = None;
            for _ in 0..count {
                if let Some(job) = q.first(Fate::Running) {
                    q.jobs[job].fate = Fate::Done;
                    last = Some(job);
                }
            }
            if let Some(job) = last {
                self.sched.job_done(q.id, Seqno::new(job as u64 + 1));
            }
        }

        fn signal(&mut self, n: usize, job: usize) {
            let q = &mut self.queues[n];
            if let Some(j) = q.jobs.get_mut(job).filter(|j| j.blockers > 0) {
                j.blockers -= 1;
                self.sched
                    .dependency_signaled(q.id, Seqno::new(job as u64 + 1));
            }
        }

        fn stop(&mut self, n: usize, error: Option<Error>) {
            let q = &mut self.queues[n];
            for job in q.jobs.iter_mut().filter(|j| j.fate == Fate::Running) {
                job.fate = Fate::Done;
            }
            match error {
                Some(error) => {
                    q.failed.get_or_insert(error);
                    self.sched.cancel(q.id, error);
                }
                None => {
                    q.removed = true;
                    // It may have been removed before.
                    let _ = self.sched.remove_queue(q.id);
                }
            }
        }

        fn step(&mut self, rng: &mut Prng) -> Result<bool> {
            let n = rng.index(self.queues.len());
            match rng.below(19) {
                0..=6 => {
                    let blockers = if rng.chance(70) { 0 } else { 1 + rng.below(2) };
                    let credits = 1 + rng.below(10);
                    return self.submit(n, credits as u32, blockers as u32);
                }
                7..=10 => {
                    let job = self.queues[n].first(Fate::Queued).unwrap_or(0);
                    self.signal(n, job + rng.index(3));
                }
                11..=14 if self.queues[n].seat.is_some() => self.finish(n, 1 + rng.index(3)),
                15 | 16 if self.queues[n].leaving => self.release(n),
                17 => self.sched.timeslice(),
                18 if rng.chance(10) => self.stop(n, Some(EIO)),
                18 if rng.chance(10) && !self.queues[n].retired => {
                    self.stop(n, None);
                    let c = rng.below(2) as u8;
                    let priority = Priority::from_level(rng.below(4) as u8).unwrap_or_default();
                    self.add(spec(c, priority))?;
                }
                _ => (),
            }
            Ok(true)
        }
    }

    #[test]
    fn random_use_of_a_simulated_board_keeps_every_promise() -> Result {
        for_each_seed("sched", |rng| {
            let mut sim = Sim::new()?;
            for _ in 0..12 {
                let priority = Priority::from_level(rng.below(4) as u8).unwrap_or_default();
                sim.add(spec(rng.below(2) as u8, priority))?;
            }
            for _ in 0..3000 {
                assert!(sim.step(rng)?);
                assert!(sim.settle());
            }
            // With all dependencies signaled and all slots released, everything comes to an end.
            let mut rounds = 0;
            let open = |q: &SimQueue| {
                let end = |j: &SimJob| matches!(j.fate, Fate::Done | Fate::Cancelled);
                !q.jobs.iter().all(end) || q.removed != q.retired
            };
            while sim.queues.iter().any(open) {
                rounds += 1;
                assert!(rounds < 3000);
                for n in 0..sim.queues.len() {
                    for job in 0..sim.queues[n].jobs.len() {
                        sim.signal(n, job);
                    }
                    if sim.queues[n].seat.is_some() {
                        sim.finish(n, 100);
                    }
                    if sim.queues[n].leaving {
                        sim.release(n);
                    }
                }
                sim.sched.timeslice();
                assert!(sim.settle());
            }
            Ok(())
        })
    }

    #[test]
    fn equals_share_the_slots_evenly() -> Result {
        let mut sim = Sim::new()?;
        for n in 0..11 {
            sim.add(spec(0, Priority::Normal))?;
            for _ in 0..2000 {
                assert!(sim.submit(n, 5, 0)?);
            }
        }
        for _ in 0..1000 {
            assert!(sim.settle());
            assert!(sim.sched.needs_timeslice());
            // The board lets go in the order in which it was asked.
            while let Ok(n) = sim.unbound.remove(0) {
                sim.release(n);
            }
            for n in 0..sim.queues.len() {
                if sim.queues[n].seat.is_some() {
                    sim.finish(n, 1);
                }
            }
            sim.sched.timeslice();
        }
        let done = |q: &SimQueue| q.jobs.iter().filter(|j| j.fate == Fate::Done).count();
        let most = sim.queues.iter().map(done).max();
        let least = sim.queues.iter().map(done).min();
        // 4 slots, 1000 slices, a third of them lost to changing: about 240 each.
        assert!(least > Some(150));
        assert!(most.zip(least).is_some_and(|(m, l)| m - l <= 10));
        Ok(())
    }

    #[test]
    fn queue_that_all_seated_queues_wait_for_gets_a_seat() -> Result {
        let mut sim = Sim::new()?;
        // Four queues sit and wait on semaphores that the fifth would signal.
        for n in 0..5 {
            sim.add(spec(0, Priority::Normal))?;
            assert!(sim.submit(n, 1, 0)?);
            assert!(sim.settle());
        }
        assert!(sim.queues[4].seat.is_none());
        for _ in 0..policy::SAFE_SLICES {
            assert!(sim.sched.needs_timeslice());
            sim.sched.timeslice();
            assert!(sim.settle());
        }
        assert!(sim.queues[0].leaving);
        sim.release(0);
        assert!(sim.settle());
        assert!(sim.queues[4].first(Fate::Running).is_some());
        // The one that had to go comes back for what it had begun, in the place of the next.
        assert!(sim.queues[1].leaving);
        sim.release(1);
        assert!(sim.settle());
        assert!(sim.queues[0].seat.is_some());
        Ok(())
    }

    #[test]
    fn higher_priority_takes_the_seat_of_the_lowest() -> Result {
        let mut sim = Sim::new()?;
        let levels = [
            Priority::High,
            Priority::Normal,
            Priority::Low,
            Priority::Normal,
        ];
        for (n, priority) in levels.into_iter().enumerate() {
            sim.add(spec(0, priority))?;
            assert!(sim.submit(n, 1, 0)?);
        }
        assert!(sim.settle());
        let urgent = sim.add(spec(0, Priority::Realtime))?;
        assert!(sim.submit(urgent, 1, 0)?);
        assert!(sim.settle());
        assert!(sim.queues[2].leaving);
        assert!(!sim.sched.needs_timeslice());
        Ok(())
    }

    #[test]
    fn idle_queue_keeps_its_seat_until_another_needs_it() -> Result {
        let mut sim = Sim::new()?;
        let first = sim.add(spec(1, Priority::Realtime))?;
        assert!(sim.submit(first, 1, 0)?);
        assert!(sim.settle());
        sim.finish(first, 1);
        assert!(sim.settle());
        assert!(sim.queues[first].seat.is_some() && !sim.queues[first].leaving);
        let second = sim.add(spec(1, Priority::Low))?;
        assert!(sim.submit(second, 1, 0)?);
        assert!(sim.settle());
        assert!(sim.queues[first].leaving);
        Ok(())
    }

    #[test]
    fn jobs_are_spread_over_the_engines_of_a_class() -> Result {
        let mut sim = Sim::new()?;
        for n in 0..2 {
            sim.add(spec(0, Priority::Normal))?;
            assert!(sim.submit(n, 1, 0)?);
            assert!(sim.settle());
        }
        let engine = |n: usize| sim.queues[n].seat.map(|s| s.engine);
        assert!(engine(0).is_some() && engine(0) != engine(1));
        Ok(())
    }

    #[test]
    fn queue_that_is_gone_or_cancelled_takes_no_job() -> Result {
        let mut sched = Sched::new(&board())?;
        let q = sched.add_queue(spec(0, Priority::Normal))?;
        assert!(sched.add_queue(spec(3, Priority::Normal)) == Err(EINVAL));
        let places = sched.reserve(q)?;
        sched.cancel(q, EIO);
        assert!(sched.reserve(q).err() == Some(Refusal::Failed(EIO)));
        // What was reserved before is taken, and comes back.
        sched.submit(places, q, Seqno::new(1), 1, 0, 7);
        let cancel = Action::Cancel {
            queue: q,
            seqno: Seqno::new(1),
            job: 7,
            error: EIO,
        };
        assert!(sched.next_action() == Some(cancel));
        assert!(sched.remove_queue(q) == Ok(()));
        assert!(sched.remove_queue(q) == Err(ENOENT));
        assert!(sched.next_action() == Some(Action::Retire { queue: q }));
        assert!(sched.next_action().is_none());
        assert!(sched.state(q).is_none());
        // Another queue in its place does not answer to its name.
        let other = sched.add_queue(spec(0, Priority::Normal))?;
        assert!(other != q);
        assert!(sched.reserve(q).err() == Some(Refusal::NoQueue));
        Ok(())
    }

    #[test]
    fn job_that_costs_more_than_there_is_runs_alone() -> Result {
        let mut sched = Sched::new(&board())?;
        let q = sched.add_queue(spec(0, Priority::Normal))?;
        for (seqno, credits) in [(1, 1), (2, 1000), (3, 1)] {
            let places = sched.reserve(q)?;
            sched.submit(places, q, Seqno::new(seqno), credits, 0, ());
        }
        let started = |sched: &mut Sched<()>| {
            let actions = core::iter::from_fn(|| sched.next_action());
            actions.filter(|a| matches!(a, Action::Run { .. })).count()
        };
        for seqno in 1..=3 {
            assert!(started(&mut sched) == 1);
            sched.job_done(q, Seqno::new(seqno));
        }
        Ok(())
    }
}
