// SPDX-License-Identifier: GPL-2.0

//! How far to go about a hang: the ladder of resets.
//!
//! As little as possible: the queue alone, if that is refused its engine, then the device, and if
//! even that does not help or is needed again and again, the device is declared wedged, which is
//! final. Each rung is tried a bounded number of times, so the ladder always comes to an end.

use kernel::prelude::*;

/// What is reset, from the least on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// One queue, in its slot.
    Queue,
    /// An engine with all its slots.
    Engine,
    /// Everything.
    Device,
}

impl Scope {
    /// The next rung.
    const fn up(self) -> Option<Self> {
        match self {
            Self::Queue => Some(Self::Engine),
            Self::Engine => Some(Self::Device),
            Self::Device => None,
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Reset this much, and report with [`Recovery::done`].
    Reset(Scope),
    /// All is well after a reset of this much.
    Recovered(Scope),
    /// Give the device up.
    Wedged,
}

/// Device resets that are remembered at most.
const HISTORY: usize = 8;

/// How patient the ladder is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Attempts at a queue, an engine and the device, each at least one.
    pub(crate) attempts: [u8; 3],
    /// Resets of the device within `window` that are borne, at most 8.
    pub(crate) device_resets: usize,
    /// Nanoseconds.
    pub(crate) window: u64,
}

impl Default for Limits {
    /// A refused reset of a queue or engine is not repeated, since the next rung does more; the
    /// device gets a second chance, and is given up if it needs a fifth reset within a minute.
    fn default() -> Self {
        Self {
            attempts: [1, 1, 2],
            device_resets: 4,
            window: 60_000_000_000,
        }
    }
}

/// Where the ladder stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing is being reset.
    Idle,
    /// A reset was asked for and has not been reported on.
    Resetting {
        /// Of what.
        scope: Scope,
        /// The how-manieth of its scope, from 1.
        attempt: u8,
    },
    /// The device was given up. Nothing leads out of this.
    Wedged,
}

/// The ladder of a device. Guarded by the lock of whoever carries out the resets.
#[derive(Debug)]
pub(crate) struct Recovery {
    limits: Limits,
    state: State,
    /// When the device was reset, oldest first overwritten.
    history: [Option<u64>; HISTORY],
    next: usize,
}

impl Recovery {
    /// Makes a ladder on which nobody stands.
    pub(crate) const fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: State::Idle,
            history: [None; HISTORY],
            next: 0,
        }
    }

    /// Where the ladder stands.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Something has to be reset, `scope` at least. While a reset is under way, only more than
    /// that changes anything. `wall` is a monotonic clock in ns.
    pub(crate) fn begin(&mut self, scope: Scope, wall: u64) -> Next {
        match self.state {
            State::Idle => self.enter(scope, wall),
            State::Resetting { scope: current, .. } if scope > current => self.enter(scope, wall),
            State::Resetting { scope: current, .. } => Next::Reset(current),
            State::Wedged => Next::Wedged,
        }
    }

    /// The device has to be reset for no fault of its own, because someone asked for it. As
    /// [`Self::begin`], but it is not held against the device later.
    pub(crate) fn begin_unblamed(&mut self) -> Next {
        if self.state == State::Wedged {
            return Next::Wedged;
        }
        self.state = State::Resetting {
            scope: Scope::Device,
            attempt: 1,
        };
        Next::Reset(Scope::Device)
    }

    /// Reports on the reset that was asked for: whether it did what it should.
    pub(crate) fn done(&mut self, ok: bool, wall: u64) -> Next {
        match self.state {
            State::Idle => Next::Recovered(Scope::Queue),
            State::Resetting { scope, .. } if ok => {
                self.state = State::Idle;
                Next::Recovered(scope)
            }
            State::Resetting { scope, attempt } if attempt < self.attempts(scope) => {
                self.reset(scope, attempt.saturating_add(1), wall)
            }
            State::Resetting { scope, .. } => match scope.up() {
                Some(scope) => self.enter(scope, wall),
                None => self.wedge(),
            },
            State::Wedged => Next::Wedged,
        }
    }

    fn attempts(&self, scope: Scope) -> u8 {
        let [queue, engine, device] = self.limits.attempts;
        match scope {
            Scope::Queue => queue,
            Scope::Engine => engine,
            Scope::Device => device,
        }
    }

    fn enter(&mut self, scope: Scope, wall: u64) -> Next {
        self.reset(scope, 1, wall)
    }

    fn reset(&mut self, scope: Scope, attempt: u8, wall: u64) -> Next {
        if scope == Scope::Device {
            let recent = |at: &&Option<u64>| {
                at.is_some_and(|at| wall.saturating_sub(at) < self.limits.window)
            };
            let allowed = self.limits.device_resets.min(HISTORY);
            if self.history.iter().filter(recent).count() >= allowed {
                return self.wedge();
            }
            if let Some(at) = self.history.get_mut(self.next) {
                *at = Some(wall);
            }
            self.next = (self.next + 1) % HISTORY;
        }
        self.state = State::Resetting { scope, attempt };
        Next::Reset(scope)
    }

    fn wedge(&mut self) -> Next {
        self.state = State::Wedged;
        Next::Wedged
    }
}

