// SPDX-License-Identifier: GPL-2.0
//! What register writes and the control socket ask of the scheduler, and the queue in between.
//!
//! A register write that concerns engines, tables or the clock does not touch them: it becomes a
//! [`Request`] that holds all it needs (the batched registers included, as they were at that
//! moment). So a write takes no time however busy the board is, and the scheduler sees a fixed
//! order. Reads that have to see the effect wait until the queue is empty.
//!
//! Lock: one mutex, a leaf; two condition variables: work for the scheduler, and work done.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use crate::hw::regs::DOORBELLS;
use crate::hw::regs::SLOTS_MAX;
use crate::power;
use crate::stream;

/// The batched registers of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotShadow {
    /// Board address of the descriptor.
    pub desc: u64,
    /// Bind or empty.
    pub bind: bool,
}

/// What the scheduler is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Reset of any kind; all are the same to the board.
    Reset,
    /// `ALARM_CTRL`.
    Alarm {
        /// Board time in ns.
        time: u64,
        /// Arm or disarm.
        enable: bool,
        /// Halt the clock when it goes off.
        lockstep: bool,
    },
    /// `ALARM_ACK`.
    AlarmAck,
    /// `GATE`.
    Gate {
        /// No queue may start a packet.
        closed: bool,
    },
    /// `FW_CTRL.load`.
    Firmware {
        /// DMA address of the image.
        addr: u64,
        /// Its size in bytes.
        size: u32,
    },
    /// `CTX_COMMIT`.
    Contexts {
        /// Board address of the table.
        table: u64,
        /// Entries in it.
        count: u32,
    },
    /// `TLB_INVALIDATE` or the packet.
    TlbInvalidate {
        /// `TLB_*`.
        scope: u32,
        /// Context.
        ctx: u64,
        /// First address.
        addr: u64,
        /// Pages of 4 KiB.
        pages: u64,
    },
    /// `FAULT_CTRL`.
    FaultRing {
        /// Board address of the ring.
        ring: u64,
        /// Binary logarithm of its entries.
        log2: u32,
        /// Use it or not.
        enable: bool,
    },
    /// `FAULT_RPTR`.
    FaultRead(u32),
    /// `ENG_RESET`.
    EngineReset {
        /// Which engine.
        engine: usize,
        /// Mask of slots.
        slots: u32,
        /// The whole engine.
        whole: bool,
    },
    /// `SLOT_COMMIT`.
    Commit {
        /// Which engine.
        engine: usize,
        /// Mask of slots.
        slots: u32,
        /// Their batched registers.
        shadow: [SlotShadow; SLOTS_MAX],
    },
    /// `CLK_TARGET`.
    Clock {
        /// Which domain.
        domain: usize,
        /// In kHz.
        khz: u32,
    },
    /// `VOLT_TARGET`.
    Voltage {
        /// Which domain.
        domain: usize,
        /// In µV.
        uv: u32,
    },
    /// `GATE_CTRL`.
    EngineGate {
        /// Which engine.
        engine: usize,
        /// The register's value.
        ctrl: u32,
    },
    /// `TEMP_ALERT`.
    TempAlert(u32),
    /// `STREAM_CTRL`: the stream begins, or ends.
    Stream(Option<stream::Setup>),
    /// `STREAM_RPTR`.
    StreamRead(u32),
    /// Control socket: power and temperature.
    Power(power::Order),
    /// Control socket: what power and temperature are at, to be left in the front.
    PowerReport,
    /// Control socket: a queue, an engine or everything hangs.
    Hang(Hang),
    /// Control socket: nothing hangs any more.
    Unhang,
    /// Control socket: the board plays dead, or ends that.
    Silence(bool),
}

/// What hangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hang {
    /// The queue with this id, bound now or later.
    Queue(u16),
    /// An engine.
    Engine(usize),
    /// Everything.
    Device,
}

#[derive(Default)]
struct State {
    requests: VecDeque<Request>,
    /// Something happened that the scheduler has to look at.
    wake: bool,
    /// Requests ever posted, and carried out.
    posted: u64,
    done: u64,
    stop: bool,
}

/// The queue of requests, and the doorbells.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
    /// One bit per queue id: rung since the scheduler looked.
    doorbells: [AtomicU64; DOORBELLS / 64],
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request and wakes the scheduler.
    pub fn post(&self, request: Request) {
        let mut state = self.state();
        state.requests.push_back(request);
        state.posted += 1;
        state.wake = true;
        self.work.notify_one();
    }

    /// Number of requests that wait to be carried out.
    pub fn pending(&self) -> usize {
        let state = self.state();
        usize::try_from(state.posted - state.done).unwrap_or(usize::MAX)
    }

    /// Rings the doorbell of a queue; ids out of range do nothing.
    pub fn ring(&self, queue: usize) {
        if let Some(word) = self.doorbells.get(queue / 64) {
            word.fetch_or(1 << (queue % 64), Ordering::SeqCst);
            let mut state = self.state();
            state.wake = true;
            self.work.notify_one();
        }
    }

    /// Takes the doorbells that were rung, a bit per queue id.
    pub fn take_doorbells(&self) -> [u64; DOORBELLS / 64] {
        std::array::from_fn(|i| self.doorbells[i].swap(0, Ordering::SeqCst))
    }

    /// Takes the oldest request.
    pub fn take(&self) -> Option<Request> {
        self.state().requests.pop_front()
    }

    /// Says that `n` requests have been carried out.
    pub fn finish(&self, n: u64) {
        if n != 0 {
            let mut state = self.state();
            state.done += n;
            self.done.notify_all();
        }
    }

    /// Waits until everything posted so far has been carried out; false if that takes too long.
    pub fn settle(&self, limit: Duration) -> bool {
        let state = self.state();
        let goal = state.posted;
        let (state, timeout) = self
            .done
            .wait_timeout_while(state, limit, |s| s.done < goal && !s.stop)
            .unwrap_or_else(PoisonError::into_inner);
        drop(state);
        !timeout.timed_out()
    }

    /// Scheduler: sleeps until there is something to do or `until` is there; false to end.
    pub fn wait(&self, until: Option<Instant>) -> bool {
        let mut state = self.state();
        while !state.wake && !state.stop {
            state = match until {
                None => self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let result = self.work.wait_timeout(state, left);
                    result.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.wake = false;
        !state.stop
    }

    /// Whether the scheduler is to end.
    pub fn stopped(&self) -> bool {
        self.state().stop
    }

    /// Ends the scheduler.
    pub fn stop(&self) {
        self.state().stop = true;
        self.work.notify_all();
        self.done.notify_all();
    }
}
