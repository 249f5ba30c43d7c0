// SPDX-License-Identifier: GPL-2.0
//! Order and dependencies: syncobjs, timelines, user fences; more queues than there are slots.

use std::os::fd::AsFd;

use anyhow::Context;
use drm::control::Device as _;
use guest::errno;
use guest::ochre::abi::*;
use guest::ochre::in_seconds;
use guest::ochre::Gpu;
use guest::ochre::Job;
use guest::ochre::Queue;
use guest::ochre::Stream;
use guest::ochre::SyncOp;
use guest::ochre::Syncobj;
use guest::Board;
use guest::Desk;
use guest::Errno;
use guest::Outcome;

guest::tests! {
    jobs_of_a_queue_run_in_their_order,
    job_waits_for_another_queues_binary_syncobj,
    points_of_a_timeline_order_jobs_of_two_queues,
    point_between_others_is_reached_with_the_next,
    point_signalled_in_the_same_submit_waits_for_other_queues_points,
    job_waits_for_a_user_fence_that_the_cpu_signals,
    user_fences_link_jobs_of_two_queues,
    user_fence_is_signalled_only_after_its_job,
    syncobj_signalled_by_the_cpu_starts_a_job,
    job_waits_for_all_of_many_syncs,
    core_ioctls_see_the_same_fences,
    fence_goes_to_another_file_as_a_syncobj_and_as_a_sync_file,
    many_queues_share_an_engines_slots,
    hundreds_of_jobs_on_every_engine_all_end_well,
}

const SECONDS: u64 = 60;

#[track_caller]
fn wait_for(gpu: &Gpu, sync: SyncOp) {
    let waited = gpu.wait(&[sync], in_seconds(SECONDS)).expect("WAIT");
    assert_eq!(waited.error, 0);
}

fn jobs_of_a_queue_run_in_their_order() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let blocked = desk.start(&queue, desk.wait_for_word(0))?;
    // Doubling and adding do not commute.
    let mut jobs = Vec::new();
    for i in 0..20 {
        let stream = Stream::new()
            .copy(desk.word_addr(1), desk.word_addr(2), 8)
            .write(desk.word_addr(3), i)
            .copy(desk.word_addr(3), desk.word_addr(8 + i as usize), 8);
        jobs.push(desk.start(&queue, stream)?);
    }
    for job in &jobs {
        assert!(job.is_at_work()?);
    }
    desk.set_word(0, 1);
    blocked.ends_well()?;
    jobs.last().context("a job")?.ends_well()?;
    // All are done when the last is, and each saw its own number.
    for (i, job) in jobs.iter().enumerate() {
        assert!(!job.is_at_work()?);
        assert_eq!(desk.word(8 + i), i as u64);
    }
    assert_eq!(desk.word(3), 19);
    Ok(())
}

fn job_waits_for_another_queues_binary_syncobj() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let first = desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?;
    let second = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let producer = desk.start(&first, desk.wait_for_word(0).write(desk.word_addr(1), 7))?;
    let consumer = Stream::new().copy(desk.word_addr(1), desk.word_addr(2), 8);
    let consumer = desk.start_with(&second, consumer, &[producer.done.wait()])?;
    // Another job of the same engine is not held up.
    let other = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    desk.run(&other, Stream::new().nop())?;
    assert!(consumer.is_at_work()?);
    desk.set_word(0, 1);
    consumer.ends_well()?;
    assert_eq!(desk.word(2), 7);
    Ok(())
}

fn points_of_a_timeline_order_jobs_of_two_queues() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queues = [
        desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?,
        desk.queue(DRM_OCHRE_ENGINE_COPY)?,
    ];
    let timeline = Syncobj::new(&gpu)?;
    let mut jobs = Vec::new();
    for turn in 0..20usize {
        // Word turn + 1 becomes word turn + 1.
        let stream = Stream::new()
            .copy(desk.word_addr(turn), desk.word_addr(turn + 1), 8)
            .atomic_add(desk.word_addr(turn + 1), 1);
        let point = turn as u64 * 10 + 5;
        let mut syncs = vec![timeline.point(point).signal()];
        if turn > 0 {
            syncs.push(timeline.point(point - 10));
        }
        jobs.push(desk.start_with(&queues[turn % 2], stream, &syncs)?);
    }
    wait_for(&gpu, timeline.point(195));
    assert_eq!(desk.word(20), 20);
    Ok(())
}

fn point_between_others_is_reached_with_the_next() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let timeline = Syncobj::new(&gpu)?;
    let job = desk.start_with(
        &queue,
        desk.wait_for_word(0),
        &[timeline.point(10).signal()],
    )?;
    assert_eq!(errno(gpu.wait(&[timeline.point(3)], 0)), Some(Errno::ETIME));
    assert_eq!(
        errno(gpu.wait(&[timeline.point(10)], 0)),
        Some(Errno::ETIME)
    );
    assert_eq!(
        errno(gpu.wait(&[timeline.point(11)], 0)),
        Some(Errno::EINVAL)
    );
    desk.set_word(0, 1);
    wait_for(&gpu, timeline.point(3));
    wait_for(&gpu, timeline.point(10));
    job.ends_well()
}

