// SPDX-License-Identifier: GPL-2.0

//! Memory of other devices as BOs.
//!
//! A dma-buf of this device gives its BO back, without coming here. One of another device becomes a
//! blob of guest pages, if the device has blobs and no 3D, as with the C driver: with 3D, the host's
//! renderer would have to be told what the memory means.
//!
//! The exporter may move its memory. Then the device has to forget where it was, and the BO stays
//! without memory.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        Completion,
        Mutex,
        SetOnce, //
    }, //
};

use super::{
    blob::Blob,
    bo::{
        self,
        BoObject, //
    },
    bound::Bound,
    control::{
        CleanupNode,
        Command,
        Reply, //
    },
    device::Device,
    driver::IoctlDevice,
    keep::Keep,
    wire, //
};
use crate::ext::{
    dma_buf::{
        Attachment,
        DmaBuf,
        Importer, //
    },
    drm_drv::Enter,
};

/// Tells whoever waits that the device does not use borrowed memory any more: when the device has
/// answered, and at the latest when the command is dropped.
pub(super) struct Returned(Arc<Event>);

#[pin_data]
struct Event {
    #[pin]
    completion: Completion,
}

impl Returned {
    /// In any context.
    pub(super) fn announce(&self) {
        self.0.completion.complete_all();
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        self.announce();
    }
}

/// A resource made of another device's memory.
#[pin_data]
struct Loan {
    device: Arc<Device>,
    /// The resource, and the device's generation in which it was made. Empty until the device knows it.
    resource: SetOnce<(u32, u64)>,
    /// What giving the memory back takes. A leaf.
    #[pin]
    detach: Mutex<Option<(CleanupNode, Arc<Event>)>>,
}

impl Loan {
    fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        let event = Arc::pin_init(
            pin_init!(Event {
                completion <- Completion::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )?;
        let detach = (CleanupNode::new(GFP_KERNEL_ACCOUNT)?, event);
        let device = device.clone();
        Arc::pin_init(
            pin_init!(Self {
                device,
                resource: SetOnce::new(),
                detach <- new_mutex!(Some(detach), "ochre_loan"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }
}

/// The exporter's way to a loan.
struct Borrower(Arc<Loan>);

impl Importer for Borrower {
    fn move_notify(&self) {
        let Some((id, generation)) = self.0.resource.copy() else {
            return;
        };
        let Some((node, event)) = self.0.detach.lock().take() else {
            return;
        };
        let device = &self.0.device;
        device.submit_cleanup(
            node,
            generation,
            wire::resource_detach_backing(id),
            Some(Keep::Returned(Returned(event.clone()))),
        );
        // Not more than that: the exporter holds the reservation.
        device.notify();
        // The exporter cannot be refused. The device is asked for an interrupt; if it does not answer,
        // the watchdog resets it, which ends this, as does its going away.
        event.completion.wait_for_completion();
    }
}

/// Makes a BO of a dma-buf of another device. Waits until its memory is in place, and for room in the
/// queue, interruptibly. [`ENODEV`]: the device cannot do that.
pub(super) fn import(dev: &IoctlDevice, buf: &DmaBuf) -> Result<ARef<BoObject>> {
    let device = dev.device();
    device.check()?;
    if device.caps().virgl || !device.caps().resource_blob {
        return Err(ENODEV);
    }
    let loan = Loan::new(device)?;
    let importer = KBox::new(Borrower(loan.clone()), GFP_KERNEL_ACCOUNT)?;
    let attachment = dev
        .enter()?
        .registration_data_with(|bound: &Bound<'_>| Attachment::new(buf, bound.dev, importer))?;
    attachment.map()?;

    let blob = Blob::shareable_guest();
    let obj = bo::new_imported(dev, &attachment, blob)?;
    let mut room = device.reserve(1)?;
    // From here on the memory cannot move until the device has been told where it is.
    attachment.with_segments(|segments| -> Result {
        let mut runs = KVVec::new();
        for segment in segments {
            runs.push(segment, GFP_KERNEL_ACCOUNT)?;
        }
        let (entries, count) = dev.enter()?.registration_data_with(|bound: &Bound<'_>| {
            let count = runs.len();
            bo::encode(device, bound, count, runs.into_iter())
        })?;
        let size = obj.bytes();
        let (mem, flags) = (blob.mem.to_uapi(), blob.flags());
        let request = wire::resource_create_blob(0, obj.id(), mem, flags, 0, size, count);
        let command = Command::new(request)
            .payload(entries)
            .keep(Keep::Verdict(obj.verdict().clone()));
        obj.set_created(room.generation());
        loan.resource.populate((obj.id(), room.generation()));
        device.submit(&mut room, command);
        Ok(())
    })??;
    device.flush();
    Ok(obj)
}

/// The UUID under which the host knows an object, for other virtio devices. The device is asked the
/// first time.
///
/// Waits, interruptibly and with no lock held. [`ENODEV`]: it has none, because the device has no UUIDs
/// or the blob was not made to cross devices; what the device answered; [`EIO`]; [`ERESTARTSYS`].
pub(super) fn uuid(obj: &BoObject) -> Result<[u8; 16]> {
    let device = obj.device();
    if !device.caps().resource_uuid || !obj.blob().is_none_or(Blob::crosses_devices) {
        return Err(ENODEV);
    }
    if let Some(uuid) = obj.known_uuid().copy() {
        return Ok(uuid);
    }
    let mut uuid = [0; 16];
    let reply = Reply::new(device, uuid.len())?;
    let mut room = device.reserve(1)?;
    obj.check(room.generation())?;
    let request = wire::resource_assign_uuid(obj.id());
    device.submit(&mut room, Command::new(request).reply(reply.clone()));
    drop(room);
    device.flush();
    reply.wait(None)?;
    if reply.read(&mut uuid)? < uuid.len() {
        return Err(EIO);
    }
    obj.known_uuid().populate(uuid);
    Ok(uuid)
}
