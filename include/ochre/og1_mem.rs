// SPDX-License-Identifier: GPL-2.0
//! What the og1 board and its driver share in memory: addresses, page tables, queue descriptors,
//! control pages, the fault ring and the firmware image.
//!
//! Plain constants and `#[repr(C)]` structures, little endian. The meaning of each is in
//! `Documentation/gpu/ochre/og1.rst`, in the section that the item names.

/// Board address, bit 63: system memory (a DMA address) instead of VRAM. Section "Addresses".
pub const PA_SYSTEM: u64 = 1 << 63;
/// Board address: the bits that hold the address itself.
pub const PA_MASK: u64 = (1 << 52) - 1;

/// Bits of a GPU virtual address. Section "Page tables".
pub const VA_BITS: u32 = 48;
/// Levels of a page table; level 3 is the root, level 0 holds 4 KiB leaves.
pub const PT_LEVELS: u32 = 4;
/// Entries of one table.
pub const PT_ENTRIES: usize = 512;
/// Bytes of one table.
pub const PT_BYTES: usize = 4096;
/// Binary logarithm of the smallest page.
pub const PAGE_SHIFT_4K: u32 = 12;
/// Binary logarithm of the middle page: 16 equal entries at level 0 with [`PTE_64K`].
pub const PAGE_SHIFT_64K: u32 = 16;
/// Binary logarithm of the large page: a leaf at level 1.
pub const PAGE_SHIFT_2M: u32 = 21;

/// Entry: points to a table or a page.
pub const PTE_VALID: u64 = 1 << 0;
/// Leaf: may be read.
pub const PTE_READ: u64 = 1 << 1;
/// Leaf: may be written.
pub const PTE_WRITE: u64 = 1 << 2;
/// Leaf: may be executed.
pub const PTE_EXEC: u64 = 1 << 3;
/// Leaf: takes atomic operations.
pub const PTE_ATOMIC: u64 = 1 << 4;
/// Entry: the address is a system address, otherwise VRAM.
pub const PTE_SYSTEM: u64 = 1 << 5;
/// Entry at level 1: a 2 MiB leaf. Always set in a leaf at level 0.
pub const PTE_LEAF: u64 = 1 << 6;
/// Leaf at level 0: one of 16 equal-but-for-the-address entries that form a 64 KiB page.
pub const PTE_64K: u64 = 1 << 7;
/// Entry: bits 51:12 of the address.
pub const PTE_ADDR: u64 = PA_MASK & !0xfff;
/// Leaf: memory type, 3 bits: see `MT_*`.
pub const PTE_TYPE_SHIFT: u32 = 52;
/// Leaf: mask of the memory type.
pub const PTE_TYPE: u64 = 7 << PTE_TYPE_SHIFT;
/// Leaf in system memory: snoops the CPU's caches.
pub const PTE_SNOOP: u64 = 1 << 55;
/// Leaf: sparse; reads give zero, writes are dropped.
pub const PTE_NULL: u64 = 1 << 56;
/// Leaf: poisoned; any access faults.
pub const PTE_POISON: u64 = 1 << 57;
/// Leaf: the board has read through it.
pub const PTE_ACCESSED: u64 = 1 << 58;
/// Leaf: the board has written through it.
pub const PTE_DIRTY: u64 = 1 << 59;
/// Entry: bits that the board leaves to software.
pub const PTE_SOFTWARE: u64 = 7 << 60;
/// Entry: must be zero.
pub const PTE_RESERVED: u64 = 1 << 63 | 0xf00;

/// Memory type: cached, write back.
pub const MT_WB: u64 = 0;
/// Memory type: cached, write through.
pub const MT_WT: u64 = 1;
/// Memory type: write combining.
pub const MT_WC: u64 = 2;
/// Memory type: uncached.
pub const MT_UC: u64 = 3;

/// Context table entry. Section "Contexts".
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CtxEntry {
    /// Board address of the root table with [`CTX_VALID`].
    pub root: u64,
    /// Must be zero.
    pub flags: u64,
}
const _: () = assert!(core::mem::size_of::<CtxEntry>() == 16);
/// Context entry: may be used.
pub const CTX_VALID: u64 = 1 << 0;
/// Most contexts.
pub const CTX_MAX: usize = 4096;

/// Value of [`QueueDesc::magic`]: "OGQ1".
pub const QUEUE_MAGIC: u32 = 0x3151_474f;
/// Queue: the ring may hold privileged packets.
pub const QUEUE_PRIVILEGED: u32 = 1 << 0;
/// Smallest ring, as the binary logarithm of its 64-bit words.
pub const RING_LOG2_MIN: u32 = 6;
/// Largest ring, as the binary logarithm of its 64-bit words.
pub const RING_LOG2_MAX: u32 = 16;
/// Priorities run from 0 (lowest) to this.
pub const PRIORITY_MAX: u8 = 3;
/// Bytes of a context-save area.
pub const SAVE_BYTES: usize = 4096;

