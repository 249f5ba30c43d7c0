// SPDX-License-Identifier: GPL-2.0

//! Memory for what follows a request, and for long answers.
//!
//! A command stream is copied from the program straight to where the device reads it. Making
//! coherent memory for each would cost more than all the rest, so pieces of a few sizes are kept in
//! a pool. A payload is one piece, or several of the largest size; so nothing asks for more than
//! 256 KiB in one run.
//!
//! A payload goes back to the pool in any context, and the pool's lock is a leaf. Pieces beyond what
//! the pool keeps are freed by [`Buffers::trim`], as freeing them may sleep.
//!
//! Memory of the device must not outlive its driver. So nobody has a payload while it waits for
//! something that may never come, as a page of a program's memory, and [`Buffers::close`] waits until
//! all are back.
//!
//! A piece is accounted to the program that it was made for, also while others use it. So programs
//! together have no more that is not their own than the pool keeps.

use kernel::{
    alloc::AllocError,
    device::{
        self,
        Bound, //
    },
    dma::Coherent,
    io::{
        io_project,
        Io, //
    },
    new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLockIrq, //
    },
    time::msecs_to_jiffies, //
};

use super::vring::Segment;
use crate::ext::{
    mm,
    uaccess,
    wait::{
        new_wait_queue,
        WaitQueue, //
    }, //
};

/// Bytes of the pieces, and how many of each the pool keeps: about as many as a program has in flight
/// that submits as fast as it can, since making and clearing one costs more than all the rest.
const CLASSES: [(usize, usize); 4] = [
    (4 << 10, 512),
    (16 << 10, 128),
    (64 << 10, 64),
    (256 << 10, 16),
];
/// Bytes of the largest piece.
const LARGEST: usize = 256 << 10;
/// Most pieces of a payload.
pub(super) const PIECES_MAX: usize = 64;
/// All payloads of several pieces may take one of so many parts of the machine's memory.
const LARGE_SHARE: u64 = 8;
/// How long [`Buffers::close`] waits. All waits of those who have payloads are over then.
const CLOSE_MS: u32 = 10_000;
/// Most bytes of a payload.
pub(super) const MAX: usize = PIECES_MAX * LARGEST;

/// The class of the smallest piece with `len` bytes, or else of the largest.
fn class_of(len: usize) -> usize {
    let found = CLASSES.iter().position(|&(size, _)| len <= size);
    found.unwrap_or(CLASSES.len() - 1)
}

/// A run of coherent memory.
struct Piece {
    memory: Coherent<[u8]>,
    class: usize,
    /// On a list of the pool.
    next: Option<KBox<Piece>>,
}

/// A list of pieces. Nothing is allocated to put one on it.
struct Stack {
    top: Option<KBox<Piece>>,
    count: usize,
}

impl Stack {
    const fn new() -> Self {
        Self {
            top: None,
            count: 0,
        }
    }

    fn push(&mut self, mut piece: KBox<Piece>) {
        piece.next = self.top.take();
        self.top = Some(piece);
        self.count += 1;
    }

    fn pop(&mut self) -> Option<KBox<Piece>> {
        let mut piece = self.top.take()?;
        self.top = piece.next.take();
        self.count -= 1;
        Some(piece)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // One by one, since each would drop the next with more and more of the stack in use.
        while self.pop().is_some() {}
    }
}

struct Pool {
    classes: [Stack; CLASSES.len()],
    /// To be freed.
    surplus: Stack,
    /// How many pieces are in payloads.
    out: usize,
    /// Nothing is given out any more.
    closed: bool,
}

impl Pool {
    fn take(&mut self, class: usize) -> Option<KBox<Piece>> {
        if self.closed {
            return None;
        }
        let piece = self.classes.get_mut(class)?.pop()?;
        self.out += 1;
        Some(piece)
    }
}

/// The pool.
#[pin_data]
pub(super) struct Buffers {
    /// A leaf.
    #[pin]
    pool: SpinLockIrq<Pool>,
    /// Who waits until all are back.
    #[pin]
    home: WaitQueue,
    /// Bytes of the payloads of several pieces that there are.
    large: Atomic<usize>,
    /// Most of them: this memory cannot be swapped out.
    large_max: usize,
}

impl Buffers {
    /// An empty pool.
    pub(super) fn new() -> Result<Arc<Self>> {
        let pool = Pool {
            classes: [const { Stack::new() }; CLASSES.len()],
            surplus: Stack::new(),
            out: 0,
            closed: false,
        };
        let large_max = usize::try_from(mm::total_bytes() / LARGE_SHARE)?.max(MAX);
        Arc::pin_init(
            pin_init!(Self {
                pool <- new_spinlock_irq!(pool, "ochre_virtio_buffers"),
                home <- new_wait_queue!("ochre_virtio_buffers_home"),
                large: Atomic::new(0),
                large_max,
            }),
            GFP_KERNEL,
        )
    }

