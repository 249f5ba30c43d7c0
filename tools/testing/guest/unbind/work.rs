// SPDX-License-Identifier: GPL-2.0
//! Work that is under way when the device goes: everybody who waits is told at once.

use std::io::Read;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use drm::control::Device as _;
use guest::child;
use guest::errno;
use guest::ochre::abi::*;
use guest::ochre::access::READ_WRITE;
use guest::ochre::in_seconds;
use guest::ochre::region::VRAM;
use guest::ochre::Gpu;
use guest::ochre::Stream;
use guest::ochre::Syncobj;
use guest::raw;
use guest::Board;
use guest::Desk;
use guest::Errno;
use guest::Outcome;
use guest::PciDevice;
use guest::Pending;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::sys::wait::WaitStatus;

guest::tests! {
    jobs_at_work_behind_and_blocked_end_with_enodev,
    endless_kernel_does_not_hold_up_the_unbind,
    hung_device_does_not_hold_up_the_unbind,
    waiting_ioctls_end_with_enodev,
    fences_that_others_hold_are_signalled,
    device_goes_under_processes_that_keep_it_busy,
}

const COPY: u32 = DRM_OCHRE_ENGINE_COPY;
const COMPUTE: u32 = DRM_OCHRE_ENGINE_COMPUTE;
/// Longest that an unbind may take.
const LONGEST: Duration = Duration::from_secs(20);

/// Takes the driver off, and checks that it did not wait for anything.
fn unbind(pci: &PciDevice) -> Outcome {
    let began = Instant::now();
    pci.unbind()?;
    let took = began.elapsed();
    anyhow::ensure!(took < LONGEST, "it took {took:?}");
    Ok(())
}

/// How a job ended for who looks after the device went: by its fence, or by the wait.
fn end(gpu: &Gpu, job: &Pending<'_>) -> Option<Errno> {
    match gpu.wait(&[job.done.wait()], in_seconds(60)) {
        Ok(waited) => (waited.error != 0).then(|| Errno::from_raw(waited.error)),
        error => errno(error),
    }
}

fn jobs_at_work_behind_and_blocked_end_with_enodev() -> Outcome {
    let pci = PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queues = [
        desk.queue(COPY)?,
        desk.queue(COPY)?,
        desk.queue(COPY)?,
        desk.queue(COMPUTE)?,
    ];
    let mut jobs = Vec::new();
    for queue in &queues {
        for _ in 0..3 {
            jobs.push(desk.start(queue, desk.wait_for_word(0))?);
        }
    }
    Board.queue_in_state(2, "waiting")?;
    let depends = desk.start_with(&queues[3], Stream::new().nop(), &[jobs[0].done.wait()])?;
    let last = depends.done.wait();
    thread::scope(|scope| {
        // One that waits when it happens, and those that look later.
        let waiter = scope.spawn(|| gpu.wait(&[last], i64::MAX));
        unbind(&pci)?;
        let told = match waiter.join() {
            Ok(Ok(waited)) => Some(Errno::from_raw(waited.error)),
            Ok(error) => errno(error),
            Err(_) => None,
        };
        assert_eq!(told, Some(Errno::ENODEV));
        anyhow::Ok(())
    })?;
    for job in jobs.iter().chain([&depends]) {
        assert_eq!(end(&gpu, job), Some(Errno::ENODEV));
    }
    Ok(pci.bind()?)
}

fn endless_kernel_does_not_hold_up_the_unbind() -> Outcome {
    let pci = PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(COMPUTE)?;
    let (_kernel, endless) = desk.endless()?;
    let job = desk.start(&queue, endless)?;
    Board.queue_in_state(0, "ready")?;
    unbind(&pci)?;
    assert_eq!(end(&gpu, &job), Some(Errno::ENODEV));
    let slots = Board.slots()?;
    assert!(slots.iter().all(|slot| slot.state == "empty"), "{slots:?}");
    Ok(pci.bind()?)
}

fn hung_device_does_not_hold_up_the_unbind() -> Outcome {
    let pci = PciDevice::bound()?;
    for hang in ["engine 2", "device"] {
        let gpu = Gpu::open()?;
        let desk = Desk::new(&gpu)?;
        let queue = desk.queue(COPY)?;
        let _hung = Board.hang(hang)?;
        let job = desk.start(&queue, Stream::new().nop())?;
        unbind(&pci)?;
        assert_eq!(end(&gpu, &job), Some(Errno::ENODEV), "{hang}");
        pci.bind()?;
    }
    // Silence, too.
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(COPY)?;
    let job = desk.start(&queue, desk.wait_for_word(0))?;
    Board.queue_in_state(2, "waiting")?;
    let silence = Board.silence()?;
    unbind(&pci)?;
    assert_eq!(end(&gpu, &job), Some(Errno::ENODEV));
    // It could not be stopped, so it must not reach memory when it comes back.
    assert!(!pci.is_master()?, "a board without a driver may use memory");
    drop(silence);
    pci.bind()?;
    Board.forgive_cut_off()
}

