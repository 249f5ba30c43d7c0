// SPDX-License-Identifier: GPL-2.0
//! The transport: registers of a virtio device behind PCI, by the questions that are asked of it.
//!
//! The BARs may go away at any time (unbind, hot unplug). Every access takes the mapping under RCU
//! and gives `ENODEV` when it is gone, and a status of all ones means that nothing answers. What
//! the device says is checked where it is read: queue sizes, vectors, where to notify.

use kernel::{
    device::Bound,
    io::{
        poll,
        Io, //
    },
    new_mutex,
    pci,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    time::Delta, //
};

use super::{
    caps::{
        self,
        Config,
        Layout,
        Region, //
    },
    regs::{
        common,
        status,
        Pair,
        Reg,
        NO_VECTOR, //
    },
    vring::Addresses, //
};

/// How long a device may take to reset.
const RESET_TIMEOUT: Delta = Delta::from_secs(5);
/// How often its status is looked at meanwhile.
const RESET_POLL: Delta = Delta::from_millis(1);
/// How often the device's configuration is read again because it changed meanwhile.
const CONFIG_TRIES: usize = 16;
/// The largest queue that the specification allows.
const QUEUE_SIZE_MAX: u16 = 1 << 15;

/// Configuration space of a function, as [`caps`] reads it.
struct ConfigSpace<'a>(pci::ConfigSpace<'a, pci::Normal>);

impl Config for ConfigSpace<'_> {
    fn read8(&self, offset: usize) -> u8 {
        self.0.try_read8(offset).unwrap_or(u8::MAX)
    }

    fn read16(&self, offset: usize) -> u16 {
        self.0.try_read16(offset).unwrap_or(u16::MAX)
    }

    fn read32(&self, offset: usize) -> u32 {
        self.0.try_read32(offset).unwrap_or(u32::MAX)
    }
}

/// A width in which registers are accessed.
trait Width: Copy {
    fn read(bar: &pci::Bar<'_>, offset: usize) -> Result<Self>;
    fn write(self, bar: &pci::Bar<'_>, offset: usize) -> Result;
}

macro_rules! width {
    ($type:ty, $read:ident, $write:ident) => {
        impl Width for $type {
            #[inline]
            fn read(bar: &pci::Bar<'_>, offset: usize) -> Result<Self> {
                bar.$read(offset)
            }

            #[inline]
            fn write(self, bar: &pci::Bar<'_>, offset: usize) -> Result {
                bar.$write(self, offset)
            }
        }
    };
}
width!(u8, try_read8, try_write8);
width!(u16, try_read16, try_write16);
width!(u32, try_read32, try_write32);

/// Where to tell the device that a queue has something for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notify {
    offset: usize,
    queue: u16,
}

/// The registers of a device while the driver is bound.
#[pin_data]
pub(super) struct Transport {
    /// The BARs in use, each mapped as a whole.
    bars: [Option<pci::DevresBar>; 6],
    layout: Layout,
    /// Guards the registers that select which queue or feature word others show, from the
    /// selection until those were accessed. Nothing else is taken inside.
    #[pin]
    select: Mutex<()>,
}

impl Transport {
    /// Finds the device's structures and maps them. The log says why if that fails.
    ///
    /// Memory of the function has to be enabled.
    pub(super) fn new(pdev: &pci::Device<Bound>) -> Result<Arc<Self>> {
        let config = ConfigSpace(pdev.config_space());
        let sizes = caps::bar_sizes(&config, |bar| pdev.resource_len(bar).unwrap_or(0));
        let layout = caps::walk(&config, &sizes)
            .inspect_err(|error| dev_err!(pdev, "not a modern virtio device: {}\n", error))?;

        let mut bars = [const { None }; 6];
        let regions = [
            layout.common,
            layout.notify.region,
            layout.isr,
            layout.device,
        ];
        for Region { bar, .. } in regions {
            let slot = bars.get_mut(usize::try_from(bar)?).ok_or(EINVAL)?;
            if slot.is_none() {
                let mapped = pdev
                    .iomap_region(bar, c"ochre-virtio")
                    .inspect_err(|_| dev_err!(pdev, "BAR{} cannot be mapped\n", bar))?;
                *slot = Some(mapped.into_devres()?);
            }
        }
        Arc::pin_init(
            pin_init!(Self {
                bars,
                layout,
                select <- new_mutex!(()),
            }),
            GFP_KERNEL,
        )
    }

