// SPDX-License-Identifier: GPL-2.0
//! The control socket: faults on demand, and questions that a guest cannot ask.
//!
//! `ochre-control` is the socket; here is what its commands do. They use the board as its other users
//! do.

use ochre_control::number;
use ochre_control::Reply;

use crate::board::Board;
use crate::config::TEMPS_MC;
use crate::hw::mem;
use crate::hw::regs;
use crate::power::Order;
use crate::regs::fields;
use crate::regs::Reg;
use crate::request::Hang;
use crate::request::Request;

const HELP: &str = "ok commands: hang queue N | hang engine N | hang device | unhang | \
    lose-irq VECTOR COUNT | silence on|off | violations | clear-violations | time | \
    gate open|close | slots | stat | power | ambient MILLICELSIUS | heat MILLICELSIUS | \
    power-brake on|off | fail-clock DOMAIN COUNT | fail-voltage DOMAIN COUNT | \
    stall-clock DOMAIN | stall-voltage DOMAIN | help | quit";

/// Names of `SLOT_*`.
fn state_name(state: u32) -> &'static str {
    match state {
        regs::SLOT_EMPTY => "empty",
        regs::SLOT_IDLE => "idle",
        regs::SLOT_READY => "ready",
        regs::SLOT_WAITING => "waiting",
        regs::SLOT_FAULTED => "faulted",
        regs::SLOT_UNBINDING => "unbinding",
        _ => "unknown",
    }
}

fn slots(board: &Board) -> String {
    let config = board.front().config();
    let mut line = String::from("ok");
    for engine in 0..config.engines() {
        for slot in 0..config.slots {
            let status = board
                .front()
                .get(Reg::SLOT_STATUS, engine * regs::SLOTS_MAX + slot);
            let state = fields::SLOT_STATUS::state.get(status);
            line.push_str(&format!(" {engine}.{slot}={}", state_name(state)));
            if state != regs::SLOT_EMPTY {
                line.push_str(&format!(
                    ":queue={}",
                    fields::SLOT_STATUS::queue.get(status)
                ));
            }
            let error = fields::SLOT_STATUS::error.get(status);
            if error != 0 {
                line.push_str(&format!(":error={error}"));
            }
        }
    }
    line
}

fn stat(board: &Board) -> String {
    let front = board.front();
    let counters = &front.counters;
    let board_names = [
        (1, "vram-read"),
        (2, "vram-write"),
        (3, "bus-read"),
        (4, "bus-write"),
        (5, "tlb-hits"),
        (6, "tlb-misses"),
        (7, "faults"),
        (mem::CTR_CORE_CYCLES, "core-cycles"),
        (mem::CTR_MEMORY_CYCLES, "memory-cycles"),
        (mem::CTR_THROTTLED, "throttled"),
        (mem::CTR_CLOCK_CHANGES, "clock-changes"),
    ];
    let engine_names = [
        "cycles",
        "busy",
        "stall",
        "packets",
        "blocks",
        "instructions",
        "switches",
        "preemptions",
        "clock-gated",
        "power-gated",
        "wakes",
    ];
    let mut line = format!("ok time={} interrupts={}", front.time(), front.irq.sent());
    for (counter, name) in board_names {
        line.push_str(&format!(
            " {name}={}",
            counters.get(0, counter).unwrap_or(0)
        ));
    }
    for engine in 0..front.config().engines() {
        for (counter, name) in (0..).zip(engine_names) {
            let unit = u32::try_from(engine + 1).unwrap_or(u32::MAX);
            let value = counters.get(unit, counter).unwrap_or(0);
            line.push_str(&format!(" engine{engine}.{name}={value}"));
        }
    }
    line
}

fn violations(board: &Board) -> String {
    let judge = &board.front().judge;
    let mut line = format!("ok {}", judge.count());
    for violation in judge.log() {
        line.push_str(&format!(" {violation}"));
    }
    line
}

