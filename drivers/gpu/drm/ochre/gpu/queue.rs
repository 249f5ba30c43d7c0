// SPDX-License-Identifier: GPL-2.0

//! A queue: jobs of one address space for one engine, run in order.
//!
//! This is the queue as memory: its ring, what the board writes back about it, and what became of
//! it. What it has to do and when stands in the scheduler ([`super::scheduler`]); the ioctls around
//! it are in [`super::queue_ioctl`].

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            AtomicFlag,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    }, //
};

use crate::{
    algo::{
        ring::{
            Pos,
            Ring, //
        },
        sched::{
            Priority,
            SlotId, //
        },
        timeline::Seqno, //
    },
    ext::{
        dma_fence::{
            self,
            TimelineName, //
        },
        uapi,
        wait::{
            new_wait_queue,
            WaitQueue, //
        }, //
    },
    gpu::{
        elements,
        file::Usage,
        job::Job,
        vm::Vm,
        Gpu, //
    },
    hal::{
        Command,
        EngineClass,
        EngineId,
        Fault,
        FenceValue,
        HwQueue,
        QueueConfig,
        Status,
        Words, //
    }, //
};

/// What a queue is asked to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    /// Priority among the queues of its engine.
    pub(crate) priority: Priority,
    /// Time without progress after which it is reset, in ms.
    pub(crate) timeout_ms: u32,
    /// Time slice in µs.
    pub(crate) quantum_us: u32,
    /// Its jobs want the fastest clocks, whatever the governor thinks.
    pub(crate) boost: bool,
}

/// What became of a queue: `enum drm_ochre_queue_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// Takes jobs.
    Ok,
    /// Made no progress and was, or is about to be, reset.
    Hung,
    /// Faulted and was, or is about to be, reset.
    Faulted,
    /// Was lost when its engine or the device was reset for another's sake.
    Innocent,
}

impl Health {
    /// The number.
    pub(crate) fn raw(self) -> u32 {
        match self {
            Self::Ok => uapi::drm_ochre_queue_state_DRM_OCHRE_QUEUE_OK,
            Self::Hung => uapi::drm_ochre_queue_state_DRM_OCHRE_QUEUE_HUNG,
            Self::Faulted => uapi::drm_ochre_queue_state_DRM_OCHRE_QUEUE_FAULTED,
            Self::Innocent => uapi::drm_ochre_queue_state_DRM_OCHRE_QUEUE_INNOCENT,
        }
    }
}

/// What a queue has been through, for RESET_QUERY.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// What became of it.
    pub(crate) health: Health,
    /// The fault that stopped it.
    pub(crate) fault: Option<Fault>,
    /// Resets that it caused.
    pub(crate) resets: u64,
}

/// The ring and the hardware's side of it.
struct Hardware {
    /// [`None`] once the queue is gone from the hardware for good.
    hw: Option<KBox<dyn HwQueue>>,
    ring: Ring,
    /// Where the words of a job are put together; long enough for any.
    scratch: KVec<u64>,
    /// The board's busy time that is accounted already.
    busy_ns: u64,
}

/// A queue.
#[pin_data]
pub(crate) struct Queue {
    id: u16,
    engine: EngineId,
    class: EngineClass,
    properties: Properties,
    fence_context: u64,
    credits: u32,
    /// A fence that one of its jobs waits for was signalled since the scheduler last looked.
    marked: AtomicFlag,
    /// It takes no more jobs.
    closed: AtomicFlag,
    /// Jobs that are not over.
    backlog: Atomic<u32>,
    /// Guards the ring. Inside the scheduler's lock.
    #[pin]
    hardware: Mutex<Hardware>,
    /// A leaf.
    #[pin]
    record: Mutex<Record>,
    /// Who waits for room in the queue.
    #[pin]
    room: WaitQueue,
    usage: Arc<Usage>,
    /// Held until the hardware has let go of the queue.
    vm: Arc<Vm>,
}

/// Most jobs of one queue that are not over: [`elements::JOBS_MAX`] always fit into an empty one.
const BACKLOG_MAX: u32 = 1024;
const _: () = assert!(elements::JOBS_MAX <= BACKLOG_MAX);

