// SPDX-License-Identifier: GPL-2.0
//! What the used ring says, true or not.

use kernel::{
    error::Error,
    fmt,
    prelude::*, //
};

use super::Slot;

/// A chain that the device has done with. Its slot is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::virtio) struct Used {
    /// Which one.
    pub(in crate::virtio) slot: Slot,
    /// Bytes that the device says it wrote, no more than the chain has for it.
    pub(in crate::virtio) written: u32,
}

/// What the device wrote into the used ring and cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::virtio) enum RingError {
    /// No chain can have this number.
    BadId(u32),
    /// The device does not have this chain: never had, or gave it back already.
    NotInFlight(Slot),
    /// More bytes than the chain has for writing.
    TooLong {
        /// Which chain.
        slot: Slot,
        /// What the device says.
        written: u32,
        /// What the chain has.
        room: u32,
    },
    /// The index moved on by more chains than the device has.
    BadIndex {
        /// Chains that it claims to have given back.
        jump: u16,
        /// Chains that it had.
        in_flight: u16,
    },
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadId(id) => write!(f, "used id {id:#x} is no chain's"),
            Self::NotInFlight(slot) => write!(f, "used chain {} is not in flight", slot.0),
            Self::TooLong {
                slot,
                written,
                room,
            } => write!(
                f,
                "{written} bytes written to the {room} of chain {}",
                slot.0
            ),
            Self::BadIndex { jump, in_flight } => {
                write!(f, "used index went on by {jump} with {in_flight} in flight")
            }
        }
    }
}

impl From<RingError> for Error {
    fn from(_: RingError) -> Self {
        EIO
    }
}