/// What power and temperature are at, as JSON.
fn power(board: &Board) -> Result<String, String> {
    ask(board, Request::PowerReport)?;
    let json = serde_json::to_string(&board.front().power());
    json.map(|json| format!("ok {json}"))
        .map_err(|e| e.to_string())
}

fn temperature(text: &str) -> Result<i32, String> {
    let mc = text
        .parse()
        .map_err(|_| format!("not a temperature in m°C: {text}"))?;
    if TEMPS_MC.contains(&mc) {
        Ok(mc)
    } else {
        Err(format!(
            "{mc} m°C: from {} to {}",
            TEMPS_MC.start(),
            TEMPS_MC.end()
        ))
    }
}

fn domain(text: &str) -> Result<usize, String> {
    match text {
        "core" => Ok(regs::DOMAIN_CORE),
        "memory" => Ok(regs::DOMAIN_MEMORY),
        _ => Err(format!("a domain is core or memory, not {text}")),
    }
}

fn order(board: &Board, order: Order) -> Result<Reply, String> {
    ask(board, Request::Power(order))
}

fn ask(board: &Board, request: Request) -> Result<Reply, String> {
    board.request(request);
    if board.settle() {
        Ok(Reply::Line("ok".into()))
    } else {
        Err("the board is busy; it will be done later".into())
    }
}

/// Carries out a line.
///
/// # Errors
///
/// It is no command, or one that cannot be.
pub fn command(board: &Board, line: &str) -> Result<Reply, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let config = board.front().config();
    let reply = match words[..] {
        [] | ["help"] => HELP.into(),
        ["hang", "queue", n] => {
            let id: u16 = number(n)?;
            if usize::from(id) >= regs::DOORBELLS {
                return Err(format!("there is no queue {id}"));
            }
            return ask(board, Request::Hang(Hang::Queue(id)));
        }
        ["hang", "engine", n] => {
            let engine: usize = number(n)?;
            if engine >= config.engines() {
                return Err(format!("there is no engine {engine}"));
            }
            return ask(board, Request::Hang(Hang::Engine(engine)));
        }
        ["hang", "device"] => return ask(board, Request::Hang(Hang::Device)),
        ["unhang"] => return ask(board, Request::Unhang),
        ["lose-irq", vector, count] => {
            let vector: usize = number(vector)?;
            if vector >= config.vectors() {
                return Err(format!("there is no vector {vector}"));
            }
            board.front().irq.lose(vector, number(count)?);
            "ok".into()
        }
        ["silence", on @ ("on" | "off")] => {
            board.front().set_silent(on == "on");
            return ask(board, Request::Silence(on == "on"));
        }
        ["violations"] => violations(board),
        ["clear-violations"] => {
            board.front().judge.clear();
            "ok".into()
        }
        ["time"] => format!("ok {}", board.front().time()),
        ["gate", how @ ("open" | "close")] => {
            let closed = how == "close";
            board.front().set(Reg::GATE, 0, closed.into());
            return ask(board, Request::Gate { closed });
        }
        ["slots"] => slots(board),
        ["stat"] => stat(board),
        ["power"] => power(board)?,
        ["ambient", mc] => return order(board, Order::Ambient(temperature(mc)?)),
        ["heat", mc] => return order(board, Order::Heat(temperature(mc)?)),
        ["power-brake", on @ ("on" | "off")] => return order(board, Order::Brake(on == "on")),
        ["fail-clock", d, n] => return order(board, Order::FailClock(domain(d)?, number(n)?)),
        ["fail-voltage", d, n] => return order(board, Order::FailVoltage(domain(d)?, number(n)?)),
        ["stall-clock", d] => return order(board, Order::StallClock(domain(d)?)),
        ["stall-voltage", d] => return order(board, Order::StallVoltage(domain(d)?)),
        ["quit"] => return Ok(Reply::Quit),
        _ => return Err("unknown command, try help".into()),
    };
    Ok(Reply::Line(reply))
}
