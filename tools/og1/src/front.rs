// SPDX-License-Identifier: GPL-2.0
//! The board as register accesses see it.
//!
//! Checks each access against the register table, holds the values, and turns what concerns the
//! scheduler into requests. Nothing here waits for an engine: values that the scheduler makes
//! (states, positions, time) are published into the same array of atomics that the registers are
//! read from.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::config::Config;
use crate::counters::Counters;
use crate::discovery;
use crate::hw::mem;
use crate::hw::regs as hw;
use crate::irq::Irq;
use crate::irq::MessageSink;
use crate::judge::Judge;
use crate::judge::Rule;
use crate::power;
use crate::regs;
use crate::regs::fields;
use crate::regs::Access;
use crate::regs::Class;
use crate::regs::Reg;
use crate::request::Inbox;
use crate::request::Request;
use crate::request::SlotShadow;
use crate::stream;

/// What a register write asks for beyond the value that it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Something for the scheduler.
    Request(Request),
}

/// Registers, interrupts, judge, counters and the published time.
pub struct Front {
    config: Config,
    values: Box<[AtomicU32]>,
    time: AtomicU64,
    /// Energy since power-on in µJ.
    energy: AtomicU64,
    /// What power and temperature were at when that was last asked; a leaf.
    power: Mutex<power::Report>,
    silent: AtomicBool,
    resetting: AtomicBool,
    /// Interrupt control.
    pub irq: Irq,
    /// The judge.
    pub judge: Judge,
    /// Counters.
    pub counters: Counters,
    /// Requests for the scheduler.
    pub inbox: Inbox,
}

impl Front {
    /// Registers at their reset values.
    pub fn new(config: Config, sink: Box<dyn MessageSink>) -> Self {
        let values = regs::all()
            .map(|(reg, _)| AtomicU32::new(reg.def().reset))
            .collect();
        let front = Self {
            config,
            values,
            time: AtomicU64::new(0),
            energy: AtomicU64::new(0),
            power: Mutex::default(),
            silent: AtomicBool::new(false),
            resetting: AtomicBool::new(false),
            irq: Irq::new(sink),
            judge: Judge::default(),
            counters: Counters::default(),
            inbox: Inbox::default(),
        };
        front.reset();
        front
    }

    /// Shape of the board.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Value of a register as the array holds it.
    pub fn get(&self, reg: Reg, index: usize) -> u32 {
        self.values[regs::flat(reg, index)].load(Ordering::SeqCst)
    }

    /// Publishes a value.
    pub fn set(&self, reg: Reg, index: usize, value: u32) {
        self.values[regs::flat(reg, index)].store(value, Ordering::SeqCst);
    }

    /// Publishes a value that seldom changes.
    pub fn show(&self, reg: Reg, index: usize, value: u32) {
        if self.get(reg, index) != value {
            self.set(reg, index, value);
        }
    }

    /// Sets bits of a register.
    pub fn set_bits(&self, reg: Reg, index: usize, bits: u32) {
        self.values[regs::flat(reg, index)].fetch_or(bits, Ordering::SeqCst);
    }

    /// A 64-bit value from a pair of registers.
    fn pair(&self, low: Reg, high: Reg, index: usize) -> u64 {
        u64::from(self.get(low, index)) | (u64::from(self.get(high, index)) << 32)
    }

    fn set_pair(&self, low: Reg, high: Reg, value: u64) {
        self.set(low, 0, value as u32);
        self.set(high, 0, (value >> 32) as u32);
    }

    /// Board time in ns as last published.
    pub fn time(&self) -> u64 {
        self.time.load(Ordering::SeqCst)
    }

    /// Publishes the board time; it never goes back.
    pub fn publish_time(&self, now: u64) {
        self.time.fetch_max(now, Ordering::SeqCst);
    }

    /// Publishes the energy since power-on in µJ; it never falls.
    pub fn publish_energy(&self, microjoules: u64) {
        self.energy.fetch_max(microjoules, Ordering::SeqCst);
    }

    /// Leaves a report on power and temperature.
    pub fn set_power(&self, report: power::Report) {
        *self.power.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }

    /// The latest report on power and temperature.
    pub fn power(&self) -> power::Report {
        let report = self.power.lock().unwrap_or_else(PoisonError::into_inner);
        report.clone()
    }

