// SPDX-License-Identifier: GPL-2.0
//! The folder in which the kernel looks for the firmware.

use std::fs;
use std::path::Path;

use anyhow::Context;
use nix::mount::mount;
use nix::mount::umount;
use nix::mount::MsFlags;

/// /lib/firmware/ochre leads here.
const FOLDER: &str = "/ochre/firmware";
const IMAGE: &str = "og1.bin";
/// Offset of the checksum in an image; see "Firmware image" in og1.rst.
const CHECKSUM: usize = 12;

/// Takes the place of the firmware's folder until it is dropped; empty at first.
#[derive(Debug)]
pub struct FirmwareFolder {
    good: Vec<u8>,
}

impl FirmwareFolder {
    /// Hides the firmware.
    ///
    /// # Errors
    ///
    /// There is none, or nothing can be mounted over it.
    pub fn empty() -> anyhow::Result<Self> {
        let good = fs::read(Path::new(FOLDER).join(IMAGE)).context(FOLDER)?;
        let kind = Some("tmpfs");
        mount(kind, FOLDER, kind, MsFlags::empty(), None::<&str>).context(FOLDER)?;
        Ok(Self { good })
    }

    /// Puts an image there: the good one, spoiled.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn put(&self, spoil: &dyn Fn(&mut Vec<u8>)) -> anyhow::Result<()> {
        let mut image = self.good.clone();
        spoil(&mut image);
        Ok(fs::write(Path::new(FOLDER).join(IMAGE), image)?)
    }
}

/// Makes the checksum of an image right.
pub fn seal(image: &mut [u8]) {
    image[CHECKSUM..CHECKSUM + 4].fill(0);
    let checksum = crc32fast::hash(image);
    image[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
}

impl Drop for FirmwareFolder {
    fn drop(&mut self) {
        if let Err(error) = umount(FOLDER) {
            println!("# umount {FOLDER}: {error}");
        }
    }
}
