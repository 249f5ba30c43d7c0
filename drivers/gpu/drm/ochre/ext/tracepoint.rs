// SPDX-License-Identifier: GPL-2.0

//! Tracepoints.
//!
//! C headers: [`include/linux/tracepoint.h`](srctree/include/linux/tracepoint.h), `ochre_trace.h` beside
//! this file, which says what each records.
//!
//! A tracepoint that nobody listens to costs a patched jump where the kernel has them
//! (`CONFIG_JUMP_LABEL`), otherwise the load of one word and a branch. `kernel::declare_trace!` does the
//! same, for the kernel crate's own bindings only. What a tracepoint is given should be at hand:
//! it is worked out whether or not somebody listens.

use core::ptr;

use kernel::{
    bindings,
    device::Device, //
};

use super::sys;

/// The pointer for C, of a device that may not be there in tests.
fn raw(dev: Option<&Device>) -> *mut bindings::device {
    // CAST: `Device` is a transparent wrapper of `struct device`.
    dev.map_or(ptr::null_mut(), |dev| ptr::from_ref(dev).cast_mut().cast())
}

/// Whether somebody listens to a tracepoint.
#[cfg(all(CONFIG_TRACEPOINTS, CONFIG_JUMP_LABEL))]
macro_rules! is_on {
    ($point:ident) => {
        kernel::jump_label::arch_static_branch!(
            sys::$point,
            kernel::bindings::tracepoint,
            key,
            false
        )
    };
}

/// Whether somebody listens to a tracepoint.
#[cfg(all(CONFIG_TRACEPOINTS, not(CONFIG_JUMP_LABEL)))]
macro_rules! is_on {
    ($point:ident) => {
        ptr::addr_of!(sys::$point.key.key.enabled.counter).read_volatile() > 0
    };
}

macro_rules! tracepoints {
    ($(
        $(#[$meta:meta])*
        $name:ident = $point:ident, $call:ident
            [$($dev:ident)?] ($($arg:ident: $type:ty),* $(,)?);
    )*) => {$(
        $(#[$meta])*
        #[inline(always)]
        pub(crate) fn $name($($dev: Option<&Device>,)? $($arg: $type),*) {
            #[cfg(CONFIG_TRACEPOINTS)]
            {
                // SAFETY: A tracepoint of this module, whose key is a word that may change at any
                // time.
                let on = unsafe { is_on!($point) };
                if on {
                    // SAFETY: The tracepoint takes any numbers, and a device that lives.
                    unsafe { sys::$call($(raw($dev),)? $($arg),*) };
                }
            }
            #[cfg(not(CONFIG_TRACEPOINTS))]
            {
                $(let _ = $dev;)?
                $(let _ = $arg;)*
            }
        }
    )*};
}

tracepoints! {
    /// A job was given to the scheduler; it still waits for `waits` fences.
    job_queue = __tracepoint_ochre_job_queue, rust_do_trace_ochre_job_queue
        [dev] (queue: u32, engine: u32, context: u64, seqno: u64, words: u32, waits: u32);

    /// A job was written into its ring.
    job_run = __tracepoint_ochre_job_run, rust_do_trace_ochre_job_run
        [dev] (queue: u32, engine: u32, context: u64, seqno: u64);

    /// A job is over and its fence was signalled; `error` is 0 or negative.
    job_done = __tracepoint_ochre_job_done, rust_do_trace_ochre_job_done
        [dev] (queue: u32, engine: u32, context: u64, seqno: u64, error: i32);

    /// The fence record of a queue was taken over.
    fence = __tracepoint_ochre_fence, rust_do_trace_ochre_fence
        [] (queue: u32, context: u64, seqno: u64);

    /// An interrupt is being handled.
    irq = __tracepoint_ochre_irq, rust_do_trace_ochre_irq
        [dev] (vector: u32);

    /// A queue faulted. `access` as `hal::Access::raw` has it.
    fault = __tracepoint_ochre_fault, rust_do_trace_ochre_fault
        [dev] (queue: u32, code: u32, access: u32, addr: u64, pc: u64);

    /// The change of a clock has ended. `domain`: 0 core, 1 memory.
    frequency = __tracepoint_ochre_frequency, rust_do_trace_ochre_frequency
        [dev] (domain: u32, khz: u32, microvolts: u32, error: i32);

    /// A reset. `scope`: 0 slot, 1 engine, 2 device; `phase`: 0 begun, 1 done, 2 refused.
    reset = __tracepoint_ochre_reset, rust_do_trace_ochre_reset
        [dev] (scope: u32, engine: u32, slot: u32, phase: u32);

    /// A BO was made. `region`: 0 system memory, 1 VRAM.
    bo_create = __tracepoint_ochre_bo_create, rust_do_trace_ochre_bo_create
        [] (bo: *const kernel::ffi::c_void, size: u64, region: u32);

    /// A BO is about to go.
    bo_free = __tracepoint_ochre_bo_free, rust_do_trace_ochre_bo_free
        [] (bo: *const kernel::ffi::c_void, size: u64, region: u32);

    /// A range of an address space was mapped.
    vm_map = __tracepoint_ochre_vm_map, rust_do_trace_ochre_vm_map
        [dev] (context: u32, addr: u64, size: u64);

    /// A range of an address space was unmapped.
    vm_unmap = __tracepoint_ochre_vm_unmap, rust_do_trace_ochre_vm_unmap
        [dev] (context: u32, addr: u64, size: u64);
}
