/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The little that the C samples share: opening the device, BOs with an address on both sides, and
 * jobs. Each function does one ioctl or two and exits with a message if it fails, so that a
 * sample reads from top to bottom. A driver for real use would return errors.
 */
#ifndef OCHRE_SAMPLE_H
#define OCHRE_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include <ochre_drm.h>
#include <ochre_og1.h>

/* Regions, as DRM_OCHRE_QUERY_REGIONS numbers them. */
#define SYSTEM	(1u << 0)
#define VRAM	(1u << 1)

struct gpu {
	int fd;
	uint32_t vm;
	uint64_t next_addr;	/* where the next BO is mapped */
	struct drm_ochre_query_hardware hardware;
};

struct bo {
	uint32_t handle;
	uint64_t size;
	uint64_t addr;		/* on the GPU */
	void *cpu;		/* on the CPU */
};

/* A job in the making: packets in a BO. */
struct stream {
	struct bo bo;
	__u64 *words;
	unsigned int count;
};

__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);
void check_ioctl(int fd, unsigned long request, void *arg, const char *what);

void gpu_open(struct gpu *gpu);
void gpu_close(struct gpu *gpu);
/* Answers a query of one structure or an array; *count is the number of elements. Free it. */
void *gpu_query(const struct gpu *gpu, uint32_t kind, size_t element, unsigned int *count);

struct bo bo_new(struct gpu *gpu, uint32_t region, uint64_t size, uint32_t access);
void bo_free(struct gpu *gpu, struct bo *bo);
/* Makes an executable BO of a kernel image that stands beside the program. */
struct bo bo_kernel(struct gpu *gpu, const char *program, const char *file);

uint32_t queue_new(struct gpu *gpu, uint16_t engine_class, uint16_t instance);
void queue_free(struct gpu *gpu, uint32_t queue);

struct stream stream_new(struct gpu *gpu, unsigned int max_words);
/* Takes the packets that an og1_pkt_* function made. */
void stream_add(struct stream *stream, const __u64 *packet, unsigned int words);

/* Submits a stream and waits for it; fails if its fence carries an error. */
void run(struct gpu *gpu, uint32_t queue, const struct stream *stream);
void submit(struct gpu *gpu, uint32_t queue, const struct stream *stream,
	    const struct drm_ochre_sync *syncs, unsigned int count);
void wait_for(struct gpu *gpu, const struct drm_ochre_sync *sync);
uint32_t syncobj_new(struct gpu *gpu);

#endif
