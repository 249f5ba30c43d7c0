// SPDX-License-Identifier: GPL-2.0
//! The discrete-event machine: clock, engines and units, advanced one quantum at a time.
//!
//! [`Machine::step`] carries out what was asked, then does one thing: a quantum of all engines, or a
//! jump of the clock to the next armed event, or the passing of time that hanging and waiting queues
//! need, or nothing. What happens in board time depends on nothing but the requests and memory:
//! not on the host's time, threads or the order of a map.
//!
//! - `requests`: what registers, packets and the control socket ask for.
//! - `passing`: board time passes.
//! - this file: the step, and what time is to do next.

mod passing;
mod requests;

use std::sync::Arc;

use crate::clock::Clock;
use crate::engine;
use crate::engine::Engine;
use crate::engine::Need;
use crate::engine::Units;
use crate::front::Front;
use crate::hw::regs;
use crate::memory::Bus;
use crate::memory::Mem;
use crate::power::Power;
use crate::regs::fields;
use crate::regs::Reg;
use crate::stream::Stream;
use crate::trace::Event;
use crate::trace::What;

/// Index of the whole board in traces.
const BOARD: usize = usize::MAX;

/// What the scheduler is to do after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Step again.
    Again,
    /// Step again after some time of the wall clock, and tell how much it was.
    Later,
    /// Nothing to do until something is asked.
    Rest,
}

/// The machine. Belongs to whoever holds its lock; see `board`.
pub struct Machine {
    front: Arc<Front>,
    bus: Arc<Bus>,
    units: Units,
    clock: Clock,
    power: Power,
    stream: Stream,
    engines: Vec<Engine>,
    /// Mask of engines that the firmware's fuses leave enabled; 0 without firmware.
    enabled: u32,
    /// Queue ids that are to hang.
    hung_queues: Vec<u16>,
    board_hung: bool,
}

impl Machine {
    /// As after power-on.
    pub fn new(front: Arc<Front>, bus: Arc<Bus>) -> Self {
        let config = front.config();
        let engines = (0..config.engines())
            .map(|i| Engine::new(i, config.slots))
            .collect();
        let power = Power::new(config);
        let mut machine = Self {
            front,
            bus,
            units: Units::default(),
            clock: Clock::default(),
            power,
            stream: Stream::default(),
            engines,
            enabled: 0,
            hung_queues: Vec::new(),
            board_hung: false,
        };
        machine.follow_clocks();
        machine.power.publish(&machine.front, 0);
        machine
    }

    /// Board time in ns.
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Starts a record of what happens.
    pub fn start_trace(&mut self) {
        self.units.trace.start();
    }

    /// Ends the record.
    pub fn take_trace(&mut self) -> Vec<Event> {
        self.units.trace.take()
    }

    /// Carries out what was asked, without letting time pass.
    pub fn settle(&mut self) {
        let bus = self.bus.clone();
        let mem = bus.open();
        self.drain(&mem);
        self.publish(&mem);
        self.power.raise(&self.front);
    }

    /// One step. `elapsed` is the wall time in ns since the last step if that one said
    /// [`Next::Later`], otherwise 0.
    pub fn step(&mut self, elapsed: u64) -> Next {
        let bus = self.bus.clone();
        let mem = bus.open();
        self.drain(&mem);
        let next = if self.front.silent() {
            Next::Rest
        } else {
            self.advance(&mem, elapsed)
        };
        self.publish(&mem);
        self.power.raise(&self.front);
        next
    }

    fn publish(&mut self, mem: &Mem<'_>) {
        self.front.publish_time(self.clock.now());
        self.units.mmu.publish(&self.front.counters);
        self.count_traffic(mem);
        self.update_gates();
        self.power.publish(&self.front, self.clock.now());
        let status = fields::STATUS::firmware_running.put((self.enabled != 0).into())
            | fields::STATUS::bus_master.put(mem.master().into());
        self.front.set(Reg::STATUS, 0, status);
        let alarm = fields::ALARM_STATUS::pending.put(self.clock.alarm_pending().into())
            | fields::ALARM_STATUS::halted.put(self.clock.halted().into());
        self.front.set(Reg::ALARM_STATUS, 0, alarm);
        for engine in &self.engines {
            engine.publish(&self.front, self.clock.gate_closed());
        }
    }

    fn advance(&mut self, mem: &Mem<'_>, elapsed: u64) -> Next {
        if self.clock.check_alarm() {
            self.units
                .trace
                .add(self.clock.now(), BOARD, BOARD, What::Alarm);
            self.publish(mem);
            self.front.irq.raise(regs::VECTOR_TIME, regs::IRQ_ALARM);
        }
        if self.clock.halted() {
            return Next::Rest;
        }
        let closed = self.clock.gate_closed();
        let now = self.clock.now();
        for (i, engine) in self.engines.iter_mut().enumerate() {
            let mut cx = engine::free(&self.front, mem, &mut self.units, i, now);
            if !closed {
                engine.poll(&mut cx);
            }
            engine.release(&mut cx);
        }
        self.update_gates();
        // An engine without power has nothing to do until it has woken.
        let needs: Vec<Need> = (0..self.engines.len())
            .filter(|&i| self.power.open(i))
            .map(|i| self.engines[i].need(closed, now))
            .collect();
        let waits = self.engines.iter().filter_map(Engine::wakes_at);
        let wakes = waits
            .chain(self.power.next_event())
            .filter(|_| !closed)
            .min();
        if needs.contains(&Need::Work) {
            self.quantum(mem);
            return Next::Again;
        }
        if needs.contains(&Need::Time) {
            self.let_pass(mem, elapsed, wakes);
            return Next::Later;
        }
        let event = match (wakes, self.clock.alarm_at().filter(|_| !closed)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        match event {
            Some(_) if self.front.config().pace => {
                self.let_pass(mem, elapsed, wakes);
                Next::Later
            }
            Some(time) => {
                self.jump(mem, time);
                Next::Again
            }
            None => Next::Rest,
        }
    }
}
