// SPDX-License-Identifier: GPL-2.0

//! Arrays of user space whose elements may grow, and the limits of all arrays.
//!
//! "Rules that hold for every ioctl" in [`include/uapi/drm/ochre_drm.h`](srctree/include/uapi/drm/ochre_drm.h):
//! an array comes with its stride; an element may be longer than the kernel knows if the rest is
//! zero. So a program that is newer than the kernel works as long as it asks for nothing new.

use kernel::{
    prelude::*,
    transmute::FromBytes,
    uaccess::UserSliceReader, //
};

use crate::ext::ioctl::user_slice;

/// Most jobs of one SUBMIT.
pub(crate) const JOBS_MAX: u32 = 256;
/// Most operations of one VM_BIND.
pub(crate) const BINDS_MAX: u32 = 1024;
/// Most syncs of one job, one VM_BIND or one WAIT.
pub(crate) const SYNCS_MAX: u32 = 64;
/// Longest stride: an element that the kernel does not know fully is still a small one.
const STRIDE_MAX: usize = 4096;

/// Reads an array of `count` elements, `stride` bytes apart, at user address `addr`.
///
/// [`EINVAL`]: more than `max` of them, or a stride below the size of `T`; [`E2BIG`]: something
/// other than zero in the part of an element that the kernel does not know, or an element beyond
/// all measure; [`EFAULT`].
pub(crate) fn read<T: FromBytes>(addr: u64, count: u32, stride: u32, max: u32) -> Result<KVVec<T>> {
    let mut elements = KVVec::new();
    if count == 0 {
        return Ok(elements);
    }
    let size = core::mem::size_of::<T>();
    let (count, stride) = (usize::try_from(count)?, usize::try_from(stride)?);
    if count > usize::try_from(max)? || stride < size {
        return Err(EINVAL);
    }
    if stride > STRIDE_MAX {
        return Err(E2BIG);
    }
    let bytes = count.checked_mul(stride).ok_or(EINVAL)?;

    elements.reserve(count, GFP_KERNEL_ACCOUNT)?;
    let mut reader = user_slice(addr, bytes)?.reader();
    for _ in 0..count {
        elements.push(reader.read::<T>()?, GFP_KERNEL_ACCOUNT)?;
        expect_zeros(&mut reader, stride - size)?;
    }
    Ok(elements)
}

/// Consumes `bytes` bytes, which have to be zero.
fn expect_zeros(reader: &mut UserSliceReader, mut bytes: usize) -> Result {
    let mut chunk = [0u8; 64];
    while bytes > 0 {
        let n = bytes.min(chunk.len());
        let part = chunk.get_mut(..n).ok_or(EINVAL)?;
        reader.read_slice(part)?;
        if part.iter().any(|&byte| byte != 0) {
            return Err(E2BIG);
        }
        bytes -= n;
    }
    Ok(())
}

#[kunit_tests(ochre_gpu_elements)]
mod tests {
    use super::*;

    #[test]
    fn empty_array_needs_neither_pointer_nor_stride() -> Result {
        assert!(read::<u64>(u64::MAX, 0, 0, 4)?.is_empty());
        Ok(())
    }

    #[test]
    fn too_many_elements_are_refused_before_memory_is_taken() {
        assert_eq!(read::<u64>(0x1000, 5, 8, 4).err(), Some(EINVAL));
        assert_eq!(read::<u64>(0x1000, u32::MAX, 8, 4).err(), Some(EINVAL));
    }

    #[test]
    fn stride_below_the_size_is_refused_and_one_beyond_measure_too() {
        assert_eq!(read::<u64>(0x1000, 1, 7, 4).err(), Some(EINVAL));
        assert_eq!(read::<u64>(0x1000, 1, 0, 4).err(), Some(EINVAL));
        assert_eq!(read::<u64>(0x1000, 1, 4097, 4).err(), Some(E2BIG));
        assert_eq!(read::<u64>(0x1000, 4, u32::MAX, 4).err(), Some(E2BIG));
    }

    #[test]
    fn kernel_address_is_refused_as_user_memory() {
        assert_eq!(read::<u64>(u64::MAX - 4095, 1, 8, 4).err(), Some(EFAULT));
    }
}
