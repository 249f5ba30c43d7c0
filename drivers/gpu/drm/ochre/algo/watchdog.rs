// SPDX-License-Identifier: GPL-2.0

//! When is a queue hung, a board silent, an interrupt lost? (TDR, timeout detection and recovery.)
//!
//! # Which clock
//!
//! Progress is retired work against *board* time: an emulated board, or one that is throttled, may
//! take any wall time for what it has to do, and its clock goes with it. Wall time decides only
//! what board time cannot: that it does not advance although there is work ([`DeviceWatch`]), and
//! that an interrupt has had time to arrive ([`QueueWatch`]).
//!
//! # Who is to blame
//!
//! A queue that waits on a semaphore makes no progress through no fault of its own. If the one that
//! would signal it hangs, both run out of time together. So whenever something was reset, each
//! queue that is blocked gets a fresh window: the guilty one goes, and those that waited for it go
//! on, or are found next if they waited for nobody.
//!
//! All times are in ns. The caller reads the samples, acts on the verdicts, and decides how often
//! to look; nothing here waits.

use kernel::prelude::*;

/// Value that a read gives when the device is gone.
const ALL_ONES: u64 = u64::MAX;

/// A point of board time that can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BoardTime(u64);

impl BoardTime {
    /// Nanoseconds since the board was powered.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// As much earlier: the time of a queue that was kept from its engine for so many ns.
    pub(crate) const fn less(self, ns: u64) -> Self {
        Self(self.0.saturating_sub(ns))
    }

    fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Both clocks, read together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// TIME as the board gave it (og1.rst, section "Time").
    pub(crate) board: u64,
    /// A monotonic clock of the CPU.
    pub(crate) wall: u64,
}

/// What the clock says about the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceVerdict {
    /// The board can be read, so its queues can be looked at.
    Alive(BoardTime),
    /// It reads all ones, not for long enough yet to call it silent.
    Quiet,
    /// It has work, and its time has stood still or read all ones for the limit.
    Silent,
}

/// Watches whether the board's time goes on.
#[derive(Debug)]
pub(crate) struct DeviceWatch {
    /// How long it may stand still, in wall time.
    limit: u64,
    /// The latest board time.
    last: BoardTime,
    /// Wall time since which it has stood still.
    still: Option<u64>,
    /// Resets of anything so far.
    resets: u64,
}

impl DeviceWatch {
    /// Makes a watch that calls a board silent after `limit` ns of wall time.
    pub(crate) const fn new(limit: u64) -> Self {
        Self {
            limit,
            last: BoardTime(0),
            still: None,
            resets: 0,
        }
    }

    /// Notes that a queue, an engine or the device was reset.
    pub(crate) fn note_reset(&mut self) {
        self.resets = self.resets.wrapping_add(1);
        self.still = None;
    }

    /// Resets so far, for [`QueueWatch::sample`].
    pub(crate) fn resets(&self) -> u64 {
        self.resets
    }

    /// Looks at the clock. `outstanding`: the board has been given work that has not come back;
    /// without any its time may stand still for as long as it likes.
    pub(crate) fn sample(&mut self, now: Now, outstanding: bool) -> DeviceVerdict {
        let time = BoardTime(now.board);
        let readable = now.board != ALL_ONES;
        if !outstanding || (readable && time > self.last) {
            self.still = None;
        } else {
            let since = *self.still.get_or_insert(now.wall);
            if now.wall.saturating_sub(since) >= self.limit {
                return DeviceVerdict::Silent;
            }
        }
        if !readable {
            return DeviceVerdict::Quiet;
        }
        self.last = time;
        DeviceVerdict::Alive(time)
    }
}

/// What is known of a queue at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSample {
    /// Work that the board has retired for it, a counter that only has to change.
    pub(crate) progress: u64,
    /// It sits in a slot and has jobs that are not complete.
    pub(crate) outstanding: bool,
    /// It waits on a semaphore.
    pub(crate) blocked: bool,
    /// Seqno that the board has written as completed.
    pub(crate) completed: u64,
    /// Seqno up to which fences have been signaled.
    pub(crate) signaled: u64,
}

/// What to think of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It has nothing to do.
    Idle,
    /// It may work on; there is no need to look before so many ns.
    Fine {
        /// From now, board time as far as progress goes.
        look_after: u64,
    },
    /// A job is complete in memory, and nobody signaled it: do as if the interrupt had come.
    LostInterrupt,
    /// No progress for the timeout.
    Hung,
}

/// What a queue did when it was last seen to get on.
#[derive(Clone, Copy, Debug)]
struct Window {
    progress: u64,
    since: BoardTime,
}

