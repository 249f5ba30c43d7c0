/* SPDX-License-Identifier: GPL-2.0 */
/* What build.rs makes Rust of: the interface of virtio-gpu, as the system's headers have it. */
#include <drm.h>
#include <virtgpu_drm.h>
