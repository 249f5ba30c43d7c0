// SPDX-License-Identifier: GPL-2.0

//! [`Device`]: a virtio-gpu from probe until the last file is closed, and how commands get to it.

use kernel::{
    device,
    impl_has_delayed_work,
    impl_has_work,
    new_delayed_work,
    new_mutex,
    new_spinlock_irq,
    new_work,
    pci,
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            Acquire,
            Atomic,
            AtomicFlag,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex,
        SetOnce,
        SpinLockIrq, //
    },
    workqueue::{
        DelayedWork,
        Work,
        WorkItem, //
    }, //
};

use super::{
    buffers::{
        Buffers,
        DmaBuf, //
    },
    control::{
        memory::DmaRecords,
        queue::{
            Batch,
            Hardware,
            Phase,
            Queue, //
        },
        CleanupNode,
        Command,
        Reply,
        Room, //
    },
    driver::Driver,
    fences::{
        self,
        Timeline, //
    },
    ids::{
        self,
        Ids, //
    },
    irq::{
        Events,
        Vectors, //
    },
    keep::Keep,
    transport::{
        Notify,
        Transport, //
    },
    vring::DmaMemory,
    watchdog::Watchdog,
    wire, //
};
pub(super) use super::{
    features::Caps,
    wire::CapsetInfo, //
};
use crate::ext::{
    dma_fence::{
        self,
        Fence,
        FenceRef,
        WantSignal, //
    },
    drm_drv::RegisteredDevice,
    irq_work::{
        IrqWork,
        Run, //
    },
    wait::{
        new_wait_queue,
        WaitQueue, //
    },
    workqueue::{
        OwnedQueue,
        QueueFlags, //
    }, //
};

/// The queue of commands; the other one is for cursors, which this driver does not show.
pub(super) const CONTROL_QUEUE: u16 = 0;
/// Most commands that one reservation is for.
const ROOM_MAX: usize = 8;
/// How often one call collects answers before the worker goes on.
const ROUNDS_MAX: usize = 64;

/// How many things one call drops before the worker goes on.
const DEAD_MAX: usize = 4096;

/// For so many bytes to copy the device is notified, though nobody waits.
const SOON_BYTES: u64 = 256 << 10;
/// What [`Device::flush_soon`] takes each call for, at least.
const SOON_STEP: u64 = SOON_BYTES / 16;

/// The control queue of a device.
pub(super) type Control = Queue<DmaMemory, DmaRecords, Keep>;

/// What probe finds out before there is a [`Device`].
pub(super) struct Parts {
    pub(super) pdev: ARef<pci::Device>,
    pub(super) dev: ARef<device::Device>,
    pub(super) transport: Arc<Transport>,
    /// The features that were taken.
    pub(super) features: u64,
    pub(super) caps: Caps,
    pub(super) hardware: KBox<Hardware<DmaMemory, DmaRecords>>,
    /// How many records there are.
    pub(super) records: usize,
    pub(super) buffers: Arc<Buffers>,
    /// For the watchdog's questions.
    pub(super) ping: Arc<Reply>,
    pub(super) timeout_ms: u32,
}

/// A virtio-gpu.
#[pin_data]
pub(super) struct Device {
    pub(super) pdev: ARef<pci::Device>,
    dev: ARef<device::Device>,
    pub(super) transport: Arc<Transport>,
    pub(super) features: u64,
    caps: Caps,
    capsets: SetOnce<KVec<CapsetInfo>>,
    resource_ids: Ids<ids::Resource>,
    context_ids: Ids<ids::Context>,
    buffers: Arc<Buffers>,
    timeline: Timeline,

