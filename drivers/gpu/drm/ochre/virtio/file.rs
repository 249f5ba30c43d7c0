// SPDX-License-Identifier: GPL-2.0

//! An open file: its context, and the memory that it has handles for.

use kernel::{
    drm,
    prelude::*,
    sync::Arc, //
};

use super::{
    context::Context,
    device::Device,
    driver::Driver,
    fdinfo::Memory, //
};

/// What belongs to one open file.
#[pin_data(PinnedDrop)]
pub(crate) struct File {
    device: Arc<Device>,
    #[pin]
    context: Context,
    /// Memory of the BOs that the file has handles for.
    pub(super) memory: Memory,
}

impl File {
    /// The place of its context.
    pub(super) fn context(&self) -> &Context {
        &self.context
    }
}

impl drm::file::DriverFile for File {
    type Driver = Driver;

    fn open(dev: &drm::Device<Driver>) -> Result<Pin<KBox<Self>>> {
        KBox::try_pin_init(
            try_pin_init!(Self {
                device: dev.device().clone(),
                context <- Context::new(),
                memory: Memory::default(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }
}

#[pinned_drop]
impl PinnedDrop for File {
    fn drop(self: Pin<&mut Self>) {
        // The core has closed the handles before, so nothing is attached to the context any more.
        self.context.destroy(&self.device);
    }
}
