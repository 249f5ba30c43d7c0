// SPDX-License-Identifier: GPL-2.0
//! When changed code becomes visible, and what the cache costs the bus.

mod common;

use common::{encode, hart, run, Ram, BASE, CODE, DATA};
use ochre_rv64::{isa, CodeCache, Hart, Stop, WorkItem, CODE_PAGE_BYTES};

/// `li a0, value; ret`
fn returning(value: i32) -> [u32; 2] {
    [encode::addi(10, 0, value), encode::ret()]
}

/// What the program at `pc` returns.
fn call(ram: &mut Ram, cache: &mut CodeCache, pc: u64) -> u64 {
    let mut hart = Hart::new(pc, 0, WorkItem::default());
    let run = hart.run(ram, cache, 100);
    assert_eq!(run.stop, Stop::Exit);
    hart.x(10)
}

#[test]
fn code_is_read_once_for_all_harts() {
    let mut ram = Ram::with_code(&returning(1));
    let mut cache = CodeCache::new();
    for _ in 0..10 {
        assert_eq!(call(&mut ram, &mut cache, CODE), 1);
    }
    assert_eq!(ram.code_reads, 1);
}

#[test]
fn changed_code_is_seen_after_invalidation_and_not_before() {
    let mut ram = Ram::with_code(&returning(1));
    let mut cache = CodeCache::new();
    assert_eq!(call(&mut ram, &mut cache, CODE), 1);
    ram.put(CODE, &returning(2));
    assert_eq!(call(&mut ram, &mut cache, CODE), 1);
    cache.invalidate_all();
    assert_eq!(call(&mut ram, &mut cache, CODE), 2);
    ram.put(CODE, &returning(3));
    let key = CODE - BASE;
    cache.invalidate(key + CODE_PAGE_BYTES);
    assert_eq!(call(&mut ram, &mut cache, CODE), 2);
    cache.invalidate(key);
    assert_eq!(call(&mut ram, &mut cache, CODE), 3);
}

#[test]
fn two_addresses_of_one_page_share_its_decoded_code() {
    let mut ram = Ram::with_code(&[encode::u(0x17, 10, 0), encode::ret()]);
    ram.alias = Some(0x7000_0000);
    let mut cache = CodeCache::new();
    // auipc sees the address that it runs at, shared or not.
    assert_eq!(call(&mut ram, &mut cache, CODE), CODE);
    assert_eq!(call(&mut ram, &mut cache, 0x7000_0000), 0x7000_0000);
    assert_eq!(ram.code_reads, 1);
}

#[test]
fn code_that_rewrites_itself_runs_anew_after_fence_i() {
    // Stores the word in a1 over the instruction at 8(a0), with or without fence.i before reaching it.
    for (fence, expected) in [(0x0000_100f, 2), (encode::addi(0, 0, 0), 1)] {
        let mut ram = Ram::with_code(&[
            encode::s(0x23, 2, 10, 11, 8),
            fence,
            encode::addi(12, 0, 1),
            encode::ret(),
        ]);
        let mut hart = Hart::new(CODE, CODE, WorkItem::default());
        hart.set_x(11, encode::addi(12, 0, 2).into());
        let run = run(&mut hart, &mut ram, 100);
        assert_eq!((run.executed, run.stop), (4, Stop::Exit));
        assert_eq!(hart.x(12), expected);
    }
}

#[test]
fn fence_i_in_a_loop_keeps_to_the_budget() {
    let mut ram = Ram::with_code(&[0x0000_100f, encode::jal(0, -4)]);
    let mut hart = hart();
    let run = run(&mut hart, &mut ram, 1001);
    assert_eq!((run.executed, run.stop), (1001, Stop::Budget));
}

#[test]
fn more_pages_than_the_cache_holds_still_run() {
    let mut ram = Ram::new();
    let pages = (ram.bytes.len() as u64) / CODE_PAGE_BYTES;
    let page = |n: u64| BASE + n * CODE_PAGE_BYTES;
    for n in 0..pages {
        ram.put(page(n), &returning(n as i32));
    }
    for size in [0, 1, 4, 100, 1000] {
        let mut cache = CodeCache::with_pages(size);
        for round in 0..3 {
            for n in 0..pages {
                assert_eq!(call(&mut ram, &mut cache, page(n)), n, "{size} {round}");
            }
        }
    }
}

#[test]
fn a_page_that_is_reused_under_the_same_key_is_decoded_again() {
    let mut ram = Ram::with_code(&[0, encode::addi(10, 10, 4), encode::ret()]);
    ram.put(CODE, &[encode::addi(10, 0, 1)]);
    let mut cache = CodeCache::new();
    assert_eq!(call(&mut ram, &mut cache, CODE), 5);
    // Only the middle word changes; an illegal word becomes legal elsewhere.
    ram.put(CODE + 4, &[encode::addi(10, 10, 8)]);
    ram.put(DATA, &returning(7));
    cache.invalidate_all();
    assert_eq!(call(&mut ram, &mut cache, CODE), 9);
    assert_eq!(call(&mut ram, &mut cache, DATA), 7);
    assert_ne!(call(&mut ram, &mut cache, CODE), isa::EXIT_PC);
}
