// SPDX-License-Identifier: GPL-2.0
//! A guest that writes anything anywhere: the board does not panic, and every step ends soon.

mod common;

use std::time::Duration;
use std::time::Instant;

use common::*;
use ochre_virtio_gpu::config::Config;
use ochre_virtio_gpu::transport::place;
use ochre_virtio_gpu::wire::Cmd;
use ochre_virtio_gpu::wire::HEADER;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::Rng;
use rand::SeedableRng;

/// Longest piece of work that is allowed; generous, since the machine that tests is shared.
const STEP_MAX: Duration = Duration::from_secs(3);
/// How long each test goes on.
const TIME: Duration = Duration::from_secs(3);

struct Fuzz {
    rng: SmallRng,
    seed: u64,
    end: Instant,
}

impl Fuzz {
    fn new() -> Self {
        let seed = match std::env::var("VIRTIO_SEED") {
            Ok(text) => text.parse().expect("VIRTIO_SEED is a number"),
            Err(_) => rand::rngs::OsRng.gen(),
        };
        println!("VIRTIO_SEED={seed}");
        Self {
            rng: SmallRng::seed_from_u64(seed),
            seed,
            end: Instant::now() + TIME,
        }
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.end
    }

    fn settle(&mut self, bench: &mut Bench) {
        let start = Instant::now();
        bench.now += Duration::from_millis(self.rng.gen_range(0..20));
        bench.settle();
        let took = start.elapsed();
        assert!(took < STEP_MAX, "seed {}: {took:?}", self.seed);
    }

    /// A number that is often something.
    fn word(&mut self) -> u32 {
        let rng = &mut self.rng;
        match rng.gen_range(0..12) {
            0 => 0,
            1 => u32::MAX,
            2 => 1 << rng.gen_range(0..32),
            3 => rng.gen_range(0..64) * 4096,
            4 => rng.gen(),
            5 => (DMA + rng.gen_range(0..BYTES)) as u32,
            _ => rng.gen_range(0..6),
        }
    }

    fn address(&mut self) -> u64 {
        let rng = &mut self.rng;
        match rng.gen_range(0..10) {
            0 => rng.gen(),
            1 => u64::MAX - rng.gen_range(0..64),
            2 => DMA + BYTES - rng.gen_range(0..64),
            _ => DMA + rng.gen_range(0..BYTES / 4096) * 4096,
        }
    }

    /// A command that is nearly one.
    fn command(&mut self) -> Vec<u8> {
        let cmd = *Cmd::ALL.choose(&mut self.rng).unwrap();
        let mut body = Vec::new();
        for _ in 0..self.rng.gen_range(0..24) {
            body.extend(self.word().to_le_bytes());
        }
        if matches!(cmd, Cmd::AttachBacking | Cmd::CreateBlob) && self.rng.gen_bool(0.8) {
            let count = self.rng.gen_range(0..4u32);
            let pieces: Vec<(u64, u32)> = (0..count)
                .map(|_| (self.address(), self.rng.gen_range(0..0x4000)))
                .collect();
            let (id, mem) = (self.rng.gen_range(0..6), self.rng.gen_range(0..5));
            return match cmd {
                Cmd::AttachBacking => attach(id, &pieces),
                _ => create_blob(
                    self.rng.gen_range(0..3),
                    id,
                    mem,
                    self.rng.gen_range(0..8),
                    self.rng.gen_range(0..5) * 4096,
                    &pieces,
                ),
            };
        }
        if cmd == Cmd::Submit3d && self.rng.gen_bool(0.8) {
            let count = self.rng.gen_range(0..12);
            let words: Vec<u32> = (0..count).map(|_| self.word()).collect();
            return submit(self.rng.gen_range(0..3), &words);
        }
        let mut bytes = command(cmd, self.rng.gen_range(0..4), &body);
        if self.rng.gen_bool(0.3) {
            let ring = self.rng.gen_bool(0.5).then(|| self.rng.gen_range(0..70));
            let id = self.rng.gen();
            bytes = fenced(bytes, id, ring);
        }
        if self.rng.gen_bool(0.05) {
            let at = self.rng.gen_range(0..HEADER);
            bytes[at] = self.rng.gen();
        }
        if self.rng.gen_bool(0.1) {
            bytes.truncate(self.rng.gen_range(0..bytes.len()));
        }
        bytes
    }
}

