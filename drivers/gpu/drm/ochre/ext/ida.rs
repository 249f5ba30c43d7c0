// SPDX-License-Identifier: GPL-2.0

//! Numbers that are given out and come back.
//!
//! C header: [`include/linux/idr.h`](srctree/include/linux/idr.h)

use core::ops::RangeInclusive;

use kernel::{
    bindings,
    prelude::*,
    types::Opaque, //
};

use super::sys;

/// Numbers of which each is in use or free. Gives out the lowest free one.
#[pin_data(PinnedDrop)]
pub(crate) struct Ida {
    #[pin]
    ida: Opaque<bindings::ida>,
}

// SAFETY: An IDA has a lock of its own and may be used from any thread.
unsafe impl Send for Ida {}
// SAFETY: As above.
unsafe impl Sync for Ida {}

impl Ida {
    /// All numbers are free.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: The memory is valid for writing.
            ida <- Opaque::ffi_init(|ida| unsafe { sys::ochre_ida_init(ida) }),
        })
    }

    /// Takes a free number of `range`. [`ENOMEM`]; [`ENOSPC`] if there is none. Sleeps. Accounted to the task.
    pub(crate) fn alloc(&self, range: RangeInclusive<u32>) -> Result<u32> {
        // SAFETY: The IDA is initialised.
        let number = unsafe {
            bindings::ida_alloc_range(
                self.ida.get(),
                *range.start(),
                *range.end(),
                bindings::GFP_KERNEL_ACCOUNT,
            )
        };
        u32::try_from(number).map_err(|_| Error::from_errno(number))
    }

    /// Gives back a number that [`Self::alloc`] gave out. In any context.
    pub(crate) fn free(&self, number: u32) {
        // SAFETY: The IDA is initialised. (It warns about a number that is not in use.)
        unsafe { bindings::ida_free(self.ida.get(), number) };
    }
}

#[pinned_drop]
impl PinnedDrop for Ida {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: The IDA is initialised, and nobody else has it any more.
        unsafe { bindings::ida_destroy(self.ida.get()) };
    }
}

#[kunit_tests(ochre_ext_ida)]
mod tests {
    use super::*;

    #[test]
    fn lowest_free_number_is_given_out_until_there_is_none() -> Result {
        let ida = KBox::pin_init(Ida::new(), GFP_KERNEL)?;
        for number in 1..=3 {
            assert_eq!(ida.alloc(1..=3)?, number);
        }
        assert_eq!(ida.alloc(1..=3).err(), Some(ENOSPC));
        ida.free(2);
        assert_eq!(ida.alloc(1..=3)?, 2);
        Ok(())
    }
}