    /// Guards all that is in flight. Inside it only the pool of payloads is locked, and what
    /// [`Kept::done`](super::control::Kept::done) locks. Fences are signalled without it.
    #[pin]
    pub(super) queue: SpinLockIrq<Control>,
    /// Tasks that wait for room.
    #[pin]
    pub(super) room: WaitQueue,
    /// The queue's, to be read without its lock.
    pub(super) generation: Atomic<u64>,
    /// There is no device to talk to any more.
    pub(super) gone: AtomicFlag,
    /// The device refused to be reset, so bus mastering was taken from it.
    pub(super) muted: AtomicFlag,
    /// The device has to be notified.
    notify_due: AtomicFlag,
    /// Bytes of work for which [`Self::flush_soon`] has not notified it.
    put_off: Atomic<u64>,
    /// Somebody drops what is left of a device that is gone.
    clearing: AtomicFlag,
    pub(super) notify: SetOnce<Notify>,
    pub(super) vectors: SetOnce<Vectors>,

    /// Signalled when there is nothing to wait for any more. A leaf.
    #[pin]
    pub(super) gone_fence: Mutex<Option<Fence>>,
    gone_ref: FenceRef,
    /// The device as programs see it, while it is registered. A leaf.
    #[pin]
    pub(super) registered: Mutex<Option<RegisteredDevice<Driver>>>,

    /// What the worker knows; only it takes this, and the queue's lock inside.
    #[pin]
    pub(super) watchdog: Mutex<Watchdog>,
    pub(super) workers: OwnedQueue,
    #[pin]
    watch: DelayedWork<Device, 0>,
    /// Drops what commands kept. On a queue of its own, since it may have to wait for an exporter that
    /// waits for the device, which the watchdog looks after.
    droppers: OwnedQueue,
    #[pin]
    tidying: Work<Device, 1>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 0> for Device { self.watch }
}

impl_has_work! {
    impl HasWork<Self, 1> for Device { self.tidying }
}

impl WorkItem<1> for Device {
    type Pointer = Arc<Device>;

    fn run(this: Arc<Device>) {
        this.tidy();
    }
}

/// What a task that wants room finds.
enum Attempt {
    /// Room, in this generation.
    Room(u64),
    Gone,
    /// There is something to drop first.
    Tidy,
    Wait,
}

impl Device {
    /// Makes the driver's side of a device that is not set up yet.
    pub(super) fn new(parts: Parts) -> Result<Arc<Self>> {
        let Parts {
            pdev,
            dev,
            transport,
            features,
            caps,
            hardware,
            records,
            buffers,
            ping,
            timeout_ms,
        } = parts;
        let queue = Control::new(hardware, records)?;
        let gone_fence =
            Fence::prealloc(GFP_KERNEL)?.init(fences::NAME, dma_fence::context_alloc(1), 1);
        let gone_ref = gone_fence.reference();
        let timeline = Timeline::new(dma_fence::context_alloc(1));
        let resource_ids = Ids::new()?;
        let context_ids = Ids::new()?;
        let workers = OwnedQueue::new(c"ochre_virtio", QueueFlags::ORDERED.for_reclaim())?;
        let droppers = OwnedQueue::new(c"ochre_virtio_tidy", QueueFlags::ORDERED.for_reclaim())?;
        Arc::pin_init(
            try_pin_init!(Self {
                pdev,
                dev,
                transport,
                features,
                caps,
                capsets: SetOnce::new(),
                resource_ids,
                context_ids,
                buffers,
                timeline,
                generation: Atomic::new(queue.generation()),
                queue <- new_spinlock_irq!(queue, "ochre_virtio_queue"),
                room <- new_wait_queue!("ochre_virtio_room"),
                gone: AtomicFlag::new(false),
                muted: AtomicFlag::new(false),
                notify_due: AtomicFlag::new(false),
                put_off: Atomic::new(0),
                clearing: AtomicFlag::new(false),
                notify: SetOnce::new(),
                vectors: SetOnce::new(),
                gone_fence <- new_mutex!(Some(gone_fence), "ochre_virtio_gone"),
                gone_ref,
                registered <- new_mutex!(None, "ochre_virtio_registered"),
                watchdog <- new_mutex!(Watchdog::new(timeout_ms, ping), "ochre_virtio_watchdog"),
                workers,
                watch <- new_delayed_work!("ochre_virtio_watch"),
                droppers,
                tidying <- new_work!("ochre_virtio_tidying"),
            }),
            GFP_KERNEL,
        )
    }

