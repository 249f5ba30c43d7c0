// SPDX-License-Identifier: GPL-2.0
//! Puts a table where a text has a place for it.

use anyhow::ensure;
use anyhow::Context;

/// Replaces what stands in `text` between the comments that name `place`:
/// `.. begin PLACE` and `.. end PLACE`, each a line of its own.
///
/// # Errors
///
/// There is no such place, or more than one.
pub fn insert(text: &str, place: &str, table: &str) -> anyhow::Result<String> {
    let begin = format!("\n.. begin {place}\n");
    let end = format!("\n.. end {place}\n");
    let once = text.matches(&begin).count() == 1 && text.matches(&end).count() == 1;
    ensure!(once, "the text has no place '{place}', or more than one");
    let (before, rest) = text.split_once(&begin).context("no begin")?;
    let (_, after) = rest
        .split_once(&end)
        .context("its end stands before its begin")?;
    Ok(format!("{before}{begin}\n{table}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Title\n\n.. begin x\n\nold\n\n.. end x\n\nmore\n";

    #[test]
    fn only_what_stands_between_is_replaced() {
        let got = insert(TEXT, "x", "new\n").unwrap();
        assert_eq!(got, "Title\n\n.. begin x\n\nnew\n\n.. end x\n\nmore\n");
        assert_eq!(insert(&got, "x", "new\n").unwrap(), got);
    }

    #[test]
    fn text_without_the_place_is_refused() {
        assert!(insert(TEXT, "y", "new\n").is_err());
        assert!(insert(".. end x\n\n.. begin x\n", "x", "").is_err());
    }
}
