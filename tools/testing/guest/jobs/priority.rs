// SPDX-License-Identifier: GPL-2.0
//! Who comes first on an engine.

use guest::ochre::abi::*;
use guest::ochre::access::READ_WRITE;
use guest::ochre::region::VRAM;
use guest::ochre::Gpu;
use guest::ochre::Queue;
use guest::ochre::Stream;
use guest::Board;
use guest::Desk;
use guest::Outcome;

guest::tests! {
    higher_priority_begins_first_and_lower_one_waits,
    queues_of_one_priority_take_turns,
    long_low_job_does_not_hold_up_a_realtime_one,
}

const LEN: u64 = 8 << 20;

fn with_priority<'g>(desk: &Desk<'g>, priority: u32) -> anyhow::Result<Queue<'g>> {
    let prop = (DRM_OCHRE_QUEUE_PRIORITY, priority.into());
    Ok(Queue::with(&desk.vm, DRM_OCHRE_ENGINE_COPY, 0, &[prop])?)
}

/// A long copy that notes when it began and when it ended, in two words from `first` on.
fn timed_copy(desk: &Desk<'_>, memory: u64, first: usize) -> Stream {
    let stream = Stream::new().timestamp(desk.word_addr(first));
    stream
        .copy(memory, memory + LEN, LEN)
        .timestamp(desk.word_addr(first + 1))
}

fn span(desk: &Desk<'_>, first: usize) -> (u64, u64) {
    (desk.word(first), desk.word(first + 1))
}

/// Waits until the engine has two queues with something to do; the gate keeps them from it.
fn both_are_ready() -> Outcome {
    guest::eventually("two queues are ready", 20, || {
        let slots = Board.slots()?;
        let ready = slots
            .iter()
            .filter(|slot| slot.engine == 2 && slot.state == "ready");
        Ok((ready.count() == 2).then_some(()))
    })
}

/// Runs a copy in each of two queues of one engine, which start at the same board time.
fn race(priorities: [u32; 2]) -> anyhow::Result<[(u64, u64); 2]> {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let memory = desk.vm.buffer(VRAM, 2 * LEN, READ_WRITE)?;
    let queues = [
        with_priority(&desk, priorities[0])?,
        with_priority(&desk, priorities[1])?,
    ];
    let gate = Board.close_gate()?;
    let first = desk.start(&queues[0], timed_copy(&desk, memory.addr, 0))?;
    let second = desk.start(&queues[1], timed_copy(&desk, memory.addr, 2))?;
    both_are_ready()?;
    drop(gate);
    first.ends_well()?;
    second.ends_well()?;
    Ok([span(&desk, 0), span(&desk, 2)])
}

fn higher_priority_begins_first_and_lower_one_waits() -> Outcome {
    for (low, high) in [
        (DRM_OCHRE_PRIORITY_LOW, DRM_OCHRE_PRIORITY_NORMAL),
        (DRM_OCHRE_PRIORITY_NORMAL, DRM_OCHRE_PRIORITY_HIGH),
        (DRM_OCHRE_PRIORITY_HIGH, DRM_OCHRE_PRIORITY_REALTIME),
    ] {
        let [(low_began, _), (_, high_ended)] = race([low, high])?;
        assert!(
            high_ended <= low_began,
            "{high}: until {high_ended}, {low}: from {low_began}"
        );
    }
    Ok(())
}

fn queues_of_one_priority_take_turns() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let memory = desk.vm.buffer(VRAM, 2 * LEN, READ_WRITE)?;
    // Slices that are much shorter than the job.
    let quantum = [(DRM_OCHRE_QUEUE_QUANTUM_US, 100)];
    let queue = || Queue::with(&desk.vm, DRM_OCHRE_ENGINE_COPY, 0, &quantum);
    let queues = [queue()?, queue()?];
    let gate = Board.close_gate()?;
    // 16 MiB each take some 250 µs.
    let stream = |first| {
        let copy = timed_copy(&desk, memory.addr, first);
        let again = timed_copy(&desk, memory.addr, first + 4);
        let words: Vec<u64> = copy.words().iter().chain(again.words()).copied().collect();
        words.into_iter().fold(Stream::new(), Stream::word)
    };
    let jobs = [
        desk.start(&queues[0], stream(0))?,
        desk.start(&queues[1], stream(2))?,
    ];
    both_are_ready()?;
    drop(gate);
    for job in &jobs {
        job.ends_well()?;
    }
    let (first, second) = ((desk.word(0), desk.word(5)), (desk.word(2), desk.word(7)));
    assert!(
        first.0 < second.1 && second.0 < first.1,
        "{first:?} and {second:?} do not overlap"
    );
    Ok(())
}

fn long_low_job_does_not_hold_up_a_realtime_one() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let memory = desk.vm.buffer(VRAM, 2 * LEN, READ_WRITE)?;
    let low = with_priority(&desk, DRM_OCHRE_PRIORITY_LOW)?;
    let realtime = with_priority(&desk, DRM_OCHRE_PRIORITY_REALTIME)?;
    // It starts when the low job says that it runs, and copies as long as that.
    let start = desk.word_addr(10);
    let urgent = Stream::new()
        .sem_wait(start, 1, guest::ochre::hw::CMP_EQ)
        .timestamp(desk.word_addr(11));
    let urgent = desk.start(&realtime, urgent)?;
    let long = Stream::new()
        .sem_signal(start, 1)
        .copy(memory.addr, memory.addr + LEN, LEN)
        .timestamp(desk.word_addr(12));
    let long = desk.start(&low, long)?;
    urgent.ends_well()?;
    long.ends_well()?;
    assert!(
        desk.word(11) < desk.word(12),
        "{} after {}",
        desk.word(11),
        desk.word(12)
    );
    Ok(())
}
