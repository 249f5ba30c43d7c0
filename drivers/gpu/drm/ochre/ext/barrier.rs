// SPDX-License-Identifier: GPL-2.0

//! Memory barriers towards the other side of a virtqueue, in which the cheap ones cost nothing.
//!
//! C header: [`include/linux/virtio_ring.h`](srctree/include/linux/virtio_ring.h)
//!
//! [`kernel::sync::barrier`] calls a C function for each barrier. Where the architecture keeps
//! loads in order with loads and stores with stores, nothing is left for it to do but to keep the
//! compiler from moving accesses.

use core::arch::asm;

use kernel::sync::barrier::{
    dma_mb,
    mb,
    smp_mb,
    Full,
    Read,
    Write, //
};

/// Whom the other side's accesses have to be ordered against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Another CPU, the one that emulates the device.
    Cpu,
    /// A device on a bus.
    Device,
}

/// Keeps the compiler from moving memory accesses across.
#[inline(always)]
fn compiler() {
    // SAFETY: No instruction. Assembly that is not said to leave memory alone may touch all of it.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}

/// Whether the CPU itself orders loads with loads and stores with stores, of cacheable memory.
const ORDERED: bool = cfg!(CONFIG_X86_64);

impl Peer {
    /// Loads before come before loads after: `virtio_rmb()`.
    #[inline(always)]
    pub(crate) fn read(self) {
        match self {
            _ if ORDERED => compiler(),
            Self::Cpu if cfg!(CONFIG_SMP) => smp_mb(Read),
            // A uniprocessor kernel, too, can have a device that another CPU emulates.
            Self::Cpu | Self::Device => dma_mb(Read),
        }
    }

    /// Stores before come before stores after: `virtio_wmb()`.
    #[inline(always)]
    pub(crate) fn write(self) {
        match self {
            _ if ORDERED => compiler(),
            Self::Cpu if cfg!(CONFIG_SMP) => smp_mb(Write),
            Self::Cpu | Self::Device => dma_mb(Write),
        }
    }

    /// Accesses before come before accesses after: `virtio_mb()`.
    #[inline(always)]
    pub(crate) fn full(self) {
        match self {
            Self::Cpu if cfg!(CONFIG_SMP) => smp_mb(Full),
            Self::Cpu | Self::Device => mb(Full),
        }
    }
}
