// SPDX-License-Identifier: GPL-2.0
//! An open device with its context, and what it lends.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::poll;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::mm::mmap;
use rustix::mm::munmap;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;

use super::abi;
use super::abi::ioctl;
use super::abi::BlobMemory;

/// How long a fence may take before the row fails.
const FENCE_LIMIT: Duration = Duration::from_secs(20);

/// What the device can.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// Contexts with command streams.
    pub streams: bool,
    /// Blobs.
    pub blobs: bool,
    /// A window for blobs of the host.
    pub host_visible: bool,
    /// One bit for each set of capabilities.
    capsets: u64,
}

impl Features {
    /// Whether contexts of this kind can be had.
    pub fn has(&self, capset: Capset) -> bool {
        self.streams && self.capsets & (1 << capset.id()) != 0
    }
}

/// What a context speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capset {
    /// Gallium, of OpenGL.
    Virgl,
    /// Vulkan.
    Venus,
}

impl Capset {
    fn id(self) -> u32 {
        match self {
            Self::Virgl => abi::VIRTGPU_DRM_CAPSET_VIRGL2,
            Self::Venus => abi::VIRTGPU_DRM_CAPSET_VENUS,
        }
    }

    fn rings(self) -> u64 {
        match self {
            Self::Virgl => 1,
            Self::Venus => 64,
        }
    }
}

/// An open render node.
#[derive(Debug)]
pub struct Gpu {
    file: File,
}

/// A command stream to submit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Submit<'a> {
    /// 32-bit words for the host.
    pub stream: &'a [u32],
    /// Handles of what it uses.
    pub handles: &'a [u32],
}

/// The end of a submission.
#[derive(Debug)]
pub struct Fence(OwnedFd);

/// A resource that the host made, with memory in the guest.
#[derive(Debug)]
pub struct Resource<'g> {
    gpu: &'g Gpu,
    handle: u32,
}

/// A blob.
#[derive(Debug)]
pub struct Blob<'g> {
    gpu: &'g Gpu,
    handle: u32,
    size: usize,
}

impl Gpu {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// The file's.
    pub fn open(node: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(node)?;
        Ok(Self { file })
    }

    /// Opens it and makes a context that speaks `capset`.
    ///
    /// # Errors
    ///
    /// The file's, and see `DRM_IOCTL_VIRTGPU_CONTEXT_INIT`.
    pub fn with_context(node: &Path, capset: Capset) -> io::Result<Self> {
        let gpu = Self::open(node)?;
        let parameters = [
            abi::drm_virtgpu_context_set_param {
                param: abi::VIRTGPU_CONTEXT_PARAM_CAPSET_ID.into(),
                value: capset.id().into(),
            },
            abi::drm_virtgpu_context_set_param {
                param: abi::VIRTGPU_CONTEXT_PARAM_NUM_RINGS.into(),
                value: capset.rings(),
            },
        ];
        let mut init = abi::drm_virtgpu_context_init {
            num_params: 2,
            ctx_set_params: parameters.as_ptr() as u64,
            ..Default::default()
        };
        // SAFETY: The array has two elements and lives until then.
        unsafe { ioctl(gpu.file.as_fd(), &mut init)? };
        Ok(gpu)
    }

    /// What the device can.
    ///
    /// # Errors
    ///
    /// See `DRM_IOCTL_VIRTGPU_GETPARAM`. A parameter that the driver does not know is none.
    pub fn features(&self) -> io::Result<Features> {
        Ok(Features {
            streams: self.parameter(abi::VIRTGPU_PARAM_3D_FEATURES)? != 0,
            blobs: self.parameter(abi::VIRTGPU_PARAM_RESOURCE_BLOB)? != 0,
            host_visible: self.parameter(abi::VIRTGPU_PARAM_HOST_VISIBLE)? != 0,
            capsets: self
                .parameter(abi::VIRTGPU_PARAM_SUPPORTED_CAPSET_IDs)?
                .into(),
        })
    }

