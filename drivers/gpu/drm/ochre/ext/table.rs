// SPDX-License-Identifier: GPL-2.0

//! Function tables that are computed once, at run time, and live as long as the module.
//!
//! The kernel crate keeps some tables of function pointers private, so an extended copy can only be
//! made from an object that already points to one. C code holds plain pointers to such a table, for
//! longer than any one device is bound, hence the copy has to be a static.

use core::sync::atomic::{
    AtomicBool,
    Ordering, //
};

use kernel::{
    bindings,
    prelude::*,
    sync::SetOnce, //
};

kernel::sync::global_lock! {
    // SAFETY: `ModuleGuard::new` initialises it before anything can probe.
    unsafe(uninit) static TABLES: Mutex<()> = ();
}

/// A table of type `T` that is filled once and then never changes.
pub(super) struct StaticTable<T>(SetOnce<Filled<T>>);

/// What a [`StaticTable`] holds.
struct Filled<T>(T);

// SAFETY: The tables hold function pointers and pointers to other tables of the same kind, which
// are never written after they were filled.
unsafe impl<T> Send for Filled<T> {}
// SAFETY: As above.
unsafe impl<T> Sync for Filled<T> {}

impl<T> StaticTable<T> {
    /// Creates a table that is yet to be filled.
    pub(super) const fn new() -> Self {
        Self(SetOnce::new())
    }

    /// Returns the table if it is filled. In any context.
    pub(super) fn get(&'static self) -> Option<&'static T> {
        self.0.as_ref().map(|filled| &filled.0)
    }

    /// Returns the table, filled by `make` if it is the first call.
    ///
    /// Sleeps, so process context only. The error cannot happen once [`ModuleGuard`] exists.
    pub(super) fn get_or_fill(&'static self, make: impl FnOnce() -> T) -> Result<&'static T> {
        if let Some(table) = self.get() {
            return Ok(table);
        }
        if !READY.load(Ordering::Acquire) {
            return Err(ENXIO);
        }
        let _lock = TABLES.lock();
        if self.0.as_ref().is_none() {
            self.0.populate(Filled(make()));
        }
        self.get().ok_or(ENXIO)
    }
}

/// Whether `TABLES` can be used.
static READY: AtomicBool = AtomicBool::new(false);
/// Whether a [`ModuleGuard`] was ever made.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// What `ext` needs of the module for as long as it is loaded.
///
/// It is made before everything else in the module and has to be the *last* field of the module's
/// structure, so that it is dropped after the drivers are unregistered. The drop waits for an RCU
/// grace period: `dma_fence` calls the names of a fence under RCU, and a reader that saw the fence
/// before it was signalled may still be inside our function.
pub(crate) struct ModuleGuard(());

impl ModuleGuard {
    /// Prepares `ext`. Returns [`EBUSY`] when called a second time.
    pub(crate) fn new() -> Result<Self> {
        if TAKEN.swap(true, Ordering::Relaxed) {
            return Err(EBUSY);
        }
        // SAFETY: `TAKEN` was false, so this is the only call ever.
        unsafe { TABLES.init() };
        READY.store(true, Ordering::Release);
        Ok(Self(()))
    }
}

impl Drop for ModuleGuard {
    fn drop(&mut self) {
        // SAFETY: Module exit runs in process context, where sleeping is fine.
        unsafe { bindings::synchronize_rcu() };
    }
}
