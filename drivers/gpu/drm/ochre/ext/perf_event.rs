// SPDX-License-Identifier: GPL-2.0

//! Counters that `perf` reads: a performance monitoring unit (PMU) of a device.
//!
//! C header: [`include/linux/perf_event.h`](srctree/include/linux/perf_event.h)
//!
//! A [`Pmu`] appears as `/sys/bus/event_source/devices/NAME` with what the [`Layout`] says of its
//! events, and asks its [`Counters`] for their values. It counts for the whole system: perf itself
//! wants `CAP_PERFMON` or a low `perf_event_paranoid` for that, gives it one CPU at a time (the file
//! `cpumask`), and refuses filters and sampling, which such a unit cannot do.
//!
//! Dropping the [`Pmu`] takes the unit away from under those who have events open: they read what
//! was counted until then (perf says `<not counted>` of what comes after), and none of the callbacks
//! runs any more when the drop returns.
//!
//! Locks: all callbacks but [`Counters::check`] run with interrupts off, under raw spinlocks of
//! perf's.

use core::{
    ffi::CStr,
    marker::PhantomPinned,
    ptr, //
};

use kernel::{
    bindings,
    error::to_result,
    ffi::c_int,
    fmt,
    prelude::*,
    str::CString, //
};

use super::sys;

/// A value that an event stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Grows. The event counts by how much.
    Count(u64),
    /// Goes up and down. The event counts the sum of all that was read: so `perf stat`, which reads
    /// once, and `perf stat -I`, which prints the difference of two readings, show the value as it was
    /// at the end.
    Level(u64),
}

/// What the events of a [`Pmu`] count.
pub(crate) trait Counters: Send + Sync + 'static {
    /// Whether `config`, the number that user space passes, names an event. Errors: [`EINVAL`].
    fn check(&self, config: u64) -> Result;

    /// The value of the event `config`, for which [`Self::check`] has found nothing wrong. [`None`] when
    /// there is none now: the event stands still.
    ///
    /// Runs with interrupts off, under raw spinlocks: see [`RawSpinLock`](super::raw_spinlock).
    fn read(&self, config: u64) -> Option<Value>;
}

/// One file of the unit in sysfs.
struct File {
    raw: KBox<sys::perf_pmu_events_attr>,
    _name: CString,
    _text: CString,
}

// SAFETY: Plain data, and pointers to the strings beside it, which never change.
unsafe impl Send for File {}
// SAFETY: As above.
unsafe impl Sync for File {}

impl File {
    fn new(name: CString, text: CString) -> Result<Self> {
        let mut raw = KBox::new(sys::perf_pmu_events_attr::default(), GFP_KERNEL)?;
        // SAFETY: `raw` may be written; both strings live as long as it does, whatever moves: what is
        // pointed to is on the heap.
        unsafe {
            sys::ochre_perf_attr_init(&mut *raw, name.as_char_ptr(), text.as_char_ptr());
        }
        Ok(Self {
            raw,
            _name: name,
            _text: text,
        })
    }
}

/// A folder of the unit in sysfs.
struct Folder {
    files: KVec<File>,
    /// The files for C, with a null pointer behind the last.
    list: KVec<*mut bindings::attribute>,
}

// SAFETY: The pointers are to what `files` owns.
unsafe impl Send for Folder {}
// SAFETY: As above; nothing is written through them.
unsafe impl Sync for Folder {}

impl Folder {
    const fn new() -> Self {
        Self {
            files: KVec::new(),
            list: KVec::new(),
        }
    }

    fn add(&mut self, name: fmt::Arguments<'_>, text: fmt::Arguments<'_>) -> Result {
        let file = File::new(CString::try_from_fmt(name)?, CString::try_from_fmt(text)?)?;
        Ok(self.files.push(file, GFP_KERNEL)?)
    }

    /// The folder for C, which is used as long as `self` lives and is not changed.
    fn finish(&mut self, name: &'static CStr) -> Result<bindings::attribute_group> {
        self.list.clear();
        for file in self.files.iter_mut() {
            self.list.push(&mut file.raw.attr.attr, GFP_KERNEL)?;
        }
        self.list.push(ptr::null_mut(), GFP_KERNEL)?;
        let mut group = bindings::attribute_group {
            name: name.as_char_ptr(),
            ..Default::default()
        };
        group.__bindgen_anon_2.attrs = self.list.as_mut_ptr();
        Ok(group)
    }
}

/// What user space is told of a unit's events.
pub(crate) struct Layout {
    format: Folder,
    events: Folder,
}

