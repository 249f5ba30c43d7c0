// SPDX-License-Identifier: GPL-2.0
//! Resources: bytes on the host's side, pages on the guest's, and copies between the two.
//!
//! The host's bytes of a texture are its levels one after the other, each with rows and layers
//! without gaps; a blob is a row of bytes.

use ochre_vfio_user as vfu;
use vfu::View;

use crate::gpu::backing::Backing;
use crate::gpu::Fail;
use crate::wire::blob;
use crate::wire::Resp;

/// Rows that a transfer may have.
const ROWS_MAX: u64 = 1 << 20;
/// Levels of a texture.
const LEVELS_MAX: u32 = 16;
/// The target of buffers (`PIPE_BUFFER`).
const BUFFER: u32 = 0;

/// What kind of resource it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A 2D resource.
    Flat,
    /// A 3D resource.
    Texture,
    /// A blob: its memory and flags.
    Blob(u32, u32),
}

impl Shape {
    /// Its name at the control socket.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "2d",
            Self::Texture => "3d",
            Self::Blob(blob::GUEST, _) => "guest",
            Self::Blob(blob::HOST3D, _) => "host3d",
            Self::Blob(..) => "host3d-guest",
        }
    }
}

/// Width, height, depth or layers, levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Slices, which get fewer from level to level.
    pub depth: u32,
    /// Layers, which do not.
    pub layers: u32,
    /// Number of the last level.
    pub last_level: u32,
}

/// A part of a resource, in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Column, row, slice.
    pub at: [u32; 3],
    /// Columns, rows, slices.
    pub size: [u32; 3],
}

/// Where a transfer goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// The part of the level.
    pub place: Place,
    /// The level.
    pub level: u32,
    /// Where the part begins in the guest's pages.
    pub offset: u64,
    /// Bytes between rows there; 0 for those of the level.
    pub stride: u32,
    /// Bytes between slices there; 0 for those of the level.
    pub layer_stride: u32,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the guest's pages.
    ToHost,
    /// To them.
    FromHost,
}

struct Level {
    offset: u64,
    size: [u64; 3],
    row: u64,
    slice: u64,
}

/// A resource.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Its kind.
    pub shape: Shape,
    /// The guest's pages.
    pub backing: Option<Backing>,
    extent: Extent,
    /// Bytes of a pixel.
    pixel: u32,
    /// Bytes on the host's side.
    bytes: u64,
    /// Those bytes, once somebody has looked at them.
    host: Vec<u8>,
}

/// Bytes of a pixel of a format (`VIRTIO_GPU_FORMAT_*` and virgl's); most have four.
fn pixel(format: u32) -> u32 {
    match format {
        31 => 16,
        30 => 12,
        29 => 8,
        16 | 65 => 2,
        64 => 1,
        _ => 4,
    }
}

fn refused<T>() -> Result<T, Fail> {
    Err(Fail::Refused(Resp::ErrParameter))
}

impl Resource {
    /// A 2D or 3D resource of a format.
    ///
    /// # Errors
    ///
    /// It is too large.
    pub fn new(shape: Shape, format: u32, target: u32, extent: Extent) -> Result<Self, Fail> {
        if extent.last_level >= LEVELS_MAX {
            return refused();
        }
        let pixel = if target == BUFFER && shape == Shape::Texture {
            1
        } else {
            pixel(format)
        };
        let mut resource = Self {
            shape,
            backing: None,
            extent,
            pixel,
            bytes: 0,
            host: Vec::new(),
        };
        let last = resource.level(extent.last_level);
        let end = last.and_then(|l| l.offset.checked_add(l.slice.checked_mul(l.size[2])?));
        match end {
            Some(bytes) => resource.bytes = bytes,
            None => return refused(),
        }
        Ok(resource)
    }

    /// A blob.
    pub fn blob(mem: u32, flags: u32, bytes: u64, backing: Option<Backing>) -> Self {
        Self {
            shape: Shape::Blob(mem, flags),
            backing,
            extent: Extent::default(),
            pixel: 1,
            bytes,
            host: Vec::new(),
        }
    }

