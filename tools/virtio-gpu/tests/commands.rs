// SPDX-License-Identifier: GPL-2.0
//! What commands do.

mod common;

use common::*;
use ochre_virtio_gpu::config::Capset;
use ochre_virtio_gpu::config::Config;
use ochre_virtio_gpu::gpu::stream;
use ochre_virtio_gpu::machine::Next;
use ochre_virtio_gpu::wire::feature::Features;
use ochre_virtio_gpu::wire::Cmd;
use ochre_virtio_gpu::wire::Resp;
use vfu::Memory;

use ochre_vfio_user as vfu;

#[test]
fn displays_edid_and_capsets_are_told() {
    let mut bench = Bench::new();
    assert_eq!(bench.ok(&command(Cmd::GetDisplayInfo, 0, &[])).len(), 384);
    let edid = bench.ok(&command(Cmd::GetEdid, 0, &bytes![0u32, 0u32]));
    assert_eq!(edid[8..16], [0, 255, 255, 255, 255, 255, 255, 0]);
    assert_eq!(bench.read(0x200c, 4), 3);
    let info = bench.ok(&command(Cmd::GetCapsetInfo, 0, &bytes![1u32, 0u32]));
    assert_eq!(info, bytes![2u32, 2u32, 1384u32, 0u32]);
    let data = bench.ok(&command(Cmd::GetCapset, 0, &bytes![2u32, 1u32]));
    assert_eq!(data.len(), 1384);
    assert!((0..1384).all(|at| data[at] == Capset::byte(2, 1, at)));
    bench.clean();
}

#[test]
fn texture_goes_to_the_host_and_comes_back_row_by_row() {
    let mut bench = Bench::new();
    bench.ok(&create_context(1));
    bench.ok(&create_3d(5, 8, 4, 1));
    // Pages in two pieces, the second one before the first.
    let (high, low) = (bench.alloc(4096), bench.alloc(4096));
    bench.ok(&attach(5, &[(low, 64), (high, 4096)]));
    let pattern: Vec<u8> = (0..255).collect();
    bench.poke(low, &pattern[..64]);
    bench.poke(high, &pattern[64..192]);
    // All of level 0: 8 x 4 pixels of 4 bytes.
    let all = Box3 {
        at: [0; 3],
        size: [8, 4, 1],
    };
    bench.ok(&transfer(Cmd::TransferToHost3d, 1, 5, &all, 0, 0, 0));
    assert_eq!(bench.machine.peek(5, 60), Some(0x3f3e_3d3c));
    assert_eq!(bench.machine.peek(5, 124), Some(0x7f7e_7d7c));
    // Two pixels of the last two rows, to a place with a stride of its own.
    let part = Box3 {
        at: [6, 2, 0],
        size: [2, 2, 1],
    };
    bench.ok(&transfer(Cmd::TransferFromHost3d, 1, 5, &part, 0, 1064, 16));
    assert_eq!(bench.peek(high + 1000, 8), (88..96).collect::<Vec<u8>>());
    assert_eq!(bench.peek(high + 1016, 8), (120..128).collect::<Vec<u8>>());
    // The next level is behind it: 4 x 2 pixels.
    let small = Box3 {
        at: [0; 3],
        size: [4, 2, 1],
    };
    bench.ok(&transfer(Cmd::TransferToHost3d, 1, 5, &small, 1, 64, 0));
    assert_eq!(bench.machine.peek(5, 128), Some(0x4342_4140));
    bench.clean();
}

#[test]
fn transfer_outside_fails_and_breaks_no_rule() {
    let mut bench = Bench::new();
    bench.ok(&create_context(1));
    bench.ok(&create_3d(5, 8, 4, 0));
    let page = bench.alloc(4096);
    bench.ok(&attach(5, &[(page, 4096)]));
    let wide = |at, size| Box3 { at, size };
    for (part, level, offset) in [
        (wide([0; 3], [9, 1, 1]), 0, 0u64),
        (wide([u32::MAX, 0, 0], [u32::MAX, 1, 1]), 0, 0),
        (wide([0; 3], [0, 1, 1]), 0, 0),
        (wide([0; 3], [1, 1, 2]), 0, 0),
        (wide([0; 3], [8, 4, 1]), 1, 0),
        (wide([0; 3], [8, 4, 1]), 0, 4000),
        (wide([0; 3], [8, 4, 1]), 0, u64::MAX),
    ] {
        let (kind, _) = bench.run(&transfer(
            Cmd::TransferToHost3d,
            1,
            5,
            &part,
            level,
            offset,
            0,
        ));
        assert_eq!(kind, Resp::ErrParameter.code());
    }
    bench.clean();
}

