// SPDX-License-Identifier: GPL-2.0
//! Defects of the C driver: whether they show, and tools to see them.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context;
use nix::sys::signal::kill;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::sys::wait::WaitPidFlag;
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;

use super::Driver;
use super::Function;
use crate::board::Board;
use crate::child;
use crate::child::Child;
use crate::harness::eventually;
use crate::harness::Outcome;

/// Whether a defect showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Defect {
    /// It did, and how.
    Shown(String),
    /// It did not.
    Absent,
}

impl Defect {
    /// Shown if `shown`, with what was seen.
    pub fn if_so(shown: bool, seen: impl Into<String>) -> Self {
        if shown {
            Self::Shown(seen.into())
        } else {
            Self::Absent
        }
    }
}

/// Ends a test of a defect: it has to show on the C driver, and must not on Ochre.
///
/// On the C driver, what the kernel and the board complained of is part of the demonstration and is
/// cleared.
///
/// # Errors
///
/// It is the other way round.
pub fn verdict(function: &Function, defect: Defect) -> Outcome {
    match &defect {
        Defect::Shown(seen) => println!("# defect shown: {seen}"),
        Defect::Absent => println!("# defect absent"),
    }
    match function.driver() {
        Driver::Ochre => ensure!(defect == Defect::Absent, "the defect shows"),
        Driver::C => {
            let complaints = Board.ask("violations")?;
            if complaints != "0" {
                println!("# the board judges: {complaints}");
                Board.clear_violations()?;
            }
            forgive_kernel()?;
            ensure!(defect != Defect::Absent, "the defect does not show on C");
        }
    }
    Ok(())
}

/// Prints what the kernel warned of, and clears its log, which the runner looks at.
fn forgive_kernel() -> Outcome {
    /// Reads and clears (`SYSLOG_ACTION_READ_CLEAR`).
    const READ_CLEAR: libc::c_int = 4;
    let mut log = vec![0u8; 1 << 20];
    let room = libc::c_int::try_from(log.len())?;
    // SAFETY: The buffer is that long.
    let n = unsafe { libc::klogctl(READ_CLEAR, log.as_mut_ptr().cast(), room) };
    let n = usize::try_from(n).ok().context("klogctl")?;
    let text = String::from_utf8_lossy(&log[..n]);
    let complaint = |line: &&str| {
        let signs = ["WARNING:", "BUG:", "refcount_t", "INFO: task", "Oops"];
        signs.iter().any(|sign| line.contains(sign))
    };
    for line in text.lines().filter(complaint).take(4) {
        println!("# the kernel: {}", line.trim());
    }
    Ok(())
}

/// Starts a process that may never end, and so keeps nothing of this one but what `part` has.
///
/// # Errors
///
/// No process.
fn detached(part: impl FnOnce() -> Outcome) -> anyhow::Result<Child> {
    child::spawn(|| {
        let null = fs::File::options().write(true).open("/dev/null")?;
        for fd in [1, 2] {
            // SAFETY: Replaces this process' own output, which nothing holds on to.
            let status = unsafe { libc::dup2(null.as_raw_fd(), fd) };
            ensure!(status == fd, "dup2: {}", io::Error::last_os_error());
        }
        part()
    })
}

/// The letter of a process' state.
fn state(pid: Pid) -> anyhow::Result<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(") ").context("stat")?;
    Ok(fields.chars().next().unwrap_or('?'))
}

/// Starts a process that runs `part` until it sleeps in the kernel; `None` if it ends instead.
///
/// # Errors
///
/// No process, or it does neither within a minute.
pub fn blocked(part: impl FnOnce() -> Outcome) -> anyhow::Result<Option<Child>> {
    /// Looks in a row at which it has to be asleep. One that goes on never is at so many; one that
    /// waits may wake up now and then, to look, so that more could take very long.
    const LOOKS: u32 = 20;
    let child = detached(part)?;
    let pid = child.pid();
    let mut asleep = 0;
    let sleeps = eventually("the process sleeps", 60, || {
        Ok(match state(pid)? {
            'Z' | 'X' => Some(false),
            'S' | 'D' => {
                asleep += 1;
                (asleep >= LOOKS).then_some(true)
            }
            _ => {
                asleep = 0;
                None
            }
        })
    });
    match sleeps {
        Ok(sleeps) => Ok(sleeps.then_some(child)),
        Err(error) => {
            // To wait for its end could take for ever.
            child.leave();
            Err(error)
        }
    }
}

/// Whether SIGKILL ends a process within this time. One that it does not end is left alone.
///
/// # Errors
///
/// The process cannot be killed, or not be waited for.
pub fn dies(child: Child, within: Duration) -> anyhow::Result<bool> {
    let pid = child.leave();
    kill(pid, Signal::SIGKILL)?;
    let end = Instant::now() + within;
    loop {
        match waitpid(pid, Some(WaitPidFlag::WNOHANG))? {
            WaitStatus::StillAlive if Instant::now() > end => return Ok(false),
            WaitStatus::StillAlive => thread::sleep(Duration::from_millis(5)),
            _ => return Ok(true),
        }
    }
}
