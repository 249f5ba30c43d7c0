// SPDX-License-Identifier: GPL-2.0
//! A queue in a slot: its positions, its control page, and how it goes from packet to packet.
//!
//! ```text
//!           bind                wptr moved            packet waits
//!   Empty ───────▶ Idle ◀──────────────▶ Ready ◀──────────────▶ Waiting
//!                             ring empty     │ fault      condition holds
//!                                            ▼
//!                                         Faulted ── reset ──▶ Empty
//! ```
//!
//! - `control`: the control page. `stream`: the doorbell rule, positions, packets from words.
//! - this file: states, work in turns, leaving a slot.

mod control;
mod stream;

use crate::compute::Compute;
use crate::fault::Access;
use crate::fault::Fault;
use crate::hw::mem;
use crate::hw::mem::FaultEntry;
use crate::hw::regs;
use crate::judge::Rule;
use crate::memory::Pa;
use crate::save::Buffer;
use crate::save::Progress;
use crate::save::Record;
use crate::save::Work;
use crate::trace::What;

use super::cx::Cx;
use super::exec;
use super::exec::Job;
use super::exec::Step;
use control::Control;

/// State of a queue in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing to do; the producer has to ring.
    Idle,
    /// Runs or waits for its turn.
    Ready,
    /// Waits on a semaphore or for a time.
    Waiting,
    /// Stands still until it is reset: the fault's code.
    Faulted(u32),
}

/// A queue whose descriptor was found good.
pub struct Queue {
    /// Queue id.
    pub id: u16,
    /// Priority.
    pub priority: u8,
    /// Time slice in ns.
    pub quantum_ns: u64,
    /// Where it stands.
    pub state: State,
    /// It leaves the slot as soon as it can.
    pub unbinding: bool,
    /// It consumes time without progress.
    pub hung: bool,
    ctx: u16,
    privileged: bool,
    ring: Pa,
    ring_words: u64,
    control: Control,
    save: Pa,
    rptr: u64,
    wptr: u64,
    buffer: Option<Buffer>,
    job: Option<Box<Job>>,
    /// Progress of the packet at the position, from the save area.
    resume: Progress,
    work: Work,
    /// Up to where `work` accounts the cycles of the present turn: cycles, board time.
    mark: (u64, u64),
}

/// What `bind` found out about a queue.
pub struct Parts {
    /// The descriptor.
    pub desc: mem::QueueDesc,
    /// Its ring.
    pub ring: Pa,
    /// Its control page.
    pub control: Pa,
    /// Its save area.
    pub save: Pa,
    /// Where it goes on, if it was saved.
    pub record: Option<Record>,
}

impl Queue {
    /// A queue that has not looked at its ring yet.
    pub fn new(parts: &Parts) -> Self {
        let desc = &parts.desc;
        let rptr = parts.record.map_or(desc.start, |r| r.rptr);
        Self {
            id: desc.queue,
            priority: desc.priority,
            quantum_ns: u64::from(desc.quantum_us) * 1000,
            state: State::Idle,
            unbinding: false,
            hung: false,
            ctx: desc.ctx,
            privileged: desc.flags & mem::QUEUE_PRIVILEGED != 0,
            ring: parts.ring,
            ring_words: 1 << desc.ring_log2.min(mem::RING_LOG2_MAX),
            control: Control::new(parts.control),
            save: parts.save,
            rptr,
            wptr: rptr,
            buffer: parts.record.and_then(|r| r.buffer),
            job: None,
            resume: parts.record.map_or(Progress::Start, |r| r.progress),
            work: parts.record.map_or(Work::default(), |r| r.work),
            mark: (0, 0),
        }
    }

    /// `SLOT_*` of the state.
    pub fn slot_state(&self) -> u32 {
        match self.state {
            _ if self.unbinding => regs::SLOT_UNBINDING,
            State::Idle => regs::SLOT_IDLE,
            State::Ready => regs::SLOT_READY,
            State::Waiting => regs::SLOT_WAITING,
            State::Faulted(_) => regs::SLOT_FAULTED,
        }
    }

    /// Code of the fault that stopped it, or 0.
    pub fn error(&self) -> u32 {
        match self.state {
            State::Faulted(code) => code,
            _ => 0,
        }
    }

    /// Whether it could use its engine now.
    pub fn runnable(&self, gate_closed: bool) -> bool {
        self.state == State::Ready && (!gate_closed || self.job.is_some())
    }

