// SPDX-License-Identifier: GPL-2.0
//! An address space that a test builds in memory, the way a driver does.

use og1::hw::mem::*;
use og1::hw::regs as hw;
use og1::regs::Reg;

use super::Bench;

/// Permissions of ordinary memory.
pub const RWX: u64 = PTE_READ | PTE_WRITE | PTE_EXEC | PTE_ATOMIC;
pub const RW: u64 = PTE_READ | PTE_WRITE;

/// A context and its page tables.
pub struct Space {
    pub ctx: u16,
    pub root: u64,
}

/// Splits a board address into what an entry holds.
pub fn entry(pa: u64, bits: u64) -> u64 {
    let system = if pa & PA_SYSTEM != 0 { PTE_SYSTEM } else { 0 };
    (pa & PTE_ADDR) | system | PTE_VALID | bits
}

impl Space {
    /// Makes context `ctx` with empty tables; the context table is made on first use.
    pub fn new(bench: &mut Bench, ctx: u16) -> Self {
        let root = bench.alloc(4096);
        let table = bench.context_table();
        bench.poke(table + u64::from(ctx) * 16, root | CTX_VALID);
        bench.invalidate(TLB_CONTEXT, ctx, 0, 0);
        Self { ctx, root }
    }

    /// Board address of the entry of `va` at `level`; tables on the way are made.
    pub fn slot(&self, bench: &mut Bench, va: u64, level: u32) -> u64 {
        let mut table = self.root;
        for l in (level + 1..PT_LEVELS).rev() {
            let at = table + ((va >> (12 + 9 * l)) & 511) * 8;
            let mut e = bench.peek(at);
            if e & PTE_VALID == 0 {
                e = entry(bench.alloc(4096), 0);
                bench.poke(at, e);
            }
            table = (e & PTE_ADDR) | if e & PTE_SYSTEM != 0 { PA_SYSTEM } else { 0 };
        }
        table + ((va >> (12 + 9 * level)) & 511) * 8
    }

    /// Maps a 4 KiB page.
    pub fn map_4k(&self, bench: &mut Bench, va: u64, pa: u64, bits: u64) -> u64 {
        let at = self.slot(bench, va, 0);
        bench.poke(at, entry(pa, PTE_LEAF | bits));
        at
    }

    /// Maps a 64 KiB page.
    pub fn map_64k(&self, bench: &mut Bench, va: u64, pa: u64, bits: u64) -> u64 {
        let at = self.slot(bench, va, 0);
        for i in 0..16 {
            bench.poke(at + i * 8, entry(pa + (i << 12), PTE_LEAF | PTE_64K | bits));
        }
        at
    }

    /// Maps a 2 MiB page.
    pub fn map_2m(&self, bench: &mut Bench, va: u64, pa: u64, bits: u64) -> u64 {
        let at = self.slot(bench, va, 1);
        bench.poke(at, entry(pa, PTE_LEAF | bits));
        at
    }

    /// Maps `bytes` at the same distance from `va` with 4 KiB pages.
    pub fn map(&self, bench: &mut Bench, va: u64, pa: u64, bytes: u64, bits: u64) {
        for at in (0..bytes).step_by(4096) {
            self.map_4k(bench, va + at, pa + at, bits);
        }
    }
}

impl Bench {
    /// The context table; committed on first use.
    pub fn context_table(&mut self) -> u64 {
        let low = u64::from(self.read(Reg::CTX_TABLE_LO, 0));
        let high = u64::from(self.read(Reg::CTX_TABLE_HI, 0));
        if low | high != 0 {
            return low | (high << 32);
        }
        let table = self.alloc(64 * 16);
        self.write(Reg::CTX_TABLE_LO, 0, table as u32);
        self.write(Reg::CTX_TABLE_HI, 0, (table >> 32) as u32);
        self.write(Reg::CTX_COUNT, 0, 64);
        self.write(Reg::CTX_COMMIT, 0, 1);
        table
    }

    pub fn invalidate(&self, scope: u32, ctx: u16, va: u64, pages: u32) {
        self.write(Reg::TLB_CTX, 0, ctx.into());
        self.write(Reg::TLB_ADDR_LO, 0, va as u32);
        self.write(Reg::TLB_ADDR_HI, 0, (va >> 32) as u32);
        self.write(Reg::TLB_PAGES, 0, pages);
        self.write(Reg::TLB_INVALIDATE, 0, scope);
    }

    /// The latest entry of the fault ring: code, address, access, level.
    pub fn last_fault(&self) -> Option<(u32, u64, u8, u8)> {
        let n = self.read(Reg::FAULT_WPTR, 0).checked_sub(1)?;
        let low = u64::from(self.read(Reg::FAULT_RING_LO, 0));
        let high = u64::from(self.read(Reg::FAULT_RING_HI, 0));
        let at = (low | (high << 32)) + u64::from(n % 16) * 64;
        let bytes = self.peek_bytes(at, 64);
        assert_eq!(bytes[40] & 1, 1, "written");
        let word = |i: usize| u64::from_le_bytes(bytes[i..i + 8].try_into().unwrap());
        Some((word(32) as u32, word(0), bytes[30], bytes[31]))
    }

    /// Drops a queue that faulted and takes its entry from the fault ring.
    pub fn drop_faulted(&self, q: &super::Queue) {
        self.write(Reg::ENG_RESET, q.engine, 1 << q.slot);
        assert_eq!(self.slot_state(q), hw::SLOT_EMPTY);
        let wptr = self.read(Reg::FAULT_WPTR, 0);
        self.write(Reg::FAULT_RPTR, 0, wptr);
    }
}
