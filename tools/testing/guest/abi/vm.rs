// SPDX-License-Identifier: GPL-2.0
//! VM_CREATE, VM_DESTROY and VM_BIND.

use anyhow::Context;
use guest::errno;
use guest::ochre::abi::*;
use guest::ochre::access::READ;
use guest::ochre::access::READ_WRITE;
use guest::ochre::region::SYSTEM;
use guest::ochre::region::VRAM;
use guest::ochre::Bo;
use guest::ochre::Gpu;
use guest::ochre::Stream;
use guest::ochre::SyncOp;
use guest::ochre::Syncobj;
use guest::ochre::Vm;
use guest::raw;
use guest::refuses;
use guest::refuses_arrays;
use guest::refuses_by;
use guest::refuses_syncs;
use guest::until_enospc;
use guest::Desk;
use guest::Errno;
use guest::Foreign;
use guest::Ledger;
use guest::Outcome;

guest::tests! {
    wrong_vm_create_is_refused,
    wrong_vm_destroy_is_refused,
    vms_are_enospc_at_some_number_and_all_can_be_had_again,
    wrong_vm_bind_is_refused,
    wrong_map_is_refused,
    unmap_and_sparse_take_no_field_that_they_do_not_use,
    wrong_arrays_of_binds_are_refused,
    wrong_syncs_of_a_vm_bind_are_refused,
    vm_bind_waits_for_and_signals_its_syncs,
    failed_vm_bind_leaves_every_mapping_as_it_was,
    operations_are_carried_out_in_their_order,
    map_replaces_what_the_range_held_and_unmap_splits_it,
    sparse_range_reads_zeros_and_drops_writes,
    pages_of_each_size_lead_to_the_right_bytes,
    addresses_at_both_ends_of_the_space_work,
    vm_whose_handle_is_gone_serves_its_queues,
}

const MIB: u64 = 1 << 20;
const ADDR: u64 = 0x40_0000_0000;

fn wrong_vm_create_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let vm = refuses(
        &gpu,
        drm_ochre_vm_create::default(),
        &[
            ("first flag", &|v| v.flags = 1, Errno::EINVAL),
            ("last flag", &|v| v.flags = 1 << 31, Errno::EINVAL),
            ("extensions", &|v| v.extensions = 8, Errno::EINVAL),
        ],
    )?;
    assert_ne!(vm.vm, 0);
    Ok(())
}

fn wrong_vm_destroy_is_refused() -> Outcome {
    let (gpu, other) = (Gpu::open()?, Gpu::open()?);
    let vm = Vm::new(&gpu)?;
    let others = Foreign::new(|| Vm::new(&other), Vm::handle)?;
    let good = drm_ochre_vm_destroy {
        vm: vm.handle(),
        pad: 0,
    };
    refuses(
        &gpu,
        good,
        &[
            ("handle 0", &|v| v.vm = 0, Errno::ENOENT),
            ("last handle", &|v| v.vm = u32::MAX, Errno::ENOENT),
            (
                "another file's handle",
                &|v| v.vm = others.handle,
                Errno::ENOENT,
            ),
            ("pad", &|v| v.pad = 1, Errno::EINVAL),
        ],
    )?;
    let mut again = good;
    assert_eq!(
        raw::call(&gpu, &mut again),
        Err(Errno::ENOENT),
        "destroyed twice"
    );
    Ok(())
}

fn vms_are_enospc_at_some_number_and_all_can_be_had_again() -> Outcome {
    let gpu = Gpu::open()?;
    let before = Ledger::read(&gpu)?;
    let mut counts = Vec::new();
    for _ in 0..2 {
        let vms = until_enospc(5000, || Vm::new(&gpu))?;
        assert!(vms.len() >= 16, "only {} VMs", vms.len());
        counts.push(vms.len());
    }
    assert_eq!(counts[0], counts[1]);
    before.check(&gpu, "making all VMs that there are")
}

/// What a VM_BIND of these tests consists of.
fn vm_bind(vm: &Vm<'_>, binds: &[drm_ochre_bind]) -> drm_ochre_vm_bind {
    drm_ochre_vm_bind {
        vm: vm.handle(),
        binds: pointer(binds),
        bind_count: count(binds),
        bind_stride: stride::<drm_ochre_bind>(),
        ..Default::default()
    }
}

fn map(bo: &Bo<'_>, addr: u64) -> drm_ochre_bind {
    drm_ochre_bind {
        op: DRM_OCHRE_BIND_MAP,
        flags: READ_WRITE,
        handle: bo.handle(),
        addr,
        range: bo.size(),
        ..Default::default()
    }
}

