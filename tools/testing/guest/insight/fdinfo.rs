// SPDX-License-Identifier: GPL-2.0
//! The keys of fdinfo that a GPU top lives on.

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsRawFd;

use anyhow::ensure;
use anyhow::Context;
use guest::ochre::abi::*;
use guest::ochre::access::READ_WRITE;
use guest::ochre::region::VRAM;
use guest::ochre::Gpu;
use guest::Desk;
use guest::Outcome;

guest::tests! {
    all_keys_are_there_in_their_form,
    cycles_are_the_boards_ticks_and_never_fall,
    what_jobs_may_use_is_active_until_they_are_over,
}

type Info = HashMap<String, String>;

fn fdinfo(gpu: &Gpu) -> anyhow::Result<Info> {
    let fd = gpu.file().as_raw_fd();
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}"))?;
    let mut info = Info::new();
    for line in text.lines() {
        let (key, value) = line.split_once(":\t").context("a line without a key")?;
        let twice = info.insert(key.to_string(), value.trim().to_string());
        ensure!(twice.is_none(), "{key} twice");
    }
    Ok(info)
}

fn number(info: &Info, key: &str) -> anyhow::Result<u64> {
    let value = info
        .get(key)
        .with_context(|| format!("no {key} in {info:?}"))?;
    let (digits, unit) = value.split_once(' ').unwrap_or((value, ""));
    let shift = match unit {
        "" | "ns" => 0,
        "KiB" => 10,
        "MiB" => 20,
        _ => anyhow::bail!("{key}: {value}"),
    };
    Ok(digits.parse::<u64>()? << shift)
}

fn all_keys_are_there_in_their_form() -> Outcome {
    let gpu = Gpu::open()?;
    let info = fdinfo(&gpu)?;
    for key in ["drm-driver", "drm-pdev", "drm-client-id"] {
        ensure!(info.contains_key(key), "no {key}");
    }
    for class in ["compute", "copy"] {
        let time = info
            .get(&format!("drm-engine-{class}"))
            .context("no engine time")?;
        ensure!(time.ends_with(" ns"), "{time}");
        assert_eq!(number(&info, &format!("drm-engine-capacity-{class}"))?, 2);
        // A rate and its clock; drm-usage-stats forbids drm-maxfreq beside it.
        number(&info, &format!("drm-cycles-{class}"))?;
        number(&info, &format!("drm-total-cycles-{class}"))?;
        ensure!(!info.contains_key(&format!("drm-maxfreq-{class}")));
    }
    for region in ["system0", "vram0"] {
        for stat in ["total", "shared", "active", "resident", "purgeable"] {
            assert_eq!(number(&info, &format!("drm-{stat}-{region}"))?, 0);
        }
    }
    Ok(())
}

fn cycles_are_the_boards_ticks_and_never_fall() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let len = 4 << 20;
    let memory = desk.vm.buffer(VRAM, 2 * len, READ_WRITE)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let mut last = (0, 0);
    for _ in 0..4 {
        let stream = guest::ochre::Stream::new();
        desk.run(&queue, stream.copy(memory.addr, memory.addr + len, len))?;
        let info = fdinfo(&gpu)?;
        let busy = number(&info, "drm-cycles-copy")?;
        let total = number(&info, "drm-total-cycles-copy")?;
        // The board's clock has one tick a ns.
        assert_eq!(busy, number(&info, "drm-engine-copy")?);
        ensure!(
            busy > last.0 && total > last.1,
            "{busy} of {total} after {last:?}"
        );
        // Two engines cannot be busy for more than twice the time.
        ensure!(
            busy - last.0 <= 2 * (total - last.1),
            "{busy} of {total} after {last:?}"
        );
        last = (busy, total);
    }
    Ok(())
}

fn what_jobs_may_use_is_active_until_they_are_over() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let len = 1 << 20;
    let _memory = desk.vm.buffer(VRAM, len, READ_WRITE)?;
    let active = || number(&fdinfo(&gpu)?, "drm-active-vram0");
    let total = || number(&fdinfo(&gpu)?, "drm-total-vram0");
    assert_eq!(active()?, 0);
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let held = desk.start(&queue, desk.wait_for_word(0))?;
    ensure!(active()? >= len, "{} of {}", active()?, total()?);
    ensure!(active()? <= total()?, "{} of {}", active()?, total()?);
    desk.set_word(0, 1);
    held.ends_well()?;
    guest::eventually("nothing is active", 20, || {
        Ok((active()? == 0).then_some(()))
    })?;
    Ok(())
}
