// SPDX-License-Identifier: GPL-2.0
//! virtio-gpu, the board that stock QEMU has.

mod caps;
mod irq;
mod regs;
mod transport;
mod vring;
