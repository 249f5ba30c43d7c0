// SPDX-License-Identifier: GPL-2.0
//! Structures of the ABI and of the hardware as bytes.

/// The bytes of a structure.
pub fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: Structures of the ABI and of the hardware have no padding: their layout is the same
    // for everybody who reads them.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}
