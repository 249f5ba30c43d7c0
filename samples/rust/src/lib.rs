// SPDX-License-Identifier: GPL-2.0
//! The ochre ABI for Rust programs: as much as the samples and the guest tests need.
//!
//! [`Gpu`] is an open device. [`Bo`] is a piece of memory, [`Vm`] an address space in which it gets
//! an address, [`Buffer`] both together with a mapping for the CPU. A [`Stream`] collects
//! packets, a [`Queue`] runs them, and a [`Syncobj`] tells when they are done. Each of these is a
//! value that gives back what it holds when it is dropped.
//!
//! Errors are the [`std::io::Error`] of the ioctl. What they mean is told in
//! Documentation/gpu/ochre/uapi.rst.

pub mod abi;
mod gpu;
mod memory;
mod packet;
mod queue;
mod sync;

pub use gpu::Gpu;
pub use gpu::Question;
pub use memory::access;
pub use memory::region;
pub use memory::Bo;
pub use memory::Buffer;
pub use memory::Mapping;
pub use memory::Vm;
pub use packet::hw;
pub use packet::Dispatch;
pub use packet::Stream;
pub use queue::Job;
pub use queue::Packets;
pub use queue::Queue;
pub use sync::in_seconds;
pub use sync::SyncOp;
pub use sync::Syncobj;
pub use sync::Waited;
