// SPDX-License-Identifier: GPL-2.0
//! The registers of virtio-pci (4.1.4): common and device configuration.
//!
//! A write changes the registers here and comes back as an [`Effect`] where the machine has to act.

use crate::config::Config;
use crate::config::QUEUES;
use crate::config::VECTORS;
use crate::judge::Judge;
use crate::judge::Rule;
use crate::ring::Parts;
use crate::wire::feature::Features;
use crate::wire::status;
use crate::wire::CONFIG_BYTES;
use crate::wire::EVENT_DISPLAY;
use crate::wire::NO_VECTOR;

/// Where the structures are in the register BAR, a page each.
pub mod place {
    /// Common configuration.
    pub const COMMON: u64 = 0x0000;
    /// ISR status.
    pub const ISR: u64 = 0x1000;
    /// Device configuration.
    pub const DEVICE: u64 = 0x2000;
    /// Notifications.
    pub const NOTIFY: u64 = 0x3000;
    /// Bytes of the common configuration.
    pub const COMMON_BYTES: u64 = 56;
    /// Bytes between the notification addresses of two queues.
    pub const NOTIFY_STRIDE: u64 = 4;
}

/// Registers of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its size.
    pub size: u16,
    /// Its vector.
    pub vector: u16,
    /// It is in use.
    pub enabled: bool,
    /// Where it is.
    pub parts: Parts,
}

/// What a write asks for beyond the value that it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// The device is to be reset.
    Reset,
    /// A queue was enabled.
    Enable(usize),
    /// The driver is ready.
    Ready,
}

/// The registers.
#[derive(Clone, Debug)]
pub struct Transport {
    status: u8,
    offered: Features,
    accepted: u64,
    device_select: u32,
    driver_select: u32,
    config_vector: u16,
    queue_select: u16,
    queues: [Queue; QUEUES],
    sizes: [u16; QUEUES],
    generation: u8,
    events: u32,
    scanouts: u32,
    blob_alignment: u32,
}

/// A register of the common configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reg {
    DeviceSelect,
    DeviceFeatures,
    DriverSelect,
    DriverFeatures,
    ConfigVector,
    QueueCount,
    Status,
    Generation,
    QueueSelect,
    QueueSize,
    QueueVector,
    QueueEnable,
    QueueNotify,
    /// A half of an address: which, and whether it is the upper one.
    Address(Part, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Desc,
    Avail,
    Used,
}

/// Offset, width, register (`struct virtio_pci_common_cfg`).
const REGISTERS: [(u64, usize, Reg); 19] = [
    (0, 4, Reg::DeviceSelect),
    (4, 4, Reg::DeviceFeatures),
    (8, 4, Reg::DriverSelect),
    (12, 4, Reg::DriverFeatures),
    (16, 2, Reg::ConfigVector),
    (18, 2, Reg::QueueCount),
    (20, 1, Reg::Status),
    (21, 1, Reg::Generation),
    (22, 2, Reg::QueueSelect),
    (24, 2, Reg::QueueSize),
    (26, 2, Reg::QueueVector),
    (28, 2, Reg::QueueEnable),
    (30, 2, Reg::QueueNotify),
    (32, 4, Reg::Address(Part::Desc, false)),
    (36, 4, Reg::Address(Part::Desc, true)),
    (40, 4, Reg::Address(Part::Avail, false)),
    (44, 4, Reg::Address(Part::Avail, true)),
    (48, 4, Reg::Address(Part::Used, false)),
    (52, 4, Reg::Address(Part::Used, true)),
];

/// Finds the register of an access; reports one that is none.
fn find(judge: &mut Judge, offset: u64, width: usize) -> Option<Reg> {
    let within = |entry: &&(u64, usize, Reg)| {
        let (at, bytes, _) = **entry;
        (at..at + bytes as u64).contains(&offset)
    };
    match REGISTERS.iter().find(within) {
        Some(&(at, bytes, reg)) if at == offset && bytes == width => Some(reg),
        Some(_) => {
            judge.report(Rule::RegWidth, offset);
            None
        }
        None => {
            judge.report(Rule::RegUnknown, offset);
            None
        }
    }
}

/// The half of a value.
fn half(value: u64, upper: bool) -> u32 {
    if upper {
        (value >> 32) as u32
    } else {
        value as u32
    }
}

fn set_half(value: &mut u64, upper: bool, new: u32) {
    let new = u64::from(new);
    *value = if upper {
        (*value & 0xffff_ffff) | (new << 32)
    } else {
        (*value & !0xffff_ffff) | new
    };
}

