// SPDX-License-Identifier: GPL-2.0
//! Queues, engines and the device hang, and are reset: as little as helps.

use guest::errno;
use guest::ochre::abi::*;
use guest::ochre::access::READ_WRITE;
use guest::ochre::region::VRAM;
use guest::ochre::Gpu;
use guest::ochre::Queue;
use guest::ochre::Stream;
use guest::ochre::SyncOp;
use guest::Board;
use guest::Desk;
use guest::Errno;
use guest::Events;
use guest::Outcome;
use guest::Pending;
use guest::Restore;

guest::tests! {
    hung_queue_is_reset_and_its_neighbour_finishes,
    endless_kernel_is_reset_and_its_neighbours_finish,
    semaphore_that_nobody_signals_is_a_hang,
    jobs_that_depend_on_a_hung_one_fail_without_running,
    lost_queue_takes_no_jobs_and_a_new_one_does,
    each_queue_has_its_own_timeout,
    queue_without_a_timeout_of_its_own_has_the_drivers,
    slow_job_that_gets_on_is_not_reset,
    queue_that_others_keep_from_its_engine_is_not_reset,
    hung_engine_is_reset_and_the_other_engines_go_on,
    hung_device_is_reset_and_works_again,
    data_in_vram_outlives_a_reset_of_the_device,
}

/// Long enough that the test can do something meanwhile, in ms.
const TIMEOUT: u64 = 400;
const COPY: u32 = DRM_OCHRE_ENGINE_COPY;
const COMPUTE: u32 = DRM_OCHRE_ENGINE_COMPUTE;
/// Index of the first copy engine on the board.
const COPY_ENGINE: u32 = 2;

/// A job in `queue`, on the first copy engine, that hangs as soon as it begins; and one behind it.
fn hang<'g>(desk: &Desk<'g>, queue: &Queue<'g>) -> anyhow::Result<([Pending<'g>; 2], Restore)> {
    let gate = Board.close_gate()?;
    let job = desk.start(queue, Stream::new().write(desk.word_addr(500), 1))?;
    let behind = desk.start(queue, Stream::new().write(desk.word_addr(1), 1))?;
    let id = Board.queue_in_state(COPY_ENGINE, "ready")?;
    let hung = Board.hang(&format!("queue {id}"))?;
    drop(gate);
    Ok(([job, behind], hung))
}

fn device_resets(gpu: &Gpu) -> anyhow::Result<u64> {
    Ok(gpu.query::<drm_ochre_query_hardware>()?[0].resets)
}

#[track_caller]
fn assert_state(queue: &Queue<'_>, state: u32) {
    let query = queue.reset_query().expect("RESET_QUERY");
    assert_eq!(query.state, state, "{query:?}");
}

fn hung_queue_is_reset_and_its_neighbour_finishes() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let resets = device_resets(&gpu)?;
    let victim = desk.queue_with_timeout(COPY, TIMEOUT)?;
    let ([job, behind], _hung) = hang(&desk, &victim)?;
    // On the same engine, while the other hangs there.
    let neighbour = desk.queue(COPY)?;
    let before = Board.time()?;
    let waiting = desk.start(
        &neighbour,
        desk.wait_for_word(0).write(desk.word_addr(2), 2),
    )?;
    desk.set_word(0, 1);
    waiting.ends_well()?;

    job.ends_with(Errno::ETIME)?;
    behind.ends_with(Errno::ECANCELED)?;
    let took = Board.time()? - before;
    assert!(took < 10_000_000_000, "{took} ns of board time");
    assert_eq!((desk.word(1), desk.word(2)), (0, 2));
    desk.run(&neighbour, Stream::new().write(desk.word_addr(2), 3))?;
    assert_eq!(desk.word(2), 3);

    let query = victim.reset_query()?;
    assert_eq!(query.state, DRM_OCHRE_QUEUE_HUNG);
    assert_eq!((query.queue_resets, query.device_resets), (1, resets));
    assert_eq!((query.fault_code, query.fault_addr), (0, 0));
    let query = neighbour.reset_query()?;
    assert_eq!((query.state, query.queue_resets), (DRM_OCHRE_QUEUE_OK, 0));
    assert_eq!(device_resets(&gpu)?, resets);
    Ok(())
}

