// SPDX-License-Identifier: GPL-2.0
//! Page tables: three sizes of leaves, each fault, marks, and the TLB that may be stale.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::space::*;
use common::*;
use ochre_vfio_user as vfu;
use og1::fault::Access;
use og1::fault::Fault;
use og1::hw::mem::*;
use og1::judge::Judge;
use og1::judge::Rule;
use og1::memory::Bus;
use og1::mmu::Mmu;
use rand::rngs::SmallRng;
use rand::Rng;
use rand::SeedableRng;

/// An MMU alone, with the bench's memory.
struct Unit {
    bench: Bench,
    bus: Bus,
    mmu: Mmu,
    judge: Judge,
    space: Space,
}

impl Unit {
    fn new() -> Self {
        let mut bench = Bench::cold(small());
        let space = Space::new(&mut bench, 1);
        let table = bench.context_table();
        let vram: Arc<vfu::SharedMemory> = bench.board.vram().clone();
        let bus = Bus::new(vram, bench.guest.clone());
        bus.set_master(true);
        let mut mmu = Mmu::default();
        mmu.set_contexts(bench.board.front(), &bus.open(), table, 64);
        Self {
            bench,
            bus,
            mmu,
            judge: Judge::default(),
            space,
        }
    }

    /// Translates and returns the board address, `None` for a page without memory.
    fn find(&mut self, va: u64, access: Access) -> Result<Option<u64>, Fault> {
        let mem = self.bus.open();
        let target = self.mmu.translate(&self.judge, &mem, 1, va, access)?;
        Ok(target.pa.map(|pa| pa.raw()))
    }

    fn code(&mut self, va: u64, access: Access) -> u32 {
        self.find(va, access).expect_err("a fault").code
    }

    fn flush(&mut self) {
        self.mmu.invalidate(TLB_ALL, 0, 0, 0);
    }
}

const VA: u64 = 0x1234_5600_0000;

#[test]
fn each_size_of_leaf_translates_every_byte_of_its_page() {
    let mut u = Unit::new();
    u.space.map_4k(&mut u.bench, VA, 0x7000, RWX);
    u.space.map_64k(&mut u.bench, VA + 0x1_0000, 0x2_0000, RWX);
    u.space.map_2m(&mut u.bench, VA + 0x20_0000, 0x40_0000, RWX);
    let pages = [
        (0, 0x7000, 1 << 12),
        (0x1_0000, 0x2_0000, 1 << 16),
        (0x20_0000, 0x40_0000, 1 << 21),
    ];
    for (at, pa, bytes) in pages {
        for offset in [0, 1, bytes / 2, bytes - 1] {
            assert_eq!(
                u.find(VA + at + offset, Access::Read),
                Ok(Some(pa + offset))
            );
        }
        assert_eq!(u.code(VA + at + bytes, Access::Read), FAULT_NOT_PRESENT);
    }
    assert_eq!(u.judge.count(), 0);
}

#[test]
fn each_access_needs_its_own_permission() {
    let mut u = Unit::new();
    let accesses = [
        (Access::Read, PTE_READ),
        (Access::Write, PTE_WRITE),
        (Access::Exec, PTE_EXEC),
        (Access::Atomic, PTE_ATOMIC),
    ];
    for (_, bit) in accesses {
        u.space.map_4k(&mut u.bench, VA, 0x7000, bit);
        u.flush();
        for (access, needs) in accesses {
            let found = u.find(VA, access);
            if bit == needs {
                assert_eq!(found, Ok(Some(0x7000)));
            } else {
                assert_eq!(found.unwrap_err().code, FAULT_PERMISSION);
            }
        }
    }
}

#[test]
fn what_is_not_there_faults_at_its_level() {
    let mut u = Unit::new();
    for level in (0..4).rev() {
        let fault = u.find(VA, Access::Write).unwrap_err();
        assert_eq!((fault.code, fault.level), (FAULT_NOT_PRESENT, level as u8));
        assert_eq!((fault.addr, fault.access), (VA, Access::Write));
        u.space.slot(&mut u.bench, VA, level);
        if level > 0 {
            u.space.slot(&mut u.bench, VA, level - 1);
        }
    }
    assert_eq!(u.code(1 << 48, Access::Read), FAULT_RANGE);
    assert_eq!(u.code(u64::MAX, Access::Read), FAULT_RANGE);
    assert_eq!(u.code(og1::hw::isa::STACK_BASE, Access::Read), FAULT_RANGE);
    assert_eq!(u.judge.count(), 0);
}

