// SPDX-License-Identifier: GPL-2.0
//! In which order drivers are measured.
//!
//! The two values of a pair should be close in time, so the driver changes after each group of
//! rows and not after all. Which is first alternates from group to group, which saves a change
//! between two groups, and from run to run, so that neither profits from its place.

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The driver that is judged.
    Subject,
    /// The one that it is compared with.
    Peer,
}

/// One group of rows on one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// From 0.
    pub run: usize,
    /// Index of the group.
    pub group: usize,
    /// Driver.
    pub side: Side,
}

/// All steps, in order. Without a peer there is only the subject.
pub fn steps(runs: usize, groups: usize, with_peer: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    for run in 0..runs {
        for group in 0..groups {
            let order = match (with_peer, (run + group) % 2) {
                (false, _) => [Side::Subject].as_slice(),
                (true, 0) => &[Side::Subject, Side::Peer],
                (true, _) => &[Side::Peer, Side::Subject],
            };
            steps.extend(order.iter().map(|&side| Step { run, group, side }));
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_each_group_alternates_from_run_to_run() {
        for groups in 1..5 {
            let steps = steps(6, groups, true);
            for group in 0..groups {
                let first = |run| {
                    let step = steps.iter().find(|s| s.run == run && s.group == group);
                    step.unwrap().side
                };
                for run in 1..6 {
                    assert_ne!(first(run), first(run - 1), "{groups} groups, run {run}");
                }
            }
        }
    }

    #[test]
    fn values_of_a_pair_are_measured_one_after_the_other() {
        for pair in steps(4, 3, true).chunks(2) {
            assert_eq!((pair[0].run, pair[0].group), (pair[1].run, pair[1].group));
            assert_ne!(pair[0].side, pair[1].side);
        }
    }

    #[test]
    fn driver_stays_from_one_group_to_the_next() {
        let steps = steps(1, 4, true);
        for pair in steps[1..].chunks(2).filter(|pair| pair.len() == 2) {
            assert_eq!(pair[0].side, pair[1].side);
        }
    }

    #[test]
    fn without_a_peer_only_the_subject_is_measured() {
        let steps = steps(3, 2, false);
        assert_eq!(steps.len(), 6);
        assert!(steps.iter().all(|step| step.side == Side::Subject));
    }
}
