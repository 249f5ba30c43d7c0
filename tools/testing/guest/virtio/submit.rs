// SPDX-License-Identifier: GPL-2.0
//! EXECBUFFER: what it takes and refuses. One that fails leaves nothing: no descriptor, no change of a
//! sync object, no busy BO.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

use drm::control::Device;
use guest::pointers;
use guest::pointers::Cliff;
use guest::virtio::abi::*;
use guest::virtio::base_line;
use guest::virtio::exec::*;
use guest::virtio::fence;
use guest::virtio::refuses;
use guest::virtio::stream;
use guest::virtio::Mapping;
use guest::virtio::Node;
use guest::virtio::Trace;
use guest::Board;
use guest::Errno;
use guest::Outcome;
use nix::sys::memfd::memfd_create;
use nix::sys::memfd::MFdFlags;

guest::tests! {
    execbuffer_that_fails_leaves_no_trace,
    stream_that_faults_is_refused,
    stream_whose_pages_are_not_in_memory_yet_is_taken,
    sync_objects_that_are_wrong_are_refused,
    as_many_sync_objects_as_may_be_are_taken,
    sync_objects_may_have_a_shorter_or_longer_stride,
    refused_stream_without_a_fence_is_told_once_by_the_next_call_of_its_file,
    as_many_bos_as_may_be_are_looked_at,
}

/// From the driver's limits.rs.
const STREAM_MAX: u32 = 16 << 20;
const BOS_MAX: u32 = 64 << 10;
const SYNCOBJS_MAX: u32 = 4096;

