// SPDX-License-Identifier: GPL-2.0

//! Buffer objects: what the device calls resources, for the CPU and for other drivers.
//!
//! A [`Bo`] is the driver's part of a GEM object. It is made in this order: the object with its id
//! ([`new`]); its pages, if it has some ([`attach_pages`]); the command that makes the resource,
//! after which the device knows it ([`Bo::set_created`]); the first handle. From then on only its
//! [view](super::view) changes.
//!
//! When the last reference goes, the device is told to forget the resource. Id, pages and place in
//! the window live on until it has answered.

use kernel::{
    dma::DataDirection,
    drm::{
        self,
        gem::{
            self,
            BaseObject, //
        }, //
    },
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        SetOnce, //
    }, //
};

use super::{
    blob::Blob,
    bound::Bound,
    buffers::DmaBuf,
    control::{
        CleanupNode,
        Command, //
    },
    device::Device,
    driver::{
        Driver,
        DrmFile,
        IoctlDevice, //
    },
    fdinfo::Region,
    ids::ResourceId,
    keep::Keep,
    prime,
    verdict::Verdict,
    view::{
        Seen,
        Show,
        View, //
    },
    wire, //
};
use crate::ext::{
    dma_buf::Attachment,
    drm_drv::Enter,
    gem::{
        self as ext_gem,
        new_object,
        BoOps,
        CpuMapping,
        CpuPage,
        Fault,
        FaultResult,
        ObjectTable,
        PinnedPages,
        Shared,
        Status,
        SysPages, //
    },
    mm,
    scatterlist::Segment,
    uapi_virtio as uapi, //
};

/// A GEM object of this driver.
pub(super) type BoObject = gem::Object<Bo>;

/// What is left of a BO until the device has forgotten its resource, and does not show it any more.
pub(super) struct Remains {
    id: ResourceId,
    /// Set before the resource is made, if it has any.
    pages: SetOnce<SysPages>,
    /// Another device's memory that it is made of.
    _loan: Option<Attachment>,
}

/// What a new BO starts with.
pub(crate) struct Args {
    device: Arc<Device>,
    blob: Option<Blob>,
    verdict: Arc<Verdict>,
    remains: Arc<Remains>,
    unref: CleanupNode,
}

/// The driver's part of a GEM object.
#[pin_data(PinnedDrop)]
pub(crate) struct Bo {
    device: Arc<Device>,
    size: u64,
    blob: Option<Blob>,
    id: u32,
    /// The device's generation when it was told to make the resource. Empty before.
    created: SetOnce<u64>,
    /// What the device answered to the commands that used it.
    verdict: Arc<Verdict>,
    #[pin]
    view: View,
    /// What the host calls it, once it was asked.
    uuid: SetOnce<[u8; 16]>,
    /// Both full until it is dropped.
    remains: Option<Arc<Remains>>,
    unref: Option<CleanupNode>,
}

static TABLE: ObjectTable = ObjectTable::new();

impl Bo {
    /// What the device calls it.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.size
    }

    /// The device that it is of.
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The UUID, once it is known.
    pub(super) fn known_uuid(&self) -> &SetOnce<[u8; 16]> {
        &self.uuid
    }

    /// What makes it a blob, if it is one.
    pub(super) fn blob(&self) -> Option<&Blob> {
        self.blob.as_ref()
    }

    /// Where the device's answers are noted.
    pub(super) fn verdict(&self) -> &Arc<Verdict> {
        &self.verdict
    }

    /// How the CPU sees it, if it is memory of the host.
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// Notes that the device is being told to make the resource, in `generation`.
    pub(super) fn set_created(&self, generation: u64) {
        self.created.populate(generation);
    }

    /// Whether it can be used in `generation` of the device. [`EIO`]: it was lost.
    pub(super) fn check(&self, generation: u64) -> Result {
        match self.created.copy() {
            Some(created) if created == generation => Ok(()),
            _ => Err(EIO),
        }
    }

    /// Tells, once, of an error with which the device answered a command that used it, and, each
    /// time, that it is lost.
    pub(super) fn report(&self) -> Result {
        self.verdict.take()?;
        self.check(self.device.generation())
    }

    fn region(&self) -> Region {
        if has_guest_pages(self.blob.as_ref()) {
            Region::Guest
        } else {
            Region::Host
        }
    }

    fn pages(&self) -> Option<&SysPages> {
        self.remains.as_ref()?.pages.as_ref()
    }

    /// Makes what the device wrote to the pages visible to the CPU. In any context.
    pub(super) fn show_to_cpu(&self) {
        if let Some(pages) = self.pages() {
            pages.sync_for_cpu();
        }
    }

    /// Makes what the CPU wrote to the pages visible to the device.
    pub(super) fn show_to_device(&self) {
        if let Some(pages) = self.pages() {
            pages.sync_for_device();
        }
    }

    /// Whether the device works on copies of the pages, so that CPU and device have to take turns.
    pub(super) fn takes_turns(&self) -> bool {
        self.pages().is_some_and(SysPages::needs_sync)
    }
}

