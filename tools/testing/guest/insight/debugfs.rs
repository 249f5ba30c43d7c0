// SPDX-License-Identifier: GPL-2.0
//! The driver's files in debugfs.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::ensure;
use anyhow::Context;
use guest::bare::hw::regs;
use guest::ochre::abi::*;
use guest::ochre::region::VRAM;
use guest::ochre::Bo;
use guest::ochre::Gpu;
use guest::Board;
use guest::Desk;
use guest::Outcome;
use guest::PciDevice;

guest::tests! {
    every_register_that_the_board_has_is_there_by_name,
    fields_are_decoded,
    looking_breaks_no_rule_and_changes_nothing,
    only_root_may_look,
    vram_is_what_the_allocator_has_given,
    queues_are_listed_with_their_fences,
}

fn folder() -> anyhow::Result<PathBuf> {
    let address = PciDevice::bound()?.address().to_string();
    Ok(PathBuf::from(format!(
        "/sys/kernel/debug/dri/{address}/ochre"
    )))
}

fn read(file: &str) -> anyhow::Result<String> {
    let path = folder()?.join(file);
    fs::read_to_string(&path).with_context(|| format!("{}", path.display()))
}

/// Lines of all groups of registers: by name the offset and what follows.
fn registers() -> anyhow::Result<HashMap<String, (usize, String)>> {
    let mut found = HashMap::new();
    for group in fs::read_dir(folder()?.join("registers"))? {
        let text = fs::read_to_string(group?.path())?;
        for line in text.lines() {
            let mut words = line.splitn(3, char::is_whitespace);
            let Some(offset) = words.next().and_then(|word| word.strip_prefix("0x")) else {
                continue;
            };
            let offset = usize::from_str_radix(offset, 16)?;
            let name = words.next().context("no name")?.to_string();
            let rest = words.next().unwrap_or_default().trim().to_string();
            let twice = found.insert(name, (offset, rest));
            ensure!(twice.is_none(), "twice: {line}");
        }
    }
    Ok(found)
}

