// SPDX-License-Identifier: GPL-2.0
//! Memory as the board sees it: VRAM and, over the bus, the system's memory, by board address.
//!
//! A [`Bus`] belongs to the board for its life; a [`Mem`] is taken from it for a bounded piece of
//! work, during which the guest's memory map stands still. With bus mastering off, or in silence,
//! there is no system memory.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use ochre_vfio_user as vfu;
use vfu::Access;
use vfu::GuestMemory;
use vfu::Memory;
use vfu::Page;
use vfu::SharedMemory;
use vfu::View;
use vfu::Word;

use crate::hw::mem::PA_MASK;
use crate::hw::mem::PA_SYSTEM;

/// A board address: VRAM offset, or DMA address with [`PA_SYSTEM`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pa(u64);

impl Pa {
    /// The last byte of what a VRAM address can name; no board has memory there.
    pub const NOWHERE: Pa = Pa(PA_MASK);

    /// Takes a 64-bit board address as software writes it; `None` if reserved bits are set.
    pub fn new(raw: u64) -> Option<Self> {
        (raw & !(PA_SYSTEM | PA_MASK) == 0).then_some(Self(raw))
    }

    /// From an address and where it is; the address is cut to its 52 bits.
    pub fn from_parts(system: bool, address: u64) -> Self {
        Self(address & PA_MASK | if system { PA_SYSTEM } else { 0 })
    }

    /// As software writes it.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// Whether it is in system memory.
    pub fn is_system(self) -> bool {
        self.0 & PA_SYSTEM != 0
    }

    /// The address without the place.
    pub fn address(self) -> u64 {
        self.0 & PA_MASK
    }

    /// `offset` bytes further; an address that leaves the 52 bits is nowhere.
    pub fn offset(self, offset: u64) -> Self {
        let address = self.address().saturating_add(offset).min(PA_MASK);
        Self::from_parts(self.is_system(), address)
    }

    /// Whether it is a multiple of `align`, a power of two.
    pub fn is_aligned(self, align: u64) -> bool {
        self.0 & (align - 1) == 0
    }
}

/// Nothing answered at a board address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusError;

/// What engines moved, in bytes.
#[derive(Default, Debug)]
pub struct Traffic {
    /// Read from VRAM, written to VRAM, read from the system, written to the system.
    bytes: [Cell<u64>; 4],
}

impl Traffic {
    /// Counts `n` bytes.
    #[inline(always)]
    pub fn count(&self, system: bool, write: bool, n: u64) {
        let cell = &self.bytes[usize::from(system) * 2 + usize::from(write)];
        cell.set(cell.get().wrapping_add(n));
    }

    /// VRAM read, VRAM written, system read, system written.
    pub fn take(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|i| self.bytes[i].take())
    }
}

/// The board's connection to memory.
pub struct Bus {
    vram: Arc<SharedMemory>,
    guest: Arc<GuestMemory>,
    master: AtomicBool,
}

impl Bus {
    /// With bus mastering off.
    pub fn new(vram: Arc<SharedMemory>, guest: Arc<GuestMemory>) -> Self {
        Self {
            vram,
            guest,
            master: AtomicBool::new(false),
        }
    }

    /// Turns bus mastering on or off.
    pub fn set_master(&self, on: bool) {
        self.master.store(on, Ordering::SeqCst);
    }

    /// Whether bus mastering is on.
    pub fn master(&self) -> bool {
        self.master.load(Ordering::SeqCst)
    }

    /// Opens memory for a bounded piece of work. Not twice on one thread.
    pub fn open(&self) -> Mem<'_> {
        Mem {
            vram: &self.vram,
            system: self.master().then(|| self.guest.view()),
            traffic: Traffic::default(),
        }
    }
}

/// Memory while the guest's map stands still.
pub struct Mem<'a> {
    vram: &'a SharedMemory,
    system: Option<View<'a>>,
    /// What was moved through this.
    pub traffic: Traffic,
}

