// SPDX-License-Identifier: GPL-2.0

//! [`Queue`]: records, the order in which they are sent, and what becomes of them.
//!
//! No call sleeps, allocates or fails; whoever calls has the queue's lock. What must not be done
//! with the lock held is handed out: fences to signal in a [`Batch`], things to drop as [`Dead`],
//! whether to notify the device.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    memory::{
        RecordMemory,
        ANSWER_BYTES, //
    },
    CleanupNode,
    Command,
    FenceArg,
    Kept,
    Node,
    Reply,
    SMALL, //
};
use crate::{
    ext::{
        dma_fence::{
            Fence,
            FenceRef,
            WantSignal, //
        },
        drm_event::Event, //
    },
    virtio::{
        buffers::{
            DmaBuf,
            PIECES_MAX, //
        },
        fences::{
            self,
            Index,
            Order,
            NONE, //
        },
        vring::{
            RingError,
            RingMemory,
            Segment,
            Slot,
            Vring, //
        },
        wire, //
    },
};

/// Segments of the longest chain: request, payload, answer.
pub(in crate::virtio) const SEGMENTS_MAX: usize = 1 + PIECES_MAX + 1;
/// Each time so many commands were submitted as one of so many of the ring's places, answers are taken
/// although nobody waits for them. Not more often: the device may be slow, and looking costs.
const REAP_SHARE: u64 = 8;
/// Who waits for room waits until one of so many commands in flight is over.
const STRIDE_SHARE: u32 = 8;
/// Places in the ring that only [`Queue::ask`] uses, so that a ring full of fences does not look like
/// a silent device.
const KEPT_PLACES: usize = 1;
/// One record of so many is for clean-up only.
const CLEANUP_SHARE: usize = 8;

/// Whether there is a device to send to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::virtio) enum Phase {
    /// Yes.
    Running,
    /// It is being reset and set up again.
    Resetting,
    /// It was given up, or is being unbound.
    Gone,
}

/// The state of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// On the list of free ones.
    Free,
    /// Waits for a place in the ring.
    Staged,
    /// The device has it.
    Sent,
    /// Answered; over when the fences before it are.
    Answered,
    /// Over, and on the list of those whose outcome has to be told.
    Over,
    /// On the list of those that keep something that has to be dropped.
    Dead,
}

/// A command in flight.
struct Record<K> {
    state: State,
    /// The next one on the list that its state says.
    next: Index,
    /// Its place among all commands.
    order: u64,
    fence: Option<Fence>,
    event: Option<Event>,
    keep: Option<K>,
    reply: Option<Arc<Reply>>,
    payload: Option<DmaBuf>,
    /// Where it came from, if it is for clean-up.
    node: Option<KBox<Node<K>>>,
    result: Result,
    /// The device answers it as soon as it sees it: it has no fence on the wire.
    plain: bool,
    /// Somebody waits for it.
    wanted: bool,
    /// Plain ones that were sent before it.
    plain_before: u32,
    /// The queue's clock when it was sent.
    sent_at: u32,
    kind: u32,
    /// Of the request.
    bytes: u32,
}

/// A list of records through [`Record::next`], first in, first out.
#[derive(Clone, Copy)]
struct List {
    head: Index,
    tail: Index,
}

impl List {
    const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
    };

    fn push<K>(&mut self, records: &mut [Record<K>], index: Index) {
        if let Some(record) = records.get_mut(usize::from(index)) {
            record.next = NONE;
        }
        match records.get_mut(usize::from(self.tail)) {
            Some(last) if self.head != NONE => last.next = index,
            _ => self.head = index,
        }
        self.tail = index;
    }

    fn pop<K>(&mut self, records: &mut [Record<K>]) -> Option<Index> {
        let index = self.head;
        self.head = records.get_mut(usize::from(index))?.next;
        Some(index)
    }
}

/// Nodes in the order in which they came. Two stacks, so that it needs no pointer to the last.
struct Nodes<K> {
    front: Option<KBox<Node<K>>>,
    back: Option<KBox<Node<K>>>,
}

impl<K> Nodes<K> {
    fn push(&mut self, mut node: KBox<Node<K>>) {
        node.next = self.back.take();
        self.back = Some(node);
    }

    fn first(&mut self) -> Option<&Node<K>> {
        if self.front.is_none() {
            while let Some(mut node) = self.back.take() {
                self.back = node.next.take();
                node.next = self.front.take();
                self.front = Some(node);
            }
        }
        self.front.as_deref()
    }

    fn pop(&mut self) -> Option<KBox<Node<K>>> {
        self.first()?;
        let mut node = self.front.take()?;
        self.front = node.next.take();
        Some(node)
    }
}

