// SPDX-License-Identifier: GPL-2.0
//! What the ioctls of BOs take and what they refuse. One that fails leaves no descriptor, and nothing at
//! the device.

use guest::pointers;
use guest::pointers::Cliff;
use guest::virtio::abi::*;
use guest::virtio::base_line;
use guest::virtio::refuses;
use guest::virtio::Node;
use guest::virtio::Trace;
use guest::Board;
use guest::Case;
use guest::Errno;
use guest::Outcome;

guest::tests! {
    map_and_resource_info_refuse_what_is_wrong,
    resource_create_refuses_more_than_the_machine_has,
    resource_that_the_device_refuses_is_told_by_the_wait,
    blob_refuses_what_is_wrong,
    blob_that_does_not_fit_the_window_leaves_no_trace,
    transfer_refuses_what_is_wrong,
    wait_refuses_what_is_wrong,
}

const PAGE: u64 = 4096;
/// Bytes of the window; see vm.conf.
const WINDOW: u64 = 1 << 20;
/// From the driver's limits.rs.
const BLOB_STREAM_MAX: u32 = 64 << 10;

/// A handle that another file has and `node` has not, with that file.
fn foreign() -> anyhow::Result<(Node, u32)> {
    let other = Node::open()?;
    let mut last = 0;
    for _ in 0..8 {
        (last, _) = other.texture(16, 16)?;
    }
    other.wait(last, 0)?;
    Ok((other, last))
}

/// A file with a texture of one page that the device has.
fn textured() -> anyhow::Result<(Node, u32)> {
    base_line()?;
    let node = Node::open()?;
    let (handle, _) = node.texture(32, 32)?;
    node.wait(handle, 0)?;
    Ok((node, handle))
}

fn map_and_resource_info_refuse_what_is_wrong() -> Outcome {
    let (node, handle) = textured()?;
    let (_other, theirs) = foreign()?;
    refuses(
        &node,
        drm_virtgpu_map {
            handle,
            ..Default::default()
        },
        &[
            ("padding", &|a| a.pad = 1, Errno::EINVAL),
            ("handle 0", &|a| a.handle = 0, Errno::ENOENT),
            ("the last handle", &|a| a.handle = u32::MAX, Errno::ENOENT),
            ("another file's", &|a| a.handle = theirs, Errno::ENOENT),
        ],
    )?;
    let info = refuses(
        &node,
        drm_virtgpu_resource_info {
            bo_handle: handle,
            ..Default::default()
        },
        &[
            ("handle 0", &|a| a.bo_handle = 0, Errno::ENOENT),
            (
                "the last handle",
                &|a| a.bo_handle = u32::MAX,
                Errno::ENOENT,
            ),
            ("another file's", &|a| a.bo_handle = theirs, Errno::ENOENT),
        ],
    )?;
    assert_eq!((info.size, info.blob_mem), (4096, 0));
    for mem in [
        VIRTGPU_BLOB_MEM_GUEST,
        VIRTGPU_BLOB_MEM_HOST3D,
        VIRTGPU_BLOB_MEM_HOST3D_GUEST,
    ] {
        let (bo_handle, res_handle) = node.blob(mem, 0, 3 * PAGE, 0)?;
        let mut info = drm_virtgpu_resource_info {
            bo_handle,
            ..Default::default()
        };
        node.call(&mut info)?;
        assert_eq!(
            (info.res_handle, info.size, info.blob_mem),
            (res_handle, 3 * 4096, mem)
        );
    }
    Ok(())
}

fn resource_create_refuses_more_than_the_machine_has() -> Outcome {
    let (node, _) = textured()?;
    let good = drm_virtgpu_resource_create {
        target: 2,
        format: 1,
        width: 16,
        height: 16,
        depth: 1,
        array_size: 1,
        ..Default::default()
    };
    let made = refuses(
        &node,
        good,
        &[("4 GiB", &|a| a.size = u32::MAX, Errno::ENOMEM)],
    )?;
    // Without a size it has a page.
    assert!(node.map(made.bo_handle, 4096).is_ok());
    assert_eq!(node.map(made.bo_handle, 8192).err(), Some(Errno::EINVAL));
    Ok(())
}

