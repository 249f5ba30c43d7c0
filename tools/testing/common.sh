# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# How the parts of the test run count. Each part leaves its two numbers in build/results when it ran
# whole; the closing line of `make test` is their sum.

. "$(dirname "${BASH_SOURCE[0]}")/../setup/paths.sh"
. "$SETUP/machine.sh"

# Whoever runs parts for a sum of his own names another folder.
RESULTS=${OCHRE_RESULTS:-$BUILD/results}

# result PART PASSED FAILED FILTER: notes the counts, but not those of a run with a filter in the
# place of the whole run's; the status says whether all that was run passed.
result() {
	if [ -z "$4" ] || [ -n "${OCHRE_RESULTS-}" ]; then
		mkdir -p "$RESULTS"
		printf '%d %d\n' "$2" "$3" >"$RESULTS/$1"
	fi
	(($2 + $3 > 0)) || say "$1: no test was run: does a name hold what T= asks for?"
	say "$1: $2 of $(($2 + $3)) tests passed"
	(($3 == 0 && $2 > 0))
}

# The functions of a script that are tests: their names are sentences.
tests_here() { declare -F | awk '$3 ~ /_.*_.*_/ { print $3 }'; }

# run_tests PART LINES FILTER NAME...: runs the tests whose name holds FILTER, each as `$0 --one NAME`
# in a process of its own, where the first command that fails ends it. Prints TAP, and the last
# LINES lines of what a test that failed had to say.
run_tests() {
	local part=$1 lines=$2 filter=$3 name log passed=0 failed=0
	shift 3
	mkdir -p "$BUILD/log"
	for name; do
		[[ $name == *"$filter"* ]] || continue
		log=$BUILD/log/$part-$name.log
		if "$0" --one "$name" >"$log" 2>&1; then
			passed=$((passed + 1))
			printf 'ok %d - %s\n' $((passed + failed)) "$name"
		else
			failed=$((failed + 1))
			printf 'not ok %d - %s\n' $((passed + failed)) "$name"
			tail -n "$lines" "$log" | sed 's/^/# /'
		fi
	done
	result "$part" "$passed" "$failed" "$filter"
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
