// SPDX-License-Identifier: GPL-2.0
//! Defects of the C driver. The names say what a driver without them does: Ochre has to, and on C
//! (the group virtio-c-defects) each has to show that it does not. The last ones leave the C driver, and its
//! processes, in a state from which only a boot helps.

use std::os::fd::AsFd;
use std::time::Duration;
use std::time::Instant;

use guest::child;
use guest::virtio::abi::*;
use guest::virtio::blocked;
use guest::virtio::dies;
use guest::virtio::stream;
use guest::virtio::verdict;
use guest::virtio::Defect;
use guest::virtio::Driver;
use guest::virtio::Function;
use guest::virtio::Node;
use guest::Board;
use guest::Errno;
use guest::Messages;
use guest::Outcome;
use nix::poll::poll;
use nix::poll::PollFd;
use nix::poll::PollFlags;

guest::tests! {
    refused_work_ends_its_fence_with_an_error,
    refused_transfer_is_told_by_the_next_wait,
    unknown_blob_hints_are_refused,
    blob_size_that_overflows_is_refused,
    counts_of_bos_and_syncobjs_have_a_limit,
    place_and_id_of_a_blob_are_not_used_again_while_the_host_unmaps_it,
    killed_program_does_not_wait_for_a_capset,
    killed_program_does_not_wait_for_room_in_the_ring,
    device_that_answers_after_6_seconds_is_probed_with_all_it_has,
    unbind_ends_though_the_device_refuses_to_be_reset,
    fences_at_work_end_with_an_error_at_unbind,
    program_that_waits_for_room_is_told_that_the_device_goes,
    mmap_of_a_deferred_blob_ends_when_the_window_is_full,
}

/// Longest that a process may live after SIGKILL.
const SOON: Duration = Duration::from_secs(3);
/// Bytes of the window; see vm.conf.
const WINDOW: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Whether a descriptor gets ready within some seconds.
fn ready(fd: impl AsFd, seconds: u16) -> anyhow::Result<bool> {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut fds, seconds * 1000)? == 1)
}

/// A mappable blob of the host.
fn host_blob(node: &Node, size: u64, hints: u32) -> Result<(u32, u32), Errno> {
    let flags = VIRTGPU_BLOB_FLAG_USE_MAPPABLE;
    node.blob(VIRTGPU_BLOB_MEM_HOST3D, flags, size, hints)
}

fn refused_work_ends_its_fence_with_an_error() -> Outcome {
    let function = Function::find()?;
    let node = Node::open()?;
    let mut seen = Vec::new();
    // Once by the board, once because the stream says so.
    Board.ask("refuse submit-3d invalid-parameter")?;
    for words in [stream::nop(1), stream::fail(0x1205)] {
        match node.submit_fenced(&words, &[]) {
            Ok(fence) => {
                anyhow::ensure!(ready(&fence, 20)?, "the fence does not end");
                seen.push(Node::fence_status(&fence)?);
            }
            Err(errno) => seen.push(-(errno as i32)),
        }
    }
    let shown = seen.contains(&1);
    verdict(
        &function,
        Defect::if_so(shown, format!("fences ended with {seen:?}")),
    )
}

fn refused_transfer_is_told_by_the_next_wait() -> Outcome {
    let function = Function::find()?;
    let node = Node::open()?;
    let (handle, _) = node.texture(16, 16)?;
    node.wait(handle, 0)?;
    Board.ask("refuse transfer-to-host-3d unspec")?;
    let mut transfer = drm_virtgpu_3d_transfer_to_host {
        bo_handle: handle,
        part: drm_virtgpu_3d_box {
            w: 16,
            h: 16,
            d: 1,
            ..Default::default()
        },
        ..Default::default()
    };
    let told = node.call(&mut transfer).and_then(|()| node.wait(handle, 0));
    // It is told once, and then the BO is as good as before.
    node.call(&mut transfer)?;
    node.wait(handle, 0)?;
    verdict(
        &function,
        Defect::if_so(told.is_ok(), "the wait knows of no error"),
    )
}

fn unknown_blob_hints_are_refused() -> Outcome {
    let function = Function::find()?;
    let node = Node::open()?;
    let taken: Vec<u32> = [2, 1 << 31, u32::MAX]
        .into_iter()
        .filter(|hints| {
            let blob = node.blob(VIRTGPU_BLOB_MEM_GUEST, 0, PAGE, *hints);
            blob != Err(Errno::EINVAL)
        })
        .collect();
    let shown = !taken.is_empty();
    verdict(
        &function,
        Defect::if_so(shown, format!("taken: {taken:x?}")),
    )
}

