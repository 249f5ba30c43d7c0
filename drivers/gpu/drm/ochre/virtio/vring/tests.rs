// SPDX-License-Identifier: GPL-2.0

//! The virtqueue against a device that follows the specification.

use kernel::prelude::*;

use super::{
    bench::{
        all_options,
        Bench,
        OPTIONS, //
    },
    model::{
        Device,
        Plain, //
    },
    shape::SIZE_MAX,
    *,
};
use crate::algo::prng::{
    for_each_seed,
    Prng, //
};

#[kunit_tests(ochre_virtio_vring)]
mod suite {
    use super::*;

    #[test]
    fn only_powers_of_two_make_a_queue() -> Result {
        for size in [0, 3, 100, 0xffff] {
            assert!(Shape::of(&Options { size, ..OPTIONS }).is_err());
        }
        let none = Options {
            segments: 0,
            ..OPTIONS
        };
        assert!(Shape::of(&none).is_err());
        for size in [1, 2, 4, 1024, SIZE_MAX] {
            for options in all_options() {
                let shape = Shape::of(&Options { size, ..options })?;
                assert!(shape.size >> shape.shift >= 1);
                assert!(shape.segments >= 1 && shape.segments <= 1 << 15);
            }
        }
        Ok(())
    }

    #[test]
    fn indirect_chains_take_one_descriptor_and_others_a_run() -> Result {
        let memory = Plain::new(&OPTIONS)?;
        let ring = Vring::new(&memory, OPTIONS)?;
        assert_eq!((ring.slots(), ring.max_segments()), (16, 5));

        let options = Options {
            size: 64,
            indirect: false,
            ..OPTIONS
        };
        let memory = Plain::new(&options)?;
        let ring = Vring::new(&memory, options)?;
        assert_eq!((ring.slots(), ring.max_segments()), (8, 5));
        // Chains become short before there are too few of them.
        let options = Options {
            size: 16,
            ..options
        };
        let memory = Plain::new(&options)?;
        let ring = Vring::new(&memory, options)?;
        assert_eq!((ring.slots(), ring.max_segments()), (8, 2));
        Ok(())
    }

    #[test]
    fn slots_are_claimed_once_and_the_last_one_freed_comes_first() -> Result {
        let memory = Plain::new(&OPTIONS)?;
        let mut ring = Vring::new(&memory, OPTIONS)?;
        let mut seen = [false; 16];
        for count in (0..16).rev() {
            let slot = ring.claim().ok_or(EINVAL)?;
            let seen = seen.get_mut(slot.index()).ok_or(EINVAL)?;
            assert!(!*seen);
            *seen = true;
            assert_eq!(ring.free(), count);
        }
        assert!(ring.claim().is_none());
        for slot in [3, 9] {
            ring.release(Slot(slot));
            // Twice is once.
            ring.release(Slot(slot));
        }
        assert_eq!(ring.free(), 2);
        assert_eq!(ring.claim(), Some(Slot(9)));
        assert_eq!(ring.claim(), Some(Slot(3)));
        assert!(ring.claim().is_none());
        Ok(())
    }

    #[test]
    fn callers_mistakes_are_refused_and_leave_the_slot_claimed() -> Result {
        for options in all_options() {
            let memory = Plain::new(&options)?;
            let mut ring = Vring::new(&memory, options)?;
            let one = Segment { addr: 16, len: 16 };
            let empty = Segment { addr: 16, len: 0 };
            let huge = Segment {
                addr: 16,
                len: u32::MAX,
            };
            assert!(ring.push(Slot(0), &[one], &[]).is_err());
            assert!(ring.push(Slot(0xffff), &[one], &[]).is_err());
            let slot = ring.claim().ok_or(EINVAL)?;
            assert!(ring.push(slot, &[], &[]).is_err());
            assert!(ring.push(slot, &[empty], &[one]).is_err());
            assert!(ring.push(slot, &[one], &[empty]).is_err());
            assert!(ring.push(slot, &[], &[huge, one]).is_err());
            assert!(ring.push(slot, &[one; 4], &[one; 2]).is_err());
            assert!(!ring.publish());
            assert!(ring.push(slot, &[one], &[one]).is_ok());
            assert!(ring.push(slot, &[one], &[one]).is_err());
            ring.release(slot);
            assert_eq!(ring.free(), ring.slots() - 1);
        }
        Ok(())
    }

    #[test]
    fn device_gets_each_chain_as_pushed_and_the_driver_each_answer_in_order() -> Result {
        for_each_seed("vring", |rng| {
            for options in all_options() {
                // The 16-bit indexes wrap around early in the run, and the 32-bit ones in some.
                let start = if rng.chance(50) { 1 << 16 } else { 1 << 32 } - rng.below(300);
                let memory = Plain::new(&options)?;
                let mut bench = Bench::new(&memory, &options, start)?;
                for _ in 0..4000 {
                    match rng.below(5) {
                        0 => {
                            let full = bench.ring.free() == 0;
                            assert!(bench.push(rng)?.is_none() == full);
                        }
                        1 => {
                            bench.ring.publish();
                        }
                        2 => assert!(bench.take()? != Some(false)),
                        3 => bench.give_back(rng)?,
                        _ => assert!(bench.pop()?),
                    }
                    let device = bench.held.len() + bench.back.len();
                    let driver = bench.ring.slots() - bench.ring.free();
                    assert!(driver == device + bench.sent.len());
                    let unseen = bench.ring.pushed.wrapping_sub(bench.ring.published) as usize;
                    assert!(usize::from(bench.ring.in_flight()) == driver - unseen);
                }
                assert!(bench.device.done > start + 300);
            }
            Ok(())
        })
    }