fn resource_that_the_device_refuses_is_told_by_the_wait() -> Outcome {
    let (node, _) = textured()?;
    let trace = Trace::begin()?;
    Board.ask("refuse resource-create-3d out-of-memory")?;
    let (handle, _) = node.texture(16, 16)?;
    assert_eq!(node.wait(handle, 0), Err(Errno::ENOMEM));
    node.close(handle)?;
    trace.check("a resource that the device refused")
}

fn blob_refuses_what_is_wrong() -> Outcome {
    type Blob = drm_virtgpu_resource_create_blob;
    let (node, _) = textured()?;
    let stream = vec![0u32; BLOB_STREAM_MAX as usize / 4 + 1];
    let cmd = stream.as_ptr() as u64;
    let nowhere = pointers::unmapped();
    let mut edge = Cliff::new();
    let short = edge.put(&[0; 8]);
    let both: &[Case<'_, Blob>] = &[
        ("padding", &|a| a.pad = 1, Errno::EINVAL),
        ("padding at the end", &|a| a.pad2 = 1, Errno::EINVAL),
        ("memory of no kind", &|a| a.blob_mem = 0, Errno::EINVAL),
        ("memory of kind 4", &|a| a.blob_mem = 4, Errno::EINVAL),
        ("the last kind", &|a| a.blob_mem = u32::MAX, Errno::EINVAL),
        ("flag 8", &|a| a.blob_flags |= 8, Errno::EINVAL),
        ("the last flag", &|a| a.blob_flags |= 1 << 31, Errno::EINVAL),
        ("hint 2", &|a| a.blob_hints = 2, Errno::EINVAL),
        ("the last hint", &|a| a.blob_hints = 1 << 31, Errno::EINVAL),
        ("no bytes", &|a| a.size = 0, Errno::EINVAL),
        ("2^64 - 1 bytes", &|a| a.size = u64::MAX, Errno::EINVAL),
        ("2^63 bytes", &|a| a.size = 1 << 63, Errno::EINVAL),
        (
            "2^64 - 4094 bytes",
            &|a| a.size = u64::MAX - PAGE + 2,
            Errno::EINVAL,
        ),
    ];
    let guest: &[Case<'_, Blob>] = &[
        ("a name for guest memory", &|a| a.blob_id = 1, Errno::EINVAL),
        (
            "a stream for guest memory",
            &|a| (a.cmd, a.cmd_size) = (cmd, 4),
            Errno::EINVAL,
        ),
        (
            "more than the machine has",
            &|a| a.size = 1 << 40,
            Errno::ENOMEM,
        ),
    ];
    let host: &[Case<'_, Blob>] = &[
        ("a stream of 2 bytes", &|a| a.cmd_size = 2, Errno::EINVAL),
        (
            "a stream too long",
            &|a| a.cmd_size = BLOB_STREAM_MAX + 4,
            Errno::EINVAL,
        ),
        (
            "a stream of 4 GiB",
            &|a| a.cmd_size = u32::MAX - 3,
            Errno::EINVAL,
        ),
        ("a stream nowhere", &|a| a.cmd = nowhere, Errno::EFAULT),
        ("a stream at NULL", &|a| a.cmd = 0, Errno::EFAULT),
        (
            "a stream that faults",
            &|a| (a.cmd, a.cmd_size) = (short, 16),
            Errno::EFAULT,
        ),
    ];
    let good = Blob {
        blob_mem: VIRTGPU_BLOB_MEM_GUEST,
        size: PAGE,
        ..Default::default()
    };
    refuses(&node, good, &[both, guest].concat())?;
    let good = Blob {
        blob_mem: VIRTGPU_BLOB_MEM_HOST3D,
        blob_id: 1,
        cmd,
        cmd_size: BLOB_STREAM_MAX,
        ..good
    };
    refuses(&node, good, &[both, host].concat())?;
    Ok(())
}

