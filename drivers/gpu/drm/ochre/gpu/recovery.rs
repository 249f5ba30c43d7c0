// SPDX-License-Identifier: GPL-2.0

//! Hangs, faults and resets: the watchdog and the ladder.
//!
//! The watchdog looks while work is outstanding, and only then. It finds queues without progress,
//! faults and fences whose interrupt was lost. Why and when stands in `algo::watchdog`. A queue's clock
//! stands still while its engine works only for others, so that a low priority is no hang.
//!
//! A queue that is to blame has been condemned (`scheduler`); here the hardware is made to let go
//! of it: slot, then engine, then device, each step if the one before was refused
//! (`algo::recovery`). A reset is begun in one turn of the worker and polled in later ones, so
//! nobody waits for the hardware, least of all with a lock. While more than one queue is being
//! reset no action is carried out.
//!
//! Who is not to blame goes on if the board had begun none of its jobs, and is lost as *innocent*
//! otherwise. If even the device does not come back it is given up.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    algo::{
        recovery::{
            Limits,
            Next,
            Recovery,
            Scope, //
        },
        watchdog::{
            BoardTime,
            DeviceVerdict,
            DeviceWatch,
            Now,
            QueueSample,
            QueueWatch,
            Verdict, //
        },
    },
    ext::drm_drv::WedgeRecovery,
    gpu::{
        device::{
            gpu_err,
            gpu_warn, //
        },
        queue::{
            Health,
            Properties, //
        },
        scheduler::Scheduler,
        Gpu, //
    },
    hal::{
        Access,
        Activity,
        EngineId,
        Fault,
        Reset,
        ResetProgress,
        SlotState, //
    }, //
};

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;
/// How long (CPU) the board's time may stand still with work outstanding before it counts as silent.
const SILENCE_NS: u64 = 5_000 * MS;
/// How long an interrupt may be behind the fence that it announces.
const IRQ_GRACE_NS: u64 = 50 * MS;
/// How often the watchdog looks, in ms: at most, and at least.
const LOOK_MIN_MS: u32 = 5;
const LOOK_MAX_MS: u32 = 500;
/// How often a reset is polled, in ms.
const POLL_MS: u32 = 1;
/// Entries of a fault ring that are taken in one turn.
const FAULTS_MAX: usize = 4096;
/// More steps than the ladder has rungs.
const STEPS_MAX: usize = 16;

/// Why a queue is lost.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// No progress.
    Hung,
    /// A fault.
    Faulted(Fault),
    /// What the board wrote about it cannot be, or the board refused it.
    Corrupt,
    /// Its engine or the device was reset for another's sake.
    Innocent,
    /// Its program destroyed it while it worked.
    Destroyed,
}

impl Cause {
    /// What RESET_QUERY says.
    pub(super) fn health(&self) -> Health {
        match self {
            Self::Hung | Self::Corrupt => Health::Hung,
            Self::Faulted(_) => Health::Faulted,
            Self::Innocent => Health::Innocent,
            Self::Destroyed => Health::Ok,
        }
    }

    /// The fault, if it was one.
    pub(super) fn fault(&self) -> Option<Fault> {
        match self {
            Self::Faulted(fault) => Some(*fault),
            Self::Hung | Self::Corrupt | Self::Innocent | Self::Destroyed => None,
        }
    }

    /// What the fence of the job at work carries.
    pub(super) fn error(&self) -> Error {
        match self {
            Self::Hung => ETIME,
            Self::Faulted(_) => EFAULT,
            Self::Corrupt | Self::Innocent => EIO,
            Self::Destroyed => ECANCELED,
        }
    }

    /// What the fences of the jobs behind it carry.
    pub(super) fn error_of_later(&self) -> Error {
        match self {
            Self::Innocent => EIO,
            Self::Hung | Self::Faulted(_) | Self::Corrupt | Self::Destroyed => ECANCELED,
        }
    }

    /// Whether the reset is the queue's doing.
    fn is_guilty(&self) -> bool {
        match self {
            Self::Hung | Self::Faulted(_) | Self::Corrupt => true,
            Self::Innocent | Self::Destroyed => false,
        }
    }
}

/// A reset that is under way.
struct Attempt {
    what: Reset,
    /// Hardware id of the queue for whose sake.
    victim: Option<usize>,
}

