// SPDX-License-Identifier: GPL-2.0
//! What a driver of a virtio-gpu does every day; it is the same on Ochre and, in the group virtio-c,
//! on the kernel's C driver.

use std::os::fd::AsFd;

use guest::virtio::abi::*;
use guest::virtio::stream;
use guest::virtio::Node;
use guest::Board;
use guest::Errno;
use guest::Outcome;
use nix::poll::poll;
use nix::poll::PollFd;
use nix::poll::PollFlags;

guest::tests! {
    device_has_3d_blobs_a_window_and_contexts,
    capset_is_what_the_device_has,
    texture_goes_to_the_device_and_comes_back,
    work_on_a_texture_is_seen_after_the_wait,
    blob_of_the_guest_is_shared_with_the_device,
    blob_of_the_host_is_seen_through_the_window,
    timelines_of_a_context_do_not_wait_for_each_other,
    nothing_is_left_when_files_are_closed,
}

/// The words of a whole texture of 16 x 16 pixels.
const ALL: drm_virtgpu_3d_box = drm_virtgpu_3d_box {
    x: 0,
    y: 0,
    z: 0,
    w: 16,
    h: 16,
    d: 1,
};
const PAGE: usize = 4096;

/// A word of a resource as the board sees it.
fn peek(resource: u32, index: usize) -> anyhow::Result<String> {
    Board.ask(&format!("peek {resource} {}", 4 * index))
}

fn device_has_3d_blobs_a_window_and_contexts() -> Outcome {
    let node = Node::open()?;
    for param in [
        VIRTGPU_PARAM_3D_FEATURES,
        VIRTGPU_PARAM_RESOURCE_BLOB,
        VIRTGPU_PARAM_HOST_VISIBLE,
        VIRTGPU_PARAM_CONTEXT_INIT,
    ] {
        assert_eq!(node.param(param)?, 1, "parameter {param}");
    }
    // virgl, virgl2 and venus.
    assert_eq!(node.param(VIRTGPU_PARAM_SUPPORTED_CAPSET_IDS)?, 0x16);
    Ok(())
}

fn capset_is_what_the_device_has() -> Outcome {
    let node = Node::open()?;
    for (id, version, size) in [(1u32, 1u32, 308u32), (2, 2, 1384), (4, 0, 160)] {
        // The pattern of the board's config.rs.
        let bytes = (0..size).map(|at| (id * 31 + version * 7 + at) as u8);
        let wanted: Vec<u8> = bytes.collect();
        assert_eq!(node.capset(id, version, size)?, wanted);
        assert_eq!(node.capset(id, version, 16)?, wanted[..16]);
    }
    assert_eq!(node.capset(2, 3, 16), Err(Errno::EINVAL));
    assert_eq!(node.capset(3, 0, 16), Err(Errno::EINVAL));
    Ok(())
}

fn texture_goes_to_the_device_and_comes_back() -> Outcome {
    let node = Node::open()?;
    let (handle, resource) = node.texture(16, 16)?;
    let map = node.map(handle, PAGE)?;
    for index in 0..256 {
        map.set(index, 0x1000 + index as u32);
    }
    node.call(&mut drm_virtgpu_3d_transfer_to_host {
        bo_handle: handle,
        part: ALL,
        ..Default::default()
    })?;
    node.wait(handle, 0)?;
    assert_eq!(peek(resource, 0)?, "0x1000");
    assert_eq!(peek(resource, 255)?, "0x10ff");
    for index in 0..256 {
        map.set(index, 0);
    }
    // The lower right quarter, to the place where it came from.
    node.call(&mut drm_virtgpu_3d_transfer_from_host {
        bo_handle: handle,
        part: drm_virtgpu_3d_box {
            x: 8,
            y: 8,
            w: 8,
            h: 8,
            ..ALL
        },
        offset: 4 * (8 * 16 + 8),
        ..Default::default()
    })?;
    node.wait(handle, 0)?;
    for (index, there) in [
        (0, false),
        (135, false),
        (136, true),
        (143, true),
        (255, true),
    ] {
        let wanted = if there { 0x1000 + index as u32 } else { 0 };
        assert_eq!(map.get(index), wanted, "word {index}");
    }
    Ok(())
}

