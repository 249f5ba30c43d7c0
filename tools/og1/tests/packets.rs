// SPDX-License-Identifier: GPL-2.0
//! Each packet, good and bad, in rings and in indirect buffers.

mod common;

use common::space::*;
use common::*;
use og1::hw::mem::*;
use og1::hw::packets::*;
use og1::hw::regs as hw;
use og1::judge::Rule;
use og1::machine::Next;
use og1::regs::Reg;

/// Virtual address of 1 MiB of VRAM at `DATA_PA`.
const DATA: u64 = 0x4000_0000_0000;
const DATA_PA: u64 = 0x10_0000;
/// Virtual address of a page for an indirect buffer.
const BUFFER: u64 = 0x5000_0000_0000;

struct Rig {
    bench: Bench,
    q: Queue,
    space: Space,
    buffer: u64,
}

impl Rig {
    fn new() -> Self {
        Self::on(2)
    }

    fn on(engine: usize) -> Self {
        let mut bench = Bench::new();
        let space = Space::new(&mut bench, 1);
        space.map(&mut bench, DATA, DATA_PA, 1 << 20, RWX);
        let buffer = bench.alloc(4096);
        space.map_4k(&mut bench, BUFFER, buffer, PTE_READ);
        let q = bench.queue(engine);
        Self {
            bench,
            q,
            space,
            buffer,
        }
    }

    /// Runs packets in the ring, and a fence; everything is to be well.
    fn ring(&mut self, words: &[u64]) {
        self.bench.push(&mut self.q, words);
        let record = self.bench.push_fence(&mut self.q, 77);
        assert_eq!(self.bench.run(), Next::Rest);
        assert_eq!(
            self.bench.peek(record),
            77,
            "{:x?}",
            self.bench.last_fault()
        );
        self.bench.assert_clean();
    }

    fn start_buffer(&mut self, words: &[u64]) {
        for (i, word) in words.iter().enumerate() {
            self.bench.poke(self.buffer + i as u64 * 8, *word);
        }
        let packet = pkt(PKT_INDIRECT, 0, words.len() as u32, &[BUFFER]);
        self.bench.push(&mut self.q, &packet);
    }

    /// Runs packets in an indirect buffer, and a fence behind it.
    fn buffer(&mut self, words: &[u64]) {
        self.start_buffer(words);
        self.ring(&[]);
    }

    /// Runs packets in the ring; they are to end in a fault. Returns code and address.
    fn ring_fault(&mut self, words: &[u64]) -> (u32, u64) {
        self.bench.push(&mut self.q, words);
        self.bench.run();
        self.fault()
    }

    fn buffer_fault(&mut self, words: &[u64]) -> (u32, u64) {
        self.start_buffer(words);
        self.bench.run();
        self.fault()
    }

    fn fault(&mut self) -> (u32, u64) {
        assert_eq!(self.bench.slot_state(&self.q), hw::SLOT_FAULTED);
        assert_eq!(
            self.bench.read(Reg::IRQ_STATUS, 0) & hw::IRQ_FAULT,
            hw::IRQ_FAULT
        );
        let fault = self.bench.last_fault().unwrap();
        assert_eq!(self.bench.error(&self.q), fault.0);
        self.bench.drop_faulted(&self.q);
        self.q = self.bench.queue(self.q.engine);
        (fault.0, fault.1)
    }

    fn data(&self, at: u64) -> u64 {
        self.bench.peek(DATA_PA + at)
    }
}

fn two(low: u32, high: u32) -> u64 {
    u64::from(low) | (u64::from(high) << 32)
}