fn wrong_vm_bind_is_refused() -> Outcome {
    let (gpu, other) = (Gpu::open()?, Gpu::open()?);
    let vm = Vm::new(&gpu)?;
    let others = Foreign::new(|| Vm::new(&other), Vm::handle)?;
    let bo = Bo::new(&gpu, SYSTEM, 4096)?;
    let binds = [map(&bo, ADDR)];
    refuses(
        &gpu,
        vm_bind(&vm, &binds),
        &[
            ("VM 0", &|b| b.vm = 0, Errno::ENOENT),
            ("last VM", &|b| b.vm = u32::MAX, Errno::ENOENT),
            (
                "another file's VM",
                &|b| b.vm = others.handle,
                Errno::ENOENT,
            ),
            ("first flag", &|b| b.flags = 1, Errno::EINVAL),
            ("last flag", &|b| b.flags = 1 << 31, Errno::EINVAL),
            ("no operation", &|b| b.bind_count = 0, Errno::EINVAL),
            ("extensions", &|b| b.extensions = 8, Errno::EINVAL),
        ],
    )?;
    Ok(())
}

fn wrong_map_is_refused() -> Outcome {
    let (gpu, other) = (Gpu::open()?, Gpu::open()?);
    let va_end = gpu.query::<drm_ochre_query_hardware>()?[0].va_end;
    let vm = Vm::new(&gpu)?;
    let bo = Bo::new(&gpu, VRAM, 16 * 4096)?;
    let others = Foreign::new(|| Bo::new(&other, SYSTEM, 4096), Bo::handle)?;
    let top = DRM_OCHRE_BIND_ATOMIC;
    let good = map(&bo, ADDR);
    let page = 4096;
    let call =
        |bind: &mut drm_ochre_bind| raw::call(&gpu, &mut vm_bind(&vm, std::slice::from_ref(bind)));
    refuses_by(
        &gpu,
        good,
        &call,
        &[
            ("first unknown operation", &|b| b.op = 3, Errno::EINVAL),
            ("last operation", &|b| b.op = u32::MAX, Errno::EINVAL),
            ("no access", &|b| b.flags = 0, Errno::EINVAL),
            (
                "first unknown access",
                &|b| b.flags |= top << 1,
                Errno::EINVAL,
            ),
            ("last access", &|b| b.flags |= 1 << 31, Errno::EINVAL),
            ("atomic alone", &|b| b.flags = top, Errno::EINVAL),
            (
                "atomic without write",
                &|b| b.flags = top | READ,
                Errno::EINVAL,
            ),
            (
                "atomic without read",
                &|b| b.flags = top | DRM_OCHRE_BIND_WRITE,
                Errno::EINVAL,
            ),
            ("BO 0", &|b| b.handle = 0, Errno::ENOENT),
            ("last BO", &|b| b.handle = u32::MAX, Errno::ENOENT),
            (
                "another file's BO",
                &|b| b.handle = others.handle,
                Errno::ENOENT,
            ),
            (
                "first unknown memory type",
                &|b| b.memory_type = 4,
                Errno::EINVAL,
            ),
            (
                "last memory type",
                &|b| b.memory_type = u32::MAX,
                Errno::EINVAL,
            ),
            (
                "offset 1",
                &|b| (b.offset, b.range) = (1, page),
                Errno::EINVAL,
            ),
            (
                "offset of less than a page",
                &|b| (b.offset, b.range) = (2048, page),
                Errno::EINVAL,
            ),
            (
                "offset at the end",
                &|b| (b.offset, b.range) = (16 * page, page),
                Errno::EINVAL,
            ),
            (
                "over the end of the BO",
                &|b| b.offset = page,
                Errno::EINVAL,
            ),
            ("last offset", &|b| b.offset = !4095, Errno::EINVAL),
            ("more than the BO", &|b| b.range += page, Errno::EINVAL),
            ("address 1", &|b| b.addr = 1, Errno::EINVAL),
            ("address not aligned", &|b| b.addr += 2048, Errno::EINVAL),
            ("address 0", &|b| b.addr = 0, Errno::EINVAL),
            ("address at the end", &|b| b.addr = va_end, Errno::EINVAL),
            (
                "over the end of addresses",
                &|b| b.addr = va_end - page,
                Errno::EINVAL,
            ),
            (
                "an address of 49 bits",
                &|b| b.addr = 1 << 48,
                Errno::EINVAL,
            ),
            ("last address", &|b| b.addr = !4095, Errno::EINVAL),
            ("range 0", &|b| b.range = 0, Errno::EINVAL),
            ("range 1", &|b| b.range = 1, Errno::EINVAL),
            ("range not aligned", &|b| b.range -= 1, Errno::EINVAL),
            ("last range", &|b| b.range = !4095, Errno::EINVAL),
            (
                "range that wraps",
                &|b| b.range = 0u64.wrapping_sub(b.addr),
                Errno::EINVAL,
            ),
            ("reserved[0]", &|b| b.reserved[0] = 1, Errno::EINVAL),
            ("reserved[1]", &|b| b.reserved[1] = 1 << 32, Errno::EINVAL),
            ("reserved[2]", &|b| b.reserved[2] = u64::MAX, Errno::EINVAL),
        ],
    )?;
    Ok(())
}