fn work_on_a_texture_is_seen_after_the_wait() -> Outcome {
    let node = Node::open()?;
    let (handle, resource) = node.texture(16, 16)?;
    let mut words = stream::delay(300);
    words.extend(stream::write(resource, 64, 0xabcd));
    let fence = node.submit_fenced(&words, &[handle])?;
    assert_eq!(node.wait(handle, VIRTGPU_WAIT_NOWAIT), Err(Errno::EBUSY));
    assert_eq!(Node::fence_status(&fence)?, 0);
    node.wait(handle, 0)?;
    assert_eq!(Node::fence_status(&fence)?, 1);
    assert_eq!(node.wait(handle, VIRTGPU_WAIT_NOWAIT), Ok(()));
    assert_eq!(peek(resource, 16)?, "0xabcd");
    Ok(())
}

fn blob_of_the_guest_is_shared_with_the_device() -> Outcome {
    let node = Node::open()?;
    let (handle, resource) = node.blob(VIRTGPU_BLOB_MEM_GUEST, 0, 2 * PAGE as u64, 0)?;
    let map = node.map(handle, 2 * PAGE)?;
    map.set(1500, 77);
    // Behind the creation of the blob.
    node.submit_fenced(&stream::write(resource, 8, 88), &[handle])?;
    node.wait(handle, 0)?;
    assert_eq!(peek(resource, 1500)?, "0x4d");
    assert_eq!(map.get(2), 88);
    Ok(())
}

fn blob_of_the_host_is_seen_through_the_window() -> Outcome {
    let node = Node::open()?;
    let flags = VIRTGPU_BLOB_FLAG_USE_MAPPABLE;
    for hints in [0, DRM_VIRTGPU_BLOB_FLAG_HINT_DEFER_MAPPING] {
        let (handle, resource) =
            node.blob(VIRTGPU_BLOB_MEM_HOST3D, flags, 2 * PAGE as u64, hints)?;
        let map = node.map(handle, 2 * PAGE)?;
        map.set(1025, 5);
        node.submit_fenced(&stream::write(resource, 4096, 6), &[handle])?;
        node.wait(handle, 0)?;
        assert_eq!(peek(resource, 1025)?, "0x5");
        assert_eq!(map.get(1024), 6);
        drop(map);
        node.close(handle)?;
    }
    // What is not mappable cannot be mapped.
    let (handle, _) = node.blob(VIRTGPU_BLOB_MEM_HOST3D, 0, PAGE as u64, 0)?;
    assert!(node.map(handle, PAGE).is_err());
    Ok(())
}

fn timelines_of_a_context_do_not_wait_for_each_other() -> Outcome {
    let node = Node::open()?;
    node.init_context(&[
        (VIRTGPU_CONTEXT_PARAM_CAPSET_ID, 4),
        (VIRTGPU_CONTEXT_PARAM_NUM_RINGS, 2),
        (VIRTGPU_CONTEXT_PARAM_POLL_RINGS_MASK, 0b10),
    ])?;
    let on = |ring_idx, flags| drm_virtgpu_execbuffer {
        flags: VIRTGPU_EXECBUF_RING_IDX | flags,
        ring_idx,
        ..Default::default()
    };
    let slow = node.submit_with(&stream::delay(2000), on(0, VIRTGPU_EXECBUF_FENCE_FD_OUT))?;
    let slow = guest::virtio::fence(&slow);
    node.submit_with(&stream::nop(1), on(1, 0))?;
    // The event of the quick timeline is there while the other one is at work.
    let mut fds = [PollFd::new(node.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, 20_000u16)?, 1);
    assert_eq!(Node::fence_status(&slow)?, 0);
    assert_eq!(node.submit_with(&[], on(2, 0)), Err(Errno::EINVAL));
    Ok(())
}

fn nothing_is_left_when_files_are_closed() -> Outcome {
    const NOTHING: &str = "resources=0 contexts=0 mappings=0 entries=0";
    let node = Node::open()?;
    node.texture(64, 64)?;
    node.blob(VIRTGPU_BLOB_MEM_GUEST, 0, 64 * PAGE as u64, 0)?;
    let flags = VIRTGPU_BLOB_FLAG_USE_MAPPABLE;
    let (handle, _) = node.blob(VIRTGPU_BLOB_MEM_HOST3D, flags, PAGE as u64, 0)?;
    let map = node.map(handle, PAGE)?;
    node.submit(&stream::nop(4))?;
    drop(map);
    drop(node);
    guest::eventually("the board has nothing", 20, || {
        Ok((Board.ask("live")? == NOTHING).then_some(()))
    })
}
