// SPDX-License-Identifier: GPL-2.0

//! Buffer objects: memory in VRAM or in the system, for the GPU and for the CPU.
//!
//! A [`Bo`] is the driver's part of a GEM object. It gets its memory when it is made and keeps it:
//! [`Bo::pieces`] says where each part of it is for the board, whatever the region. VRAM is zeroed
//! by a copy engine before anyone can see it; system memory comes zeroed.
//!
//! The CPU's mappings are filled page by page as they are touched: VRAM write-combined through the
//! aperture, system memory cached.

use kernel::{
    dma::DataDirection,
    drm,
    drm::gem::{
        self,
        BaseObject, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        atomic::Atomic,
        Arc,
        SetOnce, //
    }, //
};

use super::{
    bound::Bound,
    device::Gpu,
    driver::{
        Driver,
        DrmFile,
        IoctlDevice, //
    },
    query::{
        SYSTEM_REGION,
        VRAM_REGION, //
    },
    trace,
    vram::VramBlock, //
};
use crate::{
    algo::buddy::{
        Request,
        PAGE, //
    },
    ext::{
        gem::{
            new_object,
            BoOps,
            CpuPage,
            Fault,
            FaultResult,
            ObjectTable,
            PinnedPages,
            Status,
            SysPages, //
        },
        pci::Aperture,
        uapi, //
    },
    hal::BoardAddr, //
};

/// A GEM object of this driver.
pub(crate) type BoObject = gem::Object<Bo>;

/// Where a BO's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Region {
    /// The host's memory.
    System,
    /// The board's.
    Vram,
}

/// What a new BO is like.
pub(crate) struct Args {
    region: Region,
    cpu_visible: bool,
}

/// A part of a BO that is one run of addresses for the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First byte of the BO.
    pub(crate) offset: u64,
    /// Where it is.
    pub(crate) addr: BoardAddr,
    /// Bytes.
    pub(crate) len: u64,
}

/// The memory behind a BO.
enum Backing {
    /// Kept until the BO goes; the pieces say where it is.
    Vram {
        _block: Arc<VramBlock>,
    },
    System {
        pages: SysPages,
    },
}

struct Memory {
    backing: Backing,
    /// Ascending, without gaps, covering the BO.
    pieces: KVVec<Piece>,
}

/// The driver's part of a GEM object.
#[pin_data(PinnedDrop)]
pub(crate) struct Bo {
    region: Region,
    cpu_visible: bool,
    size: u64,
    /// Set before the object has a handle.
    memory: SetOnce<Memory>,
    /// The last look of fdinfo that found jobs which may use it.
    pub(super) seen_active: Atomic<u64>,
}

#[pinned_drop]
impl PinnedDrop for Bo {
    fn drop(self: Pin<&mut Self>) {
        if self.memory.as_ref().is_some() {
            trace::bo_free(&self);
        }
    }
}

static TABLE: ObjectTable = ObjectTable::new();

impl Bo {
    /// Where its memory is.
    pub(crate) fn region(&self) -> Region {
        self.region
    }

    /// Bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Where the board finds it, piece by piece. Empty until it has memory.
    pub(crate) fn pieces(&self) -> &[Piece] {
        self.memory.as_ref().map_or(&[], |m| &m.pieces)
    }

    /// The pieces from the one that contains byte `offset` on.
    pub(super) fn pieces_from(&self, offset: u64) -> &[Piece] {
        let pieces = self.pieces();
        let after = pieces.partition_point(|p| p.offset <= offset);
        pieces.get(after.saturating_sub(1)..).unwrap_or(&[])
    }

    /// The page of the aperture that shows byte `offset`.
    fn aperture_page<'a>(&self, aperture: &'a Aperture<'_>, offset: u64) -> Option<CpuPage<'a>> {
        let piece = self.pieces_from(offset).first()?;
        match piece.addr.checked_add(offset - piece.offset)? {
            BoardAddr::Vram(at) => CpuPage::from_aperture(aperture, at),
            BoardAddr::System(_) => None,
        }
    }
}

impl gem::DriverObject for Bo {
    type Driver = Driver;
    type Args = Args;

    fn new(_dev: &drm::Device<Driver>, size: usize, args: Args) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            region: args.region,
            cpu_visible: args.cpu_visible,
            size: u64::try_from(size)?,
            memory: SetOnce::new(),
            seen_active: Atomic::new(0),
        })
    }
}

impl BoOps for Bo {
    fn table() -> &'static ObjectTable {
        &TABLE
    }

    fn fault(
        obj: &BoObject,
        dev: &drm::Device<Driver, drm::Registered>,
        fault: Fault<'_>,
    ) -> FaultResult {
        let Some(memory) = obj.memory.as_ref() else {
            return fault.sigbus();
        };
        match &memory.backing {
            Backing::System { pages } => fault.insert(|index| pages.page(index)),
            Backing::Vram { .. } => dev.registration_data_with(|bound: &Bound<'_>| {
                let Some(aperture) = bound.aperture.as_ref().filter(|_| obj.cpu_visible) else {
                    return fault.sigbus();
                };
                fault.insert(|index| {
                    let offset = u64::try_from(index).ok()?.checked_mul(PAGE)?;
                    obj.aperture_page(aperture, offset)
                })
            }),
        }
    }

    fn status(_obj: &BoObject) -> Status {
        Status {
            resident: true,
            purgeable: false,
        }
    }

    fn rss(obj: &BoObject) -> usize {
        BaseObject::size(obj)
    }
}