fn unmap_and_sparse_take_no_field_that_they_do_not_use() -> Outcome {
    let gpu = Gpu::open()?;
    let vm = Vm::new(&gpu)?;
    let bo = Bo::new(&gpu, SYSTEM, 4096)?;
    let call =
        |bind: &mut drm_ochre_bind| raw::call(&gpu, &mut vm_bind(&vm, std::slice::from_ref(bind)));
    for op in [DRM_OCHRE_BIND_UNMAP, DRM_OCHRE_BIND_SPARSE] {
        let good = drm_ochre_bind {
            op,
            addr: ADDR,
            range: 2 * MIB,
            ..Default::default()
        };
        refuses_by(
            &gpu,
            good,
            &call,
            &[
                ("access", &|b| b.flags = READ, Errno::EINVAL),
                ("unknown access", &|b| b.flags = 1 << 31, Errno::EINVAL),
                ("a BO", &|b| b.handle = bo.handle(), Errno::EINVAL),
                ("memory type", &|b| b.memory_type = 1, Errno::EINVAL),
                ("offset", &|b| b.offset = 4096, Errno::EINVAL),
                ("address not aligned", &|b| b.addr += 1, Errno::EINVAL),
                ("address 0", &|b| b.addr = 0, Errno::EINVAL),
                ("range 0", &|b| b.range = 0, Errno::EINVAL),
                ("range not aligned", &|b| b.range += 1, Errno::EINVAL),
                (
                    "range that wraps",
                    &|b| b.range = 0u64.wrapping_sub(b.addr),
                    Errno::EINVAL,
                ),
                ("reserved[0]", &|b| b.reserved[0] = 1, Errno::EINVAL),
                ("reserved[2]", &|b| b.reserved[2] = 1, Errno::EINVAL),
            ],
        )?;
    }
    let sparse = drm_ochre_bind {
        op: DRM_OCHRE_BIND_SPARSE,
        addr: ADDR,
        range: (1 << 40) + 4096,
        ..Default::default()
    };
    assert_eq!(
        errno(vm.bind_all(&[sparse])),
        Some(Errno::EINVAL),
        "sparse, over 1 TiB"
    );
    Ok(())
}

fn wrong_arrays_of_binds_are_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let max = gpu.query::<drm_ochre_query_hardware>()?[0].binds_max;
    let vm = Vm::new(&gpu)?;
    let unmap = drm_ochre_bind {
        op: DRM_OCHRE_BIND_UNMAP,
        addr: ADDR,
        range: 4096,
        ..Default::default()
    };
    refuses_arrays(&gpu, unmap, max, &|(binds, bind_count, bind_stride)| {
        let mut argument = drm_ochre_vm_bind {
            vm: vm.handle(),
            binds,
            bind_count,
            bind_stride,
            ..Default::default()
        };
        raw::call(&gpu, &mut argument)
    })
}

fn wrong_syncs_of_a_vm_bind_are_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let max = gpu.query::<drm_ochre_query_hardware>()?[0].syncs_max;
    let vm = Vm::new(&gpu)?;
    let syncobj = Syncobj::new(&gpu)?;
    let unmap = [drm_ochre_bind {
        op: DRM_OCHRE_BIND_UNMAP,
        addr: ADDR,
        range: 4096,
        ..Default::default()
    }];
    let with_syncs = |(syncs, sync_count, sync_stride)| drm_ochre_vm_bind {
        syncs,
        sync_count,
        sync_stride,
        ..vm_bind(&vm, &unmap)
    };
    let call = |sync: &mut SyncOp| {
        let array = (std::ptr::from_ref(sync) as u64, 1, stride::<SyncOp>());
        raw::call(&gpu, &mut with_syncs(array))
    };
    refuses_syncs(
        &gpu,
        syncobj.signal(),
        ADDR,
        &call,
        &[
            (
                "a user fence",
                &|s| *s = SyncOp::user_fence(ADDR, 1),
                Errno::EINVAL,
            ),
            (
                "a user fence signalled",
                &|s| *s = SyncOp::user_fence(ADDR, 1).signal(),
                Errno::EINVAL,
            ),
        ],
    )?;
    refuses_arrays(&gpu, syncobj.signal(), max, &|array| {
        raw::call(&gpu, &mut with_syncs(array))
    })
}

