// SPDX-License-Identifier: GPL-2.0
//! Configuration space: what each register lets through, how capabilities are found, what writes mean.

mod common;

use common::Random;
use ochre_vfio_user as vfu;
use vfu::pci::capability;
use vfu::pci::extended;
use vfu::pci::Bar;
use vfu::pci::BuildError;
use vfu::pci::ConfigBuilder;
use vfu::pci::ConfigEvent;
use vfu::pci::ConfigSpace;
use vfu::pci::Express;
use vfu::pci::Identity;
use vfu::pci::Msix;
use vfu::pci::MsixTable;
use vfu::pci::PmCaps;
use vfu::pci::PowerState;
use vfu::pci::ResetKind;

const MSIX: Msix = Msix {
    vectors: 5,
    table_bar: 4,
    table_offset: 0,
    pba_bar: 4,
    pba_offset: 0x1000,
};
const EXPRESS: Express = Express {
    flr: true,
    max_payload: 1,
    link_speed: 4,
    link_width: 16,
};

fn header() -> ConfigBuilder {
    ConfigSpace::builder(Identity {
        vendor: 0x1234,
        device: 0x0c47,
        subsystem_vendor: 0x4321,
        subsystem: 0x0002,
        class: 0x030200,
        revision: 7,
    })
}

fn builder() -> ConfigBuilder {
    header()
        .bar(0, Bar::mem32(0x10_0000))
        .bar(2, Bar::mem64(1 << 32).prefetchable())
        .bar(4, Bar::mem32(0x4000))
        .power_management(PmCaps {
            no_soft_reset: true,
            ..Default::default()
        })
        .msix(MSIX)
        .express(EXPRESS)
        .aer()
        .serial_number(0x1122_3344_5566_7788)
}

fn config() -> ConfigSpace {
    builder().build().unwrap()
}

fn u32_at(config: &ConfigSpace, at: usize) -> u32 {
    let mut bytes = [0; 4];
    config.read(at as u64, &mut bytes);
    u32::from_le_bytes(bytes)
}

fn u16_at(config: &ConfigSpace, at: usize) -> u16 {
    let mut bytes = [0; 2];
    config.read(at as u64, &mut bytes);
    u16::from_le_bytes(bytes)
}

fn write32(config: &mut ConfigSpace, at: usize, value: u32) -> Vec<ConfigEvent> {
    config.write(at as u64, &value.to_le_bytes())
}

fn write16(config: &mut ConfigSpace, at: usize, value: u16) -> Vec<ConfigEvent> {
    config.write(at as u64, &value.to_le_bytes())
}

#[test]
fn header_says_who_it_is() {
    let config = config();
    assert_eq!(u32_at(&config, 0x00), 0x0c47_1234);
    assert_eq!(u32_at(&config, 0x08), 0x0302_0007);
    assert_eq!(u32_at(&config, 0x2c), 0x0002_4321);
    // Type 0, one function; a capability list; no interrupt pin, no ROM.
    assert_eq!(u32_at(&config, 0x0c), 0);
    assert_eq!(u16_at(&config, 0x06), 0x0010);
    assert_eq!((u32_at(&config, 0x30), u32_at(&config, 0x3c)), (0, 0));
}

