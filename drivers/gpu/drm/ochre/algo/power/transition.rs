// SPDX-License-Identifier: GPL-2.0

//! How a domain gets from one level to another: one register at a time, never with a voltage that
//! is too low.
//!
//! The voltage is raised before the clock rises, and lowered after the clock has fallen (og1.rst,
//! section "Power"). The next step follows from what the board says it is at, not from a list made
//! in advance; so the target may change at any time, and a driver that comes late does nothing
//! wrong. One change of a domain is under way at a time.
//!
//! A change that failed, or did not end in its time, is not tried again: the domain goes to its
//! slowest clock with the voltage left as it is, which is enough for that clock in any case, and
//! stays there until [`Transition::retry`]. If even that fails, or the clock takes no change since
//! one never ends, nothing more is written until the device has been reset: it has the clock that
//! it had, with no less voltage than that needs.

use kernel::prelude::*;

use super::levels::{
    Level,
    LevelId,
    Table, //
};

/// Voltage beyond which the board is not believed, in µV.
const UV_MAX: u32 = 2_000_000;

/// What the board says of one domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DomainStatus {
    /// CLK_NOW.
    pub(crate) khz: u32,
    /// VOLT_NOW.
    pub(crate) uv: u32,
    /// CLK_STATUS.
    pub(crate) clock: ChangeStatus,
    /// VOLT_STATUS.
    pub(crate) voltage: ChangeStatus,
}

/// How it stands about the latest change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ChangeStatus {
    /// It ended well, or there was none.
    #[default]
    Done,
    /// It is under way.
    Busy,
    /// It ended without effect.
    Failed,
}

/// What has to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write this to VOLT_TARGET.
    SetVoltage(u32),
    /// Write this to CLK_TARGET.
    SetClock(u32),
    /// Look again after so many ns of board time, or at IRQ_POWER.
    Wait(u64),
    /// The domain is at this level and stays.
    Settled(LevelId),
    /// Changes do not work: the domain has its slowest clock and at least the voltage for it.
    Safe,
    /// Not even that could be had. Only a reset of the device helps.
    Stuck,
}

/// Why a domain is not where it was asked to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The board said that the change of clock failed.
    Clock,
    /// The board said that the change of voltage failed.
    Voltage,
    /// A change did not end in its time.
    Timeout,
    /// What the board says of the domain cannot be.
    Garbage,
}

/// How long changes take, in ns of board time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// A change of the clock.
    pub(crate) clock_ns: u64,
    /// A change of the voltage, whatever the way.
    pub(crate) voltage_ns: u64,
    /// For each mV of the way, in addition.
    pub(crate) mv_ns: u64,
    /// A change that takes longer has failed.
    pub(crate) timeout_ns: u64,
}

impl Timing {
    fn slew(&self, from: u32, to: u32) -> u64 {
        let mv = u64::from(from.abs_diff(to).div_ceil(1000));
        self.voltage_ns
            .saturating_add(self.mv_ns.saturating_mul(mv))
    }

    /// From one level to another, at least: a voltage on its way down is not waited for.
    pub(crate) fn change(&self, from: Level, to: Level) -> u64 {
        if from == to {
            return 0;
        }
        let raise = if to.uv > from.uv {
            self.slew(from.uv, to.uv)
        } else {
            0
        };
        self.clock_ns.saturating_add(raise)
    }
}

/// A change that has not been seen to have ended.
#[derive(Clone, Copy, Debug)]
enum Written {
    Clock(u32),
    Voltage(u32),
    SomeClock,
    SomeVoltage,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    what: Written,
    since: u64,
    expected: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// On the way to the target, or there.
    Normal,
    /// On the way to the slowest clock, or there.
    Retreat,
    Stuck,
}

/// The way of one domain. One change is under way at a time, over both registers.
#[derive(Debug)]
pub(crate) struct Transition {
    timing: Timing,
    target: LevelId,
    state: State,
    pending: Option<Pending>,
    failure: Option<Failure>,
    failures: u64,
}

impl Transition {
    /// Makes a way that ends at `target`, where the domain is believed to be.
    pub(crate) const fn new(timing: Timing, target: LevelId) -> Self {
        Self {
            timing,
            target,
            state: State::Normal,
            pending: None,
            failure: None,
            failures: 0,
        }
    }

    /// Sets where to go. In [`Step::Safe`] and [`Step::Stuck`] it is remembered only.
    pub(crate) fn request(&mut self, target: LevelId) {
        self.target = target;
    }

