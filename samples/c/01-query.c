// SPDX-License-Identifier: GPL-2.0
/* Asks the driver for everything that it tells, and prints it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ochre.h"

static const char *engine_class(unsigned int class)
{
	return class == DRM_OCHRE_ENGINE_COMPUTE ? "compute" : "copy";
}

int main(void)
{
	struct drm_ochre_query_region *regions;
	struct drm_ochre_query_engine *engines;
	struct drm_ochre_query_clocks *clocks;
	struct drm_ochre_query_time when = { .clock = CLOCK_MONOTONIC };
	struct drm_ochre_query query = {
		.kind = DRM_OCHRE_QUERY_TIME,
		.size = sizeof(when),
		.data = (uintptr_t)&when,
	};
	unsigned int count, vram = 0;
	struct gpu gpu;

	gpu_open(&gpu);
	printf("%s, %04x:%04x, specification %u.%u, firmware %u.%u\n", gpu.hardware.name,
	       gpu.hardware.vendor, gpu.hardware.device, gpu.hardware.revision >> 16,
	       gpu.hardware.revision & 0xffff, gpu.hardware.firmware >> 16,
	       gpu.hardware.firmware & 0xffff);

	regions = gpu_query(&gpu, DRM_OCHRE_QUERY_REGIONS, sizeof(*regions), &count);
	for (unsigned int i = 0; i < count; i++) {
		vram |= regions[i].klass == DRM_OCHRE_REGION_VRAM && regions[i].size > 0;
		printf("region %u: %s, %" PRIu64 " MiB, %" PRIu64 " MiB visible to the CPU\n",
		       regions[i].instance,
		       regions[i].klass == DRM_OCHRE_REGION_VRAM ? "VRAM" : "system",
		       (uint64_t)regions[i].size >> 20,
		       (uint64_t)regions[i].cpu_visible_size >> 20);
	}
	free(regions);

	engines = gpu_query(&gpu, DRM_OCHRE_QUERY_ENGINES, sizeof(*engines), &count);
	for (unsigned int i = 0; i < count; i++)
		printf("engine %s%u: %u slots, %u lanes\n", engine_class(engines[i].klass),
		       engines[i].instance, engines[i].slots, engines[i].lanes);
	free(engines);
	if (!vram || !count)
		fail("a board without VRAM or engines");

	clocks = gpu_query(&gpu, DRM_OCHRE_QUERY_CLOCKS, sizeof(*clocks), &count);
	printf("clocks: core %u of %u MHz, memory %u of %u MHz\n", clocks->core_khz / 1000,
	       clocks->core_max_khz / 1000, clocks->memory_khz / 1000,
	       clocks->memory_max_khz / 1000);
	free(clocks);

	check_ioctl(gpu.fd, DRM_IOCTL_OCHRE_QUERY, &query, "query the time");
	printf("time: board %" PRIu64 " ns at CPU %" PRIu64 " ns, known to %" PRIu64 " ns\n",
	       (uint64_t)when.gpu_ticks, (uint64_t)when.cpu_ns, (uint64_t)when.cpu_delta_ns);
	gpu_close(&gpu);
	puts("query: verified");
	return 0;
}
