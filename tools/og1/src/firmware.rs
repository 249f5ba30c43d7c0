// SPDX-License-Identifier: GPL-2.0
//! The firmware image: what the board needs to know of itself before engines may run.

use crate::hw;
use crate::hw::mem;
use crate::hw::mem::FirmwareLimits;
use crate::hw::mem::FirmwarePstate;
use crate::hw::regs::VOLT_MAX_UV;
use crate::hw::regs::VOLT_MIN_UV;
use crate::timing::CLOCK_KHZ_MAX;
use crate::timing::CLOCK_KHZ_MIN;

/// Bytes of the header.
const HEADER: usize = 64;
/// Bytes of a P-state.
const PSTATE: usize = 16;
/// Bytes of the head of a block.
const BLOCK: usize = 8;
/// Bytes of the limits.
const LIMITS: usize = 32;
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
    /// `FW_FORMAT_*`.
    pub format: u32,
    /// The block of limits, if there is one (format 2).
    pub limits: Option<FirmwareLimits>,
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
        let blocks = self.limits.map_or(0, |_| BLOCK + LIMITS);
        let size = HEADER + PSTATE * self.pstates.len() + blocks;
        let mut image = Vec::with_capacity(size);
        let count = self.pstates.len() as u32;
        let words = [
            mem::FW_MAGIC,
            self.format,
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
        if let Some(limits) = &self.limits {
            let words = [
                mem::FW_BLOCK_LIMITS,
                LIMITS as u32,
                limits.power_limit_mw,
                limits.power_min_mw,
                limits.power_max_mw,
                limits.temp_limit_mc,
                limits.temp_crit_mc,
            ];
            for word in words.iter().chain(&limits.reserved) {
                image.extend_from_slice(&word.to_le_bytes());
            }
        }
        seal(&mut image);
        image
    }
}

/// Puts the right checksum into an image.
pub fn seal(image: &mut [u8]) {
    let crc = checksum(image);
    if let Some(field) = image.get_mut(CRC_AT..CRC_AT + 4) {
        field.copy_from_slice(&crc.to_le_bytes());
    }
}

/// The firmware that comes with the board: five P-states (P0, P0', P1, P1', P2), all engines.
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
        format: mem::FW_FORMAT_BLOCKS,
        limits: Some(FirmwareLimits {
            power_limit_mw: 100_000,
            power_min_mw: 30_000,
            power_max_mw: 150_000,
            temp_limit_mc: 95_000,
            temp_crit_mc: 105_000,
            reserved: [0; 3],
        }),
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
    if ![mem::FW_FORMAT, mem::FW_FORMAT_BLOCKS].contains(&header.format) {
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
    let mut limits = None;
    if header.format == mem::FW_FORMAT_BLOCKS {
        let chain = image.get(HEADER + PSTATE * count as usize..);
        limits = read_blocks(chain.unwrap_or(&[])).ok_or(mem::FW_ERR_CONTENTS)?;
        if !voltages_make_sense(&pstates) {
            return Err(mem::FW_ERR_CONTENTS);
        }
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
        format: header.format,
        limits,
    })
}

/// Whether all voltages can be had, and none falls where its clock rises.
fn voltages_make_sense(pstates: &[FirmwarePstate]) -> bool {
    let range = VOLT_MIN_UV..=VOLT_MAX_UV;
    let pairs = pstates
        .iter()
        .flat_map(|a| pstates.iter().map(move |b| (a, b)));
    pstates
        .iter()
        .all(|p| range.contains(&p.core_uv) && range.contains(&p.memory_uv))
        && pairs.into_iter().all(|(a, b)| {
            (a.core_khz <= b.core_khz || a.core_uv >= b.core_uv)
                && (a.memory_khz <= b.memory_khz || a.memory_uv >= b.memory_uv)
        })
}

/// Goes through the chain of blocks; `None` if it is broken, otherwise the limits if there are any.
fn read_blocks(mut chain: &[u8]) -> Option<Option<FirmwareLimits>> {
    let mut limits = None;
    while !chain.is_empty() {
        if chain.len() < BLOCK {
            return None;
        }
        let (head, rest) = chain.split_at(BLOCK);
        let mut f = hw::Fields::new(head);
        let (kind, bytes) = (f.u32(), f.u32() as usize);
        let data = rest.get(..bytes).filter(|_| bytes % 4 == 0)?;
        chain = rest.get(bytes..).unwrap_or(&[]);
        if kind == mem::FW_BLOCK_LIMITS {
            let found = read_limits(data).filter(|_| limits.is_none())?;
            limits = Some(found);
        }
    }
    Some(limits)
}

