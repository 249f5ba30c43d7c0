// SPDX-License-Identifier: GPL-2.0
//! The stream of a queue: the doorbell rule, positions, and packets from words.

use std::sync::atomic::fence;
use std::sync::atomic::Ordering;

use crate::engine::cx::Cx;
use crate::engine::exec::Job;
use crate::engine::packet;
use crate::engine::packet::Address;
use crate::engine::packet::Header;
use crate::engine::packet::Place;
use crate::fault::Access;
use crate::fault::Fault;
use crate::hw::mem;
use crate::hw::packets::PKT_INDIRECT;
use crate::hw::packets::PKT_NOP;
use crate::judge::Rule;
use crate::timing;
use crate::trace::What;

use super::Queue;
use super::State;

/// Words of the packet that starts an indirect buffer.
const INDIRECT_WORDS: u64 = 2;

impl Queue {
    /// The producer's position, if it makes sense.
    fn read_wptr(&self, cx: &Cx<'_>) -> Result<u64, Fault> {
        let wptr = self.control.wptr(cx)?;
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
    pub(super) fn look(&mut self, cx: &mut Cx<'_>) -> Result<(), Fault> {
        self.wptr = self.read_wptr(cx)?;
        if self.wptr == self.rptr {
            self.control.put_event(cx, self.rptr)?;
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
            self.control
                .put_state(cx, self.slot_state(), self.error())?;
        }
        if state == State::Ready {
            self.control.put_event(cx, event)?;
        }
        Ok(())
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
    pub(super) fn header(&self, cx: &mut Cx<'_>) -> u32 {
        match self.buffer {
            Some(_) => 0,
            None => self.word(cx, 0).unwrap_or(0) as u32,
        }
    }

    /// Position of the packet, for a fault entry.
    pub(super) fn position(&self) -> u64 {
        match self.buffer {
            Some(buffer) => buffer.addr.saturating_add(buffer.pos * 8),
            None => self.rptr,
        }
    }

    /// Takes the packet at the position; false if there is none, in which case the queue may have
    /// gone to sleep.
    pub(super) fn fetch(&mut self, cx: &mut Cx<'_>) -> Result<bool, Fault> {
        let available = self.available();
        if available == 0 {
            self.account(cx);
            self.control.put_work(cx, &self.work, self.rptr)?;
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
        if header.opcode() != PKT_NOP {
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
    pub(super) fn retire(&mut self, cx: &mut Cx<'_>, job: &Job, skip: u64) -> Result<(), Fault> {
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
            self.count_packet(cx, PKT_INDIRECT);
            // Not so only if it came from a save area that somebody wrote.
            if self.available() < INDIRECT_WORDS {
                return Err(Fault::packet(mem::FAULT_PACKET));
            }
            self.rptr += INDIRECT_WORDS;
        } else {
            self.rptr += words;
        }
        self.control.put_progress(cx, &self.work, self.rptr)
    }

    fn count_packet(&mut self, cx: &mut Cx<'_>, opcode: u8) {
        self.progress(cx, 1);
        cx.front.counters.engine(cx.engine, mem::CTR_PACKETS, 1);
        cx.trace(What::Retire(opcode));
    }
}
