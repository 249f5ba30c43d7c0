// SPDX-License-Identifier: GPL-2.0

//! What `gpu/` tells the tracepoints, in its own words. `ext/ochre_trace.h` says what they record.

use core::ptr;

use kernel::prelude::*;

use super::{
    bo::{
        Bo,
        Region, //
    },
    job::Job,
    queue::Queue,
    Gpu, //
};
use crate::{
    algo::{
        power::levels::Domain,
        timeline::Seqno,
        va::Step, //
    },
    ext::tracepoint,
    hal::{
        ContextId,
        Fault,
        Reset, //
    }, //
};

/// A job was given to the scheduler and waits for `waits` fences.
#[inline(always)]
pub(super) fn job_queue(gpu: &Gpu, job: &Job, seqno: Seqno, waits: u32) {
    let queue = job.queue();
    tracepoint::job_queue(
        gpu.dev(),
        queue.id().into(),
        queue.engine().0.into(),
        queue.fence_context(),
        seqno.get(),
        job.ring_words(),
        waits,
    );
}

/// A job was written into its ring.
#[inline(always)]
pub(super) fn job_run(gpu: &Gpu, job: &Job, seqno: Seqno) {
    let queue = job.queue();
    tracepoint::job_run(
        gpu.dev(),
        queue.id().into(),
        queue.engine().0.into(),
        queue.fence_context(),
        seqno.get(),
    );
}

/// A job is over.
#[inline(always)]
pub(super) fn job_done(gpu: &Gpu, queue: &Queue, seqno: Seqno, result: Result) {
    tracepoint::job_done(
        gpu.dev(),
        queue.id().into(),
        queue.engine().0.into(),
        queue.fence_context(),
        seqno.get(),
        result.err().map_or(0, |error| error.to_errno()),
    );
}

/// The fence record of a queue says `seqno`.
#[inline(always)]
pub(super) fn fence(queue: &Queue, seqno: u64) {
    tracepoint::fence(queue.id().into(), queue.fence_context(), seqno);
}

/// A queue faulted.
#[inline(always)]
pub(super) fn fault(gpu: &Gpu, fault: &Fault) {
    tracepoint::fault(
        gpu.dev(),
        fault.queue.into(),
        fault.code,
        fault.access.raw(),
        fault.addr,
        fault.pc,
    );
}

/// How far a reset is.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    /// It was begun.
    Begin,
    /// It is done.
    Done,
    /// The board would not.
    Refused,
}

/// Something is being reset.
#[inline(always)]
pub(super) fn reset(gpu: &Gpu, what: Reset, phase: Phase) {
    let (scope, engine, slot) = match what {
        Reset::Slot(slot) => (0, slot.engine, slot.slot),
        Reset::Engine(engine) => (1, engine.0, 0),
        Reset::Device => (2, 0, 0),
    };
    let phase = match phase {
        Phase::Begin => 0,
        Phase::Done => 1,
        Phase::Refused => 2,
    };
    tracepoint::reset(gpu.dev(), scope, engine.into(), slot.into(), phase);
}

fn region(bo: &Bo) -> u32 {
    match bo.region() {
        Region::System => 0,
        Region::Vram => 1,
    }
}

/// A BO was made.
#[inline(always)]
pub(super) fn bo_create(bo: &Bo) {
    tracepoint::bo_create(ptr::from_ref(bo).cast(), bo.size(), region(bo));
}

/// The clock of a domain is another one, or its change went wrong (then without a clock).
#[inline(always)]
pub(super) fn frequency(gpu: &Gpu, domain: Domain, khz: u32, microvolts: u32, result: Result) {
    let number = match domain {
        Domain::Core => 0,
        Domain::Memory => 1,
    };
    let error = result.err().map_or(0, |error| error.to_errno());
    tracepoint::frequency(gpu.dev(), number, khz, microvolts, error);
}

/// A BO goes.
#[inline(always)]
pub(super) fn bo_free(bo: &Bo) {
    tracepoint::bo_free(ptr::from_ref(bo).cast(), bo.size(), region(bo));
}

/// A step of a change of an address space was carried out.
#[inline(always)]
pub(super) fn vm_step<T>(gpu: &Gpu, context: ContextId, step: &Step<T>) {
    let context = context.0.into();
    match step {
        Step::Map(mapping) => {
            let range = &mapping.range;
            tracepoint::vm_map(gpu.dev(), context, range.start(), range.len());
        }
        Step::Unmap { range, .. } => {
            tracepoint::vm_unmap(gpu.dev(), context, range.start(), range.len());
        }
    }
}
