// SPDX-License-Identifier: GPL-2.0
/*
 * Turns round the words of each block through its local memory: without a barrier that works, the
 * first work-items read what the last have not stored yet.
 */
#include "og1_kernel.h"

__attribute__((section(".text.entry"))) void kernel_entry(unsigned long *words)
{
	unsigned long *local = lds_base();
	unsigned long size = block_dim_x();
	unsigned long *own = &words[block_id_x() * size + lane_id()];

	local[lane_id()] = *own;
	barrier();
	*own = local[size - 1 - lane_id()];
}
