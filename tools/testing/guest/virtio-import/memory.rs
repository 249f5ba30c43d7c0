// SPDX-License-Identifier: GPL-2.0
//! Memory of another device as a resource.

use guest::child;
use guest::virtio::export;
use guest::virtio::import;
use guest::virtio::Function;
use guest::virtio::Mapping;
use guest::virtio::Node;
use guest::virtio::Vgem;
use guest::Board;
use guest::Outcome;
use nix::sys::signal::Signal;

guest::tests! {
    device_sees_the_memory_of_another_device,
    program_maps_what_it_imported,
    imported_buffer_is_exported_as_what_it_was,
    memory_is_given_back_with_the_last_reference,
    mapping_of_a_dma_buf_ends_when_the_driver_is_unbound,
}

const PAGE: usize = 4096;
const PAGES: usize = 4;
const BYTES: usize = PAGES * PAGE;

fn device_sees_the_memory_of_another_device() -> Outcome {
    let (node, vgem) = (Node::open()?, Vgem::open()?);
    let fd = vgem.dma_buf(PAGES as u32)?;
    let memory = Mapping::of(&fd, 0, BYTES)?;
    memory.set(0, 1);
    memory.set(3000, 2);
    let handle = import(&node, &fd)?;
    let resource = node.resource(handle)?;
    let peek = |index: usize| Board.ask(&format!("peek {resource} {}", 4 * index));
    assert_eq!(peek(0)?, "0x1");
    assert_eq!(peek(3000)?, "0x2");
    memory.set(4095, 3);
    assert_eq!(peek(4095)?, "0x3");
    Ok(())
}

fn program_maps_what_it_imported() -> Outcome {
    let (node, vgem) = (Node::open()?, Vgem::open()?);
    let fd = vgem.dma_buf(PAGES as u32)?;
    let handle = import(&node, &fd)?;
    let map = node.map(handle, BYTES)?;
    map.set(2000, 20);
    node.close(handle)?;
    assert_eq!(Mapping::of(&fd, 0, BYTES)?.get(2000), 20);
    // The mapping is the exporter's and needs nobody else.
    drop((fd, vgem, node));
    assert_eq!(map.get(2000), 20);
    Ok(())
}

fn imported_buffer_is_exported_as_what_it_was() -> Outcome {
    let (node, vgem) = (Node::open()?, Vgem::open()?);
    let buffer = vgem.buffer(1)?;
    let theirs = {
        use drm::buffer::Buffer;
        u32::from(buffer.handle())
    };
    let handle = import(&node, &export(&vgem, theirs)?)?;
    assert_eq!(import(&vgem, &export(&node, handle)?)?, theirs);
    Ok(())
}

fn memory_is_given_back_with_the_last_reference() -> Outcome {
    let (node, vgem) = (Node::open()?, Vgem::open()?);
    for _ in 0..50 {
        let handle = import(&node, &vgem.dma_buf(64)?)?;
        node.close(handle)?;
    }
    guest::eventually("the board has nothing", 20, || {
        Ok(Board.ask("live")?.starts_with("resources=0 ").then_some(()))
    })
}

fn mapping_of_a_dma_buf_ends_when_the_driver_is_unbound() -> Outcome {
    let function = Function::find()?;
    let node = Node::open()?;
    let (handle, _) = node.texture(32, 32)?;
    let fd = export(&node, handle)?;
    let touch = || -> Outcome {
        let shared = Mapping::of(&fd, 0, PAGE)?;
        shared.set(0, 1);
        function.unbind()?;
        shared.set(0, 2);
        panic!("the memory can still be written to")
    };
    let ended = child::spawn(touch)?.wait_for_signal(Signal::SIGBUS);
    drop((fd, node));
    function.bind()?;
    ended
}