/// Queue descriptor, 128 bytes, aligned to its size. Section "Queues".
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDesc {
    /// [`QUEUE_MAGIC`].
    pub magic: u32,
    /// `QUEUE_*`.
    pub flags: u32,
    /// Queue id: its doorbell. No two bound queues may share it.
    pub queue: u16,
    /// Context whose addresses indirect buffers use.
    pub ctx: u16,
    /// Priority, 0 to [`PRIORITY_MAX`].
    pub priority: u8,
    /// Must be zero.
    pub reserved0: [u8; 3],
    /// Time slice in µs, 1 to 1,000,000.
    pub quantum_us: u32,
    /// Binary logarithm of the ring's size in 64-bit words.
    pub ring_log2: u32,
    /// Board address of the ring, aligned to 4 KiB.
    pub ring: u64,
    /// Board address of the control page, aligned to 4 KiB.
    pub control: u64,
    /// Board address of the context-save area of [`SAVE_BYTES`], aligned to 4 KiB.
    pub save: u64,
    /// Position at which the queue begins to fetch when it is bound.
    pub start: u64,
    /// Must be zero.
    pub reserved1: [u64; 9],
}
const _: () = assert!(core::mem::size_of::<QueueDesc>() == 128);

/// Control page of a queue, in its first 4 KiB. Positions count 64-bit words and never wrap; the
/// word in the ring is the position modulo the ring's size. Section "Doorbells".
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlPage {
    /// Producer's position. Written by software only.
    pub wptr: u64,
    /// Keeps the producer's line apart.
    pub pad0: [u64; 7],
    /// Position of the next word to fetch. Written by the board only, as all that follows.
    pub rptr: u64,
    /// Keeps the lines apart.
    pub pad1: [u64; 7],
    /// The doorbell has to be rung when the producer's position passes this.
    pub event: u64,
    /// Keeps the lines apart.
    pub pad2: [u64; 7],
    /// State of the queue: `SLOT_*`.
    pub state: u32,
    /// Fault code that stopped it, `FAULT_*`, or 0.
    pub error: u32,
    /// Progress: packets, blocks of work-items and 64 KiB pieces of copies that were retired.
    pub retired: u64,
    /// Board time in ns of the latest progress.
    pub retired_at: u64,
    /// Board time in ns that the queue has held its engine.
    pub busy_ns: u64,
    /// Clock cycles that the queue has used its engine.
    pub cycles: u64,
    /// Instructions that its compute jobs executed.
    pub instructions: u64,
}
const _: () = assert!(core::mem::size_of::<ControlPage>() == 240);

/// Value of [`ControlPage::event`] of a board that does not want doorbells: it is awake.
pub const EVENT_AWAKE: u64 = u64::MAX;

/// What a privileged fence packet writes, 16 bytes aligned to 16. Section "Packets".
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FenceRecord {
    /// Value of the packet. Written after `time`.
    pub value: u64,
    /// Board time in ns at which it was written.
    pub time: u64,
}
const _: () = assert!(core::mem::size_of::<FenceRecord>() == 16);

/// Entry of the fault ring, 64 bytes. Section "Faults".
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultEntry {
    /// Address that was accessed, or the position of the packet for packet faults.
    pub addr: u64,
    /// Board time in ns.
    pub time: u64,
    /// Program counter of a compute fault, otherwise 0.
    pub pc: u64,
    /// Context.
    pub ctx: u16,
    /// Queue id.
    pub queue: u16,
    /// Engine index.
    pub engine: u8,
    /// Slot of the engine.
    pub slot: u8,
    /// Access: `ACCESS_*`.
    pub access: u8,
    /// Level of the page table at which the walk ended.
    pub level: u8,
    /// Code: `FAULT_*`.
    pub code: u32,
    /// Names the fault for a reply to a replayable one; 0 for fatal ones.
    pub token: u32,
    /// `FAULT_FLAG_*`; bit 0 set in each entry that was written.
    pub flags: u32,
    /// Header of the packet, low word, for packet faults.
    pub info: u32,
    /// Zero.
    pub reserved: [u64; 2],
}
const _: () = assert!(core::mem::size_of::<FaultEntry>() == 64);

/// The entry was written.
pub const FAULT_FLAG_WRITTEN: u32 = 1 << 0;
/// The queue stands still until it is reset.
pub const FAULT_FLAG_FATAL: u32 = 1 << 1;

