// SPDX-License-Identifier: GPL-2.0
//! GEM_CREATE, GEM_MMAP_OFFSET, and what they give.

use anyhow::ensure;
use anyhow::Context;
use drm::control::Device as _;
use guest::errno;
use guest::ochre::abi::*;
use guest::ochre::access::READ;
use guest::ochre::access::READ_WRITE;
use guest::ochre::region::SYSTEM;
use guest::ochre::region::VRAM;
use guest::ochre::Bo;
use guest::ochre::Gpu;
use guest::ochre::Stream;
use guest::raw;
use guest::refuses;
use guest::Desk;
use guest::Errno;
use guest::Foreign;
use guest::Ledger;
use guest::Outcome;
use memmap2::MmapOptions;

guest::tests! {
    wrong_gem_create_is_refused,
    wrong_gem_mmap_offset_is_refused,
    new_bo_holds_zeros_where_another_left_data,
    full_vram_is_enospc_and_system_memory_stands_in,
    full_aperture_is_enospc_while_vram_has_room,
    bo_too_large_for_vram_goes_to_system_memory_if_it_may,
    contiguous_bo_is_as_good_as_any,
    bo_of_another_file_cannot_be_mapped,
    mapping_ends_where_the_bo_ends,
    mapping_outlives_its_handle_and_its_file,
    exported_bo_is_the_same_memory_in_another_file,
}

const MIB: u64 = 1 << 20;

fn wrong_gem_create_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let good = drm_ochre_gem_create {
        size: 4096,
        regions: VRAM,
        ..Default::default()
    };
    let total = gpu.query::<drm_ochre_query_region>()?[0].size;
    let bo = refuses(
        &gpu,
        good,
        &[
            ("size 0", &|c| c.size = 0, Errno::EINVAL),
            ("size 1", &|c| c.size = 1, Errno::EINVAL),
            ("a byte less", &|c| c.size -= 1, Errno::EINVAL),
            ("a byte more", &|c| c.size += 1, Errno::EINVAL),
            ("largest number", &|c| c.size = u64::MAX, Errno::EINVAL),
            ("largest multiple", &|c| c.size = !4095, Errno::E2BIG),
            ("half of all addresses", &|c| c.size = 1 << 63, Errno::E2BIG),
            (
                "a page more than VRAM",
                &|c| c.size = 64 * MIB + 4096,
                Errno::E2BIG,
            ),
            (
                "more than the system has",
                &|c| (c.size, c.regions) = ((total + 8192) & !4095, SYSTEM),
                Errno::E2BIG,
            ),
            (
                "all addresses of the system",
                &|c| (c.size, c.regions) = (!4095, SYSTEM),
                Errno::E2BIG,
            ),
            (
                "all addresses of either",
                &|c| (c.size, c.regions) = (!4095, SYSTEM | VRAM),
                Errno::E2BIG,
            ),
            ("no region", &|c| c.regions = 0, Errno::EINVAL),
            ("an unknown region", &|c| c.regions = 1 << 2, Errno::EINVAL),
            ("the last region", &|c| c.regions = 1 << 31, Errno::EINVAL),
            (
                "one known, one not",
                &|c| c.regions = VRAM | 1 << 2,
                Errno::EINVAL,
            ),
            ("all regions", &|c| c.regions = u32::MAX, Errno::EINVAL),
            ("first unknown flag", &|c| c.flags = 1 << 2, Errno::EINVAL),
            ("last unknown flag", &|c| c.flags = 1 << 31, Errno::EINVAL),
            (
                "visible, in system memory",
                &|c| (c.flags, c.regions) = (DRM_OCHRE_GEM_CPU_VISIBLE, SYSTEM),
                Errno::EINVAL,
            ),
            (
                "contiguous, in system memory",
                &|c| (c.flags, c.regions) = (DRM_OCHRE_GEM_CONTIGUOUS, SYSTEM),
                Errno::EINVAL,
            ),
            ("pad", &|c| c.pad = 1, Errno::EINVAL),
            ("extensions", &|c| c.extensions = 8, Errno::EINVAL),
        ],
    )?;
    assert_ne!(bo.handle, 0);
    Ledger::forget_bo(&gpu, bo.handle);
    Ok(())
}

