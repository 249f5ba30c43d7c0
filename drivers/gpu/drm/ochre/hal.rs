// SPDX-License-Identifier: GPL-2.0

//! The seam between the driver proper (`gpu/`) and a board.
//!
//! A board implements three traits and is done: [`Hal`] (who it is, its clock, its page tables, its
//! resets), [`Table`] (memory of one page table) and [`HwQueue`] (memory and doorbell of one queue).
//! `gpu/` decides *what* happens and *when*; an implementation knows *how* the board is told.
//! One that lets its clocks be set implements [`Power`] as well.
//! `gpu/mock.rs` is a complete one without hardware.
//!
//! Rules for an implementation:
//!
//! - Each method that touches the board returns [`ENODEV`] once the device is unbound or reads as
//!   all ones, and then touches nothing. Memory that the board reaches is given back when the device
//!   is unbound, even if an open file still has a [`Table`] or [`HwQueue`]: from then on reads of it
//!   give all ones, and writes nothing or [`ENODEV`].
//! - No method waits for the board, except [`Hal::halt`] and [`Hal::stop`]: what takes time is a pair of a start and
//!   a poll. Methods may take locks of their own, short ones, and may sleep for memory only where
//!   their documentation says so.
//! - Values that the board wrote are handed over as they are ([`Status`], [`FenceValue`]); `gpu/`
//!   checks them with `algo::timeline` and `algo::ring`.
//! - Interrupts: the board's threaded handlers call `Gpu::on_engine_event`, `Gpu::on_fault`,
//!   `Gpu::on_power_event`.

use core::ops::Range;

use kernel::{
    fmt,
    prelude::*, //
};

use crate::algo::{
    ring::Pos,
    sched::{
        Priority,
        SlotId, //
    },
    va::{
        Attrs,
        LeafSize,
        VaRange, //
    }, //
};

mod counters;
mod power;

pub(crate) use counters::{
    BoardCounter,
    Counter,
    EngineCounter, //
};
pub(crate) use power::{
    Change,
    Costs,
    Domain,
    DomainSample,
    Gate,
    Level,
    Limits,
    Point,
    Power,
    Sample, //
};

/// What a board is. Does not change while it is bound.
pub(crate) struct Info {
    /// Name for people, padded with NULs, at least one.
    pub(crate) name: [u8; 32],
    /// PCI vendor id.
    pub(crate) vendor: u32,
    /// PCI device id.
    pub(crate) device: u32,
    /// Version of the board's specification: major << 16 | minor.
    pub(crate) revision: u32,
    /// Version of the firmware that runs: major << 16 | minor.
    pub(crate) firmware: u32,
    /// Bytes of VRAM.
    pub(crate) vram_size: u64,
    /// Bytes of VRAM, from its start, that the CPU can map; at most `vram_size`.
    pub(crate) aperture_size: u64,
    /// GPU addresses that may be mapped.
    pub(crate) va: Range<u64>,
    /// Shape of the page tables.
    pub(crate) page_table: PageTableShape,
    /// Number of contexts (address spaces).
    pub(crate) contexts: u16,
    /// Number of queue ids.
    pub(crate) queues: u16,
    /// Words of a queue's ring, a power of two.
    pub(crate) ring_words: u64,
    /// Most words of one indirect buffer.
    pub(crate) job_words_max: u32,
    /// Ticks of [`Hal::time`] in a second.
    pub(crate) timestamp_hz: u64,
    /// The engines, by [`EngineId`].
    pub(crate) engines: KVec<Engine>,
}

/// One engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Engine {
    /// What it is made for.
    pub(crate) class: EngineClass,
    /// Number within its class, from 0.
    pub(crate) instance: u16,
    /// Queues that it holds at a time.
    pub(crate) slots: u8,
    /// Compute: instructions that it starts per clock; otherwise 0.
    pub(crate) lanes: u32,
    /// Compute: most work-items of a block; otherwise 0.
    pub(crate) block_items_max: u32,
    /// Compute: bytes of block-local memory; otherwise 0.
    pub(crate) local_bytes: u32,
}

/// Number of an engine: its index in [`Info::engines`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EngineId(pub(crate) u8);

