// SPDX-License-Identifier: GPL-2.0
//! QUERY.

use std::mem::offset_of;

use anyhow::ensure;
use guest::child;
use guest::ochre::abi::*;
use guest::ochre::Gpu;
use guest::ochre::Question;
use guest::pointers;
use guest::raw;
use guest::refuses;
use guest::Errno;
use guest::Outcome;
use nix::time::clock_gettime;
use nix::time::ClockId;

guest::tests! {
    hardware_query_describes_the_board,
    regions_query_describes_system_memory_and_vram,
    engines_query_lists_each_engine_once,
    clocks_query_gives_clocks_below_their_maximum,
    time_query_lies_between_two_readings_of_each_clock,
    time_query_refuses_unknown_clocks_and_dirty_fields,
    size_zero_gives_the_size_and_a_larger_one_is_not_filled,
    wrong_query_is_refused,
    answer_at_a_bad_address_is_refused,
    without_cap_perfmon_free_memory_is_all_memory,
}

fn first<Q: Question>(gpu: &Gpu) -> anyhow::Result<Q> {
    let mut answers = gpu.query::<Q>()?;
    ensure!(answers.len() == 1, "{} answers", answers.len());
    Ok(answers.remove(0))
}

fn hardware_query_describes_the_board() -> Outcome {
    let hardware: drm_ochre_query_hardware = first(&Gpu::open()?)?;
    let name = hardware.name.map(|byte| byte as u8);
    assert!(name.starts_with(b"Ochre og1"), "{name:?}");
    assert_eq!(name[31], 0);
    assert_eq!((hardware.vendor, hardware.device), (0x1234, 0x0c47));
    assert_eq!(hardware.revision, 1 << 16 | 1);
    assert_eq!(hardware.firmware, 1 << 16);
    assert_eq!(hardware.page_sizes, 1 << 12 | 1 << 16 | 1 << 21);
    assert_eq!(hardware.va_start % 4096, 0);
    // From there on are the windows of compute kernels.
    assert_eq!(hardware.va_end, 0xfffe_0000_0000);
    assert!(hardware.job_words_max >= 1 << 10);
    assert!(hardware.jobs_max >= 16 && hardware.binds_max >= 16 && hardware.syncs_max >= 16);
    assert_eq!(hardware.timeout_ms, 2000);
    assert_eq!(hardware.timeout_max_ms, 60_000);
    assert_eq!(hardware.resets, 0);
    assert_eq!(hardware.reserved, [0; 6]);
    Ok(())
}

fn regions_query_describes_system_memory_and_vram() -> Outcome {
    let regions = Gpu::open()?.query::<drm_ochre_query_region>()?;
    assert_eq!(regions.len(), 2);
    for (instance, region) in (0..).zip(&regions) {
        assert_eq!(region.instance, instance);
        assert_eq!(region.alignment, 4096);
        assert!(region.free > 0 && region.free <= region.size);
        assert!(region.cpu_visible_size <= region.size);
        assert!(region.cpu_visible_free <= region.cpu_visible_size);
        assert_eq!(region.reserved, [0; 5]);
    }
    assert_eq!(regions[0].klass, DRM_OCHRE_REGION_SYSTEM);
    assert_eq!(regions[1].klass, DRM_OCHRE_REGION_VRAM);
    // As vm.conf says.
    assert_eq!(regions[1].size, 64 << 20);
    assert_eq!(regions[1].cpu_visible_size, 16 << 20);
    Ok(())
}

fn engines_query_lists_each_engine_once() -> Outcome {
    let engines = Gpu::open()?.query::<drm_ochre_query_engine>()?;
    let names: Vec<_> = engines
        .iter()
        .map(|e| (u32::from(e.klass), e.instance))
        .collect();
    let compute = DRM_OCHRE_ENGINE_COMPUTE;
    let copy = DRM_OCHRE_ENGINE_COPY;
    assert_eq!(names, [(compute, 0), (compute, 1), (copy, 0), (copy, 1)]);
    for engine in &engines {
        let computes = u32::from(engine.klass) == compute;
        assert_eq!(engine.slots, 2);
        assert_eq!(engine.lanes > 0, computes);
        assert_eq!(engine.block_items_max > 0, computes);
        assert_eq!(engine.local_bytes > 0, computes);
        assert_eq!((engine.pad, engine.reserved), (0, [0; 4]));
    }
    Ok(())
}

fn clocks_query_gives_clocks_below_their_maximum() -> Outcome {
    let clocks: drm_ochre_query_clocks = first(&Gpu::open()?)?;
    assert!(clocks.core_khz > 0 && clocks.core_khz <= clocks.core_max_khz);
    assert!(clocks.memory_khz > 0 && clocks.memory_khz <= clocks.memory_max_khz);
    assert_eq!(clocks.timestamp_hz, 1_000_000_000);
    assert_eq!(clocks.reserved, [0; 5]);
    Ok(())
}

