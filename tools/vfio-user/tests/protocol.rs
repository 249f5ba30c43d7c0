// SPDX-License-Identifier: GPL-2.0
//! Every command as a well-behaved client sends it.

mod common;

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread;

use common::*;
use ochre_vfio_user as vfu;
use vfu::index;
use vfu::Delivery;
use vfu::Errno;
use vfu::Memory;

const NONE: u32 = 1 << 0;
const BOOL: u32 = 1 << 1;
const EVENTFD: u32 = 1 << 2;
const MASK: u32 = 1 << 3;
const UNMASK: u32 = 1 << 4;
const TRIGGER: u32 = 1 << 5;

#[test]
fn version_reply_fits_where_qemu_puts_it() {
    let mut rig = Rig::silent();
    let reply = rig.client.negotiate(QEMU_CAPABILITIES).unwrap();
    // QEMU receives the reply into the buffer of its request.
    assert!(reply.payload.len() <= 4 + QEMU_CAPABILITIES.len() + 1);
    assert_eq!(reply.payload[..4], [0; 4]);
    let text = std::str::from_utf8(&reply.payload[4..]).unwrap();
    for part in [
        "\"max_msg_fds\":16",
        "\"write_multiple\":true",
        "\"pgsizes\":4096",
    ] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    assert!(text.ends_with("}}\0"));
    rig.client.ping();
    assert_eq!(rig.device.connects.load(Ordering::Relaxed), 1);
    assert_eq!(rig.finish().unwrap(), vfu::End::Disconnected);
}

#[test]
fn region_info_describes_a_trapped_region() {
    let mut rig = Rig::new();
    let request = payload![32u32, 0u32, index::region::BAR0, 0u32, 0u64, 0u64];
    let reply = rig.client.call(GET_REGION_INFO, &request, &[]).unwrap();
    let expected = payload![32u32, 3u32, index::region::BAR0, 0u32, BAR0_SIZE, 0u64];
    assert_eq!(reply.payload, expected);
    assert!(reply.fds.is_empty());
    rig.finish().unwrap();
}

#[test]
fn region_info_offers_a_mapping_with_its_areas() {
    let mut rig = Rig::new();
    let request = |argsz: u32| payload![argsz, 0u32, index::region::BAR2, 0u32, 0u64, 0u64];

    // Too small for the capability: the reply says how much it takes.
    let reply = rig.client.call(GET_REGION_INFO, &request(32), &[]).unwrap();
    assert_eq!(reply.payload.len(), 32);
    let needed = reply.u32(0);
    assert_eq!(
        (needed, reply.u32(4), reply.u32(12)),
        (32 + 16 + 2 * 16, 0xf, 32)
    );

    let reply = rig
        .client
        .call(GET_REGION_INFO, &request(needed), &[])
        .unwrap();
    let expected = payload![
        needed,
        0xfu32,
        index::region::BAR2,
        32u32,
        VRAM_SIZE,
        0u64, // info
        1u16,
        1u16,
        0u32,
        2u32,
        0u32, // sparse mmap capability
        0x1000u64,
        0x1000u64,
        0x8000u64,
        VRAM_SIZE - 0x8000, // areas
    ];
    assert_eq!(reply.payload, expected);

    // The descriptor is the memory itself.
    let [fd] = &reply.fds[..] else {
        panic!("one descriptor")
    };
    let client = vfu::Mapping::new(fd.as_fd(), 0, VRAM_SIZE, vfu::Access::READ).unwrap();
    rig.vram.store(0x8000, 0x1234_5678u32).unwrap();
    assert_eq!(client.load::<u32>(0x8000), Ok(0x1234_5678));

    // Without a list of its own a region gets one area that covers it.
    let request = payload![64u32, 0u32, index::region::BAR3, 0u32, 0u64, 0u64];
    let reply = rig.client.call(GET_REGION_INFO, &request, &[]).unwrap();
    assert_eq!(reply.payload[40..], payload![1u32, 0u32, 0u64, VRAM_SIZE]);
    rig.finish().unwrap();
}

