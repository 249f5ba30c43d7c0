// SPDX-License-Identifier: GPL-2.0

//! How hot will it get? dT/dt = (P - k (T - T_amb)) / C, with k and C fitted while running.
//!
//! Over a window of time the equation says that the temperature rises by `a E - b Θ`, where E is
//! the energy that came in, Θ the integral of T - T_amb, a = 1/C and b = k/C: linear in what is
//! looked for, exact for any course of the power, and with all three measured. The fit is least
//! squares with exponential forgetting. While nothing changes, E and Θ say the same over and over;
//! so the sums are pulled a little towards the present estimate, which then stays where nothing new
//! speaks against it.
//!
//! Until the fit has proven itself, the steepest rise for the energy that was ever seen stands for
//! it, and no heat is counted as leaving. That allows too little, never too much.

use kernel::prelude::*;

use super::{
    fixed::{
        mul_div,
        ONE, //
    },
    sample::Interval, //
};

/// Length of a window, at least, in ns.
const WINDOW_NS: i64 = 1_000_000;
/// Windows before a fit is believed.
const WINDOWS_MIN: u32 = 10;
/// Sums forget a 64th with each window.
const FORGET: i64 = 64;
/// And half when the estimate turns out to be wrong: something has changed.
const DOUBT: i64 = 2;
/// The present estimate counts as much as this part of the sums: 1 / this.
const PULL: i64 = 1024;
/// Fraction bits of a and b.
const Q: u32 = 24;
/// Least and greatest a (1000/C, C in µJ/K) and b (1/τ per ms): C from 1 mJ/K to 1 kJ/K, τ from 1
/// ms to 100 s.
const A: core::ops::RangeInclusive<i64> = 16..=1 << Q;
const B: core::ops::RangeInclusive<i64> = 168..=1 << Q;
/// Regressors and response are cut off here, so that 64 windows of products fit 64 bits.
const X_MAX: i64 = 1 << 24;
const Y_MAX: i64 = 1 << 20;
/// Distance from the limit that is kept, in mK, before errors of the prediction.
const MARGIN_MK: i64 = 150;
/// Greatest error per window at which the fit is believed, in mK.
const ERROR_MAX_MK: i64 = 60;
/// Errors above this are as bad as this, in mK.
const ERROR_CUT_MK: i64 = 1_000;
/// Up to so much above the inlet's temperature a rise says how steep it can get, in mK.
const COLD_MK: i64 = 10_000;
/// Without any knowledge, so far below the limit all is allowed, in mK.
const AFAR_MK: i64 = 25_000;

/// The sums of least squares for y = a x1 + b x2, and the estimate.
#[derive(Debug)]
struct Fit {
    s11: i64,
    s12: i64,
    s22: i64,
    y1: i64,
    y2: i64,
    a: i64,
    b: i64,
}

impl Fit {
    /// An estimate to start from; it does not matter much.
    const fn new() -> Self {
        Self {
            s11: 0,
            s12: 0,
            s22: 0,
            y1: 0,
            y2: 0,
            a: 1 << 18,
            b: 1 << 18,
        }
    }

    /// The sums lose 1 / `part` of their weight.
    fn forget(&mut self, part: i64) {
        for sum in [
            &mut self.s11,
            &mut self.s12,
            &mut self.s22,
            &mut self.y1,
            &mut self.y2,
        ] {
            *sum -= *sum / part;
        }
    }

    /// `|x| <= X_MAX`, `|y| <= Y_MAX`.
    fn add(&mut self, x1: i64, x2: i64, y: i64) {
        self.forget(FORGET);
        self.s11 += x1 * x1;
        self.s12 += x1 * x2;
        self.s22 += x2 * x2;
        self.y1 += x1 * y;
        self.y2 += x2 * y;
        self.solve();
    }

