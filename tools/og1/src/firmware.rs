// SPDX-License-Identifier: GPL-2.0
//! The firmware image: what the board needs to know of itself before engines may run.

use crate::hw;
use crate::hw::mem;
use crate::hw::mem::FirmwarePstate;
use crate::timing::CLOCK_KHZ_MAX;
use crate::timing::CLOCK_KHZ_MIN;

/// Bytes of the header.
const HEADER: usize = 64;
/// Bytes of a P-state.
const PSTATE: usize = 16;
/// Where the checksum is in the header.
const CRC_AT: usize = 12;
/// Most P-states.
const PSTATES_MAX: u32 = 8;

/// Name that [`default_image`] gives the board.
pub const BOARD_NAME: &str = "Ochre og1 reference";

/// A firmware image that was found good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firmware {
    /// Major version in the upper half, minor in the lower.
    pub version: u32,
    /// Mask of engines that the fuses leave enabled.
    pub engines: u32,
    /// P-states, fastest first.
    pub pstates: Vec<FirmwarePstate>,
    /// Index of the P-state to start in.
    pub initial: usize,
    /// Name of the board.
    pub name: String,
}

impl Firmware {
    /// Clocks of the initial P-state in kHz: core, memory.
    pub fn clocks(&self) -> (u32, u32) {
        self.pstates
            .get(self.initial)
            .map_or((0, 0), |p| (p.core_khz, p.memory_khz))
    }

    /// The image that [`parse`] reads.
    pub fn image(&self) -> Vec<u8> {
        let size = HEADER + PSTATE * self.pstates.len();
        let mut image = Vec::with_capacity(size);
        let count = self.pstates.len() as u32;
        let words = [
            mem::FW_MAGIC,
            mem::FW_FORMAT,
            size as u32,
            0,
            self.version,
            count,
            self.engines,
            self.initial as u32,
        ];
        for word in words {
            image.extend_from_slice(&word.to_le_bytes());
        }
        let mut name = [0; 32];
        for (to, from) in name.iter_mut().take(31).zip(self.name.bytes()) {
            *to = from;
        }
        image.extend_from_slice(&name);
        for p in &self.pstates {
            for word in [p.core_khz, p.memory_khz, p.core_uv, p.memory_uv] {
                image.extend_from_slice(&word.to_le_bytes());
            }
        }
        let crc = checksum(&image);
        image[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        image
    }
}

/// The firmware that comes with the board: five P-states, all engines.
pub fn default_image(version: u32) -> Firmware {
    let p = |core_khz, memory_khz, core_uv, memory_uv| FirmwarePstate {
        core_khz,
        memory_khz,
        core_uv,
        memory_uv,
    };
    Firmware {
        version,
        engines: 0xffff,
        pstates: vec![
            p(1_500_000, 1_250_000, 1_000_000, 1_100_000),
            p(1_250_000, 1_250_000, 925_000, 1_100_000),
            p(1_000_000, 1_000_000, 850_000, 1_050_000),
            p(750_000, 800_000, 775_000, 1_000_000),
            p(400_000, 400_000, 700_000, 950_000),
        ],
        initial: 2,
        name: BOARD_NAME.into(),
    }
}

/// CRC-32 of an image with its checksum field zero.
fn checksum(image: &[u8]) -> u32 {
    let (head, rest) = image.split_at(image.len().min(CRC_AT));
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(&[0; 4][..rest.len().min(4)]);
    hasher.update(rest.get(4..).unwrap_or(&[]));
    hasher.finalize()
}

/// Whether an image may have this size; checked before anything is read.
pub fn size_is_possible(size: u32) -> bool {
    (HEADER + PSTATE..=mem::FW_BYTES_MAX).contains(&(size as usize))
}

/// Checks an image of exactly the size that was announced.
///
/// # Errors
///
/// `FW_ERR_*`.
pub fn parse(image: &[u8]) -> Result<Firmware, u32> {
    let header = hw::firmware_header(image);
    if image.len() < HEADER || header.magic != mem::FW_MAGIC {
        return Err(mem::FW_ERR_MAGIC);
    }
    if header.format != mem::FW_FORMAT {
        return Err(mem::FW_ERR_FORMAT);
    }
    if header.size as usize != image.len() || header.crc32 != checksum(image) {
        return Err(mem::FW_ERR_CHECKSUM);
    }
    let count = header.pstates;
    if !(1..=PSTATES_MAX).contains(&count)
        || header.initial >= count
        || header.engines == 0
        || image.len() < HEADER + PSTATE * count as usize
    {
        return Err(mem::FW_ERR_CONTENTS);
    }
    let mut f = hw::Fields::new(&image[HEADER..]);
    let pstates: Vec<_> = (0..count)
        .map(|_| FirmwarePstate {
            core_khz: f.u32(),
            memory_khz: f.u32(),
            core_uv: f.u32(),
            memory_uv: f.u32(),
        })
        .collect();
    let clocks = CLOCK_KHZ_MIN..=CLOCK_KHZ_MAX;
    let good = |p: &FirmwarePstate| clocks.contains(&p.core_khz) && clocks.contains(&p.memory_khz);
    let falling = pstates.windows(2).all(|w| w[0].core_khz >= w[1].core_khz);
    if !pstates.iter().all(good) || !falling {
        return Err(mem::FW_ERR_CONTENTS);
    }
    let name: Vec<u8> = header
        .name
        .iter()
        .copied()
        .take_while(|&b| b != 0)
        .collect();
    Ok(Firmware {
        version: header.version,
        engines: header.engines,
        pstates,
        initial: header.initial as usize,
        name: String::from_utf8_lossy(&name).into_owned(),
    })
}

/// Ways in which `og1 firmware --damage` spoils an image, one per reason to refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Damage {
    /// Not an image at all.
    Magic,
    /// A format that the board does not know.
    Format,
    /// A flipped bit.
    Checksum,
    /// Cut short.
    Truncated,
    /// Contents that make no sense, under a right checksum.
    Contents,
}

