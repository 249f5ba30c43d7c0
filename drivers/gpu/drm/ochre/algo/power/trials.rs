// SPDX-License-Identifier: GPL-2.0

//! The governors on a board: what they promise, in board time.

use kernel::prelude::*;

use super::{
    gating::Gate,
    governor::{
        Config,
        Decision,
        Governor,
        Predictive,
        Reason, //
    },
    levels::{
        Bounds,
        Domain, //
    },
    plant::{
        config,
        Plant,
        Rig,
        Work,
        ENGINES,
        MS,
        US, //
    },
    predictor::Ewma,
    reactive::Reactive,
    sample::{
        Sample,
        ENGINES_MAX, //
    }, //
};

/// Stays at the first P-state, with all gates open.
struct Fixed {
    bounds: Bounds,
}

impl Fixed {
    fn new(config: &Config) -> Self {
        Self {
            bounds: Bounds::new(config.pstates.table(Domain::Core)),
        }
    }
}

impl Governor for Fixed {
    fn sample(&mut self, s: &Sample, _outstanding: bool) -> Decision {
        self.work(s.time_ns)
    }

    fn work(&mut self, now: u64) -> Decision {
        Decision {
            core: 0,
            memory: 0,
            gates: [Gate::Open; ENGINES_MAX],
            next: Some(now + MS),
            reason: Reason::Load,
        }
    }

    fn set_power_limit(&mut self, _mw: Option<u32>) {}

    fn bounds(&mut self, _domain: Domain) -> &mut Bounds {
        &mut self.bounds
    }
}

fn predictive(power_limit_mw: Option<u32>) -> Result<Predictive> {
    let config = Config {
        power_limit_mw,
        ..config()?
    };
    Ok(Predictive::new(config, Ewma))
}

fn reactive(power_limit_mw: Option<u32>) -> Result<Reactive> {
    Ok(Reactive::new(Config {
        power_limit_mw,
        ..config()?
    }))
}

/// Both compute engines at full width.
fn saturate(p: &mut Plant) {
    p.set_work(0, Work::Constant { lanes: 1000 });
    p.set_work(1, Work::Constant { lanes: 1000 });
}

/// Work in 100 ms after 100 ms, in a room of that temperature.
fn throughput<G: Governor>(governor: G, ambient_mc: i64) -> Result<u64> {
    let mut p = Plant::new(1_666_700, 50 * MS, ambient_mc, ambient_mc)?;
    saturate(&mut p);
    let mut rig = Rig::new(p, governor);
    rig.run_to(100 * MS);
    let before = rig.plant.done();
    rig.run_to(200 * MS);
    assert!(rig.plant.violations() == 0);
    Ok(rig.plant.done() - before)
}

/// Energy (µJ) and latency (ns) per job.
fn per_job<G: Governor>(governor: G, work: Work, length: u64) -> Result<(u64, u64)> {
    let mut p = Plant::reference()?;
    p.set_work(0, work);
    let mut rig = Rig::new(p, governor);
    rig.run_to(length);
    assert!(rig.plant.violations() == 0);
    let (jobs, latency) = rig.plant.jobs();
    let jobs = jobs.max(1);
    Ok((rig.plant.energy_uj() / jobs, latency / jobs))
}

#[kunit_tests(ochre_algo_power_governor)]
mod tests {
    use super::*;
    use crate::algo::prng::for_each_seed;

    #[test]
    fn temperature_never_reaches_the_limit_on_a_step_load_of_any_board() -> Result {
        for_each_seed("step load", |rng| {
            let k = 600_000 + rng.below(2_500_000) as i64;
            let tau = 10 + rng.below(80);
            let ambient = 10_000 + rng.below(40_001) as i64;
            let start = if rng.chance(50) { ambient } else { 90_000 };
            let mut p = Plant::new(k, tau * MS, ambient, start)?;
            saturate(&mut p);
            let limit = rng.chance(30).then_some(100_000);
            let mut rig = Rig::new(p, predictive(limit)?);
            // A driver that comes late, or not.
            rig.lateness = rng.below(2) * 200 * US;
            rig.run_to(5 * tau * MS);
            assert!(rig.plant.hottest_mc < 95_000);
            assert!(rig.plant.violations() == 0);
            Ok(())
        })
    }