fn execbuffer_that_fails_leaves_no_trace() -> Outcome {
    base_line()?;
    let (node, other) = (Node::open()?, Node::open()?);
    let (handle, _) = node.texture(16, 16)?;
    node.wait(handle, 0)?;
    let mut theirs = 0;
    for _ in 0..8 {
        (theirs, _) = other.texture(16, 16)?;
    }
    let ins = [element(
        node.create_syncobj(true)?,
        VIRTGPU_EXECBUF_SYNCOBJ_RESET,
        0,
    )];
    let outs = [
        element(node.create_syncobj(false)?, 0, 0),
        element(node.create_syncobj(false)?, 0, 7),
    ];
    let objects = node.create_syncobj(true)?;
    let words = stream::nop(2);
    let handles = [handle];
    let foreign = [handle, theirs];
    let (zero, last) = ([0u32], [handle, u32::MAX]);
    let many = vec![handle; BOS_MAX as usize + 1];
    let many_ins = vec![element(objects, 0, 0); SYNCOBJS_MAX as usize + 1];
    let nowhere = pointers::unmapped();
    let null = File::open("/dev/null")?;
    let good = Exec {
        flags: VIRTGPU_EXECBUF_FENCE_FD_OUT,
        size: 8,
        command: words.as_ptr() as u64,
        bo_handles: handles.as_ptr() as u64,
        num_bo_handles: 1,
        fence_fd: -1,
        ..signalling(after(Exec::default(), &ins), &outs)
    };
    let in_fd = VIRTGPU_EXECBUF_FENCE_FD_IN;
    let (at_foreign, at_zero, at_last) = (
        foreign.as_ptr() as u64,
        zero.as_ptr() as u64,
        last.as_ptr() as u64,
    );
    let (at_many, at_many_ins) = (many.as_ptr() as u64, many_ins.as_ptr() as u64);
    let null_fd = null.as_raw_fd();
    let wrong = |spoil: &dyn Fn(&mut Exec)| {
        let mut argument = good;
        spoil(&mut argument);
        argument
    };
    let trace = Trace::begin()?;
    let cases: Vec<(&str, Exec, Errno)> = vec![
        ("flag 8", wrong(&|a| a.flags |= 8), Errno::EINVAL),
        (
            "the last flag",
            wrong(&|a| a.flags |= 1 << 31),
            Errno::EINVAL,
        ),
        ("2 bytes", wrong(&|a| a.size = 2), Errno::EINVAL),
        (
            "a stream too long",
            wrong(&|a| a.size = STREAM_MAX + 4),
            Errno::EINVAL,
        ),
        (
            "2^32 - 1 bytes",
            wrong(&|a| a.size = u32::MAX),
            Errno::EINVAL,
        ),
        (
            "2^32 - 4 bytes",
            wrong(&|a| a.size = u32::MAX - 3),
            Errno::EINVAL,
        ),
        (
            "a stream nowhere",
            wrong(&|a| a.command = nowhere),
            Errno::EFAULT,
        ),
        (
            "a ring without rings",
            wrong(&|a| a.flags |= 4),
            Errno::EINVAL,
        ),
        ("BO 0", wrong(&|a| a.bo_handles = at_zero), Errno::ENOENT),
        (
            "the last BO",
            wrong(&|a| (a.bo_handles, a.num_bo_handles) = (at_last, 2)),
            Errno::ENOENT,
        ),
        (
            "another file's BO",
            wrong(&|a| (a.bo_handles, a.num_bo_handles) = (at_foreign, 2)),
            Errno::ENOENT,
        ),
        (
            "too many BOs",
            wrong(&|a| (a.bo_handles, a.num_bo_handles) = (at_many, BOS_MAX + 1)),
            Errno::EINVAL,
        ),
        (
            "2^32 - 1 BOs",
            wrong(&|a| a.num_bo_handles = u32::MAX),
            Errno::EINVAL,
        ),
        (
            "BOs nowhere",
            wrong(&|a| a.bo_handles = nowhere),
            Errno::EFAULT,
        ),
        ("BOs at NULL", wrong(&|a| a.bo_handles = 0), Errno::EFAULT),
        (
            "too many to wait for",
            wrong(&|a| (a.in_syncobjs, a.num_in_syncobjs) = (at_many_ins, SYNCOBJS_MAX + 1)),
            Errno::EINVAL,
        ),
        (
            "too many to signal",
            wrong(&|a| (a.out_syncobjs, a.num_out_syncobjs) = (at_many_ins, SYNCOBJS_MAX + 1)),
            Errno::EINVAL,
        ),
        (
            "2^32 - 1 to wait for",
            wrong(&|a| a.num_in_syncobjs = u32::MAX),
            Errno::EINVAL,
        ),
        (
            "2^32 - 1 to signal",
            wrong(&|a| a.num_out_syncobjs = u32::MAX),
            Errno::EINVAL,
        ),
        (
            "waiting for nowhere",
            wrong(&|a| a.in_syncobjs = nowhere),
            Errno::EFAULT,
        ),
        (
            "signalling nowhere",
            wrong(&|a| a.out_syncobjs = nowhere),
            Errno::EFAULT,
        ),
        ("descriptor -1", wrong(&|a| a.flags |= in_fd), Errno::EINVAL),
        (
            "a descriptor of a file",
            wrong(&|a| (a.flags, a.fence_fd) = (a.flags | in_fd, null_fd)),
            Errno::EINVAL,
        ),
        (
            "a descriptor that is not open",
            wrong(&|a| (a.flags, a.fence_fd) = (a.flags | in_fd, 1000)),
            Errno::EINVAL,
        ),
    ];
    for (what, argument, errno) in cases {
        let mut given = argument;
        trace.refused(what, node.call(&mut given), errno)?;
        assert_eq!(given, argument, "{what}");
        assert_eq!(node.wait(handle, VIRTGPU_WAIT_NOWAIT), Ok(()), "{what}");
        let objects = [ins[0], outs[0], outs[1]].map(|element| element.handle);
        let seen: Vec<Holds> = objects
            .iter()
            .map(|object| holds(&node, handle_of(*object)))
            .collect::<Result<_, _>>()?;
        assert_eq!(
            seen,
            [Holds::Done, Holds::Nothing, Holds::Nothing],
            "{what}"
        );
    }
    let mut argument = good;
    node.call(&mut argument)?;
    assert!(ready(fence(&argument), 20_000)?);
    assert_eq!(holds(&node, handle_of(ins[0].handle))?, Holds::Nothing);
    assert_eq!(holds(&node, handle_of(outs[0].handle))?, Holds::Done);
    assert_eq!(reached(&node, handle_of(outs[1].handle))?, 7);
    Ok(())
}

