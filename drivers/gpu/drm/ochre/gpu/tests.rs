// SPDX-License-Identifier: GPL-2.0

//! Jobs run through the driver on [`super::mock`].
//!
//! The board works when a test says so, and the driver's worker is waited for with
//! [`Gpu::flush`], so each test knows what has happened when it looks.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    algo::{
        buddy::Request,
        sched::Priority, //
    },
    ext::dma_fence::{
        self,
        Fence,
        FenceRef,
        FenceStatus,
        WaitOutcome, //
    },
    gpu::{
        device::now,
        file::Usage,
        job::{
            Dependency,
            Job, //
        },
        mock::{
            self,
            Mock, //
        },
        queue::{
            Health,
            Properties,
            Queue, //
        },
        submit::Prepared,
        vm::Vm,
        vram::VramBlock,
        wait::{
            self,
            Until, //
        },
        Gpu, //
    },
    hal::{
        Command,
        EngineClass,
        EngineId,
        Reset, //
    }, //
};

/// More turns than any recovery takes, or any work that is not longer than a few rings.
const TURNS: usize = 12;

/// A board with its driver, which is unplugged at the end whatever the test did.
struct Bench {
    mock: Arc<Mock>,
    gpu: Arc<Gpu>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.gpu.unplug();
    }
}

impl Bench {
    fn new() -> Result<Self> {
        let (mock, gpu) = Mock::new()?;
        Ok(Self { mock, gpu })
    }

    fn queue_with(&self, engine: u8, priority: Priority, timeout_ms: u32) -> Result<Arc<Queue>> {
        let properties = Properties {
            priority,
            timeout_ms,
            quantum_us: 1000,
            boost: false,
        };
        let (vm, usage) = (Vm::new(&self.gpu)?, Usage::new()?);
        self.gpu.create_queue(&[EngineId(engine)], |id, engine| {
            Queue::new(&self.gpu, id, engine, vm, properties, usage)
        })
    }

    fn queue(&self) -> Result<Arc<Queue>> {
        self.queue_with(0, Priority::Normal, mock::TIMEOUT_MS)
    }

    /// Prepares a job of these commands that waits for these fences.
    fn prepare(
        &self,
        queue: &Arc<Queue>,
        commands: &[Command],
        waits: &[&Fence],
    ) -> Result<Prepared> {
        let mut list = KVec::new();
        list.extend_from_slice(commands, GFP_KERNEL)?;
        let mut dependencies = KVec::new();
        for fence in waits {
            dependencies.push(Dependency::Fence(fence.reference()), GFP_KERNEL)?;
        }
        let job = Job::new(&self.gpu, queue, list, dependencies, None)?;
        Prepared::new(job, KVec::new())
    }

    fn submit(
        &self,
        queue: &Arc<Queue>,
        commands: &[Command],
        waits: &[&Fence],
    ) -> Result<FenceRef> {
        let mut jobs = KVec::new();
        jobs.push(self.prepare(queue, commands, waits)?, GFP_KERNEL)?;
        self.gpu.submit(queue, &mut jobs)
    }

    /// Submits an indirect buffer.
    fn run_at(&self, queue: &Arc<Queue>, addr: u64) -> Result<FenceRef> {
        self.submit(queue, &[Command::Indirect { addr, words: 4 }], &[])
    }

    /// Lets board and driver work until neither has anything to do.
    fn settle(&self) -> Result {
        for _ in 0..TURNS {
            self.step()?;
        }
        self.gpu.flush();
        Ok(())
    }

    /// Lets the driver, then the board work once.
    fn step(&self) -> Result {
        self.gpu.flush();
        self.mock.run(&self.gpu)
    }

    /// Lets board time pass, the watchdog look, and what follows from it happen.
    fn pass(&self, ms: u64) {
        self.mock.pass(ms);
        for _ in 0..TURNS {
            self.gpu.watch(now());
            self.gpu.flush();
        }
    }

    /// Lets the watchdog see work without progress until the timeout is over.
    fn time_out(&self) {
        self.pass(1);
        self.pass(u64::from(mock::TIMEOUT_MS) + 1);
    }
}

/// A fence of someone else.
fn foreign_fence() -> Result<Fence> {
    Ok(Fence::prealloc(GFP_KERNEL)?.init(dma_fence::TEST_NAME, dma_fence::context_alloc(1), 1))
}

