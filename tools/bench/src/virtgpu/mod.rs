// SPDX-License-Identifier: GPL-2.0
//! The interface of virtio-gpu (`virtgpu_drm.h`), as much as the rows need. It is the same for both
//! drivers. Nothing here is clever: what is measured is the driver, so each call is one ioctl.

mod abi;
mod gpu;

pub use abi::BlobMemory;
pub use gpu::Capset;
pub use gpu::Features;
pub use gpu::Gpu;
pub use gpu::Resource;
pub use gpu::Submit;
