// SPDX-License-Identifier: GPL-2.0
//! The control port of the board: questions, and faults on demand.
//!
//! One command per line, one line in reply. The port has one opener at a time, so it is opened for
//! each command.

use std::fs::File;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsFd;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context;
use nix::errno::Errno;
use nix::poll::poll;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::poll::PollTimeout;

use crate::bare::hw::mem;
use crate::harness::eventually;

const PORT: &str = "/dev/virtio-ports/org.ochre.board";
/// How long a reply may take, in ms.
const REPLY_MS: u16 = 20_000;

/// The board.
#[derive(Clone, Copy, Debug)]
pub struct Board;

/// A breach of the specification that the board counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// `VIOL_*`.
    pub code: u32,
    /// Name of the rule, as the board calls it.
    pub rule: String,
    /// What it was about.
    pub info: u64,
}

/// A hardware slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Index of the engine.
    pub engine: u32,
    /// Name of its state.
    pub state: String,
    /// The queue that it holds.
    pub queue: Option<u32>,
}

/// Takes back a fault when it is dropped, so that a test that fails leaves a board that works.
#[derive(Debug)]
pub struct Restore(&'static str);

impl Drop for Restore {
    fn drop(&mut self) {
        if let Err(error) = Board.ask(self.0) {
            println!("# {}: {error}", self.0);
        }
    }
}

/// A number in C's notation.
fn number(text: &str) -> anyhow::Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.with_context(|| format!("'{text}' is no number"))
}

impl Board {
    /// Gives a command; returns the reply behind `ok`.
    ///
    /// # Errors
    ///
    /// No port, no reply, or a reply that says `error`.
    pub fn ask(&self, command: &str) -> anyhow::Result<String> {
        let mut port = eventually("the control port is free", 20, || {
            match File::options().read(true).write(true).open(PORT) {
                Ok(port) => Ok(Some(port)),
                Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => Ok(None),
                Err(error) => Err(error).context(PORT),
            }
        })?;
        writeln!(port, "{command}")?;
        let mut reply = Vec::new();
        while reply.last() != Some(&b'\n') {
            let mut ready = [PollFd::new(port.as_fd(), PollFlags::POLLIN)];
            let events = poll(&mut ready, PollTimeout::from(REPLY_MS))?;
            ensure!(events > 0, "the board does not reply to '{command}'");
            let mut part = [0; 4096];
            let n = port.read(&mut part)?;
            ensure!(n > 0, "the board hung up on '{command}'");
            reply.extend_from_slice(&part[..n]);
        }
        let reply = String::from_utf8_lossy(&reply).trim_end().to_string();
        match reply.strip_prefix("ok") {
            Some(rest) => Ok(rest.trim_start().to_string()),
            None => bail!("'{command}': {reply}"),
        }
    }

    /// Gives a command that `undo` takes back.
    ///
    /// # Errors
    ///
    /// As [`Board::ask`].
    pub fn until_dropped(&self, command: &str, undo: &'static str) -> anyhow::Result<Restore> {
        self.ask(command)?;
        Ok(Restore(undo))
    }

    /// Makes every register read all ones.
    ///
    /// # Errors
    ///
    /// As [`Board::ask`].
    pub fn silence(&self) -> anyhow::Result<Restore> {
        self.until_dropped("silence on", "silence off")
    }

    /// Keeps queues from starting packets, so that everything that is queued meanwhile starts at
    /// the same board time.
    ///
    /// # Errors
    ///
    /// As [`Board::ask`].
    pub fn close_gate(&self) -> anyhow::Result<Restore> {
        self.until_dropped("gate close", "gate open")
    }

    /// Lets something hang: `queue N`, `engine N` or `device`.
    ///
    /// # Errors
    ///
    /// As [`Board::ask`].
    pub fn hang(&self, what: &str) -> anyhow::Result<Restore> {
        self.until_dropped(&format!("hang {what}"), "unhang")
    }

    /// Swallows the next `count` interrupts of a vector.
    ///
    /// # Errors
    ///
    /// As [`Board::ask`].
    pub fn lose_interrupts(&self, vector: u32, count: u32) -> anyhow::Result<()> {
        self.ask(&format!("lose-irq {vector} {count}")).map(drop)
    }

    /// Board time in ns.
    ///
    /// # Errors
    ///
    /// As [`Board::ask`].
    pub fn time(&self) -> anyhow::Result<u64> {
        number(&self.ask("time")?)
    }

    /// What has been counted, at most the latest 64.
    ///
    /// # Errors
    ///
    /// As [`Board::ask`].
    pub fn violations(&self) -> anyhow::Result<Vec<Violation>> {
        let reply = self.ask("violations")?;
        let entries = reply.split_whitespace().skip(1);
        entries
            .map(|entry| {
                let mut parts = entry.splitn(3, ':');
                let code = parts.next().unwrap_or_default();
                let rule = parts.next().unwrap_or_default().to_string();
                let info = parts.next().unwrap_or_default();
                Ok(Violation {
                    code: number(code)?.try_into()?,
                    rule,
                    info: number(info)?,
                })
            })
            .collect()
    }

    /// Forgets what a board counted that came back out of a silence in which its driver could only
    /// shut it off from memory: what it still had to do it tried, and did not reach.
    ///
    /// # Errors
    ///
    /// Something else was counted.
    pub fn forgive_cut_off(&self) -> anyhow::Result<()> {
        let others = |violation: &Violation| {
            !matches!(violation.code, mem::VIOL_BUS_MASTER | mem::VIOL_ADDRESS)
        };
        let wrong: Vec<_> = self.violations()?.into_iter().filter(others).collect();
        ensure!(wrong.is_empty(), "the board judges: {wrong:x?}");
        self.clear_violations()
    }

    /// Forgets what has been counted.
    ///
    /// # Errors
    ///
    /// As [`Board::ask`].
    pub fn clear_violations(&self) -> anyhow::Result<()> {
        self.ask("clear-violations").map(drop)
    }

    /// The hardware slots and what they hold.
    ///
    /// # Errors
    ///
    /// As [`Board::ask`].
    pub fn slots(&self) -> anyhow::Result<Vec<Slot>> {
        let reply = self.ask("slots")?;
        reply
            .split_whitespace()
            .map(|entry| {
                let (place, rest) = entry.split_once('=').context("a slot without a state")?;
                let (engine, _) = place.split_once('.').context("a slot without a number")?;
                let mut rest = rest.split(':');
                let state = rest.next().unwrap_or_default().to_string();
                let queue = rest.find_map(|part| part.strip_prefix("queue="));
                Ok(Slot {
                    engine: engine.parse()?,
                    state,
                    queue: queue.map(str::parse).transpose()?,
                })
            })
            .collect()
    }

    /// The queue id that a slot of `engine` in `state` holds, once there is one.
    ///
    /// # Errors
    ///
    /// There is none within 20 s.
    pub fn queue_in_state(&self, engine: u32, state: &str) -> anyhow::Result<u32> {
        let what = format!("a {state} queue on engine {engine}");
        eventually(&what, 20, || {
            let slots = self.slots()?;
            let fits = |slot: &&Slot| slot.engine == engine && slot.state == state;
            Ok(slots.iter().find(fits).and_then(|slot| slot.queue))
        })
    }
}