fn nanoseconds(clock: ClockId) -> anyhow::Result<u64> {
    let now = clock_gettime(clock)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

fn time_query_lies_between_two_readings_of_each_clock() -> Outcome {
    let gpu = Gpu::open()?;
    let mut board = 0;
    for clock in [
        ClockId::CLOCK_MONOTONIC,
        ClockId::CLOCK_MONOTONIC_RAW,
        ClockId::CLOCK_BOOTTIME,
        ClockId::CLOCK_REALTIME,
    ] {
        let before = nanoseconds(clock)?;
        let time = gpu.ask(drm_ochre_query_time {
            clock: clock.as_raw() as u32,
            ..Default::default()
        })?;
        let after = nanoseconds(clock)?;
        assert!(before <= time.cpu_ns, "{clock}: {time:?} before {before}");
        assert!(
            time.cpu_ns + time.cpu_delta_ns <= after,
            "{clock}: {time:?} after {after}"
        );
        assert!(
            time.gpu_ticks >= board,
            "{clock}: {time:?}, but the board was at {board}"
        );
        board = time.gpu_ticks;
    }
    Ok(())
}

fn time_query_refuses_unknown_clocks_and_dirty_fields() -> Outcome {
    let gpu = Gpu::open()?;
    let good = drm_ochre_query_time {
        clock: libc::CLOCK_MONOTONIC as u32,
        ..Default::default()
    };
    let ask = |spoil: &dyn Fn(&mut drm_ochre_query_time)| {
        let mut question = good;
        spoil(&mut question);
        guest::errno(gpu.ask(question))
    };
    assert_eq!(ask(&|_| ()), None);
    for clock in [2, 3, 5, 6, 8, 11, u32::MAX] {
        assert_eq!(
            ask(&|q| q.clock = clock),
            Some(Errno::EINVAL),
            "clock {clock}"
        );
    }
    assert_eq!(ask(&|q| q.pad = 1), Some(Errno::EINVAL));
    for i in 0..good.reserved.len() {
        assert_eq!(
            ask(&|q| q.reserved[i] = 1 << 63),
            Some(Errno::EINVAL),
            "reserved[{i}]"
        );
    }
    Ok(())
}

fn size_zero_gives_the_size_and_a_larger_one_is_not_filled() -> Outcome {
    let gpu = Gpu::open()?;
    for kind in 0..5 {
        let mut query = drm_ochre_query {
            kind,
            ..Default::default()
        };
        raw::call(&gpu, &mut query)?;
        let size = query.size as usize;
        assert!(size > 0 && size % 8 == 0, "kind {kind}: {size}");

        // The question about time is in the same place as its answer.
        let mut buffer = vec![0u8; size + 64];
        buffer[size..].fill(0xa5);
        buffer[0] = libc::CLOCK_MONOTONIC as u8;
        query.size = count(&buffer);
        query.data = buffer.as_mut_ptr() as u64;
        raw::call(&gpu, &mut query)?;
        assert_eq!(query.size as usize, size, "kind {kind}");
        assert!(
            buffer[size..].iter().all(|&byte| byte == 0xa5),
            "kind {kind}"
        );
    }
    Ok(())
}

fn wrong_query_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let mut answer = [0u8; 4096];
    let good = drm_ochre_query {
        kind: DRM_OCHRE_QUERY_HARDWARE,
        size: stride::<drm_ochre_query_hardware>(),
        data: answer.as_mut_ptr() as u64,
        extensions: 0,
    };
    refuses(
        &gpu,
        good,
        &[
            ("first unknown kind", &|q| q.kind = 5, Errno::EINVAL),
            ("last unknown kind", &|q| q.kind = u32::MAX, Errno::EINVAL),
            (
                "unknown kind, size 0",
                &|q| (q.kind, q.size) = (5, 0),
                Errno::EINVAL,
            ),
            ("size 1", &|q| q.size = 1, Errno::EINVAL),
            ("a byte too small", &|q| q.size -= 1, Errno::EINVAL),
            ("extensions", &|q| q.extensions = q.data, Errno::EINVAL),
            ("extensions nowhere", &|q| q.extensions = 8, Errno::EINVAL),
            (
                "two engines of four",
                &|q| (q.kind, q.size) = (2, 96),
                Errno::EINVAL,
            ),
        ],
    )?;
    Ok(())
}

fn answer_at_a_bad_address_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let mut question = [0u8; size_of::<drm_ochre_query_time>()];
    question[offset_of!(drm_ochre_query_time, clock)] = libc::CLOCK_MONOTONIC as u8;
    let read_only = pointers::ReadOnly::with(&question);
    let mut cliff = pointers::Cliff::new();
    let mut places = pointers::bad();
    places.push(("a page that cannot be written", read_only.address()));
    places.push(("the last byte of a page", cliff.put(&[0])));
    for kind in 0..5 {
        let mut query = drm_ochre_query {
            kind,
            ..Default::default()
        };
        raw::call(&gpu, &mut query)?;
        for (what, data) in &places {
            query.data = *data;
            let got = raw::call(&gpu, &mut query);
            assert_eq!(got, Err(Errno::EFAULT), "kind {kind}, {what}");
        }
    }
    Ok(())
}

fn without_cap_perfmon_free_memory_is_all_memory() -> Outcome {
    let gpu = Gpu::open()?;
    let all = gpu.query::<drm_ochre_query_region>()?;
    assert!(
        all[0].free < all[0].size,
        "nothing of the system's memory is in use?"
    );
    child::as_nobody(|| {
        for region in gpu.query::<drm_ochre_query_region>()? {
            assert_eq!(region.free, region.size);
            assert_eq!(region.cpu_visible_free, region.cpu_visible_size);
        }
        Ok(())
    })
}