fn endless_kernel_is_reset_and_its_neighbours_finish() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    // Board time goes on as fast as the instructions are executed, so this is a second or so.
    let victim = desk.queue_with_timeout(COMPUTE, 30)?;
    let neighbour = desk.queue(COMPUTE)?;
    let (_kernel, endless) = desk.endless()?;
    let job = desk.start(&victim, endless)?;
    for round in 0..10 {
        desk.run(&neighbour, Stream::new().write(desk.word_addr(0), round))?;
        assert_eq!(desk.word(0), round);
    }
    job.ends_with(Errno::ETIME)?;
    assert_state(&victim, DRM_OCHRE_QUEUE_HUNG);
    desk.run(&neighbour, Stream::new().write(desk.word_addr(0), 99))?;
    assert_state(&neighbour, DRM_OCHRE_QUEUE_OK);
    Ok(())
}

fn semaphore_that_nobody_signals_is_a_hang() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let victim = desk.queue_with_timeout(COPY, TIMEOUT)?;
    let job = desk.start(&victim, desk.wait_for_word(0))?;
    job.ends_with(Errno::ETIME)?;
    assert_state(&victim, DRM_OCHRE_QUEUE_HUNG);
    // A user fence is a semaphore too.
    let victim = desk.queue_with_timeout(COPY, TIMEOUT)?;
    let fence = SyncOp::user_fence(desk.word_addr(0), 1);
    desk.start_with(&victim, Stream::new().nop(), &[fence])?
        .ends_with(Errno::ETIME)?;
    Ok(())
}

fn jobs_that_depend_on_a_hung_one_fail_without_running() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let victim = desk.queue_with_timeout(COPY, TIMEOUT)?;
    let second = desk.queue(COMPUTE)?;
    let third = desk.queue(COPY)?;
    let job = desk.start(&victim, desk.wait_for_word(0))?;
    let mark = |word| Stream::new().write(desk.word_addr(word), 1);
    let depends = desk.start_with(&second, mark(1), &[job.done.wait()])?;
    let indirectly = desk.start_with(&third, mark(2), &[depends.done.wait()])?;
    let innocent = desk.start(&second, mark(3))?;
    job.ends_with(Errno::ETIME)?;
    depends.ends_with(Errno::ETIME)?;
    indirectly.ends_with(Errno::ETIME)?;
    innocent.ends_well()?;
    assert_eq!((desk.word(1), desk.word(2), desk.word(3)), (0, 0, 1));
    assert_state(&second, DRM_OCHRE_QUEUE_OK);
    assert_state(&third, DRM_OCHRE_QUEUE_OK);
    Ok(())
}

fn lost_queue_takes_no_jobs_and_a_new_one_does() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let victim = desk.queue_with_timeout(COPY, TIMEOUT)?;
    desk.start(&victim, desk.wait_for_word(0))?
        .ends_with(Errno::ETIME)?;
    assert_eq!(
        errno(victim.submit(&[Default::default()])),
        Some(Errno::ECANCELED)
    );
    assert_state(&victim, DRM_OCHRE_QUEUE_HUNG);
    drop(victim);
    let queue = desk.queue(COPY)?;
    desk.run(&queue, Stream::new().write(desk.word_addr(1), 4))?;
    assert_eq!(desk.word(1), 4);
    Ok(())
}

