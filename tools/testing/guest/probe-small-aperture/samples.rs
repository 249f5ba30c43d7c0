// SPDX-License-Identifier: GPL-2.0
//! The samples on a board of which the CPU sees a part.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::ensure;
use guest::Outcome;

guest::tests! {
    each_sample_is_verified,
}

/// Where the samples are in the guest.
const SAMPLES: &str = "/ochre/samples";

fn each_sample_is_verified() -> Outcome {
    let mut samples = Vec::new();
    for entry in fs::read_dir(SAMPLES)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.is_file() && meta.permissions().mode() & 0o111 != 0 {
            samples.push(entry.path());
        }
    }
    samples.sort();
    ensure!(!samples.is_empty(), "there are none");
    for sample in samples {
        let output = Command::new(&sample).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success() && text.contains("verified"),
            "{}: {}\n{text}{}",
            sample.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