/// A completed seqno that waits for its interrupt.
#[derive(Clone, Copy, Debug)]
struct Unsignaled {
    signaled: u64,
    since: u64,
}

/// Watches one queue.
#[derive(Debug)]
pub(crate) struct QueueWatch {
    timeout: u64,
    grace: u64,
    window: Option<Window>,
    unsignaled: Option<Unsignaled>,
    resets: u64,
}

impl QueueWatch {
    /// Makes a watch for a queue that may go without progress for `timeout` ns of board time, and
    /// whose interrupts may be `grace` ns of wall time behind.
    pub(crate) const fn new(timeout: u64, grace: u64) -> Self {
        Self {
            timeout,
            grace,
            window: None,
            unsignaled: None,
            resets: 0,
        }
    }

    /// Begins anew: the queue has got a slot, or work after having had none.
    pub(crate) fn restart(&mut self) {
        self.window = None;
        self.unsignaled = None;
    }

    /// Looks at the queue. `resets` is from [`DeviceWatch::resets`].
    pub(crate) fn sample(
        &mut self,
        now: BoardTime,
        wall: u64,
        resets: u64,
        s: &QueueSample,
    ) -> Verdict {
        let something_was_reset = core::mem::replace(&mut self.resets, resets) != resets;
        let interrupt = self.interrupt_due(wall, s);
        if interrupt == Some(0) {
            self.restart();
            return Verdict::LostInterrupt;
        }
        if !s.outstanding {
            self.window = None;
            return interrupt.map_or(Verdict::Idle, |look_after| Verdict::Fine { look_after });
        }
        let fresh = Window {
            progress: s.progress,
            since: now,
        };
        let window = match self.window {
            Some(w) if w.progress == s.progress && !(s.blocked && something_was_reset) => w,
            _ => fresh,
        };
        self.window = Some(window);
        match self.timeout.checked_sub(now.since(window.since)) {
            None | Some(0) => Verdict::Hung,
            Some(left) => Verdict::Fine {
                look_after: interrupt.map_or(left, |due| due.min(left)),
            },
        }
    }

    /// How much longer an interrupt may take that has to come; 0: it is lost.
    fn interrupt_due(&mut self, wall: u64, s: &QueueSample) -> Option<u64> {
        if s.completed <= s.signaled {
            self.unsignaled = None;
            return None;
        }
        let fresh = Unsignaled {
            signaled: s.signaled,
            since: wall,
        };
        let waiting = match self.unsignaled {
            Some(u) if u.signaled == s.signaled => u,
            _ => fresh,
        };
        self.unsignaled = Some(waiting);
        let waited = wall.saturating_sub(waiting.since);
        Some(self.grace.saturating_sub(waited))
    }
}

#[kunit_tests(ochre_algo_watchdog)]
mod tests {
    use super::*;

    const TIMEOUT: u64 = 2_000;
    const GRACE: u64 = 50;
    const LIMIT: u64 = 1_000;

    const BUSY: QueueSample = QueueSample {
        progress: 7,
        outstanding: true,
        blocked: false,
        completed: 3,
        signaled: 3,
    };

    fn queue() -> QueueWatch {
        QueueWatch::new(TIMEOUT, GRACE)
    }

    fn look(w: &mut QueueWatch, board: u64, s: &QueueSample) -> Verdict {
        w.sample(BoardTime(board), 0, 0, s)
    }

    #[test]
    fn queue_without_progress_is_hung_after_the_timeout_of_board_time() {
        let mut w = queue();
        assert!(look(&mut w, 100, &BUSY) == Verdict::Fine { look_after: 2_000 });
        assert!(look(&mut w, 1_600, &BUSY) == Verdict::Fine { look_after: 500 });
        assert!(look(&mut w, 2_099, &BUSY) == Verdict::Fine { look_after: 1 });
        assert!(look(&mut w, 2_100, &BUSY) == Verdict::Hung);
    }

    #[test]
    fn progress_opens_a_fresh_window() {
        let mut w = queue();
        let mut s = BUSY;
        for board in (0..20_000).step_by(1_900) {
            s.progress += 1;
            assert!(
                look(&mut w, board, &s)
                    == Verdict::Fine {
                        look_after: TIMEOUT
                    }
            );
        }
    }

    #[test]
    fn idle_time_does_not_count() {
        let mut w = queue();
        let idle = QueueSample {
            outstanding: false,
            ..BUSY
        };
        assert!(
            look(&mut w, 0, &BUSY)
                == Verdict::Fine {
                    look_after: TIMEOUT
                }
        );
        assert!(look(&mut w, 1_000, &idle) == Verdict::Idle);
        assert!(
            look(&mut w, 9_000, &BUSY)
                == Verdict::Fine {
                    look_after: TIMEOUT
                }
        );
        w.restart();
        assert!(
            look(&mut w, 99_000, &BUSY)
                == Verdict::Fine {
                    look_after: TIMEOUT
                }
        );
    }

