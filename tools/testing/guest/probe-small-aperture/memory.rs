// SPDX-License-Identifier: GPL-2.0
//! Memory of a board of which the CPU sees a part; sizes as in vm.conf.

use anyhow::ensure;
use guest::errno;
use guest::ochre::abi::*;
use guest::ochre::access::READ_WRITE;
use guest::ochre::hw;
use guest::ochre::region::SYSTEM;
use guest::ochre::region::VRAM;
use guest::ochre::Bo;
use guest::ochre::Gpu;
use guest::ochre::Stream;
use guest::Desk;
use guest::Errno;
use guest::Outcome;

guest::tests! {
    query_tells_how_much_vram_the_cpu_sees,
    visible_bo_larger_than_the_aperture_is_enospc,
    visible_bo_that_the_aperture_cannot_hold_goes_to_system_memory_if_it_may,
    invisible_bo_cannot_be_mapped,
    invisible_bo_larger_than_the_aperture_is_all_there_for_the_engines,
}

const MIB: u64 = 1 << 20;
const VRAM_BYTES: u64 = 256 * MIB;
const APERTURE: u64 = 64 * MIB;

fn query_tells_how_much_vram_the_cpu_sees() -> Outcome {
    let regions = Gpu::open()?.query::<drm_ochre_query_region>()?;
    assert_eq!(regions[1].klass, DRM_OCHRE_REGION_VRAM);
    assert_eq!(regions[1].size, VRAM_BYTES);
    assert_eq!(regions[1].cpu_visible_size, APERTURE);
    assert!(regions[1].cpu_visible_free <= APERTURE);
    Ok(())
}

fn visible_bo_larger_than_the_aperture_is_enospc() -> Outcome {
    let gpu = Gpu::open()?;
    for flags in [0, DRM_OCHRE_GEM_CONTIGUOUS] {
        let flags = flags | DRM_OCHRE_GEM_CPU_VISIBLE;
        for size in [APERTURE + 4096, 2 * APERTURE, VRAM_BYTES] {
            let got = errno(Bo::with_flags(&gpu, VRAM, size, flags));
            assert_eq!(got, Some(Errno::ENOSPC), "{size:#x} with flags {flags}");
        }
    }
    let bo = Bo::new(&gpu, VRAM, APERTURE / 2)?;
    assert!(bo.mmap_offset().is_ok());
    Ok(())
}

fn visible_bo_that_the_aperture_cannot_hold_goes_to_system_memory_if_it_may() -> Outcome {
    let gpu = Gpu::open()?;
    let bo = Bo::new(&gpu, VRAM | SYSTEM, APERTURE + 4096)?;
    let cpu = bo.map()?;
    cpu.write(APERTURE as usize, &[7u64]);
    assert_eq!(cpu.read::<u64>(APERTURE as usize, 1), [7]);
    Ok(())
}

fn invisible_bo_cannot_be_mapped() -> Outcome {
    let gpu = Gpu::open()?;
    for size in [4096, 2 * APERTURE] {
        let bo = Bo::with_flags(&gpu, VRAM, size, 0)?;
        assert_eq!(errno(bo.mmap_offset()), Some(Errno::EINVAL), "{size:#x}");
    }
    Ok(())
}

fn invisible_bo_larger_than_the_aperture_is_all_there_for_the_engines() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let size = 160 * MIB;
    let bo = Bo::with_flags(&gpu, VRAM, size, 0)?;
    let addr = desk.vm.bind(&bo, READ_WRITE)?;
    let places: Vec<u64> = (0..size).step_by(8 << 20).chain([size - 8]).collect();
    let mut stream = Stream::new();
    for at in &places {
        stream = stream.write(addr + at, at ^ 0x5a5a);
    }
    for (index, at) in places.iter().enumerate() {
        let operands = [addr + at, desk.word_addr(index), 8];
        stream = stream.packet(hw::PKT_COPY, 0, 0, &operands);
    }
    desk.run(&queue, stream)?;
    for (index, at) in places.iter().enumerate() {
        ensure!(desk.word(index) == at ^ 0x5a5a, "word at {at:#x}");
    }
    Ok(())
}
