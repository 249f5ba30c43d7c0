// SPDX-License-Identifier: GPL-2.0

//! Attributes of a device in sysfs.
//!
//! C headers: [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h),
//! [`include/linux/device.h`](srctree/include/linux/device.h)
//!
//! The files of a [`Group`] are a static table of functions over a type of the driver's. [`register`]
//! makes them appear and has them removed when the device is unbound; removal waits for functions
//! that run, so none runs afterwards. Between the driver's own unbind and that moment functions
//! still run: they find out by themselves whether there is hardware.

use core::{
    ptr,
    str, //
};

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    devres,
    error::to_result,
    ffi::c_char,
    fmt,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
    types::Opaque, //
};

use super::sys;

/// Who may use a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All read.
    Read = 0o444,
    /// All read, the owner, which is root, writes.
    ReadWrite = 0o644,
}

/// A file over a `T`.
pub(crate) struct File<T> {
    /// Its name.
    pub(crate) name: &'static CStr,
    /// Prints what a read gives, a newline at the end.
    pub(crate) show: fn(&T, &mut Text<'_>) -> Result,
    /// Takes what was written, without blanks around it. [`None`]: the file is for reading.
    pub(crate) store: Option<fn(&T, &str) -> Result>,
}

impl<T> File<T> {
    /// A file for reading.
    pub(crate) const fn read(name: &'static CStr, show: fn(&T, &mut Text<'_>) -> Result) -> Self {
        Self {
            name,
            show,
            store: None,
        }
    }

    /// A file for reading and, by root, writing.
    pub(crate) const fn read_write(
        name: &'static CStr,
        show: fn(&T, &mut Text<'_>) -> Result,
        store: fn(&T, &str) -> Result,
    ) -> Self {
        Self {
            name,
            show,
            store: Some(store),
        }
    }

    const fn mode(&self) -> Mode {
        match self.store {
            None => Mode::Read,
            Some(_) => Mode::ReadWrite,
        }
    }
}

/// What a read gives: at most a page; what does not fit is [`fmt::Error`].
pub(crate) struct Text<'a> {
    page: &'a mut [u8],
    used: usize,
}

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.used.checked_add(text.len()).ok_or(fmt::Error)?;
        let room = self.page.get_mut(self.used..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.used = end;
        Ok(())
    }
}

/// Prints to a [`Text`]: `show!(text, "{}\n", khz)`. [`EFBIG`] when it does not fit.
macro_rules! show {
    ($text:expr, $($arg:tt)+) => {
        ::kernel::fmt::Write::write_fmt($text, ::kernel::prelude::fmt!($($arg)+))
            .map_err(|_| ::kernel::error::code::EFBIG)
    };
}
pub(crate) use show;

/// One file as C sees it, with what its functions need.
#[repr(C)]
struct Entry<T: 'static> {
    /// First, so that a pointer to it is one to the entry.
    attr: bindings::device_attribute,
    file: &'static File<T>,
    target: *const T,
}

/// A group of files over a `T`, in the form that C wants.
///
/// It must not move or go while C has it.
pub(super) struct Group<T: 'static> {
    group: Opaque<bindings::attribute_group>,
    /// What `group` points to, ends in NULL.
    _attrs: KVec<*mut bindings::attribute>,
    /// What `_attrs` points to.
    _entries: KVec<Opaque<Entry<T>>>,
    /// What the entries point to.
    _target: Arc<T>,
}

// SAFETY: The pointers are to what the group owns, and nothing of it changes once it is made.
unsafe impl<T: Send + Sync> Send for Group<T> {}
// SAFETY: As above.
unsafe impl<T: Send + Sync> Sync for Group<T> {}

