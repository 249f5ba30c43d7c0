// SPDX-License-Identifier: GPL-2.0
//! The commands of the control socket, and what they make the board do.

mod common;

use std::sync::Arc;
use std::time::Instant;

use common::*;
use ochre_control::Reply;
use ochre_vfio_user::GuestMemory;
use ochre_virtio_gpu::board::Board;
use ochre_virtio_gpu::config::Config;
use ochre_virtio_gpu::control;
use ochre_virtio_gpu::machine::Machine;
use ochre_virtio_gpu::machine::Next;
use ochre_virtio_gpu::wire::Cmd;
use ochre_virtio_gpu::wire::Resp;

/// Gives the bench's machine a command.
fn ask(bench: &mut Bench, line: &str) -> Result<String, String> {
    let spare = Machine::new(
        Config::default(),
        Arc::new(GuestMemory::new()),
        None,
        Box::new(Sent::default()),
    );
    let board = Arc::new(Board::new(std::mem::replace(&mut bench.machine, spare)));
    let reply = control::command(&board, line);
    std::mem::swap(&mut bench.machine, &mut *board.machine());
    // The command looked at the clock.
    bench.now = bench.now.max(Instant::now());
    match reply? {
        Reply::Line(line) => Ok(line),
        Reply::Quit => Ok("quit".into()),
    }
}

fn tell(bench: &mut Bench, line: &str) {
    let reply = ask(bench, line).unwrap();
    assert!(reply.starts_with("ok"), "{reply}");
}

fn display() -> Vec<u8> {
    command(Cmd::GetDisplayInfo, 0, &[])
}

#[test]
fn commands_are_refused_when_their_turn_comes() {
    let mut bench = Bench::new();
    tell(&mut bench, "refuse resource-create-3d out-of-memory 2 1");
    bench.ok(&create_3d(1, 4, 4, 0));
    for id in [2, 3] {
        let (kind, _) = bench.run(&create_3d(id, 4, 4, 0));
        assert_eq!(kind, Resp::ErrOutOfMemory.code());
        bench.ok(&display());
    }
    bench.ok(&create_3d(4, 4, 4, 0));
    let ids: Vec<u32> = bench.machine.gpu.resources().map(|r| r.0).collect();
    assert_eq!(ids, [1, 4]);
    // A refused command with a fence carries it.
    tell(&mut bench, "refuse any unspec");
    let posted = bench.post(&fenced(display(), 9, None), 64);
    bench.settle();
    let (header, body) = bench.answer(posted).unwrap();
    assert_eq!((header.kind, header.flags, header.fence_id), (0x1200, 1, 9));
    assert!(body.is_empty());
    tell(&mut bench, "wrong get-display-info ok-nodata");
    assert_eq!(bench.run(&display()).0, Resp::OkNodata.code());
    bench.ok(&display());
    bench.clean();
}

#[test]
fn what_follows_a_refused_creation_fails_and_breaks_no_rule() {
    let mut bench = Bench::new();
    tell(&mut bench, "refuse create-blob out-of-memory");
    tell(&mut bench, "refuse ctx-create unspec");
    assert_eq!(bench.run(&create_context(1)).0, Resp::ErrUnspec.code());
    assert_eq!(bench.run(&submit(1, &[])).0, Resp::ErrContext.code());
    let destroy = command(Cmd::CtxDestroy, 1, &[]);
    assert_eq!(bench.run(&destroy).0, Resp::ErrContext.code());
    bench.ok(&create_context(1));
    let create = create_blob(1, 3, 2, 1, 4096, &[]);
    assert_eq!(bench.run(&create).0, Resp::ErrOutOfMemory.code());
    assert_eq!(
        ask(&mut bench, "log 1").unwrap(),
        "ok create-blob:ctx=1:res=3:out-of-memory"
    );
    for cmd in [
        Cmd::CtxAttachResource,
        Cmd::CtxDetachResource,
        Cmd::ResourceUnref,
    ] {
        let (kind, _) = bench.run(&on_resource(cmd, 1, 3));
        assert_eq!(kind, Resp::ErrResource.code());
    }
    bench.clean();
    // Now it is forgotten.
    bench.run(&on_resource(Cmd::ResourceUnref, 1, 3));
    bench.run(&destroy);
    bench.run(&destroy);
    assert_eq!(bench.violations(), ["resource-unknown", "context-unknown"]);
}

#[test]
fn stalled_board_goes_on_where_it_was() {
    let mut bench = Bench::new();
    tell(&mut bench, "stall");
    let posted = bench.post(&display(), 4096);
    bench.wait(100_000);
    assert!(bench.take_used().is_none());
    tell(&mut bench, "resume");
    bench.settle();
    assert!(bench.answer(posted).is_some());
    bench.clean();
}

