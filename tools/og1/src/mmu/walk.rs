// SPDX-License-Identifier: GPL-2.0
//! The page-table walker: four levels, leaves of 4 KiB, 64 KiB and 2 MiB.
//!
//! A table is memory that its owner may change at any time and that may hold anything. A walk reads
//! each entry once and believes only what it has read.

use crate::fault::Access;
use crate::fault::Fault;
use crate::hw::mem;
use crate::memory::Mem;
use crate::memory::Pa;

/// Bits that an entry which points to a table may have.
const TABLE_BITS: u64 = mem::PTE_VALID | mem::PTE_SYSTEM | mem::PTE_ADDR | mem::PTE_SOFTWARE;
/// Bits in which the 16 entries of a 64 KiB page may differ, besides the address.
const GROUP_IGNORES: u64 = mem::PTE_ACCESSED | mem::PTE_DIRTY | mem::PTE_SOFTWARE;
/// Entries of a 64 KiB page.
const GROUP: u64 = 16;
/// Attempts to mark an entry that others change at the same moment.
const MARK_TRIES: u32 = 4;

/// A page that a walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Board address of the page's first byte.
    pub pa: Pa,
    /// Binary logarithm of the page's size.
    pub shift: u32,
    /// The entry.
    pub entry: u64,
}

impl Leaf {
    /// Whether the page takes no memory: reads zero, drops writes.
    pub fn is_null(&self) -> bool {
        self.entry & mem::PTE_NULL != 0
    }

    /// Whether the entry allows an access.
    pub fn allows(&self, access: Access) -> bool {
        let bit = match (access, self.is_null()) {
            (Access::Read | Access::Write, true) => return true,
            (Access::Exec | Access::Atomic, true) => return false,
            (Access::Read, _) => mem::PTE_READ,
            (Access::Write, _) => mem::PTE_WRITE,
            (Access::Exec, _) => mem::PTE_EXEC,
            (Access::Atomic, _) => mem::PTE_ATOMIC,
        };
        self.entry & bit != 0
    }
}

/// A fault, and whether the table itself is malformed, which is the driver's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkFault {
    /// What the queue gets.
    pub fault: Fault,
    /// The entry that breaks the specification.
    pub malformed: Option<u64>,
}

struct Walk<'a, 'm> {
    mem: &'a Mem<'m>,
    va: u64,
    access: Access,
}

impl Walk<'_, '_> {
    fn fault(&self, code: u32, level: u8) -> WalkFault {
        let fault = Fault::memory(code, self.va, self.access).at_level(level);
        WalkFault {
            fault,
            malformed: None,
        }
    }

    fn malformed(&self, entry: u64, level: u8) -> WalkFault {
        WalkFault {
            malformed: Some(entry),
            ..self.fault(mem::FAULT_PTE, level)
        }
    }

    /// Reads the entry at `pa`, which the entry `by` pointed to.
    fn load(&self, pa: Pa, by: u64, level: u8) -> Result<u64, WalkFault> {
        self.mem.load(pa).map_err(|_| {
            if pa.is_system() {
                self.fault(mem::FAULT_BUS, level)
            } else {
                self.malformed(by, level)
            }
        })
    }

    /// Goes down to the leaf; returns it with the address of its entry.
    fn find(&self, root: Pa) -> Result<(Leaf, Pa, u8), WalkFault> {
        let mut table = root;
        let mut by = root.raw();
        for level in (0..mem::PT_LEVELS as u8).rev() {
            let index = (self.va >> (12 + 9 * u32::from(level))) & 0x1ff;
            let at = table.offset(index * 8);
            let entry: u64 = self.load(at, by, level)?;
            if entry & mem::PTE_VALID == 0 {
                return Err(self.fault(mem::FAULT_NOT_PRESENT, level));
            }
            if entry & mem::PTE_RESERVED != 0 {
                return Err(self.malformed(entry, level));
            }
            let pa = Pa::from_parts(entry & mem::PTE_SYSTEM != 0, entry & mem::PTE_ADDR);
            let is_leaf = entry & mem::PTE_LEAF != 0;
            match (level, is_leaf) {
                (0, true) => {
                    let leaf = self.small(entry, pa, at, index)?;
                    return Ok((leaf, at, level));
                }
                (1, true) => {
                    let leaf = Leaf {
                        pa,
                        shift: mem::PAGE_SHIFT_2M,
                        entry,
                    };
                    self.check(&leaf, level)?;
                    return Ok((leaf, at, level));
                }
                (1..=3, false) if entry & !TABLE_BITS == 0 => {
                    table = pa;
                    by = entry;
                }
                _ => return Err(self.malformed(entry, level)),
            }
        }
        Err(self.fault(mem::FAULT_NOT_PRESENT, 0))
    }