/// Access that faulted: a read.
pub const ACCESS_READ: u8 = 0;
/// Access that faulted: a write.
pub const ACCESS_WRITE: u8 = 1;
/// Access that faulted: an instruction fetch.
pub const ACCESS_EXEC: u8 = 2;
/// Access that faulted: an atomic operation.
pub const ACCESS_ATOMIC: u8 = 3;

/// No entry for the address.
pub const FAULT_NOT_PRESENT: u32 = 1;
/// The entry forbids the access.
pub const FAULT_PERMISSION: u32 = 2;
/// The entry is malformed (reserved bits, address outside VRAM, a broken 64 KiB group).
pub const FAULT_PTE: u32 = 3;
/// The entry is poisoned.
pub const FAULT_POISON: u32 = 4;
/// The address is not aligned as the access needs it.
pub const FAULT_ALIGNMENT: u32 = 5;
/// The address is outside the 48-bit space.
pub const FAULT_RANGE: u32 = 6;
/// System memory did not answer (address not mapped, bus master off).
pub const FAULT_BUS: u32 = 7;
/// The context is not in the table or not valid.
pub const FAULT_CONTEXT: u32 = 8;
/// The packet's opcode is unknown or its length or fields are wrong.
pub const FAULT_PACKET: u32 = 16;
/// A user packet stream holds a privileged packet.
pub const FAULT_PRIVILEGE: u32 = 17;
/// The engine cannot do what the packet asks (a dispatch on a copy engine).
pub const FAULT_ENGINE: u32 = 18;
/// The ring's positions make no sense (more words than the ring holds).
pub const FAULT_RING: u32 = 19;
/// A compute job executed an illegal instruction or a trap.
pub const FAULT_ILLEGAL: u32 = 32;
/// A work-item left a block in which others wait at a barrier.
pub const FAULT_BARRIER: u32 = 33;

/// Firmware image: value of [`FirmwareHeader::magic`]: "OG1F".
pub const FW_MAGIC: u32 = 0x4631_474f;
/// Firmware image: the format without blocks.
pub const FW_FORMAT: u32 = 1;
/// Firmware image: the format with a chain of blocks behind the P-states.
pub const FW_FORMAT_BLOCKS: u32 = 2;
/// Largest image that the board takes.
pub const FW_BYTES_MAX: usize = 1 << 20;
/// Refused: not an image at all, or too small or too large.
pub const FW_ERR_MAGIC: u32 = 1;
/// Refused: another format.
pub const FW_ERR_FORMAT: u32 = 2;
/// Refused: damaged (checksum).
pub const FW_ERR_CHECKSUM: u32 = 3;
/// Refused: the board cannot read it (DMA).
pub const FW_ERR_BUS: u32 = 4;
/// Refused: contents that make no sense.
pub const FW_ERR_CONTENTS: u32 = 5;

/// Head of a firmware image. Section "Firmware".
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirmwareHeader {
    /// [`FW_MAGIC`].
    pub magic: u32,
    /// [`FW_FORMAT`] or [`FW_FORMAT_BLOCKS`].
    pub format: u32,
    /// Bytes of the whole image.
    pub size: u32,
    /// CRC-32 (IEEE, as zlib computes it) of the image with this field zero.
    pub crc32: u32,
    /// Version: major in the upper half, minor in the lower.
    pub version: u32,
    /// Number of [`FirmwarePstate`] entries that follow the header, 1 to 8, fastest first.
    pub pstates: u32,
    /// Mask of engines that the fuses leave enabled.
    pub engines: u32,
    /// Index of the P-state to start in.
    pub initial: u32,
    /// NUL-padded name of the board.
    pub name: [u8; 32],
}
const _: () = assert!(core::mem::size_of::<FirmwareHeader>() == 64);

/// One P-state of the firmware's table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirmwarePstate {
    /// Core clock in kHz.
    pub core_khz: u32,
    /// Memory clock in kHz.
    pub memory_khz: u32,
    /// Core voltage in µV.
    pub core_uv: u32,
    /// Memory voltage in µV.
    pub memory_uv: u32,
}
const _: () = assert!(core::mem::size_of::<FirmwarePstate>() == 16);

/// Head of a block of a firmware image; its data follow. Section "Firmware blocks".
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirmwareBlock {
    /// `FW_BLOCK_*`, or a kind that the board does not know and passes over.
    pub kind: u32,
    /// Bytes of data, a multiple of 4.
    pub bytes: u32,
}
const _: () = assert!(core::mem::size_of::<FirmwareBlock>() == 8);

