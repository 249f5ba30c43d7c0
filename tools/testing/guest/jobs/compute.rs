// SPDX-License-Identifier: GPL-2.0
//! Compute kernels that clang built from kernels/.

use std::env;
use std::fs;

use anyhow::Context;
use guest::errno;
use guest::ochre::abi::*;
use guest::ochre::access::ATOMIC;
use guest::ochre::access::EXEC;
use guest::ochre::access::READ_WRITE;
use guest::ochre::region::SYSTEM;
use guest::ochre::region::VRAM;
use guest::ochre::Buffer;
use guest::ochre::Dispatch;
use guest::ochre::Gpu;
use guest::ochre::Queue;
use guest::ochre::Stream;
use guest::Desk;
use guest::Errno;
use guest::Outcome;

guest::tests! {
    each_work_item_runs_once_and_knows_who_it_is,
    barrier_holds_back_the_first_until_the_last_has_stored,
    atomic_operations_of_all_work_items_add_up,
    local_memory_is_zero_when_a_block_starts,
    dispatches_of_two_engines_do_not_mix,
    dispatch_on_a_copy_engine_is_a_fault,
}

/// A kernel that stands beside the program.
fn kernel<'g>(desk: &Desk<'g>, name: &str) -> anyhow::Result<Buffer<'g>> {
    let path = env::current_exe()?
        .with_file_name(name)
        .with_extension("bin");
    let image = fs::read(&path).with_context(|| path.display().to_string())?;
    Ok(desk.vm.buffer_of(VRAM, &image, EXEC)?)
}

/// `struct identity` of kernels/ids.c: block, work-item, lane, bytes of local memory.
type Identity = [u32; 8];

fn identities(grid: [u32; 3], block: [u32; 3], local_bytes: u32) -> Vec<Identity> {
    let all = |size: [u32; 3]| {
        (0..size[2])
            .flat_map(move |z| (0..size[1]).flat_map(move |y| (0..size[0]).map(move |x| [x, y, z])))
    };
    all(grid)
        .flat_map(|[a, b, c]| {
            (0..)
                .zip(all(block))
                .map(move |(lane, [x, y, z])| [a, b, c, x, y, z, lane, local_bytes])
        })
        .collect()
}

fn each_work_item_runs_once_and_knows_who_it_is() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let ids = kernel(&desk, "ids")?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?;
    for (grid, block, local_bytes) in [
        ([1, 1, 1], [1, 1, 1], 0),
        ([5, 1, 1], [7, 1, 1], 64),
        ([2, 3, 4], [3, 2, 5], 4096),
        ([1, 1, 3], [1024, 1, 1], 65536),
        ([1, 2, 1], [1, 1, 64], 0),
        ([3, 1, 1], [8, 16, 8], 16),
    ] {
        let want = identities(grid, block, local_bytes);
        let out = desk
            .vm
            .buffer(VRAM, size_of_val(&want[..]) as u64, READ_WRITE)?;
        let dispatch = Dispatch {
            kernel: ids.addr,
            args: out.addr,
            grid,
            block,
            local_bytes,
            ..Default::default()
        };
        desk.run(&queue, Stream::new().dispatch(&dispatch))?;
        let got = out.cpu.read::<Identity>(0, want.len());
        let wrong = got.iter().zip(&want).find(|(got, want)| got != want);
        assert_eq!(wrong, None, "grid {grid:?} of blocks {block:?}");
    }
    Ok(())
}

fn barrier_holds_back_the_first_until_the_last_has_stored() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let reverse = kernel(&desk, "reverse")?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?;
    let (blocks, items) = (3, 256);
    let data: Vec<u64> = (0..u64::from(blocks * items)).collect();
    let words = desk.vm.buffer_of(SYSTEM, &data, READ_WRITE)?;
    let dispatch = Dispatch {
        kernel: reverse.addr,
        args: words.addr,
        grid: [blocks, 1, 1],
        block: [items, 1, 1],
        local_bytes: items * 8,
        ..Default::default()
    };
    desk.run(&queue, Stream::new().dispatch(&dispatch))?;
    let want: Vec<u64> = data
        .chunks(items as usize)
        .flat_map(|block| block.iter().rev().copied())
        .collect();
    assert!(words.cpu.read::<u64>(0, want.len()) == want);
    Ok(())
}

