// SPDX-License-Identifier: GPL-2.0
//! Interrupt control: status and mask per vector, and the messages that follow from them.
//!
//! Lock: one mutex over all vectors. The message is sent inside it, so that a message that follows
//! from a status bit is never overtaken by a clear; the sink must not block nor call back.

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use crate::hw::regs::VECTORS_MAX;

/// Takes the interrupt messages of a board.
pub trait MessageSink: Send + Sync {
    /// Sends the message of `vector`; false if it could not go out (bus master off, MSI-X off).
    fn send(&self, vector: usize) -> bool;
}

#[derive(Clone, Copy)]
struct Vector {
    status: u32,
    masked: bool,
    /// Messages that will be swallowed.
    lose: u32,
}

const RESET: Vector = Vector {
    status: 0,
    masked: true,
    lose: 0,
};

struct State {
    vectors: [Vector; VECTORS_MAX],
    /// Messages sent.
    sent: u64,
    /// No messages: the board plays dead.
    silent: bool,
}

/// The interrupt unit.
pub struct Irq {
    state: Mutex<State>,
    sink: Box<dyn MessageSink>,
}

impl Irq {
    /// All vectors masked.
    pub fn new(sink: Box<dyn MessageSink>) -> Self {
        let state = State {
            vectors: [RESET; VECTORS_MAX],
            sent: 0,
            silent: false,
        };
        Self {
            state: Mutex::new(state),
            sink,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn message(&self, state: &mut State, vector: usize) {
        let Some(v) = state.vectors.get_mut(vector) else {
            return;
        };
        if v.lose > 0 {
            v.lose -= 1;
            log::info!("message of vector {vector} lost on demand");
        } else if !state.silent && self.sink.send(vector) {
            state.sent += 1;
        }
    }

    /// An event: sets `bits` and sends a message unless the vector is masked.
    pub fn raise(&self, vector: usize, bits: u32) {
        let mut state = self.state();
        let Some(v) = state.vectors.get_mut(vector) else {
            return;
        };
        v.status |= bits;
        if !v.masked {
            self.message(&mut state, vector);
        }
    }

    /// Status bits of a vector.
    pub fn status(&self, vector: usize) -> u32 {
        self.state().vectors.get(vector).map_or(0, |v| v.status)
    }

    /// Clears status bits.
    pub fn clear(&self, vector: usize, bits: u32) {
        if let Some(v) = self.state().vectors.get_mut(vector) {
            v.status &= !bits;
        }
    }

    /// Whether a vector is masked.
    pub fn masked(&self, vector: usize) -> bool {
        self.state().vectors.get(vector).is_none_or(|v| v.masked)
    }

    /// Masks or unmasks; unmasking with a status bit set sends a message.
    pub fn set_mask(&self, vector: usize, masked: bool) {
        let mut state = self.state();
        let Some(v) = state.vectors.get_mut(vector) else {
            return;
        };
        let was = std::mem::replace(&mut v.masked, masked);
        if was && !masked && v.status != 0 {
            self.message(&mut state, vector);
        }
    }

    /// Swallows the next `count` messages of a vector.
    pub fn lose(&self, vector: usize, count: u32) {
        if let Some(v) = self.state().vectors.get_mut(vector) {
            v.lose = count;
        }
    }

    /// Stops or resumes all messages.
    pub fn set_silent(&self, silent: bool) {
        self.state().silent = silent;
    }

    /// Messages sent since power-on.
    pub fn sent(&self) -> u64 {
        self.state().sent
    }

    /// Back to the reset state; what was ordered on the control socket stays.
    pub fn reset(&self) {
        for v in &mut self.state().vectors {
            *v = Vector {
                lose: v.lose,
                ..RESET
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Default)]
    struct Log(Mutex<Vec<usize>>);

    impl MessageSink for Arc<Log> {
        fn send(&self, vector: usize) -> bool {
            self.0.lock().unwrap().push(vector);
            true
        }
    }

    fn unit() -> (Irq, Arc<Log>) {
        let log = Arc::new(Log::default());
        (Irq::new(Box::new(log.clone())), log)
    }

    #[test]
    fn a_masked_vector_keeps_its_event_and_sends_when_unmasked() {
        let (irq, log) = unit();
        irq.raise(3, 5);
        assert!(log.0.lock().unwrap().is_empty());
        irq.set_mask(3, false);
        assert_eq!(*log.0.lock().unwrap(), [3]);
        assert_eq!(irq.status(3), 5);
        irq.set_mask(3, false);
        assert_eq!(log.0.lock().unwrap().len(), 1, "unmasked already");
    }

    #[test]
    fn lost_messages_leave_their_status() {
        let (irq, log) = unit();
        irq.set_mask(2, false);
        irq.lose(2, 2);
        for _ in 0..3 {
            irq.raise(2, 1);
        }
        assert_eq!(*log.0.lock().unwrap(), [2]);
        irq.clear(2, 1);
        assert_eq!(irq.status(2), 0);
        assert_eq!(irq.sent(), 1);
    }

    #[test]
    fn vectors_that_do_not_exist_do_nothing() {
        let (irq, _) = unit();
        irq.raise(usize::MAX, 1);
        irq.set_mask(VECTORS_MAX, false);
        assert!(irq.masked(VECTORS_MAX));
    }
}
