// SPDX-License-Identifier: GPL-2.0
//! A block of work-items and the order in which they run.
//!
//! In order of their index, each until it ends, reaches the barrier, or has executed
//! [`timing::HART_SLICE`] instructions; then the next. So the order is the same on every machine, and
//! a work-item that spins for another one gets what it waits for.

use ochre_rv64 as rv64;
use rv64::Cause;
use rv64::CodeCache;
use rv64::Hart;
use rv64::Stop;
use rv64::WorkItem;

use crate::engine::Cx;
use crate::engine::Dispatch;
use crate::fault::Access;
use crate::fault::Fault;
use crate::hw::isa;
use crate::hw::mem;
use crate::timing;

use super::bus::ItemBus;
use super::bus::Windows;
use super::pages::Pages;

/// Bytes of a stack in the stack window.
const STACK: usize = isa::STACK_SIZE as usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    AtBarrier,
    Ended,
}

/// How a run of a block ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The cycles are used up.
    Budget,
    /// All work-items ended.
    Done,
    /// A work-item faulted.
    Fault(Fault),
}

/// A run of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// Instructions executed.
    pub executed: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// A block of work-items.
#[derive(Default)]
pub struct Block {
    items: Vec<(Hart, State)>,
    lds: Vec<u8>,
    /// Stacks of all work-items, if they use the stack window.
    stacks: Vec<u8>,
    /// Per work-item, a bit per page of its stack: written since the block began.
    touched: Vec<u8>,
    own_stacks: bool,
    /// Whose turn it is, and the instructions left of that turn.
    current: usize,
    turn: u64,
    /// Instructions that do not make a cycle yet.
    rest: u64,
    running: bool,
}

impl Block {
    /// Whether work-items are under way.
    pub fn running(&self) -> bool {
        self.running
    }

    /// Begins block `index` of a dispatch.
    pub fn start(&mut self, dispatch: &Dispatch, index: u64) {
        let [gx, gy, _] = dispatch.grid.map(u64::from);
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let block_id = [
            narrow(index % gx.max(1)),
            narrow(index / gx.max(1) % gy.max(1)),
            narrow(index / gx.max(1) / gy.max(1)),
        ];
        let [bx, by, bz] = dispatch.block;
        let count = dispatch.items() as usize;
        self.own_stacks = dispatch.stack.1 == 0;
        self.clear_memory(dispatch.lds as usize, count);
        self.items.clear();
        let ids = (0..bz).flat_map(|z| (0..by).flat_map(move |y| (0..bx).map(move |x| [x, y, z])));
        for (linear, thread_id) in ids.enumerate() {
            let item = WorkItem {
                block_id,
                thread_id,
                grid_dim: dispatch.grid,
                block_dim: dispatch.block,
                lds_size: dispatch.lds,
            };
            let mut hart = Hart::new(dispatch.kernel, dispatch.args, item);
            if !self.own_stacks {
                let (base, bytes) = dispatch.stack;
                let sp = base.wrapping_add((linear as u64 + 1).wrapping_mul(bytes));
                hart.set_x(isa::ENTRY_SP, sp);
            }
            self.items.push((hart, State::Ready));
        }
        self.current = 0;
        self.turn = timing::HART_SLICE;
        self.rest = 0;
        self.running = true;
    }

    /// Zeroes block-local memory and what was written of the stacks.
    fn clear_memory(&mut self, lds: usize, items: usize) {
        self.lds.clear();
        self.lds.resize(lds, 0);
        if !self.own_stacks {
            return;
        }
        for (stack, touched) in self.stacks.chunks_exact_mut(STACK).zip(&mut self.touched) {
            for (page, bytes) in stack.chunks_exact_mut(4096).enumerate() {
                if (*touched >> page) & 1 != 0 {
                    bytes.fill(0);
                }
            }
            *touched = 0;
        }
        if self.touched.len() < items {
            // Fresh zeros from the host cost nothing until they are used.
            self.stacks = vec![0; items * STACK];
            self.touched = vec![0; items];
        }
    }

    /// The next work-item that can run, from the current one on.
    fn next_ready(&self) -> Option<usize> {
        let ready = |&i: &usize| self.items.get(i).is_some_and(|item| item.1 == State::Ready);
        let n = self.items.len();
        (self.current..n).chain(0..self.current.min(n)).find(ready)
    }

