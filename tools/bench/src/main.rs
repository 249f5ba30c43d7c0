// SPDX-License-Identifier: GPL-2.0
//! The program ochre-bench: measures the driver against its peer in one guest, or puts a table of
//! what was measured into a text. tools/bench/run starts it.

mod card;
mod cpu;
mod document;
mod idle;
mod plan;
mod report;
mod row;
mod rows;
mod session;
mod stats;
mod trace;
mod virtgpu;

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use anyhow::Context;
use clap::Args;
use clap::Parser;
use clap::Subcommand;

use crate::card::Card;
use crate::card::Driver;
use crate::report::Entry;
use crate::report::LOWEST;
use crate::row::Effort;
use crate::row::Row;
use crate::rows::Board;
use crate::session::Outcome;
use crate::session::Session;
use crate::trace::Trace;

/// Measures the driver against its peer.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures, in a guest that runs nothing else.
    Run(Run),
    /// Puts the table of a JSON file into a text, between its lines `.. begin figures-BOARD` and
    /// `.. end figures-BOARD`.
    Document(Document),
    /// Lists the figures of a board.
    List {
        /// The board.
        #[arg(value_enum)]
        board: Board,
    },
}

/// Measures a board's rows on two drivers in turns.
///
/// Each run measures both drivers group by group, one right after the other, and which is first
/// alternates. A run's value is the median of some trials. The ratio of the two drivers is the
/// mean of the logarithms of the runs' ratios, without the lowest and the highest tenth; its 95 %
/// interval is that of a trimmed mean, with Student's t. A ratio above 1 means that the subject
/// is better, whatever the unit.
#[derive(Args)]
struct Run {
    /// The board.
    #[arg(value_enum)]
    board: Board,
    /// Only rows that have a figure whose name holds this.
    #[arg(long, default_value = "", value_name = "PART")]
    rows: String,
    /// Runs on each of the drivers.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    /// The driver that is judged.
    #[arg(long, value_enum, default_value = "ochre")]
    subject: Driver,
    /// The driver that it is compared with, which may be the same one: then ratios come out as 1.
    #[arg(long, value_enum, default_value = "c")]
    peer: Driver,
    /// Measure the subject alone.
    #[arg(long, conflicts_with = "peer")]
    alone: bool,
    /// Milliseconds of a trial.
    #[arg(long, default_value_t = 100, value_name = "MS")]
    trial: u64,
    /// Trials in a run.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    trials: u16,
    /// One short run, to see that it works: its figures mean nothing.
    #[arg(long, conflicts_with_all = ["runs", "trial", "trials"])]
    quick: bool,
    /// The guest's clocks count instructions: count them instead of measuring time.
    #[arg(long)]
    icount: bool,
    /// End with status 3 if a figure that the driver decides may be more than 3 % worse than the
    /// peer's.
    #[arg(long)]
    judge: bool,
    /// Write the figures there, behind those that are in it.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The log of QEMU's trace.
    #[arg(long, value_name = "FILE", default_value = "/mnt/qemu.log")]
    trace: PathBuf,
    /// Ochre's module.
    #[arg(long, value_name = "FILE", default_value = "/ochre/ochre.ko")]
    module: PathBuf,
}

#[derive(Args)]
struct Document {
    /// The board.
    #[arg(value_enum)]
    board: Board,
    /// What a run has written.
    json: PathBuf,
    /// The text.
    text: PathBuf,
}

impl Run {
    fn effort(&self) -> Effort {
        let (trial, trials) = match self.quick {
            true => (10, 1),
            false => (self.trial, self.trials),
        };
        let trial = Duration::from_millis(trial);
        Effort {
            warm_up: trial / 2,
            trial,
            trials: trials.into(),
        }
    }

    /// Rows that are to be measured: time, or instructions.
    fn chosen_rows(&self, instructions: bool) -> Vec<Box<dyn Row>> {
        let mut rows = self.board.rows(instructions);
        rows.retain(|row| {
            let figures = row.figures();
            figures
                .iter()
                .any(|figure| figure.name.contains(&self.rows))
        });
        rows
    }

    fn run(&self) -> anyhow::Result<ExitCode> {
        let rows = self.chosen_rows(self.icount);
        if rows.is_empty() {
            let others = self.chosen_rows(!self.icount).len();
            ensure!(others > 0, "no figure's name holds '{}'", self.rows);
            return Ok(ExitCode::SUCCESS);
        }
        let card = Card::find(&self.module)?;
        let trace = Trace::open(&self.trace)?;
        let session = Session {
            card: &card,
            trace: trace.as_ref(),
            subject: self.subject,
            peer: (!self.alone).then_some(self.peer),
            runs: if self.quick { 1 } else { self.runs.into() },
            effort: self.effort(),
        };
        let outcome = session.run(&rows);
        let back = card.give_back();
        let outcome = outcome?;
        back.context("the device was not taken back by the kernel's driver")?;
        if let Some(path) = &self.json {
            let mut entries = if path.exists() {
                read(path)?
            } else {
                Vec::new()
            };
            entries.extend_from_slice(&outcome.entries);
            let json = serde_json::to_string_pretty(&entries)?;
            fs::write(path, json + "\n").with_context(|| path.display().to_string())?;
        }
        Ok(self.tell(&outcome, &session))
    }

    fn tell(&self, outcome: &Outcome, session: &Session<'_>) -> ExitCode {
        let entries = &outcome.entries;
        let subject = session.subject.to_string();
        let peer = session
            .peer
            .map_or("-".to_string(), |peer| peer.to_string());
        print!("{}", report::table(entries, &subject, &peer));
        for line in &outcome.missing {
            println!("not measured: {line}");
        }
        for line in &outcome.failures {
            println!("failed: {line}");
        }
        let behind: Vec<_> = entries.iter().filter(|entry| entry.is_behind()).collect();
        if session.peer.is_some() && !self.quick {
            for entry in &behind {
                println!("may be worse than its peer: {}", entry.name);
            }
            let judged = entries.iter().filter(|entry| !entry.host_bound).count();
            println!(
                "{} of {judged} intervals reach below {LOWEST}",
                behind.len()
            );
        }
        match () {
            () if !outcome.failures.is_empty() || entries.is_empty() => ExitCode::FAILURE,
            () if self.judge && !behind.is_empty() => ExitCode::from(3),
            () => ExitCode::SUCCESS,
        }
    }
}

impl Document {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let read =
            |path: &PathBuf| fs::read_to_string(path).with_context(|| path.display().to_string());
        let entries: Vec<Entry> =
            serde_json::from_str(&read(&self.json)?).context("not what a run writes")?;
        let table = report::table(&entries, "Ochre", "peer");
        let place = format!("figures-{}", self.board);
        let name = || self.text.display().to_string();
        let text = fs::read_to_string(&self.text).with_context(name)?;
        let text = document::insert(&text, &place, &table).with_context(name)?;
        fs::write(&self.text, text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The figures that runs have written.
fn read(path: &Path) -> anyhow::Result<Vec<Entry>> {
    let name = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(name)?;
    serde_json::from_str(&text).with_context(name)
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(run) => run.run(),
        Command::Document(document) => document.run(),
        Command::List { board } => {
            for rows in [board.rows(false), board.rows(true)] {
                for figure in rows.iter().flat_map(|row| row.figures()) {
                    println!("{} [{}]", figure.name, figure.unit);
                }
            }
            Ok(ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("ochre: error: {error:#}");
        ExitCode::FAILURE
    })
}
