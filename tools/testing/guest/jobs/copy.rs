// SPDX-License-Identifier: GPL-2.0
//! Copies and fills, on each engine.

use guest::ochre::abi::*;
use guest::ochre::access::READ_WRITE;
use guest::ochre::region::SYSTEM;
use guest::ochre::region::VRAM;
use guest::ochre::Buffer;
use guest::ochre::Gpu;
use guest::ochre::Queue;
use guest::ochre::Stream;
use guest::Desk;
use guest::Outcome;

guest::tests! {
    every_engine_copies_between_all_kinds_of_memory,
    copy_of_any_length_from_any_address_touches_nothing_else,
    rectangle_is_copied_row_by_row,
    fill_stores_its_value_and_nothing_else,
    copy_of_many_mebibytes_is_right_to_the_last_byte,
}

/// Bytes of which no two neighbours at any small distance are equal.
fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn every_engine_copies_between_all_kinds_of_memory() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let len = 65536;
    for engine in gpu.query::<drm_ochre_query_engine>()? {
        let (class, instance) = (engine.klass.into(), engine.instance.into());
        let queue = Queue::with(&desk.vm, class, instance, &[])?;
        for (from, to) in [
            (SYSTEM, VRAM),
            (VRAM, SYSTEM),
            (VRAM, VRAM),
            (SYSTEM, SYSTEM),
        ] {
            let data = pattern(len, class * 100 + instance * 10 + from * 4 + to);
            let source = desk.vm.buffer_of(from, &data, READ_WRITE)?;
            let target = desk.vm.buffer(to, len as u64, READ_WRITE)?;
            desk.run(
                &queue,
                Stream::new().copy(source.addr, target.addr, len as u64),
            )?;
            assert!(
                target.cpu.read::<u8>(0, len) == data,
                "class {class} engine {instance}"
            );
        }
    }
    Ok(())
}

/// Checks that `target` holds `want`, which was made by the CPU.
#[track_caller]
fn check(target: &Buffer<'_>, want: &[u8], what: &str) {
    let got = target.cpu.read::<u8>(0, want.len());
    let wrong = got.iter().zip(want).position(|(got, want)| got != want);
    assert_eq!(wrong, None, "{what}: first wrong byte");
}

fn copy_of_any_length_from_any_address_touches_nothing_else() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let len = 3 * 65536;
    let data = pattern(len, 1);
    let source = desk.vm.buffer_of(SYSTEM, &data, READ_WRITE)?;
    let target = desk.vm.buffer(VRAM, len as u64, READ_WRITE)?;
    let mut want = vec![0; len];
    for (from, to, bytes) in [
        (0, 0, 0),
        (0, 0, 1),
        (1, 2, 1),
        (3, 8, 7),
        (5, 4095, 2),
        (4095, 5, 4097),
        (4090, 4094, 12288),
        (65535, 1, 65537),
        (1, 65535, 65536 + 3),
        (7, 11, 2 * 65536 + 1),
    ] {
        let stream = Stream::new().fill(target.addr, len as u64, 0).copy(
            source.addr + from as u64,
            target.addr + to as u64,
            bytes as u64,
        );
        desk.run(&queue, stream)?;
        want.fill(0);
        want[to..to + bytes].copy_from_slice(&data[from..from + bytes]);
        check(
            &target,
            &want,
            &format!("{bytes} bytes from {from} to {to}"),
        );
    }
    Ok(())
}

fn rectangle_is_copied_row_by_row() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let len = 65536;
    let data = pattern(len, 2);
    let source = desk.vm.buffer_of(VRAM, &data, READ_WRITE)?;
    let target = desk.vm.buffer(SYSTEM, len as u64, READ_WRITE)?;
    for (source_pitch, target_pitch, width, height) in [
        (100, 64, 64, 17),
        (64, 64, 64, 64),
        (4096, 3, 3, 16),
        (1, 4096, 1, 16),
        (0, 0, 500, 1),
        (10, 10, 0, 5),
        (10, 10, 5, 0),
    ] {
        let stream = Stream::new().fill(target.addr, len as u64, 0).copy_2d(
            (source.addr + 1, source_pitch),
            (target.addr + 2, target_pitch),
            (width, height),
        );
        desk.run(&queue, stream)?;
        let mut want = vec![0; len];
        let (width, height) = (width as usize, height as usize);
        for row in 0..height {
            let from = 1 + row * source_pitch as usize;
            let to = 2 + row * target_pitch as usize;
            want[to..to + width].copy_from_slice(&data[from..from + width]);
        }
        check(&target, &want, &format!("{width} x {height}"));
    }
    Ok(())
}

fn fill_stores_its_value_and_nothing_else() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let len = 2 * 65536;
    let target = desk.vm.buffer(VRAM, len as u64, READ_WRITE)?;
    for (to, bytes) in [(0, 0), (4, 4), (4092, 8), (65532, 65536), (0, len)] {
        let data = pattern(len, 3);
        target.cpu.write(0, &data);
        let fill = Stream::new().fill(target.addr + to as u64, bytes as u64, 0x0403_0201);
        desk.run(&queue, fill)?;
        let mut want = data;
        for (i, byte) in want[to..to + bytes].iter_mut().enumerate() {
            *byte = i as u8 % 4 + 1;
        }
        check(&target, &want, &format!("{bytes} bytes at {to}"));
    }
    Ok(())
}

fn copy_of_many_mebibytes_is_right_to_the_last_byte() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let len = 24 << 20;
    let data = pattern(len, 4);
    let source = desk.vm.buffer_of(SYSTEM, &data, READ_WRITE)?;
    let middle = desk.vm.buffer(VRAM, len as u64, READ_WRITE)?;
    let target = desk.vm.buffer(SYSTEM, len as u64, READ_WRITE)?;
    let stream = Stream::new()
        .copy(source.addr, middle.addr, len as u64)
        .copy(middle.addr, target.addr, len as u64);
    desk.run(&queue, stream)?;
    check(&target, &data, "24 MiB there and back");
    Ok(())
}
