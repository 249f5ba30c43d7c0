// SPDX-License-Identifier: GPL-2.0
//! The program og1: runs a board for QEMU, or writes its firmware image.

use std::fs::File;
use std::io::BufWriter;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use anyhow::Context;
use clap::Args;
use clap::CommandFactory;
use clap::Parser;
use clap::Subcommand;
use ochre_control::Control;
use ochre_vfio_user as vfu;
use og1::board::Board;
use og1::config::Config;
use og1::control;
use og1::device;
use og1::device::PciBoard;
use og1::firmware;
use og1::firmware::Damage;
use og1::sched::Scheduler;
use vfu::Serve;
use vfu::Server;

/// The reference GPU og1 as a program.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a board behind a vfio-user socket, for QEMU's vfio-user-pci.
    Run(Run),
    /// Writes the firmware image that the driver loads into the board.
    Firmware(Firmware),
    /// Writes a completion script for a shell.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[derive(Args)]
struct Run {
    /// Path of the vfio-user socket.
    #[arg(long)]
    socket: PathBuf,
    /// Path of the control socket.
    #[arg(long)]
    control: Option<PathBuf>,
    /// Size of VRAM.
    #[arg(long, default_value = "256M", value_parser = size)]
    vram: u64,
    /// Size of the aperture (BAR2): a power of two, at most VRAM. Default: as large as fits.
    #[arg(long, value_parser = size)]
    aperture: Option<u64>,
    /// Number of compute engines.
    #[arg(long, default_value_t = 2)]
    compute: usize,
    /// Number of copy engines.
    #[arg(long, default_value_t = 2)]
    copy: usize,
    /// Hardware slots of each engine.
    #[arg(long, default_value_t = 2)]
    slots: usize,
    /// Instructions that a compute engine executes per clock.
    #[arg(long, default_value_t = 32)]
    lanes: u32,
    /// Board time never runs ahead of the wall clock.
    #[arg(long)]
    pace: bool,
    /// Size of BAR0, to test drivers with one that is too small.
    #[arg(long, default_value = "16M", value_parser = size)]
    bar0_size: u64,
    /// A silent board comes back with the next reset, not only by the control socket.
    #[arg(long)]
    silence_until_reset: bool,
    /// Temperature of the air, and of the die at power-on, in thousandths of a degree Celsius.
    #[arg(long, default_value_t = 30_000, allow_negative_numbers = true)]
    ambient: i32,
    /// Serial number of the board. Default: from the path of the socket.
    #[arg(long)]
    serial: Option<u64>,
    /// Write what happened, in board time, to this file when the program ends.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// End when the first client leaves.
    #[arg(long)]
    once: bool,
    /// What to log: error, warn, info, debug or trace.
    #[arg(long, default_value_t = log::LevelFilter::Warn)]
    log: log::LevelFilter,
}

#[derive(Args)]
struct Firmware {
    /// File to write.
    #[arg(long)]
    out: PathBuf,
    /// Version of the image.
    #[arg(long, default_value = "1.0", value_parser = version)]
    version: u32,
    /// Spoil the image so that the board refuses it.
    #[arg(long)]
    damage: Option<Damage>,
}

/// A size in bytes, with a suffix K, M or G.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G', 'k', 'm', 'g']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        _ => return Err("one of K, M, G may follow the number".into()),
    };
    let n: u64 = digits.parse().map_err(|_| "not a size".to_string())?;
    n.checked_mul(1 << shift).ok_or_else(|| "too large".into())
}

/// A version, MAJOR.MINOR.
fn version(text: &str) -> Result<u32, String> {
    let (major, minor) = text.split_once('.').ok_or("MAJOR.MINOR is wanted")?;
    let part = |text: &str| {
        text.parse::<u16>()
            .map_err(|_| format!("not a version: {text}"))
    };
    Ok((u32::from(part(major)?) << 16) | u32::from(part(minor)?))
}

/// The largest power of two that is not above `n`.
fn power_of_two_below(n: u64) -> u64 {
    n.checked_ilog2().map_or(0, |log| 1 << log)
}

/// A serial number that boards at different sockets do not share.
fn default_serial(socket: &Path) -> u64 {
    let id = crc32fast::hash(socket.as_os_str().as_encoded_bytes());
    u64::from(id) | (0x0c47_1234 << 32)
}

fn run(args: &Run) -> anyhow::Result<()> {
    env_logger::Builder::new().filter_level(args.log).init();
    let config = Config {
        vram: args.vram,
        aperture: args
            .aperture
            .unwrap_or_else(|| power_of_two_below(args.vram)),
        compute: args.compute,
        copy: args.copy,
        slots: args.slots,
        lanes: args.lanes,
        bar0: args.bar0_size,
        pace: args.pace,
        silence_until_reset: args.silence_until_reset,
        ambient_mc: args.ambient,
    };
    config.check()?;
    let vram = Arc::new(vfu::SharedMemory::new("og1-vram", config.vram).context("VRAM")?);
    let server = Server::bind(&args.socket, device::device_info(&config, &vram))
        .with_context(|| format!("cannot listen at {}", args.socket.display()))?;
    let (sink, messages) = device::sink(server.interrupts());
    let board = Arc::new(Board::new(config, vram, server.memory().clone(), sink)?);
    let serial = args.serial.unwrap_or_else(|| default_serial(&args.socket));
    let interrupts = server.interrupts().clone();
    let function = PciBoard::new(board.clone(), interrupts, messages, serial)?;
    let _control = match &args.control {
        Some(path) => {
            let stopper = server.stopper();
            let commanded = board.clone();
            let control = Control::start(
                path,
                move |line: &str| control::command(&commanded, line),
                move || stopper.stop(),
            );
            Some(control.with_context(|| format!("cannot listen at {}", path.display()))?)
        }
        None => None,
    };
    if args.trace.is_some() {
        board.machine().start_trace();
    }
    let scheduler = Scheduler::start(board.clone()).context("scheduler thread")?;
    let mut out = std::io::stdout();
    writeln!(out, "og1: listening on {}", args.socket.display())?;
    out.flush()?;
    let how = if args.once {
        Serve::Once
    } else {
        Serve::UntilStopped
    };
    let served = server.serve(&function, how);
    drop(scheduler);
    if let Some(path) = &args.trace {
        write_trace(&board, path).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(served?)
}

/// Writes the events of a trace, one a line: time in ns, engine.slot, what.
fn write_trace(board: &Board, path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for event in board.machine().take_trace() {
        writeln!(file, "{event}")?;
    }
    file.flush()
}

fn write_firmware(args: &Firmware) -> anyhow::Result<()> {
    let mut image = firmware::default_image(args.version).image();
    if let Some(damage) = args.damage {
        image = firmware::damage(image, damage);
    }
    if args.out.is_dir() {
        bail!("{} is a directory", args.out.display());
    }
    std::fs::write(&args.out, image).with_context(|| format!("writing {}", args.out.display()))
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Firmware(args) => write_firmware(&args),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "og1", &mut std::io::stdout());
            Ok(())
        }
    }
}
