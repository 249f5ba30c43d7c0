// SPDX-License-Identifier: GPL-2.0

//! VRAM: [`algo::buddy`](crate::algo::buddy) with a lock, and allocations that give themselves back.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use super::device::Gpu;
use crate::{
    algo::buddy::{
        Allocation,
        Buddy,
        Contents,
        Extent,
        Request,
        Stats, //
    },
    hal::Info, //
};

/// All of a board's VRAM.
#[pin_data]
pub(crate) struct Vram {
    /// A leaf: nothing else is taken while it is held.
    #[pin]
    buddy: Mutex<Buddy>,
}

impl Vram {
    /// Takes charge of the VRAM that `info` describes, all of it free.
    pub(crate) fn new(info: &Info) -> impl PinInit<Self, Error> {
        let buddy = Buddy::new(info.vram_size, info.aperture_size, &[]);
        try_pin_init!(Self {
            buddy <- new_mutex!(buddy?),
        })
    }

    /// The figures now.
    pub(crate) fn stats(&self) -> Stats {
        self.buddy.lock().stats()
    }
}

/// A piece of VRAM that is given back when it is dropped.
pub(crate) struct VramBlock {
    gpu: Arc<Gpu>,
    /// `None` only while it is being dropped.
    allocation: Option<Allocation>,
}

impl VramBlock {
    /// Takes what `request` asks for. Errors: `EINVAL`, `ENOSPC`, `ENOMEM`.
    pub(crate) fn new(gpu: &Arc<Gpu>, request: &Request) -> Result<Self> {
        let allocation = gpu.vram.buddy.lock().alloc(request)?;
        Ok(Self {
            gpu: gpu.clone(),
            allocation: Some(allocation),
        })
    }

    /// The pieces, in the order of the bytes.
    pub(crate) fn extents(&self) -> &[Extent] {
        self.allocation.as_ref().map_or(&[], Allocation::extents)
    }

    /// What was not known to be zero when it was taken.
    pub(crate) fn dirty(&self) -> &[Extent] {
        self.allocation.as_ref().map_or(&[], Allocation::dirty)
    }
}

impl Drop for VramBlock {
    fn drop(&mut self) {
        if let Some(allocation) = self.allocation.take() {
            let mut buddy = self.gpu.vram.buddy.lock();
            buddy.free(allocation, Contents::Dirty);
        }
    }
}
