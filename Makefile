# SPDX-License-Identifier: GPL-2.0
#
# The front door. Each target is a script in tools/, which --help explains; nothing is decided
# here. What is shared between checkouts is built in a cache (make setup), the rest in build/.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test vm setup root kernel board module modules modules_install stage samples \
	test-static test-setup test-board kunit format test-vm test-guest test-bench test-debug speed bench bench-document clean distclean

# Settings may hold a dollar sign, which is the guest's shell's and not make's.
SETTINGS := CMD SHARE BOARD BOARD_ARGS DRIVER QEMU_ARGS MODULE MODULE_ARGS KERNEL_ARGS MEM SMP TIMEOUT LOG
$(foreach v,$(SETTINGS),$(if $(filter-out undefined,$(origin $(v))),$(eval override $(v) := $$(value $(v)))))
export $(SETTINGS) KDIR KSRC KERNEL_DEBUG JOBS

# Variables of the kernel's build that are passed on when they are given.
KBUILD_SETTINGS = $(foreach v,CLIPPY W C V LLVM INSTALL_MOD_PATH,$(if $($(v)),$(v)=$($(v))))

##@ Use it

run: setup ## set everything up, boot, run the samples: the main job with its result
	@tools/setup/stage
	@tools/vm/run CMD=/ochre/guest/main-job

vm: setup ## a shell in the guest; CMD='…' SHARE=dir BOARD=og1|virtio DRIVER=ochre|c QEMU_ARGS='…' TIMEOUT=s
	@tools/setup/stage
	@tools/vm/run

##@ Test it

test: setup ## all tests; the last line is `N passed, M failed`
	@tools/testing/all

test-static: setup ## formatting, lints, rules of the source
	@tools/testing/static $(T)

test-setup: setup ## tests of the set-up and of its messages; T=part of a name
	@tools/testing/setup-tests $(T)

test-board: setup ## cargo tests of the board; T=part of a name
	@tools/testing/board-tests $(T)

kunit: setup ## the driver's KUnit suites, by the kernel's kunit.py; T=glob
	@tools/testing/kunit $(T)

test-vm: setup ## tests of `make vm` itself; T=part of a name
	@tools/setup/stage
	@tools/testing/vm-tests $(T)

test-guest: setup ## tests in booted guests; T=part of a name
	@tools/setup/stage
	@tools/testing/guest-tests $(T)

test-debug: setup ## KUnit and guest tests on a kernel with KASAN and lockdep; T=part of a name
	@tools/testing/debug-tests $(T)

test-bench: setup ## tests of the bench, in its shortest form; T=part of a name
	@tools/setup/stage
	@tools/testing/bench-tests $(T)

speed: setup ## the board's speed on this machine, beside what is asked of it
	@tools/setup/in-root cargo run --quiet --release --locked --manifest-path tools/Cargo.toml -p og1 --example speed

bench: setup ## measure Ochre beside the C driver; BOARD=virtio BENCH_ARGS='--rows part --runs N'
	@tools/setup/stage
	@tools/bench/run $(BENCH_ARGS)

bench-document: setup ## put the figures of `make bench` into the documentation; BOARD=virtio
	@tools/setup/stage board
	@tools/bench/document

.PHONY: test-mesa
test-mesa: setup ## stock Mesa on virtio-gpu, Ochre beside the kernel's driver; SHORT=1, PIGLIT=quick_gl, DOC=1
	@tools/setup/stage
	@tools/testing/mesa $(if $(filter 1,$(SHORT)),--short) $(T)
	@$(if $(T),,tools/testing/mesa-endure $(if $(filter 1,$(SHORT)),--short))

format: setup ## format all Rust as the checks want it
	@tools/testing/static --format

##@ Build it

setup: root kernel ## root folder and base kernel, in the cache

root: ## the root folder: Debian 13 with all tools
	@tools/setup/root

kernel: root ## the base kernel; KSRC=folder takes another kernel tree
	@tools/setup/kernel

modules: ## ochre.ko, out of tree, in build/module; KDIR=folder for another kernel
	@$(if $(KDIR),,$(MAKE) --no-print-directory setup)
	@tools/setup/module modules $(KBUILD_SETTINGS)

modules_install: ## install ochre.ko; KDIR=folder, INSTALL_MOD_PATH=folder
	@tools/setup/module modules_install $(KBUILD_SETTINGS)

board samples: setup ## the board (build/target/release/og1); the samples
	@tools/setup/stage $@

stage: setup ## all that the guest sees at /ochre, in build/stage
	@tools/setup/stage

.PHONY: bind_install
bind_install: ## install ochre-bind; RULE=1 also the udev rule that gives each virtio-gpu to ochre.ko
	@tools/bind/install

##@ Tidy up

clean: ## remove build/
	@rm -rf build

distclean: clean ## and the cache, for all checkouts of this user
	@tools/setup/purge

help: ## this list
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][^:]*:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
