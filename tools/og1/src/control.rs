// SPDX-License-Identifier: GPL-2.0
//! The control socket: faults on demand, and questions that a guest cannot ask.
//!
//! One command per line, one line in reply: `ok …` or `error …`. Any number of clients, one thread
//! each; they use the board as its other users do.

use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use crate::board::Board;
use crate::hw::regs;
use crate::regs::fields;
use crate::regs::Reg;
use crate::request::Hang;
use crate::request::Request;

/// Longest line that is read.
const LINE_MAX: u64 = 4096;

const HELP: &str = "ok commands: hang queue N | hang engine N | hang device | unhang | \
    lose-irq VECTOR COUNT | silence on|off | violations | clear-violations | time | \
    gate open|close | slots | stat | help | quit";

/// What a command does: a reply, or the end of the program.
enum Reply {
    Line(String),
    Quit,
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("not a number: {word}"))
}

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

fn ask(board: &Board, request: Request) -> Result<Reply, String> {
    board.request(request);
    if board.settle() {
        Ok(Reply::Line("ok".into()))
    } else {
        Err("the board is busy; it will be done later".into())
    }
}

fn command(board: &Board, line: &str) -> Result<Reply, String> {
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
            let engine = number(n)?;
            if engine >= config.engines() {
                return Err(format!("there is no engine {engine}"));
            }
            return ask(board, Request::Hang(Hang::Engine(engine)));
        }
        ["hang", "device"] => return ask(board, Request::Hang(Hang::Device)),
        ["unhang"] => return ask(board, Request::Unhang),
        ["lose-irq", vector, count] => {
            let vector = number(vector)?;
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
        ["quit"] => return Ok(Reply::Quit),
        _ => return Err("unknown command, try help".into()),
    };
    Ok(Reply::Line(reply))
}

/// Serves one client until it leaves; true if it asked for the end of the program.
fn serve(board: &Board, stream: UnixStream) -> io::Result<bool> {
    let mut output = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let n = (&mut input).take(LINE_MAX).read_until(b'\n', &mut line)?;
        if n == 0 {
            return Ok(false);
        }
        let reply = match command(board, &String::from_utf8_lossy(&line)) {
            Ok(Reply::Line(reply)) => reply,
            Ok(Reply::Quit) => {
                writeln!(output, "ok")?;
                return Ok(true);
            }
            Err(error) => format!("error {error}"),
        };
        writeln!(output, "{reply}")?;
    }
}

/// The listening socket; its file goes when this is dropped.
pub struct Control {
    path: PathBuf,
}

impl Control {
    /// Listens at `path` for the life of the program; `quit` is called when a client asks for the end.
    ///
    /// # Errors
    ///
    /// The socket cannot be made, or no thread.
    pub fn start(
        board: Arc<Board>,
        path: &Path,
        quit: impl Fn() + Clone + Send + 'static,
    ) -> io::Result<Self> {
        // A file that nobody listens at is left from a program that died.
        if UnixStream::connect(path).is_err() {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let listener = UnixListener::bind(path)?;
        let accept = move || {
            for stream in listener.incoming() {
                let stream = match stream {
                    Ok(stream) => stream,
                    Err(error) => {
                        log::warn!("control socket: {error}");
                        return;
                    }
                };
                let (board, quit) = (board.clone(), quit.clone());
                let client = move || match serve(&board, stream) {
                    Ok(true) => quit(),
                    Ok(false) => {}
                    Err(error) => log::debug!("control client: {error}"),
                };
                let thread = std::thread::Builder::new()
                    .name("og1-client".into())
                    .spawn(client);
                if let Err(error) = thread {
                    log::warn!("control client: {error}");
                }
            }
        };
        std::thread::Builder::new()
            .name("og1-control".into())
            .spawn(accept)?;
        Ok(Self { path: path.into() })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            log::debug!("{}: {error}", self.path.display());
        }
    }
}
