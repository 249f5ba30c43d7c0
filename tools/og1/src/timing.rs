// SPDX-License-Identifier: GPL-2.0
//! The board's timing model: every figure that decides how much board time something takes.
//!
//! Section "Timing" of the specification lists the same figures. Costs are in core clock cycles.

/// Length of a scheduling quantum in ns of board time.
pub const QUANTUM_NS: u64 = 10_000;
/// Longest wait of a queue over which an idle clock jumps, in ns: an hour. Longer waits take as long
/// as they say, so that no user can send the board to the end of time.
pub const JUMP_MAX_NS: u64 = 3_600_000_000_000;
/// Fetching and decoding a packet.
pub const PACKET_CYCLES: u64 = 32;
/// Bytes that an engine copies or fills per cycle of the memory clock.
pub const COPY_BYTES_PER_CYCLE: u64 = 64;
/// Walking the page table after a TLB miss.
pub const TLB_MISS_CYCLES: u64 = 100;
/// Going from one slot of an engine to another.
pub const SWITCH_CYCLES: u64 = 500;
/// In addition, if the queue that is left had more to do.
pub const PREEMPT_CYCLES: u64 = 2000;
/// Starting a block of work-items.
pub const BLOCK_CYCLES: u64 = 16;
/// A row of a 2D copy, at least.
pub const ROW_CYCLES: u64 = 4;
/// Bytes after which a copy or fill can be preempted, and which count as one unit of progress.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// Instructions that a work-item executes before the next one of its block gets its turn.
pub const HART_SLICE: u64 = 8192;
/// Both clocks in kHz before the firmware has set them.
pub const RESET_KHZ: u32 = 100_000;
/// Both voltages in µV before the firmware has set them.
pub const RESET_UV: u32 = 800_000;
/// Slowest clock in kHz that a P-state may have.
pub const CLOCK_KHZ_MIN: u32 = 1_000;
/// Fastest clock in kHz that a P-state may have.
pub const CLOCK_KHZ_MAX: u32 = 4_000_000;

/// A change of a clock, in ns.
pub const CLOCK_CHANGE_NS: u64 = 20_000;
/// What passes before a voltage begins to change, in ns.
pub const VOLTAGE_SETTLE_NS: u64 = 2_000;
/// How fast it changes then, in µV per ns: 10 mV in a µs.
pub const VOLTAGE_UV_PER_NS: u64 = 10;
/// From something to do to the first packet of an engine that was without power, in ns.
pub const WAKE_NS: u64 = 20_000;

/// Cycles of a clock of `khz` in `ns`, rounded down.
pub fn cycles(ns: u64, khz: u32) -> u64 {
    let cycles = u128::from(ns) * u128::from(khz) / 1_000_000;
    u64::try_from(cycles).unwrap_or(u64::MAX)
}

/// Nanoseconds that `cycles` of a clock of `khz` take, rounded up.
pub fn nanoseconds(cycles: u64, khz: u32) -> u64 {
    let ns = (u128::from(cycles) * 1_000_000).div_ceil(u128::from(khz.max(1)));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Core cycles that moving `bytes` takes, rounded up.
pub fn copy_cycles(bytes: u64, core_khz: u32, memory_khz: u32) -> u64 {
    let bytes = u128::from(bytes) * u128::from(core_khz);
    let rate = u128::from(COPY_BYTES_PER_CYCLE) * u128::from(memory_khz.max(1));
    u64::try_from(bytes.div_ceil(rate)).unwrap_or(u64::MAX)
}
