// SPDX-License-Identifier: GPL-2.0
//! Copies and fills: pieces of pages, as many as the cycles allow.

use crate::fault::Access;
use crate::fault::Fault;
use crate::hw::mem;
use crate::memory::Pa;
use crate::timing;

use super::cx::Cx;
use super::packet::Address;

/// Least bytes of a step, so that steps make progress however few cycles are left.
const STEP_MIN: u64 = 256;

/// Bytes that fit in `left` cycles, within bounds.
fn bytes_in(cx: &Cx<'_>, left: u64) -> u64 {
    let (core, memory) = (cx.units.core_khz.max(1), cx.units.memory_khz);
    let bytes = u128::from(left) * u128::from(timing::COPY_BYTES_PER_CYCLE) * u128::from(memory)
        / u128::from(core);
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    (bytes & !63).clamp(STEP_MIN, timing::CHUNK_BYTES)
}

fn spend(cx: &mut Cx<'_>, bytes: u64, least: u64) {
    let cycles = timing::copy_cycles(bytes, cx.units.core_khz, cx.units.memory_khz);
    cx.spend(cycles.max(least));
}

fn beyond(addr: Address, access: Access) -> Fault {
    Fault::memory(mem::FAULT_RANGE, addr.raw(), access)
}

/// Copies `len` bytes, page by page.
fn span(cx: &mut Cx<'_>, ctx: u16, src: Address, dst: Address, len: u64) -> Result<(), Fault> {
    let mut done = 0;
    while done < len {
        let from = src.offset(done).ok_or_else(|| beyond(src, Access::Read))?;
        let to = dst.offset(done).ok_or_else(|| beyond(dst, Access::Write))?;
        let (read, room) = cx.resolve(ctx, from, Access::Read)?;
        let (write, space) = cx.resolve(ctx, to, Access::Write)?;
        let n = room.min(space).min(len - done);
        match (read, write) {
            (Some(read), Some(write)) => {
                if cx.mem.copy(write, read, n).is_err() {
                    return Err(blame(cx, (from, read), (to, write), n));
                }
            }
            (None, Some(write)) => zero(cx, to, write, n)?,
            (Some(read), None) => {
                if !cx.mem.reachable(read, n) {
                    return Err(cx.no_answer(from, Access::Read));
                }
            }
            (None, None) => {}
        }
        done += n;
    }
    Ok(())
}

/// Which side of a failed copy did not answer.
fn blame(cx: &Cx<'_>, from: (Address, Pa), to: (Address, Pa), len: u64) -> Fault {
    if cx.mem.reachable(from.1, len) {
        cx.no_answer(to.0, Access::Write)
    } else {
        cx.no_answer(from.0, Access::Read)
    }
}

/// Writes zeros, at any alignment.
fn zero(cx: &Cx<'_>, to: Address, pa: Pa, len: u64) -> Result<(), Fault> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut done = 0;
    while done < len {
        let n = (len - done).min(ZEROS.len() as u64);
        let piece = ZEROS.get(..n as usize).unwrap_or(&ZEROS);
        cx.mem.traffic.count(pa.is_system(), true, n);
        let written = cx.mem.write(pa.offset(done), piece);
        written.map_err(|_| cx.no_answer(to, Access::Write))?;
        done += n;
    }
    Ok(())
}

/// Copies a piece of `bytes` from `done` on; returns its length.
pub fn copy(
    cx: &mut Cx<'_>,
    ctx: u16,
    (src, dst): (Address, Address),
    done: u64,
    bytes: u64,
    left: u64,
) -> Result<u64, Fault> {
    let n = bytes_in(cx, left).min(bytes - done);
    if n != 0 {
        let from = src.offset(done).ok_or_else(|| beyond(src, Access::Read))?;
        let to = dst.offset(done).ok_or_else(|| beyond(dst, Access::Write))?;
        span(cx, ctx, from, to, n)?;
        spend(cx, n, 1);
    }
    Ok(n)
}

/// Fills a piece of `bytes` from `done` on; returns its length.
pub fn fill(
    cx: &mut Cx<'_>,
    ctx: u16,
    dst: Address,
    value: u32,
    done: u64,
    bytes: u64,
    left: u64,
) -> Result<u64, Fault> {
    if dst.raw() % 4 != 0 {
        return Err(Fault::memory(
            mem::FAULT_ALIGNMENT,
            dst.raw(),
            Access::Write,
        ));
    }
    let piece = bytes_in(cx, left).min(bytes - done);
    let mut filled = 0;
    while filled < piece {
        let to = dst
            .offset(done + filled)
            .ok_or_else(|| beyond(dst, Access::Write))?;
        let (pa, space) = cx.resolve(ctx, to, Access::Write)?;
        let n = space.min(piece - filled) & !3;
        if n == 0 {
            // Only at the very end of the addresses, where nothing is.
            return Err(beyond(to, Access::Write));
        }
        if let Some(pa) = pa {
            if cx.mem.fill(pa, n / 4, value).is_err() {
                return Err(cx.no_answer(to, Access::Write));
            }
        }
        filled += n;
    }
    spend(cx, piece, 1);
    Ok(piece)
}

/// A rectangle to copy.
pub struct Rect {
    /// Source.
    pub src: Address,
    /// Destination.
    pub dst: Address,
    /// Bytes from row to row: source, destination.
    pub pitch: (u64, u64),
    /// Bytes of a row.
    pub width: u64,
    /// Rows.
    pub height: u64,
}

/// Copies from `(row, column)` on; returns where it stopped.
pub fn copy_2d(
    cx: &mut Cx<'_>,
    ctx: u16,
    rect: &Rect,
    (mut row, mut column): (u64, u64),
    left: u64,
) -> Result<(u64, u64), Fault> {
    let end = cx.used().saturating_add(left);
    let mut budget = bytes_in(cx, left);
    while row < rect.height && rect.width != 0 && budget != 0 {
        let n = (rect.width - column).min(budget);
        let at = |base: Address, pitch: u64, access| {
            let offset = pitch.checked_mul(row).and_then(|at| at.checked_add(column));
            offset
                .and_then(|at| base.offset(at))
                .ok_or_else(|| beyond(base, access))
        };
        let from = at(rect.src, rect.pitch.0, Access::Read)?;
        let to = at(rect.dst, rect.pitch.1, Access::Write)?;
        span(cx, ctx, from, to, n)?;
        spend(cx, n, timing::ROW_CYCLES);
        budget -= n;
        column += n;
        if column == rect.width {
            column = 0;
            row += 1;
        }
        if cx.used() >= end {
            break;
        }
    }
    Ok((row, column))
}
