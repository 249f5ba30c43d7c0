// SPDX-License-Identifier: GPL-2.0

//! Clocks that the devfreq framework and its governors set.
//!
//! C headers: [`include/linux/devfreq.h`](srctree/include/linux/devfreq.h),
//! [`include/linux/devfreq-governor.h`](srctree/include/linux/devfreq-governor.h)
//!
//! [`register`] gives a device a table of operating points (`kernel::opp`) and a devfreq instance over
//! [`Ops`]. Any governor can run it. [`Governor`] is one for drivers that decide by themselves,
//! when their device has news: it has no timer, takes [`Ops::wanted`], and runs when the driver
//! calls [`Instance::update`]. What people set in `min_freq` and `max_freq`, and quality-of-service
//! requests, apply to all governors.
//!
//! C gives the callbacks nothing but the device, so a list maps devices to their [`Ops`]. A callback
//! takes a reference out of the list; once the entry is gone, which is before [`register`]'s device
//! is fully unbound, it gives [`ENODEV`].

use core::{
    ptr::{
        self,
        NonNull, //
    },
    sync::atomic::{
        AtomicPtr,
        Ordering, //
    },
};

use kernel::{
    bindings,
    clk::Hertz,
    device::{
        Bound,
        Device, //
    },
    devres,
    error::{
        from_err_ptr,
        from_result,
        to_result, //
    },
    ffi::{
        c_int,
        c_uint,
        c_ulong,
        c_void, //
    },
    new_mutex,
    opp,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    },
    types::Opaque, //
};

use super::sys;

/// What a governor is told about the time since it asked last, in any unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    /// All of it.
    pub(crate) total: u64,
    /// That in which the device worked.
    pub(crate) busy: u64,
}

/// A clock. Functions may sleep; they run with the instance's lock held, so they must not call
/// [`Instance::update`].
pub(crate) trait Ops: Send + Sync + 'static {
    /// Runs the clock at `hz`, an operating point. May only have begun when it returns.
    fn set(&self, hz: u64) -> Result;
    /// Its rate now.
    fn get(&self) -> Result<u64>;
    /// What became of the time.
    fn status(&self) -> Result<Status>;
    /// [`Governor`] has become the governor of this clock.
    fn taken(&self);
    /// The rate that the driver would choose.
    fn wanted(&self) -> u64;
}

/// One operating point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// Rate in Hz.
    pub(crate) hz: u64,
    /// Voltage in µV.
    pub(crate) uv: u32,
}

/// Whose clock is whose.
struct Entry {
    dev: *mut bindings::device,
    ops: Arc<dyn Ops>,
}

// SAFETY: The pointer is compared, never followed.
unsafe impl Send for Entry {}

kernel::sync::global_lock! {
    // SAFETY: `Governor::register` initialises it, before `register` can be called.
    unsafe(uninit) static CLOCKS: Mutex<KVec<Entry>> = KVec::new();
}

/// The governor while it is registered, so that `CLOCKS` is initialised.
static GOVERNOR: AtomicPtr<sys::devfreq_governor> = AtomicPtr::new(ptr::null_mut());

/// The clock of `dev`; [`ENODEV`] if it has none any more.
fn ops(dev: *mut bindings::device) -> Result<Arc<dyn Ops>> {
    let clocks = CLOCKS.lock();
    let entry = clocks.iter().find(|entry| entry.dev == dev).ok_or(ENODEV)?;
    Ok(entry.ops.clone())
}

/// # Safety
///
/// As `devfreq_dev_profile.target`.
unsafe extern "C" fn target(dev: *mut bindings::device, freq: *mut c_ulong, flags: u32) -> c_int {
    from_result(|| {
        let ops = ops(dev)?;
        // SAFETY: The device has a table of operating points as long as it has an instance, and
        // the core gives a valid pointer.
        let opp = from_err_ptr(unsafe { sys::devfreq_recommended_opp(dev, freq, flags) })?;
        // SAFETY: The call above returned a reference.
        unsafe { bindings::dev_pm_opp_put(opp) };
        // SAFETY: As above; the call has put the rate of a point there.
        ops.set(unsafe { *freq } as u64)?;
        Ok(0)
    })
}

