// SPDX-License-Identifier: GPL-2.0
//! The compute part of an engine: blocks of work-items on RV64 harts.
//!
//! ```text
//!   dispatch ──▶ Block (harts, block-local memory, stacks) ──▶ Hart::run ──▶ ItemBus
//!                                                                             │  │  │
//!                                                        block-local, stack ◀─┘  │  └─▶ Pages ──▶ Mmu
//!                                                                             memory
//! ```
//!
//! - `block`: a block and the order in which its work-items run.
//! - `bus`: what an instruction of a work-item can reach.
//! - `pages`: host pages of recent translations, dropped whenever the MMU dropped any.
//!
//! A block belongs to its queue, so that a queue can lose the engine in the midst of one. One block of
//! a queue runs at a time. All of it belongs to the scheduler; no lock.

mod block;
mod bus;
mod pages;

pub use block::Block;
pub use block::BlockRun;
pub use block::Outcome;

use ochre_rv64::CodeCache;

use crate::engine::Cx;
use crate::engine::Dispatch;
use pages::Pages;

/// What an engine keeps for compute.
#[derive(Default)]
pub struct Compute {
    code: CodeCache,
    pages: Pages,
    /// A block that is not in use, for its allocations.
    spare: Option<Box<Block>>,
}

impl Compute {
    /// A block to start.
    pub fn block(&mut self) -> Box<Block> {
        self.spare.take().unwrap_or_default()
    }

    /// Takes a block back.
    pub fn give_back(&mut self, block: Box<Block>) {
        self.spare = Some(block);
    }

    /// Code is looked at again before it runs.
    pub fn invalidate_code(&mut self) {
        self.code.invalidate_all();
    }

    /// Runs a block for about `left` cycles at most.
    pub fn run(
        &mut self,
        cx: &mut Cx<'_>,
        ctx: u16,
        dispatch: &Dispatch,
        block: &mut Block,
        left: u64,
    ) -> BlockRun {
        self.pages.prepare(cx, ctx);
        block.run(cx, &mut self.code, &mut self.pages, dispatch, left)
    }
}