    /// Where the domain is asked to go.
    pub(crate) fn target(&self) -> LevelId {
        self.target
    }

    /// Whether nothing was written that has not been seen to have ended.
    pub(crate) fn is_quiet(&self) -> bool {
        self.pending.is_none()
    }

    /// Lets a domain that is [`Step::Safe`] try again.
    pub(crate) fn retry(&mut self) {
        if self.state == State::Retreat {
            self.state = State::Normal;
        }
    }

    /// The device was reset and runs at `target`.
    pub(crate) fn reset(&mut self, target: LevelId) {
        *self = Self {
            failures: self.failures,
            ..Self::new(self.timing, target)
        };
    }

    /// Takes out why the way was left, once for each time.
    pub(crate) fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// How often a change went wrong.
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// Says what has to be done now that the board says `status` at board time `now`. To be called
    /// until it says that there is nothing to be done; the caller carries each step out at once.
    pub(crate) fn step(&mut self, table: &Table, status: &DomainStatus, now: u64) -> Step {
        if let Some(wait) = self.see(status, now) {
            return wait;
        }
        let slowest = table.slowest();
        match self.state {
            State::Stuck => Step::Stuck,
            State::Retreat if status.khz <= table.level(slowest).khz => Step::Safe,
            // A lower clock never needs more voltage.
            State::Retreat => self.set_clock(table.level(slowest).khz, now),
            State::Normal => self.towards(table, status, now),
        }
    }

    /// Looks after what was written. Says to wait if that is not over.
    fn see(&mut self, status: &DomainStatus, now: u64) -> Option<Step> {
        if self.state == State::Stuck {
            return None;
        }
        let pending = match self.pending {
            Some(pending) => pending,
            None => *self.pending.insert(self.foreign(status, now)?),
        };
        let (state, arrived, failure) = match pending.what {
            Written::Clock(khz) => (status.clock, status.khz == khz, Failure::Clock),
            Written::Voltage(uv) => (status.voltage, status.uv == uv, Failure::Voltage),
            Written::SomeClock => (status.clock, true, Failure::Clock),
            Written::SomeVoltage => (status.voltage, true, Failure::Voltage),
        };
        let failure = match state {
            ChangeStatus::Busy => {
                let passed = now.saturating_sub(pending.since);
                if passed < self.timing.timeout_ns {
                    // A little at a time once it is late, but not for nothing.
                    let late = (self.timing.clock_ns / 4).max(1);
                    return Some(Step::Wait(
                        pending.expected.saturating_sub(passed).max(late),
                    ));
                }
                Some(Failure::Timeout)
            }
            ChangeStatus::Failed => Some(failure),
            ChangeStatus::Done if arrived => None,
            ChangeStatus::Done => Some(Failure::Garbage),
        };
        self.pending = None;
        if let Some(failure) = failure {
            // A clock that is busy for ever takes no other: the board counts such a write.
            let clock_is_free = status.clock != ChangeStatus::Busy;
            self.fail(failure, clock_is_free);
        }
        None
    }

    /// A change that we did not start, perhaps of a driver before us: the board refuses ours
    /// meanwhile. On the retreat only the clock's matters.
    fn foreign(&self, status: &DomainStatus, now: u64) -> Option<Pending> {
        let voltage = status.voltage == ChangeStatus::Busy && self.state != State::Retreat;
        let what = match status.clock {
            ChangeStatus::Busy => Written::SomeClock,
            _ if voltage => Written::SomeVoltage,
            _ => return None,
        };
        Some(Pending {
            what,
            since: now,
            expected: self.timing.clock_ns,
        })
    }

    fn fail(&mut self, failure: Failure, clock_is_free: bool) {
        self.failure = Some(failure);
        self.failures = self.failures.saturating_add(1);
        self.state = match self.state {
            State::Normal if clock_is_free => State::Retreat,
            State::Normal | State::Retreat | State::Stuck => State::Stuck,
        };
    }

    fn towards(&mut self, table: &Table, status: &DomainStatus, now: u64) -> Step {
        if status.khz == 0 || status.uv > UV_MAX {
            self.fail(Failure::Garbage, true);
            return Step::Wait(self.timing.clock_ns);
        }
        let id = self.target.min(table.slowest());
        let target = table.level(id);
        // A clock that no level has is one that the board had before; the fastest level's voltage
        // is enough for it as for all others.
        let most = table.level(0).uv;
        let needed = |khz| table.needed_uv(khz).unwrap_or(most);
        if status.khz != target.khz {
            let uv = needed(status.khz).max(target.uv);
            if status.uv < uv {
                return self.set_voltage(status.uv, uv, now);
            }
            return self.set_clock(target.khz, now);
        }
        if status.uv != target.uv {
            return self.set_voltage(status.uv, target.uv, now);
        }
        Step::Settled(id)
    }

