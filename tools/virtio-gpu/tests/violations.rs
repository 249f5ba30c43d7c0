// SPDX-License-Identifier: GPL-2.0
//! Each rule has a way to break it, and is then counted; what is near it is not.

mod common;

use common::*;
use ochre_virtio_gpu::config::Config;
use ochre_virtio_gpu::gpu::stream;
use ochre_virtio_gpu::judge::Rule;
use ochre_virtio_gpu::wire::feature::Features;
use ochre_virtio_gpu::wire::Cmd;
use ochre_virtio_gpu::wire::Resp;

/// Checks that exactly these rules were broken, and forgets them.
fn expect(bench: &mut Bench, rules: &[Rule]) {
    let names: Vec<&str> = rules.iter().map(|rule| rule.name()).collect();
    assert_eq!(bench.violations(), names);
    bench.machine.judge.clear();
}

/// Runs a command that has to fail and to break one rule.
fn breaks(bench: &mut Bench, command: &[u8], rule: Rule) {
    let (kind, body) = bench.run(command);
    assert!(kind >= Resp::ErrUnspec.code(), "{kind:#x}");
    assert!(body.is_empty());
    expect(bench, &[rule]);
}

#[test]
fn registers_are_judged() {
    let mut bench = Bench::new();
    bench.read(0x200, 4);
    bench.write(0x800, &[0; 4]);
    bench.read(0x2014, 4);
    expect(&mut bench, &[Rule::RegUnknown; 3]);
    bench.read(20, 4);
    bench.read(18, 1);
    bench.write(32, &[0; 8]);
    expect(&mut bench, &[Rule::RegWidth; 3]);
    bench.write(4, &[0; 4]);
    bench.write(18, &[0; 2]);
    bench.write(0x2008, &[0; 4]);
    expect(&mut bench, &[Rule::RegReadOnly; 3]);
    bench.write(0x2004, &[1, 0, 0, 0]);
    bench.clean();
}

#[test]
fn negotiation_is_judged() {
    let mut bench = Bench::cold(Config::default());
    bench.write(20, &[2]);
    bench.write(20, &[0]);
    bench.write(20, &[1]);
    bench.write(20, &[5]);
    expect(&mut bench, &[Rule::Status; 2]);
    bench.negotiate(Features::VERSION_1 | Features::BLOB_ALIGNMENT);
    expect(&mut bench, &[Rule::Features]);
    assert_eq!(bench.status(), 3);
    bench.negotiate(Features::VERSION_1);
    bench.write(12, &[0; 4]);
    expect(&mut bench, &[Rule::Features]);
    bench.write(20, &[3]);
    expect(&mut bench, &[Rule::Status]);
}

#[test]
fn queue_set_up_is_judged() {
    let mut bench = Bench::cold(Config::default());
    bench.set_up_queue();
    expect(&mut bench, &[Rule::QueueSetup]);
    bench.negotiate(Features::VERSION_1);
    for size in [0u16, 100, 512] {
        bench.write(24, &size.to_le_bytes());
    }
    expect(&mut bench, &[Rule::QueueSetup; 3]);
    bench.write(28, &[0; 2]);
    bench.write(32, &[8, 0, 0, 0]);
    bench.write(28, &[1, 0]);
    expect(&mut bench, &[Rule::QueueSetup; 2]);
    bench.set_up_queue();
    bench.write(24, &[16, 0]);
    expect(&mut bench, &[Rule::QueueSetup]);
    // A queue that is no memory.
    bench.write(22, &[1, 0]);
    bench.write(28, &[1, 0]);
    expect(&mut bench, &[Rule::QueueSetup]);
    // A vector that does not exist is no breach, but reads back as none.
    bench.write(26, &[77, 0]);
    assert_eq!(bench.read(26, 2), 0xffff);
    bench.clean();
}

#[test]
fn notifications_are_judged() {
    let mut bench = Bench::cold(Config::default());
    bench.negotiate(Features::VERSION_1);
    bench.set_up_queue();
    bench.notify();
    expect(&mut bench, &[Rule::Notify]);
    bench.write(20, &[15]);
    bench.notify();
    bench.clean();
    bench.write(0x3000, &[1, 0]);
    bench.write(0x3004, &[1, 0]);
    bench.write(0x3000, &[0; 4]);
    bench.write(0x3100, &[0; 2]);
    expect(&mut bench, &[Rule::Notify; 4]);
    bench.machine.set_bus_master(false);
    bench.notify();
    bench.settle();
    bench.settle();
    expect(&mut bench, &[Rule::BusMaster]);
}