/// # Safety
///
/// As `devfreq_dev_profile.get_dev_status`.
unsafe extern "C" fn get_dev_status(
    dev: *mut bindings::device,
    status: *mut sys::devfreq_dev_status,
) -> c_int {
    from_result(|| {
        let ops = ops(dev)?;
        let Status { total, busy } = ops.status()?;
        // Governors multiply by 100 and more in 64 bits, and by the rate: 2^32 Hz and a share of
        // 2^20 fit.
        let shift = (u64::BITS - total.leading_zeros()).saturating_sub(20);
        let hz = ops.get()?;
        // SAFETY: The core gives room for the answer.
        unsafe {
            (*status).total_time = (total >> shift) as c_ulong;
            (*status).busy_time = (busy.min(total) >> shift) as c_ulong;
            (*status).current_frequency = hz as c_ulong;
        }
        Ok(0)
    })
}

/// # Safety
///
/// As `devfreq_dev_profile.get_cur_freq`.
unsafe extern "C" fn get_cur_freq(dev: *mut bindings::device, freq: *mut c_ulong) -> c_int {
    from_result(|| {
        let hz = ops(dev)?.get()?;
        // SAFETY: The core gives room for the answer.
        unsafe { freq.write(hz as c_ulong) };
        Ok(0)
    })
}

/// The instance as long as it is registered.
struct Registered {
    raw: NonNull<sys::devfreq>,
    dev: ARef<Device>,
    // What C has pointers to, freed after the instance was removed.
    _profile: KBox<Opaque<sys::devfreq_dev_profile>>,
    _table: KVec<c_ulong>,
    _points: KVec<opp::Token>,
}

// SAFETY: The instance may be used and removed from any thread.
unsafe impl Send for Registered {}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: It was added, and is removed only here. The core keeps no reference to it beyond
        // this call, so the profile may go afterwards.
        unsafe { sys::devfreq_remove_device(self.raw.as_ptr()) };
        forget_clock(&self.dev);
    }
}

fn forget_clock(dev: &Device) {
    let dev = raw(dev);
    let mut clocks = CLOCKS.lock();
    let index = clocks.iter().position(|entry| entry.dev == dev);
    let entry = index.and_then(|index| clocks.remove(index).ok());
    drop(clocks);
    drop(entry);
}

fn raw(dev: &Device) -> *mut bindings::device {
    // CAST: `device::Device` is a transparent wrapper.
    ptr::from_ref(dev).cast_mut().cast()
}

/// A clock under devfreq, for the driver to talk to.
#[pin_data]
pub(crate) struct Instance {
    #[pin]
    registered: Mutex<Option<Registered>>,
}

/// What a clock may be set to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// [`Governor`] decides.
    pub(crate) is_ours: bool,
    /// The slowest rate allowed.
    pub(crate) min_hz: u64,
    /// The fastest one.
    pub(crate) max_hz: u64,
}

impl Instance {
    /// What the clock may be set to, and who decides. [`None`] once the device is unbound. Sleeps.
    pub(crate) fn range(&self) -> Option<Range> {
        let registered = self.registered.lock();
        let instance = registered.as_ref()?;
        let (mut min, mut max): (c_ulong, c_ulong) = (0, 0);
        // SAFETY: The instance stays registered while the lock is held.
        let is_ours = unsafe {
            sys::ochre_devfreq_range(
                instance.raw.as_ptr(),
                GOVERNOR.load(Ordering::Acquire),
                &mut min,
                &mut max,
            )
        };
        Some(Range {
            is_ours,
            min_hz: min as u64,
            max_hz: max as u64,
        })
    }