impl<K> Drop for Nodes<K> {
    fn drop(&mut self) {
        // One by one, not each inside the one before it.
        while self.pop().is_some() {}
    }
}

/// How many outcomes are told in one go. Few, since each call clears the places for them.
const BATCH: usize = 8;

/// A fence that is to be signalled.
struct Outcome {
    fence: Fence,
    event: Option<Event>,
    result: Result,
}

/// Fences to signal without the queue's lock.
pub(in crate::virtio) struct Batch {
    outcomes: [Option<Outcome>; BATCH],
    len: usize,
}

impl Batch {
    /// None.
    pub(in crate::virtio) fn new() -> Self {
        Self {
            outcomes: [const { None }; BATCH],
            len: 0,
        }
    }

    /// Whether there is none.
    pub(in crate::virtio) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn is_full(&self) -> bool {
        self.len == BATCH
    }

    fn push(&mut self, outcome: Outcome) {
        if let Some(place) = self.outcomes.get_mut(self.len) {
            *place = Some(outcome);
            self.len += 1;
        }
    }

    /// Signals them in order, and leaves none.
    pub(in crate::virtio) fn signal(&mut self) {
        for place in self.outcomes.iter_mut().take(self.len) {
            if let Some(outcome) = place.take() {
                outcome.fence.signal(outcome.result);
                if let Some(mut event) = outcome.event {
                    event.send();
                }
            }
        }
        self.len = 0;
    }
}

/// Something to drop in process context, without the lock.
pub(in crate::virtio) struct Dead<K> {
    _keep: Option<K>,
    _node: Option<KBox<Node<K>>>,
}

/// What the queue needs of the device. Goes away before everything else does.
pub(in crate::virtio) struct Hardware<R: RingMemory, S> {
    /// The ring.
    pub(in crate::virtio) ring: Vring<R>,
    /// The device's part of the records.
    pub(in crate::virtio) memory: S,
}

/// The control queue.
pub(in crate::virtio) struct Queue<R: RingMemory, S, K> {
    hardware: Option<KBox<Hardware<R, S>>>,
    /// Who calls [`Self::want`] when somebody waits for a fence; with [`None`] somebody always does.
    maker: Option<Arc<dyn WantSignal>>,
    phase: Phase,
    /// What was sent before [`Self::phase`] was last left is over: the device was reset.
    quiet: bool,
    generation: u64,
    records: KVec<Record<K>>,
    order: Order,
    /// Which record is in a slot of the ring.
    in_slot: KVec<Index>,
    free: Index,
    free_count: usize,
    /// Free records for which somebody has room.
    promised: usize,
    staged: List,
    over: List,
    dead: List,
    /// Nodes that have to be sent, and those that were not and have to be dropped.
    cleanups: Nodes<K>,
    unsent: Nodes<K>,

    last_order: u64,
    /// [`Self::last_order`] when answers were taken for the last time.
    collected_at: u64,
    last_fence: u64,
    plain_sent: u32,
    plain_answered: u32,
    /// Commands that the device has answered.
    popped: u32,
    /// Commands that the device has.
    in_flight: usize,
    /// Of those, how many somebody waits for.
    wanted: usize,
    /// Tasks that wait for room.
    waiting: usize,
    /// What [`Self::popped`] has to be for the next interrupt.
    target: u32,
    armed: bool,
    /// There is something to collect now.
    hot: bool,
    /// Somebody tells outcomes; only one may at a time, or they could get out of order.
    collecting: bool,
    again: bool,
    broken: Option<RingError>,
    /// Errors that the device answered.
    refused: u64,
    /// A clock that the worker sets.
    clock: u32,
    /// The worker looks after the queue.
    watched: bool,
    /// What is submitted does not wait its turn.
    urgent: bool,
}

/// What the worker sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::virtio) struct Sight {
    /// Commands that the device has answered so far, modulo 2^32.
    pub(in crate::virtio) answered: u32,
    /// Commands that it has.
    pub(in crate::virtio) in_flight: usize,
    /// Commands and nodes that wait for a place.
    pub(in crate::virtio) staged: bool,
    /// Things that wait to be dropped.
    pub(in crate::virtio) dead: bool,
    /// The clock's time since the oldest plain one was sent.
    pub(in crate::virtio) oldest_plain: Option<u32>,
}

impl<R: RingMemory, S: RecordMemory, K: Kept> Queue<R, S, K> {
    /// How many records a ring with `slots` places should have.
    pub(in crate::virtio) fn records_for(slots: usize) -> usize {
        (slots * 2).clamp(16, usize::from(NONE) - 1)
    }

