// SPDX-License-Identifier: GPL-2.0
//! What the kernel says while a test runs.

use std::fs::File;
use std::io::ErrorKind;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::ensure;
use anyhow::Context;

/// Messages of the kernel from a moment on.
#[derive(Debug)]
pub struct Messages {
    log: File,
    lines: Vec<String>,
}

impl Messages {
    /// From now on.
    ///
    /// # Errors
    ///
    /// The kernel's log cannot be read.
    pub fn from_now() -> anyhow::Result<Self> {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let mut log = options.open("/dev/kmsg").context("/dev/kmsg")?;
        log.seek(SeekFrom::End(0))?;
        let lines = Vec::new();
        Ok(Self { log, lines })
    }

    /// All until now, without their prefixes.
    ///
    /// # Errors
    ///
    /// The kernel's log cannot be read.
    pub fn lines(&mut self) -> anyhow::Result<&[String]> {
        let mut record = [0; 8192];
        loop {
            match self.log.read(&mut record) {
                Ok(n) => {
                    let text = String::from_utf8_lossy(&record[..n]);
                    let (_, message) = text.split_once(';').unwrap_or_default();
                    let line = message.lines().next().unwrap_or_default();
                    self.lines.push(line.to_string());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(&self.lines),
                // Records that were overwritten before they were read.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Checks that one message holds each of `words`.
    ///
    /// # Errors
    ///
    /// None does.
    pub fn expect(&mut self, words: &[&str]) -> anyhow::Result<()> {
        let lines = self.lines()?;
        let fits = |line: &&String| words.iter().all(|word| line.contains(word));
        let found = lines.iter().any(|line| fits(&line));
        ensure!(found, "no message with {words:?} in {lines:#?}");
        Ok(())
    }
}
