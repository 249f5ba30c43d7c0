// SPDX-License-Identifier: GPL-2.0
//! A queue descriptor in memory becomes a queue, or a violation.

use crate::front::Front;
use crate::hw;
use crate::hw::mem;
use crate::hw::regs::DOORBELLS;
use crate::judge::Rule;
use crate::memory::Mem;
use crate::memory::Pa;
use crate::save;
use crate::save::Found;

use super::queue::Parts;
use super::queue::Queue;

/// Bytes of a control page that the board uses.
const CONTROL_BYTES: u64 = std::mem::size_of::<mem::ControlPage>() as u64;

/// Reads and checks the descriptor at `addr`. What it breaks is reported; then there is no queue.
pub fn read(front: &Front, mem: &Mem<'_>, addr: u64) -> Option<Queue> {
    let report = |rule, info| {
        front.judge.report(rule, info);
        None
    };
    let missing = |pa: Pa| {
        let off = pa.is_system() && !mem.master();
        if off {
            Rule::BusMaster
        } else {
            Rule::Address
        }
    };
    let Some(pa) = Pa::new(addr).filter(|pa| pa.is_aligned(128)) else {
        return report(Rule::Desc, addr);
    };
    let mut bytes = [0; 128];
    if mem.read(pa, &mut bytes).is_err() {
        return report(missing(pa), addr);
    }
    let desc = hw::queue_desc(&bytes);
    if usize::from(desc.queue) >= DOORBELLS {
        return report(Rule::QueueId, u64::from(desc.queue));
    }
    let page = |raw| Pa::new(raw).filter(|pa| pa.is_aligned(4096));
    let pages = (page(desc.ring), page(desc.control), page(desc.save));
    let (Some(ring), Some(control), Some(save)) = pages else {
        return report(Rule::Desc, addr);
    };
    if !is_well_formed(&desc) {
        return report(Rule::Desc, addr);
    }
    let ring_bytes = 8 << desc.ring_log2;
    for (pa, len) in [
        (ring, ring_bytes),
        (control, CONTROL_BYTES),
        (save, mem::SAVE_BYTES as u64),
    ] {
        if !mem.reachable(pa, len) {
            return report(missing(pa), pa.raw());
        }
    }
    let record = match save::take(mem, save, desc.queue, desc.ring) {
        Ok(Found::Nothing) => None,
        Ok(Found::Record(record)) => Some(record),
        Ok(Found::Damaged) => return report(Rule::Desc, save.raw()),
        Err(_) => return report(missing(save), save.raw()),
    };
    Some(Queue::new(&Parts {
        desc,
        ring,
        control,
        save,
        record,
    }))
}

/// Whether each field that stands for itself has a value that it may have.
fn is_well_formed(desc: &mem::QueueDesc) -> bool {
    desc.magic == mem::QUEUE_MAGIC
        && desc.flags & !mem::QUEUE_PRIVILEGED == 0
        && usize::from(desc.ctx) < mem::CTX_MAX
        && desc.priority <= mem::PRIORITY_MAX
        && (1..=1_000_000).contains(&desc.quantum_us)
        && (mem::RING_LOG2_MIN..=mem::RING_LOG2_MAX).contains(&desc.ring_log2)
        && desc.reserved0 == [0; 3]
        && desc.reserved1 == [0; 9]
}
