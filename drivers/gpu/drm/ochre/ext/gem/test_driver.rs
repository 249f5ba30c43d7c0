// SPDX-License-Identifier: GPL-2.0

//! A DRM driver without hardware, for tests.
//!
//! Its objects are system memory that it shares, and it imports what others share.

use kernel::{
    device::{
        self,
        DeviceContext, //
    },
    dma::DataDirection,
    faux,
    page::BorrowedPage,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        SetOnce, //
    }, //
};

use super::*;
use crate::ext::{
    dma_buf::{
        Attachment,
        DmaBuf,
        Importer, //
    },
    drm_drv::{
        extend,
        DriverExt,
        DriverTable,
        Features, //
    },
    drm_print::Printer,
};

/// The driver.
pub(in crate::ext) struct Driver;
/// What an open file has: nothing.
pub(in crate::ext) struct File;

/// What an object has.
pub(in crate::ext) struct Bo {
    /// Its memory; an object without shares nothing.
    pub(super) pages: SetOnce<SysPages>,
    /// Whose memory it is, of an imported one.
    pub(super) attachment: Option<Attachment>,
    /// How often it was exported.
    pub(super) exports: Atomic<u32>,
}

/// What is there while the device is bound.
pub(in crate::ext) struct Bound<'a> {
    dev: &'a device::Device<device::Bound>,
}

static TABLE: ObjectTable = ObjectTable::new();
static DRIVER_TABLE: DriverTable = DriverTable::new();
/// How often an importer was told that its memory moves.
pub(super) static MOVES: Atomic<u32> = Atomic::new(0);

impl drm::file::DriverFile for File {
    type Driver = Driver;

    fn open(_dev: &drm::Device<Driver>) -> Result<Pin<KBox<Self>>> {
        Ok(KBox::pin(File, GFP_KERNEL)?)
    }
}

#[vtable]
impl drm::Driver for Driver {
    type Data = ();
    type RegistrationData<'a> = Bound<'a>;
    type Object = Object<Bo>;
    type File = File;
    type ParentDevice<Ctx: DeviceContext> = faux::Device<Ctx>;

    const INFO: drm::DriverInfo = drm::DriverInfo {
        major: 1,
        minor: 0,
        patchlevel: 0,
        name: c"ochre-test",
        desc: c"Objects without hardware",
    };

    const IOCTLS: &'static [drm::ioctl::DrmIoctlDescriptor] = &[];
}

impl DriverExt for Driver {
    type Bo = Bo;

    const FEATURES: Features = Features::SYNCOBJ;

    fn table() -> &'static DriverTable {
        &DRIVER_TABLE
    }

    fn show_fdinfo(
        _dev: &drm::Device<Self, drm::Registered>,
        _file: &drm::File<File>,
        _printer: &mut Printer<'_>,
    ) {
    }

    fn import(dev: &drm::Device<Self, drm::Ioctl>, buf: &DmaBuf) -> Result<ARef<Object<Bo>>> {
        struct Counting;

        impl Importer for Counting {
            fn move_notify(&self) {
                MOVES.add(1, Relaxed);
            }
        }

        let importer: KBox<dyn Importer> = KBox::new(Counting, GFP_KERNEL)?;
        let guard = dev.registration_guard().ok_or(ENODEV)?;
        let attachment =
            guard.registration_data_with(|bound| Attachment::new(buf, bound.dev, importer))?;
        drop(guard);
        attachment.map()?;
        new_imported::<Bo>(dev, &attachment, Some(attachment.clone()))
    }
}

impl DriverObject for Bo {
    type Driver = Driver;
    type Args = Option<Attachment>;

    fn new(
        _dev: &drm::Device<Driver>,
        _size: usize,
        attachment: Option<Attachment>,
    ) -> impl PinInit<Self, Error> {
        Ok(Self {
            pages: SetOnce::new(),
            attachment,
            exports: Atomic::new(0),
        })
    }
}

impl BoOps for Bo {
    fn table() -> &'static ObjectTable {
        &TABLE
    }

    fn fault(
        _obj: &Object<Self>,
        _dev: &drm::Device<Driver, drm::Registered>,
        fault: Fault<'_>,
    ) -> FaultResult {
        fault.sigbus()
    }

    fn share(obj: &Object<Self>) -> Shared<'_> {
        obj.pages.as_ref().map_or(Shared::Nothing, Shared::Pages)
    }

    const VIRTIO_DMA_BUF: bool = true;

    fn uuid(_obj: &Object<Self>) -> Result<[u8; 16]> {
        Ok(*b"0123456789abcdef")
    }

    fn export(obj: &Object<Self>) -> Result {
        obj.exports.add(1, Relaxed);
        Ok(())
    }

    fn status(_obj: &Object<Self>) -> Status {
        Status::default()
    }

    fn rss(_obj: &Object<Self>) -> usize {
        0
    }
}

