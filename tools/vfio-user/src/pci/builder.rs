// SPDX-License-Identifier: GPL-2.0
//! Laying out a configuration space.

use thiserror::Error;

use super::capability;
use super::config::ConfigSpace;
use super::config::Places;
use super::config::Table;
use super::config::BARS;
use super::config::BYTES;
use super::extended;
use super::reg;

/// Who the function says it is.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Vendor identifier.
    pub vendor: u16,
    /// Device identifier.
    pub device: u16,
    /// Vendor of the board.
    pub subsystem_vendor: u16,
    /// Identifier of the board.
    pub subsystem: u16,
    /// Class code: base class, sub-class, programming interface, 24 bits.
    pub class: u32,
    /// Revision.
    pub revision: u8,
}

/// A memory base address register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    size: u64,
    wide: bool,
    prefetchable: bool,
}

impl Bar {
    /// A BAR below 4 GiB.
    pub fn mem32(size: u64) -> Self {
        Self {
            size,
            wide: false,
            prefetchable: false,
        }
    }

    /// A BAR anywhere; it takes two registers.
    pub fn mem64(size: u64) -> Self {
        Self {
            size,
            wide: true,
            prefetchable: false,
        }
    }

    /// Reads have no side effects.
    #[must_use]
    pub fn prefetchable(mut self) -> Self {
        self.prefetchable = true;
        self
    }

    pub(super) fn is_64bit(&self) -> bool {
        self.wide
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }
}

/// The power management capability.
#[derive(Clone, Copy, Debug, Default)]
pub struct PmCaps {
    /// The function has D1.
    pub d1: bool,
    /// The function has D2.
    pub d2: bool,
    /// The function keeps its state from D3hot to D0.
    pub no_soft_reset: bool,
}

/// The MSI-X capability.
#[derive(Clone, Copy, Debug)]
pub struct Msix {
    /// Number of vectors, 1 to 2048.
    pub vectors: u16,
    /// BAR that holds the table.
    pub table_bar: u8,
    /// Where it starts there, a multiple of 8.
    pub table_offset: u32,
    /// BAR that holds the pending bits.
    pub pba_bar: u8,
    /// Where they start there, a multiple of 8.
    pub pba_offset: u32,
}

/// The PCI Express capability of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Express {
    /// The function can be reset alone.
    pub flr: bool,
    /// Largest payload as its code: 0 is 128 bytes, 1 is 256, up to 5.
    pub max_payload: u8,
    /// Link speed as its code: 1 is 2.5 GT/s, up to 6.
    pub link_speed: u8,
    /// Lanes: 1 to 32.
    pub link_width: u8,
}

/// Why a configuration space cannot be built.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BuildError {
    /// A BAR that does not exist, is taken, or has an impossible size.
    #[error("BAR {0}: no such register, taken, or not a power of two from 128 bytes up")]
    Bar(usize),
    /// The capability of this identifier has a value out of range, or comes twice.
    #[error("capability {0:#x}: a value is out of range, or it comes twice")]
    Capability(u16),
    /// The capabilities do not fit.
    #[error("the capabilities do not fit")]
    Full,
}

/// A capability that is still to be placed. `body` comes after the header.
#[derive(Clone, Debug, Default)]
struct Body {
    initial: Vec<u8>,
    writable: Vec<u8>,
    write_1_clears: Vec<u8>,
    sticky: Vec<u8>,
    link: Vec<u8>,
}

impl Body {
    fn new(size: usize) -> Self {
        let zero = || vec![0; size];
        Self {
            initial: zero(),
            writable: zero(),
            write_1_clears: zero(),
            sticky: zero(),
            link: zero(),
        }
    }

    fn u16(&mut self, at: usize, initial: u16, writable: u16) {
        self.initial[at..at + 2].copy_from_slice(&initial.to_le_bytes());
        self.writable[at..at + 2].copy_from_slice(&writable.to_le_bytes());
    }

    fn u32(&mut self, at: usize, initial: u32, writable: u32) {
        self.initial[at..at + 4].copy_from_slice(&initial.to_le_bytes());
        self.writable[at..at + 4].copy_from_slice(&writable.to_le_bytes());
    }

    fn write_1_clears(&mut self, at: usize, bits: u32) {
        self.write_1_clears[at..at + 4].copy_from_slice(&bits.to_le_bytes());
    }