impl Transport {
    /// After power-on.
    pub fn new(config: &Config) -> Self {
        let queue = |size| Queue {
            size,
            vector: NO_VECTOR,
            enabled: false,
            parts: Parts::default(),
        };
        Self {
            status: 0,
            offered: config.features,
            accepted: 0,
            device_select: 0,
            driver_select: 0,
            config_vector: NO_VECTOR,
            queue_select: 0,
            queues: config.queue_sizes.map(queue),
            sizes: config.queue_sizes,
            generation: 0,
            events: 0,
            scanouts: config.scanouts,
            blob_alignment: config.blob_alignment,
        }
    }

    /// A reset by the driver: what is the device's own stays.
    pub fn reset(&mut self, config: &Config) {
        let (generation, events) = (self.generation, self.events);
        *self = Self {
            generation,
            events,
            ..Self::new(config)
        };
    }

    /// What the driver has accepted.
    pub fn features(&self) -> Features {
        Features::from_bits_truncate(self.accepted)
    }

    /// Whether the driver is ready.
    pub fn ready(&self) -> bool {
        self.status & status::DRIVER_OK != 0
    }

    /// The device status.
    pub fn status(&self) -> u8 {
        self.status
    }

    /// The registers of a queue.
    pub fn queue(&self, index: usize) -> Option<&Queue> {
        self.queues.get(index)
    }

    /// The vector for changes of the configuration.
    pub fn config_vector(&self) -> u16 {
        self.config_vector
    }

    /// The device cannot go on.
    pub fn needs_reset(&mut self) {
        self.status |= status::NEEDS_RESET;
    }

    /// The displays have changed.
    pub fn displays_changed(&mut self) {
        self.events |= EVENT_DISPLAY;
        self.generation = self.generation.wrapping_add(1);
    }

    fn selected(&self) -> Option<&Queue> {
        self.queues.get(usize::from(self.queue_select))
    }

    /// Reads the common configuration.
    pub fn read_common(&self, judge: &mut Judge, offset: u64, width: usize) -> u32 {
        let Some(reg) = find(judge, offset, width) else {
            return 0;
        };
        let queue = self.selected();
        match reg {
            Reg::DeviceSelect => self.device_select,
            Reg::DeviceFeatures => self.word_of(self.offered.bits(), self.device_select),
            Reg::DriverSelect => self.driver_select,
            Reg::DriverFeatures => self.word_of(self.accepted, self.driver_select),
            Reg::ConfigVector => self.config_vector.into(),
            Reg::QueueCount => QUEUES as u32,
            Reg::Status => self.status.into(),
            Reg::Generation => self.generation.into(),
            Reg::QueueSelect => self.queue_select.into(),
            // A queue that does not exist has no size (4.1.4.3.1).
            Reg::QueueSize => queue.map_or(0, |q| q.size.into()),
            Reg::QueueVector => queue.map_or(NO_VECTOR, |q| q.vector).into(),
            Reg::QueueEnable => queue.is_some_and(|q| q.enabled).into(),
            Reg::QueueNotify => self.queue_select.into(),
            Reg::Address(part, upper) => queue.map_or(0, |q| {
                let address = match part {
                    Part::Desc => q.parts.desc,
                    Part::Avail => q.parts.avail,
                    Part::Used => q.parts.used,
                };
                half(address, upper)
            }),
        }
    }

    fn word_of(&self, features: u64, select: u32) -> u32 {
        match select {
            0 | 1 => half(features, select == 1),
            _ => 0,
        }
    }

    /// Writes the common configuration.
    pub fn write_common(
        &mut self,
        config: &Config,
        judge: &mut Judge,
        offset: u64,
        width: usize,
        value: u32,
    ) -> Effect {
        let Some(reg) = find(judge, offset, width) else {
            return Effect::None;
        };
        // As wide as the register, which `find` has checked.
        let [low, high, ..] = value.to_le_bytes();
        let short = u16::from_le_bytes([low, high]);
        match reg {
            Reg::DeviceSelect => self.device_select = value,
            Reg::DriverSelect => self.driver_select = value,
            Reg::DriverFeatures => self.accept(judge, value),
            Reg::ConfigVector => self.config_vector = existing(config, short),
            Reg::Status => return self.set_status(judge, low),
            Reg::QueueSelect => self.queue_select = short,
            Reg::DeviceFeatures | Reg::QueueCount | Reg::Generation | Reg::QueueNotify => {
                judge.report(Rule::RegReadOnly, offset);
            }
            Reg::QueueSize | Reg::QueueVector | Reg::QueueEnable | Reg::Address(..) => {
                return self.write_queue(config, judge, reg, value, short);
            }
        }
        Effect::None
    }

    /// The driver says which features it takes.
    fn accept(&mut self, judge: &mut Judge, value: u32) {
        if self.status & status::FEATURES_OK != 0 {
            judge.report(Rule::Features, value.into());
            return;
        }
        match self.driver_select {
            0 | 1 => set_half(&mut self.accepted, self.driver_select == 1, value),
            _ if value != 0 => judge.report(Rule::Features, value.into()),
            _ => {}
        }
    }

