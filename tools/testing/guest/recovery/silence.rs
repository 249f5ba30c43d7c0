// SPDX-License-Identifier: GPL-2.0
//! The board answers with all ones, for a while or for good; or needs reset after reset.

use guest::errno;
use guest::ochre::abi::*;
use guest::ochre::in_seconds;
use guest::ochre::region::VRAM;
use guest::ochre::Bo;
use guest::ochre::Gpu;
use guest::ochre::Queue;
use guest::ochre::Stream;
use guest::ochre::Vm;
use guest::Board;
use guest::Desk;
use guest::Errno;
use guest::Events;
use guest::Outcome;
use guest::PciDevice;

guest::tests! {
    short_silence_harms_nobody,
    silent_board_is_given_up_and_everybody_is_told,
    board_that_needs_too_many_resets_is_given_up,
    board_that_was_given_up_works_when_it_is_bound_again,
}

const COPY: u32 = DRM_OCHRE_ENGINE_COPY;

fn short_silence_harms_nobody() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(COPY)?;
    let job = desk.start(&queue, desk.wait_for_word(0).write(desk.word_addr(1), 1))?;
    Board.queue_in_state(2, "waiting")?;
    let silence = Board.silence()?;
    // What is asked meanwhile is refused, not answered with garbage.
    let time = drm_ochre_query_time {
        clock: 1,
        ..Default::default()
    };
    assert_eq!(errno(gpu.ask(time)), Some(Errno::ENODEV));
    assert_eq!(
        errno(gpu.query::<drm_ochre_query_clocks>()),
        Some(Errno::ENODEV)
    );
    drop(silence);
    desk.set_word(0, 1);
    job.ends_well()?;
    assert_eq!(desk.word(1), 1);
    assert!(gpu.ask(time)?.gpu_ticks > 0);
    assert_eq!(queue.reset_query()?.state, DRM_OCHRE_QUEUE_OK);
    Ok(())
}

/// Checks that the device is gone for a file that was open.
#[track_caller]
fn assert_gone(gpu: &Gpu, queue: &Queue<'_>) {
    let gone = Some(Errno::ENODEV);
    assert_eq!(errno(gpu.query::<drm_ochre_query_hardware>()), gone);
    assert_eq!(errno(queue.submit(&[Default::default()])), gone);
    assert_eq!(errno(Vm::new(gpu)), gone);
    assert_eq!(errno(Bo::new(gpu, VRAM, 4096)), gone);
}

fn silent_board_is_given_up_and_everybody_is_told() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(COPY)?;
    let other = desk.queue(COPY)?;
    let job = desk.start(&queue, desk.wait_for_word(0))?;
    Board.queue_in_state(2, "waiting")?;
    let events = Events::from_now()?;
    let silence = Board.silence()?;
    let behind = desk.start(&other, Stream::new().nop())?;
    for job in [&job, &behind] {
        match gpu.wait(&[job.done.wait()], in_seconds(60)) {
            Ok(waited) => assert_eq!(Errno::from_raw(waited.error), Errno::ENODEV),
            error => assert_eq!(errno(error), Some(Errno::ENODEV)),
        }
    }
    assert_gone(&gpu, &queue);
    let remedies = events.next("WEDGED")?;
    assert!(
        remedies.split(',').any(|remedy| remedy == "rebind"),
        "{remedies}"
    );
    // Nobody knows what it does when it comes back, so it must not reach memory any more.
    let pci = PciDevice::find()?;
    assert!(
        !pci.is_master()?,
        "a board that was given up may use memory"
    );
    drop(silence);
    pci.rebind()?;
    Board.forgive_cut_off()
}

fn board_that_needs_too_many_resets_is_given_up() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let mut resets = 0;
    let queue = loop {
        let queue = match desk.queue_with_timeout(COPY, 50) {
            Ok(queue) => queue,
            Err(error) => anyhow::bail!("{resets} resets: {error:?}"),
        };
        let _hung = Board.hang("device")?;
        let job = desk.start(&queue, Stream::new().nop())?;
        match job.end() {
            Ok(Some(Errno::ETIME)) => resets += 1,
            Ok(Some(Errno::ENODEV)) => break queue,
            Err(error) if error.to_string().contains("No such device") => break queue,
            end => anyhow::bail!("after {resets} resets: {end:?}"),
        }
        anyhow::ensure!(resets < 10, "{resets} resets of the device within a minute");
    };
    assert!(resets >= 2, "given up after {resets} resets");
    assert_gone(&gpu, &queue);
    Ok(())
}

fn board_that_was_given_up_works_when_it_is_bound_again() -> Outcome {
    PciDevice::find()?.rebind()?;
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    assert_eq!(gpu.query::<drm_ochre_query_hardware>()?[0].resets, 0);
    for class in [COPY, DRM_OCHRE_ENGINE_COMPUTE] {
        let queue = desk.queue(class)?;
        desk.run(&queue, Stream::new().write(desk.word_addr(0), 1))?;
        assert_eq!(desk.word(0), 1);
        desk.set_word(0, 0);
    }
    Ok(())
}
