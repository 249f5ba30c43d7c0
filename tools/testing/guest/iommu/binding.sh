#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Which of the devices behind an IOMMU Ochre takes, and what it says of the others. The device that it
# took stays with it, for the programs that come after this one.

PCI=/sys/bus/pci/devices
FIRST=$(ochre-bind status | sed -n '1s/ .*//p')
SECOND=0000:00:1d.0

driver_of() { basename "$(readlink "$PCI/$1/driver")"; }

# said_of DEVICE: what the kernel's log has since the last look of our driver and the device.
said_of() { dmesg -c | grep "ochre_virtio $1" | sed 's/^\[[^]]*\] //'; }

# type_of DEVICE: how the IOMMU translates its addresses; `identity`: not at all.
type_of() { cat "$PCI/$1/iommu_group/type"; }

addresses_of_both_devices_are_translated() {
	local device
	for device in "$FIRST" "$SECOND"; do
		[[ $(type_of "$device") == DMA* ]] || { echo "# $device: $(type_of "$device")"; return 1; }
	done
}

device_that_knows_the_iommu_is_taken() {
	ochre-bind --quiet take "$FIRST" && [ "$(driver_of "$FIRST")" = ochre_virtio ] && said_of "$FIRST" | grep -q 'virtio-gpu: +virgl'
}

device_that_bypasses_the_iommu_is_refused_in_one_line() {
	local status=0 said
	dmesg -c >/dev/null
	ochre-bind --quiet take "$SECOND" 2>/dev/null || status=$?
	said=$(said_of "$SECOND")
	echo "# $said"
	[ $status = 1 ] && [ "$(driver_of "$SECOND")" = virtio-pci ] &&
		[ "$said" = "ochre_virtio $SECOND: the device bypasses the IOMMU that it is behind; use iommu_platform=on" ]
}

# There physical addresses are right, so the device may use them.
device_that_bypasses_an_iommu_that_does_nothing_is_taken() {
	local status=0
	echo "$SECOND" >"$PCI/$SECOND/driver/unbind"
	echo identity >"$PCI/$SECOND/iommu_group/type" || return
	ochre-bind --quiet take "$SECOND" && [ "$(driver_of "$SECOND")" = ochre_virtio ] || status=1
	ochre-bind --quiet give-back "$SECOND" && [ "$(driver_of "$SECOND")" = virtio-pci ] || status=1
	return $status
}

insmod /ochre/ochre.ko
number=0
for name in addresses_of_both_devices_are_translated device_that_knows_the_iommu_is_taken \
	device_that_bypasses_the_iommu_is_refused_in_one_line device_that_bypasses_an_iommu_that_does_nothing_is_taken; do
	number=$((number + 1))
	if $name; then echo "ok $number - $name"; else echo "not ok $number - $name"; fi
done
