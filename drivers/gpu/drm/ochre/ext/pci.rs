// SPDX-License-Identifier: GPL-2.0

//! PCI drivers that take part in error recovery, resets, shutdown and power management.
//!
//! C header: [`include/linux/pci.h`](srctree/include/linux/pci.h)
//!
//! `kernel::pci::Adapter` fills probe, remove and the id table of a `struct pci_driver`.
//! [`Adapter`] adds the callbacks of [`DriverExt`] and leaves the rest to it.
//!
//! All callbacks run with the device's lock held, as probe and unbind do: they exclude each other.

use core::marker::PhantomData;

use kernel::{
    bindings,
    device,
    driver,
    error::to_result,
    ffi::c_int,
    pci::{
        self,
        Device, //
    },
    prelude::*,
    types::Opaque,
    ThisModule, //
};

mod aperture;
mod window;

pub(crate) use self::{
    aperture::{
        Aperture,
        WcMap, //
    },
    window::{
        Window,
        WindowRange, //
    },
};

/// `PCI_DEVICE()` for a vendor that `pci::Vendor` does not name.
pub(crate) const fn device_id(vendor: u16, device: u16) -> pci::DeviceId {
    let raw = bindings::pci_device_id {
        // CAST: To the wider type that C uses.
        vendor: vendor as u32,
        device: device as u32,
        // CAST: C's `PCI_ANY_ID` is `~0`.
        subvendor: bindings::PCI_ANY_ID as u32,
        subdevice: bindings::PCI_ANY_ID as u32,
        class: 0,
        class_mask: 0,
        driver_data: 0,
        override_only: 0,
    };
    // SAFETY: `pci::DeviceId` is a transparent wrapper of `pci_device_id`.
    unsafe { core::mem::transmute::<bindings::pci_device_id, pci::DeviceId>(raw) }
}

/// How the link to a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChannelState {
    /// Access works.
    Normal,
    /// Access is blocked and may work again after a reset.
    Frozen,
    /// The device is gone for good.
    PermanentFailure,
}

impl ChannelState {
    fn from_raw(state: bindings::pci_channel_state_t) -> Self {
        match state {
            1 => Self::Normal,
            2 => Self::Frozen,
            _ => Self::PermanentFailure,
        }
    }
}

/// What a driver says in error recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ErsResult {
    /// It goes on without a reset.
    CanRecover = bindings::pci_ers_result_PCI_ERS_RESULT_CAN_RECOVER,
    /// It wants the slot reset.
    NeedReset = bindings::pci_ers_result_PCI_ERS_RESULT_NEED_RESET,
    /// It gives the device up.
    Disconnect = bindings::pci_ers_result_PCI_ERS_RESULT_DISCONNECT,
    /// The device works again.
    Recovered = bindings::pci_ers_result_PCI_ERS_RESULT_RECOVERED,
}

impl ErsResult {
    const fn into_raw(self) -> bindings::pci_ers_result_t {
        // CAST: The values are C's.
        self as bindings::pci_ers_result_t
    }
}

/// Callbacks beyond [`pci::Driver`]. What a driver does not implement stays empty for the PCI core.
#[vtable]
pub(crate) trait DriverExt: pci::Driver + 'static {
    /// The bus found an error. The device must not be accessed unless the state is normal.
    fn error_detected(
        _dev: &Device<device::Core<'_>>,
        _data: Pin<&Self::Data<'_>>,
        _state: ChannelState,
    ) -> ErsResult {
        ErsResult::Disconnect
    }

    /// The slot was reset; the device has its configuration space restored and nothing else.
    fn slot_reset(_dev: &Device<device::Core<'_>>, _data: Pin<&Self::Data<'_>>) -> ErsResult {
        ErsResult::Disconnect
    }

    /// All drivers concerned have recovered: normal work may go on.
    fn resume_after_error(_dev: &Device<device::Core<'_>>, _data: Pin<&Self::Data<'_>>) {}

    /// Somebody resets the function: stop using it, now.
    fn reset_prepare(_dev: &Device<device::Core<'_>>, _data: Pin<&Self::Data<'_>>) {}

    /// The function was reset: bring it up again.
    fn reset_done(_dev: &Device<device::Core<'_>>, _data: Pin<&Self::Data<'_>>) {}

    /// The machine goes down or starts another kernel: no DMA after this.
    fn shutdown(_dev: &Device<device::Core<'_>>, _data: Pin<&Self::Data<'_>>) {}

    /// The system goes to sleep. The PCI core saves configuration space and powers down after it.
    fn suspend(_dev: &Device<device::Core<'_>>, _data: Pin<&Self::Data<'_>>) -> Result {
        Ok(())
    }

    /// The system woke up; the PCI core has powered up and restored configuration space.
    fn resume(_dev: &Device<device::Core<'_>>, _data: Pin<&Self::Data<'_>>) -> Result {
        Ok(())
    }
}

