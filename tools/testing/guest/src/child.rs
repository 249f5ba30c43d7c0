// SPDX-License-Identifier: GPL-2.0
//! Other processes.

use std::io;
use std::io::Write;
use std::panic;
use std::panic::AssertUnwindSafe;
use std::process;

use anyhow::bail;
use anyhow::Context;
use nix::sys::signal::kill;
use nix::sys::signal::Signal;
use nix::sys::wait::waitid;
use nix::sys::wait::waitpid;
use nix::sys::wait::Id;
use nix::sys::wait::WaitPidFlag;
use nix::sys::wait::WaitStatus;
use nix::unistd::fork;
use nix::unistd::setgid;
use nix::unistd::setgroups;
use nix::unistd::setuid;
use nix::unistd::ForkResult;
use nix::unistd::Gid;
use nix::unistd::Pid;
use nix::unistd::Uid;

use crate::harness::Outcome;

/// User and group without any privilege.
const NOBODY: u32 = 65534;

/// A process that runs a part of a test. It is killed when this is dropped.
#[derive(Debug)]
pub struct Child {
    pid: Option<Pid>,
}

/// Starts a process that runs `part`.
///
/// # Errors
///
/// No process.
pub fn spawn(part: impl FnOnce() -> Outcome) -> anyhow::Result<Child> {
    io::stdout().flush()?;
    // SAFETY: The programs have one thread when they start a process, so the copy may do anything.
    match unsafe { fork() }.context("fork")? {
        ForkResult::Parent { child } => Ok(Child { pid: Some(child) }),
        ForkResult::Child => {
            let status = match panic::catch_unwind(AssertUnwindSafe(part)) {
                Ok(Ok(())) => 0,
                Ok(Err(error)) => {
                    println!("# in the other process: {error:?}");
                    1
                }
                Err(_) => 1,
            };
            let _ = io::stdout().flush();
            process::exit(status)
        }
    }
}

/// Runs `part` in a process without privileges, and waits for it.
///
/// # Errors
///
/// No process, or the part failed.
pub fn as_nobody(part: impl FnOnce() -> Outcome) -> Outcome {
    spawn(|| {
        setgroups(&[])?;
        setgid(Gid::from_raw(NOBODY))?;
        setuid(Uid::from_raw(NOBODY))?;
        part()
    })?
    .wait()
}

impl Child {
    /// Process id.
    pub fn pid(&self) -> Pid {
        self.pid.unwrap_or(Pid::from_raw(0))
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// The part failed, or a signal ended it.
    pub fn wait(mut self) -> Outcome {
        match self.status()? {
            WaitStatus::Exited(_, 0) => Ok(()),
            status => bail!("the other process: {status:?}"),
        }
    }

    /// Waits for its end; returns how it came.
    ///
    /// # Errors
    ///
    /// It was waited for.
    pub fn end(mut self) -> anyhow::Result<WaitStatus> {
        self.status()
    }

    /// Waits for its end by a signal.
    ///
    /// # Errors
    ///
    /// It ended in another way.
    pub fn wait_for_signal(mut self, signal: Signal) -> Outcome {
        match self.status()? {
            WaitStatus::Signaled(_, got, _) if got == signal => Ok(()),
            status => bail!("the other process: {status:?} instead of {signal}"),
        }
    }

    /// Kills it, and waits until it is gone.
    ///
    /// # Errors
    ///
    /// It ended before.
    pub fn kill(self) -> Outcome {
        kill(self.pid(), Signal::SIGKILL)?;
        self.wait_for_signal(Signal::SIGKILL)
    }

    /// Whether it has ended. It is still to be waited for.
    ///
    /// # Errors
    ///
    /// It was waited for.
    pub fn has_ended(&self) -> anyhow::Result<bool> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let status = waitid(Id::Pid(self.pid()), flags)?;
        Ok(status != WaitStatus::StillAlive)
    }

    /// Leaves it alone: who calls this looks after it from now on.
    pub fn leave(mut self) -> Pid {
        self.pid.take().unwrap_or(Pid::from_raw(0))
    }

    fn status(&mut self) -> anyhow::Result<WaitStatus> {
        let pid = self.pid.take().context("it was waited for")?;
        Ok(waitpid(pid, None)?)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            // It may have ended.
            let _ = kill(pid, Signal::SIGKILL);
            let _ = self.status();
        }
    }
}
