// SPDX-License-Identifier: GPL-2.0

//! When will there be work again? Finds the beat in bursts of work.
//!
//! A burst begins when after a pause any engine works, and ends when none does. What an engine was
//! busy for within an interval says where in it the edge was, so the edges are known to much less
//! than the interval's length. Work that comes in time with a clock has starts at equal distances;
//! work that waits for a while when it is done has pauses of equal length. Whichever of both fits
//! the latest bursts better tells when the next one begins.

use kernel::prelude::*;

use super::{
    fixed::{
        signed,
        unsigned, //
    },
    sample::Interval, //
};

/// Distances that have to agree before they are believed.
const WITNESSES: usize = 3;
/// A shorter pause does not end a burst, in ns.
const PAUSE_MIN_NS: u64 = 100_000;
/// Distances may differ by so much, in ns, or by a sixteenth.
const SPREAD_NS: u64 = 40_000;

/// When the next burst begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beat {
    /// Board time at which it is expected.
    pub(crate) at_ns: u64,
    /// It may be so much earlier or later.
    pub(crate) spread_ns: u64,
}

/// The latest distances of one kind.
#[derive(Debug, Default)]
struct Distances {
    last: [u64; WITNESSES],
    count: usize,
}

impl Distances {
    fn push(&mut self, ns: u64) {
        self.last.rotate_right(1);
        if let Some(first) = self.last.first_mut() {
            *first = ns;
        }
        self.count = WITNESSES.min(self.count.saturating_add(1));
    }

    /// Mean and spread, if they agree.
    fn agreed(&self) -> Option<(u64, u64)> {
        let (min, max) = (*self.last.iter().min()?, *self.last.iter().max()?);
        let sum = self.last.iter().fold(0u64, |a, &b| a.saturating_add(b));
        let mean = sum / WITNESSES as u64;
        let spread = max.saturating_sub(min);
        let agree = self.count == WITNESSES && spread <= SPREAD_NS.max(mean / 16);
        agree.then_some((mean, spread))
    }
}

/// The bursts so far.
#[derive(Debug, Default)]
pub(crate) struct Rhythm {
    /// Start of the burst that is under way.
    busy_since: Option<u64>,
    /// Start and end of the burst before.
    last_start: Option<u64>,
    last_end: Option<u64>,
    periods: Distances,
    pauses: Distances,
    lengths: Distances,
}

impl Rhythm {
    /// Takes over what the engines did.
    pub(crate) fn update(&mut self, i: &Interval) {
        let busy = i.busiest(u16::MAX);
        let begin = i.end_ns.saturating_sub(unsigned(i.dt_ns));
        let worked = unsigned(busy);
        match self.busy_since {
            None if busy > 0 => self.start(i.end_ns.saturating_sub(worked)),
            Some(_) if busy < i.dt_ns => self.end(begin.saturating_add(worked)),
            _ => {}
        }
    }

    /// Work was handed to an idle board.
    pub(crate) fn work(&mut self, now: u64) {
        if self.busy_since.is_none() {
            self.start(now);
        }
    }

    fn start(&mut self, at: u64) {
        if let (Some(start), Some(end)) = (self.last_start, self.last_end) {
            let pause = at.saturating_sub(end);
            if pause < PAUSE_MIN_NS {
                // The burst goes on.
                self.busy_since = Some(start);
                return;
            }
            self.lengths.push(end.saturating_sub(start));
            self.periods.push(at.saturating_sub(start));
            self.pauses.push(pause);
        }
        self.busy_since = Some(at);
    }

    fn end(&mut self, at: u64) {
        self.last_start = self.busy_since.take();
        self.last_end = Some(at);
    }

    /// Whether a burst is under way, as far as was seen.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy_since.is_some()
    }

    /// For how long there has been no work at `now`, in ns.
    pub(crate) fn idle_for(&self, now: u64) -> u64 {
        match (self.busy_since, self.last_end) {
            (Some(_), _) => 0,
            (None, Some(end)) => now.saturating_sub(end),
            (None, None) => u64::MAX,
        }
    }

    /// Length of the bursts, if they agree.
    pub(crate) fn length(&self) -> Option<u64> {
        self.lengths.agreed().map(|(mean, _)| mean)
    }

    /// When the burst that is under way ends, if it is as long as the others.
    pub(crate) fn end_expected(&self) -> Option<u64> {
        Some(self.busy_since?.saturating_add(self.length()?))
    }

    /// When the next burst begins; None during one, and if there is no beat.
    pub(crate) fn next(&self) -> Option<Beat> {
        if self.is_busy() {
            return None;
        }
        let (start, end) = (self.last_start?, self.last_end?);
        let beat = |from: u64, of: &Distances| {
            let (mean, spread_ns) = of.agreed()?;
            Some(Beat {
                at_ns: from.saturating_add(mean),
                spread_ns,
            })
        };
        match (beat(start, &self.periods), beat(end, &self.pauses)) {
            (Some(period), Some(pause)) if pause.spread_ns < period.spread_ns => Some(pause),
            (Some(period), _) => Some(period),
            (None, pause) => pause,
        }
    }

    /// Forgets the beat: it was not kept.
    pub(crate) fn forget(&mut self) {
        self.periods = Distances::default();
        self.pauses = Distances::default();
    }

    /// Board time went on unseen, or back.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }
}

