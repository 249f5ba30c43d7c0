// SPDX-License-Identifier: GPL-2.0
//! How fast the board is on this host: instructions of kernels, bytes of copies, packets.
//!
//! Figures are per second of processor time, so that other load on the host does not count.

#[path = "../tests/common/mod.rs"]
mod common;

use common::asm::*;
use common::space::*;
use common::*;
use og1::config::Config;
use og1::config::MIB;
use og1::hw::mem::*;
use og1::hw::packets::*;

const CODE: u64 = 0x10_0000;
const DATA: u64 = 0x20_0000;
/// How often a transfer is repeated: the host's clock of processor time is coarse.
const TURNS: u64 = 40;

/// Seconds that this thread has been on a processor.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
    let ns: f64 = text
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("a number");
    ns / 1e9
}

fn kernel(name: &str, program: &[u32], instructions: u64, items: u32) {
    let mut bench = Bench::new();
    let space = Space::new(&mut bench, 1);
    let pa = bench.alloc(4096);
    bench.poke_bytes(pa, &code(program));
    space.map_4k(&mut bench, CODE, pa, PTE_READ | PTE_EXEC);
    space.map_2m(&mut bench, DATA, 0x20_0000, RWX);
    let mut q = bench.queue(0);
    bench.push(&mut q, &dispatch(CODE, DATA, [1, 1, 1], [items, 1, 1], 0));
    let start = cpu_seconds();
    bench.run();
    let seconds = cpu_seconds() - start;
    let executed = bench.control(&q, control::INSTRUCTIONS);
    assert!(
        executed >= instructions * u64::from(items),
        "{:?}",
        bench.last_fault()
    );
    println!(
        "{name}: {:.0} million instructions/s",
        executed as f64 / seconds / 1e6
    );
}

fn transfers(name: &str, packet: &[u64], bytes: u64) {
    let mut bench = Bench::with(Config {
        vram: 256 * MIB,
        aperture: 256 * MIB,
        ..small()
    });
    let mut q = bench.queue(2);
    // Once for the host to find the memory.
    bench.push(&mut q, packet);
    bench.run();
    let start = cpu_seconds();
    for _ in 0..TURNS {
        bench.push(&mut q, packet);
        bench.run();
    }
    let seconds = cpu_seconds() - start;
    bench.assert_clean();
    println!("{name}: {:.2} GB/s", (bytes * TURNS) as f64 / seconds / 1e9);
}

fn main() {
    let loops = 1000 * 4096;
    let head = [addi(T0, ZERO, 1000), slli(T0, T0, 12)];
    let mut alu = head.to_vec();
    alu.extend([
        addi(T0, T0, -1),
        add(T1, T1, T0),
        add(T2, T1, T0),
        addi(T1, T1, 3),
    ]);
    alu.extend([mul(T2, T2, T1), bne(T0, ZERO, -20), ret()]);
    kernel("arithmetic, one work-item", &alu, loops * 6, 1);
    kernel("arithmetic, 32 work-items", &alu, loops * 6, 32);
    let mut mem = head.to_vec();
    mem.extend([ld(T1, A0, 0), addi(T1, T1, 1), sd(T1, A0, 0), ld(T2, A0, 8)]);
    mem.extend([addi(T0, T0, -1), bne(T0, ZERO, -20), ret()]);
    kernel("loads and stores, one work-item", &mem, loops * 6, 1);

    let size = 64 * MIB;
    transfers("copy in VRAM", &copy(0, 128 * MIB, size), size);
    transfers(
        "fill VRAM",
        &pkt(PKT_FILL, FLAG_PHYSICAL, 0x1234_5678, &[0, size]),
        size,
    );
    let part = 8 * MIB;
    transfers("copy system to VRAM", &copy(PA_SYSTEM | DMA, 0, part), part);

    let mut bench = Bench::new();
    let mut q = bench.queue_with(
        2,
        0,
        2,
        &Props {
            ring_log2: 16,
            ..Props::default()
        },
    );
    let nops = vec![pkt_header(PKT_NOP, 1, 0, 0); 50_000];
    let start = cpu_seconds();
    for _ in 0..TURNS {
        bench.push(&mut q, &nops);
        bench.run();
    }
    let seconds = cpu_seconds() - start;
    println!("packets: {:.1} million/s", 0.05 * TURNS as f64 / seconds);
}
