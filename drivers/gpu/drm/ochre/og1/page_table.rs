// SPDX-License-Identifier: GPL-2.0
//! Page-table entries of og1, the memory of its tables, the table of contexts and the TLB.
//!
//! Tables live in coherent system memory: the CPU writes them often and the board's walks are cached
//! in its TLB. Specification, sections "Contexts" and "Page tables".

use kernel::{
    device::{
        Bound,
        Device, //
    },
    new_mutex,
    prelude::*,
    sync::Mutex, //
};

use super::{
    hw::mem::{
        CtxEntry,
        CTX_VALID,
        PAGE_SHIFT_4K,
        PTE_64K,
        PTE_ADDR,
        PTE_ATOMIC,
        PTE_EXEC,
        PTE_LEAF,
        PTE_NULL,
        PTE_READ,
        PTE_SNOOP,
        PTE_SYSTEM,
        PTE_TYPE_SHIFT,
        PTE_VALID,
        PTE_WRITE,
        PT_ENTRIES,
        TLB_CONTEXT,
        TLB_RANGE, //
    },
    memory::{
        encode_addr,
        SharedWords,
        WORD, //
    },
    regs::{
        self,
        Regs, //
    }, //
};
use crate::{
    algo::va::{
        Attrs,
        LeafSize,
        VaRange, //
    },
    hal::{
        BoardAddr,
        ContextId,
        LeafPlace,
        Table, //
    }, //
};

/// Number of contexts that the driver sets up, fewer than the board can have: 16 KiB of table.
pub(super) const CONTEXTS: u16 = 1024;

/// Memory of one page table.
pub(super) struct PageTable {
    words: SharedWords,
}

impl PageTable {
    /// A table in which nothing is mapped. Sleeps.
    pub(super) fn new(dev: &Device<Bound>) -> Result<Self> {
        Ok(Self {
            words: SharedWords::new(dev, PT_ENTRIES, GFP_KERNEL_ACCOUNT)?,
        })
    }
}

impl Table for PageTable {
    fn address(&self) -> BoardAddr {
        self.words.address(0)
    }

    fn write(&self, first: usize, entries: &[u64]) -> Result {
        self.words.write_all(first, entries)
    }
}

/// Address and address-space bits of an entry.
fn entry(addr: BoardAddr) -> u64 {
    match addr {
        BoardAddr::Vram(offset) => offset & PTE_ADDR | PTE_VALID,
        BoardAddr::System(dma) => dma & PTE_ADDR | PTE_VALID | PTE_SYSTEM,
    }
}

/// Bits that say how large a leaf is.
fn size_bits(size: LeafSize) -> u64 {
    match size {
        LeafSize::Size4K | LeafSize::Size2M => PTE_LEAF,
        LeafSize::Size64K => PTE_LEAF | PTE_64K,
    }
}

/// Entry of a leaf. Access is what `attrs` allows.
pub(super) fn leaf(addr: BoardAddr, size: LeafSize, attrs: Attrs) -> u64 {
    let mut bits = entry(addr) | size_bits(size);
    for (allowed, bit) in [
        (attrs.read, PTE_READ),
        (attrs.write, PTE_WRITE),
        (attrs.exec, PTE_EXEC),
        (attrs.atomic, PTE_ATOMIC),
        (attrs.snoop, PTE_SNOOP),
    ] {
        if allowed {
            bits |= bit;
        }
    }
    bits | u64::from(attrs.memory_type.get()) << PTE_TYPE_SHIFT
}

/// Entry of a leaf that reads as zero and swallows writes.
pub(super) fn sparse_leaf(size: LeafSize) -> u64 {
    PTE_VALID | PTE_NULL | PTE_READ | PTE_WRITE | size_bits(size)
}

/// Entry that points to a table.
pub(super) fn table_entry(addr: BoardAddr) -> u64 {
    entry(addr)
}

/// Where a leaf stands.
pub(super) fn leaf_place(size: LeafSize) -> LeafPlace {
    match size {
        LeafSize::Size4K => LeafPlace {
            level: 0,
            entries: 1,
            step: 0,
        },
        LeafSize::Size64K => LeafPlace {
            level: 0,
            entries: 16,
            step: 1 << PAGE_SHIFT_4K,
        },
        LeafSize::Size2M => LeafPlace {
            level: 1,
            entries: 1,
            step: 0,
        },
    }
}

/// The context table and the registers that invalidate translations.
#[pin_data]
pub(super) struct Contexts {
    table: SharedWords,
    /// Guards the staged values of the MMU unit, from the first one to the ordered register.
    #[pin]
    staging: Mutex<()>,
}

/// Words of an entry of the context table.
const ENTRY_WORDS: usize = size_of::<CtxEntry>() / WORD;

impl Contexts {
    /// A table without a valid context. Sleeps.
    pub(super) fn new(dev: &Device<Bound>) -> impl PinInit<Self, Error> + '_ {
        try_pin_init!(Self {
            table: SharedWords::new(dev, usize::from(CONTEXTS) * ENTRY_WORDS, GFP_KERNEL)?,
            staging <- new_mutex!(()),
        })
    }

    /// Tells the board where the table is; needed after each reset.
    pub(super) fn commit(&self, regs: &Regs) -> Result {
        let _staging = self.staging.lock();
        regs.stage_pair::<regs::CTX_TABLE_LO, regs::CTX_TABLE_HI>(encode_addr(
            self.table.address(0),
        ))?;
        regs.stage(regs::CTX_COUNT::from(u32::from(CONTEXTS)))?;
        regs.write_ordered(regs::CTX_COMMIT::zeroed().with_const_commit::<1>())
    }

    /// Sets or clears the root of a context and drops what the board knew of it.
    pub(super) fn set(&self, regs: &Regs, ctx: ContextId, root: Option<BoardAddr>) -> Result {
        if ctx.0 >= CONTEXTS {
            return Err(EINVAL);
        }
        let entry = root.map_or(0, |addr| encode_addr(addr) | CTX_VALID);
        self.table.write(usize::from(ctx.0) * ENTRY_WORDS, entry)?;
        self.invalidate(regs, ctx, None)
    }

    /// Drops translations of a context, in `range` or all.
    pub(super) fn invalidate(&self, regs: &Regs, ctx: ContextId, range: Option<VaRange>) -> Result {
        // A range of more pages than the register counts is all of the context.
        let range = range.and_then(|r| {
            let pages = u32::try_from(r.len() >> PAGE_SHIFT_4K).ok()?;
            Some((r.start(), pages))
        });

        let _staging = self.staging.lock();
        regs.stage(regs::TLB_CTX::from(u32::from(ctx.0)))?;
        let scope = match range {
            None => TLB_CONTEXT,
            Some((start, pages)) => {
                regs.stage_pair::<regs::TLB_ADDR_LO, regs::TLB_ADDR_HI>(start)?;
                regs.stage(regs::TLB_PAGES::from(pages))?;
                TLB_RANGE
            }
        };
        regs.write_ordered(regs::TLB_INVALIDATE::from(scope))?;
        // Writes to the board are posted; a read comes back only after them.
        regs.read::<regs::STATUS>().map(|_| ())
    }
}
