// SPDX-License-Identifier: GPL-2.0
//! What virtio devices behind PCI look like: the registers of the common configuration, their
//! bits, and the capabilities that say where everything is.
//!
//! C headers: [`include/uapi/linux/virtio_pci.h`](srctree/include/uapi/linux/virtio_pci.h),
//! [`include/uapi/linux/virtio_config.h`](srctree/include/uapi/linux/virtio_config.h)

use core::marker::PhantomData;

/// A register: its offset, and its width as a type.
pub(super) struct Reg<T> {
    offset: usize,
    _width: PhantomData<T>,
}

impl<T> Clone for Reg<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Reg<T> {}

impl<T> Reg<T> {
    /// The register at `offset` of its structure.
    pub(super) const fn at(offset: usize) -> Self {
        Self {
            offset,
            _width: PhantomData,
        }
    }

    /// Offset of the first byte.
    pub(super) const fn offset(self) -> usize {
        self.offset
    }
}

/// A pair of 32-bit registers that hold one 64-bit value.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    /// The register with the low word.
    pub(super) low: Reg<u32>,
    /// The register with the high word.
    pub(super) high: Reg<u32>,
}

impl Pair {
    const fn at(offset: usize) -> Self {
        Self {
            low: Reg::at(offset),
            high: Reg::at(offset + 4),
        }
    }
}

/// The common configuration, `struct virtio_pci_common_cfg`.
pub(super) mod common {
    use super::*;

    /// Selects which 32 feature bits [`DEVICE_FEATURE`] shows.
    pub(in crate::virtio) const DEVICE_FEATURE_SELECT: Reg<u32> = Reg::at(0);
    /// Features that the device offers.
    pub(in crate::virtio) const DEVICE_FEATURE: Reg<u32> = Reg::at(4);
    /// Selects which 32 feature bits [`DRIVER_FEATURE`] sets.
    pub(in crate::virtio) const DRIVER_FEATURE_SELECT: Reg<u32> = Reg::at(8);
    /// Features that the driver accepts.
    pub(in crate::virtio) const DRIVER_FEATURE: Reg<u32> = Reg::at(12);
    /// MSI-X vector of configuration changes.
    pub(in crate::virtio) const CONFIG_MSIX_VECTOR: Reg<u16> = Reg::at(16);
    /// Where the device is in its life, see [`super::status`]. Writing 0 resets it.
    pub(in crate::virtio) const DEVICE_STATUS: Reg<u8> = Reg::at(20);
    /// Changes whenever the device has changed its own configuration.
    pub(in crate::virtio) const CONFIG_GENERATION: Reg<u8> = Reg::at(21);
    /// Selects the queue that the registers below show.
    pub(in crate::virtio) const QUEUE_SELECT: Reg<u16> = Reg::at(22);
    /// Entries of the queue: at most (after reset), and as the driver wants it. 0: no such queue.
    pub(in crate::virtio) const QUEUE_SIZE: Reg<u16> = Reg::at(24);
    /// MSI-X vector of the queue.
    pub(in crate::virtio) const QUEUE_MSIX_VECTOR: Reg<u16> = Reg::at(26);
    /// 1 once the driver has set the queue up.
    pub(in crate::virtio) const QUEUE_ENABLE: Reg<u16> = Reg::at(28);
    /// Where to notify the device, in units of the notify capability's multiplier.
    pub(in crate::virtio) const QUEUE_NOTIFY_OFF: Reg<u16> = Reg::at(30);
    /// Address of the descriptor table.
    pub(in crate::virtio) const QUEUE_DESC: Pair = Pair::at(32);
    /// Address of the available ring.
    pub(in crate::virtio) const QUEUE_DRIVER: Pair = Pair::at(40);
    /// Address of the used ring.
    pub(in crate::virtio) const QUEUE_DEVICE: Pair = Pair::at(48);
    /// Bytes of all that.
    pub(in crate::virtio) const LEN: u64 = 56;
}

/// Bits of [`common::DEVICE_STATUS`].
pub(super) mod status {
    /// The guest has seen the device.
    pub(in crate::virtio) const ACKNOWLEDGE: u8 = 1;
    /// It has a driver for it.
    pub(in crate::virtio) const DRIVER: u8 = 2;
    /// The driver is ready.
    pub(in crate::virtio) const DRIVER_OK: u8 = 4;
    /// The driver has accepted its features, and the device agrees.
    pub(in crate::virtio) const FEATURES_OK: u8 = 8;
    /// The device has met an error from which only a reset helps.
    pub(in crate::virtio) const NEEDS_RESET: u8 = 0x40;
    /// The driver has given up.
    pub(in crate::virtio) const FAILED: u8 = 0x80;
    /// What reading gives when nothing answers.
    pub(in crate::virtio) const GONE: u8 = 0xff;
}

