// SPDX-License-Identifier: GPL-2.0

//! The ioctl SUBMIT: jobs from user space to a queue, all or none.
//!
//! First everything that can fail: reading, looking up, memory. Then the wait for room, which can
//! be interrupted. Then one step under the scheduler's lock that either refuses or takes all jobs
//! ([`Gpu::submit`]).

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    ext::{
        dma_fence::{
            Fence,
            FenceRef,
            FenceSlot, //
        },
        uapi, //
    },
    gpu::{
        driver::{
            DrmFile,
            IoctlDevice, //
        },
        elements,
        job::{
            Dependency,
            Job, //
        },
        log::gpu_dbg,
        queue::Queue,
        sync::{
            self,
            Allow,
            Signal,
            Syncs,
            Wait, //
        },
        Gpu, //
    },
    hal::Command, //
};

/// A job for which all that can fail has been done.
pub(crate) struct Prepared {
    /// The job.
    pub(crate) job: Arc<Job>,
    /// Memory for its fence.
    pub(crate) fence: FenceSlot,
    /// Sync objects that will hold its fence.
    pub(crate) signals: KVec<Signal>,
}

impl Prepared {
    /// Prepares a job.
    pub(crate) fn new(job: Arc<Job>, signals: KVec<Signal>) -> Result<Self> {
        Ok(Self {
            job,
            fence: Fence::prealloc(GFP_KERNEL_ACCOUNT)?,
            signals,
        })
    }
}

/// Gives jobs to a queue, all or none, when it has room for them. Returns the fence of the last.
///
/// Waits for room, interruptibly: no lock may be held. [`ECANCELED`]: the queue is lost;
/// [`ENODEV`]; [`ERESTARTSYS`].
pub(crate) fn submit(
    gpu: &Arc<Gpu>,
    queue: &Arc<Queue>,
    mut jobs: KVec<Prepared>,
) -> Result<FenceRef> {
    let count = u32::try_from(jobs.len())?;
    // Each turn waits until there is room; whoever takes it first has it.
    loop {
        match gpu.submit(queue, &mut jobs) {
            Err(error) if error == EAGAIN => {}
            result => return result,
        }
        queue
            .room()
            .wait_interruptible(None, || queue.has_room(count) || queue.is_closed())?;
    }
}

/// `DRM_IOCTL_OCHRE_SUBMIT`.
pub(crate) fn ioctl(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_ochre_submit,
) -> Result<u32> {
    let gpu = dev.gpu();
    gpu.check()?;
    read_and_submit(gpu, file, args).inspect_err(|_| gpu.settle_kicks())
}

fn read_and_submit(gpu: &Arc<Gpu>, file: &DrmFile, args: &uapi::drm_ochre_submit) -> Result<u32> {
    if args.flags != 0 || args.extensions != 0 || args.job_count == 0 {
        return Err(EINVAL);
    }
    let queue = file.inner().queues().get(args.queue)?;

    let wanted = elements::read::<uapi::drm_ochre_job>(
        args.jobs,
        args.job_count,
        args.job_stride,
        elements::JOBS_MAX,
    )?;
    let mut all_syncs = KVVec::with_capacity(wanted.len(), GFP_KERNEL_ACCOUNT)?;
    for job in &wanted {
        check(gpu, job)?;
        let syncs = Syncs::read(
            gpu,
            file,
            job.syncs,
            job.sync_count,
            job.sync_stride,
            Allow {
                user_fence: true,
                signal: true,
            },
            &all_syncs,
        )?;
        all_syncs.push(syncs, GFP_KERNEL_ACCOUNT)?;
    }

    let mut jobs = KVec::with_capacity(wanted.len(), GFP_KERNEL_ACCOUNT)?;
    for (job, syncs) in wanted.iter().zip(all_syncs) {
        let prepared = prepare(gpu, &queue, job, syncs, &jobs)?;
        jobs.push(prepared, GFP_KERNEL_ACCOUNT)?;
    }
    submit(gpu, &queue, jobs)?;
    Ok(0)
}

/// Checks the fields of a job.
fn check(gpu: &Gpu, job: &uapi::drm_ochre_job) -> Result {
    if job.flags != 0 || job.reserved != [0; 2] {
        return Err(EINVAL);
    }
    if job.words == 0 {
        return if job.addr == 0 { Ok(()) } else { Err(EINVAL) };
    }
    if job.words > gpu.info().job_words_max {
        gpu_dbg!(gpu, "job of {} words\n", job.words);
        return Err(EINVAL);
    }
    sync::check_va(gpu, job.addr, u64::from(job.words) * 8)
}

/// Makes a job of what user space wants. `earlier` are those before it in the same ioctl.
fn prepare(
    gpu: &Arc<Gpu>,
    queue: &Arc<Queue>,
    wanted: &uapi::drm_ochre_job,
    syncs: Syncs,
    earlier: &[Prepared],
) -> Result<Prepared> {
    let Syncs {
        waits,
        signals,
        user_waits,
        user_signals,
    } = syncs;

    let mut commands = KVec::with_capacity(
        user_waits.len() + user_signals.len() + 1,
        GFP_KERNEL_ACCOUNT,
    )?;
    for wait in user_waits {
        let (addr, value) = (wait.addr, wait.value);
        commands.push(Command::Wait { addr, value }, GFP_KERNEL_ACCOUNT)?;
    }
    if wanted.words != 0 {
        let (addr, words) = (wanted.addr, wanted.words);
        commands.push(Command::Indirect { addr, words }, GFP_KERNEL_ACCOUNT)?;
    }
    for signal in user_signals {
        let (addr, value) = (signal.addr, signal.value);
        commands.push(Command::Signal { addr, value }, GFP_KERNEL_ACCOUNT)?;
    }

    let mut dependencies = KVec::with_capacity(waits.len(), GFP_KERNEL_ACCOUNT)?;
    for wait in waits {
        let dependency = match wait {
            Wait::Fence(fence) => Dependency::Fence(fence),
            Wait::Earlier(index) => {
                Dependency::Earlier(earlier.get(index).ok_or(EINVAL)?.job.refusal().clone())
            }
        };
        dependencies.push(dependency, GFP_KERNEL_ACCOUNT)?;
    }
    Prepared::new(Job::new(gpu, queue, commands, dependencies, None)?, signals)
}
