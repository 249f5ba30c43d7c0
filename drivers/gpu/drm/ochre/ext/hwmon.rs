// SPDX-License-Identifier: GPL-2.0

//! Sensors that `sensors` shows.
//!
//! C header: [`include/linux/hwmon.h`](srctree/include/linux/hwmon.h)
//!
//! A chip is a static table of channels, each with its items, over a type of the driver's; see
//! [`Chip`]. Units are those of
//! [`Documentation/hwmon/sysfs-interface.rst`](srctree/Documentation/hwmon/sysfs-interface.rst): m°C,
//! mV, µW, µJ. [`register`] removes the chip when its device is unbound, which waits for functions
//! that run. Between the driver's own unbind and that moment functions still run: they find out by
//! themselves whether there is hardware.

use core::{
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    },
};

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    devres,
    error::from_err_ptr,
    ffi::{
        c_char,
        c_int,
        c_long,
        c_void, //
    },
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

use super::{
    sys,
    sysfs::{
        File,
        Group, //
    }, //
};

/// What a channel measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// `temp*`, in m°C.
    Temp = sys::hwmon_sensor_types_hwmon_temp,
    /// `in*`, in mV.
    In = sys::hwmon_sensor_types_hwmon_in,
    /// `power*`, in µW.
    Power = sys::hwmon_sensor_types_hwmon_power,
    /// `energy*`, in µJ.
    Energy = sys::hwmon_sensor_types_hwmon_energy64,
}

/// Which file of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attr(u32);

impl Attr {
    /// `temp*_input`.
    pub(crate) const TEMP_INPUT: Self = Self(sys::hwmon_temp_attributes_hwmon_temp_input);
    /// `temp*_max`.
    pub(crate) const TEMP_MAX: Self = Self(sys::hwmon_temp_attributes_hwmon_temp_max);
    /// `temp*_max_alarm`.
    pub(crate) const TEMP_MAX_ALARM: Self = Self(sys::hwmon_temp_attributes_hwmon_temp_max_alarm);
    /// `temp*_crit`.
    pub(crate) const TEMP_CRIT: Self = Self(sys::hwmon_temp_attributes_hwmon_temp_crit);
    /// `temp*_crit_alarm`.
    pub(crate) const TEMP_CRIT_ALARM: Self = Self(sys::hwmon_temp_attributes_hwmon_temp_crit_alarm);
    /// `in*_input`.
    pub(crate) const IN_INPUT: Self = Self(sys::hwmon_in_attributes_hwmon_in_input);
    /// `power*_average`.
    pub(crate) const POWER_AVERAGE: Self = Self(sys::hwmon_power_attributes_hwmon_power_average);
    /// `power*_input`.
    pub(crate) const POWER_INPUT: Self = Self(sys::hwmon_power_attributes_hwmon_power_input);
    /// `power*_cap`.
    pub(crate) const POWER_CAP: Self = Self(sys::hwmon_power_attributes_hwmon_power_cap);
    /// `power*_cap_min`.
    pub(crate) const POWER_CAP_MIN: Self = Self(sys::hwmon_power_attributes_hwmon_power_cap_min);
    /// `power*_cap_max`.
    pub(crate) const POWER_CAP_MAX: Self = Self(sys::hwmon_power_attributes_hwmon_power_cap_max);
    /// `energy*_input`.
    pub(crate) const ENERGY_INPUT: Self = Self(sys::hwmon_energy_attributes_hwmon_energy_input);

    /// The number of the label of a channel of this kind.
    const fn label(kind: Kind) -> u32 {
        match kind {
            Kind::Temp => sys::hwmon_temp_attributes_hwmon_temp_label,
            Kind::In => sys::hwmon_in_attributes_hwmon_in_label,
            Kind::Power => sys::hwmon_power_attributes_hwmon_power_label,
            Kind::Energy => sys::hwmon_energy_attributes_hwmon_energy_label,
        }
    }
}

/// One file of a channel.
pub(crate) struct Item<T> {
    /// Which. Of the channel's kind.
    pub(crate) attr: Attr,
    /// Its value.
    pub(crate) read: fn(&T) -> Result<i64>,
    /// Sets it. [`None`]: the file is for reading.
    pub(crate) write: Option<fn(&T, i64) -> Result>,
}

/// One channel; its number is its place among those of its kind.
pub(crate) struct Channel<T: 'static> {
    /// What it measures.
    pub(crate) kind: Kind,
    /// Its name for people.
    pub(crate) label: &'static CStr,
    /// Its files, beside the label.
    pub(crate) items: &'static [Item<T>],
}

