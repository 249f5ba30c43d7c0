// SPDX-License-Identifier: GPL-2.0
//! Configuration space at run time.

use super::builder::Bar;
use super::reg;
use super::CONFIG_SIZE;

/// [`CONFIG_SIZE`] as an array length.
pub(super) const BYTES: usize = CONFIG_SIZE as usize;
/// Number of base address registers of a type 0 header.
pub(super) const BARS: usize = 6;

/// Device power states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerState {
    /// Running.
    D0,
    /// Light sleep (optional).
    D1,
    /// Deeper sleep (optional).
    D2,
    /// Off for the software, configuration space still answers.
    D3Hot,
}

impl PowerState {
    fn from_bits(control: u16) -> Self {
        match control & reg::PM_STATE {
            0 => Self::D0,
            1 => Self::D1,
            2 => Self::D2,
            _ => Self::D3Hot,
        }
    }
}

/// What a write to configuration space means to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigEvent {
    /// The function is to be reset. Configuration space already is.
    FunctionLevelReset,
    /// Return from D3hot of a function that does not keep its state: it is to be reset.
    /// Configuration space already is.
    SoftReset,
    /// MSI-X was enabled or disabled.
    MsixEnable(bool),
    /// All vectors were masked or unmasked together.
    MsixFunctionMask(bool),
    /// The power state changed.
    PowerState(PowerState),
    /// DMA and interrupts were allowed or forbidden.
    BusMaster(bool),
    /// The BARs were switched on or off.
    MemorySpace(bool),
}

/// Kinds of reset, by what survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetKind {
    /// Function-level reset (6.6.2): keeps sticky bits and what belongs to the link.
    FunctionLevel,
    /// Hot or warm reset (6.6.1), as when the machine reboots: keeps sticky bits.
    Warm,
    /// Cold reset: power was off; keeps nothing.
    Cold,
}

/// Per byte: the value after power-on, and what may happen to its bits.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) initial: Box<[u8; BYTES]>,
    /// Software may write these bits.
    pub(super) writable: Box<[u8; BYTES]>,
    /// Software clears these bits by writing 1.
    pub(super) write_1_clears: Box<[u8; BYTES]>,
    /// These bits survive all but power-on.
    pub(super) sticky: Box<[u8; BYTES]>,
    /// These bits survive a function-level reset too.
    pub(super) link: Box<[u8; BYTES]>,
}

impl Table {
    pub(super) fn new() -> Self {
        let zero = || Box::new([0; BYTES]);
        Self {
            initial: zero(),
            writable: zero(),
            write_1_clears: zero(),
            sticky: zero(),
            link: zero(),
        }
    }
}

/// Where things are that [`ConfigSpace`] has to know.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Places {
    pub(super) power: Option<usize>,
    pub(super) msix: Option<usize>,
    pub(super) express: Option<usize>,
    /// The function can be reset alone.
    pub(super) flr: bool,
    /// It keeps its state in D3hot.
    pub(super) no_soft_reset: bool,
    pub(super) d1: bool,
    pub(super) d2: bool,
    pub(super) bars: [Option<Bar>; BARS],
}

/// The configuration space of one function.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    table: Table,
    places: Places,
    now: Box<[u8; BYTES]>,
}

/// The registers whose changes are events.
#[derive(Clone, Copy)]
struct Watched {
    command: u16,
    power: u16,
    msix: u16,
}

impl ConfigSpace {
    pub(super) fn new(table: Table, places: Places) -> Self {
        let now = table.initial.clone();
        Self { table, places, now }
    }

