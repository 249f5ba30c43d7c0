// SPDX-License-Identifier: GPL-2.0
//! What comes out: entries for machines (JSON) and a table for people. The table is a simple table of
//! reStructuredText, so that a terminal and the documentation show the same.

use serde::Deserialize;
use serde::Serialize;

use crate::row::Figure;
use crate::stats::median;
use crate::stats::ratio;

/// No judged figure may have a lower end of its interval below this.
pub const LOWEST: f64 = 0.97;

/// One figure, measured. Documentation/gpu/ochre/performance.rst says what each field means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// What was measured.
    pub name: String,
    /// Of `ochre` and `peer`.
    pub unit: String,
    /// Median of the runs of the driver that is judged.
    pub ochre: f64,
    /// Median of the runs of the other one.
    pub peer: Option<f64>,
    /// Above 1 when Ochre is better.
    pub ratio: Option<f64>,
    /// Lower end of the 95 % interval of the ratio.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Runs on each of the drivers.
    pub runs: usize,
    /// Whether the host decides.
    pub host_bound: bool,
}

impl Entry {
    /// From the values of the runs, in their order; `peer` is empty if nothing is compared.
    pub fn new(figure: Figure, subject: &[f64], peer: &[f64]) -> Option<Self> {
        let pairs: Vec<_> = subject.iter().copied().zip(peer.iter().copied()).collect();
        let ratio = ratio(&pairs, figure.better);
        let interval = ratio.and_then(|ratio| ratio.interval);
        Some(Self {
            name: figure.name,
            unit: figure.unit.to_string(),
            ochre: median(subject)?,
            peer: median(peer),
            ratio: ratio.map(|ratio| ratio.ratio),
            low: interval.map(|(low, _)| low),
            high: interval.map(|(_, high)| high),
            runs: subject.len(),
            host_bound: figure.host_bound,
        })
    }

    /// Whether it may be worse than the peer's by more than is allowed.
    pub fn is_behind(&self) -> bool {
        !self.host_bound && self.low.is_some_and(|low| low < LOWEST)
    }
}

/// The table of `entries`, with the names of the drivers.
pub fn table(entries: &[Entry], subject: &str, peer: &str) -> String {
    let head = [
        "figure",
        "unit",
        subject,
        peer,
        "ratio",
        "95 % interval",
        "runs",
        "bound by",
    ];
    let mut lines = vec![head.map(str::to_string)];
    lines.extend(entries.iter().map(|entry| {
        [
            entry.name.clone(),
            entry.unit.clone(),
            number(entry.ochre),
            entry.peer.map_or_else(nothing, number),
            entry
                .ratio
                .map_or_else(nothing, |ratio| format!("{ratio:.2}")),
            entry
                .low
                .zip(entry.high)
                .map_or_else(nothing, |(low, high)| format!("{low:.2} to {high:.2}")),
            entry.runs.to_string(),
            if entry.host_bound { "host" } else { "driver" }.to_string(),
        ]
    }));
    simple_table(&lines)
}

fn nothing() -> String {
    "-".to_string()
}

/// With three digits that mean something, and thousands apart.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut apart = String::new();
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at) % 3 == 0 && !apart.ends_with('-') {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart + rest
}

/// Texts first, numbers right-aligned; the first line is the head.
fn simple_table<const N: usize>(lines: &[[String; N]]) -> String {
    /// Columns of text: the figure's name, its unit, what bounds it.
    fn is_text(column: usize, columns: usize) -> bool {
        column < 2 || column + 1 == columns
    }
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0)
    });
    let rule = widths.map(|width| "=".repeat(width)).join("  ");
    let mut out = format!("{rule}\n");
    for (at, line) in lines.iter().enumerate() {
        let cells: Vec<_> = (0..N)
            .map(|column| match is_text(column, N) {
                true => format!("{:<1$}", line[column], widths[column]),
                false => format!("{:>1$}", line[column], widths[column]),
            })
            .collect();
        out += cells.join("  ").trim_end();
        out.push('\n');
        if at == 0 {
            out += &format!("{rule}\n");
        }
    }
    out + &rule + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(low: f64, host_bound: bool) -> Entry {
        Entry {
            name: "a".to_string(),
            unit: "1/s".to_string(),
            ochre: 1234.5,
            peer: Some(1000.0),
            ratio: Some(1.23),
            low: Some(low),
            high: Some(1.5),
            runs: 10,
            host_bound,
        }
    }

    #[test]
    fn entry_has_medians_of_both_and_the_ratio_of_pairs() {
        let values = [2.0, 4.0, 6.0];
        let peer = [1.0, 2.0, 3.0];
        let got = Entry::new(Figure::rate("a", "1/s"), &values, &peer).unwrap();
        assert_eq!((got.ochre, got.peer, got.runs), (4.0, Some(2.0), 3));
        assert!((got.ratio.unwrap() - 2.0).abs() < 1e-9);
        let cost = Entry::new(Figure::cost("a", "µs"), &values, &peer).unwrap();
        assert!((cost.ratio.unwrap() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn entry_without_a_peer_has_null_in_its_place() {
        let got = Entry::new(Figure::rate("a", "1/s"), &[1.0], &[]).unwrap();
        let json = serde_json::to_value(&got).unwrap();
        for field in ["peer", "ratio", "low", "high"] {
            assert!(json[field].is_null(), "{field}");
        }
        assert_eq!(json["ochre"], 1.0);
    }

    #[test]
    fn only_a_judged_figure_can_be_behind() {
        assert!(entry(0.96, false).is_behind());
        assert!(!entry(0.97, false).is_behind());
        assert!(!entry(0.5, true).is_behind());
    }

    #[test]
    fn table_is_a_simple_table_with_columns_as_wide_as_their_cells() {
        let table = table(&[entry(1.0, false)], "ochre", "c");
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[0], lines[2]);
        assert_eq!(lines[0], lines[4]);
        let at = lines[1].find("ochre").unwrap();
        assert_eq!(&lines[3][at..at + 5], "1,234");
        assert!(lines[3].ends_with("driver"));
    }

    #[test]
    fn numbers_have_three_digits_that_mean_something() {
        for (value, text) in [
            (1234567.8, "1,234,568"),
            (123.4, "123"),
            (12.34, "12.3"),
            (1.234, "1.23"),
            (0.1234, "0.123"),
            (0.01234, "0.0123"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
