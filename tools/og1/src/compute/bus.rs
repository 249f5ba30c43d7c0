// SPDX-License-Identifier: GPL-2.0
//! What the instructions of a work-item reach: memory through the page tables, and the windows of
//! block-local memory and stack, which are the engine's own.

use ochre_rv64::AmoOp;
use ochre_rv64::AtomicWidth;
use ochre_rv64::Bus;
use ochre_rv64::Width;
use ochre_rv64::CODE_PAGE_BYTES;
use ochre_rv64::CODE_PAGE_WORDS;

use crate::engine::Cx;
use crate::fault::Access;
use crate::fault::Fault;
use crate::hw::isa;
use crate::hw::mem;
use crate::memory::BusError;
use crate::timing;

use super::pages::Entry;
use super::pages::Pages;

/// The engine's own memory that a work-item sees.
pub struct Windows<'a> {
    /// Block-local memory.
    pub lds: &'a mut [u8],
    /// Stack of the work-item; empty if the dispatch brought stacks of its own.
    pub stack: &'a mut [u8],
    /// A bit per page of the stack: written.
    pub touched: &'a mut u8,
}

/// The bus of a work-item for one run.
pub struct ItemBus<'b, 'a> {
    pub cx: &'b mut Cx<'a>,
    pub pages: &'b mut Pages,
    pub windows: Windows<'b>,
    /// Instructions per cycle.
    pub rate: u64,
}

/// Where an access goes that the page tables do not decide.
enum Window {
    Lds(usize),
    Stack(usize),
    None,
}

impl ItemBus<'_, '_> {
    #[inline(always)]
    fn window(&self, addr: u64) -> Window {
        if addr < isa::STACK_BASE {
            return Window::None;
        }
        let at = |base: u64, len: usize| {
            let offset = usize::try_from(addr.checked_sub(base)?).ok()?;
            (offset < len).then_some(offset)
        };
        if let Some(offset) = at(isa::LDS_BASE, self.windows.lds.len()) {
            Window::Lds(offset)
        } else if let Some(offset) = at(isa::STACK_BASE, self.windows.stack.len()) {
            Window::Stack(offset)
        } else {
            Window::None
        }
    }

    /// The page of an address; `None` if it has no memory.
    #[inline(always)]
    fn page(&mut self, addr: u64, access: Access) -> Result<Option<Entry>, Fault> {
        match self.pages.find(addr, access) {
            Some(entry) => Ok(Some(*entry)),
            None => self.pages.fill(self.cx, addr, access),
        }
    }

    /// Reads from a window.
    fn window_load<W: Width>(&self, addr: u64) -> Option<W> {
        let (bytes, at) = match self.window(addr) {
            Window::Lds(at) => (&*self.windows.lds, at),
            Window::Stack(at) => (&*self.windows.stack, at),
            Window::None => return None,
        };
        W::from_le(bytes.get(at..)?)
    }

    /// Writes to a window; false if there is none.
    fn window_store<W: Width>(&mut self, addr: u64, value: W) -> bool {
        let (bytes, at) = match self.window(addr) {
            Window::Lds(at) => (&mut *self.windows.lds, at),
            Window::Stack(at) => {
                *self.windows.touched |= 1 << (at >> mem::PAGE_SHIFT_4K);
                (&mut *self.windows.stack, at)
            }
            Window::None => return false,
        };
        bytes.get_mut(at..).and_then(|b| value.put_le(b)).is_some()
    }

    #[inline(always)]
    fn count(&self, entry: &Entry, write: bool, bytes: u64) {
        self.cx.mem.traffic.count(entry.system, write, bytes);
    }

    #[inline(always)]
    fn page_load<W: Width>(&self, e: &Entry, addr: u64) -> Result<W, BusError> {
        let (m, at) = (self.cx.mem, addr as usize & 0xfff);
        Ok(W::truncate(match W::BYTES {
            1 => u64::from(m.page_load::<u8>(e.system, &e.host, at)?),
            2 => u64::from(m.page_load::<u16>(e.system, &e.host, at)?),
            4 => u64::from(m.page_load::<u32>(e.system, &e.host, at)?),
            _ => m.page_load::<u64>(e.system, &e.host, at)?,
        }))
    }

    #[inline(always)]
    fn page_store<W: Width>(&self, e: &Entry, addr: u64, value: W) -> Result<(), BusError> {
        let (m, at, v) = (self.cx.mem, addr as usize & 0xfff, value.to_u64());
        match W::BYTES {
            1 => m.page_store(e.system, &e.host, at, v as u8),
            2 => m.page_store(e.system, &e.host, at, v as u16),
            4 => m.page_store(e.system, &e.host, at, v as u32),
            _ => m.page_store(e.system, &e.host, at, v),
        }
    }

    /// Changes a word of memory atomically by `f`, which gets the old value and may keep it.
    fn update<W: AtomicWidth>(
        &self,
        e: &Entry,
        addr: u64,
        f: impl Fn(W) -> W,
    ) -> Result<W, BusError> {
        let pa = e.pa.offset(addr & 0xfff);
        Ok(W::truncate(if W::BYTES == 4 {
            let step = |old: u32| f(W::truncate(u64::from(old))).to_u64() as u32;
            u64::from(self.cx.mem.update(pa, step)?)
        } else {
            self.cx
                .mem
                .update(pa, |old: u64| f(W::truncate(old)).to_u64())?
        }))
    }
}

