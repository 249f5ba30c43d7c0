// SPDX-License-Identifier: GPL-2.0
//! Engines: hardware slots that hold queues, and which of them has the engine.
//!
//! ```text
//!   SLOT_COMMIT ─▶ bind ─▶ Queue in a slot ─▶ Engine::run ─ pick ─▶ Queue::run ─▶ fetch, decode (packet)
//!                                                                      │
//!                                                 exec: transfer, compute, semaphores, fences
//! ```
//!
//! - `bind`: from a descriptor in memory to a queue.
//! - `queue`: positions, control page, doorbell rule, from packet to packet.
//! - `packet`: what packets mean. `exec`, `transfer`: what they do, in bounded steps.
//! - `cx`: memory, translation and cycles of a piece of work.
//! - this file: slots, priorities, time slices, resets, hangs.
//!
//! All of it belongs to the scheduler, which calls one engine after the other; no lock. Nothing here
//! sleeps: a queue that waits is asked again at each quantum.

mod bind;
mod cx;
mod exec;
mod packet;
mod queue;
mod transfer;

pub use cx::Cx;
pub use cx::Units;
pub use packet::Dispatch;

use crate::compute::Compute;
use crate::front::Front;
use crate::hw::mem;
use crate::hw::regs;
use crate::hw::regs::IRQ_SLOT;
use crate::hw::regs::SLOTS_MAX;
use crate::hw::regs::VECTOR_ENGINE0;
use crate::judge::Rule;
use crate::memory::Mem;
use crate::regs::fields;
use crate::regs::Reg;
use crate::timing;
use crate::trace::What;
use queue::Queue;
use queue::State;

/// `ENG_STATUS.slot` of an engine that works for none.
const NO_SLOT: u32 = 0xff;

/// What an engine would do with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Rest,
    /// A queue waits on a semaphore, or hangs: time has to pass.
    Time,
    /// A queue waits for this board time.
    Until(u64),
    /// A queue can work.
    Work,
}

/// An engine.
pub struct Engine {
    index: usize,
    slots: Vec<Option<Box<Queue>>>,
    /// The slot that had the engine last.
    current: usize,
    /// What is left of its time slice in ns.
    slice_ns: u64,
    /// Cycles that the last quantum used too many.
    debt: u64,
    hung: bool,
    compute: Compute,
}

/// Publishes the state of the slot that `cx` works for.
fn publish_slot(cx: &Cx<'_>, queue: &Queue) {
    publish(cx.front, cx.engine, cx.slot, Some(queue));
}

fn publish(front: &Front, engine: usize, slot: usize, queue: Option<&Queue>) {
    let value = queue.map_or(fields::SLOT_STATUS::state.put(regs::SLOT_EMPTY), |queue| {
        fields::SLOT_STATUS::queue.put(u32::from(queue.id))
            | fields::SLOT_STATUS::error.put(queue.error())
            | fields::SLOT_STATUS::state.put(queue.slot_state())
    });
    front.set(Reg::SLOT_STATUS, engine * SLOTS_MAX + slot, value);
}

impl Engine {
    /// With `slots` empty slots.
    pub fn new(index: usize, slots: usize) -> Self {
        Self {
            index,
            slots: (0..slots).map(|_| None).collect(),
            current: 0,
            slice_ns: 0,
            debt: 0,
            hung: false,
            compute: Compute::default(),
        }
    }

    fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.slots.iter().flatten().map(|queue| &**queue)
    }

    /// Whether a slot holds the queue.
    pub fn holds(&self, id: u16) -> bool {
        self.queues().any(|queue| queue.id == id)
    }

    /// Ids of the queues that the slots hold.
    pub fn ids(&self) -> impl Iterator<Item = u16> + '_ {
        self.queues().map(|queue| queue.id)
    }

    /// Whether no slot holds a queue.
    pub fn is_empty(&self) -> bool {
        self.queues().next().is_none()
    }

    /// Makes the engine hang.
    pub fn hang(&mut self) {
        self.hung = true;
    }

    /// Makes a queue hang, if a slot holds it.
    pub fn set_queue_hung(&mut self, id: u16) {
        for queue in self
            .slots
            .iter_mut()
            .flatten()
            .filter(|queue| queue.id == id)
        {
            queue.hung = true;
        }
    }

    /// Nothing hangs any more.
    pub fn unhang(&mut self) {
        self.hung = false;
        for queue in self.slots.iter_mut().flatten() {
            queue.hung = false;
        }
    }

    /// What the engine would do with time at board time `now`.
    pub fn need(&self, gate_closed: bool, now: u64) -> Need {
        let mut need = Need::Rest;
        for queue in self.queues() {
            let hangs = self.hung || queue.hung;
            let wants = match queue.state {
                State::Ready if queue.runnable(gate_closed) && hangs => Need::Time,
                State::Ready if queue.runnable(gate_closed) => Need::Work,
                State::Waiting if gate_closed => Need::Rest,
                State::Waiting => match queue.waits_until() {
                    Some(time) if time.saturating_sub(now) <= timing::JUMP_MAX_NS => {
                        Need::Until(time)
                    }
                    _ => Need::Time,
                },
                _ => Need::Rest,
            };
            need = match (need, wants) {
                (Need::Work, _) | (_, Need::Work) => Need::Work,
                (Need::Time, _) | (_, Need::Time) => Need::Time,
                (Need::Until(a), Need::Until(b)) => Need::Until(a.min(b)),
                (Need::Until(a), _) | (_, Need::Until(a)) => Need::Until(a),
                (Need::Rest, Need::Rest) => Need::Rest,
            };
        }
        // What would get the engine hangs: then the others cannot work either.
        let hanging = |slot: usize| self.slots[slot].as_ref().is_some_and(|q| q.hung);
        if need == Need::Work && self.pick(gate_closed).is_some_and(hanging) {
            need = Need::Time;
        }
        need
    }

    /// Whether no queue is ready to work: it may be switched off.
    pub fn idle(&self) -> bool {
        self.queues().all(|queue| queue.state != State::Ready)
    }

    /// Board time that a waiting queue waits for, the earliest.
    pub fn wakes_at(&self) -> Option<u64> {
        self.queues().filter_map(Queue::waits_until).min()
    }

    /// The slot that gets the engine: the highest priority, then in turn.
    fn pick(&self, gate_closed: bool) -> Option<usize> {
        let n = self.slots.len();
        let runnable = |i: &usize| {
            let queue = self.slots.get(*i).and_then(Option::as_ref);
            queue.is_some_and(|queue| queue.runnable(gate_closed))
        };
        let priority = |i: usize| self.slots[i].as_ref().map_or(0, |queue| queue.priority);
        let best = (0..n).filter(runnable).map(priority).max()?;
        let in_turn = |i: &usize| runnable(i) && priority(*i) == best;
        if self.slice_ns != 0 && in_turn(&self.current) {
            return Some(self.current);
        }
        (self.current + 1..n).chain(0..=self.current).find(in_turn)
    }

    /// A doorbell was rung: one bit per queue id.
    pub fn ring(&mut self, cx: &mut Cx<'_>, doorbells: &[u64]) {
        for (slot, queue) in self.slots.iter_mut().enumerate() {
            let Some(queue) = queue else {
                continue;
            };
            let id = usize::from(queue.id);
            if doorbells
                .get(id / 64)
                .is_some_and(|word| (word >> (id % 64)) & 1 != 0)
            {
                cx.slot = slot;
                queue.awake(cx);
                publish_slot(cx, queue);
            }
        }
    }

    /// Asks waiting queues whether they can go on.
    pub fn poll(&mut self, cx: &mut Cx<'_>) {
        if self.hung {
            return;
        }
        for (slot, queue) in self.slots.iter_mut().enumerate() {
            if let Some(queue) = queue.as_mut().filter(|queue| !queue.hung) {
                cx.slot = slot;
                queue.poll(cx);
            }
        }
    }

    /// Puts the queue of a descriptor into a slot. `taken` says whether a queue id is in use.
    pub fn bind(&mut self, cx: &mut Cx<'_>, slot: usize, desc: u64, taken: impl Fn(u16) -> bool) {
        cx.slot = slot;
        let place = match self.slots.get_mut(slot) {
            Some(place @ None) => place,
            _ => return cx.front.judge.report(Rule::SlotState, slot as u64),
        };
        let Some(queue) = bind::read(cx.front, cx.mem, desc) else {
            return;
        };
        if taken(queue.id) {
            return cx.front.judge.report(Rule::QueueId, u64::from(queue.id));
        }
        let queue = place.insert(Box::new(queue));
        cx.trace(What::Bind);
        queue.bound(cx);
        publish_slot(cx, queue);
    }

    /// Asks the queue of a slot to leave; what can leave at once does.
    pub fn unbind(&mut self, cx: &mut Cx<'_>, slot: usize) {
        match self.slots.get_mut(slot) {
            Some(Some(queue)) if !queue.unbinding => {
                queue.unbinding = true;
                publish(cx.front, self.index, slot, Some(queue));
            }
            _ => return cx.front.judge.report(Rule::SlotState, slot as u64),
        }
        self.let_go(cx, slot);
    }

    /// Empties a slot whose queue is to leave and can.
    fn let_go(&mut self, cx: &mut Cx<'_>, slot: usize) {
        let hung = self.hung;
        let Some(place) = self.slots.get_mut(slot) else {
            return;
        };
        let ready = |queue: &mut Box<Queue>| queue.unbinding && queue.can_leave() && !hung;
        if let Some(mut queue) = place.take_if(ready) {
            cx.slot = slot;
            match queue.state {
                State::Faulted(_) => queue.dropped(cx),
                _ => queue.save(cx),
            }
            self.emptied(cx, slot);
        }
    }

    /// Empties every slot whose queue is to leave and can by now.
    pub fn release(&mut self, cx: &mut Cx<'_>) {
        for slot in 0..self.slots.len() {
            self.let_go(cx, slot);
        }
    }

    fn emptied(&mut self, cx: &mut Cx<'_>, slot: usize) {
        if slot == self.current {
            self.slice_ns = 0;
        }
        cx.slot = slot;
        cx.trace(What::Empty);
        publish(cx.front, self.index, slot, None);
        cx.front.irq.raise(VECTOR_ENGINE0 + self.index, IRQ_SLOT);
    }

    /// `ENG_RESET`. With the board hung nothing but its own reset helps.
    pub fn reset(&mut self, cx: &mut Cx<'_>, slots: u32, whole: bool, board_hung: bool) {
        let mut status = 0;
        if whole && board_hung {
            status |= fields::ENG_RESET_STATUS::engine_refused.put(1);
        } else if whole {
            self.hung = false;
            self.debt = 0;
            status |= fields::ENG_RESET_STATUS::engine_done.put(1);
        }
        let refused = board_hung || self.hung;
        let mask = if whole && !board_hung {
            (1 << self.slots.len()) - 1
        } else {
            slots
        };
        if refused {
            status |= fields::ENG_RESET_STATUS::slots_refused.put(slots);
        } else {
            status |= fields::ENG_RESET_STATUS::slots_done.put(slots);
        }
        for slot in 0..self.slots.len() {
            if refused || (mask >> slot) & 1 == 0 {
                continue;
            }
            cx.slot = slot;
            if let Some(mut queue) = self.slots[slot].take() {
                queue.dropped(cx);
                cx.trace(What::Empty);
            }
            if slot == self.current {
                self.slice_ns = 0;
            }
            publish(cx.front, self.index, slot, None);
        }
        cx.front.set(Reg::ENG_RESET_STATUS, self.index, status);
        cx.front.irq.raise(VECTOR_ENGINE0 + self.index, IRQ_SLOT);
    }

    /// Cycles owed from the last quantum.
    pub fn debt(&self) -> u64 {
        self.debt
    }

    /// Works until the cycles of `cx` are used or there is nothing to do. Ends early when packets
    /// asked for something (`cx.requests`): then it has to be called again.
    pub fn run(&mut self, cx: &mut Cx<'_>) {
        while cx.left() != 0 && cx.requests.is_empty() {
            let Some(slot) = self.pick(cx.gate_closed) else {
                break;
            };
            self.turn_to(cx, slot);
            let slice = timing::cycles(self.slice_ns, cx.units.core_khz).max(1);
            let (began, began_ns) = (cx.used(), cx.now());
            let until = began + slice.min(cx.left());
            let Some(Some(queue)) = self.slots.get_mut(slot) else {
                break;
            };
            cx.slot = slot;
            queue.begin(cx);
            if self.hung || queue.hung {
                cx.spend(until - began);
            } else {
                queue.run(cx, &mut self.compute, until);
            }
            queue.end(cx);
            publish_slot(cx, queue);
            let took = (cx.now() - began_ns).max(u64::from(cx.used() - began >= slice));
            self.slice_ns = self.slice_ns.saturating_sub(took);
            // A turn also ends when the queue has nothing to do or waits: what is left of it is
            // nobody's.
            if cx.used() - began >= slice || !queue.runnable(cx.gate_closed) {
                self.slice_ns = 0;
            }
            self.let_go(cx, slot);
        }
    }

    /// Gives the engine to a slot, with a new time slice if it did not have it or used it up.
    fn turn_to(&mut self, cx: &mut Cx<'_>, slot: usize) {
        if slot != self.current {
            let left = self.slots.get(self.current).and_then(Option::as_ref);
            let preempts = left.is_some_and(|queue| queue.runnable(cx.gate_closed));
            cx.spend(timing::SWITCH_CYCLES);
            cx.front.counters.engine(self.index, mem::CTR_SWITCHES, 1);
            if preempts {
                cx.spend(timing::PREEMPT_CYCLES);
                cx.front
                    .counters
                    .engine(self.index, mem::CTR_PREEMPTIONS, 1);
            }
            self.current = slot;
            self.slice_ns = 0;
            cx.slot = slot;
            cx.trace(What::Switch);
        }
        if self.slice_ns == 0 {
            self.slice_ns = self.slots[slot]
                .as_ref()
                .map_or(0, |queue| queue.quantum_ns);
        }
    }

    /// The quantum is over: `limit` cycles were to be used, `began` were gone at its start. Returns the
    /// cycles after which the engine had nothing more to do, or `limit`.
    pub fn quantum_over(&mut self, cx: &mut Cx<'_>, began: u64, limit: u64) -> u64 {
        let worked = cx.used() - began.min(cx.used());
        let counters = &cx.front.counters;
        counters.engine(self.index, mem::CTR_CYCLES, worked);
        let ns = timing::nanoseconds(worked, cx.units.core_khz);
        counters.engine(self.index, mem::CTR_BUSY, ns);
        counters.engine(self.index, mem::CTR_STALL, cx.stalled());
        cx.worked(worked, ns, 0);
        let more = self.pick(cx.gate_closed).is_some();
        self.debt = if more {
            cx.used().saturating_sub(limit)
        } else {
            0
        };
        if more {
            limit
        } else {
            cx.used()
        }
    }

    /// Publishes what the engine is at.
    pub fn publish(&self, front: &Front, gate_closed: bool) {
        let busy = self.pick(gate_closed);
        let slot = busy.map_or(NO_SLOT, |slot| slot as u32);
        let status = fields::ENG_STATUS::slot.put(slot)
            | fields::ENG_STATUS::busy.put(busy.is_some().into());
        front.set(Reg::ENG_STATUS, self.index, status);
    }

    /// Everything goes, as at power-on.
    pub fn power_on(&mut self) {
        *self = Self::new(self.index, self.slots.len());
    }
}

/// A context of no cycles, for what costs none.
pub fn free<'a>(
    front: &'a Front,
    mem: &'a Mem<'a>,
    units: &'a mut Units,
    engine: usize,
    now: u64,
) -> Cx<'a> {
    Cx::new(front, mem, units, engine, now, (0, 0))
}
