// SPDX-License-Identifier: GPL-2.0

//! The kernel's own queue: fills VRAM with zeros, which the CPU cannot reach everywhere.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    algo::{
        buddy::Extent,
        sched::Priority, //
    },
    ext::dma_fence::FenceStatus,
    gpu::{
        file::Usage,
        job::Job,
        queue::{
            Properties,
            Queue, //
        },
        submit::{
            self,
            Prepared, //
        },
        vm::Vm,
        vram::VramBlock,
        wait::{
            self,
            Until, //
        },
        Gpu, //
    },
    hal::{
        Command,
        EngineClass,
        EngineId, //
    }, //
};

/// Fills per job: a job has to fit into a ring.
const FILLS_MAX: usize = 64;
/// How often a lost queue is replaced before the caller hears of it.
const TRIES: usize = 2;
/// Time slice of the queue, in µs.
const QUANTUM_US: u32 = 5_000;

/// The kernel's own queue, made when it is first needed, and again when it was lost.
pub(super) struct Clearer {
    queue: Option<Arc<Queue>>,
}

impl Clearer {
    /// No queue yet.
    pub(super) fn new() -> Self {
        Self { queue: None }
    }

    /// Lets go of the queue.
    pub(super) fn forget(&mut self) {
        self.queue = None;
    }
}

impl Gpu {
    /// Makes the queue that clears VRAM, so that programs that take all queues and address spaces do
    /// not keep others from getting memory. To be called before there are programs.
    pub(crate) fn prepare_clearing(self: &Arc<Self>) -> Result {
        self.clear_queue().map(|_| ())
    }

    /// Fills with zeros what is not zero in `block`, and waits until that is done, interruptibly: no
    /// lock may be held. The work itself keeps the block, so that after an interrupted wait nobody
    /// gets VRAM to which the board still writes.
    ///
    /// [`ENODEV`], [`ERESTARTSYS`], [`ENOMEM`]; others that a fence can carry: it did not work.
    pub(crate) fn clear_vram(self: &Arc<Self>, block: &Arc<VramBlock>) -> Result {
        for extents in block.dirty().chunks(FILLS_MAX) {
            self.clear_extents(block, extents)?;
        }
        Ok(())
    }

    fn clear_extents(self: &Arc<Self>, block: &Arc<VramBlock>, extents: &[Extent]) -> Result {
        let mut result = Err(EIO);
        for _ in 0..TRIES {
            let queue = self.clear_queue()?;
            let mut commands = KVec::with_capacity(extents.len(), GFP_KERNEL)?;
            for extent in extents {
                let (start, bytes) = (extent.start(), extent.len());
                commands.push(Command::ClearVram { start, bytes }, GFP_KERNEL)?;
            }
            let job = Job::new(self, &queue, commands, KVec::new(), Some(block.clone()))?;
            let mut jobs = KVec::with_capacity(1, GFP_KERNEL)?;
            jobs.push(Prepared::new(job, KVec::new())?, GFP_KERNEL)?;

            result = submit::submit(self, &queue, jobs).and_then(|fence| {
                wait::wait(self, &[fence.clone()], Until::All, None)?;
                match fence.status() {
                    FenceStatus::Failed(error) => Err(error),
                    FenceStatus::Pending | FenceStatus::Done => Ok(()),
                }
            });
            // Only the loss of the queue is worth another try.
            if !queue.is_closed() {
                break;
            }
            self.drop_clear_queue(&queue);
        }
        result
    }

    /// The queue, made if there is none. No lock may be held: making one can wait for the worker.
    fn clear_queue(self: &Arc<Self>) -> Result<Arc<Queue>> {
        self.check()?;
        if let Some(queue) = &self.clearer.lock().queue {
            return Ok(queue.clone());
        }
        // Copy engines first: compute engines have better things to do.
        let mut engines = KVec::new();
        for class in [EngineClass::Copy, EngineClass::Compute] {
            for (index, engine) in (0..).zip(&self.info().engines) {
                if engine.class == class && engines.is_empty() {
                    engines.push(EngineId(index), GFP_KERNEL)?;
                }
            }
        }
        let properties = Properties {
            priority: Priority::High,
            timeout_ms: self.timeout_ms(),
            quantum_us: QUANTUM_US,
            boost: false,
        };
        let (vm, usage) = (Vm::new(self)?, Usage::new()?);
        let queue = self.create_queue(&engines, |id, engine| {
            Queue::new(self, id, engine, vm, properties, usage)
        })?;

        let mut clearer = self.clearer.lock();
        // Once there is no board, nobody would take it out any more.
        let present = self.check();
        let other = clearer.queue.clone();
        if present.is_ok() && other.is_none() {
            clearer.queue = Some(queue.clone());
            return Ok(queue);
        }
        drop(clearer);
        self.destroy_queue(&queue);
        present.and(other.ok_or(ENODEV))
    }

    /// Destroys a lost queue, so that the next fill makes a new one.
    fn drop_clear_queue(self: &Arc<Self>, lost: &Arc<Queue>) {
        let mut clearer = self.clearer.lock();
        clearer.queue.take_if(|queue| Arc::ptr_eq(queue, lost));
        drop(clearer);
        self.destroy_queue(lost);
    }
}
