// SPDX-License-Identifier: GPL-2.0

//! The control queue against a device that behaves, and one that does not.

use core::cell::Cell;

use kernel::{
    dma::DmaAddress,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use super::{
    memory::RecordMemory,
    queue::{
        Batch,
        Hardware,
        Phase,
        Queue, //
    },
    *,
};
use crate::{
    algo::prng::for_each_seed,
    ext::dma_fence::{
        Fence,
        FenceRef,
        FenceStatus,
        WantSignal, //
    },
    virtio::vring::{
        model::{
            Chain,
            Device as Peer,
            Plain, //
        },
        Options,
        Vring, //
    }, //
};

const OK: u32 = 0x1100;
const ERR_OUT_OF_MEMORY: u32 = 0x1201;
const ERR_INVALID_PARAMETER: u32 = 0x1205;

/// Bytes that a plain answer has.
const HEADER: u32 = wire::HEADER_BYTES as u32;

/// Where records are for the device, and how far apart.
const RECORDS: u64 = 0x4000_0000;
const STRIDE: u64 = 0x100;
const ANSWER: u64 = 0x80;

const OPTIONS: Options = Options {
    size: 8,
    segments: 4,
    event_idx: true,
    indirect: true,
    order_platform: false,
};
/// Records in all, and those that room is given for.
const COUNT: usize = 16;
const ROOM: usize = 14;
/// Places of the ring that commands get.
const PLACES: usize = 7;

/// Memory of records without a device.
struct Records {
    requests: KVec<Cell<[u32; wire::REQUEST_WORDS]>>,
    answers: KVec<Cell<(u32, [u32; SMALL / 4])>>,
}

impl Records {
    fn new(count: usize) -> Result<Self> {
        let (mut requests, mut answers) = (KVec::new(), KVec::new());
        for _ in 0..count {
            requests.push(Cell::new([0; wire::REQUEST_WORDS]), GFP_KERNEL)?;
            answers.push(Cell::new((0, [0; SMALL / 4])), GFP_KERNEL)?;
        }
        Ok(Self { requests, answers })
    }
}

impl RecordMemory for &Records {
    fn request_addr(&self, record: usize) -> DmaAddress {
        RECORDS + record as u64 * STRIDE
    }

    fn answer_addr(&self, record: usize) -> DmaAddress {
        self.request_addr(record) + ANSWER
    }

    fn write_request(&self, record: usize, request: &wire::Request) {
        self.requests[record].set(request.words());
        self.answers[record].set((0, [0; SMALL / 4]));
    }

    fn answer_kind(&self, record: usize) -> u32 {
        self.answers[record].get().0
    }

    fn answer_body(&self, record: usize) -> [u32; SMALL / 4] {
        self.answers[record].get().1
    }
}

/// What became of commands that keep something.
struct Ends {
    /// How many ended well, and how many did not.
    done: Atomic<u32>,
    failed: Atomic<u32>,
    dropped: Atomic<u32>,
    last: Atomic<i32>,
}

impl Ends {
    fn new() -> Result<Arc<Self>> {
        let ends = Self {
            done: Atomic::new(0),
            failed: Atomic::new(0),
            dropped: Atomic::new(0),
            last: Atomic::new(0),
        };
        Ok(Arc::new(ends, GFP_KERNEL)?)
    }

    /// Ended well, did not, dropped.
    fn counts(&self) -> (u32, u32, u32) {
        (
            self.done.load(Relaxed),
            self.failed.load(Relaxed),
            self.dropped.load(Relaxed),
        )
    }
}

struct Note {
    ends: Arc<Ends>,
    awaited: bool,
}

impl Note {
    /// Nobody sleeps until it is told.
    fn new(ends: &Arc<Ends>) -> Self {
        Self {
            ends: ends.clone(),
            awaited: false,
        }
    }
}

impl Kept for Note {
    fn done(&self, result: Result) {
        match result {
            Ok(()) => self.ends.done.add(1, Relaxed),
            Err(error) => {
                self.ends.failed.add(1, Relaxed);
                self.ends.last.store(error.to_errno(), Relaxed);
            }
        }
    }

    fn is_awaited(&self) -> bool {
        self.awaited
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        self.ends.dropped.add(1, Relaxed);
    }
}

/// A queue and a device that have the same memory.
struct Bed<'a> {
    queue: Queue<&'a Plain, &'a Records, Note>,
    device: Peer<'a>,
    records: &'a Records,
}