impl EngineId {
    /// As an index.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What an engine is made for. The numbers are those of `enum drm_ochre_engine_class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineClass {
    /// Runs compute kernels; also copies and fills.
    Compute = 0,
    /// Copies and fills.
    Copy = 1,
}

impl EngineClass {
    /// All classes, in the order of their numbers.
    pub(crate) const ALL: [Self; 2] = [Self::Compute, Self::Copy];

    /// The class with number `raw`, if there is one.
    pub(crate) fn from_raw(raw: u16) -> Option<Self> {
        Self::ALL.get(usize::from(raw)).copied()
    }

    /// The class's number.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Compute => 0,
            Self::Copy => 1,
        }
    }
}

/// Clocks at a moment, in kHz.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// Core clock.
    pub(crate) core_khz: u32,
    /// Fastest core clock.
    pub(crate) core_max_khz: u32,
    /// Memory clock.
    pub(crate) memory_khz: u32,
    /// Fastest memory clock.
    pub(crate) memory_max_khz: u32,
}

/// The board's time taken between two readings of the CPU's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Correlation {
    /// The CPU's clock just before, in ns.
    pub(crate) cpu_before: i64,
    /// The CPU's clock just after, in ns.
    pub(crate) cpu_after: i64,
    /// The board's time, in ticks of [`Info::timestamp_hz`].
    pub(crate) board: u64,
}

/// An address as the board sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoardAddr {
    /// Offset in VRAM.
    Vram(u64),
    /// DMA address of system memory.
    System(u64),
}

impl BoardAddr {
    /// The number alone, whatever it is in. For alignment.
    pub(crate) fn offset(self) -> u64 {
        match self {
            Self::Vram(a) | Self::System(a) => a,
        }
    }

    /// The address `bytes` further on; `None` if that overflows.
    pub(crate) fn checked_add(self, bytes: u64) -> Option<Self> {
        match self {
            Self::Vram(a) => a.checked_add(bytes).map(Self::Vram),
            Self::System(a) => a.checked_add(bytes).map(Self::System),
        }
    }
}

/// Number of a context, an address space of the board. Below [`Info::contexts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContextId(pub(crate) u16);

/// Shape of the page tables: `levels` tables from the root (level `levels - 1`) down to level 0,
/// each with `1 << entries_log2` entries of 64 bits; an entry of level 0 spans 4 KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageTableShape {
    /// Number of levels.
    pub(crate) levels: u8,
    /// Binary logarithm of the entries of a table.
    pub(crate) entries_log2: u8,
}

/// Where a leaf stands in the page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafPlace {
    /// Level of the table.
    pub(crate) level: u8,
    /// Entries in a row that make one leaf.
    pub(crate) entries: u16,
    /// Bytes by which the address of each of them is beyond the one before.
    pub(crate) step: u64,
}

/// Memory of one page table, zeroed when made (nothing mapped), freed when dropped. The owner takes
/// care that no table or context points to it any more and that the TLB has been invalidated.
pub(crate) trait Table: Send + Sync {
    /// Where the board finds it.
    fn address(&self) -> BoardAddr;

    /// Stores `entries` from entry number `first` on. The board may see each at once, and sees all
    /// after the next [`Hal::invalidate_tlb`]. [`EINVAL`] beyond the table's end.
    fn write(&self, first: usize, entries: &[u64]) -> Result;
}

/// What a new queue is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueConfig {
    /// Queue id, below [`Info::queues`] and used by no other queue.
    pub(crate) id: u16,
    /// Address space of its jobs.
    pub(crate) context: ContextId,
    /// Priority among the queues of an engine.
    pub(crate) priority: Priority,
    /// Time slice in µs.
    pub(crate) quantum_us: u32,
}

/// A piece of work for a ring, in the words of `gpu/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Wait until the 64-bit word at GPU address `addr` is at least `value`, unsigned.
    Wait { addr: u64, value: u64 },
    /// Run the user's packets at GPU address `addr`.
    Indirect { addr: u64, words: u32 },
    /// After all before: store `value` in the 64-bit word at GPU address `addr`.
    Signal { addr: u64, value: u64 },
    /// Fill VRAM from `start` on with zeros; multiples of 4.
    ClearVram { start: u64, bytes: u64 },
    /// After all before: store `seqno` in the queue's fence record and raise the engine's interrupt.
    Fence { seqno: u64 },
}

