// SPDX-License-Identifier: GPL-2.0

//! What a DRM driver is beyond `kernel::drm::Driver`: more features, `fdinfo`, import of dma-bufs, dumb
//! buffers, entering the device.
//!
//! C headers: [`include/drm/drm_drv.h`](srctree/include/drm/drm_drv.h),
//! [`include/drm/drm_file.h`](srctree/include/drm/drm_file.h)
//!
//! The kernel crate fixes `struct drm_driver` and its `file_operations`. Between the creation of
//! the device and its registration, when nobody else knows it, [`extend`] points it to copies that
//! have what [`DriverExt`] adds. A `drm_device` outlives the binding to its hardware, so the copies
//! are statics of the module, one [`DriverTable`] for each driver.

use core::{
    ops::Deref,
    ptr, //
};

use kernel::{
    bindings,
    drm::{
        self,
        gem::Object, //
    },
    ffi::c_int,
    prelude::*,
    sync::aref::ARef, //
};

use super::{
    dma_buf::DmaBuf,
    drm_print::Printer,
    gem::{
        self,
        BoOps, //
    },
    sys,
    table::StaticTable, //
};

/// What [`DriverExt`] can add to a driver's features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features(u32);

impl Features {
    /// Binary sync objects.
    pub(crate) const SYNCOBJ: Self = Self(bindings::drm_driver_feature_DRIVER_SYNCOBJ);
    /// Timeline sync objects.
    pub(crate) const SYNCOBJ_TIMELINE: Self =
        Self(bindings::drm_driver_feature_DRIVER_SYNCOBJ_TIMELINE);

    /// Both of `self` and `other`.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Home of the extended tables of one driver: a `static`, returned by [`DriverExt::table`].
pub(crate) struct DriverTable {
    driver: StaticTable<bindings::drm_driver>,
    fops: StaticTable<bindings::file_operations>,
}

impl DriverTable {
    /// Creates tables that [`extend`] fills.
    pub(crate) const fn new() -> Self {
        Self {
            driver: StaticTable::new(),
            fops: StaticTable::new(),
        }
    }
}

/// A [`drm::Driver`] with the parts that trait has no place for.
pub(crate) trait DriverExt:
    drm::Driver<Object = Object<Self::Bo>> + Sized + 'static
{
    /// What its objects hold.
    type Bo: BoOps<Driver = Self>;

    /// Features beyond GEM and render nodes.
    const FEATURES: Features;
    /// Whether [`Self::dumb_create`] is there.
    const DUMB: bool = false;

    /// The static that holds this driver's tables; no other driver may return the same.
    fn table() -> &'static DriverTable;

    /// Prints the driver's lines of a file's `fdinfo`.
    ///
    /// Runs inside `drm_dev_enter()`, so it must not wait.
    fn show_fdinfo(
        dev: &drm::Device<Self, drm::Registered>,
        file: &drm::File<Self::File>,
        printer: &mut Printer<'_>,
    );

    /// Makes an object of a dma-buf of another device, with [`new_imported`](gem::new_imported).
    ///
    /// Runs with the file's `prime.lock` and the device's `object_name_lock` held; may wait,
    /// interruptibly. Own dma-bufs never come here.
    fn import(
        _dev: &drm::Device<Self, drm::Ioctl>,
        _buf: &DmaBuf,
    ) -> Result<ARef<Object<Self::Bo>>> {
        Err(EINVAL)
    }

    /// Makes a buffer that a program draws to with the CPU, for display without acceleration.
    ///
    /// The request is not empty, and its size with 8-bit rows rounded up fits 32 bits.
    fn dumb_create(
        _dev: &drm::Device<Self, drm::Ioctl>,
        _file: &drm::File<Self::File>,
        _request: DumbRequest,
    ) -> Result<Dumb> {
        Err(ENOSYS)
    }
}

/// What [`DriverExt::dumb_create`] is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DumbRequest {
    /// Pixels of a row.
    pub(crate) width: u32,
    /// Rows.
    pub(crate) height: u32,
    /// Bits of a pixel.
    pub(crate) bpp: u32,
}

/// What [`DriverExt::dumb_create`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dumb {
    /// The handle of the file that asked.
    pub(crate) handle: u32,
    /// Bytes from one row to the next.
    pub(crate) pitch: u32,
    /// Bytes in all.
    pub(crate) size: u64,
}

/// Gives a device what [`DriverExt`] adds. To be called before [`drm::Registration::new`].
pub(crate) fn extend<T: DriverExt>(dev: &drm::UnregisteredDevice<T>) -> Result {
    // CAST: `drm::Device` is `repr(C)` and begins with its `drm_device`.
    let raw = ptr::from_ref::<drm::Device<T>>(dev)
        .cast::<bindings::drm_device>()
        .cast_mut();

    // SAFETY: The device is alive and points to the complete tables of `T`.
    let (driver, fops) = unsafe { (*(*raw).driver, *(*(*raw).driver).fops) };

    let table = T::table();
    let fops = table.fops.get_or_fill(|| bindings::file_operations {
        show_fdinfo: Some(bindings::drm_show_fdinfo),
        ..fops
    })?;
    let driver = table.driver.get_or_fill(|| bindings::drm_driver {
        driver_features: driver.driver_features | T::FEATURES.0,
        show_fdinfo: Some(show_fdinfo::<T>),
        gem_prime_import: Some(gem::import::<T>),
        dumb_create: if T::DUMB {
            Some(dumb_create::<T>)
        } else {
            driver.dumb_create
        },
        fops,
        ..driver
    })?;

    // SAFETY: The device is not registered and `UnregisteredDevice` is not `Send`: no other thread
    // looks at the field. The new table is static and does all that the old one did.
    unsafe { (*raw).driver = driver };
    Ok(())
}

