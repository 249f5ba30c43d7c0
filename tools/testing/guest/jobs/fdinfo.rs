// SPDX-License-Identifier: GPL-2.0
//! What /proc/PID/fdinfo says of an open file.

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsRawFd;

use anyhow::ensure;
use anyhow::Context;
use guest::ochre::abi::*;
use guest::ochre::region::SYSTEM;
use guest::ochre::region::VRAM;
use guest::ochre::Bo;
use guest::ochre::Gpu;
use guest::ochre::Stream;
use guest::Desk;
use guest::Outcome;

guest::tests! {
    fdinfo_names_driver_device_and_client,
    engine_time_is_the_board_time_of_the_files_own_jobs,
    waiting_is_no_engine_time,
    memory_is_what_the_file_has_handles_for,
    engine_time_stays_when_its_queue_is_gone,
}

type Info = HashMap<String, String>;

fn fdinfo(gpu: &Gpu) -> anyhow::Result<Info> {
    let fd = gpu.file().as_raw_fd();
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}"))?;
    let mut info = Info::new();
    for line in text.lines() {
        if let Some((key, value)) = line.split_once(':') {
            let twice = info.insert(key.to_string(), value.trim().to_string());
            ensure!(twice.is_none(), "{key} twice");
        }
    }
    Ok(info)
}

/// The number of a key, with the unit that it has to have.
fn number(info: &Info, key: &str, unit: &str) -> anyhow::Result<u64> {
    let value = info
        .get(key)
        .with_context(|| format!("no {key} in {info:?}"))?;
    let digits = value
        .strip_suffix(unit)
        .with_context(|| format!("{key}: {value}"))?;
    Ok(digits.trim().parse()?)
}

fn engine_time(gpu: &Gpu, class: &str) -> anyhow::Result<u64> {
    number(&fdinfo(gpu)?, &format!("drm-engine-{class}"), "ns")
}

/// Bytes of a memory key, which the kernel prints with a unit that fits.
fn bytes(gpu: &Gpu, key: &str) -> anyhow::Result<u64> {
    let info = fdinfo(gpu)?;
    let value = info
        .get(key)
        .with_context(|| format!("no {key} in {info:?}"))?;
    let (digits, unit) = value.split_once(' ').unwrap_or((value, ""));
    let shift = match unit {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        _ => anyhow::bail!("{key}: {value}"),
    };
    Ok(digits.parse::<u64>()? << shift)
}

fn fdinfo_names_driver_device_and_client() -> Outcome {
    let (gpu, other) = (Gpu::open()?, Gpu::open()?);
    let info = fdinfo(&gpu)?;
    assert_eq!(info.get("drm-driver").map(String::as_str), Some("ochre"));
    let address = info.get("drm-pdev").context("no drm-pdev")?;
    let vendor = fs::read_to_string(format!("/sys/bus/pci/devices/{address}/vendor"))?;
    assert_eq!(vendor.trim(), "0x1234");
    let client = number(&info, "drm-client-id", "")?;
    assert_ne!(client, number(&fdinfo(&other)?, "drm-client-id", "")?);
    assert_eq!(number(&info, "drm-engine-capacity-compute", "")?, 2);
    assert_eq!(number(&info, "drm-engine-capacity-copy", "")?, 2);
    Ok(())
}

/// A copy that takes many quanta of the board's clock, between two time stamps.
fn timed_copy(desk: &Desk<'_>, addr: u64, len: u64) -> Stream {
    let stream = Stream::new().timestamp(desk.word_addr(0));
    stream
        .copy(addr, addr + len, len)
        .timestamp(desk.word_addr(1))
}

fn engine_time_is_the_board_time_of_the_files_own_jobs() -> Outcome {
    let (gpu, other) = (Gpu::open()?, Gpu::open()?);
    let desk = Desk::new(&gpu)?;
    let len = 8 << 20;
    let memory = desk
        .vm
        .buffer(VRAM, 2 * len, guest::ochre::access::READ_WRITE)?;
    for (class, name, other_name) in [
        (DRM_OCHRE_ENGINE_COPY, "copy", "compute"),
        (DRM_OCHRE_ENGINE_COMPUTE, "compute", "copy"),
    ] {
        let before = (engine_time(&gpu, name)?, engine_time(&gpu, other_name)?);
        let queue = desk.queue(class)?;
        desk.run(&queue, timed_copy(&desk, memory.addr, len))?;
        let worked = engine_time(&gpu, name)? - before.0;
        let span = desk.word(1) - desk.word(0);
        // 64 bytes per cycle of at most 1.25 GHz.
        assert!(span >= len / 80, "{span} ns");
        assert!(worked >= span, "{name}: {worked} of {span} ns");
        assert!(worked <= span + 100_000, "{name}: {worked} of {span} ns");
        assert_eq!(engine_time(&gpu, other_name)?, before.1);
    }
    assert_eq!(engine_time(&other, "copy")?, 0);
    assert_eq!(engine_time(&other, "compute")?, 0);
    Ok(())
}

fn waiting_is_no_engine_time() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    desk.run(&queue, Stream::new().wait_for(50_000_000))?;
    let worked = engine_time(&gpu, "copy")?;
    assert!(worked < 5_000_000, "{worked} ns");
    Ok(())
}

fn memory_is_what_the_file_has_handles_for() -> Outcome {
    const KEYS: [&str; 2] = ["drm-total-vram0", "drm-total-system0"];
    let gpu = Gpu::open()?;
    let look = || -> anyhow::Result<[u64; 2]> {
        for (total, resident) in [
            (KEYS[0], "drm-resident-vram0"),
            (KEYS[1], "drm-resident-system0"),
        ] {
            assert_eq!(bytes(&gpu, total)?, bytes(&gpu, resident)?);
        }
        Ok([bytes(&gpu, KEYS[0])?, bytes(&gpu, KEYS[1])?])
    };
    assert_eq!(look()?, [0, 0]);
    let vram = Bo::new(&gpu, VRAM, 3 << 20)?;
    assert_eq!(look()?, [3 << 20, 0]);
    let system = Bo::new(&gpu, SYSTEM, 4096)?;
    assert_eq!(look()?, [3 << 20, 4096]);
    drop(vram);
    assert_eq!(look()?, [0, 4096]);
    drop(system);
    assert_eq!(look()?, [0, 0]);
    Ok(())
}

fn engine_time_stays_when_its_queue_is_gone() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let len = 1 << 20;
    let memory = desk
        .vm
        .buffer(VRAM, 2 * len, guest::ochre::access::READ_WRITE)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    desk.run(&queue, timed_copy(&desk, memory.addr, len))?;
    let before = engine_time(&gpu, "copy")?;
    assert!(before > 0);
    drop(queue);
    assert!(engine_time(&gpu, "copy")? >= before);
    Ok(())
}