#[test]
fn malformed_entries_fault_and_are_violations() {
    let mut u = Unit::new();
    let leaf = entry(0x7000, PTE_LEAF | RW);
    let bad = [
        (0, leaf | (1 << 63)),
        (0, leaf | (1 << 8)),
        (0, leaf | (4 << PTE_TYPE_SHIFT)),
        (0, leaf & !PTE_LEAF),
        (0, entry(16 << 20, PTE_LEAF | RW)),
        (0, entry(PTE_ADDR, PTE_LEAF | RW)),
        (1, entry(0x20_1000, PTE_LEAF | RW)),
        (1, entry(0x20_0000, PTE_LEAF | PTE_64K | RW)),
        (1, entry(0x20_0000, RW)),
        (2, entry(0x20_0000, PTE_LEAF | RW)),
        (3, entry(0x20_0000, PTE_LEAF | RW)),
        (3, entry(0x20_0000, PTE_ACCESSED)),
        // A table outside VRAM.
        (2, entry(1 << 40, 0)),
    ];
    for (n, (level, e)) in bad.into_iter().enumerate() {
        let va = VA + ((n as u64 + 1) << 39) % (1 << 46);
        let at = u.space.slot(&mut u.bench, va, level);
        u.bench.poke(at, e);
        assert_eq!(u.code(va, Access::Read), FAULT_PTE, "entry {n}: {e:#x}");
        assert_eq!(
            u.judge.log().last().map(|v| (v.rule, v.info)),
            Some((Rule::Pte, e)),
            "{n}"
        );
        u.bench.poke(at, 0);
    }
    assert_eq!(u.judge.count(), bad.len() as u32);
}

#[test]
fn a_64k_group_is_whole_or_malformed() {
    let mut u = Unit::new();
    let at = u.space.map_64k(&mut u.bench, VA, 0x2_0000, RW);
    // Accessed, dirty and software bits may differ.
    let e = u.bench.peek(at + 7 * 8);
    u.bench
        .poke(at + 7 * 8, e | PTE_ACCESSED | PTE_DIRTY | PTE_SOFTWARE);
    assert_eq!(u.find(VA + 0x3004, Access::Read), Ok(Some(0x2_3004)));
    let wrong = [
        e | PTE_SNOOP,
        e & !PTE_WRITE,
        e & !PTE_64K,
        e & !PTE_VALID,
        e + 0x1000,
        0,
    ];
    for w in wrong {
        u.flush();
        u.bench.poke(at + 7 * 8, w);
        assert_eq!(u.code(VA + 0x3004, Access::Read), FAULT_PTE, "{w:#x}");
    }
    u.flush();
    // Consecutive, but not aligned to 64 KiB.
    u.space.map_64k(&mut u.bench, VA, 0x2_1000, RW);
    assert_eq!(u.code(VA, Access::Read), FAULT_PTE);
    assert_eq!(u.judge.count(), wrong.len() as u32 + 1);
}

#[test]
fn pages_without_memory_read_zero_and_poison_faults() {
    let mut u = Unit::new();
    u.space.map_4k(&mut u.bench, VA, 0, PTE_NULL);
    u.space.map_64k(&mut u.bench, VA + 0x1_0000, 0, PTE_NULL);
    u.space.map_2m(&mut u.bench, VA + 0x20_0000, 0, PTE_NULL);
    u.space
        .map_4k(&mut u.bench, VA + 0x2000, 0x7000, RWX | PTE_POISON);
    for va in [VA, VA + 0x1_5000, VA + 0x20_1000] {
        assert_eq!(u.find(va, Access::Read), Ok(None));
        assert_eq!(u.find(va, Access::Write), Ok(None));
        assert_eq!(u.code(va, Access::Exec), FAULT_PERMISSION);
        assert_eq!(u.code(va, Access::Atomic), FAULT_PERMISSION);
    }
    assert_eq!(u.code(VA + 0x2000, Access::Read), FAULT_POISON);
    assert_eq!(u.judge.count(), 0);
}

