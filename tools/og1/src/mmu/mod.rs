// SPDX-License-Identifier: GPL-2.0
//! Virtual addresses of contexts to board addresses.
//!
//! ```text
//!   context, address, access ──▶ Tlb ── miss ──▶ context table ──▶ walk ──▶ Leaf ──▶ Tlb
//! ```
//!
//! - `walk`: page tables in memory, each entry checked.
//! - `tlb`: what was found, until it is dropped.
//! - this file: the context table and its cache, and the translation that engines ask for.
//!
//! Belongs to the scheduler; no lock. Engines keep host pages of their own on top (`compute`), which
//! they drop when [`Mmu::epoch`] changes.

mod tlb;
mod walk;

pub use walk::Leaf;

use crate::counters::Counters;
use crate::fault::Access;
use crate::fault::Fault;
use crate::front::Front;
use crate::hw::isa;
use crate::hw::mem;
use crate::judge::Judge;
use crate::judge::Rule;
use crate::memory::Mem;
use crate::memory::Pa;
use crate::regs::Reg;
use tlb::Tlb;

/// Where an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Board address; none for a page without memory.
    pub pa: Option<Pa>,
    /// Bytes to the end of the page.
    pub len: u64,
    /// The page.
    pub leaf: Leaf,
}

/// The MMU of the board.
#[derive(Default)]
pub struct Mmu {
    table: Option<Pa>,
    count: u64,
    /// Per context: its root, once read.
    roots: Vec<Option<Pa>>,
    tlb: Tlb,
    epoch: u64,
    /// Translations found, and not found, since they were last taken.
    hits: u64,
    misses: u64,
}

impl Mmu {
    /// Changes whenever translations were dropped.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Misses since the counters were last moved.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// Counts translations that an engine found in what it keeps itself.
    pub fn count_hits(&mut self, n: u64) {
        self.hits += n;
    }

    /// Moves hits and misses to the counters.
    pub fn publish(&mut self, counters: &Counters) {
        counters.board(mem::CTR_TLB_HITS, std::mem::take(&mut self.hits));
        counters.board(mem::CTR_TLB_MISSES, std::mem::take(&mut self.misses));
    }

    /// `CTX_COMMIT`.
    pub fn set_contexts(&mut self, front: &Front, mem: &Mem<'_>, table: u64, count: u32) {
        self.reset();
        let count = u64::from(count);
        match Pa::new(table).filter(|pa| pa.is_aligned(4096)) {
            Some(pa) if count <= mem::CTX_MAX as u64 => {
                if count != 0 && !mem.reachable(pa, count * 16) {
                    let off = pa.is_system() && !mem.master();
                    let rule = if off { Rule::BusMaster } else { Rule::Address };
                    front.judge.report(rule, table);
                }
                self.table = Some(pa);
                self.count = count;
                self.roots = vec![None; count as usize];
            }
            _ => front
                .judge
                .report(Rule::RegValue, Reg::CTX_COMMIT.def().offset as u64),
        }
    }

    /// Drops translations; what the numbers mean is in the specification. Values out of range drop
    /// nothing that exists.
    pub fn invalidate(&mut self, scope: u32, ctx: u64, addr: u64, pages: u64) {
        self.epoch += 1;
        if scope == mem::TLB_ALL {
            self.tlb.drop_all();
            self.roots.fill(None);
            return;
        }
        let Ok(ctx) = u16::try_from(ctx) else {
            return;
        };
        if scope == mem::TLB_CONTEXT {
            self.tlb.drop_context(ctx);
            if let Some(root) = self.roots.get_mut(usize::from(ctx)) {
                *root = None;
            }
        } else if let Some(bytes) = pages.saturating_mul(4096).checked_sub(1) {
            self.tlb
                .drop_range(ctx, addr & !0xfff, (addr & !0xfff).saturating_add(bytes));
        }
    }

    /// Back to the reset state.
    pub fn reset(&mut self) {
        self.table = None;
        self.count = 0;
        self.roots.clear();
        self.tlb.drop_all();
        self.epoch += 1;
    }

    /// The root table of a context.
    fn root(&mut self, judge: &Judge, mem: &Mem<'_>, ctx: u16) -> Result<Pa, u32> {
        let index = usize::from(ctx);
        if let Some(Some(root)) = self.roots.get(index) {
            return Ok(*root);
        }
        let entry = match self.table {
            Some(table) if u64::from(ctx) < self.count => table.offset(u64::from(ctx) * 16),
            _ => {
                judge.report(Rule::Context, u64::from(ctx));
                return Err(mem::FAULT_CONTEXT);
            }
        };
        let load = |at: Pa| mem.load::<u64>(at).map_err(|_| mem::FAULT_BUS);
        let (root, flags) = (load(entry)?, load(entry.offset(8))?);
        let pa = Pa::new(root & !mem::CTX_VALID).filter(|pa| pa.is_aligned(4096));
        match pa {
            Some(pa) if root & mem::CTX_VALID != 0 && flags == 0 => {
                if let Some(cached) = self.roots.get_mut(index) {
                    *cached = Some(pa);
                }
                Ok(pa)
            }
            _ => {
                judge.report(Rule::Context, u64::from(ctx));
                Err(mem::FAULT_CONTEXT)
            }
        }
    }

    /// Translates an address for an access.
    ///
    /// # Errors
    ///
    /// The fault that the queue gets. Malformed tables and contexts are reported to the judge.
    pub fn translate(
        &mut self,
        judge: &Judge,
        mem: &Mem<'_>,
        ctx: u16,
        va: u64,
        access: Access,
    ) -> Result<Target, Fault> {
        if va >= isa::STACK_BASE {
            return Err(Fault::memory(mem::FAULT_RANGE, va, access));
        }
        let leaf = match self.tlb.find(ctx, va).filter(|leaf| usable(leaf, access)) {
            Some(leaf) => {
                self.hits += 1;
                leaf
            }
            None => {
                self.misses += 1;
                let root = self.root(judge, mem, ctx);
                let root = root.map_err(|code| Fault::memory(code, va, access))?;
                let leaf = walk::walk(mem, root, va, access).map_err(|error| {
                    if let Some(entry) = error.malformed {
                        judge.report(Rule::Pte, entry);
                    }
                    error.fault
                })?;
                self.tlb.insert(ctx, va, leaf);
                leaf
            }
        };
        let offset = va & ((1 << leaf.shift) - 1);
        Ok(Target {
            pa: (!leaf.is_null()).then(|| leaf.pa.offset(offset)),
            len: (1 << leaf.shift) - offset,
            leaf,
        })
    }
}

/// Whether a remembered page answers for an access: it allows it, and needs no mark in its entry.
fn usable(leaf: &Leaf, access: Access) -> bool {
    let writes = matches!(access, Access::Write | Access::Atomic);
    leaf.allows(access) && (!writes || leaf.entry & mem::PTE_DIRTY != 0)
}
