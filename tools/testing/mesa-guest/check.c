// SPDX-License-Identifier: GPL-2.0
/* See check.h. */
#include "check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t state;

uint32_t random32(void)
{
	/* xorshift64*: no state but one word, so that a seed tells all. */
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (state * 0x2545f4914f6cdd1dull) >> 32;
}

bool same(const uint32_t *found, const uint32_t *expected, size_t count, unsigned int width)
{
	size_t i, wrong = 0, first = 0;

	for (i = 0; i < count; i++) {
		if (found[i] == expected[i])
			continue;
		if (!wrong)
			first = i;
		wrong++;
	}
	if (!wrong)
		return true;
	if (width)
		note("%zu of %zu pixels differ, first at %zu, %zu: found %08" PRIx32 ", expected %08" PRIx32,
		     wrong, count, first % width, first / width, found[first], expected[first]);
	else
		note("%zu of %zu words differ, first %zu: found %08" PRIx32 ", expected %08" PRIx32,
		     wrong, count, first, found[first], expected[first]);
	return false;
}

int run_tests(const char *group, const struct test *tests, size_t count, int argc, char **argv)
{
	const char *seed = getenv("SEED"), *filter = argc > 1 ? argv[1] : "";
	unsigned int number = 0, failed = 0;
	size_t i;

	state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL) * 2654435761u;
	if (!state)
		state = 1;
	note("SEED=%" PRIu64, state);
	for (i = 0; i < count; i++) {
		enum verdict verdict;

		if (!strstr(tests[i].name, filter))
			continue;
		verdict = tests[i].run();
		failed += verdict == FAILED;
		printf("%s %u - %s: %s%s\n", verdict == FAILED ? "not ok" : "ok", ++number, group,
		       tests[i].name, verdict == SKIPPED ? " # SKIP" : "");
		fflush(stdout);
	}
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
