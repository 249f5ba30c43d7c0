// SPDX-License-Identifier: GPL-2.0

//! Clocks and their conversion to and from numbers.
//!
//! C headers: [`include/linux/timekeeping.h`](srctree/include/linux/timekeeping.h),
//! [`include/drm/drm_utils.h`](srctree/include/drm/drm_utils.h)

use kernel::{
    bindings,
    prelude::*,
    time::{
        ClockSource,
        Instant,
        Jiffies,
        Monotonic, //
    }, //
};

use super::sys;

/// The hardware clock without adjustment: `CLOCK_MONOTONIC_RAW`.
///
/// The one to correlate with a device's clock, since no NTP slewing is in it.
pub(crate) struct MonotonicRaw;

// SAFETY: `ktime_get_raw()` counts up from 0 at boot and does not reach `KTIME_MAX`.
unsafe impl ClockSource for MonotonicRaw {
    const ID: bindings::clockid_t = bindings::CLOCK_MONOTONIC_RAW as bindings::clockid_t;

    fn ktime_get() -> bindings::ktime_t {
        // SAFETY: It may be called in any context but NMI.
        unsafe { bindings::ktime_get_raw() }
    }
}

/// Nanoseconds since the clock's beginning.
pub(crate) fn nanos_from_instant<C: ClockSource>(instant: Instant<C>) -> i64 {
    // SAFETY: `Instant` is a transparent wrapper of `ktime_t`, an `i64` of nanoseconds.
    unsafe { (&raw const instant).cast::<i64>().read() }
}

/// The time `nanos` after the clock's beginning; a negative number counts as the beginning.
pub(crate) fn instant_from_nanos<C: ClockSource>(nanos: i64) -> Instant<C> {
    let nanos = nanos.max(0);
    // SAFETY: `Instant` is a transparent wrapper of `ktime_t`, and any number that is not negative
    // is a valid one.
    unsafe { (&raw const nanos).cast::<Instant<C>>().read() }
}

/// How many jiffies there are from now to a deadline of user space.
///
/// `deadline` is in nanoseconds of `CLOCK_MONOTONIC`. A deadline that has passed, and 0, give 0:
/// look, do not wait. `i64::MAX` gives [`None`]: for ever.
pub(crate) fn jiffies_until(deadline: i64) -> Option<Jiffies> {
    if deadline == i64::MAX {
        return None;
    }
    // SAFETY: A computation on the argument and the current time.
    let timeout = unsafe { sys::drm_timeout_abs_to_jiffies(deadline) };
    Some(Jiffies::try_from(timeout).unwrap_or(0))
}

/// Milliseconds as jiffies, at least 1 for a time that is not 0.
pub(crate) fn jiffies_from_millis(millis: u32) -> Jiffies {
    kernel::time::msecs_to_jiffies(millis)
}

/// Now, in nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_nanos() -> i64 {
    nanos_from_instant(Instant::<Monotonic>::now())
}

#[kunit_tests(ochre_ext_timekeeping)]
mod tests {
    use super::*;

    #[test]
    fn instants_survive_the_way_through_numbers() {
        let now = monotonic_nanos();
        assert_eq!(
            nanos_from_instant(instant_from_nanos::<Monotonic>(now)),
            now
        );
        assert_eq!(
            nanos_from_instant(instant_from_nanos::<Monotonic>(i64::MIN)),
            0
        );
    }

    #[test]
    fn raw_clock_runs() {
        let first = nanos_from_instant(Instant::<MonotonicRaw>::now());
        let second = nanos_from_instant(Instant::<MonotonicRaw>::now());
        assert!(first > 0);
        assert!(second >= first);
    }

    #[test]
    fn passed_deadlines_do_not_wait_and_far_ones_wait_for_ever() {
        assert_eq!(jiffies_until(0), Some(0));
        assert_eq!(jiffies_until(1), Some(0));
        assert_eq!(jiffies_until(-1), Some(0));
        assert_eq!(jiffies_until(i64::MAX), None);
        let soon = jiffies_until(monotonic_nanos() + 1_000_000_000);
        let second = jiffies_from_millis(1000);
        assert!(soon.is_some_and(|jiffies| jiffies > 0 && jiffies <= second + 1));
    }
}