    /// Whether it can leave its slot: not inside a block of work-items, not hung in its work.
    pub fn can_leave(&self) -> bool {
        let inside = self.job.as_ref().is_some_and(|job| job.inside_block());
        let hangs = self.hung && self.state == State::Ready;
        !inside && !hangs
    }

    /// Board time that it waits for, if that is what it waits for.
    pub fn waits_until(&self) -> Option<u64> {
        match (self.state, self.job.as_ref().map(|job| job.progress)) {
            (State::Waiting, Some(Progress::Until(time))) => Some(time),
            _ => None,
        }
    }

    /// Adds the cycles since the last time to the queue's account.
    fn account(&mut self, cx: &Cx<'_>) {
        let mark = (cx.used(), cx.now());
        self.work.cycles = self
            .work
            .cycles
            .wrapping_add(mark.0.saturating_sub(self.mark.0));
        self.work.busy_ns = self
            .work
            .busy_ns
            .wrapping_add(mark.1.saturating_sub(self.mark.1));
        self.mark = mark;
    }

    /// Counts `n` units of progress.
    pub(super) fn progress(&mut self, cx: &Cx<'_>, n: u64) {
        if n != 0 {
            self.work.retired = self.work.retired.wrapping_add(n);
            self.work.retired_at = cx.now();
        }
    }

    /// Counts instructions.
    pub(super) fn executed(&mut self, n: u64) {
        self.work.instructions = self.work.instructions.wrapping_add(n);
    }

    /// Brings the control page up to date before a fence.
    pub(super) fn before_fence(&mut self, cx: &Cx<'_>) -> Result<(), Fault> {
        self.account(cx);
        self.control.put_work(cx, &self.work, self.rptr)
    }

    /// The doorbell was rung, or the queue was bound.
    pub fn awake(&mut self, cx: &mut Cx<'_>) {
        if self.state == State::Idle {
            if let Err(fault) = self.look(cx) {
                self.fail(cx, fault, 0);
            }
        }
    }

    /// First look after a bind: the whole control page is written.
    pub fn bound(&mut self, cx: &mut Cx<'_>) {
        let begun = self.buffer.is_some() || self.resume != Progress::Start;
        let result = self
            .control
            .put_work(cx, &self.work, self.rptr)
            .and_then(|()| self.control.put_state(cx, regs::SLOT_IDLE, self.error()))
            .and_then(|()| self.look(cx));
        match result {
            Err(fault) => self.fail(cx, fault, 0),
            // What was interrupted has its words in the ring, so the ring cannot be empty.
            Ok(()) if begun && self.state == State::Idle => {
                cx.front.judge.report(Rule::Wptr, self.wptr);
                let fault = Fault {
                    addr: self.wptr,
                    ..Fault::packet(mem::FAULT_RING)
                };
                self.fail(cx, fault, 0);
            }
            Ok(()) => {}
        }
    }

    // Leaving the slot.

    /// Saves the queue, so that it can go on in another slot.
    pub fn save(&mut self, cx: &mut Cx<'_>) {
        let progress = self.job.as_ref().map_or(self.resume, |job| job.progress);
        let record = Record {
            queue: self.id,
            ring: self.ring.raw(),
            rptr: self.rptr,
            buffer: self.buffer,
            progress,
            work: self.work,
        };
        if record.store(cx.mem, self.save).is_err() {
            cx.bus_fault(self.save.raw(), Access::Write);
        }
        self.publish_end(cx, regs::SLOT_EMPTY);
    }

    /// The queue is dropped: its control page tells where it was.
    pub fn dropped(&mut self, cx: &mut Cx<'_>) {
        let state = match self.state {
            State::Faulted(_) => regs::SLOT_FAULTED,
            _ => regs::SLOT_EMPTY,
        };
        self.publish_end(cx, state);
    }

    /// Last words; a control page that is gone has been reported already.
    fn publish_end(&mut self, cx: &mut Cx<'_>, state: u32) {
        let result = self
            .control
            .put_event(cx, self.rptr)
            .and_then(|()| self.control.put_work(cx, &self.work, self.rptr))
            .and_then(|()| self.control.put_state(cx, state, self.error()));
        if let Err(fault) = result {
            log::debug!("queue {}: control page: {fault:?}", self.id);
        }
    }

    // Work.

    /// Begins a turn on the engine.
    pub fn begin(&mut self, cx: &Cx<'_>) {
        self.mark = (cx.used(), cx.now());
    }

    /// Ends a turn.
    pub fn end(&mut self, cx: &mut Cx<'_>) {
        self.account(cx);
        if !matches!(self.state, State::Faulted(_)) {
            if let Err(fault) = self.control.put_work(cx, &self.work, self.rptr) {
                self.fail(cx, fault, 0);
            }
        }
    }