impl<'a> Bed<'a> {
    fn new(plain: &'a Plain, records: &'a Records) -> Result<Self> {
        let hardware = Hardware {
            ring: Vring::new(plain, OPTIONS)?,
            memory: records,
        };
        let mut queue = Queue::new(KBox::new(hardware, GFP_KERNEL)?, COUNT)?;
        queue.start();
        Ok(Self {
            queue,
            device: Peer::new(plain, &OPTIONS, 0),
            records,
        })
    }

    fn submit(&mut self, command: Command<'_, Note>) -> Option<FenceRef> {
        assert!(self.queue.take_room(1));
        let generation = self.queue.generation();
        let fence = self.queue.submit(generation, command);
        self.queue.publish();
        fence
    }

    /// A fenced command of a timeline.
    fn fenced(&mut self, timeline: &Timeline) -> Result<FenceRef> {
        let slot = Fence::prealloc(GFP_KERNEL)?;
        let command = Command::new(wire::submit_3d(1, 0)).fence(FenceArg::new(slot, timeline));
        self.submit(command).ok_or(EINVAL)
    }

    /// All that the device has not seen yet.
    fn take(&mut self) -> Result<KVec<Chain>> {
        let mut chains = KVec::new();
        while let Some(chain) = self.device.take()? {
            chains.push(chain, GFP_KERNEL)?;
        }
        Ok(chains)
    }

    fn record_of(chain: &Chain) -> usize {
        ((chain.readable[0].addr - RECORDS) / STRIDE) as usize
    }

    /// The request of a chain.
    fn request(&self, chain: &Chain) -> [u32; wire::REQUEST_WORDS] {
        self.records.requests[Self::record_of(chain)].get()
    }

    fn answer_with(&mut self, chain: &Chain, kind: u32, body: [u32; SMALL / 4], written: u32) {
        self.records.answers[Self::record_of(chain)].set((kind, body));
        self.device.give_back(chain.head, written);
    }

    fn answer(&mut self, chain: &Chain, kind: u32) {
        self.answer_with(chain, kind, [0; SMALL / 4], HEADER);
    }

    /// What the interrupt handler does.
    fn collect(&mut self) {
        let mut batch = Batch::new();
        assert!(self.queue.start_collecting());
        while self.queue.collect(&mut batch) {
            batch.signal();
        }
        batch.signal();
        self.queue.stop_collecting(true);
        self.queue.publish();
    }

    /// What process context does. Returns how many things were dropped.
    fn tidy(&mut self) -> usize {
        let mut count = 0;
        while let Some(dead) = self.queue.take_dead() {
            drop(dead);
            count += 1;
        }
        self.queue.publish();
        count
    }

    /// How many commands there is room for.
    fn room(&mut self) -> usize {
        let mut count = 0;
        while self.queue.take_room(1) {
            count += 1;
        }
        self.queue.give_room(count);
        count
    }
}

fn status(error: Error) -> FenceStatus {
    FenceStatus::Failed(error)
}

#[kunit_tests(ochre_virtio_control)]
mod suite {
    use super::*;

