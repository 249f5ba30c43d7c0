// SPDX-License-Identifier: GPL-2.0
//! The trace events of QEMU, switched on for as long as something is counted.
//!
//! QEMU's monitor is at a port of the guest, and its log in a folder that the guest shares (see
//! tools/bench/run). An event of the trace costs QEMU a line in that log, so nothing is timed
//! while one is on. Reading the log over a virtio file system makes events as well: it is read
//! when they are off.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context;
use serde_json::json;
use serde_json::Value;

const PORT: &str = "/dev/virtio-ports/org.ochre.monitor";
/// A driver told the device how far it is: at each bind.
const STATUS: &str = "virtio_set_status";
/// A driver notified the device: one exit of the virtual machine.
const NOTIFY: &str = "virtio_queue_notify";

/// The monitor and the log.
#[derive(Debug)]
pub struct Trace {
    port: RefCell<BufReader<File>>,
    log: PathBuf,
    /// QEMU's name for the device.
    device: RefCell<Option<String>>,
}

impl Trace {
    /// Opens both; none where QEMU was started without.
    ///
    /// # Errors
    ///
    /// The monitor does not answer.
    pub fn open(log: &Path) -> anyhow::Result<Option<Self>> {
        let port = match File::options().read(true).write(true).open(PORT) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            port => port.context(PORT)?,
        };
        let trace = Self {
            port: RefCell::new(BufReader::new(port)),
            log: log.to_path_buf(),
            device: RefCell::new(None),
        };
        trace.ask(&json!({"execute": "qmp_capabilities"}))?;
        Ok(Some(trace))
    }

    /// Finds the device: it is the one that is bound by `bind`. A device that is not QEMU's own is
    /// not in its trace.
    ///
    /// # Errors
    ///
    /// Those of `bind`; the monitor does not answer.
    pub fn find_device<T>(&self, bind: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let (bound, lines) = self.watch(STATUS, bind)?;
        let last = lines
            .lines()
            .filter_map(|line| device_of(line, STATUS))
            .last();
        *self.device.borrow_mut() = last.map(str::to_string);
        Ok(bound)
    }

    /// Whether it shows the device that was bound last.
    pub fn shows_device(&self) -> bool {
        self.device.borrow().is_some()
    }

    /// Counts the notifications of the device while `work` runs.
    ///
    /// # Errors
    ///
    /// Those of `work`; the monitor does not answer.
    pub fn notifications<T>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, usize)> {
        let (done, lines) = self.watch(NOTIFY, work)?;
        let device = self.device.borrow();
        let device = device.as_deref();
        let ours = |line: &&str| device.is_some() && device_of(line, NOTIFY) == device;
        let count = lines.lines().filter(ours).count();
        Ok((done, count))
    }

    /// Does `work` with an event on; returns what was logged meanwhile.
    fn watch<T>(
        &self,
        event: &str,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, String)> {
        let mut log = File::open(&self.log).with_context(|| self.log.display().to_string())?;
        log.seek(SeekFrom::End(0))?;
        self.switch(event, true)?;
        let done = work();
        self.switch(event, false)?;
        let mut lines = String::new();
        log.read_to_string(&mut lines)?;
        Ok((done?, lines))
    }

    fn switch(&self, event: &str, on: bool) -> anyhow::Result<()> {
        self.ask(&json!({
            "execute": "trace-event-set-state",
            "arguments": {"name": event, "enable": on},
        }))
    }

    fn ask(&self, command: &Value) -> anyhow::Result<()> {
        let mut port = self.port.borrow_mut();
        let mut command = command.to_string();
        command.push('\n');
        port.get_mut().write_all(command.as_bytes())?;
        loop {
            let mut line = String::new();
            ensure!(port.read_line(&mut line)? > 0, "QEMU's monitor has gone");
            // Anything else is its greeting, or an event.
            let answer: Value = serde_json::from_str(&line).context("QEMU's monitor")?;
            if answer.get("return").is_some() {
                return Ok(());
            }
            if let Some(error) = answer.get("error") {
                bail!("QEMU's monitor: {error}");
            }
        }
    }
}

/// The device that a line of the log names, if it is one of `event`.
fn device_of<'l>(line: &'l str, event: &str) -> Option<&'l str> {
    let mut words = line.split_whitespace().skip_while(|word| *word != event);
    words.next()?;
    (words.next()? == "vdev").then(|| words.next())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_of_an_event_is_found() {
        let line = "virtio_queue_notify vdev 0x55aa2529bb30 n 0 vq 0x55aa252a5250";
        assert_eq!(device_of(line, NOTIFY), Some("0x55aa2529bb30"));
        assert_eq!(device_of(line, STATUS), None);
    }

    #[test]
    fn time_before_the_event_is_skipped() {
        let line = "4711@1.2:virtio_x virtio_set_status vdev 0x1 val 15";
        assert_eq!(device_of(line, STATUS), Some("0x1"));
    }

    #[test]
    fn half_a_line_names_no_device() {
        assert_eq!(device_of("virtio_queue_notify vdev", NOTIFY), None);
        assert_eq!(device_of("", NOTIFY), None);
    }
}