/// An adapter for [`driver::Registration`] as `pci::Adapter`, with the callbacks of [`DriverExt`].
pub(crate) struct Adapter<T: DriverExt>(PhantomData<T>);

// SAFETY: The same values as those of `pci::Adapter<T>`.
unsafe impl<T: DriverExt> driver::DriverLayout for Adapter<T> {
    type DriverType = bindings::pci_driver;
    type DriverData<'bound> = T::Data<'bound>;
    const DEVICE_DRIVER_OFFSET: usize = core::mem::offset_of!(bindings::pci_driver, driver);
}

// SAFETY: Registration and its end are those of `pci::Adapter<T>`.
unsafe impl<T: DriverExt> driver::RegistrationOps for Adapter<T> {
    unsafe fn register(
        pdrv: &Opaque<bindings::pci_driver>,
        name: &'static CStr,
        module: &'static ThisModule,
    ) -> Result {
        // SAFETY: The structure is not registered yet, so it is ours. The tables are static.
        unsafe {
            let pdrv = pdrv.get();
            (*pdrv).err_handler = const { &Self::ERROR_HANDLERS };
            (*pdrv).driver.pm = const { &Self::PM };
            if T::HAS_SHUTDOWN {
                (*pdrv).shutdown = Some(Self::shutdown);
            }
        }
        // SAFETY: By the contract of this function.
        unsafe { <pci::Adapter<T> as driver::RegistrationOps>::register(pdrv, name, module) }
    }

    unsafe fn unregister(pdrv: &Opaque<bindings::pci_driver>) {
        // SAFETY: By the contract of this function.
        unsafe { <pci::Adapter<T> as driver::RegistrationOps>::unregister(pdrv) }
    }
}

impl<T: DriverExt> Adapter<T> {
    const ERROR_HANDLERS: bindings::pci_error_handlers = {
        let mut ops: bindings::pci_error_handlers = pin_init::zeroed();
        if T::HAS_ERROR_DETECTED {
            ops.error_detected = Some(Self::error_detected);
        }
        if T::HAS_SLOT_RESET {
            ops.slot_reset = Some(Self::slot_reset);
        }
        if T::HAS_RESUME_AFTER_ERROR {
            ops.resume = Some(Self::resume_after_error);
        }
        if T::HAS_RESET_PREPARE {
            ops.reset_prepare = Some(Self::reset_prepare);
        }
        if T::HAS_RESET_DONE {
            ops.reset_done = Some(Self::reset_done);
        }
        ops
    };

    const PM: bindings::dev_pm_ops = {
        let mut ops: bindings::dev_pm_ops = pin_init::zeroed();
        if T::HAS_SUSPEND {
            ops.suspend = Some(Self::suspend);
            ops.freeze = Some(Self::suspend);
            ops.poweroff = Some(Self::suspend);
        }
        if T::HAS_RESUME {
            ops.resume = Some(Self::resume);
            ops.thaw = Some(Self::resume);
            ops.restore = Some(Self::resume);
        }
        ops
    };

