// SPDX-License-Identifier: GPL-2.0

//! How a device addresses memory.
//!
//! C header: [`include/linux/dma-mapping.h`](srctree/include/linux/dma-mapping.h)

use kernel::{
    device::{
        Bound,
        Device, //
    },
    error::to_result,
    prelude::*, //
};

use super::sys;

/// Which addresses of memory a device uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addressing {
    /// Those of the CPU.
    Physical,
    /// Others, which an IOMMU or a bridge translates.
    Translated,
    /// Those of the CPU, but of memory of its own: pages may be copied there and back.
    Bounced,
}

/// Finds out how `dev` addresses memory, with the DMA mask that it has now. [`ENOMEM`].
pub(crate) fn addressing(dev: &Device<Bound>) -> Result<Addressing> {
    let mut kind = 0;
    // CAST: `Device` is a transparent wrapper.
    let raw = core::ptr::from_ref(dev).cast_mut().cast();
    // SAFETY: The device is valid and bound, and `kind` may be written.
    to_result(unsafe { sys::ochre_dma_addressing(raw, &raw mut kind) })?;
    Ok(match kind {
        sys::ochre_dma_addressing_OCHRE_DMA_PHYSICAL => Addressing::Physical,
        sys::ochre_dma_addressing_OCHRE_DMA_BOUNCED => Addressing::Bounced,
        _ => Addressing::Translated,
    })
}
