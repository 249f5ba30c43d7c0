// SPDX-License-Identifier: GPL-2.0
//! The control page: what a queue and its producer tell each other.

use std::mem::offset_of;

use ochre_vfio_user::Word;

use crate::engine::cx::Cx;
use crate::fault::Access;
use crate::fault::Fault;
use crate::hw::mem::ControlPage;
use crate::memory::Pa;
use crate::save::Work;

/// A control page that was found reachable when its queue was bound. It may be gone by now: every
/// access can fail, and is then a privileged access to nowhere.
pub struct Control {
    page: Pa,
}

impl Control {
    /// The page at a board address.
    pub fn new(page: Pa) -> Self {
        Self { page }
    }

    fn put<T: Word>(&self, cx: &Cx<'_>, at: usize, value: T) -> Result<(), Fault> {
        let pa = self.page.offset(at as u64);
        let stored = cx.mem.store(pa, value);
        stored.map_err(|_| cx.bus_fault(pa.raw(), Access::Write))
    }

    /// The producer's position.
    pub fn wptr(&self, cx: &Cx<'_>) -> Result<u64, Fault> {
        let pa = self.page.offset(offset_of!(ControlPage, wptr) as u64);
        let loaded = cx.mem.load(pa);
        loaded.map_err(|_| cx.bus_fault(pa.raw(), Access::Read))
    }

    /// When the doorbell has to be rung.
    pub fn put_event(&self, cx: &Cx<'_>, event: u64) -> Result<(), Fault> {
        self.put(cx, offset_of!(ControlPage, event), event)
    }

    /// `SLOT_*` and the fault that stopped the queue; the state last.
    pub fn put_state(&self, cx: &Cx<'_>, state: u32, error: u32) -> Result<(), Fault> {
        self.put(cx, offset_of!(ControlPage, error), error)?;
        self.put(cx, offset_of!(ControlPage, state), state)
    }

    /// What a packet changes; the position last, since it gives words of the ring back.
    pub fn put_progress(&self, cx: &Cx<'_>, work: &Work, rptr: u64) -> Result<(), Fault> {
        self.put(cx, offset_of!(ControlPage, retired_at), work.retired_at)?;
        self.put(cx, offset_of!(ControlPage, retired), work.retired)?;
        self.put(cx, offset_of!(ControlPage, rptr), rptr)
    }

    /// Everything that the queue counts, and its position.
    pub fn put_work(&self, cx: &Cx<'_>, work: &Work, rptr: u64) -> Result<(), Fault> {
        self.put(cx, offset_of!(ControlPage, instructions), work.instructions)?;
        self.put(cx, offset_of!(ControlPage, cycles), work.cycles)?;
        self.put(cx, offset_of!(ControlPage, busy_ns), work.busy_ns)?;
        self.put_progress(cx, work, rptr)
    }
}
