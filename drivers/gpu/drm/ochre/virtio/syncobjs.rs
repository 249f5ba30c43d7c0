// SPDX-License-Identifier: GPL-2.0

//! The sync objects that an EXECBUFFER waits for and signals.
//!
//! All that can fail is done while an array is read. What happens to sync objects afterwards,
//! happens when nothing can fail any more: an ioctl that fails changes none.

use core::mem::size_of;

use kernel::{
    prelude::*,
    sync::aref::ARef, //
};

use super::{
    driver::DrmFile,
    limits, //
};
use crate::ext::{
    dma_fence::{
        DmaFence,
        FenceRef, //
    },
    ioctl::user_slice,
    syncobj::{
        ChainNode,
        Syncobj, //
    },
    uapi_virtio as uapi, //
};

type Element = uapi::drm_virtgpu_execbuffer_syncobj;

/// An array of user space whose elements may be shorter or longer than the kernel's.
pub(super) struct Array {
    addr: u64,
    count: u32,
    stride: u32,
}

impl Array {
    /// Describes `count` elements, `stride` bytes apart, at user address `addr`. [`EINVAL`]: they are
    /// too many.
    pub(super) fn new(addr: u64, count: u32, stride: u32) -> Result<Self> {
        if count > limits::EXEC_SYNCOBJS_MAX {
            return Err(EINVAL);
        }
        Ok(Self {
            addr,
            count,
            stride,
        })
    }

    /// Whether there is none; then address and stride mean nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn len(&self) -> Result<usize> {
        Ok(usize::try_from(self.count)?)
    }

    /// Where an element is, and how much of it the program has.
    fn locate(&self, index: u32) -> Result<(u64, usize)> {
        let skip = u64::from(index) * u64::from(self.stride);
        let addr = self.addr.checked_add(skip).ok_or(EFAULT)?;
        let len = usize::try_from(self.stride)?.min(size_of::<Element>());
        Ok((addr, len))
    }

    /// Reads an element. What a shorter one lacks is 0.
    fn read(&self, index: u32) -> Result<Element> {
        let (addr, len) = self.locate(index)?;
        let mut bytes = [0; size_of::<Element>()];
        let part = bytes.get_mut(..len).ok_or(EINVAL)?;
        user_slice(addr, len)?.reader().read_slice(part)?;
        let [h0, h1, h2, h3, f0, f1, f2, f3, point @ ..] = bytes;
        Ok(Element {
            handle: u32::from_ne_bytes([h0, h1, h2, h3]),
            flags: u32::from_ne_bytes([f0, f1, f2, f3]),
            point: u64::from_ne_bytes(point),
        })
    }
}

/// The sync objects to wait for, all of which have been waited for.
pub(super) struct Waited {
    /// Those that are to be empty afterwards.
    resets: KVec<ARef<Syncobj>>,
}

impl Waited {
    /// Looks all elements up and calls `wait` with the fence of each.
    ///
    /// [`ENOENT`]: no such sync object; [`EINVAL`]: an unknown flag, or a point that nobody
    /// submitted; and what `wait` returns.
    pub(super) fn read(
        file: &DrmFile,
        array: &Array,
        mut wait: impl FnMut(FenceRef) -> Result,
    ) -> Result<Self> {
        let mut this = Self {
            resets: KVec::new(),
        };
        for index in 0..array.count {
            let element = array.read(index)?;
            if element.flags & !uapi::VIRTGPU_EXECBUF_SYNCOBJ_RESET != 0 {
                return Err(EINVAL);
            }
            let object = Syncobj::lookup(file, element.handle)?;
            wait(object.find_fence(element.point)?)?;
            if element.flags & uapi::VIRTGPU_EXECBUF_SYNCOBJ_RESET != 0 {
                this.resets.push(object, GFP_KERNEL_ACCOUNT)?;
            }
        }
        Ok(this)
    }

    /// Empties those that the program wants empty. Cannot fail.
    pub(super) fn reset(self) {
        for object in &self.resets {
            object.replace_fence(None);
        }
    }
}

/// A sync object to signal.
struct Signal {
    object: ARef<Syncobj>,
    /// Of a timeline.
    point: Option<(u64, ChainNode)>,
}

/// The sync objects to signal.
pub(super) struct Signals(KVec<Signal>);

impl Signals {
    /// Looks all elements up. [`EINVAL`]: no such sync object, or a flag; [`ENOMEM`].
    pub(super) fn read(file: &DrmFile, array: &Array) -> Result<Self> {
        let mut signals = KVec::with_capacity(array.len()?, GFP_KERNEL_ACCOUNT)?;
        for index in 0..array.count {
            let element = array.read(index)?;
            if element.flags != 0 {
                return Err(EINVAL);
            }
            // The C driver's answer, other than for those to wait for.
            let object = Syncobj::lookup(file, element.handle).map_err(|_| EINVAL)?;
            let point = match element.point {
                0 => None,
                point => Some((point, ChainNode::new()?)),
            };
            signals.push(Signal { object, point }, GFP_KERNEL_ACCOUNT)?;
        }
        Ok(Self(signals))
    }

    /// Makes all of them hold `fence`. Cannot fail.
    pub(super) fn publish(self, fence: &DmaFence) {
        for Signal { object, point } in self.0 {
            match point {
                None => object.replace_fence(Some(fence)),
                Some((point, node)) => object.add_point(node, fence, point),
            }
        }
    }
}

#[kunit_tests(ochre_virtio_syncobjs)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_a_stride_apart_and_cut_at_what_the_kernel_knows() -> Result {
        let array = Array::new(0x1000, 3, 24)?;
        assert_eq!(array.locate(0)?, (0x1000, 16));
        assert_eq!(array.locate(2)?, (0x1030, 16));
        let short = Array::new(0x1000, 3, 8)?;
        assert_eq!(short.locate(2)?, (0x1010, 8));
        Ok(())
    }

    #[test]
    fn address_that_overflows_is_a_fault() -> Result {
        let array = Array::new(u64::MAX - 8, 2, 16)?;
        assert_eq!(array.locate(1).err(), Some(EFAULT));
        let array = Array::new(u64::MAX, limits::EXEC_SYNCOBJS_MAX, u32::MAX)?;
        assert_eq!(array.locate(4095).err(), Some(EFAULT));
        Ok(())
    }

    #[test]
    fn more_than_the_limit_are_refused_before_memory_is_taken() {
        let max = limits::EXEC_SYNCOBJS_MAX;
        assert!(Array::new(0, max, 16).is_ok());
        assert_eq!(Array::new(0, max + 1, 16).err(), Some(EINVAL));
        assert_eq!(Array::new(0, u32::MAX, 16).err(), Some(EINVAL));
    }

    #[test]
    fn kernel_address_is_refused_as_user_memory() -> Result {
        let array = Array::new(u64::MAX - 4095, 1, 16)?;
        assert_eq!(array.read(0).err(), Some(EFAULT));
        Ok(())
    }
}
