// SPDX-License-Identifier: GPL-2.0
//! The driver comes and goes.

use guest::errno;
use guest::ochre::abi::*;
use guest::ochre::Gpu;
use guest::ochre::Stream;
use guest::Board;
use guest::Desk;
use guest::Errno;
use guest::Ledger;
use guest::Outcome;
use guest::PciDevice;

guest::tests! {
    unbound_twice_and_bound_twice_is_refused_the_second_time,
    fifty_times_unbound_and_bound_it_works_as_on_the_first_day,
    open_files_of_before_stay_dead_and_new_ones_work,
    nothing_is_left_after_work_and_unbind,
}

/// Runs a job on the first engine of each class.
fn work() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    for class in [DRM_OCHRE_ENGINE_COMPUTE, DRM_OCHRE_ENGINE_COPY] {
        let queue = desk.queue(class)?;
        desk.run(&queue, Stream::new().write(desk.word_addr(0), 1))?;
        assert_eq!(desk.word(0), 1);
        desk.set_word(0, 0);
    }
    Ok(())
}

fn unbound_twice_and_bound_twice_is_refused_the_second_time() -> Outcome {
    let pci = PciDevice::bound()?;
    pci.unbind()?;
    assert_eq!(errno(pci.unbind()), Some(Errno::ENODEV));
    assert!(!pci.is_bound());
    assert!(Gpu::open().is_err());
    pci.bind()?;
    assert!(matches!(
        errno(pci.bind()),
        Some(Errno::EBUSY | Errno::ENODEV)
    ));
    assert!(pci.is_bound());
    work()
}

fn fifty_times_unbound_and_bound_it_works_as_on_the_first_day() -> Outcome {
    let pci = PciDevice::bound()?;
    let before = Ledger::read(&Gpu::open()?)?;
    for _ in 0..50 {
        pci.rebind()?;
        work()?;
    }
    before.check(&Gpu::open()?, "binding again and again")
}

fn open_files_of_before_stay_dead_and_new_ones_work() -> Outcome {
    let pci = PciDevice::bound()?;
    let mut old = Vec::new();
    for _ in 0..3 {
        old.push(Gpu::open()?);
        pci.rebind()?;
        work()?;
        for gpu in &old {
            assert_eq!(
                errno(gpu.query::<drm_ochre_query_hardware>()),
                Some(Errno::ENODEV)
            );
        }
    }
    drop(old);
    work()
}

fn nothing_is_left_after_work_and_unbind() -> Outcome {
    let pci = PciDevice::bound()?;
    work()?;
    pci.unbind()?;
    // The board holds no queue and is asked for nothing.
    let slots = Board.slots()?;
    assert!(slots.iter().all(|slot| slot.state == "empty"), "{slots:?}");
    pci.bind()?;
    work()
}