    /// Has [`Governor`] run, if it is the governor of this clock: asks [`Ops::wanted`], limits it to
    /// what people allow, and calls [`Ops::set`]. Sleeps. Returns whether it is the governor. Does
    /// nothing once the device is unbound.
    pub(crate) fn update(&self) -> Result<bool> {
        let registered = self.registered.lock();
        let Some(instance) = &*registered else {
            return Ok(false);
        };
        // SAFETY: The instance stays registered while the lock is held.
        let ran = unsafe {
            sys::ochre_devfreq_update(instance.raw.as_ptr(), GOVERNOR.load(Ordering::Acquire))
        };
        to_result(ran)?;
        Ok(ran > 0)
    }
}

/// Ends an instance when it is dropped.
struct Registration(Arc<Instance>);

impl Drop for Registration {
    fn drop(&mut self) {
        // The lock is released before the instance goes, for that waits for its callbacks.
        let registered = self.0.registered.lock().take();
        drop(registered);
    }
}

/// Puts a clock of `dev` under devfreq, with [`Governor`] to begin with, until `dev` is unbound.
///
/// `points`: slowest first. [`ENXIO`]: the governor is not registered.
pub(crate) fn register(
    dev: &Device<Bound>,
    points: &[Point],
    ops: Arc<dyn Ops>,
) -> Result<Arc<Instance>> {
    let governor = GOVERNOR.load(Ordering::Acquire);
    if governor.is_null() {
        return Err(ENXIO);
    }
    let dev_ref: ARef<Device> = dev.into();
    let mut table = KVec::with_capacity(points.len(), GFP_KERNEL)?;
    let mut tokens = KVec::with_capacity(points.len(), GFP_KERNEL)?;
    for (level, point) in points.iter().enumerate() {
        let hz = usize::try_from(point.hz)?;
        let volt = opp::MicroVolt(usize::try_from(point.uv)?);
        let data = opp::Data::new(Hertz(hz), volt, u32::try_from(level)?, false);
        tokens.push(data.add_opp(&dev_ref)?, GFP_KERNEL)?;
        table.push(hz, GFP_KERNEL)?;
    }
    let profile = sys::devfreq_dev_profile {
        initial_freq: usize::try_from(ops.get()?)?,
        // For the governors that poll.
        polling_ms: 50,
        target: Some(target),
        get_dev_status: Some(get_dev_status),
        get_cur_freq: Some(get_cur_freq),
        freq_table: table.as_mut_ptr(),
        max_state: c_uint::try_from(table.len())?,
        ..Default::default()
    };
    let profile = KBox::new(Opaque::new(profile), GFP_KERNEL)?;

    CLOCKS
        .lock()
        .push(Entry { dev: raw(dev), ops }, GFP_KERNEL)?;
    // SAFETY: The device is bound; profile and table live as long as the instance; the governor is
    // registered as long as the module is loaded, and its name is part of it.
    let raw = from_err_ptr(unsafe {
        sys::devfreq_add_device(
            raw(dev),
            profile.get(),
            (&raw const (*governor).name).cast(),
            ptr::null_mut(),
        )
    })
    .inspect_err(|_| forget_clock(dev))?;
    let registered = Registered {
        raw: NonNull::new(raw).ok_or(EINVAL)?,
        dev: dev_ref,
        _profile: profile,
        _table: table,
        _points: tokens,
    };
    let instance = Arc::pin_init(
        pin_init!(Instance {
            registered <- new_mutex!(Some(registered), "ochre_devfreq"),
        }),
        GFP_KERNEL,
    )?;
    devres::register(dev, Registration(instance.clone()), GFP_KERNEL)?;
    Ok(instance)
}

/// The governor for drivers that decide by themselves; dropping it unregisters it.
///
/// It belongs into the module's structure, so that it outlives all instances.
pub(crate) struct Governor(KBox<Opaque<sys::devfreq_governor>>);

// SAFETY: The structure belongs to the devfreq core while it is registered.
unsafe impl Send for Governor {}
// SAFETY: As above.
unsafe impl Sync for Governor {}

