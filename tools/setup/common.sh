# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What every script of the tooling shares: messages, the help text, where things are kept, and
# long steps with their progress. Sourced after `set -euo pipefail`, never run.

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
BUILD=$TOP/build

say() { printf 'ochre: %s\n' "$*" >&2; }

# die WHAT REMEDY: one line, both halves.
die() {
	printf 'ochre: error: %s\n' "$*" >&2
	exit 1
}

# Prints the comment block at the head of the running script, as --help.
usage() {
	sed -n '2,/^[^#]/{/^# SPDX/d;/^#$/{s/.*//p;d};/^# /{s/^# //p}}' "$0" | sed '/./,$!d'
}

# help_if_asked "$@": answers --help and goes.
help_if_asked() {
	case ${1-} in
	-h | --help)
		usage
		exit 0
		;;
	esac
}

need_root() {
	[ "$(id -u)" = 0 ] || die "this step mounts file systems and must run as root: use 'sudo -E make …'"
}

# mib_free DIR: of its disk, for a user's files.
mib_free() { echo $(($(stat -f -c '%a * %S' "$1") / 1048576)); }

# need_space DIR GIB: refuses before a long step runs into a full disk.
need_space() {
	local free
	mkdir -p "$1"
	free=$(mib_free "$1")
	((free >= $2 * 1024)) ||
		die "only $((free / 1024)) GiB free for $1, $2 GiB needed: make room, or set XDG_CACHE_HOME to a larger disk"
}

# key FILE|STRING...: a short hash of the contents of files and of plain words.
key() {
	local x
	for x; do
		if [ -f "$x" ]; then cat "$x"; else printf '%s\n' "$x"; fi
	done | sha256sum | cut -c1-12
}

# locked NAME CMD...: one run of a step at a time on this machine; a second one waits.
locked() {
	local name=$1
	shift
	mkdir -p "$OCHRE_CACHE"
	exec 9>"$OCHRE_CACHE/$name.lock"
	if ! flock -n 9; then
		say "another run is at work on the ${name%%.*}, waiting for it"
		flock 9
	fi
	"$@"
	set -- $?
	exec 9>&-
	return "$1"
}

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# progress LABEL LOG HOWFAR CMD...: runs CMD with its output in LOG. When it takes longer than two
# seconds, says how far it is: one line that updates on a terminal, a line each half minute
# elsewhere. HOWFAR is a command (a shell function) that prints a few words, such as "312 of 1100
# objects". What a later run does when this one is interrupted says AGAIN. When CMD fails for a
# reason that has a known remedy, that is said and the script ends; else the end of its log is shown
# and its status returned. CMD ends with this script, also when that is killed.
progress() {
	local label=$1 log=$2 howfar=$3 pid alive start now next=2 status=0 tty='' said=''
	shift 3
	[ -t 2 ] && tty=1
	mkdir -p "$(dirname "$log")"
	start=$SECONDS
	trap 'end_interrupted "$label" "$tty"' INT TERM HUP
	"$@" >"$log" 2>&1 9>&- &
	pid=$!
	# Reads the end of the file, and no line, when this process is gone.
	exec {alive}> >(exec 9>&- && read -r || kill -TERM $pid 2>/dev/null)
	while kill -0 "$pid" 2>/dev/null; do
		now=$((SECONDS - start))
		if ((now >= next)); then
			if [ "$tty" ]; then
				printf '\r\033[Kochre: %s: %s (%s)' "$label" "$($howfar)" "$(clock $now)" >&2
			else
				say "$label: $($howfar) ($(clock $now))"
				next=$((now + 30))
			fi
			said=1
		fi
		sleep 0.2
	done
	wait "$pid" || status=$?
	echo >&"$alive"
	exec {alive}>&-
	trap - INT TERM HUP
	now=$((SECONDS - start))
	if [ "$tty" ] && [ "$said" ]; then printf '\r\033[K' >&2; fi
	if ((status)); then
		end_if_known "$label" "$log"
		tail -n 25 "$log" >&2
		say "$label: failed after $(clock $now); the whole log is $log"
		return "$status"
	fi
	[ -z "$said" ] || say "$label: done ($(clock $now))"
}

end_interrupted() {
	# shellcheck disable=SC2046 # numbers
	kill -TERM $(jobs -p) 2>/dev/null || true
	# shellcheck disable=SC2046
	wait $(jobs -p) 2>/dev/null || true
	[ -z "$2" ] || printf '\r\033[K' >&2
	say "$1: interrupted; the next run ${AGAIN:-goes on from here}"
	exit 130
}

# end_if_known LABEL LOG: ends the script with one line when the log shows that the disk was full, a
# certificate not trusted, or the network away.
end_if_known() {
	local dir full='' log=$2
	for dir in "${OCHRE_CACHE:-$BUILD}" "$BUILD"; do
		if [ -d "$dir" ] && (($(mib_free "$dir") < 32)); then full=$dir; fi
	done
	if [ "$full" ] || grep -qE 'No space left on device|enough free space|Disk quota exceeded' "$log"; then
		die "$1: the disk is full${full:+ (the one of $full)}: make room, or set XDG_CACHE_HOME to a larger disk, and run this again; the log is $log"
	fi
	if grep -qiE 'certificate (problem|verif)|certificate verification failed' "$log"; then
		die "$1: the network answers with a certificate that is not trusted here: if a proxy of yours does so, add its authority to /etc/ssl/certs (package ca-certificates, update-ca-certificates), and run this again; the log is $log"
	fi
	if grep -qiE 'could not (resolve|connect)|temporary failure (in name )?resol|unable to connect|network is unreachable|connection (failed|timed out|refused)|spurious network|failed to (download|query)' "$log"; then
		die "$1: the network did not answer: check it and the proxy settings, and run this again; the log is $log"
	fi
}

# A HOWFAR for steps that can not be counted: the last line of PROGRESS_LOG.
last_line() { tail -n 1 "${PROGRESS_LOG:-/dev/null}" 2>/dev/null | tr -d '\r' | cut -c1-60; }

# quietly LABEL CMD...: a short step, of which one hears when it takes long or fails.
quietly() {
	local label=$1
	shift
	PROGRESS_LOG=$BUILD/log/${label// /-}.log
	progress "$label" "$PROGRESS_LOG" last_line "$@"
}
