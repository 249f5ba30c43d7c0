// SPDX-License-Identifier: GPL-2.0

//! Holds a limit of power as a mean: a control loop that integrates.
//!
//! What was taken less than the limit allows is a credit, what was taken more a debt, in µJ. The
//! next interval may take the limit and the credit; so levels alternate around the limit such that
//! the mean is just below it. The credit is small, since it was not given to be spent on a long
//! excess later. A debt has to be paid back in full.

use kernel::prelude::*;

use super::fixed::mul_div;

/// Over this time the mean holds, in ns.
pub(crate) const WINDOW_NS: i64 = 5_000_000;
/// The loop aims so much lower: 1 / this.
const RESERVE: i64 = 128;
/// The credit is at most this part of what the limit allows in the window: 1 / this.
const CREDIT: i64 = 40;
/// The debt that is remembered, as a multiple of what the limit allows in the window.
const DEBT: i64 = 2;

/// The account of a power limit.
#[derive(Debug)]
pub(crate) struct Budget {
    limit_mw: i64,
    credit_uj: i64,
}

impl Budget {
    /// A limit in mW; `i64::MAX` for none.
    pub(crate) const fn new(limit_mw: i64) -> Self {
        Self {
            limit_mw,
            credit_uj: 0,
        }
    }

    /// The limit in mW.
    pub(crate) fn limit_mw(&self) -> i64 {
        self.limit_mw
    }

    /// Sets another limit. The account starts anew.
    pub(crate) fn set_limit(&mut self, limit_mw: i64) {
        *self = Self::new(limit_mw);
    }

    fn target_mw(&self) -> i64 {
        self.limit_mw - self.limit_mw / RESERVE
    }

    /// Books what an interval took.
    pub(crate) fn book(&mut self, energy_uj: i64, dt_ns: i64) {
        let given = mul_div(self.target_mw(), dt_ns, 1_000_000);
        let window = mul_div(self.limit_mw, WINDOW_NS, 1_000_000);
        self.credit_uj = self
            .credit_uj
            .saturating_add(given)
            .saturating_sub(energy_uj)
            .clamp(window.saturating_mul(-DEBT), window / CREDIT);
    }

    /// Mean power that the next `dt_ns` may take, in mW. Negative: none is little enough.
    pub(crate) fn allowed_mw(&self, dt_ns: i64) -> i64 {
        if self.limit_mw == i64::MAX {
            return i64::MAX;
        }
        let more = mul_div(self.credit_uj, 1_000_000, dt_ns.max(1));
        self.target_mw().saturating_add(more)
    }
}

#[kunit_tests(ochre_algo_power_budget)]
mod tests {
    use super::*;
    use crate::algo::prng::for_each_seed;

    const DT: i64 = 250_000;

    #[test]
    fn mean_over_any_window_is_held_whatever_the_levels_are() -> Result {
        for_each_seed("budget", |rng| {
            let limit = 30_000 + rng.below(120_000) as i64;
            let mut budget = Budget::new(limit);
            // Levels, the slowest below the limit, steps up to a third of it.
            let mut levels = [0i64; 5];
            let mut next = limit / 2;
            for l in &mut levels {
                *l = next;
                next += 1 + rng.below((limit / 3).unsigned_abs()) as i64;
            }
            let mut taken = [0i64; 400];
            for t in &mut taken {
                let allowed = budget.allowed_mw(DT);
                let may = levels.iter().rev().find(|&&l| l <= allowed);
                *t = may.copied().unwrap_or(levels[0]) * DT / 1_000_000;
                budget.book(*t, DT);
            }
            let most = limit * WINDOW_NS / 1_000_000;
            let mut sum = 0;
            for w in taken.windows((WINDOW_NS / DT) as usize) {
                let energy: i64 = w.iter().sum();
                assert!(energy <= most + most / 40);
                sum += energy;
            }
            // And no more is given away than the credit can bridge.
            let mean = sum / (taken.len() as i64 - WINDOW_NS / DT + 1);
            assert!(mean >= most / 2 * 99 / 100);
            Ok(())
        })
    }

    #[test]
    fn excess_is_paid_back() {
        let mut b = Budget::new(100_000);
        b.book(50_000, DT);
        assert!(b.allowed_mw(DT) < 0);
        for _ in 0..4 {
            b.book(10_000, DT);
        }
        assert!(b.allowed_mw(DT) > 90_000);
    }

    #[test]
    fn no_limit_allows_all() {
        let mut b = Budget::new(i64::MAX);
        b.book(i64::MAX, i64::MAX);
        assert!(b.allowed_mw(DT) == i64::MAX);
    }
}
