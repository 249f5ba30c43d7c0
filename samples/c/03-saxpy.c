// SPDX-License-Identifier: GPL-2.0
/* y = a * x + y on a compute engine, by a kernel that clang compiled from C. */
#include <inttypes.h>
#include <stdio.h>

#include "../kernels/args.h"
#include "ochre.h"

#define N	65536u
#define BLOCK	64u
#define STACK	256u

int main(int argc, char **argv)
{
	uint32_t rw = DRM_OCHRE_BIND_READ | DRM_OCHRE_BIND_WRITE;
	struct bo kernel, x, y, args, times, stack;
	__u64 packet[OG1_PKT_MAX_WORDS];
	struct saxpy_args *arg;
	struct stream stream;
	const uint64_t *time;
	float *xs, *ys;
	uint32_t queue;
	struct gpu gpu;

	(void)argc;
	gpu_open(&gpu);
	kernel = bo_kernel(&gpu, argv[0], "saxpy.bin");
	x = bo_new(&gpu, VRAM, N * sizeof(float), rw);
	y = bo_new(&gpu, VRAM, N * sizeof(float), rw);
	args = bo_new(&gpu, SYSTEM, 4096, rw);
	times = bo_new(&gpu, SYSTEM, 4096, rw);
	stack = bo_new(&gpu, VRAM, BLOCK * STACK, rw);
	stream = stream_new(&gpu, 64);
	queue = queue_new(&gpu, DRM_OCHRE_ENGINE_COMPUTE, DRM_OCHRE_ENGINE_ANY);

	xs = x.cpu;
	ys = y.cpu;
	for (unsigned int i = 0; i < N; i++) {
		xs[i] = (float)i / 7;
		ys[i] = 1000 - (float)i;
	}
	arg = args.cpu;
	*arg = (struct saxpy_args) { .x = x.addr, .y = y.addr, .n = N, .a = 2.5f };

	struct og1_dispatch dispatch = {
		.kernel = kernel.addr,
		.args = args.addr,
		.grid = { N / BLOCK, 1, 1 },
		.block = { BLOCK, 1, 1 },
		.stack = stack.addr,
		.stack_bytes = STACK,
	};
	stream_add(&stream, packet, og1_pkt_timestamp(packet, times.addr));
	stream_add(&stream, packet, og1_pkt_dispatch(packet, &dispatch));
	stream_add(&stream, packet, og1_pkt_timestamp(packet, times.addr + 8));
	run(&gpu, queue, &stream);

	for (unsigned int i = 0; i < N; i++) {
		/* Not contracted, as the kernel is not. */
		volatile float product = 2.5f * ((float)i / 7);
		float want = product + (1000 - (float)i);

		if (ys[i] != want)
			fail("y[%u] is %g, the CPU says %g", i, ys[i], want);
	}
	time = times.cpu;
	printf("saxpy of %u elements in %" PRIu64 " ns of board time: verified\n", N,
	       time[1] - time[0]);

	queue_free(&gpu, queue);
	gpu_close(&gpu);
	return 0;
}
