// SPDX-License-Identifier: GPL-2.0
//! The seam between a hart and everything that it touches: memory, its instruction supply, clocks.
//!
//! The trait is generic, never an object: with a software TLB behind it, a load that hits costs
//! a compare and a host load. The hart calls with naturally aligned addresses only, so an access
//! never crosses a page and can always be one host access.

use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

/// Bytes of a page of code, the unit of [`Bus::fetch`]. Equal to the smallest page of og1.
pub const CODE_PAGE_BYTES: u64 = 4096;
/// Instruction words in a page of code.
pub const CODE_PAGE_WORDS: usize = (CODE_PAGE_BYTES / 4) as usize;

mod sealed {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u16 {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

/// Unsigned integer that one load or store moves: `u8`, `u16`, `u32` or `u64`.
///
/// Each is valid for any bit pattern, so a bus may read it through a host pointer.
pub trait Width: sealed::Sealed + Copy + Eq + std::fmt::Debug + 'static {
    /// Bytes of an access; also its alignment.
    const BYTES: u64;
    /// Widens with zeros.
    fn to_u64(self) -> u64;
    /// Keeps the low bits.
    fn truncate(value: u64) -> Self;
    /// Reads from little-endian bytes; `None` when there are too few.
    fn from_le(bytes: &[u8]) -> Option<Self>;
    /// Writes little-endian bytes; `None`, and nothing written, when there is no room.
    fn put_le(self, bytes: &mut [u8]) -> Option<()>;
}

macro_rules! width {
    ($($t:ty)*) => { $(
        impl Width for $t {
            const BYTES: u64 = std::mem::size_of::<$t>() as u64;
            #[inline(always)]
            fn to_u64(self) -> u64 {
                u64::from(self)
            }
            #[inline(always)]
            fn truncate(value: u64) -> Self {
                value as $t
            }
            #[inline]
            fn from_le(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(|b| <$t>::from_le_bytes(*b))
            }
            #[inline]
            fn put_le(self, bytes: &mut [u8]) -> Option<()> {
                *bytes.first_chunk_mut()? = self.to_le_bytes();
                Some(())
            }
        }
    )* };
}
width!(u8 u16 u32 u64);

/// Operation of an atomic memory operation (AMO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AmoOp {
    /// Memory takes the operand.
    Swap,
    /// Wrapping sum.
    Add,
    /// Exclusive or.
    Xor,
    /// And.
    And,
    /// Or.
    Or,
    /// Signed minimum.
    Min,
    /// Signed maximum.
    Max,
    /// Unsigned minimum.
    MinU,
    /// Unsigned maximum.
    MaxU,
}

/// Width of an atomic access, `u32` or `u64`, with the host's atomic cell of that width.
pub trait AtomicWidth: Width {
    /// `AtomicU32` or `AtomicU64`.
    type Cell;
    /// Sequentially consistent read.
    fn load(cell: &Self::Cell) -> Self;
    /// Applies `op` to `cell` as one sequentially consistent step and returns the former value.
    ///
    /// Signed minimum and maximum are compare-and-swap loops: each retry means that another agent
    /// made progress.
    fn fetch(cell: &Self::Cell, op: AmoOp, operand: Self) -> Self;
    /// Stores `new` if `cell` holds `expected`; true when it did.
    fn compare_exchange(cell: &Self::Cell, expected: Self, new: Self) -> bool;
    /// What `op` makes of `old` and `operand`, for memory that no other agent can touch.
    fn apply(op: AmoOp, old: Self, operand: Self) -> Self;
}

