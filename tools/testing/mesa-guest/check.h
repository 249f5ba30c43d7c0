/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How the programs here test: a table of named functions, each of which says what became of it, and
 * random numbers whose seed is printed.
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

enum verdict { FAILED, PASSED, SKIPPED };

struct test {
	/* The sentence that the test proves, with _ between its words. */
	const char *name;
	enum verdict (*run)(void);
};

/* Prints a line of detail. */
#define note(...)			\
	do {				\
		printf("# " __VA_ARGS__);	\
		putchar('\n');		\
	} while (0)

/* Ends a test when something does not hold, and says what and where. */
#define must(condition)								\
	do {									\
		if (!(condition)) {						\
			note("%s:%d: %s does not hold", __FILE__, __LINE__, #condition);	\
			return FAILED;						\
		}								\
	} while (0)

/* Runs the tests whose names hold argv[1], or all; prints TAP. Returns the status of the program. */
int run_tests(const char *group, const struct test *tests, size_t count, int argc, char **argv);

/* The next number of a sequence that starts with the seed (SEED in the environment, or the clock). */
uint32_t random32(void);

/*
 * Compares what the GPU wrote with what the CPU expects, word by word; of the first word that
 * differs it prints both. width is that of a picture, for the place in the message; 0 for a list.
 */
bool same(const uint32_t *found, const uint32_t *expected, size_t count, unsigned int width);

#endif
