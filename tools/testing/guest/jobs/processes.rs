// SPDX-License-Identifier: GPL-2.0
//! Several processes, and what keeps them apart.

use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixStream;

use guest::child;
use guest::ochre::abi::*;
use guest::ochre::access::READ_WRITE;
use guest::ochre::region::VRAM;
use guest::ochre::Bo;
use guest::ochre::Gpu;
use guest::ochre::Stream;
use guest::Desk;
use guest::Errno;
use guest::Ledger;
use guest::Outcome;

guest::tests! {
    processes_at_work_at_once_do_not_disturb_each_other,
    same_address_is_other_memory_in_each_vm,
    fault_of_one_process_leaves_the_other_alone,
    killed_process_gives_everything_back,
}

/// Bytes that each process moves around.
const BYTES: usize = 1 << 20;

/// Copies own data around on an engine for `rounds`, and checks it each time.
fn work(class: u32, seed: u8, rounds: u8) -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(class)?;
    let from = desk.vm.buffer(VRAM, BYTES as u64, READ_WRITE)?;
    let to = desk.vm.buffer(VRAM, BYTES as u64, READ_WRITE)?;
    for round in 0..rounds {
        let data = vec![seed.wrapping_add(round); BYTES];
        from.cpu.write(0, &data);
        desk.run(&queue, Stream::new().copy(from.addr, to.addr, BYTES as u64))?;
        assert!(
            to.cpu.read::<u8>(0, BYTES) == data,
            "round {round} of process {seed}"
        );
    }
    Ok(())
}

fn processes_at_work_at_once_do_not_disturb_each_other() -> Outcome {
    let mut children = Vec::new();
    for process in 0..4 {
        let class = if process % 2 == 0 {
            DRM_OCHRE_ENGINE_COPY
        } else {
            DRM_OCHRE_ENGINE_COMPUTE
        };
        children.push(child::spawn(move || work(class, process * 60, 20))?);
    }
    children.into_iter().try_for_each(child::Child::wait)
}

fn same_address_is_other_memory_in_each_vm() -> Outcome {
    const ADDR: u64 = 0x12_3450_0000;
    let gpu = Gpu::open()?;
    let desks = [Desk::new(&gpu)?, Desk::new(&gpu)?, Desk::new(&gpu)?];
    let mut held = Vec::new();
    for (mark, desk) in (1u64..).zip(&desks) {
        let bo = Bo::new(&gpu, VRAM, 4096)?;
        desk.vm.bind_at(ADDR, &bo, READ_WRITE)?;
        let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
        desk.run(&queue, Stream::new().write(ADDR, mark))?;
        held.push((bo, queue));
    }
    for (mark, (desk, (bo, queue))) in (1u64..).zip(desks.iter().zip(&held)) {
        desk.run(queue, Stream::new().copy(ADDR, desk.word_addr(0), 8))?;
        assert_eq!(desk.word(0), mark);
        assert_eq!(bo.map()?.read::<u64>(0, 1), [mark]);
    }
    // What only another VM maps is not there.
    desks[2].vm.unbind(ADDR, 4096)?;
    desks[2]
        .start(&held[2].1, Stream::new().write(ADDR, 9))?
        .ends_with(Errno::EFAULT)?;
    assert_eq!(held[0].0.map()?.read::<u64>(0, 1), [1]);
    Ok(())
}

fn fault_of_one_process_leaves_the_other_alone() -> Outcome {
    let worker = child::spawn(|| work(DRM_OCHRE_ENGINE_COPY, 1, 30))?;
    for _ in 0..10 {
        let gpu = Gpu::open()?;
        let desk = Desk::new(&gpu)?;
        let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
        let fault = Stream::new().copy(0x7_0000_0000, desk.word_addr(0), 8);
        desk.start(&queue, fault)?.ends_with(Errno::EFAULT)?;
    }
    worker.wait()
}

fn killed_process_gives_everything_back() -> Outcome {
    let gpu = Gpu::open()?;
    let before = Ledger::read(&gpu)?;
    for class in [DRM_OCHRE_ENGINE_COMPUTE, DRM_OCHRE_ENGINE_COPY] {
        let (mut ours, mut theirs) = UnixStream::pair()?;
        let process = child::spawn(|| {
            let gpu = Gpu::open()?;
            let desk = Desk::new(&gpu)?;
            let queue = desk.queue(class)?;
            let _memory = desk.vm.buffer(VRAM, 16 << 20, READ_WRITE)?;
            // One at work, some behind it.
            let jobs: Vec<_> = (0..5)
                .map(|_| desk.start(&queue, desk.wait_for_word(0)))
                .collect::<Result<_, _>>()?;
            theirs.write_all(b"!")?;
            jobs[0].ends_well()
        })?;
        ours.read_exact(&mut [0])?;
        process.kill()?;
        before.check(&gpu, "a process that was killed")?;
    }
    work(DRM_OCHRE_ENGINE_COPY, 7, 1)
}