fn blob_size_that_overflows_is_refused() -> Outcome {
    let function = Function::find()?;
    let node = Node::open()?;
    let mut seen = Vec::new();
    for mem in [VIRTGPU_BLOB_MEM_GUEST, VIRTGPU_BLOB_MEM_HOST3D] {
        for size in [0, u64::MAX, u64::MAX - PAGE + 2, 1 << 63] {
            match node.blob(mem, 0, size, 0) {
                Ok(_) => seen.push(format!("{size:#x} bytes are taken")),
                Err(errno) => println!("# memory {mem}, {size:#x} bytes: {errno}"),
            }
        }
    }
    // RESOURCE_INFO has 32 bits for a size: one that does not fit is refused at either place.
    let size = (4 << 30) + PAGE;
    let blob = node.blob(VIRTGPU_BLOB_MEM_HOST3D, 0, size, 0);
    let told = blob.and_then(|(handle, _)| {
        let mut info = drm_virtgpu_resource_info {
            bo_handle: handle,
            ..Default::default()
        };
        node.call(&mut info)?;
        Ok(info.size)
    });
    if let Ok(told) = told {
        seen.push(format!("{size:#x} bytes are told as {told:#x}"));
    }
    let shown = !seen.is_empty();
    verdict(&function, Defect::if_so(shown, seen.join(", ")))
}

fn counts_of_bos_and_syncobjs_have_a_limit() -> Outcome {
    /// Arrays of them exceed what the kernel allocates in one piece.
    const MANY: u32 = 1 << 30;
    let function = Function::find()?;
    let node = Node::open()?;
    let mut messages = Messages::from_now()?;
    let array = [0u64; 8];
    let at = array.as_ptr() as u64;
    let stride = size_of::<drm_virtgpu_execbuffer_syncobj>() as u32;
    let cases = [
        drm_virtgpu_execbuffer {
            num_bo_handles: MANY,
            bo_handles: at,
            ..Default::default()
        },
        drm_virtgpu_execbuffer {
            num_in_syncobjs: MANY,
            in_syncobjs: at,
            syncobj_stride: stride,
            ..Default::default()
        },
        drm_virtgpu_execbuffer {
            num_out_syncobjs: MANY,
            out_syncobjs: at,
            syncobj_stride: stride,
            ..Default::default()
        },
    ];
    let answers = cases.map(|case| node.submit_with(&stream::nop(1), case).map(drop));
    let warned = |line: &&String| line.contains("WARNING:");
    let warnings = messages.lines()?.iter().filter(warned).count();
    let limited = |answer: &Result<(), Errno>| matches!(answer, Err(Errno::EINVAL | Errno::E2BIG));
    let shown = warnings > 0 || !answers.iter().all(limited);
    let seen = format!("{answers:?}, {warnings} warnings of the kernel");
    verdict(&function, Defect::if_so(shown, seen))
}

fn place_and_id_of_a_blob_are_not_used_again_while_the_host_unmaps_it() -> Outcome {
    let function = Function::find()?;
    let node = Node::open()?;
    let unrefs = || -> anyhow::Result<u32> {
        let counts = Board.ask("counts")?;
        let count = counts
            .split_whitespace()
            .find_map(|entry| entry.strip_prefix("resource-unref="));
        Ok(count.unwrap_or("0").parse()?)
    };
    let before = unrefs()?;
    let held = Board.until_dropped("hold unmap-blob", "release unmap-blob")?;
    let (handle, id) = host_blob(&node, 4 * PAGE, 0)?;
    node.map(handle, 4096)?;
    node.close(handle)?;
    guest::eventually("the unmapping is asked for", 20, || {
        Ok(Board.ask("mappings")?.contains("unmapping").then_some(()))
    })?;
    if function.driver() == Driver::C {
        guest::eventually("the blob is unreferenced", 20, || {
            Ok((unrefs()? > before).then_some(()))
        })?;
    }
    // The C driver looks at the answer on a worker of its own.
    let taken = ["resource-exists", "window-busy"];
    let (mut broken, mut ids) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let (handle, new) = host_blob(&node, 4 * PAGE, 0)?;
        ids.push(new);
        let _mapped = node.map(handle, 4096);
        node.close(handle)?;
        let violations = Board.violations()?;
        broken.extend(violations.into_iter().map(|violation| violation.rule));
        broken.retain(|rule| taken.contains(&rule.as_str()));
        if !broken.is_empty() {
            break;
        }
    }
    let shown = !broken.is_empty() || ids.contains(&id);
    drop(held);
    let seen = format!("id {id} was unmapped, then came {ids:?}: {broken:?}");
    verdict(&function, Defect::if_so(shown, seen))
}

fn killed_program_does_not_wait_for_a_capset() -> Outcome {
    let function = Function::find()?;
    // What was read before may be remembered.
    function.unbind()?;
    function.bind()?;
    let node = Node::open()?;
    let held = Board.until_dropped("hold get-capset", "release get-capset")?;
    let child = blocked(|| {
        node.capset(4, 0, 160)?;
        Ok(())
    })?;
    let shown = match child {
        // Who has read the capsets before need not wait for the device.
        None => false,
        Some(child) => !dies(child, SOON)?,
    };
    drop(held);
    let seen = format!("alive {SOON:?} after SIGKILL");
    verdict(&function, Defect::if_so(shown, seen))
}

