#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What becomes of a device that ochre-bind hands over and Ochre does not take.

insmod /ochre/ochre.ko
device=$(ochre-bind status | sed 's/ .*//')
status=0
said=$(ochre-bind take 2>&1) || status=$?
override=$(<"/sys/bus/pci/devices/$device/driver_override")
if [ $status = 1 ] && [[ $said == *"did not take $device, see the kernel's log"* ]]; then
	echo 'ok 1 - device_that_ochre_refuses_is_an_error_that_says_so'
else
	printf '# status %d: %s\nnot ok 1 - device_that_ochre_refuses_is_an_error_that_says_so\n' $status "$said"
fi
if [ "$(ochre-bind status)" = "$device virtio-pci" ] && [[ $override == '' || $override == '(null)' ]]; then
	echo 'ok 2 - device_that_ochre_refuses_goes_back'
else
	printf '# %s, override %s\nnot ok 2 - device_that_ochre_refuses_goes_back\n' "$(ochre-bind status)" "$override"
fi
