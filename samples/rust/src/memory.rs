// SPDX-License-Identifier: GPL-2.0
//! BOs, address spaces, and both together.

use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use bytemuck::AnyBitPattern;
use bytemuck::NoUninit;
use drm::control::Device as _;
use memmap2::MmapOptions;
use memmap2::MmapRaw;

use crate::abi;
use crate::abi::pointer;
use crate::abi::stride;
use crate::gpu::Gpu;

/// Masks of memory regions, by the instances that `DRM_OCHRE_QUERY_REGIONS` gives.
pub mod region {
    /// Memory of the host.
    pub const SYSTEM: u32 = 1 << 0;
    /// Memory of the board.
    pub const VRAM: u32 = 1 << 1;
}

/// What the GPU may do with a mapping.
pub mod access {
    use crate::abi;

    /// Read.
    pub const READ: u32 = abi::DRM_OCHRE_BIND_READ;
    /// Read and write.
    pub const READ_WRITE: u32 = READ | abi::DRM_OCHRE_BIND_WRITE;
    /// Read, write and atomic operations.
    pub const ATOMIC: u32 = READ_WRITE | abi::DRM_OCHRE_BIND_ATOMIC;
    /// Read and execute.
    pub const EXEC: u32 = READ | abi::DRM_OCHRE_BIND_EXEC;
}

/// Lowest address that [`Vm::bind`] gives out.
const FIRST_ADDR: u64 = 0x1_0000_0000;
/// Its addresses are multiples of this, so that large pages can be used.
const ADDR_STEP: u64 = 2 << 20;
/// Sizes of BOs are multiples of this.
const PAGE: u64 = 4096;

/// A BO.
#[derive(Debug)]
pub struct Bo<'g> {
    gpu: &'g Gpu,
    handle: NonZeroU32,
    size: u64,
}

impl<'g> Bo<'g> {
    /// Makes a BO of at least `size` bytes in one of `regions`; VRAM is made visible to the CPU.
    ///
    /// # Errors
    ///
    /// See GEM_CREATE.
    pub fn new(gpu: &'g Gpu, regions: u32, size: u64) -> io::Result<Self> {
        let flags = match regions & region::VRAM {
            0 => 0,
            _ => abi::DRM_OCHRE_GEM_CPU_VISIBLE,
        };
        Self::with_flags(gpu, regions, size, flags)
    }

    /// As [`Bo::new`], with `DRM_OCHRE_GEM_*`.
    ///
    /// # Errors
    ///
    /// See GEM_CREATE.
    pub fn with_flags(gpu: &'g Gpu, regions: u32, size: u64, flags: u32) -> io::Result<Self> {
        let mut create = abi::drm_ochre_gem_create {
            size: size.next_multiple_of(PAGE),
            regions,
            flags,
            ..Default::default()
        };
        // SAFETY: There are no pointers.
        unsafe { abi::ioctl(gpu, &mut create)? };
        let handle = NonZeroU32::new(create.handle).ok_or(io::ErrorKind::InvalidData)?;
        let size = create.size;
        Ok(Self { gpu, handle, size })
    }

    /// GEM handle.
    pub fn handle(&self) -> u32 {
        self.handle.get()
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where `mmap()` of the device shows it.
    ///
    /// # Errors
    ///
    /// See GEM_MMAP_OFFSET.
    pub fn mmap_offset(&self) -> io::Result<u64> {
        let mut mmap = abi::drm_ochre_gem_mmap_offset {
            handle: self.handle(),
            ..Default::default()
        };
        // SAFETY: There are no pointers.
        unsafe { abi::ioctl(self.gpu, &mut mmap)? };
        Ok(mmap.offset)
    }

    /// Maps it for the CPU.
    ///
    /// # Errors
    ///
    /// See GEM_MMAP_OFFSET and mmap(2).
    pub fn map(&self) -> io::Result<Mapping> {
        let len = usize::try_from(self.size).map_err(io::Error::other)?;
        let mut options = MmapOptions::new();
        options.offset(self.mmap_offset()?).len(len);
        let memory = options.map_raw(self.gpu.file())?;
        Ok(Mapping { memory })
    }
}

impl Drop for Bo<'_> {
    fn drop(&mut self) {
        // A device that is gone has no handles any more.
        let _ = self.gpu.close_buffer(self.handle.into());
    }
}

/// A BO in the address space of the process.
#[derive(Debug)]
pub struct Mapping {
    memory: MmapRaw,
}

