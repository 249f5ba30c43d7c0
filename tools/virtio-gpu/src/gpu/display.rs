// SPDX-License-Identifier: GPL-2.0
//! Displays: their sizes, and the EDID of a monitor that does not exist.

use crate::wire::MAX_SCANOUTS;

/// Pixels of each display.
const SIZE: [u32; 2] = [1280, 800];
/// Bytes of a base EDID.
const EDID: usize = 128;
/// Room that the response has for an EDID.
const EDID_ROOM: usize = 1024;

/// The body of a GET_DISPLAY_INFO response.
pub fn info(scanouts: u32) -> Vec<u8> {
    let mut body = Vec::with_capacity(MAX_SCANOUTS * 24);
    for index in 0..MAX_SCANOUTS {
        let there = index < scanouts as usize;
        let [width, height] = if there { SIZE } else { [0, 0] };
        for word in [0, 0, width, height, there.into(), 0] {
            body.extend(u32::to_le_bytes(word));
        }
    }
    body
}

/// The body of a GET_EDID response.
pub fn edid() -> Vec<u8> {
    let mut body = Vec::with_capacity(8 + EDID_ROOM);
    body.extend((EDID as u32).to_le_bytes());
    body.extend(0u32.to_le_bytes());
    body.extend(base_edid());
    body.resize(8 + EDID_ROOM, 0);
    body
}

/// An EDID 1.4 with one timing, of 1280x800 at 60 Hz (CVT, reduced blanking).
fn base_edid() -> [u8; EDID] {
    let mut edid = [0; EDID];
    edid[..8].copy_from_slice(&[0, 255, 255, 255, 255, 255, 255, 0]);
    // "OCH" in letters of five bits; product 1.
    edid[8..12].copy_from_slice(&[0x3c, 0x68, 1, 0]);
    // Year 2026, EDID 1.4, digital, no size in cm, gamma 2.2, the preferred timing is the first.
    edid[17..21].copy_from_slice(&[36, 1, 4, 0xa0]);
    edid[23..25].copy_from_slice(&[0x78, 0x02]);
    // No standard timings.
    edid[38..54].fill(1);
    edid[54..72].copy_from_slice(&[
        0xbc, 0x1b, 0x00, 0xa0, 0x50, 0x20, 0x17, 0x30, 0x30, 0x20, 0x36, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x1a,
    ]);
    // A name, and two descriptors without contents.
    edid[72..90].copy_from_slice(b"\0\0\0\xfc\0ochre virtio\n");
    for at in [90, 108] {
        edid[at + 3] = 0x10;
    }
    let sum = edid.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    edid[EDID - 1] = sum.wrapping_neg();
    edid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edid_has_the_right_sum_and_response_the_right_size() {
        assert_eq!(base_edid().iter().fold(0u8, |a, b| a.wrapping_add(*b)), 0);
        assert_eq!(edid().len(), 1032);
        assert_eq!(info(3).len(), 16 * 24);
    }
}
