// SPDX-License-Identifier: GPL-2.0
//! Board time passes: in quanta while engines work, in jumps while they rest, with the clock on the
//! wall while they wait. Power and temperature follow each piece.

use crate::engine::Cx;
use crate::hw::mem;
use crate::memory::Mem;
use crate::power::PIECE_NS;
use crate::timing;

use super::Machine;

impl Machine {
    /// A quantum of every engine, in order. It ends early if all have nothing more to do.
    pub(super) fn quantum(&mut self, mem: &Mem<'_>) {
        let start = self.clock.now();
        let events = [self.clock.alarm_at(), self.power.next_event()];
        let next = events.into_iter().flatten().min().unwrap_or(u64::MAX);
        let length = timing::QUANTUM_NS.min(next.saturating_sub(start)).max(1);
        let limit = timing::cycles(length, self.units.core_khz).max(1);
        let longest = self.run_engines(mem, start, limit);
        let took = if longest == limit {
            length
        } else {
            timing::nanoseconds(longest, self.units.core_khz)
        };
        self.elapse(mem, start.saturating_add(took));
    }

    /// Nothing happens until `time`, unless the temperature wants to be told of before.
    pub(super) fn jump(&mut self, mem: &Mem<'_>, time: u64) {
        let mut piece = PIECE_NS;
        while self.clock.now() < time && !self.power.interrupts() {
            let end = self.clock.now().saturating_add(piece).min(time);
            self.elapse(mem, end);
            if self.clock.now() < end {
                return;
            }
            if self.power.settled() {
                piece = u64::MAX;
            }
        }
    }

    /// Board time goes on to `end`, with what engines did and moved since it last did.
    fn elapse(&mut self, mem: &Mem<'_>, end: u64) {
        self.count_traffic(mem);
        let from = self.clock.now();
        self.clock.advance_to(end);
        let now = self.clock.now();
        let idle = self.idle();
        let counters = &self.front.counters;
        self.power
            .elapse(counters, (from, now), &self.units.activity, idle);
        if now != from {
            self.units.activity = Default::default();
        }
        self.power.check(counters, &self.front.judge, now);
        self.follow_clocks();
        if self.stream.is_due(now) {
            self.units.mmu.publish(&self.front.counters);
            let sample = self.power.sample(now);
            self.stream.push(&self.front, mem, &sample);
        }
    }

    /// Engines run at the clocks that the power unit has set.
    pub(super) fn follow_clocks(&mut self) {
        self.units.core_khz = self.power.core_khz();
        self.units.memory_khz = self.power.memory_khz();
        self.units.core_cycles = self.power.core_cycles();
    }

    /// Moves the bytes that engines have moved to the counters, and to the account of the power unit.
    pub(super) fn count_traffic(&mut self, mem: &Mem<'_>) {
        let counters = [
            mem::CTR_VRAM_READ,
            mem::CTR_VRAM_WRITE,
            mem::CTR_BUS_READ,
            mem::CTR_BUS_WRITE,
        ];
        for (counter, bytes) in counters.into_iter().zip(mem.traffic.take()) {
            self.front.counters.board(counter, bytes);
            self.power.moved(bytes);
        }
    }

    /// A bit for each engine that has nothing to do.
    fn idle(&self) -> u32 {
        let bit = |i: usize| u32::from(self.engines[i].idle()) << i;
        (0..self.engines.len()).map(bit).sum()
    }

    /// Switches engines off and on that have become idle, or have not stayed so.
    pub(super) fn update_gates(&mut self) {
        let idle = self.idle();
        let now = self.clock.now();
        self.power.update_gates(&self.front.counters, now, idle);
    }

    /// Time passes at the pace of the wall clock, up to the next event; what hangs uses it up.
    pub(super) fn let_pass(&mut self, mem: &Mem<'_>, elapsed: u64, wakes: Option<u64>) {
        let start = self.clock.now();
        let events = [wakes, self.clock.alarm_at(), self.power.next_event()];
        let next = events.into_iter().flatten().filter(|&at| at > start).min();
        let end = start.saturating_add(elapsed).min(next.unwrap_or(u64::MAX));
        let limit = timing::cycles(end - start, self.units.core_khz);
        if limit != 0 {
            self.run_engines(mem, start, limit);
        }
        self.elapse(mem, end);
    }

    /// Runs each engine for `limit` cycles from `start` on; returns the most cycles that any used.
    fn run_engines(&mut self, mem: &Mem<'_>, start: u64, limit: u64) -> u64 {
        let front = self.front.clone();
        let mut longest = 0;
        for i in 0..self.engines.len() {
            if !self.power.open(i) {
                continue;
            }
            let began = self.engines[i].debt();
            let (mut used, mut stalled) = (began, 0);
            loop {
                let closed = self.clock.gate_closed();
                let cx = Cx::new(&front, mem, &mut self.units, i, start, (began, limit));
                let mut cx = cx.carry_on(used, stalled);
                cx.gate_closed = closed;
                self.engines[i].run(&mut cx);
                if cx.requests.is_empty() {
                    longest = longest.max(self.engines[i].quantum_over(&mut cx, began, limit));
                    break;
                }
                (used, stalled) = (cx.used(), cx.stalled());
                let now = cx.now();
                for request in std::mem::take(&mut cx.requests) {
                    self.apply(request, mem, now);
                }
            }
        }
        longest
    }
}