#[test]
fn copies_of_any_size_and_alignment_move_exactly_their_bytes() {
    let mut rig = Rig::new();
    let bytes: Vec<u8> = (0..200_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
    for (src, dst, len) in [
        (0, 0x8_0000, 200_000),
        (3, 0x8_0005, 70_001),
        (1, 0x8_1fff, 1),
        (0, 0x8_0000, 0),
    ] {
        rig.bench.poke_bytes(DATA_PA, &bytes);
        rig.bench
            .poke_bytes(DATA_PA + 0x8_0000 - 8, &[0xaa; 200_100]);
        rig.buffer(&pkt(PKT_COPY, 0, 0, &[DATA + src, DATA + dst, len]));
        let got = rig.bench.peek_bytes(DATA_PA + dst - 1, len as usize + 2);
        assert_eq!(got[0], 0xaa);
        assert_eq!(
            got[1..=len as usize],
            bytes[src as usize..(src + len) as usize]
        );
        assert_eq!(got[len as usize + 1], 0xaa);
    }
}

#[test]
fn a_copy_follows_scattered_pages_and_pages_without_memory() {
    let mut rig = Rig::new();
    let va = 0x6000_0000_0000;
    let pages: Vec<u64> = (0..4).map(|_| rig.bench.alloc(4096)).collect();
    for (i, pa) in pages.iter().rev().enumerate() {
        rig.space
            .map_4k(&mut rig.bench, va + i as u64 * 4096, *pa, RW);
        rig.bench.poke_bytes(*pa, &[i as u8 + 1; 4096]);
    }
    rig.space.map_4k(&mut rig.bench, va + 0x4000, 0, PTE_NULL);
    rig.bench.poke_bytes(DATA_PA, &[0xee; 0x5000]);
    rig.buffer(&pkt(PKT_COPY, 0, 0, &[va, DATA, 0x5000]));
    for i in 0..5 {
        let want = if i == 4 { 0 } else { i as u8 + 1 };
        assert_eq!(rig.bench.peek_bytes(DATA_PA + i * 4096, 4096), [want; 4096]);
    }
    // And back, over the page that drops what is written to it.
    rig.buffer(&pkt(PKT_COPY, 0, 0, &[DATA, va + 0x3000, 0x2000]));
    assert_eq!(rig.bench.peek(pages[0]), 0x0101_0101_0101_0101);
}

#[test]
fn a_copy_that_meets_a_hole_faults_there_with_the_bytes_before_it_copied() {
    let mut rig = Rig::new();
    rig.bench.poke_bytes(DATA_PA, &[5; 0x3000]);
    let at = rig.space.slot(&mut rig.bench, DATA + 0x2000, 0);
    rig.bench.poke(at, 0);
    let fault = rig.buffer_fault(&pkt(PKT_COPY, 0, 0, &[DATA, DATA + 0x1_0000, 0x3000]));
    assert_eq!(fault, (FAULT_NOT_PRESENT, DATA + 0x2000));
    assert_eq!(
        rig.bench.peek_bytes(DATA_PA + 0x1_0000, 0x2000),
        [5; 0x2000]
    );
    let fault = rig.buffer_fault(&pkt(PKT_COPY, 0, 0, &[DATA, (1 << 48) - 16, 32]));
    assert_eq!(fault.0, FAULT_RANGE);
    let fault = rig.buffer_fault(&pkt(PKT_COPY, 0, 0, &[DATA, u64::MAX - 8, 32]));
    assert_eq!(fault.0, FAULT_RANGE);
    rig.bench.assert_clean();
}

#[test]
fn a_rectangle_is_copied_row_by_row() {
    let mut rig = Rig::new();
    for i in 0..0x4000 {
        rig.bench.poke(DATA_PA + i * 8, i);
        rig.bench.poke(DATA_PA + 0x8_0000 + i * 8, !0);
    }
    let (sp, dp, w, h) = (256, 512, 40, 100);
    rig.buffer(&pkt(
        PKT_COPY_2D,
        0,
        0,
        &[DATA, DATA + 0x8_0000, two(sp, dp), two(w, h)],
    ));
    for row in 0..100 {
        for word in 0..16 {
            let got = rig.data(0x8_0000 + row * 512 + word * 8);
            assert_eq!(got, if word < 5 { row * 32 + word } else { !0 });
        }
    }
    assert_eq!(rig.data(0x8_0000 + 100 * 512), !0);
    // Nothing to do, and a pitch that does not matter.
    rig.buffer(&pkt(PKT_COPY_2D, 0, 0, &[0, 0, 0, two(0, 5)]));
    rig.buffer(&pkt(PKT_COPY_2D, 0, 0, &[0, 0, two(9, 9), two(5, 0)]));
    rig.buffer(&pkt(PKT_COPY_2D, 0, 0, &[DATA, DATA + 64, 0, two(64, 1)]));
    let narrow = pkt(PKT_COPY_2D, 0, 0, &[DATA, DATA, two(63, 64), two(64, 2)]);
    assert_eq!(rig.buffer_fault(&narrow).0, FAULT_PACKET);
    let far = pkt(PKT_COPY_2D, 0, 0, &[DATA, DATA, two(!0, !0), two(1, !0)]);
    assert_eq!(rig.buffer_fault(&far).0, FAULT_NOT_PRESENT);
}

#[test]
fn fills_are_whole_words_at_aligned_addresses() {
    let mut rig = Rig::new();
    rig.buffer(&pkt(PKT_FILL, 0, 0xdead_beef, &[DATA + 4, 0x2_0000]));
    assert_eq!(rig.data(0), 0xdead_beef_0000_0000);
    assert_eq!(rig.data(0x1_0000), 0xdead_beef_dead_beef);
    assert_eq!(rig.data(0x2_0000), 0xdead_beef);
    rig.buffer(&pkt(PKT_FILL, 0, 1, &[DATA, 0]));
    assert_eq!(
        rig.buffer_fault(&pkt(PKT_FILL, 0, 1, &[DATA, 6])).0,
        FAULT_PACKET
    );
    assert_eq!(
        rig.buffer_fault(&pkt(PKT_FILL, 0, 1, &[DATA + 2, 8])).0,
        FAULT_ALIGNMENT
    );
}

#[test]
fn words_are_stored_added_and_stamped() {
    let mut rig = Rig::new();
    rig.buffer(&pkt(PKT_WRITE_IMM, 0, 0, &[DATA, 0x1122_3344_5566_7788]));
    rig.buffer(&pkt(PKT_WRITE_IMM, FLAG_32BIT, 0, &[DATA + 4, 9]));
    assert_eq!(rig.data(0), 0x9_5566_7788);
    rig.buffer(&pkt(PKT_ATOMIC_ADD, 0, 0, &[DATA, u64::MAX]));
    assert_eq!(rig.data(0), 0x9_5566_7787);
    rig.buffer(&pkt(PKT_SEM_SIGNAL, 0, 0, &[DATA + 8, 5]));
    assert_eq!(rig.data(8), 5);
    let before = rig.bench.time();
    rig.buffer(&pkt(PKT_TIMESTAMP, 0, 0, &[DATA + 16]));
    assert!((before..=rig.bench.time()).contains(&rig.data(16)));
    rig.buffer(&pkt(PKT_CACHE, CACHE_FLUSH | CACHE_INVALIDATE, 0, &[]));

    let bad = [
        (pkt(PKT_WRITE_IMM, 0, 0, &[DATA + 4, 0]), FAULT_ALIGNMENT),
        (
            pkt(PKT_WRITE_IMM, FLAG_32BIT, 0, &[DATA + 2, 0]),
            FAULT_ALIGNMENT,
        ),
        (
            pkt(PKT_WRITE_IMM, FLAG_32BIT, 0, &[DATA, 1 << 32]),
            FAULT_PACKET,
        ),
        (pkt(PKT_ATOMIC_ADD, 0, 0, &[DATA + 1, 0]), FAULT_ALIGNMENT),
        (pkt(PKT_SEM_SIGNAL, 0, 0, &[DATA + 4, 0]), FAULT_ALIGNMENT),
        (pkt(PKT_TIMESTAMP, 0, 0, &[DATA + 4]), FAULT_ALIGNMENT),
        (pkt(PKT_SEM_WAIT, 6, 0, &[DATA, 0]), FAULT_PACKET),
        (pkt(PKT_PREDICATE, 7, 0, &[DATA, 0]), FAULT_PACKET),
        (pkt(PKT_CACHE, 4, 0, &[]), FAULT_PACKET),
        (pkt(PKT_ATOMIC_ADD, 0, 0, &[1 << 48, 0]), FAULT_RANGE),
    ];
    for (packet, code) in bad {
        assert_eq!(rig.buffer_fault(&packet).0, code, "{packet:x?}");
    }
    rig.bench.assert_clean();
}

#[test]
fn an_atomic_add_needs_the_atomic_permission() {
    let mut rig = Rig::new();
    rig.space.map_4k(&mut rig.bench, DATA, DATA_PA, RW);
    let fault = rig.buffer_fault(&pkt(PKT_ATOMIC_ADD, 0, 0, &[DATA, 1]));
    assert_eq!(fault, (FAULT_PERMISSION, DATA));
}

#[test]
fn a_predicate_skips_words_unless_memory_compares() {
    let mut rig = Rig::new();
    let holds = [
        (CMP_EQ, [false, true, false]),
        (CMP_NE, [true, false, true]),
        (CMP_GE, [false, true, true]),
        (CMP_GT, [false, false, true]),
        (CMP_LE, [true, true, false]),
        (CMP_LT, [true, false, false]),
    ];
    for (cmp, results) in holds {
        for (memory, runs) in [4u64, 5, 1 << 63].into_iter().zip(results) {
            rig.bench.poke(DATA_PA, memory);
            rig.bench.poke(DATA_PA + 8, 0);
            let mut words = pkt(PKT_PREDICATE, cmp, 3, &[DATA, 5]);
            words.extend(pkt(PKT_WRITE_IMM, 0, 0, &[DATA + 8, 1]));
            words.extend(pkt(PKT_WRITE_IMM, 0, 0, &[DATA + 16, memory]));
            rig.buffer(&words);
            assert_eq!(rig.data(8), u64::from(runs), "compare {cmp} of {memory}");
            assert_eq!(rig.data(16), memory, "what follows runs");
        }
    }
    // To the end of the buffer, but not beyond.
    rig.bench.poke(DATA_PA, 0);
    let mut words = pkt(PKT_PREDICATE, CMP_NE, 1, &[DATA, 0]);
    words.extend(pkt(PKT_NOP, 0, 0, &[]));
    rig.buffer(&words);
    words[0] = pkt_header(PKT_PREDICATE, 3, CMP_NE, 2);
    assert_eq!(rig.buffer_fault(&words).0, FAULT_PACKET);
    assert_eq!(
        rig.ring_fault(&pkt(PKT_PREDICATE, CMP_NE, 1, &[DATA, 0])).0,
        FAULT_PACKET
    );
    rig.bench.assert_broken(&[Rule::KernelPacket]);
}

#[test]
fn a_semaphore_holds_its_queue_until_another_engine_signals() {
    let mut rig = Rig::new();
    let mut other = rig.bench.queue(3);
    rig.bench
        .push(&mut rig.q, &pkt(PKT_SEM_WAIT, CMP_GE, 0, &[DATA, 3]));
    let record = rig.bench.push_fence(&mut rig.q, 1);
    assert_eq!(
        rig.bench.run(),
        Next::Later,
        "only time helps a queue that waits"
    );
    assert_eq!(rig.bench.slot_state(&rig.q), hw::SLOT_WAITING);
    for value in [1, 2, 3] {
        assert_eq!(rig.bench.peek(record), 0);
        rig.bench
            .push(&mut other, &pkt(PKT_SEM_SIGNAL, 0, 0, &[DATA, value]));
        rig.bench.run();
    }
    assert_eq!(rig.bench.peek(record), 1);
    assert_eq!(rig.bench.slot_state(&rig.q), hw::SLOT_IDLE);
    // The producer may also be the CPU.
    rig.bench
        .push(&mut rig.q, &pkt(PKT_SEM_WAIT, CMP_EQ, 0, &[DATA, 10]));
    let record = rig.bench.push_fence(&mut rig.q, 2);
    rig.bench.run();
    rig.bench.poke(DATA_PA, 10);
    rig.bench.pass(1000);
    assert_eq!(rig.bench.peek(record), 2);
    rig.bench.assert_clean();
}

#[test]
fn a_wait_for_a_time_ends_exactly_then() {
    let mut rig = Rig::new();
    rig.ring(&pkt(PKT_NOP, 0, 0, &[]));
    let until = rig.bench.time() + 123_457;
    let mut words = pkt(PKT_WAIT_UNTIL, 0, 0, &[until]);
    words.extend(pkt(PKT_TIMESTAMP, 0, 0, &[DATA]));
    words.extend(pkt(PKT_WAIT_UNTIL, FLAG_RELATIVE, 0, &[50_000]));
    words.extend(pkt(PKT_TIMESTAMP, 0, 0, &[DATA + 8]));
    words.extend(pkt(PKT_WAIT_UNTIL, 0, 0, &[0]));
    rig.buffer(&words);
    assert_eq!(rig.data(0), until + 32);
    // The page of the stamps was new to the TLB.
    assert_eq!(rig.data(8), until + 32 + 100 + 32 + 50_000 + 32);
}

#[test]
fn user_streams_may_not_do_what_is_privileged() {
    let mut rig = Rig::new();
    let physical = FLAG_PHYSICAL;
    let packets = [
        pkt(PKT_FENCE, 0, 0, &[DATA_PA, 1]),
        pkt(PKT_TLB_INVALIDATE, 0, TLB_ALL, &[0, 0, 0]),
        pkt(PKT_REG_WRITE, 0, 0, &[0x3028, 1]),
        pkt(0xff, 0, 0, &[]),
        pkt(PKT_COPY, physical, 0, &[0, 0, 8]),
        pkt(PKT_COPY_2D, physical, 0, &[0, 0, 0, 0]),
        pkt(PKT_FILL, physical, 0, &[0, 8]),
        pkt(PKT_WRITE_IMM, physical, 0, &[0, 1]),
        pkt(PKT_TIMESTAMP, physical, 0, &[0]),
        pkt(PKT_SEM_WAIT, physical, 0, &[0, 0]),
        pkt(PKT_SEM_SIGNAL, physical, 0, &[0, 0]),
    ];
    for packet in packets {
        assert_eq!(
            rig.buffer_fault(&packet),
            (FAULT_PRIVILEGE, BUFFER),
            "{packet:x?}"
        );
    }
    // Neither may the ring of a queue that is not privileged; that is no violation of the driver's.
    let props = Props {
        privileged: false,
        ..Props::default()
    };
    let mut user = rig.bench.queue_with(3, 0, 30, &props);
    rig.bench
        .push(&mut user, &pkt(PKT_FENCE, 0, 0, &[DATA_PA, 1]));
    rig.bench.run();
    assert_eq!(rig.bench.error(&user), FAULT_PRIVILEGE);
    rig.bench.assert_clean();
}

#[test]
fn packets_with_anything_undefined_set_are_refused() {
    let mut rig = Rig::new();
    let good = [
        pkt(PKT_COPY, 0, 0, &[DATA, DATA, 0]),
        pkt(PKT_COPY_2D, 0, 0, &[DATA, DATA, 0, 0]),
        pkt(PKT_FILL, 0, 0, &[DATA, 0]),
        pkt(PKT_SEM_WAIT, 0, 0, &[DATA, 0]),
        pkt(PKT_SEM_SIGNAL, 0, 0, &[DATA, 0]),
        pkt(PKT_ATOMIC_ADD, 0, 0, &[DATA, 0]),
        pkt(PKT_WRITE_IMM, 0, 0, &[DATA, 0]),
        pkt(PKT_PREDICATE, 0, 0, &[DATA, 0]),
        pkt(PKT_TIMESTAMP, 0, 0, &[DATA]),
        pkt(PKT_WAIT_UNTIL, 0, 0, &[0]),
        pkt(PKT_CACHE, 0, 0, &[]),
    ];
    for packet in good {
        let mut flags = packet.clone();
        flags[0] |= 1 << (PKT_FLAGS_SHIFT + 14);
        assert_eq!(rig.buffer_fault(&flags).0, FAULT_PACKET, "{flags:x?}");
        let mut longer = packet.clone();
        longer[0] += 1 << PKT_LEN_SHIFT;
        longer.push(0);
        assert_eq!(rig.buffer_fault(&longer).0, FAULT_PACKET, "{longer:x?}");
        let opcode = packet[0] as u8;
        if !matches!(opcode, PKT_FILL | PKT_PREDICATE) {
            let mut imm = packet.clone();
            imm[0] |= 1 << PKT_IMM_SHIFT;
            assert_eq!(rig.buffer_fault(&imm).0, FAULT_PACKET, "{imm:x?}");
        }
    }
    for header in [0, pkt_header(0x0e, 1, 0, 0), pkt_header(0x7f, 2, 0, 0)] {
        assert_eq!(rig.buffer_fault(&[header, 0]).0, FAULT_PACKET);
    }
    // A packet that reaches beyond its buffer.
    assert_eq!(
        rig.buffer_fault(&[pkt_header(PKT_NOP, 2, 0, 0)]).0,
        FAULT_PACKET
    );
    rig.bench.assert_clean();
}

#[test]
fn indirect_buffers_stand_in_rings_only_and_have_sane_sizes() {
    let mut rig = Rig::new();
    assert_eq!(
        rig.buffer_fault(&pkt(PKT_INDIRECT, 0, 1, &[BUFFER])).0,
        FAULT_PACKET
    );
    rig.bench.assert_clean();
    for (words, addr) in [
        (0, BUFFER),
        (INDIRECT_WORDS_MAX + 1, BUFFER),
        (1, BUFFER + 4),
    ] {
        assert_eq!(
            rig.ring_fault(&pkt(PKT_INDIRECT, 0, words, &[addr])).0,
            FAULT_PACKET
        );
        rig.bench.assert_broken(&[Rule::KernelPacket]);
    }
    // A buffer that is not mapped, or ends beyond its page, is the user's fault alone.
    let fault = rig.ring_fault(&pkt(PKT_INDIRECT, 0, 1, &[0x1000]));
    assert_eq!(fault, (FAULT_NOT_PRESENT, 0x1000));
    rig.buffer(&[pkt_header(PKT_NOP, 255, 0, 0)].repeat(255));
    rig.start_buffer(&vec![pkt_header(PKT_NOP, 1, 0, 0); 512]);
    rig.ring(&[]);
    let fault = rig.ring_fault(&pkt(PKT_INDIRECT, 0, 513, &[BUFFER]));
    assert_eq!(fault, (FAULT_NOT_PRESENT, BUFFER + 4096));
    rig.bench.assert_clean();
}

#[test]
fn a_dispatch_on_a_copy_engine_is_an_engine_fault() {
    let mut rig = Rig::new();
    let packet = dispatch(DATA, 0, [1, 1, 1], [1, 1, 1], 0);
    assert_eq!(rig.buffer_fault(&packet).0, FAULT_ENGINE);
}

#[test]
fn compute_engines_copy_too() {
    let mut rig = Rig::on(0);
    rig.bench.poke(DATA_PA, 99);
    rig.buffer(&pkt(PKT_COPY, 0, 0, &[DATA, DATA + 64, 8]));
    assert_eq!(rig.data(64), 99);
}

#[test]
fn physical_addresses_that_are_not_there_are_violations() {
    let mut rig = Rig::new();
    let vram_end = 16 << 20;
    let nowhere = PA_SYSTEM | 0x1000;
    let packets = [
        copy(0, vram_end, 8),
        copy(vram_end - 4, 0, 8),
        copy(nowhere, 0, 8),
        copy(1 << 52, 0, 8),
        pkt(PKT_FILL, FLAG_PHYSICAL, 0, &[nowhere, 8]),
        pkt(PKT_WRITE_IMM, FLAG_PHYSICAL, 0, &[vram_end, 0]),
        pkt(PKT_SEM_WAIT, FLAG_PHYSICAL, 0, &[nowhere, 0]),
        pkt(PKT_TIMESTAMP, FLAG_PHYSICAL, 0, &[nowhere]),
        fence(nowhere, 1, false),
        fence(PA_MASK - 15, 1, false),
    ];
    for packet in packets {
        assert_eq!(rig.ring_fault(&packet).0, FAULT_BUS, "{packet:x?}");
        rig.bench.assert_broken(&[Rule::Address]);
    }
    assert_eq!(
        rig.ring_fault(&fence(DATA_PA + 8, 1, false)).0,
        FAULT_PACKET
    );
}

#[test]
fn privileged_packets_invalidate_and_write_registers_before_what_follows() {
    let mut rig = Rig::new();
    // Makes the TLB know the page, moves it behind its back, invalidates, writes again.
    let mut words = pkt(PKT_WRITE_IMM, 0, 0, &[DATA, 1]);
    rig.ring(&words);
    let at = rig.space.slot(&mut rig.bench, DATA, 0);
    let moved = entry(DATA_PA + 0x8_0000, PTE_LEAF | RW);
    words = pkt(PKT_WRITE_IMM, FLAG_PHYSICAL, 0, &[at, moved]);
    words.extend(pkt(PKT_WRITE_IMM, 0, 0, &[DATA, 2]));
    words.extend(pkt(PKT_TLB_INVALIDATE, 0, TLB_RANGE, &[1, DATA, 1]));
    words.extend(pkt(PKT_WRITE_IMM, 0, 0, &[DATA, 3]));
    rig.ring(&words);
    assert_eq!((rig.data(0), rig.data(0x8_0000)), (2, 3));

    let ctr = offset(Reg::CTR_SELECT, 0);
    rig.ring(&pkt(PKT_REG_WRITE, 0, 0, &[ctr, 5]));
    assert_eq!(rig.bench.read(Reg::CTR_SELECT, 0), 5);
    // A queue that empties its own slot.
    let q = rig.q.clone();
    rig.bench.write(Reg::SLOT_CTRL, q.engine * hw::SLOTS_MAX, 0);
    let commit = offset(Reg::SLOT_COMMIT, q.engine);
    rig.bench
        .push(&mut rig.q, &pkt(PKT_REG_WRITE, 0, 0, &[commit, 1]));
    rig.bench.run();
    assert_eq!(rig.bench.slot_state(&q), hw::SLOT_EMPTY);
    assert_eq!(rig.bench.control(&q, control::RPTR), rig.q.wptr);
    rig.bench.assert_clean();
}

#[test]
fn register_writes_that_may_not_be_are_faults() {
    let mut rig = Rig::new();
    let cases = [
        (offset(Reg::SCRATCH, 0), vec![Rule::KernelPacket]),
        (0x3_fffc, vec![Rule::RegUnknown, Rule::KernelPacket]),
        (
            hw::DOORBELL_BASE as u64,
            vec![Rule::RegUnknown, Rule::KernelPacket],
        ),
        (u64::MAX, vec![Rule::RegUnknown, Rule::KernelPacket]),
    ];
    for (at, rules) in cases {
        assert_eq!(
            rig.ring_fault(&pkt(PKT_REG_WRITE, 0, 0, &[at, 0])).0,
            FAULT_PACKET
        );
        rig.bench.assert_broken(&rules);
    }
    let wide = pkt(PKT_REG_WRITE, 0, 0, &[offset(Reg::GATE, 0), 1 << 32]);
    assert_eq!(rig.ring_fault(&wide).0, FAULT_PACKET);
    let scope = pkt(PKT_TLB_INVALIDATE, 0, 0, &[0, 0, 0]);
    assert_eq!(rig.ring_fault(&scope).0, FAULT_PACKET);
}

#[test]
fn packets_lie_across_the_end_of_the_ring() {
    let mut rig = Rig::new();
    for n in 0..600 {
        rig.bench
            .push(&mut rig.q, &pkt(PKT_WRITE_IMM, 0, 0, &[DATA, n]));
        rig.bench.run();
        assert_eq!(rig.data(0), n);
    }
    assert!(rig.q.wptr > 3 * rig.q.words);
    rig.bench.assert_clean();
}
