// SPDX-License-Identifier: GPL-2.0
//! Fences of another driver, on memory of the device that it has borrowed. With copies of the pages a
//! transfer has to wait for them, as WAIT does in any case; and for the device's end, too.

use std::time::Duration;
use std::time::Instant;

use guest::virtio::abi::*;
use guest::virtio::blocked;
use guest::virtio::dies;
use guest::virtio::export;
use guest::virtio::import;
use guest::virtio::Function;
use guest::virtio::Node;
use guest::virtio::Vgem;
use guest::Board;
use guest::Errno;
use guest::Outcome;

guest::tests! {
    device_works_on_copies_that_are_brought_up_to_date,
    wait_for_another_driver_ends_when_it_is_done,
    wait_for_another_driver_ends_when_the_device_goes,
    sigkill_ends_the_wait_for_another_driver,
}

/// Longest that the end of a wait may take. (The other driver is done after ten seconds.)
const SOON: Duration = Duration::from_secs(4);

/// An ioctl that waits for a BO.
type Wait = fn(&Node, u32) -> Result<(), Errno>;

const WAITS: [(&str, Wait); 2] = [
    ("WAIT", |node, handle| node.wait(handle, 0)),
    ("TRANSFER_TO_HOST", transfer),
];

fn transfer(node: &Node, bo_handle: u32) -> Result<(), Errno> {
    node.call(&mut drm_virtgpu_3d_transfer_to_host {
        bo_handle,
        part: drm_virtgpu_3d_box {
            w: 16,
            h: 16,
            d: 1,
            ..Default::default()
        },
        ..Default::default()
    })
}

/// A texture with which another driver is at work.
fn occupied(node: &Node, vgem: &Vgem) -> anyhow::Result<u32> {
    let (handle, _) = node.texture(16, 16)?;
    node.wait(handle, 0)?;
    vgem.occupy(import(vgem, &export(node, handle)?)?)?;
    Ok(handle)
}

fn device_works_on_copies_that_are_brought_up_to_date() -> Outcome {
    let node = Node::open()?;
    let (handle, resource) = node.texture(16, 16)?;
    let map = node.map(handle, 1024)?;
    for value in [1, 2] {
        map.set(5, value);
        transfer(&node, handle)?;
        node.wait(handle, 0)?;
        assert_eq!(
            Board.ask(&format!("peek {resource} 20"))?,
            format!("{value:#x}")
        );
    }
    Ok(())
}

fn wait_for_another_driver_ends_when_it_is_done() -> Outcome {
    let (node, vgem) = (Node::open()?, Vgem::open()?);
    let handle = occupied(&node, &vgem)?;
    let began = Instant::now();
    transfer(&node, handle)?;
    assert!(began.elapsed() > SOON, "it has not waited");
    Ok(node.wait(handle, 0)?)
}

fn wait_for_another_driver_ends_when_the_device_goes() -> Outcome {
    let function = Function::find()?;
    for (name, wait) in WAITS {
        let (node, vgem) = (Node::open()?, Vgem::open()?);
        let handle = occupied(&node, &vgem)?;
        let child = blocked(|| match wait(&node, handle) {
            Err(Errno::ENODEV) => Ok(()),
            other => anyhow::bail!("{other:?}"),
        })?;
        let child = child.ok_or(anyhow::anyhow!("{name} does not wait"))?;
        let began = Instant::now();
        function.unbind()?;
        let told = child.wait();
        let took = began.elapsed();
        drop((node, vgem));
        function.bind()?;
        told?;
        assert!(took < SOON, "{name} took {took:?}");
    }
    Ok(())
}

fn sigkill_ends_the_wait_for_another_driver() -> Outcome {
    for (name, wait) in WAITS {
        let (node, vgem) = (Node::open()?, Vgem::open()?);
        let handle = occupied(&node, &vgem)?;
        let child = blocked(|| Ok(wait(&node, handle)?))?;
        let child = child.ok_or(anyhow::anyhow!("{name} does not wait"))?;
        assert!(dies(child, SOON)?, "{name}");
    }
    Ok(())
}
