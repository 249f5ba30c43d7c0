// SPDX-License-Identifier: GPL-2.0
//! Control and status registers: the standard user ones and those of a work-item.

use crate::bus::Bus;
use crate::hart::Hart;
use crate::isa;

/// Place of a work-item in its dispatch: what it reads from its CSRs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkItem {
    /// Index of the block in the grid: x, y, z.
    pub block_id: [u32; 3],
    /// Index of the work-item in its block: x, y, z.
    pub thread_id: [u32; 3],
    /// Blocks in the grid: x, y, z.
    pub grid_dim: [u32; 3],
    /// Work-items in a block: x, y, z.
    pub block_dim: [u32; 3],
    /// Bytes of block-local memory.
    pub lds_size: u64,
}

impl WorkItem {
    /// Linear index of the work-item in its block, x fastest.
    pub fn lane(&self) -> u64 {
        let [x, y, z] = self.thread_id.map(u64::from);
        let [width, height, _] = self.block_dim.map(u64::from);
        z.wrapping_mul(height)
            .wrapping_add(y)
            .wrapping_mul(width)
            .wrapping_add(x)
    }

    /// Value of a work-item CSR.
    fn csr(&self, csr: u16) -> Option<u64> {
        let axis = usize::from(csr & 3);
        let of = |values: [u32; 3]| values.get(axis).copied().map(u64::from);
        match csr {
            isa::CSR_BLOCK_ID_X..=isa::CSR_BLOCK_ID_Z => of(self.block_id),
            isa::CSR_THREAD_ID_X..=isa::CSR_THREAD_ID_Z => of(self.thread_id),
            isa::CSR_GRID_DIM_X..=isa::CSR_GRID_DIM_Z => of(self.grid_dim),
            isa::CSR_BLOCK_DIM_X..=isa::CSR_BLOCK_DIM_Z => of(self.block_dim),
            isa::CSR_LANE => Some(self.lane()),
            isa::CSR_LDS_BASE => Some(isa::LDS_BASE),
            isa::CSR_LDS_SIZE => Some(self.lds_size),
            _ => None,
        }
    }
}

/// What a CSR write asks of the run loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    Barrier,
}

/// How a CSR instruction makes the new value from the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    Write,
    Set,
    Clear,
}

impl Hart {
    /// Value of `csr`, `retired` instructions after the start of the run; `None` if there is no such
    /// register.
    fn csr_read<B: Bus>(&self, bus: &B, csr: u16, retired: u64) -> Option<u64> {
        match csr {
            isa::CSR_FFLAGS => Some(u64::from(self.fpu.flags)),
            isa::CSR_FRM => Some(u64::from(self.fpu.frm)),
            isa::CSR_FCSR => Some(u64::from(self.fpu.fcsr())),
            isa::CSR_CYCLE => Some(bus.cycle(retired)),
            isa::CSR_TIME => Some(bus.time(retired)),
            isa::CSR_INSTRET => Some(self.instret.wrapping_add(retired)),
            isa::CSR_BARRIER => Some(0),
            _ => self.item.csr(csr),
        }
    }

    /// Writes `csr`; `None` if it is read only or absent.
    fn csr_write(&mut self, csr: u16, value: u64) -> Option<Effect> {
        match csr {
            isa::CSR_FFLAGS => self.fpu.flags = (value & 0x1f) as u8,
            isa::CSR_FRM => self.fpu.frm = (value & 7) as u8,
            isa::CSR_FCSR => self.fpu.set_fcsr(value),
            isa::CSR_BARRIER => return Some(Effect::Barrier),
            _ => return None,
        }
        Some(Effect::None)
    }

    /// A CSR instruction: `operand` is `None` where it does not write (set or clear with x0 or 0).
    /// `None` if it is illegal, with nothing changed.
    pub(crate) fn csr_access<B: Bus>(
        &mut self,
        bus: &B,
        csr: u16,
        update: Update,
        operand: Option<u64>,
        rd: u8,
        retired: u64,
    ) -> Option<Effect> {
        let old = self.csr_read(bus, csr, retired)?;
        let effect = match operand {
            Some(operand) => {
                let new = match update {
                    Update::Write => operand,
                    Update::Set => old | operand,
                    Update::Clear => old & !operand,
                };
                self.csr_write(csr, new)?
            }
            None => Effect::None,
        };
        self.write_x(rd, old);
        Some(effect)
    }
}
