#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# bindgen.sh kernel|uapi|virtio BINDGEN HEADER OUTPUT KERNEL_BINDINGS -- CFLAGS...
#
# kernel: two passes. The first finds out what HEADER brings; whatever the kernel crate's bindings
#         (KERNEL_BINDINGS) already define is blocked in the second, because a C type that is
#         defined twice is two types in Rust. A type that is opaque there and complete here stays.
# uapi:   one pass over the driver's own ABI.
# virtio: one pass over the kernel's ABI of virtio-gpu.
set -ef

mode=$1 bindgen=$2 header=$3 out=$4 kernel=$5
shift 6
here=${0%/*}

common='--rust-target 1.85 --use-core --with-derive-default --ctypes-prefix ffi --no-layout-tests
	--no-debug .* --no-doc-comments --enable-function-attribute-detection'

if [ "$mode" = uapi ]; then
	# shellcheck disable=SC2086 # a list of words
	exec "$bindgen" "$header" -o "$out" $common \
		--allowlist-file '.*/uapi/drm/ochre_[a-z0-9]*\.h' \
		--allowlist-file '.*/ext/uapi\.h' \
		--blocklist-type '__[us](8|16|32|64)' -- "$@"
fi

if [ "$mode" = virtio ]; then
	# shellcheck disable=SC2086 # a list of words
	exec "$bindgen" "$header" -o "$out" $common --no-prepend-enum-name \
		--allowlist-file '.*/uapi/drm/virtgpu_drm\.h' \
		--allowlist-file '.*/uapi/linux/virtio_(config|gpu|ids|pci|ring)\.h' \
		--allowlist-file '.*/ext/uapi_virtio\.h' \
		--blocklist-type '__[us](8|16|32|64)' -- "$@"
fi

headers='linux/(devfreq(-governor)?|dma-fence(-chain|-unwrap)?|hwmon|perf_event|shmem_fs|sync_file|thermal|virtio_dma_buf)|drm/(drm_(auth|print|syncobj|utils))'
trap 'rm -f "$out.pass1" "$out.block"' EXIT

# shellcheck disable=SC2086 # a list of words
pass() {
	"$bindgen" "$header" -o "$1" $common $block \
		--allowlist-file ".*/include/($headers)\.h" \
		--allowlist-file '.*/ext/helpers\.h' \
		--allowlist-function 'rust_do_trace_ochre_.*' \
		--allowlist-var '__tracepoint_ochre_.*' -- $cflags
}

# The C flags come from make and hold no blanks of their own.
cflags=$*
block=
pass "$out.pass1"
awk -f "$here/blocklist.awk" "$kernel" "$out.pass1" > "$out.block"
block=$(cat "$out.block")
pass "$out"