    /// A payload of `len` bytes out of what the pool has. [`None`]: it has none, or `len` is 0 or
    /// more than a piece has.
    pub(super) fn pooled(self: &Arc<Self>, len: usize) -> Option<DmaBuf> {
        if len == 0 || len > LARGEST {
            return None;
        }
        let piece = self.pool.lock().take(class_of(len))?;
        Some(DmaBuf {
            pieces: Some(Pieces::One(piece)),
            len,
            pool: self.clone(),
        })
    }

    /// A payload of `len` bytes for `dev`, whose contents are anything. [`EINVAL`]: 0; [`E2BIG`]:
    /// more than [`MAX`]; [`ENOMEM`], also if the large ones that are there take too much; [`ENODEV`]:
    /// [`Self::close`] was called.
    pub(super) fn alloc(
        self: &Arc<Self>,
        dev: &device::Device<Bound>,
        len: usize,
    ) -> Result<DmaBuf> {
        if len == 0 {
            return Err(EINVAL);
        }
        if len > MAX {
            return Err(E2BIG);
        }
        if let Some(found) = self.pooled(len) {
            return Ok(found);
        }
        // What was taken goes back if there is no memory for the rest.
        let mut buf = DmaBuf {
            pieces: None,
            len,
            pool: self.clone(),
        };
        if len <= LARGEST {
            buf.pieces = Some(Pieces::One(self.make(dev, class_of(len))?));
            return Ok(buf);
        }
        let count = len.div_ceil(LARGEST);
        let pieces = KVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        let bytes = count * LARGEST;
        if self.large.fetch_add(bytes, Relaxed) + bytes > self.large_max {
            self.large.fetch_sub(bytes, Relaxed);
            return Err(ENOMEM);
        }
        buf.pieces = Some(Pieces::Many(pieces));
        let class = class_of(LARGEST);
        for _ in 0..count {
            let found = self.pool.lock().take(class);
            let piece = match found {
                Some(piece) => piece,
                None => self.make(dev, class)?,
            };
            if let Some(Pieces::Many(pieces)) = &mut buf.pieces {
                // There is room for it.
                pieces.push(piece, GFP_KERNEL_ACCOUNT)?;
            }
        }
        Ok(buf)
    }

    /// Makes a piece for a payload.
    fn make(&self, dev: &device::Device<Bound>, class: usize) -> Result<KBox<Piece>> {
        let piece = Piece::new(dev, class)?;
        let mut pool = self.pool.lock();
        if pool.closed {
            return Err(ENODEV);
        }
        pool.out += 1;
        Ok(piece)
    }

    fn put(&self, piece: KBox<Piece>) {
        let mut pool = self.pool.lock();
        let class = piece.class;
        let keep = CLASSES.get(class).map_or(0, |&(_, keep)| keep);
        let inner = &mut *pool;
        match inner.classes.get_mut(class) {
            Some(stack) if stack.count < keep => stack.push(piece),
            _ => inner.surplus.push(piece),
        }
        inner.out -= 1;
        let home = inner.closed && inner.out == 0;
        drop(pool);
        if home {
            self.home.wake_all();
        }
    }

    /// Gives out nothing any more, waits until all that was is back, and frees it. Returns whether all
    /// came back in time.
    ///
    /// Whoever has some has to come to an end by itself. Sleeps.
    pub(super) fn close(&self) -> bool {
        self.pool.lock().closed = true;
        let limit = msecs_to_jiffies(CLOSE_MS);
        let all = self
            .home
            .wait_uninterruptible(limit, || self.pool.lock().out == 0);
        self.clear();
        all
    }

    /// Frees what is too much. Sleeps.
    pub(super) fn trim(&self) {
        let surplus = core::mem::replace(&mut self.pool.lock().surplus, Stack::new());
        drop(surplus);
    }

    /// Frees all that nobody has. Sleeps.
    pub(super) fn clear(&self) {
        for class in 0..CLASSES.len() {
            let stack = match self.pool.lock().classes.get_mut(class) {
                Some(stack) => core::mem::replace(stack, Stack::new()),
                None => Stack::new(),
            };
            drop(stack);
        }
        self.trim();
    }
}

impl Piece {
    fn new(dev: &device::Device<Bound>, class: usize) -> Result<KBox<Self>> {
        let (size, _) = CLASSES.get(class).ok_or(EINVAL)?;
        let memory = Coherent::zeroed_slice(dev, *size, GFP_KERNEL_ACCOUNT)?;
        let piece = Self {
            memory,
            class,
            next: None,
        };
        KBox::new(piece, GFP_KERNEL_ACCOUNT).map_err(|AllocError| ENOMEM)
    }
}

enum Pieces {
    One(KBox<Piece>),
    /// All but the last are full, and all are of the largest size.
    Many(KVec<KBox<Piece>>),
}

/// Memory that the device can read or write, whose contents whoever has it may change until it is
/// sent. Goes back to the pool when it is dropped.
pub(super) struct DmaBuf {
    /// Empty only while it is made or dropped.
    pieces: Option<Pieces>,
    len: usize,
    pool: Arc<Buffers>,
}

