// SPDX-License-Identifier: GPL-2.0

//! What `/proc/PID/fdinfo` says of an open file.
//!
//! The keys are those of `Documentation/gpu/drm-usage-stats.rst`. `memory` are BOs whose pages are
//! the guest's, `host` those whose memory is the host's. How long the host's GPU was busy is known
//! in the host only.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

use super::driver::DrmFile;
use crate::ext::drm_print::Printer;

/// Whose memory a BO is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// The guest's.
    Guest,
    /// The host's.
    Host,
}

/// Memory of the BOs that a file has handles for, by region, in bytes.
pub(super) struct Memory {
    guest: Atomic<u64>,
    host: Atomic<u64>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            guest: Atomic::new(0),
            host: Atomic::new(0),
        }
    }
}

impl Memory {
    fn region(&self, region: Region) -> &Atomic<u64> {
        match region {
            Region::Guest => &self.guest,
            Region::Host => &self.host,
        }
    }

    /// The file got a handle for a BO.
    pub(super) fn charge(&self, region: Region, bytes: u64) {
        self.region(region).add(bytes, Relaxed);
    }

    /// A handle of the file for a BO goes.
    pub(super) fn uncharge(&self, region: Region, bytes: u64) {
        self.region(region).add(bytes.wrapping_neg(), Relaxed);
    }
}

/// Prints what the file has.
pub(super) fn show(file: &DrmFile, printer: &mut Printer<'_>) {
    let inner = file.inner();
    for (region, name) in [(Region::Guest, c"memory"), (Region::Host, c"host")] {
        let bytes = inner.memory.region(region).load(Relaxed);
        // Guest pages are pinned, and the host's memory is there from the beginning.
        printer.size(c"drm", c"total", name, bytes);
        printer.size(c"drm", c"resident", name, bytes);
    }
}
