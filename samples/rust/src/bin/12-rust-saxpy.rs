// SPDX-License-Identifier: GPL-2.0
//! y = a * x + y on the GPU, by a kernel that clang compiled.

use std::env;
use std::fs;

use anyhow::ensure;
use anyhow::Context;
use ochre::abi::*;
use ochre::access::EXEC;
use ochre::access::READ;
use ochre::access::READ_WRITE;
use ochre::region::SYSTEM;
use ochre::region::VRAM;
use ochre::Dispatch;
use ochre::Gpu;
use ochre::Queue;
use ochre::Stream;
use ochre::Vm;

const N: u32 = 50_000;
const BLOCK: u32 = 256;
const A: f32 = 2.5;

/// `struct saxpy_args` of kernels/args.h.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Args {
    x: u64,
    y: u64,
    n: u32,
    a: f32,
}

fn main() -> anyhow::Result<()> {
    let image = env::current_exe()?.with_file_name("saxpy.bin");
    let image = fs::read(&image).with_context(|| image.display().to_string())?;
    let xs: Vec<f32> = (0..N).map(|i| i as f32 / 7.0).collect();
    let ys: Vec<f32> = (0..N).map(|i| 1000.0 - i as f32).collect();

    let gpu = Gpu::open()?;
    let vm = Vm::new(&gpu)?;
    let kernel = vm.buffer_of(VRAM, &image, EXEC)?;
    let x = vm.buffer_of(VRAM, &xs, READ_WRITE)?;
    let y = vm.buffer_of(VRAM, &ys, READ_WRITE)?;
    let times = vm.buffer(SYSTEM, 16, READ_WRITE)?;
    let (n, a) = (N, A);
    let args = Args {
        x: x.addr,
        y: y.addr,
        n,
        a,
    };
    let args = vm.buffer_of(SYSTEM, &[args], READ)?;
    let queue = Queue::new(&vm, DRM_OCHRE_ENGINE_COMPUTE)?;

    let saxpy = Dispatch {
        kernel: kernel.addr,
        args: args.addr,
        grid: [N.div_ceil(BLOCK), 1, 1],
        block: [BLOCK, 1, 1],
        ..Default::default()
    };
    let stream = Stream::new()
        .timestamp(times.addr)
        .dispatch(&saxpy)
        .timestamp(times.addr + 8);
    queue.run(&vm, &stream)?;

    let got = y.cpu.read::<f32>(0, ys.len());
    for (i, got) in got.into_iter().enumerate() {
        let want = A * xs[i] + ys[i];
        ensure!(got == want, "y[{i}] is {got}, the CPU says {want}");
    }
    let times = times.cpu.read::<u64>(0, 2);
    println!(
        "saxpy of {N} elements in {} ns of board time: verified",
        times[1] - times[0]
    );
    Ok(())
}