    /// A leaf at level 0: alone, or one of the 16 entries of a 64 KiB page.
    fn small(&self, entry: u64, pa: Pa, at: Pa, index: u64) -> Result<Leaf, WalkFault> {
        if entry & mem::PTE_64K == 0 {
            let leaf = Leaf {
                pa,
                shift: mem::PAGE_SHIFT_4K,
                entry,
            };
            self.check(&leaf, 0)?;
            return Ok(leaf);
        }
        let place = index % GROUP;
        let same = mem::PTE_ADDR | GROUP_IGNORES;
        let is_null = entry & mem::PTE_NULL != 0;
        let Some(first) = (entry & mem::PTE_ADDR).checked_sub(place << 12) else {
            return Err(self.malformed(entry, 0));
        };
        let group = Pa::from_parts(at.is_system(), at.address() - place * 8);
        for i in 0..GROUP {
            let other: u64 = self.load(group.offset(i * 8), entry, 0)?;
            let in_row = is_null || other & mem::PTE_ADDR == first + (i << 12);
            if (other ^ entry) & !same != 0 || !in_row {
                return Err(self.malformed(other, 0));
            }
        }
        let pa = Pa::from_parts(pa.is_system(), if is_null { 0 } else { first });
        let leaf = Leaf {
            pa,
            shift: mem::PAGE_SHIFT_64K,
            entry,
        };
        self.check(&leaf, 0)?;
        Ok(leaf)
    }

    /// Whether the page may exist: aligned, inside VRAM, a memory type that there is.
    fn check(&self, leaf: &Leaf, level: u8) -> Result<(), WalkFault> {
        let bytes = 1u64 << leaf.shift;
        let kind = (leaf.entry & mem::PTE_TYPE) >> mem::PTE_TYPE_SHIFT;
        let wrong_size = level == 1 && leaf.entry & mem::PTE_64K != 0;
        let outside = !leaf.is_null()
            && !leaf.pa.is_system()
            && leaf.pa.address() + bytes > self.mem.vram_size();
        let misaligned = !leaf.is_null() && !leaf.pa.is_aligned(bytes);
        if wrong_size || kind > mem::MT_UC || misaligned || outside {
            return Err(self.malformed(leaf.entry, level));
        }
        Ok(())
    }
}

/// Finds the page of `va` for an access and marks its entry as accessed, and dirty if it is written.
///
/// Bounded: at most 4 walks of 4 entries and a group each.
///
/// # Errors
///
/// The fault, and whether the table is malformed.
pub fn walk(mem: &Mem<'_>, root: Pa, va: u64, access: Access) -> Result<Leaf, WalkFault> {
    let walk = Walk { mem, va, access };
    if va >> mem::VA_BITS != 0 {
        return Err(walk.fault(mem::FAULT_RANGE, 0));
    }
    let marks = match access {
        Access::Read | Access::Exec => mem::PTE_ACCESSED,
        Access::Write | Access::Atomic => mem::PTE_ACCESSED | mem::PTE_DIRTY,
    };
    let mut tries = 0;
    loop {
        let (mut leaf, at, level) = walk.find(root)?;
        if leaf.entry & mem::PTE_POISON != 0 {
            return Err(walk.fault(mem::FAULT_POISON, level));
        }
        if !leaf.allows(access) {
            return Err(walk.fault(mem::FAULT_PERMISSION, level));
        }
        let marked = leaf.entry | marks;
        if marked == leaf.entry {
            return Ok(leaf);
        }
        let seen = mem
            .compare_exchange(at, leaf.entry, marked)
            .map_err(|_| walk.fault(mem::FAULT_BUS, level))?;
        tries += 1;
        if seen == leaf.entry || tries == MARK_TRIES {
            leaf.entry = marked;
            return Ok(leaf);
        }
    }
}
