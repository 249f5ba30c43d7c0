// SPDX-License-Identifier: GPL-2.0
//! A PCI Express endpoint's configuration space and MSI-X table.
//!
//! With vfio-user the client forwards every configuration access, and emulates some registers (BARs,
//! MSI-X) itself on top. The device keeps a complete configuration space all the same: it is what
//! the client reads at start, and function-level reset, power states and bus mastering arrive
//! nowhere else.
//!
//! [`ConfigBuilder`] lays out header and capabilities; what results is a table of bytes, each with
//! its value, the bits that may be written, and the bits that are cleared by writing 1.
//! [`ConfigSpace::write`] applies the table and reports what the write means to the device.
//!
//! Registers are those of the PCI Express Base Specification 5.0, chapter 7; numbers in the comments
//! are its sections.

mod builder;
mod config;
mod msix;

pub use builder::Bar;
pub use builder::BuildError;
pub use builder::ConfigBuilder;
pub use builder::Express;
pub use builder::Identity;
pub use builder::Msix;
pub use builder::PmCaps;
pub use config::ConfigEvent;
pub use config::ConfigSpace;
pub use config::PowerState;
pub use config::ResetKind;
pub use msix::MsixTable;

/// Size of the configuration space of a PCI Express function.
pub const CONFIG_SIZE: u64 = 4096;

/// Capability identifiers (7.5.2, 7.7).
pub mod capability {
    /// Power management.
    pub const POWER_MANAGEMENT: u8 = 0x01;
    /// Vendor specific, which virtio uses to find its structures.
    pub const VENDOR_SPECIFIC: u8 = 0x09;
    /// PCI Express.
    pub const EXPRESS: u8 = 0x10;
    /// MSI-X.
    pub const MSIX: u8 = 0x11;
}

/// Extended capability identifiers (7.8, 7.9).
pub mod extended {
    /// Advanced error reporting.
    pub const ADVANCED_ERRORS: u16 = 0x0001;
    /// Device serial number.
    pub const SERIAL_NUMBER: u16 = 0x0003;
}

/// Register offsets in the type 0 header (7.5.1), and in capabilities.
mod reg {
    pub(super) const VENDOR: usize = 0x00;
    pub(super) const DEVICE: usize = 0x02;
    pub(super) const COMMAND: usize = 0x04;
    pub(super) const STATUS: usize = 0x06;
    pub(super) const REVISION: usize = 0x08;
    pub(super) const CLASS: usize = 0x09;
    pub(super) const CACHE_LINE: usize = 0x0c;
    pub(super) const BAR0: usize = 0x10;
    pub(super) const SUBSYSTEM_VENDOR: usize = 0x2c;
    pub(super) const SUBSYSTEM: usize = 0x2e;
    pub(super) const CAPABILITIES: usize = 0x34;
    pub(super) const INTERRUPT_LINE: usize = 0x3c;
    pub(super) const INTERRUPT_PIN: usize = 0x3d;
    /// Where the header ends and capabilities may start.
    pub(super) const HEADER_END: usize = 0x40;
    /// Where extended capabilities start.
    pub(super) const EXTENDED: usize = 0x100;

    pub(super) const COMMAND_MEMORY: u16 = 1 << 1;
    pub(super) const COMMAND_MASTER: u16 = 1 << 2;

    /// In the power management capability (7.5.2).
    pub(super) const PM_CONTROL: usize = 4;
    pub(super) const PM_STATE: u16 = 3;

    /// In the MSI-X capability (7.7.2).
    pub(super) const MSIX_CONTROL: usize = 2;
    pub(super) const MSIX_MASK_ALL: u16 = 1 << 14;
    pub(super) const MSIX_ENABLE: u16 = 1 << 15;

    /// In the PCI Express capability (7.5.3): the upper byte of Device Control.
    pub(super) const EXPRESS_CONTROL_HIGH: usize = 9;
    /// Initiate Function Level Reset, in that byte.
    pub(super) const INITIATE_FLR: u8 = 1 << 7;
}