    #[test]
    fn answer_reaches_fence_and_keeper_and_the_room_comes_back() -> Result {
        let (plain, records) = (Plain::new(&OPTIONS)?, Records::new(COUNT)?);
        let mut bed = Bed::new(&plain, &records)?;
        let ends = Ends::new()?;
        let timeline = Timeline::new(7);
        assert_eq!(bed.room(), ROOM);

        let arg = FenceArg::new(Fence::prealloc(GFP_KERNEL)?, &timeline).ring(Some(3));
        let command = Command::new(wire::submit_3d(5, 16))
            .fence(arg)
            .keep(Note::new(&ends));
        let fence = bed.submit(command).ok_or(EINVAL)?;
        assert_eq!((fence.context(), fence.seqno()), (7, 1));
        assert_eq!(bed.room(), ROOM - 1);

        let chains = bed.take()?;
        assert_eq!(chains.len(), 1);
        assert!(bed.request(&chains[0])[..6] == [0x207, 3, 1, 0, 5, 3]);
        assert_eq!(chains[0].readable[0].len, 32);
        assert_eq!(chains[0].room(), HEADER + SMALL as u32);
        assert_eq!(fence.status(), FenceStatus::Pending);

        bed.answer(&chains[0], OK);
        bed.collect();
        assert_eq!(fence.status(), FenceStatus::Done);
        assert_eq!(ends.counts(), (1, 0, 0));
        // What it kept is dropped later, and only then there is room again.
        assert_eq!(bed.room(), ROOM - 1);
        assert_eq!(bed.tidy(), 1);
        assert_eq!(ends.counts(), (1, 0, 1));
        assert_eq!(bed.room(), ROOM);
        Ok(())
    }

    #[test]
    fn refused_command_fails_its_fence_and_waits_for_the_ones_before() -> Result {
        let (plain, records) = (Plain::new(&OPTIONS)?, Records::new(COUNT)?);
        let mut bed = Bed::new(&plain, &records)?;
        let timeline = Timeline::new(7);
        let first = bed.fenced(&timeline)?;
        let second = bed.fenced(&timeline)?;
        let chains = bed.take()?;
        bed.answer(&chains[1], ERR_INVALID_PARAMETER);
        bed.collect();
        assert_eq!(first.status(), FenceStatus::Pending);
        assert_eq!(second.status(), FenceStatus::Pending);
        bed.answer(&chains[0], OK);
        bed.collect();
        assert_eq!(first.status(), FenceStatus::Done);
        assert_eq!(second.status(), status(EINVAL));
        assert_eq!(bed.room(), ROOM);
        Ok(())
    }

