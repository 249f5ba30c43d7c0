// SPDX-License-Identifier: GPL-2.0

//! Power: which clocks, which voltages, which engines switched off, and when to look again.
//!
//! The driver reads a [`sample::Sample`] when the board's alarm goes off and gives it to a
//! [`governor::Governor`], together with whether work is outstanding. The [`governor::Decision`]
//! names a level per domain, a gate per engine, and the time of the next alarm, or none: then
//! nothing happens on an idle board until `Governor::work` is told that there is work again, which
//! decides as well.
//!
//! Levels are not written, they are gone to: each domain has a [`transition::Transition`], which is
//! told the level (`request`) and then asked for the next [`transition::Step`] with what the board
//! says of the domain, until it says that it has arrived, or for how long to wait. Who sets levels
//! without a governor (devfreq's own, a user) puts the wish through [`levels::Bounds`] first.
//!
//! - [`levels`]: the tables, range lock, boost, caps; [`transition`]: the way between two levels;
//! - [`sample`]: checks what the board says; [`load`], [`rhythm`], [`thermal`], [`model`] learn from
//!   it how busy, in what beat, how hot and at what power;
//! - [`governor`] decides, with [`predictor`] (which level does the work deserve), [`budget`] (the
//!   power limit as a mean) and [`gating`]; [`reactive`] is the one to compare with;
//! - [`residency`] and [`account`] count for those who ask;
//! - `plant`, built with the tests only, is the board in integers with a driver around a governor,
//!   and `trials` what governors promise on it.
//!
//! All times are board time in ns, so that the same work gets the same decisions on each run. All
//! numbers are integers with the unit in the name ([`fixed`]); no part believes the device, none
//! allocates, locks or waits. A structure belongs to whoever holds the lock around it.

pub(crate) mod account;
pub(crate) mod budget;
pub(crate) mod fixed;
pub(crate) mod gating;
pub(crate) mod governor;
pub(crate) mod levels;
pub(crate) mod load;
pub(crate) mod model;
pub(crate) mod predictor;
pub(crate) mod reactive;
pub(crate) mod residency;
pub(crate) mod rhythm;
pub(crate) mod sample;
pub(crate) mod thermal;
pub(crate) mod transition;

#[cfg(CONFIG_KUNIT = "y")]
mod plant;
#[cfg(CONFIG_KUNIT = "y")]
mod trials;