fn read_limits(data: &[u8]) -> Option<FirmwareLimits> {
    let mut f = hw::Fields::new(data);
    let limits = FirmwareLimits {
        power_limit_mw: f.u32(),
        power_min_mw: f.u32(),
        power_max_mw: f.u32(),
        temp_limit_mc: f.u32(),
        temp_crit_mc: f.u32(),
        reserved: std::array::from_fn(|_| f.u32()),
    };
    let (least, most) = (limits.power_min_mw, limits.power_max_mw);
    let good = data.len() == LIMITS
        && limits.reserved == [0; 3]
        && (1..=most).contains(&least)
        && (least..=most).contains(&limits.power_limit_mw)
        && most <= mem::FW_POWER_MAX_MW
        && (1..limits.temp_crit_mc).contains(&limits.temp_limit_mc)
        && limits.temp_crit_mc <= mem::FW_TEMP_MAX_MC;
    good.then_some(limits)
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
            seal(&mut image);
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

    #[test]
    fn an_image_of_format_1_has_no_limits() {
        let old = Firmware {
            format: mem::FW_FORMAT,
            limits: None,
            ..default_image(1 << 16)
        };
        assert_eq!(parse(&old.image()), Ok(old));
    }

    /// The default image with `change` made to it and the right checksum.
    fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Result<Firmware, u32> {
        let mut image = default_image(1 << 16).image();
        change(&mut image);
        let size = image.len() as u32;
        image[8..12].copy_from_slice(&size.to_le_bytes());
        seal(&mut image);
        parse(&image)
    }

    fn put(image: &mut [u8], at: usize, value: u32) {
        image[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    #[test]
    fn blocks_of_unknown_kinds_are_passed_over() {
        let good = default_image(1 << 16);
        let more = changed(|image| {
            for word in [mem::FW_BLOCK_DRIVER, 8, 1, 2, 7, 0] {
                image.extend_from_slice(&word.to_le_bytes());
            }
        });
        assert_eq!(more, Ok(good.clone()));
        // The limits become a kind that the board does not know.
        let chain = HEADER + PSTATE * good.pstates.len();
        let none = changed(|image| put(image, chain, 99));
        assert_eq!(none.map(|f| f.limits), Ok(None));
    }

    #[test]
    fn broken_chains_limits_and_voltages_are_refused() {
        let chain = HEADER + PSTATE * default_image(1 << 16).pstates.len();
        let refused = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
            assert_eq!(changed(|i| change(i)), Err(mem::FW_ERR_CONTENTS), "{what}");
        };
        refused("cut head", &|i| i.extend([0; 4]));
        refused("cut data", &|i| i.extend([7, 0, 0, 0, 4, 0, 0, 0]));
        refused("odd length", &|i| i.extend([7, 0, 0, 0, 1, 0, 0, 0, 0]));
        refused("beyond the end", &|i| put(i, chain + 4, u32::MAX - 3));
        refused("short limits", &|i| {
            put(i, chain + 4, 28);
            i.truncate(chain + 8 + 28);
        });
        refused("limits twice", &|i| {
            let again = i[chain..].to_vec();
            i.extend(again);
        });
        for (field, value) in [
            (0, 29_999),
            (0, 150_001),
            (1, 0),
            (1, 150_001),
            (2, 99_999),
            (2, 1_000_001),
            (3, 0),
            (3, 105_000),
            (4, 150_001),
            (7, 1),
        ] {
            refused(&format!("limit {field} {value}"), &|i| {
                put(i, chain + 8 + field * 4, value);
            });
        }
        for (state, field, value) in [
            (0, 2, VOLT_MAX_UV + 1),
            (4, 3, VOLT_MIN_UV - 1),
            (1, 2, 1_000_001),
            (4, 3, 1_000_001),
        ] {
            refused(&format!("voltage {state} {field} {value}"), &|i| {
                put(i, HEADER + PSTATE * state + field * 4, value);
            });
        }
    }
}
