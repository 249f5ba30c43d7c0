// SPDX-License-Identifier: GPL-2.0
//! A guest that writes anything anywhere: the board does not panic, and every step ends soon.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use common::asm::*;
use common::space::*;
use common::*;
use og1::config::Config;
use og1::hw::mem::*;
use og1::hw::packets::*;
use og1::hw::regs as hw;
use og1::machine::Next;
use og1::regs;
use og1::regs::Reg;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::Rng;
use rand::SeedableRng;

/// Longest step that is allowed; generous, since the machine that tests is shared.
const STEP_MAX: Duration = Duration::from_secs(3);
/// How long each test goes on.
const TIME: Duration = Duration::from_secs(4);

struct Fuzz {
    rng: SmallRng,
    seed: u64,
    end: Instant,
}

impl Fuzz {
    fn new() -> Self {
        let seed = match std::env::var("OG1_SEED") {
            Ok(text) => text.parse().expect("OG1_SEED is a number"),
            Err(_) => rand::rngs::OsRng.gen(),
        };
        println!("OG1_SEED={seed}");
        Self {
            rng: SmallRng::seed_from_u64(seed),
            seed,
            end: Instant::now() + TIME,
        }
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.end
    }

    /// Steps a few times, each within its limit.
    fn step(&mut self, bench: &Bench) {
        for _ in 0..self.rng.gen_range(0..20) {
            let start = Instant::now();
            let elapsed = self.rng.gen_range(0..1_000_000);
            let next = bench.board.step(elapsed);
            assert!(
                start.elapsed() < STEP_MAX,
                "seed {}: {:?}",
                self.seed,
                start.elapsed()
            );
            if next == Next::Rest {
                break;
            }
        }
    }

    /// A word that is often something.
    fn word(&mut self, bench: &Bench) -> u64 {
        let rng = &mut self.rng;
        match rng.gen_range(0..16) {
            0 => 0,
            // What `random_packets_in_rings_and_buffers` has mapped.
            10..=12 => rng.gen_range(0..0x2000) * 8,
            13 => 0x20_0000 + rng.gen_range(0..0x4_0000) * 8,
            14 => 0x10_0000 + rng.gen_range(0..0x6000) * 8,
            1 => u64::MAX,
            2 => rng.gen_range(0..64),
            3 => 1 << rng.gen_range(0..64),
            4 => (DMA + rng.gen_range(0..SYSTEM_BYTES)) | PA_SYSTEM,
            5 => rng.gen_range(0..32 << 20) & !7,
            6 => bench.board.vram().len() - rng.gen_range(0..64),
            7 => rng.gen::<u64>() >> rng.gen_range(0..64),
            8 => rng.gen_range(0..1 << 22) & !0xfff,
            _ => rng.gen(),
        }
    }