/// The ladder of resets. Guarded by a lock outside the scheduler's; only the worker takes it.
pub(super) struct Ladder {
    recovery: Recovery,
    device: DeviceWatch,
    attempt: Option<Attempt>,
}

impl Ladder {
    /// Nothing under way.
    pub(super) fn new() -> Self {
        Self {
            recovery: Recovery::new(Limits::default()),
            device: DeviceWatch::new(SILENCE_NS),
            attempt: None,
        }
    }
}

/// What a turn of the watchdog leads to.
enum Turn {
    /// Look again in so many ms.
    Again(u32),
    /// Nothing is outstanding.
    Rest,
    /// The board does not come back.
    GiveUp,
}

/// What the look at one queue found.
enum Look {
    /// Nothing to look after.
    Idle,
    /// Look again in so many ms.
    Fine(u32),
    /// A fence has no interrupt.
    LostInterrupt,
    /// It is condemned, and the hardware has not let go of it yet.
    Condemned,
}

/// Engines, a bit for each, that worked since the last look.
struct Ran {
    engines: u128,
}

fn engine_bit(engine: EngineId) -> u128 {
    1u128.checked_shl(u32::from(engine.0)).unwrap_or(0)
}

/// A watch for a new queue.
pub(super) fn new_watch(properties: &Properties) -> QueueWatch {
    QueueWatch::new(
        u64::from(properties.timeout_ms).saturating_mul(MS),
        IRQ_GRACE_NS,
    )
}

/// When to look first after a queue of this kind was given work, in ms.
pub(super) fn first_look_ms(properties: &Properties) -> u32 {
    (properties.timeout_ms / 4).clamp(LOOK_MIN_MS, LOOK_MAX_MS)
}

impl Gpu {
    /// The board has faults to tell. From its interrupt handler, which may sleep.
    pub(crate) fn on_fault(self: &Arc<Self>) {
        if self.take_faults() {
            let scheduler = self.scheduler.lock();
            if !scheduler.is_stopped() {
                self.watch_in(0);
            }
        }
    }

    /// Empties the fault ring. Returns whether a queue was condemned.
    fn take_faults(&self) -> bool {
        let mut condemned = false;
        for _ in 0..FAULTS_MAX {
            let Ok(Some(fault)) = self.hal().next_fault() else {
                break;
            };
            let index = usize::from(fault.queue);
            let mut scheduler = self.scheduler.lock();
            let stands = |scheduler: &mut Scheduler| {
                let status = scheduler.entry(index)?.queue.status()?;
                matches!(status.activity, Activity::Faulted { .. }).then_some(())
            };
            // An entry may be older than the queue that has the id now.
            if stands(&mut scheduler).is_none() {
                continue;
            }
            scheduler.condemn(index, Cause::Faulted(fault));
            drop(scheduler);
            gpu_warn!(
                self,
                "queue {index}: fault {} at {:#x} ({:?}), pc {:#x}\n",
                fault.code,
                fault.addr,
                fault.access,
                fault.pc
            );
            condemned = true;
        }
        condemned
    }

    /// One turn of the watchdog. `wall`: the CPU's clock in ns.
    pub(super) fn watch(self: &Arc<Self>, wall: u64) {
        if self.scheduler.lock().is_stopped() {
            return;
        }
        let turn = {
            let mut ladder = self.ladder.lock();
            match ladder.attempt.take() {
                Some(attempt) => self.poll(&mut ladder, attempt, wall),
                None => {
                    self.take_faults();
                    self.look(&mut ladder, wall)
                }
            }
        };
        let again = match turn {
            Turn::Again(ms) => ms,
            Turn::Rest => return,
            Turn::GiveUp => {
                gpu_err!(self, "the device does not come back; given up\n");
                return self.wedge();
            }
        };
        let scheduler = self.scheduler.lock();
        if !scheduler.is_stopped() {
            self.watch_in(again);
        }
    }