fn stream_that_faults_is_refused() -> Outcome {
    base_line()?;
    let node = Node::open()?;
    node.submit(&[])?;
    let mut edge = Cliff::new();
    let short = edge.put(&[0; 8]);
    let trace = Trace::begin()?;
    for (what, command) in pointers::bad() {
        let got = node.call(&mut Exec {
            command,
            size: 16,
            ..Default::default()
        });
        trace.refused(what, got, Errno::EFAULT)?;
    }
    let good = Exec {
        command: short,
        size: 8,
        ..Default::default()
    };
    let longer = |a: &mut Exec| a.size = 12;
    refuses(
        &node,
        good,
        &[("a word behind the edge", &longer, Errno::EFAULT)],
    )?;
    // Without a stream its address means nothing.
    node.call(&mut Exec {
        command: 8,
        ..Default::default()
    })?;
    Ok(())
}

fn stream_whose_pages_are_not_in_memory_yet_is_taken() -> Outcome {
    let node = Node::open()?;
    let (handle, resource) = node.texture(16, 16)?;
    // Over several pages, with what has an effect at the end.
    let mut words = stream::nop(3000);
    words.extend(stream::write(resource, 8, 0x77));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut file = File::from(memfd_create(c"stream", MFdFlags::empty())?);
    file.write_all(&bytes)?;
    // Nobody has touched the pages of the mapping.
    let map = Mapping::of(&file, 0, bytes.len())?;
    let handles = [handle];
    node.call(&mut Exec {
        size: bytes.len() as u32,
        command: map.address(),
        bo_handles: handles.as_ptr() as u64,
        num_bo_handles: 1,
        ..Default::default()
    })?;
    node.wait(handle, 0)?;
    assert_eq!(Board.ask(&format!("peek {resource} 8"))?, "0x77");
    Ok(())
}

fn sync_objects_that_are_wrong_are_refused() -> Outcome {
    base_line()?;
    let (node, other) = (Node::open()?, Node::open()?);
    node.submit(&[])?;
    let full = node.create_syncobj(true)?;
    let empty = node.create_syncobj(false)?;
    let line = node.create_syncobj(false)?;
    node.syncobj_timeline_signal(&[line], &[5])?;
    let mut theirs = full;
    for _ in 0..8 {
        theirs = other.create_syncobj(true)?;
    }
    let reset = VIRTGPU_EXECBUF_SYNCOBJ_RESET;
    let trace = Trace::begin()?;
    for (what, bad, errno) in [
        ("flag 2", element(full, 2, 0), Errno::EINVAL),
        ("the last flag", element(full, 1 << 31, 0), Errno::EINVAL),
        ("an empty one", element(empty, 0, 0), Errno::EINVAL),
        (
            "a point of an empty one",
            element(empty, 0, 1),
            Errno::EINVAL,
        ),
        ("a point not submitted", element(line, 0, 6), Errno::EINVAL),
        ("another file's", element(theirs, 0, 0), Errno::ENOENT),
        ("handle 0", Element::default(), Errno::ENOENT),
        (
            "the last handle",
            Element {
                handle: u32::MAX,
                ..Default::default()
            },
            Errno::ENOENT,
        ),
    ] {
        // The one before would have been reset.
        let ins = [element(full, reset, 0), bad];
        let got = node.call(&mut after(Exec::default(), &ins));
        trace.refused(&format!("waiting for {what}"), got, errno)?;
        assert_eq!(holds(&node, full)?, Holds::Done, "{what}");
    }
    for (what, bad) in [
        ("flag 1", element(empty, 1, 0)),
        ("the last flag", element(empty, 1 << 31, 0)),
        ("another file's", element(theirs, 0, 0)),
        ("handle 0", Element::default()),
        (
            "the last handle",
            Element {
                handle: u32::MAX,
                ..Default::default()
            },
        ),
    ] {
        let outs = [element(empty, 0, 0), bad];
        let got = node.call(&mut signalling(Exec::default(), &outs));
        trace.refused(&format!("signalling {what}"), got, Errno::EINVAL)?;
        assert_eq!(holds(&node, empty)?, Holds::Nothing, "{what}");
    }
    // An element of no bytes has handle 0.
    let ins = [element(full, 0, 0)];
    let none = Exec {
        syncobj_stride: 0,
        ..after(Exec::default(), &ins)
    };
    trace.refused("stride 0", node.call(&mut { none }), Errno::ENOENT)
}

