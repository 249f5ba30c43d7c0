// SPDX-License-Identifier: GPL-2.0
//! Probe of a board whose BAR0 is too small; see vm.conf.

use guest::Driver;
use guest::Errno;
use guest::Outcome;

guest::tests! {
    bar_that_is_too_small_is_refused_and_leaves_nothing,
}

fn bar_that_is_too_small_is_refused_and_leaves_nothing() -> Outcome {
    for _ in 0..3 {
        let mut driver = Driver::load()?;
        let says = ["BAR0 has 8388608 bytes", "need 16777216"];
        driver.refuses(Errno::EINVAL, &says)?;
        driver.unload()?;
    }
    Ok(())
}
