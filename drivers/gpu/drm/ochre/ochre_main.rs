// SPDX-License-Identifier: GPL-2.0

//! Ochre: GPU drivers in Rust. Registers the PCI drivers of the boards, nothing else.

use kernel::{
    driver,
    prelude::*,
    InPlaceModule,
    ThisModule, //
};

// What a part offers to the others may be more than the boards of today use.
#[allow(dead_code)]
mod algo;
#[allow(dead_code, unused_imports, unused_macros)]
mod ext;
mod gpu;
mod hal;
mod og1;
mod virtio;

/// The module.
#[pin_data]
struct Ochre {
    #[pin]
    _og1: driver::Registration<ext::pci::Adapter<og1::Driver>>,
    #[pin]
    _virtio: driver::Registration<ext::pci::Adapter<virtio::Driver>>,
    /// After the drivers, whose clocks it decides on.
    _governor: ext::devfreq::Governor,
    /// Last, so that it is dropped when nothing of the module is registered any more.
    _ext: ext::ModuleGuard,
}

impl InPlaceModule for Ochre {
    fn init(module: &'static ThisModule) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // First: the drivers use what it opens.
            _ext: ext::ModuleGuard::new()?,
            _governor: ext::devfreq::Governor::register(c"ochre")?,
            _og1 <- driver::Registration::new(c"ochre", module),
            _virtio <- driver::Registration::new(c"ochre_virtio", module),
        })
    }
}

/// The module parameter `timeout_ms`, within what a queue may ask for.
fn timeout_ms() -> u32 {
    let asked = module_parameters::timeout_ms.value();
    asked.clamp(1, gpu::TIMEOUT_MAX_MS)
}

/// The module parameter `virtio_timeout_ms`, within reason.
fn virtio_timeout_ms() -> u32 {
    let asked = module_parameters::virtio_timeout_ms.value();
    asked.clamp(100, 24 * 60 * 60 * 1000)
}

module! {
    type: Ochre,
    name: "ochre",
    authors: ["The Ochre authors"],
    description: "GPU driver for og1 boards and virtio-gpu",
    license: "GPL v2",
    firmware: ["ochre/og1.bin"],
    params: {
        timeout_ms: u32 {
            default: 2000,
            description: "Board time without progress after which a queue is reset, in ms",
        },
        virtio_timeout_ms: u32 {
            default: 20000,
            description: "Time without an answer after which a virtio-gpu is reset, in ms",
        },
    },
}
