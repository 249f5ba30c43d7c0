// SPDX-License-Identifier: GPL-2.0

//! The DRM driver "virtio_gpu": its table of ioctls, and what DRM asks of it.
//!
//! Name, version and ABI are those of the kernel's C driver, so that Mesa takes it for that one.
//! There is no mode setting: the primary node has no connectors.

use kernel::{
    device::DeviceContext,
    drm::{
        self,
        gem,
        ioctl::RENDER_ALLOW, //
    },
    pci,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};

use super::{
    blob,
    bo,
    bound::Bound,
    capset::{
        self,
        Capsets, //
    },
    context,
    device::Device,
    dumb,
    execbuffer,
    fdinfo,
    file::File,
    param,
    prime,
    resource,
    transfer,
    wait,
    window::Window, //
};
use crate::ext::{
    dma_buf::DmaBuf,
    drm_drv::{
        DriverExt,
        DriverTable,
        Dumb,
        DumbRequest,
        Features, //
    },
    drm_print::Printer,
    ioctl::drm_ioctl_table,
    uapi_virtio as uapi, //
};

/// The driver.
pub(crate) struct Driver;

/// The DRM device in an ioctl.
pub(super) type IoctlDevice = drm::Device<Driver, drm::Ioctl>;
/// An open file.
pub(super) type DrmFile = drm::File<File>;

/// What the DRM device holds.
#[pin_data]
pub(crate) struct Data {
    device: Arc<Device>,
    /// Where the device shows memory of the host, if it can.
    window: Option<Window>,
    #[pin]
    capsets: Capsets,
}

impl Data {
    /// Data of the DRM device by which programs see `device`.
    pub(crate) fn new(device: Arc<Device>, window: Option<Window>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            device,
            window,
            capsets <- Capsets::new(),
        })
    }

    /// The device.
    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The window. [`EINVAL`] if the device has none.
    pub(super) fn window(&self) -> Result<&Window> {
        self.window.as_ref().ok_or(EINVAL)
    }

    /// The capability sets that are known.
    pub(super) fn capsets(&self) -> &Capsets {
        &self.capsets
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
        major: 0,
        minor: 1,
        patchlevel: 0,
        name: c"virtio_gpu",
        desc: c"virtio GPU",
    };

    const FEAT_RENDER: bool = true;

    const IOCTLS: &'static [drm::ioctl::DrmIoctlDescriptor] = drm_ioctl_table!(
        Driver,
        (
            uapi::IOCTL_VIRTGPU_MAP,
            uapi::drm_virtgpu_map,
            RENDER_ALLOW,
            bo::ioctl_map
        ),
        (
            uapi::IOCTL_VIRTGPU_EXECBUFFER,
            uapi::drm_virtgpu_execbuffer,
            RENDER_ALLOW,
            execbuffer::ioctl
        ),
        (
            uapi::IOCTL_VIRTGPU_GETPARAM,
            uapi::drm_virtgpu_getparam,
            RENDER_ALLOW,
            param::ioctl
        ),
        (
            uapi::IOCTL_VIRTGPU_RESOURCE_CREATE,
            uapi::drm_virtgpu_resource_create,
            RENDER_ALLOW,
            resource::ioctl_create
        ),
        (
            uapi::IOCTL_VIRTGPU_RESOURCE_INFO,
            uapi::drm_virtgpu_resource_info,
            RENDER_ALLOW,
            resource::ioctl_info
        ),
        (
            uapi::IOCTL_VIRTGPU_TRANSFER_FROM_HOST,
            uapi::drm_virtgpu_3d_transfer_from_host,
            RENDER_ALLOW,
            transfer::ioctl_from_host
        ),
        (
            uapi::IOCTL_VIRTGPU_TRANSFER_TO_HOST,
            uapi::drm_virtgpu_3d_transfer_to_host,
            RENDER_ALLOW,
            transfer::ioctl_to_host
        ),
        (
            uapi::IOCTL_VIRTGPU_WAIT,
            uapi::drm_virtgpu_3d_wait,
            RENDER_ALLOW,
            wait::ioctl
        ),
        (
            uapi::IOCTL_VIRTGPU_GET_CAPS,
            uapi::drm_virtgpu_get_caps,
            RENDER_ALLOW,
            capset::ioctl
        ),
        (
            uapi::IOCTL_VIRTGPU_RESOURCE_CREATE_BLOB,
            uapi::drm_virtgpu_resource_create_blob,
            RENDER_ALLOW,
            blob::ioctl
        ),
        (
            uapi::IOCTL_VIRTGPU_CONTEXT_INIT,
            uapi::drm_virtgpu_context_init,
            RENDER_ALLOW,
            context::ioctl_init
        ),
    );
}

static TABLE: DriverTable = DriverTable::new();

impl DriverExt for Driver {
    type Bo = bo::Bo;

    const FEATURES: Features = Features::SYNCOBJ.with(Features::SYNCOBJ_TIMELINE);
    const DUMB: bool = true;

    fn table() -> &'static DriverTable {
        &TABLE
    }

    fn show_fdinfo(
        _dev: &drm::Device<Self, drm::Registered>,
        file: &DrmFile,
        printer: &mut Printer<'_>,
    ) {
        fdinfo::show(file, printer);
    }

    fn import(dev: &IoctlDevice, buf: &DmaBuf) -> Result<ARef<bo::BoObject>> {
        prime::import(dev, buf)
    }

    fn dumb_create(dev: &IoctlDevice, file: &DrmFile, request: DumbRequest) -> Result<Dumb> {
        dumb::create(dev, file, request)
    }
}
