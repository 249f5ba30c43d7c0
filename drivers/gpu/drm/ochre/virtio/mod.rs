// SPDX-License-Identifier: GPL-2.0

//! virtio-gpu, the board that stock QEMU has, behind the kernel's existing ABI.
//!
//! What flows through here:
//!
//! - downwards: an ioctl ([`driver`]) becomes one or a few requests ([`wire`]), which the control
//!   queue ([`control`]) puts in order and into the ring ([`vring`]); the device is notified through
//!   its registers ([`transport`]);
//! - upwards: the interrupt ([`irq`]) takes answers from the ring, tells whoever waits, and signals
//!   fences in order ([`fences`]);
//! - [`probe`] makes all that and [`recovery`] ends it; [`watchdog`] finds a device that is silent.
//!
//! Locks, from the outside inwards; of those in one line only one is held:
//!
//! 1. the core's: prime, object names, reservations, `mmap`;
//! 2. what an object or a file has: [`view`], [`context`];
//! 3. the watchdog's, which only the worker takes;
//! 4. a `dma_fence`'s;
//! 5. the control queue's ([`device::Device::queue`]), with interrupts off;
//! 6. leaves: the pool of payloads, the window, capability sets.
//!
//! No lock of ours is held over a wait for the device, but for the worker's over a reset; nor is
//! `drm_dev_enter()`. Locks of the core are in three places: `mmap()` waits for the host to show a
//! blob, an import for room, and an exporter that moves its memory for the device to let go. Fences
//! are signalled with no lock held that a signal takes. The device is not trusted: each index, length and type that it writes is checked
//! where it is read, and a lie ends in a reset.

mod blob;
mod bo;
mod bound;
mod buffers;
mod caps;
mod capset;
mod context;
mod control;
mod device;
mod driver;
mod dumb;
mod execbuffer;
mod fdinfo;
mod features;
mod fences;
mod file;
mod ids;
mod irq;
mod keep;
mod limits;
mod param;
mod prime;
mod probe;
mod recovery;
mod regs;
mod resource;
mod syncobjs;
mod transfer;
mod transport;
mod verdict;
mod view;
mod vring;
mod wait;
mod watchdog;
mod window;
mod wire;

pub(crate) use probe::Driver;