    #[test]
    fn heat_is_used_up_to_shortly_below_the_limit() -> Result {
        let mut p = Plant::new(1_200_000, 30 * MS, 40_000, 40_000)?;
        saturate(&mut p);
        let mut rig = Rig::new(p, predictive(None)?);
        rig.run_to(200 * MS);
        assert!(rig.plant.hottest_mc < 95_000);
        assert!(rig.plant.temp_mc() > 93_000);
        assert!(rig.last.is_some_and(|d| d.reason == Reason::Heat));
        Ok(())
    }

    #[test]
    fn fan_that_fails_does_not_take_it_over_the_limit() -> Result {
        let mut p = Plant::reference()?;
        saturate(&mut p);
        let mut rig = Rig::new(p, predictive(None)?);
        rig.run_to(150 * MS);
        rig.plant.k /= 2;
        rig.run_to(350 * MS);
        assert!(rig.plant.hottest_mc < 95_000);
        Ok(())
    }

    #[test]
    fn power_limit_holds_in_the_mean_over_five_milliseconds() -> Result {
        for_each_seed("power limit", |rng| {
            let limit = 45_000 + rng.below(60_000);
            let mut p = Plant::reference()?;
            let lanes = 500 + rng.below(501) as i64;
            p.set_work(0, Work::Constant { lanes });
            p.set_work(1, Work::Constant { lanes });
            if rng.chance(50) {
                let amount = 1 + rng.below(100_000_000);
                let period = 2 * MS + rng.below(5 * MS);
                let from = 0;
                p.set_work(
                    2,
                    Work::Every {
                        from,
                        period,
                        amount,
                        lanes,
                    },
                );
            }
            let mut rig = Rig::new(p, predictive(Some(limit as u32))?);
            rig.run_to(60 * MS);
            // Within 3 % always, and in the long run below.
            assert!(rig.worst_mw <= limit + limit * 3 / 100);
            let mean = rig.plant.energy_uj() / 60;
            assert!(mean <= limit);
            assert!(rig.plant.violations() == 0);
            Ok(())
        })
    }

    #[test]
    fn limits_hold_when_it_is_memory_that_takes_the_power() -> Result {
        for_each_seed("memory-bound", |rng| {
            let ambient = 20_000 + rng.below(30_001) as i64;
            let limit = 45_000 + rng.below(30_000);
            let mut p = Plant::new(1_200_000, 20 * MS, ambient, ambient)?;
            // What moving a byte takes on a board of which the plant is not a picture.
            p.pj_per_byte = 100 + rng.below(300);
            for engine in 2..ENGINES {
                p.set_work(engine, Work::Constant { lanes: 0 });
            }
            let mut rig = Rig::new(p, predictive(Some(limit as u32))?);
            rig.run_to(100 * MS);
            assert!(rig.worst_mw <= limit + limit * 3 / 100);
            assert!(rig.plant.energy_uj() / 100 <= limit);
            assert!(rig.plant.hottest_mc < 95_000);
            assert!(rig.plant.violations() == 0);
            Ok(())
        })
    }

    #[test]
    fn more_is_done_with_the_same_power_than_by_three_levels_and_looking_back() -> Result {
        for limit in [100_000, 60_000] {
            let ahead = throughput(predictive(Some(limit))?, 30_000)?;
            let back = throughput(reactive(Some(limit))?, 30_000)?;
            assert!(ahead > back + back / 10);
        }
        // And in the heat.
        let ahead = throughput(predictive(None)?, 50_000)?;
        let back = throughput(reactive(None)?, 50_000)?;
        assert!(ahead > back + back / 10);
        Ok(())
    }

