/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The userspace ABI as the driver sees it: the header itself is the only definition.
 * bindgen does not evaluate the macros that make command numbers, but constants.
 */
#include <drm/ochre_drm.h>

#define OCHRE_IOCTL(name) \
	static const unsigned int IOCTL_##name = DRM_IOCTL_OCHRE_##name

OCHRE_IOCTL(QUERY);
OCHRE_IOCTL(GEM_CREATE);
OCHRE_IOCTL(GEM_MMAP_OFFSET);
OCHRE_IOCTL(VM_CREATE);
OCHRE_IOCTL(VM_DESTROY);
OCHRE_IOCTL(VM_BIND);
OCHRE_IOCTL(QUEUE_CREATE);
OCHRE_IOCTL(QUEUE_DESTROY);
OCHRE_IOCTL(SUBMIT);
OCHRE_IOCTL(WAIT);
OCHRE_IOCTL(RESET_QUERY);