fn each_queue_has_its_own_timeout() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queues = [
        desk.queue(COPY)?,
        desk.queue_with_timeout(COMPUTE, 2500)?,
        desk.queue_with_timeout(COMPUTE, 100)?,
    ];
    let began = Board.time()?;
    let jobs: Vec<_> = queues
        .iter()
        .map(|queue| desk.start(queue, desk.wait_for_word(0)))
        .collect::<Result<_, _>>()?;
    jobs[2].ends_with(Errno::ETIME)?;
    let first = Board.time()? - began;
    assert!(first >= 100_000_000, "after {first} ns");
    assert!(jobs[1].is_at_work()?, "after {first} ns");
    jobs[1].ends_with(Errno::ETIME)?;
    let second = Board.time()? - began;
    assert!(second >= 2_500_000_000, "after {second} ns");
    assert!(jobs[0].is_at_work()?);
    desk.set_word(0, 1);
    jobs[0].ends_well()
}

fn queue_without_a_timeout_of_its_own_has_the_drivers() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let timeout_ms = gpu.query::<drm_ochre_query_hardware>()?[0].timeout_ms;
    let queue = Queue::with(&desk.vm, COPY, 0, &[])?;
    let began = Board.time()?;
    desk.start(&queue, desk.wait_for_word(0))?
        .ends_with(Errno::ETIME)?;
    let took = Board.time()? - began;
    assert!(took >= u64::from(timeout_ms) * 1_000_000, "after {took} ns");
    Ok(())
}

fn slow_job_that_gets_on_is_not_reset() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let len = 4 << 20;
    let memory = desk.vm.buffer(VRAM, 2 * len, READ_WRITE)?;
    let queue = desk.queue_with_timeout(COPY, 1)?;
    let mut stream = Stream::new().timestamp(desk.word_addr(0));
    for _ in 0..100 {
        stream = stream.copy(memory.addr, memory.addr + len, len);
    }
    desk.run(&queue, stream.timestamp(desk.word_addr(1)))?;
    let took = desk.word(1) - desk.word(0);
    assert!(
        took > 3_000_000,
        "only {took} ns, no longer than the timeout"
    );
    assert_state(&queue, DRM_OCHRE_QUEUE_OK);
    Ok(())
}

fn queue_that_others_keep_from_its_engine_is_not_reset() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let len = 4 << 20;
    let memory = desk.vm.buffer(VRAM, 2 * len, READ_WRITE)?;
    let low = [
        (DRM_OCHRE_QUEUE_PRIORITY, DRM_OCHRE_PRIORITY_LOW.into()),
        (DRM_OCHRE_QUEUE_TIMEOUT_MS, 1),
    ];
    let low = Queue::with(&desk.vm, COPY, 0, &low)?;
    let normal = desk.queue(COPY)?;
    let mut busy = Stream::new();
    for _ in 0..100 {
        busy = busy.copy(memory.addr, memory.addr + len, len);
    }
    let gate = Board.close_gate()?;
    let busy = desk.start(&normal, busy.timestamp(desk.word_addr(0)))?;
    let waiting = desk.start(&low, Stream::new().timestamp(desk.word_addr(1)))?;
    guest::eventually("both are ready", 20, || {
        let slots = Board.slots()?;
        let ready = slots
            .iter()
            .filter(|s| s.engine == COPY_ENGINE && s.state == "ready");
        Ok((ready.count() == 2).then_some(()))
    })?;
    drop(gate);
    busy.ends_well()?;
    waiting.ends_well()?;
    assert!(desk.word(1) > desk.word(0), "it was not kept waiting");
    assert_state(&low, DRM_OCHRE_QUEUE_OK);
    Ok(())
}

