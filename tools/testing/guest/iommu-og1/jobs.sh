#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The board's engines reach system memory by way of addresses that an IOMMU translates.

type=$(cat /sys/class/drm/renderD128/device/iommu_group/type)
case $type in
DMA*) echo 'ok 1 - addresses_of_the_board_are_translated' ;;
*) printf '# %s\nnot ok 1 - addresses_of_the_board_are_translated\n' "$type" ;;
esac
/ochre/tests/jobs/copy && /ochre/tests/jobs/compute
