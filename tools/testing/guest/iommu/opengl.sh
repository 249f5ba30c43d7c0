#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# OpenGL draws right, is read back right, and shares buffers, by way of addresses that an IOMMU translates.
exec /ochre/mesa/gl-readback
