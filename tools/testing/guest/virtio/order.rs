// SPDX-License-Identifier: GPL-2.0
//! What EXECBUFFER waits for and what it signals: fences, sync objects, rings and their events.

use std::os::fd::AsRawFd;
use std::time::Duration;
use std::time::Instant;

use drm::control::Device;
use guest::virtio::abi::*;
use guest::virtio::base_line;
use guest::virtio::blocked;
use guest::virtio::dies;
use guest::virtio::exec::*;
use guest::virtio::fence;
use guest::virtio::stream;
use guest::virtio::Node;
use guest::virtio::Trace;
use guest::Board;
use guest::Errno;
use guest::Outcome;
use nix::unistd::read;

guest::tests! {
    sync_object_is_waited_for_and_reset_only_when_asked,
    points_of_a_timeline_are_waited_for_and_signalled,
    fence_is_waited_for_before_the_work,
    ring_that_the_context_has_not_is_refused,
    polled_ring_gives_an_event_for_each_fence_and_others_none,
    work_that_fails_takes_no_event,
    wait_for_a_bo_says_after_15_seconds_that_it_is_busy,
    sigkill_ends_all_waits,
}

/// Longest that a process may live after SIGKILL.
const SOON: Duration = Duration::from_secs(3);

/// An ioctl that waits.
type Wait<'a> = &'a dyn Fn() -> Result<(), Errno>;

fn sync_object_is_waited_for_and_reset_only_when_asked() -> Outcome {
    let node = with_rings(2, 0)?;
    for (flags, then) in [
        (0, Holds::Done),
        (VIRTGPU_EXECBUF_SYNCOBJ_RESET, Holds::Nothing),
    ] {
        let object = node.create_syncobj(false)?;
        let outs = [element(object, 0, 0)];
        let slow = signalling(on(0, VIRTGPU_EXECBUF_FENCE_FD_OUT), &outs);
        let slow = fence(&node.submit_with(&stream::delay(300), slow)?);
        assert_eq!(holds(&node, object)?, Holds::Work);
        node.submit_with(
            &stream::nop(1),
            after(on(1, 0), &[element(object, flags, 0)]),
        )?;
        // The ioctl has waited for it.
        assert_eq!(Node::fence_status(&slow)?, 1);
        assert_eq!(holds(&node, object)?, then);
    }
    Ok(())
}

fn points_of_a_timeline_are_waited_for_and_signalled() -> Outcome {
    let node = with_rings(2, 0)?;
    let line = node.create_syncobj(false)?;
    let [three, five, eight] = [3, 5, 8].map(|point| [element(line, 0, point)]);
    node.submit_with(&stream::nop(1), signalling(on(0, 0), &three))?;
    node.syncobj_timeline_wait(&[line], &[3], i64::MAX, true, false, false)?;
    node.submit_with(&stream::delay(1000), signalling(on(0, 0), &eight))?;
    assert_eq!(reached(&node, line)?, 3);
    // Point 3 is over, so that nothing is waited for.
    node.submit_with(&stream::nop(1), after(on(1, 0), &three))?;
    assert_eq!(reached(&node, line)?, 3);
    // A point in between is over with the next one.
    node.submit_with(&stream::nop(1), after(on(1, 0), &five))?;
    assert_eq!(reached(&node, line)?, 8);
    Ok(())
}

fn fence_is_waited_for_before_the_work() -> Outcome {
    let node = with_rings(2, 0)?;
    let both = VIRTGPU_EXECBUF_FENCE_FD_IN | VIRTGPU_EXECBUF_FENCE_FD_OUT;
    let slow = on(0, VIRTGPU_EXECBUF_FENCE_FD_OUT);
    let slow = fence(&node.submit_with(&stream::delay(300), slow)?);
    assert_eq!(Node::fence_status(&slow)?, 0);
    let next = Exec {
        fence_fd: slow.as_raw_fd(),
        ..on(1, both)
    };
    let next = fence(&node.submit_with(&stream::nop(1), next)?);
    assert_eq!(Node::fence_status(&slow)?, 1);
    assert!(ready(&next, 20_000)?);
    assert_eq!(Node::fence_status(&next)?, 1);
    Ok(())
}

fn ring_that_the_context_has_not_is_refused() -> Outcome {
    base_line()?;
    let (two, plain, all) = (with_rings(2, 0)?, Node::open()?, with_rings(64, u64::MAX)?);
    let trace = Trace::begin()?;
    for (node, first) in [(&two, 2), (&plain, 0), (&all, 64)] {
        for ring in [first, 64, 255, 256, 1 << 31, u32::MAX] {
            let got = node.call(&mut on(ring, 0));
            trace.refused(&format!("ring {ring}"), got, Errno::EINVAL)?;
        }
    }
    for (node, last) in [(&two, 1), (&all, 63)] {
        let with = on(last, VIRTGPU_EXECBUF_FENCE_FD_OUT);
        assert!(ready(fence(&node.submit_with(&[], with)?), 20_000)?);
    }
    Ok(())
}

