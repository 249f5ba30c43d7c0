// SPDX-License-Identifier: GPL-2.0

//! The counters of a board as `perf` sees them: `perf stat -a -e ochre_0000_00_05.0/gpu_cycles/`.
//!
//! Number of an event, `config`: bits 7:0 `event`, see [`Event`]; bits 15:8 `engine`, the number of an
//! engine as QUERY_ENGINES has it, for the events of one engine. What the board does not count is
//! not there. The numbers are ABI: `Documentation/gpu/ochre/observability.rst` lists them.
//!
//! Who may look: counting the whole system is what perf gives to `CAP_PERFMON`, or to everyone when
//! `perf_event_paranoid` is below 1. Nothing here asks for more, as with the other GPU drivers.

use kernel::{
    device,
    fmt,
    prelude::*,
    str::CString,
    sync::Arc, //
};

use crate::{
    ext::perf_event::{
        Counters,
        Layout,
        Pmu,
        Value, //
    },
    gpu::engine_name::EngineName,
    hal::{
        BoardCounter,
        Clocks,
        Counter,
        EngineCounter,
        EngineId,
        Hal, //
    }, //
};

/// A registered unit of a GPU.
pub(super) type GpuPmu = Pmu<Source>;

/// What an event is.
#[derive(Clone, Copy)]
enum Event {
    /// A counter of the board.
    Board(BoardCounter),
    /// A counter of engines, summed over all of them.
    Sum(EngineCounter),
    /// A clock, in MHz.
    Clock(fn(&Clocks) -> u32),
    /// A counter of one engine.
    Engine(EngineCounter),
}

/// An event in the tables below.
struct Line {
    number: u8,
    /// For an event of one engine, what follows the engine's name.
    name: &'static str,
    /// How perf prints it: the unit, and what the count is multiplied by.
    unit: Option<(&'static str, &'static str)>,
    event: Event,
}

const fn line(
    number: u8,
    name: &'static str,
    unit: Option<(&'static str, &'static str)>,
    event: Event,
) -> Line {
    Line {
        number,
        name,
        unit,
        event,
    }
}

const BYTES: Option<(&str, &str)> = Some(("Bytes", "1"));
const NS: Option<(&str, &str)> = Some(("ns", "1"));
/// Of a count in µJ.
const JOULES: Option<(&str, &str)> = Some(("Joules", "1e-6"));
const MHZ: Option<(&str, &str)> = Some(("MHz", "1"));

/// All events.
const LINES: &[Line] = &[
    line(0x01, "board_time", NS, Event::Board(BoardCounter::Time)),
    line(
        0x02,
        "vram_read",
        BYTES,
        Event::Board(BoardCounter::VramRead),
    ),
    line(
        0x03,
        "vram_write",
        BYTES,
        Event::Board(BoardCounter::VramWrite),
    ),
    line(
        0x04,
        "pcie_read",
        BYTES,
        Event::Board(BoardCounter::BusRead),
    ),
    line(
        0x05,
        "pcie_write",
        BYTES,
        Event::Board(BoardCounter::BusWrite),
    ),
    line(0x06, "tlb_hits", None, Event::Board(BoardCounter::TlbHits)),
    line(
        0x07,
        "tlb_misses",
        None,
        Event::Board(BoardCounter::TlbMisses),
    ),
    line(0x08, "faults", None, Event::Board(BoardCounter::Faults)),
    line(
        0x09,
        "interrupts",
        None,
        Event::Board(BoardCounter::Interrupts),
    ),
    line(0x10, "energy", JOULES, Event::Board(BoardCounter::Energy)),
    line(
        0x11,
        "core_cycles",
        None,
        Event::Board(BoardCounter::CoreCycles),
    ),
    line(
        0x12,
        "memory_cycles",
        None,
        Event::Board(BoardCounter::MemoryCycles),
    ),
    line(0x13, "throttled", NS, Event::Board(BoardCounter::Throttled)),
    line(
        0x14,
        "clock_changes",
        None,
        Event::Board(BoardCounter::ClockChanges),
    ),
    line(0x20, "gpu_cycles", None, Event::Sum(EngineCounter::Cycles)),
    line(0x21, "gpu_busy", NS, Event::Sum(EngineCounter::Busy)),
    line(
        0x22,
        "gpu_mem_stall",
        None,
        Event::Sum(EngineCounter::Stall),
    ),
    line(
        0x23,
        "gpu_packets",
        None,
        Event::Sum(EngineCounter::Packets),
    ),
    line(0x24, "gpu_blocks", None, Event::Sum(EngineCounter::Blocks)),
    line(
        0x25,
        "gpu_alu_busy",
        None,
        Event::Sum(EngineCounter::Instructions),
    ),
    line(0x26, "switches", None, Event::Sum(EngineCounter::Switches)),
    line(
        0x27,
        "preemptions",
        None,
        Event::Sum(EngineCounter::Preemptions),
    ),
    line(
        0x28,
        "gpu_clock_gated",
        NS,
        Event::Sum(EngineCounter::ClockGated),
    ),
    line(
        0x29,
        "gpu_power_gated",
        NS,
        Event::Sum(EngineCounter::PowerGated),
    ),
    line(0x2a, "gpu_wakes", None, Event::Sum(EngineCounter::Wakes)),
    line(
        0x40,
        "core_frequency",
        MHZ,
        Event::Clock(|clocks| clocks.core_khz / 1000),
    ),
    line(
        0x41,
        "memory_frequency",
        MHZ,
        Event::Clock(|clocks| clocks.memory_khz / 1000),
    ),
    line(0x60, "cycles", None, Event::Engine(EngineCounter::Cycles)),
    line(0x61, "busy", NS, Event::Engine(EngineCounter::Busy)),
    line(0x62, "mem_stall", None, Event::Engine(EngineCounter::Stall)),
    line(0x63, "packets", None, Event::Engine(EngineCounter::Packets)),
    line(0x64, "blocks", None, Event::Engine(EngineCounter::Blocks)),
    line(
        0x65,
        "alu_busy",
        None,
        Event::Engine(EngineCounter::Instructions),
    ),
    line(
        0x66,
        "switches",
        None,
        Event::Engine(EngineCounter::Switches),
    ),
    line(
        0x67,
        "preemptions",
        None,
        Event::Engine(EngineCounter::Preemptions),
    ),
    line(
        0x68,
        "clock_gated",
        NS,
        Event::Engine(EngineCounter::ClockGated),
    ),
    line(
        0x69,
        "power_gated",
        NS,
        Event::Engine(EngineCounter::PowerGated),
    ),
    line(0x6a, "wakes", None, Event::Engine(EngineCounter::Wakes)),
];

