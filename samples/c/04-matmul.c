// SPDX-License-Identifier: GPL-2.0
/* A tiled single-precision matrix product with block-local memory and barriers. */
#include <inttypes.h>
#include <stdio.h>

#include "../kernels/args.h"
#include "ochre.h"

#define N	64u
#define STACK	512u

static float element(unsigned int matrix, unsigned int row, unsigned int col)
{
	/* Small whole numbers: sums are exact in any order. */
	return (float)((row * 3 + col * 5 + matrix * 7) % 17) - 8;
}

int main(int argc, char **argv)
{
	uint32_t rw = DRM_OCHRE_BIND_READ | DRM_OCHRE_BIND_WRITE;
	uint64_t bytes = N * N * sizeof(float);
	struct bo kernel, a, b, c, args, times, stack;
	__u64 packet[OG1_PKT_MAX_WORDS];
	struct matmul_args *arg;
	struct stream stream;
	const uint64_t *time;
	const float *got;
	uint32_t queue;
	struct gpu gpu;

	(void)argc;
	gpu_open(&gpu);
	kernel = bo_kernel(&gpu, argv[0], "matmul.bin");
	a = bo_new(&gpu, VRAM, bytes, rw);
	b = bo_new(&gpu, VRAM, bytes, rw);
	c = bo_new(&gpu, VRAM, bytes, rw);
	args = bo_new(&gpu, SYSTEM, 4096, rw);
	times = bo_new(&gpu, SYSTEM, 4096, rw);
	stack = bo_new(&gpu, VRAM, MATMUL_TILE * MATMUL_TILE * STACK, rw);
	stream = stream_new(&gpu, 64);
	queue = queue_new(&gpu, DRM_OCHRE_ENGINE_COMPUTE, DRM_OCHRE_ENGINE_ANY);

	for (unsigned int i = 0; i < N * N; i++) {
		((float *)a.cpu)[i] = element(0, i / N, i % N);
		((float *)b.cpu)[i] = element(1, i / N, i % N);
	}
	arg = args.cpu;
	*arg = (struct matmul_args) { .a = a.addr, .b = b.addr, .c = c.addr, .n = N };

	struct og1_dispatch dispatch = {
		.kernel = kernel.addr,
		.args = args.addr,
		.grid = { N / MATMUL_TILE, N / MATMUL_TILE, 1 },
		.block = { MATMUL_TILE, MATMUL_TILE, 1 },
		.stack = stack.addr,
		.stack_bytes = STACK,
		.local_bytes = 2 * MATMUL_TILE * MATMUL_TILE * sizeof(float),
	};
	stream_add(&stream, packet, og1_pkt_timestamp(packet, times.addr));
	stream_add(&stream, packet, og1_pkt_dispatch(packet, &dispatch));
	stream_add(&stream, packet, og1_pkt_timestamp(packet, times.addr + 8));
	run(&gpu, queue, &stream);

	got = c.cpu;
	for (unsigned int row = 0; row < N; row++) {
		for (unsigned int col = 0; col < N; col++) {
			float want = 0;

			for (unsigned int k = 0; k < N; k++)
				want += element(0, row, k) * element(1, k, col);
			if (got[row * N + col] != want)
				fail("c[%u][%u] is %g, the CPU says %g", row, col,
				     got[row * N + col], want);
		}
	}
	time = times.cpu;
	printf("matrix product %u x %u in %" PRIu64 " ns of board time: verified\n", N, N,
	       time[1] - time[0]);

	queue_free(&gpu, queue);
	gpu_close(&gpu);
	return 0;
}
