/* SPDX-License-Identifier: MIT */
/*
 * What a compute kernel of og1 written in C sees: its ids, the block barrier and the block-local
 * memory ("Compute" in Documentation/gpu/ochre/og1.rst). The numbers are those of og1_isa.rs.
 *
 * Freestanding; build with
 *
 *   clang --target=riscv64-unknown-elf -march=rv64imafd -mabi=lp64d -mcmodel=medany \
 *         -O2 -ffreestanding -nostdlib
 *
 * The entry function takes the argument address of the dispatch and returns when the work-item is
 * done:
 *
 *   void saxpy(const struct saxpy_args *args);
 */
#ifndef OCHRE_OG1_KERNEL_H
#define OCHRE_OG1_KERNEL_H

#if !defined(__riscv) || __riscv_xlen != 64
#error "og1 kernels are compiled for riscv64"
#endif

/* Work-item registers, read only. */
#define OG1_CSR_BLOCK_ID_X	0xcc0
#define OG1_CSR_BLOCK_ID_Y	0xcc1
#define OG1_CSR_BLOCK_ID_Z	0xcc2
#define OG1_CSR_THREAD_ID_X	0xcc4
#define OG1_CSR_THREAD_ID_Y	0xcc5
#define OG1_CSR_THREAD_ID_Z	0xcc6
#define OG1_CSR_GRID_DIM_X	0xcc8
#define OG1_CSR_GRID_DIM_Y	0xcc9
#define OG1_CSR_GRID_DIM_Z	0xcca
#define OG1_CSR_BLOCK_DIM_X	0xccc
#define OG1_CSR_BLOCK_DIM_Y	0xccd
#define OG1_CSR_BLOCK_DIM_Z	0xcce
#define OG1_CSR_LANE		0xcd0
#define OG1_CSR_LDS_BASE	0xcd1
#define OG1_CSR_LDS_SIZE	0xcd2

/* Any write waits for all other work-items of the block. */
#define OG1_CSR_BARRIER		0x800

/* Standard counters, read only. */
#define OG1_CSR_CYCLE		0xc00
#define OG1_CSR_TIME		0xc01
#define OG1_CSR_INSTRET		0xc02

/* Windows of the address space. */
#define OG1_LDS_BASE		0x0000ffff00000000UL
#define OG1_LDS_MAX		0x10000UL
#define OG1_STACK_BASE		0x0000fffe00000000UL
#define OG1_STACK_SIZE		0x4000UL

#define __og1_str_(x)		#x
#define __og1_str(x)		__og1_str_(x)
#define __og1_csr_read(csr)						\
({									\
	unsigned long __value;						\
									\
	__asm__("csrr %0, " __og1_str(csr) : "=r"(__value));		\
	__value;							\
})

/* For counters, whose value changes: not merged and not moved across one another. */
#define __og1_csr_read_volatile(csr)					\
({									\
	unsigned long __value;						\
									\
	__asm__ volatile("csrr %0, " __og1_str(csr) : "=r"(__value));	\
	__value;							\
})

/* Index of the work-item's block in the grid. */
static inline unsigned int block_id_x(void)
{
	return (unsigned int)__og1_csr_read(OG1_CSR_BLOCK_ID_X);
}

static inline unsigned int block_id_y(void)
{
	return (unsigned int)__og1_csr_read(OG1_CSR_BLOCK_ID_Y);
}

static inline unsigned int block_id_z(void)
{
	return (unsigned int)__og1_csr_read(OG1_CSR_BLOCK_ID_Z);
}

/* Index of the work-item in its block. */
static inline unsigned int thread_id_x(void)
{
	return (unsigned int)__og1_csr_read(OG1_CSR_THREAD_ID_X);
}

static inline unsigned int thread_id_y(void)
{
	return (unsigned int)__og1_csr_read(OG1_CSR_THREAD_ID_Y);
}

static inline unsigned int thread_id_z(void)
{
	return (unsigned int)__og1_csr_read(OG1_CSR_THREAD_ID_Z);
}

/* Blocks in the grid. */
static inline unsigned int grid_dim_x(void)
{
	return (unsigned int)__og1_csr_read(OG1_CSR_GRID_DIM_X);
}

static inline unsigned int grid_dim_y(void)
{
	return (unsigned int)__og1_csr_read(OG1_CSR_GRID_DIM_Y);
}

static inline unsigned int grid_dim_z(void)
{
	return (unsigned int)__og1_csr_read(OG1_CSR_GRID_DIM_Z);
}

/* Work-items in a block. */
static inline unsigned int block_dim_x(void)
{
	return (unsigned int)__og1_csr_read(OG1_CSR_BLOCK_DIM_X);
}

static inline unsigned int block_dim_y(void)
{
	return (unsigned int)__og1_csr_read(OG1_CSR_BLOCK_DIM_Y);
}

static inline unsigned int block_dim_z(void)
{
	return (unsigned int)__og1_csr_read(OG1_CSR_BLOCK_DIM_Z);
}

/* Linear index of the work-item in its block, x fastest. */
static inline unsigned int lane_id(void)
{
	return (unsigned int)__og1_csr_read(OG1_CSR_LANE);
}

/* Index of the work-item in the grid along one dimension. */
static inline unsigned int global_id_x(void)
{
	return block_id_x() * block_dim_x() + thread_id_x();
}

static inline unsigned int global_id_y(void)
{
	return block_id_y() * block_dim_y() + thread_id_y();
}

static inline unsigned int global_id_z(void)
{
	return block_id_z() * block_dim_z() + thread_id_z();
}

/* Memory shared by the work-items of the block, zero when the block starts. */
static inline void *lds_base(void)
{
	return (void *)__og1_csr_read(OG1_CSR_LDS_BASE);
}

/* Bytes of it that the dispatch asked for. */
static inline unsigned long lds_size(void)
{
	return __og1_csr_read(OG1_CSR_LDS_SIZE);
}

/*
 * Waits until each work-item of the block is here. What they stored before is visible to all of
 * them afterwards. A work-item that returns while others wait is a fault of the queue.
 */
static inline void barrier(void)
{
	__asm__ volatile("csrw " __og1_str(OG1_CSR_BARRIER) ", zero" ::: "memory");
}

/* Cycles of the core clock. */
static inline unsigned long clock_cycles(void)
{
	return __og1_csr_read_volatile(OG1_CSR_CYCLE);
}

/* Board time in nanoseconds. */
static inline unsigned long clock_ns(void)
{
	return __og1_csr_read_volatile(OG1_CSR_TIME);
}

/* Instructions that the work-item has retired. */
static inline unsigned long instructions_retired(void)
{
	return __og1_csr_read_volatile(OG1_CSR_INSTRET);
}

#endif /* OCHRE_OG1_KERNEL_H */
