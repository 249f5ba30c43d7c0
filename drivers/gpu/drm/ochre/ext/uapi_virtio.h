/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What virtio/ takes from the kernel's own ABI headers: the ioctls of virtio-gpu and
 * the constants of the device. Command numbers as in uapi.h.
 */
#include <drm/virtgpu_drm.h>
#include <linux/virtio_config.h>
#include <linux/virtio_gpu.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_pci.h>
#include <linux/virtio_ring.h>

#define VIRTGPU_IOCTL(name) \
	static const unsigned int IOCTL_VIRTGPU_##name = DRM_IOCTL_VIRTGPU_##name

VIRTGPU_IOCTL(MAP);
VIRTGPU_IOCTL(EXECBUFFER);
VIRTGPU_IOCTL(GETPARAM);
VIRTGPU_IOCTL(RESOURCE_CREATE);
VIRTGPU_IOCTL(RESOURCE_INFO);
VIRTGPU_IOCTL(TRANSFER_FROM_HOST);
VIRTGPU_IOCTL(TRANSFER_TO_HOST);
VIRTGPU_IOCTL(WAIT);
VIRTGPU_IOCTL(GET_CAPS);
VIRTGPU_IOCTL(RESOURCE_CREATE_BLOB);
VIRTGPU_IOCTL(CONTEXT_INIT);