    /// The device, for messages.
    pub(super) fn dev(&self) -> &device::Device {
        &self.dev
    }

    /// What programs can have of it.
    pub(super) fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Its capability sets, in the order in which it has them.
    pub(super) fn capsets(&self) -> &[CapsetInfo] {
        self.capsets.as_ref().map_or(&[], |capsets| capsets)
    }

    /// Takes note of the capability sets, once.
    pub(super) fn set_capsets(&self, capsets: KVec<CapsetInfo>) {
        self.capsets.populate(capsets);
    }

    /// The ids of its capability sets, a bit for each.
    pub(super) fn capset_mask(&self) -> u64 {
        let bits = self.capsets().iter().map(|info| 1u64 << (info.id & 63));
        bits.fold(0, |mask, bit| mask | bit)
    }

    /// [`ENODEV`] once there is no device to talk to.
    pub(super) fn check(&self) -> Result {
        if self.gone.load(Acquire) {
            return Err(ENODEV);
        }
        Ok(())
    }

    /// How often it was set up. What was made in an earlier generation is lost.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// Numbers of resources.
    pub(super) fn resource_ids(&self) -> &Ids<ids::Resource> {
        &self.resource_ids
    }

    /// Numbers of contexts.
    pub(super) fn context_ids(&self) -> &Ids<ids::Context> {
        &self.context_ids
    }

    /// Memory for payloads.
    pub(super) fn buffers(&self) -> &Arc<Buffers> {
        &self.buffers
    }

    /// A fence that is signalled when there is nothing to wait for any more.
    pub(super) fn gone_fence(&self) -> FenceRef {
        self.gone_ref.clone()
    }

    /// The order of all commands that name no ring.
    pub(super) fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Memory for a payload; enters the device if the pool has none. [`ENOMEM`], [`E2BIG`],
    /// [`ENODEV`].
    pub(super) fn alloc(&self, len: usize) -> Result<DmaBuf> {
        if let Some(found) = self.buffers.pooled(len) {
            return Ok(found);
        }
        let registered = self.registered.lock().clone().ok_or(ENODEV)?;
        let guard = registered.enter().ok_or(ENODEV)?;
        guard.registration_data_with(|bound| self.buffers.alloc(bound.dev, len))
    }

    fn attempt(&self, count: usize) -> Attempt {
        let mut queue = self.queue.lock();
        match queue.phase() {
            Phase::Gone => Attempt::Gone,
            Phase::Running if queue.take_room(count) => Attempt::Room(queue.generation()),
            Phase::Running if queue.has_dead() => Attempt::Tidy,
            Phase::Running | Phase::Resetting => Attempt::Wait,
        }
    }