impl Layout {
    /// No event yet.
    pub(crate) const fn new() -> Self {
        Self {
            format: Folder::new(),
            events: Folder::new(),
        }
    }

    /// Tells which bits of the number a term sets: `event` and `config:0-7`.
    pub(crate) fn term(&mut self, name: &CStr, bits: &CStr) -> Result {
        self.format.add(fmt!("{name}"), fmt!("{bits}"))
    }

    /// Tells of an event: its name and its terms (`event=0x1`).
    pub(crate) fn event(&mut self, name: fmt::Arguments<'_>, terms: fmt::Arguments<'_>) -> Result {
        self.events.add(name, terms)
    }

    /// Tells in which unit perf prints an event, and by what it multiplies the count for that.
    pub(crate) fn unit(&mut self, name: fmt::Arguments<'_>, unit: &str, scale: &str) -> Result {
        self.events.add(fmt!("{name}.unit"), fmt!("{unit}"))?;
        self.events.add(fmt!("{name}.scale"), fmt!("{scale}"))
    }
}

/// What C has pointers to.
#[repr(C)]
struct Inner<C: Counters> {
    /// First, since the callbacks find the rest by it.
    pmu: sys::pmu,
    groups: [*const bindings::attribute_group; 3],
    format: bindings::attribute_group,
    events: bindings::attribute_group,
    layout: Layout,
    name: CString,
    counters: C,
    _pin: PhantomPinned,
}

/// A registered unit.
///
/// # Invariants
///
/// `inner.pmu` is registered.
pub(crate) struct Pmu<C: Counters> {
    inner: Pin<KBox<Inner<C>>>,
}

// SAFETY: Registering and unregistering may happen in different threads, and `C` is `Send` and `Sync`.
unsafe impl<C: Counters> Send for Pmu<C> {}
// SAFETY: There is no method that takes a shared reference.
unsafe impl<C: Counters> Sync for Pmu<C> {}

impl<C: Counters> Pmu<C> {
    /// Registers a unit called `name`. perf takes neither blanks nor colons in it.
    pub(crate) fn register(name: CString, layout: Layout, counters: C) -> Result<Self> {
        let mut inner = KBox::new(
            Inner {
                pmu: sys::pmu {
                    // SAFETY: Always.
                    module: unsafe { sys::ochre_this_module() },
                    scope: sys::perf_pmu_scope_PERF_PMU_SCOPE_SYS_WIDE,
                    task_ctx_nr: bindings::perf_event_task_context_perf_invalid_context,
                    // CAST: Two bits.
                    capabilities: (sys::PERF_PMU_CAP_NO_INTERRUPT | sys::PERF_PMU_CAP_NO_EXCLUDE)
                        as c_int,
                    event_init: Some(event_init::<C>),
                    add: Some(add::<C>),
                    del: Some(del::<C>),
                    start: Some(start::<C>),
                    stop: Some(stop::<C>),
                    read: Some(read::<C>),
                    ..Default::default()
                },
                groups: [ptr::null(); 3],
                format: Default::default(),
                events: Default::default(),
                layout,
                name,
                counters,
                _pin: PhantomPinned,
            },
            GFP_KERNEL,
        )?;
        let this = &mut *inner;
        this.format = this.layout.format.finish(c"format")?;
        this.events = this.layout.events.finish(c"events")?;
        this.groups = [&this.format, &this.events, ptr::null()];
        this.pmu.attr_groups = this.groups.as_mut_ptr();
        // SAFETY: What the unit points to is on the heap, does not move any more and lives until the
        // drop of `Self` has unregistered it.
        to_result(unsafe { sys::perf_pmu_register(&mut this.pmu, this.name.as_char_ptr(), -1) })?;
        // INVARIANT: Success.
        Ok(Self {
            inner: KBox::into_pin(inner),
        })
    }
}

impl<C: Counters> Drop for Pmu<C> {
    fn drop(&mut self) {
        let pmu = ptr::from_ref(&self.inner.pmu).cast_mut();
        // SAFETY: It is registered, by the type invariant. C is the only one that writes to it. It fails
        // only for units that are not registered or have an `event_unmapped`.
        unsafe { sys::perf_pmu_unregister(pmu) };
    }
}

/// # Safety
///
/// `event` is an event that perf has given, or is about to give, to a registered unit of `Inner<C>`.
unsafe fn counters<'a, C: Counters>(event: *mut sys::perf_event) -> &'a C {
    // SAFETY: By the contract of this function. `pmu` is the first field of an `Inner<C>`, which lives
    // until the unit is unregistered, and perf calls nothing after that.
    unsafe { &(*(*event).pmu.cast::<Inner<C>>()).counters }
}

