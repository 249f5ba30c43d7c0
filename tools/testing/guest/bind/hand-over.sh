#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# ochre-bind gives virtio-gpu devices to ochre.ko and back, and leaves alone what is in use.

PCI=/sys/bus/pci
FIRST=$(ochre-bind status | sed -n '1s/ .*//p')
SECOND=0000:00:1d.0
OUT=/tmp/out

driver_of() { basename "$(readlink "$PCI/devices/$1/driver")"; }

# bind STATUS ARGUMENT...: runs ochre-bind and compares its status; what it said is in $OUT.
bind() {
	local wanted=$1 status=0
	shift
	ochre-bind "$@" >$OUT 2>&1 || status=$?
	[ $status = "$wanted" ] && return
	echo "# ochre-bind $*: status $status, expected $wanted; it said:"
	sed 's/^/# /' $OUT
	return 1
}

said() { grep -q -- "$1" $OUT || { echo "# it did not say '$1':"; sed 's/^/# /' $OUT; return 1; }; }

# with DRIVER DEVICE...: whether that is where they are.
with() {
	local driver=$1 device
	shift
	for device; do
		[ "$(driver_of "$device")" = "$driver" ] || { echo "# $device is with $(driver_of "$device")"; return 1; }
	done
}

wrong_usage_ends_with_2_and_changes_nothing() {
	bind 2 && bind 2 steal && bind 2 --fast take && bind 2 take 5 && bind 2 take "$FIRST;reboot" &&
		bind 2 take ../../../etc && with virtio-pci "$FIRST" "$SECOND"
}

help_names_each_command() { bind 0 --help && said take && said give-back && said status; }

device_that_is_none_of_ours_ends_with_4() {
	bind 4 take 0000:00:00.0 && said 'no virtio-gpu' && bind 4 take 0000:ff:1f.7 && said 'no PCI device'
}

without_the_module_the_device_stays_where_it_is() {
	bind 1 take "$FIRST" && said 'no driver ochre_virtio' && with virtio-pci "$FIRST"
}

one_device_is_taken_and_the_other_left() {
	bind 0 take "$FIRST" && said ochre_virtio && with ochre_virtio "$FIRST" && with virtio-pci "$SECOND" &&
		ls -d "$PCI/devices/$FIRST"/drm/renderD* >/dev/null
}

taking_twice_changes_nothing() {
	local before
	before=$(ls -d --time-style=full-iso -l "$PCI/devices/$FIRST"/drm/*)
	bind 0 take "$FIRST" && said already &&
		[ "$before" = "$(ls -d --time-style=full-iso -l "$PCI/devices/$FIRST"/drm/*)" ]
}

short_name_of_a_device_is_understood() { bind 0 take "${FIRST#0000:}" && said already; }

device_given_back_is_with_its_first_driver() {
	bind 0 give-back "$FIRST" && with virtio-pci "$FIRST" &&
		grep -qxE '|\(null\)' "$PCI/devices/$FIRST/driver_override"
}

giving_back_twice_changes_nothing() { bind 0 give-back && said already && with virtio-pci "$FIRST" "$SECOND"; }

without_a_name_all_devices_move() {
	bind 0 take && with ochre_virtio "$FIRST" "$SECOND" && bind 0 give-back && with virtio-pci "$FIRST" "$SECOND"
}

takes_at_the_same_time_end_well() {
	local jobs=() job failed=0
	for _ in 1 2 3 4; do
		ochre-bind --quiet take &
		jobs+=($!)
	done
	for job in "${jobs[@]}"; do wait "$job" || failed=1; done
	[ $failed = 0 ] && with ochre_virtio "$FIRST" "$SECOND" && bind 0 --quiet give-back && [ ! -s $OUT ]
}

# hold NODES COMMAND...: runs COMMAND while a program has the nodes open; its PID is in $holder.
hold() {
	local nodes=$1 line='' status=0
	shift
	# The descriptors stay open until the program ends; nobody needs their numbers.
	# shellcheck disable=SC2034
	exec 8< <(for node in $nodes; do exec {fd}<"/dev/dri/$node" || exit; done && echo open && exec sleep 1000)
	holder=$!
	read -r -t 20 line <&8
	[ "$line" = open ] && "$@" || status=1
	kill $holder
	exec 8<&-
	return $status
}

# Whoever opens the node first is master.
refused_unless_forced() {
	bind 3 take "$FIRST" && said "sleep($holder)" && with virtio-pci "$FIRST" &&
		bind 0 status "$FIRST" && said "sleep($holder) is DRM master" &&
		bind 0 --force take "$FIRST" && with ochre_virtio "$FIRST"
}

card_with_a_master_is_refused_and_moved_by_force() {
	local card status=0
	modprobe virtio-gpu
	card=$(cd "$PCI/devices/$FIRST" && echo drm/card*)
	hold "${card##*/}" refused_unless_forced || status=1
	ochre-bind --quiet --force give-back
	return $status
}

