// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <xf86drm.h>

#include "ochre.h"

#define FIRST_ADDR	0x100000000ull
#define ADDR_STEP	0x200000ull	/* 2 MiB, so that large pages can be used */

void fail(const char *format, ...)
{
	va_list args;

	fputs("failed: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	exit(1);
}

void check_ioctl(int fd, unsigned long request, void *arg, const char *what)
{
	if (drmIoctl(fd, request, arg))
		fail("%s: %s", what, strerror(errno));
}

static int open_node(void)
{
	drmDevicePtr devices[16];
	int count = drmGetDevices2(0, devices, 16);
	int fd = -1;

	for (int i = 0; i < count && fd < 0; i++) {
		drmVersionPtr version;

		if (!(devices[i]->available_nodes & (1 << DRM_NODE_RENDER)))
			continue;
		fd = open(devices[i]->nodes[DRM_NODE_RENDER], O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		version = drmGetVersion(fd);
		if (!version || strcmp(version->name, "ochre")) {
			close(fd);
			fd = -1;
		}
		drmFreeVersion(version);
	}
	drmFreeDevices(devices, count > 0 ? count : 0);
	return fd;
}

void *gpu_query(const struct gpu *gpu, uint32_t kind, size_t element, unsigned int *count)
{
	struct drm_ochre_query query = { .kind = kind };
	void *data;

	check_ioctl(gpu->fd, DRM_IOCTL_OCHRE_QUERY, &query, "query its size");
	data = calloc(1, query.size);
	if (!data)
		fail("no memory");
	query.data = (uintptr_t)data;
	check_ioctl(gpu->fd, DRM_IOCTL_OCHRE_QUERY, &query, "query");
	*count = query.size / element;
	return data;
}

void gpu_open(struct gpu *gpu)
{
	struct drm_ochre_vm_create vm = { 0 };
	struct drm_ochre_query_hardware *hardware;
	unsigned int count;

	gpu->fd = open_node();
	if (gpu->fd < 0)
		fail("no render node of the driver ochre: is the module loaded and bound?");
	hardware = gpu_query(gpu, DRM_OCHRE_QUERY_HARDWARE, sizeof(*hardware), &count);
	gpu->hardware = *hardware;
	free(hardware);
	check_ioctl(gpu->fd, DRM_IOCTL_OCHRE_VM_CREATE, &vm, "create an address space");
	gpu->vm = vm.vm;
	gpu->next_addr = FIRST_ADDR;
}

void gpu_close(struct gpu *gpu)
{
	struct drm_ochre_vm_destroy vm = { .vm = gpu->vm };

	check_ioctl(gpu->fd, DRM_IOCTL_OCHRE_VM_DESTROY, &vm, "destroy the address space");
	close(gpu->fd);
}

struct bo bo_new(struct gpu *gpu, uint32_t region, uint64_t size, uint32_t access)
{
	struct drm_ochre_gem_create create = {
		.size = (size + 4095) & ~4095ull,
		.regions = region,
		.flags = region == VRAM ? DRM_OCHRE_GEM_CPU_VISIBLE : 0,
	};
	struct drm_ochre_gem_mmap_offset offset = { 0 };
	struct drm_ochre_bind map = {
		.op = DRM_OCHRE_BIND_MAP,
		.flags = access,
		.addr = gpu->next_addr,
		.range = create.size,
	};
	struct drm_ochre_vm_bind bind = {
		.vm = gpu->vm,
		.binds = (uintptr_t)&map,
		.bind_count = 1,
		.bind_stride = sizeof(map),
	};
	struct bo bo = { .size = create.size, .addr = map.addr };

	check_ioctl(gpu->fd, DRM_IOCTL_OCHRE_GEM_CREATE, &create, "create a BO");
	bo.handle = map.handle = offset.handle = create.handle;
	check_ioctl(gpu->fd, DRM_IOCTL_OCHRE_VM_BIND, &bind, "map a BO on the GPU");
	gpu->next_addr += (bo.size + ADDR_STEP - 1) / ADDR_STEP * ADDR_STEP;

	check_ioctl(gpu->fd, DRM_IOCTL_OCHRE_GEM_MMAP_OFFSET, &offset, "ask for the mmap offset");
	bo.cpu = mmap(NULL, bo.size, PROT_READ | PROT_WRITE, MAP_SHARED, gpu->fd, offset.offset);
	if (bo.cpu == MAP_FAILED)
		fail("map a BO on the CPU: %s", strerror(errno));
	return bo;
}

void bo_free(struct gpu *gpu, struct bo *bo)
{
	struct drm_ochre_bind unmap = {
		.op = DRM_OCHRE_BIND_UNMAP,
		.addr = bo->addr,
		.range = bo->size,
	};
	struct drm_ochre_vm_bind bind = {
		.vm = gpu->vm,
		.binds = (uintptr_t)&unmap,
		.bind_count = 1,
		.bind_stride = sizeof(unmap),
	};

	check_ioctl(gpu->fd, DRM_IOCTL_OCHRE_VM_BIND, &bind, "unmap a BO");
	munmap(bo->cpu, bo->size);
	drmCloseBufferHandle(gpu->fd, bo->handle);
}

struct bo bo_kernel(struct gpu *gpu, const char *program, const char *file)
{
	char path[4096];
	char *copy = strdup(program);
	struct bo bo = bo_new(gpu, VRAM, 65536, DRM_OCHRE_BIND_READ | DRM_OCHRE_BIND_EXEC);
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", copy ? dirname(copy) : ".", file);
	free(copy);
	f = fopen(path, "rb");
	if (!f)
		fail("%s: %s", path, strerror(errno));
	if (!fread(bo.cpu, 1, bo.size, f))
		fail("%s is empty", path);
	fclose(f);
	return bo;
}

uint32_t queue_new(struct gpu *gpu, uint16_t engine_class, uint16_t instance)
{
	struct drm_ochre_queue_create create = {
		.vm = gpu->vm,
		.engine_class = engine_class,
		.engine_instance = instance,
	};

	check_ioctl(gpu->fd, DRM_IOCTL_OCHRE_QUEUE_CREATE, &create, "create a queue");
	return create.queue;
}

void queue_free(struct gpu *gpu, uint32_t queue)
{
	struct drm_ochre_queue_destroy destroy = { .queue = queue };

	check_ioctl(gpu->fd, DRM_IOCTL_OCHRE_QUEUE_DESTROY, &destroy, "destroy a queue");
}

struct stream stream_new(struct gpu *gpu, unsigned int max_words)
{
	struct stream stream = { 0 };

	stream.bo = bo_new(gpu, SYSTEM, max_words * sizeof(uint64_t), DRM_OCHRE_BIND_READ);
	stream.words = stream.bo.cpu;
	return stream;
}

void stream_add(struct stream *stream, const __u64 *packet, unsigned int words)
{
	if ((stream->count + words) * sizeof(uint64_t) > stream->bo.size)
		fail("the stream has no room for %u more words", words);
	memcpy(stream->words + stream->count, packet, words * sizeof(uint64_t));
	stream->count += words;
}

void submit(struct gpu *gpu, uint32_t queue, const struct stream *stream,
	    const struct drm_ochre_sync *syncs, unsigned int count)
{
	struct drm_ochre_job job = {
		.addr = stream->bo.addr,
		.words = stream->count,
		.syncs = (uintptr_t)syncs,
		.sync_count = count,
		.sync_stride = sizeof(*syncs),
	};
	struct drm_ochre_submit submit = {
		.queue = queue,
		.jobs = (uintptr_t)&job,
		.job_count = 1,
		.job_stride = sizeof(job),
	};

	check_ioctl(gpu->fd, DRM_IOCTL_OCHRE_SUBMIT, &submit, "submit a job");
}

void wait_for(struct gpu *gpu, const struct drm_ochre_sync *sync)
{
	struct drm_ochre_sync wanted = *sync;
	struct timespec now;
	struct drm_ochre_wait wait = {
		.syncs = (uintptr_t)&wanted,
		.sync_count = 1,
		.sync_stride = sizeof(wanted),
	};

	wanted.flags = 0;
	clock_gettime(CLOCK_MONOTONIC, &now);
	wait.timeout_ns = (now.tv_sec + 60) * 1000000000ll + now.tv_nsec;
	check_ioctl(gpu->fd, DRM_IOCTL_OCHRE_WAIT, &wait, "wait for a job");
	if (wait.error)
		fail("the job ended with %s", strerror(wait.error));
}

uint32_t syncobj_new(struct gpu *gpu)
{
	uint32_t handle;

	if (drmSyncobjCreate(gpu->fd, 0, &handle))
		fail("create a syncobj: %s", strerror(errno));
	return handle;
}

void run(struct gpu *gpu, uint32_t queue, const struct stream *stream)
{
	struct drm_ochre_sync done = {
		.type = DRM_OCHRE_SYNC_SYNCOBJ,
		.flags = DRM_OCHRE_SYNC_SIGNAL,
		.handle = syncobj_new(gpu),
	};

	submit(gpu, queue, stream, &done, 1);
	wait_for(gpu, &done);
	drmSyncobjDestroy(gpu->fd, done.handle);
}
