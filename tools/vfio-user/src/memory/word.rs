// SPDX-License-Identifier: GPL-2.0
//! Machine words in shared memory, and block copies made of them.
//!
//! Memory shared with a guest changes at any moment, so no Rust reference to it may exist, and a
//! plain access would be a data race. Everything here goes through relaxed atomics on raw pointers:
//! between threads of this program they are defined, and towards other processes they are plain
//! loads and stores that the compiler neither tears, repeats nor invents. Accesses of different
//! sizes to the same bytes are ordered by the hardware, as on the bus of a real device.

use std::mem::MaybeUninit;
use std::sync::atomic::fence;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering;

/// The size in bytes of the word that block copies use.
const WORD: usize = size_of::<u64>();

/// Size of the private buffer through which blocks of different alignment are copied.
const BOUNCE: usize = 4096;

/// An unsigned integer that shared memory can be accessed with in one piece: `u8`, `u16`, `u32`, `u64`.
pub trait Word: Copy + Eq + sealed::Atomic {}

/// Keeps the pointer operations out of the public interface.
pub(super) mod sealed {
    /// Atomic operations on a word behind a raw pointer.
    pub trait Atomic: Sized {
        /// Loads with acquire order.
        ///
        /// # Safety
        ///
        /// `ptr` is aligned for `Self` and points into a live mapping that may be read.
        unsafe fn load(ptr: *mut Self) -> Self;

        /// Stores with release order.
        ///
        /// # Safety
        ///
        /// `ptr` is aligned for `Self` and points into a live mapping that may be written.
        unsafe fn store(ptr: *mut Self, value: Self);

        /// Replaces the word by `f` of it; returns the old one. Sequentially consistent.
        ///
        /// # Safety
        ///
        /// `ptr` is aligned for `Self` and points into a live mapping that may be read and written.
        unsafe fn update(ptr: *mut Self, f: impl FnMut(Self) -> Self) -> Self;

        /// Stores `new` if the word is `expected`; returns the old one. Sequentially consistent.
        ///
        /// # Safety
        ///
        /// As for [`Self::update`].
        unsafe fn compare_exchange(ptr: *mut Self, expected: Self, new: Self) -> Self;
    }
}

macro_rules! word {
    ($word:ty, $atomic:ty) => {
        impl Word for $word {}

        impl sealed::Atomic for $word {
            #[inline]
            unsafe fn load(ptr: *mut Self) -> Self {
                // SAFETY: The caller passes an aligned pointer into a live, readable mapping. A
                // relaxed load is allowed on read-only pages too; the fence makes it an acquire.
                let value = unsafe { <$atomic>::from_ptr(ptr) }.load(Ordering::Relaxed);
                fence(Ordering::Acquire);
                value
            }

            #[inline]
            unsafe fn store(ptr: *mut Self, value: Self) {
                // SAFETY: The caller passes an aligned pointer into a live, writable mapping.
                unsafe { <$atomic>::from_ptr(ptr) }.store(value, Ordering::Release);
            }

            #[inline]
            unsafe fn update(ptr: *mut Self, mut f: impl FnMut(Self) -> Self) -> Self {
                // SAFETY: The caller passes an aligned pointer into a live, read-write mapping.
                let word = unsafe { <$atomic>::from_ptr(ptr) };
                let mut old = word.load(Ordering::Relaxed);
                // Lock-free: a failed round means that somebody else's update went through.
                while let Err(seen) =
                    word.compare_exchange_weak(old, f(old), Ordering::SeqCst, Ordering::Relaxed)
                {
                    old = seen;
                }
                old
            }

            #[inline]
            unsafe fn compare_exchange(ptr: *mut Self, expected: Self, new: Self) -> Self {
                // SAFETY: The caller passes an aligned pointer into a live, read-write mapping.
                let word = unsafe { <$atomic>::from_ptr(ptr) };
                match word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(old) | Err(old) => old,
                }
            }
        }
    };
}

word!(u8, AtomicU8);
word!(u16, AtomicU16);
word!(u32, AtomicU32);
word!(u64, AtomicU64);

/// Relaxed load of one shared word.
///
/// # Safety
///
/// `ptr` is aligned and points into a live, readable mapping.
#[inline]
unsafe fn get(ptr: *const u64) -> u64 {
    // SAFETY: The caller's promise; the atomic is only read through.
    unsafe { AtomicU64::from_ptr(ptr.cast_mut()) }.load(Ordering::Relaxed)
}

/// Relaxed store of one shared word.
///
/// # Safety
///
/// `ptr` is aligned and points into a live, writable mapping.
#[inline]
unsafe fn put(ptr: *mut u64, value: u64) {
    // SAFETY: The caller's promise.
    unsafe { AtomicU64::from_ptr(ptr) }.store(value, Ordering::Relaxed);
}