/// Name of the queues' timelines in traces.
const TIMELINE: TimelineName = TimelineName {
    driver: c"ochre",
    timeline: c"queue",
};

impl Queue {
    /// Makes a queue with hardware id `id`, which the caller has reserved.
    pub(crate) fn new(
        gpu: &Gpu,
        id: u16,
        engine: EngineId,
        vm: Arc<Vm>,
        properties: Properties,
        usage: Arc<Usage>,
    ) -> Result<Arc<Self>> {
        let class = gpu.engine(engine)?.class;
        let hw = gpu.hal().new_queue(&QueueConfig {
            id,
            context: vm.context(),
            priority: properties.priority,
            quantum_us: properties.quantum_us,
        })?;
        let ring = Ring::new(gpu.info().ring_words)?;
        let fence_words = gpu.hal().words(&Command::Fence { seqno: 0 });
        let credits = u32::try_from(ring.capacity().saturating_sub(fence_words))?;
        let scratch = KVec::zeroed(
            usize::try_from(gpu.job_ring_words_max())?,
            GFP_KERNEL_ACCOUNT,
        )?;

        Arc::pin_init(
            pin_init!(Self {
                id,
                engine,
                class,
                properties,
                fence_context: dma_fence::context_alloc(1),
                credits,
                marked: AtomicFlag::new(false),
                closed: AtomicFlag::new(false),
                backlog: Atomic::new(0),
                hardware <- new_mutex!(
                    Hardware {
                        hw: Some(hw),
                        ring,
                        scratch,
                        busy_ns: 0,
                    },
                    "ochre_queue"
                ),
                record <- new_mutex!(
                    Record {
                        health: Health::Ok,
                        fault: None,
                        resets: 0,
                    },
                    "ochre_queue_record"
                ),
                room <- new_wait_queue!("ochre_queue_room"),
                usage,
                vm,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Hardware id.
    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    /// The engine it runs on.
    pub(crate) fn engine(&self) -> EngineId {
        self.engine
    }

    /// What it was asked to be.
    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Ring words that the jobs in the ring may take together: one packet's room is left, since the
    /// board frees the words of a job's fence only after the fence.
    pub(crate) fn credits(&self) -> u32 {
        self.credits
    }

    /// Context number of its fences.
    pub(crate) fn fence_context(&self) -> u64 {
        self.fence_context
    }

    /// Name of its fences' timeline.
    pub(crate) fn timeline_name(&self) -> TimelineName {
        TIMELINE
    }

    /// Who waits until fewer jobs are queued, or the queue or the device is gone.
    pub(crate) fn room(&self) -> &WaitQueue {
        &self.room
    }

    /// What it has been through.
    pub(crate) fn record(&self) -> Record {
        *self.record.lock()
    }

    /// Notes why the queue is lost. The first reason stays.
    pub(crate) fn note_lost(&self, health: Health, fault: Option<Fault>) {
        let mut record = self.record.lock();
        if record.health == Health::Ok {
            record.health = health;
            record.fault = fault;
        }
    }

    /// Counts a reset that the queue caused.
    pub(crate) fn note_reset(&self) {
        let mut record = self.record.lock();
        record.resets = record.resets.saturating_add(1);
    }

    /// Takes no more jobs; who waits for room hears of it.
    pub(crate) fn close(&self) {
        self.closed.store(true, Release);
        self.room.wake_all();
    }

    /// Whether it takes no more jobs.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// Address space of its jobs.
    pub(crate) fn vm(&self) -> &Vm {
        &self.vm
    }

    /// Jobs that are not over.
    pub(crate) fn backlog(&self) -> u32 {
        self.backlog.load(Relaxed)
    }

    /// Whether `count` jobs more may be queued.
    pub(crate) fn has_room(&self, count: u32) -> bool {
        self.backlog.load(Acquire).saturating_add(count) <= BACKLOG_MAX
    }

    /// Counts jobs that were queued. Under the scheduler's lock.
    pub(crate) fn enter_backlog(&self, count: u32) {
        self.backlog.add(count, Relaxed);
        self.vm.add_jobs(count);
    }

    /// Counts a job that is over. Under the scheduler's lock.
    pub(crate) fn leave_backlog(&self) {
        self.backlog.fetch_sub(1, Full);
        self.vm.end_job();
    }

    /// Has the scheduler look at the fences of its jobs. In any context.
    pub(crate) fn mark(&self) {
        self.marked.store(true, Release);
    }

    /// Whether it was marked; takes the mark away.
    pub(crate) fn take_mark(&self) -> bool {
        self.marked.xchg(false, Full)
    }

    /// Writes a job into the ring and lets the board see it. With `skip`, only the job's fence.
    ///
    /// [`ENODEV`]: the hardware is gone. Other errors: the ring is not as it should be.
    pub(crate) fn write(&self, job: &Job, seqno: Seqno, skip: bool) -> Result {
        let mut guard = self.hardware.lock();
        let this = &mut *guard;
        let hw = this.hw.as_deref().ok_or(ENODEV)?;

        let mut words = Words::new(&mut this.scratch);
        // Words before the first that does more than wait.
        let mut waits = None;
        if !skip {
            for command in job.commands() {
                if !matches!(command, Command::Wait { .. }) {
                    waits = waits.or(Some(words.filled().len()));
                }
                hw.encode(command, &mut words)?;
            }
        }
        let seqno = seqno.get();
        hw.encode(&Command::Fence { seqno }, &mut words)?;
        let words = words.filled();

        this.ring.update_rptr(hw.status().rptr)?;
        let room = this.ring.reserve(u64::try_from(words.len())?)?;
        let (first, second) = room.spans();
        let (head, tail) = words.split_at_checked(first.len()).ok_or(EIO)?;
        hw.write(first.start, head)?;
        if !tail.is_empty() {
            hw.write(second.start, tail)?;
        }
        let start = room.start().get();
        let commit = room.commit();
        job.set_work_start(match waits {
            Some(words) => start.saturating_add(u64::try_from(words)?),
            None => commit.new.get(),
        });
        if commit.needs_doorbell(hw.publish(commit.new)) {
            hw.doorbell()?;
        }
        Ok(())
    }

    /// Puts the queue into an empty slot: as it was saved (`resume`), or where the board stopped
    /// to fetch.
    pub(crate) fn bind(&self, slot: SlotId, resume: bool) -> Result {
        let mut guard = self.hardware.lock();
        let this = &mut *guard;
        let hw = this.hw.as_deref().ok_or(ENODEV)?;
        this.ring.update_rptr(hw.status().rptr)?;
        hw.bind(slot, this.ring.rptr(), resume)
    }

    /// Begins to take the queue out of `slot`.
    pub(crate) fn unbind(&self, slot: SlotId) -> Result {
        let guard = self.hardware.lock();
        guard.hw.as_deref().ok_or(ENODEV)?.unbind(slot)
    }

    /// Position of the next word that the board fetches, checked.
    pub(crate) fn position(&self) -> Result<Pos> {
        let mut guard = self.hardware.lock();
        let this = &mut *guard;
        let status = this.hw.as_deref().ok_or(ENODEV)?.status();
        this.ring.update_rptr(status.rptr)?;
        Ok(this.ring.rptr())
    }

    /// What the board last wrote about the queue, as long as it is there. Accounts its busy time.
    pub(crate) fn status(&self) -> Option<Status> {
        let mut guard = self.hardware.lock();
        let status = guard.hw.as_deref()?.status();
        // It counts from 0 when the queue was bound anew after a reset.
        let busy = status
            .busy_ns
            .checked_sub(guard.busy_ns)
            .unwrap_or(status.busy_ns);
        guard.busy_ns = status.busy_ns;
        drop(guard);
        self.usage.add_busy(self.class, busy);
        Some(status)
    }

    /// The fence record as the board last wrote it, as long as the queue is there.
    pub(crate) fn fence_value(&self) -> Option<FenceValue> {
        Some(self.hardware.lock().hw.as_deref()?.fence())
    }

    /// Lets go of the hardware's side for good. No slot may hold the queue.
    pub(crate) fn release_hardware(&self) {
        self.status();
        let hw = self.hardware.lock().hw.take();
        // Frees memory: outside the lock.
        drop(hw);
    }
}
