// SPDX-License-Identifier: GPL-2.0

//! Binding to a device and letting it go.
//!
//! The kernel's own virtio driver claims every virtio device, so the id table is empty: the driver
//! binds to what somebody gives it through `driver_override`.

use kernel::{
    device::{
        Bound,
        Core, //
    },
    dma::{
        Device as _,
        DmaMask, //
    },
    drm,
    pci,
    prelude::*,
    sync::Arc,
    time::msecs_to_jiffies, //
};

use super::{
    bound,
    buffers::Buffers,
    control::{
        memory::DmaRecords,
        queue::{
            Hardware,
            SEGMENTS_MAX, //
        },
        Command,
        Reply, //
    },
    device::{
        Control,
        Device,
        Ear,
        Ears,
        Parts,
        CONTROL_QUEUE, //
    },
    driver,
    features::{
        self,
        config,
        Caps, //
    },
    irq::Interrupts,
    regs::{
        feature,
        status, //
    },
    transport::Transport,
    vring::{
        DmaVring,
        Options, //
    },
    window::Window,
    wire::{
        self,
        CapsetInfo, //
    }, //
};
use crate::ext::{
    self,
    dma_mapping,
    uapi_virtio as uapi, //
};

/// Addresses have 64 bits.
const DMA_BITS: u32 = 64;
/// Most capability sets; their ids have 6 bits.
const CAPSETS_MAX: u32 = 64;
/// Most descriptors of the ring; a device that offers more is not faster by it.
const RING_SIZE_MAX: u16 = 1024;
const VENDOR: u16 = 0x1af4;
/// Device ids of the modern transport begin here.
const DEVICE_BASE: u16 = 0x1040;

/// The PCI driver of virtio-gpu.
pub(crate) struct Driver;

/// What lives as long as the driver is bound. The fields are dropped in their order.
pub(crate) struct Bind<'bound> {
    // Before the DRM device, since a handler may hold the last reference to one of its BOs.
    _interrupts: Interrupts<'bound, Ears>,
    _deaf: Deaf,
    _registration: drm::Registration<'bound, driver::Driver>,
    device: Settled,
}

/// Ears that hear nothing any more when this has been dropped.
///
/// Their work tells outcomes in an interrupt, and each fence that it has not told has a reference to
/// them. Neither they nor the DRM device may lose their last reference there.
struct Deaf(Arc<Ears>);

impl Drop for Deaf {
    fn drop(&mut self) {
        self.0 .0.settle();
        self.0.sync();
        // What it left, if it was telling just now.
        self.0 .0.settle();
    }
}

/// A device that is settled when nobody is told of its interrupts any more.
struct Settled(Arc<Device>);

impl Drop for Settled {
    fn drop(&mut self) {
        self.0.settle();
    }
}

kernel::pci_device_table!(PCI_TABLE, <Driver as pci::Driver>::IdInfo, []);

impl pci::Driver for Driver {
    type IdInfo = ();
    type Data<'bound> = Bind<'bound>;

    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        _info: Option<&'bound Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        check_ids(pdev)?;
        pdev.enable_device_mem()?;
        pdev.set_master();
        // SAFETY: Nothing has allocated DMA memory for this device yet, and while it is being
        // probed nobody else can.
        unsafe {
            pdev.dma_set_mask_and_coherent(DmaMask::new::<DMA_BITS>())?;
            // A device does not mind how long a run of addresses is; an entry has 32 bits for it.
            pdev.dma_set_max_seg_size(u32::MAX);
        }

        let transport = Transport::new(pdev)?;
        transport.reset()?;
        let device = prepare(pdev, &transport).inspect_err(|_| transport.fail())?;
        // Whatever fails from here on, the device must not go on with memory that is freed then.
        attach(pdev, &device).inspect_err(|error| {
            dev_err!(pdev, "no virtio-gpu: {error:?}\n");
            device.unplug();
        })
    }

    fn unbind<'bound>(_pdev: &'bound pci::Device<Core<'_>>, this: Pin<&Self::Data<'bound>>) {
        this.device.0.unplug();
    }
}

