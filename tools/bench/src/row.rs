// SPDX-License-Identifier: GPL-2.0
//! What a row is: something that is set up on a device and run, and gives one figure or more.
//!
//! A row knows neither drivers nor statistics. It is set up anew for each driver and run, so what
//! it holds (contexts, buffers) never outlives the driver that it measures.

use std::path::Path;
use std::time::Duration;

use crate::card::Card;
use crate::stats::Better;
use crate::trace::Trace;

/// One figure of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What is measured, for a table.
    pub name: String,
    /// Of the values.
    pub unit: &'static str,
    /// Which values are good.
    pub better: Better,
    /// Whether the host and not the driver decides: such a figure is reported, not judged.
    pub host_bound: bool,
}

impl Figure {
    /// A rate, of which more is better.
    pub fn rate(name: impl Into<String>, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            unit,
            better: Better::Higher,
            host_bound: false,
        }
    }

    /// A cost, of which less is better.
    pub fn cost(name: impl Into<String>, unit: &'static str) -> Self {
        Self {
            better: Better::Lower,
            ..Self::rate(name, unit)
        }
    }

    /// The same, decided by the host.
    pub fn of_the_host(self) -> Self {
        Self {
            host_bound: true,
            ..self
        }
    }
}

/// How long and how often a row runs.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Before anything is counted.
    pub warm_up: Duration,
    /// Of one trial.
    pub trial: Duration,
    /// In one run; the value of the run is their median.
    pub trials: usize,
}

impl Effort {
    /// Warms up, then does the trials: `try_for` a duration.
    ///
    /// # Errors
    ///
    /// Those of a trial.
    pub fn each<T>(
        &self,
        mut try_for: impl FnMut(Duration) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<T>> {
        try_for(self.warm_up)?;
        (0..self.trials).map(|_| try_for(self.trial)).collect()
    }
}

/// Where a row is set up.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The render node.
    pub node: &'a Path,
    /// The function that a driver is bound to.
    pub card: &'a Card,
    /// The trace of the virtual machine, if there is one.
    pub trace: Option<&'a Trace>,
}

/// A row that is ready: one call is one run, and gives a value for each figure.
pub type Ready<'a> = Box<dyn FnMut(&Effort) -> anyhow::Result<Vec<f64>> + 'a>;

/// How setting up went.
pub enum SetUp<'a> {
    /// It can be run.
    Ready(Ready<'a>),
    /// The device lacks what it needs: this.
    Missing(&'static str),
}

/// A row of the table, or several that one run gives.
pub trait Row {
    /// What it gives, in this order.
    fn figures(&self) -> Vec<Figure>;

    /// Rows that are measured between two changes of the driver.
    fn group(&self) -> &'static str;

    /// Sets it up.
    ///
    /// # Errors
    ///
    /// The driver's.
    fn set_up<'a>(&'a self, place: Place<'a>) -> anyhow::Result<SetUp<'a>>;

    /// How many runs it takes part in, of `runs`. Programs that take long take part in fewer.
    fn runs(&self, runs: usize) -> usize {
        runs
    }
}
