/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What ext/ takes from the kernel beyond the kernel crate's own bindings. Add a
 * header here and to the list in bindgen.sh; what kernel::bindings already has is
 * left out by itself.
 */
#include <linux/hrtimer_types.h>

#include <linux/dma-fence.h>
#include <linux/dma-fence-chain.h>
#include <linux/dma-fence-unwrap.h>
#include <linux/devfreq.h>
#include <linux/devfreq-governor.h>
#include <linux/hwmon.h>
#include <linux/perf_event.h>
#include <linux/shmem_fs.h>
#include <linux/sync_file.h>
#include <linux/thermal.h>
#include <linux/virtio_dma_buf.h>
#include <drm/drm_auth.h>
#include <drm/drm_print.h>
#include <drm/drm_syncobj.h>
#include <drm/drm_utils.h>

#include "helpers.h"
#include "ochre_trace.h"
