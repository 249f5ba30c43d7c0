// SPDX-License-Identifier: GPL-2.0
//! Registers of the og1 board, written once for the driver and for the board.
//!
//! `og1_registers!` hands the table to a callback macro. The driver's callback makes a `register!`
//! type and an access class of each line; the board's makes its reset and access table. The
//! specification, `Documentation/gpu/ochre/og1.rst`, tells what each register does.
//!
//! A line reads `[class access = reset] NAME(u32) @ offset { high:low field; }`.
//!
//! - class `immediate`: takes effect at once and reads back what it does;
//! - class `ordered`: all earlier writes to memory have to be visible to the board before it (the
//!   driver puts a barrier in front);
//! - class `batched`: a shadow copy that an `ordered` register of the same unit commits;
//! - access `ro`, `rw`, `wo` or `w1c` (write one to clear).
//!
//! All registers are 32 bits wide, little endian, accessed aligned and whole. A 64-bit value is a
//! pair `_LO`, `_HI`; reading `_LO` latches what `_HI` returns.

/// PCI vendor id of the board.
pub const PCI_VENDOR: u16 = 0x1234;
/// PCI device id of the board.
pub const PCI_DEVICE: u16 = 0x0c47;
/// PCI class code: 3D controller, no VGA.
pub const PCI_CLASS: u32 = 0x030200;

/// Size of BAR0: registers in the lower half, doorbells in the upper.
pub const BAR0_SIZE: usize = 16 << 20;
/// Size of the part of BAR0 that holds registers; the rest up to the doorbells is reserved.
pub const REGS_SIZE: usize = 0x40000;
/// Where the doorbell pages begin in BAR0.
pub const DOORBELL_BASE: usize = 8 << 20;
/// Binary logarithm of the distance between two doorbell pages: 64 KiB.
pub const DOORBELL_SHIFT: u32 = 16;
/// Number of doorbells, which is the number of queue ids.
pub const DOORBELLS: usize = 128;
/// Size of BAR4: the MSI-X table at 0, the pending bits at [`MSIX_PBA`].
pub const BAR4_SIZE: usize = 16 << 10;
/// Where the MSI-X pending-bit array begins in BAR4.
pub const MSIX_PBA: usize = 0x2000;

/// Value of `ID`: "OG01" read as little-endian bytes.
pub const ID_MAGIC: u32 = 0x3130_474f;
/// What `DEVICE_RESET` takes: "RSET".
pub const RESET_MAGIC: u32 = 0x5445_5352;
/// What every register reads as when the device has gone.
pub const ALL_ONES: u32 = 0xffff_ffff;

/// Most engines that the register map has room for.
pub const ENGINES_MAX: usize = 16;
/// Most hardware slots of one engine.
pub const SLOTS_MAX: usize = 4;
/// Most interrupt vectors: fault, time, one per engine.
pub const VECTORS_MAX: usize = 2 + ENGINES_MAX;
/// Most entries of the discovery table.
pub const UNITS_MAX: usize = 64;

/// Vector of faults and of what concerns the whole board.
pub const VECTOR_FAULT: usize = 0;
/// Vector of the alarm.
pub const VECTOR_TIME: usize = 1;
/// Vector of the first engine; engine `i` has `VECTOR_ENGINE0 + i`.
pub const VECTOR_ENGINE0: usize = 2;