    #[test]
    fn commands_without_a_place_go_out_in_order_when_there_is_one() -> Result {
        let (plain, records) = (Plain::new(&OPTIONS)?, Records::new(COUNT)?);
        let mut bed = Bed::new(&plain, &records)?;
        for resource in 1..=10 {
            bed.submit(Command::new(wire::resource_create_2d(
                resource,
                &Default::default(),
            )));
        }
        let node = CleanupNode::new(GFP_KERNEL)?;
        let generation = bed.queue.generation();
        bed.queue
            .submit_cleanup(node, generation, wire::resource_unref(11), None);
        bed.submit(Command::new(wire::resource_assign_uuid(12)));

        let mut seen = KVec::new();
        loop {
            let chains = bed.take()?;
            if chains.is_empty() {
                break;
            }
            assert!(chains.len() <= PLACES);
            for chain in &chains {
                seen.push(bed.request(chain)[6], GFP_KERNEL)?;
                bed.answer(chain, OK);
            }
            bed.collect();
            bed.tidy();
        }
        assert!(seen[..] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(bed.room(), ROOM);
        Ok(())
    }

    #[test]
    fn cleanup_needs_no_room_and_ends_when_it_was_answered() -> Result {
        let (plain, records) = (Plain::new(&OPTIONS)?, Records::new(COUNT)?);
        let mut bed = Bed::new(&plain, &records)?;
        let ends = Ends::new()?;
        // Somebody has all the room.
        assert!(bed.queue.take_room(ROOM));
        assert!(!bed.queue.take_room(1));
        let generation = bed.queue.generation();
        for resource in 0..40 {
            let node = CleanupNode::new(GFP_KERNEL)?;
            let request = wire::resource_unref(resource);
            let keep = Some(Note::new(&ends));
            bed.queue.submit_cleanup(node, generation, request, keep);
        }
        bed.queue.publish();
        for _ in 0..40 {
            for chain in &bed.take()? {
                bed.answer(chain, OK);
            }
            bed.collect();
            let (done, _, dropped) = ends.counts();
            assert!(dropped <= done);
            bed.tidy();
        }
        assert_eq!(ends.counts(), (40, 0, 40));
        bed.queue.give_room(ROOM);
        assert_eq!(bed.room(), ROOM);
        Ok(())
    }

    #[test]
    fn short_or_nonsensical_answer_is_an_error() -> Result {
        let (plain, records) = (Plain::new(&OPTIONS)?, Records::new(COUNT)?);
        let mut bed = Bed::new(&plain, &records)?;
        for (kind, written, result) in [
            (OK, HEADER - 1, Err(EIO)),
            (OK, 0, Err(EIO)),
            (0x4711, HEADER, Err(EIO)),
            (ERR_OUT_OF_MEMORY, HEADER, Err(ENOMEM)),
            (OK, HEADER + 8, Ok(())),
        ] {
            let reply = Reply::with(None)?;
            let request = wire::resource_map_blob(1, 0);
            bed.submit(Command::new(request).reply(reply.clone()));
            assert_eq!(reply.poll(), None);
            let chains = bed.take()?;
            bed.answer_with(&chains[0], kind, [1, 2, 3, 4], written);
            bed.collect();
            assert_eq!(reply.poll(), Some(result));
            let mut body = [0; SMALL];
            match result {
                Ok(()) => {
                    assert_eq!(reply.read(&mut body)?, 8);
                    assert!(body[..8] == [1, 0, 0, 0, 2, 0, 0, 0]);
                }
                Err(_) => assert_eq!(reply.read(&mut body).err(), Some(EIO)),
            }
        }
        Ok(())
    }

    #[test]
    fn reset_ends_what_was_in_flight_and_sends_nothing_of_before() -> Result {
        let (plain, records) = (Plain::new(&OPTIONS)?, Records::new(COUNT)?);
        let mut bed = Bed::new(&plain, &records)?;
        let (ends, cleaned) = (Ends::new()?, Ends::new()?);
        let timeline = Timeline::new(7);
        let mut fences = KVec::new();
        for _ in 0..10 {
            let arg = FenceArg::new(Fence::prealloc(GFP_KERNEL)?, &timeline);
            let command = Command::new(wire::submit_3d(1, 0))
                .fence(arg)
                .keep(Note::new(&ends));
            fences.push(bed.submit(command).ok_or(EINVAL)?, GFP_KERNEL)?;
        }
        let reply = Reply::with(None)?;
        bed.submit(Command::new(wire::resource_map_blob(1, 0)).reply(reply.clone()));
        let old = bed.queue.generation();
        let cleanup = |bed: &mut Bed<'_>| -> Result {
            let node = CleanupNode::new(GFP_KERNEL)?;
            let keep = Some(Note::new(&cleaned));
            bed.queue
                .submit_cleanup(node, old, wire::resource_unref(1), keep);
            Ok(())
        };
        cleanup(&mut bed)?;
        assert!(bed.queue.take_room(1));

        bed.queue.leave(Phase::Resetting);
        // Who waits for an answer is woken at once; fences have to wait for the device.
        assert_eq!(reply.poll(), Some(Err(EIO)));
        assert!(fences.iter().all(|f| f.status() == FenceStatus::Pending));
        bed.queue.abandon(EIO);
        bed.collect();
        assert!(fences.iter().all(|f| f.status() == status(EIO)));
        assert_eq!(ends.counts(), (0, 10, 0));
        assert_eq!(cleaned.counts(), (1, 0, 0));
        bed.tidy();
        assert_eq!(ends.counts(), (0, 10, 10));
        assert_eq!(cleaned.counts(), (1, 0, 1));

        bed.device = Peer::new(&plain, &OPTIONS, 0);
        bed.queue.start();
        assert_eq!(bed.queue.generation(), old + 1);
        // Room of before the reset.
        let arg = FenceArg::new(Fence::prealloc(GFP_KERNEL)?, &timeline);
        let command = Command::new(wire::submit_3d(1, 0)).fence(arg);
        let late = bed.queue.submit(old, command).ok_or(EINVAL)?;
        cleanup(&mut bed)?;
        bed.queue.publish();
        assert!(bed.take()?.is_empty());
        bed.collect();
        bed.tidy();
        assert_eq!(late.status(), status(EIO));
        assert_eq!(cleaned.counts(), (2, 0, 2));
        assert_eq!(bed.room(), ROOM);

        // And it works again.
        let fence = bed.fenced(&timeline)?;
        let chains = bed.take()?;
        bed.answer(&chains[0], OK);
        bed.collect();
        assert_eq!(fence.status(), FenceStatus::Done);
        Ok(())
    }