#[kunit_tests(ochre_algo_recovery)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000_000;

    #[test]
    fn queue_that_can_be_reset_alone_is() {
        let mut r = Recovery::new(Limits::default());
        assert!(r.begin(Scope::Queue, 0) == Next::Reset(Scope::Queue));
        assert!(r.done(true, 1) == Next::Recovered(Scope::Queue));
        assert!(r.state() == State::Idle);
    }

    #[test]
    fn each_refusal_leads_one_rung_up_and_the_last_to_the_end() {
        let mut r = Recovery::new(Limits::default());
        assert!(r.begin(Scope::Queue, 0) == Next::Reset(Scope::Queue));
        assert!(r.done(false, 0) == Next::Reset(Scope::Engine));
        assert!(r.done(false, 0) == Next::Reset(Scope::Device));
        assert!(r.done(false, 0) == Next::Reset(Scope::Device));
        assert!(r.done(false, 0) == Next::Wedged);
        // For good.
        assert!(r.begin(Scope::Queue, 10 * MINUTE) == Next::Wedged);
        assert!(r.done(true, 10 * MINUTE) == Next::Wedged);
    }

    #[test]
    fn resets_that_someone_asked_for_never_wear_the_device_out() {
        let mut r = Recovery::new(Limits::default());
        for at in 0..20 {
            assert!(r.begin_unblamed() == Next::Reset(Scope::Device));
            assert!(r.done(true, at) == Next::Recovered(Scope::Device));
        }
        assert!(r.begin(Scope::Device, 20) == Next::Reset(Scope::Device));
        // One that fails is a failure like any other.
        assert!(r.begin_unblamed() == Next::Reset(Scope::Device));
        assert!(r.done(false, 21) == Next::Reset(Scope::Device));
        assert!(r.done(false, 22) == Next::Wedged);
        assert!(r.begin_unblamed() == Next::Wedged);
    }

    #[test]
    fn more_than_what_is_under_way_replaces_it_and_less_does_not() {
        let mut r = Recovery::new(Limits::default());
        assert!(r.begin(Scope::Engine, 0) == Next::Reset(Scope::Engine));
        assert!(r.begin(Scope::Queue, 0) == Next::Reset(Scope::Engine));
        assert!(r.begin(Scope::Device, 0) == Next::Reset(Scope::Device));
        assert!(r.done(true, 0) == Next::Recovered(Scope::Device));
    }

    #[test]
    fn device_that_needs_a_reset_again_and_again_is_given_up() {
        let mut r = Recovery::new(Limits::default());
        for n in 0..4 {
            assert!(r.begin(Scope::Device, n) == Next::Reset(Scope::Device));
            assert!(r.done(true, n) == Next::Recovered(Scope::Device));
        }
        // A queue's is no matter, and what is old is forgotten.
        assert!(r.begin(Scope::Queue, 5) == Next::Reset(Scope::Queue));
        assert!(r.done(true, 5) == Next::Recovered(Scope::Queue));
        for n in 0..4 {
            let at = 2 * MINUTE + n;
            assert!(r.begin(Scope::Device, at) == Next::Reset(Scope::Device));
            assert!(r.done(true, at) == Next::Recovered(Scope::Device));
        }
        assert!(r.begin(Scope::Device, 2 * MINUTE + 9) == Next::Wedged);
    }

    #[test]
    fn ladder_comes_to_an_end_whatever_it_starts_from() {
        for scope in [Scope::Queue, Scope::Engine, Scope::Device] {
            let mut r = Recovery::new(Limits {
                attempts: [3, 3, 3],
                device_resets: 8,
                window: MINUTE,
            });
            let mut next = r.begin(scope, 0);
            let mut steps = 0;
            while next != Next::Wedged && steps < 100 {
                next = r.done(false, 0);
                steps += 1;
            }
            assert!(next == Next::Wedged && steps <= 9);
        }
    }
}