    fn parameter(&self, parameter: u32) -> io::Result<u32> {
        let mut value = 0u32;
        let mut get = abi::drm_virtgpu_getparam {
            param: parameter.into(),
            value: std::ptr::from_mut(&mut value) as u64,
        };
        // SAFETY: The kernel stores an `int` there.
        match unsafe { ioctl(self.file.as_fd(), &mut get) } {
            Ok(()) => Ok(value),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Submits, and asks for nothing.
    ///
    /// # Errors
    ///
    /// See `DRM_IOCTL_VIRTGPU_EXECBUFFER`.
    pub fn submit(&self, submit: Submit<'_>) -> io::Result<()> {
        self.execbuffer(submit, 0).map(drop)
    }

    /// Submits, and asks for a fence.
    ///
    /// # Errors
    ///
    /// See `DRM_IOCTL_VIRTGPU_EXECBUFFER`.
    pub fn submit_fenced(&self, submit: Submit<'_>) -> io::Result<Fence> {
        let fd = self.execbuffer(submit, abi::VIRTGPU_EXECBUF_FENCE_FD_OUT)?;
        // SAFETY: The kernel has made this descriptor for us alone.
        Ok(Fence(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn execbuffer(&self, submit: Submit<'_>, flags: u32) -> io::Result<i32> {
        // CAST: the rows have streams of some KiB and some handles.
        let mut argument = abi::drm_virtgpu_execbuffer {
            flags,
            size: size_of_val(submit.stream) as u32,
            command: submit.stream.as_ptr() as u64,
            bo_handles: submit.handles.as_ptr() as u64,
            num_bo_handles: submit.handles.len() as u32,
            fence_fd: -1,
            ..Default::default()
        };
        // SAFETY: Both arrays are as long as the structure says, and are only read.
        unsafe { ioctl(self.file.as_fd(), &mut argument)? };
        Ok(argument.fence_fd)
    }

    /// A linear buffer of so many bytes.
    ///
    /// # Errors
    ///
    /// See `DRM_IOCTL_VIRTGPU_RESOURCE_CREATE`.
    pub fn buffer(&self, size: u32) -> io::Result<Resource<'_>> {
        /// Of Gallium: PIPE_BUFFER, R8_UNORM, PIPE_BIND_VERTEX_BUFFER.
        const BUFFER: u32 = 0;
        const R8_UNORM: u32 = 64;
        const VERTEX_BUFFER: u32 = 1 << 4;
        self.create(abi::drm_virtgpu_resource_create {
            target: BUFFER,
            format: R8_UNORM,
            bind: VERTEX_BUFFER,
            width: size,
            height: 1,
            depth: 1,
            array_size: 1,
            size,
            ..Default::default()
        })
    }

    fn create(&self, argument: abi::drm_virtgpu_resource_create) -> io::Result<Resource<'_>> {
        let mut argument = argument;
        // SAFETY: There is no pointer in it.
        unsafe { ioctl(self.file.as_fd(), &mut argument)? };
        Ok(Resource {
            gpu: self,
            handle: argument.bo_handle,
        })
    }

    /// A mappable blob of so many bytes.
    ///
    /// # Errors
    ///
    /// See `DRM_IOCTL_VIRTGPU_RESOURCE_CREATE_BLOB`.
    pub fn blob(&self, memory: BlobMemory, size: usize) -> io::Result<Blob<'_>> {
        let mut argument = abi::drm_virtgpu_resource_create_blob {
            blob_mem: memory.code(),
            blob_flags: abi::VIRTGPU_BLOB_FLAG_USE_MAPPABLE,
            size: size as u64,
            ..Default::default()
        };
        // SAFETY: It has no command, so there is no pointer in it.
        unsafe { ioctl(self.file.as_fd(), &mut argument)? };
        Ok(Blob {
            gpu: self,
            handle: argument.bo_handle,
            size,
        })
    }

    fn close(&self, handle: u32) {
        let mut argument = abi::drm_gem_close { handle, pad: 0 };
        // A device that is gone has no handles any more.
        // SAFETY: There is no pointer in it.
        let _ = unsafe { ioctl(self.file.as_fd(), &mut argument) };
    }

    fn map_offset(&self, handle: u32) -> io::Result<u64> {
        let mut argument = abi::drm_virtgpu_map {
            handle,
            ..Default::default()
        };
        // SAFETY: There is no pointer in it.
        unsafe { ioctl(self.file.as_fd(), &mut argument)? };
        Ok(argument.offset)
    }
}

impl Fence {
    /// Waits for it.
    ///
    /// # Errors
    ///
    /// `TimedOut` after 20 seconds.
    pub fn wait(&self) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = Timespec {
            // CAST: some seconds.
            tv_sec: FENCE_LIMIT.as_secs() as i64,
            tv_nsec: 0,
        };
        match poll(&mut fds, Some(&limit))? {
            0 => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("a fence took longer than {} s", FENCE_LIMIT.as_secs()),
            )),
            _ => Ok(()),
        }
    }
}

