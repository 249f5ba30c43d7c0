// SPDX-License-Identifier: GPL-2.0

//! What the board is asked in regular intervals, and what lies between two answers.
//!
//! Everything is read once, here it is checked, and what does not fit together ends here: the other
//! parts get an [`Interval`] whose numbers are within the ranges that its fields name.

use kernel::prelude::*;

use super::{
    fixed::{
        mul_div,
        signed, //
    },
    levels::{
        Domain,
        Level, //
    },
    transition::{
        ChangeStatus,
        DomainStatus, //
    },
};

/// Most engines.
pub(crate) const ENGINES_MAX: usize = 16;

/// Longest interval that says something of the board, in ns. Over a longer one (an idle board's
/// time jumps) too much may have changed.
const INTERVAL_MAX_NS: u64 = 20_000_000;

/// More power than any board takes, in mW.
const POWER_MAX_MW: i64 = 10_000_000;

/// Temperatures that a chip can have, in m°C.
const TEMPERATURES_MC: core::ops::RangeInclusive<i32> = -100_000..=300_000;

/// What the board says at a moment; nothing of it is believed yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// TIME.
    pub(crate) time_ns: u64,
    /// ENERGY, since power-on.
    pub(crate) energy_uj: u64,
    /// TEMP.
    pub(crate) temp_mc: i32,
    /// TEMP_AMBIENT.
    pub(crate) ambient_mc: i32,
    /// THROTTLE_HOT: the board saves itself, and runs slower than its clock.
    pub(crate) hot: bool,
    /// THROTTLE_BRAKE: the supply asks for less, and it does likewise.
    pub(crate) braked: bool,
    /// Clock and voltage, by [`Domain`].
    pub(crate) domains: [DomainStatus; 2],
    /// CTR_BUSY of each engine.
    pub(crate) busy_ns: [u64; ENGINES_MAX],
    /// Bytes over VRAM and bus, both directions, since reset.
    pub(crate) traffic: u64,
}

impl Sample {
    fn level(&self, domain: Domain) -> Level {
        let [core, memory] = self.domains;
        let d = match domain {
            Domain::Core => core,
            Domain::Memory => memory,
        };
        Level {
            khz: d.khz,
            uv: d.uv,
        }
    }

    /// Whether its levels say at which clocks it works.
    fn is_steady(&self) -> bool {
        let busy =
            |d: &DomainStatus| d.clock == ChangeStatus::Busy || d.voltage == ChangeStatus::Busy;
        !self.hot && !self.braked && !self.domains.iter().any(busy)
    }
}

/// What happened between two samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    /// Board time of its end.
    pub(crate) end_ns: u64,
    /// Its length, 1 to 20 ms.
    pub(crate) dt_ns: i64,
    /// 0 to 10 kW times the length.
    pub(crate) energy_uj: i64,
    /// Mean, 0 to 10 kW.
    pub(crate) power_mw: i64,
    /// Temperature at its begin, -100 to 300 °C.
    pub(crate) from_mc: i64,
    /// At its end, the same.
    pub(crate) to_mc: i64,
    /// Of the inlet, the same.
    pub(crate) ambient_mc: i64,
    /// Of each engine, 0 to the length.
    pub(crate) busy_ns: [i64; ENGINES_MAX],
    /// Bytes, not negative.
    pub(crate) traffic: i64,
    /// Core and memory, if neither changed and the board did not throttle; otherwise the faster of
    /// each.
    pub(crate) levels: Result<(Level, Level), (Level, Level)>,
    /// Memory clock at the end, in kHz.
    pub(crate) memory_khz: u32,
}

impl Interval {
    /// Busy time of the engine that was busy for the longest, of those in a mask.
    pub(super) fn busiest(&self, engines: u16) -> i64 {
        let of_mask = |(e, _): &(usize, &i64)| engines >> e & 1 != 0;
        let busy = self.busy_ns.iter().enumerate().filter(of_mask);
        busy.map(|(_, &b)| b).max().unwrap_or(0)
    }
}

/// A sample that cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbage;

/// Makes intervals out of samples.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    last: Option<Sample>,
}