/// Calls `f` with a device that can do DMA.
pub(in crate::ext) fn with_dma_device<R>(
    name: &CStr,
    f: impl FnOnce(&device::Device<device::Bound>) -> Result<R>,
) -> Result<R> {
    with_faux_device(name, |_, dev| f(dev))
}

fn with_faux_device<R>(
    name: &CStr,
    f: impl FnOnce(&faux::Device<device::Bound>, &device::Device<device::Bound>) -> Result<R>,
) -> Result<R> {
    let parent = faux::Registration::new(name, None)?;
    let parent: &faux::Device<device::Bound> = parent.as_ref();
    let dev: &device::Device<device::Bound> = parent.as_ref();
    let raw: *mut bindings::device = ptr::from_ref(dev).cast_mut().cast();
    // SAFETY: The device is valid and nobody uses it for DMA yet.
    unsafe {
        (*raw).coherent_dma_mask = u64::MAX;
        (*raw).dma_mask = &raw mut (*raw).coherent_dma_mask;
    }
    f(parent, dev)
}

/// Calls `f` with a registered DRM device and the device that it stands for.
pub(in crate::ext) fn with_device<R>(
    name: &CStr,
    f: impl FnOnce(&drm::Device<Driver>, &device::Device<device::Bound>) -> Result<R>,
) -> Result<R> {
    with_faux_device(name, |parent, dev| {
        let drm = drm::UnregisteredDevice::<Driver>::new(parent, Ok(()))?;
        extend(&drm)?;
        let data: Result<Bound<'_>> = Ok(Bound { dev });
        // SAFETY: The registration is dropped at the end of this closure.
        let registration = unsafe { drm::Registration::new(dev, drm, data, 0)? };
        f(registration.device(), dev)
    })
}

/// An object with memory.
pub(in crate::ext) fn object(
    drm: &drm::Device<Driver>,
    dev: &device::Device<device::Bound>,
    pages: usize,
) -> Result<ARef<Object<Bo>>> {
    let obj = new_object::<Bo>(drm, pages * PAGE_SIZE, None)?;
    let pinned = PinnedPages::new(&*obj)?;
    obj.pages
        .populate(SysPages::new(pinned, dev, DataDirection::Bidirectional)?);
    Ok(obj)
}

/// A dma-buf of `obj`.
pub(in crate::ext) fn dma_buf_of(obj: &Object<Bo>) -> Result<ARef<DmaBuf>> {
    let raw = obj.as_raw();
    // SAFETY: The object is valid and its table has the function.
    let buf = unsafe { (*(*raw).funcs).export.ok_or(EINVAL)?(raw, 0) };
    let buf = kernel::error::from_err_ptr(buf)?;
    // SAFETY: The export made one reference, which is ours.
    Ok(unsafe { ARef::from_raw(ptr::NonNull::new(buf.cast()).ok_or(ENOMEM)?) })
}

/// What `drm` makes of `buf`.
pub(super) fn import_to(drm: &drm::Device<Driver>, buf: &DmaBuf) -> Result<ARef<Object<Bo>>> {
    let dev = ptr::from_ref(drm).cast_mut().cast();
    // SAFETY: The device is registered, and both are valid.
    let raw = kernel::error::from_err_ptr(unsafe { import::<Driver>(dev, buf.as_raw()) })?;
    // SAFETY: The function returns an object of the driver with a reference for us.
    Ok(unsafe { ARef::from_raw(ptr::NonNull::from(Object::<Bo>::from_raw(raw))) })
}

/// Byte `at` of the memory of `obj`.
pub(super) fn byte(obj: &Object<Bo>, at: usize) -> Result<u8> {
    let pages = obj.pages.as_ref().ok_or(EINVAL)?;
    let page = *pages.as_slice().get(at / PAGE_SIZE).ok_or(EINVAL)?;
    let mut byte = [0u8];
    // SAFETY: The page is pinned, and nobody writes to it now.
    unsafe { BorrowedPage::from_raw(page).read_raw(byte.as_mut_ptr(), at % PAGE_SIZE, 1)? };
    Ok(byte[0])
}

/// Whether somebody is attached to `buf`.
pub(super) fn is_attached(buf: &DmaBuf) -> bool {
    // SAFETY: The dma-buf is valid. Nobody attaches or detaches now.
    unsafe {
        let head = &raw const (*buf.as_raw()).attachments;
        !ptr::eq((*head).next, head)
    }
}
