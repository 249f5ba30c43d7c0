// SPDX-License-Identifier: GPL-2.0
//! SUBMIT: what it refuses, and that it refuses all or nothing.

use guest::errno;
use guest::ochre::abi::*;
use guest::ochre::hw::CMP_EQ;
use guest::ochre::hw::PKT_NOP;
use guest::ochre::in_seconds;
use guest::ochre::Gpu;
use guest::ochre::Job;
use guest::ochre::Packets;
use guest::ochre::Queue;
use guest::ochre::Stream;
use guest::ochre::SyncOp;
use guest::ochre::Syncobj;
use guest::ochre::Vm;
use guest::raw;
use guest::refuses;
use guest::refuses_arrays;
use guest::refuses_by;
use guest::refuses_syncs;
use guest::Desk;
use guest::Errno;
use guest::Foreign;
use guest::Outcome;

guest::tests! {
    wrong_submit_is_refused,
    wrong_job_is_refused,
    wrong_array_of_jobs_is_refused,
    wrong_sync_of_a_job_is_refused,
    wrong_array_of_syncs_is_refused,
    one_bad_job_keeps_all_from_running,
    as_many_jobs_as_may_be_run_in_their_order,
    job_as_long_as_may_be_runs,
    job_without_packets_only_synchronises,
    job_may_wait_for_what_an_earlier_one_of_the_array_signals,
    submit_waits_for_room_and_a_signal_ends_that_wait,
}

/// A queue, and a job that does nothing.
struct Fixture<'g> {
    desk: Desk<'g>,
    queue: Queue<'g>,
    nop: Packets<'g>,
}

impl<'g> Fixture<'g> {
    fn new(gpu: &'g Gpu) -> anyhow::Result<Self> {
        let desk = Desk::new(gpu)?;
        let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
        let nop = Packets::new(&desk.vm, &Stream::new().nop())?;
        Ok(Self { desk, queue, nop })
    }

    fn job(&self) -> drm_ochre_job {
        drm_ochre_job {
            addr: self.nop.addr(),
            words: self.nop.words(),
            ..Default::default()
        }
    }

    fn submit(&self, jobs: &[drm_ochre_job]) -> drm_ochre_submit {
        drm_ochre_submit {
            queue: self.queue.handle(),
            jobs: pointer(jobs),
            job_count: count(jobs),
            job_stride: stride::<drm_ochre_job>(),
            ..Default::default()
        }
    }

    fn job_with_syncs(&self, (syncs, sync_count, sync_stride): guest::Array) -> drm_ochre_job {
        drm_ochre_job {
            syncs,
            sync_count,
            sync_stride,
            ..self.job()
        }
    }
}

fn wrong_submit_is_refused() -> Outcome {
    let (gpu, other) = (Gpu::open()?, Gpu::open()?);
    let it = Fixture::new(&gpu)?;
    let other_vm = Vm::new(&other)?;
    let new = || Queue::new(&other_vm, DRM_OCHRE_ENGINE_COPY);
    let others = Foreign::new(new, Queue::handle)?;
    let jobs = [it.job()];
    refuses(
        &gpu,
        it.submit(&jobs),
        &[
            ("queue 0", &|s| s.queue = 0, Errno::ENOENT),
            ("last queue", &|s| s.queue = u32::MAX, Errno::ENOENT),
            (
                "another file's queue",
                &|s| s.queue = others.handle,
                Errno::ENOENT,
            ),
            ("first flag", &|s| s.flags = 1, Errno::EINVAL),
            ("last flag", &|s| s.flags = 1 << 31, Errno::EINVAL),
            ("no job", &|s| s.job_count = 0, Errno::EINVAL),
            ("extensions", &|s| s.extensions = 8, Errno::EINVAL),
        ],
    )?;
    Ok(())
}

fn wrong_job_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let it = Fixture::new(&gpu)?;
    let hardware = gpu.query::<drm_ochre_query_hardware>()?[0];
    let call = |job: &mut drm_ochre_job| raw::call(&gpu, &mut it.submit(std::slice::from_ref(job)));
    refuses_by(
        &gpu,
        it.job(),
        &call,
        &[
            ("address 1", &|j| j.addr = 1, Errno::EINVAL),
            ("aligned to 4", &|j| j.addr += 4, Errno::EINVAL),
            ("address 0", &|j| j.addr = 0, Errno::EINVAL),
            (
                "before all addresses",
                &|j| j.addr = hardware.va_start - 8,
                Errno::EINVAL,
            ),
            (
                "at the end of addresses",
                &|j| j.addr = hardware.va_end,
                Errno::EINVAL,
            ),
            (
                "over the end",
                &|j| (j.addr, j.words) = (hardware.va_end - 8, 2),
                Errno::EINVAL,
            ),
            (
                "an address of 49 bits",
                &|j| j.addr = 1 << 48,
                Errno::EINVAL,
            ),
            ("last address", &|j| j.addr = !7, Errno::EINVAL),
            (
                "an end that wraps",
                &|j| (j.addr, j.words) = (!7, 2),
                Errno::EINVAL,
            ),
            (
                "a word too long",
                &|j| j.words = hardware.job_words_max + 1,
                Errno::EINVAL,
            ),
            ("2^32 - 1 words", &|j| j.words = u32::MAX, Errno::EINVAL),
            ("no words, but an address", &|j| j.words = 0, Errno::EINVAL),
            ("first flag", &|j| j.flags = 1, Errno::EINVAL),
            ("last flag", &|j| j.flags = 1 << 31, Errno::EINVAL),
            ("reserved[0]", &|j| j.reserved[0] = 1, Errno::EINVAL),
            ("reserved[1]", &|j| j.reserved[1] = 1 << 63, Errno::EINVAL),
        ],
    )?;
    Ok(())
}