#[test]
fn answers_are_late() {
    let mut bench = Bench::new();
    tell(&mut bench, "late 6000");
    let posted = bench.post(&display(), 4096);
    assert!(matches!(bench.settle(), Next::At(_)));
    bench.wait(5999);
    assert!(bench.take_used().is_none());
    bench.wait(1);
    assert!(bench.answer(posted).is_some());
    bench.clean();
}

#[test]
fn held_answers_come_when_they_are_released() {
    let mut bench = Bench::new();
    tell(&mut bench, "hold get-display-info");
    tell(&mut bench, "hold assign-uuid");
    let first = bench.post(&display(), 4096);
    bench.ok(&create_3d(1, 4, 4, 0));
    let second = bench.post(&on_resource(Cmd::AssignUuid, 0, 1), 64);
    bench.settle();
    assert!(bench.take_used().is_none());
    assert_eq!(ask(&mut bench, "release assign-uuid").unwrap(), "ok 1");
    bench.settle();
    assert!(bench.answer(second).is_some());
    assert!(bench.take_used().is_none());
    assert_eq!(ask(&mut bench, "release").unwrap(), "ok 1");
    bench.settle();
    assert!(bench.answer(first).is_some());
    bench.ok(&display());
    bench.clean();
}

#[test]
fn fences_come_in_reverse_order() {
    let mut bench = Bench::new();
    tell(&mut bench, "reorder 2");
    let first = bench.post(&fenced(display(), 1, None), 4096);
    bench.settle();
    assert!(bench.take_used().is_none());
    let second = bench.post(&fenced(display(), 2, None), 4096);
    bench.settle();
    assert_eq!(bench.answer(second).unwrap().0.fence_id, 2);
    assert_eq!(bench.answer(first).unwrap().0.fence_id, 1);
    bench.clean();
}

#[test]
fn used_ring_tells_lies() {
    for lie in ["bad-id", "free-id", "twice", "long", "jump", "back"] {
        let mut bench = Bench::new();
        bench.ok(&display());
        bench.ok(&display());
        bench.ok(&display());
        tell(&mut bench, &format!("lie {lie}"));
        let posted = bench.post(&display(), 4096);
        bench.settle();
        let head = u32::from(posted.head);
        let index = bench.peek16(bench.used + 2);
        match lie {
            "bad-id" => assert_eq!(bench.take_used(), Some((u32::from(SIZE) + 7, 408))),
            "free-id" => {
                let (id, _) = bench.take_used().unwrap();
                assert!(id != head && id < u32::from(SIZE));
            }
            "twice" => {
                assert_eq!(bench.take_used(), Some((head, 408)));
                assert_eq!(bench.take_used(), Some((head, 408)));
            }
            "long" => assert!(bench.take_used().unwrap().1 > 4096),
            "jump" => assert_eq!(index, 3 + SIZE + 3),
            _ => assert_eq!(index, 1),
        }
        bench.clean();
    }
}

#[test]
fn responses_tell_lies() {
    let mut bench = Bench::new();
    tell(&mut bench, "lie short");
    let posted = bench.post(&display(), 4096);
    bench.settle();
    assert_eq!(bench.take_used(), Some((posted.head.into(), 4)));
    tell(&mut bench, "lie hollow");
    let posted = bench.post(&display(), 4096);
    bench.settle();
    assert_eq!(bench.take_used(), Some((posted.head.into(), 408)));
    tell(&mut bench, "lie fence 2");
    for id in [7, 8] {
        let posted = bench.post(&fenced(display(), id, None), 4096);
        bench.settle();
        let (header, _) = bench.answer(posted).unwrap();
        assert_eq!(header.fence_id, id + 0x1_0000);
    }
    tell(&mut bench, "lie garbage");
    let (kind, body) = bench.run(&display());
    assert!(Resp::from_code(kind).is_none());
    assert_eq!(body.len(), 384);
    bench.ok(&display());
    assert!(ask(&mut bench, "lie politely").is_err());
    bench.clean();
}

#[test]
fn interrupts_are_lost_or_come_in_a_storm() {
    let mut bench = Bench::new();
    tell(&mut bench, "lose-irq 1 2");
    for _ in 0..3 {
        bench.ok(&display());
    }
    assert_eq!(*bench.sent.0.lock().unwrap(), [1]);
    tell(&mut bench, "storm 0 5");
    assert_eq!(bench.sent.0.lock().unwrap().len(), 6);
    assert!(ask(&mut bench, "storm 3 1").is_err());
    let stat = ask(&mut bench, "stat").unwrap();
    assert!(stat.contains(" interrupts=3 ") && stat.contains(" lost-interrupts=2 "));
    bench.clean();
}

