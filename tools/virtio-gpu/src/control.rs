// SPDX-License-Identifier: GPL-2.0
//! The commands of the control socket: faults on demand, and questions that a guest cannot ask.
//!
//! Documentation/gpu/ochre/virtio-board.rst describes them.

use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use ochre_control::number;
use ochre_control::Reply;

use crate::board::Board;
use crate::config::Capset;
use crate::config::CAPSETS;
use crate::config::VECTORS;
use crate::fault::Answer;
use crate::fault::Lie;
use crate::fault::Which;
use crate::fault::PENDING_MAX;
use crate::machine::Machine;
use crate::machine::CONTROL;
use crate::machine::CURSOR;
use crate::record::command_name;
use crate::wire::Cmd;
use crate::wire::Resp;

/// Longest time that an answer can be late.
const LATE_MAX: Duration = Duration::from_secs(3600);
/// Messages of a storm.
const STORM_MAX: u32 = 100_000;
/// Commands that a reply lists.
const LIST_MAX: usize = 1024;

/// All commands, for `help` and for the program's `--help`.
pub const HELP: &str = "\
refuse TYPE RESPONSE [COUNT [AFTER]] | wrong TYPE RESPONSE [COUNT [AFTER]] | stall | resume | \
late MS | hold TYPE | release [TYPE] | reorder COUNT | lie KIND [COUNT] | lose-irq VECTOR COUNT | \
storm VECTOR COUNT | capset INDEX ID VERSION SIZE | capset-count COUNT | silence on|off | \
refuse-reset on|off | needs-reset | display | clear-faults | violations | clear-violations | \
log [COUNT] | counts | stat | live | resources | contexts | mappings | peek RESOURCE OFFSET | \
clear-log | help | quit";

type Outcome = Result<String, String>;

fn done() -> Outcome {
    Ok("ok".into())
}

fn which(word: &str) -> Result<Which, String> {
    if word == "any" {
        return Ok(Which::Any);
    }
    let named = Cmd::from_name(word).or_else(|| number(word).ok().and_then(Cmd::from_code));
    let unknown = || {
        let names: Vec<&str> = Cmd::ALL.iter().map(|command| command.name()).collect();
        format!("no command '{word}': any, {}", names.join(", "))
    };
    named.map(Which::Kind).ok_or_else(unknown)
}

fn response(word: &str) -> Result<u32, String> {
    if let Some(named) = Resp::from_name(word) {
        return Ok(named.code());
    }
    number(word).map_err(|_| {
        let names: Vec<&str> = Resp::ALL.iter().map(|response| response.name()).collect();
        format!("no response '{word}': a number, {}", names.join(", "))
    })
}

fn on(word: &str) -> Result<bool, String> {
    match word {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("'{word}' is neither on nor off")),
    }
}

fn list(items: impl Iterator<Item = String>) -> Outcome {
    let mut line = String::from("ok");
    for item in items.take(LIST_MAX) {
        line.push(' ');
        line.push_str(&item);
    }
    Ok(line)
}

/// Makes the next commands of a type get another answer.
fn answers(machine: &mut Machine, executed: bool, words: &[&str]) -> Outcome {
    let (kind, code, rest) = match words {
        [kind, code, rest @ ..] if rest.len() <= 2 => (kind, code, rest),
        _ => return Err("TYPE RESPONSE [COUNT [AFTER]] is wanted".into()),
    };
    let count = rest.first().map_or(Ok(1), |word| number(word))?;
    if count == 0 || machine.faults.answers.len() >= PENDING_MAX {
        return Err("nothing to count, or too many at a time".into());
    }
    machine.faults.answers.push(Answer {
        which: which(kind)?,
        response: response(code)?,
        executed,
        after: rest.get(1).map_or(Ok(0), |word| number(word))?,
        count,
    });
    done()
}

fn capset(machine: &mut Machine, words: [&str; 4]) -> Outcome {
    let index = number(words[0])?;
    let capset = Capset {
        id: number(words[1])?,
        version: number(words[2])?,
        size: number(words[3])?,
    };
    let capsets = &mut machine.faults.capsets;
    capsets.retain(|(at, _)| *at != index);
    if capsets.len() >= CAPSETS {
        return Err("too many".into());
    }
    capsets.push((index, capset));
    done()
}

fn vector(word: &str) -> Result<u16, String> {
    let vector = number(word)?;
    if vector >= VECTORS {
        return Err(format!("there is no vector {vector}"));
    }
    Ok(vector)
}

fn stat(machine: &Machine) -> Outcome {
    let record = &machine.record;
    let (interrupts, config, lost) = machine.irq.counts();
    let (pending, held) = machine.pending();
    Ok(format!(
        "ok notifications={} cursor-notifications={} commands={} answers={} pending={pending} \
         held={held} interrupts={interrupts} config-interrupts={config} lost-interrupts={lost} \
         reads={} writes={} bytes-to-host={} bytes-from-host={} resets={} status={:#x} \
         features={:#x}",
        record.notifications[CONTROL],
        record.notifications[CURSOR],
        record.commands(),
        record.answers,
        record.accesses[0],
        record.accesses[1],
        record.bytes[0],
        record.bytes[1],
        record.resets,
        machine.transport().status(),
        machine.transport().features().bits(),
    ))
}

fn violations(machine: &Machine) -> Outcome {
    let mut line = format!("ok {}", machine.judge.count());
    for violation in machine.judge.log() {
        line.push_str(&format!(" {violation}"));
    }
    Ok(line)
}

