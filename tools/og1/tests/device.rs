// SPDX-License-Identifier: GPL-2.0
//! The board as a PCI function, as a program, and at its control socket.

mod common;

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use common::asm::*;
use common::space::*;
use common::*;
use ochre_vfio_user as vfu;
use og1::board::Board;
use og1::device;
use og1::device::PciBoard;
use og1::firmware;
use og1::hw::mem::*;
use og1::hw::regs as hw;
use og1::regs::Reg;
use vfu::index::region;
use vfu::Device;
use vfu::Server;

/// A function as the transport sees it, and the transport.
fn function() -> (PciBoard, Arc<Board>, Server) {
    let config = small();
    let vram = Arc::new(vfu::SharedMemory::new("vram", config.vram).unwrap());
    let server = Server::detached(device::device_info(&config, &vram)).unwrap();
    let (sink, messages) = device::sink(server.interrupts());
    let board = Arc::new(Board::new(config, vram, server.memory().clone(), sink).unwrap());
    let interrupts = server.interrupts().clone();
    let function = PciBoard::new(board.clone(), interrupts, messages, 7).unwrap();
    (function, board, server)
}

fn config_read(f: &PciBoard, at: u64) -> u32 {
    let mut data = [0; 4];
    f.region_read(region::CONFIG, at, &mut data).unwrap();
    u32::from_le_bytes(data)
}

fn config_write(f: &PciBoard, at: u64, value: u16) {
    f.region_write(region::CONFIG, at, &value.to_le_bytes())
        .unwrap();
}

/// Offset of a capability.
fn capability(f: &PciBoard, id: u8) -> u64 {
    let mut at = u64::from(config_read(f, 0x34) as u8);
    while at != 0 {
        let head = config_read(f, at);
        if head as u8 == id {
            return at;
        }
        at = u64::from((head >> 8) as u8);
    }
    panic!("no capability {id:#x}");
}

fn extended(f: &PciBoard, id: u16) -> u64 {
    let mut at = 0x100;
    while at != 0 {
        let head = config_read(f, at);
        if head as u16 == id {
            return at;
        }
        at = u64::from(head >> 20);
    }
    panic!("no extended capability {id:#x}");
}

fn reg(f: &PciBoard, reg: Reg) -> u32 {
    let mut data = [0; 4];
    f.region_read(region::BAR0, offset(reg, 0), &mut data)
        .unwrap();
    u32::from_le_bytes(data)
}

#[test]
fn configuration_space_is_that_of_the_specification() {
    let (f, _, _) = function();
    assert_eq!(config_read(&f, 0), 0x0c47_1234);
    assert_eq!(config_read(&f, 8) >> 8, 0x03_0200);
    for (bar, size, kind) in [(0, 16 << 20, 0), (2, 16 << 20, 0xc), (4, 16 << 10, 0)] {
        let at = 0x10 + bar * 4;
        f.region_write(region::CONFIG, at, &u32::MAX.to_le_bytes())
            .unwrap();
        let value = config_read(&f, at);
        assert_eq!(value & 0xf, kind);
        assert_eq!(!(value & !0xf) + 1, size, "BAR{bar}");
    }
    let msix = capability(&f, 0x11);
    assert_eq!(config_read(&f, msix) >> 16, 6 - 1, "vectors");
    assert_eq!(config_read(&f, msix + 4), 4);
    assert_eq!(config_read(&f, msix + 8), 0x2004);
    let express = capability(&f, 0x10);
    assert_ne!(config_read(&f, express + 4) & (1 << 28), 0, "FLR");
    capability(&f, 0x01);
    extended(&f, 0x0001);
    let serial = extended(&f, 0x0003);
    assert_eq!(config_read(&f, serial + 4), 7);
}

