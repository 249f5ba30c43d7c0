// SPDX-License-Identifier: GPL-2.0
/*
 * Tiled product: the block loads a tile of a and one of b into its local memory, waits, multiplies
 * them, waits, and goes on to the next pair. Each element is read from VRAM n / MATMUL_TILE times
 * instead of n times.
 */
#include "og1_kernel.h"
#include "args.h"

struct tiles {
	float a[MATMUL_TILE][MATMUL_TILE];
	float b[MATMUL_TILE][MATMUL_TILE];
};

__attribute__((section(".text.entry"))) void kernel_entry(const struct matmul_args *args)
{
	struct tiles *tile = lds_base();
	const float *a = (const float *)args->a;
	const float *b = (const float *)args->b;
	float *c = (float *)args->c;
	unsigned int n = args->n;
	unsigned int x = thread_id_x(), y = thread_id_y();
	unsigned int col = global_id_x(), row = global_id_y();
	float sum = 0;

	for (unsigned int t = 0; t < n; t += MATMUL_TILE) {
		tile->a[y][x] = a[row * n + t + x];
		tile->b[y][x] = b[(t + y) * n + col];
		barrier();
		for (unsigned int k = 0; k < MATMUL_TILE; k++)
			sum += tile->a[y][k] * tile->b[k][x];
		barrier();
	}
	c[row * n + col] = sum;
}