/// Questions, which change nothing.
fn question(machine: &mut Machine, words: &[&str]) -> Option<Outcome> {
    Some(match words {
        ["violations"] => violations(machine),
        ["stat"] => stat(machine),
        ["live"] => {
            let [resources, contexts, mappings, entries] = machine.gpu.live();
            Ok(format!(
                "ok resources={resources} contexts={contexts} mappings={mappings} entries={entries}"
            ))
        }
        ["resources"] => list(
            machine
                .gpu
                .resources()
                .map(|(id, kind, bytes, entries)| format!("{id}:{kind}:{bytes}:{entries}")),
        ),
        ["contexts"] => list(
            machine
                .gpu
                .contexts()
                .map(|(id, capset, resources)| format!("{id}:capset={capset}:{resources}")),
        ),
        ["mappings"] => list(machine.gpu.mappings().map(|(at, bytes, id, unmapping)| {
            let state = if unmapping { "unmapping" } else { "mapped" };
            format!("{at:#x}:{bytes:#x}:{id}:{state}")
        })),
        ["counts"] => {
            let counts = machine.record.counts();
            list(counts.map(|(kind, count)| format!("{}={count}", command_name(kind))))
        }
        ["log", rest @ ..] if rest.len() <= 1 => {
            let count = rest.first().map_or(Ok(64), |word| number(word));
            let log = machine.record.log();
            count.and_then(|count: usize| {
                let skip = log.len().saturating_sub(count);
                list(log.skip(skip).map(ToString::to_string))
            })
        }
        ["peek", id, offset] => number(id).and_then(|id| {
            let offset = number(offset)?;
            let word = machine.peek(id, offset).ok_or("no such word")?;
            Ok(format!("ok {word:#x}"))
        }),
        ["help"] | [] => Ok(format!("ok commands: {HELP}")),
        _ => return None,
    })
}

/// Faults, and what takes them back.
fn order(machine: &mut Machine, words: &[&str]) -> Outcome {
    let now = Instant::now();
    match words {
        ["refuse", rest @ ..] => answers(machine, false, rest),
        ["wrong", rest @ ..] => answers(machine, true, rest),
        ["stall"] => {
            machine.faults.stalled = true;
            done()
        }
        ["resume"] => {
            machine.faults.stalled = false;
            machine.look_again();
            done()
        }
        ["late", ms] => {
            machine.faults.late = Duration::from_millis(number(ms)?).min(LATE_MAX);
            done()
        }
        ["hold", kind] => {
            machine.faults.held.insert(which(kind)?);
            done()
        }
        ["release"] => {
            machine.faults.held.clear();
            machine.faults.reorder = 0;
            Ok(format!("ok {}", machine.release(now, |_| true)))
        }
        ["release", kind] => {
            let which = which(kind)?;
            machine.faults.held.remove(&which);
            Ok(format!(
                "ok {}",
                machine.release(now, |kind| which.is(kind))
            ))
        }
        ["reorder", count] => {
            machine.faults.reorder = number(count)?;
            done()
        }
        ["lie", kind, rest @ ..] if rest.len() <= 1 => {
            let found = Lie::ALL.iter().find(|(name, _)| name == kind);
            let names: Vec<&str> = Lie::ALL.iter().map(|(name, _)| *name).collect();
            let (_, lie) = found.ok_or_else(|| format!("the lies are {}", names.join(", ")))?;
            let count: u32 = rest.first().map_or(Ok(1), |word| number(word))?;
            machine.faults.lie = (count > 0).then_some((*lie, count));
            done()
        }
        ["lose-irq", place, count] => {
            machine.irq.lose(vector(place)?, number(count)?);
            done()
        }
        ["storm", place, count] => {
            let count = number(count)?;
            machine.irq.storm(vector(place)?, STORM_MAX.min(count));
            done()
        }
        ["capset", index, id, version, size] => capset(machine, [index, id, version, size]),
        ["capset-count", count] => {
            machine.faults.capset_count = Some(number(count)?);
            done()
        }
        ["silence", word] => {
            let silent = on(word)?;
            machine.faults.silent = silent;
            machine.irq.set_silent(silent);
            machine.look_again();
            done()
        }
        ["refuse-reset", word] => {
            machine.faults.refuse_reset = on(word)?;
            machine.settle_reset();
            done()
        }
        ["needs-reset"] => {
            machine.need_reset();
            done()
        }
        ["display"] => {
            machine.change_displays();
            done()
        }
        ["clear-faults"] => {
            machine.faults = Default::default();
            machine.irq.set_silent(false);
            for vector in 0..VECTORS {
                machine.irq.lose(vector, 0);
            }
            machine.release(now, |_| true);
            machine.settle_reset();
            machine.look_again();
            done()
        }
        ["clear-violations"] => {
            machine.judge.clear();
            done()
        }
        ["clear-log"] => {
            machine.record.clear();
            done()
        }
        _ => Err("unknown command, try help".into()),
    }
}

/// Carries out a line.
///
/// # Errors
///
/// It is no command, or one that cannot be.
pub fn command(board: &Arc<Board>, line: &str) -> Result<Reply, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if words == ["quit"] {
        return Ok(Reply::Quit);
    }
    let mut machine = board.machine();
    let reply = match question(&mut machine, &words) {
        Some(reply) => reply,
        None => order(&mut machine, &words),
    };
    drop(machine);
    board.wake();
    reply.map(Reply::Line)
}