/// Spoils a good image.
pub fn damage(mut image: Vec<u8>, how: Damage) -> Vec<u8> {
    let flip = |image: &mut Vec<u8>, at: usize, bits: u8| {
        if let Some(byte) = image.get_mut(at) {
            *byte ^= bits;
        }
    };
    match how {
        Damage::Magic => flip(&mut image, 0, 0xff),
        Damage::Format => flip(&mut image, 4, 0x80),
        Damage::Checksum => flip(&mut image, HEADER + 1, 0x10),
        Damage::Truncated => image.truncate(HEADER + PSTATE / 2),
        Damage::Contents => {
            // An initial P-state that is not in the table.
            flip(&mut image, 28, 0x40);
            let crc = checksum(&image);
            if let Some(field) = image.get_mut(CRC_AT..CRC_AT + 4) {
                field.copy_from_slice(&crc.to_le_bytes());
            }
        }
    }
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_that_is_written_is_the_one_that_is_read() {
        let firmware = default_image(0x0001_0002);
        let image = firmware.image();
        assert!(size_is_possible(image.len() as u32));
        assert_eq!(parse(&image), Ok(firmware));
    }

    #[test]
    fn each_damage_has_its_own_error() {
        let good = default_image(1 << 16).image();
        let error = |how| parse(&damage(good.clone(), how)).unwrap_err();
        assert_eq!(error(Damage::Magic), mem::FW_ERR_MAGIC);
        assert_eq!(error(Damage::Format), mem::FW_ERR_FORMAT);
        assert_eq!(error(Damage::Checksum), mem::FW_ERR_CHECKSUM);
        assert_eq!(error(Damage::Truncated), mem::FW_ERR_CHECKSUM);
        assert_eq!(error(Damage::Contents), mem::FW_ERR_CONTENTS);
        assert_eq!(parse(&[]), Err(mem::FW_ERR_MAGIC));
    }
}
