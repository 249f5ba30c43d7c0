// SPDX-License-Identifier: GPL-2.0

//! The worker: it finds a device that is silent, and what no interrupt told of.
//!
//! It looks a few times per second while the device has commands, and only then.
//!
//! A command with a fence may take as long as the host's GPU needs, so its age says nothing. All
//! others are answered when the device comes to see them. So silence is a *plain* command without
//! an answer for the timeout; and if nothing at all was answered for half of it and only fenced
//! commands are out, the device is asked something. Time is counted in looks: a machine that was
//! stopped for an hour did not wait for an hour.

use kernel::{
    prelude::*,
    sync::Arc,
    time::msecs_to_jiffies,
    workqueue::WorkItem, //
};

use super::{
    control::{
        queue::Sight,
        Command,
        Reply, //
    },
    device::Device,
    wire, //
};
use crate::ext::{
    timekeeping,
    workqueue, //
};

/// How often the worker looks, in ms.
pub(super) const LOOK_MS: u32 = 50;
/// Most time that one look counts for, in ms.
const LOOK_MAX_MS: u32 = 4 * LOOK_MS;
/// Resets in a row after which the device has answered nothing.
const STRIKES_MAX: u32 = 3;

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing to look after.
    Rest,
    /// Look again.
    Fine,
    /// Ask it something.
    Ask,
    /// It does not answer.
    Silent,
}

/// Whether the device answers. Only numbers, no clock of its own.
struct Liveness {
    timeout_ms: u32,
    answered: u32,
    /// Time since something was answered.
    quiet_ms: u32,
}

impl Liveness {
    fn new(timeout_ms: u32) -> Self {
        Self {
            timeout_ms,
            answered: 0,
            quiet_ms: 0,
        }
    }

    /// Looks, `elapsed_ms` after the last time.
    fn look(&mut self, sight: &Sight, elapsed_ms: u32) -> Verdict {
        let answered = sight.answered != core::mem::replace(&mut self.answered, sight.answered);
        if answered || sight.in_flight == 0 {
            self.quiet_ms = 0;
        } else {
            self.quiet_ms = self.quiet_ms.saturating_add(elapsed_ms);
        }
        if sight.in_flight == 0 {
            return if sight.staged || sight.dead {
                Verdict::Fine
            } else {
                Verdict::Rest
            };
        }
        match sight.oldest_plain {
            Some(age) if age >= self.timeout_ms => Verdict::Silent,
            None if self.quiet_ms >= self.timeout_ms / 2 => Verdict::Ask,
            _ => Verdict::Fine,
        }
    }
}

/// What the worker knows.
pub(super) struct Watchdog {
    liveness: Liveness,
    /// The CPU's monotonic clock at the last look.
    looked_ns: Option<i64>,
    /// For the answer when the device is asked; [`None`] when it is asked no more.
    ping: Option<Arc<Reply>>,
    /// Resets since the device has answered something.
    strikes: u32,
    /// What it had answered at the last reset.
    answered_at_reset: u32,
}

impl Watchdog {
    /// A watchdog that has not looked yet. `ping` is for the answer to
    /// [`wire::get_display_info`].
    pub(super) fn new(timeout_ms: u32, ping: Arc<Reply>) -> Self {
        Self {
            liveness: Liveness::new(timeout_ms),
            looked_ns: None,
            ping: Some(ping),
            strikes: 0,
            answered_at_reset: 0,
        }
    }

    /// Milliseconds since the last look, so far as they count.
    fn elapsed_ms(&mut self, now_ns: i64) -> u32 {
        let Some(before) = self.looked_ns.replace(now_ns) else {
            return 0;
        };
        let ms = now_ns.saturating_sub(before) / 1_000_000;
        u32::try_from(ms).map_or(LOOK_MAX_MS, |ms| ms.min(LOOK_MAX_MS))
    }

    /// Gives up the memory that the device can write.
    pub(super) fn let_go(&mut self) {
        self.ping = None;
    }

    /// Takes note of a reset. Returns whether it is one too many.
    pub(super) fn strike(&mut self, answered: u32) -> bool {
        let before = core::mem::replace(&mut self.answered_at_reset, answered);
        self.strikes = if answered == before {
            self.strikes + 1
        } else {
            1
        };
        self.liveness.quiet_ms = 0;
        self.strikes > STRIKES_MAX
    }
}

impl WorkItem<0> for Device {
    type Pointer = Arc<Device>;

    fn run(this: Arc<Device>) {
        this.look();
    }
}

