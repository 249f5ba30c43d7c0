// SPDX-License-Identifier: GPL-2.0

//! A thermal zone with a cooling device of its own.
//!
//! C header: [`include/linux/thermal.h`](srctree/include/linux/thermal.h)
//!
//! A device that both gets hot and can be slowed down registers both at once ([`register`]): the zone
//! has the trips, and each passive one is cooled by the device's own cooling device. The core does
//! not poll; the driver says when it has something to look at ([`Zone::update`]).
//!
//! When the device is unbound both are unregistered, which waits for functions that run. Between the
//! driver's own unbind and that moment functions still run: they find out by themselves whether
//! there is hardware.

use core::ptr::{
    self,
    NonNull, //
};

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    devres,
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi::{
        c_int,
        c_ulong, //
    },
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use super::sys;

/// What a trip is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trip {
    /// The device slows down when it gets hotter, until it is cooler by the hysteresis.
    Passive,
    /// Programs are told.
    Hot,
}

/// What the core asks. Functions may sleep; they run with the zone's or the cooling device's lock
/// held, so they must not call [`Zone::update`].
pub(crate) trait Ops: Send + Sync + 'static {
    /// The temperature in m°C.
    fn temperature(&self) -> Result<i32>;
    /// The most cooling there is; 0 is none. Does not change.
    fn cooling_max(&self) -> u32;
    /// The cooling that is asked for now.
    fn cooling(&self) -> u32;
    /// Asks for cooling, at most [`Self::cooling_max`].
    fn set_cooling(&self, level: u32) -> Result;
}

/// What C has pointers to.
struct Inner {
    ops: Arc<dyn Ops>,
    cooling: NonNull<bindings::thermal_cooling_device>,
}

/// # Safety
///
/// `cdev` is a cooling device that [`register`] made.
unsafe fn cooling_ops<'a>(cdev: *mut bindings::thermal_cooling_device) -> &'a Arc<dyn Ops> {
    // SAFETY: `register` gave a box of such a reference, which is freed after the device was
    // unregistered, and that waits for the functions.
    unsafe { &*sys::ochre_thermal_cooling_data(cdev).cast::<Arc<dyn Ops>>() }
}

/// # Safety
///
/// As `thermal_cooling_device_ops.get_max_state`, of a device of ours.
unsafe extern "C" fn get_max_state(
    cdev: *mut bindings::thermal_cooling_device,
    state: *mut c_ulong,
) -> c_int {
    // SAFETY: The core calls this for a device of ours, with room for the answer.
    unsafe { state.write(cooling_ops(cdev).cooling_max() as c_ulong) };
    0
}

/// # Safety
///
/// As `thermal_cooling_device_ops.get_cur_state`, of a device of ours.
unsafe extern "C" fn get_cur_state(
    cdev: *mut bindings::thermal_cooling_device,
    state: *mut c_ulong,
) -> c_int {
    // SAFETY: As in `get_max_state`.
    unsafe { state.write(cooling_ops(cdev).cooling() as c_ulong) };
    0
}

/// # Safety
///
/// As `thermal_cooling_device_ops.set_cur_state`, of a device of ours.
unsafe extern "C" fn set_cur_state(
    cdev: *mut bindings::thermal_cooling_device,
    state: c_ulong,
) -> c_int {
    // SAFETY: The core calls this for a device of ours.
    let ops = unsafe { cooling_ops(cdev) };
    let result = match u32::try_from(state) {
        Ok(level) if level <= ops.cooling_max() => ops.set_cooling(level),
        _ => Err(EINVAL),
    };
    result.map_or_else(|error| error.to_errno(), |()| 0)
}

const COOLING_OPS: sys::thermal_cooling_device_ops = sys::thermal_cooling_device_ops {
    get_max_state: Some(get_max_state),
    get_cur_state: Some(get_cur_state),
    set_cur_state: Some(set_cur_state),
    get_requested_power: None,
    state2power: None,
    power2state: None,
};

/// # Safety
///
/// As `thermal_zone_device_ops.get_temp`, of a zone of ours.
unsafe extern "C" fn get_temp(tz: *mut sys::thermal_zone_device, temp: *mut c_int) -> c_int {
    // SAFETY: `register` gave this pointer to the zone; what is there is freed after the zone was
    // unregistered, and that waits for the functions.
    let inner = unsafe { &*sys::thermal_zone_device_priv(tz).cast::<Inner>() };
    match inner.ops.temperature() {
        Ok(value) => {
            // SAFETY: The core gives room for the answer.
            unsafe { temp.write(value) };
            0
        }
        Err(error) => error.to_errno(),
    }
}

/// # Safety
///
/// As `thermal_zone_device_ops.should_bind`, of a zone of ours.
unsafe extern "C" fn should_bind(
    tz: *mut sys::thermal_zone_device,
    trip: *const sys::thermal_trip,
    cdev: *mut bindings::thermal_cooling_device,
    _spec: *mut sys::cooling_spec,
) -> bool {
    // SAFETY: As in `get_temp`; the trip is one of the zone's.
    unsafe {
        let inner = &*sys::thermal_zone_device_priv(tz).cast::<Inner>();
        cdev == inner.cooling.as_ptr()
            && (*trip).type_ == sys::thermal_trip_type_THERMAL_TRIP_PASSIVE
    }
}