    /// A queue with `count` records, which `hardware` has memory for.
    pub(in crate::virtio) fn new(hardware: KBox<Hardware<R, S>>, count: usize) -> Result<Self> {
        let mut records = KVec::with_capacity(count, GFP_KERNEL)?;
        for index in 1..=count {
            let next = if index == count {
                NONE
            } else {
                Index::try_from(index)?
            };
            records.push(Record::vacant(next), GFP_KERNEL)?;
        }
        let slots = hardware.ring.slots();
        Ok(Self {
            in_slot: KVec::from_elem(NONE, slots, GFP_KERNEL)?,
            hardware: Some(hardware),
            maker: None,
            phase: Phase::Resetting,
            quiet: true,
            generation: 1,
            records,
            order: Order::new(count)?,
            free: 0,
            free_count: count,
            promised: 0,
            staged: List::EMPTY,
            over: List::EMPTY,
            dead: List::EMPTY,
            cleanups: Nodes {
                front: None,
                back: None,
            },
            unsent: Nodes {
                front: None,
                back: None,
            },
            last_order: 0,
            collected_at: 0,
            last_fence: 0,
            plain_sent: 0,
            plain_answered: 0,
            popped: 0,
            in_flight: 0,
            wanted: 0,
            waiting: 0,
            target: 0,
            armed: false,
            hot: false,
            collecting: false,
            again: false,
            broken: None,
            refused: 0,
            clock: 0,
            watched: false,
            urgent: false,
        })
    }

    /// From now on `maker` is told when somebody waits for a fence. Returns who was before, which is
    /// to be dropped without the lock.
    pub(in crate::virtio) fn set_maker(
        &mut self,
        maker: Option<Arc<dyn WantSignal>>,
    ) -> Option<Arc<dyn WantSignal>> {
        core::mem::replace(&mut self.maker, maker)
    }

    /// Whether there is a device.
    pub(in crate::virtio) fn phase(&self) -> Phase {
        self.phase
    }

    /// How often the device was set up.
    pub(in crate::virtio) fn generation(&self) -> u64 {
        self.generation
    }

    /// Tries to get room for `count` commands.
    pub(in crate::virtio) fn take_room(&mut self, count: usize) -> bool {
        let kept = self.records.len() / CLEANUP_SHARE;
        let fits = self.free_count >= self.promised + count + kept;
        if fits {
            self.promised += count;
        }
        fits
    }

    /// Gives back room.
    pub(in crate::virtio) fn give_room(&mut self, count: usize) {
        self.promised = self.promised.saturating_sub(count);
    }

    /// Room for a command of the driver's own, out of what is kept for clean-up.
    pub(in crate::virtio) fn take_last_room(&mut self) -> bool {
        let fits = self.free_count > self.promised;
        if fits {
            self.promised += 1;
        }
        fits
    }

    /// A task begins, or ends, to wait for room.
    pub(in crate::virtio) fn wait_for_room(&mut self, waits: bool) {
        if waits {
            self.waiting += 1;
            self.set_target(self.popped.wrapping_add(self.stride()));
        } else {
            self.waiting = self.waiting.saturating_sub(1);
        }
    }

    /// Whether tasks wait for room.
    pub(in crate::virtio) fn is_waited_for(&self) -> bool {
        self.waiting != 0
    }

    /// Whether there is something to collect, so far as the queue knows. Says so once.
    pub(in crate::virtio) fn take_hot(&mut self) -> bool {
        core::mem::replace(&mut self.hot, false)
    }

    /// Whether the worker has to be told that there is something to look after. Says so once.
    pub(in crate::virtio) fn take_unwatched(&mut self) -> bool {
        self.phase != Phase::Gone && !core::mem::replace(&mut self.watched, true)
    }

    /// Whether the worker shall look again.
    pub(in crate::virtio) fn keep_watching(&self) -> bool {
        self.phase != Phase::Gone && self.watched
    }

    /// Sends a command of the driver's own, before those that are staged: there is a place for it,
    /// except while it is out already. Does nothing if there is none.
    pub(in crate::virtio) fn ask(&mut self, command: Command<'_, K>) {
        if self.phase != Phase::Running || self.free_places() == 0 || !self.take_last_room() {
            return;
        }
        self.urgent = true;
        self.submit(self.generation, command);
        self.urgent = false;
    }

    fn free_places(&self) -> usize {
        self.hardware
            .as_ref()
            .map_or(0, |hardware| hardware.ring.free())
    }

    fn record(&mut self, index: Index) -> Option<&mut Record<K>> {
        self.records.get_mut(usize::from(index))
    }

