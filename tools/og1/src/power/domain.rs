// SPDX-License-Identifier: GPL-2.0
//! A domain: its clock, its voltage, and the changes of the two.

use crate::timing;

/// A change that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    to: u32,
    begin: u64,
    /// `None`: it never ends.
    end: Option<u64>,
    fails: bool,
}

/// A clock or a voltage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    now: u32,
    target: u32,
    change: Option<Change>,
    failed: bool,
    /// Changes that are to fail.
    fail: u32,
    /// The next change is not to end.
    stall: bool,
}

impl Setting {
    fn set(&mut self, value: u32) {
        *self = Self {
            now: value,
            target: value,
            fail: self.fail,
            stall: self.stall,
            ..Self::default()
        };
    }

    /// What was asked for last.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// Whether a change is under way.
    pub fn busy(&self) -> bool {
        self.change.is_some()
    }

    /// Whether the latest change failed.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// The next `n` changes fail.
    pub fn fail_next(&mut self, n: u32) {
        self.fail = n;
    }

    /// The next change does not end.
    pub fn stall_next(&mut self) {
        self.stall = true;
    }

    fn begin(&mut self, to: u32, now: u64, takes: u64) {
        let stalls = std::mem::take(&mut self.stall);
        let fails = !stalls && self.fail > 0;
        self.fail -= u32::from(fails);
        self.failed = false;
        self.target = to;
        self.change = Some(Change {
            to,
            begin: now,
            end: (!stalls).then(|| now.saturating_add(takes)),
            fails,
        });
    }

    fn ends_at(&self) -> Option<u64> {
        self.change.and_then(|change| change.end)
    }

    /// Ends the change whose time has come; whether it succeeded.
    fn end(&mut self, now: u64) -> Option<bool> {
        let change = self
            .change
            .take_if(|change| change.end.is_some_and(|end| end <= now))?;
        self.failed = change.fails;
        if !change.fails {
            self.now = change.to;
        }
        Some(!change.fails)
    }

    /// The change that moves the value meanwhile: where to, from when, until when.
    fn ramp(&self) -> Option<(u32, u64, u64)> {
        let change = self.change.filter(|change| !change.fails)?;
        let begin = change.begin.saturating_add(timing::VOLTAGE_SETTLE_NS);
        change.end.map(|end| (change.to, begin, end))
    }
}

/// What ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Changes in all.
    pub changes: u32,
    /// Changes of the clock that succeeded.
    pub clocks: u32,
}

/// A domain.
#[derive(Clone, Debug, Default)]
pub struct Domain {
    /// In kHz.
    pub clock: Setting,
    /// In µV.
    pub voltage: Setting,
    /// Clock and voltage of each P-state; none without firmware.
    levels: Vec<(u32, u32)>,
    /// The voltage is too low, and that was counted.
    under: bool,
}

impl Domain {
    /// Runs at a P-state of those of a firmware, or without firmware. What was under way is dropped.
    pub fn start(&mut self, levels: Vec<(u32, u32)>, (khz, uv): (u32, u32)) {
        self.levels = levels;
        self.clock.set(khz);
        self.voltage.set(uv);
        self.under = false;
    }

    /// The clock that is set, in kHz.
    pub fn khz(&self) -> u32 {
        self.clock.now
    }

    /// Voltage in µV at a time.
    pub fn uv(&self, at: u64) -> u32 {
        let from = self.voltage.now;
        let Some((to, begin, end)) = self.voltage.ramp() else {
            return from;
        };
        if at >= end {
            return to;
        }
        let moved = at
            .saturating_sub(begin)
            .saturating_mul(timing::VOLTAGE_UV_PER_NS);
        let moved = u32::try_from(moved).unwrap_or(u32::MAX);
        if to >= from {
            from.saturating_add(moved).min(to)
        } else {
            from.saturating_sub(moved).max(to)
        }
    }

    /// Whether a P-state has this clock.
    pub fn has(&self, khz: u32) -> bool {
        self.levels.iter().any(|level| level.0 == khz)
    }

    /// The clocks of the P-states, each once, in their order.
    pub fn clocks(&self) -> Vec<u32> {
        let mut clocks: Vec<u32> = self.levels.iter().map(|level| level.0).collect();
        clocks.dedup();
        clocks
    }

    /// Begins a change of the clock; false if one is under way.
    pub fn set_clock(&mut self, khz: u32, now: u64) -> bool {
        if self.clock.busy() {
            return false;
        }
        self.clock.begin(khz, now, timing::CLOCK_CHANGE_NS);
        true
    }

    /// Begins a change of the voltage; false if one is under way.
    pub fn set_voltage(&mut self, uv: u32, now: u64) -> bool {
        if self.voltage.busy() {
            return false;
        }
        let way = u64::from(self.voltage.now.abs_diff(uv));
        let takes = timing::VOLTAGE_SETTLE_NS + way.div_ceil(timing::VOLTAGE_UV_PER_NS);
        self.voltage.begin(uv, now, takes);
        true
    }

    /// When the next change ends.
    pub fn next_event(&self) -> Option<u64> {
        let ends = [self.clock.ends_at(), self.voltage.ends_at()];
        ends.into_iter().flatten().min()
    }