const ZONE_OPS: sys::thermal_zone_device_ops = sys::thermal_zone_device_ops {
    should_bind: Some(should_bind),
    get_temp: Some(get_temp),
    set_trips: None,
    change_mode: None,
    set_trip_temp: None,
    get_crit_temp: None,
    set_emul_temp: None,
    get_trend: None,
    hot: None,
    critical: None,
};

/// A cooling device; dropping it unregisters it.
struct Cooling {
    raw: NonNull<bindings::thermal_cooling_device>,
    /// What C has a pointer to.
    _ops: KBox<Arc<dyn Ops>>,
}

impl Drop for Cooling {
    fn drop(&mut self) {
        // SAFETY: It was registered, and is unregistered only here.
        unsafe { sys::thermal_cooling_device_unregister(self.raw.as_ptr()) };
    }
}

impl Cooling {
    fn register(name: &'static CStr, ops: Arc<dyn Ops>) -> Result<Self> {
        let ops = KBox::new(ops, GFP_KERNEL)?;
        // SAFETY: The name and the table are static, and the box lives as long as the device.
        let raw = from_err_ptr(unsafe {
            sys::thermal_cooling_device_register(
                name.as_char_ptr(),
                ptr::from_ref::<Arc<dyn Ops>>(&ops).cast_mut().cast(),
                const { &COOLING_OPS },
            )
        })?;
        Ok(Self {
            raw: NonNull::new(raw).ok_or(EINVAL)?,
            _ops: ops,
        })
    }
}

/// The zone as long as it is registered.
struct Registered {
    raw: NonNull<sys::thermal_zone_device>,
    // In this order, after the zone was unregistered.
    _inner: KBox<Inner>,
    _cooling: Cooling,
}

// SAFETY: Zone and cooling device may be used and unregistered from any thread.
unsafe impl Send for Registered {}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: It was registered, and is unregistered only here.
        unsafe { sys::thermal_zone_device_unregister(self.raw.as_ptr()) };
    }
}

/// A thermal zone, for the driver to talk to.
#[pin_data]
pub(crate) struct Zone {
    #[pin]
    registered: Mutex<Option<Registered>>,
}

impl Zone {
    /// Has the core look at the temperature. Sleeps; calls the functions of [`Ops`]. Does nothing
    /// once the device is unbound.
    pub(crate) fn update(&self) {
        let registered = self.registered.lock();
        if let Some(zone) = &*registered {
            // SAFETY: The zone stays registered while the lock is held.
            unsafe {
                sys::thermal_zone_device_update(
                    zone.raw.as_ptr(),
                    sys::thermal_notify_event_THERMAL_EVENT_UNSPECIFIED,
                )
            };
        }
    }
}

/// Ends a zone when it is dropped.
struct Registration(Arc<Zone>);

impl Drop for Registration {
    fn drop(&mut self) {
        // The lock is released before the zone goes, for that waits for its functions.
        let zone = self.0.registered.lock().take();
        drop(zone);
    }
}

/// Makes a zone and a cooling device `name`, until `dev` is unbound. Each trip has its temperature and
/// its hysteresis in m°C.
pub(crate) fn register(
    dev: &Device<Bound>,
    name: &'static CStr,
    trips: &[(Trip, i32, i32)],
    ops: Arc<dyn Ops>,
) -> Result<Arc<Zone>> {
    let mut raw_trips = KVec::with_capacity(trips.len(), GFP_KERNEL)?;
    for &(kind, temperature, hysteresis) in trips {
        let trip = sys::thermal_trip {
            temperature,
            hysteresis,
            type_: match kind {
                Trip::Passive => sys::thermal_trip_type_THERMAL_TRIP_PASSIVE,
                Trip::Hot => sys::thermal_trip_type_THERMAL_TRIP_HOT,
            },
            ..Default::default()
        };
        raw_trips.push(trip, GFP_KERNEL)?;
    }
    let params = sys::thermal_zone_params {
        // The sensors have a chip of their own.
        no_hwmon: true,
        ..Default::default()
    };

    let cooling = Cooling::register(name, ops.clone())?;
    let inner = KBox::new(
        Inner {
            ops,
            cooling: cooling.raw,
        },
        GFP_KERNEL,
    )?;
    // SAFETY: Name and table are static, trips and parameters are copied, and the box lives as long
    // as the zone.
    let raw = from_err_ptr(unsafe {
        sys::thermal_zone_device_register_with_trips(
            name.as_char_ptr(),
            raw_trips.as_ptr(),
            c_int::try_from(raw_trips.len())?,
            ptr::from_ref::<Inner>(&inner).cast_mut().cast(),
            const { &ZONE_OPS },
            &params,
            0,
            0,
        )
    })?;
    let registered = Registered {
        raw: NonNull::new(raw).ok_or(EINVAL)?,
        _inner: inner,
        _cooling: cooling,
    };
    // SAFETY: The zone is registered.
    to_result(unsafe { sys::thermal_zone_device_enable(registered.raw.as_ptr()) })?;

    let zone = Arc::pin_init(
        pin_init!(Zone {
            registered <- new_mutex!(Some(registered), "ochre_thermal"),
        }),
        GFP_KERNEL,
    )?;
    devres::register(dev, Registration(zone.clone()), GFP_KERNEL)?;
    Ok(zone)
}
