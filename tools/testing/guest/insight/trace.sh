#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The tracepoints: each fires, and says what happened.

number=0
failed=''
test_of() {
	local why line
	number=$((number + 1))
	if why=$("$1" 2>&1); then
		echo "ok $number - $1"
	else
		while IFS= read -r line; do printf '# %s\n' "$line"; done <<<"$why"
		echo "not ok $number - $1"
		failed=1
	fi
}

mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing
cd /sys/kernel/tracing || exit 1
device=$(basename "$(readlink -f /sys/bus/pci/drivers/ochre/0000:*)")

# record COMMAND...: what the driver's tracepoints say while it runs, in /run/trace.
record() {
	local status=0
	echo >trace
	echo 1 >events/ochre/enable
	"$@" >/run/output 2>&1 || status=$?
	echo 0 >events/ochre/enable
	cat trace >/run/trace
	return $status
}

fired() {
	local event
	for event; do
		grep -q " ochre_$event: " /run/trace || { echo "ochre_$event did not fire"; return 1; }
	done
}

a_job_leaves_its_whole_trace() {
	local fence event
	record /ochre/samples/03-saxpy || return
	fired job_queue job_run job_done fence irq bo_create bo_free vm_map frequency || return
	grep -q "ochre_frequency: dev=$device domain=core khz=[1-9][0-9]* microvolts=[1-9][0-9]* error=0$" /run/trace || return
	grep -q "ochre_job_done: dev=$device queue=[0-9]* engine=[0-9]* fence=[0-9]*:[0-9]* error=0$" /run/trace || return
	# Every job that was done was queued and run before, in this order.
	while read -r fence; do
		grep -oE "ochre_job_(queue|run|done): .*fence=$fence( |\$)" /run/trace |
			sed -E 's/ochre_job_([a-z]*):.*/\1/' | tr '\n' ' ' | grep -qx 'queue run done ' || {
			echo "fence $fence: not queue, run, done"
			return 1
		}
	done < <(grep ochre_job_done: /run/trace | grep -oE 'fence=[0-9]+:[0-9]+' | cut -d= -f2)
}

memory_that_was_made_goes_again() {
	local made gone
	record /ochre/samples/03-saxpy || return
	made=$(grep -c ' ochre_bo_create: ' /run/trace) gone=$(grep -c ' ochre_bo_free: ' /run/trace)
	echo "made $made, gone $gone"
	((made > 0 && made == gone)) && grep -qE 'ochre_bo_create: .* region=vram' /run/trace
}

an_unmap_says_its_range() {
	record /ochre/tests/abi/vm || return
	fired vm_unmap && grep -qE 'ochre_vm_unmap: dev=.* context=[0-9]+ addr=0x[0-9a-f]+ size=[1-9][0-9]*$' /run/trace
}

a_fault_says_what_and_where() {
	record /ochre/tests/recovery/fault || return
	fired fault reset || return
	grep -qE 'ochre_fault: dev=.* queue=[0-9]+ code=[1-9][0-9]* access=(read|write|exec|atomic) addr=0x[0-9a-f]+ pc=0x' \
		/run/trace || return
	grep -qE 'ochre_job_done: .* error=-14$' /run/trace
}

a_reset_is_begun_and_done() {
	record /ochre/tests/recovery/hang || return
	grep -qE 'ochre_reset: .* scope=slot .* phase=begin' /run/trace || return
	grep -qE 'ochre_reset: .* scope=slot .* phase=done' /run/trace || return
	grep -qE 'ochre_reset: .* scope=device .* phase=done' /run/trace
}

nothing_is_recorded_when_all_is_off() {
	echo >trace
	/ochre/samples/03-saxpy >/dev/null || return
	! grep ' ochre_' trace
}

perf_trace_shows_the_events() {
	perf trace --no-syscalls -e 'ochre:ochre_job_queue' -o /run/perf-trace /ochre/samples/03-saxpy >/dev/null || return
	cat /run/perf-trace
	grep -q 'ochre:ochre_job_queue(.*seqno: ' /run/perf-trace
}

test_of a_job_leaves_its_whole_trace
test_of memory_that_was_made_goes_again
test_of an_unmap_says_its_range
test_of a_fault_says_what_and_where
test_of a_reset_is_begun_and_done
test_of nothing_is_recorded_when_all_is_off
test_of perf_trace_shows_the_events
echo "1..$number"
[ -z "$failed" ]