fn hung_engine_is_reset_and_the_other_engines_go_on() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let resets = device_resets(&gpu)?;
    let victim = desk.queue_with_timeout(COPY, TIMEOUT)?;
    let beside = desk.queue(COPY)?;
    let elsewhere = Queue::with(&desk.vm, COPY, 1, &[(DRM_OCHRE_QUEUE_TIMEOUT_MS, 60_000)])?;
    let begun = desk.start(&beside, desk.wait_for_word(0))?;
    Board.queue_in_state(COPY_ENGINE, "waiting")?;
    let unmoved = desk.start(
        &elsewhere,
        desk.wait_for_word(0).write(desk.word_addr(1), 6),
    )?;

    let _hung = Board.hang(&format!("engine {COPY_ENGINE}"))?;
    let job = desk.start(&victim, Stream::new().nop())?;
    for round in 0..5 {
        // The other engines work meanwhile.
        let queue = desk.queue(COMPUTE)?;
        desk.run(&queue, Stream::new().write(desk.word_addr(2), round))?;
        assert_eq!(desk.word(2), round);
    }
    job.ends_with(Errno::ETIME)?;
    assert_state(&victim, DRM_OCHRE_QUEUE_HUNG);
    // Its job had begun, so it went with the engine.
    begun.ends_with(Errno::EIO)?;
    assert_state(&beside, DRM_OCHRE_QUEUE_INNOCENT);
    assert!(unmoved.is_at_work()?);
    assert_eq!(device_resets(&gpu)?, resets);

    desk.set_word(0, 1);
    unmoved.ends_well()?;
    assert_eq!(desk.word(1), 6);
    assert_state(&elsewhere, DRM_OCHRE_QUEUE_OK);
    let again = desk.queue(COPY)?;
    desk.run(&again, Stream::new().write(desk.word_addr(1), 7))?;
    assert_eq!(desk.word(1), 7);
    Ok(())
}

fn hung_device_is_reset_and_works_again() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let resets = device_resets(&gpu)?;
    let victim = desk.queue_with_timeout(COPY, TIMEOUT)?;
    let other = desk.queue(COMPUTE)?;
    let idle = Queue::with(&desk.vm, COMPUTE, 1, &[])?;
    let begun = desk.start(&other, desk.wait_for_word(0))?;
    Board.queue_in_state(0, "waiting")?;
    let events = Events::from_now()?;
    let _hung = Board.hang("device")?;
    let job = desk.start(&victim, Stream::new().nop())?;
    job.ends_with(Errno::ETIME)?;
    assert_eq!(events.next("WEDGED")?, "none");
    begun.ends_with(Errno::EIO)?;
    assert_state(&victim, DRM_OCHRE_QUEUE_HUNG);
    assert_state(&other, DRM_OCHRE_QUEUE_INNOCENT);
    assert_eq!(device_resets(&gpu)?, resets + 1);
    assert_eq!(victim.reset_query()?.device_resets, resets + 1);

    // One that had nothing under way goes on as if nothing had happened.
    desk.run(&idle, Stream::new().write(desk.word_addr(1), 1))?;
    assert_eq!(desk.word(1), 1);
    for class in [COPY, COMPUTE] {
        for instance in [0, 1] {
            let queue = Queue::with(&desk.vm, class, instance, &[])?;
            desk.run(&queue, Stream::new().write(desk.word_addr(1), 8))?;
            assert_eq!(desk.word(1), 8);
            desk.set_word(1, 0);
        }
    }
    Ok(())
}

fn data_in_vram_outlives_a_reset_of_the_device() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let resets = device_resets(&gpu)?;
    let data: Vec<u32> = (0..1 << 18)
        .map(|i: u32| i.wrapping_mul(0x9e37_79b9))
        .collect();
    let memory = desk.vm.buffer_of(VRAM, &data, READ_WRITE)?;
    {
        let victim = desk.queue_with_timeout(COPY, TIMEOUT)?;
        let _hung = Board.hang("device")?;
        desk.start(&victim, Stream::new().nop())?
            .ends_with(Errno::ETIME)?;
    }
    assert_eq!(device_resets(&gpu)?, resets + 1);
    assert!(memory.cpu.read::<u32>(0, data.len()) == data);
    // The GPU finds it through the same page tables.
    let copy = desk.vm.buffer(VRAM, memory.bo.size(), READ_WRITE)?;
    let queue = desk.queue(COPY)?;
    desk.run(
        &queue,
        Stream::new().copy(memory.addr, copy.addr, memory.bo.size()),
    )?;
    assert!(copy.cpu.read::<u32>(0, data.len()) == data);
    Ok(())
}