#[test]
fn random_register_accesses() {
    let mut fuzz = Fuzz::new();
    while fuzz.goes_on() {
        let mut bench = Bench::new();
        for _ in 0..500 {
            let at = match fuzz.rng.gen_range(0..10) {
                0 => fuzz.rng.gen_range(0..0x5000),
                1 => place::NOTIFY + fuzz.rng.gen_range(0..12),
                2 => place::DEVICE + fuzz.rng.gen_range(0..24),
                3 => fuzz.rng.gen(),
                _ => fuzz.rng.gen_range(0..64),
            };
            let width = *[1, 2, 4, 2, 4, 8, 3].choose(&mut fuzz.rng).unwrap();
            let value = match fuzz.rng.gen_range(0..3) {
                0 => *[0u32, 1, 3, 11, 15, 16].choose(&mut fuzz.rng).unwrap(),
                _ => fuzz.word(),
            };
            let mut data = [0; 8];
            data[..4].copy_from_slice(&value.to_le_bytes());
            if fuzz.rng.gen_bool(0.4) {
                bench.machine.read(at, &mut data[..width]);
            } else {
                bench.machine.write(at, &data[..width]);
            }
            if fuzz.rng.gen_bool(0.1) {
                fuzz.settle(&mut bench);
            }
        }
    }
}

#[test]
fn random_descriptors_and_rings() {
    let mut fuzz = Fuzz::new();
    while fuzz.goes_on() {
        let mut bench = Bench::new();
        let area = bench.alloc(4096);
        for _ in 0..50 {
            for index in 0..SIZE {
                let addr = fuzz.address();
                let len = fuzz.word();
                let flags = fuzz.rng.gen_range(0..8);
                let next = fuzz.rng.gen_range(0..SIZE + 1);
                bench.descriptor(index, addr, len, flags, next);
                let table = area + u64::from(index) * 16;
                bench.poke(table, &bytes![addr, len, flags, next]);
            }
            if fuzz.rng.gen_bool(0.5) {
                bench.descriptor(0, area, 16 * u32::from(SIZE), 4, 0);
            }
            for _ in 0..fuzz.rng.gen_range(1..4) {
                let head = fuzz.rng.gen_range(0..SIZE + 1);
                bench.publish(head);
            }
            if fuzz.rng.gen_bool(0.1) {
                let index = fuzz.rng.gen::<u16>();
                bench.poke(bench.avail + 2, &index.to_le_bytes());
            }
            bench.notify();
            fuzz.settle(&mut bench);
            if bench.status() & 64 != 0 {
                break;
            }
        }
    }
}

#[test]
fn random_commands() {
    let mut fuzz = Fuzz::new();
    let mut good = 0;
    let mut rounds = 0;
    while fuzz.goes_on() || rounds < 20 {
        rounds += 1;
        let mut bench = Bench::with(Config {
            memory: 64 << 20,
            window: 1 << 20,
            ..Config::default()
        });
        for ctx in 1..3 {
            bench.ok(&create_context(ctx));
        }
        for _ in 0..300 {
            let bytes = fuzz.command();
            let room = *[24, 64, 4096, 8].choose(&mut fuzz.rng).unwrap();
            let posted = bench.post(&bytes, room);
            fuzz.settle(&mut bench);
            // Late ones are due some time; the bench has no descriptors to lose.
            bench.wait(600_000);
            let Some((id, len)) = bench.take_used() else {
                panic!("seed {}: no answer", fuzz.seed);
            };
            assert!(
                id == u32::from(posted.head) && len <= room,
                "seed {}",
                fuzz.seed
            );
            if len >= 24 {
                let (header, _) = bench.response(posted, len);
                good += u64::from(header.kind < 0x1200);
            }
            bench.recycle(posted);
        }
        bench.machine.judge.clear();
        bench.start(Config::default().features);
        assert_eq!(bench.machine.gpu.live(), [0; 4]);
    }
    // Otherwise nothing but the first checks was tried.
    println!("{good} commands of {rounds} rounds succeeded");
    assert!(good > rounds * 5, "seed {}", fuzz.seed);
}