    /// Works until the cycles of this turn, `until`, are used or there is a reason to stop: nothing to do, a
    /// wait, a fault, a closed gate, a slot to leave, or a request for the scheduler.
    pub fn run(&mut self, cx: &mut Cx<'_>, compute: &mut Compute, until: u64) {
        while cx.used() < until {
            if self.unbinding && self.can_leave() {
                return;
            }
            if self.job.is_none() {
                if cx.gate_closed {
                    return;
                }
                match self.fetch(cx) {
                    Ok(true) => {}
                    Ok(false) if self.state == State::Ready => continue,
                    Ok(false) => return,
                    Err(fault) => {
                        let info = if fault.is_packet_fault() {
                            self.header(cx)
                        } else {
                            0
                        };
                        self.fail(cx, fault, info);
                        return;
                    }
                }
            }
            let Some(mut job) = self.job.take() else {
                continue;
            };
            let left = until.saturating_sub(cx.used());
            let step = exec::step(self, cx, compute, &mut job, left);
            let header = job.header;
            match step {
                Ok(Step::More) => self.job = Some(job),
                Ok(Step::Wait) => {
                    self.job = Some(job);
                    self.wait(cx);
                    return;
                }
                Ok(Step::Enter(buffer)) => self.buffer = Some(buffer),
                Ok(Step::Done(skip)) => {
                    if let Err(fault) = self.retire(cx, &job, skip) {
                        self.fail(cx, fault, header.0 as u32);
                        return;
                    }
                }
                Ok(Step::Request) => {
                    if let Err(fault) = self.retire(cx, &job, 0) {
                        self.fail(cx, fault, header.0 as u32);
                    }
                    return;
                }
                Err(fault) => {
                    self.job = Some(job);
                    self.fail(cx, fault, header.0 as u32);
                    return;
                }
            }
        }
    }

    fn wait(&mut self, cx: &mut Cx<'_>) {
        self.state = State::Waiting;
        cx.trace(What::Wait);
        if let Err(fault) = self.control.put_state(cx, regs::SLOT_WAITING, self.error()) {
            self.fail(cx, fault, 0);
        }
    }

    /// Looks whether what a waiting queue waits for has come.
    pub fn poll(&mut self, cx: &mut Cx<'_>) {
        let Some(job) = self.job.as_ref().filter(|_| self.state == State::Waiting) else {
            return;
        };
        let header = job.header.0 as u32;
        let result = exec::is_over(self.ctx, cx, job);
        match result {
            Ok(false) => {}
            Ok(true) => {
                self.state = State::Ready;
                if let Err(fault) = self.control.put_state(cx, regs::SLOT_READY, self.error()) {
                    self.fail(cx, fault, 0);
                }
            }
            Err(fault) => self.fail(cx, fault, header),
        }
    }

    /// The queue stands still from here on.
    fn fail(&mut self, cx: &mut Cx<'_>, fault: Fault, info: u32) {
        let fault = if fault.is_packet_fault() && fault.code != mem::FAULT_RING {
            if self.privileged && self.buffer.is_none() {
                cx.front.judge.report(Rule::KernelPacket, self.rptr);
            }
            Fault {
                addr: self.position(),
                ..fault
            }
        } else {
            fault
        };
        log::info!("queue {} faults: {fault:x?}", self.id);
        cx.trace(What::Fault(fault.code));
        self.state = State::Faulted(fault.code);
        self.account(cx);
        let told = self
            .control
            .put_work(cx, &self.work, self.rptr)
            .and_then(|()| self.control.put_state(cx, regs::SLOT_FAULTED, self.error()));
        if told.is_err() {
            log::debug!("queue {}: its control page is gone", self.id);
        }
        crate::engine::publish_slot(cx, self);
        let entry = FaultEntry {
            addr: fault.addr,
            time: cx.stamp(),
            pc: fault.pc,
            ctx: self.ctx,
            queue: self.id,
            engine: cx.engine as u8,
            slot: cx.slot as u8,
            access: fault.access as u8,
            level: fault.level,
            code: fault.code,
            token: 0,
            flags: mem::FAULT_FLAG_WRITTEN | mem::FAULT_FLAG_FATAL,
            info,
            reserved: Default::default(),
        };
        cx.units.faults.push(cx.front, cx.mem, &entry);
    }

    /// Context of the queue.
    pub fn ctx(&self) -> u16 {
        self.ctx
    }
}