impl Mapping {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether it has no bytes; mappings always have some.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory itself, which the GPU may change at any time.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.memory.as_mut_ptr()
    }

    /// Whether `bytes` bytes at `offset` are inside.
    fn check(&self, offset: usize, bytes: usize) {
        let end = offset.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "{bytes} bytes at {offset} are outside of a BO of {}",
            self.len()
        );
    }

    /// Copies `values` to `offset` bytes from the start.
    ///
    /// # Panics
    ///
    /// If that is outside.
    pub fn write<T: NoUninit>(&self, offset: usize, values: &[T]) {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        self.check(offset, bytes.len());
        // SAFETY: The range lies inside the mapping, and no reference to it exists.
        unsafe {
            let to = self.as_mut_ptr().add(offset);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Copies `count` values from `offset` bytes from the start.
    ///
    /// # Panics
    ///
    /// If that is outside.
    pub fn read<T: AnyBitPattern + NoUninit>(&self, offset: usize, count: usize) -> Vec<T> {
        let mut values = vec![T::zeroed(); count];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        self.check(offset, bytes.len());
        // SAFETY: The range lies inside the mapping, and no reference to it exists.
        unsafe {
            let from = self.as_mut_ptr().add(offset);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
        values
    }

    /// The 64-bit word at `offset`, which has to be a multiple of 8; for words that tell something.
    ///
    /// # Panics
    ///
    /// If it is outside or not aligned.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, size_of::<u64>());
        assert!(offset % align_of::<AtomicU64>() == 0, "not aligned");
        // SAFETY: Inside the mapping, which starts at a page, and aligned. The GPU stores such
        // words as a whole.
        unsafe { AtomicU64::from_ptr(self.as_mut_ptr().add(offset).cast()) }
    }
}

/// An address space of the GPU.
#[derive(Debug)]
pub struct Vm<'g> {
    gpu: &'g Gpu,
    handle: u32,
    next_addr: AtomicU64,
}

impl<'g> Vm<'g> {
    /// Makes an empty address space.
    ///
    /// # Errors
    ///
    /// See VM_CREATE.
    pub fn new(gpu: &'g Gpu) -> io::Result<Self> {
        let mut create = abi::drm_ochre_vm_create::default();
        // SAFETY: There are no pointers.
        unsafe { abi::ioctl(gpu, &mut create)? };
        Ok(Self {
            gpu,
            handle: create.vm,
            next_addr: AtomicU64::new(FIRST_ADDR),
        })
    }

    /// The device.
    pub fn gpu(&self) -> &'g Gpu {
        self.gpu
    }

    /// VM handle.
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// Carries out operations.
    ///
    /// # Errors
    ///
    /// See VM_BIND.
    pub fn bind_all(&self, binds: &[abi::drm_ochre_bind]) -> io::Result<()> {
        let mut vm_bind = abi::drm_ochre_vm_bind {
            vm: self.handle,
            binds: pointer(binds),
            bind_count: abi::count(binds),
            bind_stride: stride::<abi::drm_ochre_bind>(),
            ..Default::default()
        };
        // SAFETY: The array is as long as the structure says.
        unsafe { abi::ioctl(self.gpu, &mut vm_bind) }
    }

    /// Maps a whole BO at `addr`.
    ///
    /// # Errors
    ///
    /// See VM_BIND.
    pub fn bind_at(&self, addr: u64, bo: &Bo<'_>, access: u32) -> io::Result<()> {
        self.bind_all(&[abi::drm_ochre_bind {
            op: abi::DRM_OCHRE_BIND_MAP,
            flags: access,
            handle: bo.handle(),
            addr,
            range: bo.size(),
            ..Default::default()
        }])
    }

    /// Maps a whole BO at an address of its own.
    ///
    /// # Errors
    ///
    /// See VM_BIND.
    pub fn bind(&self, bo: &Bo<'_>, access: u32) -> io::Result<u64> {
        let step = bo.size().next_multiple_of(ADDR_STEP);
        let addr = self.next_addr.fetch_add(step, Ordering::Relaxed);
        self.bind_at(addr, bo, access)?;
        Ok(addr)
    }

    /// Empties a range.
    ///
    /// # Errors
    ///
    /// See VM_BIND.
    pub fn unbind(&self, addr: u64, range: u64) -> io::Result<()> {
        self.bind_all(&[abi::drm_ochre_bind {
            op: abi::DRM_OCHRE_BIND_UNMAP,
            addr,
            range,
            ..Default::default()
        }])
    }

    /// A BO that both sides see.
    ///
    /// # Errors
    ///
    /// See GEM_CREATE, VM_BIND and mmap(2).
    pub fn buffer(&self, regions: u32, size: u64, access: u32) -> io::Result<Buffer<'g>> {
        let bo = Bo::new(self.gpu, regions, size)?;
        let addr = self.bind(&bo, access)?;
        let cpu = bo.map()?;
        Ok(Buffer { cpu, bo, addr })
    }

    /// The same with contents.
    ///
    /// # Errors
    ///
    /// As [`Vm::buffer`].
    pub fn buffer_of<T: NoUninit>(
        &self,
        regions: u32,
        values: &[T],
        access: u32,
    ) -> io::Result<Buffer<'g>> {
        let buffer = self.buffer(regions, size_of_val(values) as u64, access)?;
        buffer.cpu.write(0, values);
        Ok(buffer)
    }
}

impl Drop for Vm<'_> {
    fn drop(&mut self) {
        let mut destroy = abi::drm_ochre_vm_destroy {
            vm: self.handle,
            pad: 0,
        };
        // SAFETY: There are no pointers. A device that is gone has no VMs any more.
        let _ = unsafe { abi::ioctl(self.gpu, &mut destroy) };
    }
}

/// A BO with an address on both sides. Its mapping in the VM stays until the VM goes or
/// [`Vm::unbind`] takes it out.
#[derive(Debug)]
pub struct Buffer<'g> {
    /// For the CPU.
    pub cpu: Mapping,
    /// The memory.
    pub bo: Bo<'g>,
    /// For the GPU.
    pub addr: u64,
}
