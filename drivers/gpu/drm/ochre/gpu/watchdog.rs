// SPDX-License-Identifier: GPL-2.0

//! The watchdog: finds queues without progress, faults, lost interrupts, and a silent board.
//!
//! It looks while work is outstanding, and only then; why and when it calls something a hang
//! stands in `algo::watchdog`. A queue's clock stands still while its engine works only for others,
//! so that a low priority is no hang. What is found to blame is condemned, one at a time, and
//! handed to [`super::recovery`].

use kernel::sync::{
    atomic::Release,
    Arc, //
};

use crate::{
    algo::{
        recovery::Scope,
        watchdog::{
            BoardTime,
            DeviceVerdict,
            Now,
            QueueSample,
            QueueWatch,
            Verdict, //
        },
    },
    gpu::{
        log::{
            gpu_err,
            gpu_warn, //
        },
        queue::Properties,
        recovery::{
            Cause,
            Ladder,
            Turn, //
        },
        scheduler::Scheduler,
        trace,
        Gpu, //
    },
    hal::{
        Access,
        Activity,
        EngineId,
        Fault, //
    }, //
};

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;
/// How long (CPU) the board's time may stand still with work outstanding before it counts as silent.
pub(super) const SILENCE_NS: u64 = 5_000 * MS;
/// How long an interrupt may be behind the fence that it announces, and what the board tells of a
/// fault behind the state of the queue.
const IRQ_GRACE_NS: u64 = 50 * MS;
/// How often the watchdog looks, in ms: at most, and at least.
pub(super) const LOOK_MIN_MS: u32 = 5;
const LOOK_MAX_MS: u32 = 500;
/// Entries of a fault ring that are taken in one turn.
const FAULTS_MAX: usize = 4096;
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

    /// The board is about to be reset from outside, by the bus: stops it, so that it does not reach
    /// for memory that the bus has taken from it. May sleep. [`Self::on_bus_reset`] follows.
    pub(crate) fn before_bus_reset(self: &Arc<Self>) {
        self.held.store(true, Release);
        // A turn of the worker that did not see it has ended after this.
        self.flush();
        self.power_hold();
        self.hal().halt();
    }

    /// The board was reset from outside, by the bus: it has to be set up again, and what ran on it
    /// is lost. May sleep.
    pub(crate) fn on_bus_reset(self: &Arc<Self>) {
        self.held.store(false, Release);
        self.bus_reset.store(true, Release);
        let scheduler = self.scheduler.lock();
        if !scheduler.is_stopped() {
            self.watch_in(0);
        }
    }

    /// Empties the fault ring. Returns whether a queue was condemned.
    pub(super) fn take_faults(&self) -> bool {
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
            trace::fault(self, &fault);
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

    /// Looks at the board and all queues.
    pub(super) fn look(self: &Arc<Self>, ladder: &mut Ladder, wall: u64) -> Turn {
        let outstanding = self.scheduler.lock().entries().any(|e| !e.is_idle());
        if !outstanding {
            return Turn::Rest;
        }
        // The alarm's interrupt may have been lost, and with it halts the board's clock.
        self.power_kick();
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
            // The board stops the queue first and tells where after that.
            let since = *entry.faulted.get_or_insert(wall);
            if wall.saturating_sub(since) < IRQ_GRACE_NS {
                return Look::Fine(LOOK_MIN_MS);
            }
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
        if let (true, Some(before)) = (starved, before) {
            entry.starved_ns += time.get().saturating_sub(before.get());
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
}