macro_rules! atomic_width {
    ($($t:ty, $signed:ty, $cell:ty;)*) => { $(
        impl AtomicWidth for $t {
            type Cell = $cell;
            fn load(cell: &$cell) -> $t {
                cell.load(Ordering::SeqCst)
            }
            fn fetch(cell: &$cell, op: AmoOp, operand: $t) -> $t {
                match op {
                    AmoOp::Swap => cell.swap(operand, Ordering::SeqCst),
                    AmoOp::Add => cell.fetch_add(operand, Ordering::SeqCst),
                    AmoOp::Xor => cell.fetch_xor(operand, Ordering::SeqCst),
                    AmoOp::And => cell.fetch_and(operand, Ordering::SeqCst),
                    AmoOp::Or => cell.fetch_or(operand, Ordering::SeqCst),
                    AmoOp::MinU => cell.fetch_min(operand, Ordering::SeqCst),
                    AmoOp::MaxU => cell.fetch_max(operand, Ordering::SeqCst),
                    AmoOp::Min | AmoOp::Max => {
                        let step = |old| Some(Self::apply(op, old, operand));
                        cell.fetch_update(Ordering::SeqCst, Ordering::SeqCst, step)
                            .unwrap_or_else(|old| old)
                    }
                }
            }
            fn compare_exchange(cell: &$cell, expected: $t, new: $t) -> bool {
                cell.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok()
            }
            fn apply(op: AmoOp, old: $t, operand: $t) -> $t {
                match op {
                    AmoOp::Swap => operand,
                    AmoOp::Add => old.wrapping_add(operand),
                    AmoOp::Xor => old ^ operand,
                    AmoOp::And => old & operand,
                    AmoOp::Or => old | operand,
                    AmoOp::Min => (old as $signed).min(operand as $signed) as $t,
                    AmoOp::Max => (old as $signed).max(operand as $signed) as $t,
                    AmoOp::MinU => old.min(operand),
                    AmoOp::MaxU => old.max(operand),
                }
            }
        }
    )* };
}
atomic_width! {
    u32, i32, AtomicU32;
    u64, i64, AtomicU64;
}

/// Memory, instruction supply and clocks of a hart.
///
/// Each memory method translates `addr` with the permission that its name implies and performs the
/// access, or returns the caller's own fault value and has no effect: the hart then stops *at* the
/// instruction, unchanged, and running it again retries (replayable faults). Addresses are naturally
/// aligned, otherwise arbitrary 64-bit values.
///
/// Other agents touch the same memory. Plain accesses of a naturally aligned word must not tear;
/// the atomic ones must be atomic against every other agent ([`AtomicWidth`] has the host operations).
pub trait Bus {
    /// The caller's description of a failed access (not present, permission, poison, …).
    type Fault: Clone + std::fmt::Debug;

    /// Reads one word.
    fn load<W: Width>(&mut self, addr: u64) -> Result<W, Self::Fault>;

    /// Writes one word.
    fn store<W: Width>(&mut self, addr: u64, value: W) -> Result<(), Self::Fault>;

    /// Atomic read-modify-write; returns the former value. Needs read and write permission.
    fn amo<W: AtomicWidth>(&mut self, addr: u64, op: AmoOp, operand: W) -> Result<W, Self::Fault>;

    /// Atomic read for LR.
    fn load_reserved<W: AtomicWidth>(&mut self, addr: u64) -> Result<W, Self::Fault>;

    /// SC: stores `new` if memory still holds `expected`; true when it did.
    ///
    /// The hart remembers the value that LR read and calls this only if its reservation stands, so
    /// a change by any agent is seen unless the same value was written back. An engine that lets
    /// other harts of the same memory run in between excludes that case too with
    /// [`Hart::clear_reservation`](crate::Hart::clear_reservation).
    fn store_conditional<W: AtomicWidth>(
        &mut self,
        addr: u64,
        expected: W,
        new: W,
    ) -> Result<bool, Self::Fault>;

    /// Checks that the page of code at `page` (a multiple of [`CODE_PAGE_BYTES`]) may be executed and
    /// returns the key under which decoded code is cached: a number that is the same for two virtual
    /// pages exactly if they are the same physical page (say, physical address with the memory kind in
    /// the low bits). Called once per page transition and once per run.
    fn fetch(&mut self, page: u64) -> Result<u64, Self::Fault>;

    /// Reads a page of code that `fetch` has just allowed: little-endian instruction words.
    fn read_code(
        &mut self,
        page: u64,
        code: &mut [u32; CODE_PAGE_WORDS],
    ) -> Result<(), Self::Fault>;

    /// FENCE: orders this hart's accesses before those after it.
    fn fence(&mut self) {
        fence(Ordering::SeqCst);
    }

    /// CSR `cycle`, `retired` instructions after the start of this run.
    fn cycle(&self, retired: u64) -> u64;

    /// CSR `time`, `retired` instructions after the start of this run.
    fn time(&self, retired: u64) -> u64;
}