/// Relaxed load of one shared byte.
///
/// # Safety
///
/// `ptr` points into a live, readable mapping.
#[inline]
unsafe fn get_byte(ptr: *const u8) -> u8 {
    // SAFETY: The caller's promise; the atomic is only read through.
    unsafe { AtomicU8::from_ptr(ptr.cast_mut()) }.load(Ordering::Relaxed)
}

/// Relaxed store of one shared byte.
///
/// # Safety
///
/// `ptr` points into a live, writable mapping.
#[inline]
unsafe fn put_byte(ptr: *mut u8, value: u8) {
    // SAFETY: The caller's promise.
    unsafe { AtomicU8::from_ptr(ptr) }.store(value, Ordering::Relaxed);
}

/// Splits `len` bytes from address `at` into (bytes before the first word boundary, whole words, bytes after).
#[inline]
fn split(at: usize, len: usize) -> (usize, usize, usize) {
    let head = (at.wrapping_neg() % WORD).min(len);
    let words = (len - head) / WORD;
    (head, words, len - head - words * WORD)
}

/// Copies shared memory into private memory.
///
/// # Safety
///
/// `src..src + len` lies in a live, readable mapping; `dst..dst + len` is private memory, valid for writes.
pub(super) unsafe fn copy_out(src: *const u8, dst: *mut u8, len: usize) {
    let (head, words, tail) = split(src.addr(), len);
    // SAFETY: `head + 8 * words + tail == len`, so all accesses stay inside the two ranges that the
    // caller vouches for. After `head` bytes `src` is aligned; the private side may be unaligned.
    unsafe {
        for i in 0..head {
            dst.add(i).write(get_byte(src.add(i)));
        }
        let (from, to) = (src.add(head).cast::<u64>(), dst.add(head).cast::<u64>());
        for i in 0..words {
            to.add(i).write_unaligned(get(from.add(i)));
        }
        let done = head + words * WORD;
        for i in done..done + tail {
            dst.add(i).write(get_byte(src.add(i)));
        }
    }
}

/// Copies private memory into shared memory.
///
/// # Safety
///
/// `src..src + len` is private, initialised memory; `dst..dst + len` lies in a live, writable mapping.
pub(super) unsafe fn copy_in(src: *const u8, dst: *mut u8, len: usize) {
    let (head, words, tail) = split(dst.addr(), len);
    // SAFETY: As in `copy_out`, with the sides exchanged.
    unsafe {
        for i in 0..head {
            put_byte(dst.add(i), src.add(i).read());
        }
        let (from, to) = (src.add(head).cast::<u64>(), dst.add(head).cast::<u64>());
        for i in 0..words {
            put(to.add(i), from.add(i).read_unaligned());
        }
        let done = head + words * WORD;
        for i in done..done + tail {
            put_byte(dst.add(i), src.add(i).read());
        }
    }
}

/// Copies shared memory to shared memory, in ascending order.
///
/// # Safety
///
/// `src..src + len` lies in a live, readable mapping, `dst..dst + len` in a live, writable one. They may overlap.
pub(super) unsafe fn copy_shared(src: *const u8, dst: *mut u8, len: usize) {
    if src.addr() % WORD != dst.addr() % WORD {
        let mut bounce = [MaybeUninit::<u8>::uninit(); BOUNCE];
        let private = bounce.as_mut_ptr().cast::<u8>();
        let mut done = 0;
        while done < len {
            let n = BOUNCE.min(len - done);
            // SAFETY: `done + n <= len`, so both shared ranges are the caller's; `private` has
            // `BOUNCE >= n` bytes, and `copy_in` reads the `n` that `copy_out` has just written.
            unsafe {
                copy_out(src.add(done), private, n);
                copy_in(private, dst.add(done), n);
            }
            done += n;
        }
        return;
    }

    let (head, words, tail) = split(dst.addr(), len);
    // SAFETY: `head + 8 * words + tail == len` keeps all accesses inside the caller's ranges. Both
    // sides have the same alignment modulo 8, so both are aligned after `head` bytes.
    unsafe {
        for i in 0..head {
            put_byte(dst.add(i), get_byte(src.add(i)));
        }
        let (from, to) = (src.add(head).cast::<u64>(), dst.add(head).cast::<u64>());
        for i in 0..words {
            put(to.add(i), get(from.add(i)));
        }
        let done = head + words * WORD;
        for i in done..done + tail {
            put_byte(dst.add(i), get_byte(src.add(i)));
        }
    }
}
