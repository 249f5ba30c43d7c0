// SPDX-License-Identifier: GPL-2.0

//! A job: commands for one queue, what it waits for, and the fence that tells its end.

use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};

use crate::{
    ext::dma_fence::{
        Armed,
        CallbackNode,
        DmaFence,
        Fence,
        FenceCallback,
        FenceRef,
        FenceStatus, //
    },
    gpu::{
        queue::Queue,
        vram::VramBlock,
        Gpu, //
    },
    hal::Command, //
};

/// Something that has to be over before a job begins, and well.
pub(crate) enum Dependency {
    /// A fence.
    Fence(FenceRef),
    /// A job before it in the same queue. Order is given; only its failure matters. (Not the job
    /// itself: a chain of them would be dropped recursively.)
    Earlier(Arc<Refusal>),
}

/// Whether a job was refused to run because of what it waited for.
pub(crate) struct Refusal(Atomic<i32>);

impl Refusal {
    /// The error that the job carries, if it did not run.
    fn check(&self) -> Result {
        to_result(self.0.load(Acquire))
    }
}

/// Counts a job's fences down and has the scheduler look at its queue.
struct Countdown {
    fired: Atomic<u32>,
    queue: Arc<Queue>,
    gpu: Arc<Gpu>,
}

/// One fence of the countdown.
struct Step(Arc<Countdown>);

impl FenceCallback for Step {
    fn signaled(&self, _fence: &DmaFence) {
        // The scheduler takes the mark away before it reads the count, so that none is missed.
        self.0.fired.fetch_add(1, Full);
        self.0.queue.mark();
        self.0.gpu.kick();
    }
}

/// A job that has been given to a queue.
pub(crate) struct Job {
    queue: Arc<Queue>,
    /// Work for the ring, without the fence at the end.
    commands: KVec<Command>,
    /// Words of the ring that it takes with the fence.
    ring_words: u32,
    dependencies: KVec<Dependency>,
    countdown: Arc<Countdown>,
    /// Fences that were not signalled when the job was made. Dropped before what they count in.
    nodes: KVec<Pin<KBox<CallbackNode<Step>>>>,
    /// Of `countdown.fired`, what the scheduler knows of. Under the scheduler's lock.
    reported: Atomic<u32>,
    refusal: Arc<Refusal>,
    /// Position in the ring up to which it only waits; `u64::MAX` as long as it is not in the ring.
    start: Atomic<u64>,
    /// What the job writes to and nobody else keeps.
    _target: Option<Arc<VramBlock>>,
}

/// A job on its queue's timeline, with the duty to signal its fence.
pub(crate) struct Issued {
    /// The job.
    pub(crate) job: Arc<Job>,
    /// Its fence.
    pub(crate) fence: Fence,
}

impl Job {
    /// Makes a job and begins to count its fences. `target` is kept until the job is over. Sleeps for
    /// memory.
    ///
    /// [`EINVAL`]: it would not fit into a ring.
    pub(crate) fn new(
        gpu: &Arc<Gpu>,
        queue: &Arc<Queue>,
        commands: KVec<Command>,
        dependencies: KVec<Dependency>,
        target: Option<Arc<VramBlock>>,
    ) -> Result<Arc<Self>> {
        let hal = gpu.hal();
        let body: u64 = commands.iter().map(|command| hal.words(command)).sum();
        let ring_words = body.saturating_add(hal.words(&Command::Fence { seqno: 0 }));
        if ring_words > gpu.job_ring_words_max() {
            return Err(EINVAL);
        }
        let ring_words = u32::try_from(ring_words)?;

        let countdown = Arc::new(
            Countdown {
                fired: Atomic::new(0),
                queue: queue.clone(),
                gpu: gpu.clone(),
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        let mut nodes = KVec::new();
        for dependency in &dependencies {
            let Dependency::Fence(fence) = dependency else {
                continue;
            };
            if fence.is_signaled() {
                continue;
            }
            let step = CallbackNode::new(Step(countdown.clone()));
            let mut node = KBox::pin_init(step, GFP_KERNEL_ACCOUNT)?;
            if node.as_mut().arm(fence.clone()) == Armed::Pending {
                nodes.push(node, GFP_KERNEL_ACCOUNT)?;
            }
        }

        Ok(Arc::new(
            Self {
                queue: queue.clone(),
                commands,
                ring_words,
                dependencies,
                countdown,
                nodes,
                reported: Atomic::new(0),
                refusal: Arc::new(Refusal(Atomic::new(0)), GFP_KERNEL_ACCOUNT)?,
                start: Atomic::new(u64::MAX),
                _target: target,
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// The queue.
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }

    /// What a later job of the same ioctl has to know that waits for this one.
    pub(crate) fn refusal(&self) -> &Arc<Refusal> {
        &self.refusal
    }

    /// The commands without the fence.
    pub(crate) fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Words of the ring that it takes with its fence.
    pub(crate) fn ring_words(&self) -> u32 {
        self.ring_words
    }

    /// Fences that the job still waits for; those signalled from now on come out of
    /// [`Self::newly_signaled`]. Once, under the scheduler's lock.
    pub(crate) fn outstanding(&self) -> u32 {
        let fired = self.countdown.fired.load(Acquire);
        self.reported.store(fired, Relaxed);
        u32::try_from(self.nodes.len())
            .unwrap_or(u32::MAX)
            .saturating_sub(fired)
    }

    /// Fences that were signalled since the last call. Under the scheduler's lock.
    pub(crate) fn newly_signaled(&self) -> u32 {
        let fired = self.countdown.fired.load(Acquire);
        let known = self.reported.load(Relaxed);
        self.reported.store(fired, Relaxed);
        fired.wrapping_sub(known)
    }

    /// Whether what it waited for ended well. Once all of it is over; otherwise the job has to
    /// carry the error, and who waits for this one sees it too.
    pub(crate) fn check_dependencies(&self) -> Result {
        let error = self.dependencies.iter().find_map(|d| match d {
            Dependency::Fence(fence) => match fence.status() {
                FenceStatus::Failed(error) => Some(error),
                FenceStatus::Pending | FenceStatus::Done => None,
            },
            Dependency::Earlier(refusal) => refusal.check().err(),
        });
        match error {
            Some(error) => {
                self.refusal.0.store(error.to_errno(), Release);
                Err(error)
            }
            None => Ok(()),
        }
    }

    /// Notes up to where in the ring the job only waits.
    pub(crate) fn set_work_start(&self, position: u64) {
        self.start.store(position, Release);
    }

    /// Whether a board that is at `position` of the ring cannot have begun the job's work.
    pub(crate) fn is_untouched_at(&self, position: u64) -> bool {
        position < self.start.load(Acquire)
    }
}
