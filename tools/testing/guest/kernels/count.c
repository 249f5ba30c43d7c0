// SPDX-License-Identifier: GPL-2.0
/* All work-items add to one word, and use a good deal of stack on the way. */
#include "og1_kernel.h"

#define DEPTH	16

__attribute__((noinline)) static unsigned long sum(unsigned long n)
{
	volatile unsigned long here = n;

	return n ? here + sum(n - 1) : 0;
}

__attribute__((section(".text.entry"))) void kernel_entry(unsigned long *counter)
{
	__atomic_fetch_add(counter, sum(DEPTH), __ATOMIC_RELAXED);
}