    /// Looks at the board and all queues.
    fn look(self: &Arc<Self>, ladder: &mut Ladder, wall: u64) -> Turn {
        let outstanding = self.scheduler.lock().entries().any(|e| !e.is_idle());
        if !outstanding {
            return Turn::Rest;
        }
        let board = self.hal().time().unwrap_or(u64::MAX);
        let time = match ladder.device.sample(Now { board, wall }, outstanding) {
            DeviceVerdict::Alive(time) => time,
            DeviceVerdict::Quiet => return Turn::Again(LOOK_MAX_MS / 5),
            DeviceVerdict::Silent => {
                gpu_err!(self, "the device is silent\n");
                let next = ladder.recovery.begin(Scope::Device, wall);
                return self.climb(ladder, next, None, wall);
            }
        };

        let resets = ladder.device.resets();
        let ran = self.see_who_ran();
        let mut again = LOOK_MAX_MS;
        let mut resting = true;
        for index in 0..usize::from(self.info().queues) {
            match self.look_at(index, time, wall, resets, &ran) {
                Look::Idle => continue,
                Look::Fine(ms) => again = again.min(ms),
                Look::LostInterrupt => {
                    gpu_warn!(self, "queue {index}: the interrupt of a fence was lost\n");
                    self.collect(index);
                    self.kick_unless_stopped();
                }
                // One at a time: its reset may help others that seem to hang.
                Look::Condemned => {
                    let next = ladder.recovery.begin(Scope::Queue, wall);
                    return self.climb(ladder, next, Some(index), wall);
                }
            }
            resting = false;
        }
        if resting {
            return Turn::Rest;
        }
        // Slots that were emptied without an interrupt are found as well.
        self.kick_unless_stopped();
        Turn::Again(again)
    }

    /// Reads the busy time of all queues: which of them, and so which engines, have worked since
    /// the last look.
    fn see_who_ran(&self) -> Ran {
        let mut engines = 0;
        for entry in self.scheduler.lock().entries() {
            let busy_ns = entry.queue.status().map_or(0, |status| status.busy_ns);
            entry.ran = busy_ns != core::mem::replace(&mut entry.busy_seen, busy_ns);
            if entry.ran {
                engines |= engine_bit(entry.queue.engine());
            }
        }
        Ran { engines }
    }

    fn look_at(&self, index: usize, time: BoardTime, wall: u64, resets: u64, ran: &Ran) -> Look {
        let mut scheduler = self.scheduler.lock();
        let Some(entry) = scheduler.entry(index) else {
            return Look::Idle;
        };
        if entry.is_idle() {
            entry.looked_at = None;
            return Look::Idle;
        }
        if entry.condemned.is_some() {
            return Look::Condemned;
        }
        let Some((status, fence)) = entry.queue.status().zip(entry.queue.fence_value()) else {
            return Look::Idle;
        };
        if let Activity::Faulted { code } = status.activity {
            // Its entry in the fault ring was lost.
            let fault = Fault {
                queue: entry.queue.id(),
                code,
                addr: 0,
                pc: 0,
                access: Access::Read,
            };
            scheduler.condemn(index, Cause::Faulted(fault));
            drop(scheduler);
            gpu_warn!(self, "queue {index}: fault {code}\n");
            return Look::Condemned;
        }

        // Time in which its engine worked for others only is not its own.
        let starved = !entry.ran
            && status.activity == Activity::Ready
            && ran.engines & engine_bit(entry.queue.engine()) != 0;
        let before = entry.looked_at.replace(time);
        if starved {
            let since = before.map_or(0, BoardTime::get);
            entry.starved_ns += time.get().saturating_sub(since);
        }
        let timeout = u64::from(entry.queue.properties().timeout_ms).saturating_mul(MS);
        let leaves_late = entry
            .leaving
            .is_some_and(|since| wall.saturating_sub(since) > timeout);
        let sample = QueueSample {
            progress: status.retired,
            outstanding: entry.in_ring() && entry.slot.is_some(),
            blocked: status.activity == Activity::Waiting,
            completed: fence.seqno,
            signaled: entry.signaled(),
        };
        let own_time = time.less(entry.starved_ns);
        match entry.watch.sample(own_time, wall, resets, &sample) {
            Verdict::Hung => {}
            _ if leaves_late => {}
            Verdict::Idle => return Look::Fine(LOOK_MAX_MS),
            Verdict::Fine { look_after } => {
                let ms = u32::try_from(look_after / MS).unwrap_or(u32::MAX);
                return Look::Fine(ms.clamp(LOOK_MIN_MS, LOOK_MAX_MS));
            }
            Verdict::LostInterrupt => return Look::LostInterrupt,
        }
        scheduler.condemn(index, Cause::Hung);
        drop(scheduler);
        gpu_warn!(self, "queue {index}: no progress, will be reset\n");
        Look::Condemned
    }

