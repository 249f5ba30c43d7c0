// SPDX-License-Identifier: GPL-2.0

//! The DRM driver "ochre": its table of ioctls, and what DRM asks of it.

use core::ops::Deref;

use kernel::{
    device::DeviceContext,
    drm::{
        self,
        gem,
        ioctl::RENDER_ALLOW, //
    },
    pci,
    prelude::*,
    sync::Arc, //
};

use crate::{
    ext::{
        drm_drv::{
            DriverExt,
            DriverTable,
            Features, //
        },
        drm_print::Printer,
        ioctl::drm_ioctl_table,
        uapi, //
    },
    gpu::{
        bo,
        bound::Bound,
        fdinfo,
        file::File,
        query,
        queue_ioctl,
        submit,
        vm,
        wait,
        Gpu, //
    },
};

/// The driver.
pub(crate) struct Driver;

/// The DRM device in an ioctl.
pub(crate) type IoctlDevice = drm::Device<Driver, drm::Ioctl>;
/// An open file.
pub(crate) type DrmFile = drm::File<File>;

/// What the DRM device holds.
pub(crate) struct Data(Arc<Gpu>);

impl Data {
    /// Data of the device by which programs see `gpu`.
    pub(crate) fn new(gpu: Arc<Gpu>) -> Self {
        Self(gpu)
    }

    /// The GPU.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.0
    }
}

impl Deref for Data {
    type Target = Arc<Gpu>;

    fn deref(&self) -> &Arc<Gpu> {
        &self.0
    }
}

#[vtable]
impl drm::Driver for Driver {
    type Data = Data;
    type RegistrationData<'a> = Bound<'a>;
    type Object = gem::Object<bo::Bo>;
    type File = File;
    type ParentDevice<Ctx: DeviceContext> = pci::Device<Ctx>;

    const INFO: drm::DriverInfo = drm::DriverInfo {
        major: 1,
        minor: 0,
        patchlevel: 0,
        name: c"ochre",
        desc: c"Ochre GPU driver",
    };

    const FEAT_RENDER: bool = true;

    const IOCTLS: &'static [drm::ioctl::DrmIoctlDescriptor] = drm_ioctl_table!(
        Driver,
        (
            uapi::IOCTL_QUERY,
            uapi::drm_ochre_query,
            RENDER_ALLOW,
            query::ioctl
        ),
        (
            uapi::IOCTL_GEM_CREATE,
            uapi::drm_ochre_gem_create,
            RENDER_ALLOW,
            bo::ioctl_create
        ),
        (
            uapi::IOCTL_GEM_MMAP_OFFSET,
            uapi::drm_ochre_gem_mmap_offset,
            RENDER_ALLOW,
            bo::ioctl_mmap_offset
        ),
        (
            uapi::IOCTL_VM_CREATE,
            uapi::drm_ochre_vm_create,
            RENDER_ALLOW,
            vm::ioctl_create
        ),
        (
            uapi::IOCTL_VM_DESTROY,
            uapi::drm_ochre_vm_destroy,
            RENDER_ALLOW,
            vm::ioctl_destroy
        ),
        (
            uapi::IOCTL_VM_BIND,
            uapi::drm_ochre_vm_bind,
            RENDER_ALLOW,
            vm::ioctl_bind
        ),
        (
            uapi::IOCTL_QUEUE_CREATE,
            uapi::drm_ochre_queue_create,
            RENDER_ALLOW,
            queue_ioctl::create
        ),
        (
            uapi::IOCTL_QUEUE_DESTROY,
            uapi::drm_ochre_queue_destroy,
            RENDER_ALLOW,
            queue_ioctl::destroy
        ),
        (
            uapi::IOCTL_SUBMIT,
            uapi::drm_ochre_submit,
            RENDER_ALLOW,
            submit::ioctl
        ),
        (
            uapi::IOCTL_WAIT,
            uapi::drm_ochre_wait,
            RENDER_ALLOW,
            wait::ioctl
        ),
        (
            uapi::IOCTL_RESET_QUERY,
            uapi::drm_ochre_reset_query,
            RENDER_ALLOW,
            queue_ioctl::reset_query
        ),
    );
}

static TABLE: DriverTable = DriverTable::new();

impl DriverExt for Driver {
    type Bo = bo::Bo;

    const FEATURES: Features = Features::SYNCOBJ.with(Features::SYNCOBJ_TIMELINE);

    fn table() -> &'static DriverTable {
        &TABLE
    }

    fn show_fdinfo(
        dev: &drm::Device<Self, drm::Registered>,
        file: &DrmFile,
        printer: &mut Printer<'_>,
    ) {
        fdinfo::show(dev.gpu(), file, printer);
    }
}