/// Discovery: identity, size and reset of the whole board.
pub const UNIT_GLOBAL: u32 = 1;
/// Discovery: interrupt control; `info` is the number of vectors.
pub const UNIT_IRQ: u32 = 2;
/// Discovery: clock, alarm and start gate; `info` is the clock's rate in Hz.
pub const UNIT_TIME: u32 = 3;
/// Discovery: firmware loader.
pub const UNIT_FIRMWARE: u32 = 4;
/// Discovery: context table and TLB; `info` is the number of address bits.
pub const UNIT_MMU: u32 = 5;
/// Discovery: fault ring.
pub const UNIT_FAULT: u32 = 6;
/// Discovery: counters.
pub const UNIT_COUNTERS: u32 = 7;
/// Discovery: violation counts.
pub const UNIT_JUDGE: u32 = 8;
/// Discovery: compute engines; `count` of them, `stride` apart, `info` the index of the first.
pub const UNIT_COMPUTE: u32 = 16;
/// Discovery: copy engines, as [`UNIT_COMPUTE`].
pub const UNIT_COPY: u32 = 17;
/// Discovery: clocks, voltages, energy and gating; `count` domains, `stride` apart.
pub const UNIT_POWER: u32 = 32;
/// Discovery: temperature.
pub const UNIT_THERMAL: u32 = 33;
/// Discovery (reserved): NVRAM window.
pub const UNIT_NVRAM: u32 = 34;
/// Discovery: sampled counter stream; `info` is the number of bytes of a record.
pub const UNIT_STREAM: u32 = 35;
/// Discovery (reserved): access counters.
pub const UNIT_ACCESS: u32 = 36;

/// `FW_STATUS.state`: no firmware.
pub const FW_NONE: u32 = 0;
/// `FW_STATUS.state`: being loaded.
pub const FW_LOADING: u32 = 1;
/// `FW_STATUS.state`: runs; engines may be used.
pub const FW_RUNNING: u32 = 2;
/// `FW_STATUS.state`: refused; `error` says why.
pub const FW_FAILED: u32 = 3;

/// `SLOT_STATUS.state`: holds no queue.
pub const SLOT_EMPTY: u32 = 0;
/// `SLOT_STATUS.state`: holds a queue that has nothing to do.
pub const SLOT_IDLE: u32 = 1;
/// `SLOT_STATUS.state`: holds a queue that runs or waits for its turn.
pub const SLOT_READY: u32 = 2;
/// `SLOT_STATUS.state`: holds a queue that waits on a semaphore or for a time.
pub const SLOT_WAITING: u32 = 3;
/// `SLOT_STATUS.state`: holds a queue that faulted and stands still until it is reset.
pub const SLOT_FAULTED: u32 = 4;
/// `SLOT_STATUS.state`: is being emptied.
pub const SLOT_UNBINDING: u32 = 5;

/// `IRQ_STATUS` of an engine vector: a fence packet asked for an interrupt.
pub const IRQ_FENCE: u32 = 1 << 0;
/// `IRQ_STATUS` of an engine vector: a slot was emptied or a reset ended.
pub const IRQ_SLOT: u32 = 1 << 1;
/// `THROTTLE`: the supply asks for less, the core clock is halved.
pub const THROTTLE_BRAKE: u32 = 1 << 0;
/// `THROTTLE`: the die is too hot, the core runs at an eighth of its clock.
pub const THROTTLE_HOT: u32 = 1 << 1;

/// Domains that have a clock and a voltage of their own.
pub const DOMAINS: usize = 2;
/// Domain of the engines.
pub const DOMAIN_CORE: usize = 0;
/// Domain of the VRAM.
pub const DOMAIN_MEMORY: usize = 1;
/// Lowest voltage of a domain in µV.
pub const VOLT_MIN_UV: u32 = 400_000;
/// Highest voltage of a domain in µV.
pub const VOLT_MAX_UV: u32 = 1_500_000;
/// What `TEMP_ALERT` holds when no alert is wanted.
pub const TEMP_ALERT_OFF: u32 = 0x7fff_ffff;