    fn set_clock(&mut self, khz: u32, now: u64) -> Step {
        self.pending = Some(Pending {
            what: Written::Clock(khz),
            since: now,
            expected: self.timing.clock_ns,
        });
        Step::SetClock(khz)
    }

    fn set_voltage(&mut self, from: u32, uv: u32, now: u64) -> Step {
        self.pending = Some(Pending {
            what: Written::Voltage(uv),
            since: now,
            expected: self.timing.slew(from, uv),
        });
        Step::SetVoltage(uv)
    }
}

#[kunit_tests(ochre_algo_power_transition)]
mod tests {
    use super::*;
    use crate::algo::{
        power::{
            levels::Domain,
            plant::{
                pstates,
                Clocked,
                TIMING,
                US, //
            }, //
        },
        prng::{
            for_each_seed,
            Prng, //
        }, //
    };

    /// A domain of the board and its way.
    struct Bench {
        board: Clocked,
        way: Transition,
        table: Table,
        now: u64,
        writes: u32,
    }

    impl Bench {
        fn new(level: LevelId) -> Result<Self> {
            let table = *pstates()?.table(Domain::Core);
            Ok(Self {
                board: Clocked::new(table.level(level)),
                way: Transition::new(TIMING, level),
                table,
                now: 0,
                writes: 0,
            })
        }

        fn pass(&mut self, ns: u64) {
            // Each µs, so that no voltage goes unseen.
            for _ in 0..ns.div_ceil(US) {
                self.now += US;
                self.board.advance(&self.table, self.now);
            }
        }

        /// Takes steps until there is nothing to do but wait, or nothing at all.
        fn step(&mut self) -> Step {
            loop {
                let status = self.board.status(self.now);
                let step = self.way.step(&self.table, &status, self.now);
                match step {
                    Step::SetVoltage(uv) => self.board.set_voltage(uv, self.now),
                    Step::SetClock(khz) => self.board.set_clock(&self.table, khz, self.now),
                    _ => return step,
                }
                self.writes += 1;
                // The steps that follow each other without a wait are few.
                if self.writes > 10_000 {
                    return Step::Stuck;
                }
            }
        }

        /// Lets it come to an end; returns how it ended.
        fn settle(&mut self) -> Step {
            for _ in 0..200 {
                match self.step() {
                    Step::Wait(ns) => self.pass(ns),
                    end => return end,
                }
            }
            Step::Wait(0)
        }

        fn is_clean(&self) -> bool {
            self.board.undervoltage == 0 && self.board.misuse == 0
        }
    }

    #[test]
    fn voltage_goes_up_before_the_clock_and_down_after_it() -> Result {
        let mut b = Bench::new(4)?;
        b.way.request(0);
        // 300 mV at 10 mV per µs.
        assert!(b.step() == Step::Wait(32 * US));
        assert!(b.writes == 1);
        b.pass(32 * US);
        assert!(b.step() == Step::Wait(20 * US));
        b.pass(20 * US);
        assert!(b.step() == Step::Settled(0));
        assert!(b.now == 52 * US && b.board.khz == 1_500_000);
        b.way.request(4);
        assert!(b.step() == Step::Wait(20 * US));
        b.pass(20 * US);
        assert!(b.board.khz == 400_000 && b.board.uv(b.now) == 1_000_000);
        assert!(b.settle() == Step::Settled(4));
        assert!(b.board.uv(b.now) == 700_000 && b.is_clean());
        Ok(())
    }

    #[test]
    fn nothing_is_written_to_a_domain_that_is_where_it_should_be() -> Result {
        let mut b = Bench::new(2)?;
        assert!(b.settle() == Step::Settled(2));
        assert!(b.writes == 0);
        Ok(())
    }

    #[test]
    fn failed_change_ends_at_the_slowest_clock_with_the_voltage_left() -> Result {
        let mut b = Bench::new(2)?;
        b.board.fail_clock = 1;
        b.way.request(0);
        assert!(b.settle() == Step::Safe);
        assert!(b.way.take_failure() == Some(Failure::Clock));
        assert!(b.way.take_failure().is_none() && b.way.failures() == 1);
        assert!(b.board.khz == 400_000 && b.board.uv(b.now) == 1_000_000);
        // It stays there whatever is asked for, until it may try again.
        b.way.request(1);
        assert!(b.settle() == Step::Safe);
        b.way.retry();
        assert!(b.settle() == Step::Settled(1));
        b.board.fail_voltage = 1;
        b.way.request(0);
        assert!(b.settle() == Step::Safe);
        assert!(b.way.take_failure() == Some(Failure::Voltage));
        assert!(b.board.uv(b.now) == 925_000 && b.is_clean());
        Ok(())
    }

