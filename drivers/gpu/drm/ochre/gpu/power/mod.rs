// SPDX-License-Identifier: GPL-2.0

//! Power: clocks, voltages and gates while jobs run, and what people see and set of them.
//!
//! The board's telemetry alarm drives it. When it goes off, [`Gpu::power_turn`] takes a sample, asks
//! the governor (`algo::power`), moves both domains a step towards the levels that it wants
//! ([`dvfs`]), sets gates, and arms the alarm for when the governor wants to look again. The alarm
//! halts the board's clock until then, so decisions take effect at the board time of their sample
//! and are the same on every run. When no job is outstanding the governor ends with no alarm; then
//! nothing happens until a job is about to be handed to the board, which [`Gpu::power_before_work`]
//! is told first. Levels are safe at every moment: voltage before clock on the way up, after it on
//! the way down (`algo::power::transition`).
//!
//! What others want is put in as limits of the governor's choice, from the weakest to the strongest:
//! boost of queues; devfreq, be it people's `min_freq` and `max_freq` or a governor of the kernel's
//! ([`devfreq`]); the range lock ([`sysfs`]); the cooling device ([`thermal`]); the board's power and
//! temperature limits, which always hold. What can be seen stands in [`hwmon`] and [`sysfs`].
//!
//! Locks: `Power::state`, taken by the worker, by readers, and before the board is reset; nothing
//! waits under it, and only the scheduler's lock is taken inside. `Power::faces` is taken alone. The
//! locks of devfreq and of the thermal core are outside `state`: their callbacks take it, and the
//! worker calls them without it.
//!
//! The end: [`Gpu::power_close`] lets no turn begin any more. Functions of the kernel's interfaces that
//! run later give [`ENODEV`] and do not touch the board.

mod board;
mod devfreq;
mod dvfs;
mod faces;
mod hwmon;
mod settings;
mod sysfs;
mod thermal;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            AtomicFlag,
            Full,
            Release, //
        },
        Arc,
        Mutex, //
    },
};

use crate::{
    algo::power::levels::Domain,
    ext::workqueue::{
        self,
        OwnedQueue,
        QueueFlags, //
    },
    gpu::{
        log::gpu_warn,
        trace,
        Gpu, //
    },
    hal::{
        self,
        Hal, //
    }, //
};

use self::{
    dvfs::State,
    faces::Faces,
    settings::Wishes, //
};

/// Both domains.
const DOMAINS: [Domain; 2] = [Domain::Core, Domain::Memory];

/// Clocks, voltages and gates of a GPU.
#[pin_data]
pub(crate) struct Power {
    /// Turns run here, one at a time.
    workers: OwnedQueue,
    /// [`None`]: the board has nothing to set.
    #[pin]
    state: Mutex<Option<KBox<State>>>,
    /// Whether turns may be enqueued. A leaf.
    #[pin]
    open: Mutex<bool>,
    /// No alarm is armed, and no job outstanding.
    asleep: AtomicFlag,
    /// What devfreq and the thermal core want.
    wishes: Wishes,
    /// Whom to tell. Taken alone.
    #[pin]
    faces: Mutex<Faces>,
}

impl Power {
    /// Of a board as it is after its reset.
    pub(super) fn new(hal: &dyn Hal) -> Result<impl PinInit<Self>> {
        let state = match hal.power() {
            Some(power) => State::new(power, hal.info())?,
            None => None,
        };
        let workers = OwnedQueue::new(c"ochre-power", QueueFlags::ORDERED.high_priority())?;
        Ok(pin_init!(Self {
            workers,
            state <- new_mutex!(state, "ochre_power"),
            open <- new_mutex!(true, "ochre_power_open"),
            asleep: AtomicFlag::new(true),
            wishes: Wishes::new(),
            faces <- new_mutex!(Faces::default(), "ochre_power_faces"),
        }))
    }
}

/// Why a turn is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// The alarm, or somebody changed what is wanted.
    Look,
    /// A job is about to be handed to a board that had none.
    Work,
}

impl Gpu {
    /// Makes a turn soon. In process context, with no lock of devfreq's needed by it.
    pub(super) fn power_kick(self: &Arc<Self>) {
        let open = self.power.open.lock();
        if *open {
            // An error says that it is queued already.
            let _ = self.power.workers.enqueue::<_, 3>(self.clone());
        }
    }