/// The distance from `now` to a later time, in ns; negative if it is over.
pub(super) fn until(now: u64, at: u64) -> i64 {
    if at >= now {
        signed(at - now)
    } else {
        signed(now - at).saturating_neg()
    }
}

#[kunit_tests(ochre_algo_power_rhythm)]
mod tests {
    use super::*;
    use crate::algo::{
        power::{
            plant::quiet,
            sample::ENGINES_MAX, //
        },
        prng::for_each_seed, //
    };

    const US: u64 = 1_000;

    /// What is seen of an engine that is busy in the given spans.
    fn watch(r: &mut Rhythm, from: u64, until: u64, every: u64, spans: &[(u64, u64)]) {
        let mut begin = from;
        while begin < until {
            let end = begin + every;
            let within = |&(a, b): &(u64, u64)| b.min(end).saturating_sub(a.max(begin));
            let busy: u64 = spans.iter().map(within).sum();
            let mut busy_ns = [0; ENGINES_MAX];
            busy_ns[3] = signed(busy);
            r.update(&Interval {
                end_ns: end,
                dt_ns: signed(every),
                busy_ns,
                ..quiet()
            });
            begin = end;
        }
    }

    /// Four bursts that begin in those distances, each `length` long.
    fn bursts(starts: [u64; 4], length: u64) -> [(u64, u64); 4] {
        starts.map(|s| (s, s + length))
    }

    #[test]
    fn beat_is_found_to_the_microsecond_from_samples_far_apart() -> Result {
        for_each_seed("rhythm", |rng| {
            let period = 2_000 + rng.below(18_000);
            let first = 500 + rng.below(1_000);
            let length = 300 + rng.below(period - 1_000);
            let starts = [0, 1, 2, 3].map(|n| (first + n * period) * US);
            let mut r = Rhythm::default();
            let end = starts[3] + length * US;
            let until = end + 250 * US;
            watch(&mut r, 0, until, 250 * US, &bursts(starts, length * US));
            let beat = r.next().ok_or(EINVAL)?;
            assert!(beat.at_ns == (first + 4 * period) * US);
            assert!(beat.spread_ns == 0);
            assert!(r.length() == Some(length * US));
            assert!(r.idle_for(end) == 0 && r.idle_for(end + 7) == 7);
            Ok(())
        })
    }

    #[test]
    fn equal_pauses_are_a_beat_as_well() -> Result {
        let mut r = Rhythm::default();
        let spans = [
            (1_000 * US, 2_000 * US),
            (5_000 * US, 8_000 * US),
            (11_000 * US, 13_000 * US),
            (16_000 * US, 16_500 * US),
        ];
        watch(&mut r, 0, 17_000 * US, 500 * US, &spans);
        let beat = r.next().ok_or(EINVAL)?;
        assert!(beat.at_ns == 19_500 * US);
        Ok(())
    }

    #[test]
    fn bursts_without_a_beat_have_none() {
        let mut r = Rhythm::default();
        let starts = [1_000 * US, 5_000 * US, 7_000 * US, 14_000 * US];
        watch(&mut r, 0, 16_000 * US, 250 * US, &bursts(starts, 700 * US));
        assert!(r.next().is_none());
        assert!(!r.is_busy());
    }

    #[test]
    fn short_pause_does_not_end_a_burst() {
        let mut r = Rhythm::default();
        let spans = [(1_000 * US, 2_000 * US), (2_050 * US, 3_000 * US)];
        watch(&mut r, 0, 2_500 * US, 250 * US, &spans);
        assert!(r.is_busy());
        assert!(r.busy_since == Some(1_000 * US));
    }

    #[test]
    fn beat_that_was_not_kept_has_to_be_found_again() -> Result {
        let mut r = Rhythm::default();
        let starts = [1, 3, 5, 7].map(|n| n * 1_000 * US);
        watch(&mut r, 0, 8_000 * US, 250 * US, &bursts(starts, 500 * US));
        assert!(r.next().is_some());
        r.forget();
        assert!(r.next().is_none());
        Ok(())
    }
}
