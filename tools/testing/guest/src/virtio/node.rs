// SPDX-License-Identifier: GPL-2.0
//! An open node, and what is done with it all the time.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::ptr;

use libc::c_ulong;
use nix::errno::Errno;

use super::abi;
use super::abi::*;
use super::Function;

/// An open render node.
#[derive(Debug)]
pub struct Node {
    file: File,
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Mapped memory of a BO; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u32,
    bytes: usize,
}

/// Calls an ioctl once.
pub(super) fn call_on<A: abi::Argument>(fd: BorrowedFd<'_>, argument: &mut A) -> Result<(), Errno> {
    let request = c_ulong::from(A::REQUEST);
    // SAFETY: The argument has the type that the request names. The pointers in it lead to memory
    // of the test that lives and may be overwritten, or nowhere.
    let status = unsafe { libc::ioctl(fd.as_raw_fd(), request, ptr::from_mut(argument)) };
    Errno::result(status).map(drop)
}

/// The address of a slice, as structures hold it.
pub(super) fn address<T>(data: &[T]) -> u64 {
    data.as_ptr() as u64
}

/// The fence that an EXECBUFFER has given, which asked for one and succeeded.
pub fn fence(answer: &drm_virtgpu_execbuffer) -> OwnedFd {
    assert!(answer.flags & VIRTGPU_EXECBUF_FENCE_FD_OUT != 0);
    // SAFETY: The ioctl has made this descriptor for the caller.
    unsafe { OwnedFd::from_raw_fd(answer.fence_fd) }
}

