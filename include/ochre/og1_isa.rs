// SPDX-License-Identifier: GPL-2.0
//! What a compute kernel of og1 sees besides RV64IMAFD: control and status registers, windows of
//! its address space, and the state in which a work-item starts ("Compute" in
//! Documentation/gpu/ochre/og1.rst).
//!
//! Plain constants, included by `#[path]` in the kernel module and in the board. The same numbers
//! for kernels written in C are in og1_kernel.h; a test of the board compares the two.

/// Index of the work-item's block in the grid, x. Read only, as all of 0xcc0–0xcff.
pub const CSR_BLOCK_ID_X: u16 = 0xcc0;
/// Index of the work-item's block in the grid, y.
pub const CSR_BLOCK_ID_Y: u16 = 0xcc1;
/// Index of the work-item's block in the grid, z.
pub const CSR_BLOCK_ID_Z: u16 = 0xcc2;
/// Index of the work-item in its block, x.
pub const CSR_THREAD_ID_X: u16 = 0xcc4;
/// Index of the work-item in its block, y.
pub const CSR_THREAD_ID_Y: u16 = 0xcc5;
/// Index of the work-item in its block, z.
pub const CSR_THREAD_ID_Z: u16 = 0xcc6;
/// Blocks in the grid, x.
pub const CSR_GRID_DIM_X: u16 = 0xcc8;
/// Blocks in the grid, y.
pub const CSR_GRID_DIM_Y: u16 = 0xcc9;
/// Blocks in the grid, z.
pub const CSR_GRID_DIM_Z: u16 = 0xcca;
/// Work-items in a block, x.
pub const CSR_BLOCK_DIM_X: u16 = 0xccc;
/// Work-items in a block, y.
pub const CSR_BLOCK_DIM_Y: u16 = 0xccd;
/// Work-items in a block, z.
pub const CSR_BLOCK_DIM_Z: u16 = 0xcce;
/// Linear index of the work-item in its block: (z * block_dim_y + y) * block_dim_x + x.
pub const CSR_LANE: u16 = 0xcd0;
/// Address of the block-local memory, [`LDS_BASE`].
pub const CSR_LDS_BASE: u16 = 0xcd1;
/// Bytes of block-local memory that the dispatch asked for.
pub const CSR_LDS_SIZE: u16 = 0xcd2;

/// Barrier of the block: any write waits until each work-item of the block has written it. Reads as
/// zero, without waiting.
pub const CSR_BARRIER: u16 = 0x800;

/// Accrued floating-point exceptions (standard).
pub const CSR_FFLAGS: u16 = 0x001;
/// Dynamic rounding mode (standard).
pub const CSR_FRM: u16 = 0x002;
/// Both of the above (standard).
pub const CSR_FCSR: u16 = 0x003;
/// Core clock cycles (standard, read only).
pub const CSR_CYCLE: u16 = 0xc00;
/// Board time in nanoseconds (standard, read only).
pub const CSR_TIME: u16 = 0xc01;
/// Instructions that the work-item has retired (standard, read only).
pub const CSR_INSTRET: u16 = 0xc02;

/// Return address of a work-item at entry. A jump to it ends the work-item; nothing can be mapped
/// there.
pub const EXIT_PC: u64 = 0xffff_ffff_ffff_fff0;

/// Window of the block-local memory, shared by the work-items of one block. Virtual addresses from
/// here to 2^48 never reach the page tables.
pub const LDS_BASE: u64 = 0x0000_ffff_0000_0000;
/// Bytes of block-local memory that a dispatch can ask for at most.
pub const LDS_MAX: u64 = 64 << 10;

/// Window of the work-item's own memory, its stack. As [`LDS_BASE`], in the 4 GiB below.
pub const STACK_BASE: u64 = 0x0000_fffe_0000_0000;
/// Bytes of stack of a work-item.
pub const STACK_SIZE: u64 = 16 << 10;

/// Register `x1` (ra) at entry: [`EXIT_PC`].
pub const ENTRY_RA: usize = 1;
/// Register `x2` (sp) at entry: [`STACK_BASE`] + [`STACK_SIZE`].
pub const ENTRY_SP: usize = 2;
/// Register `x10` (a0) at entry: the argument address of the dispatch. All others are zero.
pub const ENTRY_A0: usize = 10;
