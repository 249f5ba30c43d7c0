// SPDX-License-Identifier: GPL-2.0
//! The program ochre-virtio-gpu: a virtio-gpu for QEMU's vfio-user-pci.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::anyhow;
use anyhow::Context;
use clap::Args;
use clap::Parser;
use clap::Subcommand;
use ochre_control::Control;
use ochre_vfio_user as vfu;
use ochre_virtio_gpu as board;

use board::board::Board;
use board::board::Worker;
use board::config::Capset;
use board::config::Config;
use board::control;
use board::device;
use board::device::PciFunction;
use board::machine::Machine;
use board::wire::feature::Features;
use vfu::Serve;
use vfu::Server;

/// A virtio-gpu as a program, with faults on demand.
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
}

#[derive(Args)]
#[command(after_help = format!("Commands of the control socket: {}", control::HELP))]
struct Run {
    /// Path of the vfio-user socket.
    #[arg(long)]
    socket: PathBuf,
    /// Path of the control socket.
    #[arg(long)]
    control: Option<PathBuf>,
    /// What is offered: virgl, edid, uuid, blob, context-init, blob-alignment, indirect, event-idx,
    /// version-1, access-platform; with a + or - before a name added to the usual or taken from it.
    #[arg(long, default_value = "", allow_hyphen_values = true, value_parser = features)]
    features: Features,
    /// Greatest size of the control queue.
    #[arg(long, default_value_t = 256)]
    queue_size: u16,
    /// Greatest size of the cursor queue.
    #[arg(long, default_value_t = 16)]
    cursor_queue_size: u16,
    /// Size of the host-visible window, a power of two; 0 for none.
    #[arg(long, default_value = "64M", value_parser = size)]
    window: u64,
    /// How the guest is to map what is in the window.
    #[arg(long, default_value = "cached", value_parser = ["none", "cached", "uncached", "wc"])]
    map_cache: String,
    /// No MSI-X: interrupts go through the pin.
    #[arg(long)]
    no_msix: bool,
    /// Number of displays.
    #[arg(long, default_value_t = 1)]
    scanouts: u32,
    /// Capsets as ID:VERSION:SIZE, with commas between them.
    #[arg(long, value_delimiter = ',', default_value = "1:1:308,2:2:1384,4:0:160", value_parser = capset)]
    capsets: Vec<Capset>,
    /// Alignment of blobs, when blob-alignment is offered.
    #[arg(long, default_value = "64K", value_parser = size)]
    blob_alignment: u64,
    /// What all resources together may have on the host's side.
    #[arg(long, default_value = "1G", value_parser = size)]
    memory: u64,
    /// A command of the control socket that is carried out at the start; may be given repeatedly.
    #[arg(long)]
    fault: Vec<String>,
    /// End when the first client leaves.
    #[arg(long)]
    once: bool,
    /// What to log: error, warn, info, debug or trace.
    #[arg(long, default_value_t = log::LevelFilter::Warn)]
    log: log::LevelFilter,
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

/// A list of features: all of them, or changes to the usual ones.
fn features(text: &str) -> Result<Features, String> {
    let names = text.split(',').filter(|name| !name.is_empty());
    let changes = text.is_empty() || text.starts_with(['+', '-']);
    let mut features = if changes {
        Config::default().features
    } else {
        Features::empty()
    };
    for name in names {
        let (add, name) = match name.strip_prefix('-') {
            Some(name) => (false, name),
            None => (true, name.strip_prefix('+').unwrap_or(name)),
        };
        let constant = name.replace('-', "_").to_uppercase();
        let feature = Features::from_name(&constant).ok_or(format!("no feature '{name}'"))?;
        features.set(feature, add);
    }
    Ok(features)
}

/// A capset: ID:VERSION:SIZE.
fn capset(text: &str) -> Result<Capset, String> {
    let numbers: Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
    match numbers.as_deref() {
        Ok([id, version, size]) => Ok(Capset {
            id: *id,
            version: *version,
            size: *size,
        }),
        _ => Err("ID:VERSION:SIZE is wanted".into()),
    }
}

impl Run {
    fn config(&self) -> anyhow::Result<Config> {
        let caching = ["none", "cached", "uncached", "wc"];
        let cache = caching.iter().position(|name| *name == self.map_cache);
        let config = Config {
            features: self.features,
            queue_sizes: [self.queue_size, self.cursor_queue_size],
            window: self.window,
            msix: !self.no_msix,
            scanouts: self.scanouts,
            capsets: self.capsets.clone(),
            blob_alignment: u32::try_from(self.blob_alignment)?,
            map_cache: u32::try_from(cache.unwrap_or(0))?,
            memory: self.memory,
        };
        config.check()?;
        Ok(config)
    }
}

fn run(args: &Run) -> anyhow::Result<()> {
    env_logger::Builder::new().filter_level(args.log).init();
    let config = args.config()?;
    let window = match config.window {
        0 => None,
        bytes => {
            let memory = vfu::SharedMemory::new("virtio-gpu-window", bytes).context("window")?;
            Some(Arc::new(memory))
        }
    };
    let server = Server::bind(&args.socket, device::device_info(&config, window.as_ref()))
        .with_context(|| format!("cannot listen at {}", args.socket.display()))?;
    let sink = device::sink(server.interrupts());
    let guest = server.memory().clone();
    let machine = Machine::new(config.clone(), guest, window.clone(), sink);
    let board = Arc::new(Board::new(machine));
    for line in &args.fault {
        control::command(&board, line).map_err(|error| anyhow!("--fault '{line}': {error}"))?;
    }
    let function = PciFunction::new(board.clone(), &config, server.interrupts().clone(), window)?;
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
    let worker = Worker::start(board).context("worker thread")?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "ochre-virtio-gpu: listening on {}",
        args.socket.display()
    )?;
    out.flush()?;
    let how = if args.once {
        Serve::Once
    } else {
        Serve::UntilStopped
    };
    let served = server.serve(&function, how);
    drop(worker);
    Ok(served?)
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Run(args) => run(&args),
    }
}
