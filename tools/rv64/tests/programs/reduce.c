// SPDX-License-Identifier: GPL-2.0
/*
 * One block sums its part of an array in block-local memory and adds the sum to a total: ids,
 * barrier, block-local memory, atomics.
 */
#include <og1_kernel.h>

struct args {
	const unsigned int *in;
	unsigned long *total;
	unsigned int *spin;
};

void entry(const struct args *args)
{
	unsigned int *lds = lds_base();
	unsigned int lane = lane_id();
	unsigned int seen;

	lds[lane] = args->in[global_id_x()];
	for (unsigned int half = block_dim_x() / 2; half; half /= 2) {
		barrier();
		if (lane < half)
			lds[lane] += lds[lane + half];
	}
	if (lane == 0)
		__atomic_fetch_add(args->total, lds[0], __ATOMIC_RELAXED);

	/* clang makes this a loop of LR and SC. */
	do {
		seen = __atomic_load_n(args->spin, __ATOMIC_RELAXED);
	} while (!__atomic_compare_exchange_n(args->spin, &seen, seen * 3 + 1, 0, __ATOMIC_SEQ_CST,
					      __ATOMIC_SEQ_CST));
}
