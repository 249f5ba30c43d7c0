// SPDX-License-Identifier: GPL-2.0
//! WAIT.

use anyhow::Context;
use guest::child;
use guest::errno;
use guest::ochre::abi::*;
use guest::ochre::in_seconds;
use guest::ochre::Gpu;
use guest::ochre::Stream;
use guest::ochre::SyncOp;
use guest::ochre::Syncobj;
use guest::raw;
use guest::refuses;
use guest::refuses_arrays;
use guest::refuses_syncs;
use guest::Board;
use guest::Desk;
use guest::Errno;
use guest::Outcome;
use nix::sys::signal::Signal;

guest::tests! {
    wrong_wait_is_refused,
    wrong_sync_of_a_wait_is_refused,
    wrong_array_of_syncs_is_refused,
    wait_for_all_needs_all_and_wait_for_any_one,
    wait_without_time_and_wait_in_the_past_only_look,
    wait_ends_at_its_time,
    wait_with_the_longest_time_ends_with_the_job,
    wait_tells_the_first_error,
    waiting_process_can_be_killed,
}

/// A syncobj with a fence that is signalled.
fn signalled<'g>(desk: &Desk<'g>) -> anyhow::Result<Syncobj<'g>> {
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let job = desk.start(&queue, Stream::new().nop())?;
    job.ends_well()?;
    Ok(job.done)
}

fn wait_on(syncs: &[SyncOp]) -> drm_ochre_wait {
    drm_ochre_wait {
        syncs: pointer(syncs),
        sync_count: count(syncs),
        sync_stride: stride::<SyncOp>(),
        ..Default::default()
    }
}

fn wrong_wait_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let syncobj = signalled(&desk)?;
    let syncs = [syncobj.wait()];
    refuses(
        &gpu,
        wait_on(&syncs),
        &[
            ("no sync", &|w| w.sync_count = 0, Errno::EINVAL),
            ("first unknown flag", &|w| w.flags = 2, Errno::EINVAL),
            ("last flag", &|w| w.flags = 1 << 31, Errno::EINVAL),
            ("pad", &|w| w.pad = 1, Errno::EINVAL),
            ("extensions", &|w| w.extensions = 8, Errno::EINVAL),
        ],
    )?;
    Ok(())
}

fn wrong_sync_of_a_wait_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let syncobj = signalled(&desk)?;
    let fence = desk.word_addr(0);
    let call = |sync: &mut SyncOp| raw::call(&gpu, &mut wait_on(std::slice::from_ref(sync)));
    refuses_syncs(
        &gpu,
        syncobj.wait(),
        fence,
        &call,
        &[
            (
                "signal",
                &|s| s.flags = DRM_OCHRE_SYNC_SIGNAL,
                Errno::EINVAL,
            ),
            (
                "a user fence",
                &|s| *s = SyncOp::user_fence(fence, 1),
                Errno::EINVAL,
            ),
        ],
    )?;
    Ok(())
}

fn wrong_array_of_syncs_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let max = gpu.query::<drm_ochre_query_hardware>()?[0].syncs_max;
    let syncobj = signalled(&desk)?;
    refuses_arrays(&gpu, syncobj.wait(), max, &|(
        syncs,
        sync_count,
        sync_stride,
    )| {
        let mut wait = drm_ochre_wait {
            syncs,
            sync_count,
            sync_stride,
            ..Default::default()
        };
        raw::call(&gpu, &mut wait)
    })
}

fn wait_for_all_needs_all_and_wait_for_any_one() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?;
    let other = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let slow = desk.start(&queue, desk.wait_for_word(0))?;
    let fast = desk.start(&other, Stream::new().nop())?;
    let both = [slow.done.wait(), fast.done.wait()];
    let any = gpu.wait_any(&both, in_seconds(60))?;
    assert_eq!((any.first, any.error), (1, 0));
    assert_eq!(errno(gpu.wait(&both, 0)), Some(Errno::ETIME));
    desk.set_word(0, 1);
    let all = gpu.wait(&both, in_seconds(60))?;
    assert_eq!((all.first, all.error), (0, 0));
    Ok(())
}

fn wait_without_time_and_wait_in_the_past_only_look() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let job = desk.start(&queue, desk.wait_for_word(0))?;
    for time in [0, 1, -1, i64::MIN] {
        assert_eq!(
            errno(gpu.wait(&[job.done.wait()], time)),
            Some(Errno::ETIME),
            "{time}"
        );
    }
    desk.set_word(0, 1);
    job.ends_well()?;
    for time in [0, 1, -1, i64::MIN] {
        assert_eq!(errno(gpu.wait(&[job.done.wait()], time)), None, "{time}");
    }
    Ok(())
}

fn wait_ends_at_its_time() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let job = desk.start(&queue, desk.wait_for_word(0))?;
    let end = in_seconds(0) + 300_000_000;
    assert_eq!(errno(gpu.wait(&[job.done.wait()], end)), Some(Errno::ETIME));
    assert!(in_seconds(0) >= end, "too early");
    desk.set_word(0, 1);
    job.ends_well()
}

fn wait_with_the_longest_time_ends_with_the_job() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let job = desk.start(&queue, desk.wait_for_word(0))?;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| gpu.wait(&[job.done.wait()], i64::MAX));
        assert!(job.is_at_work()?);
        desk.set_word(0, 1);
        let waited = waiter.join().ok().context("the waiter panicked")??;
        assert_eq!(waited.error, 0);
        Ok(())
    })
}

fn wait_tells_the_first_error() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let good = signalled(&desk)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    // An address at which nothing is; what is behind it is submitted before it begins.
    let gate = Board.close_gate()?;
    let bad = desk.start(&queue, Stream::new().write(0x10_0000, 1))?;
    let behind = desk.start(&queue, Stream::new().nop())?;
    drop(gate);
    let waited = gpu.wait(
        &[good.wait(), bad.done.wait(), behind.done.wait()],
        in_seconds(60),
    )?;
    assert_eq!(waited.first, 0);
    assert_eq!(Errno::from_raw(waited.error), Errno::EFAULT);
    behind.ends_with(Errno::ECANCELED)
}

fn waiting_process_can_be_killed() -> Outcome {
    use std::io::Read;
    use std::io::Write;
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let job = desk.start(&queue, desk.wait_for_word(0))?;
    let (mut ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
    let waiter = child::spawn(|| {
        theirs.write_all(b"!")?;
        gpu.wait(&[job.done.wait()], i64::MAX)?;
        Ok(())
    })?;
    ours.read_exact(&mut [0])?;
    guest::eventually("the process sleeps in WAIT", 20, || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", waiter.pid()))?;
        let state = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.chars().next());
        Ok((state == Some('S')).then_some(()))
    })?;
    nix::sys::signal::kill(waiter.pid(), Signal::SIGTERM)?;
    waiter.wait_for_signal(Signal::SIGTERM)?;
    desk.set_word(0, 1);
    job.ends_well()
}
