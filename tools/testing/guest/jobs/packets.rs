// SPDX-License-Identifier: GPL-2.0
//! What each user packet does, and in which order.

use guest::ochre::abi::*;
use guest::ochre::hw;
use guest::ochre::Gpu;
use guest::ochre::Stream;
use guest::power::Defaults;
use guest::Board;
use guest::Desk;
use guest::Outcome;
use guest::PciDevice;

guest::tests! {
    write_stores_64_or_32_bits,
    atomic_add_wraps_at_64_bits,
    predicate_skips_unless_its_comparison_holds,
    semaphore_wait_passes_when_its_comparison_holds,
    semaphores_link_two_queues,
    timestamps_grow_and_a_wait_takes_its_time,
    waiting_until_a_time_waits_until_then,
    nop_of_any_length_and_cache_packets_do_nothing_that_can_be_seen,
    later_packets_see_what_earlier_ones_did,
    work_behind_the_gate_gets_the_same_times_each_time,
}

/// Comparisons, and whether they hold for a word below, equal to and above the value.
const COMPARISONS: [(u16, [bool; 3]); 6] = [
    (hw::CMP_EQ, [false, true, false]),
    (hw::CMP_NE, [true, false, true]),
    (hw::CMP_GE, [false, true, true]),
    (hw::CMP_GT, [false, false, true]),
    (hw::CMP_LE, [true, true, false]),
    (hw::CMP_LT, [true, false, false]),
];
/// A value whose neighbours differ in the highest bit: comparisons have no sign.
const MIDDLE: u64 = 1 << 63;

fn write_stores_64_or_32_bits() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    for class in [DRM_OCHRE_ENGINE_COMPUTE, DRM_OCHRE_ENGINE_COPY] {
        let queue = desk.queue(class)?;
        desk.set_word(1, u64::MAX);
        let half = [desk.word_addr(1) + 4, 0x1234_5678];
        let stream = Stream::new()
            .write(desk.word_addr(0), 0x0123_4567_89ab_cdef)
            .packet(hw::PKT_WRITE_IMM, hw::FLAG_32BIT, 0, &half);
        desk.run(&queue, stream)?;
        assert_eq!(desk.word(0), 0x0123_4567_89ab_cdef);
        assert_eq!(desk.word(1), 0x1234_5678_ffff_ffff);
        desk.set_word(0, 0);
    }
    Ok(())
}

fn atomic_add_wraps_at_64_bits() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    desk.set_word(0, u64::MAX - 1);
    let addr = desk.word_addr(0);
    desk.run(
        &queue,
        Stream::new().atomic_add(addr, 1).atomic_add(addr, 4),
    )?;
    assert_eq!(desk.word(0), 3);
    Ok(())
}

fn predicate_skips_unless_its_comparison_holds() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    for (cmp, holds) in COMPARISONS {
        for (value, holds) in [MIDDLE - 1, MIDDLE, MIDDLE + 1].into_iter().zip(holds) {
            desk.set_word(0, value);
            let stream = Stream::new()
                .write(desk.word_addr(1), 0)
                .predicate(desk.word_addr(0), MIDDLE, cmp, 3)
                .write(desk.word_addr(1), 1)
                .write(desk.word_addr(2), value);
            desk.run(&queue, stream)?;
            assert_eq!(
                desk.word(1),
                u64::from(holds),
                "comparison {cmp} with {value:#x}"
            );
            assert_eq!(desk.word(2), value, "what follows is executed");
        }
    }
    Ok(())
}

fn semaphore_wait_passes_when_its_comparison_holds() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    for (cmp, holds) in COMPARISONS {
        let values = [MIDDLE - 1, MIDDLE, MIDDLE + 1];
        let passes = values
            .iter()
            .zip(holds)
            .find(|(_, holds)| *holds)
            .map(|(value, _)| *value);
        let waits = values
            .iter()
            .zip(holds)
            .find(|(_, holds)| !*holds)
            .map(|(value, _)| *value);
        desk.set_word(0, waits.unwrap_or(0));
        let wait = Stream::new().sem_wait(desk.word_addr(0), MIDDLE, cmp);
        let job = desk.start(&queue, wait)?;
        Board.queue_in_state(2, "waiting")?;
        assert!(job.is_at_work()?, "comparison {cmp}");
        desk.set_word(0, passes.unwrap_or(0));
        job.ends_well()?;
    }
    Ok(())
}

fn semaphores_link_two_queues() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let ping = desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?;
    let pong = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let (there, back) = (desk.word_addr(0), desk.word_addr(1));
    let rounds = 50;
    let (mut first, mut second) = (Stream::new(), Stream::new());
    for round in 1..=rounds {
        first = first
            .sem_signal(there, round)
            .sem_wait(back, round, hw::CMP_EQ);
        second = second
            .sem_wait(there, round, hw::CMP_EQ)
            .sem_signal(back, round);
    }
    let waiting = desk.start(&pong, second)?;
    desk.start(&ping, first)?.ends_well()?;
    waiting.ends_well()?;
    assert_eq!((desk.word(0), desk.word(1)), (rounds, rounds));
    Ok(())
}