/// A set of sensors.
pub(crate) trait Chip: Send + Sync + Sized + 'static {
    /// Its name: letters, digits, underscores.
    const NAME: &'static CStr;
    /// Its channels; those of a kind stand together.
    const CHANNELS: &'static [Channel<Self>];
    /// Files that `hwmon` has no type for, such as `freq1_input`.
    const FILES: &'static [File<Self>];

    /// Whether there is such a file on this chip. Asked once, at registration.
    fn has(&self, kind: Kind, attr: Attr) -> bool;
}

/// What C has pointers to while the chip is registered.
struct Inner<T: Chip> {
    target: Arc<T>,
    chip: Opaque<sys::hwmon_chip_info>,
    infos: KVec<sys::hwmon_channel_info>,
    info_pointers: KVec<*const sys::hwmon_channel_info>,
    configs: KVec<KVec<u32>>,
    files: KBox<Group<T>>,
    groups: [*const bindings::attribute_group; 2],
}

/// The functions of a chip.
struct Functions<T>(PhantomData<T>);

fn channel<T: Chip>(kind: u32, number: c_int) -> Option<&'static Channel<T>> {
    T::CHANNELS
        .iter()
        .filter(|channel| channel.kind as u32 == kind)
        .nth(usize::try_from(number).ok()?)
}

fn item<T: Chip>(kind: u32, attr: u32, number: c_int) -> Option<&'static Item<T>> {
    channel::<T>(kind, number)?
        .items
        .iter()
        .find(|item| item.attr.0 == attr)
}

impl<T: Chip> Functions<T> {
    const OPS: sys::hwmon_ops = sys::hwmon_ops {
        visible: 0,
        is_visible: Some(Self::is_visible),
        read: Some(Self::read),
        read_string: Some(Self::read_string),
        write: Some(Self::write),
    };

    /// # Safety
    ///
    /// `dev` is the hwmon device of a chip of `T`.
    unsafe fn target<'a>(dev: *mut bindings::device) -> &'a T {
        // SAFETY: `register` gave this pointer to the device, and the target lives as long as the
        // device is registered; its removal waits for the functions.
        unsafe { &*bindings::dev_get_drvdata(dev).cast::<T>() }
    }

    /// # Safety
    ///
    /// As `hwmon_ops.is_visible`, of a chip of `T`.
    unsafe extern "C" fn is_visible(
        data: *const c_void,
        kind: sys::hwmon_sensor_types,
        attr: u32,
        number: c_int,
    ) -> bindings::umode_t {
        // SAFETY: `data` is what `register` gave, see there.
        let target = unsafe { &*data.cast::<T>() };
        let Some(channel) = channel::<T>(kind, number) else {
            return 0;
        };
        if attr == Attr::label(channel.kind) {
            return 0o444;
        }
        match item::<T>(kind, attr, number) {
            Some(item) if !target.has(channel.kind, item.attr) => 0,
            Some(item) if item.write.is_some() => 0o644,
            Some(_) => 0o444,
            None => 0,
        }
    }

    /// # Safety
    ///
    /// As `hwmon_ops.read`, of a chip of `T`.
    unsafe extern "C" fn read(
        dev: *mut bindings::device,
        kind: sys::hwmon_sensor_types,
        attr: u32,
        number: c_int,
        value: *mut c_long,
    ) -> c_int {
        // SAFETY: The core calls this for a device of ours.
        let target = unsafe { Self::target(dev) };
        let Some(item) = item::<T>(kind, attr, number) else {
            return EOPNOTSUPP.to_errno();
        };
        match (item.read)(target) {
            Ok(read) => {
                // SAFETY: The core gives room for the value; for `hwmon_energy64` that is an `s64`,
                // and `long` has 64 bits here (Kconfig: 64BIT).
                unsafe { value.cast::<i64>().write(read) };
                0
            }
            Err(error) => error.to_errno(),
        }
    }

    /// # Safety
    ///
    /// As `hwmon_ops.read_string`, of a chip of `T`.
    unsafe extern "C" fn read_string(
        _dev: *mut bindings::device,
        kind: sys::hwmon_sensor_types,
        _attr: u32,
        number: c_int,
        text: *mut *const c_char,
    ) -> c_int {
        // The only strings are labels.
        let Some(channel) = channel::<T>(kind, number) else {
            return EOPNOTSUPP.to_errno();
        };
        // SAFETY: The core gives room for a pointer. The label is static.
        unsafe { text.write(channel.label.as_char_ptr()) };
        0
    }

