// SPDX-License-Identifier: GPL-2.0
/* Each work-item stores who it is, at the place that its linear index in the grid gives. */
#include "og1_kernel.h"

struct identity {
	unsigned int block[3];
	unsigned int thread[3];
	unsigned int lane;
	unsigned int local_bytes;
};

__attribute__((section(".text.entry"))) void kernel_entry(struct identity *out)
{
	unsigned long block = ((unsigned long)block_id_z() * grid_dim_y() + block_id_y()) *
			      grid_dim_x() + block_id_x();
	unsigned long items = (unsigned long)block_dim_x() * block_dim_y() * block_dim_z();
	struct identity *own = &out[block * items + lane_id()];

	own->block[0] = block_id_x();
	own->block[1] = block_id_y();
	own->block[2] = block_id_z();
	own->thread[0] = thread_id_x();
	own->thread[1] = thread_id_y();
	own->thread[2] = thread_id_z();
	own->lane = lane_id();
	own->local_bytes = (unsigned int)lds_size();
}