/// A classic resource and most blobs have pages of the guest.
fn has_guest_pages(blob: Option<&Blob>) -> bool {
    blob.is_none_or(|blob| blob.mem.is_guest())
}

impl Args {
    fn new(device: &Arc<Device>, blob: Option<Blob>, loan: Option<Attachment>) -> Result<Self> {
        let remains = Remains {
            id: device.resource_ids().alloc()?,
            pages: SetOnce::new(),
            _loan: loan,
        };
        Ok(Self {
            device: device.clone(),
            blob,
            verdict: Arc::new(Verdict::new(), GFP_KERNEL_ACCOUNT)?,
            remains: Arc::new(remains, GFP_KERNEL_ACCOUNT)?,
            unref: CleanupNode::new(GFP_KERNEL_ACCOUNT)?,
        })
    }
}

/// Makes a BO of `size` bytes, rounded up to pages, that the device does not know yet.
///
/// [`EINVAL`]: the size is 0 or overflows; [`ENOMEM`]: no machine of this size has so many pages.
pub(super) fn new(dev: &IoctlDevice, size: u64, blob: Option<Blob>) -> Result<ARef<BoObject>> {
    let size = size
        .checked_next_multiple_of(u64::try_from(PAGE_SIZE)?)
        .ok_or(EINVAL)?;
    if has_guest_pages(blob.as_ref()) && size > mm::total_bytes() {
        return Err(ENOMEM);
    }
    let args = Args::new(dev.device(), blob, None)?;
    new_object::<Bo>(dev, usize::try_from(size)?, args)
}

/// Makes a BO of another device's memory that the device does not know yet.
pub(super) fn new_imported(
    dev: &IoctlDevice,
    attachment: &Attachment,
    blob: Blob,
) -> Result<ARef<BoObject>> {
    let args = Args::new(dev.device(), Some(blob), Some(attachment.clone()))?;
    ext_gem::new_imported::<Bo>(dev, attachment, args)
}

/// Gives a new BO pages of the guest, and returns what tells the device where they are, with the
/// number of entries. Sleeps and allocates.
pub(super) fn attach_pages(dev: &IoctlDevice, obj: &BoObject) -> Result<(DmaBuf, u32)> {
    let remains = obj.remains.as_ref().ok_or(EINVAL)?;
    // Finding the memory may take long, so the device is entered only after it.
    let pinned = PinnedPages::alloc(obj)?;
    dev.enter()?.registration_data_with(|bound: &Bound<'_>| {
        let pages = SysPages::new(pinned, bound.dev, DataDirection::Bidirectional)?;
        let count = pages.segments(bound.dev)?.count();
        let entries = encode(&obj.device, bound, count, pages.segments(bound.dev)?)?;
        remains.pages.populate(pages);
        Ok(entries)
    })
}

/// Encodes `count` runs of addresses as the device wants them.
pub(super) fn encode(
    device: &Device,
    bound: &Bound<'_>,
    count: usize,
    segments: impl Iterator<Item = Segment>,
) -> Result<(DmaBuf, u32)> {
    let bytes = count.checked_mul(wire::MEM_ENTRY_BYTES).ok_or(EINVAL)?;
    let mut entries = device.buffers().alloc(bound.dev, bytes)?;
    let mut at = 0;
    for segment in segments {
        entries.write(
            at,
            &wire::mem_entry(segment.addr, u32::try_from(segment.len)?),
        )?;
        at += wire::MEM_ENTRY_BYTES;
    }
    Ok((entries, u32::try_from(count)?))
}

/// Waits until the CPU can see a blob of the host, which the device is asked for if it was not.
///
/// As [`View::wait`]. [`EINVAL`]: it was not made to be mapped, or the device has no window.
fn wait_for_view(obj: &BoObject) -> Result<Seen> {
    if !obj.blob.as_ref().is_some_and(Blob::is_mappable) {
        return Err(EINVAL);
    }
    let device = &obj.device;
    device.check()?;
    obj.view.wait(|| {
        let show = Show::new(device, obj.dev().window()?, obj.size)?;
        let mut room = device.reserve(1)?;
        obj.check(room.generation())?;
        obj.view.ask(device, &mut room, obj.id, show);
        device.flush();
        Ok(())
    })
}

impl gem::DriverObject for Bo {
    type Driver = Driver;
    type Args = Args;