fn wrong_gem_mmap_offset_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let other = Gpu::open()?;
    let bo = Bo::new(&gpu, VRAM, 4096)?;
    let invisible = Bo::with_flags(&gpu, VRAM, 4096, 0)?;
    let others = Foreign::new(|| Bo::new(&other, SYSTEM, 4096), Bo::handle)?;
    let closed = {
        let bo = Bo::new(&gpu, SYSTEM, 4096)?;
        bo.handle()
    };
    let good = drm_ochre_gem_mmap_offset {
        handle: bo.handle(),
        ..Default::default()
    };
    let answer = refuses(
        &gpu,
        good,
        &[
            ("handle 0", &|m| m.handle = 0, Errno::ENOENT),
            ("last handle", &|m| m.handle = u32::MAX, Errno::ENOENT),
            (
                "another file's handle",
                &|m| m.handle = others.handle,
                Errno::ENOENT,
            ),
            ("a closed handle", &|m| m.handle = closed, Errno::ENOENT),
            (
                "not visible",
                &|m| m.handle = invisible.handle(),
                Errno::EINVAL,
            ),
            ("first flag", &|m| m.flags = 1, Errno::EINVAL),
            ("last flag", &|m| m.flags = 1 << 31, Errno::EINVAL),
            ("extensions", &|m| m.extensions = 8, Errno::EINVAL),
        ],
    )?;
    assert_eq!(answer.offset % 4096, 0);
    Ok(())
}

fn new_bo_holds_zeros_where_another_left_data() -> Outcome {
    let gpu = Gpu::open()?;
    for region in [VRAM, SYSTEM] {
        // Nearly all that the CPU sees, so that the second gets what the first had.
        let size = 12 * MIB;
        {
            let bo = Bo::new(&gpu, region, size)?;
            bo.map()?.write(0, &vec![0xa5u8; size as usize]);
        }
        let bo = Bo::new(&gpu, region, size)?;
        let bytes = bo.map()?.read::<u8>(0, size as usize);
        let dirty = bytes.iter().position(|&byte| byte != 0);
        assert_eq!(dirty, None, "region mask {region}");
    }
    Ok(())
}

/// Makes BOs of 4 MiB until there is an error.
fn fill(gpu: &Gpu, flags: u32) -> anyhow::Result<(Vec<Bo<'_>>, Errno)> {
    let mut bos = Vec::new();
    loop {
        match Bo::with_flags(gpu, VRAM, 4 * MIB, flags) {
            Ok(bo) => bos.push(bo),
            error => return Ok((bos, errno(error).context("an errno")?)),
        }
        ensure!(bos.len() < 100, "VRAM does not get full");
    }
}

fn full_vram_is_enospc_and_system_memory_stands_in() -> Outcome {
    let gpu = Gpu::open()?;
    let before = Ledger::read(&gpu)?;
    {
        let (bos, error) = fill(&gpu, 0)?;
        assert_eq!(error, Errno::ENOSPC);
        // Page tables and the like take some.
        assert!(bos.len() >= 14, "only {} BOs of 4 MiB in 64 MiB", bos.len());
        let either = Bo::with_flags(&gpu, VRAM | SYSTEM, 4 * MIB, 0)?;
        assert!(either.mmap_offset().is_ok(), "system memory can be mapped");
    }
    before.check(&gpu, "filling VRAM")
}

fn full_aperture_is_enospc_while_vram_has_room() -> Outcome {
    let gpu = Gpu::open()?;
    let before = Ledger::read(&gpu)?;
    {
        let (bos, error) = fill(&gpu, DRM_OCHRE_GEM_CPU_VISIBLE)?;
        assert_eq!(error, Errno::ENOSPC);
        assert!(
            (3..=4).contains(&bos.len()),
            "{} BOs of 4 MiB in 16 MiB",
            bos.len()
        );
        Bo::with_flags(&gpu, VRAM, 4 * MIB, 0).context("the rest of VRAM")?;
    }
    before.check(&gpu, "filling the aperture")
}

fn bo_too_large_for_vram_goes_to_system_memory_if_it_may() -> Outcome {
    let gpu = Gpu::open()?;
    let bo = Bo::with_flags(&gpu, VRAM | SYSTEM, 80 * MIB, 0)?;
    // Only a BO in system memory can be mapped without the flag.
    bo.map()?.write(80 * MIB as usize - 4, &[7u32]);
    Ok(())
}

