// SPDX-License-Identifier: GPL-2.0

//! The kernel's interfaces that show power: made at probe, gone at unbind.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    sync::Arc, //
};

use super::{
    devfreq,
    dvfs::State,
    sysfs,
    thermal, //
};
use crate::{
    ext,
    gpu::Gpu,
    hal, //
};

/// Whom to tell what happened.
#[derive(Default)]
pub(super) struct Faces {
    /// Core and memory.
    pub(super) clocks: [Option<Arc<ext::devfreq::Instance>>; 2],
    /// The thermal zone.
    pub(super) zone: Option<Arc<ext::thermal::Zone>>,
}

/// The GPU, as the target of the functions behind files.
pub(super) struct Face(pub(super) Arc<Gpu>);

impl Face {
    /// Calls `f` with what is known of power, as long as there is a board.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        let mut state = self.0.power.state.lock();
        let state = state.as_deref_mut().ok_or(ENODEV)?;
        state.check()?;
        f(state)
    }

    /// Calls `f` with how the board is now.
    pub(super) fn look<R>(
        &self,
        f: impl FnOnce(&mut State, &hal::Sample) -> Result<R>,
    ) -> Result<R> {
        let power = self.0.hal().power().ok_or(ENODEV)?;
        self.with(|state| {
            let sample = state.look(power)?;
            f(state, &sample)
        })
    }

    /// Sets something, and has it take effect soon.
    pub(super) fn set(&self, f: impl FnOnce(&mut State) -> Result) -> Result {
        self.with(f)?;
        self.0.power_kick();
        Ok(())
    }
}

impl Gpu {
    /// Shows power in sysfs, hwmon, devfreq and the thermal core, until `dev` is unbound.
    pub(crate) fn power_attach(self: &Arc<Self>, dev: &Device<Bound>) -> Result {
        if self.power.state.lock().is_none() {
            return Ok(());
        }
        let face = Arc::new(Face(self.clone()), GFP_KERNEL)?;
        ext::sysfs::register(dev, None, sysfs::FILES, face.clone())?;
        ext::hwmon::register(dev, face.clone())?;
        let clocks = devfreq::register(dev, self)?;
        let zone = thermal::register(dev, &face)?;
        *self.power.faces.lock() = Faces {
            clocks: clocks.map(Some),
            zone,
        };
        self.power_kick();
        Ok(())
    }
}
