// SPDX-License-Identifier: GPL-2.0

//! [`Gpu`]: everything that lives as long as the DRM device, and how it ends.

use core::mem;

use kernel::{
    device,
    impl_has_delayed_work,
    impl_has_work,
    new_delayed_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            AtomicFlag,
            Full,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
    time::msecs_to_jiffies,
    workqueue::{
        DelayedWork,
        Work,
        WorkItem, //
    }, //
};

use crate::{
    ext::{
        dma_fence::{
            self,
            Fence,
            FenceRef,
            TimelineName, //
        },
        drm_drv::{
            RegisteredDevice,
            WedgeRecovery, //
        },
        timekeeping,
        workqueue::{
            self,
            OwnedQueue,
            QueueFlags, //
        }, //
    },
    gpu::{
        clear::Clearer,
        driver::Driver,
        insight::Insight,
        log::Loudness,
        power::Power,
        recovery::Ladder,
        scheduler::Scheduler,
        vm::Contexts,
        vram::Vram, //
    },
    hal::{
        self,
        EngineId,
        Hal, //
    }, //
};

/// How long a queue that wants a slot waits for those that hold them, in ms.
const SLICE_MS: u32 = 10;

/// What a board hands over to the driver proper.
pub(crate) struct Parts {
    /// The board.
    pub(crate) hal: Arc<dyn Hal>,
    /// The device, for messages; [`None`] in tests.
    pub(crate) dev: Option<ARef<device::Device>>,
    /// Time without progress after which a queue is reset, unless it asks otherwise, in ms.
    pub(crate) timeout_ms: u32,
}

/// Whether there is a board to work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// Yes.
    Present,
    /// It is bound, but was given up after failed resets.
    Wedged,
    /// It is unbound, or will be in a moment.
    Gone,
}

impl Presence {
    fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::Present,
            1 => Self::Wedged,
            _ => Self::Gone,
        }
    }

    fn raw(self) -> u32 {
        match self {
            Self::Present => 0,
            Self::Wedged => 1,
            Self::Gone => 2,
        }
    }
}

/// A GPU.
#[pin_data]
pub(crate) struct Gpu {
    hal: Arc<dyn Hal>,
    dev: Option<ARef<device::Device>>,
    timeout_ms: u32,
    presence: Atomic<u32>,
    resets: Atomic<u64>,
    /// Keeps programs from filling the log.
    pub(super) loudness: Loudness,
    /// The bus is about to reset the board: the worker keeps its hands off.
    pub(super) held: AtomicFlag,
    /// The bus has reset the board, and the watchdog does not know yet.
    pub(super) bus_reset: AtomicFlag,

    /// Clocks, voltages and gates.
    #[pin]
    pub(super) power: Power,
    /// VRAM and who has it.
    #[pin]
    pub(crate) vram: Vram,
    /// Numbers of address spaces.
    #[pin]
    pub(crate) contexts: Contexts,

    /// Signalled when there is no board to wait for any more. A leaf.
    #[pin]
    gone: Mutex<Option<Fence>>,
    gone_ref: FenceRef,

    /// Queues and what they have to do.
    #[pin]
    pub(super) scheduler: Mutex<Scheduler>,
    /// Hangs and resets. Outside the scheduler's lock.
    #[pin]
    pub(super) ladder: Mutex<Ladder>,
    /// The kernel's own queue. Outside the scheduler's lock.
    #[pin]
    pub(super) clearer: Mutex<Clearer>,
    /// Whom to tell when the device is given up. A leaf.
    #[pin]
    pub(super) registered: Mutex<Option<RegisteredDevice<Driver>>>,
    /// Number of the last look at the memory of a file. Outside the VMs' locks.
    #[pin]
    pub(super) accounting: Mutex<u64>,
    /// What lets people look inside. Nothing is dropped under this lock.
    #[pin]
    insight: Mutex<Insight>,

    /// All work below runs here, one at a time. Enqueued only under the scheduler's lock while it is
    /// not stopped, or by a callback that a job owns: so no work outlives [`Gpu::unplug`] and
    /// those who had jobs in the making then ([`Gpu::settle_kicks`]).
    workers: OwnedQueue,
    #[pin]
    run: Work<Gpu, 0>,
    #[pin]
    watch: DelayedWork<Gpu, 1>,
    #[pin]
    slice: DelayedWork<Gpu, 2>,
    #[pin]
    power_work: Work<Gpu, 3>,
}

impl_has_work! {
    impl HasWork<Self, 0> for Gpu { self.run }
    impl HasWork<Self, 3> for Gpu { self.power_work }
}
impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Gpu { self.watch }
    impl HasDelayedWork<Self, 2> for Gpu { self.slice }
}

/// Carries out what the scheduler decides.
impl WorkItem<0> for Gpu {
    type Pointer = Arc<Gpu>;

