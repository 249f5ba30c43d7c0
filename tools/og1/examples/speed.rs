// SPDX-License-Identifier: GPL-2.0
//! How fast the board is on this host: instructions of kernels beside what is asked of the board,
//! bytes of copies beside the host's own, packets.
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
/// Million instructions a second that one hart has to reach.
const FLOOR: f64 = 40.0;

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
    let millions = executed as f64 / seconds / 1e6;
    println!(
        "{name}: {millions:.0} million instructions/s, {:.1} times the {FLOOR:.0} asked for",
        millions / FLOOR
    );
}

/// Bytes a second that the host copies, with as much memory as the board's copies touch.
fn host_copy(bytes: u64) -> f64 {
    let from = vec![1u8; bytes as usize];
    let mut to = vec![0u8; bytes as usize];
    let start = cpu_seconds();
    for _ in 0..TURNS {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
    }
    (bytes * TURNS) as f64 / (cpu_seconds() - start)
}

fn transfers(name: &str, packet: &[u64], bytes: u64, host: f64) {
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
    let rate = (bytes * TURNS) as f64 / seconds;
    println!(
        "{name}: {:.2} GB/s, {:.2} times the host's copy",
        rate / 1e9,
        rate / host
    );
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
    let host = host_copy(size);
    println!("copy by the host itself: {:.2} GB/s", host / 1e9);
    transfers("copy in VRAM", &copy(0, 128 * MIB, size), size, host);
    transfers(
        "fill VRAM",
        &pkt(PKT_FILL, FLAG_PHYSICAL, 0x1234_5678, &[0, size]),
        size,
        host,
    );
    let part = 8 * MIB;
    let packet = copy(PA_SYSTEM | DMA, 0, part);
    transfers("copy system to VRAM", &packet, part, host_copy(part));

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
