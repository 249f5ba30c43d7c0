// SPDX-License-Identifier: GPL-2.0

//! Objects on a device without hardware.

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
        Arc,
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
    dma_fence::{
        context_alloc,
        Fence,
        TEST_NAME, //
    },
    dma_resv::Usage,
    drm_drv::{
        extend,
        DriverExt,
        DriverTable,
        Features, //
    },
    drm_print::Printer,
};

pub(in crate::ext) struct Driver;
pub(in crate::ext) struct File;

pub(in crate::ext) struct Bo {
    pages: SetOnce<SysPages>,
    attachment: Option<Attachment>,
    exports: Atomic<u32>,
}

pub(in crate::ext) struct Bound<'a> {
    dev: &'a device::Device<device::Bound>,
}

static TABLE: ObjectTable = ObjectTable::new();
static DRIVER_TABLE: DriverTable = DriverTable::new();
/// How often an importer was told that its memory moves.
static MOVES: Atomic<u32> = Atomic::new(0);

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

/// Calls `f` with a registered DRM device and the device that it stands for.
pub(in crate::ext) fn with_device<R>(
    name: &CStr,
    f: impl FnOnce(&drm::Device<Driver>, &device::Device<device::Bound>) -> Result<R>,
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
    let drm = drm::UnregisteredDevice::<Driver>::new(parent, Ok(()))?;
    extend(&drm)?;
    let data: Result<Bound<'_>> = Ok(Bound { dev });
    // SAFETY: The registration is dropped at the end of this function.
    let registration = unsafe { drm::Registration::new(dev, drm, data, 0)? };
    f(registration.device(), dev)
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
fn import_to(drm: &drm::Device<Driver>, buf: &DmaBuf) -> Result<ARef<Object<Bo>>> {
    let dev = ptr::from_ref(drm).cast_mut().cast();
    // SAFETY: The device is registered, and both are valid.
    let raw = kernel::error::from_err_ptr(unsafe { import::<Driver>(dev, buf.as_raw()) })?;
    // SAFETY: The function returns an object of the driver with a reference for us.
    Ok(unsafe { ARef::from_raw(ptr::NonNull::from(Object::<Bo>::from_raw(raw))) })
}

/// Byte `at` of the memory of `obj`.
fn byte(obj: &Object<Bo>, at: usize) -> Result<u8> {
    let pages = obj.pages.as_ref().ok_or(EINVAL)?;
    let page = *pages.as_slice().get(at / PAGE_SIZE).ok_or(EINVAL)?;
    let mut byte = [0u8];
    // SAFETY: The page is pinned, and nobody writes to it now.
    unsafe { BorrowedPage::from_raw(page).read_raw(byte.as_mut_ptr(), at % PAGE_SIZE, 1)? };
    Ok(byte[0])
}

/// Whether somebody is attached to `buf`.
fn is_attached(buf: &DmaBuf) -> bool {
    // SAFETY: The dma-buf is valid. Nobody attaches or detaches now.
    unsafe {
        let head = &raw const (*buf.as_raw()).attachments;
        !ptr::eq((*head).next, head)
    }
}

#[kunit_tests(ochre_ext_gem)]
mod tests {
    use super::*;

    #[test]
    fn kernel_writes_to_an_object_through_its_dma_buf() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let obj = object(drm, dev, 3)?;
            let buf = dma_buf_of(&obj)?;
            assert_eq!(buf.size(), 3 * PAGE_SIZE);
            assert_eq!(obj.exports.load(Relaxed), 1);

            let mut map = bindings::iosys_map::default();
            // SAFETY: The dma-buf is valid; it has 3 pages.
            unsafe {
                to_result(bindings::dma_buf_vmap_unlocked(buf.as_raw(), &mut map))?;
                let memory: *mut u8 = map.__bindgen_anon_1.vaddr.cast();
                memory.add(PAGE_SIZE + 904).write(42);
                bindings::dma_buf_vunmap_unlocked(buf.as_raw(), &mut map);
            }
            assert_eq!(byte(&obj, PAGE_SIZE + 904)?, 42);
            assert_eq!(byte(&obj, 904)?, 0);
            Ok(())
        })
    }

    #[test]
    fn own_dma_buf_gives_the_same_object_back() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let obj = object(drm, dev, 1)?;
            let buf = dma_buf_of(&obj)?;
            let again = import_to(drm, &buf)?;
            assert!(again.is_same(&obj));
            assert!(!is_attached(&buf));
            Ok(())
        })
    }

    #[test]
    fn dma_buf_keeps_its_object_alive() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let buf = dma_buf_of(&*object(drm, dev, 1)?)?;
            assert!(import_to(drm, &buf)?.pages.as_ref().is_some());
            Ok(())
        })
    }

    #[test]
    fn other_device_gets_the_memory_and_the_fences() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let obj = object(drm, dev, 5)?;
            let buf = dma_buf_of(&obj)?;
            with_device(c"ochre-importer", |other, _| {
                let imported = import_to(other, &buf)?;
                assert!(!imported.is_same(&obj));
                assert_eq!(imported.size(), 5 * PAGE_SIZE);
                assert!(ptr::eq(imported.resv(), obj.resv()));
                assert!(is_attached(&buf));

                let attachment = imported.attachment.as_ref().ok_or(EINVAL)?;
                let total = attachment.with_segments(|segments| segments.map(|s| s.len).sum());
                assert_eq!(total, Ok(5 * PAGE_SIZE as u64));

                let fence = Fence::prealloc(GFP_KERNEL)?.init(TEST_NAME, context_alloc(1), 1);
                obj.resv()
                    .publish(Usage::Write, || Some(fence.reference()))?;
                assert!(!imported.resv().is_signaled(Usage::Write));
                Ok(())
            })?;
            assert!(!is_attached(&buf));
            Ok(())
        })
    }

    #[test]
    fn imported_memory_outlives_its_object_while_the_attachment_is_kept() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let buf = dma_buf_of(&*object(drm, dev, 2)?)?;
            with_device(c"ochre-importer", |other, _| {
                let imported = import_to(other, &buf)?;
                let kept = imported.attachment.clone().ok_or(EINVAL)?;
                drop(imported);
                assert!(is_attached(&buf));
                assert!(kept.with_segments(|_| ()).is_ok());
                drop(kept);
                assert!(!is_attached(&buf));
                Ok(())
            })
        })
    }

    #[test]
    fn importer_is_told_once_that_its_memory_moves() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let buf = dma_buf_of(&*object(drm, dev, 2)?)?;
            with_device(c"ochre-importer", |other, _| {
                let imported = import_to(other, &buf)?;
                let attachment = imported.attachment.as_ref().ok_or(EINVAL)?;
                let before = MOVES.load(Relaxed);
                for _ in 0..2 {
                    // SAFETY: The lock is taken around the call, as it asks.
                    unsafe {
                        bindings::dma_resv_lock(buf.resv().as_raw(), ptr::null_mut());
                        bindings::dma_buf_invalidate_mappings(buf.as_raw());
                        bindings::dma_resv_unlock(buf.resv().as_raw());
                    }
                }
                assert_eq!(MOVES.load(Relaxed), before + 1);
                assert_eq!(attachment.with_segments(|_| ()), Err(EAGAIN));
                attachment.map()?;
                assert_eq!(attachment.with_segments(|_| ()), Ok(()));
                Ok(())
            })
        })
    }

    #[test]
    fn unbound_importer_has_no_mapping_and_gets_none() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let buf = dma_buf_of(&*object(drm, dev, 2)?)?;
            let kept = with_device(c"ochre-importer", |other, _| {
                let imported = import_to(other, &buf)?;
                imported.attachment.clone().ok_or(EINVAL)
            })?;
            assert_eq!(kept.with_segments(|_| ()), Err(EAGAIN));
            assert_eq!(kept.map(), Err(ENODEV));
            drop(kept);
            assert!(!is_attached(&buf));
            Ok(())
        })
    }

    #[test]
    fn object_that_shares_nothing_is_not_attached_to() -> Result {
        with_device(c"ochre-exporter", |drm, _| {
            let obj = new_object::<Bo>(drm, PAGE_SIZE, None)?;
            let buf = dma_buf_of(&obj)?;
            with_device(c"ochre-importer", |other, _| {
                assert_eq!(import_to(other, &buf).err(), Some(EOPNOTSUPP));
                Ok(())
            })?;
            assert!(!is_attached(&buf));
            Ok(())
        })
    }

    #[test]
    fn array_publishes_one_fence_to_all_its_objects() -> Result {
        with_device(c"ochre-exporter", |drm, _| {
            let first = new_object::<Bo>(drm, PAGE_SIZE, None)?;
            let second = new_object::<Bo>(drm, PAGE_SIZE, None)?;
            let array = ObjectArray::of(&[&first, &second])?;
            assert_eq!(array.len(), 2);
            let fence = Fence::prealloc(GFP_KERNEL)?.init(TEST_NAME, context_alloc(1), 1);
            array.publish(Usage::Write, || Some(fence.reference()))?;
            assert!(!first.resv().is_signaled(Usage::Read));
            assert!(!second.resv().is_signaled(Usage::Read));
            fence.signal(Ok(()));
            assert!(array
                .iter()
                .all(|object| object.resv().is_signaled(Usage::Read)));
            Ok(())
        })
    }

    #[test]
    fn array_with_an_object_twice_is_refused_before_the_work_is_submitted() -> Result {
        with_device(c"ochre-exporter", |drm, _| {
            let first = new_object::<Bo>(drm, PAGE_SIZE, None)?;
            let second = new_object::<Bo>(drm, PAGE_SIZE, None)?;
            let array = ObjectArray::of(&[&first, &second, &first])?;
            let mut submitted = false;
            let result = array.publish(Usage::Write, || {
                submitted = true;
                None
            });
            assert_eq!(result.err(), Some(EALREADY));
            assert!(!submitted);
            // And nothing stays locked.
            assert!(first.resv().publish(Usage::Write, || None)?.is_none());
            assert!(second.resv().publish(Usage::Write, || None)?.is_none());
            Ok(())
        })
    }

    #[test]
    fn array_lives_as_long_as_its_objects_are_used() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let array = ObjectArray::of(&[&*object(drm, dev, 1)?])?;
            let first = array.iter().next().ok_or(EINVAL)?;
            assert_eq!(byte(first, 0)?, 0);
            Ok(())
        })
    }
}
