// SPDX-License-Identifier: GPL-2.0

//! A spinlock that is one in every configuration, taken with interrupts off.
//!
//! C header: [`include/linux/spinlock.h`](srctree/include/linux/spinlock.h)
//!
//! For data that callbacks need which run under a raw spinlock of the kernel's own, as those of perf
//! do. Everything done with it held has to be short: nothing may sleep, and no other lock than
//! another raw one may be taken.

use kernel::{
    bindings,
    ffi::{
        c_char,
        c_ulong, //
    },
    sync::lock::{
        Backend,
        Lock, //
    }, //
};

use super::sys;

/// Data behind a `raw_spinlock_t`, which is taken with interrupts off.
pub(crate) type RawSpinLock<T> = Lock<T, RawSpinLockBackend>;

/// Initialises a [`RawSpinLock`] with a lock class of its own.
macro_rules! new_raw_spinlock {
    ($data:expr, $name:literal) => {
        $crate::ext::raw_spinlock::RawSpinLock::new(
            $data,
            ::kernel::c_str!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
pub(crate) use new_raw_spinlock;

/// How a [`RawSpinLock`] locks.
pub(crate) struct RawSpinLockBackend;

// SAFETY: A raw spinlock excludes all others, and `relock` is the provided one, which locks by `lock`.
unsafe impl Backend for RawSpinLockBackend {
    type State = bindings::raw_spinlock_t;
    /// Whether interrupts were on.
    type GuardState = c_ulong;

    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: `ptr` may be written, `name` and `key` live for ever, by the contract of the
        // trait.
        unsafe { sys::ochre_raw_spin_lock_init(ptr, name, key.cast()) };
    }

    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The lock is initialised, by the contract of the trait.
        unsafe { sys::ochre_raw_spin_lock_irqsave(ptr) }
    }

    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        let mut flags = 0;
        // SAFETY: As for `lock`.
        let locked = unsafe { sys::ochre_raw_spin_trylock_irqsave(ptr, &mut flags) };
        locked.then_some(flags)
    }

    unsafe fn unlock(ptr: *mut Self::State, guard_state: &Self::GuardState) {
        // SAFETY: The caller owns the lock, which it took when interrupts were as `guard_state` says.
        unsafe { sys::ochre_raw_spin_unlock_irqrestore(ptr, *guard_state) };
    }

    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: As for `lock`.
        unsafe { sys::ochre_raw_spin_assert_held(ptr) };
    }
}
