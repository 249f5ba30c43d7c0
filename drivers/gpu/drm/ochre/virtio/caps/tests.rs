// SPDX-License-Identifier: GPL-2.0

//! The walk through made-up configuration spaces, honest and not.

use kernel::prelude::*;

use super::*;
use crate::algo::prng::for_each_seed;

/// BARs as QEMU's device has them, but that one is for I/O ports.
const BARS: BarSizes = [0, 4096, 256 << 20, 0, 16384, 0];
/// Where [`Space::qemu`] puts the capabilities.
const COMMON_AT: usize = 0x50;
const ISR_AT: usize = 0x60;
const DEVICE_AT: usize = 0x70;
const NOTIFY_AT: usize = 0x80;
const SHARED_AT: usize = 0xa0;

/// A configuration space.
#[derive(Clone)]
struct Space([u8; pci::CAP_END]);

impl Config for Space {
    fn read8(&self, offset: usize) -> u8 {
        self.0.get(offset).copied().unwrap_or(u8::MAX)
    }

    fn read16(&self, offset: usize) -> u16 {
        u16::from_le_bytes([self.read8(offset), self.read8(offset + 1)])
    }

    fn read32(&self, offset: usize) -> u32 {
        let low = u32::from(self.read16(offset));
        low | u32::from(self.read16(offset + 2)) << 16
    }
}

/// A capability to be written.
struct Cap {
    kind: u8,
    len: u8,
    bar: u8,
    which: u8,
    offset: u64,
    length: u64,
}

impl Space {
    /// A function with an empty list of capabilities.
    fn new() -> Self {
        let mut space = Self([0; pci::CAP_END]);
        space.put(pci::STATUS.offset(), &pci::STATUS_CAP_LIST.to_le_bytes());
        space
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        for (to, from) in self.0.iter_mut().skip(offset).zip(bytes) {
            *to = *from;
        }
    }

    /// Puts a capability in front of the list.
    fn add(&mut self, at: usize, cap: &Cap) {
        let first = self.read8(pci::CAP_POINTER.offset());
        let head = [
            pci::CAP_ID_VENDOR,
            first,
            cap.len,
            cap.kind,
            cap.bar,
            cap.which,
        ];
        self.put(at, &head);
        // CAST: the words of 64-bit values.
        self.put(at + 8, &(cap.offset as u32).to_le_bytes());
        self.put(at + 12, &(cap.length as u32).to_le_bytes());
        if cap.len >= cap::BYTES_64 {
            self.put(at + 16, &((cap.offset >> 32) as u32).to_le_bytes());
            self.put(at + 20, &((cap.length >> 32) as u32).to_le_bytes());
        }
        self.put(pci::CAP_POINTER.offset(), &[at as u8]);
    }

    /// As [`Self::add`], a structure of `length` bytes at `offset` of the fourth BAR.
    fn add_structure(&mut self, at: usize, kind: u8, offset: u64, length: u64) {
        let len = if kind == cap::NOTIFY {
            cap::NOTIFY_BYTES
        } else {
            cap::BYTES
        };
        let cap = Cap {
            kind,
            len,
            bar: 4,
            which: 0,
            offset,
            length,
        };
        self.add(at, &cap);
    }

    fn add_shared(&mut self, at: usize, which: u8, offset: u64, length: u64) {
        let cap = Cap {
            kind: cap::SHARED_MEMORY,
            len: cap::BYTES_64,
            bar: 2,
            which,
            offset,
            length,
        };
        self.add(at, &cap);
    }

    /// What QEMU's virtio-gpu shows, with a host-visible window.
    fn qemu() -> Self {
        let mut space = Self::new();
        space.add_structure(COMMON_AT, cap::COMMON, 0, 4096);
        space.add_structure(ISR_AT, cap::ISR, 4096, 4096);
        space.add_structure(DEVICE_AT, cap::DEVICE, 8192, 4096);
        space.add_structure(NOTIFY_AT, cap::NOTIFY, 12288, 4096);
        space.put(NOTIFY_AT + cap::NOTIFY_MULTIPLIER.offset(), &[4]);
        space.add_shared(SHARED_AT, 1, 0, 256 << 20);
        space
    }

    fn walk(&self) -> Result<Layout, CapsError> {
        walk(self, &BARS)
    }
}

/// Whether a region lies within its BAR.
fn is_inside(region: Region) -> bool {
    let size = BARS.get(region.bar as usize).copied().unwrap_or(0);
    region
        .offset
        .checked_add(region.len)
        .is_some_and(|end| end <= size)
}

#[kunit_tests(ochre_virtio_caps)]
mod suite {
    use super::*;

