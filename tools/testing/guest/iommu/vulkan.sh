#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The same for Vulkan, which beside that maps memory of the host.
export VK_DRIVER_FILES=/usr/share/vulkan/icd.d/virtio_icd.json
exec /ochre/mesa/vk-readback