/// The instance is one of ours.
///
/// # Safety
///
/// `devfreq` is a valid instance.
unsafe fn is_ours(devfreq: *mut sys::devfreq) -> bool {
    let ours: unsafe extern "C" fn(*mut bindings::device, *mut c_ulong, u32) -> c_int = target;
    // SAFETY: By the contract of this function; an instance has a profile.
    let theirs = unsafe { (*(*devfreq).profile).target };
    // A driver whose function has the same address is this one.
    theirs.is_some_and(|theirs| ptr::fn_addr_eq(theirs, ours))
}

/// # Safety
///
/// As `devfreq_governor.get_target_freq`.
unsafe extern "C" fn get_target_freq(devfreq: *mut sys::devfreq, freq: *mut c_ulong) -> c_int {
    from_result(|| {
        // SAFETY: The core calls this for a valid instance, with a valid pointer; `start` has seen
        // to it that it is ours.
        unsafe { freq.write(ops((*devfreq).dev.parent)?.wanted() as c_ulong) };
        Ok(0)
    })
}

/// # Safety
///
/// As `devfreq_governor.event_handler`.
unsafe extern "C" fn event_handler(
    devfreq: *mut sys::devfreq,
    event: c_uint,
    data: *mut c_void,
) -> c_int {
    match event {
        // Only drivers that know what they want can have this governor.
        // SAFETY: The core calls this for a valid instance.
        sys::DEVFREQ_GOV_START if unsafe { !is_ours(devfreq) } => EINVAL.to_errno(),
        // SAFETY: As above. The core does without timers for a governor like this one.
        sys::DEVFREQ_GOV_START => unsafe {
            sys::devfreq_monitor_start(devfreq);
            if let Ok(ops) = ops((*devfreq).dev.parent) {
                ops.taken();
            }
            0
        },
        // SAFETY: As above.
        sys::DEVFREQ_GOV_STOP => unsafe {
            sys::devfreq_monitor_stop(devfreq);
            0
        },
        // SAFETY: As above; the event comes with a pointer to the interval.
        sys::DEVFREQ_GOV_UPDATE_INTERVAL => unsafe {
            sys::devfreq_update_interval(devfreq, data.cast());
            0
        },
        // SAFETY: As above.
        sys::DEVFREQ_GOV_SUSPEND => unsafe {
            sys::devfreq_monitor_suspend(devfreq);
            0
        },
        // SAFETY: As above.
        sys::DEVFREQ_GOV_RESUME => unsafe {
            sys::devfreq_monitor_resume(devfreq);
            0
        },
        _ => 0,
    }
}

impl Governor {
    /// Registers it under a name of at most 15 bytes. Returns [`EBUSY`] when called a second time.
    pub(crate) fn register(name: &CStr) -> Result<Self> {
        static TAKEN: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);

        if TAKEN.swap(true, Ordering::Relaxed) {
            return Err(EBUSY);
        }
        // SAFETY: `TAKEN` was false, so this is the only call ever.
        unsafe { CLOCKS.init() };

        let mut governor = sys::devfreq_governor::default();
        let bytes = name.to_bytes();
        if bytes.len() >= governor.name.len() {
            return Err(EINVAL);
        }
        for (to, from) in governor.name.iter_mut().zip(bytes) {
            *to = *from;
        }
        governor.flags = 1 << 1; // DEVFREQ_GOV_FLAG_IRQ_DRIVEN
        governor.get_target_freq = Some(get_target_freq);
        governor.event_handler = Some(event_handler);
        let governor = KBox::new(Opaque::new(governor), GFP_KERNEL)?;
        // SAFETY: The structure is complete and lives in a box until it was removed.
        to_result(unsafe { sys::devfreq_add_governor(governor.get()) })?;
        GOVERNOR.store(governor.get(), Ordering::Release);
        Ok(Self(governor))
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        GOVERNOR.store(ptr::null_mut(), Ordering::Release);
        // SAFETY: It was added, and is removed only here.
        unsafe { sys::devfreq_remove_governor(self.0.get()) };
    }
}
