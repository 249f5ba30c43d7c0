// SPDX-License-Identifier: GPL-2.0
//! Interrupts: MSI-X messages, or the pin with the ISR status (4.1.4.5).
//!
//! The pin is a level: it stays up as long as the ISR status is not 0. QEMU lets it down at each
//! access of the function, so it is raised again after those ([`Irq::raise_again`]).

use crate::config::VECTORS;
use crate::wire::isr;
use crate::wire::NO_VECTOR;

/// Where interrupts go.
pub trait Sink: Send {
    /// Sends the message of a vector; false if it is lost.
    fn message(&self, vector: u16) -> bool;
    /// Raises the pin; false if nobody listens.
    fn pin(&self) -> bool;
}

/// Interrupt control.
pub struct Irq {
    sink: Box<dyn Sink>,
    /// Messages instead of the pin.
    messages: bool,
    isr: u8,
    silent: bool,
    lose: [u32; VECTORS as usize],
    sent: u64,
    config_sent: u64,
    lost: u64,
}

impl Irq {
    /// Nothing pending; the pin.
    pub fn new(sink: Box<dyn Sink>) -> Self {
        Self {
            sink,
            messages: false,
            isr: 0,
            silent: false,
            lose: [0; VECTORS as usize],
            sent: 0,
            config_sent: 0,
            lost: 0,
        }
    }

    /// MSI-X is enabled, or not.
    pub fn set_messages(&mut self, messages: bool) {
        self.messages = messages;
    }

    /// Nothing is sent.
    pub fn set_silent(&mut self, silent: bool) {
        self.silent = silent;
    }

    /// Does not send the next `count` interrupts of a vector (of the pin: of vector 0).
    pub fn lose(&mut self, vector: u16, count: u32) {
        if let Some(lose) = self.lose.get_mut(usize::from(vector)) {
            *lose = count;
        }
    }

    /// A queue whose vector is `vector` has used buffers.
    pub fn queue(&mut self, vector: u16) {
        self.sent += 1;
        self.raise(isr::QUEUE, vector);
    }

    /// The configuration has changed.
    pub fn config(&mut self, vector: u16) {
        self.config_sent += 1;
        self.raise(isr::CONFIG, vector);
    }

    /// `count` interrupts of a vector without a reason; the pin has no use for more than one.
    pub fn storm(&mut self, vector: u16, count: u32) {
        for _ in 0..count {
            self.raise(isr::QUEUE, vector);
        }
    }

    fn raise(&mut self, bit: u8, vector: u16) {
        if self.silent {
            return;
        }
        let place = if self.messages { vector } else { 0 };
        if self.messages && vector == NO_VECTOR {
            return;
        }
        if !self.messages {
            self.isr |= bit;
        }
        if let Some(lose) = self.lose.get_mut(usize::from(place)).filter(|n| **n > 0) {
            *lose -= 1;
            self.lost += 1;
            return;
        }
        let heard = if self.messages {
            self.sink.message(vector)
        } else {
            self.sink.pin()
        };
        self.lost += u64::from(!heard);
    }

    /// Raises the pin again that an access has let down.
    pub fn raise_again(&mut self) {
        if !self.messages && self.isr != 0 && !self.silent {
            self.sink.pin();
        }
    }

    /// Reads the ISR status, which clears it.
    pub fn take_isr(&mut self) -> u8 {
        std::mem::take(&mut self.isr)
    }

    /// A reset of the device.
    pub fn reset(&mut self) {
        self.isr = 0;
    }

    /// Queue interrupts, configuration interrupts, and how many of both were lost.
    pub fn counts(&self) -> (u64, u64, u64) {
        (self.sent, self.config_sent, self.lost)
    }
}