    /// A packet that is nearly one.
    fn packet(&mut self, bench: &Bench) -> Vec<u64> {
        let opcode = *[
            PKT_NOP,
            PKT_INDIRECT,
            PKT_COPY,
            PKT_COPY_2D,
            PKT_FILL,
            PKT_DISPATCH,
            PKT_SEM_WAIT,
            PKT_SEM_SIGNAL,
            PKT_ATOMIC_ADD,
            PKT_WRITE_IMM,
            PKT_PREDICATE,
            PKT_TIMESTAMP,
            PKT_WAIT_UNTIL,
            PKT_CACHE,
            PKT_FENCE,
            PKT_TLB_INVALIDATE,
            PKT_REG_WRITE,
            0x55,
        ]
        .choose(&mut self.rng)
        .unwrap();
        let mut words = pkt_words(opcode).unwrap_or(1);
        if self.rng.gen_bool(0.02) {
            words = self.rng.gen_range(1..10);
        }
        let flags = match self.rng.gen_range(0..16) {
            0 => FLAG_PHYSICAL,
            1 => FLAG_PHYSICAL | self.rng.gen_range(0..8),
            2 => self.rng.gen_range(0..8),
            _ => 0,
        };
        let imm = match self.rng.gen_range(0..12) {
            0 => self.rng.gen_range(0..200),
            _ => 0,
        };
        let mut operands: Vec<u64> = (1..words).map(|_| self.word(bench)).collect();
        if opcode == PKT_DISPATCH && words == 8 && self.rng.gen_bool(0.9) {
            let small = |rng: &mut SmallRng| rng.gen_range(1..5u64);
            let r = &mut self.rng;
            operands[0] = 0x10_0000 + r.gen_range(0..64) * 4;
            operands[2] = small(r) | (small(r) << 32);
            operands[3] = small(r) | (small(r) << 32);
            operands[4] = small(r) | (small(r) << 32);
            operands[5] = 0;
            operands[6] = 0;
        }
        if opcode == PKT_REG_WRITE && words == 3 {
            let (reg, i) = *regs::all()
                .collect::<Vec<_>>()
                .choose(&mut self.rng)
                .unwrap();
            operands[0] = offset(reg, i);
            operands[1] &= 0xffff_ffff;
        }
        pkt(opcode, flags, imm, &operands)
    }
}

#[test]
fn random_register_accesses() {
    let mut fuzz = Fuzz::new();
    while fuzz.goes_on() {
        let mut bench = Bench::new();
        let queues = [bench.queue(0), bench.queue(2)];
        for _ in 0..300 {
            let (reg, i) = *regs::all()
                .collect::<Vec<_>>()
                .choose(&mut fuzz.rng)
                .unwrap();
            let at = match fuzz.rng.gen_range(0..10) {
                0 => fuzz.rng.gen_range(0..hw::BAR0_SIZE as u64),
                1 => hw::DOORBELL_BASE as u64 + fuzz.rng.gen_range(0..256) * 0x8000,
                2 => fuzz.rng.gen(),
                _ => offset(reg, i),
            };
            let value = match (reg, fuzz.rng.gen_range(0..3)) {
                (Reg::SLOT_DESC_LO, 0) => queues[0].desc as u32,
                (Reg::SLOT_DESC_HI, 0) => (queues[0].desc >> 32) as u32,
                _ => fuzz.word(&bench) as u32,
            };
            let len = *[4, 4, 4, 4, 4, 4, 1, 2, 8, 3]
                .choose(&mut fuzz.rng)
                .unwrap();
            let mut data = vec![0; len];
            if fuzz.rng.gen_bool(0.5) {
                bench.board.mmio_read(at, &mut data);
            } else {
                data.iter_mut()
                    .zip(value.to_le_bytes())
                    .for_each(|(d, s)| *d = s);
                bench.board.mmio_write(at, &data);
            }
            if fuzz.rng.gen_bool(0.1) {
                fuzz.step(&bench);
            }
        }
    }
}

#[test]
fn random_descriptors_and_control_pages() {
    let mut fuzz = Fuzz::new();
    while fuzz.goes_on() {
        let mut bench = Bench::new();
        let mut queues: Vec<Queue> = Vec::new();
        for engine in 0..4 {
            for slot in 0..2 {
                let id = (engine * 2 + slot) as u16;
                queues.push(bench.make_queue(engine, slot, id, &Props::default()));
            }
        }
        for _ in 0..100 {
            let q = queues.choose(&mut fuzz.rng).unwrap().clone();
            let word = fuzz.word(&bench);
            match fuzz.rng.gen_range(0..8) {
                0 => bench.poke(q.desc + fuzz.rng.gen_range(0..16) * 8, word),
                1 => bench.poke(q.control + fuzz.rng.gen_range(0..32) * 8, word),
                2 => bench.poke(q.save + fuzz.rng.gen_range(0..16) * 8, word),
                3 => bench.unbind(&q),
                4 => bench.write(
                    Reg::ENG_RESET,
                    q.engine,
                    fuzz.rng.gen::<u32>() & 0x8000_0003,
                ),
                5 => bench.ring(q.id),
                _ => bench.bind(&q),
            }
            fuzz.step(&bench);
        }
    }
}

