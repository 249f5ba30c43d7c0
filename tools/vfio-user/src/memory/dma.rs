// SPDX-License-Identifier: GPL-2.0
//! The device's DMA address space: which addresses the client has mapped, and where they are here.
//!
//! The client maps many pieces (RAM below and above 4 GiB, ROMs, other devices' BARs; with a vIOMMU
//! single pages), each with a file or without. [`GuestMemory`] keeps them sorted by address and
//! apart from each other. The map changes only on the server thread; the device's threads see it
//! through a [`View`], during whose life it stands still.

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::RwLock;
use std::sync::RwLockReadGuard;
use std::sync::RwLockWriteGuard;

use rustix::io::Errno;

use super::access::sealed::Spans;
use super::access::Memory;
use super::access::Span;
use super::mapping::Mapping;
use super::next_generation;
use super::Access;
use super::MemoryError;
use super::PAGE_SIZE;
use crate::proto::MAX_DMA_MAPS;

/// One DMA_MAP of the client: the addresses `first..=last`.
///
/// The end is inclusive because a piece may reach to the very end of the address space.
#[derive(Debug)]
struct Piece {
    first: u64,
    last: u64,
    /// `None` for memory that the client announced without a file descriptor.
    mapping: Option<Mapping>,
}

/// Sorted by address; no two pieces overlap.
#[derive(Debug)]
struct Map {
    pieces: Vec<Piece>,
    generation: u64,
}

/// The memory that the client has opened to the device's DMA.
#[derive(Debug)]
pub struct GuestMemory {
    /// Held through each change from check to effect. Taken before `map`, never inside it.
    changing: Mutex<()>,
    /// Guards the map. Readers: [`View`]s; writer: who holds `changing`. No other lock of this crate
    /// is taken inside it.
    map: RwLock<Map>,
    /// Copy of `map.generation`, for a look without the lock.
    generation: AtomicU64,
    /// Set while the server thread waits for the lock.
    change_pending: AtomicBool,
}

impl Default for GuestMemory {
    fn default() -> Self {
        Self::new()
    }
}

impl GuestMemory {
    /// An address space with nothing in it.
    pub fn new() -> Self {
        let generation = next_generation();
        Self {
            changing: Mutex::new(()),
            map: RwLock::new(Map {
                pieces: Vec::new(),
                generation,
            }),
            generation: AtomicU64::new(generation),
            change_pending: AtomicBool::new(false),
        }
    }

    /// Holds the map still and gives access to the memory.
    ///
    /// The client's next DMA_MAP or DMA_UNMAP waits until the view is gone, and the client gives up
    /// after a few seconds: hold it for a bounded piece of work, and let go early when
    /// [`Self::change_pending`] says so. Taking a second view on the same thread meanwhile can
    /// deadlock.
    pub fn view(&self) -> View<'_> {
        View {
            map: self.map.read().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The generation of the present map; may be outdated when it arrives.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether a change of the map waits for the present views to go.
    pub fn change_pending(&self) -> bool {
        self.change_pending.load(Ordering::Relaxed)
    }

    /// Adds the addresses `address..address + size`, backed by `file` (descriptor and offset).
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is empty, not made of pages, exceeds 64 bits or the end of the file;
    /// `EEXIST` if it overlaps another piece; `ENOSPC` with [`MAX_DMA_MAPS`] pieces already there.
    pub fn map(
        &self,
        address: u64,
        size: u64,
        access: Access,
        file: Option<(BorrowedFd<'_>, u64)>,
    ) -> Result<(), Errno> {
        if address % PAGE_SIZE != 0 || size % PAGE_SIZE != 0 {
            return Err(Errno::INVAL);
        }
        let last = last_address(address, size)?;
        let _changing = self.begin();
        let at = {
            let view = self.view();
            let pieces = &view.map.pieces;
            let at = pieces.partition_point(|piece| piece.last < address);
            if pieces.get(at).is_some_and(|piece| piece.first <= last) {
                return Err(Errno::EXIST);
            }
            if pieces.len() >= MAX_DMA_MAPS {
                return Err(Errno::NOSPC);
            }
            at
        };
        let mapping = match file {
            Some((fd, offset)) => Some(Mapping::new(fd, offset, size, access)?),
            None => None,
        };
        let mut map = self.change();
        map.pieces.insert(
            at,
            Piece {
                first: address,
                last,
                mapping,
            },
        );
        Ok(())
    }

    /// Removes all pieces that lie in `address..address + size`; returns how many there were.
    ///
    /// When it returns, nothing uses them any more. Like the kernel's VFIO, a range may cover any
    /// number of pieces, also none, but may not cut one.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range is empty, exceeds 64 bits, or cuts a piece; then nothing is removed.
    pub fn unmap(&self, address: u64, size: u64) -> Result<usize, Errno> {
        let last = last_address(address, size)?;
        let _changing = self.begin();
        let range = {
            let view = self.view();
            let pieces = &view.map.pieces;
            let from = pieces.partition_point(|piece| piece.last < address);
            let to = pieces.partition_point(|piece| piece.first <= last);
            let inside = &pieces[from..to];
            if inside
                .iter()
                .any(|piece| piece.first < address || piece.last > last)
            {
                return Err(Errno::INVAL);
            }
            from..to
        };
        if range.is_empty() {
            return Ok(0);
        }
        // The pages are given back after the lock: it takes long, and nobody can reach them any more.
        let removed: Vec<Piece> = self.change().pieces.drain(range).collect();
        Ok(removed.len())
    }

    /// Removes everything; returns how many pieces there were.
    pub fn unmap_all(&self) -> usize {
        let _changing = self.begin();
        let removed = std::mem::take(&mut self.change().pieces);
        removed.len()
    }

    /// Starts a change: what is found in the map stays true until the guard goes.
    fn begin(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the views to go, and gives the map a new generation.
    fn change(&self) -> RwLockWriteGuard<'_, Map> {
        self.change_pending.store(true, Ordering::Relaxed);
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        self.change_pending.store(false, Ordering::Relaxed);
        map.generation = next_generation();
        self.generation.store(map.generation, Ordering::Release);
        map
    }
}

/// The last address of a range.
fn last_address(address: u64, size: u64) -> Result<u64, Errno> {
    let below = size.checked_sub(1).ok_or(Errno::INVAL)?;
    address.checked_add(below).ok_or(Errno::INVAL)
}

/// The guest's memory while its map stands still; see [`GuestMemory::view`].
#[derive(Debug)]
pub struct View<'a> {
    map: RwLockReadGuard<'a, Map>,
}

impl Spans for View<'_> {
    #[inline]
    fn span(&self, address: u64, access: Access) -> Result<Span<'_>, MemoryError> {
        let pieces = &self.map.pieces;
        let at = pieces.partition_point(|piece| piece.last < address);
        let piece = match pieces.get(at) {
            Some(piece) if piece.first <= address => piece,
            _ => return Err(MemoryError::Unmapped { address }),
        };
        let mapping = piece
            .mapping
            .as_ref()
            .ok_or(MemoryError::NoBacking { address })?;
        match mapping.span(address - piece.first, access) {
            // The mapping speaks of offsets; the caller asked for an address.
            Err(MemoryError::Denied { .. }) => Err(MemoryError::Denied { address }),
            other => other,
        }
    }
}

impl Memory for View<'_> {
    #[inline]
    fn generation(&self) -> u64 {
        self.map.generation
    }
}
