// SPDX-License-Identifier: GPL-2.0
//! What a client gets that breaks the protocol: the right errno, or a disconnect.

mod common;

use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use common::*;
use ochre_vfio_user as vfu;
use vfu::index;
use vfu::Errno;

/// Sends the bytes and expects the server to hang up, after at most one error reply.
fn expect_disconnect(mut rig: Rig, bytes: &[u8], what: &str) {
    rig.client.send_raw(bytes, &[]).unwrap();
    rig.client
        .stream
        .shutdown(std::net::Shutdown::Write)
        .unwrap();
    let mut replies = 0;
    while let Ok(reply) = rig.client.receive() {
        assert_eq!(reply.flags & 0x20, 0x20, "{what}: an error");
        assert_ne!(reply.error, 0, "{what}: with its errno");
        replies += 1;
    }
    assert!(replies <= 1, "{what}: {replies} replies");
    let end = rig.finish();
    assert!(
        matches!(end, Err(vfu::ServerError::Protocol(_))),
        "{what}: {end:?}"
    );
}

#[test]
fn stream_that_cannot_be_followed_is_disconnected() {
    let message = |size: u32, flags: u32| payload![1u16, GET_INFO, size, flags, 0u32];
    for (what, bytes) in [
        ("half a header", message(32, 0)[..9].to_vec()),
        ("size 0", message(0, 0)),
        ("size below the header's", message(15, 0)),
        ("size above the limit", message(16 + 16 + (1 << 20) + 1, 0)),
        ("the largest size", message(u32::MAX, 0)),
        ("size beyond the stream's end", message(17, 0)),
        ("a reply", message(16, 1)),
        ("no known type", message(16, 0xf)),
    ] {
        expect_disconnect(Rig::new(), &bytes, what);
        if what != "half a header" {
            expect_disconnect(Rig::silent(), &bytes, what);
        }
    }
}

#[test]
fn session_starts_with_a_version_or_not_at_all() {
    let version = |major: u16, text: &str| {
        let size = 16 + 4 + text.len() as u32;
        let mut bytes = payload![1u16, VERSION, size, 0u32, 0u32, major, 0u16];
        bytes.extend(text.as_bytes());
        bytes
    };
    for (what, bytes) in [
        (
            "another command",
            payload![1u16, GET_INFO, 32u32, 0u32, 0u32, 16u32, 0u32, 0u64],
        ),
        (
            "an unknown command",
            payload![1u16, 99u16, 16u32, 0u32, 0u32],
        ),
        ("no version", payload![1u16, VERSION, 16u32, 0u32, 0u32]),
        ("another major version", version(1, "{}\0")),
        ("no end of the text", version(0, "{}")),
        ("no JSON", version(0, "capabilities\0")),
        ("JSON of another type", version(0, "[1]\0")),
        (
            "a capability of another type",
            version(0, "{\"capabilities\":{\"pgsizes\":\"4k\"}}\0"),
        ),
    ] {
        expect_disconnect(Rig::silent(), &bytes, what);
    }
    // But not twice.
    let mut rig = Rig::new();
    assert_eq!(rig.client.negotiate("{}").unwrap_err(), Errno::INVAL);
    rig.client.ping();
    rig.finish().unwrap();
}

