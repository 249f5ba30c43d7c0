// SPDX-License-Identifier: GPL-2.0
//! Queues and jobs.

use std::io;

use crate::abi;
use crate::abi::count;
use crate::abi::pointer;
use crate::abi::stride;
use crate::gpu::Gpu;
use crate::memory::access;
use crate::memory::region;
use crate::memory::Buffer;
use crate::memory::Vm;
use crate::packet::Stream;
use crate::sync::in_seconds;
use crate::sync::SyncOp;
use crate::sync::Syncobj;

/// How long [`Queue::run`] waits. An emulated guest may be slow.
const RUN_SECONDS: u64 = 100;

/// A job: packets, and what it waits for and signals.
#[derive(Clone, Copy, Debug, Default)]
pub struct Job<'a> {
    /// Address of the packets.
    pub addr: u64,
    /// Words of the packets; 0, with address 0, to synchronise only.
    pub words: u32,
    /// What to wait for, what to signal.
    pub syncs: &'a [SyncOp],
}

/// A queue.
#[derive(Debug)]
pub struct Queue<'g> {
    gpu: &'g Gpu,
    handle: u32,
}

impl<'g> Queue<'g> {
    /// Makes a queue for `DRM_OCHRE_ENGINE_*` with its defaults, on any engine of the class.
    ///
    /// # Errors
    ///
    /// See QUEUE_CREATE.
    pub fn new(vm: &Vm<'g>, class: u32) -> io::Result<Self> {
        Self::with(vm, class, abi::DRM_OCHRE_ENGINE_ANY, &[])
    }

    /// Makes a queue for one engine of the class with properties: pairs of
    /// `enum drm_ochre_queue_property` and a value.
    ///
    /// # Errors
    ///
    /// See QUEUE_CREATE.
    pub fn with(vm: &Vm<'g>, class: u32, instance: u32, props: &[(u32, u64)]) -> io::Result<Self> {
        let props: Vec<_> = props
            .iter()
            .map(|&(name, value)| abi::drm_ochre_queue_prop {
                name,
                pad: 0,
                value,
            })
            .collect();
        let mut create = abi::drm_ochre_queue_create {
            vm: vm.handle(),
            engine_class: u16::try_from(class).map_err(io::Error::other)?,
            engine_instance: u16::try_from(instance).map_err(io::Error::other)?,
            prop_count: count(&props),
            props: pointer(&props),
            prop_stride: stride::<abi::drm_ochre_queue_prop>(),
            ..Default::default()
        };
        let gpu = vm.gpu();
        // SAFETY: The array is as long as the structure says.
        unsafe { abi::ioctl(gpu, &mut create)? };
        Ok(Self {
            gpu,
            handle: create.queue,
        })
    }

    /// Queue handle.
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// Gives jobs to the queue, all or none.
    ///
    /// # Errors
    ///
    /// See SUBMIT.
    pub fn submit(&self, jobs: &[Job<'_>]) -> io::Result<()> {
        let jobs: Vec<_> = jobs
            .iter()
            .map(|job| abi::drm_ochre_job {
                addr: job.addr,
                words: job.words,
                syncs: pointer(job.syncs),
                sync_count: count(job.syncs),
                sync_stride: stride::<SyncOp>(),
                ..Default::default()
            })
            .collect();
        let mut submit = abi::drm_ochre_submit {
            queue: self.handle,
            jobs: pointer(&jobs),
            job_count: count(&jobs),
            job_stride: stride::<abi::drm_ochre_job>(),
            ..Default::default()
        };
        // SAFETY: The arrays are as long as the structures say.
        unsafe { abi::ioctl(self.gpu, &mut submit) }
    }

    /// Gives one job to the queue. The packets have to stay where they are until it has ended.
    ///
    /// # Errors
    ///
    /// See SUBMIT.
    pub fn submit_stream(&self, stream: &Packets<'_>, syncs: &[SyncOp]) -> io::Result<()> {
        let (addr, words) = (stream.buffer.addr, stream.words);
        self.submit(&[Job { addr, words, syncs }])
    }

    /// Runs packets and waits for them.
    ///
    /// # Errors
    ///
    /// See SUBMIT and WAIT; the error that the job's fence carries.
    pub fn run(&self, vm: &Vm<'g>, stream: &Stream) -> io::Result<()> {
        let packets = Packets::new(vm, stream)?;
        let done = Syncobj::new(self.gpu)?;
        self.submit_stream(&packets, &[done.signal()])?;
        let waited = self.gpu.wait(&[done.wait()], in_seconds(RUN_SECONDS))?;
        match waited.error {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// What became of the queue.
    ///
    /// # Errors
    ///
    /// See RESET_QUERY.
    pub fn reset_query(&self) -> io::Result<abi::drm_ochre_reset_query> {
        let mut query = abi::drm_ochre_reset_query {
            queue: self.handle,
            ..Default::default()
        };
        // SAFETY: There are no pointers.
        unsafe { abi::ioctl(self.gpu, &mut query)? };
        Ok(query)
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        let mut destroy = abi::drm_ochre_queue_destroy {
            queue: self.handle,
            pad: 0,
        };
        // SAFETY: There are no pointers. A device that is gone has no queues any more.
        let _ = unsafe { abi::ioctl(self.gpu, &mut destroy) };
    }
}

/// A stream in memory, ready to run.
#[derive(Debug)]
pub struct Packets<'g> {
    buffer: Buffer<'g>,
    words: u32,
}

impl<'g> Packets<'g> {
    /// Puts a stream into system memory.
    ///
    /// # Errors
    ///
    /// As [`Vm::buffer`].
    pub fn new(vm: &Vm<'g>, stream: &Stream) -> io::Result<Self> {
        let words = stream.words();
        Ok(Self {
            buffer: vm.buffer_of(region::SYSTEM, words, access::READ)?,
            words: count(words),
        })
    }

    /// Address of the first word.
    pub fn addr(&self) -> u64 {
        self.buffer.addr
    }

    /// Number of words.
    pub fn words(&self) -> u32 {
        self.words
    }
}
