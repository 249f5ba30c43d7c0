// SPDX-License-Identifier: GPL-2.0
//! Copies through each engine: system memory to VRAM, inside VRAM, and back.

use anyhow::ensure;
use ochre::abi::*;
use ochre::access::READ_WRITE;
use ochre::region::SYSTEM;
use ochre::region::VRAM;
use ochre::Gpu;
use ochre::Queue;
use ochre::Stream;
use ochre::Vm;

const WORDS: u32 = 1 << 18;

fn main() -> anyhow::Result<()> {
    let gpu = Gpu::open()?;
    let vm = Vm::new(&gpu)?;
    let bytes = u64::from(WORDS) * 4;
    let source = vm.buffer(SYSTEM, bytes, READ_WRITE)?;
    let near = vm.buffer(VRAM, bytes, READ_WRITE)?;
    let far = vm.buffer(VRAM, bytes, READ_WRITE)?;
    let result = vm.buffer(SYSTEM, bytes, READ_WRITE)?;
    let times = vm.buffer(SYSTEM, 16, READ_WRITE)?;

    for engine in gpu.query::<drm_ochre_query_engine>()? {
        let (class, instance) = (u32::from(engine.klass), u32::from(engine.instance));
        let queue = Queue::with(&vm, class, instance, &[])?;

        // Different for each engine, so that nothing is left from the one before.
        let seed = (class * 16 + instance + 1).wrapping_mul(0x9e37_79b9);
        let data: Vec<u32> = (0..WORDS).map(|i| i.wrapping_mul(seed)).collect();
        source.cpu.write(0, &data);
        let copies = Stream::new()
            .timestamp(times.addr)
            .copy(source.addr, near.addr, bytes)
            .copy(near.addr, far.addr, bytes)
            .copy(far.addr, result.addr, bytes)
            .timestamp(times.addr + 8);
        queue.run(&vm, &copies)?;

        ensure!(
            result.cpu.read::<u32>(0, data.len()) == data,
            "the copy differs"
        );
        let times = times.cpu.read::<u64>(0, 2);
        println!(
            "{} engine {instance}: three copies of {} KiB in {} ns of board time: verified",
            if class == DRM_OCHRE_ENGINE_COMPUTE {
                "compute"
            } else {
                "copy"
            },
            bytes >> 10,
            times[1] - times[0]
        );
    }
    Ok(())
}
