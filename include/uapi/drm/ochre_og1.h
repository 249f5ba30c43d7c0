/* SPDX-License-Identifier: MIT */
/*
 * User packets of the og1 board: what a job of DRM_IOCTL_OCHRE_SUBMIT consists of.
 *
 * A packet is a header and its operands, all 64-bit words. The header holds the opcode in bits 7:0,
 * the length in words with the header in 15:8, flags in 31:16 and an immediate in 63:32. Addresses
 * are those of the queue's VM. An invalid packet is a fault of the queue (EFAULT).
 *
 * The functions store a packet at @p and return its length in words, at most OG1_PKT_MAX_WORDS.
 * The numbers are those of include/ochre/og1_packets.rs; a test of the board compares them.
 */
#ifndef _UAPI_OCHRE_OG1_H_
#define _UAPI_OCHRE_OG1_H_

#include <linux/types.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define OG1_PKT_NOP		0x00
#define OG1_PKT_COPY		0x02
#define OG1_PKT_COPY_2D		0x03
#define OG1_PKT_FILL		0x04
#define OG1_PKT_DISPATCH	0x05
#define OG1_PKT_SEM_WAIT	0x06
#define OG1_PKT_SEM_SIGNAL	0x07
#define OG1_PKT_ATOMIC_ADD	0x08
#define OG1_PKT_WRITE_IMM	0x09
#define OG1_PKT_PREDICATE	0x0a
#define OG1_PKT_TIMESTAMP	0x0b
#define OG1_PKT_WAIT_UNTIL	0x0c
#define OG1_PKT_CACHE		0x0d

/* Longest packet but for NOP. */
#define OG1_PKT_MAX_WORDS	8

#define OG1_PKT_LEN_SHIFT	8
#define OG1_PKT_FLAGS_SHIFT	16
#define OG1_PKT_IMM_SHIFT	32

/* Flag of WRITE_IMM: 32 bits instead of 64. */
#define OG1_FLAG_32BIT		(1 << 0)
/* Flag of WAIT_UNTIL: the time counts from the start of the packet. */
#define OG1_FLAG_RELATIVE	(1 << 0)

/* Flags of SEM_WAIT and PREDICATE: how the word in memory compares with the value, unsigned. */
#define OG1_CMP_EQ		0
#define OG1_CMP_NE		1
#define OG1_CMP_GE		2
#define OG1_CMP_GT		3
#define OG1_CMP_LE		4
#define OG1_CMP_LT		5

/* Flags of CACHE: write back, forget (instructions too). */
#define OG1_CACHE_FLUSH		(1 << 0)
#define OG1_CACHE_INVALIDATE	(1 << 1)

/* Codes in &drm_ochre_reset_query.fault_code. */
#define OG1_FAULT_NOT_PRESENT	1
#define OG1_FAULT_PERMISSION	2
#define OG1_FAULT_PTE		3
#define OG1_FAULT_POISON	4
#define OG1_FAULT_ALIGNMENT	5
#define OG1_FAULT_RANGE		6
#define OG1_FAULT_BUS		7
#define OG1_FAULT_CONTEXT	8
#define OG1_FAULT_PACKET	16
#define OG1_FAULT_PRIVILEGE	17
#define OG1_FAULT_ENGINE	18
#define OG1_FAULT_RING		19
#define OG1_FAULT_ILLEGAL	32
#define OG1_FAULT_BARRIER	33

static inline __u64 og1_pkt_header(__u32 opcode, __u32 words, __u32 flags, __u32 imm)
{
	return opcode | (__u64)words << OG1_PKT_LEN_SHIFT |
	       (__u64)flags << OG1_PKT_FLAGS_SHIFT | (__u64)imm << OG1_PKT_IMM_SHIFT;
}

/* Does nothing. */
static inline unsigned int og1_pkt_nop(__u64 *p)
{
	p[0] = og1_pkt_header(OG1_PKT_NOP, 1, 0, 0);
	return 1;
}

/* Copies @bytes from @src to @dst. */
static inline unsigned int og1_pkt_copy(__u64 *p, __u64 src, __u64 dst, __u64 bytes)
{
	p[0] = og1_pkt_header(OG1_PKT_COPY, 4, 0, 0);
	p[1] = src;
	p[2] = dst;
	p[3] = bytes;
	return 4;
}

/* Copies @height rows of @width bytes; a pitch is the distance of two rows in bytes. */
static inline unsigned int og1_pkt_copy_2d(__u64 *p, __u64 src, __u32 src_pitch, __u64 dst,
					   __u32 dst_pitch, __u32 width, __u32 height)
{
	p[0] = og1_pkt_header(OG1_PKT_COPY_2D, 5, 0, 0);
	p[1] = src;
	p[2] = dst;
	p[3] = src_pitch | (__u64)dst_pitch << 32;
	p[4] = width | (__u64)height << 32;
	return 5;
}