#[test]
fn accessed_and_dirty_are_set_on_first_use_only() {
    let mut u = Unit::new();
    let at = u.space.map_4k(&mut u.bench, VA, 0x7000, RWX);
    let clean = u.bench.peek(at);
    u.find(VA, Access::Read).unwrap();
    assert_eq!(u.bench.peek(at), clean | PTE_ACCESSED);
    u.find(VA, Access::Write).unwrap();
    assert_eq!(u.bench.peek(at), clean | PTE_ACCESSED | PTE_DIRTY);
    // Cleared without an invalidation: the TLB has no reason to look again.
    u.bench.poke(at, clean);
    u.find(VA, Access::Write).unwrap();
    assert_eq!(u.bench.peek(at), clean);
    u.flush();
    u.find(VA, Access::Atomic).unwrap();
    assert_eq!(u.bench.peek(at), clean | PTE_ACCESSED | PTE_DIRTY);
    // A fault leaves no mark.
    let at = u.space.map_4k(&mut u.bench, VA + 0x1000, 0x8000, PTE_READ);
    let clean = u.bench.peek(at);
    assert_eq!(u.code(VA + 0x1000, Access::Write), FAULT_PERMISSION);
    assert_eq!(u.bench.peek(at), clean);
}

#[test]
fn a_changed_entry_is_used_until_it_is_invalidated() {
    let mut u = Unit::new();
    let scopes: [(&str, u32, u64, u64); 3] = [
        ("all", TLB_ALL, 0, 0),
        ("context", TLB_CONTEXT, 0, 0),
        ("range", TLB_RANGE, VA, 1),
    ];
    for (name, scope, addr, pages) in scopes {
        u.space.map_4k(&mut u.bench, VA, 0x7000, RW);
        u.flush();
        assert_eq!(u.find(VA, Access::Read), Ok(Some(0x7000)));
        u.space.map_4k(&mut u.bench, VA, 0x8000, RW);
        assert_eq!(u.find(VA, Access::Read), Ok(Some(0x7000)), "stale: {name}");
        // Neighbours and other contexts do not matter.
        u.mmu.invalidate(TLB_RANGE, 1, VA + 0x1000, 1 << 20);
        u.mmu.invalidate(TLB_CONTEXT, 2, 0, 0);
        assert_eq!(u.find(VA, Access::Read), Ok(Some(0x7000)), "stale: {name}");
        u.mmu.invalidate(scope, 1, addr, pages);
        assert_eq!(u.find(VA, Access::Read), Ok(Some(0x8000)), "fresh: {name}");
    }
    // A range that touches a large page drops it; numbers beyond everything are harmless.
    u.space.map_2m(&mut u.bench, VA + 0x20_0000, 0x40_0000, RW);
    u.find(VA + 0x20_0000, Access::Read).unwrap();
    u.space.map_2m(&mut u.bench, VA + 0x20_0000, 0x60_0000, RW);
    u.mmu.invalidate(TLB_RANGE, 1, VA + 0x2f_f000, 1);
    assert_eq!(u.find(VA + 0x20_0000, Access::Read), Ok(Some(0x60_0000)));
    u.mmu.invalidate(TLB_RANGE, u64::MAX, u64::MAX, u64::MAX);
    u.mmu.invalidate(TLB_RANGE, 1, u64::MAX, u64::MAX);
}

#[test]
fn contexts_are_checked_on_use_and_kept_until_dropped() {
    let mut u = Unit::new();
    u.space.map_4k(&mut u.bench, VA, 0x7000, RW);
    let table = u.bench.context_table();
    let mem = |u: &mut Unit, ctx| {
        let mem = u.bus.open();
        u.mmu
            .translate(&u.judge, &mem, ctx, VA, Access::Read)
            .map(|_| ())
            .map_err(|f| f.code)
    };
    assert_eq!(mem(&mut u, 0), Err(FAULT_CONTEXT));
    assert_eq!(mem(&mut u, 64), Err(FAULT_CONTEXT));
    let root = u.space.root;
    for bad in [root, root | CTX_VALID | 2, root | CTX_VALID | (1 << 52)] {
        u.bench.poke(table, bad);
        assert_eq!(mem(&mut u, 0), Err(FAULT_CONTEXT), "{bad:#x}");
    }
    u.bench.poke(table, root | CTX_VALID);
    u.bench.poke(table + 8, 1);
    assert_eq!(mem(&mut u, 0), Err(FAULT_CONTEXT));
    u.bench.poke(table + 8, 0);
    assert_eq!(mem(&mut u, 0), Ok(()));
    u.bench.poke(table, 0);
    assert_eq!(mem(&mut u, 0), Ok(()), "kept");
    u.mmu.invalidate(TLB_CONTEXT, 0, 0, 0);
    assert_eq!(mem(&mut u, 0), Err(FAULT_CONTEXT));
    assert_eq!(u.judge.count(), 7);
    assert!(u.judge.log().iter().all(|v| v.rule == Rule::Context));
}