#[test]
fn malformed_payload_gets_einval_and_the_session_goes_on() {
    let mut rig = Rig::new();
    let bar0 = index::region::BAR0;
    let multi = |count: u64, entry: Vec<u8>| [payload![count], entry].concat();
    for (what, command, payload) in [
        ("unknown command", 0, vec![]),
        ("unknown command", 19, vec![]),
        ("unknown command", u16::MAX, vec![0; 64]),
        ("short info", GET_INFO, vec![0; 15]),
        (
            "long info",
            GET_INFO,
            payload![16u32, 0u32, 0u32, 0u32, 0u32],
        ),
        ("info, argsz", GET_INFO, payload![15u32, 0u32, 0u32, 0u32]),
        (
            "region info, argsz",
            GET_REGION_INFO,
            payload![31u32, 0u32, bar0, 0u32, 0u64, 0u64],
        ),
        (
            "region info, index",
            GET_REGION_INFO,
            payload![32u32, 0u32, 9u32, 0u32, 0u64, 0u64],
        ),
        (
            "region info, index",
            GET_REGION_INFO,
            payload![32u32, 0u32, !0u32, 0u32, 0u64, 0u64],
        ),
        (
            "region info, short",
            GET_REGION_INFO,
            payload![32u32, 0u32, bar0],
        ),
        (
            "irq info, index",
            GET_IRQ_INFO,
            payload![16u32, 0u32, 5u32, 0u32],
        ),
        (
            "irq info, argsz",
            GET_IRQ_INFO,
            payload![0u32, 0u32, 0u32, 0u32],
        ),
        ("read, short", REGION_READ, payload![0u64, bar0]),
        ("read, long", REGION_READ, payload![0u64, bar0, 4u32, 0u8]),
        ("read, region", REGION_READ, payload![0u64, 9u32, 4u32]),
        (
            "read, absent region",
            REGION_READ,
            payload![0u64, index::region::BAR1, 4u32],
        ),
        (
            "read, end",
            REGION_READ,
            payload![BAR0_SIZE - 3, bar0, 4u32],
        ),
        ("read, beyond", REGION_READ, payload![BAR0_SIZE, bar0, 1u32]),
        (
            "read, overflow",
            REGION_READ,
            payload![u64::MAX, bar0, 4u32],
        ),
        (
            "read, overflow to 0",
            REGION_READ,
            payload![u64::MAX - 3, bar0, 4u32],
        ),
        (
            "read, too much",
            REGION_READ,
            payload![0u64, 2u32, (1u32 << 20) + 1],
        ),
        (
            "read, far too much",
            REGION_READ,
            payload![0u64, 2u32, u32::MAX],
        ),
        (
            "write, count above data",
            REGION_WRITE,
            payload![0u64, bar0, 8u32, 0u32],
        ),
        (
            "write, count below data",
            REGION_WRITE,
            payload![0u64, bar0, 2u32, 0u32],
        ),
        (
            "write, huge count",
            REGION_WRITE,
            payload![0u64, bar0, u32::MAX, 0u32],
        ),
        (
            "write, end",
            REGION_WRITE,
            payload![BAR0_SIZE - 2, bar0, 4u32, 0u32],
        ),
        (
            "write, overflow",
            REGION_WRITE,
            payload![u64::MAX - 1, bar0, 4u32, 0u32],
        ),
        (
            "write, region",
            REGION_WRITE,
            payload![0u64, u32::MAX, 4u32, 0u32],
        ),
        ("reset with payload", RESET, vec![0]),
        ("multi, short", WRITE_MULTI, vec![0; 7]),
        (
            "multi, count above entries",
            WRITE_MULTI,
            multi(2, payload![0u64, bar0, 4u32, 0u64]),
        ),
        (
            "multi, count below entries",
            WRITE_MULTI,
            multi(0, payload![0u64, bar0, 4u32, 0u64]),
        ),
        (
            "multi, huge count",
            WRITE_MULTI,
            multi(u64::MAX, payload![0u64, bar0, 4u32, 0u64]),
        ),
        ("multi, wrapping count", WRITE_MULTI, multi(1 << 61, vec![])),
        (
            "multi, 9 bytes",
            WRITE_MULTI,
            multi(1, payload![0u64, bar0, 9u32, 0u64]),
        ),
        (
            "multi, huge size",
            WRITE_MULTI,
            multi(1, payload![0u64, bar0, !0u32, 0u64]),
        ),
        (
            "multi, end",
            WRITE_MULTI,
            multi(1, payload![BAR0_SIZE, bar0, 1u32, 0u64]),
        ),
    ] {
        assert_eq!(
            rig.client.call(command, &payload, &[]).unwrap_err(),
            Errno::INVAL,
            "{what}"
        );
        rig.client.ping();
    }
    let calls =
        rig.device.reads.load(Ordering::Relaxed) + rig.device.writes.load(Ordering::Relaxed);
    assert_eq!(calls, 0, "none of it reached the device");
    rig.finish().unwrap();
}

#[test]
fn unknown_header_flags_get_einval() {
    let mut rig = Rig::new();
    for flags in [0x20, 0x40, 0x8000_0000] {
        rig.client.post(RESET, flags, &[], &[]);
        assert_eq!(rig.client.receive().unwrap().error, 22);
    }
    assert_eq!(rig.device.resets.load(Ordering::Relaxed), 0);
    rig.finish().unwrap();
}

#[test]
fn commands_that_are_not_offered_get_enotsup() {
    let mut rig = Rig::new();
    let request = payload![16u32, 0u32, 0u32, 0u32];
    for command in [GET_REGION_IO_FDS, 11, 12, 14, 16, 17, 18] {
        assert_eq!(
            rig.client.call(command, &request, &[]).unwrap_err(),
            Errno::NOTSUP
        );
    }
    rig.finish().unwrap();

    let mut rig = Rig::silent();
    rig.client.negotiate("{}").unwrap();
    let request = payload![0u64];
    assert_eq!(
        rig.client.call(WRITE_MULTI, &request, &[]).unwrap_err(),
        Errno::NOTSUP
    );
    rig.finish().unwrap();
}