fn timestamps_grow_and_a_wait_takes_its_time() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let before = Board.time()?;
    let wait = 1_500_000;
    let stream = Stream::new()
        .timestamp(desk.word_addr(0))
        .timestamp(desk.word_addr(1))
        .wait_for(wait)
        .timestamp(desk.word_addr(2));
    desk.run(&queue, stream)?;
    let times = [
        before,
        desk.word(0),
        desk.word(1),
        desk.word(2),
        Board.time()?,
    ];
    assert!(times.is_sorted(), "{times:?}");
    assert!(times[3] - times[2] >= wait, "{times:?}");
    // A packet costs 32 cycles, a quantum lasts 10 µs.
    assert!(times[3] - times[2] <= wait + 20_000, "{times:?}");
    Ok(())
}

fn waiting_until_a_time_waits_until_then() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let until = Board.time()? + 3_000_000;
    let stream = Stream::new()
        .packet(hw::PKT_WAIT_UNTIL, 0, 0, &[until])
        .timestamp(desk.word_addr(0))
        // This is over.
        .packet(hw::PKT_WAIT_UNTIL, 0, 0, &[until - 1_000_000])
        .timestamp(desk.word_addr(1));
    desk.run(&queue, stream)?;
    assert!(
        desk.word(0) >= until && desk.word(0) <= until + 20_000,
        "{}",
        desk.word(0)
    );
    assert!(desk.word(1) <= desk.word(0) + 20_000);
    Ok(())
}

fn nop_of_any_length_and_cache_packets_do_nothing_that_can_be_seen() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?;
    let before = desk.page.cpu.read::<u64>(0, 512);
    let mut stream = Stream::new();
    for words in [1, 2, 100, 255] {
        stream = stream.packet(hw::PKT_NOP, 0, 0xffff_ffff, &vec![u64::MAX; words - 1]);
    }
    for flags in 0..=3 {
        stream = stream.packet(hw::PKT_CACHE, flags, 0, &[]);
    }
    desk.run(&queue, stream)?;
    assert!(desk.page.cpu.read::<u64>(0, 512) == before);
    Ok(())
}

fn later_packets_see_what_earlier_ones_did() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    for class in [DRM_OCHRE_ENGINE_COMPUTE, DRM_OCHRE_ENGINE_COPY] {
        let queue = desk.queue(class)?;
        let mut stream = Stream::new().write(desk.word_addr(0), 1);
        // Each word is twice the one before, by a copy and an addition of what is known.
        for i in 0..40 {
            stream = stream
                .copy(desk.word_addr(i), desk.word_addr(i + 1), 8)
                .atomic_add(desk.word_addr(i + 1), 1 << i);
        }
        desk.run(&queue, stream)?;
        assert_eq!(desk.word(40), 1 << 40);
        desk.set_word(0, 0);
        desk.set_word(40, 0);
    }
    Ok(())
}

fn work_behind_the_gate_gets_the_same_times_each_time() -> Outcome {
    // The clocks are part of what has to be the same.
    let _defaults = Defaults;
    let files = PciDevice::bound()?.files();
    files.set("clock_lock", "1000000 1000000")?;
    files.set("memory_clock_lock", "1000000 1000000")?;
    for domain in [0, 1] {
        Board.settles_at(domain, 1_000_000)?;
    }
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let copy = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let compute = desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?;
    // Queues are in their slots, and the TLB knows the pages.
    let warm = || -> Outcome {
        for queue in [&copy, &compute] {
            desk.run(queue, Stream::new().timestamp(desk.word_addr(0)))?;
        }
        Ok(())
    };
    let mut spans = Vec::new();
    for _ in 0..3 {
        warm()?;
        let gate = Board.close_gate()?;
        let stamped = |first: usize| {
            let page = desk.page.addr;
            Stream::new()
                .timestamp(desk.word_addr(first))
                .copy(page + 1024, page + 2048, 1024)
                .timestamp(desk.word_addr(first + 1))
        };
        let jobs = [
            desk.start(&copy, stamped(0))?,
            desk.start(&compute, stamped(2))?,
        ];
        drop(gate);
        for job in jobs {
            job.ends_well()?;
        }
        spans.push((desk.word(1) - desk.word(0), desk.word(3) - desk.word(2)));
    }
    assert!(spans[0].0 > 0 && spans[0].1 > 0, "{spans:?}");
    assert_eq!(spans[0], spans[1]);
    assert_eq!(spans[1], spans[2]);
    Ok(())
}