named_for_each_node() {
	bind 0 --force take "$FIRST" && said "sleep($holder) has card" && said "sleep($holder) has renderD"
}

program_with_two_nodes_is_found_on_both() {
	local nodes status=0
	nodes=$(cd "$PCI/devices/$FIRST/drm" && echo renderD* card*)
	hold "$nodes" named_for_each_node || status=1
	ochre-bind --quiet --force give-back
	return $status
}

moved_with_a_word() { bind 0 give-back "$FIRST" && said "sleep($holder) has" && with virtio-pci "$FIRST"; }

program_on_the_render_node_is_named_and_not_in_the_way() {
	local node
	bind 0 take "$FIRST" || return
	node=$(cd "$PCI/devices/$FIRST/drm" && echo renderD*)
	hold "$node" moved_with_a_word
}

# The guest has no virtual terminals, so a made-up /sys shows a card that is one.
card_that_is_a_console_is_refused() {
	local sys=/tmp/sys device=bus/pci/devices/0000:00:02.0
	mkdir -p $sys/$device/graphics/fb0 $sys/bus/pci/drivers/{virtio-pci,ochre_virtio} \
		$sys/class/vtconsole/vtcon{0,1} $sys/bus/platform/drivers/simple-framebuffer
	ln -sfn ../../drivers/virtio-pci $sys/$device/driver
	echo 0x1af4 >$sys/$device/vendor
	echo 0x1050 >$sys/$device/device
	echo 0 >$sys/$device/boot_vga
	: >$sys/$device/driver_override
	echo '(S) VGA+' >$sys/class/vtconsole/vtcon0/name
	echo '(M) frame buffer device' >$sys/class/vtconsole/vtcon1/name
	echo 0 >$sys/class/vtconsole/vtcon0/bind
	echo 1 >$sys/class/vtconsole/vtcon1/bind
	there() { unshare -m bash -c "mount --bind $sys /sys && exec ochre-bind $*" >$OUT 2>&1; }
	there take
	[ $? = 3 ] && said 'console on fb0' && [ ! -s $sys/$device/driver_override ] || return
	there status && said 'console on fb0' || return
	echo 0 >$sys/class/vtconsole/vtcon1/bind
	there status && ! grep -q console $OUT || return
	echo 1 >$sys/$device/boot_vga
	echo 1 >$sys/class/vtconsole/vtcon0/bind
	there take
	[ $? = 3 ] && said 'VGA console' || return
	echo 0 >$sys/class/vtconsole/vtcon0/bind
	mkdir $sys/bus/platform/drivers/simple-framebuffer/simple-framebuffer.0
	there take
	[ $? = 3 ] && said 'firmware framebuffer' && [ ! -s $sys/$device/driver_override ]
}

number=0
test() {
	number=$((number + 1))
	if "$1"; then echo "ok $number - $1"; else echo "not ok $number - $1"; fi
}

for name in wrong_usage_ends_with_2_and_changes_nothing help_names_each_command \
	device_that_is_none_of_ours_ends_with_4 without_the_module_the_device_stays_where_it_is; do
	test $name
done
insmod /ochre/ochre.ko
for name in one_device_is_taken_and_the_other_left taking_twice_changes_nothing \
	short_name_of_a_device_is_understood device_given_back_is_with_its_first_driver \
	giving_back_twice_changes_nothing without_a_name_all_devices_move takes_at_the_same_time_end_well \
	card_with_a_master_is_refused_and_moved_by_force program_with_two_nodes_is_found_on_both \
	program_on_the_render_node_is_named_and_not_in_the_way \
	card_that_is_a_console_is_refused; do
	test $name
done