/// Makes a head available that leads to `descriptors`; the queue has to break.
fn malformed(descriptors: &[(u64, u32, u16, u16)], rule: Rule) {
    let mut bench = Bench::new();
    for (index, (addr, len, flags, next)) in (0..).zip(descriptors) {
        bench.descriptor(index, *addr, *len, *flags, *next);
    }
    bench.publish(0);
    bench.notify();
    bench.settle();
    expect(&mut bench, &[rule]);
    assert_eq!(bench.status() & 64, 64, "the driver is told");
    assert!(bench.take_used().is_none());
    // No more of it until a reset.
    bench.notify();
    bench.settle();
    bench.clean();
    bench.start(Config::default().features);
    bench.ok(&command(Cmd::GetDisplayInfo, 0, &[]));
    bench.clean();
}

#[test]
fn chains_are_judged() {
    let page = DMA;
    // A loop, links that lead out, read after write, nested and wrong tables.
    malformed(&[(page, 24, 1, 0)], Rule::Descriptor);
    malformed(&[(page, 24, 1, SIZE)], Rule::Descriptor);
    malformed(&[(page, 24, 3, 1), (page, 24, 0, 0)], Rule::Descriptor);
    malformed(&[(page, 24, 4, 0)], Rule::Descriptor);
    malformed(&[(page, 0, 4, 0)], Rule::Descriptor);
    malformed(&[(page, 32, 5, 1)], Rule::Descriptor);
    malformed(&[(0x1000, 32, 4, 0)], Rule::Dma);
    malformed(&[(u64::MAX - 8, 32, 4, 0)], Rule::Dma);
}

#[test]
fn available_ring_is_judged() {
    let mut bench = Bench::new();
    bench.publish(SIZE);
    bench.notify();
    bench.settle();
    expect(&mut bench, &[Rule::Avail]);
    bench.start(Config::default().features);
    bench.poke(bench.avail + 2, &(SIZE + 1).to_le_bytes());
    bench.notify();
    bench.settle();
    expect(&mut bench, &[Rule::Avail]);
    bench.start(Config::default().features);
    bench.ok(&create_context(1));
    let posted = bench.post(&submit(1, &[stream::DELAY, 1000]), 64);
    bench.settle();
    bench.publish(posted.head);
    bench.notify();
    bench.settle();
    expect(&mut bench, &[Rule::InFlight]);
}

#[test]
fn sizes_of_commands_and_responses_are_judged() {
    let mut bench = Bench::new();
    breaks(&mut bench, &[1, 1, 0, 0], Rule::CommandShort);
    let short = command(Cmd::ResourceUnref, 0, &bytes![1u32]);
    breaks(&mut bench, &short, Rule::CommandShort);
    bench.ok(&create_context(1));
    let mut promised = submit(1, &[0; 4]);
    promised.truncate(40);
    breaks(&mut bench, &promised, Rule::CommandShort);
    let posted = bench.post(&command(Cmd::GetDisplayInfo, 0, &[]), 100);
    bench.settle();
    let (header, body) = bench.answer(posted).unwrap();
    assert_eq!((header.kind, body.len()), (0x1101, 76));
    expect(&mut bench, &[Rule::ResponseRoom]);
}

#[test]
fn headers_are_judged() {
    let mut bench = Bench::new();
    breaks(
        &mut bench,
        &command(Cmd::MoveCursor, 0, &[0; 32]),
        Rule::CommandUnknown,
    );
    let mut unknown = command(Cmd::GetDisplayInfo, 0, &[]);
    unknown[0] = 0x55;
    breaks(&mut bench, &unknown, Rule::CommandUnknown);
    let mut flags = command(Cmd::GetDisplayInfo, 0, &[]);
    flags[4] = 4;
    breaks(&mut bench, &flags, Rule::CommandField);
    let mut padding = command(Cmd::GetDisplayInfo, 0, &[]);
    padding[23] = 1;
    breaks(&mut bench, &padding, Rule::CommandField);
    let ring = fenced(command(Cmd::GetDisplayInfo, 0, &[]), 1, Some(64));
    breaks(&mut bench, &ring, Rule::Fence);
    // Fences of a timeline rise; another timeline is another matter.
    let display = || command(Cmd::GetDisplayInfo, 0, &[]);
    bench.ok(&fenced(display(), 5, None));
    bench.ok(&fenced(display(), 4, Some(1)));
    bench.ok(&fenced(display(), 5, None));
    expect(&mut bench, &[Rule::Fence]);
}