    fn solve(&mut self) {
        // The sums as numbers of 30 bits, so that products of two fit.
        let most = self.s11.max(self.s22);
        let shift = (i64::BITS - most.leading_zeros()).saturating_sub(30);
        let cut = |v: i64| (v >> shift).clamp(-(1 << 30), 1 << 30);
        let (mut s11, s12, mut s22) = (cut(self.s11), cut(self.s12), cut(self.s22));
        let (mut y1, mut y2) = (cut(self.y1), cut(self.y2));
        let (pull1, pull2) = (s11 / PULL + 1, s22 / PULL + 1);
        s11 += pull1;
        s22 += pull2;
        y1 += mul_div(pull1, self.a, 1 << Q);
        y2 += mul_div(pull2, self.b, 1 << Q);
        let det = s11 * s22 - s12 * s12;
        if det <= 0 {
            return;
        }
        let a = mul_div(y1 * s22 - y2 * s12, 1 << Q, det);
        let b = mul_div(y2 * s11 - y1 * s12, 1 << Q, det);
        self.a = a.clamp(*A.start(), *A.end());
        self.b = b.clamp(*B.start(), *B.end());
    }
}

/// The present window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    dt_ns: i64,
    energy_uj: i64,
    /// Integral of T - T_amb, mK µs.
    excess: i64,
    rise_mk: i64,
}

/// What is known of how the board gets hot.
#[derive(Debug)]
pub(crate) struct Thermal {
    fit: Fit,
    window: Window,
    windows: u32,
    /// The fit's latest error per window, decaying from its peak, in mK.
    error_mk: i64,
    /// Steepest rise so far in mK per J; 0: none.
    steepest: i64,
    /// Now, in m°C.
    temp_mc: i64,
    ambient_mc: i64,
}

impl Thermal {
    /// Knows nothing.
    pub(crate) const fn new() -> Self {
        Self {
            fit: Fit::new(),
            window: Window {
                dt_ns: 0,
                energy_uj: 0,
                excess: 0,
                rise_mk: 0,
            },
            windows: 0,
            error_mk: ERROR_MAX_MK,
            steepest: 0,
            temp_mc: 0,
            ambient_mc: 0,
        }
    }

    /// Takes over temperatures without what led to them: after a pause.
    pub(crate) fn restart(&mut self, temp_mc: i32, ambient_mc: i32) {
        self.window = Window::default();
        self.temp_mc = i64::from(temp_mc);
        self.ambient_mc = i64::from(ambient_mc);
    }

    /// Takes over an interval.
    pub(crate) fn update(&mut self, i: &Interval) {
        self.temp_mc = i.to_mc;
        self.ambient_mc = i.ambient_mc;
        let mean = (i.from_mc + i.to_mc) / 2 - i.ambient_mc;
        let w = &mut self.window;
        w.dt_ns = w.dt_ns.saturating_add(i.dt_ns);
        w.energy_uj = w.energy_uj.saturating_add(i.energy_uj);
        w.excess = w.excess.saturating_add(mul_div(mean, i.dt_ns, 1000));
        w.rise_mk = w.rise_mk.saturating_add(i.to_mc - i.from_mc);
        if w.dt_ns >= WINDOW_NS {
            let full = core::mem::take(w);
            self.learn(&full);
        }
    }

    fn learn(&mut self, w: &Window) {
        // Two mK are what rounding can do. Where it is much warmer than outside, too much leaves.
        let rise = w.rise_mk.saturating_sub(2);
        let excess = mul_div(w.excess, 1000, w.dt_ns);
        if w.energy_uj >= 1000 && rise > 0 && excess <= COLD_MK {
            let slope = mul_div(rise, 1_000_000, w.energy_uj);
            self.steepest = self.steepest.max(slope);
        }
        let x1 = w.energy_uj.clamp(0, X_MAX);
        let x2 = (-(w.excess / 1000)).clamp(-X_MAX, X_MAX);
        let y = w.rise_mk.clamp(-Y_MAX, Y_MAX);
        let predicted =
            mul_div(x1, self.fit.a, 1 << Q).saturating_add(mul_div(x2, self.fit.b, 1 << Q));
        let error = y.saturating_sub(predicted).saturating_abs();
        // The first windows say how wrong the start was.
        if self.windows >= WINDOWS_MIN / 2 {
            self.error_mk = error
                .max(self.error_mk - self.error_mk / 8)
                .min(ERROR_CUT_MK);
        }
        if error > ERROR_MAX_MK {
            self.fit.forget(DOUBT);
        }
        self.fit.add(x1, x2, y);
        self.windows = self.windows.saturating_add(1);
    }

