// SPDX-License-Identifier: GPL-2.0
/*
 * Two queues of different engines take turns on one buffer, linked by the points of a timeline
 * syncobj: each fill has to wait for the copy before it, and each copy for its fill.
 */
#include <stdio.h>

#include <xf86drm.h>

#include "ochre.h"

#define ROUNDS	8u
#define BYTES	65536u

static struct drm_ochre_sync point(uint32_t timeline, uint64_t value, uint32_t flags)
{
	return (struct drm_ochre_sync) {
		.type = DRM_OCHRE_SYNC_TIMELINE,
		.flags = flags,
		.handle = timeline,
		.value = value,
	};
}

int main(void)
{
	uint32_t rw = DRM_OCHRE_BIND_READ | DRM_OCHRE_BIND_WRITE;
	__u64 packet[OG1_PKT_MAX_WORDS];
	uint32_t filler, copier, timeline;
	struct drm_ochre_sync last;
	struct bo scratch, result;
	const uint32_t *words;
	struct gpu gpu;

	gpu_open(&gpu);
	scratch = bo_new(&gpu, VRAM, BYTES, rw);
	result = bo_new(&gpu, SYSTEM, (uint64_t)ROUNDS * BYTES, rw);
	filler = queue_new(&gpu, DRM_OCHRE_ENGINE_COMPUTE, 0);
	copier = queue_new(&gpu, DRM_OCHRE_ENGINE_COPY, 0);
	timeline = syncobj_new(&gpu);

	for (unsigned int i = 0; i < ROUNDS; i++) {
		struct stream fill = stream_new(&gpu, 16);
		struct stream copy = stream_new(&gpu, 16);
		struct drm_ochre_sync around_fill[] = {
			point(timeline, 2 * i + 1, DRM_OCHRE_SYNC_SIGNAL),
			point(timeline, 2 * i, 0),
		};
		struct drm_ochre_sync around_copy[] = {
			point(timeline, 2 * i + 1, 0),
			point(timeline, 2 * i + 2, DRM_OCHRE_SYNC_SIGNAL),
		};

		stream_add(&fill, packet, og1_pkt_fill(packet, scratch.addr, BYTES, 0xc0de00 + i));
		stream_add(&copy, packet,
			   og1_pkt_copy(packet, scratch.addr,
					result.addr + (uint64_t)i * BYTES, BYTES));
		/* The first has nothing to wait for. */
		submit(&gpu, filler, &fill, around_fill, i ? 2 : 1);
		submit(&gpu, copier, &copy, around_copy, 2);
	}
	last = point(timeline, 2 * ROUNDS, 0);
	wait_for(&gpu, &last);

	words = result.cpu;
	for (unsigned int i = 0; i < ROUNDS * BYTES / 4; i++) {
		if (words[i] != 0xc0de00 + i / (BYTES / 4))
			fail("word %u is %#x", i, words[i]);
	}
	printf("two queues, %u turns over a timeline: verified\n", ROUNDS);

	drmSyncobjDestroy(gpu.fd, timeline);
	queue_free(&gpu, filler);
	queue_free(&gpu, copier);
	gpu_close(&gpu);
	return 0;
}
