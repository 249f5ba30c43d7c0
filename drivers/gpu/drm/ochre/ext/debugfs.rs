// SPDX-License-Identifier: GPL-2.0

//! Files in debugfs, beside those of DRM: `/sys/kernel/debug/dri/0000:00:05.0/`.
//!
//! C header: [`include/linux/debugfs.h`](srctree/include/linux/debugfs.h)
//!
//! `kernel::debugfs` makes folders at the root only, and files that everyone may read. Where the kernel
//! has no debugfs nothing is made, and nothing fails.

use core::ptr;

use kernel::{
    bindings,
    drm,
    ffi::{
        c_int,
        c_void, //
    },
    fmt,
    prelude::*,
    seq_file::SeqFile, //
};

use super::sys;

/// Where text goes.
pub(crate) struct Out<'a>(&'a SeqFile);

impl fmt::Write for Out<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.call_printf(fmt!("{text}"));
        Ok(())
    }
}

/// What a file shows.
pub(crate) trait Contents: Send + Sync + 'static {
    /// Writes it. May sleep; may be called again for the same read, if it was much.
    fn show(&self, out: &mut Out<'_>) -> Result;
}

/// What C has a pointer to.
#[repr(C)]
struct File {
    /// First, as C knows no more of it.
    info: sys::ochre_debugfs_file,
    contents: KBox<dyn Contents>,
}

// SAFETY: `info` is a function pointer, and `contents` is `Send` and `Sync`.
unsafe impl Send for File {}
// SAFETY: As above.
unsafe impl Sync for File {}

/// A folder with files that only root may read. They go when it is dropped, even if they are open.
///
/// # Invariants
///
/// `dentry` is a folder that this value owns, a null pointer, or an error pointer.
pub(crate) struct Folder {
    dentry: *mut bindings::dentry,
    files: KVec<KBox<File>>,
    folders: KVec<Folder>,
}

// SAFETY: The functions of debugfs take a folder from any thread.
unsafe impl Send for Folder {}
// SAFETY: As above; nothing is changed through a shared reference.
unsafe impl Sync for Folder {}

impl Folder {
    /// A folder beside the files of a DRM device. It has to go before the device is unregistered.
    pub(crate) fn of_device<T: drm::Driver>(dev: &drm::Device<T>, name: &CStr) -> Self {
        let raw = ptr::from_ref(dev).cast_mut().cast::<bindings::drm_device>();
        // SAFETY: A device has its folder as long as it is registered.
        Self::make(name, unsafe { sys::ochre_debugfs_of_device(raw) })
    }

    fn make(name: &CStr, parent: *mut bindings::dentry) -> Self {
        Self {
            // SAFETY: The parent is there, or debugfs takes it for an error and returns one.
            // INVARIANT: What it made is ours.
            dentry: unsafe { sys::ochre_debugfs_folder(name.as_char_ptr(), parent) },
            files: KVec::new(),
            folders: KVec::new(),
        }
    }

    /// Adds a folder and fills it.
    pub(crate) fn folder(&mut self, name: &CStr, fill: impl FnOnce(&mut Self) -> Result) -> Result {
        let mut folder = Self::make(name, self.dentry);
        fill(&mut folder)?;
        Ok(self.folders.push(folder, GFP_KERNEL)?)
    }

    /// Adds a file.
    pub(crate) fn file(&mut self, name: &CStr, contents: KBox<dyn Contents>) -> Result {
        let info = sys::ochre_debugfs_file { show: Some(show) };
        let file = KBox::new(File { info, contents }, GFP_KERNEL)?;
        self.files.push(file, GFP_KERNEL)?;
        if let Some(file) = self.files.last() {
            let info = ptr::from_ref::<File>(file).cast_mut().cast();
            // SAFETY: The file stays where it is until the folder has been removed. C only reads it.
            unsafe { sys::ochre_debugfs_add(name.as_char_ptr(), self.dentry, info) };
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is in it goes first, since it is not there any more afterwards.
        self.folders.clear();
        // SAFETY: By the type invariant. Nobody reads the files any more when this has returned.
        unsafe { sys::ochre_debugfs_remove(self.dentry) };
    }
}

/// # Safety
///
/// As the `show` of a file that [`Folder::file`] made.
unsafe extern "C" fn show(seq: *mut bindings::seq_file, _unused: *mut c_void) -> c_int {
    // SAFETY: `private` is what was given to debugfs, the start of a `File` that lives as long as
    // anybody reads; the seq file is this call's alone.
    let (file, seq) = unsafe { (&*(*seq).private.cast::<File>(), SeqFile::from_raw(seq)) };
    match file.contents.show(&mut Out(seq)) {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}
