// SPDX-License-Identifier: GPL-2.0
//! The real client: stock QEMU with `vfio-user-pci`, driven over its qtest protocol, which reads and
//! writes guest memory, MMIO and ports without any guest software.
//!
//! Needs `qemu-system-x86_64` 11.1 or later (`QEMU=…` names another one):
//! `cargo test --test qemu -- --ignored`.

#[path = "../examples/edu.rs"]
#[allow(dead_code, unreachable_pub)]
mod edu;

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::process::Child;
use std::process::ChildStdin;
use std::process::ChildStdout;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

const SLOT: u32 = 0x10;
const BAR0: u64 = 0xe000_0000;
const BAR2: u64 = 0xe100_0000;
const BAR4: u64 = 0xe200_0000;
/// How long an asynchronous effect may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A QEMU under test; killed when the test fails before its end.
struct Qemu {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Qemu {
    fn start(socket: &str) -> Self {
        let qemu = std::env::var("QEMU").unwrap_or_else(|_| "qemu-system-x86_64".into());
        let device = format!(
            r#"{{"driver":"vfio-user-pci","addr":"{SLOT:#x}","socket":{{"type":"unix","path":"{socket}"}}}}"#
        );
        let mut child = Command::new(qemu)
            .args([
                "-machine",
                "q35,memory-backend=mem",
                "-accel",
                "qtest",
                "-m",
                "64M",
            ])
            .args(["-object", "memory-backend-memfd,id=mem,size=64M,share=on"])
            .args([
                "-nodefaults",
                "-display",
                "none",
                "-qtest",
                "stdio",
                "-qtest-log",
                "none",
            ])
            .args(["-device", &device])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("QEMU does not start");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            input,
            output,
        }
    }

    /// Sends a qtest command and returns the value that it answers, if any.
    fn command(&mut self, command: &str) -> u64 {
        writeln!(self.input.as_mut().unwrap(), "{command}").unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(
                self.output.read_line(&mut line).unwrap(),
                0,
                "QEMU has gone"
            );
            if let Some(value) = line.strip_prefix("OK") {
                let value = value.trim().trim_start_matches("0x");
                return u64::from_str_radix(value, 16).unwrap_or(0);
            }
            assert!(line.starts_with("IRQ"), "{command}: {line}");
        }
    }

    fn read(&mut self, address: u64) -> u32 {
        self.command(&format!("readl {address:#x}")) as u32
    }

    fn write(&mut self, address: u64, value: u32) {
        self.command(&format!("writel {address:#x} {value:#x}"));
    }

    fn select(&mut self, register: u32) {
        let address = 0x8000_0000 | (SLOT << 11) | register & 0xfc;
        self.command(&format!("outl 0xcf8 {address:#x}"));
    }

    fn config(&mut self, register: u32) -> u32 {
        self.select(register);
        self.command("inl 0xcfc") as u32
    }

    fn set_config(&mut self, register: u32, value: u32) {
        self.select(register);
        self.command(&format!("outl 0xcfc {value:#x}"));
    }

    fn capability(&mut self, id: u32) -> u32 {
        let mut at = self.config(0x34) & 0xff;
        while at != 0 {
            let header = self.config(at);
            if header & 0xff == id {
                return at;
            }
            at = (header >> 8) & 0xff;
        }
        panic!("no capability {id:#x}");
    }

    fn wait_for(&mut self, address: u64, expected: u32) {
        let start = Instant::now();
        while self.read(address) != expected {
            assert!(
                start.elapsed() < PATIENCE,
                "{address:#x} never became {expected:#x}"
            );
        }
    }

    /// Ends QEMU, as a crash would.
    fn finish(mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

#[test]
#[ignore = "needs QEMU 11.1 with vfio-user-pci"]
fn stock_qemu_drives_the_example_device() {
    let folder = std::env::temp_dir().join(format!("vfio-user-qemu-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("edu.sock").to_str().unwrap().to_owned();
    let board = edu::listen(&socket).unwrap();
    let server = thread::spawn(move || board.serve());
    let mut qemu = Qemu::start(&socket);

    // Identity, and BARs that tell their sizes and take addresses.
    assert_eq!(qemu.config(0), 0x11e8_1234);
    for (register, size, address) in [
        (0x10, 0x1000u32, BAR0),
        (0x18, 0x1_0000, BAR2),
        (0x20, 0x2000, BAR4),
    ] {
        qemu.set_config(register, !0);
        assert_eq!(qemu.config(register) & !0xf, size.wrapping_neg());
        qemu.set_config(register, address as u32);
    }
    qemu.set_config(0x1c, 0);
    qemu.set_config(0x04, 0x6);

    // Trapped registers.
    assert_eq!(qemu.read(BAR0), 0x0100_00ed);
    qemu.write(BAR0 + 4, 0x1234_5678);
    assert_eq!(qemu.read(BAR0 + 4), !0x1234_5678);

    // DMA, both ways, with the BAR mapped by QEMU; the pattern is not aligned to anything.
    for i in 0..16u32 {
        qemu.write(0x10_0001 + 4 * u64::from(i), 0x1000_0000 + i);
    }
    let dma = |qemu: &mut Qemu, command: u32, address: u64, offset: u32, len: u32| {
        qemu.write(BAR0 + 0x10, address as u32);
        qemu.write(BAR0 + 0x14, (address >> 32) as u32);
        qemu.write(BAR0 + 0x18, offset);
        qemu.write(BAR0 + 0x1c, len);
        qemu.write(BAR0 + 0x20, command);
        qemu.read(BAR0 + 0x20)
    };
    assert_eq!(dma(&mut qemu, 1, 0x10_0001, 0x20, 64), 0);
    assert_eq!(qemu.read(BAR2 + 0x20 + 4 * 15), 0x1000_000f);
    qemu.write(BAR2 + 0x24, 0xfeed_beef);
    assert_eq!(dma(&mut qemu, 2, 0x20_0000, 0x20, 64), 0);
    assert_eq!(qemu.read(0x20_0000), 0x1000_0000);
    assert_eq!(qemu.read(0x20_0004), 0xfeed_beef);
    assert_eq!(
        dma(&mut qemu, 2, 0x7000_0000_0000, 0, 64),
        !0,
        "nothing is mapped there"
    );

    // MSI-X: the message is a write to memory.
    let msix = qemu.capability(0x11);
    for vector in 0..4u32 {
        let entry = BAR4 + 16 * u64::from(vector);
        qemu.write(entry, 0x30_0000 + 4 * vector);
        qemu.write(entry + 4, 0);
        qemu.write(entry + 8, 0xabc0 + vector);
        qemu.write(entry + 12, 0);
    }
    let control = qemu.config(msix);
    qemu.set_config(msix, control | 0x8000_0000);
    for vector in [2, 0, 3, 1] {
        qemu.write(BAR0 + 8, vector);
        qemu.wait_for(0x30_0000 + 4 * u64::from(vector), 0xabc0 + vector);
    }

    // Function-level reset.
    let express = qemu.capability(0x10);
    assert_eq!((qemu.config(express + 4) >> 28) & 1, 1, "FLR is offered");
    let control = qemu.config(express + 8);
    qemu.set_config(express + 8, control | 0x8000);
    qemu.set_config(0x04, 0x6);
    assert_eq!(qemu.read(BAR0 + 4), !0, "the register has its reset value");

    qemu.finish();
    server.join().unwrap().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}