/// Firmware block: [`FirmwareLimits`].
pub const FW_BLOCK_LIMITS: u32 = 1;
/// First kind of blocks that are the driver's own; the board passes over them.
pub const FW_BLOCK_DRIVER: u32 = 0x100;
/// Largest power that the limits may name, in mW.
pub const FW_POWER_MAX_MW: u32 = 1_000_000;
/// Highest temperature that the limits may name, in m°C.
pub const FW_TEMP_MAX_MC: u32 = 150_000;

/// What board and driver have to hold. Section "Limits".
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirmwareLimits {
    /// Power limit to begin with, in mW.
    pub power_limit_mw: u32,
    /// Lowest power limit that may be set, in mW.
    pub power_min_mw: u32,
    /// Highest power limit that may be set, in mW.
    pub power_max_mw: u32,
    /// Temperature that the driver has to stay below, in m°C.
    pub temp_limit_mc: u32,
    /// Temperature above which the board throttles, in m°C.
    pub temp_crit_mc: u32,
    /// Must be zero.
    pub reserved: [u32; 3],
}
const _: () = assert!(core::mem::size_of::<FirmwareLimits>() == 32);

/// What an engine has done, in a [`StreamRecord`]: its counters, which a reset sets to 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamEngine {
    /// `CTR_BUSY`.
    pub busy_ns: u64,
    /// `CTR_INSTRUCTIONS`.
    pub instructions: u64,
}
const _: () = assert!(core::mem::size_of::<StreamEngine>() == 16);

/// Record of the sampled counter stream, 512 bytes. Section "Counter stream".
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamRecord {
    /// Number of the record since the stream was started; those that were lost count.
    pub sequence: u64,
    /// Board time in ns.
    pub time: u64,
    /// `CTR_ENERGY`.
    pub energy_uj: u64,
    /// `POWER_NOW`.
    pub power_mw: u32,
    /// `TEMP`.
    pub temp_mc: u32,
    /// Clock at which the core really runs, in kHz.
    pub core_khz: u32,
    /// Clock of the memory, in kHz.
    pub memory_khz: u32,
    /// `STREAM_FLAG_*`.
    pub flags: u32,
    /// Records lost since the stream was started.
    pub lost: u32,
    /// `CTR_CORE_CYCLES`.
    pub core_cycles: u64,
    /// `CTR_MEMORY_CYCLES`.
    pub memory_cycles: u64,
    /// `CTR_VRAM_READ`.
    pub vram_read: u64,
    /// `CTR_VRAM_WRITE`.
    pub vram_write: u64,
    /// `CTR_BUS_READ`.
    pub bus_read: u64,
    /// `CTR_BUS_WRITE`.
    pub bus_write: u64,
    /// `CTR_TLB_HITS`.
    pub tlb_hits: u64,
    /// `CTR_TLB_MISSES`.
    pub tlb_misses: u64,
    /// Zero.
    pub reserved0: [u64; 2],
    /// The engines, zeros for those that the board does not have. 16 of [`StreamEngine`].
    pub engines: [u64; 32],
    /// Zero.
    pub reserved1: [u64; 16],
}
const _: () = assert!(core::mem::size_of::<StreamRecord>() == STREAM_BYTES);

/// Bytes of a record of the stream.
pub const STREAM_BYTES: usize = 512;
/// Largest ring of the stream, as the binary logarithm of its records.
pub const STREAM_LOG2_MAX: u32 = 12;
/// Shortest period of the stream in ns.
pub const STREAM_PERIOD_MIN: u32 = 10_000;
/// Flag of a record: records before it were lost.
pub const STREAM_FLAG_LOST: u32 = 1 << 0;

/// Scope of `TLB_INVALIDATE` and of the packet: everything.
pub const TLB_ALL: u32 = 1;
/// Scope: one context.
pub const TLB_CONTEXT: u32 = 2;
/// Scope: a range of pages of one context.
pub const TLB_RANGE: u32 = 3;

