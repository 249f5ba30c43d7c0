// SPDX-License-Identifier: GPL-2.0

//! Pseudo-random numbers for the property tests of this folder.
//!
//! A property test runs from a few fixed seeds, so that it finds the same on every machine, and
//! prints each before it starts, so that a failure can be played again alone. Change [`FIRST`] to
//! search elsewhere, or [`RUNS`] to search for longer.

use kernel::prelude::*;

/// The first seed from which each property test runs.
const FIRST: u64 = 0x0c47;

/// How many seeds each property test runs from.
const RUNS: u64 = 10;

/// SplitMix64: small, statistically sound enough for tests, and any seed will do.
pub(crate) struct Prng(u64);

impl Prng {
    /// Returns a generator that starts from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// Returns an index into something of length `len`, or 0 if that is empty.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(u64::try_from(len).unwrap_or(0))).unwrap_or(0)
    }

    /// Returns true in `percent` of all calls.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Runs `property` once from each seed and prints the seed before.
pub(crate) fn for_each_seed(name: &str, mut property: impl FnMut(&mut Prng) -> Result) -> Result {
    for seed in FIRST..FIRST + RUNS {
        pr_info!("{name}: seed {seed:#x}\n");
        property(&mut Prng::new(seed))?;
    }
    Ok(())
}
