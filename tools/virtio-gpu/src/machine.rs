// SPDX-License-Identifier: GPL-2.0
//! Everything behind the registers, and the work of the queues.
//!
//! [`Machine::step`] does a bounded piece of work at a time that the caller names, so that tests have
//! the clock in their hands. A step fetches chains of queues that were notified, executes them, and
//! gives the answers that are due.

use std::sync::Arc;
use std::time::Instant;

use ochre_vfio_user as vfu;
use vfu::GuestMemory;
use vfu::Memory;
use vfu::SharedMemory;
use vfu::View;

use crate::answers::Answer;
use crate::answers::Answers;
use crate::answers::Finish;
use crate::config::Config;
use crate::config::CAPSETS;
use crate::config::QUEUES;
use crate::fault::Faults;
use crate::fault::Lie;
use crate::gpu::Done;
use crate::gpu::Env;
use crate::gpu::Gpu;
use crate::irq::Irq;
use crate::irq::Sink;
use crate::judge::Judge;
use crate::judge::Rule;
use crate::record::Entry;
use crate::record::Record;
use crate::ring::Chain;
use crate::ring::Options;
use crate::ring::Ring;
use crate::ring::RingFault;
use crate::transport::place;
use crate::transport::Effect;
use crate::transport::Transport;
use crate::wire::feature::Features;
use crate::wire::flag;
use crate::wire::Header;
use crate::wire::Resp;
use crate::wire::HEADER;

/// Index of the control queue.
pub const CONTROL: usize = 0;
/// Index of the cursor queue.
pub const CURSOR: usize = 1;
/// Commands and answers of a step.
const STEP: usize = 64;

/// When the machine wants to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once: there is more.
    Again,
    /// At this time.
    At(Instant),
    /// When something happens.
    Rest,
}

/// A queue at work.
#[derive(Debug, Default)]
struct Queue {
    ring: Option<Ring>,
    /// There may be chains.
    notified: bool,
    /// It was malformed; only a reset helps.
    broken: bool,
}

/// The machine.
pub struct Machine {
    config: Config,
    guest: Arc<GuestMemory>,
    /// The judge.
    pub judge: Judge,
    /// Counters.
    pub record: Record,
    /// Faults.
    pub faults: Faults,
    /// Interrupts.
    pub irq: Irq,
    /// The GPU.
    pub gpu: Gpu,
    transport: Transport,
    queues: [Queue; QUEUES],
    answers: Answers,
    /// It may use memory.
    master: bool,
    /// The driver has asked for a reset and was refused.
    reset_wanted: bool,
    /// For what is random.
    random: u64,
}

