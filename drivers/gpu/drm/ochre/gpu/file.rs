// SPDX-License-Identifier: GPL-2.0

//! An open file: its VMs, its queues, and what it has used.

use kernel::{
    drm,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

use crate::{
    gpu::{
        driver::Driver,
        handles::Handles,
        queue::Queue,
        vm::Vm,
        Gpu, //
    },
    hal::EngineClass, //
};

/// Engine time of one file, by class. Outlives the file as long as a queue of it runs.
pub(crate) struct Usage {
    busy_ns: [Atomic<u64>; EngineClass::ALL.len()],
}

impl Usage {
    /// Nothing used yet.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(
            Self {
                busy_ns: [Atomic::new(0), Atomic::new(0)],
            },
            GFP_KERNEL_ACCOUNT,
        )?)
    }

    /// Adds board time of one queue.
    pub(crate) fn add_busy(&self, class: EngineClass, ns: u64) {
        if let Some(sum) = self.busy_ns.get(class.index()) {
            sum.add(ns, Relaxed);
        }
    }

    /// Board time in ns, by [`EngineClass::index`].
    pub(crate) fn busy_ns(&self) -> [u64; EngineClass::ALL.len()] {
        self.busy_ns.each_ref().map(|sum| sum.load(Relaxed))
    }
}

/// What belongs to one open file.
#[pin_data(PinnedDrop)]
pub(crate) struct File {
    gpu: Arc<Gpu>,
    #[pin]
    vms: Handles<Vm>,
    #[pin]
    queues: Handles<Queue>,
    usage: Arc<Usage>,
}

impl File {
    /// The file's VMs.
    pub(crate) fn vms(&self) -> &Handles<Vm> {
        &self.vms
    }

    /// The file's queues.
    pub(crate) fn queues(&self) -> &Handles<Queue> {
        &self.queues
    }

    /// Where its queues account what they use.
    pub(crate) fn usage(&self) -> &Arc<Usage> {
        &self.usage
    }

    /// Board time in ns that the file's queues have used until now, by [`EngineClass::index`].
    pub(crate) fn busy_ns(&self) -> [u64; EngineClass::ALL.len()] {
        self.queues.for_each(|queue| {
            queue.status();
        });
        self.usage.busy_ns()
    }
}

impl drm::file::DriverFile for File {
    type Driver = Driver;

    fn open(device: &drm::Device<Driver>) -> Result<Pin<KBox<Self>>> {
        let gpu = device.gpu();
        let info = gpu.info();
        KBox::try_pin_init(
            try_pin_init!(Self {
                gpu: gpu.clone(),
                vms <- Handles::new(usize::from(info.contexts)),
                queues <- Handles::new(usize::from(info.queues)),
                usage: Usage::new()?,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }
}

#[pinned_drop]
impl PinnedDrop for File {
    fn drop(self: Pin<&mut Self>) {
        // What still runs is stopped by the scheduler's worker, which keeps the queues and their
        // VMs alive until then.
        while let Some(queue) = self.queues.take_one() {
            self.gpu.destroy_queue(&queue);
        }
    }
}