/// Ring words in the making: a buffer that is filled from its start.
pub(crate) struct Words<'a> {
    buffer: &'a mut [u64],
    used: usize,
}

impl<'a> Words<'a> {
    /// An empty one over `buffer`.
    pub(crate) fn new(buffer: &'a mut [u64]) -> Self {
        Self { buffer, used: 0 }
    }

    /// Appends `word`. [`ENOSPC`] if the buffer is full: then [`Hal::words`] was wrong.
    pub(crate) fn push(&mut self, word: u64) -> Result {
        *self.buffer.get_mut(self.used).ok_or(ENOSPC)? = word;
        self.used += 1;
        Ok(())
    }

    /// What has been appended.
    pub(crate) fn filled(&self) -> &[u64] {
        self.buffer.get(..self.used).unwrap_or(&[])
    }
}

/// What a queue does, as its control page says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Nothing to do, or in no slot.
    Idle,
    /// Runs or waits for its turn.
    Ready,
    /// Waits on a semaphore or for a time.
    Waiting,
    /// Faulted; stands still until it is reset. The code is the hardware's.
    Faulted { code: u32 },
}

/// What the board last wrote about a queue. Not checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    /// Position of the next word to fetch.
    pub(crate) rptr: u64,
    /// What it does.
    pub(crate) activity: Activity,
    /// Progress: grows with each packet, block and piece of a copy that was retired.
    pub(crate) retired: u64,
    /// Board time in ns that the queue has held its engine.
    pub(crate) busy_ns: u64,
}

/// A queue's fence record as the board last wrote it. Not checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FenceValue {
    /// Latest seqno.
    pub(crate) seqno: u64,
}

/// Memory and doorbell of one queue. Dropped only when no slot holds it.
pub(crate) trait HwQueue: Send + Sync {
    /// Stores `words` in the ring from word number `index` on (no wrapping). [`EINVAL`] beyond its end.
    fn write(&self, index: usize, words: &[u64]) -> Result;

    /// Appends `command` as this queue's ring needs it.
    fn encode(&self, command: &Command, out: &mut Words<'_>) -> Result;

    /// Makes `wptr` known after all words before it. Returns the board's event position, read
    /// after that (`algo::ring::Commit::needs_doorbell`).
    fn publish(&self, wptr: Pos) -> u64;

    /// Rings the doorbell.
    fn doorbell(&self) -> Result;

    /// What the board last wrote about the queue. Memory only.
    fn status(&self) -> Status;

    /// The fence record. Memory only.
    fn fence(&self) -> FenceValue;

    /// Puts the queue into an empty slot. `resume`: as it was saved when it was last taken out;
    /// otherwise it begins at `start`, with what a saved state held forgotten.
    fn bind(&self, slot: SlotId, start: Pos, resume: bool) -> Result;

    /// Begins to take the queue out of `slot`; [`Hal::slot`] says when it is, and an engine event
    /// tells to look.
    fn unbind(&self, slot: SlotId) -> Result;
}

/// What a hardware slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// No queue.
    Empty,
    /// The queue with this id.
    Holds { queue: u16 },
    /// A queue that is being taken out.
    Unbinding,
}

/// What to reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reset {
    /// The queue in a slot; the slot is empty afterwards.
    Slot(SlotId),
    /// An engine; all its slots are empty afterwards.
    Engine(EngineId),
    /// The board. Afterwards it is as after probe: firmware runs, contexts are set, interrupts are
    /// on, no slot holds a queue, VRAM is as it was.
    Device,
}

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(SlotId { engine, slot }) => write!(f, "slot {slot} of engine {engine}"),
            Self::Engine(EngineId(engine)) => write!(f, "engine {engine}"),
            Self::Device => write!(f, "the device"),
        }
    }
}

/// How far a reset is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetProgress {
    /// Look again.
    Pending,
    /// Done.
    Done,
    /// The board will not, or took too long.
    Refused,
}

/// What an access was that faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// A read.
    Read,
    /// A write.
    Write,
    /// An instruction fetch.
    Exec,
    /// An atomic operation.
    Atomic,
}

