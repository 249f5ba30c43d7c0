// SPDX-License-Identifier: GPL-2.0
//! Interrupts that do not come.

use guest::ochre::abi::*;
use guest::ochre::Gpu;
use guest::ochre::Queue;
use guest::ochre::Stream;
use guest::Board;
use guest::Desk;
use guest::Errno;
use guest::Outcome;

guest::tests! {
    job_whose_interrupt_is_lost_ends_all_the_same,
    many_jobs_without_any_interrupt_end_all_the_same,
    fault_whose_interrupt_is_lost_is_found,
    reset_whose_interrupt_is_lost_ends,
    queue_destroyed_without_an_interrupt_goes,
}

const COPY: u32 = DRM_OCHRE_ENGINE_COPY;
/// Vector of faults.
const FAULTS: u32 = 0;
/// Vector of the first engine.
const ENGINES: u32 = 2;
/// More than any of these tests cause.
const ALL: u32 = 100_000;

/// Takes back what is left of [`Board::lose_interrupts`].
struct Losing(u32);

impl Losing {
    fn all(vector: u32) -> anyhow::Result<Self> {
        Board.lose_interrupts(vector, ALL)?;
        Ok(Self(vector))
    }
}

impl Drop for Losing {
    fn drop(&mut self) {
        if let Err(error) = Board.lose_interrupts(self.0, 0) {
            println!("# {error}");
        }
    }
}

fn job_whose_interrupt_is_lost_ends_all_the_same() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    for (engine, (class, instance)) in (0..).zip([(0, 0), (0, 1), (1, 0), (1, 1)]) {
        let queue = Queue::with(&desk.vm, class, instance, &[])?;
        desk.run(&queue, Stream::new().nop())?;
        Board.lose_interrupts(ENGINES + engine, 1)?;
        desk.run(&queue, Stream::new().write(desk.word_addr(0), 1))?;
        assert_eq!(desk.word(0), 1);
        desk.set_word(0, 0);
        desk.run(&queue, Stream::new().write(desk.word_addr(0), 2))?;
        assert_eq!(desk.word(0), 2);
        assert_eq!(queue.reset_query()?.state, DRM_OCHRE_QUEUE_OK);
    }
    Ok(())
}

fn many_jobs_without_any_interrupt_end_all_the_same() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let _losing = Losing::all(ENGINES + 2)?;
    // More queues than slots, so that they have to be changed as well.
    let queues: Vec<_> = (0..4).map(|_| desk.queue(COPY)).collect::<Result<_, _>>()?;
    let mut jobs = Vec::new();
    for _ in 0..3 {
        for queue in &queues {
            jobs.push(desk.start(queue, Stream::new().atomic_add(desk.word_addr(0), 1))?);
        }
    }
    for job in &jobs {
        job.ends_well()?;
    }
    assert_eq!(desk.word(0), 12);
    Ok(())
}

fn fault_whose_interrupt_is_lost_is_found() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let _losing = Losing::all(FAULTS)?;
    let queue = desk.queue(COPY)?;
    let job = desk.start(&queue, Stream::new().write(0x77_0000_0000, 1))?;
    job.ends_with(Errno::EFAULT)?;
    let query = queue.reset_query()?;
    assert_eq!(
        (query.state, query.fault_addr),
        (DRM_OCHRE_QUEUE_FAULTED, 0x77_0000_0000)
    );
    Ok(())
}

fn reset_whose_interrupt_is_lost_ends() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue_with_timeout(COPY, 200)?;
    let job = desk.start(&queue, desk.wait_for_word(0))?;
    Board.queue_in_state(2, "waiting")?;
    let losing = Losing::all(ENGINES + 2)?;
    job.ends_with(Errno::ETIME)?;
    drop(losing);
    let queue = desk.queue(COPY)?;
    desk.run(&queue, Stream::new().write(desk.word_addr(1), 1))?;
    assert_eq!(desk.word(1), 1);
    Ok(())
}

fn queue_destroyed_without_an_interrupt_goes() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let _losing = Losing::all(ENGINES + 2)?;
    let queue = desk.queue(COPY)?;
    let job = desk.start(&queue, desk.wait_for_word(0))?;
    Board.queue_in_state(2, "waiting")?;
    drop(queue);
    job.ends_with(Errno::ECANCELED)
}
