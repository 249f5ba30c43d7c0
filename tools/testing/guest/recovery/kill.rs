// SPDX-License-Identifier: GPL-2.0
//! Processes that die while the GPU works for them.

use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixStream;

use guest::child;
use guest::ochre::abi::*;
use guest::ochre::access::READ_WRITE;
use guest::ochre::in_seconds;
use guest::ochre::region::VRAM;
use guest::ochre::Gpu;
use guest::ochre::Stream;
use guest::Board;
use guest::Desk;
use guest::Errno;
use guest::Ledger;
use guest::Outcome;

guest::tests! {
    killed_process_with_an_endless_kernel_gives_everything_back,
    killed_process_with_a_hung_queue_gives_everything_back,
    process_killed_in_submit_leaves_nothing,
    work_of_others_goes_on_while_a_process_dies,
    fence_of_a_process_that_died_carries_an_error,
}

const COPY: u32 = DRM_OCHRE_ENGINE_COPY;
const COMPUTE: u32 = DRM_OCHRE_ENGINE_COMPUTE;

/// Starts a process that tells when it has come to its last step; waits for that.
fn until_ready(
    part: impl FnOnce(&mut dyn FnMut() -> Outcome) -> Outcome,
) -> anyhow::Result<child::Child> {
    let (mut ours, mut theirs) = UnixStream::pair()?;
    let process = child::spawn(move || {
        part(&mut || {
            theirs.write_all(b"!")?;
            Ok(())
        })
    })?;
    ours.read_exact(&mut [0])?;
    Ok(process)
}

/// What dies: an endless kernel runs, and its process waits for it.
fn endless(ready: &mut dyn FnMut() -> Outcome) -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let _memory = desk.vm.buffer(VRAM, 16 << 20, READ_WRITE)?;
    let queue = desk.queue(COMPUTE)?;
    let (_kernel, stream) = desk.endless()?;
    let job = desk.start(&queue, stream)?;
    Board.queue_in_state(0, "ready")?;
    ready()?;
    job.ends_well()
}

fn killed_process_with_an_endless_kernel_gives_everything_back() -> Outcome {
    let gpu = Gpu::open()?;
    let before = Ledger::read(&gpu)?;
    until_ready(endless)?.kill()?;
    before.check(&gpu, "a process that was killed")?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(COMPUTE)?;
    desk.run(&queue, Stream::new().write(desk.word_addr(0), 1))
}

fn killed_process_with_a_hung_queue_gives_everything_back() -> Outcome {
    let gpu = Gpu::open()?;
    let before = Ledger::read(&gpu)?;
    let process = until_ready(|ready| {
        let gpu = Gpu::open()?;
        let desk = Desk::new(&gpu)?;
        let queue = desk.queue(COPY)?;
        let gate = Board.close_gate()?;
        let job = desk.start(&queue, Stream::new().nop())?;
        let id = Board.queue_in_state(2, "ready")?;
        let _hung = Board.hang(&format!("queue {id}"))?;
        drop(gate);
        ready()?;
        job.ends_well()
    })?;
    process.kill()?;
    before.check(&gpu, "a process that was killed")?;
    Board.ask("unhang")?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(COPY)?;
    desk.run(&queue, Stream::new().write(desk.word_addr(0), 1))
}

fn process_killed_in_submit_leaves_nothing() -> Outcome {
    let gpu = Gpu::open()?;
    let before = Ledger::read(&gpu)?;
    let process = until_ready(|ready| {
        let gpu = Gpu::open()?;
        let desk = Desk::new(&gpu)?;
        let queue = desk.queue(COPY)?;
        let _blocked = desk.start(&queue, desk.wait_for_word(0))?;
        ready()?;
        loop {
            queue.submit(&[Default::default(); 64])?;
        }
    })?;
    // It sleeps when the queue has no more room.
    let stat = format!("/proc/{}/stat", process.pid());
    let mut seen = 0;
    guest::eventually("the process waits for room", 60, || {
        let text = std::fs::read_to_string(&stat)?;
        let sleeps = text
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('S'));
        seen = if sleeps { seen + 1 } else { 0 };
        Ok((seen == 20).then_some(()))
    })?;
    process.kill()?;
    before.check(&gpu, "a process that was killed")
}

fn work_of_others_goes_on_while_a_process_dies() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(COMPUTE)?;
    let waiting = desk.start(&queue, desk.wait_for_word(0).write(desk.word_addr(1), 1))?;
    Board.queue_in_state(0, "waiting")?;
    for _ in 0..3 {
        until_ready(endless)?.kill()?;
    }
    assert!(waiting.is_at_work()?);
    desk.set_word(0, 1);
    waiting.ends_well()?;
    assert_eq!(desk.word(1), 1);
    assert_eq!(queue.reset_query()?.state, DRM_OCHRE_QUEUE_OK);
    Ok(())
}

fn fence_of_a_process_that_died_carries_an_error() -> Outcome {
    use drm::control::Device as _;
    use std::os::fd::AsFd;
    let gpu = Gpu::open()?;
    // A sync object that both have, handed over before the fork.
    let shared = guest::ochre::Syncobj::new(&gpu)?;
    let exported = gpu.syncobj_to_fd(shared.raw(), false)?;
    let process = until_ready(|ready| {
        let gpu = Gpu::open()?;
        let desk = Desk::new(&gpu)?;
        let imported = gpu.fd_to_syncobj(exported.as_fd(), false)?;
        let signal = drm_ochre_sync {
            type_: DRM_OCHRE_SYNC_SYNCOBJ,
            flags: DRM_OCHRE_SYNC_SIGNAL,
            handle: imported.into(),
            ..Default::default()
        };
        let queue = desk.queue(COPY)?;
        let job = desk.start_with(&queue, desk.wait_for_word(0), &[signal])?;
        ready()?;
        job.ends_well()
    })?;
    assert_eq!(
        guest::errno(gpu.wait(&[shared.wait()], 0)),
        Some(Errno::ETIME)
    );
    process.kill()?;
    let waited = gpu.wait(&[shared.wait()], in_seconds(60))?;
    assert_eq!(Errno::from_raw(waited.error), Errno::ECANCELED);
    Ok(())
}
