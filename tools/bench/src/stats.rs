// SPDX-License-Identifier: GPL-2.0
//! What runs in pairs say about a ratio.
//!
//! Each run measures both drivers, one right after the other, and gives one ratio. Ratios multiply,
//! so their logarithms are averaged. A machine that was disturbed for a moment spoils one pair and
//! not all: the lowest and the highest tenth are left out, and the interval is that of a trimmed
//! mean (Tukey and McLaughlin): variance of the winsorised values, quantile of Student's t with as
//! many degrees of freedom as values were kept, less one.

use statrs::distribution::ContinuousCDF;
use statrs::distribution::StudentsT;

/// Share of the pairs that is left out at either end.
const TRIM: f64 = 0.1;

/// Upper quantile of a two-sided 95 % interval.
const QUANTILE: f64 = 0.975;

/// Which values are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// As of a rate.
    Higher,
    /// As of a time.
    Lower,
}

/// A ratio that is above 1 when the subject is better than the peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Best estimate.
    pub ratio: f64,
    /// Ends of the 95 % interval; none of a single pair.
    pub interval: Option<(f64, f64)>,
}

/// The ratio that pairs of (subject, peer) give; none if there is no pair, or a value that is not
/// above zero.
pub fn ratio(pairs: &[(f64, f64)], better: Better) -> Option<Ratio> {
    let mut logs: Vec<f64> = pairs
        .iter()
        .map(|(subject, peer)| match better {
            Better::Higher => (subject / peer).ln(),
            Better::Lower => (peer / subject).ln(),
        })
        .collect();
    if logs.is_empty() || logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    logs.sort_by(f64::total_cmp);
    let n = logs.len();
    // CAST: a tenth of a length, not negative.
    let cut = (TRIM * n as f64) as usize;
    let kept = n - 2 * cut;
    let center = mean(&logs[cut..n - cut]);
    let interval = (kept > 1).then(|| {
        let (first, last) = (logs[cut], logs[n - cut - 1]);
        let winsorised: Vec<f64> = logs.iter().map(|log| log.clamp(first, last)).collect();
        // CAST: counts of runs are small.
        let share = kept as f64 / n as f64;
        let error = deviation(&winsorised) / (share * (n as f64).sqrt());
        let reach = student(kept - 1) * error;
        ((center - reach).exp(), (center + reach).exp())
    });
    Some(Ratio {
        ratio: center.exp(),
        interval,
    })
}

/// The value in the middle; of an even number the mean of the two there. None of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The quantile `share` (0 to 1), linear between neighbours. None of nothing.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = share.clamp(0.0, 1.0) * last as f64;
    // CAST: between 0 and `last`.
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    let part = at - at.floor();
    Some(sorted[below] + part * (sorted[above] - sorted[below]))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard deviation of a sample.
fn deviation(values: &[f64]) -> f64 {
    let center = mean(values);
    let squares: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
    (squares / (values.len() as f64 - 1.0)).sqrt()
}

