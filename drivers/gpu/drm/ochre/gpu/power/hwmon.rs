// SPDX-License-Identifier: GPL-2.0

//! What `sensors` shows.

use kernel::prelude::*;

use super::faces::Face;
use crate::{
    ext::{
        hwmon::{
            Attr,
            Channel,
            Chip,
            Item,
            Kind, //
        },
        sysfs::{
            show,
            File,
            Text, //
        }, //
    },
    hal::Domain, //
};

/// An item that can only be read.
const fn read(attr: Attr, read: fn(&Face) -> Result<i64>) -> Item<Face> {
    Item {
        attr,
        read,
        write: None,
    }
}

/// A limit of the firmware.
fn limit(face: &Face, f: impl FnOnce(&crate::hal::Limits) -> i64) -> Result<i64> {
    face.with(|state| state.limits().map(|limits| f(&limits)).ok_or(EOPNOTSUPP))
}

/// Milliwatts as hwmon has them.
fn microwatts(mw: u32) -> i64 {
    i64::from(mw).saturating_mul(1000)
}

fn millivolts(face: &Face, domain: Domain) -> Result<i64> {
    face.look(|_, sample| {
        let domains = sample.domains.get(domain.index()).ok_or(EINVAL)?;
        Ok(i64::from(domains.uv / 1000))
    })
}

fn show_hertz(face: &Face, domain: Domain, text: &mut Text<'_>) -> Result {
    let khz = face.look(|_, sample| {
        let domains = sample.domains.get(domain.index()).ok_or(EINVAL)?;
        Ok(domains.khz)
    })?;
    show!(text, "{}\n", u64::from(khz) * 1000)
}

fn set_cap(face: &Face, uw: i64) -> Result {
    // Whoever asks for less than a milliwatt more than allowed gets what is allowed.
    let mw = u32::try_from(uw / 1000).map_err(|_| EINVAL)?;
    face.set(|state| state.set_power_limit(mw))
}

impl Chip for Face {
    const NAME: &'static CStr = c"ochre";

    const CHANNELS: &'static [Channel<Self>] = &[
        Channel {
            kind: Kind::Temp,
            label: c"die",
            items: &[
                read(Attr::TEMP_INPUT, |face| {
                    face.look(|_, sample| Ok(sample.temp_mc.into()))
                }),
                read(Attr::TEMP_MAX, |face| {
                    limit(face, |limits| limits.temp_limit_mc.into())
                }),
                read(Attr::TEMP_MAX_ALARM, |face| {
                    face.look(|state, sample| {
                        let limits = state.limits().ok_or(EOPNOTSUPP)?;
                        Ok(i64::from(sample.temp_mc > limits.temp_limit_mc))
                    })
                }),
                read(Attr::TEMP_CRIT, |face| {
                    limit(face, |limits| limits.temp_crit_mc.into())
                }),
                read(Attr::TEMP_CRIT_ALARM, |face| {
                    face.look(|_, sample| Ok(sample.hot.into()))
                }),
            ],
        },
        Channel {
            kind: Kind::Temp,
            label: c"inlet",
            items: &[read(Attr::TEMP_INPUT, |face| {
                face.look(|_, sample| Ok(sample.ambient_mc.into()))
            })],
        },
        Channel {
            kind: Kind::In,
            label: c"core",
            items: &[read(Attr::IN_INPUT, |face| millivolts(face, Domain::Core))],
        },
        Channel {
            kind: Kind::In,
            label: c"memory",
            items: &[read(Attr::IN_INPUT, |face| {
                millivolts(face, Domain::Memory)
            })],
        },
        Channel {
            kind: Kind::Power,
            label: c"board",
            items: &[
                read(Attr::POWER_INPUT, |face| {
                    face.look(|_, sample| Ok(microwatts(sample.power_mw)))
                }),
                read(Attr::POWER_AVERAGE, |face| {
                    face.look(|state, _| Ok(microwatts(state.average_mw())))
                }),
                Item {
                    attr: Attr::POWER_CAP,
                    read: |face| {
                        face.with(|state| {
                            let limit = state.power_limit_mw().ok_or(EOPNOTSUPP)?;
                            Ok(microwatts(limit))
                        })
                    },
                    write: Some(set_cap),
                },
                read(Attr::POWER_CAP_MIN, |face| {
                    limit(face, |limits| microwatts(limits.power_min_mw))
                }),
                read(Attr::POWER_CAP_MAX, |face| {
                    limit(face, |limits| microwatts(limits.power_max_mw))
                }),
            ],
        },
        Channel {
            kind: Kind::Energy,
            label: c"board",
            items: &[read(Attr::ENERGY_INPUT, |face| {
                face.look(|_, sample| Ok(i64::try_from(sample.energy_uj)?))
            })],
        },
    ];

    const FILES: &'static [File<Self>] = &[
        File::read(c"freq1_input", |face, text| {
            show_hertz(face, Domain::Core, text)
        }),
        File::read(c"freq1_label", |_, text| show!(text, "core\n")),
        File::read(c"freq2_input", |face, text| {
            show_hertz(face, Domain::Memory, text)
        }),
        File::read(c"freq2_label", |_, text| show!(text, "memory\n")),
    ];

    fn has(&self, _kind: Kind, attr: Attr) -> bool {
        let of_limits = [
            Attr::TEMP_MAX,
            Attr::TEMP_MAX_ALARM,
            Attr::TEMP_CRIT,
            Attr::POWER_CAP,
            Attr::POWER_CAP_MIN,
            Attr::POWER_CAP_MAX,
        ];
        let has_limits = self.with(|state| Ok(state.limits().is_some())) == Ok(true);
        has_limits || !of_limits.contains(&attr)
    }
}