#[test]
fn commands_of_features_that_were_not_accepted_are_judged() {
    let mut bench = Bench::with(Config {
        features: Features::VERSION_1 | Features::EVENT_IDX,
        ..Config::default()
    });
    for command in [
        create_context(1),
        create_3d(1, 1, 1, 0),
        create_blob(0, 1, 1, 0, 4096, &[(DMA, 4096)]),
        on_resource(Cmd::AssignUuid, 0, 1),
        command(Cmd::GetEdid, 0, &[0; 8]),
        fenced(command(Cmd::GetDisplayInfo, 0, &[]), 1, Some(0)),
    ] {
        breaks(&mut bench, &command, Rule::FeatureMissing);
    }
}

#[test]
fn resources_are_judged() {
    let mut bench = Bench::new();
    bench.ok(&create_context(1));
    for cmd in [
        Cmd::ResourceUnref,
        Cmd::DetachBacking,
        Cmd::AssignUuid,
        Cmd::CtxAttachResource,
        Cmd::UnmapBlob,
    ] {
        breaks(&mut bench, &on_resource(cmd, 1, 3), Rule::ResourceUnknown);
    }
    bench.ok(&create_3d(3, 4, 4, 0));
    breaks(&mut bench, &create_3d(3, 4, 4, 0), Rule::ResourceExists);
    breaks(&mut bench, &create_3d(0, 4, 4, 0), Rule::ResourceExists);
    bench.ok(&on_resource(Cmd::ResourceUnref, 0, 3));
    breaks(&mut bench, &attach(3, &[(DMA, 64)]), Rule::ResourceUnknown);
}

#[test]
fn pages_of_resources_are_judged() {
    let mut bench = Bench::new();
    bench.ok(&create_context(1));
    bench.ok(&create_3d(3, 4, 4, 0));
    let part = Box3 {
        at: [0; 3],
        size: [1; 3],
    };
    let to_host = transfer(Cmd::TransferToHost3d, 1, 3, &part, 0, 0, 0);
    breaks(&mut bench, &to_host, Rule::Backing);
    breaks(
        &mut bench,
        &on_resource(Cmd::DetachBacking, 0, 3),
        Rule::Backing,
    );
    breaks(&mut bench, &attach(3, &[]), Rule::Backing);
    breaks(&mut bench, &attach(3, &[(DMA, 0)]), Rule::Backing);
    breaks(&mut bench, &attach(3, &[(DMA - 4096, 64)]), Rule::Dma);
    breaks(&mut bench, &attach(3, &[(u64::MAX, 64)]), Rule::Dma);
    bench.ok(&attach(3, &[(DMA, 64)]));
    breaks(&mut bench, &attach(3, &[(DMA, 64)]), Rule::Backing);
    bench.ok(&on_resource(Cmd::DetachBacking, 0, 3));
}

#[test]
fn contexts_are_judged() {
    let mut bench = Bench::new();
    breaks(&mut bench, &submit(1, &[]), Rule::ContextUnknown);
    breaks(
        &mut bench,
        &command(Cmd::CtxDestroy, 1, &[]),
        Rule::ContextUnknown,
    );
    bench.ok(&create_context(1));
    breaks(&mut bench, &create_context(1), Rule::ContextExists);
    breaks(&mut bench, &create_context(0), Rule::ContextExists);
    let init = |name: u32, init: u32| {
        let mut body = bytes![name, init];
        body.resize(72, 0);
        command(Cmd::CtxCreate, 2, &body)
    };
    breaks(&mut bench, &init(65, 0), Rule::CommandField);
    breaks(&mut bench, &init(0, 0x100), Rule::CommandField);
    breaks(&mut bench, &init(0, 3), Rule::Capset);
    bench.ok(&init(64, 4));
}