/// Answers perf.
pub(super) struct Source {
    hal: Arc<dyn Hal>,
}

impl Source {
    /// The engines' numbers.
    fn engines(&self) -> impl Iterator<Item = EngineId> + '_ {
        (0u8..)
            .zip(&self.hal.info().engines)
            .map(|(id, _)| EngineId(id))
    }

    /// Whether the board can say what `event` asks, of `engine` or of the first one.
    fn has(&self, event: Event, engine: EngineId) -> bool {
        match event {
            Event::Board(counter) => self.hal.has_counter(Counter::Board(counter)),
            Event::Sum(counter) | Event::Engine(counter) => {
                self.hal.has_counter(Counter::Engine(engine, counter))
            }
            Event::Clock(_) => true,
        }
    }

    /// Finds what `config` names.
    fn find(&self, config: u64) -> Result<(Event, EngineId)> {
        let [number, engine, rest @ ..] = config.to_le_bytes();
        let line = LINES.iter().find(|line| line.number == number);
        let event = line.ok_or(EINVAL)?.event;
        let engine = EngineId(engine);
        let takes_engine = matches!(event, Event::Engine(_));
        if rest.iter().any(|&byte| byte != 0) || (engine.0 != 0 && !takes_engine) {
            return Err(EINVAL);
        }
        if engine.index() >= self.hal.info().engines.len() || !self.has(event, engine) {
            return Err(EINVAL);
        }
        Ok((event, engine))
    }
}

impl Counters for Source {
    fn check(&self, config: u64) -> Result {
        self.find(config).map(drop)
    }

    fn read(&self, config: u64) -> Option<Value> {
        let (event, engine) = self.find(config).ok()?;
        let count = |counter| self.hal.counter(counter).ok();
        match event {
            Event::Board(counter) => count(Counter::Board(counter)).map(Value::Count),
            Event::Engine(counter) => count(Counter::Engine(engine, counter)).map(Value::Count),
            Event::Sum(counter) => {
                let mut engines = self.engines();
                let sum = engines.try_fold(0u64, |sum, engine| {
                    Some(sum.wrapping_add(count(Counter::Engine(engine, counter))?))
                });
                sum.map(Value::Count)
            }
            Event::Clock(khz) => {
                let clocks = self.hal.clocks().ok()?;
                Some(Value::Level(u64::from(khz(&clocks))))
            }
        }
    }
}

/// A device's name without the colons, which perf would take for the end of the unit's name.
struct Address<'a>(&'a CStr);

impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0.to_bytes() {
            let shown = if byte == b':' { b'_' } else { byte };
            write!(f, "{}", char::from(shown))?;
        }
        Ok(())
    }
}

/// Tells of one event.
fn describe(
    layout: &mut Layout,
    name: fmt::Arguments<'_>,
    terms: fmt::Arguments<'_>,
    unit: Option<(&str, &str)>,
) -> Result {
    layout.event(name, terms)?;
    match unit {
        Some((unit, scale)) => layout.unit(name, unit, scale),
        None => Ok(()),
    }
}

/// Registers the counters of a board. [`None`]: it has none.
pub(super) fn register(dev: &device::Device, hal: Arc<dyn Hal>) -> Result<Option<GpuPmu>> {
    let source = Source { hal };
    if !source.hal.has_counter(Counter::Board(BoardCounter::Time)) {
        return Ok(None);
    }
    let mut layout = Layout::new();
    layout.term(c"event", c"config:0-7")?;
    layout.term(c"engine", c"config:8-15")?;
    for line in LINES {
        let number = line.number;
        if let Event::Engine(_) = line.event {
            for (id, engine) in (0u8..).zip(&source.hal.info().engines) {
                if source.has(line.event, EngineId(id)) {
                    describe(
                        &mut layout,
                        fmt!("{}_{}", EngineName(engine), line.name),
                        fmt!("event={number:#04x},engine={id:#04x}"),
                        line.unit,
                    )?;
                }
            }
        } else if source.has(line.event, EngineId(0)) {
            describe(
                &mut layout,
                fmt!("{}", line.name),
                fmt!("event={number:#04x}"),
                line.unit,
            )?;
        }
    }
    let name = CString::try_from_fmt(fmt!("ochre_{}", Address(dev.name())))?;
    Pmu::register(name, layout, source).map(Some)
}
