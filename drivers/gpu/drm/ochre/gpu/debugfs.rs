// SPDX-License-Identifier: GPL-2.0

//! Files for those who debug the driver: `/sys/kernel/debug/dri/0000:00:05.0/ochre/`. Root's only.
//!
//! They show what is, and promise nothing: neither names nor form are ABI.

use kernel::{
    drm,
    fmt::Write,
    prelude::*,
    sync::Arc, //
};

use super::{
    driver::Driver,
    engine_name::EngineName,
    scheduler::Entry,
    Gpu, //
};
use crate::{
    algo::sched::SlotId,
    ext::debugfs::{
        Contents,
        Folder,
        Out, //
    },
    hal::SlotState, //
};

/// What a file shows.
#[derive(Clone, Copy)]
enum View {
    Vram,
    Engines,
    Queues,
    /// A group of registers, see [`Hal::register_groups`](crate::hal::Hal::register_groups).
    Registers(usize),
}

struct File {
    gpu: Arc<Gpu>,
    view: View,
}

/// `write!` with the kernel's error.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {
        $out.write_fmt(fmt!($($arg)*)).map_err(|_| ENOMEM)
    };
}

impl Contents for File {
    fn show(&self, out: &mut Out<'_>) -> Result {
        match self.view {
            View::Vram => self.gpu.show_vram(out),
            View::Engines => self.gpu.show_engines(out),
            View::Queues => self.gpu.show_queues(out),
            View::Registers(group) => self.gpu.hal().dump_registers(group, out),
        }
    }
}

/// Makes the files.
pub(super) fn open(gpu: &Arc<Gpu>, dev: &drm::Device<Driver>) -> Result<Folder> {
    let file = |view| -> Result<KBox<dyn Contents>> {
        let gpu = gpu.clone();
        Ok(KBox::new(File { gpu, view }, GFP_KERNEL)?)
    };
    let mut folder = Folder::of_device(dev, c"ochre");
    folder.file(c"vram", file(View::Vram)?)?;
    folder.file(c"engines", file(View::Engines)?)?;
    folder.file(c"queues", file(View::Queues)?)?;
    folder.folder(c"registers", |registers| {
        for (group, name) in gpu.hal().register_groups().iter().enumerate() {
            registers.file(name, file(View::Registers(group))?)?;
        }
        Ok(())
    })?;
    Ok(folder)
}

impl Gpu {
    /// The allocator's figures, in bytes.
    fn show_vram(&self, out: &mut Out<'_>) -> Result {
        let stats = self.vram.stats();
        for (name, bytes) in [
            ("total", stats.total),
            ("reserved", stats.reserved),
            ("free", stats.free),
            ("free_cleared", stats.free_cleared),
            ("visible", stats.visible),
            ("visible_free", stats.visible_free),
            ("largest_free", stats.largest_free),
        ] {
            put!(out, "{name:<13} {bytes}\n")?;
        }
        for (order, blocks) in stats.free_blocks.iter().enumerate() {
            if *blocks != 0 {
                put!(out, "free blocks of {:>9} KiB: {blocks}\n", 4u64 << order)?;
            }
        }
        Ok(())
    }

    /// What the board says of the slots of each engine.
    fn show_engines(&self, out: &mut Out<'_>) -> Result {
        for (id, engine) in (0u8..).zip(&self.info().engines) {
            put!(out, "{id} {}:", EngineName(engine))?;
            for slot in 0..engine.slots {
                match self.hal().slot(SlotId { engine: id, slot })? {
                    SlotState::Empty => put!(out, " -")?,
                    SlotState::Holds { queue } => put!(out, " queue {queue}")?,
                    SlotState::Unbinding => put!(out, " unbinding")?,
                }
            }
            put!(out, "\n")?;
        }
        Ok(())
    }

    /// Every queue with its fences. `issued`, `written`, `completed`, `signaled` are seqnos: of the last
    /// job that was submitted, that is in the ring, that the driver knows to be over, whose fence was
    /// signalled; `board` is what the board wrote.
    fn show_queues(&self, out: &mut Out<'_>) -> Result {
        put!(out, "id engine priority context slot fence_context ")?;
        put!(out, "issued written completed signaled board ")?;
        put!(out, "backlog ring_read retired busy_ns state\n")?;
        let mut scheduler = self.scheduler.lock();
        for entry in scheduler.entries() {
            self.show_queue(entry, out)?;
        }
        Ok(())
    }

    fn show_queue(&self, entry: &mut Entry, out: &mut Out<'_>) -> Result {
        let queue = &entry.queue;
        put!(out, "{} ", queue.id())?;
        match self.engine(queue.engine()) {
            Ok(engine) => put!(out, "{}", EngineName(engine))?,
            Err(_) => put!(out, "?")?,
        }
        let priority = queue.properties().priority.level();
        put!(out, " {priority} {}", queue.vm().context().0)?;
        match entry.slot {
            Some(slot) => put!(out, " {}", slot.slot)?,
            None => put!(out, " -")?,
        }
        let [issued, written, completed] = entry.progress();
        put!(
            out,
            " {} {issued} {written} {completed} {}",
            queue.fence_context(),
            entry.signaled()
        )?;
        match queue.fence_value() {
            Some(value) => put!(out, " {}", value.seqno)?,
            None => put!(out, " -")?,
        }
        put!(out, " {}", queue.backlog())?;
        match queue.status() {
            Some(status) => put!(
                out,
                " {} {} {} {:?}",
                status.rptr,
                status.retired,
                status.busy_ns,
                status.activity
            )?,
            None => put!(out, " - - - gone")?,
        }
        match entry.condemned {
            Some(cause) => put!(out, " lost: {cause:?}\n"),
            None => put!(out, "\n"),
        }
    }
}