/// Runs `$body` with `$m` the memory that holds `$pa` and `$a` the address in it.
macro_rules! at {
    ($self:ident, $pa:ident, |$m:ident, $a:ident| $body:expr) => {
        if $pa.is_system() {
            match $self.system.as_ref() {
                Some($m) => {
                    let $a = $pa.address();
                    $body.map_err(|_| BusError)
                }
                None => Err(BusError),
            }
        } else {
            let $m: &vfu::Mapping = $self.vram;
            let $a = $pa.address();
            $body.map_err(|_| BusError)
        }
    };
}

impl Mem<'_> {
    /// Bytes of VRAM.
    pub fn vram_size(&self) -> u64 {
        self.vram.len()
    }

    /// Whether system memory can be reached at all.
    pub fn master(&self) -> bool {
        self.system.is_some()
    }

    /// Names the present map of system memory; 0 without one.
    pub fn generation(&self) -> u64 {
        self.system.as_ref().map_or(0, Memory::generation)
    }

    /// Whether all of `len` bytes are there.
    pub fn reachable(&self, pa: Pa, len: u64) -> bool {
        let both = Access::READ | Access::WRITE;
        let result: Result<(), BusError> = at!(self, pa, |m, a| m.check(a, len, both));
        result.is_ok()
    }

    /// Reads bytes.
    pub fn read(&self, pa: Pa, dst: &mut [u8]) -> Result<(), BusError> {
        at!(self, pa, |m, a| m.read(a, dst))
    }

    /// Writes bytes.
    pub fn write(&self, pa: Pa, src: &[u8]) -> Result<(), BusError> {
        at!(self, pa, |m, a| m.write(a, src))
    }

    /// Reads an aligned word, acquire.
    pub fn load<T: Word>(&self, pa: Pa) -> Result<T, BusError> {
        at!(self, pa, |m, a| m.load(a))
    }

    /// Writes an aligned word, release.
    pub fn store<T: Word>(&self, pa: Pa, value: T) -> Result<(), BusError> {
        at!(self, pa, |m, a| m.store(a, value))
    }

    /// Changes an aligned word atomically; returns the old value.
    pub fn update<T: Word>(&self, pa: Pa, f: impl FnMut(T) -> T) -> Result<T, BusError> {
        at!(self, pa, |m, a| m.update(a, f))
    }

    /// Stores `new` if the word is `expected`; returns the old value.
    pub fn compare_exchange<T: Word>(&self, pa: Pa, expected: T, new: T) -> Result<T, BusError> {
        at!(self, pa, |m, a| m.compare_exchange(a, expected, new))
    }

    /// Fills `count` aligned 32-bit words.
    pub fn fill(&self, pa: Pa, count: u64, value: u32) -> Result<(), BusError> {
        self.traffic.count(pa.is_system(), true, count * 4);
        at!(self, pa, |m, a| m.fill(a, count, value))
    }

    /// Copies `len` bytes, ascending.
    pub fn copy(&self, dst: Pa, src: Pa, len: u64) -> Result<(), BusError> {
        self.traffic.count(src.is_system(), false, len);
        self.traffic.count(dst.is_system(), true, len);
        at!(self, dst, |d, da| at!(self, src, |s, sa| vfu::copy(
            d, da, s, sa, len
        )))
    }

    /// The host page that holds an address, for a software TLB.
    pub fn page(&self, pa: Pa) -> Result<Page, BusError> {
        at!(self, pa, |m, a| m.page(a))
    }

    /// Loads from a page that [`Self::page`] gave for VRAM or the system.
    #[inline(always)]
    pub fn page_load<T: Word>(&self, system: bool, page: &Page, at: usize) -> Result<T, BusError> {
        if system {
            let view = self.system.as_ref().ok_or(BusError)?;
            view.page_load(page, at).map_err(|_| BusError)
        } else {
            self.vram.page_load(page, at).map_err(|_| BusError)
        }
    }

    /// Stores to a page that [`Self::page`] gave for VRAM or the system.
    #[inline(always)]
    pub fn page_store<T: Word>(
        &self,
        system: bool,
        page: &Page,
        at: usize,
        value: T,
    ) -> Result<(), BusError> {
        if system {
            let view = self.system.as_ref().ok_or(BusError)?;
            view.page_store(page, at, value).map_err(|_| BusError)
        } else {
            self.vram.page_store(page, at, value).map_err(|_| BusError)
        }
    }
}
