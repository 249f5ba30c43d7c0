// SPDX-License-Identifier: GPL-2.0
//! The discrete-event machine: clock, engines and units, advanced one quantum at a time.
//!
//! [`Machine::step`] carries out what was asked, then does one thing: a quantum of all engines, or a
//! jump of the clock to the next armed event, or the passing of time that hanging and waiting queues
//! need, or nothing. What happens in board time depends on nothing but the requests and memory:
//! not on the host's time, threads or the order of a map.

use std::sync::Arc;

use crate::clock::Clock;
use crate::discovery;
use crate::engine;
use crate::engine::Cx;
use crate::engine::Engine;
use crate::engine::Need;
use crate::engine::Units;
use crate::firmware;
use crate::front::Front;
use crate::hw::mem;
use crate::hw::regs;
use crate::judge::Rule;
use crate::memory::Bus;
use crate::memory::Mem;
use crate::memory::Pa;
use crate::regs::fields;
use crate::regs::Reg;
use crate::request::Hang;
use crate::request::Request;
use crate::request::SlotShadow;
use crate::timing;
use crate::trace::Event;
use crate::trace::What;

/// Most requests that one step carries out.
const REQUESTS_MAX: u64 = 4096;
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
        let mut machine = Self {
            front,
            bus,
            units: Units::default(),
            clock: Clock::default(),
            engines,
            enabled: 0,
            hung_queues: Vec::new(),
            board_hung: false,
        };
        machine.set_clocks(None);
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
        next
    }

    fn publish(&mut self, mem: &Mem<'_>) {
        self.front.publish_time(self.clock.now());
        self.units.mmu.publish(&self.front.counters);
        let counters = [
            mem::CTR_VRAM_READ,
            mem::CTR_VRAM_WRITE,
            mem::CTR_BUS_READ,
            mem::CTR_BUS_WRITE,
        ];
        for (counter, bytes) in counters.into_iter().zip(mem.traffic.take()) {
            self.front.counters.board(counter, bytes);
        }
        let status = fields::STATUS::firmware_running.put((self.enabled != 0).into())
            | fields::STATUS::bus_master.put(mem.master().into());
        self.front.set(Reg::STATUS, 0, status);
        let alarm = fields::ALARM_STATUS::pending.put(self.clock.alarm_pending().into())
            | fields::ALARM_STATUS::halted.put(self.clock.halted().into());
        self.front.set(Reg::ALARM_STATUS, 0, alarm);
    }

    // Requests.

    fn drain(&mut self, mem: &Mem<'_>) {
        let mut done = 0;
        while done < REQUESTS_MAX {
            let Some(request) = self.front.inbox.take() else {
                break;
            };
            self.apply(request, mem);
            done += 1;
        }
        let doorbells = self.front.inbox.take_doorbells();
        if doorbells != [0; 2] {
            self.ring(mem, &doorbells);
        }
        self.front.inbox.finish(done);
    }

    fn ring(&mut self, mem: &Mem<'_>, doorbells: &[u64]) {
        if !mem.master() {
            self.front
                .judge
                .report(Rule::BusMaster, regs::DOORBELL_BASE as u64);
            return;
        }
        let now = self.clock.now();
        for (i, engine) in self.engines.iter_mut().enumerate() {
            engine.ring(
                &mut engine::free(&self.front, mem, &mut self.units, i, now),
                doorbells,
            );
        }
    }

    fn apply(&mut self, request: Request, mem: &Mem<'_>) {
        log::debug!("{} ns: {request:x?}", self.clock.now());
        match request {
            Request::Reset => self.reset(),
            Request::Alarm {
                time,
                enable,
                lockstep,
            } => {
                self.clock.set_alarm(time, enable, lockstep);
            }
            Request::AlarmAck => {
                self.clock.acknowledge();
                self.front.set(Reg::ALARM_CTRL, 0, 0);
            }
            Request::Gate { closed } => self.clock.set_gate(closed),
            Request::Firmware { addr, size } => self.load_firmware(mem, addr, size),
            Request::Contexts { table, count } => {
                self.units.mmu.set_contexts(&self.front, mem, table, count);
            }
            Request::TlbInvalidate {
                scope,
                ctx,
                addr,
                pages,
            } => {
                self.units.mmu.invalidate(scope, ctx, addr, pages);
            }
            Request::FaultRing { ring, log2, enable } => {
                self.units.faults.set(&self.front, mem, ring, log2, enable);
            }
            Request::FaultRead(rptr) => self.units.faults.taken(&self.front, rptr),
            Request::EngineReset {
                engine,
                slots,
                whole,
            } => {
                self.reset_engine(mem, engine, slots, whole);
            }
            Request::Commit {
                engine,
                slots,
                shadow,
            } => self.commit(mem, engine, slots, &shadow),
            Request::Hang(hang) => self.hang(hang),
            Request::Unhang => {
                self.board_hung = false;
                self.hung_queues.clear();
                for engine in &mut self.engines {
                    engine.unhang();
                }
            }
            Request::Silence(silent) => self.front.set_silent(silent),
        }
    }

    /// The clocks of the firmware's P-state, or none; then what takes cycles takes those of the slow
    /// clock that the board starts with.
    fn set_clocks(&mut self, clocks: Option<(u32, u32)>) {
        let (core, memory) = clocks.unwrap_or((timing::RESET_KHZ, timing::RESET_KHZ));
        (self.units.core_khz, self.units.memory_khz) = (core, memory);
        let (core, memory) = clocks.unwrap_or((0, 0));
        self.front.set(Reg::CORE_CLOCK, 0, core);
        self.front.set(Reg::MEMORY_CLOCK, 0, memory);
    }

    fn reset(&mut self) {
        let resets = self.front.get(Reg::RESET_COUNT, 0).wrapping_add(1);
        self.clock.reset();
        self.units.mmu.reset();
        self.units.faults.reset();
        for engine in &mut self.engines {
            engine.power_on();
        }
        self.enabled = 0;
        self.hung_queues.clear();
        self.board_hung = false;
        self.front.reset();
        self.front.set(Reg::RESET_COUNT, 0, resets);
        self.set_clocks(None);
        if self.front.config().silence_until_reset {
            self.front.set_silent(false);
        }
        self.units
            .trace
            .add(self.clock.now(), BOARD, BOARD, What::Empty);
        log::info!("reset {resets}");
    }

    fn load_firmware(&mut self, mem: &Mem<'_>, addr: u64, size: u32) {
        if self.engines.iter().any(|engine| !engine.is_empty()) {
            self.front
                .judge
                .report(Rule::RegValue, Reg::FW_CTRL.def().offset as u64);
            return;
        }
        let result = self.read_firmware(mem, addr, size);
        self.enabled = 0;
        let status = match &result {
            Ok(firmware) => {
                self.enabled = firmware.engines;
                self.set_clocks(Some(firmware.clocks()));
                log::info!("firmware {:#x}, {}", firmware.version, firmware.name);
                fields::FW_STATUS::state.put(regs::FW_RUNNING)
            }
            Err(error) => {
                self.set_clocks(None);
                log::info!("firmware refused: {error}");
                fields::FW_STATUS::error.put(*error) | fields::FW_STATUS::state.put(regs::FW_FAILED)
            }
        };
        self.front.set(
            Reg::FW_VERSION,
            0,
            result.map_or(0, |firmware| firmware.version),
        );
        self.front.set(Reg::FW_STATUS, 0, status);
        for i in 0..self.engines.len() {
            let id = if self.enabled == 0 || self.enabled >> i & 1 != 0 {
                discovery::engine_id(self.front.config(), i)
            } else {
                0
            };
            self.front.set(Reg::ENG_ID, i, id);
        }
        self.publish(mem);
        self.front.irq.raise(regs::VECTOR_FAULT, regs::IRQ_FIRMWARE);
    }

    fn read_firmware(
        &self,
        mem: &Mem<'_>,
        addr: u64,
        size: u32,
    ) -> Result<firmware::Firmware, u32> {
        if !firmware::size_is_possible(size) {
            return Err(mem::FW_ERR_MAGIC);
        }
        if !mem.master() {
            self.front.judge.report(Rule::BusMaster, addr);
            return Err(mem::FW_ERR_BUS);
        }
        let pa = Pa::new(addr | mem::PA_SYSTEM).ok_or(mem::FW_ERR_BUS)?;
        let mut image = vec![0; size as usize];
        mem.read(pa, &mut image).map_err(|_| mem::FW_ERR_BUS)?;
        let firmware = firmware::parse(&image)?;
        let built = (1u32 << self.engines.len()) - 1;
        if firmware.engines & built == 0 {
            return Err(mem::FW_ERR_CONTENTS);
        }
        Ok(firmware)
    }

    fn commit(&mut self, mem: &Mem<'_>, index: usize, slots: u32, shadow: &[SlotShadow]) {
        let offset = Reg::SLOT_COMMIT.def().offset + index * Reg::SLOT_COMMIT.def().stride;
        if self.enabled == 0 {
            self.front.judge.report(Rule::NoFirmware, offset as u64);
            return;
        }
        if self.enabled >> index & 1 == 0 {
            self.front.judge.report(Rule::SlotState, offset as u64);
            return;
        }
        let now = self.clock.now();
        for (slot, shadow) in shadow
            .iter()
            .enumerate()
            .filter(|(slot, _)| slots >> slot & 1 != 0)
        {
            let taken: Vec<u16> = self.engines.iter().flat_map(Engine::ids).collect();
            let Some(engine) = self.engines.get_mut(index) else {
                return;
            };
            let mut cx = engine::free(&self.front, mem, &mut self.units, index, now);
            if !shadow.bind {
                engine.unbind(&mut cx, slot);
            } else if mem.master() {
                engine.bind(&mut cx, slot, shadow.desc, |id| taken.contains(&id));
                for &id in &self.hung_queues {
                    engine.set_queue_hung(id);
                }
            } else {
                self.front.judge.report(Rule::BusMaster, offset as u64);
            }
        }
    }

    fn reset_engine(&mut self, mem: &Mem<'_>, index: usize, slots: u32, whole: bool) {
        let now = self.clock.now();
        let Some(engine) = self.engines.get_mut(index) else {
            return;
        };
        let before: Vec<u16> = engine.ids().collect();
        let mut cx = engine::free(&self.front, mem, &mut self.units, index, now);
        engine.reset(&mut cx, slots, whole, self.board_hung);
        let dropped = |id: &u16| before.contains(id) && !engine.holds(*id);
        self.hung_queues.retain(|id| !dropped(id));
    }

    fn hang(&mut self, hang: Hang) {
        match hang {
            Hang::Queue(id) => {
                self.hung_queues.push(id);
                for engine in &mut self.engines {
                    engine.set_queue_hung(id);
                }
            }
            Hang::Engine(index) => {
                if let Some(engine) = self.engines.get_mut(index) {
                    engine.hang();
                }
            }
            Hang::Device => {
                self.board_hung = true;
                for engine in &mut self.engines {
                    engine.hang();
                }
            }
        }
    }

    // Time.

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
        if !closed {
            let now = self.clock.now();
            for (i, engine) in self.engines.iter_mut().enumerate() {
                engine.poll(&mut engine::free(&self.front, mem, &mut self.units, i, now));
            }
        }
        let needs: Vec<Need> = self.engines.iter().map(|e| e.need(closed)).collect();
        let wakes = self
            .engines
            .iter()
            .filter(|_| !closed)
            .filter_map(Engine::wakes_at)
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
                self.clock.advance_to(time);
                Next::Again
            }
            None => Next::Rest,
        }
    }

    /// A quantum of every engine, in order. It ends early if all have nothing more to do.
    fn quantum(&mut self, mem: &Mem<'_>) {
        let start = self.clock.now();
        let to_alarm = self
            .clock
            .alarm_at()
            .map_or(u64::MAX, |at| at.saturating_sub(start));
        let length = timing::QUANTUM_NS.min(to_alarm).max(1);
        let limit = timing::cycles(length, self.units.core_khz).max(1);
        let longest = self.run_engines(mem, start, limit);
        let took = if longest == limit {
            length
        } else {
            timing::nanoseconds(longest, self.units.core_khz)
        };
        self.clock.advance_to(start.saturating_add(took));
    }

    /// Time passes at the pace of the wall clock, up to the next event; what hangs uses it up.
    fn let_pass(&mut self, mem: &Mem<'_>, elapsed: u64, wakes: Option<u64>) {
        let start = self.clock.now();
        let events = [wakes, self.clock.alarm_at()];
        let next = events.into_iter().flatten().filter(|&at| at > start).min();
        let end = start.saturating_add(elapsed).min(next.unwrap_or(u64::MAX));
        let limit = timing::cycles(end - start, self.units.core_khz);
        if limit != 0 {
            self.run_engines(mem, start, limit);
        }
        self.clock.advance_to(end);
    }

    /// Runs each engine for `limit` cycles from `start` on; returns the most cycles that any used.
    fn run_engines(&mut self, mem: &Mem<'_>, start: u64, limit: u64) -> u64 {
        let front = self.front.clone();
        let mut longest = 0;
        for i in 0..self.engines.len() {
            let began = self.engines[i].debt();
            let (mut used, mut stalled) = (began, 0);
            loop {
                let closed = self.clock.gate_closed();
                let cx = Cx::new(&front, mem, &mut self.units, i, start, (began, limit));
                let mut cx = cx.carry_on(used, stalled);
                cx.gate_closed = closed;
                self.engines[i].run(&mut cx);
                if cx.requests.is_empty() {
                    longest = longest.max(self.engines[i].quantum_over(&cx, began, limit));
                    break;
                }
                (used, stalled) = (cx.used(), cx.stalled());
                for request in std::mem::take(&mut cx.requests) {
                    self.apply(request, mem);
                }
            }
        }
        longest
    }
}
