# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Who has the machine. Guests and tests share it; a measurement (tools/bench/run) has it alone.
# Sourced after paths.sh.

# take_machine shared|alone: waits until it can be had. It is given back when this process and all
# that it started have ended. What a holder starts has it too, and asks for nothing.
take_machine() {
	local how=-s
	[ -z "${OCHRE_HAS_MACHINE-}" ] || return 0
	[ "$1" = alone ] && how=-x
	mkdir -p "$OCHRE_CACHE"
	exec {machine}>"$OCHRE_CACHE/machine.lock"
	if ! flock -n $how "$machine"; then
		case $1 in
		alone) say "tests, guests or another measurement are running, waiting for their end" ;;
		shared) say "a measurement is running that has the machine alone, waiting for its end" ;;
		esac
		flock $how "$machine"
	fi
	export OCHRE_HAS_MACHINE=1
}
