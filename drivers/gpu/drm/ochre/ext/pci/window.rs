// SPDX-License-Identifier: GPL-2.0

//! Memory behind a BAR that user space maps with a caching that the device names.
//!
//! C header: [`include/linux/pci.h`](srctree/include/linux/pci.h)

use kernel::{
    bindings,
    device,
    error::to_result,
    ffi::c_int,
    io::PhysAddr,
    page::{
        PAGE_MASK,
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    pci::Device,
    prelude::*,
    sync::aref::ARef, //
};

use super::raw;
use crate::ext::sys;

/// A part of a BAR in which the device shows memory, such as the host-visible region of virtio-gpu.
///
/// Unlike an [`Aperture`](super::Aperture) it has no caching of its own: each mapping chooses
/// ([`CpuMapping::Window`](crate::ext::gem::CpuMapping::Window)). The kernel does not map it.
///
/// # Invariants
///
/// `start` and `len` are whole pages within a memory BAR of `dev`.
#[derive(Clone)]
pub(crate) struct Window {
    dev: ARef<Device>,
    start: PhysAddr,
    len: u64,
}

impl Window {
    /// Takes `len` bytes from `offset` on of BAR `bar` into use under `name`. The BAR is given back
    /// when the device is unbound.
    ///
    /// Returns [`EINVAL`] if they are not whole pages, [`ENODEV`] if they are not within a memory BAR,
    /// [`EBUSY`] if the BAR is in use.
    pub(crate) fn new(
        dev: &Device<device::Bound>,
        bar: u32,
        offset: u64,
        len: u64,
        name: &'static CStr,
    ) -> Result<Self> {
        let in_page = !u64::try_from(PAGE_MASK)?;
        if len == 0 || (offset | len) & in_page != 0 {
            return Err(EINVAL);
        }
        let bar_start = dev.resource_start(bar)?;
        let bar_len = dev.resource_len(bar)?;
        let end = offset.checked_add(len).ok_or(ENODEV)?;
        if end > bar_len || bar_start & in_page != 0 {
            return Err(ENODEV);
        }
        let bar = c_int::try_from(bar)?;
        // SAFETY: The device is valid and `resource_len` checked the number.
        if !unsafe { sys::ochre_pci_bar_is_memory(raw(dev), bar) } {
            return Err(ENODEV);
        }
        // SAFETY: As above; the name is static.
        to_result(unsafe { bindings::pcim_request_region(raw(dev), bar, name.as_char_ptr()) })?;
        // INVARIANT: Checked above.
        Ok(Self {
            dev: dev.into(),
            start: bar_start.checked_add(offset).ok_or(ENODEV)?,
            len,
        })
    }

    /// Bytes in all.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The part from byte `offset` on. Returns [`EINVAL`] if it is empty, not made of whole pages, or
    /// not within the window.
    pub(crate) fn range(&self, offset: u64, len: u64) -> Result<WindowRange> {
        let in_page = !u64::try_from(PAGE_MASK)?;
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if len == 0 || (offset | len) & in_page != 0 || end > self.len {
            return Err(EINVAL);
        }
        // INVARIANT: Checked above.
        Ok(WindowRange(Self {
            dev: self.dev.clone(),
            // No overflow: within the BAR.
            start: self.start.wrapping_add(offset),
            len,
        }))
    }
}

/// A part of a [`Window`].
#[derive(Clone)]
pub(crate) struct WindowRange(Window);

impl WindowRange {
    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.0.len
    }

    /// Whether `dev` is the device it belongs to.
    pub(in crate::ext) fn is_of(&self, dev: *mut bindings::device) -> bool {
        let own: &device::Device = self.0.dev.as_ref();
        // CAST: `device::Device` is a transparent wrapper.
        core::ptr::eq(core::ptr::from_ref(own).cast(), dev.cast_const())
    }

    /// Where the CPU finds it.
    pub(in crate::ext) fn start(&self) -> PhysAddr {
        self.0.start
    }

    /// Where the CPU finds page number `index`.
    pub(in crate::ext) fn page_address(&self, index: usize) -> Option<PhysAddr> {
        let offset = u64::try_from(index).ok()?.checked_mul(PAGE_SIZE as u64)?;
        if offset >= self.0.len {
            return None;
        }
        self.0.start.checked_add(offset)
    }

    /// How many pages it has.
    pub(in crate::ext) fn pages(&self) -> u64 {
        self.0.len >> PAGE_SHIFT
    }
}
