// SPDX-License-Identifier: GPL-2.0
//! The protocol's numbers, and reading them out of untrusted bytes.
//!
//! QEMU `docs/interop/vfio-user.rst`, protocol version 0.0. All fields are in host byte order, which
//! is little-endian here.

use rustix::io::Errno;

/// Version that the server speaks: major.
pub(crate) const VERSION_MAJOR: u16 = 0;
/// Version that the server speaks: minor.
pub(crate) const VERSION_MINOR: u16 = 0;

/// Most data in one region read or write, in bytes.
pub const MAX_TRANSFER: u32 = 1 << 20;
/// Most file descriptors in one message (QEMU's own limit).
pub const MAX_FDS: usize = 16;
/// Most DMA maps at a time (the protocol's default).
pub const MAX_DMA_MAPS: usize = 65535;

/// Size of one entry of REGION_WRITE_MULTI: offset, region, count, 8 bytes of data.
pub(crate) const MULTI_WRITE_SIZE: usize = 24;

/// Size of the header of each message.
pub(crate) const HEADER_SIZE: usize = 16;
/// Largest message: the largest transfer with the fixed part of a region write.
pub(crate) const MAX_MESSAGE: usize = HEADER_SIZE + 16 + MAX_TRANSFER as usize;

/// Header flags.
pub(crate) mod flags {
    /// Bits of the message type.
    pub(crate) const TYPE: u32 = 0xf;
    /// Type: a command.
    pub(crate) const COMMAND: u32 = 0;
    /// Type: the reply to a command.
    pub(crate) const REPLY: u32 = 1;
    /// The sender of a command wants no reply.
    pub(crate) const NO_REPLY: u32 = 1 << 4;
    /// A reply reports an error.
    pub(crate) const ERROR: u32 = 1 << 5;
}

/// Flags of DEVICE_GET_INFO (`VFIO_DEVICE_FLAGS_*`).
pub(crate) mod device_flags {
    pub(crate) const RESET: u32 = 1 << 0;
    pub(crate) const PCI: u32 = 1 << 1;
}

/// Flags of DEVICE_GET_REGION_INFO (`VFIO_REGION_INFO_FLAG_*`).
pub(crate) mod region_flags {
    pub(crate) const READ: u32 = 1 << 0;
    pub(crate) const WRITE: u32 = 1 << 1;
    pub(crate) const MMAP: u32 = 1 << 2;
    pub(crate) const CAPS: u32 = 1 << 3;
}

/// `VFIO_REGION_INFO_CAP_SPARSE_MMAP`.
pub(crate) const CAP_SPARSE_MMAP: u16 = 1;

/// Flag of DMA_UNMAP (`VFIO_DMA_UNMAP_FLAG_ALL`).
pub(crate) const DMA_UNMAP_ALL: u32 = 1 << 1;

/// Commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Version,
    DmaMap,
    DmaUnmap,
    GetInfo,
    GetRegionInfo,
    GetIrqInfo,
    SetIrqs,
    RegionRead,
    RegionWrite,
    RegionWriteMulti,
    Reset,
    /// Defined by the protocol, but not offered by this server, or not for a client to send.
    Unsupported,
}

impl Command {
    /// Finds the command by its number; `None` if the protocol has no such command.
    pub(crate) fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            1 => Self::Version,
            2 => Self::DmaMap,
            3 => Self::DmaUnmap,
            4 => Self::GetInfo,
            5 => Self::GetRegionInfo,
            7 => Self::GetIrqInfo,
            8 => Self::SetIrqs,
            9 => Self::RegionRead,
            10 => Self::RegionWrite,
            13 => Self::Reset,
            15 => Self::RegionWriteMulti,
            // Region I/O descriptors; DMA read and write (server to client); dirty pages; device
            // features; migration data.
            6 | 11 | 12 | 14 | 16 | 17 | 18 => Self::Unsupported,
            _ => return None,
        })
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) id: u16,
    pub(crate) command: u16,
    /// Size of the whole message.
    pub(crate) size: u32,
    pub(crate) flags: u32,
    pub(crate) error: u32,
}

impl Header {
    pub(crate) fn from_bytes(bytes: &[u8; HEADER_SIZE]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *bytes;
        Self {
            id: u16::from_le_bytes([a, b]),
            command: u16::from_le_bytes([c, d]),
            size: u32::from_le_bytes([e, f, g, h]),
            flags: u32::from_le_bytes([i, j, k, l]),
            error: u32::from_le_bytes([m, n, o, p]),
        }
    }

    pub(crate) fn put(&self, out: &mut [u8; HEADER_SIZE]) {
        out[0..2].copy_from_slice(&self.id.to_le_bytes());
        out[2..4].copy_from_slice(&self.command.to_le_bytes());
        out[4..8].copy_from_slice(&self.size.to_le_bytes());
        out[8..12].copy_from_slice(&self.flags.to_le_bytes());
        out[12..16].copy_from_slice(&self.error.to_le_bytes());
    }

    pub(crate) fn wants_reply(&self) -> bool {
        self.flags & flags::NO_REPLY == 0
    }
}

/// Takes fields from the front of a payload; too short a payload is `EINVAL`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(*field)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Errno> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Errno> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Errno> {
        self.array().map(u64::from_le_bytes)
    }

    /// What is left, whatever its size.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Result<(), Errno> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Errno::INVAL)
        }
    }
}
