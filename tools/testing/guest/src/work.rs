// SPDX-License-Identifier: GPL-2.0
//! Jobs to test with.

use std::sync::atomic::Ordering;

use anyhow::ensure;
use nix::errno::Errno;
use ochre::abi;
use ochre::access;
use ochre::hw;
use ochre::in_seconds;
use ochre::region;
use ochre::Buffer;
use ochre::Dispatch;
use ochre::Gpu;
use ochre::Packets;
use ochre::Queue;
use ochre::Stream;
use ochre::SyncOp;
use ochre::Syncobj;
use ochre::Vm;

use crate::harness::errno;

/// How long a job may take that does not hang.
const SECONDS: u64 = 60;
/// Timeout of a queue that waits for the CPU, which may be slow: the longest there is, in ms.
const PATIENT_MS: u64 = 60_000;
/// `j .`: an instruction that never ends.
const LOOP: u32 = 0x0000_006f;

/// An address space with a page of system memory that both sides see.
#[derive(Debug)]
pub struct Desk<'g> {
    /// The device.
    pub gpu: &'g Gpu,
    /// The address space.
    pub vm: Vm<'g>,
    /// The page: words for semaphores and results.
    pub page: Buffer<'g>,
}

/// A job that was submitted. What it runs lives as long as this.
#[derive(Debug)]
pub struct Pending<'g> {
    gpu: &'g Gpu,
    /// Signalled when it ends.
    pub done: Syncobj<'g>,
    _packets: Packets<'g>,
}

impl Pending<'_> {
    /// Waits for its end; returns what its fence carries.
    ///
    /// # Errors
    ///
    /// It does not end in time, or the wait fails.
    pub fn end(&self) -> anyhow::Result<Option<Errno>> {
        let waited = self.gpu.wait(&[self.done.wait()], in_seconds(SECONDS))?;
        Ok((waited.error != 0).then(|| Errno::from_raw(waited.error)))
    }

    /// Waits for its end, which has to be a good one.
    ///
    /// # Errors
    ///
    /// As [`Pending::end`], or its fence carries an error.
    pub fn ends_well(&self) -> anyhow::Result<()> {
        let error = self.end()?;
        ensure!(error.is_none(), "the job ended with {error:?}");
        Ok(())
    }

    /// Waits for its end, at which its fence has to carry this errno.
    ///
    /// # Errors
    ///
    /// As [`Pending::end`], or it ended in another way.
    pub fn ends_with(&self, errno: Errno) -> anyhow::Result<()> {
        let error = self.end()?;
        ensure!(
            error == Some(errno),
            "the job ended with {error:?}, not {errno}"
        );
        Ok(())
    }

    /// Whether it has not ended yet.
    ///
    /// # Errors
    ///
    /// The wait's, but for its time.
    pub fn is_at_work(&self) -> anyhow::Result<bool> {
        match errno(self.gpu.wait(&[self.done.wait()], 0)) {
            None => Ok(false),
            Some(Errno::ETIME) => Ok(true),
            Some(errno) => Err(errno.into()),
        }
    }
}

impl<'g> Desk<'g> {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// See [`Vm::new`], [`Vm::buffer`].
    pub fn new(gpu: &'g Gpu) -> anyhow::Result<Self> {
        let vm = Vm::new(gpu)?;
        let page = vm.buffer(region::SYSTEM, 4096, access::ATOMIC)?;
        Ok(Self { gpu, vm, page })
    }

    /// Address of word `index` of the page.
    pub fn word_addr(&self, index: usize) -> u64 {
        self.page.addr + 8 * index as u64
    }

    /// Word `index` of the page.
    pub fn word(&self, index: usize) -> u64 {
        self.page.cpu.word(8 * index).load(Ordering::Acquire)
    }

    /// Stores word `index` of the page.
    pub fn set_word(&self, index: usize, value: u64) {
        self.page
            .cpu
            .word(8 * index)
            .store(value, Ordering::Release);
    }

    /// A queue on the first engine of a class. It may wait for the CPU for a long time without being
    /// taken for hung.
    ///
    /// # Errors
    ///
    /// See [`Queue::with`].
    pub fn queue(&self, class: u32) -> anyhow::Result<Queue<'g>> {
        self.queue_with_timeout(class, PATIENT_MS)
    }

    /// A queue on the first engine of a class with a timeout.
    ///
    /// # Errors
    ///
    /// See [`Queue::with`].
    pub fn queue_with_timeout(&self, class: u32, ms: u64) -> anyhow::Result<Queue<'g>> {
        let timeout = (abi::DRM_OCHRE_QUEUE_TIMEOUT_MS, ms);
        Ok(Queue::with(&self.vm, class, 0, &[timeout])?)
    }

    /// Submits packets, which also wait for and signal `syncs`.
    ///
    /// # Errors
    ///
    /// See SUBMIT.
    pub fn start_with(
        &self,
        queue: &Queue<'g>,
        stream: Stream,
        syncs: &[SyncOp],
    ) -> anyhow::Result<Pending<'g>> {
        let packets = Packets::new(&self.vm, &stream)?;
        let done = Syncobj::new(self.gpu)?;
        let mut syncs = syncs.to_vec();
        syncs.push(done.signal());
        queue.submit_stream(&packets, &syncs)?;
        let (gpu, _packets) = (self.gpu, packets);
        Ok(Pending {
            gpu,
            done,
            _packets,
        })
    }

    /// Submits packets.
    ///
    /// # Errors
    ///
    /// See SUBMIT.
    pub fn start(&self, queue: &Queue<'g>, stream: Stream) -> anyhow::Result<Pending<'g>> {
        self.start_with(queue, stream, &[])
    }

    /// Runs packets to their end.
    ///
    /// # Errors
    ///
    /// See SUBMIT; what the fence carries.
    pub fn run(&self, queue: &Queue<'g>, stream: Stream) -> anyhow::Result<()> {
        self.start(queue, stream)?.ends_well()
    }

    /// Packets that wait until word `index` of the page is 1 or more.
    pub fn wait_for_word(&self, index: usize) -> Stream {
        Stream::new().sem_wait(self.word_addr(index), 1, hw::CMP_GE)
    }

    /// Makes a kernel of machine code.
    ///
    /// # Errors
    ///
    /// See [`Vm::buffer`].
    pub fn kernel(&self, code: &[u32]) -> anyhow::Result<Buffer<'g>> {
        Ok(self.vm.buffer_of(region::VRAM, code, access::EXEC)?)
    }

    /// A kernel that never ends, and the packets that run it. For compute engines.
    ///
    /// # Errors
    ///
    /// See [`Vm::buffer`].
    pub fn endless(&self) -> anyhow::Result<(Buffer<'g>, Stream)> {
        let kernel = self.kernel(&[LOOP])?;
        let dispatch = Dispatch {
            kernel: kernel.addr,
            grid: [1, 1, 1],
            block: [1, 1, 1],
            ..Default::default()
        };
        Ok((kernel, Stream::new().dispatch(&dispatch)))
    }
}