#[test]
fn random_packets_in_rings_and_buffers() {
    let mut fuzz = Fuzz::new();
    // How often each fault was met, and packets that were retired.
    let mut seen: BTreeMap<u32, u64> = BTreeMap::new();
    let mut retired = 0;
    let mut rounds = 0;
    // A slow host does the rounds that the faults below need, and no more.
    while fuzz.goes_on() || rounds < 100 {
        rounds += 1;
        // One lane: endless kernels cost little of the time that there is.
        let mut bench = Bench::with(Config {
            lanes: 1,
            ..small()
        });
        let space = Space::new(&mut bench, 1);
        let kernel = bench.alloc(4096);
        // Random instructions, with valid ones strewn in.
        let good = [
            ret(),
            spin(),
            addi(T0, T0, 1),
            sd(T0, A0, 0),
            ld(T0, A0, 8),
            csrw(0x800, 0),
            amoadd_d(T0, A0, T1),
        ];
        let program: Vec<u32> = (0..1024)
            .map(|_| match fuzz.rng.gen_range(0..3) {
                0 => fuzz.rng.gen(),
                _ => *good.choose(&mut fuzz.rng).unwrap(),
            })
            .collect();
        bench.poke_bytes(kernel, &code(&program));
        space.map_4k(&mut bench, 0x10_0000, kernel, PTE_READ | PTE_EXEC);
        space.map_64k(&mut bench, 0, 0x1_0000, RWX);
        space.map_2m(&mut bench, 0x20_0000, 0x20_0000, RWX);
        space.map_4k(&mut bench, 0x11_0000, 0, PTE_NULL);
        let buffer = bench.alloc(4096);
        space.map_4k(&mut bench, 0x12_0000, buffer, RW);
        let mut queues: Vec<Queue> = Vec::new();
        for engine in 0..4 {
            for slot in 0..2 {
                let id = (engine * 2 + slot) as u16;
                let props = Props {
                    privileged: fuzz.rng.gen_bool(0.7),
                    priority: fuzz.rng.gen_range(0..4),
                    quantum_us: fuzz.rng.gen_range(1..100),
                    ring_log2: 6,
                    ..Props::default()
                };
                queues.push(bench.queue_with(engine, slot, id, &props));
            }
        }
        for _ in 0..60 {
            let i = fuzz.rng.gen_range(0..queues.len());
            let packet = if fuzz.rng.gen_bool(0.3) {
                let mut words = Vec::new();
                while words.len() < 200 {
                    words.extend(fuzz.packet(&bench));
                }
                for (n, word) in words.iter().enumerate() {
                    bench.poke(buffer + n as u64 * 8, *word);
                }
                pkt(PKT_INDIRECT, 0, words.len() as u32, &[0x12_0000])
            } else {
                fuzz.packet(&bench)
            };
            let q = &mut queues[i];
            let rptr = bench.control(q, control::RPTR);
            if q.wptr - rptr.min(q.wptr) + packet.len() as u64 <= q.words {
                bench.push(q, &packet);
            }
            fuzz.step(&bench);
            match bench.slot_state(&queues[i]) {
                hw::SLOT_FAULTED => {
                    *seen.entry(bench.error(&queues[i])).or_default() += 1;
                    bench.drop_faulted(&queues[i]);
                }
                hw::SLOT_EMPTY => {
                    let q = &mut queues[i];
                    q.wptr = 0;
                    bench.poke(q.control, 0);
                    bench.poke(q.save, 0);
                    bench.bind(q);
                }
                _ if fuzz.rng.gen_bool(0.1) => bench.unbind(&queues[i]),
                _ => {}
            }
        }
        retired += (1..=4)
            .map(|unit| bench.counter(unit, CTR_PACKETS))
            .sum::<u64>();
    }
    println!("{retired} packets retired; faults: {seen:?}");
    let codes = [
        FAULT_NOT_PRESENT,
        FAULT_PERMISSION,
        FAULT_ALIGNMENT,
        FAULT_RANGE,
        FAULT_BUS,
        FAULT_PACKET,
        FAULT_PRIVILEGE,
        FAULT_ENGINE,
        FAULT_ILLEGAL,
    ];
    for code in codes {
        assert!(
            seen.contains_key(&code),
            "fault {code} was never met: {seen:?}"
        );
    }
}

