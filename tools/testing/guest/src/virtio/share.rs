// SPDX-License-Identifier: GPL-2.0
//! Buffers that go from one device to another as dma-bufs.

use std::fs;
use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::process::Command;

use anyhow::ensure;
use anyhow::Context;
use drm::buffer;
use drm::buffer::Buffer;
use drm::buffer::DrmFourcc;
use drm::control;
use drm::control::dumbbuffer::DumbBuffer;
use drm::control::Device;
use nix::errno::Errno;

use super::abi::drm_vgem_fence_attach;
use super::abi::drm_virtgpu_resource_info;
use super::abi::VGEM_FENCE_WRITE;
use super::node::call_on;
use super::Node;

impl drm::Device for Node {}
impl Device for Node {}

/// The error of a call of the library.
fn errno(error: io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

/// Makes a dma-buf of a buffer.
///
/// # Errors
///
/// PRIME_HANDLE_TO_FD's.
pub fn export(device: &impl Device, handle: u32) -> Result<OwnedFd, Errno> {
    let handle = NonZeroU32::new(handle).ok_or(Errno::ENOENT)?;
    // CAST: Flags of open(2), small.
    let flags = (libc::O_CLOEXEC | libc::O_RDWR) as u32;
    device
        .buffer_to_prime_fd(buffer::Handle::from(handle), flags)
        .map_err(errno)
}

/// Makes a handle of a dma-buf.
///
/// # Errors
///
/// PRIME_FD_TO_HANDLE's.
pub fn import(device: &impl Device, fd: &impl AsFd) -> Result<u32, Errno> {
    let handle = device.prime_fd_to_buffer(fd.as_fd()).map_err(errno)?;
    Ok(control::RawResourceHandle::from(handle).into())
}

impl Node {
    /// The resource behind a handle.
    ///
    /// # Errors
    ///
    /// RESOURCE_INFO's.
    pub fn resource(&self, handle: u32) -> Result<u32, Errno> {
        let mut argument = drm_virtgpu_resource_info {
            bo_handle: handle,
            ..Default::default()
        };
        self.call(&mut argument)?;
        Ok(argument.res_handle)
    }
}

/// vgem, a device of the kernel's with nothing but memory.
#[derive(Debug)]
pub struct Vgem {
    file: File,
}

impl AsFd for Vgem {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl drm::Device for Vgem {}
impl Device for Vgem {}

impl Vgem {
    /// Loads it and opens it.
    ///
    /// # Errors
    ///
    /// The kernel has none.
    pub fn open() -> anyhow::Result<Self> {
        let loaded = Command::new("modprobe").arg("vgem").status()?;
        ensure!(loaded.success(), "no module vgem");
        for entry in fs::read_dir("/dev/dri")? {
            let path = entry?.path();
            if !path.to_string_lossy().contains("card") {
                continue;
            }
            let vgem = Self {
                file: File::options().read(true).write(true).open(path)?,
            };
            if drm::Device::get_driver(&vgem)?.name == "vgem" {
                return Ok(vgem);
            }
        }
        anyhow::bail!("there is no vgem")
    }

    /// A buffer of `pages` pages.
    ///
    /// # Errors
    ///
    /// CREATE_DUMB's.
    pub fn buffer(&self, pages: u32) -> anyhow::Result<DumbBuffer> {
        self.create_dumb_buffer((1024, pages), DrmFourcc::Xrgb8888, 32)
            .context("a buffer of vgem")
    }

    /// Makes a buffer busy for ten seconds.
    ///
    /// # Errors
    ///
    /// It is no buffer, or busy.
    pub fn occupy(&self, handle: u32) -> Result<(), Errno> {
        let mut argument = drm_vgem_fence_attach {
            handle,
            flags: VGEM_FENCE_WRITE,
            ..Default::default()
        };
        call_on(self.as_fd(), &mut argument)
    }

    /// A dma-buf of a buffer of `pages` pages, which nobody else has.
    ///
    /// # Errors
    ///
    /// As of [`Self::buffer`] and [`export`].
    pub fn dma_buf(&self, pages: u32) -> anyhow::Result<OwnedFd> {
        let buffer = self.buffer(pages)?;
        let handle = control::RawResourceHandle::from(buffer.handle());
        let fd = export(self, handle.into())?;
        self.destroy_dumb_buffer(buffer)?;
        Ok(fd)
    }
}