    /// Reads `data.len()` bytes; beyond the end everything is ones.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(!0);
        for (at, byte) in (offset..CONFIG_SIZE).zip(data) {
            // Fits: it is below CONFIG_SIZE.
            *byte = self.now[at as usize];
        }
    }

    /// Writes as the register table allows, and says what that means.
    ///
    /// Read-only bits and what lies beyond the end are ignored. The events are in the order in which
    /// the device has to act: power up, switches, power down.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Vec<ConfigEvent> {
        let before = self.watched();
        let mut reset = false;
        for (at, &byte) in (offset..CONFIG_SIZE).zip(data) {
            // Fits: it is below CONFIG_SIZE.
            let at = at as usize;
            let writable = self.table.writable[at];
            let kept = self.now[at] & !writable & !(byte & self.table.write_1_clears[at]);
            self.now[at] = kept | (byte & writable);
            reset |= self.places.flr
                && self
                    .places
                    .express
                    .is_some_and(|cap| at == cap + reg::EXPRESS_CONTROL_HIGH)
                && byte & reg::INITIATE_FLR != 0;
        }
        if reset {
            self.reset(ResetKind::FunctionLevel);
            return vec![ConfigEvent::FunctionLevelReset];
        }
        self.refuse_missing_power_state(before.power);
        self.events(before)
    }

    /// Back to the initial values, but for what survives this kind of reset.
    pub fn reset(&mut self, kind: ResetKind) {
        for at in 0..BYTES {
            let keep = match kind {
                ResetKind::FunctionLevel => self.table.sticky[at] | self.table.link[at],
                ResetKind::Warm => self.table.sticky[at],
                ResetKind::Cold => 0,
            };
            self.now[at] = (self.now[at] & keep) | (self.table.initial[at] & !keep);
        }
    }

    /// Changes a 32-bit register from the device's side, whatever software may do to it: first the
    /// bits of `clear` go, then those of `set` come. Out of range, nothing happens.
    pub fn modify(&mut self, offset: usize, clear: u32, set: u32) {
        let field = offset
            .checked_add(4)
            .and_then(|end| self.now.get_mut(offset..end));
        if let Some(field) = field {
            let changes = clear.to_le_bytes().into_iter().zip(set.to_le_bytes());
            for (byte, (clear, set)) in field.iter_mut().zip(changes) {
                *byte = (*byte & !clear) | set;
            }
        }
    }

    /// The function may use DMA and send interrupts.
    pub fn bus_master(&self) -> bool {
        self.u16(reg::COMMAND) & reg::COMMAND_MASTER != 0 && self.power_state() == PowerState::D0
    }

    /// The function answers to its BARs.
    pub fn memory_space(&self) -> bool {
        self.u16(reg::COMMAND) & reg::COMMAND_MEMORY != 0 && self.power_state() == PowerState::D0
    }

    /// The power state; D0 for a function without power management.
    pub fn power_state(&self) -> PowerState {
        PowerState::from_bits(self.watched().power)
    }

    /// MSI-X is enabled.
    pub fn msix_enabled(&self) -> bool {
        self.watched().msix & reg::MSIX_ENABLE != 0
    }

    /// The address in a BAR; `None` if the function has no such BAR.
    pub fn bar_address(&self, index: usize) -> Option<u64> {
        let bar = self.places.bars.get(index).copied().flatten()?;
        let low = self.u32(reg::BAR0 + 4 * index);
        let high = if bar.is_64bit() {
            self.u32(reg::BAR0 + 4 * (index + 1))
        } else {
            0
        };
        Some(((u64::from(high) << 32) | u64::from(low)) & !(bar.size() - 1))
    }

    /// The offset of a capability, found as software finds it.
    pub fn find_capability(&self, id: u8) -> Option<usize> {
        let mut at = usize::from(self.now[reg::CAPABILITIES]);
        // A capability has at least 4 bytes, which bounds the walk whatever the chain says.
        for _ in 0..(reg::EXTENDED - reg::HEADER_END) / 4 {
            if at < reg::HEADER_END {
                return None;
            }
            if self.now[at] == id {
                return Some(at);
            }
            at = usize::from(self.now[at + 1]);
        }
        None
    }

    /// The offset of an extended capability, found as software finds it.
    pub fn find_extended(&self, id: u16) -> Option<usize> {
        let mut at = reg::EXTENDED;
        for _ in 0..(BYTES - reg::EXTENDED) / 4 {
            if at < reg::EXTENDED {
                return None;
            }
            let header = self.u32(at);
            if header & 0xffff == u32::from(id) && header != 0 {
                return Some(at);
            }
            at = (header >> 20) as usize & !3;
        }
        None
    }

    /// Undoes a write that asked for a sleep state that the function does not have (7.5.2.2).
    fn refuse_missing_power_state(&mut self, before: u16) {
        let missing = match self.power_state() {
            PowerState::D0 | PowerState::D3Hot => false,
            PowerState::D1 => !self.places.d1,
            PowerState::D2 => !self.places.d2,
        };
        if let (true, Some(cap)) = (missing, self.places.power) {
            let [state, _] = (before & reg::PM_STATE).to_le_bytes();
            let [bits, _] = reg::PM_STATE.to_le_bytes();
            let control = &mut self.now[cap + reg::PM_CONTROL];
            *control = (*control & !bits) | state;
        }
    }

    /// Compares the watched registers with what they were.
    fn events(&mut self, before: Watched) -> Vec<ConfigEvent> {
        let mut events = Vec::new();
        let after = self.watched();
        let was = PowerState::from_bits(before.power);
        let is = PowerState::from_bits(after.power);
        if was != is && is == PowerState::D0 {
            events.push(ConfigEvent::PowerState(is));
            if was == PowerState::D3Hot && !self.places.no_soft_reset {
                self.reset(ResetKind::FunctionLevel);
                events.push(ConfigEvent::SoftReset);
                return events;
            }
        }
        let command = before.command ^ after.command;
        let msix = before.msix ^ after.msix;
        if command & reg::COMMAND_MEMORY != 0 {
            events.push(ConfigEvent::MemorySpace(
                after.command & reg::COMMAND_MEMORY != 0,
            ));
        }
        if msix & reg::MSIX_MASK_ALL != 0 {
            events.push(ConfigEvent::MsixFunctionMask(
                after.msix & reg::MSIX_MASK_ALL != 0,
            ));
        }
        if msix & reg::MSIX_ENABLE != 0 {
            events.push(ConfigEvent::MsixEnable(after.msix & reg::MSIX_ENABLE != 0));
        }
        if command & reg::COMMAND_MASTER != 0 {
            events.push(ConfigEvent::BusMaster(
                after.command & reg::COMMAND_MASTER != 0,
            ));
        }
        if was != is && is != PowerState::D0 {
            events.push(ConfigEvent::PowerState(is));
        }
        events
    }

    fn watched(&self) -> Watched {
        let field = |cap: Option<usize>, offset| cap.map_or(0, |cap| self.u16(cap + offset));
        Watched {
            command: self.u16(reg::COMMAND),
            power: field(self.places.power, reg::PM_CONTROL),
            msix: field(self.places.msix, reg::MSIX_CONTROL),
        }
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.now[at], self.now[at + 1]])
    }

    fn u32(&self, at: usize) -> u32 {
        (u32::from(self.u16(at + 2)) << 16) | u32::from(self.u16(at))
    }
}
