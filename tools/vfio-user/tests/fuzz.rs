// SPDX-License-Identifier: GPL-2.0
//! Random messages: whatever comes, the server neither panics nor hangs, and cleans up.
//!
//! `SEED=… cargo test` repeats a run; `ROUNDS=…` makes it longer.

mod common;

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::time::Duration;

use common::*;

/// How long a test waits for the server before it calls it hung.
const PATIENCE: Duration = Duration::from_secs(20);

/// Takes replies until the server has closed the connection.
fn drain(rig: &mut Rig) {
    let stream = &rig.client.stream;
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    loop {
        match rig.client.receive() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the server hangs"),
            Err(_) => return,
        }
    }
}

#[test]
fn random_bytes_neither_panic_nor_hang_the_server() {
    let mut random = Random::new("random_bytes");
    for round in 0..rounds(300) {
        let mut rig = if round % 2 == 0 {
            Rig::silent()
        } else {
            Rig::new()
        };
        let len = random.below(4096) as usize + 1;
        let bytes = random.bytes(len);
        // The server may hang up before it has taken everything.
        let _ = rig.client.send_raw(&bytes, &[]);
        drain(&mut rig);
        let _ = rig.finish();
    }
}

/// A number as clients get them wrong: small, a boundary, a power of two, or anything.
fn number(random: &mut Random) -> u64 {
    let near = |base: u64, random: &mut Random| base.wrapping_add(random.below(3)).wrapping_sub(1);
    match random.below(6) {
        0 => random.below(20),
        1 => random.below(8) << 12,
        2 => {
            let bit = random.below(64);
            near(1 << bit, random)
        }
        3 => near(
            [0x4000, 0x1000, 1 << 20, 0][random.below(4) as usize],
            random,
        ),
        4 => u64::MAX - random.below(0x2000),
        _ => random.next(),
    }
}

#[test]
fn random_commands_neither_panic_nor_hang_the_server() {
    let mut random = Random::new("random_commands");
    let file = memfd(0x8000);
    let sizes = [0, 4, 8, 16, 16, 20, 24, 32, 32, 40];
    for _ in 0..rounds(40) {
        let mut rig = Rig::new();
        for _ in 0..200 {
            let command = random.below(20) as u16;
            let mut payload = Vec::new();
            let size = sizes[random.below(sizes.len() as u64) as usize];
            while payload.len() < size {
                let value = number(&mut random);
                if random.below(2) == 0 && payload.len() % 8 == 0 {
                    payload.extend(value.to_le_bytes());
                } else {
                    payload.extend((value as u32).to_le_bytes());
                }
            }
            // Often a plausible start, so that what follows is looked at.
            if payload.len() >= 8 && random.below(2) == 0 {
                payload[..4].copy_from_slice(&40u32.to_le_bytes());
                payload[4..8].copy_from_slice(&(random.below(64) as u32).to_le_bytes());
            }
            let fds: Vec<_> = (0..random.below(4).saturating_sub(1))
                .map(|_| eventfd())
                .collect();
            let mut borrowed: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
            if random.below(3) == 0 {
                borrowed = vec![file.as_fd()];
            }
            // Only flags that keep the session going: commands, with or without reply.
            let flags = if random.below(4) == 0 { 0x10 } else { 0 };
            rig.client.post(command, flags, &payload, &borrowed);
            if flags == 0 {
                rig.client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let reply = rig.client.receive().expect("the server hangs, or has gone");
                assert_eq!(reply.command, command);
            }
        }
        rig.client.ping();
        rig.finish().unwrap();
    }
}

#[test]
fn damaged_messages_neither_panic_nor_hang_the_server() {
    let mut random = Random::new("damaged_messages");
    let whole = {
        let mut version = payload![0u16, 0u16];
        version.extend(QEMU_CAPABILITIES.as_bytes());
        version.push(0);
        let messages = [
            (VERSION, version),
            (GET_INFO, payload![16u32, 0u32, 0u32, 0u32]),
            (
                GET_REGION_INFO,
                payload![64u32, 0u32, 2u32, 0u32, 0u64, 0u64],
            ),
            (DMA_MAP, payload![32u32, 3u32, 0u64, 0x1000u64, 0x1000u64]),
            (REGION_WRITE, payload![0u64, 0u32, 4u32, 7u32]),
            (WRITE_MULTI, payload![1u64, 0u64, 0u32, 4u32, 7u64]),
            (REGION_READ, payload![0u64, 0u32, 4u32]),
            (SET_IRQS, payload![20u32, 33u32, 2u32, 0u32, 3u32]),
            (DMA_UNMAP, payload![24u32, 0u32, 0x1000u64, 0x1000u64]),
            (RESET, vec![]),
        ];
        let mut bytes = Vec::new();
        for (command, payload) in messages {
            bytes.extend(payload![
                1u16,
                command,
                16 + payload.len() as u32,
                0u32,
                0u32
            ]);
            bytes.extend(payload);
        }
        bytes
    };
    for _ in 0..rounds(500) {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.next() as u8,
                2 => {
                    bytes.remove(at);
                }
                _ => bytes.insert(at, random.next() as u8),
            }
        }
        let mut rig = Rig::silent();
        let _ = rig.client.send_raw(&bytes, &[]);
        drain(&mut rig);
        let _ = rig.finish();
    }
}

#[test]
fn nothing_of_many_clients_stays_behind() {
    let mut random = Random::new("many_clients");
    let before = open_descriptors("memfd:leak");
    for _ in 0..rounds(20) {
        let file = rustix::fs::memfd_create("leak", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 0x1000).unwrap();
        let mut rig = Rig::new();
        rig.client
            .map(random.below(8) << 12, 0x1000, 3, Some((file.as_fd(), 0)))
            .unwrap();
        let memory = std::sync::Arc::clone(rig.server.memory());
        rig.finish().unwrap();
        assert_eq!(memory.unmap_all(), 0);
        drop(file);
        assert_eq!(open_descriptors("memfd:leak"), before);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains("memfd:leak"), "a mapping was left");
    }
}
