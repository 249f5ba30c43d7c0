// SPDX-License-Identifier: GPL-2.0
//! The memory of BOs: copies of it in both directions, mappings, and what becomes of files and mappings
//! when the device goes.

use std::fs;
use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use drm::buffer::Buffer;
use drm::buffer::DrmFourcc;
use drm::control::Device;
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
    dumb_buffer_of_the_primary_node_is_memory_for_the_device,
    memory_of_bos_and_of_work_is_accounted_to_the_program,
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

fn dumb_buffer_of_the_primary_node_is_memory_for_the_device() -> Outcome {
    base_line()?;
    let node = Node::open_at(&Function::find()?.primary_node()?)?;
    let mut buffer = node.create_dumb_buffer((60, 40), DrmFourcc::Xrgb8888, 32)?;
    assert_eq!(buffer.pitch(), 240);
    let handle = u32::from(buffer.handle());
    let resource = node.resource(handle)?;
    node.map_dumb_buffer(&mut buffer)?[4..8].copy_from_slice(&7u32.to_le_bytes());
    node.call(&mut drm_virtgpu_3d_transfer_to_host {
        bo_handle: handle,
        part: drm_virtgpu_3d_box {
            w: 60,
            h: 40,
            d: 1,
            ..Default::default()
        },
        ..Default::default()
    })?;
    node.wait(handle, 0)?;
    assert_eq!(peek(resource, 1)?, "0x7");
    // Other pixels would have to be known to the host, too.
    let other = node.create_dumb_buffer((60, 40), DrmFourcc::Rgb565, 16);
    assert_eq!(guest::errno(other), Some(Errno::EINVAL));
    node.destroy_dumb_buffer(buffer)?;
    drop(node);
    base_line()
}

fn memory_of_bos_and_of_work_is_accounted_to_the_program() -> Outcome {
    const MIB: usize = 1 << 20;
    /// The longest stream that is in one piece, and how many of them: more than the driver keeps.
    const STREAM: usize = 256 << 10;
    const STREAMS: usize = 48;
    const KEPT: usize = 16;
    let top = Path::new("/run/accounts");
    fs::create_dir_all(top)?;
    let mounted = Command::new("mount")
        .args(["-t", "cgroup2", "accounts"])
        .arg(top)
        .status()?;
    anyhow::ensure!(mounted.success(), "no control groups");
    fs::write(top.join("cgroup.subtree_control"), "+memory")?;
    let group = top.join("program");
    fs::create_dir_all(&group)?;
    let _undo = Board.until_dropped("hold submit-3d", "release submit-3d")?;
    child::spawn(|| {
        fs::write(group.join("cgroup.procs"), "0")?;
        let now = || -> anyhow::Result<usize> {
            let text = fs::read_to_string(group.join("memory.current"))?;
            Ok(text.trim().parse()?)
        };
        let node = Node::open()?;
        let words = stream::nop(STREAM / 4);
        let before = now()?;
        for _ in 0..16 {
            node.blob(VIRTGPU_BLOB_MEM_GUEST, 0, MIB as u64, 0)?;
        }
        let with_bos = now()?;
        assert!(with_bos >= before + 16 * MIB, "{before}, {with_bos}");
        for _ in 0..STREAMS {
            node.submit(&words)?;
        }
        let with_work = now()?;
        let own = (STREAMS - KEPT) * STREAM;
        assert!(with_work >= with_bos + own, "{with_bos}, {with_work}");
        Ok(())
    })?
    .wait()
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
