// SPDX-License-Identifier: GPL-2.0
//! Buffers of the device as dma-bufs; the same on Ochre and, in the group virtio-c, on the kernel's C
//! driver.

use guest::virtio::abi::*;
use guest::virtio::export;
use guest::virtio::import;
use guest::virtio::Mapping;
use guest::virtio::Node;
use guest::virtio::Vgem;
use guest::Board;
use guest::Errno;
use guest::Outcome;

guest::tests! {
    dma_buf_shows_the_texture,
    window_is_seen_through_a_dma_buf,
    own_dma_buf_gives_the_handle_back,
    other_file_gets_the_same_resource,
    dma_buf_outlives_handle_and_file,
    other_device_uses_the_memory,
    memory_of_another_device_is_refused_with_3d,
}

const PAGE: usize = 4096;

/// A texture of one page; handle and id.
fn texture(node: &Node) -> Result<(u32, u32), Errno> {
    node.texture(32, 32)
}

fn dma_buf_shows_the_texture() -> Outcome {
    let node = Node::open()?;
    let (handle, _) = texture(&node)?;
    let map = node.map(handle, PAGE)?;
    let shared = Mapping::of(&export(&node, handle)?, 0, PAGE)?;
    map.set(1000, 7);
    assert_eq!(shared.get(1000), 7);
    shared.set(1001, 8);
    assert_eq!(map.get(1001), 8);
    Ok(())
}

fn window_is_seen_through_a_dma_buf() -> Outcome {
    let node = Node::open()?;
    let flags = VIRTGPU_BLOB_FLAG_USE_MAPPABLE | VIRTGPU_BLOB_FLAG_USE_SHAREABLE;
    let (handle, resource) = node.blob(VIRTGPU_BLOB_MEM_HOST3D, flags, 2 * PAGE as u64, 0)?;
    let shared = Mapping::of(&export(&node, handle)?, 0, 2 * PAGE)?;
    shared.set(1030, 9);
    assert_eq!(node.map(handle, 2 * PAGE)?.get(1030), 9);
    assert_eq!(Board.ask(&format!("peek {resource} {}", 4 * 1030))?, "0x9");
    Ok(())
}

fn own_dma_buf_gives_the_handle_back() -> Outcome {
    let node = Node::open()?;
    let (handle, _) = texture(&node)?;
    let fd = export(&node, handle)?;
    assert_eq!(import(&node, &fd)?, handle);
    assert_eq!(import(&node, &export(&node, handle)?)?, handle);
    Ok(())
}

fn other_file_gets_the_same_resource() -> Outcome {
    let (node, other) = (Node::open()?, Node::open()?);
    let (handle, resource) = texture(&node)?;
    let fd = export(&node, handle)?;
    let theirs = import(&other, &fd)?;
    assert_eq!(other.resource(theirs)?, resource);
    node.map(handle, PAGE)?.set(3, 33);
    drop(node);
    assert_eq!(other.map(theirs, PAGE)?.get(3), 33);
    Ok(())
}

fn dma_buf_outlives_handle_and_file() -> Outcome {
    let node = Node::open()?;
    let (handle, _) = texture(&node)?;
    node.map(handle, PAGE)?.set(17, 71);
    let fd = export(&node, handle)?;
    node.close(handle)?;
    drop(node);
    let shared = Mapping::of(&fd, 0, PAGE)?;
    assert_eq!(shared.get(17), 71);
    drop((shared, fd));
    guest::eventually("the board has nothing", 20, || {
        Ok(Board.ask("live")?.starts_with("resources=0 ").then_some(()))
    })
}

fn other_device_uses_the_memory() -> Outcome {
    let (node, vgem) = (Node::open()?, Vgem::open()?);
    let (handle, _) = texture(&node)?;
    node.map(handle, PAGE)?.set(5, 55);
    let fd = export(&node, handle)?;
    let theirs = import(&vgem, &fd)?;
    // What vgem has of it is still the same memory.
    let again = Mapping::of(&export(&vgem, theirs)?, 0, PAGE)?;
    assert_eq!(again.get(5), 55);
    Ok(())
}

fn memory_of_another_device_is_refused_with_3d() -> Outcome {
    let (node, vgem) = (Node::open()?, Vgem::open()?);
    let fd = vgem.dma_buf(1)?;
    assert_eq!(import(&node, &fd), Err(Errno::ENODEV));
    Ok(())
}
