# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# How the parts of the test run count. Each part leaves its two numbers in build/results; the
# closing line of `make test` is their sum.

. "$(dirname "${BASH_SOURCE[0]}")/../setup/paths.sh"

RESULTS=$BUILD/results

# result PART PASSED FAILED: notes the counts; the status says whether the part passed.
result() {
	mkdir -p "$RESULTS"
	printf '%d %d\n' "$2" "$3" >"$RESULTS/$1"
	(($2 + $3 > 0)) || say "$1: no test was run: does a name hold what T= asks for?"
	say "$1: $2 of $(($2 + $3)) tests passed"
	(($3 == 0 && $2 > 0))
}

# Reads KTAP on standard input, passes it on; counts in PASSED and FAILED. Only leaves count: a line
# for a suite (it follows indented lines of its own) is the sum of those.
count_ktap() {
	local line
	PASSED=0 FAILED=0
	while IFS= read -r line; do
		printf '%s\n' "$line"
		case $line in
		'ok '* | 'ok') PASSED=$((PASSED + 1)) ;;
		'not ok'*) FAILED=$((FAILED + 1)) ;;
		esac
	done
}