    fn take_free(&mut self) -> Option<Index> {
        let index = self.free;
        self.free = self.record(index)?.next;
        self.free_count -= 1;
        Some(index)
    }

    fn put_free(&mut self, index: Index) {
        let next = self.free;
        if let Some(record) = self.record(index) {
            record.state = State::Free;
            record.next = next;
            self.free = index;
            self.free_count += 1;
        }
    }

    fn next_order(&mut self) -> u64 {
        self.last_order += 1;
        self.last_order
    }

    /// The error for what cannot be sent.
    fn refusal(&self, generation: u64) -> Result {
        match self.phase {
            Phase::Gone => Err(ENODEV),
            _ if generation != self.generation => Err(EIO),
            Phase::Running => Ok(()),
            Phase::Resetting => Err(EIO),
        }
    }

    /// Puts a command, for which there is room in `generation`, behind all others. Returns its
    /// fence. What the device does not get is over at once, to be collected.
    pub(in crate::virtio) fn submit(
        &mut self,
        generation: u64,
        mut command: Command<'_, K>,
    ) -> Option<FenceRef> {
        self.promised = self.promised.saturating_sub(1);
        let order = self.next_order();
        let verdict = self.refusal(generation);
        // There is one: it was promised.
        let index = self.take_free()?;

        let mut seen = None;
        let mut plain = true;
        let mut wanted = command.reply.is_some();
        // A program that waits for an event does not wait for the fence.
        let polled = |arg: &FenceArg<'_>| arg.event.is_some();
        wanted |= command.fence.as_ref().is_some_and(polled);
        let (mut fence, mut event) = (None, None);
        if let Some(arg) = command.fence.take() {
            let FenceArg {
                slot,
                timeline,
                ring,
                event: given,
                on_response,
            } = arg;
            let (context, seqno) = (timeline.context(), timeline.next_seqno());
            let made = match &self.maker {
                Some(maker) => {
                    let cookie = cookie(index, order);
                    slot.init_on_demand(fences::NAME, context, seqno, maker.clone(), cookie)
                }
                None => {
                    wanted = true;
                    slot.init(fences::NAME, context, seqno)
                }
            };
            seen = Some(made.reference());
            fence = Some(made);
            event = given;
            self.order.join(index, timeline, order);
            if !on_response {
                plain = false;
                self.last_fence += 1;
                command.request.set_fence(self.last_fence, ring);
            }
        }
        if let Some(record) = self.records.get_mut(usize::from(index)) {
            // Field by field, since each of them is large and most are empty.
            record.state = State::Staged;
            record.next = NONE;
            record.order = order;
            record.fence = fence;
            record.event = event;
            record.keep = command.keep.take();
            record.reply = command.reply.take();
            record.payload = command.payload.take();
            record.result = Ok(());
            record.plain = plain;
            record.wanted = wanted;
            record.kind = command.request.kind();
            record.bytes = command.request.bytes();
        }
        if verdict.is_err() {
            self.end(index, verdict);
            return seen;
        }
        if let Some(hardware) = &self.hardware {
            hardware
                .memory
                .write_request(index.into(), &command.request);
        }
        if self.urgent || (self.nothing_staged() && self.free_places() > KEPT_PLACES) {
            self.send(index);
        } else {
            self.staged.push(&mut self.records, index);
        }
        seen
    }

    /// Sends what must not fail, behind all others, when there is a record for it. What the device
    /// of today does not know of needs no clean-up; but what is kept stays until the device of
    /// before was reset, as it may still use it.
    pub(in crate::virtio) fn submit_cleanup(
        &mut self,
        node: CleanupNode<K>,
        generation: u64,
        request: wire::Request,
        keep: Option<K>,
    ) {
        let CleanupNode(mut node) = node;
        node.order = self.next_order();
        node.keep = keep;
        if self.refusal(generation).is_err() {
            if !self.quiet {
                // `abandon` goes on with it.
                self.cleanups.push(node);
                return;
            }
            if let Some(keep) = &node.keep {
                keep.done(Ok(()));
            }
            self.unsent.push(node);
            return;
        }
        node.request = Some(request);
        self.cleanups.push(node);
        self.pump();
    }

    fn nothing_staged(&mut self) -> bool {
        self.staged.head == NONE && self.cleanups.first().is_none()
    }

