// SPDX-License-Identifier: GPL-2.0
//! The scheduler thread: steps the machine, and sleeps when there is nothing to step.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use crate::board::Board;
use crate::machine::Next;

/// How often hanging and waiting queues are looked at.
const LATER: Duration = Duration::from_micros(250);
/// Most wall time that one step lets pass: a stopped process does not wake up in the far future.
const ELAPSED_MAX: Duration = Duration::from_millis(100);

/// Board time against wall time, for boards that do not run ahead.
struct Pace {
    wall: Instant,
    board: u64,
}

impl Pace {
    fn since(board: u64) -> Self {
        Self {
            wall: Instant::now(),
            board,
        }
    }

    /// When the wall clock will be where the board is.
    fn due(&self, board: u64) -> Instant {
        self.wall + Duration::from_nanos(board.saturating_sub(self.board))
    }
}

/// Carries out requests until the wall clock is at `due`; false to end.
fn wait_for_wall(board: &Board, due: Instant) -> bool {
    while Instant::now() < due {
        if !board.front().inbox.wait(Some(due)) {
            return false;
        }
        board.machine().settle();
    }
    true
}

fn run(board: &Board) {
    let inbox = &board.front().inbox;
    let pace = board.front().config().pace;
    let mut pacer = Pace::since(0);
    // When the last step said `Later`.
    let mut waiting_since: Option<Instant> = None;
    loop {
        let now = Instant::now();
        let elapsed = waiting_since
            .map_or(Duration::ZERO, |since| now - since)
            .min(ELAPSED_MAX);
        let next = board.step(u64::try_from(elapsed.as_nanos()).unwrap_or(0));
        waiting_since = None;
        let go_on = match next {
            Next::Again if pace => wait_for_wall(board, pacer.due(board.front().time())),
            Next::Again => !inbox.stopped(),
            Next::Later => {
                waiting_since = Some(now);
                inbox.wait(Some(now + LATER))
            }
            Next::Rest => {
                let go_on = inbox.wait(None);
                pacer = Pace::since(board.front().time());
                go_on
            }
        };
        if !go_on {
            return;
        }
    }
}

/// The running thread; ends when dropped.
pub struct Scheduler {
    board: Arc<Board>,
    thread: Option<JoinHandle<()>>,
}

impl Scheduler {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The host has no thread left.
    pub fn start(board: Arc<Board>) -> std::io::Result<Self> {
        let its = board.clone();
        let name = "og1-scheduler".to_string();
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || run(&its))?;
        Ok(Self {
            board,
            thread: Some(thread),
        })
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.board.front().inbox.stop();
        if let Some(thread) = self.thread.take() {
            if thread.join().is_err() {
                log::error!("the scheduler thread panicked");
            }
        }
    }
}