    #[test]
    fn unpublished_chains_are_not_seen() -> Result {
        for options in all_options() {
            let memory = Plain::new(&options)?;
            let mut bench = Bench::new(&memory, &options, 0)?;
            let mut rng = Prng::new(1);
            assert!(!bench.ring.publish());
            bench.push(&mut rng)?;
            bench.push(&mut rng)?;
            assert!(bench.device.take()?.is_none());
            assert_eq!(bench.ring.in_flight(), 0);
            assert!(bench.ring.publish());
            assert_eq!(bench.ring.in_flight(), 2);
            assert!(bench.device.take()?.is_some());
            // Nothing new.
            assert!(!bench.ring.publish());
        }
        Ok(())
    }

    #[test]
    fn device_is_notified_exactly_when_it_asked() -> Result {
        for_each_seed("vring notifications", |rng| {
            let start = (1 << 32) - rng.below(200);
            let memory = Plain::new(&OPTIONS)?;
            let mut bench = Bench::new(&memory, &OPTIONS, start)?;
            let mut published = start;
            let (mut asked, mut spared) = (0, 0);
            for _ in 0..2000 {
                let event = (published + rng.below(8)).saturating_sub(rng.below(4));
                bench.device.set_event(event);
                let count = rng.below(5);
                for _ in 0..count {
                    bench.push(rng)?;
                }
                let notify = bench.ring.publish();
                assert!(notify == (published..published + count).contains(&event));
                published += count;
                if notify {
                    asked += 1;
                } else {
                    spared += 1;
                }
                while bench.take()?.is_some() {
                    bench.give_back(rng)?;
                    assert!(bench.pop()?);
                }
            }
            assert!(asked > 100 && spared > 100);
            Ok(())
        })
    }

    #[test]
    fn without_event_index_the_flag_says_whether_to_notify() -> Result {
        let options = Options {
            event_idx: false,
            ..OPTIONS
        };
        let memory = Plain::new(&options)?;
        let mut bench = Bench::new(&memory, &options, 0)?;
        let mut rng = Prng::new(1);
        for no_notify in [false, true, false] {
            bench.device.set_no_notify(no_notify);
            bench.push(&mut rng)?;
            assert_eq!(bench.ring.publish(), !no_notify);
        }
        Ok(())
    }

    #[test]
    fn armed_queue_interrupts_at_the_chain_it_was_armed_for_and_a_disarmed_one_not() -> Result {
        for_each_seed("vring interrupts", |rng| {
            let start = (1 << 16) - rng.below(200);
            let memory = Plain::new(&OPTIONS)?;
            let mut bench = Bench::new(&memory, &OPTIONS, start)?;
            let mut popped = start;
            for _ in 0..2000 {
                for _ in 0..rng.below(12) {
                    bench.push(rng)?;
                }
                bench.ring.publish();
                while bench.take()?.is_some() {}
                // Some are done with before the driver asks.
                for _ in 0..rng.below(4) {
                    bench.give_back(rng)?;
                }
                bench.device.interrupts();
                let after = 1 + rng.below(6);
                let armed = rng.chance(80);
                if armed {
                    let there = bench.ring.arm(after as u16);
                    assert!(there == (bench.device.done >= popped + after));
                } else {
                    bench.ring.disarm();
                }
                for _ in 0..rng.below(8) {
                    let before = bench.device.done;
                    bench.give_back(rng)?;
                    let is_it = before + 1 == popped + after && bench.device.done != before;
                    assert!(bench.device.interrupts() == (armed && is_it));
                }
                while !bench.back.is_empty() {
                    assert!(bench.pop()?);
                    popped += 1;
                }
                assert!(bench.pop()?);
            }
            Ok(())
        })
    }

    #[test]
    fn without_event_index_every_chain_interrupts_while_armed() -> Result {
        let options = Options {
            event_idx: false,
            ..OPTIONS
        };
        let memory = Plain::new(&options)?;
        let mut bench = Bench::new(&memory, &options, 0xffff)?;
        for armed in [false, true, false, true] {
            let slot = bench.send(64)?;
            if armed {
                assert!(!bench.ring.arm(1));
            } else {
                bench.ring.disarm();
            }
            bench.device.give_back(bench.head(slot), 0);
            assert_eq!(bench.device.interrupts(), armed);
            // What came before it was asked for is reported, not lost; for 0, as for 1.
            assert!(bench.ring.arm(0) && bench.ring.arm(1) && !bench.ring.arm(2));
            assert!(bench.ring.pop()?.is_some());
            assert!(!bench.ring.arm(0) && !bench.ring.arm(1));
        }
        Ok(())
    }

    #[test]
    fn reset_empties_the_queue_and_repairs_what_the_device_spoiled() -> Result {
        for options in all_options() {
            let memory = Plain::new(&options)?;
            let mut bench = Bench::new(&memory, &options, 0xfff0)?;
            let mut rng = Prng::new(1);
            while bench.push(&mut rng)?.is_some() {}
            bench.ring.publish();
            memory.scribble(|| rng.next());
            bench.ring.reset();
            assert_eq!(bench.ring.free(), bench.ring.slots());
            assert_eq!(bench.ring.in_flight(), 0);

            bench.sent.clear();
            bench.device = Device::new(&memory, &options, 0);
            assert!(bench.device.take()?.is_none());
            assert!(!bench.device.interrupts());
            for _ in 0..100 {
                bench.push(&mut rng)?;
                assert!(bench.ring.publish());
                assert_eq!(bench.take()?, Some(true));
                bench.device.want_notification();
                bench.give_back(&mut rng)?;
                assert!(!bench.device.interrupts());
                assert!(bench.pop()?);
            }
        }
        Ok(())
    }
}