/// `IRQ_STATUS` of [`VECTOR_FAULT`]: the fault ring holds a new entry.
pub const IRQ_FAULT: u32 = 1 << 0;
/// `IRQ_STATUS` of [`VECTOR_FAULT`]: the fault ring overflowed.
pub const IRQ_OVERFLOW: u32 = 1 << 1;
/// `IRQ_STATUS` of [`VECTOR_FAULT`]: the firmware came up or was refused.
pub const IRQ_FIRMWARE: u32 = 1 << 2;
/// `IRQ_STATUS` of [`VECTOR_FAULT`]: a change of a clock or a voltage ended.
pub const IRQ_POWER: u32 = 1 << 3;
/// `IRQ_STATUS` of [`VECTOR_FAULT`]: the temperature reached `TEMP_ALERT`.
pub const IRQ_THERMAL: u32 = 1 << 4;
/// `IRQ_STATUS` of [`VECTOR_FAULT`]: `THROTTLE` changed.
pub const IRQ_THROTTLE: u32 = 1 << 5;
/// `IRQ_STATUS` of [`VECTOR_FAULT`]: as many records of the stream wait as `STREAM_WATERMARK` says.
pub const IRQ_STREAM: u32 = 1 << 6;
/// `IRQ_STATUS` of [`VECTOR_TIME`]: the alarm's time has come.
pub const IRQ_ALARM: u32 = 1 << 0;
/// `IRQ_STATUS` of any vector: `IRQ_TEST` was written.
pub const IRQ_TEST_BIT: u32 = 1 << 31;

