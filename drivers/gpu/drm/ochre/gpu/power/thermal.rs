// SPDX-License-Identifier: GPL-2.0

//! The thermal zone, and the cooling device that takes fast levels away.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    sync::Arc, //
};

use super::faces::Face;
use crate::{
    algo::power::levels::Domain,
    ext::thermal::{
        self,
        Trip,
        Zone, //
    },
    gpu::Gpu, //
};

/// The board has to be cooler than a trip by this before it is over, in m°C.
const HYSTERESIS_MC: i32 = 2_000;

impl thermal::Ops for Face {
    fn temperature(&self) -> Result<i32> {
        self.look(|_, sample| Ok(sample.temp_mc))
    }

    fn cooling_max(&self) -> u32 {
        let slowest = self.with(|state| Ok(state.table(Domain::Core).slowest()));
        u32::try_from(slowest.unwrap_or(0)).unwrap_or(0)
    }

    fn cooling(&self) -> u32 {
        self.0.power.wishes.cooling()
    }

    fn set_cooling(&self, level: u32) -> Result {
        self.set(|state| {
            state.change();
            Ok(())
        })?;
        self.0.power.wishes.set_cooling(level);
        self.0.power_kick();
        Ok(())
    }
}

/// Makes the zone of a board that has limits.
pub(super) fn register(dev: &Device<Bound>, face: &Arc<Face>) -> Result<Option<Arc<Zone>>> {
    let Some(limits) = face.with(|state| Ok(state.limits()))? else {
        return Ok(None);
    };
    let trips = [
        (Trip::Passive, limits.temp_limit_mc, HYSTERESIS_MC),
        (Trip::Hot, limits.temp_crit_mc, HYSTERESIS_MC),
    ];
    thermal::register(dev, c"ochre", &trips, face.clone()).map(Some)
}

impl Gpu {
    /// Has the thermal core look when there may be something to see.
    pub(super) fn power_tell_thermal(&self) {
        let zone = self.power.faces.lock().zone.clone();
        let Some(zone) = zone else { return };
        let near = match &*self.power.state.lock() {
            Some(state) => state.is_near_limit(HYSTERESIS_MC),
            None => false,
        };
        if near || self.power.wishes.cooling() > 0 {
            zone.update();
        }
    }
}