/// For each register that has any: offset, value after power-on, what of all ones sticks.
#[test]
fn each_register_lets_through_its_writable_bits_only() {
    let config = config();
    let pm = config
        .find_capability(capability::POWER_MANAGEMENT)
        .unwrap();
    let msix = config.find_capability(capability::MSIX).unwrap();
    let express = config.find_capability(capability::EXPRESS).unwrap();
    let aer = config.find_extended(extended::ADVANCED_ERRORS).unwrap();
    let serial = config.find_extended(extended::SERIAL_NUMBER).unwrap();
    let known = [
        (0x00, 0x0c47_1234, 0),
        (0x04, 0x0010_0000, 0x0546),
        (0x08, 0x0302_0007, 0),
        (0x0c, 0, 0xff),
        (0x10, 0, 0xfff0_0000),
        (0x14, 0, 0),
        (0x18, 0xc, 0),
        (0x1c, 0, 0xffff_ffff),
        (0x20, 0, 0xffff_c000),
        (0x24, 0, 0),
        (0x2c, 0x0002_4321, 0),
        (0x34, 0x40, 0),
        (0x3c, 0, 0xff),
        (pm, 0x0003_4801, 0),
        (pm + 4, 0x0000_0008, 0x3),
        (msix, 0x0004_5411, 0xc000_0000),
        (msix + 4, 4, 0),
        (msix + 8, 0x1004, 0),
        (express, 0x0002_0010, 0),
        (express + 4, 0x1000_8021, 0),
        // The reset bit is not among those tried here; it has its own test.
        (express + 8, 0x0000_2810, 0x79ff),
        (express + 0xc, 0x104, 0),
        (express + 0x10, 0x1104_0000, 0x00cb),
        (express + 0x24, 0x10, 0),
        (express + 0x28, 0, 0x10),
        (express + 0x2c, 0x1e, 0),
        (express + 0x30, 4, 0xf),
        (aer, 0x1482_0001, 0),
        (aer + 8, 0x0040_0000, 0x005f_f010),
        (aer + 0xc, 0x0046_2010, 0x005f_f010),
        (aer + 0x14, 0x0000_e000, 0x0000_f1c1),
        (serial, 0x0001_0003, 0),
        (serial + 4, 0x5566_7788, 0),
        (serial + 8, 0x1122_3344, 0),
    ];
    for at in (0..4096).step_by(4) {
        let (value, writable) = known
            .iter()
            .find(|(register, ..)| *register == at)
            .map_or((0, 0), |(_, value, writable)| (*value, *writable));
        assert_eq!(u32_at(&config, at), value, "{at:#x} after power-on");
        let mut config = config.clone();
        let ones = if at == express + 8 { !0x8000 } else { !0u32 };
        write32(&mut config, at, ones);
        assert_eq!(
            u32_at(&config, at),
            value & !writable | writable,
            "{at:#x} with ones"
        );
        write32(&mut config, at, 0);
        assert_eq!(
            u32_at(&config, at),
            value & !writable,
            "{at:#x} with zeroes"
        );
    }
}

