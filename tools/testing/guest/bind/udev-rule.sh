#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The udev rule loads the module and gives it each virtio-gpu, as on a machine where all is installed.

PCI=/sys/bus/pci/devices
RULE=/etc/udev/rules.d/71-ochre.rules

install_module() {
	local modules
	modules=/lib/modules/$(uname -r)
	cp -rL "$modules" /tmp/modules && cp /ochre/ochre.ko /tmp/modules/kernel/ &&
		ln -sfn /tmp/modules "$modules" && depmod
}

install_puts_command_page_and_rule_in_their_places() {
	RULE=1 DESTDIR=/tmp/other PREFIX=/opt /ochre/bind/install &&
		[ -x /tmp/other/opt/sbin/ochre-bind ] && [ -s /tmp/other/opt/share/man/man8/ochre-bind.8 ] &&
		grep -q '/opt/sbin/ochre-bind --quiet take' /tmp/other$RULE
}

without_being_asked_it_installs_no_rule() {
	DESTDIR=/tmp/third /ochre/bind/install && [ ! -e /tmp/third$RULE ]
}

rule_is_what_udev_understands() { RULE=1 PREFIX=/usr /ochre/bind/install && udevadm verify $RULE; }

rule_gives_each_card_to_the_module() {
	local device status=0
	install_module || return
	/usr/lib/systemd/systemd-udevd --daemon || return
	udevadm trigger --action=add --subsystem-match=pci --settle
	for device in "$PCI"/*; do
		grep -qx PCI_ID=1AF4:1050 "$device/uevent" || continue
		[ "$(basename "$(readlink "$device/driver")")" = ochre_virtio ] || status=1
		ochre-bind status "${device##*/}"
	done
	udevadm control --exit
	return $status
}

number=0
for name in install_puts_command_page_and_rule_in_their_places without_being_asked_it_installs_no_rule \
	rule_is_what_udev_understands rule_gives_each_card_to_the_module; do
	number=$((number + 1))
	if $name >/tmp/log 2>&1; then
		echo "ok $number - $name"
	else
		echo "not ok $number - $name"
		sed 's/^/# /' /tmp/log
	fi
done
