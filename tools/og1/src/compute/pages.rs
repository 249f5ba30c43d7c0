// SPDX-License-Identifier: GPL-2.0
//! Host pages of recent translations: what makes a load cost a compare and a load.

use ochre_vfio_user::Page;

use crate::engine::Cx;
use crate::fault::Access;
use crate::fault::Fault;
use crate::hw::mem;
use crate::memory::Pa;

/// Pages that are kept.
const PAGES: usize = 256;
/// A page number that no address has.
const NO_PAGE: u64 = u64::MAX;

const READ: u8 = 1;
const WRITE: u8 = 2;
const EXEC: u8 = 4;
const ATOMIC: u8 = 8;

/// A page of 4 KiB.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Page number of the virtual address.
    page: u64,
    /// What may be done without asking the MMU.
    rights: u8,
    /// In system memory.
    pub system: bool,
    /// Where the host has it.
    pub host: Page,
    /// Board address.
    pub pa: Pa,
}

/// The bit of an access in `Entry::rights`.
const fn right(access: Access) -> u8 {
    match access {
        Access::Read => READ,
        Access::Write => WRITE,
        Access::Exec => EXEC,
        Access::Atomic => ATOMIC,
    }
}

/// The pages, of one context.
#[derive(Default)]
pub struct Pages {
    entries: Vec<Entry>,
    ctx: u16,
    epoch: u64,
    generation: u64,
    /// Accesses that needed no MMU.
    hits: u64,
}

impl Pages {
    /// Forgets everything if anything may have changed: context, translations, the guest's memory map.
    pub fn prepare(&mut self, cx: &Cx<'_>, ctx: u16) {
        let now = (ctx, cx.units.mmu.epoch(), cx.mem.generation());
        if now != (self.ctx, self.epoch, self.generation) || self.entries.is_empty() {
            (self.ctx, self.epoch, self.generation) = now;
            self.entries.clear();
            // Any page will do: no access has this page number.
            let pa = Pa::from_parts(false, 0);
            if let Ok(host) = cx.mem.page(pa) {
                let none = Entry {
                    page: NO_PAGE,
                    rights: 0,
                    system: false,
                    host,
                    pa,
                };
                self.entries.resize(PAGES, none);
            }
        }
    }

    /// The page of an address if it is known and allows the access.
    #[inline(always)]
    pub fn find(&mut self, va: u64, access: Access) -> Option<&Entry> {
        let page = va >> mem::PAGE_SHIFT_4K;
        let entry = self.entries.get(page as usize % PAGES)?;
        if entry.page == page && entry.rights & right(access) != 0 {
            self.hits += 1;
            Some(entry)
        } else {
            None
        }
    }

    /// Asks the MMU for the page of an address. `None`: a page without memory.
    #[cold]
    pub fn fill(
        &mut self,
        cx: &mut Cx<'_>,
        va: u64,
        access: Access,
    ) -> Result<Option<Entry>, Fault> {
        let target = cx.translate(self.ctx, va, access)?;
        let Some(pa) = target.pa else {
            return Ok(None);
        };
        let pa = Pa::from_parts(pa.is_system(), pa.address() & !0xfff);
        let bus = |_| Fault::memory(mem::FAULT_BUS, va, access);
        let host = cx.mem.page(pa).map_err(bus)?;
        let dirty = target.leaf.entry & mem::PTE_DIRTY != 0;
        let mut rights = 0;
        for (a, ready) in [
            (Access::Read, true),
            (Access::Write, dirty),
            (Access::Exec, true),
            (Access::Atomic, dirty),
        ] {
            if ready && target.leaf.allows(a) {
                rights |= right(a);
            }
        }
        let page = va >> mem::PAGE_SHIFT_4K;
        let entry = Entry {
            page,
            rights,
            system: pa.is_system(),
            host,
            pa,
        };
        if let Some(place) = self.entries.get_mut(page as usize % PAGES) {
            *place = entry;
        }
        Ok(Some(entry))
    }

    /// Accesses since the last time that needed no MMU.
    pub fn take_hits(&mut self) -> u64 {
        std::mem::take(&mut self.hits)
    }
}
