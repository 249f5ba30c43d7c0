// SPDX-License-Identifier: GPL-2.0
//! Packets at work: one bounded step at a time.

use std::sync::atomic::fence;
use std::sync::atomic::Ordering;

use crate::compute::Block;
use crate::compute::Compute;
use crate::compute::Outcome;
use crate::fault::Access;
use crate::fault::Fault;
use crate::front::Effect;
use crate::hw::mem;
use crate::hw::regs::IRQ_FENCE;
use crate::hw::regs::VECTOR_ENGINE0;
use crate::judge::Rule;
use crate::regs::Class;
use crate::request::Request;
use crate::save::Buffer;
use crate::save::Progress;
use crate::timing;
use crate::trace::What;

use super::cx::Cx;
use super::packet::Address;
use super::packet::Dispatch;
use super::packet::Header;
use super::packet::Packet;
use super::queue::Queue;
use super::transfer;

/// A packet that was begun.
pub struct Job {
    /// What it is.
    pub packet: Packet,
    /// Its header.
    pub header: Header,
    /// Its length.
    pub words: u64,
    /// How far it is.
    pub progress: Progress,
    /// The block of work-items that runs.
    block: Option<Box<Block>>,
}

impl Job {
    /// A packet that goes on from `progress`.
    pub fn new(packet: Packet, header: Header, words: u64, progress: Progress) -> Self {
        Self {
            packet,
            header,
            words,
            progress,
            block: None,
        }
    }

    /// Whether work-items are under way: what they hold cannot be saved.
    pub fn inside_block(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.running())
    }
}

/// How a step ended.
pub enum Step {
    /// There is more to do.
    More,
    /// The packet is done; this many words behind it are skipped.
    Done(u64),
    /// It waits for a semaphore or a time.
    Wait,
    /// An indirect buffer begins.
    Enter(Buffer),
    /// Done, and the scheduler has something to do before the next packet.
    Request,
}

/// Progress that does not fit the packet, from a save area that was changed.
fn wrong_progress() -> Fault {
    Fault::packet(mem::FAULT_PACKET)
}

/// Executes a piece of the packet, of about `left` cycles at most.
pub fn step(
    queue: &mut Queue,
    cx: &mut Cx<'_>,
    compute: &mut Compute,
    job: &mut Job,
    left: u64,
) -> Result<Step, Fault> {
    let ctx = queue.ctx();
    let takes_steps = matches!(
        job.packet,
        Packet::Copy { .. }
            | Packet::Copy2d { .. }
            | Packet::Fill { .. }
            | Packet::Dispatch(_)
            | Packet::WaitUntil { .. }
    );
    if !takes_steps && job.progress != Progress::Start {
        return Err(wrong_progress());
    }
    match job.packet {
        Packet::Nop => {}
        Packet::Indirect { addr, words } => {
            return Ok(Step::Enter(Buffer {
                addr,
                words,
                pos: 0,
            }))
        }
        Packet::Copy { src, dst, bytes } => {
            let done = bytes_done(job, bytes)?;
            let n = transfer::copy(cx, ctx, (src, dst), done, bytes, left)?;
            return Ok(advance(queue, cx, job, done, n, bytes));
        }
        Packet::Fill { dst, bytes, value } => {
            let done = bytes_done(job, bytes)?;
            let n = transfer::fill(cx, ctx, dst, value, done, bytes, left)?;
            return Ok(advance(queue, cx, job, done, n, bytes));
        }
        Packet::Copy2d {
            src,
            dst,
            pitch,
            width,
            height,
        } => {
            let rect = transfer::Rect {
                src,
                dst,
                pitch,
                width,
                height,
            };
            let (row, column) = match job.progress {
                Progress::Start => (0, 0),
                Progress::Rows(row, column) if row <= height && column <= width => (row, column),
                _ => return Err(wrong_progress()),
            };
            let at = transfer::copy_2d(cx, ctx, &rect, (row, column), left)?;
            let moved = (at.0 * width + at.1) / timing::CHUNK_BYTES;
            queue.progress(cx, moved - (row * width + column) / timing::CHUNK_BYTES);
            job.progress = Progress::Rows(at.0, at.1);
            return Ok(if at.0 < height && width != 0 {
                Step::More
            } else {
                Step::Done(0)
            });
        }
        Packet::Dispatch(ref dispatch) => {
            let dispatch = *dispatch;
            return run_blocks(queue, cx, compute, job, &dispatch, left);
        }
        Packet::SemWait { .. } => {
            if !is_over(ctx, cx, job)? {
                return Ok(Step::Wait);
            }
        }
        Packet::SemSignal { addr, value } => {
            // All earlier stores of this queue were made by this thread.
            fence(Ordering::SeqCst);
            cx.store(ctx, addr, value, false)?;
        }
        Packet::AtomicAdd { addr, value } => cx.add(ctx, addr, value)?,
        Packet::WriteImm { addr, value, short } => cx.store(ctx, addr, value, short)?,
        Packet::Predicate {
            addr,
            value,
            compare,
            skip,
        } => {
            let memory = cx.load(ctx, addr)?;
            return Ok(Step::Done(if compare.holds(memory, value) {
                0
            } else {
                skip
            }));
        }
        Packet::Timestamp { addr } => {
            let now = cx.stamp();
            cx.store(ctx, addr, now, false)?;
        }
        Packet::WaitUntil { time, relative } => {
            if job.progress == Progress::Start {
                let time = if relative {
                    cx.now().saturating_add(time)
                } else {
                    time
                };
                job.progress = Progress::Until(time);
            }
            if !is_over(ctx, cx, job)? {
                return Ok(Step::Wait);
            }
        }
        Packet::Cache { invalidate } => {
            fence(Ordering::SeqCst);
            if invalidate {
                compute.invalidate_code();
            }
        }
        Packet::Fence {
            addr,
            value,
            interrupt,
        } => return write_fence(queue, cx, addr, value, interrupt),
        Packet::TlbInvalidate {
            scope,
            ctx,
            addr,
            pages,
        } => {
            cx.requests.push(Request::TlbInvalidate {
                scope,
                ctx,
                addr,
                pages,
            });
            return Ok(Step::Request);
        }
        Packet::RegWrite { offset, value } => return write_register(cx, offset, value),
    }
    Ok(Step::Done(0))
}