fn resets_of_slots(resets: &[Reset]) -> usize {
    resets
        .iter()
        .filter(|r| matches!(r, Reset::Slot(_)))
        .count()
}

#[kunit_tests(ochre_gpu)]
mod jobs {
    use super::*;

    #[test]
    fn job_runs_and_its_fence_is_signalled() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        let fence = bench.run_at(&queue, 0x1000)?;
        assert_eq!(fence.status(), FenceStatus::Pending);
        bench.settle()?;
        assert_eq!(fence.status(), FenceStatus::Done);
        assert_eq!(bench.mock.ran()?.as_slice(), &[0x1000]);
        assert_eq!(queue.record().health, Health::Ok);
        Ok(())
    }

    #[test]
    fn jobs_of_a_queue_run_in_order() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        let mut last = None;
        for n in 1..=100u64 {
            last = Some(bench.run_at(&queue, n * 8)?);
            if n % 7 == 0 {
                bench.settle()?;
            }
        }
        bench.settle()?;
        assert!(last.is_some_and(|fence| fence.status() == FenceStatus::Done));
        assert!(bench
            .mock
            .ran()?
            .iter()
            .copied()
            .eq((1..=100).map(|n| n * 8)));
        Ok(())
    }

    #[test]
    fn ring_that_is_full_takes_the_rest_when_it_has_room() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        // A ring holds 42 jobs of 6 words.
        let mut fences = KVec::new();
        for n in 1..=200u64 {
            fences.push(bench.run_at(&queue, n * 8)?, GFP_KERNEL)?;
        }
        bench.settle()?;
        assert!(fences.iter().all(|f| f.status() == FenceStatus::Done));
        assert_eq!(bench.mock.ran()?.len(), 200);
        Ok(())
    }

    #[test]
    fn more_queues_than_slots_all_finish() -> Result {
        let bench = Bench::new()?;
        let mut fences = KVec::new();
        let mut queues = KVec::new();
        for n in 0..6 {
            let queue = bench.queue()?;
            fences.push(bench.run_at(&queue, 0x1000 + n * 8)?, GFP_KERNEL)?;
            queues.push(queue, GFP_KERNEL)?;
        }
        bench.settle()?;
        assert!(fences.iter().all(|f| f.status() == FenceStatus::Done));
        Ok(())
    }

    #[test]
    fn job_waits_for_its_fences_and_only_then_runs() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        let (first, second) = (foreign_fence()?, foreign_fence()?);
        let indirect = Command::Indirect {
            addr: 0x1000,
            words: 4,
        };
        let fence = bench.submit(&queue, &[indirect], &[&first, &second])?;
        bench.settle()?;
        first.signal(Ok(()));
        bench.settle()?;
        assert!(bench.mock.ran()?.is_empty());
        second.signal(Ok(()));
        bench.settle()?;
        assert_eq!(fence.status(), FenceStatus::Done);
        assert_eq!(bench.mock.ran()?.len(), 1);
        Ok(())
    }

    #[test]
    fn job_whose_dependency_failed_does_not_run_and_carries_the_error() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        let (bad, late) = (foreign_fence()?, foreign_fence()?);
        let indirect = Command::Indirect {
            addr: 0x1000,
            words: 4,
        };
        let fence = bench.submit(&queue, &[indirect], &[&bad, &late])?;
        let next = bench.run_at(&queue, 0x2000)?;
        bad.signal(Err(EIO));
        late.signal(Ok(()));
        bench.settle()?;
        assert_eq!(fence.status(), FenceStatus::Failed(EIO));
        // The queue is none the worse for it.
        assert_eq!(next.status(), FenceStatus::Done);
        assert_eq!(bench.mock.ran()?.as_slice(), &[0x2000]);
        Ok(())
    }

    #[test]
    fn failure_of_an_earlier_job_in_the_same_submit_is_passed_on() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        let bad = foreign_fence()?;
        let indirect = Command::Indirect {
            addr: 0x1000,
            words: 4,
        };
        let first = bench.prepare(&queue, &[indirect], &[&bad])?;
        let mut commands = KVec::new();
        commands.push(indirect, GFP_KERNEL)?;
        let mut dependencies = KVec::new();
        dependencies.push(Dependency::Earlier(first.job.refusal().clone()), GFP_KERNEL)?;
        let second = Job::new(&bench.gpu, &queue, commands, dependencies, None)?;
        let mut jobs = KVec::new();
        jobs.push(first, GFP_KERNEL)?;
        jobs.push(Prepared::new(second, KVec::new())?, GFP_KERNEL)?;
        let last = bench.gpu.submit(&queue, &mut jobs)?;
        bad.signal(Err(ETIME));
        bench.settle()?;
        assert_eq!(last.status(), FenceStatus::Failed(ETIME));
        assert!(bench.mock.ran()?.is_empty());
        Ok(())
    }

    #[test]
    fn user_fence_is_waited_for_and_signalled_on_the_board() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        let commands = [
            Command::Wait {
                addr: 0x100,
                value: 5,
            },
            Command::Indirect {
                addr: 0x1000,
                words: 4,
            },
            Command::Signal {
                addr: 0x108,
                value: 6,
            },
        ];
        let fence = bench.submit(&queue, &commands, &[])?;
        bench.settle()?;
        assert_eq!(fence.status(), FenceStatus::Pending);
        assert_eq!(bench.mock.word(0x108), 0);
        bench.mock.store(0x100, 7)?;
        bench.settle()?;
        assert_eq!(fence.status(), FenceStatus::Done);
        assert_eq!(bench.mock.word(0x108), 6);
        Ok(())
    }

    #[test]
    fn hung_queue_is_reset_alone_and_its_neighbour_finishes() -> Result {
        let bench = Bench::new()?;
        let (bad, good) = (bench.queue()?, bench.queue()?);
        bench.mock.hang_at(0x1000);
        let hung = bench.run_at(&bad, 0x1000)?;
        let behind = bench.run_at(&bad, 0x2000)?;
        bench.settle()?;
        // The neighbour works all the time.
        for n in 0..4 {
            let fine = bench.run_at(&good, 0x4000 + n * 8)?;
            bench.settle()?;
            assert_eq!(fine.status(), FenceStatus::Done);
            bench.pass(u64::from(mock::TIMEOUT_MS) / 3 + 1);
        }
        assert_eq!(hung.status(), FenceStatus::Failed(ETIME));
        assert_eq!(behind.status(), FenceStatus::Failed(ECANCELED));
        assert_eq!(bad.record().health, Health::Hung);
        assert_eq!(bad.record().resets, 1);
        assert_eq!(bench.run_at(&bad, 0x3000).err(), Some(ECANCELED));

        let fine = bench.run_at(&good, 0x4000)?;
        bench.settle()?;
        assert_eq!(fine.status(), FenceStatus::Done);
        assert_eq!(good.record().health, Health::Ok);
        let resets = bench.mock.resets()?;
        assert_eq!((resets.len(), resets_of_slots(&resets)), (1, 1));
        assert_eq!(bench.gpu.resets(), 0);
        Ok(())
    }

    #[test]
    fn queue_that_makes_progress_is_left_alone_however_long_it_takes() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        let mut last = None;
        for n in 1..=10u64 {
            last = Some(bench.run_at(&queue, n * 8)?);
            bench.pass(u64::from(mock::TIMEOUT_MS) - 10);
            bench.step()?;
        }
        bench.settle()?;
        assert!(last.is_some_and(|fence| fence.status() == FenceStatus::Done));
        assert!(bench.mock.resets()?.is_empty());
        Ok(())
    }

    #[test]
    fn queue_that_is_kept_from_its_engine_is_no_hang() -> Result {
        let bench = Bench::new()?;
        let (low, high) = (
            bench.queue_with(0, Priority::Low, mock::TIMEOUT_MS)?,
            bench.queue_with(0, Priority::High, mock::TIMEOUT_MS)?,
        );
        bench.mock.starve_at(Some(0x1000));
        let patient = bench.run_at(&low, 0x1000)?;
        for n in 0..4 {
            bench.run_at(&high, 0x4000 + n * 8)?;
            bench.settle()?;
            bench.pass(u64::from(mock::TIMEOUT_MS));
        }
        assert!(bench.mock.resets()?.is_empty());
        bench.mock.starve_at(None);
        bench.settle()?;
        assert_eq!(patient.status(), FenceStatus::Done);
        Ok(())
    }

    #[test]
    fn faulted_queue_is_reset_and_tells_where() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        bench.mock.fault_at(0x1000);
        let faulted = bench.run_at(&queue, 0x1000)?;
        let behind = bench.run_at(&queue, 0x2000)?;
        bench.settle()?;
        bench.pass(1);
        assert_eq!(faulted.status(), FenceStatus::Failed(EFAULT));
        assert_eq!(behind.status(), FenceStatus::Failed(ECANCELED));
        let record = queue.record();
        assert_eq!(record.health, Health::Faulted);
        assert_eq!(record.fault.map(|f| (f.addr, f.pc)), Some((0x1000, 0x44)));
        Ok(())
    }

    #[test]
    fn engine_reset_costs_only_queues_that_had_begun() -> Result {
        let bench = Bench::new()?;
        let (bad, good) = (bench.queue()?, bench.queue()?);
        let other = bench.queue_with(1, Priority::Normal, 60_000)?;
        bench.mock.refuse(Reset::Slot(crate::algo::sched::SlotId {
            engine: 0,
            slot: 0,
        }));
        bench.mock.hang_at(0x1000);
        let hung = bench.run_at(&bad, 0x1000)?;
        bench.settle()?;
        bench.pass(1);
        // Waits on the board, so its work has not begun.
        let commands = [
            Command::Wait {
                addr: 0x100,
                value: 1,
            },
            Command::Indirect {
                addr: 0x2000,
                words: 4,
            },
        ];
        let waits = bench.submit(&good, &commands, &[])?;
        let elsewhere = bench.submit(&other, &commands, &[])?;
        bench.step()?;
        bench.pass(u64::from(mock::TIMEOUT_MS) + 1);
        assert_eq!(hung.status(), FenceStatus::Failed(ETIME));
        assert!(bench.mock.resets()?.contains(&Reset::Engine(EngineId(0))));

        bench.mock.store(0x100, 1)?;
        bench.settle()?;
        assert_eq!(waits.status(), FenceStatus::Done);
        assert_eq!(elsewhere.status(), FenceStatus::Done);
        assert_eq!(good.record().health, Health::Ok);
        Ok(())
    }

    #[test]
    fn queue_that_had_begun_is_innocent_after_an_engine_reset() -> Result {
        let bench = Bench::new()?;
        let bad = bench.queue()?;
        let patient = bench.queue_with(0, Priority::Normal, 60_000)?;
        bench.mock.refuse(Reset::Slot(crate::algo::sched::SlotId {
            engine: 0,
            slot: 0,
        }));
        // Both hang, but one has much more time.
        bench.mock.hang_at(0x1000);
        let hung = bench.run_at(&bad, 0x1000)?;
        let lost = bench.run_at(&patient, 0x1000)?;
        bench.settle()?;
        bench.time_out();
        assert_eq!(hung.status(), FenceStatus::Failed(ETIME));
        assert_eq!(lost.status(), FenceStatus::Failed(EIO));
        assert_eq!(patient.record().health, Health::Innocent);
        assert_eq!(patient.record().resets, 0);
        Ok(())
    }

    #[test]
    fn refused_resets_end_in_a_device_that_is_given_up() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        bench.mock.refuse(Reset::Device);
        bench.mock.hang_at(0x1000);
        let hung = bench.run_at(&queue, 0x1000)?;
        bench.settle()?;
        bench.time_out();
        assert!(matches!(hung.status(), FenceStatus::Failed(_)));
        assert!(bench.mock.is_stopped());
        assert_eq!(bench.gpu.check().err(), Some(ENODEV));
        assert_eq!(bench.run_at(&queue, 0x2000).err(), Some(ENODEV));
        Ok(())
    }

    #[test]
    fn device_reset_brings_back_a_device_that_refused_less() -> Result {
        let bench = Bench::new()?;
        let (bad, good) = (
            bench.queue()?,
            bench.queue_with(1, Priority::Normal, mock::TIMEOUT_MS)?,
        );
        bench.mock.refuse(Reset::Engine(EngineId(0)));
        bench.mock.hang_at(0x1000);
        let hung = bench.run_at(&bad, 0x1000)?;
        bench.settle()?;
        bench.time_out();
        assert_eq!(hung.status(), FenceStatus::Failed(ETIME));
        assert_eq!(bench.gpu.resets(), 1);
        let fine = bench.run_at(&good, 0x2000)?;
        bench.settle()?;
        assert_eq!(fine.status(), FenceStatus::Done);
        Ok(())
    }

    #[test]
    fn reset_by_the_bus_costs_what_had_begun_and_the_device_goes_on() -> Result {
        let bench = Bench::new()?;
        let (busy, other) = (
            bench.queue()?,
            bench.queue_with(1, Priority::Normal, mock::TIMEOUT_MS)?,
        );
        bench.mock.hang_at(0x1000);
        let lost = bench.run_at(&busy, 0x1000)?;
        bench.settle()?;

        bench.gpu.before_bus_reset();
        // What comes meanwhile waits.
        let late = bench.run_at(&other, 0x2000)?;
        bench.settle()?;
        assert_eq!(late.status(), FenceStatus::Pending);

        bench.gpu.on_bus_reset();
        bench.gpu.watch(now());
        bench.gpu.watch(now());
        bench.settle()?;
        assert_eq!(lost.status(), FenceStatus::Failed(EIO));
        assert_eq!(late.status(), FenceStatus::Done);
        Ok(())
    }

    #[test]
    fn lost_interrupt_is_found_by_the_watchdog() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        let fence = bench.run_at(&queue, 0x1000)?;
        bench.mock.mute(true);
        bench.step()?;
        assert_eq!(fence.status(), FenceStatus::Pending);
        // The grace is in the CPU's time.
        bench.gpu.watch(now());
        bench.gpu.watch(now() + 100_000_000);
        assert_eq!(fence.status(), FenceStatus::Done);
        assert!(bench.mock.resets()?.is_empty());
        Ok(())
    }

    #[test]
    fn fence_value_of_a_job_that_is_not_in_the_ring_is_not_believed() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        let late = foreign_fence()?;
        let indirect = Command::Indirect {
            addr: 0x2000,
            words: 4,
        };
        bench.mock.hang_at(0x1000);
        let first = bench.run_at(&queue, 0x1000)?;
        let second = bench.submit(&queue, &[indirect], &[&late])?;
        bench.settle()?;
        bench.mock.claim(queue.id(), 2)?;
        bench.gpu.on_engine_event(EngineId(0));
        bench.pass(1);
        assert_eq!(first.status(), FenceStatus::Failed(EIO));
        assert_eq!(second.status(), FenceStatus::Failed(ECANCELED));
        assert_eq!(queue.record().health, Health::Hung);
        Ok(())
    }

    #[test]
    fn silent_board_is_given_up_and_every_fence_is_signalled() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        let fence = bench.run_at(&queue, 0x1000)?;
        bench.gpu.flush();
        bench.mock.vanish();
        bench.gpu.watch(now());
        for n in 1..16 {
            bench.gpu.watch(now() + n * 10_000_000_000);
        }
        bench.gpu.flush();
        assert_eq!(fence.status(), FenceStatus::Failed(ENODEV));
        assert_eq!(bench.gpu.check().err(), Some(ENODEV));
        Ok(())
    }

    #[test]
    fn destroyed_queue_cancels_what_waits_and_stops_what_runs() -> Result {
        let bench = Bench::new()?;
        let (busy, waiting) = (bench.queue()?, bench.queue()?);
        let never = foreign_fence()?;
        bench.mock.hang_at(0x1000);
        let runs = bench.run_at(&busy, 0x1000)?;
        let indirect = Command::Indirect {
            addr: 0x2000,
            words: 4,
        };
        let waits = bench.submit(&waiting, &[indirect], &[&never])?;
        bench.settle()?;
        bench.gpu.destroy_queue(&busy);
        bench.gpu.destroy_queue(&waiting);
        bench.pass(1);
        bench.settle()?;
        assert_eq!(runs.status(), FenceStatus::Failed(ECANCELED));
        assert_eq!(waits.status(), FenceStatus::Failed(ECANCELED));
        // Nobody holds the queues but this test: their ids are free again.
        for _ in 0..8 {
            bench.queue()?;
        }
        assert_eq!(bench.queue().err(), Some(ENOSPC));
        Ok(())
    }

    #[test]
    fn unplugged_device_signals_all_fences_and_takes_nothing_more() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        let never = foreign_fence()?;
        let indirect = Command::Indirect {
            addr: 0x1000,
            words: 4,
        };
        let runs = bench.run_at(&queue, 0x1000)?;
        let waits = bench.submit(&queue, &[indirect], &[&never])?;
        bench.gpu.unplug();
        assert!(bench.mock.is_stopped());
        assert_eq!(runs.status(), FenceStatus::Failed(ENODEV));
        assert_eq!(waits.status(), FenceStatus::Failed(ENODEV));
        assert_eq!(bench.run_at(&queue, 0x1000).err(), Some(ENODEV));
        assert_eq!(bench.queue().err(), Some(ENODEV));
        // A late fence finds nobody.
        never.signal(Ok(()));
        bench.gpu.unplug();
        Ok(())
    }

    #[test]
    fn waiter_is_woken_when_the_device_goes() -> Result {
        let bench = Bench::new()?;
        let never = foreign_fence()?;
        let gpu = bench.gpu.clone();
        kernel::workqueue::system_unbound().try_spawn(GFP_KERNEL, move || gpu.unplug())?;
        let result = wait::wait(&bench.gpu, &[never.reference()], Until::All, None);
        assert_eq!(result, Err(ENODEV));
        Ok(())
    }

    #[test]
    fn wait_for_any_ends_with_the_first_and_for_all_with_the_last() -> Result {
        let bench = Bench::new()?;
        let (first, second) = (foreign_fence()?, foreign_fence()?);
        let fences = [first.reference(), second.reference()];
        let wait = |until| wait::wait(&bench.gpu, &fences, until, Some(1));
        assert_eq!(wait(Until::Any), Err(ETIME));
        first.signal(Ok(()));
        assert_eq!(wait(Until::Any), Ok(()));
        assert_eq!(wait(Until::All), Err(ETIME));
        second.signal(Ok(()));
        assert_eq!(wait(Until::All), Ok(()));
        Ok(())
    }

    #[test]
    fn submit_beyond_the_backlog_asks_to_wait_and_leaves_no_trace() -> Result {
        let bench = Bench::new()?;
        let queue = bench.queue()?;
        let never = foreign_fence()?;
        let mut taken = 0;
        let refused = loop {
            match bench.submit(&queue, &[], &[&never]) {
                Ok(_) => taken += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((taken, refused), (1024, EAGAIN));
        never.signal(Ok(()));
        bench.settle()?;
        assert!(bench.submit(&queue, &[], &[]).is_ok());
        Ok(())
    }

    #[test]
    fn vram_is_cleared_by_the_copy_engine_and_its_block_kept_until_then() -> Result {
        let bench = Bench::new()?;
        let request = Request::new(1 << 20);
        let block = Arc::new(VramBlock::new(&bench.gpu, &request)?, GFP_KERNEL)?;
        let free = bench.gpu.vram.stats().free;
        let done = foreign_fence()?;
        let seen = done.reference();
        let gpu = bench.gpu.clone();
        kernel::workqueue::system_unbound().try_spawn(GFP_KERNEL, move || {
            let result = gpu.clear_vram(&block);
            done.signal(result);
        })?;
        for _ in 0..1000 {
            bench.step()?;
            if seen.wait_interruptible(Some(1))? == WaitOutcome::Signaled {
                break;
            }
        }
        assert_eq!(seen.status(), FenceStatus::Done);
        assert_eq!(bench.mock.cleared(), 1 << 20);
        // The job was the last to hold the block, and it is over.
        bench.gpu.flush();
        assert_eq!(bench.gpu.vram.stats().free, free + (1 << 20));
        Ok(())
    }

    #[test]
    fn busy_time_is_accounted_to_the_class_of_the_engine() -> Result {
        let bench = Bench::new()?;
        let usage = Usage::new()?;
        let vm = Vm::new(&bench.gpu)?;
        let properties = Properties {
            priority: Priority::Normal,
            timeout_ms: 1000,
            quantum_us: 1000,
            boost: false,
        };
        let queue = bench.gpu.create_queue(&[EngineId(1)], |id, engine| {
            Queue::new(&bench.gpu, id, engine, vm, properties, usage.clone())
        })?;
        bench.run_at(&queue, 0x1000)?;
        bench.settle()?;
        queue.status();
        let busy = usage.busy_ns();
        assert_eq!(busy[EngineClass::Compute.index()], 0);
        // Two packets of 1 µs.
        assert_eq!(busy[EngineClass::Copy.index()], 2000);
        Ok(())
    }
}
