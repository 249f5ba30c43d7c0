// SPDX-License-Identifier: GPL-2.0
//! The memory of BOs: copies of it in both directions, mappings, and what becomes of files and mappings
//! when the device goes.

use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixStream;

use guest::child;
use guest::virtio::abi::*;
use guest::virtio::base_line;
use guest::virtio::stream;
use guest::virtio::Function;
use guest::virtio::Mapping;
use guest::virtio::Node;
use guest::Board;
use guest::Errno;
use guest::Outcome;
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;

guest::tests! {
    blob_of_both_memories_is_copied_both_ways_with_strides,
    deferred_blob_is_in_the_window_only_when_it_is_mapped,
    mapping_beyond_a_bo_or_at_a_wrong_offset_is_refused,
    mapping_outlives_its_handle,
    every_ioctl_is_enodev_when_the_device_is_gone,
    access_to_a_mapping_raises_sigbus_when_the_device_is_gone,
}

const PAGE: usize = 4096;

fn peek(resource: u32, index: usize) -> anyhow::Result<String> {
    Board.ask(&format!("peek {resource} {}", 4 * index))
}

fn blob_of_both_memories_is_copied_both_ways_with_strides() -> Outcome {
    let node = Node::open()?;
    let (handle, resource) = node.blob(VIRTGPU_BLOB_MEM_HOST3D_GUEST, 0, 2 * PAGE as u64, 0)?;
    let map = node.map(handle, 2 * PAGE)?;
    for index in 0..2048 {
        map.set(index, index as u32);
    }
    // To the device's byte 16, from byte 4096 of the pages.
    let part = drm_virtgpu_3d_box {
        x: 16,
        w: 64,
        h: 1,
        d: 1,
        ..Default::default()
    };
    node.call(&mut drm_virtgpu_3d_transfer_to_host {
        bo_handle: handle,
        part,
        offset: 4096,
        stride: 2 * PAGE as u32,
        ..Default::default()
    })?;
    node.wait(handle, 0)?;
    let seen = [3, 4, 19, 20].map(|index| peek(resource, index).ok());
    assert_eq!(
        seen,
        ["0x0", "0x400", "0x40f", "0x0"].map(|word| Some(word.to_string()))
    );
    // And from there back to byte 8.
    node.submit_fenced(&stream::write(resource, 16, 0x77), &[handle])?;
    node.call(&mut drm_virtgpu_3d_transfer_from_host {
        bo_handle: handle,
        part,
        offset: 8,
        ..Default::default()
    })?;
    node.wait(handle, 0)?;
    let seen = [1, 2, 3, 17, 18].map(|index| map.get(index));
    assert_eq!(seen, [1, 0x77, 0x401, 0x40f, 18]);
    Ok(())
}

fn deferred_blob_is_in_the_window_only_when_it_is_mapped() -> Outcome {
    base_line()?;
    let node = Node::open()?;
    let flags = VIRTGPU_BLOB_FLAG_USE_MAPPABLE;
    let defer = DRM_VIRTGPU_BLOB_FLAG_HINT_DEFER_MAPPING;
    let (handle, resource) = node.blob(VIRTGPU_BLOB_MEM_HOST3D, flags, PAGE as u64, defer)?;
    node.submit_fenced(&stream::write(resource, 4, 9), &[handle])?;
    node.wait(handle, 0)?;
    assert!(Board.ask("live")?.contains("mappings=0"));
    let map = node.map(handle, PAGE)?;
    assert!(Board.ask("live")?.contains("mappings=1"));
    assert_eq!(map.get(1), 9);
    map.set(2, 10);
    assert_eq!(peek(resource, 2)?, "0xa");
    Ok(())
}

