// SPDX-License-Identifier: GPL-2.0
//! What a queue works with while it has its engine: memory, translation, and the cycles that it uses.

use crate::fault::Access;
use crate::fault::Fault;
use crate::fault::FaultRing;
use crate::front::Front;
use crate::hw::mem;
use crate::judge::Rule;
use crate::memory::BusError;
use crate::memory::Mem;
use crate::memory::Pa;
use crate::mmu::Mmu;
use crate::mmu::Target;
use crate::power::Activity;
use crate::request::Request;
use crate::timing;
use crate::trace::Trace;
use crate::trace::What;

use super::packet::Address;

/// The parts of the board that engines share.
#[derive(Default)]
pub struct Units {
    /// Contexts and translations.
    pub mmu: Mmu,
    /// Where faults go.
    pub faults: FaultRing,
    /// What happened.
    pub trace: Trace,
    /// Core clock in kHz.
    pub core_khz: u32,
    /// Memory clock in kHz.
    pub memory_khz: u32,
    /// Cycles of the core clock when the present piece of time began.
    pub core_cycles: u64,
    /// What each engine did in it.
    pub activity: Activity,
}

/// A piece of work of one engine.
pub struct Cx<'a> {
    /// Registers, interrupts, judge.
    pub front: &'a Front,
    /// Memory.
    pub mem: &'a Mem<'a>,
    /// Shared units.
    pub units: &'a mut Units,
    /// The engine.
    pub engine: usize,
    /// The slot, while one has the engine.
    pub slot: usize,
    /// No packet may be started.
    pub gate_closed: bool,
    /// What packets asked of the scheduler.
    pub requests: Vec<Request>,
    /// Board time at which the cycles began.
    start: u64,
    used: u64,
    limit: u64,
    stalled: u64,
}

impl<'a> Cx<'a> {
    /// `limit` cycles from board time `start` on, of which `used` are gone already.
    pub fn new(
        front: &'a Front,
        mem: &'a Mem<'a>,
        units: &'a mut Units,
        engine: usize,
        start: u64,
        (used, limit): (u64, u64),
    ) -> Self {
        Self {
            front,
            mem,
            units,
            engine,
            slot: usize::MAX,
            gate_closed: false,
            requests: Vec::new(),
            start,
            used,
            limit,
            stalled: 0,
        }
    }

    /// Goes on where another context of the same quantum stopped.
    pub fn carry_on(mut self, used: u64, stalled: u64) -> Self {
        (self.used, self.stalled) = (used, stalled);
        self
    }

    /// Cycles used.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Cycles of waiting for memory among them.
    pub fn stalled(&self) -> u64 {
        self.stalled
    }

    /// Cycles left.
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Uses cycles; may use more than are left, which the engine then owes.
    pub fn spend(&mut self, cycles: u64) {
        self.used = self.used.saturating_add(cycles);
    }

    /// Uses cycles of waiting.
    pub fn stall(&mut self, cycles: u64) {
        self.stalled = self.stalled.saturating_add(cycles);
        self.spend(cycles);
    }

    /// Board time in ns.
    pub fn now(&self) -> u64 {
        self.start
            .saturating_add(timing::nanoseconds(self.used, self.units.core_khz))
    }

    /// Cycles of the core clock.
    pub fn cycle(&self) -> u64 {
        self.units.core_cycles.saturating_add(self.used)
    }

    /// Board time for something that software sees: what it reads from then on is not earlier.
    pub fn stamp(&self) -> u64 {
        let now = self.now();
        self.front.publish_time(now);
        now
    }

    /// Adds to what the engine did: core cycles in which it worked, the same in ns, instructions.
    pub fn worked(&mut self, cycles: u64, ns: u64, instructions: u64) {
        if let Some(work) = self.units.activity.get_mut(self.engine) {
            work.cycles += cycles;
            work.busy_ns += ns;
            work.instructions += instructions;
        }
    }

    /// Records an event of the slot.
    pub fn trace(&mut self, what: What) {
        let now = self.now();
        self.units.trace.add(now, self.engine, self.slot, what);
    }

