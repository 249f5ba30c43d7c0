#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The perf counters of the board: stock perf against what the board itself says at its control port.

number=0
failed=''
# test NAME: the function of that name is one test; what it prints is the reason.
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

board() {
	local reply
	exec 7<>/dev/virtio-ports/org.ochre.board
	printf '%s\n' "$1" >&7
	read -r -t 20 reply <&7
	exec 7>&-
	printf '%s\n' "$reply"
}

device=$(basename "$(readlink -f /sys/bus/pci/drivers/ochre/0000:*)")
pmu=ochre_${device//:/_}
here=/sys/bus/event_source/devices/$pmu

# A job, and the time that the governor still looks at the board after it: until board time stands.
job=/run/job
cat >$job <<-EOF
	#!/bin/bash
	$(declare -f board)
	/ochre/samples/03-saxpy || exit
	before='' now=\$(board stat | tr ' ' '\n' | grep '^time=')
	while [ "\$now" != "\$before" ]; do
		sleep 0.1
		before=\$now now=\$(board stat | tr ' ' '\n' | grep '^time=')
	done
EOF
chmod +x $job

# events NAME...: as perf wants them.
events() {
	printf ",$pmu/%s/" "$@" | cut -c2-
}

# value_of TABLE EVENT: what `perf stat -x,` printed for it.
value_of() {
	awk -F, -v event="$pmu/$2/" '$3 == event { print $1 }' "$1"
}

# counter REPLY NAME: the sum over all counters of `stat` whose name fits NAME, a pattern.
counter() {
	tr ' ' '\n' <<<"$1" | awk -F= -v name="^($2)$" '$1 ~ name { sum += $2 } END { print sum + 0 }'
}

perf_counts_what_the_board_counts() {
	local pairs=(vram_read=vram-read vram_write=vram-write pcie_read=bus-read pcie_write=bus-write
		tlb_hits=tlb-hits tlb_misses=tlb-misses interrupts=interrupts faults=faults board_time=time
		core_cycles=core-cycles memory_cycles=memory-cycles throttled=throttled
		clock_changes=clock-changes gpu_clock_gated='engine[0-9]+.clock-gated'
		gpu_power_gated='engine[0-9]+.power-gated' gpu_wakes='engine[0-9]+.wakes'
		gpu_cycles='engine[0-9]+.cycles' gpu_busy='engine[0-9]+.busy' gpu_mem_stall='engine[0-9]+.stall'
		gpu_alu_busy='engine[0-9]+.instructions' gpu_packets='engine[0-9]+.packets'
		gpu_blocks='engine[0-9]+.blocks' switches='engine[0-9]+.switches'
		preemptions='engine[0-9]+.preemptions')
	local engine names=(compute0 compute1 copy0 copy1) pair before after wanted got status=0
	for engine in 0 1 2 3; do
		pairs+=("${names[engine]}_busy=engine$engine.busy" "${names[engine]}_cycles=engine$engine.cycles"
			"${names[engine]}_mem_stall=engine$engine.stall" "${names[engine]}_packets=engine$engine.packets"
			"${names[engine]}_alu_busy=engine$engine.instructions")
	done
	before=$(board stat)
	perf stat -x, -o /run/perf.csv -a -e "$(events "${pairs[@]%%=*}")" "$job" >/dev/null || return
	after=$(board stat)
	for pair in "${pairs[@]}"; do
		wanted=$(($(counter "$after" "${pair#*=}") - $(counter "$before" "${pair#*=}")))
		got=$(value_of /run/perf.csv "${pair%%=*}")
		echo "${pair%%=*}: perf $got, the board $wanted"
		awk -v a="${got:-x}" -v b="$wanted" \
			'BEGIN { exit !(a ~ /^[0-9]+$/ && a - b <= b / 100 && b - a <= b / 100) }' || status=1
	done
	# A job that does nothing would agree with everything.
	(($(value_of /run/perf.csv gpu_alu_busy) > 1000000)) || status=1
	(($(value_of /run/perf.csv copy0_busy) > 1000)) || status=1
	return $status
}

# µJ since power-on, by the registers.
energy() {
	local folder=/sys/kernel/debug/dri/$device/ochre/registers
	awk '$2 == "ENERGY_LO" { low = $3 } $2 == "ENERGY_HI" { high = $3 } END { print high, low }' "$folder/power" |
		{ read -r high low; echo $(((high << 32) + low)); }
}

energy_is_that_of_the_register() {
	local before after got
	before=$(energy)
	# Only JSON has more than two digits behind the point.
	perf stat -j -o /run/energy.json -a -e "$(events energy)" "$job" >/dev/null || return
	after=$(energy)
	got=$(sed -n 's/.*"counter-value" : "\([0-9.]*\)", "unit" : "Joules".*/\1/p' /run/energy.json)
	echo "perf $got J, the board $((after - before)) µJ"
	awk -v a="$got" -v b=$((after - before)) 'BEGIN { a *= 1e6; exit !(b > 0 && a - b <= b / 100 && b - a <= b / 100) }'
}

# with_locked_clocks COMMAND...: cycles of the same work are the same only then.
with_locked_clocks() {
	local status=0 files=/sys/bus/pci/devices/$device
	echo 1000000 1000000 >"$files/clock_lock" && echo 1000000 1000000 >"$files/memory_clock_lock" || return
	"$@" || status=$?
	echo 0 0 >"$files/clock_lock"
	echo 0 0 >"$files/memory_clock_lock"
	return $status
}

counters_go_on_growing_over_a_reset() { with_locked_clocks twice_is_twice_as_much_as_once; }

twice_is_twice_as_much_as_once() {
	local once twice event
	perf stat -x, -o /run/once.csv -a -e "$(events vram_write gpu_cycles)" "$job" >/dev/null || return
	perf stat -x, -o /run/twice.csv -a -e "$(events vram_write gpu_cycles)" sh -c "
		$job >/dev/null && echo 1 >/sys/bus/pci/devices/$device/reset && sleep 1 && $job" >/dev/null || return
	for event in vram_write gpu_cycles; do
		once=$(value_of /run/once.csv $event) twice=$(value_of /run/twice.csv $event)
		echo "$event: $once once, $twice twice"
		((twice * 100 >= once * 198)) || return
	done
}

frequency_is_that_of_the_register() {
	local khz=/run/khz clock value
	awk '$2 == "CORE_CLOCK" { print $3 }' "/sys/kernel/debug/dri/$device/ochre/registers/global" >$khz
	clock=$(($(<$khz) / 1000))
	perf stat -x, -o /run/stat.csv -a -e "$(events core_frequency board_time gpu_cycles)" sleep 0.3 || return
	value=$(value_of /run/stat.csv core_frequency)
	echo "register $clock MHz, perf stat $value"
	((value == clock && clock > 0)) || return
	perf stat -x, -I 300 -o /run/interval.csv -a -e "$(events core_frequency board_time)" sleep 1 || return
	awk -F, -v event="$pmu/core_frequency/" -v clock="$clock" '
		$4 == event { n++; if ($2 != clock) { print "an interval says", $2; bad = 1 } }
		END { exit n < 3 || bad }' /run/interval.csv
}

what_is_no_event_is_refused() {
	local terms
	for terms in event=0xff event=0 engine=1,event=0x20 event=0x61,engine=0x20 config=0x10061; do
		if perf stat -a -e "$pmu/$terms/" true 2>/dev/null; then
			echo "$terms is taken"
			return 1
		fi
	done
	if perf record -o /dev/null -a -c 1000 -e "$pmu/gpu_cycles/" true 2>/dev/null; then
		echo 'sampling is taken'
		return 1
	fi
	perf stat -a -e "$pmu/event=0x61,engine=0x1/" true
}

only_who_may_watch_the_system_may_count() {
	local paranoid=/proc/sys/kernel/perf_event_paranoid was status=0
	local try=(setpriv --reuid=65534 --regid=65534 --clear-groups perf stat -a -e "$pmu/gpu_cycles/" true)
	was=$(<$paranoid)
	echo 2 >$paranoid
	! "${try[@]}" 2>/dev/null || status=1
	echo 0 >$paranoid
	"${try[@]}" || status=1
	echo "$was" >$paranoid
	return $status
}

units_are_described() {
	[ "$(<"$here/cpumask")" = 0 ] || return
	[ "$(<"$here/format/event")" = config:0-7 ] && [ "$(<"$here/format/engine")" = config:8-15 ] || return
	[ "$(<"$here/events/compute1_busy")" = event=0x61,engine=0x01 ] || return
	[ "$(<"$here/events/compute1_busy.unit")" = ns ] && [ "$(<"$here/events/vram_read.unit")" = Bytes ]
}

unbinding_takes_open_events_away() {
	local perf
	perf stat -x, -I 200 -o /run/unbind.csv -a -e "$(events gpu_cycles board_time)" sleep 3 &
	perf=$!
	until grep -qs board_time /run/unbind.csv; do kill -0 $perf || return; done
	echo "$device" >/sys/bus/pci/drivers/ochre/unbind || return
	[ ! -e "$here" ] || return
	wait $perf || return
	tail -n 1 /run/unbind.csv
	tail -n 1 /run/unbind.csv | grep -q 'not counted' || return
	echo "$device" >/sys/bus/pci/drivers/ochre/bind || return
	perf stat -x, -o /run/again.csv -a -e "$(events gpu_cycles)" "$job" >/dev/null || return
	(($(value_of /run/again.csv gpu_cycles) > 0))
}

test_of units_are_described
test_of perf_counts_what_the_board_counts
test_of energy_is_that_of_the_register
test_of counters_go_on_growing_over_a_reset
test_of frequency_is_that_of_the_register
test_of what_is_no_event_is_refused
test_of only_who_may_watch_the_system_may_count
test_of unbinding_takes_open_events_away
echo "1..$number"
[ -z "$failed" ]
