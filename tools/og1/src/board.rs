// SPDX-License-Identifier: GPL-2.0
//! A board: what a bus can do with it.
//!
//! ```text
//!   register access ──▶ Front ──(request)──▶ Inbox ──▶ Machine ◀── scheduler thread, or a test
//!                         ▲                               │
//!                         └──────── published values ─────┘
//! ```
//!
//! Locks, in this order: the machine's mutex, then the guest's memory map (a reader), then one of the
//! leaves (judge, interrupts, inbox). Whoever accesses registers never waits for the machine's mutex:
//! it carries out its request itself if the mutex is free, and otherwise leaves it to the holder.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::TryLockError;
use std::time::Duration;

use ochre_vfio_user as vfu;
use thiserror::Error;
use vfu::GuestMemory;
use vfu::SharedMemory;

use crate::config::Config;
use crate::config::ConfigError;
use crate::front::Effect;
use crate::front::Front;
use crate::hw::regs;
use crate::irq::MessageSink;
use crate::judge::Rule;
use crate::machine::Machine;
use crate::machine::Next;
use crate::memory::Bus;
use crate::request::Request;

/// Longest time that a register access waits for the scheduler. The scheduler looks at requests every
/// few milliseconds; this is for a host that is badly overloaded.
const SETTLE_LIMIT: Duration = Duration::from_secs(2);

/// Requests that may wait. A guest behind QEMU cannot have more than some hundreds under way.
const PENDING_MAX: usize = 16384;

/// Why there is no board.
#[derive(Debug, Error)]
pub enum BoardError {
    /// It cannot have this shape.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The VRAM has another size than the shape says.
    #[error("VRAM of {0:#x} bytes, which is not what the board is to have")]
    Vram(u64),
}

/// A board.
pub struct Board {
    front: Arc<Front>,
    bus: Arc<Bus>,
    vram: Arc<SharedMemory>,
    machine: Mutex<Machine>,
}

impl Board {
    /// A board after power-on. System memory is `guest`; interrupt messages go to `sink`.
    ///
    /// # Errors
    ///
    /// A shape that cannot be, or a VRAM of another size.
    pub fn new(
        config: Config,
        vram: Arc<SharedMemory>,
        guest: Arc<GuestMemory>,
        sink: Box<dyn MessageSink>,
    ) -> Result<Self, BoardError> {
        config.check()?;
        if vram.len() != config.vram {
            return Err(BoardError::Vram(vram.len()));
        }
        let bus = Arc::new(Bus::new(vram.clone(), guest));
        let front = Arc::new(Front::new(config, sink));
        let machine = Mutex::new(Machine::new(front.clone(), bus.clone()));
        Ok(Self {
            front,
            bus,
            vram,
            machine,
        })
    }

    /// Registers, interrupts, judge, counters.
    pub fn front(&self) -> &Front {
        &self.front
    }

    /// VRAM.
    pub fn vram(&self) -> &Arc<SharedMemory> {
        &self.vram
    }

    /// The machine; waits until the step that runs is over.
    pub fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One step of the machine; see [`Machine::step`].
    pub fn step(&self, elapsed: u64) -> Next {
        self.machine().step(elapsed)
    }

    /// Carries out what was asked if nobody else is at it.
    fn try_settle(&self) {
        match self.machine.try_lock() {
            Ok(mut machine) => machine.settle(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().settle(),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Asks for something. It has happened when the registers that show it are read.
    pub fn request(&self, request: Request) {
        if self.front.inbox.pending() >= PENDING_MAX && !self.settle() {
            log::warn!("{request:?} comes too fast and is dropped");
            return;
        }
        self.front.inbox.post(request);
        self.try_settle();
    }

    /// Waits until everything that was asked has happened; false if that takes too long.
    pub fn settle(&self) -> bool {
        if self.front.inbox.pending() != 0 {
            self.try_settle();
        }
        self.front.inbox.settle(SETTLE_LIMIT)
    }

    /// Turns bus mastering on or off.
    pub fn set_bus_master(&self, on: bool) {
        self.bus.set_master(on);
        self.try_settle();
    }

    /// A reset by the bus: FLR, or the reset of the machine around it. Bus mastering goes off.
    pub fn bus_reset(&self) {
        self.bus.set_master(false);
        self.request(Request::Reset);
        if !self.settle() {
            log::warn!("the reset is late");
        }
    }

    /// A read of BAR0; fills `data` whatever the access is.
    pub fn mmio_read(&self, offset: u64, data: &mut [u8]) {
        if self.front.silent() {
            data.fill(0xff);
            return;
        }
        data.fill(0);
        let Ok(word) = <&mut [u8; 4]>::try_from(data) else {
            self.front.judge.report(Rule::RegWidth, offset);
            return;
        };
        if offset % 4 != 0 {
            self.front.judge.report(Rule::RegWidth, offset);
            return;
        }
        let waits = self
            .front
            .find(offset)
            .is_some_and(|(reg, _)| Front::shows_effects(reg));
        if waits && self.front.inbox.pending() != 0 && !self.settle() {
            log::warn!("a read of {offset:#x} did not wait for what was asked before");
        }
        *word = self.front.read(offset).to_le_bytes();
    }

    /// A write of BAR0.
    pub fn mmio_write(&self, offset: u64, data: &[u8]) {
        if self.front.silent() {
            return;
        }
        let doorbell = offset >= regs::DOORBELL_BASE as u64;
        let word = <[u8; 4]>::try_from(data).ok().filter(|_| offset % 4 == 0);
        match word.map(u32::from_le_bytes) {
            None => {
                let rule = if doorbell {
                    Rule::Doorbell
                } else {
                    Rule::RegWidth
                };
                self.front.judge.report(rule, offset);
            }
            Some(_) if doorbell => self.front.doorbell(offset),
            Some(value) => match self.front.write(offset, value) {
                Effect::None => {}
                Effect::Request(request) => self.request(request),
            },
        }
    }
}