    /// Ends the changes whose time has come.
    pub fn check(&mut self, now: u64) -> Ended {
        let clock = self.clock.end(now);
        let voltage = self.voltage.end(now);
        Ended {
            changes: u32::from(clock.is_some()) + u32::from(voltage.is_some()),
            clocks: u32::from(clock == Some(true)),
        }
    }

    /// The lowest voltage of the P-states that reach a clock.
    fn needs(&self, khz: u32) -> u32 {
        let reach = self.levels.iter().filter(|level| level.0 >= khz);
        reach.map(|level| level.1).min().unwrap_or(0)
    }

    /// The voltage, if it has just become too low.
    pub fn check_voltage(&mut self, now: u64) -> Option<u32> {
        let clock = self.clock.change.map_or(0, |change| change.to);
        let uv = self.uv(now);
        let under = uv < self.needs(clock.max(self.khz()));
        let was = std::mem::replace(&mut self.under, under);
        (under && !was).then_some(uv)
    }

    /// Means of the voltage in V and of its square from `from` to `to`.
    pub fn means(&self, from: u64, to: u64) -> (f64, f64) {
        let volts = |at| f64::from(self.uv(at)) / 1e6;
        let Some((_, begin, end)) = self.voltage.ramp().filter(|_| from < to) else {
            let v = volts(from);
            return (v, v * v);
        };
        let (begin, end) = (begin.clamp(from, to), end.clamp(from, to));
        let (mut sum, mut squares) = (0.0, 0.0);
        for (a, b) in [(from, begin), (begin, end), (end, to)] {
            let (u, v, ns) = (volts(a), volts(b), (b - a) as f64);
            sum += ns * (u + v) / 2.0;
            squares += ns * (u * u + u * v + v * v) / 3.0;
        }
        let ns = (to - from) as f64;
        (sum / ns, squares / ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain() -> Domain {
        let mut domain = Domain::default();
        let levels = vec![(1000, 900_000), (500, 800_000)];
        domain.start(levels, (500, 800_000));
        domain
    }

    #[test]
    fn the_voltage_waits_and_then_goes_evenly() {
        let mut d = domain();
        assert!(d.set_voltage(900_000, 1000));
        assert!(!d.set_voltage(800_000, 1001));
        assert_eq!(d.next_event(), Some(1000 + 2000 + 10_000));
        for (at, uv) in [
            (1000, 800_000),
            (3000, 800_000),
            (4000, 810_000),
            (12_999, 899_990),
        ] {
            assert_eq!(d.uv(at), uv, "at {at}");
        }
        assert_eq!(d.check(12_999), Ended::default());
        assert_eq!(d.check(13_000).changes, 1);
        assert_eq!((d.uv(13_000), d.voltage.busy()), (900_000, false));
    }

    #[test]
    fn means_over_a_ramp_are_those_of_many_short_pieces() {
        let mut d = domain();
        d.set_voltage(900_000, 1000);
        let (mean, square) = d.means(0, 15_000);
        let volts: Vec<f64> = (0..15_000)
            .map(|at| f64::from(d.uv(at) + d.uv(at + 1)) / 2e6)
            .collect();
        let n = volts.len() as f64;
        assert!((mean - volts.iter().sum::<f64>() / n).abs() < 1e-9);
        assert!((square - volts.iter().map(|v| v * v).sum::<f64>() / n).abs() < 1e-9);
        assert_eq!(domain().means(5, 5), (0.8, 0.8 * 0.8));
    }

    #[test]
    fn a_clock_needs_the_lowest_voltage_of_those_that_reach_it() {
        let mut d = domain();
        assert_eq!(d.check_voltage(0), None);
        assert!(d.has(1000) && !d.has(999));
        assert!(d.set_clock(1000, 0));
        assert_eq!(d.check_voltage(0), Some(800_000), "when the change begins");
        assert_eq!(d.check_voltage(1), None, "counted once");
        assert_eq!(d.check(20_000).clocks, 1);
        assert_eq!(d.khz(), 1000);
        d.set_voltage(900_000, 20_000);
        d.check(40_000);
        assert_eq!(d.check_voltage(40_000), None);
        d.set_voltage(850_000, 40_000);
        assert_eq!(d.check_voltage(42_000), None);
        assert_eq!(d.check_voltage(42_001), Some(899_990));
    }

    #[test]
    fn what_fails_changes_nothing_and_what_stalls_never_ends() {
        let mut d = domain();
        d.clock.fail_next(1);
        d.set_clock(1000, 0);
        assert_eq!(
            d.check(20_000),
            Ended {
                changes: 1,
                clocks: 0
            }
        );
        assert_eq!(
            (d.khz(), d.clock.failed(), d.clock.target()),
            (500, true, 1000)
        );
        d.set_clock(1000, 20_000);
        assert!(!d.clock.failed());
        assert_eq!(d.check(40_000).clocks, 1);
        d.voltage.fail_next(1);
        d.voltage.stall_next();
        d.set_voltage(900_000, 40_000);
        assert_eq!((d.next_event(), d.uv(u64::MAX)), (None, 800_000));
        assert_eq!(d.check(u64::MAX), Ended::default());
        d.start(Vec::new(), (100, 800_000));
        assert!(!d.voltage.busy());
        d.set_voltage(900_000, 0);
        assert_eq!(d.uv(5000), 800_000, "the failure that was asked for");
    }
}
