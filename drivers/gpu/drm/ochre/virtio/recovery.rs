// SPDX-License-Identifier: GPL-2.0

//! Setting the device up, resetting it, giving it up, and letting it go.
//!
//! In this order, always: nobody sends any more and waiters for answers are woken; the device is
//! reset, after which it does not touch our memory; only then what it had ends, fences and all, and
//! memory is freed. A fence that is signalled promises that the device is through with the memory.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Release, //
        },
        Arc, //
    }, //
};

use super::{
    control::queue::Phase,
    device::{
        Device,
        Ears,
        CONTROL_QUEUE, //
    },
    features::config,
    regs::status,
    watchdog::Watchdog, //
};
use crate::ext::{
    drm_drv::WedgeRecovery,
    pci,
    uapi_virtio as uapi,
    workqueue, //
};

impl Device {
    /// Tells the device where the queue is, and that it may begin. It was reset and the features
    /// were agreed on.
    pub(super) fn start(&self) -> Result {
        let vectors = self.vectors.copy().ok_or(EINVAL)?;
        self.transport.set_config_vector(vectors.config)?;
        let (size, addresses) = {
            let queue = self.queue.lock();
            let ring = queue.ring().ok_or(ENODEV)?;
            (ring.size(), ring.addresses())
        };
        let notify =
            self.transport
                .setup_queue(CONTROL_QUEUE, size, &addresses, vectors.control)?;
        self.notify.populate(notify);
        if self.notify.copy() != Some(notify) {
            // Another place than before the reset.
            return Err(EIO);
        }
        self.transport.add_status(status::DRIVER_OK)?;
        self.queue.lock().start();
        self.room.wake_all();
        Ok(())
    }

    /// Sets the device up again after a reset. [`EIO`]: it is not the same any more.
    fn start_again(&self) -> Result {
        self.transport.add_status(status::ACKNOWLEDGE)?;
        self.transport.add_status(status::DRIVER)?;
        if self.transport.offered_features()? & self.features != self.features {
            return Err(EIO);
        }
        self.transport.accept(self.features)?;
        self.start()
    }

    /// Whether the device says that it can go on only after a reset.
    pub(super) fn needs_reset(&self) -> bool {
        let status = self.transport.status();
        status.is_ok_and(|bits| bits & status::NEEDS_RESET != 0)
    }

    /// The device may have changed its configuration. There are no displays to care about, so their
    /// events are only acknowledged.
    pub(super) fn on_config_change(self: &Arc<Self>) {
        let events = self.transport.config_read32(config::EVENTS_READ);
        if let Ok(events @ 1..) = events {
            let known = events & uapi::VIRTIO_GPU_EVENT_DISPLAY;
            let _ = self.transport.config_write32(config::EVENTS_CLEAR, known);
        }
        if self.needs_reset() {
            let queue = self.queue.lock();
            if queue.phase() == Phase::Running {
                self.watch_now();
            }
        }
    }

    /// Takes note that nothing is sent to the device any more.
    fn leave(&self, phase: Phase) {
        let mut queue = self.queue.lock();
        queue.leave(phase);
        self.generation.store(queue.generation(), Release);
    }

    /// Ends all that the device had; it has forgotten it.
    fn abandon(self: &Arc<Self>, error: Error) {
        self.queue.lock().abandon(error);
        self.drain();
        self.tidy();
    }

    /// Makes sure that the device does not touch our memory any more. Sleeps; only the first time, if
    /// the device does not do as it is told.
    fn silence(&self) -> Result {
        if self.muted.load(Acquire) {
            return Err(ENODEV);
        }
        self.transport.reset().inspect_err(|_| {
            // It may go on by itself, but it does not reach anything.
            pci::clear_master(&self.pdev);
            self.muted.store(true, Release);
        })
    }

    /// Resets the device and sets it up again; if that fails it is given up. From the worker.
    pub(super) fn recover(self: &Arc<Self>, dog: &mut Watchdog, answered: u32) {
        self.leave(Phase::Resetting);
        if self.gone.load(Acquire) {
            // Whoever has it unbound does the rest.
            return;
        }
        let lost = self.generation().saturating_sub(1);
        dev_warn!(
            self.dev(),
            "resetting the device: contexts and resources of generation {lost} are lost\n"
        );
        let hopeless = dog.strike(answered);
        let result = self.silence().and_then(|()| {
            self.abandon(EIO);
            if hopeless {
                return Err(EIO);
            }
            self.start_again()
        });
        match result {
            Ok(()) => self.tell_user_space(WedgeRecovery::None),
            Err(error) => self.give_up(error),
        }
    }

    fn give_up(self: &Arc<Self>, error: Error) {
        dev_err!(self.dev(), "the device is given up: {error:?}\n");
        self.end(true);
        self.tell_user_space(WedgeRecovery::BusReset);
    }

    fn tell_user_space(&self, recovery: WedgeRecovery) {
        let registered = self.registered.lock().clone();
        if let Some(registered) = registered {
            registered.wedged_event(recovery);
        }
    }

    /// Ends everything. `from_worker`: the caller is the worker.
    fn end(self: &Arc<Self>, from_worker: bool) {
        // First whoever waits, for room or for an answer or for anything of the device.
        self.leave(Phase::Gone);
        self.gone.store(true, Release);
        let gone = self.gone_fence.lock().take();
        if let Some(fence) = gone {
            fence.signal(Err(ENODEV));
        }
        self.room.wake_all();
        if !from_worker {
            workqueue::cancel_delayed_sync::<_, 0>(self);
        }
        // An error says that the device was not there to be reset.
        let _ = self.silence();
        self.queue.lock().abandon(ENODEV);
        if !from_worker {
            // Only now: it may wait for an exporter that waits for the answers which there are not.
            workqueue::cancel_sync::<_, 1>(self);
        }
        self.clear();
    }

    /// The device is being unbound, or the machine goes down: ends everything. No hardware access
    /// happens after it has returned, no work runs, and the memory that the device knew is free.
    /// Once is enough, twice does not harm.
    ///
    /// What an interrupt handler was telling at that moment is dropped by [`Self::settle`].
    pub(super) fn unplug(self: &Arc<Self>) {
        self.end(false);
        let (hardware, ears) = {
            let mut queue = self.queue.lock();
            (queue.take_hardware(), queue.set_maker(None))
        };
        drop(hardware);
        drop(ears);
        self.watchdog.lock().let_go();
        if !self.buffers().close() {
            dev_warn!(self.dev(), "a program keeps memory of the device\n");
        }
        *self.registered.lock() = None;
    }

    /// Lets `ears` know from now on when somebody waits for a fence. They have a reference to the
    /// device, until [`Self::unplug`].
    pub(super) fn listen(&self, ears: Arc<Ears>) {
        let before = self.queue.lock().set_maker(Some(ears));
        drop(before);
    }

    /// Drops what is left, when no interrupt handler runs any more.
    pub(super) fn settle(self: &Arc<Self>) {
        self.clear();
        self.buffers().clear();
    }
}
