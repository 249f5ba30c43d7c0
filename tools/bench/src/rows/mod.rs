// SPDX-License-Identifier: GPL-2.0
//! The rows of each board.
//!
//! To add one, implement [`Row`] and name it here. A board's rows may use that board's interface;
//! everything else (order, statistics, table) is the same for all.

mod counts;
mod instructions;
mod latency;
mod objects;
mod scores;
mod submit;
mod transfer;

use std::fmt;

use crate::row::Row;

/// A board that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Board {
    /// QEMU's virtio-gpu.
    Virtio,
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Virtio => "virtio",
        })
    }
}

impl Board {
    /// All its rows, in the order of the table: those that need a clock, or those that count
    /// instructions and need a guest that does.
    pub fn rows(self, instructions: bool) -> Vec<Box<dyn Row>> {
        match (self, instructions) {
            (Self::Virtio, false) => virtio(),
            (Self::Virtio, true) => {
                let all = instructions::Instructions::all().into_iter();
                all.map(|row| Box::new(row) as Box<dyn Row>).collect()
            }
        }
    }
}

fn virtio() -> Vec<Box<dyn Row>> {
    let mut rows: Vec<Box<dyn Row>> = Vec::new();
    for stream in submit::Stream::ALL {
        for threads in [1, 2, 4] {
            rows.push(Box::new(submit::Rate { stream, threads }));
        }
    }
    rows.push(Box::new(latency::Latency::OfAFence));
    rows.push(Box::new(latency::Latency::OfABuffer));
    rows.push(Box::new(counts::Exits));
    rows.push(Box::new(objects::Objects::Resource { size: 4 << 10 }));
    rows.push(Box::new(objects::Objects::Resource { size: 1 << 20 }));
    rows.push(Box::new(objects::Objects::GuestBlob { size: 64 << 10 }));
    rows.push(Box::new(objects::Objects::HostBlob { size: 64 << 10 }));
    for direction in transfer::Direction::ALL {
        for size in [4 << 10, 64 << 10, 1 << 20, 16 << 20] {
            rows.push(Box::new(transfer::Transfer { direction, size }));
        }
    }
    rows.push(Box::new(scores::Score::GlMark2));
    rows.push(Box::new(scores::Score::VkMark));
    rows
}

/// A size as people write it.
fn bytes(size: u32) -> String {
    match size {
        size if size >= 1 << 20 => format!("{} MiB", size >> 20),
        size => format!("{} KiB", size >> 10),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_figures_have_the_same_name() {
        let mut rows = Board::Virtio.rows(false);
        rows.extend(Board::Virtio.rows(true));
        let names: Vec<_> = rows.iter().flat_map(|row| row.figures()).collect();
        let different: BTreeSet<_> = names.iter().map(|figure| &figure.name).collect();
        assert_eq!(different.len(), names.len());
    }

    #[test]
    fn sizes_are_written_in_the_unit_that_fits() {
        assert_eq!(bytes(4 << 10), "4 KiB");
        assert_eq!(bytes(16 << 20), "16 MiB");
    }
}