fn point_signalled_in_the_same_submit_waits_for_other_queues_points() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let first = desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?;
    let second = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let timeline = Syncobj::new(&gpu)?;
    let point = timeline.point(3).signal();
    let blocked = desk.start_with(&first, desk.wait_for_word(0), &[point])?;
    let (before, after) = (Syncobj::new(&gpu)?, Syncobj::new(&gpu)?);
    // Neither runs anything; the second waits for the first, and so for point 3 of the other queue.
    second.submit(&[
        Job {
            addr: 0,
            words: 0,
            syncs: &[timeline.point(5).signal(), before.signal()],
        },
        Job {
            addr: 0,
            words: 0,
            syncs: &[timeline.point(5), after.signal()],
        },
    ])?;
    wait_for(&gpu, before.wait());
    let other = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    desk.run(&other, Stream::new().nop())?;
    assert_eq!(errno(gpu.wait(&[after.wait()], 0)), Some(Errno::ETIME));
    desk.set_word(0, 1);
    wait_for(&gpu, after.wait());
    blocked.ends_well()
}

fn job_waits_for_a_user_fence_that_the_cpu_signals() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    // At least: more will do as well, and the comparison has no sign.
    for (wanted, before, then) in [(5, 4, 5), (5, 0, u64::MAX), (1 << 63, 1, 1 << 63)] {
        desk.set_word(0, before);
        let fence = SyncOp::user_fence(desk.word_addr(0), wanted);
        let mark = Stream::new().write(desk.word_addr(1), wanted);
        let job = desk.start_with(&queue, mark, &[fence])?;
        Board.queue_in_state(2, "waiting")?;
        assert!(job.is_at_work()?);
        desk.set_word(0, then);
        job.ends_well()?;
        assert_eq!(desk.word(1), wanted);
    }
    Ok(())
}

fn user_fences_link_jobs_of_two_queues() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let first = desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?;
    let second = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let fence = SyncOp::user_fence(desk.word_addr(0), 3);
    let consumer = Stream::new().copy(desk.word_addr(1), desk.word_addr(2), 8);
    let consumer = desk.start_with(&second, consumer, &[fence])?;
    let producer = Stream::new().write(desk.word_addr(1), 99);
    desk.start_with(&first, producer, &[fence.signal()])?
        .ends_well()?;
    consumer.ends_well()?;
    assert_eq!((desk.word(0), desk.word(2)), (3, 99));
    Ok(())
}

fn user_fence_is_signalled_only_after_its_job() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let fence = SyncOp::user_fence(desk.word_addr(1), 8).signal();
    let job = desk.start_with(&queue, desk.wait_for_word(0), &[fence])?;
    Board.queue_in_state(2, "waiting")?;
    assert_eq!(desk.word(1), 0);
    desk.set_word(0, 1);
    job.ends_well()?;
    assert_eq!(desk.word(1), 8);
    // A job that faults does not signal it.
    let fence = SyncOp::user_fence(desk.word_addr(2), 8).signal();
    let job = desk.start_with(&queue, Stream::new().write(0x10_0000, 1), &[fence])?;
    job.ends_with(Errno::EFAULT)?;
    assert_eq!(desk.word(2), 0);
    Ok(())
}

fn syncobj_signalled_by_the_cpu_starts_a_job() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let syncobj = Syncobj::new(&gpu)?;
    gpu.syncobj_signal(&[syncobj.raw()])?;
    desk.start_with(
        &queue,
        Stream::new().write(desk.word_addr(0), 1),
        &[syncobj.wait()],
    )?
    .ends_well()?;
    gpu.syncobj_timeline_signal(&[syncobj.raw()], &[4])?;
    desk.start_with(
        &queue,
        Stream::new().write(desk.word_addr(0), 2),
        &[syncobj.point(4)],
    )?
    .ends_well()?;
    assert_eq!(desk.word(0), 2);
    Ok(())
}

fn job_waits_for_all_of_many_syncs() -> Outcome {
    let gpu = Gpu::open()?;
    let max = gpu.query::<drm_ochre_query_hardware>()?[0].syncs_max as usize;
    let desk = Desk::new(&gpu)?;
    // Each of these queues lets one go, in an order that is not that of the array.
    let many = 12;
    let queues: Vec<_> = (0..many)
        .map(|_| desk.queue(DRM_OCHRE_ENGINE_COMPUTE))
        .collect::<Result<_, _>>()?;
    let mut waits = Vec::new();
    let mut blocked = Vec::new();
    for (i, queue) in queues.iter().enumerate() {
        let job = desk.start(queue, desk.wait_for_word(i))?;
        waits.push(job.done.wait());
        blocked.push(job);
    }
    let signalled = Syncobj::new(&gpu)?;
    gpu.syncobj_signal(&[signalled.raw()])?;
    waits.resize(max - 1, signalled.wait());
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let last = Stream::new().write(desk.word_addr(100), 1);
    let last = desk.start_with(&queue, last, &waits)?;
    for i in (0..many).rev() {
        assert!(last.is_at_work()?, "{i} are still blocked");
        desk.set_word(i, 1);
        blocked[i].ends_well()?;
    }
    last.ends_well()?;
    assert_eq!(desk.word(100), 1);
    Ok(())
}