    fn sticky(&mut self, at: usize, bits: u32) {
        self.sticky[at..at + 4].copy_from_slice(&bits.to_le_bytes());
    }

    fn link(&mut self, at: usize, bits: u16) {
        self.link[at..at + 2].copy_from_slice(&bits.to_le_bytes());
    }
}

/// Builds a [`ConfigSpace`]; capabilities are chained in the order they are named.
#[derive(Clone, Debug)]
pub struct ConfigBuilder {
    table: Table,
    places: Places,
    /// Where the next capability goes, and the byte that has to point to it.
    next: usize,
    link: usize,
    /// The same for extended capabilities; the link is a whole header.
    next_extended: usize,
    link_extended: Option<usize>,
    /// BAR registers that are in use, upper halves included.
    bar_taken: [bool; BARS],
    error: Option<BuildError>,
}

impl ConfigSpace {
    /// Starts with a type 0 header that has neither BARs nor capabilities.
    pub fn builder(identity: Identity) -> ConfigBuilder {
        let mut table = Table::new();
        let mut put = |at: usize, initial: &[u8]| {
            table.initial[at..at + initial.len()].copy_from_slice(initial);
        };
        put(reg::VENDOR, &identity.vendor.to_le_bytes());
        put(reg::DEVICE, &identity.device.to_le_bytes());
        put(reg::REVISION, &[identity.revision]);
        put(reg::CLASS, &identity.class.to_le_bytes()[..3]);
        put(
            reg::SUBSYSTEM_VENDOR,
            &identity.subsystem_vendor.to_le_bytes(),
        );
        put(reg::SUBSYSTEM, &identity.subsystem.to_le_bytes());
        // Memory space, bus master, parity response, SERR#, INTx disable (7.5.1.1.3).
        table.writable[reg::COMMAND..][..2].copy_from_slice(&0x0546u16.to_le_bytes());
        // The error bits (7.5.1.1.4).
        table.write_1_clears[reg::STATUS..][..2].copy_from_slice(&0xf900u16.to_le_bytes());
        table.writable[reg::CACHE_LINE] = !0;
        table.writable[reg::INTERRUPT_LINE] = !0;
        ConfigBuilder {
            table,
            places: Places::default(),
            next: reg::HEADER_END,
            link: reg::CAPABILITIES,
            next_extended: reg::EXTENDED,
            link_extended: None,
            bar_taken: [false; BARS],
            error: None,
        }
    }
}

impl ConfigBuilder {
    /// Adds a BAR (7.5.1.2.1).
    #[must_use]
    pub fn bar(mut self, index: usize, bar: Bar) -> Self {
        let registers = if bar.wide { 2 } else { 1 };
        let limit = if bar.wide { 1 << 63 } else { 1 << 31 };
        let free = self.bar_taken.get(index..index.saturating_add(registers));
        let fits = free.is_some_and(|taken| taken.iter().all(|taken| !taken));
        if !fits || !bar.size.is_power_of_two() || !(128..=limit).contains(&bar.size) {
            return self.fail(BuildError::Bar(index));
        }
        self.bar_taken[index..index + registers].fill(true);
        self.places.bars[index] = Some(bar);
        let at = reg::BAR0 + 4 * index;
        let bytes = 4 * registers;
        // Software finds the size by writing ones: the bits below it stay 0.
        let mask = (!(bar.size - 1)).to_le_bytes();
        self.table.writable[at..at + bytes].copy_from_slice(&mask[..bytes]);
        self.table.initial[at] = (u8::from(bar.wide) << 2) | (u8::from(bar.prefetchable) << 3);
        self
    }

    /// The interrupt pin that the function uses: 1 is INTA#, up to 4 (7.5.1.1.13). Without this it
    /// uses none.
    #[must_use]
    pub fn interrupt_pin(mut self, pin: u8) -> Self {
        self.table.initial[reg::INTERRUPT_PIN] = pin;
        self
    }

    /// Adds the power management capability (7.5.2), version 3, without PME.
    #[must_use]
    pub fn power_management(mut self, power: PmCaps) -> Self {
        let mut body = Body::new(6);
        body.u16(
            0,
            3 | (u16::from(power.d1) << 9) | (u16::from(power.d2) << 10),
            0,
        );
        body.u16(2, u16::from(power.no_soft_reset) << 3, reg::PM_STATE);
        self.places.d1 = power.d1;
        self.places.d2 = power.d2;
        self.places.no_soft_reset = power.no_soft_reset;
        let (builder, at) = self.place(capability::POWER_MANAGEMENT, &body);
        self = builder;
        self.places.power = at;
        self
    }