#[test]
fn stream_writes_a_resource_of_its_context_only() {
    let mut bench = Bench::new();
    bench.ok(&create_context(1));
    bench.ok(&create_3d(5, 8, 4, 0));
    let store = submit(1, &[stream::NOP, stream::WRITE, 5, 8, 77]);
    assert_eq!(bench.run(&store).0, Resp::ErrResource.code());
    bench.ok(&on_resource(Cmd::CtxAttachResource, 1, 5));
    bench.ok(&store);
    assert_eq!(bench.machine.peek(5, 8), Some(77));
    let outside = submit(1, &[stream::WRITE, 5, 128, 77]);
    assert_eq!(bench.run(&outside).0, Resp::ErrParameter.code());
    let fail = submit(1, &[stream::FAIL, 0x1201]);
    assert_eq!(bench.run(&fail).0, Resp::ErrOutOfMemory.code());
    for wrong in [&[99][..], &[stream::WRITE, 5], &[stream::DELAY]] {
        assert_eq!(bench.run(&submit(1, wrong)).0, Resp::ErrParameter.code());
    }
    bench.ok(&submit(1, &[]));
    bench.clean();
}

#[test]
fn fences_signal_in_the_order_of_their_timeline() {
    let mut bench = Bench::new();
    bench.ok(&create_context(1));
    let delay = |ms| submit(1, &[stream::DELAY, ms]);
    let slow = bench.post(&fenced(delay(100), 1, None), 64);
    let behind = bench.post(&fenced(delay(0), 2, None), 64);
    let beside = bench.post(&fenced(delay(10), 3, Some(0)), 64);
    let without = bench.post(&delay(0), 64);
    bench.settle();
    assert_eq!(bench.answer(without).unwrap().0.kind, Resp::OkNodata.code());
    assert!(bench.take_used().is_none());
    bench.wait(10);
    let (header, _) = bench.answer(beside).unwrap();
    assert_eq!((header.fence_id, header.ctx_id, header.ring_idx), (3, 1, 0));
    assert_eq!(header.flags, 3);
    bench.wait(89);
    assert!(bench.take_used().is_none());
    bench.wait(1);
    assert_eq!(bench.answer(slow).unwrap().0.fence_id, 1);
    assert_eq!(bench.answer(behind).unwrap().0.fence_id, 2);
    bench.clean();
}

#[test]
fn blob_is_seen_through_the_window_and_keeps_what_was_written() {
    let mut bench = Bench::new();
    bench.ok(&create_context(1));
    bench.ok(&create_blob(1, 9, 2, 1, 8192, &[]));
    bench.ok(&on_resource(Cmd::CtxAttachResource, 1, 9));
    bench.ok(&submit(1, &[stream::WRITE, 9, 4096, 0x1234]));
    let info = bench.ok(&map(9, 0x10000));
    assert_eq!(info, bytes![1u32, 0u32]);
    assert_eq!(bench.window.load::<u32>(0x11000).unwrap(), 0x1234);
    // From either side while it is mapped.
    bench.window.store::<u32>(0x10004, 5).unwrap();
    assert_eq!(bench.machine.peek(9, 4), Some(5));
    bench.ok(&submit(1, &[stream::WRITE, 9, 0, 6]));
    assert_eq!(bench.window.load::<u32>(0x10000).unwrap(), 6);
    bench.ok(&on_resource(Cmd::UnmapBlob, 0, 9));
    bench.window.store::<u32>(0x10004, 0).unwrap();
    assert_eq!(bench.machine.peek(9, 4), Some(5));
    // A new one there does not see the old one's bytes.
    bench.ok(&create_blob(1, 10, 2, 1, 4096, &[]));
    bench.ok(&map(10, 0x10000));
    assert_eq!(bench.window.load::<u32>(0x10000).unwrap(), 0);
    bench.ok(&on_resource(Cmd::UnmapBlob, 0, 10));
    bench.ok(&on_resource(Cmd::ResourceUnref, 0, 10));
    bench.ok(&on_resource(Cmd::ResourceUnref, 0, 9));
    assert_eq!(bench.machine.gpu.live(), [0, 1, 0, 0]);
    bench.clean();
}

#[test]
fn guest_blob_is_the_guests_memory() {
    let mut bench = Bench::new();
    let page = bench.alloc(4096);
    bench.ok(&create_context(1));
    bench.ok(&create_blob(0, 9, 1, 0, 4096, &[(page, 4096)]));
    bench.ok(&on_resource(Cmd::CtxAttachResource, 1, 9));
    bench.ok(&submit(1, &[stream::WRITE, 9, 100, 42]));
    assert_eq!(bench.peek(page + 100, 4), [42, 0, 0, 0]);
    bench.poke(page + 8, &[1, 2, 3, 4]);
    assert_eq!(bench.machine.peek(9, 8), Some(0x0403_0201));
    bench.clean();
}

