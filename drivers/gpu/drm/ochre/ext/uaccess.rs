// SPDX-License-Identifier: GPL-2.0

//! Memory of a program, without waiting for it.
//!
//! C header: [`include/linux/uaccess.h`](srctree/include/linux/uaccess.h)

use kernel::{
    bindings,
    error::to_result,
    ffi::c_int,
    prelude::*, //
};

/// Fills `to` from the user address `from`, if all of that is in memory. [`EFAULT`] if not, whatever
/// the reason; then `to` may be changed. In any context.
pub(crate) fn copy_from_user_nofault(to: &mut [u8], from: u64) -> Result {
    let from = usize::try_from(from).map_err(|_| EFAULT)?;
    // SAFETY: `to` is valid for writing. The function checks the address.
    let error = unsafe {
        bindings::copy_from_user_nofault(
            to.as_mut_ptr().cast(),
            core::ptr::without_provenance(from),
            to.len(),
        )
    };
    to_result(c_int::try_from(error).unwrap_or(EFAULT.to_errno()))
}