fn as_many_sync_objects_as_may_be_are_taken() -> Outcome {
    let node = Node::open()?;
    let full = node.create_syncobj(true)?;
    let ins = vec![element(full, 0, 0); SYNCOBJS_MAX as usize];
    let outs: Vec<Element> = (1..=SYNCOBJS_MAX)
        .map(|_| Ok(element(node.create_syncobj(false)?, 0, 0)))
        .collect::<anyhow::Result<_>>()?;
    let fds = Exec {
        flags: VIRTGPU_EXECBUF_FENCE_FD_OUT,
        ..Default::default()
    };
    let answer = node.submit_with(&stream::nop(1), signalling(after(fds, &ins), &outs))?;
    assert!(ready(fence(&answer), 20_000)?);
    for out in [outs[0], outs[outs.len() - 1]] {
        assert_eq!(holds(&node, handle_of(out.handle))?, Holds::Done);
    }
    Ok(())
}

fn sync_objects_may_have_a_shorter_or_longer_stride() -> Outcome {
    let node = Node::open()?;
    // Words of an element that the kernel knows, and two that it does not.
    for words in [1usize, 2, 4, 6] {
        let objects = [node.create_syncobj(false)?, node.create_syncobj(false)?];
        let mut outs = vec![0xffff_ffffu32; 2 * words];
        for (part, object) in outs.chunks_mut(words).zip(objects) {
            for (to, from) in part.iter_mut().zip([object.into(), 0, 0, 0]) {
                *to = from;
            }
        }
        node.submit_with(
            &stream::nop(1),
            Exec {
                num_out_syncobjs: 2,
                out_syncobjs: outs.as_ptr() as u64,
                syncobj_stride: 4 * words as u32,
                ..Default::default()
            },
        )?;
        for object in objects {
            node.syncobj_wait(&[object], i64::MAX, true, false)?;
        }
    }
    Ok(())
}

fn refused_stream_without_a_fence_is_told_once_by_the_next_call_of_its_file() -> Outcome {
    let (node, other) = (Node::open()?, Node::open()?);
    let (handle, _) = node.texture(16, 16)?;
    let (theirs, _) = other.texture(16, 16)?;
    for by_wait in [false, true] {
        node.wait(handle, 0)?;
        Board.ask("refuse submit-3d out-of-memory")?;
        node.submit(&stream::nop(1))?;
        // What comes after it is over, so it is.
        let after = other.submit_fenced(&stream::nop(1), &[theirs])?;
        assert!(ready(after, 20_000)?);
        other.wait(theirs, 0)?;
        let told = match by_wait {
            false => node.submit(&stream::nop(1)),
            true => node.wait(handle, 0),
        };
        assert_eq!(told, Err(Errno::ENOMEM), "by WAIT: {by_wait}");
        node.submit(&stream::nop(1))?;
        node.wait(handle, 0)?;
    }
    Ok(())
}

fn as_many_bos_as_may_be_are_looked_at() -> Outcome {
    let node = Node::open()?;
    let (handle, _) = node.texture(16, 16)?;
    // So many different ones would take minutes to make. That it is one is found when all are locked.
    let many = vec![handle; BOS_MAX as usize];
    let got = node.submit_fenced(&stream::nop(1), &many);
    assert_eq!(got.err(), Some(Errno::EALREADY));
    Ok(node.wait(handle, 0)?)
}
