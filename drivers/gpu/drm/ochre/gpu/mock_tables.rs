// SPDX-License-Identifier: GPL-2.0

//! Page tables of [`super::mock`]: memory that can be walked as a board would.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use crate::{
    algo::va::LeafSize,
    hal::{
        BoardAddr,
        Table, //
    }, //
};

/// Entries of a table.
const ENTRIES: usize = 512;
/// Levels of tables.
const LEVELS: u32 = 4;

/// Entry: points to something.
const VALID: u64 = 1 << 0;
/// Entry: to memory, not to a table.
const LEAF: u64 = 1 << 1;
/// Leaf: one of 16.
const GROUP: u64 = 1 << 2;
/// Leaf: sparse.
const SPARSE: u64 = 1 << 3;
/// Entry: the address.
const ADDR: u64 = !0xfff;

fn size_bits(size: LeafSize) -> u64 {
    match size {
        LeafSize::Size4K | LeafSize::Size2M => VALID | LEAF,
        LeafSize::Size64K => VALID | LEAF | GROUP,
    }
}

/// Entry of a leaf.
pub(super) fn leaf(addr: BoardAddr, size: LeafSize) -> u64 {
    addr.offset() & ADDR | size_bits(size)
}

/// Entry of a sparse leaf.
pub(super) fn sparse_leaf(size: LeafSize) -> u64 {
    SPARSE | size_bits(size)
}

/// Entry that points to a table.
pub(super) fn table_entry(addr: BoardAddr) -> u64 {
    addr.offset() & ADDR | VALID
}

/// What an address leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Translation {
    /// Where, for the page of 4 KiB; [`None`] if it is sparse.
    pub(super) addr: Option<u64>,
    /// Size of the leaf.
    pub(super) size: LeafSize,
}

struct Memory {
    entries: KVec<u64>,
    /// It was filled in one go, as tables of small leaves are, and must not change any more: the
    /// board would see half a group.
    filled: bool,
    spoiled: bool,
}

type Shared = Arc<Mutex<Memory>>;

#[derive(Default)]
struct List {
    tables: KVec<(u64, Shared)>,
    made: u64,
}

/// All tables of a board.
#[pin_data]
pub(super) struct Tables {
    #[pin]
    list: Mutex<List>,
}

impl Tables {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(List::default(), "ochre_mock_tables"),
            }),
            GFP_KERNEL,
        )
    }

    /// Memory for a table.
    pub(super) fn new_table(self: &Arc<Self>) -> Result<KBox<dyn Table>> {
        let memory = Memory {
            entries: KVec::from_elem(0, ENTRIES, GFP_KERNEL)?,
            filled: false,
            spoiled: false,
        };
        let memory = Arc::pin_init(new_mutex!(memory, "ochre_mock_table"), GFP_KERNEL)?;
        let mut list = self.list.lock();
        list.made += 1;
        let addr = list.made << 12;
        list.tables.push((addr, memory.clone()), GFP_KERNEL)?;
        let table = MockTable {
            tables: self.clone(),
            addr,
            memory,
        };
        drop(list);
        Ok(KBox::new(table, GFP_KERNEL)?)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.list.lock().tables.len()
    }

    /// Whether a table of small leaves was changed while it could be in use.
    pub(super) fn any_spoiled(&self) -> bool {
        let list = self.list.lock();
        list.tables.iter().any(|(_, memory)| memory.lock().spoiled)
    }

    /// Entry `index` of the table at `addr`, if there is one.
    fn entry(&self, addr: u64, index: usize) -> Option<u64> {
        let list = self.list.lock();
        let (_, memory) = list.tables.iter().find(|(at, _)| *at == addr)?;
        let entry = memory.lock().entries.get(index).copied();
        entry
    }

    /// Walks as a board does. An error: an entry points to a table that is not there, or a group
    /// is not one.
    pub(super) fn walk(&self, root: BoardAddr, va: u64) -> Result<Option<Translation>> {
        let mut table = root.offset();
        for level in (0..LEVELS).rev() {
            let shift = 12 + 9 * level;
            let index = usize::try_from(va >> shift)? % ENTRIES;
            let entry = self.entry(table, index).ok_or(EFAULT)?;
            if entry & VALID == 0 {
                return Ok(None);
            }
            if entry & LEAF == 0 {
                table = entry & ADDR;
                continue;
            }
            let size = match (level, entry & GROUP != 0) {
                (0, false) => LeafSize::Size4K,
                (0, true) => LeafSize::Size64K,
                (1, false) => LeafSize::Size2M,
                _ => return Err(EFAULT),
            };
            if size == LeafSize::Size64K {
                self.check_group(table, index)?;
            }
            // Each entry of a group has the address of its own page.
            let within = va & ((1 << shift) - 1) & ADDR;
            let addr = (entry & ADDR) + within;
            return Ok(Some(Translation {
                addr: (entry & SPARSE == 0).then_some(addr),
                size,
            }));
        }
        Err(EFAULT)
    }

    /// The 16 entries around `index` have to belong together.
    fn check_group(&self, table: u64, index: usize) -> Result {
        let first = index - index % 16;
        let base = self.entry(table, first).ok_or(EFAULT)?;
        let mut want = base;
        for at in first..first + 16 {
            if self.entry(table, at) != Some(want) {
                return Err(EFAULT);
            }
            want += 4096;
        }
        Ok(())
    }
}

/// A page table as the driver holds it.
struct MockTable {
    tables: Arc<Tables>,
    addr: u64,
    memory: Shared,
}

impl Table for MockTable {
    fn address(&self) -> BoardAddr {
        BoardAddr::System(self.addr)
    }

    fn write(&self, first: usize, entries: &[u64]) -> Result {
        let mut memory = self.memory.lock();
        let end = first.checked_add(entries.len()).ok_or(EINVAL)?;
        memory
            .entries
            .get_mut(first..end)
            .ok_or(EINVAL)?
            .copy_from_slice(entries);
        memory.spoiled |= memory.filled;
        memory.filled |= entries.len() == ENTRIES;
        Ok(())
    }
}

impl Drop for MockTable {
    fn drop(&mut self) {
        let mut list = self.tables.list.lock();
        list.tables.retain(|(addr, _)| *addr != self.addr);
    }
}