impl Machine {
    /// After power-on. `window` is the memory of the host-visible window.
    pub fn new(
        config: Config,
        guest: Arc<GuestMemory>,
        window: Option<Arc<SharedMemory>>,
        sink: Box<dyn Sink>,
    ) -> Self {
        Self {
            transport: Transport::new(&config),
            gpu: Gpu::new(config.clone(), window),
            config,
            guest,
            judge: Judge::default(),
            record: Record::default(),
            faults: Faults::default(),
            irq: Irq::new(sink),
            queues: Default::default(),
            answers: Answers::default(),
            master: false,
            reset_wanted: false,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// The shape of the board.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The registers.
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Guest memory.
    pub fn guest(&self) -> &Arc<GuestMemory> {
        &self.guest
    }

    /// Answers that were not given yet, and those among them that wait for their release.
    pub fn pending(&self) -> (usize, usize) {
        self.answers.counts()
    }

    /// Bus mastering on or off.
    pub fn set_bus_master(&mut self, on: bool) {
        self.master = on;
    }

    /// The device after a reset.
    pub fn reset(&mut self) {
        self.record.resets += 1;
        self.reset_wanted = false;
        self.transport.reset(&self.config);
        self.queues = Default::default();
        self.answers.clear();
        self.gpu.reset();
        self.irq.reset();
    }

    /// How many capsets the configuration tells of.
    fn capset_count(&self) -> u32 {
        let there = if self.config.features.contains(Features::VIRGL) {
            self.config.capsets.len()
        } else {
            0
        };
        let told = self.faults.capset_count;
        told.unwrap_or(there.min(CAPSETS) as u32)
    }

    /// A read of the register BAR.
    pub fn read(&mut self, offset: u64, data: &mut [u8]) {
        self.record.accesses[0] += 1;
        if self.faults.silent {
            data.fill(0xff);
            return;
        }
        data.fill(0);
        let (page, at) = (offset & !0xfff, offset & 0xfff);
        match page {
            place::COMMON => {
                let value = self.transport.read_common(&mut self.judge, at, data.len());
                let bytes = value.to_le_bytes();
                data.iter_mut().zip(bytes).for_each(|(d, s)| *d = s);
            }
            place::ISR if at == 0 => {
                if let Some(byte) = data.first_mut() {
                    *byte = self.irq.take_isr();
                }
            }
            place::DEVICE => {
                let capsets = self.capset_count();
                self.transport
                    .read_device(&mut self.judge, capsets, at, data);
            }
            _ => self.judge.report(Rule::RegUnknown, offset),
        }
    }

    /// A write of the register BAR; true if the machine has something to do now.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        self.record.accesses[1] += 1;
        if self.faults.silent {
            return false;
        }
        let (page, at) = (offset & !0xfff, offset & 0xfff);
        let mut bytes = [0; 4];
        let width = data.len();
        if width > bytes.len() {
            self.judge.report(Rule::RegWidth, offset);
            return false;
        }
        bytes[..width].copy_from_slice(data);
        let value = u32::from_le_bytes(bytes);
        match page {
            place::COMMON => {
                let (config, judge) = (&self.config, &mut self.judge);
                let effect = self.transport.write_common(config, judge, at, width, value);
                self.act(effect)
            }
            place::DEVICE => {
                self.transport
                    .write_device(&mut self.judge, at, width, value);
                false
            }
            place::NOTIFY => self.notify(at, width, value),
            _ => {
                self.judge.report(Rule::RegUnknown, offset);
                false
            }
        }
    }

    fn act(&mut self, effect: Effect) -> bool {
        match effect {
            Effect::None => false,
            Effect::Reset => {
                self.reset_wanted = true;
                self.settle_reset();
                false
            }
            Effect::Enable(index) => {
                self.enable(index);
                false
            }
            Effect::Ready => {
                self.look_again();
                true
            }
        }
    }

    fn enable(&mut self, index: usize) {
        let Some(registers) = self.transport.queue(index) else {
            return;
        };
        let features = self.transport.features();
        let options = Options {
            event_idx: features.contains(Features::EVENT_IDX),
            indirect: features.contains(Features::INDIRECT),
        };
        let ring = Ring::new(registers.size, registers.parts, options);
        let guest = self.guest.clone();
        if let Err(fault) = ring.check(&guest.view()) {
            self.judge.report(Rule::QueueSetup, fault.info);
        }
        self.queues[index] = Queue {
            ring: Some(ring),
            ..Queue::default()
        };
    }

    fn notify(&mut self, at: u64, width: usize, value: u32) -> bool {
        let index = usize::try_from(at / place::NOTIFY_STRIDE).unwrap_or(usize::MAX);
        let in_place = at % place::NOTIFY_STRIDE == 0 && width == 2;
        let ready = self.transport.ready();
        match self.queues.get_mut(index) {
            Some(queue) if queue.ring.is_some() && in_place && value as usize == index && ready => {
                self.record.notifications[index] += 1;
                queue.notified = true;
                true
            }
            _ => {
                self.judge.report(Rule::Notify, at);
                false
            }
        }
    }

    /// Carries out the reset that the driver has asked for, unless it is refused.
    pub fn settle_reset(&mut self) {
        if self.reset_wanted && !self.faults.refuse_reset {
            self.reset();
        }
    }

    /// Looks at all queues, notified or not.
    pub fn look_again(&mut self) {
        for queue in &mut self.queues {
            queue.notified = queue.ring.is_some();
        }
    }

    /// Releases answers that are held back and for which `which` says so; returns how many.
    pub fn release(&mut self, now: Instant, which: impl Fn(u32) -> bool) -> usize {
        self.answers.release_reversed(now);
        self.answers.release(now, which)
    }

    /// Tells the driver that the device cannot go on.
    pub fn need_reset(&mut self) {
        self.transport.needs_reset();
        self.irq.config(self.transport.config_vector());
    }

    /// Tells the driver that the displays have changed.
    pub fn change_displays(&mut self) {
        self.transport.displays_changed();
        self.irq.config(self.transport.config_vector());
    }

    /// A word of a resource as the host sees it.
    pub fn peek(&mut self, id: u32, offset: u32) -> Option<u32> {
        let guest = self.guest.clone();
        let view = guest.view();
        self.gpu.peek(&view, id, offset)
    }

    /// Does what is to be done now; see [`Next`].
    pub fn step(&mut self, now: Instant) -> Next {
        if self.faults.silent || self.faults.stalled || !self.transport.ready() {
            return Next::Rest;
        }
        if !self.master {
            if self.queues.iter().any(|queue| queue.notified) {
                self.judge.report(Rule::BusMaster, 0);
                self.queues.iter_mut().for_each(|q| q.notified = false);
            }
            return Next::Rest;
        }
        let guest = self.guest.clone();
        let view = guest.view();
        let mut left = STEP;
        for index in 0..QUEUES {
            if let Err(fault) = self.serve(&view, index, now, &mut left) {
                self.fail(index, fault);
            }
        }
        self.give_due(&view, now, &mut left);
        if left == 0 || self.queues.iter().any(|queue| queue.notified) {
            return Next::Again;
        }
        self.answers.next_due().map_or(Next::Rest, Next::At)
    }

    /// A queue is malformed.
    fn fail(&mut self, index: usize, fault: RingFault) {
        self.judge.report(fault.rule, fault.info);
        self.queues[index].broken = true;
        self.queues[index].notified = false;
        self.need_reset();
    }

    /// Fetches and executes the chains of a queue.
    fn serve(
        &mut self,
        view: &View<'_>,
        index: usize,
        now: Instant,
        left: &mut usize,
    ) -> Result<(), RingFault> {
        if !self.queues[index].notified || self.queues[index].broken {
            self.queues[index].notified = false;
            return Ok(());
        }
        let Some(ring) = &mut self.queues[index].ring else {
            return Ok(());
        };
        ring.ask_for_notification(view, false)?;
        loop {
            // Answers first: a chain that was given back can be used again.
            self.give_due(view, now, left);
            let Some(ring) = &mut self.queues[index].ring else {
                return Ok(());
            };
            if *left == 0 || self.queues[index].broken {
                return Ok(());
            }
            match ring.pop(view)? {
                Some(chain) => {
                    *left -= 1;
                    self.execute(view, index, chain, now);
                }
                None => {
                    let more = ring.ask_for_notification(view, true)?;
                    self.queues[index].notified = more;
                    if !more {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn execute(&mut self, view: &View<'_>, index: usize, chain: Chain, now: Instant) {
        // What the header says decides about a fault, before the command has an effect.
        let kind = peek_kind(view, &chain);
        let instead = kind.and_then(|kind| self.faults.answer(kind));
        let mut env = Env {
            memory: view,
            judge: &mut self.judge,
            record: &mut self.record,
            features: self.transport.features(),
            faults: &self.faults,
        };
        let mut done = match instead {
            Some(instead) if !instead.executed => self.gpu.refuse(view, &chain, instead.response),
            _ => self.gpu.execute(&mut env, &chain, index == CURSOR),
        };
        if let Some(instead) = instead {
            done.response = instead.response;
            if instead.response >= Resp::ErrUnspec.code() {
                done.body.clear();
            }
        }
        self.answer(index, chain, done, now);
    }

    /// Arranges when the answer to a command is given.
    fn answer(&mut self, index: usize, chain: Chain, done: Done, now: Instant) {
        let header = done.header;
        let fenced = header.flags & flag::FENCE != 0;
        let ring = (header.flags & flag::RING_IDX != 0).then_some(header.ring_idx);
        let mut due = now + done.took + self.faults.late;
        if fenced {
            let line = ring.map(|ring| (header.ctx_id, ring));
            let (signals, in_order) = self.answers.fence(line, header.fence_id, due);
            due = signals;
            if !in_order {
                self.judge.report(Rule::Fence, header.fence_id);
            }
        }
        if header.kind == crate::wire::Cmd::CtxDestroy.code() {
            self.answers.forget_context(header.ctx_id);
        }
        self.record.command(Entry {
            kind: header.kind,
            ctx: header.ctx_id,
            resource: done.resource,
            fence: fenced.then_some((header.fence_id, ring)),
            response: done.response,
        });
        let mut response = Header {
            kind: done.response,
            ..Header::default()
        };
        if fenced {
            response = Header {
                kind: done.response,
                padding: [0; 3],
                ..header
            };
        }
        let mut bytes = response.bytes().to_vec();
        bytes.extend(done.body);
        // The driver of the cursor queue wants no answer, others may not have made room for theirs.
        if chain.writable.is_empty() && index == CURSOR {
            bytes.clear();
        } else if chain.room() < bytes.len() as u64 {
            self.judge.report(Rule::ResponseRoom, chain.room());
        }
        let answer = Answer {
            queue: index,
            chain,
            kind: header.kind,
            fenced,
            bytes,
            finish: done.finish,
        };
        if self.faults.holds(header.kind) {
            self.answers.hold(answer);
        } else if fenced && self.faults.reorder > 0 {
            self.answers.reverse(answer);
            self.faults.reorder -= 1;
            if self.faults.reorder == 0 {
                self.answers.release_reversed(due);
            }
        } else {
            self.answers.push(due, answer);
        }
    }

    /// Gives the answers that are due.
    fn give_due(&mut self, view: &View<'_>, now: Instant, left: &mut usize) {
        let mut interrupt = [false; QUEUES];
        while *left > 0 {
            let Some(answer) = self.answers.pop(now) else {
                break;
            };
            *left -= 1;
            let index = answer.queue;
            match self.give(view, answer) {
                Ok(wanted) => interrupt[index] |= wanted,
                Err(fault) => self.fail(index, fault),
            }
        }
        for (index, interrupt) in interrupt.into_iter().enumerate() {
            let queue = self.transport.queue(index);
            if let Some(queue) = queue.filter(|_| interrupt) {
                self.irq.queue(queue.vector);
            }
        }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Writes a response and gives the chain back; returns whether to interrupt.
    fn give(&mut self, view: &View<'_>, mut answer: Answer) -> Result<bool, RingFault> {
        if let Finish::Unmapped(offset) = answer.finish {
            self.gpu.finish_unmap(offset);
        }
        let lie = if answer.queue == CONTROL {
            self.faults.lie()
        } else {
            None
        };
        match lie {
            Some(Lie::Garbage) => {
                for at in 0..answer.bytes.len() {
                    answer.bytes[at] = self.random() as u8;
                }
            }
            Some(Lie::Fence) => {
                if let Some(byte) = answer.bytes.get_mut(10) {
                    // The fence id, 65536 further on.
                    *byte = byte.wrapping_add(1);
                }
            }
            Some(Lie::Short) => answer.bytes.truncate(4),
            _ => {}
        }
        let whole = answer.chain.room().min(answer.bytes.len() as u64);
        if lie == Some(Lie::Hollow) {
            answer.bytes.truncate(HEADER);
        }
        let mut len = write(view, &answer)?;
        if lie == Some(Lie::Hollow) {
            len = u32::try_from(whole).unwrap_or(u32::MAX);
        }
        self.record.answers += 1;
        let Some(ring) = &mut self.queues[answer.queue].ring else {
            return Ok(false);
        };
        let (head, size) = (answer.chain.head, ring.size());
        let index = ring.used_index();
        match lie {
            Some(Lie::BadId) => {
                ring.forget(head);
                ring.put(view, u32::from(size) + 7, len)
            }
            Some(Lie::FreeId) => {
                let free = (0..size).find(|id| !ring.holds(*id)).unwrap_or(head);
                ring.forget(head);
                ring.put(view, free.into(), len)
            }
            Some(Lie::Twice) => {
                let first = ring.give_back(view, head, len)?;
                Ok(ring.put(view, head.into(), len)? | first)
            }
            Some(Lie::Long) => ring.give_back(view, head, u32::MAX - 15),
            Some(Lie::Jump) => {
                ring.give_back(view, head, len)?;
                ring.move_used(view, index.wrapping_add(size).wrapping_add(3))?;
                Ok(true)
            }
            Some(Lie::Back) => {
                ring.give_back(view, head, len)?;
                ring.move_used(view, index.wrapping_sub(2))?;
                Ok(true)
            }
            _ => ring.give_back(view, head, len),
        }
    }
}

/// The type of a chain's command, if it can be read.
fn peek_kind(view: &View<'_>, chain: &Chain) -> Option<u32> {
    let first = chain.readable.first()?;
    let mut bytes = [0; HEADER];
    if (first.len as usize) < HEADER {
        return None;
    }
    view.read(first.addr, &mut bytes).ok()?;
    Some(Header::parse(&bytes).kind)
}

/// Writes a response as far as there is room; returns how many bytes.
fn write(view: &View<'_>, answer: &Answer) -> Result<u32, RingFault> {
    let mut rest = &answer.bytes[..];
    for segment in &answer.chain.writable {
        let n = rest.len().min(segment.len as usize);
        let (now, later) = rest.split_at(n);
        view.write(segment.addr, now)?;
        rest = later;
    }
    Ok(u32::try_from(answer.bytes.len() - rest.len()).unwrap_or(u32::MAX))
}