impl Device {
    /// Makes the worker look soon. With the queue's lock, and not when the device is gone: so no
    /// work outlives it.
    pub(super) fn watch_soon(self: &Arc<Self>) {
        let jiffies = msecs_to_jiffies(LOOK_MS);
        // An error says that it will look anyway.
        let _ = self.workers.enqueue_delayed::<_, 0>(self.clone(), jiffies);
    }

    /// Makes the worker look now. As [`Self::watch_soon`].
    pub(super) fn watch_now(self: &Arc<Self>) {
        workqueue::enqueue_or_move::<_, 0>(&self.workers, self.clone(), 0);
    }

    fn look(self: &Arc<Self>) {
        let mut dog = self.watchdog.lock();
        let elapsed_ms = dog.elapsed_ms(timekeeping::monotonic_nanos());
        // An ioctl that failed may have left a notification to us.
        self.flush();
        self.drain();
        self.buffers().trim();

        let needs_reset = self.needs_reset();
        let (sight, broken) = {
            let mut queue = self.queue.lock();
            (queue.look(elapsed_ms), queue.broken())
        };
        if sight.dead {
            self.tidy_soon();
        }
        let verdict = dog.liveness.look(&sight, elapsed_ms);
        if let Some(error) = broken {
            dev_err!(self.dev(), "the device lies: {error}\n");
            self.recover(&mut dog, sight.answered);
        } else if needs_reset {
            dev_err!(self.dev(), "the device needs a reset\n");
            self.recover(&mut dog, sight.answered);
        } else {
            match verdict {
                Verdict::Rest => {
                    dog.looked_ns = None;
                    return;
                }
                Verdict::Fine => {}
                Verdict::Ask => self.ask(&dog),
                Verdict::Silent => {
                    dev_err!(
                        self.dev(),
                        "the device has not answered for {} ms\n",
                        dog.liveness.timeout_ms
                    );
                    self.recover(&mut dog, sight.answered);
                }
            }
        }
        let queue = self.queue.lock();
        if queue.keep_watching() {
            self.watch_soon();
        }
    }

    /// Sends a command that the device answers at once, if it lives.
    fn ask(self: &Arc<Self>, dog: &Watchdog) {
        let Some(ping) = dog.ping.as_ref().filter(|ping| ping.start_again()) else {
            return;
        };
        let command = Command::new(wire::get_display_info()).reply(ping.clone());
        let mut queue = self.queue.lock();
        queue.ask(command);
        let notify = queue.publish();
        drop(queue);
        if notify {
            self.ring_bell();
        }
    }
}

#[kunit_tests(ochre_virtio_watchdog)]
mod tests {
    use super::*;

    const IDLE: Sight = Sight {
        answered: 0,
        in_flight: 0,
        staged: false,
        dead: false,
        oldest_plain: None,
    };
    const FENCED: Sight = Sight {
        in_flight: 3,
        ..IDLE
    };

    #[test]
    fn idle_device_is_not_looked_at() {
        let mut liveness = Liveness::new(1000);
        assert_eq!(liveness.look(&IDLE, 50), Verdict::Rest);
        let dead = Sight { dead: true, ..IDLE };
        assert_eq!(liveness.look(&dead, 50), Verdict::Fine);
    }

    #[test]
    fn fenced_commands_may_take_for_ever_but_the_device_is_asked() {
        let mut liveness = Liveness::new(1000);
        for _ in 0..9 {
            assert_eq!(liveness.look(&FENCED, 50), Verdict::Fine);
        }
        assert_eq!(liveness.look(&FENCED, 50), Verdict::Ask);
        // It has answered, so the same again.
        let alive = Sight {
            answered: 1,
            ..FENCED
        };
        assert_eq!(liveness.look(&alive, 50), Verdict::Fine);
        for _ in 0..9 {
            assert_eq!(liveness.look(&alive, 50), Verdict::Fine);
        }
        assert_eq!(liveness.look(&alive, 50), Verdict::Ask);
    }

    #[test]
    fn plain_command_without_an_answer_for_the_timeout_is_silence() {
        let mut liveness = Liveness::new(1000);
        for age in [0, 500, 999] {
            let sight = Sight {
                oldest_plain: Some(age),
                ..FENCED
            };
            assert_eq!(liveness.look(&sight, 50), Verdict::Fine);
        }
        let sight = Sight {
            oldest_plain: Some(1000),
            ..FENCED
        };
        assert_eq!(liveness.look(&sight, 50), Verdict::Silent);
    }
}