    /// No work-item can run: all ended, or those at the barrier go on if none has ended.
    fn release(&mut self) -> Option<Outcome> {
        let waiting = self
            .items
            .iter()
            .position(|item| item.1 == State::AtBarrier);
        let ended = self.items.iter().any(|item| item.1 == State::Ended);
        let first = match (waiting, ended) {
            (None, _) => return Some(Outcome::Done),
            (Some(first), false) => first,
            (Some(first), true) => {
                let pc = self.items.get(first).map_or(0, |item| item.0.pc());
                let fault = Fault::memory(mem::FAULT_BARRIER, pc, Access::Exec);
                return Some(Outcome::Fault(Fault { pc, ..fault }));
            }
        };
        for item in &mut self.items {
            item.1 = State::Ready;
        }
        self.current = first;
        self.turn = timing::HART_SLICE;
        None
    }

    /// Runs work-items for about `left` cycles at most.
    pub(super) fn run(
        &mut self,
        cx: &mut Cx<'_>,
        code: &mut CodeCache,
        pages: &mut Pages,
        dispatch: &Dispatch,
        left: u64,
    ) -> BlockRun {
        let rate = u64::from(dispatch.items().min(cx.front.config().lanes)).max(1);
        let end = cx.used().saturating_add(left);
        let mut executed = 0;
        let outcome = loop {
            if cx.used() >= end {
                break Outcome::Budget;
            }
            let Some(i) = self.next_ready() else {
                match self.release() {
                    None => continue,
                    Some(outcome) => break outcome,
                }
            };
            if i != self.current {
                self.current = i;
                self.turn = timing::HART_SLICE;
            }
            let budget = self.turn.min((end - cx.used()).saturating_mul(rate));
            let (n, outcome) = self.run_item(i, cx, code, pages, rate, budget);
            executed += n;
            self.rest += n;
            cx.spend(self.rest / rate);
            self.rest %= rate;
            if let Some(fault) = outcome {
                break Outcome::Fault(fault);
            }
        };
        if outcome != Outcome::Budget {
            self.running = false;
            cx.spend(u64::from(self.rest != 0));
        }
        cx.units.mmu.count_hits(pages.take_hits());
        BlockRun { executed, outcome }
    }

    /// Runs a work-item for `budget` instructions at most; returns how many it executed.
    fn run_item(
        &mut self,
        i: usize,
        cx: &mut Cx<'_>,
        code: &mut CodeCache,
        pages: &mut Pages,
        rate: u64,
        budget: u64,
    ) -> (u64, Option<Fault>) {
        let mut none = 0;
        let (stack, touched) = if self.own_stacks {
            let stack = self.stacks.get_mut(i * STACK..(i + 1) * STACK);
            (
                stack.unwrap_or(&mut []),
                self.touched.get_mut(i).unwrap_or(&mut none),
            )
        } else {
            (&mut [][..], &mut none)
        };
        let Some((hart, state)) = self.items.get_mut(i) else {
            return (0, None);
        };
        let windows = Windows {
            lds: &mut self.lds,
            stack,
            touched,
        };
        let run = hart.run(
            &mut ItemBus {
                cx,
                pages,
                windows,
                rate,
            },
            code,
            budget,
        );
        self.turn = self.turn.saturating_sub(run.executed);
        match run.stop {
            Stop::Budget if self.turn == 0 => {
                hart.clear_reservation();
                self.current = i + 1;
                self.turn = timing::HART_SLICE;
            }
            Stop::Budget => {}
            Stop::Exit => *state = State::Ended,
            Stop::Barrier => *state = State::AtBarrier,
            Stop::Fault(fault) => return (run.executed, Some(queue_fault(fault))),
        }
        (run.executed, None)
    }
}

/// What the queue is told of a fault of a work-item.
fn queue_fault(fault: rv64::Fault<Fault>) -> Fault {
    let access = match fault.access {
        rv64::Access::Fetch => Access::Exec,
        rv64::Access::Load => Access::Read,
        rv64::Access::Store => Access::Write,
        rv64::Access::Atomic => Access::Atomic,
    };
    let of = |code| Fault {
        pc: fault.pc,
        ..Fault::memory(code, fault.addr, access)
    };
    match fault.cause {
        Cause::IllegalInstruction(_) | Cause::Breakpoint | Cause::EnvironmentCall => {
            of(mem::FAULT_ILLEGAL)
        }
        Cause::Misaligned => of(mem::FAULT_ALIGNMENT),
        Cause::Memory(inner) => Fault {
            pc: fault.pc,
            ..inner
        },
    }
}
