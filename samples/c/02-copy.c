// SPDX-License-Identifier: GPL-2.0
/* Copies through each engine, system memory to VRAM and back, and compares. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ochre.h"

#define BYTES	(4u << 20)

static void copy_through(struct gpu *gpu, const struct drm_ochre_query_engine *engine)
{
	uint32_t rw = DRM_OCHRE_BIND_READ | DRM_OCHRE_BIND_WRITE;
	struct bo from = bo_new(gpu, SYSTEM, BYTES, rw);
	struct bo vram = bo_new(gpu, VRAM, BYTES, rw);
	struct bo to = bo_new(gpu, SYSTEM, BYTES, rw);
	struct bo times = bo_new(gpu, SYSTEM, 4096, rw);
	struct stream stream = stream_new(gpu, 64);
	uint32_t queue = queue_new(gpu, engine->klass, engine->instance);
	const uint64_t *time = times.cpu;
	uint32_t *words = from.cpu;
	__u64 packet[OG1_PKT_MAX_WORDS];

	for (unsigned int i = 0; i < BYTES / 4; i++)
		words[i] = i * 2654435761u + engine->instance;

	stream_add(&stream, packet, og1_pkt_timestamp(packet, times.addr));
	stream_add(&stream, packet, og1_pkt_copy(packet, from.addr, vram.addr, BYTES));
	stream_add(&stream, packet, og1_pkt_copy(packet, vram.addr, to.addr, BYTES));
	stream_add(&stream, packet, og1_pkt_timestamp(packet, times.addr + 8));
	run(gpu, queue, &stream);

	if (memcmp(from.cpu, vram.cpu, BYTES) || memcmp(from.cpu, to.cpu, BYTES))
		fail("engine %u.%u: what came back differs", engine->klass, engine->instance);
	printf("copy through %s%u: 2 x %u MiB in %" PRIu64 " ns of board time: verified\n",
	       engine->klass == DRM_OCHRE_ENGINE_COMPUTE ? "compute" : "copy",
	       engine->instance, BYTES >> 20, time[1] - time[0]);

	queue_free(gpu, queue);
	bo_free(gpu, &stream.bo);
	bo_free(gpu, &times);
	bo_free(gpu, &to);
	bo_free(gpu, &vram);
	bo_free(gpu, &from);
}

int main(void)
{
	struct drm_ochre_query_engine *engines;
	unsigned int count;
	struct gpu gpu;

	gpu_open(&gpu);
	engines = gpu_query(&gpu, DRM_OCHRE_QUERY_ENGINES, sizeof(*engines), &count);
	for (unsigned int i = 0; i < count; i++)
		copy_through(&gpu, &engines[i]);
	free(engines);
	gpu_close(&gpu);
	return 0;
}