macro_rules! names {
    ($(
        $(#[$doc:meta])*
        [$class:ident $access:ident = $reset:literal]
        $name:ident(u32) $([$count:literal, stride = $stride:literal])? @ $offset:literal
        { $($high:literal : $low:literal $field:ident;)* }
    )*) => {
        /// Name, whether it is an array, offset, and access of every register.
        const REGISTERS: &[(&str, bool, usize, &str)] = &[
            $((stringify!($name), false $(|| $count > 0)?, $offset, stringify!($access)),)*
        ];
    };
}
guest::og1_registers!(names);

/// Whether the board has the unit of the register at `offset`.
fn unit_is_there(all: &HashMap<String, (usize, String)>, offset: usize) -> bool {
    if !(0x9000..0x10000).contains(&offset) {
        return true;
    }
    let kind = regs::UNIT_POWER as usize + (offset - 0x9000) / 0x1000;
    let end = format!("kind={kind:#x}");
    all.iter()
        .any(|(name, (_, rest))| name.starts_with("UNIT_ID[") && rest.ends_with(&end))
}

fn every_register_that_the_board_has_is_there_by_name() -> Outcome {
    let all = registers()?;
    for &(name, array, offset, access) in REGISTERS {
        if !unit_is_there(&all, offset) {
            continue;
        }
        let key = if array {
            format!("{name}[0]")
        } else {
            name.to_string()
        };
        let (at, rest) = all.get(&key).with_context(|| format!("no {key}"))?;
        assert_eq!(*at, offset, "{key}");
        assert_eq!(rest == "write-only", access == "wo", "{key}: {rest}");
    }
    Ok(())
}

fn fields_are_decoded() -> Outcome {
    let all = registers()?;
    let of = |name: &str| -> anyhow::Result<&str> {
        Ok(&all.get(name).with_context(|| format!("no {name}"))?.1)
    };
    assert_eq!(of("ID")?, format!("{:#010x}", regs::ID_MAGIC));
    ensure!(of("VERSION")?.contains(" major=0x1 "), "{}", of("VERSION")?);
    assert_eq!(of("ENGINES")?, "0x00000204 slots=0x2 count=0x4");
    ensure!(
        of("FW_STATUS")?.ends_with(" error=0x0 state=0x2"),
        "{}",
        of("FW_STATUS")?
    );
    ensure!(
        of("ENG_ID[2]")?.ends_with(" index=0x2 kind=0x11"),
        "{}",
        of("ENG_ID[2]")?
    );
    ensure!(
        of("IRQ_MASK[5]")?.ends_with(" masked=0x0"),
        "{}",
        of("IRQ_MASK[5]")?
    );
    // Four engines and two more vectors.
    ensure!(!all.contains_key("IRQ_MASK[6]") && !all.contains_key("ENG_ID[4]"));
    Ok(())
}

fn looking_breaks_no_rule_and_changes_nothing() -> Outcome {
    Board.clear_violations()?;
    let first = registers()?;
    let second = registers()?;
    for (name, (_, rest)) in &first {
        // What tells of the time, and of what is selected meanwhile by whoever counts.
        if name.starts_with("TIME_") || name.starts_with("CTR_") || name.starts_with("RESET_COUNT")
        {
            continue;
        }
        if name.starts_with("POWER_") || name.starts_with("ENERGY_") || name.starts_with("TEMP") {
            continue;
        }
        assert_eq!(second.get(name).map(|(_, rest)| rest), Some(rest), "{name}");
    }
    assert_eq!(Board.violations()?, []);
    Ok(())
}

fn only_root_may_look() -> Outcome {
    for file in ["vram", "engines", "queues", "registers/global"] {
        let mode = fs::metadata(folder()?.join(file))?.permissions().mode();
        assert_eq!(mode & 0o777, 0o400, "{file}");
    }
    Ok(())
}

/// A figure of the file `vram`.
fn vram(name: &str) -> anyhow::Result<u64> {
    let text = read("vram")?;
    let line = text
        .lines()
        .find(|line| line.split_whitespace().next() == Some(name));
    let value = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(value.with_context(|| format!("no {name}"))?.parse()?)
}

fn vram_is_what_the_allocator_has_given() -> Outcome {
    let gpu = Gpu::open()?;
    let before = vram("free")?;
    let bo = Bo::new(&gpu, VRAM, 3 << 20)?;
    assert_eq!(vram("free")?, before - (3 << 20));
    drop(bo);
    assert_eq!(vram("free")?, before);
    assert_eq!(vram("total")?, 256 << 20);
    Ok(())
}

fn queues_are_listed_with_their_fences() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let held = desk.start(&queue, desk.wait_for_word(0))?;
    let id = Board
        .queue_in_state(2, "waiting")
        .or_else(|_| Board.queue_in_state(3, "waiting"))?;
    let text = read("queues")?;
    let mut lines = text.lines();
    let head: Vec<_> = lines.next().context("empty")?.split_whitespace().collect();
    let wanted = id.to_string();
    let line = lines
        .find(|line| line.split_whitespace().next() == Some(wanted.as_str()))
        .with_context(|| format!("no queue {id} in {text}"))?;
    let words: Vec<_> = line.split_whitespace().collect();
    let of = |name: &str| {
        let at = head.iter().position(|&word| word == name);
        at.and_then(|at| words.get(at))
            .copied()
            .with_context(|| format!("no {name}"))
    };
    ensure!(of("engine")?.starts_with("copy"), "{line}");
    assert_eq!(of("issued")?, "1", "{line}");
    assert_eq!(of("completed")?, "0", "{line}");
    assert_eq!(of("board")?, "0", "{line}");
    assert_eq!(of("backlog")?, "1", "{line}");
    ensure!(line.ends_with("Waiting"), "{line}");
    ensure!(
        read("engines")?.contains(&format!("queue {id}")),
        "{}",
        read("engines")?
    );
    desk.set_word(0, 1);
    held.ends_well()?;
    Ok(())
}
