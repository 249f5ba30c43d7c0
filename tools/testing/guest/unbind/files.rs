// SPDX-License-Identifier: GPL-2.0
//! Files and mappings that are open when the device goes.

use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixStream;

use guest::child;
use guest::ochre::abi::*;
use guest::ochre::access::READ_WRITE;
use guest::ochre::region::SYSTEM;
use guest::ochre::region::VRAM;
use guest::ochre::Bo;
use guest::ochre::Gpu;
use guest::ochre::Stream;
use guest::raw;
use guest::Desk;
use guest::Errno;
use guest::Outcome;
use guest::PciDevice;
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;

guest::tests! {
    every_ioctl_of_an_open_file_is_enodev,
    access_to_a_mapping_raises_sigbus,
    new_mapping_of_an_open_file_is_refused_or_raises_sigbus,
    file_can_be_closed_before_and_after_the_device_comes_back,
    memory_of_an_open_file_goes_with_it,
    memory_that_the_board_reaches_is_given_back_although_a_file_is_open,
}

fn every_ioctl_of_an_open_file_is_enodev() -> Outcome {
    let pci = PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    desk.run(&queue, Stream::new().nop())?;
    pci.unbind()?;
    let argument = [0u64; 32];
    for (name, request, _) in raw::requests() {
        let got = raw::call_at(&gpu, request, argument.as_ptr() as u64);
        assert_eq!(got, Err(Errno::ENODEV), "{name}");
    }
    pci.bind()?;
    for (name, request, _) in raw::requests() {
        let got = raw::call_at(&gpu, request, argument.as_ptr() as u64);
        assert_eq!(
            got,
            Err(Errno::ENODEV),
            "{name}, when another device is there"
        );
    }
    Ok(())
}

/// Two processes that wait for each other.
struct Turns(UnixStream);

impl Turns {
    fn pair() -> anyhow::Result<(Self, Self)> {
        let (a, b) = UnixStream::pair()?;
        Ok((Self(a), Self(b)))
    }

    fn go(&mut self) -> Outcome {
        Ok(self.0.write_all(b"!")?)
    }

    fn wait(&mut self) -> Outcome {
        Ok(self.0.read_exact(&mut [0])?)
    }
}

fn access_to_a_mapping_raises_sigbus() -> Outcome {
    let pci = PciDevice::bound()?;
    for region in [VRAM, SYSTEM] {
        // A page that was touched before, and one that was not.
        for page in [0, 1] {
            let (mut ours, mut theirs) = Turns::pair()?;
            let process = child::spawn(move || {
                let gpu = Gpu::open()?;
                let bo = Bo::new(&gpu, region, 8192)?;
                let memory = bo.map()?;
                memory.write(0, &[1u64]);
                theirs.go()?;
                theirs.wait()?;
                memory.write(page * 4096, &[2u64]);
                anyhow::bail!("page {page} of region mask {region} is still there")
            })?;
            ours.wait()?;
            pci.unbind()?;
            ours.go()?;
            process.wait_for_signal(Signal::SIGBUS)?;
            pci.bind()?;
        }
    }
    Ok(())
}

fn new_mapping_of_an_open_file_is_refused_or_raises_sigbus() -> Outcome {
    let pci = PciDevice::bound()?;
    for region in [VRAM, SYSTEM] {
        let (mut ours, mut theirs) = Turns::pair()?;
        let process = child::spawn(move || {
            let gpu = Gpu::open()?;
            let bo = Bo::new(&gpu, region, 4096)?;
            let offset = bo.mmap_offset()?;
            theirs.go()?;
            theirs.wait()?;
            let mut options = memmap2::MmapOptions::new();
            options.offset(offset).len(4096);
            if let Ok(memory) = options.map_raw(gpu.file()) {
                // SAFETY: Inside the mapping; it raises a signal.
                unsafe { memory.as_mut_ptr().write_volatile(1) };
                anyhow::bail!("region mask {region} can be mapped and written");
            }
            Ok(())
        })?;
        ours.wait()?;
        pci.unbind()?;
        ours.go()?;
        match process.end()? {
            WaitStatus::Exited(_, 0) | WaitStatus::Signaled(_, Signal::SIGBUS, _) => {}
            status => anyhow::bail!("{status:?}"),
        }
        pci.bind()?;
    }
    Ok(())
}

fn file_can_be_closed_before_and_after_the_device_comes_back() -> Outcome {
    let pci = PciDevice::bound()?;
    for after in [false, true] {
        let gpu = Gpu::open()?;
        let desk = Desk::new(&gpu)?;
        let queue = desk.queue(DRM_OCHRE_ENGINE_COMPUTE)?;
        let memory = desk.vm.buffer(VRAM, 1 << 20, READ_WRITE)?;
        desk.run(&queue, Stream::new().fill(memory.addr, 1 << 20, 1))?;
        pci.unbind()?;
        if after {
            pci.bind()?;
        }
        drop((queue, memory, desk));
        drop(gpu);
        if !after {
            pci.bind()?;
        }
    }
    Ok(())
}

fn memory_of_an_open_file_goes_with_it() -> Outcome {
    fn available() -> anyhow::Result<u64> {
        let text = std::fs::read_to_string("/proc/meminfo")?;
        let line = text.lines().find(|line| line.starts_with("MemAvailable:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        Ok(kib.unwrap_or_default().parse::<u64>()? << 10)
    }
    const SIZE: u64 = 64 << 20;
    let pci = PciDevice::bound()?;
    let before = available()?;
    for _ in 0..4 {
        let gpu = Gpu::open()?;
        let _bo = Bo::new(&gpu, SYSTEM, SIZE)?;
        pci.rebind()?;
    }
    guest::eventually("the memory is there again", 20, || {
        Ok((available()? + SIZE > before).then_some(()))
    })
}

/// What the device has of the DMA API, one a line; [`None`] on a kernel that keeps no record (the debug
/// kernels do).
fn dma_memory(pci: &PciDevice) -> Option<Vec<String>> {
    let dump = std::fs::read_to_string("/sys/kernel/debug/dma-api/dump").ok()?;
    let ours = |line: &&str| line.split(' ').any(|word| word == pci.address());
    Some(dump.lines().filter(ours).map(String::from).collect())
}

fn memory_that_the_board_reaches_is_given_back_although_a_file_is_open() -> Outcome {
    let pci = PciDevice::bound()?;
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let memory = desk.vm.buffer(SYSTEM, 1 << 20, READ_WRITE)?;
    desk.run(&queue, Stream::new().fill(memory.addr, 1 << 20, 1))?;
    // Tables of each level, far apart.
    let bo = Bo::new(&gpu, SYSTEM, 4096)?;
    for addr in (30..47).map(|bit| 1u64 << bit) {
        desk.vm.bind_at(addr, &bo, READ_WRITE)?;
    }
    let before = dma_memory(&pci);
    pci.unbind()?;
    let after = dma_memory(&pci);
    match (before, after) {
        (Some(before), Some(after)) => {
            // Table of contexts, fault ring, firmware, a queue, its tables, the BOs.
            assert!(before.len() > 50, "{before:#?}");
            assert!(after.is_empty(), "{after:#?}");
        }
        _ => println!("# not counted: this kernel keeps no record of DMA memory"),
    }
    // What it was described by is still there, and goes without harm.
    drop((memory, bo, queue));
    pci.bind()?;
    drop(desk);
    Ok(())
}