/// Counter of the board: board time in ns.
pub const CTR_TIME: u32 = 0;
/// Counter of the board: bytes read from VRAM by engines.
pub const CTR_VRAM_READ: u32 = 1;
/// Counter of the board: bytes written to VRAM by engines.
pub const CTR_VRAM_WRITE: u32 = 2;
/// Counter of the board: bytes read over the bus by engines.
pub const CTR_BUS_READ: u32 = 3;
/// Counter of the board: bytes written over the bus by engines.
pub const CTR_BUS_WRITE: u32 = 4;
/// Counter of the board: translations found in the TLB.
pub const CTR_TLB_HITS: u32 = 5;
/// Counter of the board: translations that needed a walk.
pub const CTR_TLB_MISSES: u32 = 6;
/// Counter of the board: faults.
pub const CTR_FAULTS: u32 = 7;
/// Counter of the board: interrupt messages sent.
pub const CTR_INTERRUPTS: u32 = 8;
/// Counter of the board: energy since power-on in µJ; no reset clears it.
pub const CTR_ENERGY: u32 = 16;
/// Counter of the board: cycles of the core clock, of idle times too.
pub const CTR_CORE_CYCLES: u32 = 17;
/// Counter of the board: cycles of the memory clock, of idle times too.
pub const CTR_MEMORY_CYCLES: u32 = 18;
/// Counter of the board: board time in ns during which it throttled.
pub const CTR_THROTTLED: u32 = 19;
/// Counter of the board: changes of a clock that succeeded.
pub const CTR_CLOCK_CHANGES: u32 = 20;
/// Counter of an engine: clock cycles.
pub const CTR_CYCLES: u32 = 0;
/// Counter of an engine: board time in ns during which it worked.
pub const CTR_BUSY: u32 = 1;
/// Counter of an engine: clock cycles of which it only waited for memory.
pub const CTR_STALL: u32 = 2;
/// Counter of an engine: packets retired.
pub const CTR_PACKETS: u32 = 3;
/// Counter of an engine: blocks of work-items retired.
pub const CTR_BLOCKS: u32 = 4;
/// Counter of an engine: instructions executed.
pub const CTR_INSTRUCTIONS: u32 = 5;
/// Counter of an engine: changes from one slot to another.
pub const CTR_SWITCHES: u32 = 6;
/// Counter of an engine: changes that interrupted a queue which had more to do.
pub const CTR_PREEMPTIONS: u32 = 7;

/// Counter of an engine: board time in ns during which its clock was switched off.
pub const CTR_CLOCK_GATED: u32 = 8;
/// Counter of an engine: board time in ns during which it was without power.
pub const CTR_POWER_GATED: u32 = 9;
/// Counter of an engine: how often it was switched on again.
pub const CTR_WAKES: u32 = 10;

/// Violation: a register offset that is not in the map.
pub const VIOL_REG_UNKNOWN: u32 = 1;
/// Violation: a write to a read-only register.
pub const VIOL_REG_READ_ONLY: u32 = 2;
/// Violation: a read of a write-only register.
pub const VIOL_REG_WRITE_ONLY: u32 = 3;
/// Violation: an access that is not 32 bits wide and aligned.
pub const VIOL_REG_WIDTH: u32 = 4;
/// Violation: bits written that no field has.
pub const VIOL_REG_RESERVED: u32 = 5;
/// Violation: a value that the register does not take (a wrong magic, a scope that is none).
pub const VIOL_REG_VALUE: u32 = 6;
/// Violation: a queue bound to a slot that is not empty, or a slot emptied that holds none.
pub const VIOL_SLOT_STATE: u32 = 7;
/// Violation: a malformed queue descriptor.
pub const VIOL_DESC: u32 = 8;
/// Violation: a queue id bound twice or out of range.
pub const VIOL_QUEUE_ID: u32 = 9;
/// Violation: an invalid packet in a privileged ring (not in an indirect buffer).
pub const VIOL_KERNEL_PACKET: u32 = 10;
/// Violation: a producer's position that goes backwards or further than the ring is long.
pub const VIOL_WPTR: u32 = 11;
/// Violation: a queue whose context is not valid.
pub const VIOL_CONTEXT: u32 = 12;
/// Violation: a malformed page-table entry.
pub const VIOL_PTE: u32 = 13;
/// Violation: a privileged access to a board address that is not there.
pub const VIOL_ADDRESS: u32 = 14;
/// Violation: work asked for while bus mastering was off.
pub const VIOL_BUS_MASTER: u32 = 15;
/// Violation: an engine used before the firmware ran.
pub const VIOL_NO_FIRMWARE: u32 = 16;
/// Violation: a doorbell that is beyond the last or written with another width than 32 bits.
pub const VIOL_DOORBELL: u32 = 17;
/// Violation: a fault ring position that goes beyond what was written.
pub const VIOL_FAULT_RPTR: u32 = 18;
/// Violation: a clock or voltage written while a change of it was under way.
pub const VIOL_POWER_BUSY: u32 = 19;
/// Violation: a voltage below what the clock needs.
pub const VIOL_UNDERVOLTAGE: u32 = 20;
/// Violation: a temperature above the limit.
pub const VIOL_OVERTEMP: u32 = 21;
/// Violation: a position of the stream that goes beyond what was written.
pub const VIOL_STREAM_RPTR: u32 = 22;
