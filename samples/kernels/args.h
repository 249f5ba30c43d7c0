/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the samples pass to their compute kernels. Compiled for the CPU and for the GPU; pointers
 * are GPU addresses.
 */
#ifndef OCHRE_SAMPLE_ARGS_H
#define OCHRE_SAMPLE_ARGS_H

typedef unsigned long long gpu_addr;

/* y[i] = a * x[i] + y[i] for all i < n. One work-item per element. */
struct saxpy_args {
	gpu_addr x;
	gpu_addr y;
	unsigned int n;
	float a;
};

/* c = a * b, row-major n x n. A block of MATMUL_TILE x MATMUL_TILE work-items per tile of c. */
struct matmul_args {
	gpu_addr a;
	gpu_addr b;
	gpu_addr c;
	unsigned int n;
	unsigned int pad;
};

#define MATMUL_TILE	8

#endif
