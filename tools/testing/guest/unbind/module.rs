// SPDX-License-Identifier: GPL-2.0
//! The module is unloaded and loaded.

use std::os::fd::AsFd;

use drm::control::Device as _;
use guest::ochre::abi::*;
use guest::ochre::region::VRAM;
use guest::ochre::Bo;
use guest::ochre::Gpu;
use guest::ochre::Stream;
use guest::Desk;
use guest::Outcome;
use guest::PciDevice;
use nix::poll::poll;
use nix::poll::PollFd;
use nix::poll::PollFlags;

guest::tests! {
    module_goes_and_comes_again,
    module_stays_as_long_as_a_file_is_open,
    module_stays_as_long_as_its_memory_is_exported,
    fence_outlives_the_module,
}

fn work() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    desk.run(&queue, Stream::new().write(desk.word_addr(0), 1))?;
    assert_eq!(desk.word(0), 1);
    Ok(())
}

fn module_goes_and_comes_again() -> Outcome {
    PciDevice::bound()?;
    for _ in 0..3 {
        work()?;
        PciDevice::unload_module()?;
        assert!(Gpu::open().is_err());
        PciDevice::load_module()?;
    }
    work()
}

fn module_stays_as_long_as_a_file_is_open() -> Outcome {
    let pci = PciDevice::bound()?;
    let gpu = Gpu::open()?;
    assert!(PciDevice::unload_module().is_err());
    // Also when the device is gone.
    pci.unbind()?;
    assert!(PciDevice::unload_module().is_err());
    drop(gpu);
    PciDevice::unload_module()?;
    PciDevice::load_module()?;
    work()
}

fn module_stays_as_long_as_its_memory_is_exported() -> Outcome {
    PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let bo = Bo::new(&gpu, VRAM, 4096)?;
    let handle = std::num::NonZeroU32::new(bo.handle()).ok_or(anyhow::anyhow!("no handle"))?;
    let exported = gpu.buffer_to_prime_fd(handle.into(), libc::O_RDWR as u32)?;
    drop(bo);
    drop(gpu);
    assert!(PciDevice::unload_module().is_err());
    drop(exported);
    // The last reference goes when the kernel has got round to it.
    guest::eventually(
        "the module goes",
        20,
        || Ok(PciDevice::unload_module().ok()),
    )?;
    PciDevice::load_module()?;
    work()
}

fn fence_outlives_the_module() -> Outcome {
    PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let sync_file = {
        let desk = Desk::new(&gpu)?;
        let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
        let job = desk.start(&queue, desk.wait_for_word(0))?;
        gpu.syncobj_to_fd(job.done.raw(), true)?
    };
    drop(gpu);
    PciDevice::unload_module()?;
    let mut fds = [PollFd::new(sync_file.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, 20_000u16)?, 1, "its job was cancelled");
    drop(sync_file);
    PciDevice::load_module()?;
    work()
}
