// SPDX-License-Identifier: GPL-2.0
//! Board time, alarm and start gate.

/// The alarm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Alarm {
    time: u64,
    armed: bool,
    lockstep: bool,
    pending: bool,
}

/// Board time in ns, and what stops or wakes it.
#[derive(Debug, Default)]
pub struct Clock {
    now: u64,
    alarm: Alarm,
    halted: bool,
    gate_closed: bool,
}

impl Clock {
    /// Board time in ns.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Goes on to `time`; never back, and never beyond an armed alarm.
    pub fn advance_to(&mut self, time: u64) {
        let limit = self.alarm_at().unwrap_or(u64::MAX).max(self.now);
        self.now = time.clamp(self.now, limit);
    }

    /// When the armed alarm goes off.
    pub fn alarm_at(&self) -> Option<u64> {
        self.alarm.armed.then_some(self.alarm.time)
    }

    /// `ALARM_CTRL`.
    pub fn set_alarm(&mut self, time: u64, enable: bool, lockstep: bool) {
        self.alarm = Alarm {
            time,
            armed: enable,
            lockstep,
            pending: false,
        };
        self.halted = false;
    }

    /// `ALARM_ACK`.
    pub fn acknowledge(&mut self) {
        self.alarm = Alarm::default();
        self.halted = false;
    }

    /// Lets the alarm go off if its time has come; true if it did.
    pub fn check_alarm(&mut self) -> bool {
        if !self.alarm.armed || self.now < self.alarm.time {
            return false;
        }
        self.alarm.armed = false;
        self.alarm.pending = true;
        self.halted = self.alarm.lockstep;
        true
    }

    /// Whether the alarm went off and was not taken back.
    pub fn alarm_pending(&self) -> bool {
        self.alarm.pending
    }

    /// Whether the clock stands until the alarm is acknowledged.
    pub fn halted(&self) -> bool {
        self.halted
    }

    /// `GATE`.
    pub fn set_gate(&mut self, closed: bool) {
        self.gate_closed = closed;
    }

    /// Whether no queue may start a packet.
    pub fn gate_closed(&self) -> bool {
        self.gate_closed
    }

    /// Reset: alarm and gate go, time stays.
    pub fn reset(&mut self) {
        *self = Self {
            now: self.now,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_step_halts_until_acknowledged_and_goes_off_once() {
        let mut clock = Clock::default();
        clock.set_alarm(100, true, true);
        clock.advance_to(1000);
        assert_eq!(clock.now(), 100, "never beyond an armed alarm");
        assert!(clock.check_alarm() && clock.halted() && clock.alarm_pending());
        assert!(!clock.check_alarm());
        clock.acknowledge();
        assert!(!clock.halted() && !clock.alarm_pending());
        clock.advance_to(1000);
        assert_eq!(clock.now(), 1000);
    }

    #[test]
    fn an_alarm_in_the_past_goes_off_at_once_and_time_never_goes_back() {
        let mut clock = Clock::default();
        clock.advance_to(500);
        clock.set_alarm(100, true, false);
        assert!(clock.check_alarm() && !clock.halted());
        clock.advance_to(400);
        assert_eq!(clock.now(), 500);
        clock.reset();
        assert_eq!(clock.now(), 500);
    }
}
