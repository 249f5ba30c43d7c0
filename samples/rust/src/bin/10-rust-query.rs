// SPDX-License-Identifier: GPL-2.0
//! Asks the driver for everything that it tells, and prints it.

use anyhow::ensure;
use ochre::abi::*;
use ochre::Gpu;

fn main() -> anyhow::Result<()> {
    let gpu = Gpu::open()?;

    for hardware in gpu.query::<drm_ochre_query_hardware>()? {
        let name: String = hardware
            .name
            .iter()
            .map(|&byte| char::from(byte as u8))
            .take_while(|&c| c != '\0')
            .collect();
        println!(
            "{name}, {:04x}:{:04x}, addresses {:#x} to {:#x}, a queue is reset after {} ms",
            hardware.vendor,
            hardware.device,
            hardware.va_start,
            hardware.va_end,
            hardware.timeout_ms
        );
        ensure!(!name.is_empty(), "the board has no name");
    }

    let regions = gpu.query::<drm_ochre_query_region>()?;
    for region in &regions {
        let vram = region.klass == DRM_OCHRE_REGION_VRAM;
        println!(
            "region {}: {}, {} MiB, {} MiB visible to the CPU",
            region.instance,
            if vram { "VRAM" } else { "system" },
            region.size >> 20,
            region.cpu_visible_size >> 20
        );
        ensure!(
            region.cpu_visible_size <= region.size,
            "more is visible than there is"
        );
    }
    ensure!(regions.len() == 2, "{} regions", regions.len());

    let engines = gpu.query::<drm_ochre_query_engine>()?;
    for engine in &engines {
        match u32::from(engine.klass) {
            DRM_OCHRE_ENGINE_COMPUTE => println!(
                "compute engine {}: {} lanes, {} KiB of local memory",
                engine.instance,
                engine.lanes,
                engine.local_bytes >> 10
            ),
            _ => println!("copy engine {}", engine.instance),
        }
    }
    ensure!(!engines.is_empty(), "no engine");

    let clocks = &gpu.query::<drm_ochre_query_clocks>()?[0];
    println!(
        "core {} MHz of {}, memory {} MHz of {}",
        clocks.core_khz / 1000,
        clocks.core_max_khz / 1000,
        clocks.memory_khz / 1000,
        clocks.memory_max_khz / 1000
    );
    ensure!(
        clocks.core_khz <= clocks.core_max_khz,
        "faster than the fastest"
    );

    let question = drm_ochre_query_time {
        clock: libc::CLOCK_MONOTONIC as u32,
        ..Default::default()
    };
    let first = gpu.ask(question)?;
    let second = gpu.ask(question)?;
    println!(
        "board time {} at CPU time {} ns, known to {} ns",
        first.gpu_ticks, first.cpu_ns, first.cpu_delta_ns
    );
    ensure!(second.cpu_ns >= first.cpu_ns, "the CPU's clock goes back");
    ensure!(
        second.gpu_ticks >= first.gpu_ticks,
        "the board's clock goes back"
    );
    println!("the answers agree with each other: verified");
    Ok(())
}