    /// Calls `f` with the device and the driver's data of it.
    ///
    /// # Safety
    ///
    /// `pdev` is a valid device that is bound to the driver `T` and stays so during the call.
    unsafe fn with<R>(
        pdev: *mut bindings::pci_dev,
        f: impl for<'a> FnOnce(&'a Device<device::CoreInternal<'a>>, Pin<&'a T::Data<'a>>) -> R,
    ) -> R {
        // SAFETY: `pci::Device` is a transparent wrapper, and by the contract of this function.
        let dev = unsafe { &*pdev.cast::<Device<device::CoreInternal<'_>>>() };
        let generic: &device::Device<device::CoreInternal<'_>> = dev.as_ref();
        // SAFETY: The device is bound, so probe stored data of this type, and remove has not begun.
        f(dev, unsafe { generic.drvdata_borrow::<T::Data<'_>>() })
    }

    /// # Safety
    ///
    /// As `pci_error_handlers.error_detected`, for a device of `T`.
    unsafe extern "C" fn error_detected(
        pdev: *mut bindings::pci_dev,
        state: bindings::pci_channel_state_t,
    ) -> bindings::pci_ers_result_t {
        let state = ChannelState::from_raw(state);
        // SAFETY: The PCI core calls this with the device's lock held, for a bound device.
        unsafe {
            Self::with(pdev, |dev, data| {
                T::error_detected(dev, data, state).into_raw()
            })
        }
    }

    /// # Safety
    ///
    /// As `pci_error_handlers.slot_reset`, for a device of `T`.
    unsafe extern "C" fn slot_reset(pdev: *mut bindings::pci_dev) -> bindings::pci_ers_result_t {
        // SAFETY: As in `error_detected`.
        unsafe { Self::with(pdev, |dev, data| T::slot_reset(dev, data).into_raw()) }
    }

    /// # Safety
    ///
    /// As `pci_error_handlers.resume`, for a device of `T`.
    unsafe extern "C" fn resume_after_error(pdev: *mut bindings::pci_dev) {
        // SAFETY: As in `error_detected`.
        unsafe { Self::with(pdev, |dev, data| T::resume_after_error(dev, data)) }
    }

    /// # Safety
    ///
    /// As `pci_error_handlers.reset_prepare`, for a device of `T`.
    unsafe extern "C" fn reset_prepare(pdev: *mut bindings::pci_dev) {
        // SAFETY: As in `error_detected`.
        unsafe { Self::with(pdev, |dev, data| T::reset_prepare(dev, data)) }
    }

    /// # Safety
    ///
    /// As `pci_error_handlers.reset_done`, for a device of `T`.
    unsafe extern "C" fn reset_done(pdev: *mut bindings::pci_dev) {
        // SAFETY: As in `error_detected`.
        unsafe { Self::with(pdev, |dev, data| T::reset_done(dev, data)) }
    }

    /// # Safety
    ///
    /// As `pci_driver.shutdown`, for a device of `T`.
    unsafe extern "C" fn shutdown(pdev: *mut bindings::pci_dev) {
        // SAFETY: The PCI core calls this with the device's lock held, for a bound device.
        unsafe { Self::with(pdev, |dev, data| T::shutdown(dev, data)) }
    }

    /// # Safety
    ///
    /// As `dev_pm_ops.suspend`, for a device of `T`.
    unsafe extern "C" fn suspend(dev: *mut bindings::device) -> c_int {
        // SAFETY: The PM core calls this with the device's lock held, for a bound device of this
        // driver.
        let result = unsafe { Self::with(to_pci_dev(dev), |dev, data| T::suspend(dev, data)) };
        errno(result)
    }

    /// # Safety
    ///
    /// As `dev_pm_ops.resume`, for a device of `T`.
    unsafe extern "C" fn resume(dev: *mut bindings::device) -> c_int {
        // SAFETY: As in `suspend`.
        let result = unsafe { Self::with(to_pci_dev(dev), |dev, data| T::resume(dev, data)) };
        errno(result)
    }
}

fn errno(result: Result) -> c_int {
    result.map_or_else(|error| error.to_errno(), |()| 0)
}

/// # Safety
///
/// `dev` is part of a `pci_dev`.
unsafe fn to_pci_dev(dev: *mut bindings::device) -> *mut bindings::pci_dev {
    // SAFETY: By the contract of this function.
    unsafe { kernel::container_of!(dev, bindings::pci_dev, dev) }
}

fn raw(dev: &Device) -> *mut bindings::pci_dev {
    // CAST: `pci::Device` is a transparent wrapper.
    core::ptr::from_ref(dev).cast_mut().cast()
}

/// Takes bus mastering away from the function: after this it reaches no memory, whatever state it
/// is in, and sends no message.
///
/// Configuration space works even when the function's registers do not.
pub(crate) fn clear_master(dev: &Device) {
    // SAFETY: The device is valid. The call reads and writes its command register only.
    unsafe { bindings::pci_clear_master(raw(dev)) };
}

/// Whether the device still answers on the bus.
pub(crate) fn is_present(dev: &Device<device::Bound>) -> bool {
    // SAFETY: The device is valid.
    unsafe { bindings::pci_device_is_present(raw(dev)) }
}

/// Resets the function (FLR or what else it can), with [`DriverExt::reset_prepare`] before and
/// [`DriverExt::reset_done`] after.
///
/// Returns [`EAGAIN`] if somebody holds the device's lock, which may be an unbind that waits for
/// the caller. So not from a callback of [`DriverExt`] or [`pci::Driver`]; see
/// [`reset_function_locked`].
pub(crate) fn try_reset_function(dev: &Device<device::Bound>) -> Result {
    // SAFETY: The device is valid.
    to_result(unsafe { bindings::pci_try_reset_function(raw(dev)) })
}

/// Resets the function from within a callback, such as probe, which holds the device's lock
/// already.
///
/// Configuration space is saved and restored; no callback is called.
pub(crate) fn reset_function_locked(dev: &Device<device::Core<'_>>) -> Result {
    // SAFETY: The device is valid and its lock is held, as `Core` says.
    unsafe {
        to_result(bindings::pci_save_state(raw(dev)))?;
        let result = to_result(bindings::__pci_reset_function_locked(raw(dev)));
        bindings::pci_restore_state(raw(dev));
        result
    }
}