#[test]
fn random_page_tables() {
    let mut fuzz = Fuzz::new();
    while fuzz.goes_on() {
        let mut bench = Bench::new();
        let space = Space::new(&mut bench, 1);
        // Tables that lead anywhere, themselves included.
        let tables: Vec<u64> = (0..6)
            .map(|_| bench.alloc(4096))
            .chain([space.root])
            .collect();
        for _ in 0..2000 {
            let table = *tables.choose(&mut fuzz.rng).unwrap();
            let to = *tables.choose(&mut fuzz.rng).unwrap();
            let e = match fuzz.rng.gen_range(0..6) {
                0 => fuzz.word(&bench),
                1 => entry(fuzz.word(&bench), PTE_LEAF | RWX),
                2 => entry(to, PTE_LEAF | PTE_64K | RWX),
                3 => entry(to, PTE_LEAF | RWX | (1 << fuzz.rng.gen_range(0..64))),
                _ => entry(to, 0),
            };
            bench.poke(table + fuzz.rng.gen_range(0..512) * 8, e);
        }
        let mut q = bench.queue(0);
        for _ in 0..60 {
            let a = fuzz.rng.gen::<u64>() >> fuzz.rng.gen_range(16..30);
            let b = fuzz.rng.gen::<u64>() >> fuzz.rng.gen_range(16..30);
            let packet = match fuzz.rng.gen_range(0..5) {
                0 => pkt(PKT_COPY, 0, 0, &[a, b, fuzz.rng.gen_range(0..100_000)]),
                1 => pkt(PKT_FILL, 0, 7, &[a & !3, fuzz.rng.gen_range(0..10_000) * 4]),
                2 => pkt(PKT_ATOMIC_ADD, 0, 0, &[a & !7, 1]),
                3 => pkt(PKT_INDIRECT, 0, 64, &[a & !7]),
                _ => dispatch(a & !3, b, [2, 1, 1], [3, 1, 1], 0),
            };
            bench.push(&mut q, &packet);
            fuzz.step(&bench);
            if bench.slot_state(&q) == hw::SLOT_FAULTED {
                bench.drop_faulted(&q);
                bench.poke(q.control, 0);
                q.wptr = 0;
                bench.bind(&q);
            }
        }
    }
}

#[test]
fn memory_that_comes_and_goes_under_the_board() {
    let mut fuzz = Fuzz::new();
    while fuzz.goes_on() {
        let mut bench = Bench::new();
        let mut q = bench.queue(2);
        for _ in 0..50 {
            match fuzz.rng.gen_range(0..4) {
                0 => drop(bench.guest.unmap(DMA, SYSTEM_BYTES)),
                1 => {
                    let rw = ochre_vfio_user::Access::READ | ochre_vfio_user::Access::WRITE;
                    let fd = Some((bench.system.fd(), 0));
                    // It may be there already.
                    let _ = bench.guest.map(DMA, SYSTEM_BYTES, rw, fd);
                }
                2 => bench.board.set_bus_master(fuzz.rng.gen()),
                _ if q.wptr < 500 => bench.push(&mut q, &copy(DMA | PA_SYSTEM, 0, 70_000)),
                _ => {}
            }
            fuzz.step(&bench);
        }
    }
}