#[test]
fn resources_get_a_uuid() {
    let mut bench = Bench::new();
    bench.ok(&create_3d(5, 8, 4, 0));
    let uuid = bench.ok(&on_resource(Cmd::AssignUuid, 0, 5));
    assert_eq!(uuid.len(), 16);
    bench.clean();
}

#[test]
fn memory_on_the_hosts_side_has_a_limit() {
    let mut bench = Bench::with(Config {
        memory: 1 << 20,
        ..Config::default()
    });
    for id in 1..=4 {
        bench.ok(&create_3d(id, 256, 256, 0));
    }
    let (kind, _) = bench.run(&create_3d(6, 1, 1, 0));
    assert_eq!(kind, Resp::ErrOutOfMemory.code());
    bench.ok(&on_resource(Cmd::ResourceUnref, 0, 1));
    bench.ok(&create_3d(6, 256, 256, 0));
    for (width, height) in [(u32::MAX, u32::MAX), (1 << 31, 1 << 31)] {
        assert!(bench.run(&create_3d(7, width, height, 0)).0 >= Resp::ErrUnspec.code());
    }
    bench.clean();
}

#[test]
fn interrupt_comes_when_the_driver_asks_for_one() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        bench.ok(&command(Cmd::GetDisplayInfo, 0, &[]));
    }
    assert_eq!(*bench.sent.0.lock().unwrap(), [1, 1, 1]);
    // The event index is far ahead: no interrupt.
    bench.poke(bench.avail + 4 + 2 * u64::from(SIZE), &100u16.to_le_bytes());
    bench.ok(&command(Cmd::GetDisplayInfo, 0, &[]));
    assert_eq!(bench.sent.0.lock().unwrap().len(), 3);
    bench.clean();
}

#[test]
fn pin_is_raised_until_the_status_is_read() {
    let mut bench = Bench::with(Config {
        msix: false,
        features: Config::default().features - Features::EVENT_IDX,
        ..Config::default()
    });
    bench.machine.irq.set_messages(false);
    bench.ok(&command(Cmd::GetDisplayInfo, 0, &[]));
    assert_eq!(*bench.sent.0.lock().unwrap(), [-1]);
    bench.machine.irq.raise_again();
    assert_eq!(bench.sent.0.lock().unwrap().len(), 2);
    assert_eq!(bench.read(0x1000, 1), 1);
    assert_eq!(bench.read(0x1000, 1), 0);
    bench.machine.irq.raise_again();
    assert_eq!(bench.sent.0.lock().unwrap().len(), 2);
    bench.clean();
}

#[test]
fn commands_can_be_in_an_indirect_table() {
    let mut bench = Bench::new();
    let (table, response) = (bench.alloc(4096), bench.alloc(4096));
    let request = bench.alloc(4096);
    bench.poke(request, &command(Cmd::GetDisplayInfo, 0, &[]));
    // The header in two pieces.
    bench.poke(table, &bytes![request, 10u32, 1u16, 2u16]);
    bench.poke(table + 16, &bytes![response, 4096u32, 2u16, 0u16]);
    bench.poke(table + 32, &bytes![request + 10, 14u32, 1u16, 1u16]);
    bench.descriptor(3, table, 48, 4, 0);
    bench.publish(3);
    bench.notify();
    bench.settle();
    assert_eq!(bench.take_used(), Some((3, 408)));
    bench.clean();
}

#[test]
fn reset_forgets_everything_and_the_device_works_again() {
    let mut bench = Bench::new();
    bench.ok(&create_context(1));
    bench.ok(&create_3d(5, 8, 4, 0));
    bench.post(&submit(1, &[stream::DELAY, 1000]), 64);
    assert!(matches!(bench.settle(), Next::At(_)));
    bench.start(Config::default().features);
    assert_eq!(bench.machine.gpu.live(), [0; 4]);
    bench.wait(2000);
    assert!(bench.take_used().is_none());
    bench.ok(&create_context(1));
    bench.clean();
}

#[test]
fn version_1_and_access_platform_have_to_be_accepted() {
    let features = Config::default().features | Features::ACCESS_PLATFORM;
    let config = Config {
        features,
        ..Config::default()
    };
    for (accepted, ok) in [
        (features, true),
        (features - Features::ACCESS_PLATFORM, false),
        (features - Features::VERSION_1, false),
        (features - Features::VIRGL, true),
    ] {
        let mut bench = Bench::cold(config.clone());
        bench.negotiate(accepted);
        assert_eq!(bench.status() & 8 != 0, ok);
        bench.clean();
    }
}
