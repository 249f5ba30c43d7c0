// SPDX-License-Identifier: GPL-2.0
//! The definition of the hardware that board and driver share (include/ochre), and the way from
//! bytes in memory to its structures.

#[allow(unreachable_pub, dead_code, clippy::precedence)]
#[path = "../../../include/ochre/og1_mem.rs"]
pub mod mem;
#[allow(unreachable_pub, dead_code, clippy::precedence)]
#[path = "../../../include/ochre/og1_packets.rs"]
pub mod packets;
#[allow(unreachable_pub, dead_code, clippy::precedence)]
#[path = "../../../include/ochre/og1_regs.rs"]
pub mod regs;

pub use ochre_rv64::isa;

/// Reads little-endian fields one after the other; zeros beyond the end.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// From the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `N` bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let n = N.min(self.0.len());
        let (head, rest) = self.0.split_at(n);
        out[..n].copy_from_slice(head);
        self.0 = rest;
        out
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        let [byte] = self.bytes();
        byte
    }

    /// The next 16 bits.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

/// Decodes a queue descriptor.
pub fn queue_desc(bytes: &[u8; 128]) -> mem::QueueDesc {
    let mut f = Fields::new(bytes);
    mem::QueueDesc {
        magic: f.u32(),
        flags: f.u32(),
        queue: f.u16(),
        ctx: f.u16(),
        priority: f.u8(),
        reserved0: f.bytes(),
        quantum_us: f.u32(),
        ring_log2: f.u32(),
        ring: f.u64(),
        control: f.u64(),
        save: f.u64(),
        start: f.u64(),
        reserved1: std::array::from_fn(|_| f.u64()),
    }
}

/// Encodes an entry of the fault ring.
pub fn fault_entry_bytes(entry: &mem::FaultEntry) -> [u8; 64] {
    let mut out = [0; 64];
    out[0..8].copy_from_slice(&entry.addr.to_le_bytes());
    out[8..16].copy_from_slice(&entry.time.to_le_bytes());
    out[16..24].copy_from_slice(&entry.pc.to_le_bytes());
    out[24..26].copy_from_slice(&entry.ctx.to_le_bytes());
    out[26..28].copy_from_slice(&entry.queue.to_le_bytes());
    out[28] = entry.engine;
    out[29] = entry.slot;
    out[30] = entry.access;
    out[31] = entry.level;
    out[32..36].copy_from_slice(&entry.code.to_le_bytes());
    out[36..40].copy_from_slice(&entry.token.to_le_bytes());
    out[40..44].copy_from_slice(&entry.flags.to_le_bytes());
    out[44..48].copy_from_slice(&entry.info.to_le_bytes());
    out
}

/// Decodes the head of a firmware image.
pub fn firmware_header(bytes: &[u8]) -> mem::FirmwareHeader {
    let mut f = Fields::new(bytes);
    mem::FirmwareHeader {
        magic: f.u32(),
        format: f.u32(),
        size: f.u32(),
        crc32: f.u32(),
        version: f.u32(),
        pstates: f.u32(),
        engines: f.u32(),
        initial: f.u32(),
        name: f.bytes(),
    }
}