fn wrong_array_of_jobs_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let it = Fixture::new(&gpu)?;
    let max = gpu.query::<drm_ochre_query_hardware>()?[0].jobs_max;
    refuses_arrays(&gpu, it.job(), max, &|(jobs, job_count, job_stride)| {
        let mut argument = drm_ochre_submit {
            jobs,
            job_count,
            job_stride,
            ..it.submit(&[])
        };
        raw::call(&gpu, &mut argument)
    })
}

fn wrong_sync_of_a_job_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let it = Fixture::new(&gpu)?;
    let syncobj = Syncobj::new(&gpu)?;
    let va_end = gpu.query::<drm_ochre_query_hardware>()?[0].va_end;
    let fence = it.desk.word_addr(0);
    let call = |sync: &mut SyncOp| {
        let array = (std::ptr::from_ref(sync) as u64, 1, stride::<SyncOp>());
        raw::call(&gpu, &mut it.submit(&[it.job_with_syncs(array)]))
    };
    refuses_syncs(&gpu, syncobj.signal(), fence, &call, &[])?;
    refuses_by(
        &gpu,
        SyncOp::user_fence(fence, 5).signal(),
        &call,
        &[
            (
                "user fence with a handle",
                &|s| s.handle = syncobj.handle(),
                Errno::EINVAL,
            ),
            ("user fence at 0", &|s| s.addr = 0, Errno::EINVAL),
            ("user fence aligned to 4", &|s| s.addr += 4, Errno::EINVAL),
            ("user fence at the end", &|s| s.addr = va_end, Errno::EINVAL),
            (
                "user fence at the last address",
                &|s| s.addr = !7,
                Errno::EINVAL,
            ),
            ("user fence with a pad", &|s| s.pad = 1, Errno::EINVAL),
        ],
    )?;
    Ok(())
}

fn wrong_array_of_syncs_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let it = Fixture::new(&gpu)?;
    let syncobj = Syncobj::new(&gpu)?;
    let max = gpu.query::<drm_ochre_query_hardware>()?[0].syncs_max;
    refuses_arrays(&gpu, syncobj.signal(), max, &|array| {
        raw::call(&gpu, &mut it.submit(&[it.job_with_syncs(array)]))
    })
}

fn one_bad_job_keeps_all_from_running() -> Outcome {
    let gpu = Gpu::open()?;
    let it = Fixture::new(&gpu)?;
    let mark = Stream::new().write(it.desk.word_addr(0), 1);
    let mark = Packets::new(&it.desk.vm, &mark)?;
    let done = Syncobj::new(&gpu)?;
    let syncs = [done.signal()];
    let good = drm_ochre_job {
        addr: mark.addr(),
        words: mark.words(),
        syncs: pointer(&syncs),
        sync_count: 1,
        sync_stride: stride::<SyncOp>(),
        ..Default::default()
    };
    let bad = drm_ochre_job {
        flags: 1,
        ..it.job()
    };
    assert_eq!(
        raw::call(&gpu, &mut it.submit(&[good, bad])),
        Err(Errno::EINVAL)
    );
    // The queue works in order: when this has run, the other would have.
    it.desk.run(&it.queue, Stream::new().nop())?;
    assert_eq!(it.desk.word(0), 0);
    assert_eq!(
        errno(gpu.wait(&[done.wait()], 0)),
        Some(Errno::EINVAL),
        "it has a fence"
    );
    Ok(())
}

fn as_many_jobs_as_may_be_run_in_their_order() -> Outcome {
    let gpu = Gpu::open()?;
    let it = Fixture::new(&gpu)?;
    let max = gpu.query::<drm_ochre_query_hardware>()?[0].jobs_max as usize;
    let counter = it.desk.word_addr(0);
    let done = Syncobj::new(&gpu)?;
    // Each counts on only if it finds what the one before it left.
    let streams: Vec<_> = (0..max)
        .map(|i| {
            let step = Stream::new()
                .predicate(counter, i as u64, CMP_EQ, 3)
                .atomic_add(counter, 1);
            Packets::new(&it.desk.vm, &step)
        })
        .collect::<Result<_, _>>()?;
    let last = [done.signal()];
    let job = |(i, packets): (usize, &Packets<'_>)| Job {
        addr: packets.addr(),
        words: packets.words(),
        syncs: if i + 1 == max { &last } else { &[] },
    };
    let jobs: Vec<_> = streams.iter().enumerate().map(job).collect();
    it.queue.submit(&jobs)?;
    assert_eq!(gpu.wait(&[done.wait()], in_seconds(60))?.error, 0);
    assert_eq!(it.desk.word(0), max as u64);
    Ok(())
}