fn waiting_ioctls_end_with_enodev() -> Outcome {
    let pci = PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(COPY)?;
    let job = desk.start(&queue, desk.wait_for_word(0))?;
    Board.queue_in_state(2, "waiting")?;
    let waits = [job.done.wait()];
    let unmap = [drm_ochre_bind {
        op: DRM_OCHRE_BIND_UNMAP,
        addr: 0x7000_0000,
        range: 4096,
        ..Default::default()
    }];
    thread::scope(|scope| {
        let binder = scope.spawn(|| {
            let mut bind = drm_ochre_vm_bind {
                vm: desk.vm.handle(),
                binds: pointer(&unmap),
                bind_count: 1,
                bind_stride: stride::<drm_ochre_bind>(),
                syncs: pointer(&waits),
                sync_count: 1,
                sync_stride: stride::<drm_ochre_sync>(),
                ..Default::default()
            };
            raw::call(&gpu, &mut bind)
        });
        let submitter = scope.spawn(|| loop {
            // Until there is no room any more, and then until the end.
            if let Some(errno) = errno(queue.submit(&[Default::default(); 64])) {
                return errno;
            }
        });
        let core = scope.spawn(|| gpu.syncobj_wait(&[job.done.raw()], i64::MAX, true, false));
        guest::eventually("three threads sleep", 60, || {
            let mut sleeping = 0;
            for task in std::fs::read_dir("/proc/self/task")? {
                let stat = std::fs::read_to_string(task?.path().join("stat"))?;
                let state = stat.rsplit(") ").next().unwrap_or_default();
                sleeping += usize::from(state.starts_with('S'));
            }
            Ok((sleeping >= 3).then_some(()))
        })?;
        unbind(&pci)?;
        assert_eq!(binder.join().ok(), Some(Err(Errno::ENODEV)));
        assert_eq!(submitter.join().ok(), Some(Errno::ENODEV));
        // The core knows of no errors; but it must come back.
        assert!(core.join().is_ok());
        anyhow::Ok(())
    })?;
    Ok(pci.bind()?)
}

fn fences_that_others_hold_are_signalled() -> Outcome {
    let pci = PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(COPY)?;
    let timeline = Syncobj::new(&gpu)?;
    let syncs = [timeline.point(9).signal()];
    let job = desk.start_with(&queue, desk.wait_for_word(0), &syncs)?;
    let sync_file = gpu.syncobj_to_fd(job.done.raw(), true)?;
    let ready = |timeout: u16| {
        let mut fds = [nix::poll::PollFd::new(
            sync_file.as_fd(),
            nix::poll::PollFlags::POLLIN,
        )];
        nix::poll::poll(&mut fds, timeout)
    };
    assert_eq!(ready(0)?, 0);
    unbind(&pci)?;
    assert_eq!(ready(20_000)?, 1);
    Ok(pci.bind()?)
}

/// Keeps engines, memory and the tables busy until the device is gone.
fn busy(class: u32) -> Outcome {
    let gpu = Gpu::open()?;
    let work = || -> Outcome {
        loop {
            let desk = Desk::new(&gpu)?;
            let queue = desk.queue(class)?;
            let memory = desk.vm.buffer(VRAM, 1 << 20, READ_WRITE)?;
            for value in 0..5 {
                desk.run(&queue, Stream::new().fill(memory.addr, 1 << 20, value))?;
            }
        }
    };
    let error = match work() {
        Ok(()) => anyhow::bail!("it ended"),
        Err(error) => format!("{error:?}"),
    };
    anyhow::ensure!(
        error.contains("No such device") || error.contains("ENODEV"),
        "{error}"
    );
    Ok(())
}

fn device_goes_under_processes_that_keep_it_busy() -> Outcome {
    let pci = PciDevice::bound()?;
    for _ in 0..5 {
        let (mut ours, theirs) = UnixStream::pair()?;
        let mut processes = Vec::new();
        for class in [COPY, COMPUTE, COPY, COMPUTE] {
            let mut theirs = theirs.try_clone()?;
            processes.push(child::spawn(move || {
                theirs.write_all(b"!")?;
                busy(class)
            })?);
        }
        ours.read_exact(&mut [0; 4])?;
        // All have begun, and have done something.
        let before = Board.time()?;
        guest::eventually("a millisecond of work", 60, || {
            Ok((Board.time()? > before + 1_000_000).then_some(()))
        })?;
        unbind(&pci)?;
        for process in processes {
            match waitpid(process.leave(), None)? {
                WaitStatus::Exited(_, 0) => {}
                // It was writing its commands, to memory that went with the device.
                WaitStatus::Signaled(_, Signal::SIGBUS, _) => {}
                other => anyhow::bail!("{other:?}"),
            }
        }
        pci.bind()?;
    }
    Ok(())
}