    /// Whether the board plays dead.
    pub fn silent(&self) -> bool {
        self.silent.load(Ordering::SeqCst)
    }

    /// Plays dead or ends that, for registers and interrupts.
    pub fn set_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
        self.irq.set_silent(silent);
    }

    /// All registers and interrupts to their reset state; `RESET_COUNT` and the judge stay.
    pub fn reset(&self) {
        let resets = self.get(Reg::RESET_COUNT, 0);
        for (reg, i) in regs::all() {
            self.set(reg, i, reg.def().reset);
        }
        self.set(Reg::RESET_COUNT, 0, resets);
        discovery::constants(&self.config, |reg, i, value| self.set(reg, i, value));
        self.irq.reset();
        self.counters.reset();
        self.resetting.store(false, Ordering::SeqCst);
    }

    /// Whether the board has this one of an array of registers.
    fn exists(&self, reg: Reg, index: usize) -> bool {
        match reg {
            Reg::IRQ_STATUS | Reg::IRQ_MASK | Reg::IRQ_TEST => index < self.config.vectors(),
            Reg::ENG_ID
            | Reg::ENG_CAPS
            | Reg::ENG_STATUS
            | Reg::ENG_RESET
            | Reg::ENG_RESET_STATUS
            | Reg::ENG_LDS
            | Reg::SLOT_COMMIT
            | Reg::GATE_CTRL
            | Reg::GATE_STATUS => index < self.config.engines(),
            Reg::SLOT_DESC_LO | Reg::SLOT_DESC_HI | Reg::SLOT_CTRL | Reg::SLOT_STATUS => {
                index / hw::SLOTS_MAX < self.config.engines()
                    && index % hw::SLOTS_MAX < self.config.slots
            }
            _ => true,
        }
    }

    /// The register at an offset of BAR0, and which of its array, if the board has it.
    pub fn find(&self, offset: u64) -> Option<(Reg, usize)> {
        regs::lookup(offset).filter(|&(reg, index)| self.exists(reg, index))
    }

    /// Whether reading the register has to wait for earlier requests.
    pub fn shows_effects(reg: Reg) -> bool {
        matches!(
            reg,
            Reg::STATUS
                | Reg::RESET_COUNT
                | Reg::CORE_CLOCK
                | Reg::MEMORY_CLOCK
                | Reg::ALARM_STATUS
                | Reg::FW_STATUS
                | Reg::FW_VERSION
                | Reg::FAULT_WPTR
                | Reg::FAULT_STATUS
                | Reg::CTR_LO
                | Reg::VIOL_COUNT
                | Reg::VIOL_SELECTED
                | Reg::ENG_ID
                | Reg::ENG_STATUS
                | Reg::ENG_RESET_STATUS
                | Reg::SLOT_STATUS
                | Reg::STREAM_CTRL
                | Reg::STREAM_WPTR
                | Reg::STREAM_RPTR
                | Reg::STREAM_LOST
        ) || Self::is_power(reg)
    }

    /// Whether the register belongs to the units of power and temperature.
    fn is_power(reg: Reg) -> bool {
        (Reg::CLK_TARGET.def().offset..=Reg::TEMP_ALERT.def().offset).contains(&reg.def().offset)
    }

    /// A read of the register at an aligned offset.
    pub fn read(&self, offset: u64) -> u32 {
        if offset >= hw::DOORBELL_BASE as u64 {
            self.judge.report(Rule::RegWriteOnly, offset);
            return 0;
        }
        let Some((reg, index)) = self.find(offset) else {
            self.judge.report(Rule::RegUnknown, offset);
            return 0;
        };
        if reg.def().access == Access::Wo {
            self.judge.report(Rule::RegWriteOnly, offset);
            return 0;
        }
        self.value(reg, index)
    }

    fn value(&self, reg: Reg, index: usize) -> u32 {
        match reg {
            Reg::STATUS => {
                self.get(reg, 0) | (u32::from(self.resetting.load(Ordering::SeqCst)) << 1)
            }
            Reg::TIME_LO => {
                let now = self.time();
                self.set_pair(Reg::TIME_LO, Reg::TIME_HI, now);
                now as u32
            }
            Reg::ENERGY_LO => {
                let energy = self.energy.load(Ordering::SeqCst);
                self.set_pair(Reg::ENERGY_LO, Reg::ENERGY_HI, energy);
                energy as u32
            }
            Reg::CTR_LO => {
                let value = self.counter();
                self.set_pair(Reg::CTR_LO, Reg::CTR_HI, value);
                value as u32
            }
            Reg::IRQ_STATUS => self.irq.status(index),
            Reg::IRQ_MASK => u32::from(self.irq.masked(index)),
            Reg::VIOL_COUNT => self.judge.count(),
            Reg::VIOL_LAST => self.judge.last().map_or(0, |v| v.rule.code()),
            Reg::VIOL_INFO_LO => self.judge.last().map_or(0, |v| v.info as u32),
            Reg::VIOL_INFO_HI => self.judge.last().map_or(0, |v| (v.info >> 32) as u32),
            Reg::VIOL_SELECTED => {
                let code = fields::VIOL_SELECT::code.get(self.get(Reg::VIOL_SELECT, 0));
                self.judge.count_of(code)
            }
            _ => self.get(reg, index),
        }
    }

    fn counter(&self) -> u64 {
        let select = self.get(Reg::CTR_SELECT, 0);
        let unit = fields::CTR_SELECT::unit.get(select);
        let counter = fields::CTR_SELECT::counter.get(select);
        match (unit, counter) {
            (0, mem::CTR_TIME) => self.time(),
            (0, mem::CTR_INTERRUPTS) => self.irq.sent(),
            (0, mem::CTR_ENERGY) => self.energy.load(Ordering::SeqCst),
            _ => self.counters.get(unit, counter).unwrap_or(0),
        }
    }

    /// A write of the register at an aligned offset. What it asks of the scheduler is returned.
    pub fn write(&self, offset: u64, value: u32) -> Effect {
        let Some((reg, index)) = self.find(offset) else {
            self.judge.report(Rule::RegUnknown, offset);
            return Effect::None;
        };
        let def = reg.def();
        if def.access == Access::Ro {
            self.judge.report(Rule::RegReadOnly, offset);
            return Effect::None;
        }
        if value & !def.mask != 0 {
            self.judge.report(Rule::RegReserved, offset);
        }
        let value = value & def.mask;
        if def.class == Class::Batched {
            self.set(reg, index, value);
            return Effect::None;
        }
        self.effect(reg, index, value, offset)
    }

    /// Rings the doorbell at an aligned offset from the first doorbell on.
    pub fn doorbell(&self, offset: u64) {
        let at = offset.saturating_sub(hw::DOORBELL_BASE as u64);
        let queue = usize::try_from(at >> hw::DOORBELL_SHIFT).unwrap_or(usize::MAX);
        if at % (1 << hw::DOORBELL_SHIFT) != 0 || queue >= hw::DOORBELLS {
            self.judge.report(Rule::Doorbell, offset);
        } else {
            self.inbox.ring(queue);
        }
    }

    /// A value that the register does not take.
    fn bad_value(&self, offset: u64) -> Effect {
        self.judge.report(Rule::RegValue, offset);
        Effect::None
    }

    /// What writing an immediate or ordered register does. `value` has only bits of fields.
    fn effect(&self, reg: Reg, index: usize, value: u32, offset: u64) -> Effect {
        let request = match reg {
            Reg::SCRATCH | Reg::VIOL_SELECT => {
                self.set(reg, 0, value);
                return Effect::None;
            }
            Reg::IRQ_STATUS => {
                self.irq.clear(index, value);
                return Effect::None;
            }
            Reg::IRQ_MASK => {
                self.irq.set_mask(index, value != 0);
                return Effect::None;
            }
            Reg::IRQ_TEST => {
                if value != 0 {
                    self.irq.raise(index, hw::IRQ_TEST_BIT);
                }
                return Effect::None;
            }
            Reg::LATCH => {
                self.set_pair(Reg::LATCH_LO, Reg::LATCH_HI, self.time());
                return Effect::None;
            }
            Reg::FAULT_STATUS => {
                self.values[regs::flat(reg, 0)].fetch_and(!value, Ordering::SeqCst);
                return Effect::None;
            }
            Reg::CTR_SELECT => {
                let unit = fields::CTR_SELECT::unit.get(value);
                let counter = fields::CTR_SELECT::counter.get(value);
                let known = unit as usize <= self.config.engines();
                if !known || self.counters.get(unit, counter).is_none() {
                    return self.bad_value(offset);
                }
                self.set(reg, 0, value);
                return Effect::None;
            }
            Reg::DEVICE_RESET if value == hw::RESET_MAGIC => {
                self.resetting.store(true, Ordering::SeqCst);
                Request::Reset
            }
            Reg::ALARM_CTRL => {
                self.set(reg, 0, value);
                Request::Alarm {
                    time: self.pair(Reg::ALARM_LO, Reg::ALARM_HI, 0),
                    enable: fields::ALARM_CTRL::enable.is_set(value),
                    lockstep: fields::ALARM_CTRL::lockstep.is_set(value),
                }
            }
            Reg::ALARM_ACK if value != 0 => Request::AlarmAck,
            Reg::GATE => {
                self.set(reg, 0, value);
                Request::Gate { closed: value != 0 }
            }
            Reg::FW_CTRL if value != 0 => Request::Firmware {
                addr: self.pair(Reg::FW_ADDR_LO, Reg::FW_ADDR_HI, 0),
                size: self.get(Reg::FW_SIZE, 0),
            },
            Reg::CTX_COMMIT if value != 0 => Request::Contexts {
                table: self.pair(Reg::CTX_TABLE_LO, Reg::CTX_TABLE_HI, 0),
                count: self.get(Reg::CTX_COUNT, 0),
            },
            Reg::TLB_INVALIDATE if (mem::TLB_ALL..=mem::TLB_RANGE).contains(&value) => {
                Request::TlbInvalidate {
                    scope: value,
                    ctx: u64::from(self.get(Reg::TLB_CTX, 0)),
                    addr: self.pair(Reg::TLB_ADDR_LO, Reg::TLB_ADDR_HI, 0),
                    pages: u64::from(self.get(Reg::TLB_PAGES, 0)),
                }
            }
            Reg::FAULT_CTRL => {
                self.set(reg, 0, value);
                Request::FaultRing {
                    ring: self.pair(Reg::FAULT_RING_LO, Reg::FAULT_RING_HI, 0),
                    log2: self.get(Reg::FAULT_SIZE, 0),
                    enable: value != 0,
                }
            }
            Reg::FAULT_RPTR => {
                self.set(reg, 0, value);
                Request::FaultRead(value)
            }
            // What these hold is up to the machine, which may refuse it.
            Reg::CLK_TARGET => Request::Clock {
                domain: index,
                khz: value,
            },
            Reg::VOLT_TARGET => Request::Voltage {
                domain: index,
                uv: value,
            },
            Reg::GATE_CTRL => {
                self.set(reg, index, value);
                Request::EngineGate {
                    engine: index,
                    ctrl: value,
                }
            }
            Reg::TEMP_ALERT => {
                self.set(reg, 0, value);
                Request::TempAlert(value)
            }
            Reg::STREAM_CTRL => {
                let setup = stream::Setup {
                    ring: self.pair(Reg::STREAM_RING_LO, Reg::STREAM_RING_HI, 0),
                    log2: self.get(Reg::STREAM_SIZE, 0),
                    period: self.get(Reg::STREAM_PERIOD, 0),
                    watermark: self.get(Reg::STREAM_WATERMARK, 0),
                };
                Request::Stream((value != 0).then_some(setup))
            }
            Reg::STREAM_RPTR => Request::StreamRead(value),
            Reg::ENG_RESET if self.slots_exist(fields::ENG_RESET::slots.get(value)) => {
                Request::EngineReset {
                    engine: index,
                    slots: fields::ENG_RESET::slots.get(value),
                    whole: fields::ENG_RESET::engine.is_set(value),
                }
            }
            Reg::SLOT_COMMIT if self.slots_exist(value) => Request::Commit {
                engine: index,
                slots: value,
                shadow: std::array::from_fn(|slot| {
                    let i = index * hw::SLOTS_MAX + slot;
                    let ctrl = self.get(Reg::SLOT_CTRL, i);
                    SlotShadow {
                        desc: self.pair(Reg::SLOT_DESC_LO, Reg::SLOT_DESC_HI, i),
                        bind: fields::SLOT_CTRL::bind.is_set(ctrl),
                    }
                }),
            },
            _ => return self.bad_value(offset),
        };
        Effect::Request(request)
    }

    fn slots_exist(&self, mask: u32) -> bool {
        mask >> self.config.slots == 0
    }
}