    fn new(_dev: &drm::Device<Driver>, size: usize, args: Args) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            id: args.remains.id.get(),
            device: args.device,
            size: u64::try_from(size)?,
            blob: args.blob,
            created: SetOnce::new(),
            verdict: args.verdict,
            view <- View::new(),
            uuid: SetOnce::new(),
            remains: Some(args.remains),
            unref: Some(args.unref),
        })
    }

    /// Attaches the resource to the file's context, if it has one, and flushes, maybe later.
    fn open(obj: &BoObject, file: &DrmFile) -> Result {
        let device = &obj.device;
        let inner = file.inner();
        let context = match (device.caps().virgl, device.caps().context_init) {
            (false, _) => None,
            (true, true) => inner.context().get(),
            // Nobody else would make it if the first call is DUMB_CREATE or an import.
            (true, false) => Some(inner.context().get_or_make(device)?),
        };
        if let Some(context) = context {
            let mut room = device.reserve(1)?;
            context.check(room.generation())?;
            let request = wire::ctx_attach_resource(context.id(), obj.id);
            let keep = Keep::Verdict(obj.verdict.clone());
            device.submit(&mut room, Command::new(request).keep(keep));
        }
        match obj.region() {
            Region::Guest => device.flush_soon(obj.size),
            // The CPU's view is waited for without looking whether it was asked for.
            Region::Host => device.flush(),
        }
        inner.memory.charge(obj.region(), obj.size);
        Ok(())
    }

    fn close(obj: &BoObject, file: &DrmFile) {
        let device = &obj.device;
        let inner = file.inner();
        inner.memory.uncharge(obj.region(), obj.size);
        if let (true, Some(context)) = (device.caps().virgl, inner.context().get()) {
            // Without memory the resource stays attached until it or the context goes.
            if let Ok(node) = CleanupNode::new(GFP_KERNEL) {
                let request = wire::ctx_detach_resource(context.id(), obj.id);
                device.submit_cleanup(node, context.generation(), request, None);
                device.flush_soon(0);
            }
        }
    }
}

impl BoOps for Bo {
    const MEMORY_FILE: bool = false;
    const VIRTIO_DMA_BUF: bool = true;

    fn table() -> &'static ObjectTable {
        &TABLE
    }

    fn mmap(obj: &BoObject) -> Result<CpuMapping> {
        match obj.region() {
            Region::Guest => Ok(CpuMapping::Faults),
            Region::Host => {
                let Seen { range, caching } = wait_for_view(obj)?;
                Ok(CpuMapping::Window { range, caching })
            }
        }
    }

    fn fault(
        obj: &BoObject,
        _dev: &drm::Device<Driver, drm::Registered>,
        fault: Fault<'_>,
    ) -> FaultResult {
        match (obj.pages(), obj.view.seen()) {
            (Some(pages), _) => fault.insert(|index| pages.page(index)),
            (None, Some(seen)) => fault.insert(|index| CpuPage::from_window(&seen.range, index)),
            (None, None) => fault.sigbus(),
        }
    }

    fn share(obj: &BoObject) -> Shared<'_> {
        match (obj.pages(), obj.view.seen()) {
            (Some(pages), _) => Shared::Pages(pages),
            // What is shown once is shown until the BO or the device goes. Then the window is another
            // driver's.
            (None, Some(seen)) if obj.device.check().is_ok() => Shared::Window(seen.range),
            (None, _) => Shared::Nothing,
        }
    }

    fn uuid(obj: &BoObject) -> Result<[u8; 16]> {
        prime::uuid(obj)
    }

    fn status(_obj: &BoObject) -> Status {
        Status {
            resident: true,
            purgeable: false,
        }
    }

    fn rss(obj: &BoObject) -> usize {
        BaseObject::size(obj)
    }
}

#[pinned_drop]
impl PinnedDrop for Bo {
    fn drop(self: Pin<&mut Self>) {
        let this = self.project();
        let (Some(remains), Some(node)) = (this.remains.take(), this.unref.take()) else {
            return;
        };
        // What the device was never told of is simply freed.
        let Some(generation) = this.created.copy() else {
            return;
        };
        this.view
            .withdraw(this.device, generation, *this.id, &remains);
        let request = wire::resource_unref(*this.id);
        let keep = Some(Keep::Remains(remains));
        this.device.submit_cleanup(node, generation, request, keep);
        this.device.flush_soon(0);
    }
}

/// `DRM_IOCTL_VIRTGPU_MAP`.
pub(super) fn ioctl_map(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_virtgpu_map,
) -> Result<u32> {
    dev.device().check()?;
    if args.pad != 0 {
        return Err(EINVAL);
    }
    let obj = BoObject::lookup_handle(file, args.handle)?;
    if obj.region() == Region::Host {
        // mmap() would have to wait with the address space locked. It also tells of the errors.
        match wait_for_view(&obj) {
            Err(error) if error == ERESTARTSYS => return Err(error),
            _ => {}
        }
    }
    args.offset = obj.create_mmap_offset()?;
    Ok(0)
}
