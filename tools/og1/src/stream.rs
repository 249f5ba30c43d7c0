// SPDX-License-Identifier: GPL-2.0
//! The sampled counter stream: records of the counters in a ring in memory.
//!
//! Belongs to the machine, which asks after each piece of board time whether a record is due, so that
//! the stream changes nothing of what it watches. Section "Counter stream" of the specification.

use crate::front::Front;
use crate::hw::mem;
use crate::hw::mem::StreamEngine;
use crate::hw::regs::ENGINES_MAX;
use crate::hw::regs::IRQ_STREAM;
use crate::hw::regs::VECTOR_FAULT;
use crate::judge::Rule;
use crate::memory::Mem;
use crate::memory::Pa;
use crate::regs::Reg;

/// The batched registers of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Board address of the ring.
    pub ring: u64,
    /// Binary logarithm of its records.
    pub log2: u32,
    /// Board time from record to record in ns.
    pub period: u32,
    /// Records that wait when the interrupt is raised.
    pub watermark: u32,
}

/// What a record tells beside its place in the stream; counters are taken from the front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Board time in ns.
    pub time: u64,
    /// Energy in µJ.
    pub energy_uj: u64,
    /// Power in mW.
    pub power_mw: u32,
    /// Temperature in m°C.
    pub temp_mc: i32,
    /// Clocks in kHz.
    pub core_khz: u32,
    /// The same of the memory.
    pub memory_khz: u32,
}

/// A stream that runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    pa: Pa,
    records: u32,
    period: u64,
    watermark: u32,
    /// When the next record is due.
    due: u64,
}

/// The stream.
#[derive(Debug, Default)]
pub struct Stream {
    running: Option<Running>,
    wptr: u32,
    rptr: u32,
    sequence: u64,
    lost: u32,
    /// Records were lost since the last one that was written.
    gap: bool,
}

impl Setup {
    /// Where the ring is, if all values are taken.
    fn place(&self) -> Option<Pa> {
        let sizes = self.log2 <= mem::STREAM_LOG2_MAX
            && self.period >= mem::STREAM_PERIOD_MIN
            && (1..=1 << self.log2).contains(&self.watermark);
        Pa::new(self.ring).filter(|pa| sizes && pa.is_aligned(4096))
    }
}

impl Stream {
    /// `STREAM_CTRL`, at board time `now`.
    pub fn set(&mut self, front: &Front, mem: &Mem<'_>, setup: Option<Setup>, now: u64) {
        *self = Self::default();
        if let Some(setup) = setup {
            match setup.place() {
                Some(pa) => {
                    let records = 1 << setup.log2;
                    if !mem.reachable(pa, u64::from(records) * mem::STREAM_BYTES as u64) {
                        let off = pa.is_system() && !mem.master();
                        let rule = if off { Rule::BusMaster } else { Rule::Address };
                        front.judge.report(rule, setup.ring);
                    }
                    let period = u64::from(setup.period);
                    self.running = Some(Running {
                        pa,
                        records,
                        period,
                        watermark: setup.watermark,
                        due: now.saturating_add(period),
                    });
                }
                None => front
                    .judge
                    .report(Rule::RegValue, Reg::STREAM_CTRL.def().offset as u64),
            }
        }
        front.set(Reg::STREAM_CTRL, 0, self.running.is_some().into());
        self.publish(front);
        front.set(Reg::STREAM_RPTR, 0, 0);
    }

    /// `STREAM_RPTR`.
    pub fn taken(&mut self, front: &Front, rptr: u32) {
        if rptr.wrapping_sub(self.rptr) > self.waiting() {
            front.judge.report(Rule::StreamRptr, u64::from(rptr));
        } else {
            self.rptr = rptr;
        }
        front.set(Reg::STREAM_RPTR, 0, self.rptr);
        let reached = |r: Running| self.waiting() >= r.watermark;
        if self.running.is_some_and(reached) {
            front.irq.raise(VECTOR_FAULT, IRQ_STREAM);
        }
    }

    /// Records that wait.
    fn waiting(&self) -> u32 {
        self.wptr.wrapping_sub(self.rptr)
    }

    fn publish(&self, front: &Front) {
        front.set(Reg::STREAM_WPTR, 0, self.wptr);
        front.set(Reg::STREAM_LOST, 0, self.lost);
    }

    /// Whether a record is due at board time `now`.
    pub fn is_due(&self, now: u64) -> bool {
        self.running.is_some_and(|r| now >= r.due)
    }

    /// Writes a record, if there is room, and raises the vector when enough wait.
    pub fn push(&mut self, front: &Front, mem: &Mem<'_>, sample: &Sample) {
        let Some(mut running) = self.running else {
            return;
        };
        // The next multiple of the period, however many have passed.
        let late = sample.time.saturating_sub(running.due);
        let periods = late / running.period + 1;
        running.due = running
            .due
            .saturating_add(periods.saturating_mul(running.period));
        self.running = Some(running);
        let sequence = self.sequence;
        self.sequence += 1;
        if self.waiting() >= running.records {
            self.lost = self.lost.saturating_add(1);
            self.gap = true;
            self.publish(front);
            return;
        }
        let record = self.record(front, sequence, sample);
        let at = u64::from(self.wptr & (running.records - 1)) * mem::STREAM_BYTES as u64;
        if mem.write(running.pa.offset(at), &record).is_err() {
            let to = running.pa.offset(at).raw();
            front.judge.report(Rule::Address, to);
        }
        self.gap = false;
        self.wptr = self.wptr.wrapping_add(1);
        self.publish(front);
        if self.waiting() == running.watermark {
            front.irq.raise(VECTOR_FAULT, IRQ_STREAM);
        }
    }

    /// A record as it stands in memory.
    fn record(&self, front: &Front, sequence: u64, s: &Sample) -> [u8; mem::STREAM_BYTES] {
        let counter = |unit: usize, counter| {
            let unit = u32::try_from(unit).unwrap_or(u32::MAX);
            front.counters.get(unit, counter).unwrap_or(0)
        };
        let pair = |low: u32, high: u32| u64::from(low) | (u64::from(high) << 32);
        let flags = if self.gap { mem::STREAM_FLAG_LOST } else { 0 };
        let head = [
            sequence,
            s.time,
            s.energy_uj,
            pair(s.power_mw, s.temp_mc as u32),
            pair(s.core_khz, s.memory_khz),
            pair(flags, self.lost),
        ];
        let board = [
            mem::CTR_CORE_CYCLES,
            mem::CTR_MEMORY_CYCLES,
            mem::CTR_VRAM_READ,
            mem::CTR_VRAM_WRITE,
            mem::CTR_BUS_READ,
            mem::CTR_BUS_WRITE,
            mem::CTR_TLB_HITS,
            mem::CTR_TLB_MISSES,
        ];
        let board = board.map(|number| counter(0, number));
        let engines = (0..ENGINES_MAX).flat_map(|i| {
            let done = StreamEngine {
                busy_ns: counter(i + 1, mem::CTR_BUSY),
                instructions: counter(i + 1, mem::CTR_INSTRUCTIONS),
            };
            [done.busy_ns, done.instructions]
        });
        let words = head.into_iter().chain(board).chain([0; 2]).chain(engines);
        let mut bytes = [0; mem::STREAM_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Back to the reset state.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}