    fn set_status(&mut self, judge: &mut Judge, value: u8) -> Effect {
        if value == 0 {
            return Effect::Reset;
        }
        // NEEDS_RESET is the device's.
        let taken_back = self.status & !value & !status::NEEDS_RESET;
        let order = [
            (status::DRIVER, status::ACKNOWLEDGE),
            (status::FEATURES_OK, status::DRIVER),
            (status::DRIVER_OK, status::FEATURES_OK),
        ];
        let out_of_order = order
            .iter()
            .any(|(bit, before)| value & bit != 0 && value & before == 0);
        if taken_back != 0 || out_of_order {
            judge.report(Rule::Status, value.into());
            return Effect::None;
        }
        let new = value & !self.status;
        let mut granted = value & !status::NEEDS_RESET;
        if new & status::FEATURES_OK != 0 && !self.negotiated(judge) {
            granted &= !status::FEATURES_OK;
        }
        if new & status::DRIVER_OK != 0 && self.status & status::FEATURES_OK == 0 {
            judge.report(Rule::Status, value.into());
            granted &= !status::DRIVER_OK;
        }
        self.status = granted | (self.status & status::NEEDS_RESET);
        if new & granted & status::DRIVER_OK != 0 {
            Effect::Ready
        } else {
            Effect::None
        }
    }

    /// Whether the device can work with what the driver has accepted.
    fn negotiated(&self, judge: &mut Judge) -> bool {
        let unknown = self.accepted & !self.offered.bits();
        if unknown != 0 {
            judge.report(Rule::Features, unknown);
            return false;
        }
        // Without the last two the device cannot be driven, if it says that it has them.
        let needed = Features::VERSION_1 | Features::ACCESS_PLATFORM;
        self.features().contains(self.offered & needed)
    }

    fn write_queue(
        &mut self,
        config: &Config,
        judge: &mut Judge,
        reg: Reg,
        value: u32,
        short: u16,
    ) -> Effect {
        let negotiated = self.status & status::FEATURES_OK != 0;
        let index = usize::from(self.queue_select);
        let info = u64::from(self.queue_select);
        let Some(queue) = self.queues.get_mut(index) else {
            // Linux takes the vector off queues that it has none for.
            if short != NO_VECTOR {
                judge.report(Rule::QueueSetup, info);
            }
            return Effect::None;
        };
        if reg == Reg::QueueVector {
            queue.vector = existing(config, short);
            return Effect::None;
        }
        if queue.enabled {
            judge.report(Rule::QueueSetup, info);
            return Effect::None;
        }
        match reg {
            Reg::QueueSize => {
                if short.is_power_of_two() && short <= self.sizes[index] {
                    queue.size = short;
                } else {
                    judge.report(Rule::QueueSetup, short.into());
                }
            }
            Reg::Address(part, upper) => {
                let address = match part {
                    Part::Desc => &mut queue.parts.desc,
                    Part::Avail => &mut queue.parts.avail,
                    Part::Used => &mut queue.parts.used,
                };
                set_half(address, upper, value);
            }
            Reg::QueueEnable => {
                let Parts { desc, avail, used } = queue.parts;
                let aligned = desc % 16 == 0 && avail % 2 == 0 && used % 4 == 0;
                if value != 1 || !negotiated || !aligned {
                    judge.report(Rule::QueueSetup, info);
                    return Effect::None;
                }
                queue.enabled = true;
                return Effect::Enable(index);
            }
            _ => {}
        }
        Effect::None
    }

    /// Reads the device configuration (5.7.4); `capsets` is how many it tells of.
    pub fn read_device(&self, judge: &mut Judge, capsets: u32, offset: u64, data: &mut [u8]) {
        let words = [
            self.events,
            0,
            self.scanouts,
            capsets,
            if self.offered.contains(Features::BLOB_ALIGNMENT) {
                self.blob_alignment
            } else {
                0
            },
        ];
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let range = from..from.saturating_add(data.len());
        match bytes.get(range) {
            Some(found) => data.copy_from_slice(found),
            None => {
                judge.report(Rule::RegUnknown, place::DEVICE + offset);
                data.fill(0);
            }
        }
    }

    /// Writes the device configuration: only the events can be cleared.
    pub fn write_device(&mut self, judge: &mut Judge, offset: u64, width: usize, value: u32) {
        match (offset, width) {
            (4, 4) => self.events &= !value,
            _ if offset + width as u64 > CONFIG_BYTES => {
                judge.report(Rule::RegUnknown, place::DEVICE + offset);
            }
            _ => judge.report(Rule::RegReadOnly, place::DEVICE + offset),
        }
    }
}

/// A vector that the function does not have is refused: it reads back as none (4.1.5.1.2.1).
fn existing(config: &Config, vector: u16) -> u16 {
    if config.msix && vector < VECTORS {
        vector
    } else {
        NO_VECTOR
    }
}