    fn run(this: Arc<Gpu>) {
        this.run_actions();
    }
}

/// Looks for hangs, and carries resets on.
impl WorkItem<1> for Gpu {
    type Pointer = Arc<Gpu>;

    fn run(this: Arc<Gpu>) {
        this.watch(now());
    }
}

/// A time slice is over.
impl WorkItem<2> for Gpu {
    type Pointer = Arc<Gpu>;

    fn run(this: Arc<Gpu>) {
        this.end_time_slice();
    }
}

/// Sets clocks, voltages and gates.
impl WorkItem<3> for Gpu {
    type Pointer = Arc<Gpu>;

    fn run(this: Arc<Gpu>) {
        this.power_turn();
    }
}

/// The CPU's monotonic clock in ns.
pub(super) fn now() -> u64 {
    u64::try_from(timekeeping::monotonic_nanos()).unwrap_or(0)
}

impl Gpu {
    /// Makes the driver's side of a board. Nothing runs yet.
    pub(crate) fn new(parts: Parts) -> Result<Arc<Self>> {
        let Parts {
            hal,
            dev,
            timeout_ms,
        } = parts;
        let name = TimelineName {
            driver: c"ochre",
            timeline: c"gone",
        };
        let gone = Fence::prealloc(GFP_KERNEL)?.init(name, dma_fence::context_alloc(1), 1);
        let gone_ref = gone.reference();
        let scheduler = Scheduler::new(hal.info())?;
        let workers = OwnedQueue::new(c"ochre", QueueFlags::ORDERED.for_reclaim())?;
        let power = Power::new(&*hal)?;
        Arc::pin_init(
            try_pin_init!(Self {
                power <- power,
                vram <- Vram::new(hal.info()),
                contexts <- Contexts::new(hal.info()),
                hal,
                dev,
                timeout_ms,
                presence: Atomic::new(Presence::Present.raw()),
                resets: Atomic::new(0),
                loudness: Loudness::new(),
                held: AtomicFlag::new(false),
                bus_reset: AtomicFlag::new(false),
                gone <- new_mutex!(Some(gone), "ochre_gone"),
                gone_ref,
                scheduler <- new_mutex!(scheduler, "ochre_scheduler"),
                ladder <- new_mutex!(Ladder::new(), "ochre_ladder"),
                clearer <- new_mutex!(Clearer::new(), "ochre_clearer"),
                registered <- new_mutex!(None, "ochre_registered"),
                accounting <- new_mutex!(0, "ochre_accounting"),
                insight <- new_mutex!(Insight::default(), "ochre_insight"),
                workers,
                run <- new_work!("ochre_run"),
                watch <- new_delayed_work!("ochre_watch"),
                slice <- new_delayed_work!("ochre_slice"),
                power_work <- new_work!("ochre_power"),
            }),
            GFP_KERNEL,
        )
    }

    /// The board.
    pub(crate) fn hal(&self) -> &dyn Hal {
        &*self.hal
    }

    /// The board, for someone who keeps it.
    pub(crate) fn hal_arc(&self) -> Arc<dyn Hal> {
        self.hal.clone()
    }

    /// What the board is.
    pub(crate) fn info(&self) -> &hal::Info {
        self.hal.info()
    }

    /// Name of the board.
    pub(crate) fn name(&self) -> &str {
        let name = &self.info().name;
        let end = name.iter().position(|&byte| byte == 0);
        let used = name.get(..end.unwrap_or(name.len())).unwrap_or(&[]);
        core::str::from_utf8(used).unwrap_or("?")
    }

    /// An engine. [`EINVAL`] if there is none with this number.
    pub(crate) fn engine(&self, id: EngineId) -> Result<&hal::Engine> {
        self.info().engines.get(id.index()).ok_or(EINVAL)
    }

    /// The device, for messages.
    pub(crate) fn dev(&self) -> Option<&device::Device> {
        self.dev.as_deref()
    }

    /// Time without progress after which a queue is reset, unless it asks otherwise, in ms.
    pub(crate) fn timeout_ms(&self) -> u32 {
        self.timeout_ms
    }

    /// Resets of the whole device since it was bound.
    pub(crate) fn resets(&self) -> u64 {
        self.resets.load(Relaxed)
    }

    /// Counts a reset of the whole device.
    pub(super) fn note_device_reset(&self) {
        self.resets.add(1, Relaxed);
    }

    /// Most ring words of one job: so that several fit into a ring.
    pub(crate) fn job_ring_words_max(&self) -> u64 {
        self.info().ring_words / 2
    }

    /// [`ENODEV`] once there is no board to work with.
    pub(crate) fn check(&self) -> Result {
        match self.presence() {
            Presence::Present => Ok(()),
            Presence::Wedged | Presence::Gone => Err(ENODEV),
        }
    }

    /// A fence that is signalled when there is no board to wait for any more.
    pub(crate) fn gone_fence(&self) -> FenceRef {
        self.gone_ref.clone()
    }