fn atomic_operations_of_all_work_items_add_up() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let count = kernel(&desk, "count")?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?;
    let stack_bytes = 1024;
    let items = 200;
    let stack = desk
        .vm
        .buffer(VRAM, u64::from(items) * stack_bytes, READ_WRITE)?;
    for region in [SYSTEM, VRAM] {
        let counter = desk.vm.buffer(region, 8, ATOMIC)?;
        let own_stack = Dispatch {
            kernel: count.addr,
            args: counter.addr,
            grid: [7, 1, 1],
            block: [items, 1, 1],
            ..Default::default()
        };
        let stack_in_memory = Dispatch {
            stack: stack.addr,
            stack_bytes,
            ..own_stack
        };
        let both = Stream::new()
            .dispatch(&own_stack)
            .dispatch(&stack_in_memory);
        desk.run(&queue, both)?;
        // 16 + 15 + … + 1 from each.
        let sum = u64::from(2 * 7 * items) * 136;
        assert_eq!(counter.cpu.read::<u64>(0, 1), [sum], "region mask {region}");
    }
    Ok(())
}

fn local_memory_is_zero_when_a_block_starts() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    // t0 = LDS[0]; LDS[0] = -1; *a0 += t0: the sum stays 0 only if no block finds what another left.
    const LOOK: [u32; 6] = [
        0xcd10_22f3, // csrr t0, 0xcd1
        0x0002_b303, // ld t1, 0(t0)
        0xfff0_0393, // li t2, -1
        0x0072_b023, // sd t2, 0(t0)
        0x0065_302f, // amoadd.d zero, t1, (a0)
        0x0000_8067, // ret
    ];
    let look = desk.kernel(&LOOK)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?;
    let dispatch = Dispatch {
        kernel: look.addr,
        args: desk.word_addr(0),
        grid: [50, 1, 1],
        block: [1, 1, 1],
        local_bytes: 8,
        ..Default::default()
    };
    desk.run(
        &queue,
        Stream::new()
            .dispatch(&dispatch)
            .write(desk.word_addr(1), 1),
    )?;
    assert_eq!((desk.word(0), desk.word(1)), (0, 1));
    // Two work-items of a block share it: the second finds what the first left.
    desk.run(
        &queue,
        Stream::new().dispatch(&Dispatch {
            block: [2, 1, 1],
            ..dispatch
        }),
    )?;
    assert_eq!(desk.word(0), 50u64.wrapping_neg());
    Ok(())
}

fn dispatches_of_two_engines_do_not_mix() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let ids = kernel(&desk, "ids")?;
    let (grid, block) = ([64, 1, 1], [64, 1, 1]);
    let want = identities(grid, block, 0);
    let mut at_work = Vec::new();
    for instance in [0, 1] {
        let queue = Queue::with(&desk.vm, DRM_OCHRE_ENGINE_COMPUTE, instance, &[])?;
        let out = desk
            .vm
            .buffer(VRAM, size_of_val(&want[..]) as u64, READ_WRITE)?;
        let dispatch = Dispatch {
            kernel: ids.addr,
            args: out.addr,
            grid,
            block,
            ..Default::default()
        };
        let job = desk.start(&queue, Stream::new().dispatch(&dispatch))?;
        at_work.push((job, out, queue));
    }
    for (job, out, _) in &at_work {
        job.ends_well()?;
        assert!(out.cpu.read::<Identity>(0, want.len()) == want);
    }
    Ok(())
}

fn dispatch_on_a_copy_engine_is_a_fault() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let ids = kernel(&desk, "ids")?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let dispatch = Dispatch {
        kernel: ids.addr,
        args: desk.word_addr(0),
        grid: [1, 1, 1],
        block: [1, 1, 1],
        ..Default::default()
    };
    desk.start(&queue, Stream::new().dispatch(&dispatch))?
        .ends_with(Errno::EFAULT)?;
    let query = queue.reset_query()?;
    assert_eq!(query.state, DRM_OCHRE_QUEUE_FAULTED);
    // FAULT_ENGINE.
    assert_eq!(query.fault_code, 18);
    assert_eq!(
        errno(queue.submit(&[Default::default()])),
        Some(Errno::ECANCELED)
    );
    Ok(())
}
