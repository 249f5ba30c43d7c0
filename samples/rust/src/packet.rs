// SPDX-License-Identifier: GPL-2.0
//! User packets of og1; see "Packets" in Documentation/gpu/ochre/og1.rst.

/// The numbers, as the driver and the board have them.
#[path = "../../../include/ochre/og1_packets.rs"]
pub mod hw;

use hw::pkt_header;

/// A compute kernel to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dispatch {
    /// Address of its first instruction.
    pub kernel: u64,
    /// What the kernel gets as its argument.
    pub args: u64,
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Work-items of a block in each dimension.
    pub block: [u32; 3],
    /// Memory for the stacks of one block, or 0 with `stack_bytes` 0.
    pub stack: u64,
    /// Bytes of it for each work-item, a multiple of 16.
    pub stack_bytes: u64,
    /// Bytes of block-local memory.
    pub local_bytes: u32,
}

/// Packets of a job, in order.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    words: Vec<u64>,
}

/// Two 32-bit values in a word.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl Stream {
    /// No packets.
    pub fn new() -> Self {
        Self::default()
    }

    /// The words.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Adds a packet of any kind: its header is made of opcode, flags and immediate.
    pub fn packet(mut self, opcode: u8, flags: u16, immediate: u32, operands: &[u64]) -> Self {
        // CAST: no packet has as many as 255 words.
        let words = (1 + operands.len()) as u8;
        self.words.push(pkt_header(opcode, words, flags, immediate));
        self.words.extend_from_slice(operands);
        self
    }

    /// Adds a word as it is.
    pub fn word(mut self, word: u64) -> Self {
        self.words.push(word);
        self
    }

    /// Does nothing.
    pub fn nop(self) -> Self {
        self.packet(hw::PKT_NOP, 0, 0, &[])
    }

    /// Copies `bytes` from `src` to `dst`.
    pub fn copy(self, src: u64, dst: u64, bytes: u64) -> Self {
        self.packet(hw::PKT_COPY, 0, 0, &[src, dst, bytes])
    }

    /// Copies `size.1` rows of `size.0` bytes between places with an address and a pitch.
    pub fn copy_2d(self, src: (u64, u32), dst: (u64, u32), size: (u32, u32)) -> Self {
        let operands = [src.0, dst.0, pair(src.1, dst.1), pair(size.0, size.1)];
        self.packet(hw::PKT_COPY_2D, 0, 0, &operands)
    }

    /// Fills `bytes`, a multiple of 4, with `value`.
    pub fn fill(self, dst: u64, bytes: u64, value: u32) -> Self {
        self.packet(hw::PKT_FILL, 0, value, &[dst, bytes])
    }

    /// Runs a compute kernel; compute engines only.
    pub fn dispatch(self, d: &Dispatch) -> Self {
        let operands = [
            d.kernel,
            d.args,
            pair(d.grid[0], d.grid[1]),
            pair(d.grid[2], d.block[0]),
            pair(d.block[1], d.block[2]),
            d.stack,
            d.stack_bytes,
        ];
        self.packet(hw::PKT_DISPATCH, 0, d.local_bytes, &operands)
    }

    /// Waits until the 64-bit word at `addr` compares with `value` as `cmp`, `hw::CMP_*`, says.
    pub fn sem_wait(self, addr: u64, value: u64, cmp: u16) -> Self {
        self.packet(hw::PKT_SEM_WAIT, cmp, 0, &[addr, value])
    }

    /// Stores `value` at `addr` after all earlier writes of the queue.
    pub fn sem_signal(self, addr: u64, value: u64) -> Self {
        self.packet(hw::PKT_SEM_SIGNAL, 0, 0, &[addr, value])
    }

    /// Adds `value` to the 64-bit word at `addr`.
    pub fn atomic_add(self, addr: u64, value: u64) -> Self {
        self.packet(hw::PKT_ATOMIC_ADD, 0, 0, &[addr, value])
    }

    /// Stores 64 bits at `addr`.
    pub fn write(self, addr: u64, value: u64) -> Self {
        self.packet(hw::PKT_WRITE_IMM, 0, 0, &[addr, value])
    }

    /// Skips the next `words` words unless the word at `addr` compares.
    pub fn predicate(self, addr: u64, value: u64, cmp: u16, words: u32) -> Self {
        self.packet(hw::PKT_PREDICATE, cmp, words, &[addr, value])
    }

    /// Stores the board's time in ns at `addr`.
    pub fn timestamp(self, addr: u64) -> Self {
        self.packet(hw::PKT_TIMESTAMP, 0, 0, &[addr])
    }

    /// Waits for `ns` of board time.
    pub fn wait_for(self, ns: u64) -> Self {
        self.packet(hw::PKT_WAIT_UNTIL, hw::FLAG_RELATIVE, 0, &[ns])
    }
}
