// SPDX-License-Identifier: GPL-2.0
//! Somebody resets the PCI function through sysfs, under the driver.

use guest::ochre::abi::*;
use guest::ochre::access::READ_WRITE;
use guest::ochre::region::VRAM;
use guest::ochre::Gpu;
use guest::ochre::Queue;
use guest::ochre::Stream;
use guest::Board;
use guest::Desk;
use guest::Errno;
use guest::Outcome;
use guest::PciDevice;

guest::tests! {
    idle_device_works_after_a_reset_of_its_function,
    job_under_a_reset_of_the_function_is_lost_and_the_rest_goes_on,
    resets_from_outside_are_not_held_against_the_device,
}

const COPY: u32 = DRM_OCHRE_ENGINE_COPY;
const COMPUTE: u32 = DRM_OCHRE_ENGINE_COMPUTE;

/// A job on each engine, in a new queue.
fn all_engines_work(desk: &Desk<'_>) -> Outcome {
    for class in [COPY, COMPUTE] {
        for instance in [0, 1] {
            let queue = Queue::with(&desk.vm, class, instance, &[])?;
            let mark = u64::from(class * 2 + instance + 1);
            desk.run(&queue, Stream::new().write(desk.word_addr(9), mark))?;
            assert_eq!(desk.word(9), mark);
        }
    }
    Ok(())
}

fn idle_device_works_after_a_reset_of_its_function() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let data: Vec<u32> = (0..65536).collect();
    let memory = desk.vm.buffer_of(VRAM, &data, READ_WRITE)?;
    let old = desk.queue(COPY)?;
    desk.run(&old, Stream::new().nop())?;
    PciDevice::find()?.reset()?;
    all_engines_work(&desk)?;
    desk.run(&old, Stream::new().write(desk.word_addr(0), 1))?;
    assert_eq!(desk.word(0), 1);
    assert!(memory.cpu.read::<u32>(0, data.len()) == data);
    Ok(())
}

fn job_under_a_reset_of_the_function_is_lost_and_the_rest_goes_on() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let begun = desk.queue(COPY)?;
    let job = desk.start(&begun, desk.wait_for_word(0))?;
    Board.queue_in_state(2, "waiting")?;
    PciDevice::find()?.reset()?;
    job.ends_with(Errno::EIO)?;
    assert_eq!(begun.reset_query()?.state, DRM_OCHRE_QUEUE_INNOCENT);
    all_engines_work(&desk)
}

fn resets_from_outside_are_not_held_against_the_device() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let pci = PciDevice::find()?;
    for _ in 0..8 {
        pci.reset()?;
        all_engines_work(&desk)?;
    }
    Ok(())
}
