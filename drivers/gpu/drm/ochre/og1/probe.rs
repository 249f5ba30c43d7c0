// SPDX-License-Identifier: GPL-2.0
//! Binding to a board and letting it go.

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
    sync::Arc, //
};

use super::{
    board::Og1,
    discovery::Board,
    firmware::Image,
    hw::regs::{
        BAR0_SIZE,
        PCI_DEVICE,
        PCI_VENDOR, //
    },
    irq::Interrupts,
    regs::Regs, //
};
use crate::{
    ext::{
        self,
        pci::Aperture, //
    },
    gpu::{
        self,
        device::{
            Gpu,
            Parts, //
        }, //
    },
    hal::Hal, //
};

/// BAR with the registers and doorbells.
const REGISTERS: u32 = 0;
/// BAR that shows VRAM.
const APERTURE: u32 = 2;
/// System addresses have 52 bits; see the page-table entry.
const DMA_BITS: u32 = 52;

/// The PCI driver of og1.
pub(crate) struct Driver;

/// What lives as long as the driver is bound. The fields are dropped in their order.
pub(crate) struct Bind<'bound> {
    // Before the DRM device, since a handler may hold the last reference to one of its BOs.
    _interrupts: Interrupts<'bound>,
    _registration: drm::Registration<'bound, gpu::driver::Driver>,
    gpu: Arc<Gpu>,
}

kernel::pci_device_table!(
    PCI_TABLE,
    <Driver as pci::Driver>::IdInfo,
    [(ext::pci::device_id(PCI_VENDOR, PCI_DEVICE), ())]
);

/// Maps the registers. Says in the log when BAR0 is too small.
fn map_registers(pdev: &pci::Device<Bound>) -> Result<Arc<Regs>> {
    let len = pdev.resource_len(REGISTERS)?;
    if len < BAR0_SIZE as u64 {
        dev_err!(
            pdev,
            "BAR0 has {} bytes, the registers need {}\n",
            len,
            BAR0_SIZE
        );
        return Err(EINVAL);
    }
    let bar = pdev.iomap_region_sized::<BAR0_SIZE>(REGISTERS, c"ochre")?;
    Ok(Arc::new(Regs::new(bar.into_devres()?), GFP_KERNEL)?)
}

/// The window on VRAM; checks that it is as large as the board says.
fn map_aperture<'a>(pdev: &'a pci::Device<Bound>, board: &Board) -> Result<Option<Aperture<'a>>> {
    if board.aperture == 0 {
        return Ok(None);
    }
    let len = pdev.resource_len(APERTURE)?;
    if len < board.aperture {
        dev_err!(
            pdev,
            "BAR2 has {} bytes, the board says {}\n",
            len,
            board.aperture
        );
        return Err(EINVAL);
    }
    Aperture::new(pdev, APERTURE, c"ochre-vram").map(Some)
}

impl pci::Driver for Driver {
    type IdInfo = ();
    type Data<'bound> = Bind<'bound>;

    const ID_TABLE: pci::IdTable<Self::IdInfo> = &PCI_TABLE;

    fn probe<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        _info: Option<&'bound Self::IdInfo>,
    ) -> impl PinInit<Self::Data<'bound>, Error> + 'bound {
        pdev.enable_device_mem()?;
        pdev.set_master();
        // SAFETY: Nothing has allocated DMA memory for this device yet, and while it is being
        // probed nobody else can.
        unsafe {
            pdev.dma_set_mask_and_coherent(DmaMask::new::<DMA_BITS>())?;
            // Its page tables do not mind how long a run of addresses is.
            pdev.dma_set_max_seg_size(u32::MAX);
        }

        let regs = map_registers(pdev)?;
        let board = Board::read(pdev.as_ref(), &regs)?;
        let aperture = map_aperture(pdev, &board)?;
        let image = Image::request(pdev)?;
        let board = Arc::pin_init(Og1::new(pdev, regs, board, image), GFP_KERNEL)?;
        // Whatever fails from here on, the board must not go on with memory that is freed then.
        board.bring_up().inspect_err(|_| board.stop())?;

        let gpu = Gpu::new(Parts {
            hal: board.clone(),
            dev: Some(pdev.as_ref().into()),
            timeout_ms: crate::timeout_ms(),
        })
        .inspect_err(|_| board.stop())?;
        Self::attach(pdev, &board, &gpu, aperture).inspect_err(|_| gpu.unplug())
    }

    fn unbind<'bound>(_pdev: &'bound pci::Device<Core<'_>>, this: Pin<&Self::Data<'bound>>) {
        this.gpu.unplug();
    }
}

#[vtable]
impl ext::pci::DriverExt for Driver {
    // Whoever resets the function does not wait for what runs on it, so neither do we.
    fn reset_prepare(_pdev: &pci::Device<Core<'_>>, this: Pin<&Bind<'_>>) {
        this.gpu.before_bus_reset();
    }

    fn reset_done(_pdev: &pci::Device<Core<'_>>, this: Pin<&Bind<'_>>) {
        this.gpu.on_bus_reset();
    }

    fn shutdown(_pdev: &pci::Device<Core<'_>>, this: Pin<&Bind<'_>>) {
        this.gpu.unplug();
    }
}

impl Driver {
    /// Registers the interrupts and the DRM device.
    fn attach<'bound>(
        pdev: &'bound pci::Device<Core<'_>>,
        board: &Arc<Og1>,
        gpu: &Arc<Gpu>,
        aperture: Option<Aperture<'bound>>,
    ) -> Result<Bind<'bound>> {
        // SAFETY: Goes into the driver's data, which the driver core drops at unbind.
        let interrupts = unsafe { Interrupts::register(pdev, board, gpu)? };
        board.mask_interrupts(false)?;
        gpu.prepare_clearing()?;

        let data = gpu::driver::Data::new(gpu.clone());
        let drm = drm::UnregisteredDevice::<gpu::driver::Driver>::new(pdev, Ok(data))?;
        ext::drm_drv::extend(&drm)?;
        let bound = gpu::bound::Bound {
            dev: pdev.as_ref(),
            aperture,
        };
        // SAFETY: Goes into the driver's data, as above.
        let registration = unsafe { drm::Registration::new(pdev.as_ref(), drm, bound, 0)? };
        gpu.attach(ext::drm_drv::RegisteredDevice::from_registration(
            &registration,
        ));
        gpu.power_attach(pdev.as_ref())?;

        dev_info!(
            pdev,
            "{}: {} MiB VRAM, {} MiB visible, {} engines\n",
            gpu.name(),
            gpu.info().vram_size >> 20,
            gpu.info().aperture_size >> 20,
            gpu.info().engines.len()
        );
        Ok(Bind {
            _registration: registration,
            _interrupts: interrupts,
            gpu: gpu.clone(),
        })
    }
}
