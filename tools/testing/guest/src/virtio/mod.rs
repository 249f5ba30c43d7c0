// SPDX-License-Identifier: GPL-2.0
//! A virtio-gpu and whoever drives it: Ochre, or the kernel's C driver.
//!
//! [`Function`] is the device in sysfs and says which [`Driver`] has it. [`Node`] is an open render
//! node with the ioctls of `virtgpu_drm.h` ([`abi`]); [`stream`] makes work for the board of
//! tools/virtio-gpu, which the control port of [`crate::Board`] makes fail.
//!
//! [`Trace`] and [`refuses`] check that an ioctl that fails leaves nothing.
//!
//! A test that shows a defect of the C driver ends with [`verdict`]: on C the defect has to show, on
//! Ochre it must not.

pub mod abi;
mod defect;
pub mod exec;
mod function;
mod node;
mod share;
pub mod stream;
mod trace;

pub use defect::blocked;
pub use defect::dies;
pub use defect::verdict;
pub use defect::Defect;
pub use function::Driver;
pub use function::Function;
pub use node::fence;
pub use node::Mapping;
pub use node::Node;
pub use share::export;
pub use share::import;
pub use share::Vgem;
pub use trace::base_line;
pub use trace::refuses;
pub use trace::Trace;