#[vtable]
impl ext::pci::DriverExt for Driver {
    fn shutdown(_pdev: &pci::Device<Core<'_>>, this: Pin<&Bind<'_>>) {
        this.device.0.unplug();
    }

    // What the host stores for us would be lost, and with it all contexts.
    fn suspend(pdev: &pci::Device<Core<'_>>, _this: Pin<&Bind<'_>>) -> Result {
        dev_err!(
            pdev,
            "the machine cannot sleep while this driver is bound\n"
        );
        Err(EBUSY)
    }
}

/// The driver binds to whatever it is given: that has to be a virtio-gpu.
fn check_ids(pdev: &pci::Device<Bound>) -> Result {
    let expected = u32::from(DEVICE_BASE) + uapi::VIRTIO_ID_GPU;
    let vendor = pdev.vendor_id();
    let device = pdev.device_id();
    if vendor.as_raw() != VENDOR || u32::from(device) != expected {
        dev_err!(pdev, "not a virtio-gpu ({vendor}:{device:#06x})\n");
        return Err(ENODEV);
    }
    Ok(())
}

/// Agrees with the device on what both can, and makes what the driver needs for it. The device was
/// reset; nothing runs yet.
fn prepare(pdev: &pci::Device<Bound>, transport: &Arc<Transport>) -> Result<Arc<Device>> {
    transport.add_status(status::ACKNOWLEDGE)?;
    transport.add_status(status::DRIVER)?;
    let offered = transport.offered_features()?;
    let addressing = dma_mapping::addressing(pdev.as_ref())?;
    let features = features::choose(offered, addressing).map_err(|refusal| {
        dev_err!(pdev, "{}\n", refusal.reason());
        ENODEV
    })?;
    transport.accept(features)?;

    let alignment = match Caps::have_alignment(features) {
        true => Some(transport.config_read32(config::BLOB_ALIGNMENT)?),
        false => None,
    };
    // CAST: A small number of the C header.
    let window = transport.shm_region(uapi::VIRTIO_GPU_SHM_ID_HOST_VISIBLE as u8);
    let caps = Caps::new(features, alignment, window)
        .inspect_err(|_| dev_err!(pdev, "blobs cannot be aligned to {alignment:?}\n"))?;

    let size = transport.queue_size(CONTROL_QUEUE)?;
    if size == 0 {
        dev_err!(pdev, "the device has no control queue\n");
        return Err(ENODEV);
    }
    let ring = DmaVring::on_device(
        pdev.as_ref(),
        Options {
            size: size.min(RING_SIZE_MAX),
            segments: u16::try_from(SEGMENTS_MAX)?,
            event_idx: features & feature::EVENT_IDX != 0,
            indirect: features & feature::INDIRECT_DESC != 0,
            order_platform: features & feature::ORDER_PLATFORM != 0,
        },
    )?;
    let records = Control::records_for(ring.slots());
    let memory = DmaRecords::new(pdev.as_ref(), records)?;
    let buffers = Buffers::new()?;
    let answer = wire::HEADER_BYTES + wire::DISPLAY_INFO_BYTES;
    let ping = Reply::with(Some(buffers.alloc(pdev.as_ref(), answer)?))?;
    Device::new(Parts {
        pdev: pdev.into(),
        dev: AsRef::<kernel::device::Device>::as_ref(&**pdev).into(),
        transport: transport.clone(),
        features,
        caps,
        hardware: KBox::new(Hardware { ring, memory }, GFP_KERNEL)?,
        records,
        buffers,
        ping,
        timeout_ms: crate::virtio_timeout_ms(),
    })
}