fn vm_bind_waits_for_and_signals_its_syncs() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let bo = Bo::new(&gpu, SYSTEM, 4096)?;
    let binds = [map(&bo, ADDR)];
    let bound = Syncobj::new(&gpu)?;

    let job = desk.start(&queue, desk.wait_for_word(0))?;
    let syncs = [job.done.wait(), bound.point(7).signal()];
    let mut bind = drm_ochre_vm_bind {
        syncs: pointer(&syncs),
        sync_count: count(&syncs),
        sync_stride: stride::<SyncOp>(),
        ..vm_bind(&desk.vm, &binds)
    };
    std::thread::scope(|scope| {
        let binder = scope.spawn(|| raw::call(&gpu, &mut bind));
        // It may not have begun yet, but it must not be done.
        assert_eq!(errno(gpu.wait(&[bound.point(7)], 0)), Some(Errno::EINVAL));
        assert!(job.is_at_work()?);
        desk.set_word(0, 1);
        let bound = binder.join();
        assert_eq!(bound.ok(), Some(Ok(())));
        anyhow::Ok(())
    })?;
    assert_eq!(gpu.wait(&[bound.point(7)], 0)?.error, 0);
    desk.run(&queue, Stream::new().write(ADDR, 5))?;
    assert_eq!(bo.map()?.read::<u64>(0, 1), [5]);
    Ok(())
}

fn failed_vm_bind_leaves_every_mapping_as_it_was() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let first = Bo::new(&gpu, VRAM, 4096)?;
    let second = Bo::new(&gpu, VRAM, 4096)?;
    first.map()?.write(0, &[1u64]);
    second.map()?.write(0, &[2u64]);
    desk.vm.bind_at(ADDR, &first, READ_WRITE)?;

    let unmap = drm_ochre_bind {
        op: DRM_OCHRE_BIND_UNMAP,
        addr: ADDR,
        range: 1 << 30,
        ..Default::default()
    };
    let mut wrong = map(&second, ADDR + 8192);
    wrong.range += 4096;
    for binds in [vec![map(&second, ADDR), wrong], vec![unmap, wrong]] {
        assert_eq!(errno(desk.vm.bind_all(&binds)), Some(Errno::EINVAL));
        desk.run(&queue, Stream::new().copy(ADDR, desk.word_addr(0), 8))?;
        assert_eq!(desk.word(0), 1);
    }
    desk.vm.bind_all(&[unmap, map(&second, ADDR)])?;
    desk.run(&queue, Stream::new().copy(ADDR, desk.word_addr(0), 8))?;
    assert_eq!(desk.word(0), 2);
    Ok(())
}

fn operations_are_carried_out_in_their_order() -> Outcome {
    let gpu = Gpu::open()?;
    let max = gpu.query::<drm_ochre_query_hardware>()?[0].binds_max;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let bos: Vec<_> = (0..4)
        .map(|_| Bo::new(&gpu, SYSTEM, 4096))
        .collect::<Result<_, _>>()?;
    for (i, bo) in (0u64..).zip(&bos) {
        bo.map()?.write(0, &[i]);
    }
    // Each place is mapped again and again; the last wins.
    let binds: Vec<_> = (0..max as usize)
        .map(|i| map(&bos[i % 4], ADDR + 4096 * (i % 3) as u64))
        .collect();
    desk.vm.bind_all(&binds)?;
    for place in 0..3 {
        let last = (0..max as usize)
            .rev()
            .find(|i| i % 3 == place)
            .context("a bind")?;
        let from = ADDR + 4096 * place as u64;
        desk.run(&queue, Stream::new().copy(from, desk.word_addr(place), 8))?;
        assert_eq!(desk.word(place), last as u64 % 4, "place {place}");
    }
    Ok(())
}