    #[test]
    fn structures_of_a_device_like_qemus_are_found() -> Result {
        let layout = Space::qemu().walk()?;
        let at = |offset| Region {
            bar: 4,
            offset,
            len: 4096,
        };
        assert_eq!(layout.common, at(0));
        assert_eq!(layout.isr, at(4096));
        assert_eq!(layout.device, at(8192));
        assert_eq!(layout.notify.region, at(12288));
        assert_eq!(layout.notify.multiplier, 4);
        let window = Region {
            bar: 2,
            offset: 0,
            len: 256 << 20,
        };
        assert_eq!(layout.shared(1), Some(window));
        assert_eq!(layout.shared(0), None);
        Ok(())
    }

    #[test]
    fn list_that_runs_in_a_circle_ends_the_walk() {
        // The last one points to the first, and to itself.
        for to in [SHARED_AT, COMMON_AT] {
            let mut space = Space::qemu();
            space.put(COMMON_AT + 1, &[to as u8]);
            assert_eq!(space.walk(), Err(CapsError::Endless));
        }
    }

    #[test]
    fn pointer_into_the_header_ends_the_list() {
        let mut space = Space::qemu();
        space.put(COMMON_AT + 1, &[0x3c]);
        assert!(space.walk().is_ok());
        space.put(pci::CAP_POINTER.offset(), &[0x10]);
        assert_eq!(space.walk(), Err(CapsError::Missing(cap::COMMON)));
    }

    #[test]
    fn list_may_fill_all_of_configuration_space() {
        let mut space = Space::qemu();
        // Everything that is free holds a capability of somebody else.
        let mut next = space.read8(pci::CAP_POINTER.offset());
        for free in [pci::CAP_FIRST..COMMON_AT, 0xb8..pci::CAP_END] {
            for at in free.step_by(4) {
                space.put(at, &[1, next]);
                next = at as u8;
            }
        }
        space.put(pci::CAP_POINTER.offset(), &[next]);
        assert!(space.walk().is_ok());
    }

    #[test]
    fn capability_that_leaves_configuration_space_is_refused() {
        let mut space = Space::new();
        space.add_structure(0xf4, cap::COMMON, 0, 4096);
        assert_eq!(space.walk(), Err(CapsError::Short(0xf4)));
        let mut space = Space::new();
        space.add_structure(0xf0, cap::NOTIFY, 0, 4096);
        assert_eq!(space.walk(), Err(CapsError::Short(0xf0)));
    }

    #[test]
    fn capability_shorter_than_its_type_is_refused() {
        for (at, len) in [
            (COMMON_AT, cap::BYTES),
            (ISR_AT, cap::BYTES),
            (DEVICE_AT, cap::BYTES),
            (NOTIFY_AT, cap::NOTIFY_BYTES),
            (SHARED_AT, cap::BYTES_64),
        ] {
            let mut space = Space::qemu();
            space.put(at + cap::LEN.offset(), &[len - 1]);
            assert_eq!(space.walk(), Err(CapsError::Short(at)));
        }
    }

    #[test]
    fn structure_that_leaves_its_bar_is_refused() {
        for at in [COMMON_AT, ISR_AT, DEVICE_AT, NOTIFY_AT] {
            for (offset, length) in [
                (16384u32, 4096u32),
                (12292, 4096),
                (0, 16388),
                (u32::MAX - 3, 4096),
                (4096, u32::MAX),
            ] {
                let mut space = Space::qemu();
                space.put(at + cap::OFFSET.offset(), &offset.to_le_bytes());
                space.put(at + cap::LENGTH.offset(), &length.to_le_bytes());
                assert_eq!(space.walk(), Err(CapsError::Misplaced(at)));
            }
        }
    }

    #[test]
    fn shared_memory_that_leaves_its_bar_or_overflows_is_refused() {
        for (offset, length) in [
            (0, (256 << 20) + 4096),
            (4096, 256 << 20),
            (u64::MAX - 4095, 8192),
            (8192, u64::MAX - 4095),
            (1 << 32, 4096),
            (2048, 4096),
        ] {
            let mut space = Space::qemu();
            space.add_shared(0xc0, 2, offset, length);
            assert_eq!(space.walk(), Err(CapsError::Misplaced(0xc0)));
        }
    }

    #[test]
    fn structure_in_a_bar_that_is_no_memory_is_refused() {
        for bar in [0, 3, 5] {
            let mut space = Space::qemu();
            space.put(COMMON_AT + cap::BAR.offset(), &[bar]);
            assert_eq!(space.walk(), Err(CapsError::Misplaced(COMMON_AT)));
        }
    }

    #[test]
    fn bar_for_ports_has_no_memory() {
        let mut space = Space::new();
        space.put(pci::BAR0 + 4, &[1]);
        space.put(pci::BAR0 + 8, &[0xc]);
        let sizes = bar_sizes(&space, |bar| 64 << bar);
        assert_eq!(sizes, [64, 0, 256, 512, 1024, 2048]);
    }

