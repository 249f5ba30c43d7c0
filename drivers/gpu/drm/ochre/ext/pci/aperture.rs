// SPDX-License-Identifier: GPL-2.0

//! Video memory behind a BAR.
//!
//! C headers: [`include/linux/pci.h`](srctree/include/linux/pci.h),
//! [`include/linux/io.h`](srctree/include/linux/io.h)

use core::marker::PhantomData;

use kernel::{
    bindings,
    device,
    error::to_result,
    ffi::{
        c_int,
        c_void, //
    },
    io::{
        IoBase,
        Mmio,
        MmioBackend,
        MmioRaw,
        PhysAddr,
        Region, //
    },
    page::PAGE_MASK,
    pci::Device,
    prelude::*, //
};

use super::raw;
use crate::ext::sys;

/// A BAR full of memory, such as video memory, that the CPU reaches write-combined.
///
/// It is not mapped as a whole: [`WcMap`] maps a part for the kernel, and a page can be mapped for
/// user space ([`crate::ext::gem::CpuPage::from_aperture`]).
///
/// # Invariants
///
/// `start` and `len` are those of BAR `bar`, which `dev` has requested and reserved write-combined.
pub(crate) struct Aperture<'a> {
    dev: &'a Device<device::Bound>,
    bar: c_int,
    start: PhysAddr,
    len: u64,
}

impl<'a> Aperture<'a> {
    /// Takes BAR `bar` into use under `name`.
    ///
    /// Returns [`ENODEV`] if it is empty or not made of whole pages, [`EBUSY`] if it is in use.
    pub(crate) fn new(
        dev: &'a Device<device::Bound>,
        bar: u32,
        name: &'static CStr,
    ) -> Result<Self> {
        let start = dev.resource_start(bar)?;
        let len = dev.resource_len(bar)?;
        if len == 0 || (start | len) & !PhysAddr::try_from(PAGE_MASK)? != 0 {
            return Err(ENODEV);
        }
        let bar = c_int::try_from(bar)?;
        // SAFETY: The device is valid, `bar` was checked by `resource_len`, the name is static.
        to_result(unsafe { bindings::pci_request_region(raw(dev), bar, name.as_char_ptr()) })?;
        // SAFETY: The range is that of a BAR which we have alone.
        if let Err(error) = to_result(unsafe { sys::ochre_io_reserve_wc(start, len) }) {
            // SAFETY: Requested above.
            unsafe { bindings::pci_release_region(raw(dev), bar) };
            return Err(error);
        }
        Ok(Self {
            dev,
            bar,
            start,
            len,
        })
    }

    /// Bytes that the CPU can reach.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The CPU's physical address of the page that contains byte `offset`.
    pub(in crate::ext) fn page_address(&self, offset: u64) -> Option<PhysAddr> {
        if offset >= self.len {
            return None;
        }
        self.start
            .checked_add(offset & PhysAddr::try_from(PAGE_MASK).ok()?)
    }
}

impl Drop for Aperture<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. All mappings borrow `self`, or were removed when the
        // device was unplugged.
        unsafe {
            sys::ochre_io_free_wc(self.start, self.len);
            bindings::pci_release_region(raw(self.dev), self.bar);
        }
    }
}

/// A part of an [`Aperture`], mapped for the kernel.
///
/// Access goes through [`kernel::io::Io`]; [`Self::copy_in`] and [`Self::fill`] are for more than
/// words. Stores are write-combined: a barrier or a read makes them reach the device.
///
/// # Invariants
///
/// `io` is a mapping of its size.
pub(crate) struct WcMap<'a> {
    io: MmioRaw<Region>,
    _aperture: PhantomData<&'a Aperture<'a>>,
}

impl<'a> WcMap<'a> {
    /// Maps `len` bytes from `offset` on. Returns [`EINVAL`] if they are not all in the aperture or
    /// none.
    pub(crate) fn new(aperture: &'a Aperture<'_>, offset: u64, len: usize) -> Result<Self> {
        let end = offset.checked_add(u64::try_from(len)?).ok_or(EINVAL)?;
        if len == 0 || end > aperture.len {
            return Err(EINVAL);
        }
        // No overflow: within the BAR.
        let start = aperture.start.wrapping_add(offset);
        // SAFETY: The range is memory of a BAR that `aperture` has alone.
        let ptr = unsafe { bindings::ioremap_wc(start, len) };
        if ptr.is_null() {
            return Err(ENOMEM);
        }
        // INVARIANT: Mapped just now. (The addresses of pointers are `usize`.)
        match MmioRaw::new_region(ptr as usize, len) {
            Ok(io) => Ok(Self {
                io,
                _aperture: PhantomData,
            }),
            Err(error) => {
                // SAFETY: Mapped just now.
                unsafe { bindings::iounmap(ptr) };
                Err(error)
            }
        }
    }

    /// Checks a range and returns where it is.
    fn at(&self, offset: usize, len: usize) -> Result<*mut c_void> {
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if end > self.io.size() {
            return Err(EINVAL);
        }
        // CAST: I/O memory; the address is only passed on to functions for it.
        Ok(self.io.addr().wrapping_add(offset) as *mut c_void)
    }

    /// Copies `bytes` to `offset`. Returns [`EINVAL`] if they do not fit.
    pub(crate) fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: By the type invariant and the check in `at`.
        unsafe { bindings::memcpy_toio(to, bytes.as_ptr().cast(), bytes.len()) };
        Ok(())
    }

    /// Copies what is at `offset` to `bytes`. Returns [`EINVAL`] if there is not so much.
    pub(crate) fn copy_out(&self, offset: usize, bytes: &mut [u8]) -> Result {
        let from = self.at(offset, bytes.len())?;
        // SAFETY: By the type invariant and the check in `at`.
        unsafe { bindings::memcpy_fromio(bytes.as_mut_ptr().cast(), from, bytes.len()) };
        Ok(())
    }

    /// Stores `value` in `len` bytes from `offset` on. Returns [`EINVAL`] if they do not fit.
    pub(crate) fn fill(&self, offset: usize, value: u8, len: usize) -> Result {
        let to = self.at(offset, len)?;
        // SAFETY: By the type invariant and the check in `at`.
        unsafe { bindings::memset_io(to, c_int::from(value), len) };
        Ok(())
    }
}

impl Drop for WcMap<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the aperture is still there.
        unsafe { bindings::iounmap(self.io.addr() as *mut c_void) };
    }
}

impl<'a> IoBase<'a> for &'a WcMap<'_> {
    type Backend = MmioBackend;
    type Target = Region;

    fn as_view(self) -> Mmio<'a, Region> {
        // SAFETY: By the type invariant, for as long as `self` is borrowed.
        unsafe { Mmio::from_raw(self.io) }
    }
}