/// Whether what the packet waits for has come.
pub fn is_over(ctx: u16, cx: &mut Cx<'_>, job: &Job) -> Result<bool, Fault> {
    match (job.packet, job.progress) {
        (
            Packet::SemWait {
                addr,
                value,
                compare,
            },
            _,
        ) => Ok(compare.holds(cx.load(ctx, addr)?, value)),
        (_, Progress::Until(time)) => Ok(cx.now() >= time),
        _ => Err(wrong_progress()),
    }
}

fn bytes_done(job: &Job, bytes: u64) -> Result<u64, Fault> {
    match job.progress {
        Progress::Start => Ok(0),
        Progress::Bytes(done) if done <= bytes => Ok(done),
        _ => Err(wrong_progress()),
    }
}

/// Notes that `n` more bytes of a linear packet are done.
fn advance(queue: &mut Queue, cx: &Cx<'_>, job: &mut Job, done: u64, n: u64, bytes: u64) -> Step {
    let now = done + n;
    queue.progress(cx, now / timing::CHUNK_BYTES - done / timing::CHUNK_BYTES);
    job.progress = Progress::Bytes(now);
    if now < bytes {
        Step::More
    } else {
        Step::Done(0)
    }
}

/// Runs blocks of a dispatch.
fn run_blocks(
    queue: &mut Queue,
    cx: &mut Cx<'_>,
    compute: &mut Compute,
    job: &mut Job,
    dispatch: &Dispatch,
    left: u64,
) -> Result<Step, Fault> {
    let blocks = dispatch.blocks();
    let next = match job.progress {
        Progress::Start => {
            // Code may have been written since the last dispatch.
            compute.invalidate_code();
            0
        }
        Progress::Blocks(n) if n < blocks => n,
        _ => return Err(wrong_progress()),
    };
    job.progress = Progress::Blocks(next);
    let mut block = match job.block.take() {
        Some(block) => block,
        None => compute.block(),
    };
    if !block.running() {
        cx.spend(timing::BLOCK_CYCLES);
        block.start(dispatch, next);
    }
    let run = compute.run(cx, queue.ctx(), dispatch, &mut block, left);
    queue.executed(run.executed);
    cx.front
        .counters
        .engine(cx.engine, mem::CTR_INSTRUCTIONS, run.executed);
    cx.worked(0, 0, run.executed);
    match run.outcome {
        Outcome::Budget => {
            job.block = Some(block);
            Ok(Step::More)
        }
        Outcome::Fault(fault) => {
            compute.give_back(block);
            Err(fault)
        }
        Outcome::Done => {
            queue.progress(cx, 1);
            cx.front.counters.engine(cx.engine, mem::CTR_BLOCKS, 1);
            cx.trace(What::Block(next));
            if next + 1 < blocks {
                job.block = Some(block);
                job.progress = Progress::Blocks(next + 1);
                Ok(Step::More)
            } else {
                compute.give_back(block);
                Ok(Step::Done(0))
            }
        }
    }
}

fn write_fence(
    queue: &mut Queue,
    cx: &mut Cx<'_>,
    addr: Address,
    value: u64,
    interrupt: bool,
) -> Result<Step, Fault> {
    queue.before_fence(cx)?;
    let time = cx.stamp();
    let at_time = addr
        .offset(8)
        .ok_or_else(|| cx.bus_fault(addr.raw(), Access::Write))?;
    cx.store(0, at_time, time, false)?;
    fence(Ordering::SeqCst);
    cx.store(0, addr, value, false)?;
    cx.trace(What::Fence(value));
    if interrupt {
        cx.front.irq.raise(VECTOR_ENGINE0 + cx.engine, IRQ_FENCE);
    }
    Ok(Step::Done(0))
}

fn write_register(cx: &mut Cx<'_>, offset: u64, value: u32) -> Result<Step, Fault> {
    let reg = cx.front.find(offset).filter(|_| offset % 4 == 0);
    match reg {
        Some((reg, _)) if reg.def().class != Class::Immediate => {
            match cx.front.write(offset, value) {
                Effect::None => Ok(Step::Done(0)),
                Effect::Request(request) => {
                    cx.requests.push(request);
                    Ok(Step::Request)
                }
            }
        }
        Some(_) => Err(Fault::packet(mem::FAULT_PACKET)),
        None => {
            cx.front.judge.report(Rule::RegUnknown, offset);
            Err(Fault::packet(mem::FAULT_PACKET))
        }
    }
}
