// SPDX-License-Identifier: GPL-2.0
//! The device: finding it and asking it.

use std::fs;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;

use drm::Device as _;

use crate::abi;

/// An open render node of the driver. What it lends (handles, mappings) ends with it.
#[derive(Debug)]
pub struct Gpu {
    file: File,
}

impl AsFd for Gpu {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl drm::Device for Gpu {}

/// Gives the sync objects and the closing of GEM handles.
impl drm::control::Device for Gpu {}

/// A structure that QUERY answers with.
pub trait Question: Clone + Default {
    /// `enum drm_ochre_query_kind`.
    const KIND: u32;
}

impl Question for abi::drm_ochre_query_hardware {
    const KIND: u32 = abi::DRM_OCHRE_QUERY_HARDWARE;
}

impl Question for abi::drm_ochre_query_region {
    const KIND: u32 = abi::DRM_OCHRE_QUERY_REGIONS;
}

impl Question for abi::drm_ochre_query_engine {
    const KIND: u32 = abi::DRM_OCHRE_QUERY_ENGINES;
}

impl Question for abi::drm_ochre_query_clocks {
    const KIND: u32 = abi::DRM_OCHRE_QUERY_CLOCKS;
}

impl Question for abi::drm_ochre_query_time {
    const KIND: u32 = abi::DRM_OCHRE_QUERY_TIME;
}

impl Gpu {
    /// Opens the first render node whose driver is `ochre`.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none.
    pub fn open() -> io::Result<Self> {
        let mut nodes: Vec<_> = fs::read_dir("/dev/dri")?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.to_string_lossy().contains("/renderD"))
            .collect();
        nodes.sort();
        for node in nodes {
            let file = File::options().read(true).write(true).open(node)?;
            let gpu = Self::from_file(file);
            if gpu
                .get_driver()
                .is_ok_and(|driver| driver.name() == "ochre")
            {
                return Ok(gpu);
            }
        }
        let hint = "no render node of the driver ochre: is the module loaded and bound?";
        Err(io::Error::new(io::ErrorKind::NotFound, hint))
    }

    /// A device that is open already, in another process for example.
    pub fn from_file(file: File) -> Self {
        Self { file }
    }

    /// The open file, for `mmap()` and to hand it to another process.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Answers a query that gives one structure or an array of them.
    ///
    /// # Errors
    ///
    /// See QUERY.
    pub fn query<Q: Question>(&self) -> io::Result<Vec<Q>> {
        let mut query = abi::drm_ochre_query {
            kind: Q::KIND,
            ..Default::default()
        };
        // SAFETY: With size 0 no pointer is used.
        unsafe { abi::ioctl(self, &mut query)? };
        let mut answers = vec![Q::default(); query.size as usize / size_of::<Q>()];
        query.data = answers.as_mut_ptr() as u64;
        // SAFETY: The answer is as long as the driver said, and `answers` has that many bytes.
        // Its elements are integers, which take any value.
        unsafe { abi::ioctl(self, &mut query)? };
        answers.truncate(query.size as usize / size_of::<Q>());
        Ok(answers)
    }

    /// Answers a query that gives one structure, which also says what exactly is asked.
    ///
    /// # Errors
    ///
    /// See QUERY.
    pub fn ask<Q: Question>(&self, question: Q) -> io::Result<Q> {
        let mut answer = question;
        let mut query = abi::drm_ochre_query {
            kind: Q::KIND,
            size: abi::stride::<Q>(),
            data: std::ptr::from_mut(&mut answer) as u64,
            ..Default::default()
        };
        // SAFETY: `answer` is as long as `size` says, and made of integers.
        unsafe { abi::ioctl(self, &mut query)? };
        Ok(answer)
    }
}
