// SPDX-License-Identifier: GPL-2.0
//! EXECBUFFERs with rings and sync objects, and what became of these.

use std::num::NonZeroU32;
use std::os::fd::AsFd;

use drm::control::syncobj::Handle;
use drm::control::Device;
use drm::control::RawResourceHandle;
use nix::errno::Errno;
use nix::poll::poll;
use nix::poll::PollFd;
use nix::poll::PollFlags;

use super::abi::*;
use super::Node;
use crate::harness::errno;

/// Work for the GPU.
pub type Exec = drm_virtgpu_execbuffer;
/// A sync object of it.
pub type Element = drm_virtgpu_execbuffer_syncobj;

/// Bytes of an element.
const STRIDE: u32 = size_of::<Element>() as u32;

/// What a sync object holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// No fence.
    Nothing,
    /// A fence that is not over.
    Work,
    /// One that is.
    Done,
}

/// What a sync object holds now.
///
/// # Errors
///
/// It is none of the file's.
pub fn holds(node: &Node, object: Handle) -> anyhow::Result<Holds> {
    match errno(node.syncobj_wait(&[object], 0, false, false)) {
        None => Ok(Holds::Done),
        Some(Errno::ETIME) => Ok(Holds::Work),
        Some(Errno::EINVAL) => Ok(Holds::Nothing),
        Some(other) => anyhow::bail!("a sync object: {other}"),
    }
}

/// The last point of a timeline that is over.
///
/// # Errors
///
/// It is none of the file's.
pub fn reached(node: &Node, object: Handle) -> anyhow::Result<u64> {
    let mut points = [0];
    node.syncobj_timeline_query(&[object], &mut points, false)?;
    Ok(points[0])
}

/// A file whose context has `rings` timelines, of which those of `mask` are polled.
///
/// # Errors
///
/// There is no device, or CONTEXT_INIT's.
pub fn with_rings(rings: u64, mask: u64) -> anyhow::Result<Node> {
    let node = Node::open()?;
    node.init_context(&[
        (VIRTGPU_CONTEXT_PARAM_CAPSET_ID, 4),
        (VIRTGPU_CONTEXT_PARAM_NUM_RINGS, rings),
        (VIRTGPU_CONTEXT_PARAM_POLL_RINGS_MASK, mask),
    ])?;
    Ok(node)
}

/// An EXECBUFFER on a ring.
pub fn on(ring_idx: u32, flags: u32) -> Exec {
    let flags = VIRTGPU_EXECBUF_RING_IDX | flags;
    Exec {
        flags,
        ring_idx,
        ..Default::default()
    }
}

/// A sync object, or a point of one, in an EXECBUFFER.
pub fn element(object: Handle, flags: u32, point: u64) -> Element {
    Element {
        handle: object.into(),
        flags,
        point,
    }
}

/// With these sync objects to wait for, which have to live until the call.
pub fn after(with: Exec, ins: &[Element]) -> Exec {
    Exec {
        num_in_syncobjs: ins.len() as u32,
        in_syncobjs: ins.as_ptr() as u64,
        syncobj_stride: STRIDE,
        ..with
    }
}

/// With these sync objects to signal, which have to live until the call.
pub fn signalling(with: Exec, outs: &[Element]) -> Exec {
    Exec {
        num_out_syncobjs: outs.len() as u32,
        out_syncobjs: outs.as_ptr() as u64,
        syncobj_stride: STRIDE,
        ..with
    }
}

/// Whether a descriptor gets ready within some milliseconds.
///
/// # Errors
///
/// It cannot be polled.
pub fn ready(fd: impl AsFd, ms: u16) -> anyhow::Result<bool> {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut fds, ms)? == 1)
}

/// The library's name of a handle, which is not 0.
pub fn handle_of(handle: u32) -> Handle {
    let handle = NonZeroU32::new(handle).expect("a handle");
    Handle::from(RawResourceHandle::from(handle))
}