fn contiguous_bo_is_as_good_as_any() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let flags = DRM_OCHRE_GEM_CONTIGUOUS | DRM_OCHRE_GEM_CPU_VISIBLE;
    let bo = Bo::with_flags(&gpu, VRAM, 6 * MIB, flags)?;
    let addr = desk.vm.bind(&bo, READ_WRITE)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    desk.run(&queue, Stream::new().fill(addr, bo.size(), 0x1234_5678))?;
    let words = bo.map()?.read::<u32>(0, bo.size() as usize / 4);
    assert!(words.iter().all(|&word| word == 0x1234_5678));
    Ok(())
}

fn bo_of_another_file_cannot_be_mapped() -> Outcome {
    let (gpu, other) = (Gpu::open()?, Gpu::open()?);
    for region in [SYSTEM, VRAM] {
        let bo = Bo::new(&gpu, region, 4096)?;
        let mut options = MmapOptions::new();
        options.offset(bo.mmap_offset()?).len(4096);
        assert_eq!(errno(options.map_raw(other.file())), Some(Errno::EACCES));
        assert!(options.map_raw(gpu.file()).is_ok());
    }
    Ok(())
}

fn mapping_ends_where_the_bo_ends() -> Outcome {
    let gpu = Gpu::open()?;
    for region in [SYSTEM, VRAM] {
        let bo = Bo::new(&gpu, region, 8192)?;
        let offset = bo.mmap_offset()?;
        let map = |skip, len| {
            let mut options = MmapOptions::new();
            options.offset(offset + skip).len(len);
            errno(options.map_raw(gpu.file()))
        };
        assert_eq!(map(0, 8192), None);
        assert_eq!(map(0, 12288), Some(Errno::EINVAL), "a page too long");
        assert_eq!(map(8192, 4096), Some(Errno::EINVAL), "behind the end");
    }
    Ok(())
}

fn mapping_outlives_its_handle_and_its_file() -> Outcome {
    for region in [SYSTEM, VRAM] {
        let gpu = Gpu::open()?;
        let bo = Bo::new(&gpu, region, 4096)?;
        let mapping = bo.map()?;
        mapping.write(0, &[1u64]);
        drop(bo);
        drop(gpu);
        assert_eq!(mapping.read::<u64>(0, 1), [1]);
        mapping.write(8, &[2u64]);
        assert_eq!(mapping.read::<u64>(0, 2), [1, 2]);
    }
    Ok(())
}

fn exported_bo_is_the_same_memory_in_another_file() -> Outcome {
    let (gpu, other) = (Gpu::open()?, Gpu::open()?);
    let desk = Desk::new(&other)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    for region in [SYSTEM, VRAM] {
        let bo = Bo::new(&gpu, region, 4096)?;
        let mapping = bo.map()?;
        mapping.write(0, &[42u64]);
        let handle = std::num::NonZeroU32::new(bo.handle()).context("a handle")?;
        let shared = gpu.buffer_to_prime_fd(handle.into(), libc::O_RDWR as u32)?;
        let there = other.prime_fd_to_buffer(std::os::fd::AsFd::as_fd(&shared))?;
        drop((bo, shared));

        let mut bind = drm_ochre_bind {
            op: DRM_OCHRE_BIND_MAP,
            flags: READ,
            handle: u32::from(there),
            addr: 0x7000_0000,
            range: 4096,
            ..Default::default()
        };
        desk.vm.bind_all(&[bind])?;
        desk.run(&queue, Stream::new().copy(bind.addr, desk.word_addr(0), 8))?;
        assert_eq!(desk.word(0), 42, "region mask {region}");

        other.close_buffer(there)?;
        bind.addr += 4096;
        assert_eq!(errno(desk.vm.bind_all(&[bind])), Some(Errno::ENOENT));
        desk.vm.unbind(0x7000_0000, 4096)?;
        let mut offset = drm_ochre_gem_mmap_offset {
            handle: bind.handle,
            ..Default::default()
        };
        assert_eq!(raw::call(&other, &mut offset), Err(Errno::ENOENT));
    }
    Ok(())
}