    /// Sends what is staged, as far as there are places.
    pub(in crate::virtio) fn pump(&mut self) {
        if self.phase != Phase::Running {
            return;
        }
        while self.free_places() > KEPT_PLACES {
            let staged = self.records.get(usize::from(self.staged.head));
            let staged = staged.map_or(u64::MAX, |record| record.order);
            let cleanup = self.cleanups.first().map_or(u64::MAX, |node| node.order);
            if staged < cleanup {
                if let Some(index) = self.staged.pop(&mut self.records) {
                    self.send(index);
                }
            } else if cleanup == u64::MAX || self.free_count <= self.promised {
                return;
            } else {
                self.send_cleanup();
            }
        }
    }

    fn send_cleanup(&mut self) {
        let Some(mut node) = self.cleanups.pop() else {
            return;
        };
        let Some((index, request)) = self.take_free().zip(node.request) else {
            return;
        };
        if let Some(hardware) = &self.hardware {
            hardware.memory.write_request(index.into(), &request);
        }
        if let Some(record) = self.record(index) {
            *record = Record {
                state: State::Staged,
                order: node.order,
                wanted: node.keep.as_ref().is_some_and(K::is_awaited),
                keep: node.keep.take(),
                node: Some(node),
                kind: request.kind(),
                bytes: request.bytes(),
                ..Record::vacant(NONE)
            };
        }
        self.send(index);
    }

    /// Puts a record, whose request is written, into the ring, which has a place.
    fn send(&mut self, index: Index) {
        let sent = match self.push(index) {
            Ok(slot) => {
                if let Some(place) = self.in_slot.get_mut(slot.index()) {
                    *place = index;
                }
                true
            }
            // No place after all.
            Err(EBUSY) => {
                self.staged.push(&mut self.records, index);
                return;
            }
            Err(error) => {
                self.end(index, Err(error));
                false
            }
        };
        if !sent {
            return;
        }
        let (plain_sent, clock) = (self.plain_sent, self.clock);
        let Some(record) = self.record(index) else {
            return;
        };
        record.state = State::Sent;
        record.plain_before = plain_sent;
        record.sent_at = clock;
        let (plain, wanted) = (record.plain, record.wanted);
        self.in_flight += 1;
        if plain {
            self.plain_sent = plain_sent.wrapping_add(1);
        }
        if wanted {
            self.wanted += 1;
            self.aim_at(plain_sent);
        }
    }

    /// [`EBUSY`]: the ring has no place. [`E2BIG`]: the ring has no chain so long.
    fn push(&mut self, index: Index) -> Result<Slot> {
        let hardware = self.hardware.as_mut().ok_or(ENODEV)?;
        let record = self.records.get(usize::from(index)).ok_or(EINVAL)?;
        let memory = &hardware.memory;
        let request = Segment {
            addr: memory.request_addr(index.into()),
            len: record.bytes,
        };
        let answer = Segment {
            addr: memory.answer_addr(index.into()),
            len: ANSWER_BYTES,
        };
        let slot = hardware.ring.claim().ok_or(EBUSY)?;
        let reply = record.reply.as_ref().and_then(|reply| reply.buf());
        let single = record.payload.as_ref().and_then(DmaBuf::single);
        let pushed = match (&record.payload, single, reply) {
            // The usual ones, without a list.
            (None, _, None) => hardware.ring.push(slot, &[request], &[answer]),
            (_, Some(payload), None) => {
                let readable = [request, payload];
                hardware.ring.push(slot, &readable, &[answer])
            }
            (payload, _, reply) => {
                let mut chain = Chain::new();
                chain.push(request);
                let payload = payload.iter().flat_map(DmaBuf::segments);
                payload.for_each(|segment| chain.push(segment));
                let middle = chain.len;
                match reply {
                    Some(buf) => buf.segments().for_each(|segment| chain.push(segment)),
                    None => chain.push(answer),
                }
                let (readable, writable) = chain.split(middle);
                hardware.ring.push(slot, readable, writable)
            }
        };
        pushed.map(|()| slot).map_err(|_| {
            hardware.ring.release(slot);
            E2BIG
        })
    }

    /// Shows the device what was sent. Returns whether it has to be notified.
    pub(in crate::virtio) fn publish(&mut self) -> bool {
        let Some(hardware) = &mut self.hardware else {
            return false;
        };
        // Whoever sends much takes the answers, so that there is always a place and payloads go back
        // to their pool.
        let since = self.last_order - self.collected_at;
        if since * REAP_SHARE > hardware.ring.slots() as u64 {
            self.hot = true;
        }
        hardware.ring.publish()
    }

    /// Somebody waits for the fence that was made with `cookie`.
    pub(in crate::virtio) fn want_cookie(&mut self, cookie: u64) {
        // CAST: The lowest 16 bits; see `cookie`.
        self.want(cookie as Index, cookie >> Index::BITS);
    }