/// Sets the device up, asks what it has, and shows it to programs.
fn attach<'bound>(
    pdev: &'bound pci::Device<Core<'_>>,
    device: &Arc<Device>,
) -> Result<Bind<'bound>> {
    let ears = Arc::pin_init(Ears::new(Ear(device.clone())), GFP_KERNEL)?;
    // SAFETY: Goes into the driver's data, which the driver core drops at unbind.
    let interrupts =
        unsafe { Interrupts::register(pdev, &device.transport, &ears, CONTROL_QUEUE)? };
    device.vectors.populate(interrupts.vectors());
    device.listen(ears.clone());
    device.start()?;
    let capsets = read_capsets(pdev, device)?;
    device.set_capsets(capsets);
    let window = take_window(pdev, device)?;
    describe(pdev, device);

    let data = driver::Data::new(device.clone(), window);
    let drm = drm::UnregisteredDevice::<driver::Driver>::new(pdev, data)?;
    ext::drm_drv::extend(&drm)?;
    let bound = bound::Bound { dev: pdev.as_ref() };
    // SAFETY: Goes into the driver's data, as above.
    let registration = unsafe { drm::Registration::new(pdev.as_ref(), drm, bound, 0)? };
    *device.registered.lock() = Some(ext::drm_drv::RegisteredDevice::from_registration(
        &registration,
    ));
    Ok(Bind {
        _interrupts: interrupts,
        _deaf: Deaf(ears),
        _registration: registration,
        device: Settled(device.clone()),
    })
}

/// Asks for the capability sets. What makes no sense is left out.
///
/// A device may take its time: the watchdog decides when it has taken too much.
fn read_capsets(pdev: &pci::Device<Bound>, device: &Arc<Device>) -> Result<KVec<CapsetInfo>> {
    let count = device.transport.config_read32(config::NUM_CAPSETS)?;
    let mut infos = KVec::<CapsetInfo>::new();
    if !device.caps().virgl {
        return Ok(infos);
    }
    if count > CAPSETS_MAX {
        dev_warn!(
            pdev,
            "the device says {count} capability sets, {CAPSETS_MAX} are asked for\n"
        );
    }
    let mut replies = KVec::new();
    for index in 0..count.min(CAPSETS_MAX) {
        let reply = Reply::new(device, wire::CAPSET_INFO_BYTES)?;
        let command = Command::new(wire::get_capset_info(index)).reply(reply.clone());
        device.submit(&mut device.reserve(1)?, command);
        replies.push(reply, GFP_KERNEL)?;
    }
    device.flush();
    for (index, reply) in replies.iter().enumerate() {
        // The watchdog ends the wait before this does.
        let limit = msecs_to_jiffies(crate::virtio_timeout_ms().saturating_mul(2));
        match reply.wait(Some(limit)) {
            Ok(()) => {}
            Err(error) if error == EINVAL || error == ENOENT => {
                dev_warn!(pdev, "no capability set {index}: {error:?}\n");
                continue;
            }
            Err(error) => return Err(error),
        }
        let mut body = [0; wire::CAPSET_INFO_BYTES];
        reply.read(&mut body)?;
        match CapsetInfo::decode(&body) {
            Some(info) if infos.iter().all(|known| known.id != info.id) => {
                infos.push(info, GFP_KERNEL)?;
            }
            _ => dev_warn!(pdev, "capability set {index} makes no sense\n"),
        }
    }
    Ok(infos)
}

/// Takes charge of the host-visible window, if there is one.
fn take_window(pdev: &pci::Device<Bound>, device: &Device) -> Result<Option<Window>> {
    let Some(region) = device.caps().host_visible else {
        return Ok(None);
    };
    let memory = ext::pci::Window::new(
        pdev,
        region.bar,
        region.offset,
        region.len,
        c"ochre-virtio-window",
    )
    .inspect_err(|_| dev_err!(pdev, "the host-visible window is not to be had\n"))?;
    let align = device.caps().blob_alignment.unwrap_or(1);
    Window::new(memory, align).map(Some)
}

/// Says in the log what was found.
fn describe(pdev: &pci::Device<Bound>, device: &Device) {
    let caps = device.caps();
    let window = caps.host_visible.map_or(0, |region| region.len);
    dev_info!(
        pdev,
        "virtio-gpu: {caps}, host memory window {} MiB\n",
        window >> 20
    );
    for info in device.capsets() {
        dev_info!(
            pdev,
            "capability set {}: version {}, {} bytes\n",
            info.id,
            info.max_version,
            info.max_size
        );
    }
}