fn job_as_long_as_may_be_runs() -> Outcome {
    let gpu = Gpu::open()?;
    let it = Fixture::new(&gpu)?;
    let max = gpu.query::<drm_ochre_query_hardware>()?[0].job_words_max;
    // Long packets of nothing, and a store at the very end.
    const LONG: u32 = 255;
    let mut stream = Stream::new();
    let mut left = max - 3;
    while left > 0 {
        let words = left.min(LONG);
        stream = stream.packet(PKT_NOP, 0, 0, &vec![0; words as usize - 1]);
        left -= words;
    }
    stream = stream.write(it.desk.word_addr(0), 3);
    assert_eq!(count(stream.words()), max);
    it.desk.run(&it.queue, stream)?;
    assert_eq!(it.desk.word(0), 3);
    Ok(())
}

fn job_without_packets_only_synchronises() -> Outcome {
    let gpu = Gpu::open()?;
    let it = Fixture::new(&gpu)?;
    let other = it.desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?;
    let job = it.desk.start(&other, it.desk.wait_for_word(0))?;
    let done = Syncobj::new(&gpu)?;
    let syncs = [
        job.done.wait(),
        done.point(3).signal(),
        SyncOp::user_fence(it.desk.word_addr(1), 11).signal(),
    ];
    it.queue.submit(&[Job {
        syncs: &syncs,
        ..Default::default()
    }])?;
    assert_eq!(errno(gpu.wait(&[done.point(3)], 0)), Some(Errno::ETIME));
    it.desk.set_word(0, 1);
    let waited = gpu.wait(&[done.point(3)], in_seconds(60))?;
    assert_eq!(waited.error, 0);
    assert_eq!(it.desk.word(1), 11);
    Ok(())
}

fn job_may_wait_for_what_an_earlier_one_of_the_array_signals() -> Outcome {
    let gpu = Gpu::open()?;
    let it = Fixture::new(&gpu)?;
    let between = Syncobj::new(&gpu)?;
    let done = Syncobj::new(&gpu)?;
    let first = [between.signal()];
    let second = [between.wait(), done.signal()];
    let (addr, words) = (it.nop.addr(), it.nop.words());
    let jobs = [
        Job {
            addr,
            words,
            syncs: &first,
        },
        Job {
            addr,
            words,
            syncs: &second,
        },
    ];
    let backwards = [jobs[1], jobs[0]];
    assert_eq!(errno(it.queue.submit(&backwards)), Some(Errno::EINVAL));
    it.queue.submit(&jobs)?;
    assert_eq!(gpu.wait(&[done.wait()], in_seconds(60))?.error, 0);
    Ok(())
}

fn submit_waits_for_room_and_a_signal_ends_that_wait() -> Outcome {
    use nix::sys::signal;
    extern "C" fn nothing(_: libc::c_int) {}
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let nop = Packets::new(&desk.vm, &Stream::new().nop())?;
    let blocked = desk.start(&queue, desk.wait_for_word(0))?;

    let action = signal::SigAction::new(
        signal::SigHandler::Handler(nothing),
        signal::SaFlags::empty(),
        signal::SigSet::empty(),
    );
    // SAFETY: The handler does nothing.
    unsafe { signal::sigaction(signal::Signal::SIGALRM, &action)? };
    let jobs: Vec<_> = (0..64)
        .map(|_| drm_ochre_job {
            addr: nop.addr(),
            words: nop.words(),
            ..Default::default()
        })
        .collect();
    let submit = || drm_ochre_submit {
        queue: queue.handle(),
        jobs: pointer(&jobs),
        job_count: count(&jobs),
        job_stride: stride::<drm_ochre_job>(),
        ..Default::default()
    };
    // The alarm comes again and again, since the first may come when nothing waits yet.
    let mut again = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 1,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: 3,
            tv_usec: 0,
        },
    };
    // SAFETY: Sets a timer of this process.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &again, std::ptr::null_mut()) };
    let mut taken = 0;
    let refused = loop {
        match raw::call(&gpu, &mut submit()) {
            Ok(()) => taken += 1,
            Err(errno) => break errno,
        }
        assert!(taken < 10_000, "the queue takes jobs without end");
    };
    again.it_value = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    // SAFETY: As above.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &again, std::ptr::null_mut()) };
    assert_eq!(refused, Errno::EINTR);
    assert!(taken > 0);
    desk.set_word(0, 1);
    blocked.ends_well()?;
    desk.run(&queue, Stream::new().nop())
}