    fn presence(&self) -> Presence {
        Presence::from_raw(self.presence.load(Acquire))
    }

    /// Makes the scheduler's worker run soon. From a callback of a job that is not over, or with
    /// the scheduler's lock held and the scheduler not stopped.
    pub(super) fn kick(self: &Arc<Self>) {
        // An error says that it is queued already.
        let _ = self.workers.enqueue::<_, 0>(self.clone());
    }

    /// Makes the watchdog look in `ms`, whatever was planned. Same rule as for [`Self::kick`].
    pub(super) fn watch_in(self: &Arc<Self>, ms: u32) {
        workqueue::enqueue_or_move::<_, 1>(&self.workers, self.clone(), msecs_to_jiffies(ms));
    }

    /// Makes the watchdog look in `ms` at the latest. Same rule as for [`Self::kick`].
    pub(super) fn watch_at_latest_in(self: &Arc<Self>, ms: u32) {
        let _ = self
            .workers
            .enqueue_delayed::<_, 1>(self.clone(), msecs_to_jiffies(ms));
    }

    /// Makes a time slice begin, unless one has. Same rule as for [`Self::kick`].
    pub(super) fn start_time_slice(self: &Arc<Self>) {
        let _ = self
            .workers
            .enqueue_delayed::<_, 2>(self.clone(), msecs_to_jiffies(SLICE_MS));
    }

    /// Tells the GPU by which DRM device programs see it.
    pub(crate) fn attach(self: &Arc<Self>, device: RegisteredDevice<Driver>) {
        let insight = Insight::open(self, &device);
        *self.registered.lock() = Some(device);
        *self.insight.lock() = insight;
    }

    /// Gives the board up: it stays bound, but nobody can use it any more. From the worker.
    pub(super) fn wedge(self: &Arc<Self>) {
        if self.leave(Presence::Wedged) {
            self.power_close();
            self.hal.stop();
            self.drop_all_work();
            self.tell_user_space(WedgeRecovery::BusReset);
        }
    }

    /// Tells programs that watch over the machine about a reset of the device. From the worker.
    pub(super) fn tell_user_space(&self, recovery: WedgeRecovery) {
        let device = self.registered.lock().clone();
        if let Some(device) = device {
            device.wedged_event(recovery);
        }
    }

    /// The device is being unbound: ends everything. No hardware access happens after it has
    /// returned, all fences are signalled and no work runs.
    ///
    /// Called by the board's remove, with the board still there or not, before interrupts are freed
    /// and the DRM device is unregistered. Once is enough, twice does not harm.
    pub(crate) fn unplug(self: &Arc<Self>) {
        // First whoever waits, then the work: a waiter must not hold anything up.
        let first = self.leave(Presence::Gone);
        self.power_close();
        let insight = mem::take(&mut *self.insight.lock());
        drop(insight);
        workqueue::cancel_sync::<_, 0>(self);
        workqueue::cancel_delayed_sync::<_, 1>(self);
        workqueue::cancel_delayed_sync::<_, 2>(self);
        if first {
            // Only a stopped board does not write where freed memory was.
            self.hal.stop();
            self.drop_all_work();
        }
        // A callback of a job may have enqueued it once more before the job was dropped.
        workqueue::cancel_sync::<_, 0>(self);
        *self.registered.lock() = None;
    }

    /// To be called when jobs were dropped that no queue has taken: a fence that one of them waited
    /// for may have kicked the worker after [`Self::unplug`] had looked for the last time.
    pub(super) fn settle_kicks(self: &Arc<Self>) {
        if self.presence() == Presence::Gone {
            workqueue::cancel_sync::<_, 0>(self);
        }
    }

    /// Waits until the worker has done what it was kicked for. Not from the worker itself, and with
    /// no lock held. The worker never waits for the board, so this is short.
    pub(super) fn flush(&self) {
        self.workers.flush();
    }

    /// Takes note that there is no board any more, wakes who waits for it and stops the scheduler.
    /// Returns whether there was one until now.
    fn leave(&self, presence: Presence) -> bool {
        let before = match presence {
            Presence::Wedged => self
                .presence
                .cmpxchg(Presence::Present.raw(), presence.raw(), Full)
                .unwrap_or_else(|found| found),
            Presence::Present | Presence::Gone => self.presence.xchg(presence.raw(), Full),
        };
        let gone = self.gone.lock().take();
        if let Some(fence) = gone {
            fence.signal(Err(ENODEV));
        }
        self.scheduler.lock().stop();
        Presence::from_raw(before) == Presence::Present
    }

    /// Ends all jobs with [`ENODEV`] and lets go of all queues. The board is stopped, and so is the
    /// scheduler.
    fn drop_all_work(self: &Arc<Self>) {
        self.clearer.lock().forget();
        self.abandon_all();
    }
}