impl<T: Send + Sync + 'static> Group<T> {
    /// The files in the table `files`, in a subdirectory `name` if there is one.
    pub(super) fn new(
        name: Option<&'static CStr>,
        files: &'static [File<T>],
        target: Arc<T>,
    ) -> Result<KBox<Self>> {
        let mut entries = KVec::with_capacity(files.len(), GFP_KERNEL)?;
        for file in files {
            let mut attr: bindings::device_attribute = pin_init::zeroed();
            attr.attr.name = file.name.as_char_ptr();
            attr.attr.mode = file.mode() as bindings::umode_t;
            attr.__bindgen_anon_1.show = Some(show_file::<T>);
            if file.store.is_some() {
                attr.__bindgen_anon_2.store = Some(store_file::<T>);
            }
            let entry = Entry {
                attr,
                file,
                target: Arc::as_ptr(&target),
            };
            entries.push(Opaque::new(entry), GFP_KERNEL)?;
        }
        // The entries stay where they are from here on: the vector grows no more.
        let mut attrs = KVec::with_capacity(files.len() + 1, GFP_KERNEL)?;
        for entry in &entries {
            let entry: *mut Entry<T> = entry.get();
            // SAFETY: The entry is alive and nobody else's yet.
            let attr = unsafe { &raw mut (*entry).attr.attr };
            // SAFETY: As above.
            unsafe { sys::ochre_sysfs_attr_init(attr) };
            attrs.push(attr, GFP_KERNEL)?;
        }
        attrs.push(ptr::null_mut(), GFP_KERNEL)?;

        let mut group: bindings::attribute_group = pin_init::zeroed();
        group.name = name.map_or(ptr::null(), |name| name.as_char_ptr());
        group.__bindgen_anon_2.attrs = attrs.as_mut_ptr();
        Ok(KBox::new(
            Self {
                group: Opaque::new(group),
                _attrs: attrs,
                _entries: entries,
                _target: target,
            },
            GFP_KERNEL,
        )?)
    }

    /// The group for C. Valid as long as `self` is.
    pub(super) fn as_raw(&self) -> *const bindings::attribute_group {
        self.group.get()
    }
}

/// # Safety
///
/// As `device_attribute.show`, of the `attr` of an [`Entry<T>`] whose group is alive.
unsafe extern "C" fn show_file<T: Send + Sync + 'static>(
    _dev: *mut bindings::device,
    attr: *mut bindings::device_attribute,
    buf: *mut c_char,
) -> isize {
    // SAFETY: The attribute is the first field of an entry; removal of the file, which comes before
    // the group goes, waits for this function.
    let entry = unsafe { &*attr.cast::<Entry<T>>() };
    // SAFETY: The group holds a reference to the target.
    let target = unsafe { &*entry.target };
    // SAFETY: sysfs gives a zeroed page to each call.
    let page = unsafe { core::slice::from_raw_parts_mut(buf.cast::<u8>(), PAGE_SIZE) };
    let mut text = Text { page, used: 0 };
    match (entry.file.show)(target, &mut text) {
        // CAST: At most a page.
        Ok(()) => text.used as isize,
        Err(error) => error.to_errno() as isize,
    }
}

/// # Safety
///
/// As `device_attribute.store`, of the `attr` of an [`Entry<T>`] whose group is alive.
unsafe extern "C" fn store_file<T: Send + Sync + 'static>(
    _dev: *mut bindings::device,
    attr: *mut bindings::device_attribute,
    buf: *const c_char,
    count: usize,
) -> isize {
    // SAFETY: As in `show_file`.
    let entry = unsafe { &*attr.cast::<Entry<T>>() };
    // SAFETY: As in `show_file`.
    let target = unsafe { &*entry.target };
    // SAFETY: sysfs gives `count` bytes, at most a page.
    let bytes = unsafe { core::slice::from_raw_parts(buf.cast::<u8>(), count) };
    let result =
        str::from_utf8(bytes)
            .map_err(|_| EINVAL)
            .and_then(|text| match entry.file.store {
                Some(store) => store(target, text.trim()),
                None => Err(EACCES),
            });
    match result {
        // CAST: At most a page.
        Ok(()) => count as isize,
        Err(error) => error.to_errno() as isize,
    }
}

/// Files of a device; dropping it removes them.
struct Registration<T: Send + Sync + 'static> {
    dev: ARef<Device>,
    group: KBox<Group<T>>,
}

impl<T: Send + Sync + 'static> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: The group was created on this device, which is alive.
        unsafe { sys::ochre_device_remove_group(raw(&self.dev), self.group.as_raw()) };
    }
}

fn raw(dev: &Device) -> *mut bindings::device {
    // CAST: `device::Device` is a transparent wrapper.
    ptr::from_ref(dev).cast_mut().cast()
}

/// Gives `dev` the files of a table, in a subdirectory `name` if there is one, until it is unbound.
pub(crate) fn register<T: Send + Sync + 'static>(
    dev: &Device<Bound>,
    name: Option<&'static CStr>,
    files: &'static [File<T>],
    target: Arc<T>,
) -> Result {
    let group = Group::new(name, files, target)?;
    // SAFETY: The device is alive; the group is complete and lives in a box that goes into the
    // registration, which removes it first.
    to_result(unsafe { sys::ochre_device_add_group(raw(dev), group.as_raw()) })?;
    let registration = Registration {
        dev: dev.into(),
        group,
    };
    devres::register(dev, registration, GFP_KERNEL)
}