    #[test]
    fn what_is_sent_to_a_device_that_is_gone_ends_with_enodev() -> Result {
        let (plain, records) = (Plain::new(&OPTIONS)?, Records::new(COUNT)?);
        let mut bed = Bed::new(&plain, &records)?;
        let timeline = Timeline::new(7);
        let ends = Ends::new()?;
        let before = bed.fenced(&timeline)?;
        bed.queue.leave(Phase::Gone);
        let after = bed.fenced(&timeline)?;
        let forget = |bed: &mut Bed<'_>| -> Result {
            let node = CleanupNode::new(GFP_KERNEL)?;
            let generation = bed.queue.generation();
            let keep = Some(Note::new(&ends));
            bed.queue
                .submit_cleanup(node, generation, wire::ctx_destroy(1), keep);
            Ok(())
        };
        forget(&mut bed)?;
        // Not before the device was reset: it may still be at the first one.
        bed.collect();
        bed.tidy();
        assert_eq!(after.status(), FenceStatus::Pending);
        assert_eq!(ends.counts(), (0, 0, 0));
        bed.queue.abandon(ENODEV);
        bed.collect();
        bed.tidy();
        assert_eq!(ends.counts(), (1, 0, 1));
        assert_eq!(before.status(), status(ENODEV));
        assert_eq!(after.status(), status(ENODEV));
        drop(bed.queue.take_hardware());

