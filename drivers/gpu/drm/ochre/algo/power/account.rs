// SPDX-License-Identifier: GPL-2.0

//! Counters that only ever grow, made of counters that a reset sets to 0.
//!
//! hwmon, perf and fdinfo promise their readers that energy, busy time and cycles do not go back;
//! most of the board's counters do when the device is reset (og1.rst, section "Counters").

use kernel::prelude::*;

/// The sum over a counter's life, and its lives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Account {
    total: u64,
    last: u64,
}

impl Account {
    /// Takes over a reading and returns the total. `most` is the greatest increase since the last
    /// reading that can be true: more, and all ones, are not counted. A reading that is lower than
    /// the last counts from 0: there was a reset.
    pub(crate) fn read(&mut self, raw: u64, most: u64) -> u64 {
        if raw == u64::MAX {
            return self.total;
        }
        let added = raw.checked_sub(self.last).unwrap_or(raw);
        if added <= most {
            self.total = self.total.saturating_add(added);
        }
        self.last = raw;
        self.total
    }

    /// The total so far.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

#[kunit_tests(ochre_algo_power_account)]
mod tests {
    use super::*;

    #[test]
    fn reset_of_the_counter_loses_nothing() {
        let mut a = Account::default();
        assert!(a.read(100, u64::MAX) == 100);
        assert!(a.read(150, u64::MAX) == 150);
        assert!(a.read(30, u64::MAX) == 180);
        assert!(a.total() == 180);
    }

    #[test]
    fn what_cannot_be_is_not_counted() {
        let mut a = Account::default();
        assert!(a.read(100, 100) == 100);
        assert!(a.read(u64::MAX, 100) == 100);
        assert!(a.read(10_000, 100) == 100);
        assert!(a.read(10_050, 100) == 150);
    }
}
