// SPDX-License-Identifier: GPL-2.0

//! The virtqueue against a device that lies: each lie is reported, and none does harm.

use kernel::prelude::*;

use super::{
    bench::{
        all_options,
        Bench,
        OPTIONS, //
    },
    model::Plain,
    *,
};
use crate::algo::prng::{
    for_each_seed,
    Prng, //
};

/// Flags that a device may have, or not.
fn any_flags(rng: &mut Prng) -> u16 {
    rng.next() as u16
}

#[kunit_tests(ochre_virtio_vring_hostile)]
mod suite {
    use super::*;

    #[test]
    fn id_of_no_chain_is_reported() -> Result {
        for options in all_options() {
            for id in [16, 17, 0x1_0000, 0x1_0001, u32::MAX] {
                let memory = Plain::new(&options)?;
                let mut bench = Bench::new(&memory, &options, 0)?;
                bench.send(64)?;
                memory.set_used(16, 0, id, 0);
                memory.set_used_head(0, 1);
                assert_eq!(bench.ring.pop(), Err(RingError::BadId(id)));
                // And stays so.
                assert_eq!(bench.ring.pop(), Err(RingError::BadId(id)));
            }
        }
        Ok(())
    }

    #[test]
    fn id_within_a_run_of_descriptors_is_reported() -> Result {
        let options = Options {
            indirect: false,
            ..OPTIONS
        };
        let memory = Plain::new(&options)?;
        let mut bench = Bench::new(&memory, &options, 0)?;
        bench.send(64)?;
        bench.device.give_back(1, 0);
        assert_eq!(bench.ring.pop(), Err(RingError::BadId(1)));
        Ok(())
    }

    #[test]
    fn chain_used_twice_is_reported() -> Result {
        for options in all_options() {
            let memory = Plain::new(&options)?;
            let mut bench = Bench::new(&memory, &options, 0xffff)?;
            let first = bench.send(64)?;
            bench.send(64)?;
            bench.device.give_back(bench.head(first), 3);
            bench.device.give_back(bench.head(first), 4);
            let used = Used {
                slot: first,
                written: 3,
            };
            assert_eq!(bench.ring.pop(), Ok(Some(used)));
            assert_eq!(bench.ring.pop(), Err(RingError::NotInFlight(first)));
        }
        Ok(())
    }

    #[test]
    fn chain_that_was_not_published_is_reported() -> Result {
        for options in all_options() {
            let memory = Plain::new(&options)?;
            let mut bench = Bench::new(&memory, &options, 0)?;
            let mut rng = Prng::new(1);
            bench.send(64)?;
            let pushed = bench.push(&mut rng)?.ok_or(EINVAL)?;
            let claimed = bench.ring.claim().ok_or(EINVAL)?;
            let free = bench.ring.claim().ok_or(EINVAL)?;
            bench.ring.release(free);
            for slot in [pushed, claimed, free] {
                memory.set_used(16, 0, bench.head(slot).into(), 0);
                memory.set_used_head(0, 1);
                assert_eq!(bench.ring.pop(), Err(RingError::NotInFlight(slot)));
            }
        }
        Ok(())
    }

    #[test]
    fn more_bytes_than_the_chain_has_are_reported() -> Result {
        for options in all_options() {
            let memory = Plain::new(&options)?;
            let mut bench = Bench::new(&memory, &options, 0)?;
            let slot = bench.send(64)?;
            bench.device.give_back(bench.head(slot), 64);
            assert!(bench.ring.pop()?.is_some_and(|used| used.written == 64));
            for written in [65, u32::MAX] {
                let mut bench = Bench::new(&memory, &options, 0)?;
                let slot = bench.send(64)?;
                bench.device.give_back(bench.head(slot), written);
                let error = RingError::TooLong {
                    slot,
                    written,
                    room: 64,
                };
                assert_eq!(bench.ring.pop(), Err(error));
            }
        }
        Ok(())
    }

    #[test]
    fn index_that_goes_too_far_or_back_is_reported() -> Result {
        for options in all_options() {
            for index in [0xfffe, 2, 3, 17, 0x7fff, 0x8000, 0xfffd] {
                let memory = Plain::new(&options)?;
                // Two in flight, from 0xffff on: the index may get to 1.
                let mut bench = Bench::new(&memory, &options, 0xffff)?;
                bench.send(64)?;
                bench.send(64)?;
                memory.set_used_head(0, index);
                let error = RingError::BadIndex {
                    jump: index.wrapping_sub(0xffff),
                    in_flight: 2,
                };
                assert_eq!(bench.ring.pop(), Err(error));
            }
        }
        Ok(())
    }

    #[test]
    fn index_is_counted_from_what_the_device_has_not_from_what_is_pushed() -> Result {
        let memory = Plain::new(&OPTIONS)?;
        let mut bench = Bench::new(&memory, &OPTIONS, 0)?;
        let mut rng = Prng::new(1);
        bench.push(&mut rng)?;
        memory.set_used_head(0, 1);
        let error = RingError::BadIndex {
            jump: 1,
            in_flight: 0,
        };
        assert_eq!(bench.ring.pop(), Err(error));
        Ok(())
    }

    #[test]
    fn garbage_anywhere_gives_back_no_chain_twice_and_ends_in_an_error() -> Result {
        for_each_seed("vring garbage", |rng| {
            for options in all_options() {
                let memory = Plain::new(&options)?;
                let mut ring = Vring::new(&memory, options)?;
                for _ in 0..300 {
                    let mut out = [false; 16];
                    for _ in 0..1 + rng.below(16) {
                        let Some(slot) = ring.claim() else { break };
                        let segment = Segment {
                            addr: 4096,
                            len: 4096,
                        };
                        ring.push(slot, &[segment], &[segment])?;
                        *out.get_mut(slot.index()).ok_or(EINVAL)? = true;
                    }
                    ring.publish();
                    let count = ring.in_flight();
                    // Small numbers get further than just any.
                    let small = rng.chance(80);
                    memory.scribble(|| {
                        let any = rng.next();
                        if small {
                            any & 0x0000_0fff_0000_001f
                        } else {
                            any
                        }
                    });
                    if small {
                        memory.set_used_head(any_flags(rng), rng.below(18) as u16);
                    }
                    let mut popped = 0;
                    while popped <= count {
                        let Ok(Some(used)) = ring.pop() else { break };
                        let out = out.get_mut(used.slot.index()).ok_or(EINVAL)?;
                        assert!(*out && used.written <= 4096);
                        *out = false;
                        popped += 1;
                    }
                    assert!(popped <= count && ring.in_flight() == count - popped);
                    let _ = ring.arm(rng.next() as u16);
                    let _ = ring.publish();

                    // A reset makes it a queue again.
                    ring.reset();
                    assert!(ring.free() == ring.slots() && ring.pop() == Ok(None));
                }
            }
            Ok(())
        })
    }
}