    #[test]
    fn bursts_take_a_quarter_less_energy_and_hardly_more_time_than_at_full_clock() -> Result {
        for period in [1, 3, 10] {
            let amount = period * 450_000;
            let lanes = 1000;
            let pause = period * MS * 7 / 10;
            for work in [
                Work::Every {
                    from: 0,
                    period: period * MS,
                    amount,
                    lanes,
                },
                Work::After {
                    pause,
                    amount,
                    lanes,
                },
            ] {
                let length = 20 * period * MS;
                let (energy, latency) = per_job(predictive(Some(100_000))?, work, length)?;
                let (most, least) = per_job(Fixed::new(&config()?), work, length)?;
                assert!(energy * 100 <= most * 75);
                assert!(latency * 100 <= least * 105);
            }
        }
        Ok(())
    }

    #[test]
    fn bursts_without_a_beat_are_served_as_well() -> Result {
        for_each_seed("no beat", |rng| {
            let mut rigs = (
                Rig::new(Plant::reference()?, predictive(Some(100_000))?),
                Rig::new(Plant::reference()?, Fixed::new(&config()?)),
            );
            let mut at = 0;
            for _ in 0..30 {
                at += 2 * MS + rng.below(8 * MS);
                let amount = 1_500_000 + rng.below(1_500_000);
                let once = Work::Every {
                    from: at,
                    period: u64::MAX / 2,
                    amount,
                    lanes: 1000,
                };
                rigs.0.plant.set_work(0, once);
                rigs.1.plant.set_work(0, once);
                at += 5 * MS;
                rigs.0.run_to(at);
                rigs.1.run_to(at);
            }
            let ((jobs, latency), (jobs_fixed, latency_fixed)) =
                (rigs.0.plant.jobs(), rigs.1.plant.jobs());
            assert!(jobs == 30 && jobs_fixed == 30);
            assert!(latency * 100 <= latency_fixed * 108);
            let (energy, most) = (rigs.0.plant.energy_uj(), rigs.1.plant.energy_uj());
            assert!(energy * 100 <= most * 75);
            Ok(())
        })
    }

    #[test]
    fn constant_load_below_the_limits_gets_constant_levels() -> Result {
        for_each_seed("constant", |rng| {
            let mut p = Plant::reference()?;
            let lanes = rng.below(1001) as i64;
            let engine = rng.index(ENGINES);
            p.set_work(engine, Work::Constant { lanes });
            let mut rig = Rig::new(p, predictive(Some(150_000))?);
            rig.run_to(30 * MS);
            let changes = rig.plant.domains.map(|d| d.changes);
            rig.run_to(60 * MS);
            assert!(rig.plant.domains.map(|d| d.changes) == changes);
            Ok(())
        })
    }

    #[test]
    fn kernels_do_not_pay_for_memory_and_copies_not_for_the_core() -> Result {
        let mut p = Plant::reference()?;
        p.set_work(0, Work::Constant { lanes: 1000 });
        let mut rig = Rig::new(p, predictive(Some(150_000))?);
        rig.run_to(30 * MS);
        let d = rig.last.ok_or(EINVAL)?;
        assert!((d.core, d.memory) == (0, 3));
        let mut p = Plant::reference()?;
        p.set_work(3, Work::Constant { lanes: 0 });
        let mut rig = Rig::new(p, predictive(Some(150_000))?);
        rig.run_to(30 * MS);
        let d = rig.last.ok_or(EINVAL)?;
        assert!((d.core, d.memory) == (4, 0));
        Ok(())
    }

    #[test]
    fn idle_board_goes_to_its_slowest_and_no_alarm_wakes_it() -> Result {
        let mut p = Plant::reference()?;
        p.set_work(
            0,
            Work::Every {
                from: 0,
                period: u64::MAX / 2,
                amount: 3_000_000,
                lanes: 1000,
            },
        );
        let mut rig = Rig::new(p, predictive(Some(100_000))?);
        rig.run_to(5 * MS);
        assert!(rig.plant.jobs().0 == 1);
        rig.plant.set_work(0, Work::Idle);
        rig.run_to(10 * MS);
        assert!(rig.next.is_none());
        let samples = rig.samples;
        rig.run_to(30 * MS);
        assert!(rig.samples == samples);
        assert!(rig.plant.domains.map(|d| d.khz) == [400_000, 400_000]);
        assert!(rig.plant.gates() == [Gate::Power; ENGINES]);
        // Work brings it back at once.
        rig.submit(1, Work::Constant { lanes: 1000 });
        rig.run_to(30 * MS + 60 * US);
        assert!(rig.next.is_some());
        assert!(rig.plant.domains[0].khz >= 1_250_000);
        Ok(())
    }