    /// Translates an address of a context.
    pub fn translate(&mut self, ctx: u16, va: u64, access: Access) -> Result<Target, Fault> {
        let misses = self.units.mmu.misses();
        let target = self
            .units
            .mmu
            .translate(&self.front.judge, self.mem, ctx, va, access);
        if self.units.mmu.misses() != misses {
            self.stall(timing::TLB_MISS_CYCLES);
        }
        target
    }

    /// The fault of a privileged access that nothing answered, reported to the judge.
    pub fn bus_fault(&self, addr: u64, access: Access) -> Fault {
        let off = addr & mem::PA_SYSTEM != 0 && !self.mem.master();
        let rule = if off { Rule::BusMaster } else { Rule::Address };
        self.front.judge.report(rule, addr);
        Fault::memory(mem::FAULT_BUS, addr, access)
    }

    /// Where an address of a packet leads, and how far it goes on from there.
    pub fn resolve(
        &mut self,
        ctx: u16,
        addr: Address,
        access: Access,
    ) -> Result<(Option<Pa>, u64), Fault> {
        match addr {
            Address::Virtual(va) => {
                let target = self.translate(ctx, va, access)?;
                Ok((target.pa, target.len))
            }
            Address::Physical(raw) => {
                let pa = Pa::new(raw).ok_or_else(|| self.bus_fault(raw, access))?;
                Ok((Some(pa), mem::PA_MASK - pa.address() + 1))
            }
        }
    }

    /// The fault of an access that was resolved, but that nothing answered.
    pub fn no_answer(&self, addr: Address, access: Access) -> Fault {
        match addr {
            Address::Virtual(va) => Fault::memory(mem::FAULT_BUS, va, access),
            Address::Physical(raw) => self.bus_fault(raw, access),
        }
    }

    /// Resolves the address of a naturally aligned word.
    fn word(
        &mut self,
        ctx: u16,
        addr: Address,
        bytes: u64,
        access: Access,
    ) -> Result<Option<Pa>, Fault> {
        if addr.raw() % bytes != 0 {
            return Err(Fault::memory(mem::FAULT_ALIGNMENT, addr.raw(), access));
        }
        Ok(self.resolve(ctx, addr, access)?.0)
    }

    fn count(&self, pa: Pa, write: bool, bytes: u64) {
        self.mem.traffic.count(pa.is_system(), write, bytes);
    }

    /// Reads a 64-bit word.
    pub fn load(&mut self, ctx: u16, addr: Address) -> Result<u64, Fault> {
        let Some(pa) = self.word(ctx, addr, 8, Access::Read)? else {
            return Ok(0);
        };
        self.count(pa, false, 8);
        self.mem
            .load(pa)
            .map_err(|_| self.no_answer(addr, Access::Read))
    }

    /// Writes a 64-bit word, or its low half.
    pub fn store(&mut self, ctx: u16, addr: Address, value: u64, short: bool) -> Result<(), Fault> {
        let bytes = if short { 4 } else { 8 };
        let Some(pa) = self.word(ctx, addr, bytes, Access::Write)? else {
            return Ok(());
        };
        self.count(pa, true, bytes);
        let stored = if short {
            self.mem.store(pa, value as u32)
        } else {
            self.mem.store(pa, value)
        };
        stored.map_err(|_| self.no_answer(addr, Access::Write))
    }

    /// Adds to a 64-bit word atomically.
    pub fn add(&mut self, ctx: u16, addr: Address, value: u64) -> Result<(), Fault> {
        let Some(pa) = self.word(ctx, addr, 8, Access::Atomic)? else {
            return Ok(());
        };
        self.count(pa, false, 8);
        self.count(pa, true, 8);
        let added: Result<u64, BusError> = self.mem.update(pa, |old: u64| old.wrapping_add(value));
        added
            .map(|_| ())
            .map_err(|_| self.no_answer(addr, Access::Atomic))
    }
}
