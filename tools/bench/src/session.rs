// SPDX-License-Identifier: GPL-2.0
//! Measures: gives the device to one driver after the other and runs the rows on it.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context;

use crate::card::Card;
use crate::card::Driver;
use crate::plan::steps;
use crate::plan::Side;
use crate::plan::Step;
use crate::report::Entry;
use crate::row::Effort;
use crate::row::Place;
use crate::row::Row;
use crate::row::SetUp;
use crate::trace::Trace;

/// What is measured how.
#[derive(Debug)]
pub struct Session<'a> {
    /// The device.
    pub card: &'a Card,
    /// The trace, if there is one.
    pub trace: Option<&'a Trace>,
    /// The driver that is judged.
    pub subject: Driver,
    /// The one that it is compared with.
    pub peer: Option<Driver>,
    /// On each driver.
    pub runs: usize,
    /// Of each row.
    pub effort: Effort,
}

/// What came out.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Figures in the order of the rows.
    pub entries: Vec<Entry>,
    /// Rows that the device cannot do, and what it lacks.
    pub missing: Vec<String>,
    /// What went wrong.
    pub failures: Vec<String>,
}

/// A row and what it gave.
struct Course<'r> {
    row: &'r dyn Row,
    name: String,
    /// The values of each run.
    subject: Vec<Vec<f64>>,
    peer: Vec<Vec<f64>>,
    end: Option<End>,
}

/// Why a row is not run any more.
enum End {
    /// The device lacks something, says the driver of this side.
    Missing(Side, &'static str),
    Failed(String),
}

impl Session<'_> {
    /// Measures the rows. A row that fails is left out from then on, and told at the end.
    ///
    /// # Errors
    ///
    /// A driver does not take the device.
    pub fn run(&self, rows: &[Box<dyn Row>]) -> anyhow::Result<Outcome> {
        let mut courses: Vec<_> = rows.iter().map(|row| Course::new(row.as_ref())).collect();
        let groups = groups(rows);
        let start = Instant::now();
        let mut bound: Option<(Side, PathBuf)> = None;
        for step in steps(self.runs, groups.len(), self.peer.is_some()) {
            let group = groups[step.group];
            if !courses
                .iter()
                .any(|course| course.is_due(step, group, self.runs))
            {
                continue;
            }
            let node = match bound.take() {
                Some((side, node)) if side == step.side => node,
                _ => self.bind(step.side)?,
            };
            eprintln!(
                "ochre: run {} of {}: {group} on {} ({} s)",
                step.run + 1,
                self.runs,
                self.driver(step.side),
                start.elapsed().as_secs()
            );
            for course in &mut courses {
                if course.is_due(step, group, self.runs) {
                    let place = Place {
                        node: &node,
                        card: self.card,
                        trace: self.trace,
                    };
                    self.step(course, step.side, place);
                }
            }
            bound = Some((step.side, node));
        }
        let mut outcome = Outcome::default();
        for course in courses {
            self.conclude(course, &mut outcome);
        }
        Ok(outcome)
    }

    fn driver(&self, side: Side) -> Driver {
        match side {
            Side::Subject => self.subject,
            Side::Peer => self.peer.unwrap_or(self.subject),
        }
    }

    fn bind(&self, side: Side) -> anyhow::Result<PathBuf> {
        let driver = self.driver(side);
        let bind = || self.card.give_to(driver);
        match self.trace {
            Some(trace) => trace.find_device(bind),
            None => bind(),
        }
    }

    fn step(&self, course: &mut Course<'_>, side: Side, place: Place<'_>) {
        match course.measure(place, &self.effort) {
            Ok(Ok(values)) => course.runs(side).push(values),
            Ok(Err(what)) => course.end = Some(End::Missing(side, what)),
            Err(error) => {
                let line = format!("{} on {}: {error:#}", course.name, self.driver(side));
                eprintln!("ochre: failed: {line}");
                course.end = Some(End::Failed(line));
            }
        }
    }

    fn conclude(&self, course: Course<'_>, outcome: &mut Outcome) {
        match course.end {
            None => outcome.entries.extend(course.entries()),
            Some(End::Failed(line)) => outcome.failures.push(line),
            Some(End::Missing(side, what)) => {
                let line = format!("{}: {} has no {what}", course.name, self.driver(side));
                // What only one of them lacks is not the device's fault.
                match course.subject.len() + course.peer.len() {
                    0 => outcome.missing.push(line),
                    _ => outcome.failures.push(line),
                }
            }
        }
    }
}

impl<'r> Course<'r> {
    fn new(row: &'r dyn Row) -> Self {
        let name = row.figures().first().map(|figure| figure.name.clone());
        Self {
            row,
            name: name.unwrap_or_default(),
            subject: Vec::new(),
            peer: Vec::new(),
            end: None,
        }
    }

    fn is_due(&self, step: Step, group: &str, runs: usize) -> bool {
        self.end.is_none() && self.row.group() == group && step.run < self.row.runs(runs)
    }

    fn runs(&mut self, side: Side) -> &mut Vec<Vec<f64>> {
        match side {
            Side::Subject => &mut self.subject,
            Side::Peer => &mut self.peer,
        }
    }

    /// One run: its values, or what the device lacks.
    fn measure(
        &self,
        place: Place<'_>,
        effort: &Effort,
    ) -> anyhow::Result<Result<Vec<f64>, &'static str>> {
        let mut ready = match self.row.set_up(place).context("set-up")? {
            SetUp::Missing(what) => return Ok(Err(what)),
            SetUp::Ready(ready) => ready,
        };
        let values = ready(effort)?;
        let expected = self.row.figures().len();
        let got = values.len();
        ensure!(got == expected, "{got} values for {expected} figures");
        Ok(Ok(values))
    }

    fn entries(&self) -> Vec<Entry> {
        let column = |runs: &[Vec<f64>], at: usize| -> Vec<f64> {
            runs.iter().map(|values| values[at]).collect()
        };
        let figures = self.row.figures().into_iter().enumerate();
        figures
            .filter_map(|(at, figure)| {
                Entry::new(figure, &column(&self.subject, at), &column(&self.peer, at))
            })
            .collect()
    }
}

/// The groups of the rows, in the order in which they first appear.
fn groups(rows: &[Box<dyn Row>]) -> Vec<&'static str> {
    let mut groups = Vec::new();
    for row in rows {
        if !groups.contains(&row.group()) {
            groups.push(row.group());
        }
    }
    groups
}
