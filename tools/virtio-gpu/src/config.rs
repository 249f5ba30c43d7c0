// SPDX-License-Identifier: GPL-2.0
//! The shape of a board.

use thiserror::Error;

use crate::wire::feature::Features;
use crate::wire::MAX_SCANOUTS;

/// One MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes of the register BAR: as QEMU's, a page each for common, ISR, device, notify.
pub const REGISTERS: u64 = 0x4000;
/// Control and cursor queue.
pub const QUEUES: usize = 2;
/// MSI-X vectors: one for the configuration and one per queue.
pub const VECTORS: u16 = 3;
/// Largest capset, in bytes.
pub const CAPSET_MAX: u32 = 64 << 10;
/// Capsets that a board can have.
pub const CAPSETS: usize = 16;
/// Page of the guest, and smallest unit of the window.
pub const PAGE: u64 = 4096;

/// A capset of the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capset {
    /// Its id.
    pub id: u32,
    /// Its greatest version.
    pub version: u32,
    /// Its size in bytes.
    pub size: u32,
}

impl Capset {
    /// Byte `at` of a version of the capset: a pattern that tests know.
    pub fn byte(id: u32, version: u32, at: usize) -> u8 {
        let [low, ..] = (id.wrapping_mul(31))
            .wrapping_add(version.wrapping_mul(7))
            .wrapping_add(at as u32)
            .to_le_bytes();
        low
    }
}

/// The shape of a board.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is offered.
    pub features: Features,
    /// Greatest size of the control and the cursor queue.
    pub queue_sizes: [u16; QUEUES],
    /// Bytes of the host-visible window; 0 for none.
    pub window: u64,
    /// The function has MSI-X.
    pub msix: bool,
    /// Displays.
    pub scanouts: u32,
    /// Capsets.
    pub capsets: Vec<Capset>,
    /// Alignment of blobs with [`Features::BLOB_ALIGNMENT`].
    pub blob_alignment: u32,
    /// Caching that MAP_BLOB answers (`VIRTIO_GPU_MAP_CACHE_*`).
    pub map_cache: u32,
    /// Bytes that all resources together may have on the host's side.
    pub memory: u64,
}

/// Why a board cannot have this shape.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// Queue sizes are powers of two.
    #[error("queue size {0}: not a power of two up to 1024")]
    Queue(u16),
    /// The window is a BAR.
    #[error("window of {0:#x} bytes: not a power of two from 1 MiB to 16 GiB")]
    Window(u64),
    /// A response has room for 16 displays.
    #[error("{0} scanouts: there are at most 16")]
    Scanouts(u32),
    /// Capsets.
    #[error("capsets: at most 16, each with an id and at most 64 KiB")]
    Capsets,
    /// Alignment.
    #[error("blob alignment {0:#x}: not a power of two from 4 KiB up")]
    Alignment(u32),
}

impl Default for Config {
    fn default() -> Self {
        let capset = |id, version, size| Capset { id, version, size };
        Self {
            features: Features::VIRGL
                | Features::EDID
                | Features::UUID
                | Features::BLOB
                | Features::CONTEXT_INIT
                | Features::INDIRECT
                | Features::EVENT_IDX
                | Features::VERSION_1,
            queue_sizes: [256, 16],
            window: 64 * MIB,
            msix: true,
            scanouts: 1,
            // Ids and sizes of virgl, virgl2 and venus; the contents are a pattern.
            capsets: vec![capset(1, 1, 308), capset(2, 2, 1384), capset(4, 0, 160)],
            blob_alignment: 64 << 10,
            map_cache: 1,
            memory: 1 << 30,
        }
    }
}

impl Config {
    /// Checks it.
    ///
    /// # Errors
    ///
    /// A board cannot have this shape.
    pub fn check(&self) -> Result<(), ConfigError> {
        let power = |n: u64, from: u64, to: u64| n.is_power_of_two() && (from..=to).contains(&n);
        for size in self.queue_sizes {
            if !power(size.into(), 1, 1024) {
                return Err(ConfigError::Queue(size));
            }
        }
        if self.window != 0 && !power(self.window, MIB, 16 << 30) {
            return Err(ConfigError::Window(self.window));
        }
        if self.scanouts as usize > MAX_SCANOUTS {
            return Err(ConfigError::Scanouts(self.scanouts));
        }
        let good = |capset: &Capset| capset.id != 0 && capset.size <= CAPSET_MAX;
        if self.capsets.len() > CAPSETS || !self.capsets.iter().all(good) {
            return Err(ConfigError::Capsets);
        }
        if !power(self.blob_alignment.into(), PAGE, 1 << 31) {
            return Err(ConfigError::Alignment(self.blob_alignment));
        }
        Ok(())
    }
}