#[test]
fn client_cannot_truncate_the_memory_it_maps() {
    let mut rig = Rig::new();
    let request = payload![64u32, 0u32, index::region::BAR3, 0u32, 0u64, 0u64];
    let reply = rig.client.call(GET_REGION_INFO, &request, &[]).unwrap();
    assert_eq!(rustix::fs::ftruncate(&reply.fds[0], 0), Err(Errno::PERM));
    rig.finish().unwrap();
}

#[test]
fn client_without_descriptors_is_offered_no_mapping() {
    let mut rig = Rig::silent();
    rig.client
        .negotiate(r#"{"capabilities":{"max_msg_fds":0}}"#)
        .unwrap();
    let request = payload![64u32, 0u32, index::region::BAR3, 0u32, 0u64, 0u64];
    let reply = rig.client.call(GET_REGION_INFO, &request, &[]).unwrap();
    assert_eq!(
        reply.payload,
        payload![32u32, 3u32, 3u32, 0u32, VRAM_SIZE, 0u64]
    );
    assert!(reply.fds.is_empty());
    rig.finish().unwrap();
}

#[test]
fn irq_info_describes_each_type() {
    let mut rig = Rig::new();
    for (index, flags, count) in [
        (index::irq::INTX, 3, 1),
        (index::irq::MSI, 0, 0),
        (index::irq::MSIX, 1, VECTORS),
    ] {
        let request = payload![16u32, 0u32, index, 0u32];
        let reply = rig.client.call(GET_IRQ_INFO, &request, &[]).unwrap();
        assert_eq!(reply.payload, payload![16u32, flags as u32, index, count]);
    }
    rig.finish().unwrap();
}

#[test]
fn regions_are_read_and_written() {
    let mut rig = Rig::new();
    let client = &mut rig.client;
    client
        .write(index::region::BAR0, 0x10, &[1, 2, 3, 4])
        .unwrap();
    assert_eq!(
        client.read(index::region::BAR0, 0x0f, 6),
        Ok(vec![0, 1, 2, 3, 4, 0])
    );
    assert_eq!(client.read(index::region::CONFIG, 0, 2), Ok(vec![0xa5; 2]));
    // The last byte, and the whole region.
    client
        .write(index::region::BAR0, BAR0_SIZE - 1, &[9])
        .unwrap();
    let all = client
        .read(index::region::BAR0, 0, BAR0_SIZE as u32)
        .unwrap();
    assert_eq!((all.len() as u64, all[0x3fff]), (BAR0_SIZE, 9));
    // The device's own errors arrive as they are.
    assert_eq!(client.read(index::region::BAR4, 0, 4), Err(Errno::IO));
    assert_eq!(
        client.write(index::region::BAR4, 0, &[0; 4]),
        Err(Errno::IO)
    );
    rig.finish().unwrap();
}

#[test]
fn largest_transfer_goes_through() {
    let mut rig = Rig::new();
    let data: Vec<u8> = (0..vfu::MAX_TRANSFER).map(|i| i as u8).collect();
    rig.client.write(index::region::BAR2, 0, &data).unwrap();
    let read = rig
        .client
        .read(index::region::BAR2, 0, vfu::MAX_TRANSFER)
        .unwrap();
    assert_eq!(read, vec![0xa5; data.len()]);
    rig.finish().unwrap();
}

#[test]
fn posted_writes_are_done_in_order_and_not_answered() {
    let mut rig = Rig::new();
    for i in 0..1000u32 {
        let payload = payload![0x20u64, index::region::BAR0, 4u32, i];
        rig.client.post(REGION_WRITE, 0x10, &payload, &[]);
    }
    // Errors of posted messages are not answered either.
    rig.client.post(
        REGION_WRITE,
        0x10,
        &payload![BAR0_SIZE, 0u32, 4u32, 0u32],
        &[],
    );
    let read = rig.client.read(index::region::BAR0, 0x20, 4).unwrap();
    assert_eq!(read, 999u32.to_le_bytes());
    assert_eq!(rig.device.writes.load(Ordering::Relaxed), 1000);
    rig.finish().unwrap();
}

#[test]
fn several_writes_come_in_one_message() {
    let mut rig = Rig::new();
    let mut request = payload![3u64];
    for (offset, count, data) in [
        (0u64, 4u32, 0x11u64),
        (8, 8, 0x2222_2222_2222),
        (16, 1, 0x33),
    ] {
        request.extend(payload![offset, index::region::BAR0, count, data]);
    }
    let reply = rig.client.call(WRITE_MULTI, &request, &[]).unwrap();
    assert_eq!(reply.payload, payload![3u64]);
    let read = rig.client.read(index::region::BAR0, 0, 24).unwrap();
    assert_eq!(read, payload![0x11u64, 0x2222_2222_2222u64, 0x33u64]);
    rig.finish().unwrap();
}

#[test]
fn dma_maps_make_the_clients_memory_readable_and_writable() {
    let mut rig = Rig::new();
    let file = memfd(0x10_000);
    // Three neighbours, the middle one from another part of the file; one without a descriptor.
    rig.client
        .map(0x1000, 0x1000, 3, Some((file.as_fd(), 0)))
        .unwrap();
    rig.client
        .map(0x2000, 0x1000, 3, Some((file.as_fd(), 0x8000)))
        .unwrap();
    rig.client
        .map(0x3000, 0x1000, 1, Some((file.as_fd(), 0x1000)))
        .unwrap();
    rig.client.map(0x4000, 0x1000, 3, None).unwrap();
    let top = u64::MAX - 0xfff;
    rig.client
        .map(top, 0x1000, 3, Some((file.as_fd(), 0x2000)))
        .unwrap();

    let memory = Arc::clone(rig.server.memory());
    let view = memory.view();
    assert_eq!(view.load::<u32>(0x1004), Ok(1));
    assert_eq!(view.load::<u32>(0x2004), Ok(0x2001));
    assert_eq!(view.load::<u32>(top + 0xffc), Ok(0xbff));
    // Across the pieces, at an odd address.
    let mut bytes = [0; 0x2002];
    view.read(0x1fff, &mut bytes[..0x1002]).unwrap();
    assert_eq!(bytes[1..5], 0x2000u32.to_le_bytes());
    assert_eq!(bytes[0x1001], 0, "the first byte of the third piece");
    view.write(0x1ffe, &[0xaa, 0xbb, 0xcc, 0xdd]).unwrap();
    let own = vfu::Mapping::new(file.as_fd(), 0, 0x10_000, vfu::Access::READ).unwrap();
    assert_eq!(
        (own.load::<u16>(0xffe), own.load::<u16>(0x8000)),
        (Ok(0xbbaa), Ok(0xddcc))
    );

    use vfu::MemoryError::*;
    assert_eq!(view.load::<u32>(0x5000), Err(Unmapped { address: 0x5000 }));
    assert_eq!(view.load::<u32>(0x4ffc), Err(NoBacking { address: 0x4ffc }));
    assert_eq!(view.store(0x3000, 1u32), Err(Denied { address: 0x3000 }));
    assert_eq!(view.check(0x1000, 0x3000, vfu::Access::READ), Ok(()));
    let both = vfu::Access::READ | vfu::Access::WRITE;
    assert_eq!(
        view.check(0x1000, 0x3000, both),
        Err(Denied { address: 0x3000 })
    );
    assert_eq!(view.check(top, 0x1001, vfu::Access::READ), Err(Overflow));
    drop(view);
    rig.finish().unwrap();
}

#[test]
fn unmap_removes_whole_pieces_and_all_of_them() {
    let mut rig = Rig::new();
    let file = memfd(0x4000);
    for page in 0..4 {
        rig.client
            .map(page << 12, 0x1000, 3, Some((file.as_fd(), page << 12)))
            .unwrap();
    }
    let memory = Arc::clone(rig.server.memory());
    let mapped = || {
        (0..4)
            .map(|page| memory.view().load::<u8>(page << 12).is_ok())
            .collect::<Vec<_>>()
    };
    rig.client.unmap(0x1000, 0x2000, 0).unwrap();
    assert_eq!(mapped(), [true, false, false, true]);
    // Nothing there is no error, and a range may be as large as the address space allows.
    rig.client.unmap(0x1000, 0x2000, 0).unwrap();
    rig.client.unmap(0x1000, u64::MAX - 0xfff, 0).unwrap();
    assert_eq!(mapped(), [true, false, false, false]);
    rig.client
        .map(0x3000, 0x1000, 3, Some((file.as_fd(), 0)))
        .unwrap();
    rig.client.unmap(0, 0, 2).unwrap();
    assert_eq!(mapped(), [false; 4]);
    rig.finish().unwrap();
}

#[test]
fn unmap_waits_for_the_views_to_go() {
    let mut rig = Rig::new();
    let file = memfd(0x1000);
    rig.client
        .map(0, 0x1000, 3, Some((file.as_fd(), 0)))
        .unwrap();
    let memory = Arc::clone(rig.server.memory());
    let view = memory.view();
    let page = view.page(0x10).unwrap();
    assert_eq!(view.page_load::<u32>(&page, 4), Ok(1));

    rig.client
        .post(DMA_UNMAP, 0, &payload![24u32, 0u32, 0u64, 0x1000u64], &[]);
    while !memory.change_pending() {
        thread::yield_now();
    }
    // The map stands still for the view, however long the server waits.
    assert_eq!(view.page_load::<u32>(&page, 8), Ok(2));
    assert_eq!(view.load::<u32>(0x10), Ok(4));
    drop(view);
    rig.client.receive().unwrap();

    let view = memory.view();
    assert_eq!(
        view.page_load::<u32>(&page, 4),
        Err(vfu::MemoryError::Stale)
    );
    assert_eq!(
        view.load::<u32>(0),
        Err(vfu::MemoryError::Unmapped { address: 0 })
    );
    assert_eq!(view.generation(), memory.generation());
    drop(view);
    rig.finish().unwrap();
}

#[test]
fn interrupts_reach_their_eventfds() {
    let mut rig = Rig::new();
    let interrupts = Arc::clone(rig.server.interrupts());
    let fds: Vec<_> = (0..16).map(|_| eventfd()).collect();
    let msix = index::irq::MSIX;
    assert_eq!(interrupts.fire(msix, 3), Delivery::Unassigned);
    assert_eq!(interrupts.fire(msix, VECTORS), Delivery::NoSuchVector);
    assert_eq!(interrupts.fire(17, 0), Delivery::NoSuchVector);

    rig.client
        .set_irqs(EVENTFD | TRIGGER, msix, 2, 16, &[], &fds)
        .unwrap();
    assert_eq!(interrupts.fire(msix, 3), Delivery::Delivered);
    assert_eq!(interrupts.fire(msix, 3), Delivery::Delivered);
    assert_eq!(interrupts.fire(msix, 17), Delivery::Delivered);
    assert_eq!(interrupts.fire(msix, 1), Delivery::Unassigned);
    assert_eq!(interrupts.fire(msix, 18), Delivery::Unassigned);
    let counts: Vec<_> = fds.iter().map(take).collect();
    assert_eq!(counts, [0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

    // The client's own triggers: all of a range, and a choice.
    rig.client
        .set_irqs(NONE | TRIGGER, msix, 2, 2, &[], &[])
        .unwrap();
    rig.client
        .set_irqs(BOOL | TRIGGER, msix, 2, 3, &[1, 0, 1], &[])
        .unwrap();
    assert_eq!(fds[..3].iter().map(take).collect::<Vec<_>>(), [2, 1, 1]);

    // An eventfd whose counter is full is pending already, and does not block.
    let full = eventfd();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    rig.client
        .set_irqs(EVENTFD | TRIGGER, msix, 0, 1, &[], &[full])
        .unwrap();
    assert_eq!(interrupts.fire(msix, 0), Delivery::Delivered);

    // Taken away: two of them, then all.
    rig.client
        .set_irqs(EVENTFD | TRIGGER, msix, 2, 2, &[], &[])
        .unwrap();
    assert_eq!(interrupts.fire(msix, 3), Delivery::Unassigned);
    assert_eq!(interrupts.fire(msix, 4), Delivery::Delivered);
    rig.client
        .set_irqs(NONE | TRIGGER, msix, 0, 0, &[], &[])
        .unwrap();
    assert_eq!(interrupts.fire(msix, 4), Delivery::Unassigned);
    // Also for a type without vectors, as QEMU does.
    rig.client
        .set_irqs(NONE | TRIGGER, index::irq::MSI, 0, 0, &[], &[])
        .unwrap();
    rig.finish().unwrap();
}

#[test]
fn masked_interrupt_is_delivered_when_the_mask_goes() {
    let mut rig = Rig::new();
    let interrupts = Arc::clone(rig.server.interrupts());
    let intx = index::irq::INTX;
    let [trigger, masked, unmasked] = [eventfd(), eventfd(), eventfd()];
    let dup = |fd: &std::os::fd::OwnedFd| [fd.try_clone().unwrap()];
    rig.client
        .set_irqs(EVENTFD | TRIGGER, intx, 0, 1, &[], &dup(&trigger))
        .unwrap();
    rig.client
        .set_irqs(EVENTFD | MASK, intx, 0, 1, &[], &dup(&masked))
        .unwrap();
    rig.client
        .set_irqs(EVENTFD | UNMASK, intx, 0, 1, &[], &dup(&unmasked))
        .unwrap();

    rig.client
        .set_irqs(NONE | MASK, intx, 0, 1, &[], &[])
        .unwrap();
    assert_eq!((take(&masked), take(&unmasked)), (1, 0));
    assert_eq!(interrupts.fire(intx, 0), Delivery::Masked);
    assert!(interrupts.pending(intx, 0));
    assert_eq!(take(&trigger), 0);

    rig.client
        .set_irqs(BOOL | UNMASK, intx, 0, 1, &[0], &[])
        .unwrap();
    assert!(
        interrupts.pending(intx, 0),
        "the boolean says: not this one"
    );
    rig.client
        .set_irqs(BOOL | UNMASK, intx, 0, 1, &[1], &[])
        .unwrap();
    assert_eq!((take(&masked), take(&unmasked), take(&trigger)), (0, 1, 1));
    assert!(!interrupts.pending(intx, 0));
    rig.finish().unwrap();
}

#[test]
fn reset_reaches_the_device() {
    let mut rig = Rig::new();
    let reply = rig.client.call(RESET, &[], &[]).unwrap();
    assert!(reply.payload.is_empty());
    assert_eq!(rig.device.resets.load(Ordering::Relaxed), 1);
    rig.finish().unwrap();
}

#[test]
fn commands_are_pipelined() {
    let mut rig = Rig::new();
    for i in 0..100u64 {
        rig.client
            .post(REGION_READ, 0, &payload![i, index::region::BAR0, 1u32], &[]);
    }
    for i in 0..100u64 {
        assert_eq!(rig.client.receive().unwrap().u64(0), i);
    }
    rig.finish().unwrap();
}

#[test]
fn message_may_arrive_byte_by_byte() {
    let mut rig = Rig::new();
    let mut message = rig.client.header(REGION_WRITE, 20, 0);
    message.extend(payload![0u64, index::region::BAR0, 4u32, 0xabcdu32]);
    for byte in &message {
        rig.client.send_raw(&[*byte], &[]).unwrap();
    }
    assert_eq!(rig.client.receive().unwrap().error, 0);
    assert_eq!(rig.client.read(0, 0, 2), Ok(vec![0xcd, 0xab]));
    rig.finish().unwrap();
}

#[test]
fn disconnect_takes_maps_and_interrupts_away() {
    let mut rig = Rig::new();
    let (file, irq) = (memfd(0x1000), eventfd());
    rig.client
        .map(0, 0x1000, 3, Some((file.as_fd(), 0)))
        .unwrap();
    let dup = [irq.try_clone().unwrap()];
    rig.client
        .set_irqs(EVENTFD | TRIGGER, index::irq::MSIX, 0, 1, &[], &dup)
        .unwrap();
    let (memory, interrupts) = (
        Arc::clone(rig.server.memory()),
        Arc::clone(rig.server.interrupts()),
    );
    assert_eq!(interrupts.fire(index::irq::MSIX, 0), Delivery::Delivered);
    assert_eq!(rig.finish().unwrap(), vfu::End::Disconnected);
    assert_eq!(interrupts.fire(index::irq::MSIX, 0), Delivery::Unassigned);
    assert!(memory.view().load::<u8>(0).is_err());
}

#[test]
fn stop_ends_a_session_that_waits_for_its_client() {
    for silent in [true, false] {
        let rig = if silent { Rig::silent() } else { Rig::new() };
        // The client's end stays open, so that only the stop can end it.
        let _open = rig.client.stream.try_clone().unwrap();
        rig.server.stopper().stop();
        assert_eq!(rig.finish().unwrap(), vfu::End::Stopped);
    }
}

#[test]
fn server_takes_one_client_after_the_other_until_stopped() {
    let folder = std::env::temp_dir().join(format!("vfio-user-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("socket");
    let vram = Arc::new(vfu::SharedMemory::new("vram", VRAM_SIZE).unwrap());

    // A live server's socket is not taken, a dead one's is, and a plain file is not.
    let server = Arc::new(vfu::Server::bind(&path, info(&vram)).unwrap());
    assert!(matches!(
        vfu::Server::bind(&path, info(&vram)),
        Err(vfu::ServerError::Bind { source, .. }) if source.kind() == std::io::ErrorKind::AddrInUse
    ));
    let dead = folder.join("dead");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    drop(vfu::Server::bind(&dead, info(&vram)).unwrap());
    assert!(!dead.exists(), "the socket file goes with its server");
    let plain = folder.join("plain");
    std::fs::write(&plain, "precious").unwrap();
    assert!(vfu::Server::bind(&plain, info(&vram)).is_err());
    assert_eq!(std::fs::read(&plain).unwrap(), b"precious");

    let device = Arc::new(TestDevice::new());
    let thread = {
        let (server, device) = (Arc::clone(&server), Arc::clone(&device));
        thread::spawn(move || server.serve(&*device, vfu::Serve::UntilStopped))
    };
    // The second one misbehaves; the third does not notice. The first is the probe of `bind` above.
    for behave in [true, false, true] {
        let mut client = Client::over(UnixStream::connect(&path).unwrap());
        if behave {
            client.negotiate("{}").unwrap();
            client.write(0, 0, &[7]).unwrap();
        } else {
            client.send_raw(&[0xff; 64], &[]).unwrap();
            let _ = client.receive();
        }
    }
    let mut client = Client::over(UnixStream::connect(&path).unwrap());
    client.negotiate("{}").unwrap();
    assert_eq!(
        client.read(0, 0, 1),
        Ok(vec![7]),
        "the device keeps its state"
    );
    server.stopper().stop();
    thread.join().unwrap().unwrap();
    assert!(client.receive().is_err(), "disconnected");
    drop(server);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn impossible_devices_are_refused() {
    let vram = Arc::new(vfu::SharedMemory::new("vram", VRAM_SIZE).unwrap());
    let region = || vfu::Region::mapped(VRAM_SIZE, Arc::clone(&vram));
    let area = |offset, size| vfu::MapArea { offset, size };
    let try_region =
        |region| vfu::Server::detached(vfu::DeviceInfo::pci().with_region(2, region)).map(drop);
    try_region(region()).unwrap();
    for bad in [
        region().at_file_offset(0x1000),
        region().at_file_offset(1),
        vfu::Region::mapped(VRAM_SIZE + 0x1000, Arc::clone(&vram)),
        vfu::Region::mapped(0, Arc::clone(&vram)),
        region().with_areas(vec![]),
        region().with_areas(vec![area(0, VRAM_SIZE + 0x1000)]),
        region().with_areas(vec![area(VRAM_SIZE, 0x1000)]),
        region().with_areas(vec![area(u64::MAX - 0xfff, 0x1000)]),
        region().with_areas(vec![area(0, 0)]),
        region().with_areas(vec![area(0x10, 0x1000)]),
        region().with_areas(vec![area(0, 0x2000), area(0x1000, 0x1000)]),
    ] {
        assert!(matches!(try_region(bad), Err(vfu::ServerError::Info(_))));
    }
    let info = vfu::DeviceInfo::pci().with_irq(2, vfu::Irq::msix(4096));
    assert!(vfu::Server::detached(info).is_err());
    let info = vfu::DeviceInfo::pci().with_region(u32::MAX, vfu::Region::io(8));
    assert!(vfu::Server::detached(info).is_err());
}
