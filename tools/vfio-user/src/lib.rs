// SPDX-License-Identifier: GPL-2.0
//! A vfio-user server: it lets a program be a PCI device of a virtual machine.
//!
//! The client is QEMU's `vfio-user-pci` (protocol version 0.0, QEMU's `docs/interop/vfio-user.rst`).
//! This crate is the transport only; it knows nothing about any particular device.
//!
//! ```text
//!   client ──socket──▶ socket: messages with their file descriptors
//!                        │
//!                      session: one client; checks each message, answers it
//!                        │            │               │
//!                   Device trait   GuestMemory     Interrupts
//!                  (MMIO, config)  (DMA maps)      (eventfds)
//!                        │            ▲               ▲
//!                        └──────── the device's own threads
//! ```
//!
//! What flows in is not trusted. Sizes, counts and indices are checked where they enter; a message
//! that breaks the protocol gets an error reply with its errno, or, when the stream can no longer be
//! followed, a disconnect. Nothing that a client sends makes the server panic or allocate without
//! a limit: a message has at most [`MAX_TRANSFER`] bytes of data.
//!
//! Locks: [`GuestMemory`] has one reader-writer lock (readers: the device's threads, through
//! [`View`]; writer: the server thread, at DMA_MAP and DMA_UNMAP); [`Interrupts`] has one mutex per
//! vector, held only for a non-blocking eventfd write. Neither is held while the other is taken, nor
//! while the [`Device`] is called.

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!(
    "the protocol and guest memory are taken in the host's byte order: 64-bit little-endian only"
);

mod device;
mod irq;
mod memory;
pub mod pci;
mod proto;
mod server;
mod session;
mod socket;
mod version;

pub use device::index;
pub use device::Device;
pub use device::DeviceInfo;
pub use device::InfoError;
pub use device::Irq;
pub use device::IrqFlags;
pub use device::MapArea;
pub use device::Region;
pub use irq::Delivery;
pub use irq::Interrupts;
pub use memory::copy;
pub use memory::Access;
pub use memory::GuestMemory;
pub use memory::Mapping;
pub use memory::Memory;
pub use memory::MemoryError;
pub use memory::Page;
pub use memory::SharedMemory;
pub use memory::View;
pub use memory::Word;
pub use memory::PAGE_SIZE;
pub use proto::MAX_DMA_MAPS;
pub use proto::MAX_FDS;
pub use proto::MAX_TRANSFER;
pub use rustix::io::Errno;
pub use server::End;
pub use server::Serve;
pub use server::Server;
pub use server::ServerError;
pub use server::Stopper;