        let last = bed.fenced(&timeline)?;
        forget(&mut bed)?;
        bed.collect();
        bed.tidy();
        assert_eq!(last.status(), status(ENODEV));
        assert_eq!(ends.counts(), (2, 0, 2));
        // It never comes back.
        bed.queue.start();
        assert_eq!(bed.queue.phase(), Phase::Gone);
        Ok(())
    }

    #[test]
    fn device_that_lies_is_found_out_and_what_it_has_ends_with_the_reset() -> Result {
        let (plain, records) = (Plain::new(&OPTIONS)?, Records::new(COUNT)?);
        for lie in 0..4 {
            let mut bed = Bed::new(&plain, &records)?;
            let timeline = Timeline::new(7);
            let fence = bed.fenced(&timeline)?;
            let other = bed.fenced(&timeline)?;
            let chains = bed.take()?;
            match lie {
                0 => bed.device.give_back(99, HEADER),
                1 => bed.answer_with(&chains[0], OK, [0; SMALL / 4], 4096),
                2 => plain.set_used_head(0, 77),
                _ => {
                    bed.answer(&chains[0], OK);
                    bed.answer(&chains[0], OK);
                }
            }
            bed.collect();
            assert!(bed.queue.broken().is_some());
            assert_eq!(other.status(), FenceStatus::Pending);
            bed.queue.leave(Phase::Resetting);
            bed.queue.abandon(EIO);
            bed.collect();
            assert!(bed.queue.broken().is_none());
            let first = if lie == 3 {
                FenceStatus::Done
            } else {
                status(EIO)
            };
            assert_eq!(fence.status(), first);
            assert_eq!(other.status(), status(EIO));
            assert_eq!(bed.room(), ROOM);
        }
        Ok(())
    }

    /// Tells nobody.
    struct Quiet;

    impl WantSignal for Quiet {
        fn wanted(&self, _cookie: u64) {}
    }

    #[test]
    fn interrupt_is_asked_for_only_when_somebody_waits() -> Result {
        let (plain, records) = (Plain::new(&OPTIONS)?, Records::new(COUNT)?);
        let mut bed = Bed::new(&plain, &records)?;
        let quiet: Arc<dyn WantSignal> = Arc::new(Quiet, GFP_KERNEL)?;
        bed.queue.set_maker(Some(quiet));
        let timeline = Timeline::new(7);
        let fence = bed.fenced(&timeline)?;
        bed.submit(Command::new(wire::resource_unref(1)));
        let waited = bed.fenced(&timeline)?;
        let chains = bed.take()?;
        // The third command that was ever sent, in the third record.
        bed.queue.want_cookie(3 << 16 | 2);

        // The plain command comes first, and is no reason to interrupt.
        bed.answer(&chains[1], OK);
        assert!(!bed.device.interrupts());
        bed.answer(&chains[0], OK);
        assert!(bed.device.interrupts());
        bed.collect();
        assert_eq!(fence.status(), FenceStatus::Done);
        assert_eq!(waited.status(), FenceStatus::Pending);
        // Somebody still waits, so the next one interrupts.
        bed.answer(&chains[2], OK);
        assert!(bed.device.interrupts());
        bed.collect();
        assert_eq!(waited.status(), FenceStatus::Done);

        bed.fenced(&timeline)?;
        let chains = bed.take()?;
        bed.answer(&chains[0], OK);
        assert!(!bed.device.interrupts());
        bed.collect();
        Ok(())
    }

    #[test]
    fn answers_for_which_nobody_waits_are_looked_for_now_and_then() -> Result {
        let (plain, records) = (Plain::new(&OPTIONS)?, Records::new(COUNT)?);
        let mut bed = Bed::new(&plain, &records)?;
        // Each second time, in a ring with so few places, and no more often if there are none.
        for _ in 0..3 {
            bed.submit(Command::new(wire::resource_unref(1)));
            assert!(!bed.queue.take_hot());
            bed.submit(Command::new(wire::resource_unref(1)));
            assert!(bed.queue.take_hot());
            bed.collect();
        }
        for chain in bed.take()? {
            bed.answer(&chain, OK);
        }
        bed.collect();
        assert_eq!(bed.room(), ROOM);
        Ok(())
    }

    #[test]
    fn clean_up_for_which_a_task_sleeps_is_told_by_an_interrupt() -> Result {
        let (plain, records) = (Plain::new(&OPTIONS)?, Records::new(COUNT)?);
        let mut bed = Bed::new(&plain, &records)?;
        let generation = bed.queue.generation();
        for awaited in [false, true] {
            let ends = Ends::new()?;
            let keep = Note {
                ends: ends.clone(),
                awaited,
            };
            bed.queue.submit_cleanup(
                CleanupNode::new(GFP_KERNEL)?,
                generation,
                wire::resource_detach_backing(1),
                Some(keep),
            );
            bed.queue.publish();
            let chains = bed.take()?;
            bed.answer(&chains[0], OK);
            assert_eq!(bed.device.interrupts(), awaited);
            bed.collect();
            assert_eq!(ends.counts(), (1, 0, 0));
            bed.tidy();
        }
        Ok(())
    }

    #[test]
    fn ring_full_of_fences_leaves_a_place_to_ask_whether_the_device_lives() -> Result {
        let (plain, records) = (Plain::new(&OPTIONS)?, Records::new(COUNT)?);
        let mut bed = Bed::new(&plain, &records)?;
        let timeline = Timeline::new(7);
        for _ in 0..ROOM {
            bed.fenced(&timeline)?;
        }
        assert_eq!(bed.take()?.len(), PLACES);
        let sight = bed.queue.look(100);
        assert_eq!((sight.in_flight, sight.oldest_plain), (PLACES, None));

        let reply = Reply::with(None)?;
        bed.queue
            .ask(Command::new(wire::get_display_info()).reply(reply.clone()));
        bed.queue.publish();
        assert_eq!(bed.queue.look(100).oldest_plain, Some(100));
        let chains = bed.take()?;
        assert_eq!(chains.len(), 1);
        assert_eq!(bed.request(&chains[0])[0], 0x100);
        bed.answer(&chains[0], OK);
        bed.collect();
        assert_eq!(reply.poll(), Some(Ok(())));
        assert_eq!(bed.queue.look(100).oldest_plain, None);

        bed.queue.leave(Phase::Gone);
        bed.queue.abandon(ENODEV);
        bed.collect();
        Ok(())
    }

    #[test]
    fn each_command_ends_once_and_in_order_whatever_happens() -> Result {
        for_each_seed("virtio_control", |rng| {
            let (plain, records) = (Plain::new(&OPTIONS)?, Records::new(COUNT)?);
            let mut bed = Bed::new(&plain, &records)?;
            let ends = Ends::new()?;
            let timelines = [Timeline::new(1), Timeline::new(2)];
            let mut flying: KVec<Chain> = KVec::new();
            // The fences of each timeline, first to last.
            let mut fences: [KVec<FenceRef>; 2] = [KVec::new(), KVec::new()];
            let mut kept = 0;
            for _ in 0..3000 {
                match rng.below(9) {
                    0..=3 => {
                        if bed.room() == 0 {
                            continue;
                        }
                        let which = rng.below(2) as usize;
                        let slot = Fence::prealloc(GFP_KERNEL)?;
                        let mut arg = FenceArg::new(slot, &timelines[which]);
                        if rng.chance(3) {
                            arg = arg.on_response();
                        }
                        let mut command = Command::new(wire::submit_3d(1, 0)).fence(arg);
                        if rng.chance(2) {
                            command = command.keep(Note::new(&ends));
                            kept += 1;
                        }
                        let fence = bed.submit(command).ok_or(EINVAL)?;
                        fences[which].push(fence, GFP_KERNEL)?;
                    }
                    4 => {
                        let node = CleanupNode::new(GFP_KERNEL)?;
                        let generation = bed.queue.generation();
                        let keep = Some(Note::new(&ends));
                        let request = wire::resource_unref(1);
                        bed.queue.submit_cleanup(node, generation, request, keep);
                        bed.queue.publish();
                        kept += 1;
                    }
                    5 | 6 => {
                        for chain in bed.take()? {
                            flying.push(chain, GFP_KERNEL)?;
                        }
                        if !flying.is_empty() {
                            let at = rng.below(flying.len() as u64) as usize;
                            let chain = flying.remove(at)?;
                            let kind = if rng.chance(4) { ERR_OUT_OF_MEMORY } else { OK };
                            bed.answer(&chain, kind);
                        }
                    }
                    7 => bed.collect(),
                    _ if rng.chance(60) => {
                        bed.queue.leave(Phase::Resetting);
                        bed.queue.abandon(EIO);
                        bed.collect();
                        flying.clear();
                        bed.device = Peer::new(&plain, &OPTIONS, 0);
                        bed.queue.start();
                    }
                    _ => {
                        bed.tidy();
                    }
                }
                for fences in &fences {
                    let pending = |f: &FenceRef| f.status() == FenceStatus::Pending;
                    let first = fences.iter().position(pending).unwrap_or(fences.len());
                    assert!(fences[first..].iter().all(pending));
                }
                for fences in &mut fences {
                    if fences.len() > 64 {
                        fences.retain(|f| f.status() == FenceStatus::Pending);
                    }
                }
            }
            bed.queue.leave(Phase::Gone);
            bed.queue.abandon(ENODEV);
            bed.collect();
            bed.tidy();
            for fences in &fences {
                assert!(fences.iter().all(|f| f.status() != FenceStatus::Pending));
            }
            let (done, failed, dropped) = ends.counts();
            assert!(done + failed == kept && dropped == kept);
            Ok(())
        })
    }
}