    /// Begins the reset that the ladder asks for, or the next one if that cannot be begun.
    fn climb(
        self: &Arc<Self>,
        ladder: &mut Ladder,
        mut next: Next,
        victim: Option<usize>,
        wall: u64,
    ) -> Turn {
        for _ in 0..STEPS_MAX {
            let scope = match next {
                Next::Reset(scope) => scope,
                Next::Recovered(_) => return Turn::Again(LOOK_MIN_MS),
                Next::Wedged => return Turn::GiveUp,
            };
            let Some(what) = self.target(scope, victim) else {
                // The hardware has let go of the queue already.
                if let Some(index) = victim {
                    self.scheduler.lock().settle(index);
                    self.collect(index);
                }
                self.kick_unless_stopped();
                next = ladder.recovery.done(true, wall);
                continue;
            };
            gpu_warn!(self, "resetting {what}\n");
            if !matches!(what, Reset::Slot(_)) {
                self.scheduler.lock().pause();
            }
            if what == Reset::Device {
                self.note_device_reset();
            }
            if self.hal().reset(what).is_ok() {
                ladder.attempt = Some(Attempt { what, victim });
                return Turn::Again(POLL_MS);
            }
            next = ladder.recovery.done(false, wall);
        }
        Turn::GiveUp
    }

    /// What to reset at `scope` for the sake of a queue. [`None`]: no slot holds it.
    fn target(&self, scope: Scope, victim: Option<usize>) -> Option<Reset> {
        if scope == Scope::Device {
            return Some(Reset::Device);
        }
        let mut scheduler = self.scheduler.lock();
        let entry = scheduler.entry(victim?)?;
        let (id, engine, slot) = (entry.queue.id(), entry.queue.engine(), entry.slot);
        drop(scheduler);
        if scope == Scope::Engine {
            return Some(Reset::Engine(engine));
        }
        let slot = slot?;
        match self.hal().slot(slot) {
            Ok(SlotState::Empty) => None,
            Ok(SlotState::Holds { queue }) if queue != id => None,
            Ok(SlotState::Holds { .. } | SlotState::Unbinding) | Err(_) => Some(Reset::Slot(slot)),
        }
    }

    /// Carries a reset on.
    fn poll(self: &Arc<Self>, ladder: &mut Ladder, attempt: Attempt, wall: u64) -> Turn {
        match self.hal().poll_reset(attempt.what) {
            Ok(ResetProgress::Pending) => {
                ladder.attempt = Some(attempt);
                Turn::Again(POLL_MS)
            }
            Ok(ResetProgress::Done) => {
                ladder.device.note_reset();
                self.after(&attempt);
                let next = ladder.recovery.done(true, wall);
                self.climb(ladder, next, None, wall)
            }
            Ok(ResetProgress::Refused) | Err(_) => {
                gpu_warn!(self, "resetting {} was refused\n", attempt.what);
                let next = ladder.recovery.done(false, wall);
                self.climb(ladder, next, attempt.victim, wall)
            }
        }
    }

    /// A reset is done: who was in the slots that it emptied is lost or goes on.
    fn after(self: &Arc<Self>, attempt: &Attempt) {
        for index in 0..usize::from(self.info().queues) {
            let mut scheduler = self.scheduler.lock();
            let Some(entry) = scheduler.entry(index) else {
                continue;
            };
            let emptied = match attempt.what {
                Reset::Slot(_) => Some(index) == attempt.victim,
                Reset::Engine(engine) => entry.slot.is_some() && entry.queue.engine() == engine,
                Reset::Device => entry.slot.is_some(),
            };
            if !emptied {
                continue;
            }
            if Some(index) == attempt.victim && entry.condemned.is_some_and(|c| c.is_guilty()) {
                entry.queue.note_reset();
            }
            scheduler.lose_slot(index);
            drop(scheduler);
            self.collect(index);
        }
        self.scheduler.lock().resume();
        self.kick_unless_stopped();
        if attempt.what == Reset::Device {
            self.tell_user_space(WedgeRecovery::None);
        }
    }

    /// Has the worker look for actions.
    fn kick_unless_stopped(self: &Arc<Self>) {
        let scheduler = self.scheduler.lock();
        if !scheduler.is_stopped() {
            self.kick();
        }
    }
}