fn killed_program_does_not_wait_for_room_in_the_ring() -> Outcome {
    let function = Function::find()?;
    let stalled = Board.until_dropped("stall", "resume")?;
    let node = Node::open()?;
    let child = blocked(|| loop {
        node.submit(&stream::nop(1))?;
    })?;
    let child = child.ok_or(anyhow::anyhow!("there is always room"))?;
    let shown = !dies(child, SOON)?;
    drop(stalled);
    let seen = format!("alive {SOON:?} after SIGKILL");
    verdict(&function, Defect::if_so(shown, seen))
}

fn device_that_answers_after_6_seconds_is_probed_with_all_it_has() -> Outcome {
    let function = Function::find()?;
    let usual = Node::open()?.param(VIRTGPU_PARAM_SUPPORTED_CAPSET_IDS)?;
    anyhow::ensure!(usual != 0, "it has no capsets");
    function.unbind()?;
    let late = Board.until_dropped("late 6000", "late 0")?;
    let bound = function.bind();
    let capsets = match &bound {
        Ok(()) => Node::open()?.param(VIRTGPU_PARAM_SUPPORTED_CAPSET_IDS).ok(),
        Err(_) => None,
    };
    drop(late);
    let seen = format!("capsets {usual:#x} became {capsets:x?}");
    if bound.is_ok() {
        function.unbind()?;
    }
    function.bind()?;
    verdict(&function, Defect::if_so(capsets != Some(usual), seen))
}

fn fences_at_work_end_with_an_error_at_unbind() -> Outcome {
    let function = Function::find()?;
    let node = Node::open()?;
    let (handle, _) = node.texture(16, 16)?;
    node.wait(handle, 0)?;
    let mut messages = Messages::from_now()?;
    let held = Board.until_dropped("hold submit-3d", "release submit-3d")?;
    let fences = [
        node.submit_fenced(&stream::nop(1), &[handle])?,
        node.submit_fenced(&stream::nop(1), &[])?,
    ];
    let began = Instant::now();
    function.unbind()?;
    let took = began.elapsed();
    drop(held);
    let mut states = Vec::new();
    for fence in &fences {
        ready(fence, 5)?;
        states.push(Node::fence_status(fence)?);
    }
    drop(node);
    function.bind()?;
    drop(fences);
    let signs = ["WARNING:", "BUG:", "refcount_t"];
    let complained = |line: &&String| signs.iter().any(|sign| line.contains(sign));
    let complaints: Vec<&String> = messages.lines()?.iter().filter(complained).collect();
    let shown = states.iter().any(|state| *state >= 0) || !complaints.is_empty();
    let seen = format!("fences are in state {states:?} after {took:?}, {complaints:?}");
    verdict(&function, Defect::if_so(shown, seen))
}

fn unbind_ends_though_the_device_refuses_to_be_reset() -> Outcome {
    let function = Function::find()?;
    let refused = Board.until_dropped("refuse-reset on", "refuse-reset off")?;
    let child = child::spawn(|| Ok(function.unbind()?))?;
    let ended = guest::eventually("the unbind ends", 15, || {
        Ok(child.has_ended()?.then_some(()))
    });
    drop(refused);
    child.wait()?;
    function.bind()?;
    let seen = "not within 15 s, but as soon as the device takes the reset";
    verdict(&function, Defect::if_so(ended.is_err(), seen))
}

fn program_that_waits_for_room_is_told_that_the_device_goes() -> Outcome {
    let function = Function::find()?;
    let stalled = Board.until_dropped("stall", "resume")?;
    let node = Node::open()?;
    let child = blocked(|| {
        let mut last = None;
        let errno = loop {
            match node.submit_fenced(&stream::nop(1), &[]) {
                Ok(fence) => last = Some(fence),
                Err(errno) => break errno,
            }
        };
        anyhow::ensure!(errno == Errno::ENODEV, "{errno}");
        // All that was taken ends, too.
        let last = last.ok_or(anyhow::anyhow!("nothing was taken"))?;
        anyhow::ensure!(ready(&last, 5)?, "the last fence does not end");
        anyhow::ensure!(Node::fence_status(&last)? < 0, "it ends well");
        Ok(())
    })?;
    let child = child.ok_or(anyhow::anyhow!("there is always room"))?;
    function.unbind()?;
    drop(stalled);
    let told = child.wait();
    drop(node);
    function.bind()?;
    let seen = "the work was taken, and its fence does not end";
    verdict(&function, Defect::if_so(told.is_err(), seen))
}

fn mmap_of_a_deferred_blob_ends_when_the_window_is_full() -> Outcome {
    let function = Function::find()?;
    let node = Node::open()?;
    let all = host_blob(&node, WINDOW, 0)?;
    let defer = DRM_VIRTGPU_BLOB_FLAG_HINT_DEFER_MAPPING;
    let (handle, _) = host_blob(&node, 4 * PAGE, defer)?;
    let child = blocked(|| match node.map(handle, 4096) {
        Ok(_) => anyhow::bail!("mapped in a window that is full"),
        Err(_) => Ok(()),
    })?;
    let shown = match child {
        None => false,
        Some(child) => !dies(child, SOON)?,
    };
    let _ = all;
    let seen = format!("alive {SOON:?} after SIGKILL");
    verdict(&function, Defect::if_so(shown, seen))
}