#[test]
fn accesses_may_be_of_any_size_and_anywhere() {
    let mut config = config();
    config.write(0x0f, &[0xff; 6]);
    assert_eq!(u32_at(&config, 0x10), 0xfff0_0000);
    assert_eq!(
        u32_at(&config, 0x0c),
        0,
        "header type and BIST are read-only"
    );
    config.write(0x13, &[0x12]);
    assert_eq!(u32_at(&config, 0x10), 0x12f0_0000);
    // Across the end, beyond it, and to the end of all offsets.
    let mut bytes = [0; 8];
    config.read(4092, &mut bytes);
    assert_eq!(bytes, [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    for offset in [4092, 4096, 1 << 32, u64::MAX - 3, u64::MAX] {
        assert_eq!(config.write(offset, &[0xff; 8]), []);
        config.read(offset, &mut bytes);
    }
    config.modify(4093, !0, !0);
    config.modify(usize::MAX, !0, !0);
}

#[test]
fn bars_tell_their_size_and_keep_their_address() {
    let mut config = config();
    write32(&mut config, 0x18, !0);
    write32(&mut config, 0x1c, !0);
    assert_eq!((u32_at(&config, 0x18), u32_at(&config, 0x1c)), (0xc, !0));
    write32(&mut config, 0x10, 0xfe10_0000);
    write32(&mut config, 0x1c, 0x8);
    assert_eq!(config.bar_address(0), Some(0xfe10_0000));
    assert_eq!(config.bar_address(2), Some(0x8_0000_0000));
    assert_eq!((config.bar_address(1), config.bar_address(3)), (None, None));
    assert_eq!(config.bar_address(99), None);
}

#[test]
fn status_bits_are_cleared_by_ones() {
    let mut config = config();
    let express = config.find_capability(capability::EXPRESS).unwrap();
    let aer = config.find_extended(extended::ADVANCED_ERRORS).unwrap();
    config.modify(0x04, 0, 0xf900_0000);
    config.modify(express + 8, 0, 0x000f_0000);
    config.modify(aer + 4, 0, 0x0010_1000);
    write16(&mut config, 0x06, 0x4000);
    assert_eq!(u16_at(&config, 0x06), 0xb910);
    write16(&mut config, 0x06, 0);
    assert_eq!(u16_at(&config, 0x06), 0xb910, "zeroes clear nothing");
    write16(&mut config, express + 10, 0x0005);
    assert_eq!(u16_at(&config, express + 10), 0x000a);
    write32(&mut config, aer + 4, 0x0010_0000);
    assert_eq!(u32_at(&config, aer + 4), 0x0000_1000);
}

#[test]
fn capabilities_are_found_by_walking_the_chain() {
    let config = config();
    let mut walked = Vec::new();
    let mut at = u32_at(&config, 0x34) as u8;
    while at != 0 {
        assert_eq!(at % 4, 0);
        let [id, next] = u16_at(&config, at.into()).to_le_bytes();
        assert_eq!(config.find_capability(id), Some(at.into()));
        walked.push(id);
        at = next;
    }
    assert_eq!(
        walked,
        [
            capability::POWER_MANAGEMENT,
            capability::MSIX,
            capability::EXPRESS
        ]
    );

    let mut walked = Vec::new();
    let mut at = 0x100;
    while at != 0 {
        let header = u32_at(&config, at);
        walked.push((header & 0xffff) as u16);
        assert_eq!(config.find_extended(header as u16), Some(at));
        at = (header >> 20) as usize;
    }
    assert_eq!(walked, [extended::ADVANCED_ERRORS, extended::SERIAL_NUMBER]);
    assert_eq!(config.find_capability(0x05), None);
    assert_eq!(config.find_extended(0x0010), None);

    // A function with neither.
    let bare = header().build().unwrap();
    assert_eq!(
        (u16_at(&bare, 6), u32_at(&bare, 0x34), u32_at(&bare, 0x100)),
        (0, 0, 0)
    );
    assert_eq!(
        (bare.find_capability(1), bare.find_extended(1)),
        (None, None)
    );
    assert_eq!(bare.power_state(), PowerState::D0);
}

#[test]
fn function_level_reset_resets_and_is_reported() {
    let mut config = config();
    let express = config.find_capability(capability::EXPRESS).unwrap();
    let aer = config.find_extended(extended::ADVANCED_ERRORS).unwrap();
    write32(&mut config, 0x10, 0xfe10_0000);
    write16(&mut config, 0x04, 0x0006);
    write16(&mut config, express + 0x10, 0x0040);
    write16(&mut config, express + 8, 0x2830);
    config.modify(aer + 4, 0, 0x1000);
    assert!(config.bus_master());

    // The bit may come in a word, a half, or a byte.
    let control = u16_at(&config, express + 8) | 0x8000;
    let mut by_byte = config.clone();
    assert_eq!(
        by_byte.write(express as u64 + 9, &[0xa8]),
        [ConfigEvent::FunctionLevelReset]
    );
    assert_eq!(
        write16(&mut config, express + 8, control),
        [ConfigEvent::FunctionLevelReset]
    );
    for config in [&config, &by_byte] {
        assert_eq!((u32_at(config, 0x10), u16_at(config, 0x04)), (0, 0));
        assert!(!config.bus_master());
        // The link's settings and sticky bits stay; the bit itself reads 0.
        assert_eq!(u16_at(config, express + 0x10), 0x0040);
        assert_eq!(u16_at(config, express + 8), 0x2830);
        assert_eq!(u32_at(config, aer + 4), 0x1000);
    }

    // A conventional reset takes the link's, power-on all.
    config.reset(ResetKind::Warm);
    assert_eq!(
        (u16_at(&config, express + 0x10), u32_at(&config, aer + 4)),
        (0, 0x1000)
    );
    config.reset(ResetKind::Cold);
    assert_eq!(u32_at(&config, aer + 4), 0);

    // Without the capability nothing happens.
    let mut config = header()
        .express(Express {
            flr: false,
            ..EXPRESS
        })
        .build()
        .unwrap();
    let express = config.find_capability(capability::EXPRESS).unwrap();
    assert_eq!(write16(&mut config, express + 8, 0xa810), []);
}

#[test]
fn switches_are_reported_when_they_change() {
    use ConfigEvent::*;
    let mut config = config();
    let msix = config.find_capability(capability::MSIX).unwrap();
    assert_eq!(
        write16(&mut config, 0x04, 0x0006),
        [MemorySpace(true), BusMaster(true)]
    );
    assert_eq!(write16(&mut config, 0x04, 0x0506), []);
    assert!(config.bus_master() && config.memory_space());
    assert_eq!(
        write16(&mut config, msix + 2, 0xc000),
        [MsixFunctionMask(true), MsixEnable(true)]
    );
    assert!(config.msix_enabled());
    assert_eq!(
        write16(&mut config, msix + 2, 0x8000),
        [MsixFunctionMask(false)]
    );
    assert_eq!(write16(&mut config, msix + 2, 0x0000), [MsixEnable(false)]);
    assert_eq!(write16(&mut config, 0x04, 0x0002), [BusMaster(false)]);
}

#[test]
fn power_states_that_exist_are_entered() {
    use ConfigEvent::PowerState as Event;
    let mut config = config();
    let pm = config
        .find_capability(capability::POWER_MANAGEMENT)
        .unwrap();
    write16(&mut config, 0x04, 0x0006);
    assert_eq!(write16(&mut config, pm + 4, 3), [Event(PowerState::D3Hot)]);
    assert!(!config.bus_master() && !config.memory_space(), "asleep");
    assert_eq!(write16(&mut config, pm + 4, 0), [Event(PowerState::D0)]);
    assert!(
        config.bus_master() && config.memory_space(),
        "it kept its state"
    );
    // D1 and D2 do not exist here: the write is complete, and without effect.
    for state in [1, 2] {
        assert_eq!(write16(&mut config, pm + 4, state), []);
        assert_eq!(u16_at(&config, pm + 4), 8);
    }

    let power = PmCaps {
        d1: true,
        d2: true,
        no_soft_reset: false,
    };
    let mut config = header().power_management(power).build().unwrap();
    let pm = config
        .find_capability(capability::POWER_MANAGEMENT)
        .unwrap();
    assert_eq!(write16(&mut config, pm + 4, 1), [Event(PowerState::D1)]);
    assert_eq!(write16(&mut config, pm + 4, 2), [Event(PowerState::D2)]);
    assert_eq!(write16(&mut config, pm + 4, 3), [Event(PowerState::D3Hot)]);
    write16(&mut config, 0x04, 0x0006);
    let events = write16(&mut config, pm + 4, 0);
    assert_eq!(events, [Event(PowerState::D0), ConfigEvent::SoftReset]);
    assert_eq!(u16_at(&config, 0x04), 0, "it did not keep its state");
}

#[test]
fn impossible_functions_are_refused() {
    let error = |builder: ConfigBuilder| builder.build().map(drop);
    for (index, bar) in [
        (0, Bar::mem32(0)),
        (0, Bar::mem32(64)),
        (0, Bar::mem32(0x3000)),
        (0, Bar::mem32(1 << 32)),
        (5, Bar::mem64(0x1000)),
        (6, Bar::mem32(0x1000)),
        (usize::MAX, Bar::mem64(0x1000)),
    ] {
        assert_eq!(error(header().bar(index, bar)), Err(BuildError::Bar(index)));
    }
    let taken = header()
        .bar(2, Bar::mem64(0x1000))
        .bar(3, Bar::mem32(0x1000));
    assert_eq!(error(taken), Err(BuildError::Bar(3)));
    let taken = header()
        .bar(3, Bar::mem32(0x1000))
        .bar(2, Bar::mem64(0x1000));
    assert_eq!(error(taken), Err(BuildError::Bar(2)));

    for msix in [
        Msix { vectors: 0, ..MSIX },
        Msix {
            vectors: 2049,
            ..MSIX
        },
        Msix {
            table_bar: 6,
            ..MSIX
        },
        Msix { pba_bar: 7, ..MSIX },
        Msix {
            table_offset: 4,
            ..MSIX
        },
        Msix {
            pba_offset: 0x1001,
            ..MSIX
        },
    ] {
        assert_eq!(
            error(header().msix(msix)),
            Err(BuildError::Capability(0x11))
        );
    }
    for express in [
        Express {
            max_payload: 6,
            ..EXPRESS
        },
        Express {
            link_speed: 0,
            ..EXPRESS
        },
        Express {
            link_speed: 7,
            ..EXPRESS
        },
        Express {
            link_width: 0,
            ..EXPRESS
        },
        Express {
            link_width: 33,
            ..EXPRESS
        },
    ] {
        assert_eq!(
            error(header().express(express)),
            Err(BuildError::Capability(0x10))
        );
    }
    assert_eq!(
        error(header().msix(MSIX).msix(MSIX)),
        Err(BuildError::Capability(0x11))
    );
    let long = header().capability(capability::VENDOR_SPECIFIC, &[0], &[0, 0]);
    assert_eq!(error(long), Err(BuildError::Capability(0x09)));
    assert_eq!(
        error(header().capability(0x09, &[0; 200], &[])),
        Err(BuildError::Full)
    );
    assert_eq!(
        error(header().extended(0x10, 16, &[], &[])),
        Err(BuildError::Capability(0x10))
    );
    assert_eq!(
        error(header().extended(0x10, 1, &[0; 4000], &[])),
        Err(BuildError::Full)
    );
}

#[test]
fn any_other_capability_can_be_added() {
    let bytes = [0x10, 1, 4, 0];
    let config = header()
        .capability(capability::VENDOR_SPECIFIC, &bytes, &[0, 0, 0xf])
        .capability(capability::VENDOR_SPECIFIC, &[0x14, 2], &[])
        .extended(0x0015, 1, &[0xaa; 12], &[0xff; 4])
        .build();
    let mut config = config.unwrap();
    let at = config.find_capability(capability::VENDOR_SPECIFIC).unwrap();
    assert_eq!(u32_at(&config, at), 0x0110_4809);
    assert_eq!(
        u32_at(&config, 0x48),
        0x0214_0009,
        "the second in the chain"
    );
    config.write(at as u64, &[0xff; 6]);
    assert_eq!(u32_at(&config, at), 0x0110_4809);
    assert_eq!(u16_at(&config, at + 4), 0x000f);
    write32(&mut config, 0x104, 0x1234_5678);
    write32(&mut config, 0x108, 0x1234_5678);
    assert_eq!(u32_at(&config, 0x100), 0x0001_0015);
    assert_eq!(
        (u32_at(&config, 0x104), u32_at(&config, 0x108)),
        (0x1234_5678, 0xaaaa_aaaa)
    );
}

#[test]
fn random_accesses_change_only_what_may_change() {
    let mut random = Random::new("config");
    let mut config = config();
    let msix = config.find_capability(capability::MSIX).unwrap();
    for _ in 0..20_000 {
        let len = random.below(9) as usize;
        let offset = random.below(4200);
        let data = random.bytes(len);
        config.write(offset, &data);
        let mut read = vec![0; len];
        config.read(offset, &mut read);
        assert_eq!(u32_at(&config, 0), 0x0c47_1234);
        assert_eq!(u16_at(&config, msix) & 0xff, 0x11);
        assert_eq!(config.find_capability(capability::EXPRESS), Some(0x54));
        assert_ne!(config.power_state(), PowerState::D1);
    }
}

#[test]
fn msix_table_keeps_its_entries_and_shows_what_waits() {
    let mut table = MsixTable::new(70, 0x800, 0x1000);
    let read = |table: &MsixTable, at, waits: &[u32]| {
        let mut bytes = [0xee; 4];
        table.read(at, &mut bytes, |vector| waits.contains(&vector));
        u32::from_le_bytes(bytes)
    };
    assert!(table.masked(0) && table.masked(69) && table.masked(70));
    table.write(0x810, &[0xff; 16]);
    assert_eq!(read(&table, 0x810, &[]), 0xffff_fffc);
    assert_eq!(read(&table, 0x814, &[]), !0);
    assert_eq!(read(&table, 0x818, &[]), !0);
    assert_eq!(read(&table, 0x81c, &[]), 1);
    table.write(0x81c, &[0]);
    assert!(!table.masked(1));
    // Pending bits: in units of 64, read-only, nothing beyond the last vector.
    table.write(0x1000, &[0xff; 16]);
    assert_eq!(read(&table, 0x1000, &[0, 9, 31]), 0x8000_0201);
    assert_eq!(read(&table, 0x1008, &[64, 69, 70, 71]), 0x21);
    assert_eq!(read(&table, 0x1010, &[64]), 0);
    // The rest of the BAR.
    assert_eq!(
        (read(&table, 0x7fc, &[]), read(&table, 0x800 + 70 * 16, &[])),
        (0, 0)
    );
    table.write(u64::MAX - 1, &[0; 4]);
    assert_eq!(read(&table, u64::MAX - 1, &[]), 0);
}
