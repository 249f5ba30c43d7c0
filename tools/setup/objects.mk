# SPDX-License-Identifier: GPL-2.0
#
# usage: make -C KERNEL_TREE -f objects.mk CONFIG=BUILD_FOLDER
#
# Prints the objects that a configured kernel consists of, without building any: reads each
# folder's Makefile as kbuild does.

.DEFAULT_GOAL := list
MAKEFLAGS += -rR
srctree := .
objtree := $(CONFIG)
SRCARCH := x86
BITS := 64
export srctree objtree SRCARCH BITS

include $(CONFIG)/include/config/auto.conf

ifndef DIR
DIRS := init usr arch/x86 kernel certs mm fs ipc security crypto drivers sound samples net virt lib \
	$(if $(CONFIG_IO_URING),io_uring) $(if $(CONFIG_BLOCK),block)
.PHONY: list $(DIRS)
list: $(DIRS)
$(DIRS):
	@if [ -d $@ ]; then $(MAKE) -s -f $(firstword $(MAKEFILE_LIST)) CONFIG=$(CONFIG) DIR=$@; fi
else
obj := $(DIR)
src := $(DIR)
obj-y :=
obj-m :=
lib-y :=
lib-m :=
subdir-y :=
subdir-m :=
always-y :=
targets :=
include $(firstword $(wildcard $(DIR)/Kbuild $(DIR)/Makefile))

dirs := $(sort $(filter %/,$(obj-y) $(obj-m)))
units := $(filter %.o,$(obj-y) $(obj-m) $(lib-y))
# A unit made of parts is not itself compiled.
parts = $(strip $($(1:.o=-objs)) $($(1:.o=-y)) $($(1:.o=-m)))
expand = $(foreach u,$(1),$(if $(call parts,$(u)),$(addprefix $(DIR)/,$(filter %.o,$(call parts,$(u)))),$(DIR)/$(u)))
.PHONY: list FORCE $(dirs)
list: $(dirs)
	@printf '%s\n' $(sort $(call expand,$(units)))
$(dirs):
	@$(MAKE) -s -f $(firstword $(MAKEFILE_LIST)) CONFIG=$(CONFIG) DIR=$(DIR)/$(@:/=)
endif