    /// # Safety
    ///
    /// As `hwmon_ops.write`, of a chip of `T`.
    unsafe extern "C" fn write(
        dev: *mut bindings::device,
        kind: sys::hwmon_sensor_types,
        attr: u32,
        number: c_int,
        value: c_long,
    ) -> c_int {
        // SAFETY: The core calls this for a device of ours.
        let target = unsafe { Self::target(dev) };
        let write = item::<T>(kind, attr, number).and_then(|item| item.write);
        let result = match write {
            Some(write) => write(target, value as i64),
            None => Err(EOPNOTSUPP),
        };
        result.map_or_else(|error| error.to_errno(), |()| 0)
    }
}

/// What the core needs to know of a channel: a bit for each of its files.
fn config<T: Chip>(channel: &Channel<T>) -> u32 {
    let label = 1u32.checked_shl(Attr::label(channel.kind)).unwrap_or(0);
    channel.items.iter().fold(label, |config, item| {
        config | 1u32.checked_shl(item.attr.0).unwrap_or(0)
    })
}

impl<T: Chip> Inner<T> {
    fn new(target: Arc<T>) -> Result<KBox<Self>> {
        let mut configs: KVec<KVec<u32>> = KVec::new();
        let mut kinds: KVec<Kind> = KVec::new();
        for channel in T::CHANNELS {
            if kinds.last() != Some(&channel.kind) {
                kinds.push(channel.kind, GFP_KERNEL)?;
                configs.push(KVec::new(), GFP_KERNEL)?;
            }
            if let Some(list) = configs.last_mut() {
                list.push(config(channel), GFP_KERNEL)?;
            }
        }
        for list in configs.iter_mut() {
            list.push(0, GFP_KERNEL)?;
        }
        let mut infos = KVec::with_capacity(kinds.len(), GFP_KERNEL)?;
        for (kind, list) in kinds.iter().zip(configs.iter()) {
            let info = sys::hwmon_channel_info {
                type_: *kind as u32,
                config: list.as_ptr(),
            };
            infos.push(info, GFP_KERNEL)?;
        }
        let mut info_pointers = KVec::with_capacity(kinds.len() + 1, GFP_KERNEL)?;
        for info in &infos {
            info_pointers.push(ptr::from_ref(info), GFP_KERNEL)?;
        }
        info_pointers.push(ptr::null(), GFP_KERNEL)?;

        let files = Group::new(None, T::FILES, target.clone())?;
        let chip = sys::hwmon_chip_info {
            ops: const { &Functions::<T>::OPS },
            info: info_pointers.as_ptr(),
        };
        let groups = [files.as_raw(), ptr::null()];
        Ok(KBox::new(
            Self {
                target,
                chip: Opaque::new(chip),
                infos,
                info_pointers,
                configs,
                files,
                groups,
            },
            GFP_KERNEL,
        )?)
    }
}

/// A registered chip; dropping it removes it.
struct Registration<T: Chip> {
    hwmon: NonNull<bindings::device>,
    /// After `drop`: what C had pointers to.
    _inner: KBox<Inner<T>>,
}

// SAFETY: The device may be unregistered from any thread, and the rest is `Send`.
unsafe impl<T: Chip> Send for Registration<T> {}

impl<T: Chip> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: The device was registered by `register` and is unregistered only here.
        unsafe { sys::hwmon_device_unregister(self.hwmon.as_ptr()) };
    }
}

/// Shows the sensors of `target` as those of `dev`, until that is unbound.
pub(crate) fn register<T: Chip>(dev: &Device<Bound>, target: Arc<T>) -> Result {
    let inner = Inner::new(target)?;
    // CAST: `device::Device` is a transparent wrapper.
    let parent = ptr::from_ref(dev).cast_mut().cast();
    // SAFETY: The device is bound. All that is pointed to lives in `inner`, which goes into the
    // registration and is freed after the device was unregistered; the name is static.
    let hwmon = from_err_ptr(unsafe {
        sys::hwmon_device_register_with_info(
            parent,
            T::NAME.as_char_ptr(),
            Arc::as_ptr(&inner.target).cast_mut().cast(),
            inner.chip.get(),
            // C does not write there.
            inner.groups.as_ptr().cast_mut(),
        )
    })?;
    let registration = Registration {
        hwmon: NonNull::new(hwmon).ok_or(EINVAL)?,
        _inner: inner,
    };
    devres::register(dev, registration, GFP_KERNEL)
}
