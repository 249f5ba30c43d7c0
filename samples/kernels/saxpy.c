// SPDX-License-Identifier: GPL-2.0
#include "og1_kernel.h"
#include "args.h"

__attribute__((section(".text.entry"))) void kernel_entry(const struct saxpy_args *args)
{
	const float *x = (const float *)args->x;
	float *y = (float *)args->y;
	unsigned int i = global_id_x();

	if (i < args->n)
		y[i] = args->a * x[i] + y[i];
}