#[test]
fn tables_that_do_not_answer_are_bus_faults() {
    let mut u = Unit::new();
    let at = u.space.slot(&mut u.bench, VA, 2);
    u.bench.poke(at, entry(PA_SYSTEM | 0x1000, 0));
    let fault = u.find(VA, Access::Read).unwrap_err();
    assert_eq!((fault.code, fault.level), (FAULT_BUS, 1));
    u.bus.set_master(false);
    u.flush();
    assert_eq!(u.code(VA, Access::Read), FAULT_BUS);
    assert_eq!(u.judge.count(), 0);
}

/// Random maps and unmaps of all sizes against a map from 4 KiB pages to what they hold.
#[test]
fn random_address_spaces_agree_with_a_simple_model() {
    let seed: u64 = rand::rngs::OsRng.gen();
    println!("seed {seed:#x}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut u = Unit::new();
    let mut model: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    // Two 2 MiB regions far apart, so that tables at every level are in play.
    let bases = [VA, 0x7000_0020_0000];
    for round in 0..400 {
        let base = bases[rng.gen_range(0..2)];
        let shift = [12, 16, 21][rng.gen_range(0..3)];
        let bytes = 1u64 << shift;
        let va = base + rng.gen_range(0..(1u64 << 21) / bytes) * bytes;
        let pa = rng.gen_range(0..(16u64 << 20) / bytes) * bytes;
        let bits = [RW, PTE_READ, RWX, PTE_READ | PTE_EXEC][rng.gen_range(0..4)];
        // Take away what is there: the leaf of 2 MiB, or all small leaves.
        let top = u.space.slot(&mut u.bench, base, 1);
        let large = u.bench.peek(top) & PTE_LEAF != 0;
        if large || shift == 21 {
            u.bench.poke(top, 0);
            model.retain(|page, _| page >> 21 != base >> 21);
        } else {
            // A 64 KiB group goes as a whole.
            let group = va & !0xffff;
            for i in 0..16 {
                let at = u.space.slot(&mut u.bench, group + (i << 12), 0);
                u.bench.poke(at, 0);
                model.remove(&(group + (i << 12)));
            }
        }
        if rng.gen_bool(0.8) {
            match shift {
                12 => u.space.map_4k(&mut u.bench, va, pa, bits),
                16 => u.space.map_64k(&mut u.bench, va, pa, bits),
                _ => u.space.map_2m(&mut u.bench, va, pa, bits),
            };
            for at in (0..bytes).step_by(4096) {
                model.insert(va + at, (pa + at, bits));
            }
        }
        u.mmu.invalidate(TLB_RANGE, 1, base, 512);
        for _ in 0..30 {
            let va = bases[rng.gen_range(0..2)] + rng.gen_range(0..1u64 << 21);
            let (access, bit) =
                [(Access::Read, PTE_READ), (Access::Write, PTE_WRITE)][rng.gen_range(0..2)];
            let want = match model.get(&(va & !0xfff)) {
                None => Err(FAULT_NOT_PRESENT),
                Some((_, bits)) if bits & bit == 0 => Err(FAULT_PERMISSION),
                Some((pa, _)) => Ok(Some(pa + (va & 0xfff))),
            };
            let found = u.find(va, access).map_err(|f| f.code);
            assert_eq!(found, want, "seed {seed:#x}, round {round}, {va:#x}");
        }
    }
    assert_eq!(u.judge.count(), 0);
}