impl Resource<'_> {
    /// Handle.
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// Moves its first `size` bytes to the host; returns when that is queued.
    ///
    /// # Errors
    ///
    /// See `DRM_IOCTL_VIRTGPU_TRANSFER_TO_HOST`.
    pub fn upload(&self, size: u32) -> io::Result<()> {
        let mut argument = abi::drm_virtgpu_3d_transfer_to_host {
            bo_handle: self.handle,
            box_: line(size),
            ..Default::default()
        };
        // SAFETY: There is no pointer in it.
        unsafe { ioctl(self.gpu.file.as_fd(), &mut argument) }
    }

    /// Moves its first `size` bytes from the host; returns when that is queued.
    ///
    /// # Errors
    ///
    /// See `DRM_IOCTL_VIRTGPU_TRANSFER_FROM_HOST`.
    pub fn download(&self, size: u32) -> io::Result<()> {
        let mut argument = abi::drm_virtgpu_3d_transfer_from_host {
            bo_handle: self.handle,
            box_: line(size),
            ..Default::default()
        };
        // SAFETY: There is no pointer in it.
        unsafe { ioctl(self.gpu.file.as_fd(), &mut argument) }
    }

    /// Waits until nothing uses it.
    ///
    /// # Errors
    ///
    /// See `DRM_IOCTL_VIRTGPU_WAIT`.
    pub fn wait(&self) -> io::Result<()> {
        let mut argument = abi::drm_virtgpu_3d_wait {
            handle: self.handle,
            flags: 0,
        };
        // SAFETY: There is no pointer in it.
        unsafe { ioctl(self.gpu.file.as_fd(), &mut argument) }
    }
}

/// A box of one line.
fn line(size: u32) -> abi::drm_virtgpu_3d_box {
    abi::drm_virtgpu_3d_box {
        w: size,
        h: 1,
        d: 1,
        ..Default::default()
    }
}

impl Drop for Resource<'_> {
    fn drop(&mut self) {
        self.gpu.close(self.handle);
    }
}

impl Blob<'_> {
    /// Maps it, writes its first byte, and unmaps it.
    ///
    /// # Errors
    ///
    /// See `DRM_IOCTL_VIRTGPU_MAP` and `mmap()`.
    pub fn touch(&self) -> io::Result<()> {
        let offset = self.gpu.map_offset(self.handle)?;
        // SAFETY: A new mapping at an address that the kernel chooses, used only here.
        unsafe {
            let address = mmap(
                std::ptr::null_mut(),
                self.size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                self.gpu.file.as_fd(),
                offset,
            )?;
            address.cast::<u8>().write_volatile(1);
            munmap(address, self.size)?;
        }
        Ok(())
    }
}

impl Drop for Blob<'_> {
    fn drop(&mut self) {
        self.gpu.close(self.handle);
    }
}