    /// Adds the MSI-X capability (7.7.2).
    #[must_use]
    pub fn msix(mut self, msix: Msix) -> Self {
        let bad_place = |bar: u8, offset: u32| usize::from(bar) >= BARS || offset % 8 != 0;
        if !(1..=2048).contains(&msix.vectors)
            || bad_place(msix.table_bar, msix.table_offset)
            || bad_place(msix.pba_bar, msix.pba_offset)
        {
            return self.fail(BuildError::Capability(capability::MSIX.into()));
        }
        let mut body = Body::new(10);
        body.u16(0, msix.vectors - 1, reg::MSIX_ENABLE | reg::MSIX_MASK_ALL);
        body.u32(2, msix.table_offset | u32::from(msix.table_bar), 0);
        body.u32(6, msix.pba_offset | u32::from(msix.pba_bar), 0);
        let (builder, at) = self.place(capability::MSIX, &body);
        self = builder;
        self.places.msix = at;
        self
    }

    /// Adds the PCI Express capability (7.5.3), version 2, of an endpoint.
    #[must_use]
    pub fn express(mut self, express: Express) -> Self {
        if express.max_payload > 5
            || !(1..=6).contains(&express.link_speed)
            || !(1..=32).contains(&express.link_width)
        {
            return self.fail(BuildError::Capability(capability::EXPRESS.into()));
        }
        let (speed, width) = (u16::from(express.link_speed), u16::from(express.link_width));
        // Offsets are those of the specification less the two bytes of the header.
        let mut body = Body::new(58);
        body.u16(0x00, 2, 0);
        // Device: 8-bit tags, role-based error reporting, FLR; relaxed order and no-snoop are on,
        // reads are up to 512 bytes.
        let flr = u32::from(express.flr) << 28;
        body.u32(
            0x02,
            u32::from(express.max_payload) | (1 << 5) | (1 << 15) | flr,
            0,
        );
        body.u16(0x06, 0x2810, 0x79ff);
        body.link(0x06, 7 << 5);
        // The status is the upper half of the word at 0x06.
        body.write_1_clears(0x06, 0x000f_0000);
        // Link: no ASPM; the slot's clock.
        body.u32(0x0a, u32::from(speed | (width << 4)), 0);
        body.u16(0x0e, 0, 0x00cb);
        body.link(0x0e, 0x00cb);
        body.u16(0x10, speed | (width << 4) | (1 << 12), 0);
        // Device 2: completion timeouts can be disabled.
        body.u32(0x22, 1 << 4, 0);
        body.u16(0x26, 0, 1 << 4);
        // Link 2: all speeds up to the greatest; the target survives.
        body.u32(0x2a, ((1 << speed) - 1) << 1, 0);
        body.u16(0x2e, speed, 0xf);
        body.sticky(0x2e, 0xf);
        self.places.flr = express.flr;
        let (builder, at) = self.place(capability::EXPRESS, &body);
        self = builder;
        self.places.express = at;
        self
    }

    /// Adds any other capability: the bytes after identifier and link, and which of their bits
    /// software may write (missing bytes of the mask are 0).
    #[must_use]
    pub fn capability(self, id: u8, bytes: &[u8], writable: &[u8]) -> Self {
        let Some(body) = plain_body(bytes, writable) else {
            return self.fail(BuildError::Capability(id.into()));
        };
        self.place(id, &body).0
    }

    /// Adds advanced error reporting (7.8.4), version 2, without ECRC.
    #[must_use]
    pub fn aer(self) -> Self {
        const UNCORRECTABLE: u32 = 0x005f_f010;
        const CORRECTABLE: u32 = 0x0000_f1c1;
        // Offsets are those of the specification less the four bytes of the header.
        let mut body = Body::new(0x44);
        body.write_1_clears(0x00, UNCORRECTABLE);
        body.u32(0x04, 0x0040_0000, UNCORRECTABLE);
        body.u32(0x08, 0x0046_2010, UNCORRECTABLE);
        body.write_1_clears(0x0c, CORRECTABLE);
        body.u32(0x10, 0x0000_e000, CORRECTABLE);
        // Status, mask, severity, first error pointer and header log are sticky.
        body.sticky(0x00, UNCORRECTABLE);
        body.sticky(0x04, UNCORRECTABLE);
        body.sticky(0x08, UNCORRECTABLE);
        body.sticky(0x0c, CORRECTABLE);
        body.sticky(0x10, CORRECTABLE);
        body.sticky(0x14, 0x1f);
        for at in (0x18..0x28).step_by(4) {
            body.sticky(at, !0);
        }
        self.place_extended(extended::ADVANCED_ERRORS, 2, &body)
    }