    /// Runs `f` with the BAR of a region.
    #[inline]
    fn with_bar<R>(
        &self,
        region: &Region,
        f: impl FnOnce(&pci::Bar<'_>) -> Result<R>,
    ) -> Result<R> {
        let bar = self.bars.get(region.bar as usize).ok_or(EINVAL)?;
        let bar = bar.as_ref().ok_or(EINVAL)?;
        let bar = bar.try_access().ok_or(ENODEV)?;
        f(&bar)
    }

    /// Reads `reg` of the structure in `region`.
    fn read<T: Width>(&self, region: &Region, reg: Reg<T>) -> Result<T> {
        let base = usize::try_from(region.offset)?;
        self.with_bar(region, |bar| T::read(bar, base + reg.offset()))
    }

    /// Writes `reg` of the structure in `region`.
    fn write<T: Width>(&self, region: &Region, reg: Reg<T>, value: T) -> Result {
        let base = usize::try_from(region.offset)?;
        self.with_bar(region, |bar| value.write(bar, base + reg.offset()))
    }

    fn read_common<T: Width>(&self, reg: Reg<T>) -> Result<T> {
        self.read(&self.layout.common, reg)
    }

    fn write_common<T: Width>(&self, reg: Reg<T>, value: T) -> Result {
        self.write(&self.layout.common, reg, value)
    }

    fn write_pair(&self, pair: Pair, value: u64) -> Result {
        // CAST: each keeps the 32 bits that it is for.
        self.write_common(pair.low, value as u32)?;
        self.write_common(pair.high, (value >> 32) as u32)
    }

    /// What an answer that makes no sense means: `ENODEV` if there is no device any more, otherwise
    /// `error`.
    fn nonsense(&self, error: Error) -> Error {
        match self.status() {
            Ok(_) => error,
            Err(gone) => gone,
        }
    }

    /// The device's status, see [`status`]. `ENODEV` if nothing answers.
    pub(super) fn status(&self) -> Result<u8> {
        match self.read_common(common::DEVICE_STATUS)? {
            status::GONE => Err(ENODEV),
            status => Ok(status),
        }
    }

    /// Sets bits in the status.
    pub(super) fn add_status(&self, bits: u8) -> Result {
        self.write_common(common::DEVICE_STATUS, self.status()? | bits)
    }

    /// Tells the device that the driver has given up.
    pub(super) fn fail(&self) {
        // One that is gone need not be told.
        let _ = self.add_status(status::FAILED);
    }

    /// Resets the device and waits until that is done: it touches no memory afterwards and has
    /// forgotten features, queues and vectors. Sleeps. `ENODEV` if it is gone, `ETIMEDOUT` if it
    /// does not get done.
    pub(super) fn reset(&self) -> Result {
        self.write_common(common::DEVICE_STATUS, 0)?;
        poll::read_poll_timeout(
            || self.status(),
            |status| *status == 0,
            RESET_POLL,
            RESET_TIMEOUT,
        )?;
        Ok(())
    }

    /// The features that the device offers.
    pub(super) fn offered_features(&self) -> Result<u64> {
        let _guard = self.select.lock();
        self.write_common(common::DEVICE_FEATURE_SELECT, 0)?;
        let low = self.read_common(common::DEVICE_FEATURE)?;
        self.write_common(common::DEVICE_FEATURE_SELECT, 1)?;
        let high = self.read_common(common::DEVICE_FEATURE)?;
        let features = u64::from(high) << 32 | u64::from(low);
        if features == u64::MAX {
            return Err(self.nonsense(EINVAL));
        }
        Ok(features)
    }

    /// Accepts `features`, finally. `EOPNOTSUPP` if the device will not work with just those.
    pub(super) fn accept(&self, features: u64) -> Result {
        let guard = self.select.lock();
        // CAST: each keeps the 32 bits that it is for.
        for (word, bits) in [(0, features as u32), (1, (features >> 32) as u32)] {
            self.write_common(common::DRIVER_FEATURE_SELECT, word)?;
            self.write_common(common::DRIVER_FEATURE, bits)?;
        }
        drop(guard);
        self.add_status(status::FEATURES_OK)?;
        if self.status()? & status::FEATURES_OK == 0 {
            return Err(EOPNOTSUPP);
        }
        Ok(())
    }

    /// The entries that queue `index` can have at most; 0 if there is no such queue.
    pub(super) fn queue_size(&self, index: u16) -> Result<u16> {
        let _guard = self.select.lock();
        self.selected_queue_size(index)
    }

    /// As [`Self::queue_size`], and leaves the queue selected. `select` is locked.
    fn selected_queue_size(&self, index: u16) -> Result<u16> {
        self.write_common(common::QUEUE_SELECT, index)?;
        match self.read_common(common::QUEUE_SIZE)? {
            size if size > QUEUE_SIZE_MAX => Err(self.nonsense(EINVAL)),
            size => Ok(size),
        }
    }

    /// Sets queue `index` up with `size` entries, and its interrupts with `vector`.
    ///
    /// `ENOENT` if there is no such queue or not of that size, `EBUSY` if it is set up already or
    /// the device refuses the vector, `EIO` if the place for its notifications is none.
    pub(super) fn setup_queue(
        &self,
        index: u16,
        size: u16,
        at: &Addresses,
        vector: Option<u16>,
    ) -> Result<Notify> {
        let _guard = self.select.lock();
        let max = self.selected_queue_size(index)?;
        if size == 0 || size > max {
            return Err(ENOENT);
        }
        if self.read_common(common::QUEUE_ENABLE)? != 0 {
            return Err(self.nonsense(EBUSY));
        }
        let notify = self.place_of_notify(index, self.read_common(common::QUEUE_NOTIFY_OFF)?)?;
        self.write_common(common::QUEUE_SIZE, size)?;
        self.write_pair(common::QUEUE_DESC, at.desc)?;
        self.write_pair(common::QUEUE_DRIVER, at.avail)?;
        self.write_pair(common::QUEUE_DEVICE, at.used)?;
        self.set_vector(common::QUEUE_MSIX_VECTOR, vector)?;
        self.write_common(common::QUEUE_ENABLE, 1)?;
        Ok(notify)
    }

    /// Where queue `queue` is notified, of which the device says that it is at `notify_off`.
    fn place_of_notify(&self, queue: u16, notify_off: u16) -> Result<Notify> {
        let window = &self.layout.notify;
        // No overflow: 16 bits by 32.
        let offset = u64::from(notify_off) * u64::from(window.multiplier);
        if offset % 2 != 0 || offset + 2 > window.region.len {
            return Err(self.nonsense(EIO));
        }
        Ok(Notify {
            // No overflow: within the BAR.
            offset: usize::try_from(window.region.offset + offset)?,
            queue,
        })
    }

    /// Writes a vector and looks whether the device took it: `EBUSY` if not.
    fn set_vector(&self, reg: Reg<u16>, vector: Option<u16>) -> Result {
        let wanted = vector.unwrap_or(NO_VECTOR);
        self.write_common(reg, wanted)?;
        if vector.is_some() && self.read_common(reg)? != wanted {
            return Err(self.nonsense(EBUSY));
        }
        Ok(())
    }

    /// Chooses the MSI-X vector for configuration changes; [`None`]: no message. `EBUSY` if the
    /// device refuses.
    pub(super) fn set_config_vector(&self, vector: Option<u16>) -> Result {
        self.set_vector(common::CONFIG_MSIX_VECTOR, vector)
    }

    /// Chooses the MSI-X vector of queue `index`, as [`Self::set_config_vector`] does.
    pub(super) fn set_queue_vector(&self, index: u16, vector: Option<u16>) -> Result {
        let _guard = self.select.lock();
        self.write_common(common::QUEUE_SELECT, index)?;
        self.set_vector(common::QUEUE_MSIX_VECTOR, vector)
    }

    /// Tells the device that the queue has something for it. What was written to memory before is
    /// visible to the device then. Does not sleep.
    #[inline]
    pub(super) fn notify(&self, notify: &Notify) -> Result {
        self.with_bar(&self.layout.notify.region, |bar| {
            notify.queue.write(bar, notify.offset)
        })
    }

    /// Why the device raised its interrupt line, see [`super::regs::isr`]; 0: it did not. Lowers
    /// the line. Does not sleep.
    pub(super) fn isr(&self) -> Result<u8> {
        match self.read(&self.layout.isr, Reg::at(0))? {
            u8::MAX => Err(ENODEV),
            isr => Ok(isr),
        }
    }

    /// The offset of `words` words of the device's own configuration, if they are in it.
    fn config_offset(&self, offset: usize, words: usize) -> Result<usize> {
        let bytes = words.checked_mul(4).ok_or(EINVAL)?;
        let end = offset.checked_add(bytes).ok_or(EINVAL)?;
        if offset % 4 != 0 || u64::try_from(end)? > self.layout.device.len {
            return Err(EINVAL);
        }
        Ok(offset)
    }

    /// Reads `N` words of the device's own configuration that belong together.
    ///
    /// `EINVAL` if it does not reach so far, `EAGAIN` if the device does not stop changing it.
    pub(super) fn config_read<const N: usize>(&self, offset: usize) -> Result<[u32; N]> {
        let offset = self.config_offset(offset, N)?;
        for _ in 0..CONFIG_TRIES {
            let before = self.read_common(common::CONFIG_GENERATION)?;
            let mut words = [0; N];
            for (index, word) in words.iter_mut().enumerate() {
                *word = self.read(&self.layout.device, Reg::<u32>::at(offset + 4 * index))?;
            }
            if self.read_common(common::CONFIG_GENERATION)? == before {
                if words.iter().all(|word| *word == u32::MAX) {
                    self.status()?;
                }
                return Ok(words);
            }
        }
        Err(EAGAIN)
    }

    /// Reads one word of the device's own configuration. Errors as [`Self::config_read`].
    pub(super) fn config_read32(&self, offset: usize) -> Result<u32> {
        let [word] = self.config_read(offset)?;
        Ok(word)
    }

    /// Writes one word of the device's own configuration. `EINVAL` if it does not reach so far.
    pub(super) fn config_write32(&self, offset: usize, value: u32) -> Result {
        let offset = self.config_offset(offset, 1)?;
        self.write(&self.layout.device, Reg::at(offset), value)
    }

    /// The memory that the device shares under the identifier `id`.
    ///
    /// Not if it shares a BAR with registers: those are mapped uncached, as a whole.
    pub(super) fn shm_region(&self, id: u8) -> Option<Region> {
        let region = self.layout.shared(id)?;
        let bar = self.bars.get(region.bar as usize)?;
        bar.is_none().then_some(region)
    }
}