    /// Waits, interruptibly, until `count` commands may be sent, at most 8. Waits out a reset.
    ///
    /// [`ERESTARTSYS`]; [`ENODEV`]; [`EINVAL`]: that is too many. No lock may be held that is taken
    /// when a command is over and what it kept is dropped.
    pub(super) fn reserve(self: &Arc<Self>, count: usize) -> Result<Room<'_>> {
        if count > ROOM_MAX {
            return Err(EINVAL);
        }
        let mut attempt = self.attempt(count);
        if !matches!(attempt, Attempt::Room(_)) {
            attempt = self.wait_for_room(count)?;
        }
        match attempt {
            Attempt::Room(generation) => Ok(Room {
                device: self,
                left: count,
                generation,
            }),
            _ => Err(ENODEV),
        }
    }

    #[cold]
    fn wait_for_room(self: &Arc<Self>, count: usize) -> Result<Attempt> {
        // What was sent and not shown yet would not make any.
        self.flush();
        self.drain();
        let hot = {
            let mut queue = self.queue.lock();
            queue.wait_for_room(true);
            queue.take_hot()
        };
        if hot {
            self.drain();
        }
        let outcome = loop {
            let mut attempt = Attempt::Wait;
            let waited = self.room.wait_interruptible(None, || {
                attempt = self.attempt(count);
                !matches!(attempt, Attempt::Wait)
            });
            match (waited, attempt) {
                (_, Attempt::Tidy) => self.tidy(),
                (_, attempt @ (Attempt::Room(_) | Attempt::Gone)) => break Ok(attempt),
                (Err(error), Attempt::Wait) => break Err(error),
                (Ok(_), Attempt::Wait) => {}
            }
        };
        self.queue.lock().wait_for_room(false);
        outcome
    }

    /// Gives back room, and shows the device what was sent.
    pub(super) fn give_back_room(self: &Arc<Self>, count: usize) {
        let mut queue = self.queue.lock();
        queue.give_room(count);
        let (notify, waits) = (queue.publish(), queue.is_waited_for());
        drop(queue);
        if notify {
            self.notify_due.store(true, Release);
        }
        if waits {
            self.room.wake_all();
        }
    }

    /// Sends a command behind all earlier ones, in the generation of the room. Returns its fence.
    /// With the last command that there is room for, all become visible to the device, which is
    /// notified by [`Self::flush`]. That has to follow when no lock is held any more.
    ///
    /// Cannot fail: what is not sent ends with [`EIO`] or [`ENODEV`].
    pub(super) fn submit(
        self: &Arc<Self>,
        room: &mut Room<'_>,
        command: Command<'_>,
    ) -> Option<FenceRef> {
        if kernel::warn_on!(room.left == 0) {
            return None;
        }
        room.left -= 1;
        self.send(room.left == 0, |queue| {
            queue.submit(room.generation, command)
        })
    }

    /// Sends what must not fail, behind all earlier commands, to the device of `generation`; after a
    /// reset there is nothing to clean up. [`Self::flush`] has to follow. Atomic.
    pub(super) fn submit_cleanup(
        self: &Arc<Self>,
        node: CleanupNode,
        generation: u64,
        request: wire::Request,
        keep: Option<Keep>,
    ) {
        self.send(true, |queue| {
            queue.submit_cleanup(node, generation, request, keep);
        });
    }

    /// Lets `f` put something into the queue, and shows it to the device if it is all.
    ///
    /// Drops nothing of what commands kept, as whoever calls may hold a reservation.
    #[inline]
    fn send<R>(self: &Arc<Self>, all: bool, f: impl FnOnce(&mut Control) -> R) -> R {
        let mut queue = self.queue.lock();
        let result = f(&mut queue);
        let notify = all && queue.publish();
        let hot = queue.take_hot();
        if queue.take_unwatched() {
            self.watch_soon();
        }
        drop(queue);
        if notify {
            self.notify_due.store(true, Release);
        }
        if hot {
            self.drain();
        }
        result
    }

    /// Notifies the device of what was sent, if it wants to know, and drops what was sent to a device
    /// that is gone. Once for each ioctl is enough.
    ///
    /// As [`Self::tidy`]; it may take long.
    pub(super) fn flush(self: &Arc<Self>) {
        self.notify();
        if self.gone.load(Acquire) {
            self.clear();
        }
    }

    /// As [`Self::flush`], for what nobody waits for yet and what costs the device no more than copying
    /// `bytes`: it is notified when enough of that has come together, when somebody waits or sends
    /// something else, and otherwise by the worker. A notification costs more than a small copy.
    pub(super) fn flush_soon(self: &Arc<Self>, bytes: u64) {
        let bytes = bytes.max(SOON_STEP);
        if self.put_off.fetch_add(bytes, Relaxed) + bytes >= SOON_BYTES {
            self.notify();
        }
        if self.gone.load(Acquire) {
            self.clear();
        }
    }

    /// As [`Self::flush`], but drops nothing: for whoever holds a reservation.
    pub(super) fn notify(&self) {
        if self.notify_due.load(Relaxed) && self.notify_due.xchg(false, Full) {
            self.put_off.store(0, Relaxed);
            // What was put off may have been lost in a reset, during which the device wants no
            // notification.
            if self.queue.lock().phase() == Phase::Running {
                self.ring_bell();
            }
        }
    }

    pub(super) fn ring_bell(&self) {
        if let Some(notify) = self.notify.as_ref() {
            // A device that is gone needs no notification.
            let _ = self.transport.notify(notify);
        }
    }

    /// For whoever is about to wait: notifies the device if that was put off, and takes what it has
    /// answered by now, also if nobody has asked for an interrupt.
    ///
    /// In process context, as [`Self::tidy`].
    pub(super) fn reap(self: &Arc<Self>) {
        self.notify();
        self.drain();
        if self.gone.load(Acquire) {
            self.clear();
        }
    }

    /// Takes all answers and tells whoever wants to know. In any context, with no lock held.
    pub(super) fn drain(self: &Arc<Self>) {
        let mut batch = Batch::new();
        let mut queue = self.queue.lock();
        if !queue.start_collecting() {
            return;
        }
        for round in 1.. {
            let more = queue.collect(&mut batch);
            if !batch.is_empty() {
                drop(queue);
                batch.signal();
                queue = self.queue.lock();
            }
            let enough = round == ROUNDS_MAX;
            if (enough || !more) && queue.stop_collecting(enough) {
                if queue.phase() == Phase::Running && (enough || queue.broken().is_some()) {
                    self.watch_now();
                }
                break;
            }
        }
        let (notify, waits) = (queue.publish(), queue.is_waited_for());
        drop(queue);
        if notify {
            self.ring_bell();
        }
        if waits {
            self.room.wake_all();
        }
    }

    /// Tells and drops all that is left of a device that is gone, as nobody else will. As
    /// [`Self::tidy`].
    ///
    /// One does it for all: dropping a BO leads here again, which would take more and more of the
    /// stack.
    pub(super) fn clear(self: &Arc<Self>) {
        // Ends, since nothing is sent any more: each turn but the last drops something.
        loop {
            if self.clearing.xchg(true, Full) {
                return;
            }
            self.drain();
            self.tidy();
            self.clearing.xchg(false, Full);
            // Somebody may have left something to us meanwhile.
            let mut queue = self.queue.lock();
            if queue.is_collecting() || !queue.has_leftovers() {
                return;
            }
        }
    }

    /// Has [`Self::tidy`] called by a worker. Not when the device is gone: so no work outlives it.
    pub(super) fn tidy_soon(self: &Arc<Self>) {
        // An error says that it will be called anyway.
        let _ = self.droppers.enqueue::<_, 1>(self.clone());
    }

    /// Drops what commands kept alive that are over. In process context, with no lock held that such
    /// a drop takes.
    pub(super) fn tidy(self: &Arc<Self>) {
        for _ in 0..DEAD_MAX {
            let dead = self.queue.lock().take_dead();
            if dead.is_none() {
                break;
            }
        }
        let mut queue = self.queue.lock();
        let (notify, waits) = (queue.publish(), queue.is_waited_for());
        drop(queue);
        if notify {
            self.notify_due.store(true, Release);
        }
        // Also of what the drops have put off.
        self.notify();
        if waits {
            self.room.wake_all();
        }
    }
}

/// Who hears the interrupts of a device, and that somebody waits for a fence. Its work is to notify
/// the device if that was put off, and to take answers that were there before somebody waited, and
/// so raised no interrupt.
pub(super) type Ears = IrqWork<Ear>;

/// What [`Ears`] know.
pub(super) struct Ear(pub(super) Arc<Device>);

impl Run for Ear {
    fn run(&self) {
        self.0.notify();
        self.0.drain();
    }
}

impl Events for Ears {
    fn on_control_irq(&self) -> bool {
        self.0.drain();
        false
    }

    // The worker does what takes longer.
    fn on_control_thread(&self) {}

    fn on_config_change(&self) {
        self.0.on_config_change();
    }
}

impl WantSignal for Ears {
    fn wanted(&self, cookie: u64) {
        let mut queue = self.0.queue.lock();
        queue.want_cookie(cookie);
        // Not here, with the fence's lock held.
        if queue.take_hot() || self.0.notify_due.load(Relaxed) {
            self.queue();
        }
    }
}
