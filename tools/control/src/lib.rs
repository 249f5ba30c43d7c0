// SPDX-License-Identifier: GPL-2.0
//! The control socket of a board: one command per line, one line in reply: `ok …` or `error …`.
//!
//! Any number of clients, one thread each. What the commands are is the board's business: it gives a
//! function from a line to a [`Reply`]. A line has at most [`LINE_MAX`] bytes, so a client cannot make
//! the board keep more than that of it.
#![forbid(unsafe_code)]

use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;

/// Longest line that is read.
pub const LINE_MAX: u64 = 4096;

/// What a command does: a reply, or the end of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// This line, which begins with `ok`.
    Line(String),
    /// The reply `ok`, and then the end of the program.
    Quit,
}

/// Carries out a command. An `Err` is sent as `error …`.
pub trait Commands: Fn(&str) -> Result<Reply, String> + Clone + Send + 'static {}

impl<F: Fn(&str) -> Result<Reply, String> + Clone + Send + 'static> Commands for F {}

/// A number in decimal, or in hexadecimal with the prefix `0x`.
///
/// # Errors
///
/// The word is none, or does not fit.
pub fn number<T: TryFrom<u64>>(word: &str) -> Result<T, String> {
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed
        .ok()
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("not a number: {word}"))
}

/// Serves one client until it leaves; true if it asked for the end of the program.
fn serve(commands: &impl Commands, stream: UnixStream) -> io::Result<bool> {
    let mut output = stream.try_clone()?;
    let mut input = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let n = (&mut input).take(LINE_MAX).read_until(b'\n', &mut line)?;
        if n == 0 {
            return Ok(false);
        }
        let reply = match commands(&String::from_utf8_lossy(&line)) {
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
#[derive(Debug)]
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
        path: &Path,
        commands: impl Commands,
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
                let (commands, quit) = (commands.clone(), quit.clone());
                let client = move || match serve(&commands, stream) {
                    Ok(true) => quit(),
                    Ok(false) => {}
                    Err(error) => log::debug!("control client: {error}"),
                };
                let thread = std::thread::Builder::new()
                    .name("control-client".into())
                    .spawn(client);
                if let Err(error) = thread {
                    log::warn!("control client: {error}");
                }
            }
        };
        std::thread::Builder::new()
            .name("control".into())
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
