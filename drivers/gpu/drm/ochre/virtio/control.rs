// SPDX-License-Identifier: GPL-2.0

//! The control queue: what is sent to the device, and who is told the answer.
//!
//! A command in flight has a *record*, with memory of its own that the device reads the request
//! from and writes the answer to. Records are made at probe, so from the moment that a program has
//! [`Room`] nothing can fail and nothing is allocated. There are more records than places in the
//! ring: a command that finds none is *staged* and goes out when another was answered, in order.
//! What has to be sent when an object goes away comes with a preallocated [`CleanupNode`], which
//! waits in the same order for one of the records that no room is given for.
//!
//! ```text
//!  reserve ──► submit ──► staged ──► in the ring ──► answered ──► held back ──► over ──► dead
//!                            ▲                                     (fences.rs)             │
//!  submit_cleanup ── node ───┘                                   free again ◄── tidied up ◄┘
//! ```
//!
//! Answers are taken in the interrupt handler, or by whoever submits and finds some. What a command
//! keeps alive is dropped in process context: its record is *dead* until then.
//!
//! An interrupt is asked for only while somebody waits: for an answer, for a fence, or for room.
//! What nobody waits for is found by the next submission or by the worker ([`super::watchdog`]).
//!
//! [`queue::Queue`] is all of this without hardware, locks or waiting; [`super::device::Device`]
//! has one behind a spinlock.

use kernel::{
    alloc::Flags,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            AtomicFlag,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    time::Jiffies, //
};

use super::{
    buffers::DmaBuf,
    device::Device,
    fences::Timeline,
    keep::Keep,
    wire, //
};
use crate::ext::{
    dma_fence::FenceSlot,
    drm_event::Event,
    wait::{
        new_wait_queue,
        WaitQueue, //
    }, //
};

pub(super) mod memory;
pub(super) mod queue;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;

/// What a command keeps alive until it is over.
pub(super) trait Kept: Send {
    /// The command is over. Runs once, before its fence is signalled, with the queue's lock and
    /// interrupts off: atomics only.
    fn done(&self, result: Result);

    /// Whether it may be dropped in any context, with the queue's lock, and so at once.
    fn drops_anywhere(&self) -> bool {
        false
    }

    /// Whether somebody waits for [`Self::done`], so that the device is asked for an interrupt.
    fn is_awaited(&self) -> bool {
        false
    }
}

impl Kept for Keep {
    fn drops_anywhere(&self) -> bool {
        Keep::drops_anywhere(self)
    }

    fn is_awaited(&self) -> bool {
        Keep::is_awaited(self)
    }

    fn done(&self, result: Result) {
        Keep::done(self, result);
    }
}

/// A command.
pub(super) struct Command<'a, K = Keep> {
    request: wire::Request,
    payload: Option<DmaBuf>,
    reply: Option<Arc<Reply>>,
    fence: Option<FenceArg<'a>>,
    keep: Option<K>,
}

impl<'a, K> Command<'a, K> {
    /// A request and nothing else.
    #[inline(always)]
    pub(super) fn new(request: wire::Request) -> Self {
        Self {
            request,
            payload: None,
            reply: None,
            fence: None,
            keep: None,
        }
    }

    /// With `payload` behind the request.
    #[inline(always)]
    pub(super) fn payload(self, payload: DmaBuf) -> Self {
        Self {
            payload: Some(payload),
            ..self
        }
    }

    /// `reply` gets the answer.
    #[inline(always)]
    pub(super) fn reply(self, reply: Arc<Reply>) -> Self {
        Self {
            reply: Some(reply),
            ..self
        }
    }

    /// With a fence that is signalled when it is over.
    #[inline(always)]
    pub(super) fn fence(self, fence: FenceArg<'a>) -> Self {
        Self {
            fence: Some(fence),
            ..self
        }
    }

    /// With something to keep alive, and to be told the outcome.
    #[inline(always)]
    pub(super) fn keep(self, keep: K) -> Self {
        Self {
            keep: Some(keep),
            ..self
        }
    }
}

/// The fence of a command.
pub(super) struct FenceArg<'a> {
    slot: FenceSlot,
    timeline: &'a Timeline,
    ring: Option<u8>,
    event: Option<Event>,
    on_response: bool,
}

impl<'a> FenceArg<'a> {
    /// The next fence of `timeline`, for when the host is through with the command.
    #[inline(always)]
    pub(super) fn new(slot: FenceSlot, timeline: &'a Timeline) -> Self {
        Self {
            slot,
            timeline,
            ring: None,
            event: None,
            on_response: false,
        }
    }

    /// In the order of a ring of the command's context, if there is one.
    #[inline(always)]
    pub(super) fn ring(self, ring: Option<u8>) -> Self {
        Self { ring, ..self }
    }

    /// With an event that is sent after the fence was signalled.
    #[inline(always)]
    pub(super) fn event(self, event: Option<Event>) -> Self {
        Self { event, ..self }
    }

    /// The command has no work that goes on after the device has answered it, so the device need not
    /// make a fence: its answer is enough.
    #[inline(always)]
    pub(super) fn on_response(self) -> Self {
        Self {
            on_response: true,
            ..self
        }
    }
}

/// Room for some commands, all of one generation of the device. Gives back what was not used.
pub(super) struct Room<'a> {
    pub(super) device: &'a Arc<Device>,
    pub(super) left: usize,
    pub(super) generation: u64,
}