    /// Whether the fit has proven itself.
    pub(crate) fn is_fitted(&self) -> bool {
        self.windows >= WINDOWS_MIN && self.error_mk <= ERROR_MAX_MK
    }

    /// Heat capacity C in µJ/K: as fitted, or no more than it is.
    pub(crate) fn capacity(&self) -> i64 {
        if self.is_fitted() {
            mul_div(1000, 1 << Q, self.fit.a)
        } else {
            // Half, since some heat left even then.
            500_000_000 / self.steepest.max(1)
        }
    }

    /// Conductance k to the inlet in µW/K: as fitted, or 0.
    pub(crate) fn conductance(&self) -> i64 {
        if self.is_fitted() {
            mul_div(self.fit.b, 1_000_000, self.fit.a)
        } else {
            0
        }
    }

    /// Temperature after `dt` with that power, in m°C.
    pub(crate) fn predict(&self, power_mw: i64, dt_ns: i64) -> i64 {
        let excess = self.temp_mc.saturating_sub(self.ambient_mc);
        let lost = mul_div(self.conductance(), excess, 1_000_000);
        let energy_uj = mul_div(power_mw.saturating_sub(lost), dt_ns, 1_000_000);
        // To the first order in dt/τ, and with what the second takes away for large ones.
        let rise = mul_div(energy_uj, 1000, self.capacity());
        let x = mul_div(
            mul_div(self.conductance(), dt_ns, self.capacity()),
            ONE,
            1_000_000_000,
        );
        self.temp_mc
            .saturating_add(mul_div(rise, ONE, ONE.saturating_add(x / 2)))
    }

    /// Distance that is kept from a limit, in mK.
    pub(crate) fn margin_mk(&self) -> i64 {
        MARGIN_MK.saturating_add(self.error_mk.saturating_mul(3).min(3_000))
    }

    /// The greatest mean power over the next `horizon_ns` with which the temperature, now and
    /// later, stays below the limit by the margin. May be negative.
    pub(crate) fn allowed_mw(&self, limit_mc: i64, horizon_ns: i64) -> i64 {
        let room = limit_mc
            .saturating_sub(self.margin_mk())
            .saturating_sub(self.temp_mc);
        if !self.is_fitted() && self.steepest == 0 {
            return if room > AFAR_MK { i64::MAX } else { 0 };
        }
        let excess = self.temp_mc.saturating_sub(self.ambient_mc);
        let leaves = mul_div(self.conductance(), excess, 1_000_000);
        let fills = mul_div(
            self.capacity(),
            room.saturating_mul(1000),
            horizon_ns.max(1),
        );
        leaves.saturating_add(fills)
    }

    /// The power that can be held for ever below the limit by the margin, in mW; None before the
    /// fit has proven itself.
    pub(crate) fn sustainable_mw(&self, limit_mc: i64) -> Option<i64> {
        let excess = limit_mc
            .saturating_sub(self.margin_mk())
            .saturating_sub(self.ambient_mc);
        self.is_fitted()
            .then(|| mul_div(self.conductance(), excess, 1_000_000))
    }
}

#[kunit_tests(ochre_algo_power_thermal)]
mod tests {
    use super::*;
    use crate::algo::{
        power::{
            plant::{
                quiet,
                Plant,
                Work,
                MS,
                US, //
            },
            sample::Sampler, //
        },
        prng::for_each_seed, //
    };

    /// Runs the board with work that comes and goes, and lets `t` watch.
    fn watch(p: &mut Plant, s: &mut Sampler, t: &mut Thermal, until: u64, toggle: u64) {
        while p.now < until {
            let is_on = p.now.checked_div(toggle).unwrap_or(0) % 2 == 0;
            let work = if is_on {
                Work::Constant { lanes: 1000 }
            } else {
                Work::Idle
            };
            p.set_work(0, work);
            p.set_work(1, work);
            p.run_to(p.now + 250 * US);
            match s.take(&p.sample()) {
                Ok(Some(i)) => t.update(&i),
                _ => t.restart(p.sample().temp_mc, 0),
            }
        }
    }

    fn near(a: i64, b: i64, percent: i64) -> bool {
        a.abs_diff(b) <= (b / 100 * percent).unsigned_abs()
    }