    /// Somebody waits for the record, if it is the one that was number `order`.
    fn want(&mut self, index: Index, order: u64) {
        let Some(record) = self.record(index) else {
            return;
        };
        if record.order != order || record.wanted {
            return;
        }
        let before = record.plain_before;
        match record.state {
            State::Staged => record.wanted = true,
            State::Sent => {
                record.wanted = true;
                self.wanted += 1;
                self.aim_at(before);
            }
            State::Answered => self.want_before(index),
            State::Free | State::Over | State::Dead => {}
        }
    }

    /// Somebody waits for a record that was answered and comes after others: so for those.
    fn want_before(&mut self, mut index: Index) {
        for _ in 0..self.records.len() {
            index = self.order.before(index);
            let Some(record) = self.record(index) else {
                return;
            };
            if record.state != State::Answered {
                let order = record.order;
                return self.want(index, order);
            }
        }
    }

    /// How many commands have to be over for somebody who waits for room: not each single one, or each
    /// would cost an interrupt and a switch of context. (If they take long, the worker is faster.)
    fn stride(&self) -> u32 {
        // CAST: Fewer than there are records.
        (self.in_flight as u32 / STRIDE_SHARE).max(1)
    }

    /// Asks for an interrupt when the plain ones before the record are answered and one more.
    fn aim_at(&mut self, plain_before: u32) {
        let before = plain_before.wrapping_sub(self.plain_answered);
        self.set_target(self.popped.wrapping_add(before).wrapping_add(1));
    }

    fn set_target(&mut self, target: u32) {
        let (new, old) = (
            target.wrapping_sub(self.popped),
            self.target.wrapping_sub(self.popped),
        );
        if !self.armed || new < old {
            self.target = target;
            if self.arm() {
                self.hot = true;
            }
        }
    }

    /// Asks for the next interrupt. Returns whether what it would tell of is there already.
    fn arm(&mut self) -> bool {
        let ahead = self.target.wrapping_sub(self.popped);
        let Some(hardware) = &mut self.hardware else {
            return false;
        };
        self.armed = true;
        // CAST: 1 to 65535.
        hardware
            .ring
            .arm(ahead.clamp(1, u32::from(u16::MAX)) as u16)
    }

    /// Asks for the next interrupt if somebody waits, or for none. Returns whether there is
    /// something to collect already.
    fn rearm(&mut self) -> bool {
        if self.wanted == 0 && self.waiting == 0 {
            if core::mem::replace(&mut self.armed, false) {
                if let Some(hardware) = &mut self.hardware {
                    hardware.ring.disarm();
                }
            }
            return false;
        }
        // The next one, if what was aimed at has come and somebody still waits.
        let ahead = self.target.wrapping_sub(self.popped);
        if ahead == 0 || ahead > u32::from(u16::MAX) || ahead as usize > self.in_flight {
            let stride = if self.wanted == 0 { self.stride() } else { 1 };
            self.target = self.popped.wrapping_add(stride);
        }
        self.arm()
    }

    /// Begins to collect. Nobody else may until [`Self::stop_collecting`]; who tries is noted.
    pub(in crate::virtio) fn start_collecting(&mut self) -> bool {
        if self.collecting {
            self.again = true;
            return false;
        }
        self.collecting = true;
        true
    }

    /// Whether somebody collects.
    pub(in crate::virtio) fn is_collecting(&self) -> bool {
        self.collecting
    }

    /// Ends what [`Self::start_collecting`] began, unless somebody else has tried meanwhile.
    pub(in crate::virtio) fn stop_collecting(&mut self, force: bool) -> bool {
        if !force && core::mem::replace(&mut self.again, false) {
            return false;
        }
        self.collecting = false;
        true
    }

    /// Takes answers from the device, until there is none or the batch is full; then what is staged
    /// goes out. Returns whether there is more.
    pub(in crate::virtio) fn collect(&mut self, batch: &mut Batch) -> bool {
        self.again = false;
        self.hot = false;
        self.collected_at = self.last_order;
        // Each turn but the last tells of a record or takes one from the ring.
        for _ in 0..2 * self.records.len() {
            if self.over.head != NONE {
                if batch.is_full() {
                    return true;
                }
                self.tell(batch);
                continue;
            }
            let Some(hardware) = &mut self.hardware else {
                return false;
            };
            match hardware.ring.pop() {
                Ok(Some(used)) => {
                    let index = self.in_slot.get(used.slot.index()).copied();
                    self.take_answer(index.unwrap_or(NONE), used.written);
                }
                Ok(None) => {
                    self.pump();
                    self.hot = false;
                    return self.rearm();
                }
                Err(error) => {
                    self.broken = Some(error);
                    return false;
                }
            }
        }
        true
    }