    #[test]
    fn change_that_never_ends_is_left_alone_until_a_reset() -> Result {
        let mut b = Bench::new(4)?;
        b.board.stall = true;
        b.way.request(0);
        assert!(b.settle() == Step::Stuck);
        assert!(b.way.take_failure() == Some(Failure::Timeout));
        let writes = b.writes;
        b.way.request(3);
        b.way.retry();
        assert!(b.settle() == Step::Stuck && b.writes == writes);
        assert!(b.board.khz == 400_000 && b.board.uv(b.now) == 1_000_000);
        b.board = Clocked::new(b.table.level(2));
        b.way.reset(2);
        b.way.request(3);
        assert!(b.settle() == Step::Settled(3) && b.is_clean());
        Ok(())
    }

    #[test]
    fn change_that_fails_on_the_retreat_as_well_is_the_last() -> Result {
        let mut b = Bench::new(2)?;
        b.board.fail_clock = 2;
        b.way.request(1);
        assert!(b.settle() == Step::Stuck);
        assert!(b.board.khz == 1_000_000 && b.is_clean());
        Ok(())
    }

    #[test]
    fn somebody_elses_change_is_waited_for() -> Result {
        let mut b = Bench::new(4)?;
        b.board.set_voltage(1_000_000, 0);
        b.way.request(0);
        assert!(b.settle() == Step::Settled(0) && b.is_clean());
        Ok(())
    }

    fn interfere(b: &mut Bench, rng: &mut Prng) {
        match rng.below(40) {
            0 => b.board.fail_clock = 1,
            1 => b.board.fail_voltage = 1,
            2 => b.board.stall = true,
            3..12 => b.way.request(rng.index(5)),
            _ => {}
        }
    }

    #[test]
    fn voltage_is_always_enough_whatever_comes_between() -> Result {
        for_each_seed("transition", |rng| {
            for _ in 0..20 {
                let mut b = Bench::new(rng.index(5))?;
                for _ in 0..40 {
                    interfere(&mut b, rng);
                    match b.step() {
                        // Early, in time or late.
                        Step::Wait(ns) => b.pass(rng.below(ns * 2)),
                        Step::Safe if rng.chance(50) => b.way.retry(),
                        Step::Stuck if rng.chance(20) => {
                            let level = rng.index(5);
                            assert!(b.is_clean());
                            b.board = Clocked::new(b.table.level(level));
                            b.way.reset(level);
                        }
                        _ => b.pass(rng.below(50 * US)),
                    }
                }
                // In the end it is somewhere, for good.
                let end = b.settle();
                assert!(matches!(end, Step::Settled(_) | Step::Safe | Step::Stuck));
                assert!(b.is_clean());
                assert!(b.settle() == end);
            }
            Ok(())
        })
    }

    #[test]
    fn garbage_from_the_board_ends_within_a_few_writes() -> Result {
        let table = *pstates()?.table(Domain::Core);
        for_each_seed("transition garbage", |rng| {
            let mut way = Transition::new(TIMING, 0);
            let (mut now, mut writes, mut ended) = (0u64, 0, false);
            for _ in 0..10_000 {
                let word = |rng: &mut Prng| (rng.next() >> rng.below(64)) as u32;
                let change = |rng: &mut Prng| match rng.below(3) {
                    0 => ChangeStatus::Done,
                    1 => ChangeStatus::Busy,
                    _ => ChangeStatus::Failed,
                };
                let status = DomainStatus {
                    khz: word(rng),
                    uv: word(rng),
                    clock: change(rng),
                    voltage: change(rng),
                };
                now = now.saturating_add(rng.next() >> 40);
                match way.step(&table, &status, now) {
                    Step::SetClock(khz) => {
                        writes += 1;
                        assert!(table.levels().iter().any(|l| l.khz == khz));
                    }
                    Step::SetVoltage(uv) => {
                        writes += 1;
                        assert!(table.levels().iter().any(|l| l.uv == uv));
                    }
                    Step::Stuck => ended = true,
                    _ => assert!(!ended),
                }
            }
            assert!(ended && writes < 10);
            Ok(())
        })
    }
}
