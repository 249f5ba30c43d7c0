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

use std::mem::offset_of;
use std::sync::atomic::fence;
use std::sync::atomic::Ordering;

use crate::compute::Compute;
use crate::fault::Access;
use crate::fault::Fault;
use crate::hw::mem;
use crate::hw::mem::ControlPage;
use crate::hw::mem::FaultEntry;
use crate::hw::regs;
use crate::judge::Rule;
use crate::memory::Pa;
use crate::save::Buffer;
use crate::save::Progress;
use crate::save::Record;
use crate::save::Work;
use crate::timing;
use crate::trace::What;

use super::cx::Cx;
use super::exec;
use super::exec::Job;
use super::exec::Step;
use super::packet;
use super::packet::Address;
use super::packet::Header;
use super::packet::Place;

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

/// Why a queue gave its engine back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Its cycles are used up.
    Budget,
    /// It has nothing to do, waits, faulted, or may not start a packet.
    Rest,
    /// It is to leave its slot and can.
    Unbind,
    /// A packet asked for something that the scheduler has to do first.
    Request,
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
    control: Pa,
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
            control: parts.control,
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

    // The control page.

    fn put<T: ochre_vfio_user::Word>(&self, cx: &Cx<'_>, at: usize, value: T) -> Result<(), Fault> {
        let pa = self.control.offset(at as u64);
        cx.mem
            .store(pa, value)
            .map_err(|_| cx.bus_fault(pa.raw(), Access::Write))
    }

    fn publish_event(&self, cx: &Cx<'_>, event: u64) -> Result<(), Fault> {
        self.put(cx, offset_of!(ControlPage, event), event)
    }

    fn publish_state(&self, cx: &Cx<'_>, state: u32) -> Result<(), Fault> {
        self.put(cx, offset_of!(ControlPage, error), self.error())?;
        self.put(cx, offset_of!(ControlPage, state), state)
    }

    /// Writes position and work; the position last, since it gives words of the ring back.
    fn publish_work(&self, cx: &Cx<'_>) -> Result<(), Fault> {
        self.put(
            cx,
            offset_of!(ControlPage, instructions),
            self.work.instructions,
        )?;
        self.put(cx, offset_of!(ControlPage, cycles), self.work.cycles)?;
        self.put(cx, offset_of!(ControlPage, busy_ns), self.work.busy_ns)?;
        self.put(
            cx,
            offset_of!(ControlPage, retired_at),
            self.work.retired_at,
        )?;
        self.put(cx, offset_of!(ControlPage, retired), self.work.retired)?;
        self.put(cx, offset_of!(ControlPage, rptr), self.rptr)
    }

    /// Adds the cycles since the last time to the queue's account.
    fn account(&mut self, cx: &Cx<'_>) {
        let mark = (cx.used(), cx.now());
        self.work.cycles += mark.0 - self.mark.0.min(mark.0);
        self.work.busy_ns += mark.1 - self.mark.1.min(mark.1);
        self.mark = mark;
    }

    /// Counts `n` units of progress.
    pub(super) fn progress(&mut self, cx: &Cx<'_>, n: u64) {
        if n != 0 {
            self.work.retired += n;
            self.work.retired_at = cx.now();
        }
    }

    /// Counts instructions.
    pub(super) fn executed(&mut self, n: u64) {
        self.work.instructions += n;
    }

    /// Brings the control page up to date before a fence.
    pub(super) fn before_fence(&mut self, cx: &Cx<'_>) -> Result<(), Fault> {
        self.account(cx);
        self.publish_work(cx)
    }

    // Doorbell and sleep.

    /// The producer's position, if it makes sense.
    fn read_wptr(&self, cx: &Cx<'_>) -> Result<u64, Fault> {
        let pa = self.control.offset(offset_of!(ControlPage, wptr) as u64);
        let wptr: u64 = cx
            .mem
            .load(pa)
            .map_err(|_| cx.bus_fault(pa.raw(), Access::Read))?;
        let ahead = wptr.checked_sub(self.rptr);
        if wptr < self.wptr || ahead.is_none_or(|n| n > self.ring_words) {
            cx.front.judge.report(Rule::Wptr, wptr);
            return Err(Fault {
                addr: wptr,
                ..Fault::packet(mem::FAULT_RING)
            });
        }
        Ok(wptr)
    }

    /// Looks for work: after a bind, a doorbell, or the end of the ring. Leaves the queue ready, or
    /// asleep with the position published at which it wants to be woken.
    fn look(&mut self, cx: &mut Cx<'_>) -> Result<(), Fault> {
        self.wptr = self.read_wptr(cx)?;
        if self.wptr == self.rptr {
            self.publish_event(cx, self.rptr)?;
            // The producer stores its position, then reads EVENT; here it is the other way round.
            // One of the two sees the other's store.
            fence(Ordering::SeqCst);
            self.wptr = self.read_wptr(cx)?;
        }
        let (state, event) = if self.wptr == self.rptr {
            (State::Idle, self.rptr)
        } else {
            (State::Ready, mem::EVENT_AWAKE)
        };
        if self.state != state {
            self.state = state;
            self.publish_state(cx, self.slot_state())?;
        }
        if state == State::Ready {
            self.publish_event(cx, event)?;
        }
        Ok(())
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
            .publish_work(cx)
            .and_then(|()| self.publish_state(cx, regs::SLOT_IDLE))
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
            .publish_event(cx, self.rptr)
            .and_then(|()| self.publish_work(cx))
            .and_then(|()| self.publish_state(cx, state));
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
            if let Err(fault) = self.publish_work(cx) {
                self.fail(cx, fault, 0);
            }
        }
    }

    /// Works until the cycles of this turn, `until`, are used or there is a reason to stop.
    pub fn run(&mut self, cx: &mut Cx<'_>, compute: &mut Compute, until: u64) -> Leave {
        while cx.used() < until {
            if self.unbinding && self.can_leave() {
                return Leave::Unbind;
            }
            if self.job.is_none() {
                if cx.gate_closed {
                    return Leave::Rest;
                }
                match self.fetch(cx) {
                    Ok(true) => {}
                    Ok(false) if self.state == State::Ready => continue,
                    Ok(false) => return Leave::Rest,
                    Err(fault) => {
                        let info = if fault.is_packet_fault() {
                            self.header(cx)
                        } else {
                            0
                        };
                        self.fail(cx, fault, info);
                        return Leave::Rest;
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
                    return Leave::Rest;
                }
                Ok(Step::Enter(buffer)) => self.buffer = Some(buffer),
                Ok(Step::Done(skip)) => {
                    if let Err(fault) = self.retire(cx, &job, skip) {
                        self.fail(cx, fault, header.0 as u32);
                        return Leave::Rest;
                    }
                }
                Ok(Step::Request) => {
                    if let Err(fault) = self.retire(cx, &job, 0) {
                        self.fail(cx, fault, header.0 as u32);
                    }
                    return Leave::Request;
                }
                Err(fault) => {
                    self.job = Some(job);
                    self.fail(cx, fault, header.0 as u32);
                    return Leave::Rest;
                }
            }
        }
        if self.unbinding && self.can_leave() {
            Leave::Unbind
        } else {
            Leave::Budget
        }
    }

    fn wait(&mut self, cx: &mut Cx<'_>) {
        self.state = State::Waiting;
        cx.trace(What::Wait);
        if let Err(fault) = self.publish_state(cx, regs::SLOT_WAITING) {
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
                if let Err(fault) = self.publish_state(cx, regs::SLOT_READY) {
                    self.fail(cx, fault, 0);
                }
            }
            Err(fault) => self.fail(cx, fault, header),
        }
    }

    /// Words from the position on that may be read.
    fn available(&self) -> u64 {
        match self.buffer {
            Some(buffer) => buffer.words.saturating_sub(buffer.pos),
            None => self.wptr.saturating_sub(self.rptr),
        }
    }

    fn place(&self, cx: &Cx<'_>) -> Place {
        Place {
            privileged: self.privileged && self.buffer.is_none(),
            ring: self.buffer.is_none(),
            compute: cx.engine < cx.front.config().compute,
        }
    }

    /// The word `n` words behind the position.
    fn word(&self, cx: &mut Cx<'_>, n: u64) -> Result<u64, Fault> {
        match self.buffer {
            Some(buffer) => {
                let va = buffer.addr.saturating_add((buffer.pos + n) * 8);
                cx.load(self.ctx, Address::Virtual(va))
            }
            None => {
                let at = self.rptr.wrapping_add(n) & (self.ring_words - 1);
                let pa = self.ring.offset(at * 8);
                cx.mem
                    .load(pa)
                    .map_err(|_| cx.bus_fault(pa.raw(), Access::Read))
            }
        }
    }

    /// Header at the position as far as it can be read, for a fault entry.
    fn header(&self, cx: &mut Cx<'_>) -> u32 {
        match self.buffer {
            Some(_) => 0,
            None => self.word(cx, 0).unwrap_or(0) as u32,
        }
    }

    /// Position of the packet, for a fault entry.
    fn position(&self) -> u64 {
        match self.buffer {
            Some(buffer) => buffer.addr.saturating_add(buffer.pos * 8),
            None => self.rptr,
        }
    }

    /// Takes the packet at the position; false if there is none, in which case the queue may have
    /// gone to sleep.
    fn fetch(&mut self, cx: &mut Cx<'_>) -> Result<bool, Fault> {
        let available = self.available();
        if available == 0 {
            self.account(cx);
            self.publish_work(cx)?;
            self.look(cx)?;
            if self.state == State::Idle {
                cx.trace(What::Sleep);
            }
            return Ok(false);
        }
        cx.spend(timing::PACKET_CYCLES);
        let place = self.place(cx);
        let header = Header(self.word(cx, 0)?);
        let words = header.words(place).map_err(Fault::packet)?;
        if words > available {
            return Err(Fault::packet(mem::FAULT_PACKET));
        }
        let mut operands = [0; packet::WORDS_MAX - 1];
        if header.opcode() != crate::hw::packets::PKT_NOP {
            for (n, operand) in (1..words).zip(&mut operands) {
                *operand = self.word(cx, n)?;
            }
        }
        let packet = packet::decode(header, &operands, place).map_err(Fault::packet)?;
        cx.trace(What::Start(header.opcode()));
        let progress = std::mem::take(&mut self.resume);
        self.job = Some(Box::new(Job::new(packet, header, words, progress)));
        Ok(true)
    }

    /// The packet is done: moves the position behind it and `skip` words more.
    fn retire(&mut self, cx: &mut Cx<'_>, job: &Job, skip: u64) -> Result<(), Fault> {
        let words = job.words.saturating_add(skip);
        if words > self.available() {
            return Err(Fault::packet(mem::FAULT_PACKET));
        }
        self.count_packet(cx, job.header.opcode());
        if let Some(buffer) = &mut self.buffer {
            buffer.pos += words;
            if buffer.pos < buffer.words {
                return Ok(());
            }
            // The packet in the ring that started the buffer is done with it.
            self.buffer = None;
            self.count_packet(cx, crate::hw::packets::PKT_INDIRECT);
            self.rptr += 2;
        } else {
            self.rptr += words;
        }
        self.put(
            cx,
            offset_of!(ControlPage, retired_at),
            self.work.retired_at,
        )?;
        self.put(cx, offset_of!(ControlPage, retired), self.work.retired)?;
        self.put(cx, offset_of!(ControlPage, rptr), self.rptr)
    }

    fn count_packet(&mut self, cx: &mut Cx<'_>, opcode: u8) {
        self.progress(cx, 1);
        cx.front.counters.engine(cx.engine, mem::CTR_PACKETS, 1);
        cx.trace(What::Retire(opcode));
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
            .publish_work(cx)
            .and_then(|()| self.publish_state(cx, regs::SLOT_FAULTED));
        if told.is_err() {
            log::debug!("queue {}: its control page is gone", self.id);
        }
        super::publish_slot(cx, self);
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
