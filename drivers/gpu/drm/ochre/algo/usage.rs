// SPDX-License-Identifier: GPL-2.0

//! What a running counter of the device adds to somebody's account.
//!
//! The board counts the time for which a queue has held its engine (og1.rst, section "Doorbells",
//! control page), and a file's account is the sum over its queues, of which some are gone. So each
//! queue has a [`Meter`] that says what was added since it was last read. An account only ever
//! grows, whatever the device writes: fdinfo promises that to its readers.

use kernel::prelude::*;

/// Reads one cumulative counter that the device writes.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// The highest value that was believed.
    counted: u64,
}

impl Meter {
    /// Makes a meter for a counter that starts at 0.
    pub(crate) const fn new() -> Self {
        Self { counted: 0 }
    }

    /// Takes over a reading and returns what it adds. A counter that goes back, or reads all ones
    /// since the device is gone, adds nothing, and counts again once it is beyond what it was.
    pub(crate) fn read(&mut self, raw: u64) -> u64 {
        if raw == u64::MAX {
            return 0;
        }
        let added = raw.saturating_sub(self.counted);
        self.counted = self.counted.max(raw);
        added
    }
}

#[kunit_tests(ochre_algo_usage)]
mod tests {
    use super::*;

    #[test]
    fn each_reading_adds_what_is_new() {
        let mut m = Meter::new();
        assert!(m.read(0) == 0);
        assert!(m.read(100) == 100);
        assert!(m.read(100) == 0);
        assert!(m.read(250) == 150);
    }

    #[test]
    fn account_never_shrinks_and_nothing_is_counted_twice() {
        let mut m = Meter::new();
        let readings = [10, 5, u64::MAX, 7, 12, 3, 20];
        let sum: u64 = readings.into_iter().map(|raw| m.read(raw)).sum();
        assert!(sum == 20);
    }
}