    /// Adds the device serial number (7.9.3).
    #[must_use]
    pub fn serial_number(self, number: u64) -> Self {
        self.extended(extended::SERIAL_NUMBER, 1, &number.to_le_bytes(), &[])
    }

    /// Adds any other extended capability: the bytes after its header, and which of their bits
    /// software may write (missing bytes of the mask are 0).
    #[must_use]
    pub fn extended(self, id: u16, version: u8, bytes: &[u8], writable: &[u8]) -> Self {
        match plain_body(bytes, writable) {
            Some(body) if version < 16 => self.place_extended(id, version, &body),
            _ => self.fail(BuildError::Capability(id)),
        }
    }

    /// The configuration space after power-on.
    ///
    /// # Errors
    ///
    /// The first [`BuildError`] of the calls before.
    pub fn build(self) -> Result<ConfigSpace, BuildError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(ConfigSpace::new(self.table, self.places)),
        }
    }

    fn fail(mut self, error: BuildError) -> Self {
        self.error.get_or_insert(error);
        self
    }

    /// Appends a capability; says where it went.
    fn place(mut self, id: u8, body: &Body) -> (Self, Option<usize>) {
        // Only vendor specific capabilities may come more than once.
        if id != capability::VENDOR_SPECIFIC && self.has(id) {
            return (self.fail(BuildError::Capability(id.into())), None);
        }
        let at = self.next;
        let end = at + 2 + body.initial.len();
        let (Ok(pointer), true) = (u8::try_from(at), end <= reg::EXTENDED) else {
            return (self.fail(BuildError::Full), None);
        };
        self.table.initial[self.link] = pointer;
        self.table.initial[at] = id;
        self.table.initial[reg::STATUS] |= 1 << 4;
        self.copy(at + 2, body);
        self.link = at + 1;
        self.next = end.next_multiple_of(4);
        (self, Some(at))
    }

    /// Appends an extended capability.
    fn place_extended(mut self, id: u16, version: u8, body: &Body) -> Self {
        let at = self.next_extended;
        let end = at + 4 + body.initial.len();
        let (Ok(pointer), true) = (u16::try_from(at), end <= BYTES) else {
            return self.fail(BuildError::Full);
        };
        let header = (u32::from(version) << 16) | u32::from(id);
        self.table.initial[at..at + 4].copy_from_slice(&header.to_le_bytes());
        if let Some(link) = self.link_extended {
            // Bits 31:20 of the previous header; its version is in the lower half of byte 2.
            let [low, high] = (pointer << 4).to_le_bytes();
            self.table.initial[link + 2] |= low;
            self.table.initial[link + 3] = high;
        }
        self.copy(at + 4, body);
        self.link_extended = Some(at);
        self.next_extended = end.next_multiple_of(4);
        self
    }

    /// Whether the chain so far has the capability.
    fn has(&self, id: u8) -> bool {
        ConfigSpace::new(self.table.clone(), self.places)
            .find_capability(id)
            .is_some()
    }

    fn copy(&mut self, at: usize, body: &Body) {
        let table = &mut self.table;
        let range = at..at + body.initial.len();
        table.initial[range.clone()].copy_from_slice(&body.initial);
        table.writable[range.clone()].copy_from_slice(&body.writable);
        table.write_1_clears[range.clone()].copy_from_slice(&body.write_1_clears);
        table.sticky[range.clone()].copy_from_slice(&body.sticky);
        table.link[range].copy_from_slice(&body.link);
    }
}

/// A body of plain registers; `None` if there are more mask bytes than bytes.
fn plain_body(bytes: &[u8], writable: &[u8]) -> Option<Body> {
    let mut body = Body::new(bytes.len());
    body.initial.copy_from_slice(bytes);
    body.writable
        .get_mut(..writable.len())?
        .copy_from_slice(writable);
    Some(body)
}
