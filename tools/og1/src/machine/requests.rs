// SPDX-License-Identifier: GPL-2.0
//! Requests carried out: resets, firmware, slots, tables, hangs.

use crate::discovery;
use crate::engine;
use crate::engine::Engine;
use crate::firmware;
use crate::hw::mem;
use crate::hw::regs;
use crate::judge::Rule;
use crate::memory::Mem;
use crate::memory::Pa;
use crate::regs::fields;
use crate::regs::Reg;
use crate::request::Hang;
use crate::request::Request;
use crate::request::SlotShadow;
use crate::trace::What;

use super::Machine;
use super::BOARD;

/// Most requests that one step carries out.
const REQUESTS_MAX: u64 = 4096;

impl Machine {
    pub(super) fn drain(&mut self, mem: &Mem<'_>) {
        let mut done = 0;
        while done < REQUESTS_MAX {
            let Some(request) = self.front.inbox.take() else {
                break;
            };
            self.apply(request, mem, self.clock.now());
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

    /// Carries out a request that was made at board time `now`.
    pub(super) fn apply(&mut self, request: Request, mem: &Mem<'_>, now: u64) {
        log::debug!("{now} ns: {request:x?}");
        let judge = &self.front.judge;
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
            Request::Clock { domain, khz } => self.power.set_clock(judge, domain, khz, now),
            Request::Voltage { domain, uv } => self.power.set_voltage(judge, domain, uv, now),
            Request::EngineGate { engine, ctrl } => self.power.set_gate(engine, ctrl),
            Request::Stream(setup) => self.stream.set(&self.front, mem, setup, now),
            Request::StreamRead(rptr) => self.stream.taken(&self.front, rptr),
            Request::TempAlert(value) => self.power.set_alert(judge, value),
            Request::Power(order) => {
                self.power.order(judge, order);
                self.follow_clocks();
            }
            Request::PowerReport => {
                let report = self.power.report(now);
                self.front.set_power(report);
            }
        }
    }

    fn reset(&mut self) {
        let resets = self.front.get(Reg::RESET_COUNT, 0).wrapping_add(1);
        self.clock.reset();
        self.units.mmu.reset();
        self.units.faults.reset();
        self.stream.reset();
        for engine in &mut self.engines {
            engine.power_on();
        }
        self.enabled = 0;
        self.hung_queues.clear();
        self.board_hung = false;
        self.front.reset();
        self.front.set(Reg::RESET_COUNT, 0, resets);
        self.power.reset();
        self.follow_clocks();
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
                self.power.start(firmware);
                log::info!("firmware {:#x}, {}", firmware.version, firmware.name);
                fields::FW_STATUS::state.put(regs::FW_RUNNING)
            }
            Err(error) => {
                self.power.stop();
                log::info!("firmware refused: {error}");
                fields::FW_STATUS::error.put(*error) | fields::FW_STATUS::state.put(regs::FW_FAILED)
            }
        };
        self.power
            .check(&self.front.counters, &self.front.judge, self.clock.now());
        self.follow_clocks();
        self.front.set(
            Reg::FW_VERSION,
            0,
            result.map_or(0, |firmware| firmware.version),
        );
        self.front.set(Reg::FW_STATUS, 0, status);
        for i in 0..self.engines.len() {
            let id = if self.enabled == 0 || (self.enabled >> i) & 1 != 0 {
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
        if (self.enabled >> index) & 1 == 0 {
            self.front.judge.report(Rule::SlotState, offset as u64);
            return;
        }
        let now = self.clock.now();
        for (slot, shadow) in shadow
            .iter()
            .enumerate()
            .filter(|(slot, _)| (slots >> slot) & 1 != 0)
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
                if !self.hung_queues.contains(&id) {
                    self.hung_queues.push(id);
                }
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
}