/// The quantile of Student's t that a 95 % interval reaches to.
fn student(freedom: usize) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom as f64) {
        Ok(t) => t.inverse_cdf(QUANTILE),
        // Only without any degree of freedom: nothing is known.
        Err(_) => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3 * b.abs()
    }

    /// Numbers as a normal distribution of mean 0 and deviation 1 gives them, the same each time:
    /// sums of twelve uniform ones of a linear congruential generator.
    struct Normal(u64);

    impl Normal {
        fn uniform(&mut self) -> f64 {
            const MULTIPLIER: u64 = 6364136223846793005;
            self.0 = self
                .0
                .wrapping_mul(MULTIPLIER)
                .wrapping_add(1442695040888963407);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }

        fn next(&mut self) -> f64 {
            (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
        }
    }

    #[test]
    fn quantiles_of_students_t_are_those_of_the_tables() {
        for (freedom, t) in [(1, 12.706), (7, 2.365), (9, 2.262), (30, 2.042)] {
            assert!(
                close(student(freedom), t),
                "{freedom}: {}",
                student(freedom)
            );
        }
    }

    #[test]
    fn ratio_is_above_one_when_the_subject_is_better() {
        let rates = ratio(&[(200.0, 100.0)], Better::Higher).unwrap();
        assert!(close(rates.ratio, 2.0));
        let times = ratio(&[(50.0, 100.0)], Better::Lower).unwrap();
        assert!(close(times.ratio, 2.0));
    }

    #[test]
    fn single_pair_has_no_interval() {
        assert_eq!(ratio(&[(1.0, 1.0)], Better::Higher).unwrap().interval, None);
    }

    #[test]
    fn nothing_and_zero_give_no_ratio() {
        assert_eq!(ratio(&[], Better::Higher), None);
        assert_eq!(ratio(&[(1.0, 0.0), (1.0, 1.0)], Better::Higher), None);
        assert_eq!(ratio(&[(0.0, 0.0)], Better::Lower), None);
    }

    #[test]
    fn interval_without_trimming_is_students() {
        // Logarithms -1, 0, 1: deviation 1, error 1/sqrt(3), t of 2 degrees 4.303.
        let e = 1f64.exp();
        let pairs = [(1.0, e), (1.0, 1.0), (e, 1.0)];
        let (low, high) = ratio(&pairs, Better::Higher).unwrap().interval.unwrap();
        let reach = 4.3027 / 3f64.sqrt();
        assert!(close(low, (-reach).exp()) && close(high, reach.exp()));
    }

    #[test]
    fn equal_pairs_give_an_interval_of_no_width() {
        let got = ratio(&[(3.0, 2.0); 10], Better::Higher).unwrap();
        let (low, high) = got.interval.unwrap();
        assert!(close(low, 1.5) && close(high, 1.5));
    }

    #[test]
    fn one_spoilt_pair_of_ten_moves_nothing_far() {
        let mut pairs = vec![(100.0, 100.0); 4];
        pairs.extend([(101.0, 100.0), (99.0, 100.0), (102.0, 100.0)]);
        pairs.extend([(98.0, 100.0), (100.5, 100.0)]);
        pairs.push((5.0, 100.0));
        let got = ratio(&pairs, Better::Higher).unwrap();
        let (low, high) = got.interval.unwrap();
        assert!((0.97..1.03).contains(&got.ratio), "{got:?}");
        assert!(low > 0.95 && high < 1.05, "{got:?}");
    }

    #[test]
    fn interval_of_equal_drivers_holds_one_in_95_of_100_trials() {
        let seed = 20261129;
        println!("seed {seed}");
        let mut normal = Normal(seed);
        for runs in [10, 20] {
            let trials = 4000;
            let mut held = 0;
            for _ in 0..trials {
                let pairs: Vec<_> = (0..runs)
                    .map(|_| ((0.1 * normal.next()).exp(), (0.1 * normal.next()).exp()))
                    .collect();
                let (low, high) = ratio(&pairs, Better::Higher).unwrap().interval.unwrap();
                held += u32::from(low <= 1.0 && 1.0 <= high);
            }
            let share = f64::from(held) / f64::from(trials);
            assert!((0.94..0.97).contains(&share), "{runs} runs: {share}");
        }
    }

    #[test]
    fn interval_that_holds_one_is_not_found_for_drivers_that_differ() {
        let seed = 7;
        println!("seed {seed}");
        let mut normal = Normal(seed);
        let pairs: Vec<_> = (0..10)
            .map(|_| {
                (
                    1.3 * (0.05 * normal.next()).exp(),
                    (0.05 * normal.next()).exp(),
                )
            })
            .collect();
        let got = ratio(&pairs, Better::Higher).unwrap();
        assert!(got.interval.unwrap().0 > 1.0, "{got:?}");
        assert!((1.2..1.4).contains(&got.ratio), "{got:?}");
    }

    #[test]
    fn quantiles_lie_between_their_neighbours() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&values), Some(2.5));
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 1.0), Some(4.0));
        assert_eq!(median(&[]), None);
    }
}