    /// Bytes on the host's side.
    pub fn host_bytes(&self) -> u64 {
        match self.shape {
            Shape::Blob(blob::GUEST, _) => 0,
            _ => self.bytes,
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Pieces of guest memory that it has.
    pub fn entries(&self) -> usize {
        self.backing.as_ref().map_or(0, Backing::entries)
    }

    /// Where a level is.
    fn level(&self, level: u32) -> Option<Level> {
        if let Shape::Blob(..) = self.shape {
            return Some(Level {
                offset: 0,
                size: [self.bytes, 1, 1],
                row: self.bytes,
                slice: self.bytes,
            });
        }
        if level > self.extent.last_level {
            return None;
        }
        let mut offset = 0u64;
        for number in 0..=level {
            let at = |n: u32| u64::from((n >> number).max(1));
            let slices = at(self.extent.depth).checked_mul(self.extent.layers.max(1).into())?;
            let size = [at(self.extent.width), at(self.extent.height), slices];
            let row = size[0].checked_mul(self.pixel.into())?;
            let slice = row.checked_mul(size[1])?;
            if number == level {
                return Some(Level {
                    offset,
                    size,
                    row,
                    slice,
                });
            }
            offset = offset.checked_add(slice.checked_mul(slices)?)?;
        }
        None
    }

    /// The host's bytes; made at the first look.
    pub fn host(&mut self) -> &mut [u8] {
        let bytes = usize::try_from(self.host_bytes()).unwrap_or(0);
        if self.host.len() != bytes {
            self.host = vec![0; bytes];
        }
        &mut self.host
    }

    /// Whether anybody has looked at the host's bytes.
    pub fn is_touched(&self) -> bool {
        !self.host.is_empty()
    }

    /// Whether there is a byte at every offset of a word.
    fn has_word(&self, offset: u32) -> bool {
        u64::from(offset) + 4 <= self.bytes
    }

    /// A word of it, as the host sees it.
    ///
    /// # Errors
    ///
    /// It has no such word.
    pub fn load(&mut self, memory: &View<'_>, offset: u32) -> Result<u32, Fail> {
        if !self.has_word(offset) {
            return refused();
        }
        let mut word = [0; 4];
        match (self.shape, &self.backing) {
            (Shape::Blob(blob::GUEST, _), Some(backing)) => {
                backing.load(memory, offset.into(), &mut word)?;
            }
            (Shape::Blob(blob::GUEST, _), None) => return refused(),
            _ => {
                let at = offset as usize;
                word.copy_from_slice(&self.host()[at..at + 4]);
            }
        }
        Ok(u32::from_le_bytes(word))
    }

    /// Stores a word of it.
    ///
    /// # Errors
    ///
    /// It has no such word.
    pub fn store(&mut self, memory: &View<'_>, offset: u32, value: u32) -> Result<(), Fail> {
        if !self.has_word(offset) {
            return refused();
        }
        let word = value.to_le_bytes();
        match (self.shape, &self.backing) {
            (Shape::Blob(blob::GUEST, _), Some(backing)) => {
                backing.store(memory, offset.into(), &word)
            }
            (Shape::Blob(blob::GUEST, _), None) => refused(),
            _ => {
                let at = offset as usize;
                self.host()[at..at + 4].copy_from_slice(&word);
                Ok(())
            }
        }
    }

    /// Copies between the guest's pages and the host's bytes; returns how many bytes.
    ///
    /// # Errors
    ///
    /// The part is outside the resource or its pages.
    pub fn transfer(
        &mut self,
        memory: &View<'_>,
        transfer: &Transfer,
        direction: Direction,
    ) -> Result<u64, Fail> {
        let level = self
            .level(transfer.level)
            .ok_or(Fail::Refused(Resp::ErrParameter))?;
        let at = transfer.place.at.map(u64::from);
        let size = transfer.place.size.map(u64::from);
        let inside = (0..3).all(|axis| size[axis] > 0 && at[axis] + size[axis] <= level.size[axis]);
        if !inside || self.host_bytes() == 0 {
            return refused();
        }
        let bytes = size[0] * u64::from(self.pixel);
        let stride = match transfer.stride {
            0 => level.row,
            stride => stride.into(),
        };
        let layer_stride = match transfer.layer_stride {
            0 => stride.checked_mul(level.size[1]),
            stride => Some(stride.into()),
        };
        let layer_stride = layer_stride.ok_or(Fail::Refused(Resp::ErrParameter))?;
        // Rows without gaps on either side are one.
        let whole = bytes == level.row && stride == level.row;
        let (rows, run) = if whole {
            (1, bytes * size[1])
        } else {
            (size[1], bytes)
        };
        if rows * size[2] > ROWS_MAX {
            return refused();
        }
        let backing = self
            .backing
            .take()
            .ok_or(Fail::Refused(Resp::ErrParameter))?;
        let column = at[0] * u64::from(self.pixel);
        let host = self.host();
        let mut copy = || {
            for slice in 0..size[2] {
                for row in 0..rows {
                    let guest = slice
                        .checked_mul(layer_stride)
                        .and_then(|n| n.checked_add(row.checked_mul(stride)?))
                        .and_then(|n| n.checked_add(transfer.offset))
                        .ok_or(Fail::Refused(Resp::ErrParameter))?;
                    // Inside the resource, whose bytes are in memory.
                    let from = level.offset
                        + (at[2] + slice) * level.slice
                        + (at[1] + row) * level.row
                        + column;
                    let range = from as usize..(from + run) as usize;
                    match direction {
                        Direction::ToHost => backing.load(memory, guest, &mut host[range])?,
                        Direction::FromHost => backing.store(memory, guest, &host[range])?,
                    }
                }
            }
            Ok(run * rows * size[2])
        };
        let result = copy();
        self.backing = Some(backing);
        result
    }
}