#[test]
fn bus_mastering_follows_the_command_register_and_an_flr_resets_everything() {
    let (f, board, _) = function();
    assert_eq!(reg(&f, Reg::STATUS), 0);
    config_write(&f, 4, 6);
    assert_eq!(reg(&f, Reg::STATUS), 1 << 2);
    let scratch = offset(Reg::SCRATCH, 0);
    f.region_write(region::BAR0, scratch, &5u32.to_le_bytes())
        .unwrap();
    assert_eq!(reg(&f, Reg::SCRATCH), 5);
    f.region_write(region::BAR2, 0x1000, &[1, 2, 3]).unwrap();
    let express = capability(&f, 0x10);
    config_write(&f, express + 8, 1 << 15);
    assert_eq!(reg(&f, Reg::STATUS), 0);
    assert_eq!(reg(&f, Reg::SCRATCH), 0);
    assert_eq!(reg(&f, Reg::RESET_COUNT), 1);
    assert_eq!(config_read(&f, 4) & 6, 0);
    let mut data = [0; 3];
    f.region_read(region::BAR2, 0x1000, &mut data).unwrap();
    assert_eq!(data, [1, 2, 3], "VRAM is kept");
    f.reset().unwrap();
    assert_eq!(reg(&f, Reg::RESET_COUNT), 2);
    assert_eq!(board.front().judge.count(), 0);
}

/// Registers answer at once while an engine executes a kernel that never ends.
#[test]
fn register_accesses_do_not_wait_for_a_busy_engine() {
    let mut bench = Bench::new();
    let space = Space::new(&mut bench, 1);
    let pa = bench.alloc(4096);
    bench.poke_bytes(pa, &code(&[spin()]));
    space.map_4k(&mut bench, 0x1000, pa, PTE_READ | PTE_EXEC);
    let mut q = bench.queue(0);
    bench.push(&mut q, &dispatch(0x1000, 0, [1, 1, 1], [64, 1, 1], 0));
    let scheduler = og1::sched::Scheduler::start(bench.board.clone()).unwrap();
    while bench.time() < 50_000 {
        std::thread::yield_now();
    }
    let start = Instant::now();
    for _ in 0..1000 {
        bench.time();
        bench.read(Reg::IRQ_STATUS, 0);
        bench.write(Reg::IRQ_STATUS, 0, 1);
        bench.ring(3);
        bench.write(Reg::TLB_INVALIDATE, 0, TLB_ALL);
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "5000 accesses took {took:?}");
    // What has to show an effect waits, but not long.
    let start = Instant::now();
    bench.write(Reg::ENG_RESET, 0, 1);
    assert_eq!(bench.slot_state(&q), hw::SLOT_EMPTY);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "the reset took {took:?}");
    drop(scheduler);
    bench.assert_clean();
}

/// The program with its control socket; killed when dropped.
struct Program {
    child: Child,
    control: BufReader<UnixStream>,
    folder: tempfile::TempDir,
}