fn blob_that_does_not_fit_the_window_leaves_no_trace() -> Outcome {
    let (node, _) = textured()?;
    let good = drm_virtgpu_resource_create_blob {
        blob_mem: VIRTGPU_BLOB_MEM_HOST3D,
        blob_flags: VIRTGPU_BLOB_FLAG_USE_MAPPABLE,
        blob_id: 1,
        size: WINDOW,
        ..Default::default()
    };
    let larger = |a: &mut drm_virtgpu_resource_create_blob| a.size = WINDOW + PAGE;
    let made = refuses(
        &node,
        good,
        &[("larger than the window", &larger, Errno::ENOSPC)],
    )?;
    let small = drm_virtgpu_resource_create_blob { size: PAGE, ..good };
    let trace = Trace::begin()?;
    trace.refused("a full window", node.call(&mut { small }), Errno::ENOSPC)?;
    node.close(made.bo_handle)?;
    node.call(&mut { small })?;
    Ok(())
}

fn transfer_refuses_what_is_wrong() -> Outcome {
    type To = drm_virtgpu_3d_transfer_to_host;
    type From = drm_virtgpu_3d_transfer_from_host;
    let (node, texture) = textured()?;
    let (_other, theirs) = foreign()?;
    let (guest, _) = node.blob(VIRTGPU_BLOB_MEM_GUEST, 0, PAGE, 0)?;
    let part = drm_virtgpu_3d_box {
        w: 32,
        h: 32,
        d: 1,
        ..Default::default()
    };
    refuses(
        &node,
        To {
            bo_handle: texture,
            part,
            ..Default::default()
        },
        &[
            ("handle 0", &|a| a.bo_handle = 0, Errno::ENOENT),
            (
                "the last handle",
                &|a| a.bo_handle = u32::MAX,
                Errno::ENOENT,
            ),
            ("another file's", &|a| a.bo_handle = theirs, Errno::ENOENT),
            ("a guest blob", &|a| a.bo_handle = guest, Errno::EINVAL),
            ("a stride", &|a| a.stride = 128, Errno::EINVAL),
            ("a layer stride", &|a| a.layer_stride = 4096, Errno::EINVAL),
        ],
    )?;
    refuses(
        &node,
        From {
            bo_handle: texture,
            part,
            ..Default::default()
        },
        &[
            ("handle 0", &|a| a.bo_handle = 0, Errno::ENOENT),
            (
                "the last handle",
                &|a| a.bo_handle = u32::MAX,
                Errno::ENOENT,
            ),
            ("another file's", &|a| a.bo_handle = theirs, Errno::ENOENT),
            ("a guest blob", &|a| a.bo_handle = guest, Errno::EINVAL),
            ("a stride", &|a| a.stride = 128, Errno::EINVAL),
            ("a layer stride", &|a| a.layer_stride = 4096, Errno::EINVAL),
        ],
    )?;
    node.wait(texture, 0)?;
    // What is beyond the texture the device refuses, and the wait tells.
    let beyond = drm_virtgpu_3d_box {
        x: u32::MAX,
        ..part
    };
    node.call(&mut To {
        bo_handle: texture,
        part: beyond,
        ..Default::default()
    })?;
    assert_eq!(node.wait(texture, 0), Err(Errno::EINVAL));
    node.call(&mut From {
        bo_handle: texture,
        part,
        level: 40,
        ..Default::default()
    })?;
    assert_eq!(node.wait(texture, 0), Err(Errno::EINVAL));
    assert_eq!(node.wait(texture, 0), Ok(()));
    Ok(())
}

fn wait_refuses_what_is_wrong() -> Outcome {
    let (node, handle) = textured()?;
    let (_other, theirs) = foreign()?;
    refuses(
        &node,
        drm_virtgpu_3d_wait {
            handle,
            flags: VIRTGPU_WAIT_NOWAIT,
        },
        &[
            ("flag 2", &|a| a.flags = 2, Errno::EINVAL),
            ("the last flag", &|a| a.flags = 1 << 31, Errno::EINVAL),
            ("handle 0", &|a| a.handle = 0, Errno::ENOENT),
            ("the last handle", &|a| a.handle = u32::MAX, Errno::ENOENT),
            ("another file's", &|a| a.handle = theirs, Errno::ENOENT),
        ],
    )?;
    Ok(())
}