impl Room<'_> {
    /// The generation of the device for which there is room. A command that is sent after the device
    /// was reset once more ends with [`EIO`].
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if self.left != 0 {
            self.device.give_back_room(self.left);
        }
    }
}

/// A command that must not fail, made ahead.
pub(super) struct CleanupNode<K = Keep>(pub(in crate::virtio) KBox<Node<K>>);

/// What a [`CleanupNode`] points to.
pub(in crate::virtio) struct Node<K> {
    pub(in crate::virtio) next: Option<KBox<Node<K>>>,
    pub(in crate::virtio) order: u64,
    pub(in crate::virtio) request: Option<wire::Request>,
    pub(in crate::virtio) keep: Option<K>,
}

impl<K> CleanupNode<K> {
    /// A node for one command. [`ENOMEM`].
    pub(super) fn new(flags: Flags) -> Result<Self> {
        let node = Node {
            next: None,
            order: 0,
            request: None,
            keep: None,
        };
        Ok(Self(KBox::new(node, flags)?))
    }
}

/// Bytes of an answer behind its header that need no memory of their own.
pub(super) const SMALL: usize = 16;

/// The device's answer to one command, for whoever waits for it.
#[pin_data]
pub(super) struct Reply {
    /// 0: none yet; 1: it is there; else the error's number.
    state: Atomic<i32>,
    /// It was sent for by [`Self::start_again`].
    asked: AtomicFlag,
    /// Bytes behind the header that the device says it wrote.
    written: Atomic<u32>,
    /// The body, if it is small.
    words: [Atomic<u32>; SMALL / 4],
    /// Where the device writes header and body, if the body is not small.
    buf: Option<DmaBuf>,
    #[pin]
    waiters: WaitQueue,
}

impl Reply {
    /// For an answer with `len` bytes behind its header. [`ENOMEM`], [`E2BIG`], [`ENODEV`].
    ///
    /// Enters the device if it is long.
    pub(super) fn new(device: &Device, len: usize) -> Result<Arc<Self>> {
        let buf = match len {
            0..=SMALL => None,
            _ => Some(device.alloc(len + wire::HEADER_BYTES)?),
        };
        Self::with(buf)
    }

    /// For an answer to be written to `buf`, header and all, or a small one.
    pub(super) fn with(mut buf: Option<DmaBuf>) -> Result<Arc<Self>> {
        // Other programs had it before, and the device may say that it wrote what it did not.
        if let Some(buf) = &mut buf {
            buf.clear();
        }
        Arc::pin_init(
            pin_init!(Self {
                state: Atomic::new(0),
                asked: AtomicFlag::new(false),
                written: Atomic::new(0),
                words: [const { Atomic::new(0) }; SMALL / 4],
                buf,
                waiters <- new_wait_queue!("ochre_virtio_reply"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Makes it one that is not there yet. Returns `false`, with nothing done, if it is being waited
    /// for.
    pub(super) fn start_again(&self) -> bool {
        let asked = self.asked.load(Relaxed);
        if asked && self.poll().is_none() {
            return false;
        }
        self.asked.store(true, Relaxed);
        self.state.store(0, Relaxed);
        true
    }

    /// Where the device shall write it, if not to the record's memory.
    pub(super) fn buf(&self) -> Option<&DmaBuf> {
        self.buf.as_ref()
    }

    /// The answer is there, or will not come. In any context; only the first time counts.
    pub(super) fn finish(&self, result: Result, written: u32, words: [u32; SMALL / 4]) {
        if self.state.load(Relaxed) != 0 {
            return;
        }
        for (to, from) in self.words.iter().zip(words) {
            to.store(from, Relaxed);
        }
        self.written.store(written, Relaxed);
        let state = match result {
            Ok(()) => 1,
            Err(error) => error.to_errno(),
        };
        self.state.store(state, Release);
        self.waiters.wake_all();
    }

    /// The device's answer, if it is there.
    pub(super) fn poll(&self) -> Option<Result> {
        match self.state.load(Acquire) {
            0 => None,
            1 => Some(Ok(())),
            error => Some(Err(Error::from_errno(error))),
        }
    }

    /// Waits for it, interruptibly, at most `timeout` jiffies, for ever with [`None`].
    ///
    /// Returns the error that the device answered; [`EIO`] if it was reset, [`ENODEV`] if it is
    /// gone; [`ETIMEDOUT`]; [`ERESTARTSYS`]. No lock may be held that an answer could need.
    pub(super) fn wait(&self, timeout: Option<Jiffies>) -> Result {
        self.waiters
            .wait_interruptible(timeout, || self.state.load(Relaxed) != 0)?;
        self.poll().unwrap_or(Err(ETIMEDOUT))
    }

    /// Copies what the device says it wrote behind the header, as far as `data` goes. Returns how many
    /// bytes that is; what it did not write is zero. [`EIO`]: there is no answer, or an error.
    pub(super) fn read(&self, data: &mut [u8]) -> Result<usize> {
        if self.poll() != Some(Ok(())) {
            return Err(EIO);
        }
        let written = self.written.load(Relaxed) as usize;
        let len = written.min(data.len());
        let data = data.get_mut(..len).ok_or(EIO)?;
        match &self.buf {
            Some(buf) => buf.read(wire::HEADER_BYTES, data)?,
            None => {
                for (bytes, word) in data.chunks_mut(4).zip(&self.words) {
                    let word = word.load(Relaxed).to_le_bytes();
                    for (to, from) in bytes.iter_mut().zip(word) {
                        *to = from;
                    }
                }
            }
        }
        Ok(len)
    }
}
