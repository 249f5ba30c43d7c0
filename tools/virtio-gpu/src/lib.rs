// SPDX-License-Identifier: GPL-2.0
//! A virtio-gpu of our own as a library: for what QEMU's device cannot do, which is to fail.
//!
//! ```text
//!   device (vfio-user) ─┐             ┌─ transport   registers of virtio-pci
//!   tests ──────────────┼─▶ board ─▶ machine ─ ring  split virtqueues in guest memory
//!   control (socket) ───┘             ├─ gpu         contexts, resources, commands
//!                                     ├─ answers     what is still to be put into the used ring
//!                                     └─ fault, judge, record, irq
//! ```
//!
//! A register access or a command of the control socket changes the machine and wakes the worker
//! thread; the worker fetches chains from the queues, executes each at once and in order, and gives
//! the answer back when it is due. Fences are due in the order of their timeline. One lock, around
//! the machine; nothing waits inside it, so that an access of the guest is answered soon.
//!
//! There is no GPU behind it: SUBMIT_3D runs a language of five words ([`gpu::stream`]), and a
//! resource is bytes. The specification is "Virtual I/O Device (VIRTIO)", version 1.3; comments name
//! its sections. Structures are those of `uapi/linux/virtio_gpu.h` and `virtio_pci.h`.
//!
//! Nothing that a guest writes to registers or memory may make the board panic, loop, or keep memory
//! without a limit. There is no unsafe code here; guest memory is reached through `ochre-vfio-user`.
#![forbid(unsafe_code)]

pub mod answers;
pub mod board;
pub mod config;
pub mod control;
pub mod device;
pub mod fault;
pub mod gpu;
pub mod irq;
pub mod judge;
pub mod machine;
pub mod record;
pub mod ring;
pub mod transport;
pub mod wire;
