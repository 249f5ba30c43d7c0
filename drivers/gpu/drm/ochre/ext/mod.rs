// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers over C kernel interfaces that the kernel crate does not cover.
//!
//! One file per C header, each in the shape in which it could move to `rust/kernel`. The driver
//! proper contains no `unsafe` of its own where one of these serves.
//!
//! What flows through here:
//!
//! - towards the driver: callbacks of the C cores ([`pci`], [`ioctl`], [`drm_drv`], [`gem`]) arrive
//!   as calls of trait methods with typed, borrowed arguments;
//! - from the driver: owned values whose drop undoes what their constructor did ([`dma_fence`],
//!   [`syncobj`], [`shmem`], [`workqueue`], [`dma_buf`], [`drm_event`]).
//!
//! Who keeps what alive:
//!
//! - Function tables that C holds pointers to ([`drm_drv::DriverTable`], [`gem::ObjectTable`]) are
//!   statics of this module, filled at the first probe and never changed after.
//! - [`ModuleGuard`] is the last thing that the module drops: it waits until no CPU runs a function
//!   of an already signalled fence.
//!
//! Locks: `TABLES` in [`table`] guards the filling of the static tables and is a leaf. The C locks
//! that a callback runs under stand in that callback's documentation.

pub(crate) mod barrier;
pub(crate) mod capability;
pub(crate) mod debugfs;
pub(crate) mod devfreq;
pub(crate) mod dma_buf;
pub(crate) mod dma_coherent;
pub(crate) mod dma_fence;
pub(crate) mod dma_mapping;
mod dma_resources;
pub(crate) mod dma_resv;
pub(crate) mod drm_auth;
pub(crate) mod drm_drv;
pub(crate) mod drm_event;
pub(crate) mod drm_file;
pub(crate) mod drm_print;
pub(crate) mod gem;
pub(crate) mod hwmon;
pub(crate) mod ida;
pub(crate) mod ioctl;
pub(crate) mod irq_work;
pub(crate) mod mm;
pub(crate) mod pages;
pub(crate) mod pci;
#[cfg(CONFIG_PERF_EVENTS)]
pub(crate) mod perf_event;
pub(crate) mod raw_spinlock;
pub(crate) mod scatterlist;
pub(crate) mod shmem;
pub(crate) mod signal;
pub(crate) mod sync_file;
pub(crate) mod syncobj;
pub(crate) mod sysfs;
mod table;
pub(crate) mod task;
pub(crate) mod thermal;
pub(crate) mod timekeeping;
pub(crate) mod tracepoint;
pub(crate) mod uaccess;
pub(crate) mod uapi;
pub(crate) mod uapi_virtio;
mod virtio_dma_buf;
pub(crate) mod wait;
pub(crate) mod workqueue;

pub(crate) use table::ModuleGuard;

/// Bindings that `kernel::bindings` lacks, generated from `bindings.h`.
#[allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn
)]
mod sys {
    use kernel::{
        bindings::*,
        ffi, //
    };
    include!(env!("OCHRE_BINDINGS"));
}