/// Feature bits that belong to no kind of device, as masks.
pub(super) mod feature {
    /// Descriptors may stand in tables of their own.
    pub(in crate::virtio) const INDIRECT_DESC: u64 = 1 << 28;
    /// Each side says at which index it wants to be told.
    pub(in crate::virtio) const EVENT_IDX: u64 = 1 << 29;
    /// The device follows version 1 of the specification.
    pub(in crate::virtio) const VERSION_1: u64 = 1 << 32;
    /// The device's addresses go through what the platform has between it and memory.
    pub(in crate::virtio) const ACCESS_PLATFORM: u64 = 1 << 33;
    /// Memory accesses have to be ordered as the platform orders them for a real device.
    pub(in crate::virtio) const ORDER_PLATFORM: u64 = 1 << 36;
}

/// Bits of the interrupt status.
pub(super) mod isr {
    /// A queue has used buffers.
    pub(in crate::virtio) const QUEUE: u8 = 1;
    /// The device has changed its configuration.
    pub(in crate::virtio) const CONFIG: u8 = 2;
}

/// Vector that means none.
pub(super) const NO_VECTOR: u16 = 0xffff;

/// Configuration space of PCI, as far as finding capabilities needs it.
pub(super) mod pci {
    use super::*;

    /// Status of the function.
    pub(in crate::virtio) const STATUS: Reg<u16> = Reg::at(6);
    /// In [`STATUS`]: there is a list of capabilities.
    pub(in crate::virtio) const STATUS_CAP_LIST: u16 = 0x10;
    /// The first base address register.
    pub(in crate::virtio) const BAR0: usize = 0x10;
    /// How many there are.
    pub(in crate::virtio) const BARS: usize = 6;
    /// In a base address register: I/O ports.
    pub(in crate::virtio) const BAR_IO: u32 = 1;
    /// Where the list begins.
    pub(in crate::virtio) const CAP_POINTER: Reg<u8> = Reg::at(0x34);
    /// First offset at which a capability can be.
    pub(in crate::virtio) const CAP_FIRST: usize = 0x40;
    /// First offset at which none can be.
    pub(in crate::virtio) const CAP_END: usize = 0x100;
    /// Identifier of a vendor's own capability.
    pub(in crate::virtio) const CAP_ID_VENDOR: u8 = 9;
}

/// A capability of virtio, `struct virtio_pci_cap` and what extends it.
pub(super) mod cap {
    use super::*;

    /// Identifier, [`super::pci::CAP_ID_VENDOR`].
    pub(in crate::virtio) const ID: Reg<u8> = Reg::at(0);
    /// Offset of the next capability.
    pub(in crate::virtio) const NEXT: Reg<u8> = Reg::at(1);
    /// Bytes of this one.
    pub(in crate::virtio) const LEN: Reg<u8> = Reg::at(2);
    /// What it locates.
    pub(in crate::virtio) const TYPE: Reg<u8> = Reg::at(3);
    /// BAR with the structure.
    pub(in crate::virtio) const BAR: Reg<u8> = Reg::at(4);
    /// Which of several of the same type.
    pub(in crate::virtio) const WHICH: Reg<u8> = Reg::at(5);
    /// Offset of the structure in the BAR.
    pub(in crate::virtio) const OFFSET: Reg<u32> = Reg::at(8);
    /// Bytes of the structure.
    pub(in crate::virtio) const LENGTH: Reg<u32> = Reg::at(12);
    /// Bytes of a capability as far as here.
    pub(in crate::virtio) const BYTES: u8 = 16;
    /// Of a notify capability: see [`super::common::QUEUE_NOTIFY_OFF`].
    pub(in crate::virtio) const NOTIFY_MULTIPLIER: Reg<u32> = Reg::at(16);
    /// Bytes of a notify capability.
    pub(in crate::virtio) const NOTIFY_BYTES: u8 = 20;
    /// Of a capability with 64-bit values: high words.
    pub(in crate::virtio) const OFFSET_HIGH: Reg<u32> = Reg::at(16);
    /// See [`OFFSET_HIGH`].
    pub(in crate::virtio) const LENGTH_HIGH: Reg<u32> = Reg::at(20);
    /// Bytes of a capability with 64-bit values.
    pub(in crate::virtio) const BYTES_64: u8 = 24;

    /// [`TYPE`]: the common configuration.
    pub(in crate::virtio) const COMMON: u8 = 1;
    /// [`TYPE`]: the window for notifications.
    pub(in crate::virtio) const NOTIFY: u8 = 2;
    /// [`TYPE`]: the interrupt status.
    pub(in crate::virtio) const ISR: u8 = 3;
    /// [`TYPE`]: the configuration that the kind of device defines.
    pub(in crate::virtio) const DEVICE: u8 = 4;
    /// [`TYPE`]: memory that both sides share.
    pub(in crate::virtio) const SHARED_MEMORY: u8 = 8;
}
