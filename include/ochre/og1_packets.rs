// SPDX-License-Identifier: GPL-2.0
//! Packets of the og1 board. Section "Packets" of `Documentation/gpu/ochre/og1.rst`.
//!
//! A packet is a header word and its operands, all 64-bit words. The header: opcode in 7:0, length
//! in words with the header in 15:8, flags in 31:16, an immediate in 63:32. The C form for
//! user space is `include/uapi/drm/ochre_og1.h`; a test of the board holds the two together.

/// Header: shift of the length in words.
pub const PKT_LEN_SHIFT: u32 = 8;
/// Header: shift of the flags.
pub const PKT_FLAGS_SHIFT: u32 = 16;
/// Header: shift of the immediate.
pub const PKT_IMM_SHIFT: u32 = 32;

/// Builds a header.
pub const fn pkt_header(opcode: u8, words: u8, flags: u16, imm: u32) -> u64 {
    opcode as u64
        | (words as u64) << PKT_LEN_SHIFT
        | (flags as u64) << PKT_FLAGS_SHIFT
        | (imm as u64) << PKT_IMM_SHIFT
}

/// Does nothing. Any length.
pub const PKT_NOP: u8 = 0x00;
/// Runs an indirect buffer: address; immediate: its length in words. Ring only.
pub const PKT_INDIRECT: u8 = 0x01;
/// Copies bytes: source, destination, bytes.
pub const PKT_COPY: u8 = 0x02;
/// Copies a rectangle: source, destination, source pitch | destination pitch << 32,
/// width in bytes | height << 32.
pub const PKT_COPY_2D: u8 = 0x03;
/// Fills with a 32-bit value: destination, bytes (a multiple of 4); immediate: the value.
pub const PKT_FILL: u8 = 0x04;
/// Runs a compute kernel: kernel, arguments, grid x | grid y << 32, grid z | block x << 32,
/// block y | block z << 32, stack base, stack bytes per work-item; immediate: block-local bytes.
pub const PKT_DISPATCH: u8 = 0x05;
/// Waits until the 64-bit word compares: address, value; flags: `CMP_*`.
pub const PKT_SEM_WAIT: u8 = 0x06;
/// Stores a 64-bit word after all earlier writes: address, value.
pub const PKT_SEM_SIGNAL: u8 = 0x07;
/// Adds to a 64-bit word atomically: address, value.
pub const PKT_ATOMIC_ADD: u8 = 0x08;
/// Stores a word: address, value; flag [`FLAG_32BIT`] for 32 bits.
pub const PKT_WRITE_IMM: u8 = 0x09;
/// Skips the next words unless the 64-bit word compares: address, value; immediate: words.
pub const PKT_PREDICATE: u8 = 0x0a;
/// Stores the board time in ns: address.
pub const PKT_TIMESTAMP: u8 = 0x0b;
/// Waits until the board time: time in ns; flag [`FLAG_RELATIVE`]: from now on.
pub const PKT_WAIT_UNTIL: u8 = 0x0c;
/// Flushes and invalidates caches; flags: `CACHE_*`.
pub const PKT_CACHE: u8 = 0x0d;
/// First privileged opcode.
pub const PKT_PRIVILEGED: u8 = 0x80;
/// Privileged: writes a `FenceRecord` after all earlier writes: board address, value;
/// flag [`FLAG_INTERRUPT`].
pub const PKT_FENCE: u8 = 0x80;
/// Privileged: drops translations: context, first address, pages; immediate: `TLB_*`.
pub const PKT_TLB_INVALIDATE: u8 = 0x81;
/// Privileged: writes a register that is not immediate: offset, value.
pub const PKT_REG_WRITE: u8 = 0x82;

/// Words of each packet with the header; [`PKT_NOP`] takes any length.
pub const fn pkt_words(opcode: u8) -> Option<u8> {
    Some(match opcode {
        PKT_INDIRECT | PKT_TIMESTAMP | PKT_WAIT_UNTIL => 2,
        PKT_FILL | PKT_SEM_WAIT | PKT_SEM_SIGNAL | PKT_ATOMIC_ADD | PKT_WRITE_IMM
        | PKT_PREDICATE | PKT_FENCE | PKT_REG_WRITE => 3,
        PKT_COPY | PKT_TLB_INVALIDATE => 4,
        PKT_COPY_2D => 5,
        PKT_DISPATCH => 8,
        PKT_CACHE => 1,
        _ => return None,
    })
}

/// Flag of copy, fill, write, timestamp and semaphore packets in a privileged ring: the addresses
/// are board addresses, not the context's.
pub const FLAG_PHYSICAL: u16 = 1 << 15;
/// Flag of [`PKT_FENCE`]: raise the engine's vector.
pub const FLAG_INTERRUPT: u16 = 1 << 0;
/// Flag of [`PKT_WRITE_IMM`]: 32 bits.
pub const FLAG_32BIT: u16 = 1 << 0;
/// Flag of [`PKT_WAIT_UNTIL`]: the time counts from the packet's start.
pub const FLAG_RELATIVE: u16 = 1 << 0;

/// Compare: memory equals the value.
pub const CMP_EQ: u16 = 0;
/// Compare: memory differs.
pub const CMP_NE: u16 = 1;
/// Compare: memory is greater or equal, unsigned.
pub const CMP_GE: u16 = 2;
/// Compare: memory is greater, unsigned.
pub const CMP_GT: u16 = 3;
/// Compare: memory is less or equal, unsigned.
pub const CMP_LE: u16 = 4;
/// Compare: memory is less, unsigned.
pub const CMP_LT: u16 = 5;

/// Cache packet: write back what is dirty.
pub const CACHE_FLUSH: u16 = 1 << 0;
/// Cache packet: forget what is cached, instructions included.
pub const CACHE_INVALIDATE: u16 = 1 << 1;

/// Most words of an indirect buffer.
pub const INDIRECT_WORDS_MAX: u32 = 1 << 20;
/// Most blocks of a dispatch in each dimension.
pub const GRID_MAX: u32 = 1 << 20;
