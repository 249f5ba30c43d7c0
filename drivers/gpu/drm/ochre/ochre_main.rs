// SPDX-License-Identifier: GPL-2.0

//! Ochre: GPU drivers in Rust.

use kernel::{
    prelude::*,
    InPlaceModule,
    ThisModule, //
};

// Policy and mechanism without a board that uses them yet.
#[allow(dead_code)]
mod algo;
// The wrappers cover their C interfaces; a driver uses what it needs of them.
#[allow(dead_code, unused_imports, unused_macros)]
mod ext;

/// The module.
#[pin_data]
struct Ochre {
    /// Last, so that it is dropped when nothing of the module is registered any more.
    _ext: ext::ModuleGuard,
}

impl InPlaceModule for Ochre {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _ext: ext::ModuleGuard::new()?,
        })
    }
}

module! {
    type: Ochre,
    name: "ochre",
    authors: ["The Ochre authors"],
    description: "GPU driver for og1 and virtio-gpu",
    license: "GPL v2",
}
