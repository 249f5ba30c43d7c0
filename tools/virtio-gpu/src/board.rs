// SPDX-License-Identifier: GPL-2.0
//! The board: a machine, its lock, and the thread that does its work.
//!
//! The one lock guards the machine. Who holds it may take the guest's memory map (a reader), nothing
//! else. A step of the worker is bounded, so that a register access waits for milliseconds at most.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::thread;
use std::time::Instant;

use crate::machine::Machine;
use crate::machine::Next;

/// A board.
pub struct Board {
    machine: Mutex<Machine>,
    wake: Condvar,
    stop: AtomicBool,
}

impl Board {
    /// A board of this machine.
    pub fn new(machine: Machine) -> Self {
        Self {
            machine: Mutex::new(machine),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
        }
    }

    /// The machine. Call [`Self::wake`] after a change that gives it something to do.
    pub fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker looks what there is to do.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// A read of the register BAR.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        let mut machine = self.machine();
        machine.read(offset, data);
        machine.irq.raise_again();
    }

    /// A write of the register BAR.
    pub fn write(&self, offset: u64, data: &[u8]) {
        let mut machine = self.machine();
        let busy = machine.write(offset, data);
        machine.irq.raise_again();
        drop(machine);
        if busy {
            self.wake();
        }
    }

    fn work(&self) {
        let mut machine = self.machine();
        while !self.stop.load(Ordering::SeqCst) {
            machine = match machine.step(Instant::now()) {
                Next::Again => {
                    drop(machine);
                    thread::yield_now();
                    self.machine()
                }
                Next::At(time) => {
                    let left = time.saturating_duration_since(Instant::now());
                    let waited = self.wake.wait_timeout(machine, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Next::Rest => self
                    .wake
                    .wait(machine)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// The thread that does a board's work; it ends when this is dropped.
pub struct Worker {
    board: Arc<Board>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Worker {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// No thread.
    pub fn start(board: Arc<Board>) -> io::Result<Self> {
        let works = board.clone();
        let thread = thread::Builder::new()
            .name("worker".into())
            .spawn(move || works.work())?;
        Ok(Self {
            board,
            thread: Some(thread),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let machine = self.board.machine();
        self.board.stop.store(true, Ordering::SeqCst);
        drop(machine);
        self.board.wake();
        if let Some(thread) = self.thread.take() {
            if thread.join().is_err() {
                log::error!("the worker has panicked");
            }
        }
    }
}
