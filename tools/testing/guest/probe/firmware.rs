// SPDX-License-Identifier: GPL-2.0
//! Probe without firmware, and with firmware that is damaged.

use anyhow::Context;
use guest::seal;
use guest::Driver;
use guest::Errno;
use guest::FirmwareFolder;
use guest::Outcome;

guest::tests! {
    missing_firmware_is_said_and_leaves_nothing,
    damaged_firmware_is_refused_and_leaves_nothing,
    good_firmware_from_another_folder_is_taken,
}

/// Offsets in an image; see "Firmware image" in og1.rst.
const FORMAT: usize = 4;
const PSTATES: usize = 20;
const ENGINES: usize = 24;
const INITIAL: usize = 28;
const FIRST_CLOCK: usize = 64;

/// Changes a word of an image, under a right checksum.
fn set(image: &mut [u8], at: usize, value: u32) {
    image[at..at + 4].copy_from_slice(&value.to_le_bytes());
    seal(image);
}

fn missing_firmware_is_said_and_leaves_nothing() -> Outcome {
    let folder = FirmwareFolder::empty()?;
    let mut driver = Driver::load()?;
    let says = ["ochre/og1.bin", "cannot be loaded", "/lib/firmware"];
    driver.refuses(Errno::ENOENT, &says)?;
    driver.unload()?;

    let mut driver = Driver::load()?;
    driver.refuses(Errno::ENOENT, &says)?;
    drop(folder);
    driver.pci.bind()?;
    driver.works()?;
    driver.unload()
}

fn damaged_firmware_is_refused_and_leaves_nothing() -> Outcome {
    type Case<'a> = (&'a str, &'a dyn Fn(&mut Vec<u8>), Errno, &'a str);
    let cases: [Case<'_>; 12] = [
        ("nothing", &|i| i.clear(), Errno::EINVAL, "cannot be loaded"),
        ("a byte", &|i| i.truncate(1), Errno::EINVAL, "no og1 image"),
        (
            "a byte less than a header",
            &|i| i.truncate(63),
            Errno::EINVAL,
            "no og1 image",
        ),
        (
            "no table",
            &|i| i.truncate(FIRST_CLOCK),
            Errno::EINVAL,
            "no og1 image",
        ),
        (
            "more than the board takes",
            &|i| i.resize((1 << 20) + 1, 0),
            Errno::EINVAL,
            "no og1 image",
        ),
        ("magic", &|i| i[0] ^= 1, Errno::EINVAL, "no og1 image"),
        (
            "another format",
            &|i| set(i, FORMAT, 3),
            Errno::EINVAL,
            "no og1 image",
        ),
        (
            "no P-state",
            &|i| set(i, PSTATES, 0),
            Errno::EINVAL,
            "no og1 image",
        ),
        (
            "no engine",
            &|i| set(i, ENGINES, 0),
            Errno::EINVAL,
            "leave no engine",
        ),
        ("a flipped bit", &|i| i[80] ^= 4, Errno::EIO, "checksum"),
        // The last block ends beyond the image then.
        (
            "cut short",
            &|i| i.truncate(i.len() - 16),
            Errno::EINVAL,
            "no og1 image",
        ),
        (
            "an initial P-state that is none",
            &|i| set(i, INITIAL, 8),
            Errno::EINVAL,
            "no og1 image",
        ),
    ];
    let folder = FirmwareFolder::empty()?;
    for (what, spoil, errno, says) in cases {
        folder.put(spoil)?;
        let mut driver = Driver::load()?;
        driver
            .refuses(errno, &["firmware", says])
            .context(what.to_string())?;
        driver.unload()?;
    }
    drop(folder);
    let driver = Driver::load()?;
    driver.works()?;
    driver.unload()
}

fn good_firmware_from_another_folder_is_taken() -> Outcome {
    // Shows that the tests above fail because of what they change.
    let folder = FirmwareFolder::empty()?;
    folder.put(&|image| seal(image))?;
    let driver = Driver::load()?;
    driver.works()?;
    driver.unload()
}