impl Program {
    fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (socket, control) = (folder.path().join("socket"), folder.path().join("control"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_og1"))
            .arg("run")
            .args(["--vram", "16M", "--socket"])
            .arg(&socket)
            .arg("--control")
            .arg(&control)
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, format!("og1: listening on {}\n", socket.display()));
        let control = BufReader::new(UnixStream::connect(control).unwrap());
        Self {
            child,
            control,
            folder,
        }
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.control.get_ref(), "{command}").unwrap();
        let mut line = String::new();
        self.control.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }

    /// Clock ticks of processor time that the program has used.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let after = stat.rsplit(')').next().unwrap();
        let fields: Vec<&str> = after.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_control_socket_answers_each_command_with_one_line() {
    let mut p = Program::start(&["--copy", "1"]);
    let table = [
        ("time", "ok 0"),
        ("violations", "ok 0"),
        ("clear-violations", "ok"),
        ("hang queue 3", "ok"),
        ("hang queue 128", "error there is no queue 128"),
        ("hang engine 2", "ok"),
        ("hang engine 3", "error there is no engine 3"),
        ("hang device", "ok"),
        ("unhang", "ok"),
        ("lose-irq 4 2", "ok"),
        ("lose-irq 5 2", "error there is no vector 5"),
        ("lose-irq x 2", "error not a number: x"),
        ("silence on", "ok"),
        ("silence off", "ok"),
        ("gate close", "ok"),
        ("gate open", "ok"),
        (
            "slots",
            "ok 0.0=empty 0.1=empty 1.0=empty 1.1=empty 2.0=empty 2.1=empty",
        ),
        ("ambient 25000", "ok"),
        ("ambient 200001", "error 200001 m°C: from -40000 to 200000"),
        ("heat -5000", "ok"),
        ("heat x", "error not a temperature in m°C: x"),
        ("power-brake on", "ok"),
        ("power-brake off", "ok"),
        ("fail-clock core 2", "ok"),
        ("fail-voltage memory 1", "ok"),
        ("fail-clock 0 1", "error a domain is core or memory, not 0"),
        ("stall-clock memory", "ok"),
        ("stall-voltage core", "ok"),
        ("what", "error unknown command, try help"),
    ];
    for (command, reply) in table {
        assert_eq!(p.ask(command), reply, "{command}");
    }
    assert!(p.ask("help").starts_with("ok commands: "));
    assert!(p.ask("stat").starts_with("ok time=0 interrupts=0 "));
    let power = p.ask("power");
    let power: serde_json::Value =
        serde_json::from_str(power.strip_prefix("ok ").unwrap()).unwrap();
    assert_eq!(power["temp_mc"], -5000);
    assert_eq!(power["ambient_mc"], 25_000);
    assert_eq!(power["domains"][1]["clock"]["now"], 100_000);
    assert_eq!(power["gates"], serde_json::json!(["on", "on", "on"]));
    // A second client at the same time.
    let path = p.folder.path().join("control");
    let mut second = BufReader::new(UnixStream::connect(path).unwrap());
    writeln!(second.get_ref(), "time").unwrap();
    let mut line = String::new();
    second.read_line(&mut line).unwrap();
    assert_eq!(line, "ok 0\n");
    assert_eq!(p.ask("quit"), "ok");
    assert!(p.child.wait().unwrap().success());
    assert!(!p.folder.path().join("socket").exists());
}

#[test]
fn an_idle_board_uses_no_processor_time() {
    let p = Program::start(&[]);
    let before = p.ticks();
    std::thread::sleep(Duration::from_millis(500));
    assert!(p.ticks() - before <= 1);
}

#[test]
fn the_firmware_command_writes_an_image_that_the_board_takes() {
    let folder = tempfile::tempdir().unwrap();
    let write = |options: &[&str]| {
        let file = folder.path().join("og1.bin");
        let status = Command::new(env!("CARGO_BIN_EXE_og1"))
            .args(["firmware", "--out"])
            .arg(&file)
            .args(options)
            .status()
            .unwrap();
        assert!(status.success());
        std::fs::read(file).unwrap()
    };
    let image = firmware::parse(&write(&["--version", "2.5"])).unwrap();
    assert_eq!(
        (image.version, image.name.as_str()),
        ((2 << 16) | 5, firmware::BOARD_NAME)
    );
    assert_eq!(
        firmware::parse(&write(&["--damage", "magic"])),
        Err(FW_ERR_MAGIC)
    );
    assert_eq!(
        firmware::parse(&write(&["--damage", "contents"])),
        Err(FW_ERR_CONTENTS)
    );
}

#[test]
fn boards_that_can_not_be_are_refused_with_the_reason() {
    let cases: [(&[&str], &str); 8] = [
        (&["--vram", "3M"], "multiple of 2 MiB"),
        (&["--vram", "0"], "multiple of 2 MiB"),
        (&["--aperture", "3M"], "power of two"),
        (&["--aperture", "1G"], "power of two"),
        (&["--compute", "0", "--copy", "0"], "0 engines"),
        (&["--slots", "5"], "5 slots"),
        (&["--vram", "12X"], "invalid value"),
        (&["--ambient", "-50000"], "air of -50000"),
    ];
    for (options, reason) in cases {
        let out = Command::new(env!("CARGO_BIN_EXE_og1"))
            .args(["run", "--socket", "/nonexistent/socket"])
            .args(options)
            .output()
            .unwrap();
        assert!(!out.status.success());
        let text = String::from_utf8_lossy(&out.stderr);
        assert!(text.contains(reason), "{options:?}: {text}");
    }
}
