// SPDX-License-Identifier: GPL-2.0
//! Faults of queues, and the ring in memory that tells the driver of them.

use crate::front::Front;
use crate::hw;
use crate::hw::mem;
use crate::hw::mem::FaultEntry;
use crate::hw::regs::IRQ_FAULT;
use crate::hw::regs::IRQ_OVERFLOW;
use crate::hw::regs::VECTOR_FAULT;
use crate::judge::Rule;
use crate::memory::Mem;
use crate::memory::Pa;
use crate::regs::fields;
use crate::regs::Reg;

/// Kind of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Access {
    /// Read.
    Read = mem::ACCESS_READ,
    /// Write.
    Write = mem::ACCESS_WRITE,
    /// Instruction fetch.
    Exec = mem::ACCESS_EXEC,
    /// Atomic operation.
    Atomic = mem::ACCESS_ATOMIC,
}

/// Why a queue cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// `FAULT_*`.
    pub code: u32,
    /// Address accessed, or the position of the packet.
    pub addr: u64,
    /// Which access.
    pub access: Access,
    /// Level of the page table.
    pub level: u8,
    /// Program counter of a compute fault.
    pub pc: u64,
}

impl Fault {
    /// A fault of an access to a virtual or board address.
    pub fn memory(code: u32, addr: u64, access: Access) -> Self {
        Self {
            code,
            addr,
            access,
            level: 0,
            pc: 0,
        }
    }

    /// A fault of the packet itself.
    pub fn packet(code: u32) -> Self {
        Self {
            code,
            addr: 0,
            access: Access::Read,
            level: 0,
            pc: 0,
        }
    }

    /// The same, found at a level of the page table.
    pub fn at_level(self, level: u8) -> Self {
        Self { level, ..self }
    }

    /// Whether the packet is at fault, rather than an access that it made.
    pub fn is_packet_fault(&self) -> bool {
        (mem::FAULT_PACKET..=mem::FAULT_RING).contains(&self.code)
    }
}

/// Where faults are written to.
#[derive(Debug, Default)]
pub struct FaultRing {
    /// Board address and binary logarithm of the entries, if in use.
    ring: Option<(Pa, u32)>,
    wptr: u32,
    rptr: u32,
}

/// Largest ring.
const LOG2_MAX: u32 = 12;

impl FaultRing {
    /// `FAULT_CTRL`.
    pub fn set(&mut self, front: &Front, mem: &Mem<'_>, ring: u64, log2: u32, enable: bool) {
        *self = Self::default();
        if enable {
            let bytes = 64 << log2.min(LOG2_MAX);
            match Pa::new(ring) {
                Some(pa) if log2 <= LOG2_MAX && pa.is_aligned(4096) => {
                    if !mem.reachable(pa, bytes) {
                        let off = pa.is_system() && !mem.master();
                        let rule = if off { Rule::BusMaster } else { Rule::Address };
                        front.judge.report(rule, ring);
                    }
                    self.ring = Some((pa, log2));
                }
                _ => front
                    .judge
                    .report(Rule::RegValue, Reg::FAULT_CTRL.def().offset as u64),
            }
        }
        front.set(Reg::FAULT_WPTR, 0, 0);
        front.set(Reg::FAULT_RPTR, 0, 0);
    }

    /// `FAULT_RPTR`.
    pub fn taken(&mut self, front: &Front, rptr: u32) {
        if rptr.wrapping_sub(self.rptr) > self.wptr.wrapping_sub(self.rptr) {
            front.judge.report(Rule::FaultRptr, u64::from(rptr));
        } else {
            self.rptr = rptr;
        }
        front.set(Reg::FAULT_RPTR, 0, self.rptr);
    }

    /// Writes an entry, if there is room, and raises the vector.
    pub fn push(&mut self, front: &Front, mem: &Mem<'_>, entry: &FaultEntry) {
        front.counters.board(mem::CTR_FAULTS, 1);
        let mut bits = IRQ_FAULT;
        if let Some((pa, log2)) = self.ring {
            let entries = 1u32 << log2;
            if self.wptr.wrapping_sub(self.rptr) >= entries {
                front.set_bits(Reg::FAULT_STATUS, 0, fields::FAULT_STATUS::overflow.put(1));
                bits |= IRQ_OVERFLOW;
            } else {
                let at = u64::from(self.wptr & (entries - 1)) * 64;
                if mem
                    .write(pa.offset(at), &hw::fault_entry_bytes(entry))
                    .is_err()
                {
                    front.judge.report(Rule::Address, pa.offset(at).raw());
                }
                self.wptr = self.wptr.wrapping_add(1);
                front.set(Reg::FAULT_WPTR, 0, self.wptr);
            }
        }
        front.irq.raise(VECTOR_FAULT, bits);
    }

    /// Back to the reset state.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}