fn bus(addr: u64, access: Access) -> impl Fn(BusError) -> Fault {
    move |_| Fault::memory(mem::FAULT_BUS, addr, access)
}

impl Bus for ItemBus<'_, '_> {
    type Fault = Fault;

    #[inline(always)]
    fn load<W: Width>(&mut self, addr: u64) -> Result<W, Fault> {
        if let Some(entry) = self.pages.find(addr, Access::Read).copied() {
            self.count(&entry, false, W::BYTES);
            return self
                .page_load(&entry, addr)
                .map_err(bus(addr, Access::Read));
        }
        self.load_slowly(addr)
    }

    #[inline(always)]
    fn store<W: Width>(&mut self, addr: u64, value: W) -> Result<(), Fault> {
        if let Some(entry) = self.pages.find(addr, Access::Write).copied() {
            self.count(&entry, true, W::BYTES);
            return self
                .page_store(&entry, addr, value)
                .map_err(bus(addr, Access::Write));
        }
        self.store_slowly(addr, value)
    }

    fn amo<W: AtomicWidth>(&mut self, addr: u64, op: AmoOp, operand: W) -> Result<W, Fault> {
        if let Some(old) = self.window_load::<W>(addr) {
            self.window_store(addr, W::apply(op, old, operand));
            return Ok(old);
        }
        let Some(entry) = self.page(addr, Access::Atomic)? else {
            return Err(Fault::memory(mem::FAULT_PERMISSION, addr, Access::Atomic));
        };
        self.count(&entry, false, W::BYTES);
        self.count(&entry, true, W::BYTES);
        let old = self.update(&entry, addr, |old| W::apply(op, old, operand));
        old.map_err(bus(addr, Access::Atomic))
    }

    fn load_reserved<W: AtomicWidth>(&mut self, addr: u64) -> Result<W, Fault> {
        if let Some(value) = self.window_load::<W>(addr) {
            return Ok(value);
        }
        let Some(entry) = self.page(addr, Access::Atomic)? else {
            return Err(Fault::memory(mem::FAULT_PERMISSION, addr, Access::Atomic));
        };
        self.count(&entry, false, W::BYTES);
        self.page_load(&entry, addr)
            .map_err(bus(addr, Access::Atomic))
    }

    fn store_conditional<W: AtomicWidth>(
        &mut self,
        addr: u64,
        expected: W,
        new: W,
    ) -> Result<bool, Fault> {
        if let Some(old) = self.window_load::<W>(addr) {
            if old == expected {
                self.window_store(addr, new);
            }
            return Ok(old == expected);
        }
        let Some(entry) = self.page(addr, Access::Atomic)? else {
            return Err(Fault::memory(mem::FAULT_PERMISSION, addr, Access::Atomic));
        };
        self.count(&entry, true, W::BYTES);
        let old = self.update(&entry, addr, |old| if old == expected { new } else { old });
        old.map(|old| old == expected)
            .map_err(bus(addr, Access::Atomic))
    }

    fn fetch(&mut self, page: u64) -> Result<u64, Fault> {
        match self.page(page, Access::Exec)? {
            Some(entry) => Ok(entry.pa.raw()),
            None => Err(Fault::memory(mem::FAULT_PERMISSION, page, Access::Exec)),
        }
    }

    fn read_code(&mut self, page: u64, code: &mut [u32; CODE_PAGE_WORDS]) -> Result<(), Fault> {
        let Some(entry) = self.page(page, Access::Exec)? else {
            return Err(Fault::memory(mem::FAULT_PERMISSION, page, Access::Exec));
        };
        let mut bytes = [0; CODE_PAGE_BYTES as usize];
        self.count(&entry, false, CODE_PAGE_BYTES);
        self.cx
            .mem
            .read(entry.pa, &mut bytes)
            .map_err(bus(page, Access::Exec))?;
        for (word, chunk) in code.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = chunk
                .iter()
                .rev()
                .fold(0, |word, &byte| (word << 8) | u32::from(byte));
        }
        Ok(())
    }

    fn cycle(&self, retired: u64) -> u64 {
        self.cx.cycle().saturating_add(retired / self.rate.max(1))
    }

    fn time(&self, retired: u64) -> u64 {
        let cycles = retired / self.rate.max(1);
        self.cx
            .now()
            .saturating_add(timing::nanoseconds(cycles, self.cx.units.core_khz))
    }
}

impl ItemBus<'_, '_> {
    #[cold]
    fn load_slowly<W: Width>(&mut self, addr: u64) -> Result<W, Fault> {
        if let Some(value) = self.window_load(addr) {
            return Ok(value);
        }
        match self.page(addr, Access::Read)? {
            None => Ok(W::truncate(0)),
            Some(entry) => {
                self.count(&entry, false, W::BYTES);
                self.page_load(&entry, addr)
                    .map_err(bus(addr, Access::Read))
            }
        }
    }

    #[cold]
    fn store_slowly<W: Width>(&mut self, addr: u64, value: W) -> Result<(), Fault> {
        if self.window_store(addr, value) {
            return Ok(());
        }
        match self.page(addr, Access::Write)? {
            None => Ok(()),
            Some(entry) => {
                self.count(&entry, true, W::BYTES);
                self.page_store(&entry, addr, value)
                    .map_err(bus(addr, Access::Write))
            }
        }
    }
}