#[test]
fn read_only_region_gets_eperm() {
    let mut rig = Rig::new();
    let rom = index::region::ROM;
    assert_eq!(rig.client.write(rom, 0, &[0; 4]), Err(Errno::PERM));
    let multi = payload![1u64, 0u64, rom, 4u32, 0u64];
    assert_eq!(
        rig.client.call(WRITE_MULTI, &multi, &[]).unwrap_err(),
        Errno::PERM
    );
    rig.client.read(rom, 0, 4).unwrap();
    rig.finish().unwrap();
}

#[test]
fn malformed_multi_write_writes_nothing() {
    let mut rig = Rig::new();
    let good = payload![0u64, index::region::BAR0, 4u32, !0u64];
    let bad = payload![BAR0_SIZE, index::region::BAR0, 4u32, !0u64];
    let request = [payload![2u64], good, bad].concat();
    assert_eq!(
        rig.client.call(WRITE_MULTI, &request, &[]).unwrap_err(),
        Errno::INVAL
    );
    assert_eq!(rig.device.writes.load(Ordering::Relaxed), 0);
    rig.finish().unwrap();
}

#[test]
fn wrong_dma_maps_are_refused() {
    let mut rig = Rig::new();
    let file = memfd(0x4000);
    let fd = Some((file.as_fd(), 0));
    rig.client.map(0x10_000, 0x4000, 3, fd).unwrap();
    let with_offset = |offset| Some((file.as_fd(), offset));
    for (what, address, size, flags, fd, errno) in [
        ("same again", 0x10_000, 0x4000, 3, fd, Errno::EXIST),
        ("overlaps the start", 0xf000, 0x2000, 3, fd, Errno::EXIST),
        ("overlaps the end", 0x13_000, 0x2000, 3, fd, Errno::EXIST),
        ("inside", 0x11_000, 0x1000, 3, None, Errno::EXIST),
        ("around", 0, 0x40_000, 3, None, Errno::EXIST),
        ("empty", 0x20_000, 0, 3, fd, Errno::INVAL),
        ("no page", 0x20_000, 0x800, 3, fd, Errno::INVAL),
        ("unaligned", 0x20_800, 0x1000, 3, fd, Errno::INVAL),
        ("wraps", u64::MAX - 0xfff, 0x2000, 3, None, Errno::INVAL),
        ("unknown flag", 0x20_000, 0x1000, 4, fd, Errno::INVAL),
        ("file too short", 0x20_000, 0x5000, 3, fd, Errno::INVAL),
        (
            "beyond the file",
            0x20_000,
            0x1000,
            3,
            with_offset(0x4000),
            Errno::INVAL,
        ),
        (
            "unaligned in the file",
            0x20_000,
            0x1000,
            3,
            with_offset(0x10),
            Errno::INVAL,
        ),
        (
            "offset wraps",
            0x20_000,
            0x1000,
            3,
            with_offset(u64::MAX - 0xfff),
            Errno::INVAL,
        ),
        (
            "offset is negative",
            0x20_000,
            0x1000,
            3,
            with_offset(1 << 63),
            Errno::INVAL,
        ),
    ] {
        assert_eq!(
            rig.client.map(address, size, flags, fd),
            Err(errno),
            "{what}"
        );
    }
    // What is no file cannot be mapped.
    let (pipe, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(
        rig.client.map(0, 0x1000, 3, Some((pipe.as_fd(), 0))),
        Err(Errno::INVAL)
    );
    // A file that is open for reading only cannot be mapped for writing.
    let exe = std::fs::File::open("/proc/self/exe").unwrap();
    assert_eq!(
        rig.client.map(0, 0x1000, 3, Some((exe.as_fd(), 0))),
        Err(Errno::ACCESS)
    );
    rig.client
        .map(0, 0x1000, 1, Some((exe.as_fd(), 0)))
        .unwrap();
    // Huge pages cannot be mapped in pieces.
    let huge = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::HUGETLB;
    let huge = rustix::fs::memfd_create("huge", huge).unwrap();
    rustix::fs::ftruncate(&huge, 2 << 20).unwrap();
    let result = rig.client.map(1 << 32, 2 << 20, 3, Some((huge.as_fd(), 0)));
    assert_eq!(result, Err(Errno::NOTSUP));
    // Sizes of the structure.
    for payload in [
        payload![32u32, 3u32, 0u64, 0u64],
        payload![31u32, 3u32, 0u64, 0u64, 0x1000u64],
    ] {
        assert_eq!(
            rig.client.call(DMA_MAP, &payload, &[]).unwrap_err(),
            Errno::INVAL
        );
    }
    rig.finish().unwrap();
}

#[test]
fn wrong_dma_unmaps_are_refused_and_change_nothing() {
    let mut rig = Rig::new();
    let file = memfd(0x4000);
    rig.client
        .map(0x10_000, 0x4000, 3, Some((file.as_fd(), 0)))
        .unwrap();
    rig.client
        .map(0x20_000, 0x1000, 3, Some((file.as_fd(), 0)))
        .unwrap();
    let generation = rig.server.memory().generation();
    for (what, address, size, flags) in [
        ("the first half", 0x10_000, 0x2000, 0),
        ("the second half", 0x12_000, 0x2000, 0),
        ("the middle", 0x11_000, 0x1000, 0),
        ("one, and half of the other", 0x12_000, 0x10_000, 0),
        ("all but a byte", 0x10_001, u64::MAX - 0x10_001, 0),
        ("empty", 0x10_000, 0, 0),
        ("wraps", 0x10_000, u64::MAX, 0),
        ("dirty bitmap", 0x10_000, 0x4000, 1),
        ("unknown flag", 0x10_000, 0x4000, 4),
    ] {
        assert_eq!(
            rig.client.unmap(address, size, flags),
            Err(Errno::INVAL),
            "{what}"
        );
    }
    assert_eq!(rig.server.memory().generation(), generation);
    rig.client.unmap(0x10_000, 0x4000, 0).unwrap();
    rig.client.unmap(0, u64::MAX, 0).unwrap();
    rig.finish().unwrap();
}

#[test]
fn wrong_set_irqs_are_refused() {
    const NONE: u32 = 1 << 0;
    const BOOL: u32 = 1 << 1;
    const EVENTFD: u32 = 1 << 2;
    const MASK: u32 = 1 << 3;
    const TRIGGER: u32 = 1 << 5;
    let mut rig = Rig::new();
    let msix = index::irq::MSIX;
    let fds = |count: usize| (0..count).map(|_| eventfd()).collect::<Vec<OwnedFd>>();
    for (what, flags, irq, start, count, data, nfds) in [
        ("no action", NONE, msix, 0, 1, &[][..], 0),
        ("two actions", NONE | TRIGGER | MASK, msix, 0, 1, &[], 0),
        ("no data kind", TRIGGER, msix, 0, 1, &[], 0),
        ("two data kinds", NONE | BOOL | TRIGGER, msix, 0, 1, &[1], 0),
        (
            "unknown flag",
            NONE | TRIGGER | (1 << 6),
            msix,
            0,
            1,
            &[],
            0,
        ),
        ("type", NONE | TRIGGER, 5, 0, 1, &[], 0),
        ("type", NONE | TRIGGER, u32::MAX, 0, 0, &[], 0),
        ("start", NONE | TRIGGER, msix, VECTORS, 1, &[], 0),
        ("end", NONE | TRIGGER, msix, VECTORS - 1, 2, &[], 0),
        ("overflow", NONE | TRIGGER, msix, u32::MAX, u32::MAX, &[], 0),
        ("count -1", EVENTFD | TRIGGER, msix, 1, u32::MAX, &[], 0),
        (
            "nothing, but not of all",
            NONE | TRIGGER,
            msix,
            1,
            0,
            &[],
            0,
        ),
        ("nothing of booleans", BOOL | TRIGGER, msix, 0, 0, &[], 0),
        ("nothing of eventfds", EVENTFD | TRIGGER, msix, 0, 0, &[], 0),
        ("too few booleans", BOOL | TRIGGER, msix, 0, 2, &[1], 0),
        (
            "too many booleans",
            BOOL | TRIGGER,
            msix,
            0,
            2,
            &[1, 1, 1],
            0,
        ),
        (
            "data without a kind",
            NONE | TRIGGER,
            msix,
            0,
            2,
            &[1, 1],
            0,
        ),
        ("too few eventfds", EVENTFD | TRIGGER, msix, 0, 3, &[], 2),
        ("too many eventfds", EVENTFD | TRIGGER, msix, 0, 1, &[], 2),
        (
            "eventfds without a kind",
            NONE | TRIGGER,
            msix,
            0,
            1,
            &[],
            1,
        ),
        (
            "type without vectors",
            EVENTFD | TRIGGER,
            index::irq::MSI,
            0,
            1,
            &[],
            1,
        ),
        ("no masks", NONE | MASK, msix, 0, 1, &[], 0),
    ] {
        let result = rig
            .client
            .set_irqs(flags, irq, start, count, data, &fds(nfds));
        assert_eq!(result, Err(Errno::INVAL), "{what}");
    }
    assert_eq!(
        rig.client
            .call(SET_IRQS, &payload![20u32, 33u32, msix, 0u32], &[])
            .unwrap_err(),
        Errno::INVAL
    );
    rig.finish().unwrap();
}

#[test]
fn descriptors_that_are_not_wanted_are_closed() {
    let mut rig = Rig::new();
    // Held by the messages only; the name shows up in /proc/self/fd.
    let name = "unwanted-descriptor";
    let make = || rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let send = |rig: &mut Rig, command, payload: &[u8], count: usize| {
        let fds: Vec<_> = (0..count).map(|_| make()).collect();
        let borrowed: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        rig.client.call(command, payload, &borrowed).unwrap_err()
    };
    let info = payload![16u32, 0u32, 0u32, 0u32];
    let set = |count: u32| payload![20u32, 0x24u32, index::irq::MSIX, 0u32, count];
    assert_eq!(send(&mut rig, GET_INFO, &info, 1), Errno::INVAL);
    assert_eq!(send(&mut rig, 99, &[], 3), Errno::INVAL);
    assert_eq!(
        send(
            &mut rig,
            DMA_MAP,
            &payload![32u32, 3u32, 0u64, 0u64, 0x1000u64],
            2
        ),
        Errno::INVAL
    );
    assert_eq!(
        send(
            &mut rig,
            DMA_MAP,
            &payload![32u32, 3u32, 0u64, 0u64, 0x1000u64],
            1
        ),
        Errno::INVAL
    );
    assert_eq!(send(&mut rig, SET_IRQS, &set(16), 15), Errno::INVAL);
    assert_eq!(send(&mut rig, SET_IRQS, &set(17), 17), Errno::INVAL);
    assert_eq!(send(&mut rig, SET_IRQS, &set(20), 253), Errno::INVAL);
    rig.client.ping();
    assert_eq!(open_descriptors(name), 0);
    // A message that never becomes whole.
    let [fd] = [make()];
    rig.client.send_raw(&[0; 3], &[fd.as_fd()]).unwrap();
    drop(fd);
    assert!(rig.finish().is_err());
    assert_eq!(open_descriptors(name), 0);
}

#[test]
fn descriptors_may_come_with_any_byte_of_the_message() {
    let mut rig = Rig::new();
    let irq = eventfd();
    let payload = payload![20u32, 0x24u32, index::irq::MSIX, 0u32, 1u32];
    let mut message = rig.client.header(SET_IRQS, payload.len(), 0);
    message.extend(payload);
    rig.client.send_raw(&message[..20], &[]).unwrap();
    rig.client.send_raw(&message[20..], &[irq.as_fd()]).unwrap();
    assert_eq!(rig.client.receive().unwrap().error, 0);
    let interrupts = Arc::clone(rig.server.interrupts());
    assert_eq!(
        interrupts.fire(index::irq::MSIX, 0),
        vfu::Delivery::Delivered
    );
    assert_eq!(take(&irq), 1);
    rig.finish().unwrap();
}

#[test]
fn client_that_reads_no_replies_does_not_keep_the_server_from_stopping() {
    let rig = Rig::new();
    // More replies than the socket holds.
    let request = payload![0u64, index::region::BAR2, vfu::MAX_TRANSFER];
    let mut client = Client::over(rig.client.stream.try_clone().unwrap());
    for _ in 0..8 {
        client.post(REGION_READ, 0, &request, &[]);
    }
    while rig.device.reads.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    rig.server.stopper().stop();
    assert_eq!(rig.finish().unwrap(), vfu::End::Stopped);
}

#[test]
fn number_of_maps_is_bounded() {
    let memory = vfu::GuestMemory::new();
    for page in 0..vfu::MAX_DMA_MAPS as u64 {
        memory
            .map(page << 13, 0x1000, vfu::Access::READ, None)
            .unwrap();
    }
    let result = memory.map(u64::MAX - 0xfff, 0x1000, vfu::Access::READ, None);
    assert_eq!(result, Err(Errno::NOSPC));
    assert_eq!(memory.unmap(0, u64::MAX), Ok(vfu::MAX_DMA_MAPS));
}