    /// What is wrong with the ring, if something is.
    pub(in crate::virtio) fn broken(&self) -> Option<RingError> {
        self.broken
    }

    fn take_answer(&mut self, index: Index, written: u32) {
        self.popped = self.popped.wrapping_add(1);
        let Some(hardware) = &self.hardware else {
            return;
        };
        let memory = &hardware.memory;
        let Some(record) = self.records.get_mut(usize::from(index)) else {
            return;
        };
        let mut words = [0; SMALL / 4];
        let kind = match record.reply.as_ref().map(|reply| reply.buf()) {
            Some(Some(buf)) => {
                let mut kind = [0; 4];
                match buf.read(0, &mut kind) {
                    Ok(()) => u32::from_le_bytes(kind),
                    Err(_) => 0,
                }
            }
            Some(None) => {
                words = memory.answer_body(index.into());
                memory.answer_kind(index.into())
            }
            None => memory.answer_kind(index.into()),
        };
        let result = wire::outcome(kind, written);
        if let Some(reply) = record.reply.take() {
            // CAST: A header has 24 bytes.
            let body = written.saturating_sub(wire::HEADER_BYTES as u32);
            reply.finish(result, body, words);
        }
        if result.is_err() {
            self.refused += 1;
            let asked = record.kind;
            // Whoever sent it is told; this is for who wonders why.
            pr_debug!("virtio_gpu: command {asked:#x} answered with {kind:#x}\n");
        }
        self.end(index, result);
    }

    /// The device has answered a record, or will not.
    fn end(&mut self, index: Index, result: Result) {
        let Some(record) = self.records.get_mut(usize::from(index)) else {
            return;
        };
        let state = core::mem::replace(&mut record.state, State::Answered);
        if state == State::Sent {
            self.in_flight = self.in_flight.saturating_sub(1);
            if record.plain {
                self.plain_answered = self.plain_answered.wrapping_add(1);
            }
            if record.wanted {
                self.wanted = self.wanted.saturating_sub(1);
            }
        }
        if let (Some(reply), Err(_)) = (record.reply.take(), result) {
            reply.finish(result, 0, [0; SMALL / 4]);
        }
        let Self {
            order,
            records,
            over,
            ..
        } = self;
        order.answer(index, result, |index, result| {
            if let Some(record) = records.get_mut(usize::from(index)) {
                record.state = State::Over;
                record.result = result;
            }
            over.push(records, index);
        });
        if self.over.head != NONE {
            self.hot = true;
        }
        let waits = |record: &Record<K>| record.state == State::Answered && record.wanted;
        if self.records.get(usize::from(index)).is_some_and(waits) {
            self.want_before(index);
        }
    }

    /// Tells the outcome of the first record that is over.
    fn tell(&mut self, batch: &mut Batch) {
        let Some(index) = self.over.pop(&mut self.records) else {
            return;
        };
        let Some(record) = self.record(index) else {
            return;
        };
        let result = record.result;
        if let Some(keep) = &record.keep {
            keep.done(result);
        }
        record.payload = None;
        let event = record.event.take();
        if let Some(fence) = record.fence.take() {
            batch.push(Outcome {
                fence,
                event,
                result,
            });
        }
        // Empty by now, so it is only memory.
        record.node = None;
        if record.keep.as_ref().is_some_and(K::drops_anywhere) {
            record.keep = None;
        }
        if record.keep.is_some() {
            record.state = State::Dead;
            self.dead.push(&mut self.records, index);
        } else {
            self.put_free(index);
        }
    }

    /// Takes something that is to be dropped, in process context and without the lock.
    pub(in crate::virtio) fn take_dead(&mut self) -> Option<Dead<K>> {
        if let Some(index) = self.dead.pop(&mut self.records) {
            let record = self.record(index)?;
            let dead = Dead {
                _keep: record.keep.take(),
                _node: None,
            };
            self.put_free(index);
            self.pump();
            return Some(dead);
        }
        let node = self.unsent.pop()?;
        Some(Dead {
            _keep: None,
            _node: Some(node),
        })
    }

    /// Whether there is something to drop.
    pub(in crate::virtio) fn has_dead(&mut self) -> bool {
        self.dead.head != NONE || self.unsent.first().is_some()
    }

    /// Whether there is an outcome to tell or something to drop.
    pub(in crate::virtio) fn has_leftovers(&mut self) -> bool {
        self.over.head != NONE || self.has_dead()
    }