/// Reads the one event of a fence that there is.
fn take_event(node: &Node) -> Outcome {
    let mut event = [0u8; 64];
    assert!(ready(node, 20_000)?);
    assert_eq!(read(node, &mut event)?, 8);
    assert_eq!(event[..4], VIRTGPU_EVENT_FENCE_SIGNALED.to_ne_bytes());
    assert_eq!(event[4..8], 8u32.to_ne_bytes());
    Ok(())
}

fn polled_ring_gives_an_event_for_each_fence_and_others_none() -> Outcome {
    let node = with_rings(64, 1 << 63 | 1)?;
    let done = |ring| -> Outcome {
        let with = on(ring, VIRTGPU_EXECBUF_FENCE_FD_OUT);
        assert!(ready(
            fence(&node.submit_with(&stream::nop(1), with)?),
            20_000
        )?);
        Ok(())
    };
    done(1)?;
    assert!(!ready(&node, 0)?);
    for ring in [0, 63, 0] {
        done(ring)?;
        take_event(&node)?;
        assert!(!ready(&node, 0)?);
    }
    // Without a ring there is no event.
    assert!(ready(node.submit_fenced(&stream::nop(1), &[])?, 20_000)?);
    assert!(!ready(&node, 0)?);
    Ok(())
}

fn work_that_fails_takes_no_event() -> Outcome {
    /// More than a file has room for.
    const MANY: u32 = 600;
    let node = with_rings(1, 1)?;
    let bad = Exec {
        fence_fd: -1,
        ..on(0, VIRTGPU_EXECBUF_FENCE_FD_IN)
    };
    for _ in 0..MANY {
        assert_eq!(node.call(&mut { bad }), Err(Errno::EINVAL));
    }
    assert!(!ready(&node, 0)?);
    node.submit_with(&stream::nop(1), on(0, 0))?;
    take_event(&node)
}

fn wait_for_a_bo_says_after_15_seconds_that_it_is_busy() -> Outcome {
    let node = Node::open()?;
    let (handle, _) = node.texture(16, 16)?;
    node.wait(handle, 0)?;
    let held = Board.until_dropped("hold submit-3d", "release submit-3d")?;
    node.submit_fenced(&stream::nop(1), &[handle])?;
    assert_eq!(node.wait(handle, VIRTGPU_WAIT_NOWAIT), Err(Errno::EBUSY));
    let began = Instant::now();
    assert_eq!(node.wait(handle, 0), Err(Errno::EBUSY));
    let took = began.elapsed().as_millis();
    assert!((15_000..25_000).contains(&took), "{took} ms");
    drop(held);
    // Nobody has given the device up meanwhile.
    Ok(node.wait(handle, 0)?)
}

fn sigkill_ends_all_waits() -> Outcome {
    let node = with_rings(2, 0)?;
    let (handle, _) = node.texture(16, 16)?;
    node.wait(handle, 0)?;
    let object = node.create_syncobj(false)?;
    let (handles, outs) = ([handle], [element(object, 0, 0)]);
    let held = Board.until_dropped("hold submit-3d", "release submit-3d")?;
    let with = Exec {
        bo_handles: handles.as_ptr() as u64,
        num_bo_handles: 1,
        ..signalling(on(0, VIRTGPU_EXECBUF_FENCE_FD_OUT), &outs)
    };
    let fence = fence(&node.submit_with(&stream::nop(1), with)?);
    let on_fence = Exec {
        fence_fd: fence.as_raw_fd(),
        ..on(1, VIRTGPU_EXECBUF_FENCE_FD_IN)
    };
    let ins = [element(object, 0, 0)];
    let on_object = after(on(1, 0), &ins);
    let waits: [(&str, Wait<'_>); 3] = [
        ("WAIT", &|| node.wait(handle, 0)),
        ("a fence", &|| node.call(&mut { on_fence })),
        ("a sync object", &|| node.call(&mut { on_object })),
    ];
    for (what, wait) in waits {
        let child = blocked(|| Ok(wait()?))?;
        let child = child.ok_or(anyhow::anyhow!("{what} does not wait"))?;
        assert!(dies(child, SOON)?, "{what}");
    }
    assert_eq!(Node::fence_status(&fence)?, 0);
    drop(held);
    node.wait(handle, 0)?;
    Ok(())
}