fn mapping_beyond_a_bo_or_at_a_wrong_offset_is_refused() -> Outcome {
    let (node, other) = (Node::open()?, Node::open()?);
    let flags = VIRTGPU_BLOB_FLAG_USE_MAPPABLE;
    for mem in [VIRTGPU_BLOB_MEM_GUEST, VIRTGPU_BLOB_MEM_HOST3D] {
        let (handle, _) = node.blob(mem, flags, 2 * PAGE as u64, 0)?;
        let offset = node.map_offset(handle)?;
        Mapping::of(&node, offset, 2 * PAGE)?;
        // Beyond its end, and a page of another than the first.
        for (at, bytes) in [(offset, 3 * PAGE), (offset + 2 * PAGE as u64, PAGE)] {
            assert_eq!(
                Mapping::of(&node, at, bytes).err(),
                Some(Errno::EINVAL),
                "memory {mem}"
            );
        }
        // The offset is of no use to a file that has not the BO.
        assert_eq!(Mapping::of(&other, offset, PAGE).err(), Some(Errno::EACCES));
    }
    Ok(())
}

fn mapping_outlives_its_handle() -> Outcome {
    let node = Node::open()?;
    let flags = VIRTGPU_BLOB_FLAG_USE_MAPPABLE;
    let mut maps = Vec::new();
    for mem in [VIRTGPU_BLOB_MEM_GUEST, VIRTGPU_BLOB_MEM_HOST3D] {
        let (handle, _) = node.blob(mem, flags, PAGE as u64, 0)?;
        let map = node.map(handle, PAGE)?;
        map.set(7, 70 + mem);
        node.close(handle)?;
        maps.push((mem, map));
    }
    // Others take what is free.
    for mem in [VIRTGPU_BLOB_MEM_GUEST, VIRTGPU_BLOB_MEM_HOST3D] {
        let (handle, _) = node.blob(mem, flags, PAGE as u64, 0)?;
        node.map(handle, PAGE)?.set(7, 1);
    }
    for (mem, map) in maps {
        assert_eq!(map.get(7), 70 + mem);
    }
    Ok(())
}

fn every_ioctl_is_enodev_when_the_device_is_gone() -> Outcome {
    let function = Function::find()?;
    let node = Node::open()?;
    let (handle, _) = node.texture(16, 16)?;
    let offset = node.map_offset(handle)?;
    function.unbind()?;
    let argument = [0u64; 32];
    let address = argument.as_ptr() as u64;
    let gone = |when| {
        for (name, request) in REQUESTS {
            assert_eq!(
                node.call_at(request, address),
                Err(Errno::ENODEV),
                "{name}{when}"
            );
        }
    };
    gone("");
    // A new mapping is refused, or raises SIGBUS when it is touched.
    let child = child::spawn(|| match Mapping::of(&node, offset, PAGE) {
        Ok(map) => anyhow::bail!("there is still memory: {}", map.get(0)),
        Err(_) => Ok(()),
    })?;
    match child.end()? {
        WaitStatus::Exited(_, 0) | WaitStatus::Signaled(_, Signal::SIGBUS, _) => {}
        end => anyhow::bail!("a new mapping: {end:?}"),
    }
    function.bind()?;
    gone(", when another device is there");
    drop(node);
    let node = Node::open()?;
    let (handle, _) = node.texture(16, 16)?;
    Ok(node.wait(handle, 0)?)
}

fn access_to_a_mapping_raises_sigbus_when_the_device_is_gone() -> Outcome {
    let function = Function::find()?;
    let flags = VIRTGPU_BLOB_FLAG_USE_MAPPABLE;
    for mem in [VIRTGPU_BLOB_MEM_GUEST, VIRTGPU_BLOB_MEM_HOST3D] {
        // A page that was touched before, and one that was not.
        for page in [0, 1] {
            let (mut ours, mut theirs) = UnixStream::pair()?;
            let process = child::spawn(move || {
                let node = Node::open()?;
                let (handle, _) = node.blob(mem, flags, 2 * PAGE as u64, 0)?;
                let map = node.map(handle, 2 * PAGE)?;
                map.set(0, 1);
                theirs.write_all(b"!")?;
                theirs.read_exact(&mut [0])?;
                map.set(page * PAGE / 4, 2);
                anyhow::bail!("page {page} of memory {mem} is still there")
            })?;
            ours.read_exact(&mut [0])?;
            function.unbind()?;
            ours.write_all(b"!")?;
            process.wait_for_signal(Signal::SIGBUS)?;
            function.bind()?;
        }
    }
    Ok(())
}