/* Fills @bytes, a multiple of 4, with @value. */
static inline unsigned int og1_pkt_fill(__u64 *p, __u64 dst, __u64 bytes, __u32 value)
{
	p[0] = og1_pkt_header(OG1_PKT_FILL, 3, 0, value);
	p[1] = dst;
	p[2] = bytes;
	return 3;
}

/**
 * struct og1_dispatch - A compute kernel to run
 */
struct og1_dispatch {
	/** @kernel: Address of its first instruction. */
	__u64 kernel;
	/** @args: What the kernel gets as its argument. */
	__u64 args;
	/** @grid: Blocks in each dimension. */
	__u32 grid[3];
	/** @block: Work-items of a block in each dimension. */
	__u32 block[3];
	/** @stack: Memory for the stacks of one block, aligned to 16; 0 with @stack_bytes 0. */
	__u64 stack;
	/**
	 * @stack_bytes: Bytes of it for each work-item, a multiple of 16. 0: each has 16 KiB that
	 * the board provides.
	 */
	__u32 stack_bytes;
	/** @local_bytes: Bytes of block-local memory. */
	__u32 local_bytes;
};

/* Runs a compute kernel. Compute engines only. */
static inline unsigned int og1_pkt_dispatch(__u64 *p, const struct og1_dispatch *d)
{
	p[0] = og1_pkt_header(OG1_PKT_DISPATCH, 8, 0, d->local_bytes);
	p[1] = d->kernel;
	p[2] = d->args;
	p[3] = d->grid[0] | (__u64)d->grid[1] << 32;
	p[4] = d->grid[2] | (__u64)d->block[0] << 32;
	p[5] = d->block[1] | (__u64)d->block[2] << 32;
	p[6] = d->stack;
	p[7] = d->stack_bytes;
	return 8;
}

/* Waits until the 64-bit word at @addr compares with @value as @cmp, OG1_CMP_*, says. */
static inline unsigned int og1_pkt_sem_wait(__u64 *p, __u64 addr, __u64 value, __u32 cmp)
{
	p[0] = og1_pkt_header(OG1_PKT_SEM_WAIT, 3, cmp, 0);
	p[1] = addr;
	p[2] = value;
	return 3;
}

/* Stores the 64-bit @value at @addr after all earlier writes of the queue. */
static inline unsigned int og1_pkt_sem_signal(__u64 *p, __u64 addr, __u64 value)
{
	p[0] = og1_pkt_header(OG1_PKT_SEM_SIGNAL, 3, 0, 0);
	p[1] = addr;
	p[2] = value;
	return 3;
}

/* Adds @value to the 64-bit word at @addr. */
static inline unsigned int og1_pkt_atomic_add(__u64 *p, __u64 addr, __u64 value)
{
	p[0] = og1_pkt_header(OG1_PKT_ATOMIC_ADD, 3, 0, 0);
	p[1] = addr;
	p[2] = value;
	return 3;
}

/* Stores @value at @addr; @flags: OG1_FLAG_32BIT or 0. */
static inline unsigned int og1_pkt_write_imm(__u64 *p, __u64 addr, __u64 value, __u32 flags)
{
	p[0] = og1_pkt_header(OG1_PKT_WRITE_IMM, 3, flags, 0);
	p[1] = addr;
	p[2] = value;
	return 3;
}

/* Skips the next @words words unless the 64-bit word at @addr compares as @cmp says. */
static inline unsigned int og1_pkt_predicate(__u64 *p, __u64 addr, __u64 value, __u32 cmp,
					     __u32 words)
{
	p[0] = og1_pkt_header(OG1_PKT_PREDICATE, 3, cmp, words);
	p[1] = addr;
	p[2] = value;
	return 3;
}

/* Stores the board's time in ns at @addr, 64 bits. */
static inline unsigned int og1_pkt_timestamp(__u64 *p, __u64 addr)
{
	p[0] = og1_pkt_header(OG1_PKT_TIMESTAMP, 2, 0, 0);
	p[1] = addr;
	return 2;
}

/* Waits until the board's time is @time, in ns; @flags: OG1_FLAG_RELATIVE or 0. */
static inline unsigned int og1_pkt_wait_until(__u64 *p, __u64 time, __u32 flags)
{
	p[0] = og1_pkt_header(OG1_PKT_WAIT_UNTIL, 2, flags, 0);
	p[1] = time;
	return 2;
}

/* Flushes or invalidates caches; @flags: OG1_CACHE_*. */
static inline unsigned int og1_pkt_cache(__u64 *p, __u32 flags)
{
	p[0] = og1_pkt_header(OG1_PKT_CACHE, 1, flags, 0);
	return 1;
}

#if defined(__cplusplus)
}
#endif

#endif /* _UAPI_OCHRE_OG1_H_ */