    /// Sets the clock on by `elapsed` and looks.
    pub(in crate::virtio) fn look(&mut self, elapsed: u32) -> Sight {
        self.clock = self.clock.wrapping_add(elapsed);
        let clock = self.clock;
        let plain = self
            .records
            .iter()
            .filter(|record| record.state == State::Sent && record.plain);
        let oldest_plain = match self.in_flight {
            0 => None,
            _ => plain.map(|r| clock.wrapping_sub(r.sent_at)).max(),
        };
        let sight = Sight {
            answered: self.popped,
            in_flight: self.in_flight,
            staged: !self.nothing_staged(),
            dead: self.has_leftovers(),
            oldest_plain,
        };
        // Whoever adds something from now on tells the worker.
        self.watched = sight.in_flight != 0 || sight.staged || sight.dead;
        sight
    }

    /// Takes note that the device is being reset or is gone: nothing is sent any more, and who waits
    /// for a reply need not wait longer. What the device has stays its own until [`Self::abandon`].
    pub(in crate::virtio) fn leave(&mut self, phase: Phase) {
        if self.phase == Phase::Gone {
            return;
        }
        if self.phase == Phase::Running && phase == Phase::Resetting {
            self.generation += 1;
        }
        if self.phase == Phase::Running {
            self.quiet = false;
        }
        self.phase = phase;
        let error = match phase {
            Phase::Gone => Err(ENODEV),
            Phase::Running | Phase::Resetting => Err(EIO),
        };
        for record in &self.records {
            if let Some(reply) = &record.reply {
                reply.finish(error, 0, [0; SMALL / 4]);
            }
        }
    }

    /// The device has forgotten all that was sent: ends it with `error`, to be collected.
    pub(in crate::virtio) fn abandon(&mut self, error: Error) {
        while let Some(index) = self.staged.pop(&mut self.records) {
            self.end(index, Err(error));
        }
        self.staged = List::EMPTY;
        for index in 0..self.records.len() {
            let sent = |record: &Record<K>| record.state == State::Sent;
            if self.records.get(index).is_some_and(sent) {
                // CAST: There are fewer than `NONE`.
                self.end(index as Index, Err(error));
            }
        }
        self.quiet = true;
        while let Some(node) = self.cleanups.pop() {
            if let Some(keep) = &node.keep {
                keep.done(Ok(()));
            }
            self.unsent.push(node);
        }
        self.plain_answered = self.plain_sent;
        self.armed = false;
        self.broken = None;
        if let Some(hardware) = &mut self.hardware {
            hardware.ring.reset();
        }
    }

    /// The device was set up: commands of this generation are sent.
    pub(in crate::virtio) fn start(&mut self) {
        if self.phase == Phase::Resetting {
            self.phase = Phase::Running;
        }
    }

    /// Takes what the queue needs of the device, which must have been reset. It is to be dropped in
    /// process context.
    pub(in crate::virtio) fn take_hardware(&mut self) -> Option<KBox<Hardware<R, S>>> {
        self.hardware.take()
    }

    /// The ring, to tell the device of it.
    pub(in crate::virtio) fn ring(&self) -> Option<&Vring<R>> {
        self.hardware.as_ref().map(|hardware| &hardware.ring)
    }
}

/// Names a record for as long as a command is in it.
fn cookie(index: Index, order: u64) -> u64 {
    order << Index::BITS | u64::from(index)
}

impl<K> Record<K> {
    /// A free one before `next`.
    fn vacant(next: Index) -> Self {
        Self {
            state: State::Free,
            next,
            order: 0,
            fence: None,
            event: None,
            keep: None,
            reply: None,
            payload: None,
            node: None,
            result: Ok(()),
            plain: true,
            wanted: false,
            plain_before: 0,
            sent_at: 0,
            kind: 0,
            bytes: 0,
        }
    }
}

/// The segments of a chain.
struct Chain {
    segments: [Segment; SEGMENTS_MAX],
    len: usize,
}

impl Chain {
    fn new() -> Self {
        Self {
            segments: [Segment { addr: 0, len: 0 }; SEGMENTS_MAX],
            len: 0,
        }
    }

    /// Beyond what there is room for, nothing is added, but counted.
    fn push(&mut self, segment: Segment) {
        if let Some(place) = self.segments.get_mut(self.len) {
            *place = segment;
        }
        self.len += 1;
    }

    /// The first `middle` segments and the others; none if there are too many.
    fn split(&self, middle: usize) -> (&[Segment], &[Segment]) {
        let used = self.segments.get(..self.len).unwrap_or(&[]);
        used.split_at_checked(middle).unwrap_or((&[], &[]))
    }
}
