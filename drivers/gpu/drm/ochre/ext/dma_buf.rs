// SPDX-License-Identifier: GPL-2.0

//! Memory of other devices.
//!
//! C header: [`include/linux/dma-buf.h`](srctree/include/linux/dma-buf.h)
//!
//! An import begins with an [`Attachment`] of the driver's device to the foreign [`DmaBuf`]. The
//! memory stays where it is while it is mapped ([`Attachment::map`]), unless the exporter has to move
//! it: then it asks [`Importer::move_notify`] to let go, and the mapping ends. It also ends when the
//! importing device is unbound, and when the last clone of the attachment is dropped.
//!
//! Locks: the dma-buf's reservation object guards the mapping. It is held during
//! [`Importer::move_notify`] and the closure of [`Attachment::with_segments`].

use core::{
    cell::UnsafeCell,
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    devres::Devres,
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    scatterlist::SGTable,
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        Arc, //
    },
    types::Opaque, //
};

use super::{
    dma_resv::{
        DmaResv,
        Locked,
        Usage, //
    },
    scatterlist::Segment,
    sys, //
};

/// A `struct dma_buf`.
///
/// # Invariants
///
/// `self.0` is initialised and has a reference.
#[repr(transparent)]
pub(crate) struct DmaBuf(Opaque<bindings::dma_buf>);

// SAFETY: A dma-buf may be used and released from any thread.
unsafe impl Send for DmaBuf {}
// SAFETY: All functions of a dma-buf may run concurrently.
unsafe impl Sync for DmaBuf {}