impl DmaBuf {
    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn pieces(&self) -> &[KBox<Piece>] {
        match &self.pieces {
            Some(Pieces::One(piece)) => core::slice::from_ref(piece),
            Some(Pieces::Many(pieces)) => pieces,
            None => &[],
        }
    }

    fn pieces_mut(&mut self) -> &mut [KBox<Piece>] {
        match &mut self.pieces {
            Some(Pieces::One(piece)) => core::slice::from_mut(piece),
            Some(Pieces::Many(pieces)) => pieces,
            None => &mut [],
        }
    }

    /// Where the device finds it, if it is one run.
    #[inline]
    pub(super) fn single(&self) -> Option<Segment> {
        match &self.pieces {
            Some(Pieces::One(piece)) => Some(Segment {
                addr: piece.memory.dma_address(),
                // CAST: at most 256 KiB.
                len: self.len as u32,
            }),
            _ => None,
        }
    }

    /// Where the device finds it, at most [`PIECES_MAX`] runs.
    pub(super) fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        let mut left = self.len;
        self.pieces().iter().map(move |piece| {
            let len = left.min(piece.memory.len());
            left -= len;
            Segment {
                addr: piece.memory.dma_address(),
                // CAST: at most 256 KiB.
                len: len as u32,
            }
        })
    }

    /// Calls `f` with each run of the `len` bytes from `offset` on. [`EINVAL`]: it is longer.
    fn for_each(
        &mut self,
        offset: usize,
        len: usize,
        mut f: impl FnMut(&mut [u8]) -> Result,
    ) -> Result {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(EINVAL);
        }
        let (mut at, mut left) = (offset, len);
        for piece in self.pieces_mut() {
            let size = piece.memory.len();
            if at >= size {
                at -= size;
                continue;
            }
            let run = left.min(size - at);
            // SAFETY: The device learns the address from a chain only, and a payload is moved into
            // the command that is sent. Whoever has it by a mutable reference is alone with it.
            let bytes = unsafe { piece.memory.as_mut() };
            f(bytes.get_mut(at..at + run).ok_or(EINVAL)?)?;
            left -= run;
            at = 0;
            if left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Copies `data` to `offset`. [`EINVAL`]: there is no room.
    pub(super) fn write(&mut self, offset: usize, data: &[u8]) -> Result {
        let mut rest = data;
        self.for_each(offset, data.len(), |bytes| {
            let (part, after) = rest.split_at_checked(bytes.len()).ok_or(EINVAL)?;
            for (to, from) in bytes.iter_mut().zip(part) {
                *to = *from;
            }
            rest = after;
            Ok(())
        })
    }

    /// Fills it with zeros.
    pub(super) fn clear(&mut self) {
        let zero = |bytes: &mut [u8]| {
            bytes.fill(0);
            Ok(())
        };
        // It is as long as it is.
        let _ = self.for_each(0, self.len, zero);
    }

    /// Fills it from the user address `from`, without waiting for a page. [`EFAULT`]: not all of it is
    /// in memory, or at all.
    pub(super) fn copy_from_user_nofault(&mut self, from: u64) -> Result {
        let mut from = from;
        let len = self.len;
        self.for_each(0, len, |bytes| {
            uaccess::copy_from_user_nofault(bytes, from)?;
            from = from
                .checked_add(u64::try_from(bytes.len())?)
                .ok_or(EFAULT)?;
            Ok(())
        })
    }

    /// Copies what is at `offset` to `data`. [`EINVAL`]: there is not so much.
    ///
    /// The device may be writing it: then the bytes are some of those that were there.
    pub(super) fn read(&self, offset: usize, data: &mut [u8]) -> Result {
        let len = data.len();
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(EINVAL);
        }
        let (mut at, mut rest) = (offset, data);
        for piece in self.pieces() {
            let size = piece.memory.len();
            if at >= size {
                at -= size;
                continue;
            }
            let run = rest.len().min(size - at);
            let (part, after) = rest.split_at_mut_checked(run).ok_or(EINVAL)?;
            io_project!(&piece.memory, [try: at..at + run]).copy_to_slice(part);
            rest = after;
            at = 0;
            if rest.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        match self.pieces.take() {
            Some(Pieces::One(piece)) => self.pool.put(piece),
            Some(Pieces::Many(pieces)) => {
                for piece in pieces {
                    self.pool.put(piece);
                }
                let bytes = self.len.div_ceil(LARGEST) * LARGEST;
                self.pool.large.fetch_sub(bytes, Relaxed);
            }
            None => {}
        }
    }
}

#[kunit_tests(ochre_virtio_buffers)]
mod tests {
    use super::*;

    #[test]
    fn payload_gets_the_smallest_piece_that_holds_it() {
        assert_eq!(class_of(1), 0);
        assert_eq!(class_of(4096), 0);
        assert_eq!(class_of(4097), 1);
        assert_eq!(class_of(LARGEST), 3);
        assert_eq!(class_of(LARGEST + 1), 3);
        assert!(CLASSES.iter().any(|&(size, _)| size == LARGEST));
        assert!(MAX == 16 << 20);
    }
}
