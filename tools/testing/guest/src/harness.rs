// SPDX-License-Identifier: GPL-2.0
//! Running tests and printing what became of them, as tools/vm/guest/run-tests reads it.

use std::env;
use std::io;
use std::io::Write;
use std::panic;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use nix::errno::Errno;

/// What a test returns; it may also panic.
pub type Outcome = anyhow::Result<()>;

/// A test: its name and what it does.
pub type Test<'a> = (&'a str, fn() -> Outcome);

/// How often a state is looked at that no event announces.
const LOOK: Duration = Duration::from_millis(2);

/// Makes the program of the tests that are named: functions without arguments.
#[macro_export]
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        fn main() -> ::std::process::ExitCode {
            $crate::run(&[$((stringify!($test), $test as fn() -> $crate::Outcome)),+])
        }
    };
}

/// Prints a line for a person who looks for the cause.
fn note(text: &str) {
    for line in text.lines() {
        println!("# {line}");
    }
}

/// Runs the tests in their order, or those whose name holds the program's first argument.
pub fn run(tests: &[Test<'_>]) -> ExitCode {
    let filter = env::args().nth(1).unwrap_or_default();
    panic::set_hook(Box::new(|panic| note(&panic.to_string())));
    let mut failed = false;
    let chosen = tests.iter().filter(|(name, _)| name.contains(&filter));
    for (number, (name, test)) in (1..).zip(chosen) {
        let sentence = name.replace('_', " ");
        let verdict = match panic::catch_unwind(AssertUnwindSafe(test)) {
            Ok(Ok(())) => "ok",
            Ok(Err(error)) => {
                note(&format!("{error:?}"));
                "not ok"
            }
            Err(_) => "not ok",
        };
        failed |= verdict != "ok";
        println!("{verdict} {number} - {sentence}");
        // A test may take down the guest; what is known by then should be seen.
        let _ = io::stdout().flush();
    }
    ExitCode::from(u8::from(failed))
}

/// The errno of a result that failed.
pub fn errno<T>(result: io::Result<T>) -> Option<Errno> {
    let error = result.err()?;
    Some(Errno::from_raw(error.raw_os_error().unwrap_or(0)))
}

/// Looks until `look` finds something, for at most `seconds`.
///
/// # Errors
///
/// It did not; `what` says what was expected.
pub fn eventually<T>(
    what: &str,
    seconds: u64,
    mut look: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        anyhow::ensure!(Instant::now() < end, "not within {seconds} s: {what}");
        thread::sleep(LOOK);
    }
}