impl Sampler {
    /// Takes a sample and returns what happened since the one before; None if there is nothing to
    /// compare with: it is the first, or one after a pause or a reset.
    pub(crate) fn take(&mut self, s: &Sample) -> Result<Option<Interval>, Garbage> {
        let possible = s.time_ns != u64::MAX
            && s.energy_uj != u64::MAX
            && TEMPERATURES_MC.contains(&s.temp_mc)
            && TEMPERATURES_MC.contains(&s.ambient_mc);
        if !possible {
            self.last = None;
            return Err(Garbage);
        }
        let Some(last) = self.last.replace(*s) else {
            return Ok(None);
        };
        let dt = match s.time_ns.checked_sub(last.time_ns) {
            Some(dt) if (1..=INTERVAL_MAX_NS).contains(&dt) => signed(dt),
            _ => return Ok(None),
        };
        let energy = match s.energy_uj.checked_sub(last.energy_uj) {
            Some(energy) => signed(energy),
            None => return Err(Garbage),
        };
        let power = mul_div(energy, 1_000_000, dt);
        if power > POWER_MAX_MW {
            return Err(Garbage);
        }
        let mut busy_ns = [0; ENGINES_MAX];
        for (busy, (now, before)) in busy_ns.iter_mut().zip(s.busy_ns.iter().zip(last.busy_ns)) {
            *busy = signed(now.saturating_sub(before)).min(dt);
        }
        let levels = |s: &Sample| (s.level(Domain::Core), s.level(Domain::Memory));
        let steady = levels(s) == levels(&last) && s.is_steady() && last.is_steady();
        let faster = |d| {
            let (a, b) = (s.level(d), last.level(d));
            Level {
                khz: a.khz.max(b.khz),
                uv: a.uv.max(b.uv),
            }
        };
        Ok(Some(Interval {
            end_ns: s.time_ns,
            dt_ns: dt,
            energy_uj: energy,
            power_mw: power,
            from_mc: i64::from(last.temp_mc),
            to_mc: i64::from(s.temp_mc),
            ambient_mc: i64::from(s.ambient_mc),
            busy_ns,
            traffic: signed(s.traffic.saturating_sub(last.traffic)),
            levels: if steady {
                Ok(levels(s))
            } else {
                Err((faster(Domain::Core), faster(Domain::Memory)))
            },
            memory_khz: s.level(Domain::Memory).khz,
        }))
    }
}

#[kunit_tests(ochre_algo_power_sample)]
mod tests {
    use super::*;
    use crate::algo::prng::for_each_seed;

    #[test]
    fn interval_is_what_lies_between() -> Result {
        let mut sampler = Sampler::default();
        let mut s = Sample {
            time_ns: 1_000_000,
            energy_uj: 500,
            temp_mc: 40_000,
            ..Sample::default()
        };
        assert!(matches!(sampler.take(&s), Ok(None)));
        s.time_ns += 250_000;
        s.energy_uj += 25_000;
        s.temp_mc += 30;
        s.busy_ns = [100_000; ENGINES_MAX];
        let i = sampler.take(&s).ok().flatten().ok_or(EINVAL)?;
        assert!((i.dt_ns, i.power_mw, i.to_mc - i.from_mc) == (250_000, 100_000, 30));
        assert!(i.busiest(1) == 100_000 && i.busiest(0) == 0);
        assert!(i.levels.is_ok());
        // A pause.
        s.time_ns += INTERVAL_MAX_NS + 1;
        assert!(matches!(sampler.take(&s), Ok(None)));
        Ok(())
    }

    #[test]
    fn clock_of_a_board_that_throttles_is_not_taken_for_the_one_it_works_at() {
        for (hot, braked) in [(false, false), (true, false), (false, true)] {
            let mut sampler = Sampler::default();
            let mut s = Sample {
                hot,
                braked,
                ..Sample::default()
            };
            assert!(matches!(sampler.take(&s), Ok(None)));
            s.time_ns = 1_000;
            let levels = sampler.take(&s).ok().flatten().map(|i| i.levels.is_ok());
            assert!(levels == Some(!hot && !braked));
        }
    }

    #[test]
    fn garbage_never_leaves_its_ranges() -> Result {
        for_each_seed("sample", |rng| {
            let mut sampler = Sampler::default();
            let mut s = Sample::default();
            for _ in 0..500 {
                s.time_ns = s.time_ns.wrapping_add(rng.next() >> rng.below(64));
                s.energy_uj = s.energy_uj.wrapping_add(rng.next() >> rng.below(64));
                s.temp_mc = (rng.next() >> 32) as i32 >> rng.below(16);
                s.busy_ns = [rng.next(); ENGINES_MAX];
                s.traffic = rng.next();
                if let Ok(Some(i)) = sampler.take(&s) {
                    assert!(i.dt_ns > 0 && i.dt_ns <= 20_000_000);
                    assert!(i.power_mw >= 0 && i.power_mw <= POWER_MAX_MW);
                    assert!(i.busy_ns.iter().all(|b| (0..=i.dt_ns).contains(b)));
                    assert!(i.traffic >= 0);
                    assert!(i.to_mc.abs() <= 300_000 && i.from_mc.abs() <= 300_000);
                }
            }
            Ok(())
        })
    }
}