fn core_ioctls_see_the_same_fences() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let timeline = Syncobj::new(&gpu)?;
    let job = desk.start_with(&queue, desk.wait_for_word(0), &[timeline.point(6).signal()])?;
    let binary = [job.done.raw()];
    assert_eq!(
        errno(gpu.syncobj_wait(&binary, 0, true, false)),
        Some(Errno::ETIME)
    );
    let mut point = [99];
    gpu.syncobj_timeline_query(&[timeline.raw()], &mut point, false)?;
    assert_eq!(point, [0]);
    gpu.syncobj_timeline_query(&[timeline.raw()], &mut point, true)?;
    assert_eq!(point, [6]);
    desk.set_word(0, 1);
    let end = in_seconds(SECONDS);
    gpu.syncobj_wait(&binary, end, true, false)?;
    gpu.syncobj_timeline_wait(&[timeline.raw()], &[6], end, true, false, false)?;
    gpu.syncobj_timeline_query(&[timeline.raw()], &mut point, false)?;
    assert_eq!(point, [6]);
    Ok(())
}

fn fence_goes_to_another_file_as_a_syncobj_and_as_a_sync_file() -> Outcome {
    let (gpu, other) = (Gpu::open()?, Gpu::open()?);
    let (desk, other_desk) = (Desk::new(&gpu)?, Desk::new(&other)?);
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let other_queue = other_desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let job = desk.start(&queue, desk.wait_for_word(0))?;

    let shared = gpu.syncobj_to_fd(job.done.raw(), false)?;
    let shared = other.fd_to_syncobj(shared.as_fd(), false)?;
    let sync_file = gpu.syncobj_to_fd(job.done.raw(), true)?;
    let waits = SyncOp {
        type_: DRM_OCHRE_SYNC_SYNCOBJ,
        handle: shared.into(),
        ..Default::default()
    };
    let behind = Stream::new().write(other_desk.word_addr(0), 1);
    let behind = other_desk.start_with(&other_queue, behind, &[waits])?;
    let is_ready = |timeout: u16| {
        let mut ready = [nix::poll::PollFd::new(
            sync_file.as_fd(),
            nix::poll::PollFlags::POLLIN,
        )];
        nix::poll::poll(&mut ready, timeout)
    };
    assert_eq!(is_ready(0)?, 0);
    assert!(behind.is_at_work()?);
    desk.set_word(0, 1);
    assert_eq!(is_ready(60_000)?, 1);
    behind.ends_well()?;
    other.destroy_syncobj(shared)?;
    Ok(())
}

fn many_queues_share_an_engines_slots() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    // Two slots; while these wait for the CPU, nobody else may starve.
    let many = 9;
    let queues: Vec<_> = (0..many)
        .map(|_| desk.queue(DRM_OCHRE_ENGINE_COPY))
        .collect::<Result<_, _>>()?;
    let (last, waiting) = queues.split_last().context("queues")?;
    let mut blocked = Vec::new();
    for (i, queue) in waiting.iter().enumerate() {
        blocked.push(desk.start(
            queue,
            desk.wait_for_word(i).write(desk.word_addr(64 + i), 5),
        )?);
    }
    for round in 0..3 {
        desk.run(last, Stream::new().write(desk.word_addr(99), round))?;
        assert_eq!(desk.word(99), round);
    }
    for i in [7, 0, 3, 1, 6, 2, 5, 4] {
        desk.set_word(i, 1);
        blocked[i].ends_well()?;
        assert_eq!(desk.word(64 + i), 5);
    }
    Ok(())
}

fn hundreds_of_jobs_on_every_engine_all_end_well() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let engines = gpu.query::<drm_ochre_query_engine>()?;
    let mut queues = Vec::new();
    for engine in &engines {
        for _ in 0..3 {
            let (class, instance) = (engine.klass.into(), engine.instance.into());
            queues.push(Queue::with(&desk.vm, class, instance, &[])?);
        }
    }
    let add =
        guest::ochre::Packets::new(&desk.vm, &Stream::new().atomic_add(desk.word_addr(0), 1))?;
    let (rounds, batch) = (4, 16);
    let done = Syncobj::new(&gpu)?;
    let mut point = 0;
    for _ in 0..rounds {
        for queue in &queues {
            point += 1;
            // Each batch waits for the batch of the queue before it, across all engines.
            let first = [done.point(point - 1)];
            let last = [done.point(point).signal()];
            let job = Job {
                addr: add.addr(),
                words: add.words(),
                syncs: &[],
            };
            let mut jobs = vec![job; batch];
            if point > 1 {
                jobs[0].syncs = &first;
            }
            jobs[batch - 1].syncs = &last;
            queue.submit(&jobs)?;
        }
    }
    wait_for(&gpu, done.point(point));
    assert_eq!(desk.word(0), point * batch as u64);
    Ok(())
}