    #[test]
    fn blocked_queue_gets_a_fresh_window_when_another_was_reset() {
        let blocked = QueueSample {
            blocked: true,
            ..BUSY
        };
        for (s, verdict) in [
            (
                blocked,
                Verdict::Fine {
                    look_after: TIMEOUT,
                },
            ),
            (BUSY, Verdict::Hung),
        ] {
            let mut w = queue();
            assert!(
                look(&mut w, 0, &s)
                    == Verdict::Fine {
                        look_after: TIMEOUT
                    }
            );
            assert!(w.sample(BoardTime(2_000), 0, 1, &s) == verdict);
        }
        // One reset is one window.
        let mut w = queue();
        let _ = look(&mut w, 0, &blocked);
        let _ = w.sample(BoardTime(1_000), 0, 1, &blocked);
        assert!(w.sample(BoardTime(3_000), 0, 1, &blocked) == Verdict::Hung);
    }

    #[test]
    fn interrupt_is_lost_once_it_has_had_its_time() {
        let mut w = queue();
        let mut s = QueueSample {
            outstanding: false,
            completed: 4,
            ..BUSY
        };
        let mut at = |wall, s: &QueueSample| w.sample(BoardTime(0), wall, 0, s);
        assert!(at(100, &s) == Verdict::Fine { look_after: GRACE });
        assert!(at(140, &s) == Verdict::Fine { look_after: 10 });
        // It came, and another is on its way.
        s.signaled = 4;
        s.completed = 5;
        assert!(at(155, &s) == Verdict::Fine { look_after: GRACE });
        assert!(at(205, &s) == Verdict::LostInterrupt);
        // Found again only after another wait.
        assert!(at(206, &s) == Verdict::Fine { look_after: GRACE });
        s.signaled = 5;
        assert!(at(999, &s) == Verdict::Idle);
    }

    #[test]
    fn lost_interrupt_is_no_hang() {
        let mut w = queue();
        let done = QueueSample {
            completed: 4,
            ..BUSY
        };
        assert!(w.sample(BoardTime(0), 0, 0, &done) == Verdict::Fine { look_after: GRACE });
        assert!(w.sample(BoardTime(TIMEOUT), GRACE, 0, &done) == Verdict::LostInterrupt);
        assert!(
            look(&mut w, TIMEOUT, &BUSY)
                == Verdict::Fine {
                    look_after: TIMEOUT
                }
        );
    }

    #[test]
    fn board_is_silent_only_if_it_has_work_and_its_time_stands_still() {
        let mut w = DeviceWatch::new(LIMIT);
        let mut at = |board, wall, outstanding| w.sample(Now { board, wall }, outstanding);
        assert!(at(10, 0, true) == DeviceVerdict::Alive(BoardTime(10)));
        assert!(at(10, 500, true) == DeviceVerdict::Alive(BoardTime(10)));
        // It goes on, if only a little.
        assert!(at(11, 1_400, true) == DeviceVerdict::Alive(BoardTime(11)));
        assert!(at(11, 1_500, true) == DeviceVerdict::Alive(BoardTime(11)));
        // Nothing to do.
        assert!(at(11, 9_000, false) == DeviceVerdict::Alive(BoardTime(11)));
        assert!(at(11, 9_100, true) == DeviceVerdict::Alive(BoardTime(11)));
        assert!(at(11, 10_099, true) == DeviceVerdict::Alive(BoardTime(11)));
        assert!(at(11, 10_100, true) == DeviceVerdict::Silent);
    }

    #[test]
    fn all_ones_are_no_time() {
        let mut w = DeviceWatch::new(LIMIT);
        let mut at = |board, wall| w.sample(Now { board, wall }, true);
        assert!(at(10, 0) == DeviceVerdict::Alive(BoardTime(10)));
        assert!(at(u64::MAX, 1) == DeviceVerdict::Quiet);
        assert!(at(u64::MAX, 900) == DeviceVerdict::Quiet);
        // It was a glitch.
        assert!(at(20, 950) == DeviceVerdict::Alive(BoardTime(20)));
        assert!(at(u64::MAX, 1_500) == DeviceVerdict::Quiet);
        assert!(at(u64::MAX, 2_500) == DeviceVerdict::Silent);
        w.note_reset();
        assert!(w.resets() == 1);
        let now = Now {
            board: 5,
            wall: 2_600,
        };
        assert!(w.sample(now, true) == DeviceVerdict::Alive(BoardTime(5)));
    }
}
