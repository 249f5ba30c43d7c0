// SPDX-License-Identifier: GPL-2.0
//! What holds for every ioctl.

use guest::child;
use guest::errno;
use guest::ochre::abi::*;
use guest::ochre::region::SYSTEM;
use guest::ochre::region::VRAM;
use guest::ochre::Bo;
use guest::ochre::Gpu;
use guest::ochre::Queue;
use guest::ochre::Stream;
use guest::ochre::Vm;
use guest::pointers;
use guest::raw;
use guest::Desk;
use guest::Errno;
use guest::Ledger;
use guest::Outcome;

guest::tests! {
    argument_at_a_bad_address_is_efault,
    numbers_that_no_ioctl_has_are_refused,
    argument_of_an_older_program_is_filled_with_zeros,
    argument_of_a_newer_program_is_taken,
    answer_that_cannot_be_written_is_efault,
    every_ioctl_works_without_privileges,
    closed_file_gives_everything_back,
}

fn argument_at_a_bad_address_is_efault() -> Outcome {
    let gpu = Gpu::open()?;
    let before = Ledger::read(&gpu)?;
    let mut cliff = pointers::Cliff::new();
    for (name, request, size) in raw::requests() {
        for (what, address) in pointers::bad() {
            let got = raw::call_at(&gpu, request, address);
            assert_eq!(got, Err(Errno::EFAULT), "{name} at {what}");
        }
        let short = cliff.put(&vec![0; size - 1]);
        let got = raw::call_at(&gpu, request, short);
        assert_eq!(got, Err(Errno::EFAULT), "{name} that ends nowhere");
    }
    before.check(&gpu, "an argument that cannot be read")
}

fn numbers_that_no_ioctl_has_are_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let argument = [0u64; 64];
    let address = argument.as_ptr() as u64;
    let reset_query = DRM_IOCTL_OCHRE_RESET_QUERY;
    for number in 1..=0x60 - 0x0b {
        // The last of the driver's numbers is 0x9f.
        let request = reset_query + number;
        let got = raw::call_at(&gpu, request, address);
        assert!(
            matches!(got, Err(Errno::EINVAL | Errno::ENOTTY)),
            "number {:#x}: {got:?}",
            request & 0xff
        );
    }
    Ok(())
}

fn argument_of_an_older_program_is_filled_with_zeros() -> Outcome {
    let gpu = Gpu::open()?;
    // Without `extensions`, and with something behind it that must not be read.
    let mut old = [u64::MAX; 3];
    old[0] = DRM_OCHRE_QUERY_ENGINES.into();
    old[1] = 0;
    let request = raw::with_size(DRM_IOCTL_OCHRE_QUERY, 16);
    raw::call_at(&gpu, request, old.as_mut_ptr() as u64)?;
    let size = old[0] >> 32;
    assert_eq!(size, 4 * u64::from(stride::<drm_ochre_query_engine>()));

    let mut vm = [0u32, u32::MAX];
    let request = raw::with_size(DRM_IOCTL_OCHRE_VM_CREATE, 8);
    raw::call_at(&gpu, request, vm.as_mut_ptr() as u64)?;
    let mut destroy = drm_ochre_vm_destroy { vm: vm[1], pad: 0 };
    raw::call(&gpu, &mut destroy)?;
    Ok(())
}

fn argument_of_a_newer_program_is_taken() -> Outcome {
    let gpu = Gpu::open()?;
    let mut new = [0u64; 16];
    let request = raw::with_size(DRM_IOCTL_OCHRE_VM_CREATE, size_of_val(&new));
    raw::call_at(&gpu, request, new.as_mut_ptr() as u64)?;
    let vm = (new[0] >> 32) as u32;
    let mut destroy = drm_ochre_vm_destroy { vm, pad: 0 };
    raw::call(&gpu, &mut destroy)?;
    Ok(())
}

fn answer_that_cannot_be_written_is_efault() -> Outcome {
    let other = Gpu::open()?;
    let before = Ledger::read(&other)?;
    {
        let gpu = Gpu::open()?;
        let create = drm_ochre_gem_create {
            size: 4096,
            regions: VRAM,
            ..Default::default()
        };
        let page = pointers::ReadOnly::with(guest::bytes_of(&create));
        let got = raw::call_at(&gpu, DRM_IOCTL_OCHRE_GEM_CREATE, page.address());
        assert_eq!(got, Err(Errno::EFAULT));
        let zeros = pointers::ReadOnly::with(&[]);
        let got = raw::call_at(&gpu, DRM_IOCTL_OCHRE_VM_CREATE, zeros.address());
        assert_eq!(got, Err(Errno::EFAULT));
    }
    before.check(&other, "closing the file")
}

fn every_ioctl_works_without_privileges() -> Outcome {
    let gpu = Gpu::open()?;
    child::as_nobody(|| {
        gpu.query::<drm_ochre_query_hardware>()?;
        let desk = Desk::new(&gpu)?;
        let queue = desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?;
        desk.run(&queue, Stream::new().write(desk.word_addr(0), 1))?;
        assert_eq!(desk.word(0), 1);
        assert_eq!(queue.reset_query()?.state, DRM_OCHRE_QUEUE_OK);
        Ok(())
    })
}

fn closed_file_gives_everything_back() -> Outcome {
    let gpu = Gpu::open()?;
    let before = Ledger::read(&gpu)?;
    {
        let file = Gpu::open()?;
        let vm = Vm::new(&file)?;
        let bo = Bo::new(&file, VRAM, 8 << 20)?;
        vm.bind_at(0x1000_0000, &bo, guest::ochre::access::READ)?;
        let queue = Queue::new(&vm, DRM_OCHRE_ENGINE_COPY)?;
        let system = Bo::new(&file, SYSTEM, 8 << 20)?;
        // Nothing is destroyed one by one.
        std::mem::forget((queue, bo, system, vm));
    }
    before.check(&gpu, "a closed file")?;
    assert_eq!(errno(Gpu::open()), None);
    Ok(())
}
