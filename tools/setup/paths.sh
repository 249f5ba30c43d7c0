# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034 # others use what is set here
#
# Where things are. Sourced after `set -euo pipefail`; brings common.sh with it.
#
# Two places hold what is built:
#   $OCHRE_CACHE  is shared by all checkouts of a user: root folder, kernel, ccache, crates. Each
#                 is keyed by a hash of what it is made from, so old and new live side by side.
#   $BUILD        (build/ of this checkout): modules, programs, the KUnit kernel, logs.
#
# KERNEL_DEBUG=1 takes the debug kernel in the place of the base kernel, KERNEL_DEBUG=locks one without
# KASAN, which is faster to build and to run. What is made for it stands beside what is made for the
# base kernel, with $OF_KERNEL at the end of its name.
#
# Inside the root folder the same things stand at fixed paths, equal for every checkout, so that a
# kernel built by one is good for all (tools/setup/in-root mounts them):
#   /src/ochre  the checkout          /src/linux     the kernel's source, our folders laid over it
#   /cache      $OCHRE_CACHE          /build/kernel  its build folder (O=)

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

OCHRE_CACHE=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ochre
SETUP=$TOP/tools/setup
case ${KERNEL_DEBUG-} in
'' | 0) OF_KERNEL='' ;;
1) OF_KERNEL=-debug ;;
locks) OF_KERNEL=-locks ;;
*) die "unknown KERNEL_DEBUG=$KERNEL_DEBUG: it is 1 (the debug kernel), locks (without KASAN) or 0" ;;
esac
STAGE=$BUILD/stage$OF_KERNEL

# The root folder.
ROOT_SUITE=trixie
# Source packages taken from backports; all else comes from the release itself.
ROOT_BACKPORTS='src:linux src:qemu src:seabios src:mesa src:virglrenderer src:libdrm'
# Counts up when tools/setup/root makes a different folder from the same list.
ROOT_VERSION=3

wanted_packages() { sed 's/#.*//;/^[[:space:]]*$/d' "$SETUP/packages"; }

ROOT=$OCHRE_CACHE/root/$(key "$(wanted_packages)" "$ROOT_SUITE" "$ROOT_BACKPORTS" "$ROOT_VERSION")

# The kernel. Keyed by its source, the compilers and the configuration; known once the root folder
# is there. KSRC=FOLDER takes another kernel tree than the root folder's.
KERNEL_VERSION=1
# The first release whose rust/kernel has what ochre uses.
KERNEL_OLDEST=7.3

package_version() {
	awk -v p="$1" '$1 == "Package:" { on = $2 == p } on && $1 == "Version:" { print $2; exit }' \
		"$ROOT/var/lib/dpkg/status"
}

# check_kernel_tree TREE: whether the base kernel can be built from it.
check_kernel_tree() {
	local version part
	for part in Makefile Kbuild Kconfig rust/kernel/lib.rs; do
		[ -f "$1/$part" ] || die "KSRC=$1 is no kernel tree with Rust ($part is not there): name the top folder of one, or leave KSRC out"
	done
	version=$(sed -n 's/^\(VERSION\|PATCHLEVEL\) = //p' "$1/Makefile" | paste -sd.)
	[ "$(printf '%s\n' "$KERNEL_OLDEST" "$version" | sort -V | head -n 1)" = "$KERNEL_OLDEST" ] ||
		die "the kernel tree in KSRC=$1 is $version, and ochre needs $KERNEL_OLDEST or later: name a newer one, or leave KSRC out"
	[ ! -e "$1/.config" ] || die "the kernel tree in KSRC=$1 was built in place: run 'make mrproper' there, or name another"
}

kernel_source_id() {
	if [ -z "${KSRC-}" ]; then
		package_version linux-source-7.3
		return
	fi
	check_kernel_tree "$KSRC"
	realpath "$KSRC"
	git -C "$KSRC" rev-parse HEAD 2>/dev/null || sed -n 2,5p "$KSRC/Makefile"
}

# What a debug kernel's configuration has besides the base kernel's.
debug_fragments() {
	case $OF_KERNEL in
	-debug) printf '%s\n' "$SETUP"/kernel.d/debug-{locks,memory} ;;
	-locks) printf '%s\n' "$SETUP"/kernel.d/debug-locks ;;
	esac
}

# shellcheck disable=SC2046 # names without blanks
kernel_fragments() { cat "$SETUP"/kernel.d/*.config $(debug_fragments); }

# What the fragments say, without their comments.
kernel_options() { grep -hE '^(# )?CONFIG_' "$@"; sed '/^#/d' "$SETUP/kernel.d/Kconfig"; }

# Sets KERNEL (the folder in the cache) and its parts, and KERNEL_TOOLS, with which every make for this
# kernel is called.
find_kernel() {
	local source base
	[ -e "$ROOT/.complete" ] || die "the root folder is not there yet: run 'make setup'"
	source=$(kernel_source_id)
	KERNEL=$OCHRE_CACHE/kernel/$(key "$source" "$(package_version rustc)" \
		"$(package_version gcc-14)" "$(kernel_options "$SETUP"/kernel.d/*.config)" "$KERNEL_VERSION")
	KERNEL_SRC=$KERNEL/src
	KERNEL_TOOLS=()
	if [ "$OF_KERNEL" ]; then
		# The same source.
		base=$(basename "$KERNEL")
		# shellcheck disable=SC2046 # names without blanks
		KERNEL=$OCHRE_CACHE/kernel/$base$OF_KERNEL-$(key "$(package_version clang-19)" \
			"$(kernel_options $(debug_fragments))")
	fi
	# Rust and KASAN go together only when C is compiled by clang.
	if [ "$OF_KERNEL" = -debug ]; then KERNEL_TOOLS=(LLVM=1 CC=clang-19); fi
	KERNEL_BUILD=$KERNEL/build
}

# Inside the root folder.
IN_SRC=/src/ochre
IN_LINUX=/src/linux
IN_KERNEL=/build/kernel
IN_CACHE=/cache