#[test]
fn capsets_are_garbage() {
    let mut bench = Bench::new();
    tell(&mut bench, "capset 1 200 3 0xffffffff");
    tell(&mut bench, "capset-count 1000");
    assert_eq!(bench.read(0x200c, 4), 1000);
    let info = |index: u32| command(Cmd::GetCapsetInfo, 0, &bytes![index, 0u32]);
    assert_eq!(bench.ok(&info(1)), bytes![200u32, 3u32, u32::MAX, 0u32]);
    assert_eq!(bench.ok(&info(999)), bytes![1u32, 0u32, 0u32, 0u32]);
    tell(&mut bench, "clear-faults");
    assert_eq!(bench.read(0x200c, 4), 3);
    bench.clean();
}

#[test]
fn silent_board_reads_all_ones_and_does_nothing() {
    let mut bench = Bench::new();
    tell(&mut bench, "silence on");
    assert_eq!(bench.status(), 0xff);
    let posted = bench.post(&display(), 4096);
    bench.write(20, &[0]);
    bench.settle();
    assert!(bench.take_used().is_none());
    tell(&mut bench, "silence off");
    assert_eq!(bench.status(), 15);
    bench.settle();
    assert!(bench.answer(posted).is_some());
    bench.clean();
}

#[test]
fn reset_is_refused_for_some_time() {
    let mut bench = Bench::new();
    tell(&mut bench, "refuse-reset on");
    bench.write(20, &[0]);
    assert_eq!(bench.status(), 15);
    bench.ok(&display());
    // It happens when it is not refused any more.
    tell(&mut bench, "refuse-reset off");
    assert_eq!(bench.status(), 0);
    bench.clean();
}

#[test]
fn changes_of_the_configuration_are_announced() {
    let mut bench = Bench::new();
    let generation = bench.read(21, 1);
    tell(&mut bench, "display");
    assert_eq!(bench.read(0x2000, 4), 1);
    assert_ne!(bench.read(21, 1), generation);
    bench.write(0x2004, &1u32.to_le_bytes());
    assert_eq!(bench.read(0x2000, 4), 0);
    tell(&mut bench, "needs-reset");
    assert_eq!(bench.status(), 15 | 64);
    assert_eq!(*bench.sent.0.lock().unwrap(), [0, 0]);
    bench.start(Config::default().features);
    bench.clean();
}

#[test]
fn questions_are_answered() {
    let mut bench = Bench::new();
    bench.ok(&create_context(1));
    bench.ok(&create_blob(1, 3, 2, 1, 4096, &[]));
    bench.ok(&map(3, 8192));
    let fence = fenced(submit(1, &[]), 77, Some(2));
    bench.ok(&fence);
    let mut is = |line: &str, reply: &str| assert_eq!(ask(&mut bench, line).unwrap(), reply);
    is("live", "ok resources=1 contexts=1 mappings=1 entries=0");
    is("resources", "ok 3:host3d:4096:0");
    is("contexts", "ok 1:capset=0:0");
    is("mappings", "ok 0x2000:0x1000:3:mapped");
    is("peek 3 0", "ok 0x0");
    is(
        "log 2",
        "ok map-blob:ctx=0:res=3:ok-map-info submit-3d:ctx=1:res=0:fence=77:ring=2:ok-nodata",
    );
    is(
        "counts",
        "ok create-blob=1 ctx-create=1 submit-3d=1 map-blob=1",
    );
    is("violations", "ok 0");
    assert!(ask(&mut bench, "stat")
        .unwrap()
        .contains(" commands=4 answers=4 "));
    tell(&mut bench, "clear-log");
    assert_eq!(ask(&mut bench, "log").unwrap(), "ok");
    bench.run(&on_resource(Cmd::ResourceUnref, 0, 9));
    let counted = ask(&mut bench, "violations").unwrap();
    assert_eq!(counted, "ok 1 18:resource-unknown:0x9");
    tell(&mut bench, "clear-violations");
    bench.clean();
}

#[test]
fn commands_that_are_none_are_refused() {
    let mut bench = Bench::new();
    for line in [
        "nonsense",
        "refuse",
        "refuse nothing unspec",
        "refuse any",
        "refuse any unspec 0",
        "refuse any unspec x",
        "refuse any unspec 1 2 3",
        "late",
        "late -1",
        "late 99999999999999999999",
        "hold nothing",
        "capset 1 2 3",
        "silence maybe",
        "lose-irq 7 1",
        "peek 1 0",
        "log x",
    ] {
        assert!(ask(&mut bench, line).is_err(), "{line}");
    }
    assert!(ask(&mut bench, "help").unwrap().contains("refuse TYPE"));
    assert!(ask(&mut bench, "").unwrap().starts_with("ok"));
    assert_eq!(ask(&mut bench, "quit").unwrap(), "quit");
    bench.clean();
}