#[test]
fn blobs_and_the_window_are_judged() {
    let mut bench = Bench::with(Config {
        window: 1 << 20,
        features: Config::default().features | Features::BLOB_ALIGNMENT,
        blob_alignment: 8192,
        ..Config::default()
    });
    bench.ok(&create_context(1));
    let host = |id, size| create_blob(1, id, 2, 1, size, &[]);
    breaks(&mut bench, &host(3, 0), Rule::BlobSize);
    breaks(&mut bench, &host(3, 4096), Rule::BlobSize);
    breaks(
        &mut bench,
        &create_blob(1, 3, 4, 0, 8192, &[]),
        Rule::CommandField,
    );
    breaks(
        &mut bench,
        &create_blob(1, 3, 2, 8, 8192, &[]),
        Rule::CommandField,
    );
    breaks(
        &mut bench,
        &create_blob(2, 3, 2, 0, 8192, &[]),
        Rule::ContextUnknown,
    );
    breaks(
        &mut bench,
        &create_blob(0, 3, 1, 0, 8192, &[]),
        Rule::Backing,
    );
    let short = create_blob(0, 3, 1, 0, 8192, &[(DMA, 4096)]);
    breaks(&mut bench, &short, Rule::Backing);
    let pages = create_blob(1, 3, 2, 1, 8192, &[(DMA, 8192)]);
    breaks(&mut bench, &pages, Rule::Backing);

    bench.ok(&host(3, 16384));
    bench.ok(&host(4, 16384));
    bench.ok(&create_blob(1, 5, 2, 0, 8192, &[]));
    bench.ok(&create_blob(0, 6, 1, 1, 8192, &[(DMA, 8192)]));
    breaks(&mut bench, &map(5, 0), Rule::Map);
    breaks(&mut bench, &map(6, 0), Rule::Map);
    breaks(&mut bench, &map(3, 4096), Rule::Map);
    breaks(&mut bench, &map(3, (1 << 20) - 8192), Rule::Map);
    breaks(&mut bench, &map(3, u64::MAX & !0x1fff), Rule::Map);
    breaks(&mut bench, &on_resource(Cmd::UnmapBlob, 0, 3), Rule::Map);
    bench.ok(&map(3, 8192));
    breaks(&mut bench, &map(3, 0x10000), Rule::Map);
    breaks(&mut bench, &map(4, 0), Rule::Map);
    breaks(&mut bench, &map(4, 16384), Rule::Map);
    bench.ok(&map(4, 24576));
    breaks(
        &mut bench,
        &on_resource(Cmd::ResourceUnref, 0, 3),
        Rule::UnrefMapped,
    );
}

#[test]
fn displays_and_capsets_are_judged() {
    let mut bench = Bench::new();
    let edid = command(Cmd::GetEdid, 0, &bytes![1u32, 0u32]);
    breaks(&mut bench, &edid, Rule::Scanout);
    let info = command(Cmd::GetCapsetInfo, 0, &bytes![3u32, 0u32]);
    breaks(&mut bench, &info, Rule::Capset);
    let version = command(Cmd::GetCapset, 0, &bytes![2u32, 3u32]);
    breaks(&mut bench, &version, Rule::Capset);
}

#[test]
fn place_in_the_window_is_taken_until_the_unmapping_is_answered() {
    let mut bench = Bench::new();
    bench.ok(&create_context(1));
    for id in [3, 4] {
        bench.ok(&create_blob(1, id, 2, 1, 4096, &[]));
    }
    bench.ok(&map(3, 0));
    bench
        .machine
        .faults
        .held
        .insert(ochre_virtio_gpu::fault::Which::Kind(Cmd::UnmapBlob));
    let unmap = bench.post(&on_resource(Cmd::UnmapBlob, 0, 3), 64);
    bench.settle();
    bench.ok(&on_resource(Cmd::ResourceUnref, 0, 3));
    bench.clean();
    let again = create_blob(1, 3, 2, 1, 4096, &[]);
    breaks(&mut bench, &again, Rule::ResourceExists);
    breaks(&mut bench, &map(4, 0), Rule::WindowBusy);
    bench.ok(&map(4, 4096));
    bench.machine.faults.held.clear();
    bench.machine.release(bench.now, |_| true);
    bench.settle();
    assert!(bench.answer(unmap).is_some());
    bench.ok(&again);
    bench.ok(&map(3, 0));
    bench.clean();
}

#[test]
fn every_rule_has_a_name_of_its_own() {
    let mut names: Vec<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Rule::ALL.len());
    assert!(names.iter().all(|name| !name.contains(' ')));
}