    /// The board's alarm went off, a change ended, or it is hot or slows itself down. From its
    /// interrupt handler, which may sleep.
    pub(crate) fn on_power_event(self: &Arc<Self>) {
        self.power_kick();
    }

    /// A job is about to be handed to the board. Short; from the scheduler's worker, with no lock
    /// held.
    pub(super) fn power_before_work(self: &Arc<Self>) {
        if self.power.asleep.xchg(false, Full) {
            self.power_decide(Why::Work);
            // What remains can come after the job.
            self.power_kick();
        }
    }

    /// One turn of the worker.
    pub(super) fn power_turn(self: &Arc<Self>) {
        self.power_ask_devfreq();
        self.power_decide(Why::Look);
        self.power_tell_devfreq();
    }

    /// Samples, decides and carries out.
    fn power_decide(self: &Arc<Self>, why: Why) {
        let mut state = self.power.state.lock();
        let Some(state) = &mut *state else { return };
        let Some(power) = self.hal().power() else {
            return;
        };
        if state.is_held() {
            return;
        }
        let mut load = self.power_load();
        state.limit(&self.power.wishes, load.boost);
        let mut result = self.power_step(state, power, why, load.outstanding);
        if result == Ok(false) {
            // Work that came meanwhile has seen that we were awake, or we see it.
            self.power.asleep.store(true, Release);
            load = self.power_load();
            if load.outstanding && self.power.asleep.xchg(false, Full) {
                result = self.power_step(state, power, Why::Work, true);
            }
        }
        match result {
            Ok(awake) => self.power.asleep.store(!awake, Release),
            // The watchdog finds out what became of the board.
            Err(error) if error == ENODEV => {}
            Err(error) => {
                state.let_go(power);
                self.power.asleep.store(true, Release);
                gpu_warn!(self, "power: the board makes no sense ({error:?})\n");
            }
        }
        for (domain, (khz, microvolts)) in state.take_changes() {
            trace::frequency(self, domain, khz, microvolts, Ok(()));
        }
        for (domain, failure) in state.take_failures() {
            trace::frequency(self, domain, 0, 0, Err(EIO));
            gpu_warn!(
                self,
                "power: a change of the {domain:?} clock went wrong ({failure:?}); it stays slow\n"
            );
        }
        if state.take_hot() {
            gpu_warn!(self, "power: the board is too hot and slows itself down\n");
        }
    }

    fn power_step(
        &self,
        state: &mut State,
        power: &dyn hal::Power,
        why: Why,
        outstanding: bool,
    ) -> Result<bool> {
        let sample = board::read(self.hal(), power)?;
        state.turn(power, &sample, why == Why::Work, outstanding)
    }

    /// What there is to do.
    fn power_load(&self) -> Load {
        let mut scheduler = self.scheduler.lock();
        let mut load = Load::default();
        for entry in scheduler.entries().filter(|entry| !entry.is_idle()) {
            load.outstanding = true;
            load.boost |= entry.queue.properties().boost;
        }
        load
    }

    /// The device is about to be reset: nothing of it is touched until [`Self::power_resume`].
    pub(super) fn power_hold(&self) {
        if let Some(state) = &mut *self.power.state.lock() {
            state.hold();
        }
    }

    /// The device was reset: everything is set again that was.
    pub(super) fn power_resume(self: &Arc<Self>) {
        if let Some(state) = &mut *self.power.state.lock() {
            state.resume();
        }
        self.power.asleep.store(false, Release);
        self.power_kick();
    }

    /// There is no board any more. Returns when no turn runs.
    pub(super) fn power_close(self: &Arc<Self>) {
        *self.power.open.lock() = false;
        if let Some(state) = &mut *self.power.state.lock() {
            state.end();
        }
        workqueue::cancel_sync::<_, 3>(self);
    }
}

/// What there is to do.
#[derive(Clone, Copy, Default)]
struct Load {
    /// Jobs that the board has not completed.
    outstanding: bool,
    /// One of them is of a queue that wants the fastest clocks.
    boost: bool,
}
