// SPDX-License-Identifier: GPL-2.0
//! What an ioctl that fails could have left behind.

use std::fmt::Debug;
use std::fs;
use std::os::fd::AsFd;

use anyhow::ensure;
use nix::errno::Errno;
use nix::poll::poll;
use nix::poll::PollFd;
use nix::poll::PollFlags;

use super::abi;
use super::stream;
use super::Node;
use crate::board::Board;
use crate::harness::eventually;
use crate::harness::Outcome;
use crate::refuse::Case;

/// How long what is given back may take to arrive.
const SECONDS: u64 = 20;

/// Waits until the board has nothing of the tests before.
///
/// # Errors
///
/// It goes on having something.
pub fn base_line() -> Outcome {
    eventually("the board has nothing", SECONDS, || {
        let live = Board.ask("live")?;
        Ok((live == "resources=0 contexts=0 mappings=0 entries=0").then_some(()))
    })
}

/// What there is in the process and at the device: open descriptors; resources, contexts, mappings,
/// pieces of guest memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    descriptors: usize,
    live: String,
}

impl State {
    /// Waits until all that was sent before is executed, and looks then.
    fn read(watcher: &Node) -> anyhow::Result<Self> {
        let fence = watcher.submit_fenced(&stream::nop(1), &[])?;
        let mut fds = [PollFd::new(fence.as_fd(), PollFlags::POLLIN)];
        ensure!(poll(&mut fds, 20_000u16)? == 1, "the device stands still");
        drop(fence);
        Ok(Self {
            descriptors: fs::read_dir("/proc/self/fd")?.count(),
            live: Board.ask("live")?,
        })
    }
}

/// A state to come back to.
#[derive(Debug)]
pub struct Trace {
    watcher: Node,
    before: State,
}

impl Trace {
    /// The state of now. A file that has no context yet may not get one from then on.
    ///
    /// # Errors
    ///
    /// The device does not work.
    pub fn begin() -> anyhow::Result<Self> {
        let watcher = Node::open()?;
        let before = State::read(&watcher)?;
        Ok(Self { watcher, before })
    }

    /// Checks that the state is that one again.
    ///
    /// # Errors
    ///
    /// It is not: `what` left something.
    pub fn check(&self, what: &str) -> Outcome {
        let mut now = self.before.clone();
        let same = eventually("all is as before", SECONDS, || {
            now = State::read(&self.watcher)?;
            Ok((now == self.before).then_some(()))
        });
        ensure!(
            same.is_ok(),
            "{what} left something: {now:?} after {:?}",
            self.before
        );
        Ok(())
    }

    /// Checks that something failed with the right errno and left nothing.
    ///
    /// # Errors
    ///
    /// It did not.
    pub fn refused(&self, what: &str, got: Result<(), Errno>, errno: Errno) -> Outcome {
        ensure!(got == Err(errno), "{what}: {got:?} instead of {errno:?}");
        self.check(what)
    }
}

/// Checks that the ioctl refuses `good` once it is spoiled in each of these ways, with the right
/// errno, an untouched argument and nothing left, and that `good` itself is taken at the end. Returns
/// what the ioctl made of it.
///
/// # Errors
///
/// Names the cases that went wrong.
pub fn refuses<A>(node: &Node, good: A, cases: &[Case<'_, A>]) -> anyhow::Result<A>
where
    A: abi::Argument + Copy + Debug + PartialEq,
{
    let trace = Trace::begin()?;
    let mut wrong = Vec::new();
    for (what, spoil, errno) in cases {
        let mut argument = good;
        spoil(&mut argument);
        let given = argument;
        let got = node.call(&mut argument);
        if got != Err(*errno) {
            wrong.push(format!("{what}: {got:?} instead of {errno:?}"));
        }
        if got.is_err() {
            if argument != given {
                wrong.push(format!("{what}: {given:?} became {argument:?}"));
            }
            trace.check(what)?;
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut argument = good;
    let got = node.call(&mut argument);
    ensure!(got.is_ok(), "the good argument: {got:?}");
    Ok(argument)
}