    #[test]
    fn k_and_c_are_found_while_running_for_any_board() -> Result {
        for_each_seed("thermal", |rng| {
            let k = 500_000 + rng.below(3_000_000) as i64;
            let tau = 10 + rng.below(120);
            let ambient = 10_000 + rng.below(40_000) as i64;
            let mut p = Plant::new(k, tau * MS, ambient, ambient)?;
            let (mut s, mut t) = (Sampler::default(), Thermal::new());
            assert!(!t.is_fitted());
            watch(&mut p, &mut s, &mut t, 80 * MS, 7 * MS);
            assert!(t.is_fitted());
            assert!(near(t.capacity(), p.c, 3));
            assert!(near(t.conductance(), k, 10));
            Ok(())
        })
    }

    #[test]
    fn fit_outlives_a_long_time_without_any_change() -> Result {
        let mut p = Plant::reference()?;
        let (mut s, mut t) = (Sampler::default(), Thermal::new());
        watch(&mut p, &mut s, &mut t, 700 * MS, u64::MAX);
        assert!(t.is_fitted());
        assert!(near(t.conductance(), p.k, 2));
        assert!(near(t.capacity(), p.c, 15));
        Ok(())
    }

    #[test]
    fn fan_that_fails_is_noticed() -> Result {
        let mut p = Plant::reference()?;
        let (mut s, mut t) = (Sampler::default(), Thermal::new());
        watch(&mut p, &mut s, &mut t, 150 * MS, 11 * MS);
        p.k /= 2;
        watch(&mut p, &mut s, &mut t, 300 * MS, 11 * MS);
        assert!(near(t.conductance(), p.k, 5));
        assert!(near(t.capacity(), p.c, 10));
        Ok(())
    }

    #[test]
    fn prediction_comes_true() -> Result {
        let mut p = Plant::reference()?;
        let (mut s, mut t) = (Sampler::default(), Thermal::new());
        watch(&mut p, &mut s, &mut t, 60 * MS, 9 * MS);
        let (from, energy) = (p.now, p.energy_uj());
        let before = Thermal {
            fit: Fit { ..t.fit },
            ..t
        };
        p.run_to(from + 10 * MS);
        let mean = (p.energy_uj() - energy) as i64 / 10;
        let predicted = before.predict(mean, 10_000_000);
        // 10 ms are a fifth of the time constant: the second order is all but there.
        assert!(predicted.abs_diff(p.temp_mc()) <= 150);
        Ok(())
    }

    #[test]
    fn what_is_not_known_allows_too_little_not_too_much() -> Result {
        let mut t = Thermal::new();
        t.restart(40_000, 30_000);
        assert!(t.allowed_mw(95_000, 1_000_000) == i64::MAX);
        t.restart(80_000, 30_000);
        assert!(t.allowed_mw(95_000, 1_000_000) == 0);
        // With a few windows: the true board would be able to take more.
        let mut p = Plant::reference()?;
        let mut s = Sampler::default();
        t = Thermal::new();
        watch(&mut p, &mut s, &mut t, 5 * MS, u64::MAX);
        assert!(!t.is_fitted() && t.steepest > 0);
        assert!(t.capacity() < p.c && t.conductance() == 0);
        assert!(t.sustainable_mw(95_000).is_none());
        Ok(())
    }

    #[test]
    fn no_input_makes_it_overflow() -> Result {
        for_each_seed("thermal garbage", |rng| {
            let mut t = Thermal::new();
            let mut i = quiet();
            for _ in 0..500 {
                i.dt_ns = 1 + rng.below(20_000_000) as i64;
                i.energy_uj =
                    rng.below(10_000 * i.dt_ns.unsigned_abs() / 1_000_000 + 1) as i64 * 1000;
                i.from_mc = rng.below(400_000) as i64 - 100_000;
                i.to_mc = rng.below(400_000) as i64 - 100_000;
                i.ambient_mc = rng.below(400_000) as i64 - 100_000;
                t.update(&i);
                let _ = t.allowed_mw(95_000, 1 + rng.below(1 << 30) as i64);
                let _ = t.predict(rng.next() as i64, rng.next() as i64);
                let _ = t.sustainable_mw(rng.next() as i64);
                assert!(t.capacity() > 0 && t.conductance() >= 0);
            }
            Ok(())
        })
    }
}
