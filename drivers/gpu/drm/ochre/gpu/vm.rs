// SPDX-License-Identifier: GPL-2.0

//! Address spaces of the GPU and VM_BIND.
//!
//! A [`Vm`] is a context of the board with its page tables and the map of what is where. VM_BIND changes
//! map and tables together, under one lock, all operations or none: everything that can fail
//! (looking up, planning, memory) comes before the first store to a table.
//!
//! The map holds references to the BOs; those of a BO that is unmapped go only after the board has
//! forgotten its translations.

use kernel::{
    bitmap::BitmapVec,
    drm::gem::BaseObject,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

use super::{
    bo::{
        Bo,
        BoObject,
        Piece,
        Region, //
    },
    device::Gpu,
    driver::{
        DrmFile,
        IoctlDevice, //
    },
    elements::{
        self,
        BINDS_MAX, //
    },
    page_table::{
        Backed,
        PageTable, //
    },
    sync::{
        Allow,
        Syncs, //
    },
    trace, //
};
use crate::{
    algo::va::{
        Attrs,
        Backing,
        Mapping,
        MemoryType,
        VaRange,
        VaSpace, //
    },
    ext::{
        dma_fence::DmaFence,
        gem::ObjectRef,
        uapi, //
    },
    hal::{
        ContextId,
        Info, //
    }, //
};

/// Longest sparse mapping: 1 TiB, whose page tables take 4 MiB.
const SPARSE_MAX: u64 = 1 << 40;

/// A BO as the map of an address space names it.
pub(crate) type BoRef = ObjectRef<Bo>;

impl Backed for BoRef {
    fn pieces_from(&self, offset: u64) -> &[Piece] {
        let bo: &Bo = self;
        bo.pieces_from(offset)
    }
}

/// Which contexts of the board are in use.
#[pin_data]
pub(crate) struct Contexts {
    /// A leaf lock.
    #[pin]
    used: Mutex<BitmapVec>,
}

impl Contexts {
    /// All contexts free.
    pub(crate) fn new(info: &Info) -> impl PinInit<Self, Error> {
        let count = usize::from(info.contexts);
        try_pin_init!(Self {
            used <- new_mutex!(BitmapVec::new(count, GFP_KERNEL)?, "ochre_contexts"),
        })
    }
}

/// A context of the board that is ours until it is dropped.
struct Context {
    gpu: Arc<Gpu>,
    id: ContextId,
}

impl Context {
    /// `ENOSPC` if the board has no more.
    fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let mut used = gpu.contexts.used.lock();
        let free = used.next_zero_bit(0).ok_or(ENOSPC)?;
        let id = ContextId(u16::try_from(free)?);
        used.set_bit(free);
        Ok(Self {
            gpu: gpu.clone(),
            id,
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A board that is gone uses no context any more.
        let _ = self.gpu.hal().set_context(self.id, None);
        let mut used = self.gpu.contexts.used.lock();
        used.clear_bit(usize::from(self.id.0));
    }
}

struct Inner {
    space: VaSpace<BoRef>,
    tables: PageTable,
}

/// An address space.
#[pin_data]
pub(crate) struct Vm {
    // Dropped first, so that the board no longer uses the tables when they go.
    context: Context,
    /// Jobs in it that are not over.
    jobs: Atomic<u32>,
    /// Taken with nothing else held but what an ioctl holds; inside it the board's own locks.
    #[pin]
    inner: Mutex<Inner>,
}

impl Vm {
    /// An address space in which nothing is mapped. Errors: `ENOSPC`, `ENOMEM`, `ENODEV`.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<Arc<Self>> {
        // The context is declared last, so that an error takes it back before the tables go.
        let tables = PageTable::new(gpu.hal_arc())?;
        let context = Context::new(gpu)?;
        gpu.hal().set_context(context.id, Some(tables.root()))?;
        let inner = Inner {
            space: VaSpace::new(),
            tables,
        };
        Arc::pin_init(
            pin_init!(Self {
                context,
                jobs: Atomic::new(0),
                inner <- new_mutex!(inner, "ochre_vm"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Its number on the board.
    pub(crate) fn context(&self) -> ContextId {
        self.context.id
    }

    /// Counts jobs that were queued.
    pub(super) fn add_jobs(&self, count: u32) {
        self.jobs.add(count, Relaxed);
    }

    /// Counts a job that is over.
    pub(super) fn end_job(&self) {
        self.jobs.fetch_sub(1, Relaxed);
    }

    /// Whether there are jobs in it, so that everything that is mapped may be in use.
    pub(super) fn is_active(&self) -> bool {
        self.jobs.load(Relaxed) != 0
    }

    /// Calls `f` with the BO of each mapping.
    pub(super) fn for_each_mapped(&self, f: impl Fn(&Bo)) -> Result {
        let va = &self.context.gpu.info().va;
        let all = VaRange::new(va.start, va.end - va.start)?;
        let inner = self.inner.lock();
        for mapping in inner.space.iter(all) {
            if let Backing::Object { object, .. } = &mapping.backing {
                let bo: &Bo = object;
                f(bo);
            }
        }
        Ok(())
    }

    /// Carries out `operations`, all or none.
    fn bind(&self, operations: KVVec<Operation>) -> Result {
        let mut guard = self.inner.lock();
        let Inner { space, tables } = &mut *guard;

        let mut plan = space.plan();
        for operation in operations {
            match operation {
                Operation::Map(mapping) => plan.map(mapping)?,
                Operation::Unmap(range) => plan.unmap(range)?,
            }
        }
        let update = tables.prepare(plan.steps())?;

        let applied = plan.apply();
        let (changed, garbage) = tables.commit(update);
        if let Some(range) = changed {
            // Errors mean that the board is gone, and with it every translation.
            let hal = self.context.gpu.hal();
            let _ = hal.invalidate_tlb(self.context.id, Some(range));
        }
        drop(guard);
        for step in applied.steps() {
            trace::vm_step(&self.context.gpu, self.context.id, step);
        }
        // Only now may the memory of tables and BOs find another use.
        drop(garbage);
        drop(applied);
        Ok(())
    }
}

/// A checked operation of VM_BIND.
enum Operation {
    Map(Mapping<BoRef>),
    Unmap(VaRange),
}

/// Access that `flags` allow. `EINVAL` for none, an unknown one, or atomic without both others.
fn attrs(bind: &uapi::drm_ochre_bind, region: Region) -> Result<Attrs> {
    let (read, write, exec, atomic) = (
        uapi::DRM_OCHRE_BIND_READ,
        uapi::DRM_OCHRE_BIND_WRITE,
        uapi::DRM_OCHRE_BIND_EXEC,
        uapi::DRM_OCHRE_BIND_ATOMIC,
    );
    let has = |flag| bind.flags & flag != 0;
    if bind.flags & !(read | write | exec | atomic) != 0 || !has(read | write | exec) {
        return Err(EINVAL);
    }
    if has(atomic) && !(has(read) && has(write)) {
        return Err(EINVAL);
    }
    if bind.memory_type > uapi::drm_ochre_memory_type_DRM_OCHRE_MEMORY_UC {
        return Err(EINVAL);
    }
    let memory_type = u8::try_from(bind.memory_type)?;
    Ok(Attrs {
        read: has(read),
        write: has(write),
        exec: has(exec),
        atomic: has(atomic),
        snoop: region == Region::System,
        memory_type: MemoryType::new(memory_type).ok_or(EINVAL)?,
    })
}

impl Operation {
    fn read(info: &Info, file: &DrmFile, bind: &uapi::drm_ochre_bind) -> Result<Self> {
        if bind.reserved.iter().any(|&word| word != 0) {
            return Err(EINVAL);
        }
        let range = VaRange::new(bind.addr, bind.range)?;
        if range.start() < info.va.start || range.end() > info.va.end {
            return Err(EINVAL);
        }
        if bind.op == uapi::drm_ochre_bind_op_DRM_OCHRE_BIND_MAP {
            return Self::read_map(file, bind, range);
        }
        if bind.flags != 0 || bind.handle != 0 || bind.memory_type != 0 || bind.offset != 0 {
            return Err(EINVAL);
        }
        match bind.op {
            uapi::drm_ochre_bind_op_DRM_OCHRE_BIND_UNMAP => Ok(Self::Unmap(range)),
            uapi::drm_ochre_bind_op_DRM_OCHRE_BIND_SPARSE if range.len() <= SPARSE_MAX => {
                Ok(Self::Map(Mapping {
                    range,
                    backing: Backing::Sparse,
                    attrs: Attrs::default(),
                }))
            }
            _ => Err(EINVAL),
        }
    }

    fn read_map(file: &DrmFile, bind: &uapi::drm_ochre_bind, range: VaRange) -> Result<Self> {
        let object = BoRef::from(BoObject::lookup_handle(file, bind.handle)?);
        let bo: &Bo = &object;
        let end = bind.offset.checked_add(bind.range).ok_or(EINVAL)?;
        if end > bo.size() || bind.offset % crate::algo::buddy::PAGE != 0 {
            return Err(EINVAL);
        }
        let attrs = attrs(bind, bo.region())?;
        Ok(Self::Map(Mapping {
            range,
            backing: Backing::Object {
                object,
                offset: bind.offset,
            },
            attrs,
        }))
    }
}

/// `DRM_IOCTL_OCHRE_VM_CREATE`.
pub(crate) fn ioctl_create(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_ochre_vm_create,
) -> Result<u32> {
    let gpu: &Arc<Gpu> = dev;
    gpu.check()?;
    if args.flags != 0 || args.extensions != 0 {
        return Err(EINVAL);
    }
    args.vm = file.inner().vms().insert(Vm::new(gpu)?)?;
    Ok(0)
}

/// `DRM_IOCTL_OCHRE_VM_DESTROY`.
pub(crate) fn ioctl_destroy(
    _dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_ochre_vm_destroy,
) -> Result<u32> {
    if args.pad != 0 {
        return Err(EINVAL);
    }
    file.inner().vms().remove(args.vm)?;
    Ok(0)
}

/// `DRM_IOCTL_OCHRE_VM_BIND`.
pub(crate) fn ioctl_bind(
    dev: &IoctlDevice,
    file: &DrmFile,
    args: &mut uapi::drm_ochre_vm_bind,
) -> Result<u32> {
    let gpu: &Arc<Gpu> = dev;
    gpu.check()?;
    if args.flags != 0 || args.extensions != 0 || args.bind_count == 0 {
        return Err(EINVAL);
    }
    let vm = file.inner().vms().get(args.vm)?;

    let binds = elements::read::<uapi::drm_ochre_bind>(
        args.binds,
        args.bind_count,
        args.bind_stride,
        BINDS_MAX,
    )?;
    let mut operations = KVVec::with_capacity(binds.len(), GFP_KERNEL_ACCOUNT)?;
    for bind in &binds {
        let operation = Operation::read(gpu.info(), file, bind)?;
        operations.push(operation, GFP_KERNEL_ACCOUNT)?;
    }

    let allow = Allow {
        user_fence: false,
        signal: true,
    };
    let syncs = Syncs::read(
        gpu,
        file,
        args.syncs,
        args.sync_count,
        args.sync_stride,
        allow,
        &[],
    )?;
    let done = DmaFence::stub().ok_or(ENOMEM)?;
    syncs.wait(gpu)?;
    vm.bind(operations)?;
    syncs.signal(&done);
    Ok(0)
}