/// # Safety
///
/// As `pmu.event_init`, for a unit of `Inner<C>`.
unsafe extern "C" fn event_init<C: Counters>(event: *mut sys::perf_event) -> c_int {
    // SAFETY: perf asks for an event that it has set up.
    let (attr, ours, cpu) = unsafe {
        let attr = &(*event).attr;
        let ours = c_int::try_from(attr.type_) == Ok((*(*event).pmu).type_);
        (attr, ours, (*event).cpu)
    };
    if !ours {
        return ENOENT.to_errno();
    }
    // SAFETY: As above.
    if unsafe { sys::ochre_perf_has_branch_stack(event) } {
        return EOPNOTSUPP.to_errno();
    }
    // Not for a task, and nothing in the fields that no term names.
    // SAFETY: As above.
    if cpu < 0 || unsafe { sys::ochre_perf_has_more_config(event) } {
        return EINVAL.to_errno();
    }
    // SAFETY: perf asks the unit to which it wants to give the event.
    match unsafe { counters::<C>(event) }.check(attr.config) {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}

/// Why an event is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// It begins to count.
    Start,
    /// It stops, for good or because perf arranges its events anew.
    Stop,
    /// Somebody wants to know.
    Read,
}

/// Brings what an event has counted up to date.
///
/// # Safety
///
/// As for [`counters`], of the callbacks that perf makes one at a time.
unsafe fn update<C: Counters>(event: *mut sys::perf_event, reason: Reason) {
    // SAFETY: By the contract of this function.
    let value = unsafe { counters::<C>(event).read((*event).attr.config) };
    // SAFETY: As above.
    unsafe {
        match (value, reason) {
            (Some(Value::Count(value)), Reason::Start) => sys::ochre_perf_event_begin(event, value),
            (Some(Value::Count(value)), Reason::Stop | Reason::Read) => {
                sys::ochre_perf_event_count(event, value)
            }
            (Some(Value::Level(value)), Reason::Stop | Reason::Read) => {
                sys::ochre_perf_event_level(event, value, reason == Reason::Read)
            }
            (Some(Value::Level(_)), Reason::Start) | (None, _) => {}
        }
    }
}

/// # Safety
///
/// As `pmu.start`, for a unit of `Inner<C>`.
unsafe extern "C" fn start<C: Counters>(event: *mut sys::perf_event, _flags: c_int) {
    // SAFETY: By the contract of this function.
    unsafe {
        update::<C>(event, Reason::Start);
        sys::ochre_perf_event_set_stopped(event, false);
    }
}

/// # Safety
///
/// As `pmu.stop`, for a unit of `Inner<C>`.
unsafe extern "C" fn stop<C: Counters>(event: *mut sys::perf_event, flags: c_int) {
    // SAFETY: By the contract of this function.
    unsafe {
        // Twice may not count twice.
        if flags & EF_UPDATE != 0 && !sys::ochre_perf_event_is_stopped(event) {
            update::<C>(event, Reason::Stop);
        }
        sys::ochre_perf_event_set_stopped(event, true);
    }
}

/// # Safety
///
/// As `pmu.add`, for a unit of `Inner<C>`.
unsafe extern "C" fn add<C: Counters>(event: *mut sys::perf_event, flags: c_int) -> c_int {
    // SAFETY: By the contract of this function.
    unsafe {
        sys::ochre_perf_event_set_stopped(event, true);
        if flags & EF_START != 0 {
            start::<C>(event, flags);
        }
    }
    0
}

/// # Safety
///
/// As `pmu.del`, for a unit of `Inner<C>`.
unsafe extern "C" fn del<C: Counters>(event: *mut sys::perf_event, _flags: c_int) {
    // SAFETY: By the contract of this function.
    unsafe { stop::<C>(event, EF_UPDATE) };
}

/// # Safety
///
/// As `pmu.read`, for a unit of `Inner<C>`.
unsafe extern "C" fn read<C: Counters>(event: *mut sys::perf_event) {
    // SAFETY: By the contract of this function.
    unsafe {
        if !sys::ochre_perf_event_is_stopped(event) {
            update::<C>(event, Reason::Read);
        }
    }
}

// CAST: One bit each.
const EF_START: c_int = sys::PERF_EF_START as c_int;
// CAST: As above.
const EF_UPDATE: c_int = sys::PERF_EF_UPDATE as c_int;