fn map_replaces_what_the_range_held_and_unmap_splits_it() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let large = Bo::new(&gpu, VRAM, 4 * MIB)?;
    let page = Bo::new(&gpu, SYSTEM, 4096)?;
    desk.run(&queue, {
        desk.vm.bind_at(ADDR, &large, READ_WRITE)?;
        Stream::new().fill(ADDR, 4 * MIB, 0x1111_1111)
    })?;
    page.map()?.write(0, &[0x2222_2222u32; 1024]);

    // A page in the middle of a large one, and a hole beside it.
    let hole = ADDR + MIB;
    desk.vm.bind_all(&[
        map(&page, hole - 4096),
        drm_ochre_bind {
            op: DRM_OCHRE_BIND_UNMAP,
            addr: hole,
            range: 4096,
            ..Default::default()
        },
    ])?;
    let look = |addr| -> anyhow::Result<u64> {
        desk.run(&queue, Stream::new().copy(addr, desk.word_addr(0), 8))?;
        Ok(desk.word(0))
    };
    assert_eq!(look(ADDR)?, 0x1111_1111_1111_1111);
    assert_eq!(look(hole - 4096 - 8)?, 0x1111_1111_1111_1111);
    assert_eq!(look(hole - 4096)?, 0x2222_2222_2222_2222);
    assert_eq!(look(hole - 8)?, 0x2222_2222_2222_2222);
    assert_eq!(look(hole + 4096)?, 0x1111_1111_1111_1111);
    assert_eq!(look(ADDR + 4 * MIB - 8)?, 0x1111_1111_1111_1111);
    let job = desk.start(&queue, Stream::new().copy(hole, desk.word_addr(0), 8))?;
    job.ends_with(Errno::EFAULT)?;
    assert_eq!(queue.reset_query()?.fault_addr, hole);
    Ok(())
}

fn sparse_range_reads_zeros_and_drops_writes() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let sparse = |addr, range| drm_ochre_bind {
        op: DRM_OCHRE_BIND_SPARSE,
        addr,
        range,
        ..Default::default()
    };
    // Small pages, large pages, and both.
    desk.vm.bind_all(&[
        sparse(ADDR, 8192),
        sparse(ADDR + (1 << 30), (1 << 30) + 4096),
    ])?;
    for addr in [ADDR, ADDR + (1 << 30), ADDR + (2 << 30)] {
        desk.set_word(0, u64::MAX);
        desk.run(
            &queue,
            Stream::new()
                .write(addr, 0x5555)
                .fill(addr + 8, 64, 0x5555)
                .copy(addr, desk.word_addr(0), 8),
        )?;
        assert_eq!(desk.word(0), 0, "at {addr:#x}");
    }
    Ok(())
}

fn pages_of_each_size_lead_to_the_right_bytes() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let size = 4 * MIB;
    let words = size as usize / 8;
    let data: Vec<u64> = (0..words as u64).map(|i| i << 32 | (i * 7 + 1)).collect();
    let result = desk.vm.buffer(SYSTEM, size, READ_WRITE)?;
    for region in [VRAM, SYSTEM] {
        let flags = if region == VRAM {
            DRM_OCHRE_GEM_CPU_VISIBLE | DRM_OCHRE_GEM_CONTIGUOUS
        } else {
            0
        };
        let bo = Bo::with_flags(&gpu, region, size, flags)?;
        bo.map()?.write(0, &data);
        // Where large, middle and only small pages fit.
        for shift in [0, 65536, 4096] {
            desk.vm.bind_at(ADDR + shift, &bo, READ)?;
            desk.run(&queue, Stream::new().copy(ADDR + shift, result.addr, size))?;
            let got = result.cpu.read::<u64>(0, words);
            let wrong = got.iter().zip(&data).position(|(got, want)| got != want);
            assert_eq!(wrong, None, "region mask {region}, shifted by {shift}");
            result.cpu.write(0, &vec![0u64; words]);
            desk.vm.unbind(ADDR + shift, size)?;
        }
    }
    Ok(())
}

fn addresses_at_both_ends_of_the_space_work() -> Outcome {
    let gpu = Gpu::open()?;
    let hardware = &gpu.query::<drm_ochre_query_hardware>()?[0];
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let bo = Bo::new(&gpu, SYSTEM, 4096)?;
    let cpu = bo.map()?;
    for addr in [hardware.va_start, hardware.va_end - 4096] {
        desk.vm.bind_at(addr, &bo, READ_WRITE)?;
        desk.run(&queue, Stream::new().write(addr + 4088, addr))?;
        assert_eq!(cpu.read::<u64>(4088, 1), [addr]);
    }
    Ok(())
}

fn vm_whose_handle_is_gone_serves_its_queues() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let job = desk.start(&queue, desk.wait_for_word(0).write(desk.word_addr(1), 9))?;
    let mut destroy = drm_ochre_vm_destroy {
        vm: desk.vm.handle(),
        pad: 0,
    };
    raw::call(&gpu, &mut destroy)?;
    desk.set_word(0, 1);
    job.ends_well()?;
    assert_eq!(desk.word(1), 9);
    Ok(())
}
