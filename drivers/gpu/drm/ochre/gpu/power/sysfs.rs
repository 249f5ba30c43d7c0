// SPDX-License-Identifier: GPL-2.0

//! Files of the device: range locks, residency, policy. Documentation/gpu/ochre/power.rst describes
//! them.

use kernel::prelude::*;

use super::{
    dvfs::Policy,
    faces::Face, //
};
use crate::{
    algo::power::{
        governor::Reason,
        levels::Domain, //
    },
    ext::{
        capability,
        sysfs::{
            show,
            File,
            Text, //
        }, //
    },
};

/// The files.
pub(super) const FILES: &[File<Face>] = &[
    File::read_write(
        c"clock_lock",
        |face, text| show_lock(face, Domain::Core, text),
        |face, text| set_lock(face, Domain::Core, text),
    ),
    File::read_write(
        c"memory_clock_lock",
        |face, text| show_lock(face, Domain::Memory, text),
        |face, text| set_lock(face, Domain::Memory, text),
    ),
    File::read(c"clock_residency", |face, text| {
        show_residency(face, Domain::Core, text)
    }),
    File::read(c"memory_clock_residency", |face, text| {
        show_residency(face, Domain::Memory, text)
    }),
    File::read(c"clock_failures", |face, text| {
        let (core, memory) =
            face.with(|state| Ok((state.failures(Domain::Core), state.failures(Domain::Memory))))?;
        show!(text, "{core} {memory}\n")
    }),
    File::read(c"clock_reason", |face, text| {
        let reason = face.look(|state, sample| {
            Ok(if sample.hot {
                "board-hot"
            } else if sample.brake {
                "board-brake"
            } else {
                name(state.reason())
            })
        })?;
        show!(text, "{reason}\n")
    }),
    File::read_write(
        c"power_policy",
        |face, text| {
            let policy = face.with(|state| Ok(state.policy()))?;
            let name = match policy {
                Policy::Predictive => "predictive",
                Policy::Reactive => "reactive",
            };
            show!(text, "{name}\n")
        },
        |face, text| {
            administrator()?;
            let policy = match text {
                "predictive" => Policy::Predictive,
                "reactive" => Policy::Reactive,
                _ => return Err(EINVAL),
            };
            face.set(|state| state.set_policy(policy))
        },
    ),
];

/// Why the core is no faster, for people.
fn name(reason: Option<Reason>) -> &'static str {
    match reason {
        None | Some(Reason::Idle) => "idle",
        Some(Reason::Load) => "load",
        Some(Reason::Hold) => "hold",
        Some(Reason::Power) => "power",
        Some(Reason::Heat) => "heat",
        Some(Reason::Blind) => "blind",
    }
}

/// A file may be open to more than its writer: whoever changes clocks for all has to be privileged.
fn administrator() -> Result {
    if capability::sys_admin() {
        Ok(())
    } else {
        Err(EPERM)
    }
}

fn show_lock(face: &Face, domain: Domain, text: &mut Text<'_>) -> Result {
    let (min, max) = face.with(|state| Ok(state.lock(domain).unwrap_or((0, 0))))?;
    show!(text, "{min} {max}\n")
}

/// Two numbers in kHz, `0 0` or nothing.
fn parse_range(text: &str) -> Result<Option<(u32, u32)>> {
    let mut words = text.split_ascii_whitespace();
    let (min, max) = match (words.next(), words.next(), words.next()) {
        (None, None, None) => return Ok(None),
        (Some(min), Some(max), None) => (min, max),
        _ => return Err(EINVAL),
    };
    let number = |word: &str| word.parse::<u32>().map_err(|_| EINVAL);
    match (number(min)?, number(max)?) {
        (0, 0) => Ok(None),
        range => Ok(Some(range)),
    }
}

fn set_lock(face: &Face, domain: Domain, text: &str) -> Result {
    administrator()?;
    let range = parse_range(text)?;
    face.set(|state| state.set_lock(domain, range))
}

fn show_residency(face: &Face, domain: Domain, text: &mut Text<'_>) -> Result {
    face.look(|state, _| {
        let residency = state.residency(domain);
        for (id, level) in state.table(domain).levels().iter().enumerate() {
            show!(text, "{} {}\n", level.khz, residency.at(id))?;
        }
        show!(text, "other {}\n", residency.elsewhere())?;
        show!(text, "changes {}\n", residency.changes())
    })
}