// SAFETY: `get` and `put` count references and free at zero.
unsafe impl AlwaysRefCounted for DmaBuf {
    fn inc_ref(&self) {
        // SAFETY: By the type invariant.
        unsafe { sys::ochre_dma_buf_get(self.as_raw()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller owns a reference and gives it up.
        unsafe { bindings::dma_buf_put(obj.cast().as_ptr()) };
    }
}

impl DmaBuf {
    /// # Safety
    ///
    /// `ptr` points to a dma-buf that has a reference for the lifetime chosen.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::dma_buf) -> &'a Self {
        // SAFETY: By the contract of this function; `Self` is a transparent wrapper.
        unsafe { &*ptr.cast() }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::dma_buf {
        self.0.get()
    }

    /// Its bytes.
    pub(crate) fn size(&self) -> usize {
        // SAFETY: By the type invariant; the field does not change.
        unsafe { (*self.as_raw()).size }
    }

    /// The fences of its users.
    pub(crate) fn resv(&self) -> &DmaResv {
        // SAFETY: By the type invariant; the reservation object lives as long as the dma-buf.
        unsafe { DmaResv::from_raw((*self.as_raw()).resv) }
    }
}

/// What an importer does when the memory moves.
pub(crate) trait Importer: Send + Sync {
    /// The exporter is going to move the memory. When this returns, the device does not use it any
    /// more; the mapping ends right after.
    ///
    /// Called at most once per [`Attachment::map`], with the reservation object locked. May sleep. The
    /// exporter cannot be refused, so what goes wrong is the importer's loss.
    fn move_notify(&self);
}

/// A device's use of a dma-buf. Clones are of the same use.
///
/// Dropping the last one unmaps, detaches and releases the dma-buf, and sleeps. The device must not
/// use the memory any more then.
#[derive(Clone)]
pub(crate) struct Attachment(Arc<Inner>);

struct Inner {
    // Dropped first.
    _unbind: Devres<UnmapForGood>,
    shared: Arc<Shared>,
}

/// What attachment, unbinding and the object that was made of it hold.
///
/// # Invariants
///
/// `raw` is an attachment to `buf` with the operations [`ATTACH_OPS`], whose `importer_priv` points to
/// `self`, or null while `self` is being made.
pub(super) struct Shared {
    raw: UnsafeCell<*mut bindings::dma_buf_attachment>,
    buf: ARef<DmaBuf>,
    importer: KBox<dyn Importer>,
    /// Guarded by the lock of the reservation object of `buf`.
    mapping: UnsafeCell<Mapping>,
}

/// Whether the memory is mapped for the device.
#[derive(Clone, Copy)]
enum Mapping {
    No,
    /// To this table, which the exporter made.
    Yes(NonNull<bindings::sg_table>),
    /// The device is not bound any more.
    Never,
}

// SAFETY: Attachments may be used and released from any thread; `mapping` is guarded by a lock, `raw`
// is written only while nobody else has the structure.
unsafe impl Send for Shared {}
// SAFETY: As above.
unsafe impl Sync for Shared {}

/// A table of functions that nobody writes.
struct AttachOps(bindings::dma_buf_attach_ops);

// SAFETY: See the type.
unsafe impl Sync for AttachOps {}

static ATTACH_OPS: AttachOps = AttachOps(bindings::dma_buf_attach_ops {
    // What we hand on are device addresses, be there pages behind them or not.
    allow_peer2peer: true,
    invalidate_mappings: Some(move_notify),
});

impl Attachment {
    /// Attaches `dev` to `buf`. Sleeps.
    ///
    /// Returns what the exporter returns if it will not have this device.
    pub(crate) fn new(
        buf: &DmaBuf,
        dev: &Device<Bound>,
        importer: KBox<dyn Importer>,
    ) -> Result<Self> {
        // INVARIANT: `raw` is null.
        let shared = Arc::new(
            Shared {
                raw: UnsafeCell::new(ptr::null_mut()),
                buf: buf.into(),
                importer,
                mapping: UnsafeCell::new(Mapping::No),
            },
            GFP_KERNEL,
        )?;
        // SAFETY: Dma-buf and device are valid, the operations are static. The pointer to `shared` is
        // good until the attachment is detached, which its drop does.
        let raw = from_err_ptr(unsafe {
            bindings::dma_buf_dynamic_attach(
                buf.as_raw(),
                // CAST: `Device` is a transparent wrapper.
                ptr::from_ref(dev).cast_mut().cast(),
                &ATTACH_OPS.0,
                Arc::as_ptr(&shared).cast_mut().cast(),
            )
        })?;
        // SAFETY: Nobody else looks at the field yet: `move_notify` does not without a mapping.
        // INVARIANT: Attached just now.
        unsafe { *shared.raw.get() = raw };

        let unbind = Devres::new::<Error>(dev, Ok(UnmapForGood(shared.clone())))?;
        Ok(Self(Arc::new(
            Inner {
                _unbind: unbind,
                shared,
            },
            GFP_KERNEL,
        )?))
    }

    /// The dma-buf.
    pub(crate) fn buf(&self) -> &DmaBuf {
        &self.0.shared.buf
    }

    /// Maps the memory for the device, both ways. Does nothing if it is mapped.
    ///
    /// Waits until the exporter has brought the memory in place; not in a `drm_dev_enter()` section.
    /// Returns [`ERESTARTSYS`] when the task got a signal, [`ENODEV`] if the device is unbound, and
    /// what the exporter returns.
    pub(crate) fn map(&self) -> Result {
        let shared = &*self.0.shared;
        let _lock = Locked::new(shared.buf.resv())?;
        // SAFETY: The lock is held.
        match unsafe { *shared.mapping.get() } {
            Mapping::No => (),
            Mapping::Yes(_) => return Ok(()),
            Mapping::Never => return Err(ENODEV),
        }
        let raw = shared.raw();
        // SAFETY: By the type invariant, and the lock is held.
        to_result(unsafe { bindings::dma_buf_pin(raw) })?;
        // SAFETY: The lock is held.
        let result = unsafe { shared.map_pinned() };
        // SAFETY: Pinned above. From now on the exporter may move the memory and tells us before.
        unsafe { bindings::dma_buf_unpin(raw) };
        result
    }

    /// Calls `f` with the runs of device addresses, in order.
    ///
    /// They are good until [`Importer::move_notify`], the drop of the attachment, or unbinding, none of
    /// which happens during the call. Returns [`EAGAIN`] if the memory is not mapped, for example
    /// because it moved, and [`ERESTARTSYS`] when the task got a signal.
    pub(crate) fn with_segments<R>(
        &self,
        f: impl FnOnce(&mut dyn Iterator<Item = Segment>) -> R,
    ) -> Result<R> {
        let shared = &*self.0.shared;
        let _lock = Locked::new(shared.buf.resv())?;
        // SAFETY: The lock is held.
        let Mapping::Yes(table) = (unsafe { *shared.mapping.get() }) else {
            return Err(EAGAIN);
        };
        // SAFETY: The exporter made the table and mapped it; it does not change while the lock is held.
        let table = unsafe { SGTable::from_raw(table.as_ptr()) };
        Ok(f(&mut table.iter().map(|entry| Segment {
            addr: entry.dma_address(),
            len: entry.dma_len(),
        })))
    }

    /// What an object made of the memory holds.
    pub(super) fn share(&self) -> Arc<Shared> {
        self.0.shared.clone()
    }
}

impl Shared {
    pub(super) fn raw(&self) -> *mut bindings::dma_buf_attachment {
        // SAFETY: Written only before anybody else got the structure.
        unsafe { *self.raw.get() }
    }

    pub(super) fn buf(&self) -> &DmaBuf {
        &self.buf
    }

    /// # Safety
    ///
    /// The lock of the reservation object is held, the memory pinned and not mapped.
    unsafe fn map_pinned(&self) -> Result {
        self.buf.resv().wait(Usage::Kernel, None)?;
        // SAFETY: By the contract of this function and the type invariant.
        let table = from_err_ptr(unsafe {
            bindings::dma_buf_map_attachment(
                self.raw(),
                bindings::dma_data_direction::DMA_BIDIRECTIONAL,
            )
        })?;
        let table = NonNull::new(table).ok_or(ENOMEM)?;
        // SAFETY: The lock is held.
        unsafe { *self.mapping.get() = Mapping::Yes(table) };
        Ok(())
    }

    /// Ends the mapping if there is one. Returns whether there was.
    ///
    /// # Safety
    ///
    /// The lock of the reservation object is held, and the device does not use the memory.
    unsafe fn unmap(&self) {
        // SAFETY: By the contract of this function.
        unsafe {
            if let Mapping::Yes(table) = *self.mapping.get() {
                *self.mapping.get() = Mapping::No;
                bindings::dma_buf_unmap_attachment(
                    self.raw(),
                    table.as_ptr(),
                    bindings::dma_data_direction::DMA_BIDIRECTIONAL,
                );
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let raw = *self.raw.get_mut();
        if raw.is_null() {
            return;
        }
        let lock = Locked::uninterruptible(self.buf.resv());
        // SAFETY: The lock is held. Who drops the last clone promises that the device is done.
        unsafe { self.unmap() };
        drop(lock);
        // SAFETY: By the type invariant, and not mapped. Detaching takes the lock, so `move_notify` does
        // not run any more afterwards.
        unsafe { bindings::dma_buf_detach(self.buf.as_raw(), raw) };
    }
}

/// What unbinding does.
struct UnmapForGood(Arc<Shared>);

impl Drop for UnmapForGood {
    fn drop(&mut self) {
        let _lock = Locked::uninterruptible(self.0.buf.resv());
        // SAFETY: The lock is held. A device that is being unbound does no DMA.
        unsafe {
            self.0.unmap();
            *self.0.mapping.get() = Mapping::Never;
        }
    }
}

/// # Safety
///
/// As `dma_buf_attach_ops.invalidate_mappings`, of an attachment with [`ATTACH_OPS`].
unsafe extern "C" fn move_notify(attach: *mut bindings::dma_buf_attachment) {
    // SAFETY: The attachment has the pointer from `Attachment::new`; the structure lives until it is
    // detached, which waits for the lock that the caller holds.
    unsafe {
        let shared = &*(*attach).importer_priv.cast::<Shared>();
        if let Mapping::Yes(_) = *shared.mapping.get() {
            shared.importer.move_notify();
            shared.unmap();
        }
    }
}