    #[test]
    fn lock_boost_and_caps_hold_whatever_the_load_is() -> Result {
        for_each_seed("bounds", |rng| {
            let mut p = Plant::reference()?;
            let period = MS + rng.below(5 * MS);
            p.set_work(
                0,
                Work::Every {
                    from: 0,
                    period,
                    amount: 1_000_000,
                    lanes: 1000,
                },
            );
            p.set_work(
                2,
                Work::After {
                    pause: MS,
                    amount: rng.below(50_000_000) + 1,
                    lanes: 0,
                },
            );
            let mut g = predictive(Some(60_000 + rng.below(90_000) as u32))?;
            let table = *config()?.pstates.table(Domain::Core);
            let (min, max) = (rng.index(5), rng.index(5));
            let (fastest, slowest) = (min.min(max), min.max(max));
            let (from, to) = (table.level(slowest).khz, table.level(fastest).khz);
            assert!(g.bounds(Domain::Core).lock(&table, from, to));
            let cap = rng.index(5);
            g.bounds(Domain::Core).set_cap(cap);
            let mut rig = Rig::new(p, g);
            rig.run_to(MS);
            while rig.plant.now < 40 * MS {
                let until = rig.plant.now + 100 * US;
                rig.run_to(until);
                let d = rig.last.ok_or(EINVAL)?;
                assert!(d.core >= fastest.max(cap));
                // Only the limits may go below the lock.
                let limited = matches!(d.reason, Reason::Power | Reason::Heat);
                assert!(d.core <= slowest.max(cap) || limited);
            }
            Ok(())
        })
    }

    #[test]
    fn same_work_gets_the_same_decisions() -> Result {
        let run = || -> Result<(u64, u64, u64)> {
            let mut p = Plant::reference()?;
            saturate(&mut p);
            p.set_work(
                2,
                Work::After {
                    pause: MS,
                    amount: 9_000_000,
                    lanes: 0,
                },
            );
            let mut rig = Rig::new(p, predictive(Some(70_000))?);
            rig.run_to(50 * MS);
            Ok((rig.plant.energy_uj(), rig.plant.done(), rig.samples))
        };
        assert!(run()? == run()?);
        Ok(())
    }

    #[test]
    fn board_that_says_nonsense_ends_at_its_slowest_and_breaks_nothing() -> Result {
        for_each_seed("nonsense", |rng| {
            let mut g = predictive(Some(100_000))?;
            let mut old = reactive(Some(100_000))?;
            let mut s = Sample::default();
            for _ in 0..2_000 {
                s.time_ns = s.time_ns.wrapping_add(rng.next() >> rng.below(64));
                s.energy_uj = s.energy_uj.wrapping_add(rng.next() >> rng.below(64));
                s.temp_mc = (rng.next() >> 32) as i32 >> rng.below(20);
                s.ambient_mc = (rng.next() >> 32) as i32 >> rng.below(20);
                (s.hot, s.braked) = (rng.chance(10), rng.chance(10));
                for d in &mut s.domains {
                    d.khz = (rng.next() >> rng.below(64)) as u32;
                    d.uv = (rng.next() >> rng.below(64)) as u32;
                }
                for busy in &mut s.busy_ns {
                    *busy = busy.wrapping_add(rng.next() >> rng.below(64));
                }
                s.traffic = rng.next();
                let outstanding = rng.chance(50);
                for d in [g.sample(&s, outstanding), old.sample(&s, outstanding)] {
                    assert!(d.core < 5 && d.memory < 4);
                }
                if rng.chance(5) {
                    let _ = g.work(rng.next());
                }
            }
            s.temp_mc = i32::MIN;
            for _ in 0..3 {
                let _ = g.sample(&s, true);
            }
            let d = g.sample(&s, true);
            assert!((d.core, d.memory, d.reason) == (4, 3, Reason::Blind));
            Ok(())
        })
    }
}