/// Hands every register to the macro `$m`; see the top of this file for the form of a line.
#[macro_export]
macro_rules! og1_registers {
    ($m:path) => {
        $m! {
            // Global: identity, size, reset.

            /// Says that this is an og1: reads as `ID_MAGIC`.
            [immediate ro = 0x3130_474f] ID(u32) @ 0x0000 { 31:0 magic; }
            /// Version of the specification that the board follows.
            [immediate ro = 0x0001_0001] VERSION(u32) @ 0x0004 { 31:16 major; 15:0 minor; }
            /// Number of entries in the discovery table at `UNIT_ID`.
            [immediate ro = 0] UNITS(u32) @ 0x0008 { 15:0 count; }
            /// State of the whole board.
            [immediate ro = 0] STATUS(u32) @ 0x000c {
                0:0 firmware_running; 1:1 resetting; 2:2 bus_master;
            }
            /// Takes `RESET_MAGIC` and resets everything but the bus interface.
            [ordered wo = 0] DEVICE_RESET(u32) @ 0x0010 { 31:0 magic; }
            /// Holds what software puts in it; 0 after each reset.
            [immediate rw = 0] SCRATCH(u32) @ 0x0014 { 31:0 value; }
            /// VRAM in MiB.
            [immediate ro = 0] VRAM_SIZE(u32) @ 0x0018 { 31:0 mebibytes; }
            /// The part of VRAM, from its start, that BAR2 shows, in MiB.
            [immediate ro = 0] APERTURE_SIZE(u32) @ 0x001c { 31:0 mebibytes; }
            /// Doorbells: how many, and the binary logarithm of their distance.
            [immediate ro = 0] DOORBELLS_CAPS(u32) @ 0x0020 { 31:16 count; 15:0 shift; }
            /// Where the first doorbell is in BAR0.
            [immediate ro = 0] DOORBELLS_OFFSET(u32) @ 0x0024 { 31:0 offset; }
            /// Engines in all, and hardware slots of each.
            [immediate ro = 0] ENGINES(u32) @ 0x0028 { 15:8 slots; 7:0 count; }
            /// Number of resets since power-on, of any kind.
            [immediate ro = 0] RESET_COUNT(u32) @ 0x002c { 31:0 count; }
            /// Frequency of the core clock in kHz; the same as `CLK_NOW`.
            [immediate ro = 0] CORE_CLOCK(u32) @ 0x0030 { 31:0 kilohertz; }
            /// Frequency of the memory clock in kHz; the same as `CLK_NOW`.
            [immediate ro = 0] MEMORY_CLOCK(u32) @ 0x0034 { 31:0 kilohertz; }

            // Discovery: one entry per unit, 16 bytes apart.

            /// Type and version of a unit.
            [immediate ro = 0] UNIT_ID(u32)[64, stride = 16] @ 0x1000 { 31:16 version; 15:0 kind; }
            /// Where the unit's registers begin in BAR0.
            [immediate ro = 0] UNIT_OFFSET(u32)[64, stride = 16] @ 0x1004 { 31:0 offset; }
            /// How many of the unit there are, and the bytes between two.
            [immediate ro = 0] UNIT_COUNT(u32)[64, stride = 16] @ 0x1008 { 31:16 stride; 15:0 count; }
            /// A value that depends on the type.
            [immediate ro = 0] UNIT_INFO(u32)[64, stride = 16] @ 0x100c { 31:0 info; }

            // Interrupts, per vector.

            /// What happened; stays until it is cleared.
            [immediate w1c = 0] IRQ_STATUS(u32)[18, stride = 16] @ 0x2000 { 31:0 bits; }
            /// 1: the vector sends no message; unmasking with a status bit set sends one.
            [immediate rw = 1] IRQ_MASK(u32)[18, stride = 16] @ 0x2004 { 0:0 masked; }
            /// Raises the vector, with status bit 31.
            [immediate wo = 0] IRQ_TEST(u32)[18, stride = 16] @ 0x2008 { 0:0 raise; }

            // Time.

            /// Board time in ns, low word; latches `TIME_HI`.
            [immediate ro = 0] TIME_LO(u32) @ 0x3000 { 31:0 value; }
            /// Board time in ns, high word as of the last read of `TIME_LO`.
            [immediate ro = 0] TIME_HI(u32) @ 0x3004 { 31:0 value; }
            /// Any write stores the board time in `LATCH`; the CPU reads its clock before and after.
            [ordered wo = 0] LATCH(u32) @ 0x3008 { 0:0 latch; }
            /// Latched board time, low word.
            [immediate ro = 0] LATCH_LO(u32) @ 0x300c { 31:0 value; }
            /// Latched board time, high word.
            [immediate ro = 0] LATCH_HI(u32) @ 0x3010 { 31:0 value; }
            /// Alarm time, low word.
            [batched rw = 0] ALARM_LO(u32) @ 0x3014 { 31:0 value; }
            /// Alarm time, high word.
            [batched rw = 0] ALARM_HI(u32) @ 0x3018 { 31:0 value; }
            /// Commits the alarm time and arms it; `lockstep` halts the clock until `ALARM_ACK`.
            [ordered rw = 0] ALARM_CTRL(u32) @ 0x301c { 1:1 lockstep; 0:0 enable; }
            /// Ends a lock-step halt and takes back the alarm.
            [ordered wo = 0] ALARM_ACK(u32) @ 0x3020 { 0:0 ack; }
            /// Whether the alarm went off and whether the clock stands because of it.
            [immediate ro = 0] ALARM_STATUS(u32) @ 0x3024 { 1:1 halted; 0:0 pending; }
            /// 1: no queue starts a packet; what is queued runs when the gate opens.
            [ordered rw = 0] GATE(u32) @ 0x3028 { 0:0 closed; }

            // Firmware.

            /// Address of the image in system memory, low word.
            [batched rw = 0] FW_ADDR_LO(u32) @ 0x4000 { 31:0 value; }
            /// Address of the image, high word.
            [batched rw = 0] FW_ADDR_HI(u32) @ 0x4004 { 31:0 value; }
            /// Size of the image in bytes.
            [batched rw = 0] FW_SIZE(u32) @ 0x4008 { 31:0 bytes; }
            /// Starts the loader.
            [ordered wo = 0] FW_CTRL(u32) @ 0x400c { 0:0 load; }
            /// How far the loader is, `FW_*`, and why it refused.
            [immediate ro = 0] FW_STATUS(u32) @ 0x4010 { 15:8 error; 3:0 state; }
            /// Version of the image that runs.
            [immediate ro = 0] FW_VERSION(u32) @ 0x4014 { 31:16 major; 15:0 minor; }

            // MMU.

            /// Board address of the context table, low word.
            [batched rw = 0] CTX_TABLE_LO(u32) @ 0x5000 { 31:0 value; }
            /// Board address of the context table, high word.
            [batched rw = 0] CTX_TABLE_HI(u32) @ 0x5004 { 31:0 value; }
            /// Number of entries in the context table.
            [batched rw = 0] CTX_COUNT(u32) @ 0x5008 { 15:0 count; }
            /// Commits the context table and empties the TLB.
            [ordered wo = 0] CTX_COMMIT(u32) @ 0x500c { 0:0 commit; }
            /// Context whose translations to drop.
            [batched rw = 0] TLB_CTX(u32) @ 0x5010 { 15:0 ctx; }
            /// First address to drop, low word.
            [batched rw = 0] TLB_ADDR_LO(u32) @ 0x5014 { 31:0 value; }
            /// First address to drop, high word.
            [batched rw = 0] TLB_ADDR_HI(u32) @ 0x5018 { 31:0 value; }
            /// Number of 4 KiB pages to drop.
            [batched rw = 0] TLB_PAGES(u32) @ 0x501c { 31:0 pages; }
            /// Drops translations: everything, one context, or a range of one context.
            [ordered wo = 0] TLB_INVALIDATE(u32) @ 0x5020 { 1:0 scope; }

            // Fault ring.

            /// Board address of the fault ring, low word.
            [batched rw = 0] FAULT_RING_LO(u32) @ 0x6000 { 31:0 value; }
            /// Board address of the fault ring, high word.
            [batched rw = 0] FAULT_RING_HI(u32) @ 0x6004 { 31:0 value; }
            /// Binary logarithm of the number of entries, at most 12.
            [batched rw = 0] FAULT_SIZE(u32) @ 0x6008 { 3:0 log2; }
            /// Commits the ring and starts or stops its use; both positions return to 0.
            [ordered rw = 0] FAULT_CTRL(u32) @ 0x600c { 0:0 enable; }
            /// Number of entries that the board has written, modulo 2^32.
            [immediate ro = 0] FAULT_WPTR(u32) @ 0x6010 { 31:0 value; }
            /// Number of entries that the driver has taken, modulo 2^32.
            [ordered rw = 0] FAULT_RPTR(u32) @ 0x6014 { 31:0 value; }
            /// Set when an entry was lost because the ring was full.
            [immediate w1c = 0] FAULT_STATUS(u32) @ 0x6018 { 0:0 overflow; }

            // Counters.

            /// Which counter: `unit` 0 is the board, 1 + i is engine i.
            [ordered rw = 0] CTR_SELECT(u32) @ 0x7000 { 15:8 unit; 7:0 counter; }
            /// Value of the selected counter, low word; latches `CTR_HI`.
            [immediate ro = 0] CTR_LO(u32) @ 0x7004 { 31:0 value; }
            /// Value of the selected counter, high word.
            [immediate ro = 0] CTR_HI(u32) @ 0x7008 { 31:0 value; }

            // Judge.

            /// Violations of the specification since power-on; no reset clears it.
            [immediate ro = 0] VIOL_COUNT(u32) @ 0x8000 { 31:0 count; }
            /// Code of the latest violation, `VIOL_*`.
            [immediate ro = 0] VIOL_LAST(u32) @ 0x8004 { 15:0 code; }
            /// What the latest violation was about (an offset, an address), low word.
            [immediate ro = 0] VIOL_INFO_LO(u32) @ 0x8008 { 31:0 value; }
            /// What the latest violation was about, high word.
            [immediate ro = 0] VIOL_INFO_HI(u32) @ 0x800c { 31:0 value; }
            /// Code whose count `VIOL_SELECTED` shows.
            [immediate rw = 0] VIOL_SELECT(u32) @ 0x8010 { 15:0 code; }
            /// Number of violations with the selected code.
            [immediate ro = 0] VIOL_SELECTED(u32) @ 0x8014 { 31:0 count; }

            // Power: domain 0 is the core, 1 the memory, 64 bytes apart.

            /// Clock that the domain is to run at; writing it starts a change.
            [ordered rw = 100_000] CLK_TARGET(u32)[2, stride = 64] @ 0x9000 { 31:0 kilohertz; }
            /// Whether a change of the clock is under way, and whether the latest one failed.
            [immediate ro = 0] CLK_STATUS(u32)[2, stride = 64] @ 0x9004 { 1:1 failed; 0:0 busy; }
            /// Clock that the domain runs at.
            [immediate ro = 100_000] CLK_NOW(u32)[2, stride = 64] @ 0x9008 { 31:0 kilohertz; }
            /// Voltage that the domain is to have; writing it starts a change.
            [ordered rw = 800_000] VOLT_TARGET(u32)[2, stride = 64] @ 0x900c { 31:0 microvolts; }
            /// Whether a change of the voltage is under way, and whether the latest one failed.
            [immediate ro = 0] VOLT_STATUS(u32)[2, stride = 64] @ 0x9010 { 1:1 failed; 0:0 busy; }
            /// Voltage that the domain has.
            [immediate ro = 800_000] VOLT_NOW(u32)[2, stride = 64] @ 0x9014 { 31:0 microvolts; }
            /// What the board takes: the mean of the latest quantum.
            [immediate ro = 0] POWER_NOW(u32) @ 0x9080 { 31:0 milliwatts; }
            /// Energy since power-on in µJ, low word; latches `ENERGY_HI`.
            [immediate ro = 0] ENERGY_LO(u32) @ 0x9084 { 31:0 value; }
            /// Energy since power-on, high word as of the last read of `ENERGY_LO`.
            [immediate ro = 0] ENERGY_HI(u32) @ 0x9088 { 31:0 value; }
            /// Whether the supply asks for less.
            [immediate ro = 0] POWER_BRAKE(u32) @ 0x908c { 0:0 active; }
            /// Why the core runs slower than `CLK_NOW`.
            [immediate ro = 0] THROTTLE(u32) @ 0x9090 { 1:1 hot; 0:0 brake; }
            /// What the board switches off of an engine while that is idle.
            [ordered rw = 0] GATE_CTRL(u32)[16, stride = 16] @ 0x9100 { 1:1 power; 0:0 clock; }
            /// What is switched off of an engine.
            [immediate ro = 0] GATE_STATUS(u32)[16, stride = 16] @ 0x9104 {
                1:1 power_gated; 0:0 clock_gated;
            }

            // Thermal.

            /// Temperature of the die in thousandths of a degree Celsius, signed.
            [immediate ro = 0] TEMP(u32) @ 0xa000 { 31:0 millidegrees; }
            /// Temperature of the air that cools it, signed.
            [immediate ro = 0] TEMP_AMBIENT(u32) @ 0xa004 { 31:0 millidegrees; }
            /// Temperature that the driver has to stay below, signed; 0 without limits.
            [immediate ro = 0] TEMP_LIMIT(u32) @ 0xa008 { 31:0 millidegrees; }
            /// Temperature above which the board throttles, signed; 0 without limits.
            [immediate ro = 0] TEMP_CRIT(u32) @ 0xa00c { 31:0 millidegrees; }
            /// Temperature at which to raise `IRQ_THERMAL`, once, signed.
            [ordered rw = 0x7fff_ffff] TEMP_ALERT(u32) @ 0xa010 { 31:0 millidegrees; }

            // Stream.

            /// Board address of the ring of records, low word.
            [batched rw = 0] STREAM_RING_LO(u32) @ 0xc000 { 31:0 value; }
            /// Board address of the ring of records, high word.
            [batched rw = 0] STREAM_RING_HI(u32) @ 0xc004 { 31:0 value; }
            /// Binary logarithm of the number of records, at most 12.
            [batched rw = 0] STREAM_SIZE(u32) @ 0xc008 { 3:0 log2; }
            /// Board time from record to record in ns, at least 10,000.
            [batched rw = 0] STREAM_PERIOD(u32) @ 0xc00c { 31:0 nanoseconds; }
            /// How many records wait when `IRQ_STREAM` is raised.
            [batched rw = 0] STREAM_WATERMARK(u32) @ 0xc010 { 31:0 records; }
            /// Commits the others and starts or stops the stream; both positions return to 0.
            [ordered rw = 0] STREAM_CTRL(u32) @ 0xc014 { 0:0 enable; }
            /// Number of records that the board has written, modulo 2^32.
            [immediate ro = 0] STREAM_WPTR(u32) @ 0xc018 { 31:0 value; }
            /// Number of records that the driver has taken, modulo 2^32.
            [ordered rw = 0] STREAM_RPTR(u32) @ 0xc01c { 31:0 value; }
            /// Number of records for which there was no room.
            [immediate ro = 0] STREAM_LOST(u32) @ 0xc020 { 31:0 count; }

            // Engines, 4 KiB apart.

            /// What the engine is: `UNIT_COMPUTE` or `UNIT_COPY`, and how many slots it has.
            [immediate ro = 0] ENG_ID(u32)[16, stride = 0x1000] @ 0x10000 {
                23:16 slots; 15:8 index; 7:0 kind;
            }
            /// Compute: instructions per clock, most work-items of a block.
            [immediate ro = 0] ENG_CAPS(u32)[16, stride = 0x1000] @ 0x10004 {
                31:16 block_items; 15:0 lanes;
            }
            /// Whether the engine works and which slot it works for (0xff: none).
            [immediate ro = 0xff00] ENG_STATUS(u32)[16, stride = 0x1000] @ 0x10008 {
                15:8 slot; 0:0 busy;
            }
            /// Resets slots (their queues are dropped) or the whole engine.
            [ordered wo = 0] ENG_RESET(u32)[16, stride = 0x1000] @ 0x1000c {
                31:31 engine; 3:0 slots;
            }
            /// What became of the last reset; cleared by a new one.
            [immediate ro = 0] ENG_RESET_STATUS(u32)[16, stride = 0x1000] @ 0x10010 {
                31:31 engine_done; 30:30 engine_refused; 11:8 slots_refused; 3:0 slots_done;
            }
            /// Compute: bytes of block-local memory.
            [immediate ro = 0] ENG_LDS(u32)[16, stride = 0x1000] @ 0x10014 { 31:0 bytes; }
            /// Applies the shadow copies of the slots in the mask.
            [ordered wo = 0] SLOT_COMMIT(u32)[16, stride = 0x1000] @ 0x10018 { 3:0 slots; }

            // Slots: number engine * 4 + slot, 64 bytes apart.

            /// Board address of the queue descriptor, low word.
            [batched rw = 0] SLOT_DESC_LO(u32)[64, stride = 64] @ 0x20000 { 31:0 value; }
            /// Board address of the queue descriptor, high word.
            [batched rw = 0] SLOT_DESC_HI(u32)[64, stride = 64] @ 0x20004 { 31:0 value; }
            /// 1: hold the queue of the descriptor; 0: save the queue and become empty.
            [batched rw = 0] SLOT_CTRL(u32)[64, stride = 64] @ 0x20008 { 0:0 bind; }
            /// State of the slot, `SLOT_*`, its queue id, and the code of its fault.
            [immediate ro = 0] SLOT_STATUS(u32)[64, stride = 64] @ 0x2000c {
                31:16 queue; 15:8 error; 3:0 state;
            }
        }
    };
}
