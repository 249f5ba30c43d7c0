// SPDX-License-Identifier: GPL-2.0
//! A tiled single-precision matrix product with block-local memory and barriers, on both compute
//! engines at once: each takes half of the rows.

use std::env;
use std::fs;

use anyhow::ensure;
use anyhow::Context;
use ochre::abi::*;
use ochre::access::EXEC;
use ochre::access::READ;
use ochre::access::READ_WRITE;
use ochre::in_seconds;
use ochre::region::SYSTEM;
use ochre::region::VRAM;
use ochre::Dispatch;
use ochre::Gpu;
use ochre::Packets;
use ochre::Queue;
use ochre::Stream;
use ochre::Syncobj;
use ochre::Vm;

const N: u32 = 64;
/// `MATMUL_TILE` of kernels/args.h.
const TILE: u32 = 8;

/// `struct matmul_args` of kernels/args.h.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Args {
    a: u64,
    b: u64,
    c: u64,
    n: u32,
    pad: u32,
}

/// Small whole numbers: sums are exact in any order.
fn matrix(number: u32) -> Vec<f32> {
    let element = |i| ((i / N * 3 + i % N * 5 + number * 7) % 17) as f32 - 8.0;
    (0..N * N).map(element).collect()
}

fn product(a: &[f32], b: &[f32]) -> Vec<f32> {
    let n = N as usize;
    let element = |i: usize| (0..n).map(|k| a[i / n * n + k] * b[k * n + i % n]).sum();
    (0..n * n).map(element).collect()
}

fn main() -> anyhow::Result<()> {
    let image = env::current_exe()?.with_file_name("matmul.bin");
    let image = fs::read(&image).with_context(|| image.display().to_string())?;
    let (first, second) = (matrix(0), matrix(1));

    let gpu = Gpu::open()?;
    let vm = Vm::new(&gpu)?;
    let kernel = vm.buffer_of(VRAM, &image, EXEC)?;
    let a = vm.buffer_of(VRAM, &first, READ_WRITE)?;
    let b = vm.buffer_of(VRAM, &second, READ_WRITE)?;
    let c = vm.buffer(VRAM, a.bo.size(), READ_WRITE)?;

    let compute =
        |engine: &drm_ochre_query_engine| u32::from(engine.klass) == DRM_OCHRE_ENGINE_COMPUTE;
    let mut engines = gpu.query::<drm_ochre_query_engine>()?;
    engines.retain(compute);
    let parts = if engines.len() > 1 { 2 } else { 1 };
    let rows = N / parts;

    // What a part uses has to stay until it has ended.
    let mut parts_at_work = Vec::new();
    let mut syncs = Vec::new();
    for (part, engine) in (0..parts).zip(&engines) {
        let skip = u64::from(part * rows * N) * 4;
        let args = Args {
            a: a.addr + skip,
            b: b.addr,
            c: c.addr + skip,
            n: N,
            pad: 0,
        };
        let args = vm.buffer_of(SYSTEM, &[args], READ)?;
        let product = Dispatch {
            kernel: kernel.addr,
            args: args.addr,
            grid: [N / TILE, rows / TILE, 1],
            block: [TILE, TILE, 1],
            local_bytes: 2 * TILE * TILE * 4,
            ..Default::default()
        };
        let instance = u32::from(engine.instance);
        let queue = Queue::with(&vm, DRM_OCHRE_ENGINE_COMPUTE, instance, &[])?;
        let packets = Packets::new(&vm, &Stream::new().dispatch(&product))?;
        let done = Syncobj::new(&gpu)?;
        queue.submit_stream(&packets, &[done.signal()])?;
        syncs.push(done.wait());
        parts_at_work.push((args, queue, packets, done));
    }
    let waited = gpu.wait(&syncs, in_seconds(100))?;
    ensure!(waited.error == 0, "a job ended with errno {}", waited.error);

    let got = c.cpu.read::<f32>(0, first.len());
    ensure!(
        got == product(&first, &second),
        "the product differs from the CPU's"
    );
    println!("matrix product {N} x {N} on {parts} engines: verified");
    Ok(())
}