    #[test]
    fn structure_too_small_or_not_aligned_is_refused() {
        for (at, offset, length) in [
            (COMMON_AT, 2u32, 4096u32),
            (COMMON_AT, 0, 55),
            (NOTIFY_AT, 12289, 64),
            (NOTIFY_AT, 12288, 1),
            (ISR_AT, 4096, 0),
            (DEVICE_AT, 8194, 64),
            (DEVICE_AT, 8192, 3),
        ] {
            let mut space = Space::qemu();
            space.put(at + cap::OFFSET.offset(), &offset.to_le_bytes());
            space.put(at + cap::LENGTH.offset(), &length.to_le_bytes());
            assert_eq!(space.walk(), Err(CapsError::Misplaced(at)));
        }
    }

    #[test]
    fn missing_structure_is_named() {
        for (at, kind) in [
            (COMMON_AT, cap::COMMON),
            (ISR_AT, cap::ISR),
            (DEVICE_AT, cap::DEVICE),
            (NOTIFY_AT, cap::NOTIFY),
        ] {
            let mut space = Space::qemu();
            // Another vendor's, and a type that virtio does not define.
            space.put(at + cap::TYPE.offset(), &[0x77]);
            assert_eq!(space.walk(), Err(CapsError::Missing(kind)));
        }
        let mut space = Space::qemu();
        space.put(SHARED_AT + cap::TYPE.offset(), &[0x77]);
        assert!(space.walk().is_ok_and(|layout| layout.shared(1).is_none()));
    }

    #[test]
    fn reserved_bars_and_foreign_capabilities_are_passed_over() -> Result {
        let mut space = Space::qemu();
        // A second common configuration in a BAR that does not exist, first in the list.
        space.add_structure(0xc0, cap::COMMON, 0, 4096);
        space.put(0xc0 + cap::BAR.offset(), &[6]);
        // Vendor data, of which only the first bytes are virtio's.
        space.put(0xe0, &[pci::CAP_ID_VENDOR, 0xc0, 8, 9, 0xff, 0xff]);
        space.put(pci::CAP_POINTER.offset(), &[0xe0]);
        assert_eq!(space.walk()?, Space::qemu().walk()?);
        Ok(())
    }

    #[test]
    fn first_structure_of_a_type_counts() -> Result {
        let mut space = Space::qemu();
        space.add_structure(0xc0, cap::COMMON, 64, 64);
        space.add_shared(0xd4, 1, 4096, 4096);
        let layout = space.walk()?;
        assert_eq!(layout.common.offset, 64);
        assert!(layout.shared(1).is_some_and(|shared| shared.offset == 4096));
        Ok(())
    }

    #[test]
    fn function_that_does_not_answer_is_gone() {
        let space = Space([u8::MAX; pci::CAP_END]);
        assert_eq!(space.walk(), Err(CapsError::Gone));
        assert!(matches!(CapsError::Gone.into(), ENODEV));
        let mut space = Space::qemu();
        space.put(DEVICE_AT, &[u8::MAX]);
        assert_eq!(space.walk(), Err(CapsError::Gone));
    }

    #[test]
    fn function_without_capabilities_has_none() {
        let mut space = Space::qemu();
        space.put(pci::STATUS.offset(), &[0, 0]);
        assert_eq!(space.walk(), Err(CapsError::None));
    }

    #[test]
    fn whatever_stands_there_only_regions_within_bars_come_out() -> Result {
        for_each_seed("capabilities", |rng| {
            let mut found = 0;
            for _ in 0..2000 {
                let mut space = Space::qemu();
                for _ in 0..1 + rng.below(6) {
                    let at = pci::CAP_POINTER.offset()
                        + rng.index(pci::CAP_END - pci::CAP_POINTER.offset());
                    // Mostly small changes, which get further.
                    let bit = 1 << rng.below(8);
                    let value = if rng.chance(70) {
                        space.read8(at) ^ bit
                    } else {
                        rng.next() as u8
                    };
                    space.put(at, &[value]);
                }
                let Ok(layout) = space.walk() else {
                    continue;
                };
                found += 1;
                assert!(is_inside(layout.common) && layout.common.len >= common::LEN);
                assert!(is_inside(layout.notify.region) && layout.notify.region.len >= 2);
                assert!(is_inside(layout.isr) && layout.isr.len >= 1);
                assert!(is_inside(layout.device) && layout.device.len >= 4);
                for id in 0..=u8::MAX {
                    assert!(layout.shared(id).is_none_or(is_inside));
                }
            }
            // A fair part of the changes is harmless.
            assert!(found > 200);
            Ok(())
        })
    }
}