/// # Safety
///
/// As `drm_driver.show_fdinfo`, of a device of `T`.
unsafe extern "C" fn show_fdinfo<T: DriverExt>(
    printer: *mut bindings::drm_printer,
    file: *mut bindings::drm_file,
) {
    // SAFETY: DRM calls this for an open file of a registered device of `T`, with a printer of its
    // own.
    let (dev, file, mut printer) = unsafe {
        (
            drm::Device::<T, drm::Ioctl>::from_raw((*(*file).minor).dev),
            drm::File::<T::File>::from_raw(file),
            Printer::from_raw(printer),
        )
    };
    if let Some(guard) = dev.registration_guard() {
        T::show_fdinfo(&guard, file, &mut printer);
    }
}

/// # Safety
///
/// As `drm_driver.dumb_create`, of a device of `T`.
unsafe extern "C" fn dumb_create<T: DriverExt>(
    file: *mut bindings::drm_file,
    dev: *mut bindings::drm_device,
    args: *mut bindings::drm_mode_create_dumb,
) -> c_int {
    // SAFETY: DRM calls this in an ioctl of an open file of a device of `T`, with arguments of the
    // kernel's own.
    let (dev, file, args) = unsafe {
        (
            drm::Device::<T, drm::Ioctl>::from_raw(dev),
            drm::File::<T::File>::from_raw(file),
            &mut *args,
        )
    };
    let request = DumbRequest {
        width: args.width,
        height: args.height,
        bpp: args.bpp,
    };
    match T::dumb_create(dev, file, request) {
        Ok(dumb) => {
            args.handle = dumb.handle;
            args.pitch = dumb.pitch;
            args.size = dumb.size;
            0
        }
        Err(error) => error.to_errno(),
    }
}

/// A device that has been registered with user space once.
///
/// It may be unbound by now, which [`Self::enter`] finds out. What workers, timers and open files
/// keep.
///
/// # Invariants
///
/// `drm_dev_register()` succeeded on the device.
pub(crate) struct RegisteredDevice<T: drm::Driver>(ARef<drm::Device<T>>);

impl<T: drm::Driver> RegisteredDevice<T> {
    /// Takes the device of an ioctl.
    pub(crate) fn from_ioctl(dev: &drm::Device<T, drm::Ioctl>) -> Self {
        // INVARIANT: The context `Ioctl` says so.
        Self(ARef::from(&**dev))
    }

    /// Takes the device of a registration.
    pub(crate) fn from_registration(registration: &drm::Registration<'_, T>) -> Self {
        // INVARIANT: A `Registration` exists only after success.
        Self(ARef::from(registration.device()))
    }

    /// Keeps the hardware bound while the guard lives, or returns [`None`] if it is gone.
    ///
    /// For short sections that touch the hardware. The lock behind it is one for all DRM devices of
    /// the machine: never wait inside.
    pub(crate) fn enter(&self) -> Option<drm::RegistrationGuard<'_, T>> {
        let raw = ptr::from_ref::<drm::Device<T>>(&self.0).cast::<bindings::drm_device>();
        // SAFETY: `raw` is the device that `self` keeps alive; by the type invariant it is fit for
        // the context `Ioctl`.
        unsafe { drm::Device::<T, drm::Ioctl>::from_raw(raw) }.registration_guard()
    }
}

/// What user space can do about a device that had to be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WedgeRecovery {
    /// Nothing: the device goes on after a reset that cost some programs their work.
    None,
    /// Unbind the driver, reset the device on its bus, and bind again.
    BusReset,
}

impl<T: drm::Driver> RegisteredDevice<T> {
    /// Tells user space (uevent, `Documentation/gpu/drm-uapi.rst`, "Device Wedging") that the device had
    /// to be reset or was given up. Sleeps. Does nothing if it is unbound.
    pub(crate) fn wedged_event(&self, recovery: WedgeRecovery) {
        let Some(_guard) = self.enter() else {
            return;
        };
        let raw = ptr::from_ref::<drm::Device<T>>(&self.0).cast_mut();
        let given_up = recovery == WedgeRecovery::BusReset;
        // SAFETY: The device is registered while the guard lives.
        unsafe { sys::ochre_drm_wedged_event(raw.cast(), given_up) };
    }
}

impl<T: drm::Driver> Clone for RegisteredDevice<T> {
    fn clone(&self) -> Self {
        // INVARIANT: The same device.
        Self(self.0.clone())
    }
}

impl<T: drm::Driver> Deref for RegisteredDevice<T> {
    type Target = drm::Device<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Entering the device from an ioctl.
pub(crate) trait Enter<T: drm::Driver> {
    /// As [`RegisteredDevice::enter`], with [`ENODEV`] when the hardware is gone.
    fn enter(&self) -> Result<drm::RegistrationGuard<'_, T>>;
}

impl<T: drm::Driver> Enter<T> for drm::Device<T, drm::Ioctl> {
    fn enter(&self) -> Result<drm::RegistrationGuard<'_, T>> {
        self.registration_guard().ok_or(ENODEV)
    }
}