impl Node {
    /// Opens the device's.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn open() -> anyhow::Result<Self> {
        Self::open_of(&Function::find()?)
    }

    /// Opens that of a function.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn open_of(function: &Function) -> anyhow::Result<Self> {
        Self::open_at(&function.render_node()?)
    }

    /// Opens a node.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn open_at(path: &Path) -> anyhow::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Self { file })
    }

    /// Calls an ioctl once.
    ///
    /// Pointers in `argument` have to lead to memory of the test that lives and that the answer may
    /// overwrite, or nowhere.
    ///
    /// # Errors
    ///
    /// The ioctl's.
    pub fn call<A: abi::Argument>(&self, argument: &mut A) -> Result<(), Errno> {
        call_on(self.as_fd(), argument)
    }

    /// Calls an ioctl by number with whatever address as its argument, which has to lead to memory of
    /// the test that may be overwritten, or nowhere.
    ///
    /// # Errors
    ///
    /// The ioctl's.
    pub fn call_at(&self, request: u32, address: u64) -> Result<(), Errno> {
        // SAFETY: See above; this is a program for tests, in which nothing is lost.
        let status = unsafe { libc::ioctl(self.file.as_raw_fd(), c_ulong::from(request), address) };
        Errno::result(status).map(drop)
    }

    /// A property of the device.
    ///
    /// # Errors
    ///
    /// GETPARAM's.
    pub fn param(&self, param: u64) -> Result<i32, Errno> {
        let mut value = 0i32;
        let mut argument = drm_virtgpu_getparam {
            param,
            value: ptr::from_mut(&mut value) as u64,
        };
        self.call(&mut argument)?;
        Ok(value)
    }

    /// Contents of a capset, at most `size` bytes.
    ///
    /// # Errors
    ///
    /// GET_CAPS's.
    pub fn capset(&self, id: u32, version: u32, size: u32) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; size as usize];
        let mut argument = drm_virtgpu_get_caps {
            cap_set_id: id,
            cap_set_ver: version,
            addr: bytes.as_mut_ptr() as u64,
            size,
            pad: 0,
        };
        self.call(&mut argument)?;
        Ok(bytes)
    }

    /// Gives the file's context parameters: pairs of parameter and value.
    ///
    /// # Errors
    ///
    /// CONTEXT_INIT's.
    pub fn init_context(&self, params: &[(u64, u64)]) -> Result<(), Errno> {
        let pair = |&(param, value): &(u64, u64)| drm_virtgpu_context_set_param { param, value };
        let params: Vec<_> = params.iter().map(pair).collect();
        let mut argument = drm_virtgpu_context_init {
            num_params: params.len() as u32,
            pad: 0,
            ctx_set_params: address(&params),
        };
        self.call(&mut argument)
    }

    /// A texture of four bytes a pixel; returns its handle and its id.
    ///
    /// # Errors
    ///
    /// RESOURCE_CREATE's.
    pub fn texture(&self, width: u32, height: u32) -> Result<(u32, u32), Errno> {
        let mut argument = drm_virtgpu_resource_create {
            target: 2,
            format: 1,
            width,
            height,
            depth: 1,
            array_size: 1,
            size: width * height * 4,
            ..Default::default()
        };
        self.call(&mut argument)?;
        Ok((argument.bo_handle, argument.res_handle))
    }

    /// A blob; returns its handle and its id.
    ///
    /// # Errors
    ///
    /// RESOURCE_CREATE_BLOB's.
    pub fn blob(&self, mem: u32, flags: u32, size: u64, hints: u32) -> Result<(u32, u32), Errno> {
        let mut argument = drm_virtgpu_resource_create_blob {
            blob_mem: mem,
            blob_flags: flags,
            size,
            blob_id: u64::from(mem != VIRTGPU_BLOB_MEM_GUEST),
            blob_hints: hints,
            ..Default::default()
        };
        self.call(&mut argument)?;
        Ok((argument.bo_handle, argument.res_handle))
    }

    /// Closes a handle.
    ///
    /// # Errors
    ///
    /// GEM_CLOSE's.
    pub fn close(&self, handle: u32) -> Result<(), Errno> {
        self.call(&mut drm_gem_close { handle, pad: 0 })
    }

    /// Where a BO can be mapped.
    ///
    /// # Errors
    ///
    /// MAP's.
    pub fn map_offset(&self, handle: u32) -> Result<u64, Errno> {
        let mut argument = drm_virtgpu_map {
            handle,
            ..Default::default()
        };
        self.call(&mut argument)?;
        Ok(argument.offset)
    }

    /// Maps a BO.
    ///
    /// # Errors
    ///
    /// MAP's, mmap's.
    pub fn map(&self, handle: u32, bytes: usize) -> Result<Mapping, Errno> {
        Mapping::of(self, self.map_offset(handle)?, bytes)
    }

    /// Submits a stream, and what else is in `with`; returns the argument as it came back.
    ///
    /// # Errors
    ///
    /// EXECBUFFER's.
    pub fn submit_with(
        &self,
        words: &[u32],
        with: drm_virtgpu_execbuffer,
    ) -> Result<drm_virtgpu_execbuffer, Errno> {
        let mut argument = drm_virtgpu_execbuffer {
            size: size_of_val(words) as u32,
            command: address(words),
            ..with
        };
        self.call(&mut argument)?;
        Ok(argument)
    }

    /// Submits a stream.
    ///
    /// # Errors
    ///
    /// EXECBUFFER's.
    pub fn submit(&self, words: &[u32]) -> Result<(), Errno> {
        self.submit_with(words, Default::default()).map(drop)
    }

    /// Submits a stream; returns its fence.
    ///
    /// # Errors
    ///
    /// EXECBUFFER's.
    pub fn submit_fenced(&self, words: &[u32], handles: &[u32]) -> Result<OwnedFd, Errno> {
        let with = drm_virtgpu_execbuffer {
            flags: VIRTGPU_EXECBUF_FENCE_FD_OUT,
            bo_handles: address(handles),
            num_bo_handles: handles.len() as u32,
            ..Default::default()
        };
        Ok(fence(&self.submit_with(words, with)?))
    }

    /// Waits until a BO is idle.
    ///
    /// # Errors
    ///
    /// WAIT's.
    pub fn wait(&self, handle: u32, flags: u32) -> Result<(), Errno> {
        self.call(&mut drm_virtgpu_3d_wait { handle, flags })
    }

    /// State of a fence: 0 at work, 1 done, or a negative errno.
    ///
    /// # Errors
    ///
    /// It is no sync file.
    pub fn fence_status(fence: &OwnedFd) -> Result<i32, Errno> {
        let mut info = sync_file_info::default();
        call_on(fence.as_fd(), &mut info)?;
        Ok(info.status)
    }
}

impl Mapping {
    /// Maps a part of a file.
    ///
    /// # Errors
    ///
    /// mmap's.
    pub fn of(file: &impl AsFd, offset: u64, bytes: usize) -> Result<Self, Errno> {
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
        // SAFETY: A new mapping, at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_fd().as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let start = start.cast();
        Ok(Self { start, bytes })
    }

    /// Where it is.
    pub fn address(&self) -> u64 {
        self.start as u64
    }

    /// Number of words.
    pub fn words(&self) -> usize {
        self.bytes / 4
    }

    fn word(&self, index: usize) -> *mut u32 {
        assert!(index < self.words());
        self.start.wrapping_add(index)
    }

    /// Reads a word.
    pub fn get(&self, index: usize) -> u32 {
        // SAFETY: Inside the mapping and aligned; nobody has a reference to it.
        unsafe { ptr::read_volatile(self.word(index)) }
    }

    /// Writes a word.
    pub fn set(&self, index: usize, value: u32) {
        // SAFETY: As for `get`.
        unsafe { ptr::write_volatile(self.word(index), value) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: The range that was mapped; this is its only owner.
        let status = unsafe { libc::munmap(self.start.cast(), self.bytes) };
        if status != 0 {
            println!("# munmap: {}", io::Error::last_os_error());
        }
    }
}