/// Memory of a BO in VRAM.
fn vram_memory(block: Arc<VramBlock>) -> Result<Memory> {
    let mut pieces = KVVec::with_capacity(block.extents().len(), GFP_KERNEL_ACCOUNT)?;
    let mut offset = 0;
    for extent in block.extents() {
        let piece = Piece {
            offset,
            addr: BoardAddr::Vram(extent.start()),
            len: extent.len(),
        };
        offset += extent.len();
        pieces.push(piece, GFP_KERNEL_ACCOUNT)?;
    }
    Ok(Memory {
        backing: Backing::Vram { _block: block },
        pieces,
    })
}

/// Memory of a BO of `size` bytes in the system: maps its pages for the board.
fn system_memory(pinned: PinnedPages, size: u64, bound: &Bound<'_>) -> Result<Memory> {
    let pages = SysPages::new(pinned, bound.dev, DataDirection::Bidirectional)?;
    let mut pieces = KVVec::new();
    let mut offset = 0;
    for segment in pages.segments(bound.dev)? {
        let piece = Piece {
            offset,
            addr: BoardAddr::System(segment.addr),
            len: segment.len,
        };
        offset += segment.len;
        pieces.push(piece, GFP_KERNEL_ACCOUNT)?;
    }
    if offset < size {
        return Err(EIO);
    }
    Ok(Memory {
        backing: Backing::System { pages },
        pieces,
    })
}

/// Makes a BO in VRAM, zeroed. Waits for the copy engine, interruptibly.
fn new_in_vram(dev: &IoctlDevice, size: u64, flags: u32) -> Result<ARef<BoObject>> {
    let gpu: &Arc<Gpu> = dev;
    if size > gpu.info().vram_size {
        return Err(E2BIG);
    }
    let cpu_visible = flags & uapi::DRM_OCHRE_GEM_CPU_VISIBLE != 0;
    if cpu_visible && size > gpu.info().aperture_size {
        return Err(ENOSPC);
    }
    let mut request = Request::new(size).prefer_cleared();
    if cpu_visible {
        request = request.range(0..gpu.info().aperture_size);
    } else {
        request = request.top_down();
    }
    if flags & uapi::DRM_OCHRE_GEM_CONTIGUOUS != 0 {
        request = request.contiguous();
    }
    let block = Arc::new(VramBlock::new(gpu, &request)?, GFP_KERNEL_ACCOUNT)?;
    gpu.clear_vram(&block)?;

    let args = Args {
        region: Region::Vram,
        cpu_visible,
    };
    let obj = new_object::<Bo>(dev, usize::try_from(size)?, args)?;
    obj.memory.populate(vram_memory(block)?);
    Ok(obj)
}

/// Makes a BO in system memory.
fn new_in_system(dev: &IoctlDevice, size: u64) -> Result<ARef<BoObject>> {
    if size > crate::ext::mm::total_bytes() {
        return Err(E2BIG);
    }
    let args = Args {
        region: Region::System,
        cpu_visible: true,
    };
    let obj = new_object::<Bo>(dev, usize::try_from(size)?, args)?;
    let pinned = PinnedPages::new(&obj)?;
    let guard = dev.registration_guard().ok_or(ENODEV)?;
    let memory = guard.registration_data_with(|bound| system_memory(pinned, size, bound))?;
    obj.memory.populate(memory);
    Ok(obj)
}

/// `DRM_IOCTL_OCHRE_GEM_CREATE`.
pub(crate) fn ioctl_create(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_ochre_gem_create,
) -> Result<u32> {
    let gpu: &Arc<Gpu> = dev;
    gpu.check()?;

    let vram_flags = uapi::DRM_OCHRE_GEM_CPU_VISIBLE | uapi::DRM_OCHRE_GEM_CONTIGUOUS;
    let (vram, system) = (1 << VRAM_REGION, 1 << SYSTEM_REGION);
    if args.pad != 0 || args.extensions != 0 || args.flags & !vram_flags != 0 {
        return Err(EINVAL);
    }
    if args.regions == 0 || args.regions & !(vram | system) != 0 {
        return Err(EINVAL);
    }
    if args.flags != 0 && args.regions & vram == 0 {
        return Err(EINVAL);
    }
    if args.size == 0 || args.size % PAGE != 0 {
        return Err(EINVAL);
    }

    let obj = match args.regions {
        r if r == vram => new_in_vram(dev, args.size, args.flags)?,
        r if r == system => new_in_system(dev, args.size)?,
        _ => match new_in_vram(dev, args.size, args.flags) {
            Err(e) if e == ENOSPC || e == E2BIG => new_in_system(dev, args.size)?,
            other => other?,
        },
    };
    trace::bo_create(&obj);
    args.handle = obj.create_handle(file)?;
    Ok(0)
}

/// `DRM_IOCTL_OCHRE_GEM_MMAP_OFFSET`.
pub(crate) fn ioctl_mmap_offset(
    _dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_ochre_gem_mmap_offset,
) -> Result<u32> {
    if args.flags != 0 || args.extensions != 0 {
        return Err(EINVAL);
    }
    let obj = BoObject::lookup_handle(file, args.handle)?;
    if !obj.cpu_visible {
        return Err(EINVAL);
    }
    args.offset = obj.create_mmap_offset()?;
    Ok(0)
}
