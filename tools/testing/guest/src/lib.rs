// SPDX-License-Identifier: GPL-2.0
//! What the guest tests share.
//!
//! A test is a function whose name is the sentence that it proves; [`tests!`] makes a program of
//! several. They use the device through the library of samples/rust ([`ochre`]), or, to do what
//! that does not allow, through [`raw`]. [`Board`] is the control port, at which the board can be
//! asked and made to fail; [`PciDevice`] is the function in sysfs, [`bare`] the board
//! without its driver. [`virtio`] is a virtio-gpu and whoever drives it. [`Ledger`] tells whether an ioctl
//! that failed left something behind.
//!
//! The guest is emulated and may be slow, so waits have generous ends; none is a pause of fixed
//! length. Where no event can be waited for, [`eventually`] looks until a deadline.

pub mod bare;
mod board;
pub mod child;
mod driver;
mod firmware;
mod harness;
mod kmsg;
mod ledger;
mod many;
pub mod pointers;
pub mod power;
pub mod raw;
mod refuse;
mod sysfs;
mod uevent;
pub mod virtio;
mod work;
mod zerocopy;

pub use board::Board;
pub use board::Restore;
pub use board::Slot;
pub use board::Violation;
pub use driver::Driver;
pub use firmware::seal;
pub use firmware::FirmwareFolder;
pub use harness::errno;
pub use harness::eventually;
pub use harness::run;
pub use harness::Outcome;
pub use harness::Test;
pub use kmsg::Messages;
pub use ledger::Ledger;
pub use many::until_enospc;
pub use many::Foreign;
pub use nix::errno::Errno;
pub use ochre;
pub use refuse::refuses;
pub use refuse::refuses_arrays;
pub use refuse::refuses_by;
pub use refuse::refuses_syncs;
pub use refuse::Array;
pub use refuse::Case;
pub use sysfs::PciDevice;
pub use uevent::Events;
pub use work::Desk;
pub use work::Pending;
pub use zerocopy::bytes_of;
