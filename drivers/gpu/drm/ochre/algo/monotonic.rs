// SPDX-License-Identifier: GPL-2.0

//! A counter of the device that goes on growing when the device begins anew.

use kernel::prelude::*;

/// A value that never falls, made of a register that returns to 0 now and then.
///
/// Whoever resets the device calls [`Self::fold`] between the last reading before the reset and the
/// first one after it. If nobody did, a register that has fallen is taken for one that was reset, and
/// what it had gained since it was last read is lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Monotonic {
    /// What earlier lives of the register came to.
    before: u64,
    /// The register when it was last read.
    register: u64,
}

impl Monotonic {
    /// Takes a reading over.
    pub(crate) fn advance(&mut self, register: u64) {
        if register < self.register {
            self.fold();
        }
        self.register = register;
    }

    /// The register is 0 from now on.
    pub(crate) fn fold(&mut self) {
        self.before = self.before.wrapping_add(self.register);
        self.register = 0;
    }

    /// The value as of the last reading. The sum wraps after 2^64.
    pub(crate) fn value(&self) -> u64 {
        self.before.wrapping_add(self.register)
    }
}

#[kunit_tests(ochre_algo_monotonic)]
mod tests {
    use super::*;

    #[test]
    fn value_follows_the_register() {
        let mut counter = Monotonic::default();
        assert_eq!(counter.value(), 0);
        counter.advance(5);
        assert_eq!(counter.value(), 5);
        counter.advance(5);
        counter.advance(9);
        assert_eq!(counter.value(), 9);
    }

    #[test]
    fn announced_reset_loses_nothing() {
        let mut counter = Monotonic::default();
        counter.advance(100);
        counter.fold();
        assert_eq!(counter.value(), 100);
        // More than it had before the reset: the value alone would not tell.
        counter.advance(150);
        assert_eq!(counter.value(), 250);
    }

    #[test]
    fn fallen_register_was_reset() {
        let mut counter = Monotonic::default();
        for register in [7, 10, 3, 8, 0, 2] {
            let before = counter.value();
            counter.advance(register);
            assert!(counter.value() >= before);
        }
        assert_eq!(counter.value(), 10 + 8 + 2);
    }
}