impl Access {
    /// The number that `struct drm_ochre_reset_query` has for it.
    pub(crate) fn raw(self) -> u32 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Exec => 2,
            Self::Atomic => 3,
        }
    }
}

/// A fault. The values are the board's, not checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// Id of the queue that faulted.
    pub(crate) queue: u16,
    /// The hardware's code.
    pub(crate) code: u32,
    /// Address of the access, or position of the packet.
    pub(crate) addr: u64,
    /// Program counter, or 0.
    pub(crate) pc: u64,
    /// What the access was.
    pub(crate) access: Access,
}

/// A board.
pub(crate) trait Hal: Send + Sync {
    /// What the board is.
    fn info(&self) -> &Info;

    /// Clocks, voltages, temperature and power, if the board lets them be set.
    fn power(&self) -> Option<&dyn Power> {
        None
    }

    /// The clocks now. Same rule as for [`Hal::counter`].
    fn clocks(&self) -> Result<Clocks>;

    /// Whether the board has a counter.
    fn has_counter(&self, counter: Counter) -> bool;

    /// Reads a counter, which only grows, whatever is reset meanwhile. [`EINVAL`] if there is none
    /// such.
    ///
    /// Called with interrupts off and under raw spinlocks: may take no other lock, and has to be short.
    fn counter(&self, counter: Counter) -> Result<u64>;

    /// Names of the groups of registers that [`Hal::dump_registers`] knows.
    fn register_groups(&self) -> &'static [&'static CStr];

    /// Writes the registers of a group for people, decoded, without changing anything on the board.
    /// [`EINVAL`] if there is no such group.
    fn dump_registers(&self, group: usize, out: &mut dyn fmt::Write) -> Result;

    /// The board's time in ticks of [`Info::timestamp_hz`]. [`ENODEV`] if it reads as all ones.
    fn time(&self) -> Result<u64>;

    /// The board's time between two calls of `cpu`, which reads a clock of the CPU.
    fn correlate(&self, cpu: &mut dyn FnMut() -> i64) -> Result<Correlation>;

    /// Memory for a page table. May sleep for memory.
    fn new_table(&self) -> Result<KBox<dyn Table>>;

    /// Where a leaf of `size` stands.
    fn leaf_place(&self, size: LeafSize) -> LeafPlace;

    /// Entry of a leaf (each of its entries, see [`LeafPlace::entries`]) at `addr`.
    fn leaf(&self, addr: BoardAddr, size: LeafSize, attrs: Attrs) -> u64;

    /// Entry of a sparse leaf: reads give zeros, writes are dropped.
    fn sparse_leaf(&self, size: LeafSize) -> u64;

    /// Entry that points to the next lower table at `addr`.
    fn table_entry(&self, addr: BoardAddr) -> u64;

    /// Sets or clears the root table of a context; its translations are forgotten.
    fn set_context(&self, context: ContextId, root: Option<BoardAddr>) -> Result;

    /// Forgets the translations of a context, in `range` or all. Entries written before are seen
    /// by every access that begins after it has returned.
    fn invalidate_tlb(&self, context: ContextId, range: Option<VaRange>) -> Result;

    /// Memory for a queue. May sleep for memory.
    fn new_queue(&self, config: &QueueConfig) -> Result<KBox<dyn HwQueue>>;

    /// Ring words that `command` takes.
    fn words(&self, command: &Command) -> u64;

    /// What a slot holds.
    fn slot(&self, slot: SlotId) -> Result<SlotState>;

    /// Takes the oldest entry out of the fault ring.
    fn next_fault(&self) -> Result<Option<Fault>>;

    /// Begins a reset. One at a time.
    fn reset(&self, what: Reset) -> Result;

    /// Carries the reset on that was begun last and says how far it is. To be called every few ms.
    fn poll_reset(&self, what: Reset) -> Result<ResetProgress>;

    /// Stops all work at once: no interrupt, no access to system memory once it has returned. What
    /// the slots held is lost. [`Reset::Device`] brings the board back. May wait, for a bounded
    /// time, and takes a silent board for stopped.
    fn halt(&self);

    /// Stops the board for good: no interrupt, no access to system memory once it has returned.
    /// Called at unbind and when the board is given up; may wait, for a bounded time, and takes a
    /// silent board for stopped.
    fn stop(&self);
}
