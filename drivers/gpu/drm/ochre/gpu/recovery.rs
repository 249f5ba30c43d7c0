// SPDX-License-Identifier: GPL-2.0

//! The ladder of resets: makes the hardware let go of what is to blame.
//!
//! A queue that is to blame has been condemned ([`super::watchdog`], [`super::scheduler`]). Slot, then
//! engine, then device is reset, each if the one before was refused (`algo::recovery`). A reset is
//! begun in one turn of the worker and polled in later ones, so nobody waits for the hardware,
//! least of all with a lock. While more than one queue is being reset no action is carried out.
//!
//! Who is not to blame goes on if the board had begun none of its jobs, and is lost as *innocent*
//! otherwise. If even the device does not come back it is given up.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Full, //
        },
        Arc, //
    }, //
};

use crate::{
    algo::{
        recovery::{
            Limits,
            Next,
            Recovery,
            Scope, //
        },
        watchdog::DeviceWatch, //
    },
    ext::drm_drv::WedgeRecovery,
    gpu::{
        log::{
            gpu_err,
            gpu_warn, //
        },
        queue::Health,
        trace::{
            self,
            Phase, //
        },
        watchdog::{
            LOOK_MIN_MS,
            SILENCE_NS, //
        },
        Gpu, //
    },
    hal::{
        Fault,
        Reset,
        ResetProgress,
        SlotState, //
    }, //
};

/// How often a reset is polled, in ms.
const POLL_MS: u32 = 1;
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
    pub(super) recovery: Recovery,
    pub(super) device: DeviceWatch,
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
pub(super) enum Turn {
    /// Look again in so many ms.
    Again(u32),
    /// Nothing is outstanding.
    Rest,
    /// The board does not come back.
    GiveUp,
}

impl Gpu {
    /// One turn of the watchdog. `wall`: the CPU's clock in ns.
    pub(super) fn watch(self: &Arc<Self>, wall: u64) {
        if self.held.load(Acquire) || self.scheduler.lock().is_stopped() {
            return;
        }
        let turn = {
            let mut ladder = self.ladder.lock();
            let attempt = ladder.attempt.take();
            if self.bus_reset.xchg(false, Full) {
                gpu_warn!(self, "the bus has reset the device\n");
                let next = ladder.recovery.begin_unblamed();
                self.climb(&mut ladder, next, None, wall)
            } else {
                match attempt {
                    Some(attempt) => self.poll(&mut ladder, attempt, wall),
                    None => {
                        self.take_faults();
                        self.look(&mut ladder, wall)
                    }
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

    /// Begins the reset that the ladder asks for, or the next one if that cannot be begun.
    pub(super) fn climb(
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
                // Who has been saved by now is not lost.
                self.look_after_leaving();
            }
            if what == Reset::Device {
                self.note_device_reset();
                self.power_hold();
            }
            if self.hal().reset(what).is_ok() {
                trace::reset(self, what, Phase::Begin);
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
                trace::reset(self, attempt.what, Phase::Done);
                ladder.device.note_reset();
                self.after(&attempt);
                let next = ladder.recovery.done(true, wall);
                self.climb(ladder, next, None, wall)
            }
            Ok(ResetProgress::Refused) | Err(_) => {
                trace::reset(self, attempt.what, Phase::Refused);
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
            self.power_resume();
            self.tell_user_space(WedgeRecovery::None);
        }
    }

    /// Has the worker look for actions.
    pub(super) fn kick_unless_stopped(self: &Arc<Self>) {
        let scheduler = self.scheduler.lock();
        if !scheduler.is_stopped() {
            self.kick();
        }
    }
}
