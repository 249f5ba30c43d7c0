// SPDX-License-Identifier: GPL-2.0
//! Interrupts of a virtio device: MSI-X with a vector for configuration changes and one for the
//! control queue, one vector for both, or the interrupt line.
//!
//! Which of them it is decides what a handler has to ask. A message of its own says what happened.
//! A shared message says only that something did, so the thread looks at the configuration, too.
//! The line has a status register, whose reading lowers it.
//!
//! Used chains are popped in the hard interrupt handler ([`Events::on_control_irq`]). Its thread
//! runs when that says so, or for a configuration change.

use kernel::{
    device::Bound,
    irq::{
        Flags,
        IrqReturn,
        ThreadedHandler,
        ThreadedIrqReturn,
        ThreadedRegistration, //
    },
    pci,
    prelude::*,
    sync::{
        atomic::{
            AtomicFlag,
            Full,
            Release, //
        },
        Arc, //
    }, //
};

use super::{
    regs::isr,
    transport::Transport, //
};

/// Who wants to know.
pub(super) trait Events: Send + Sync + 'static {
    /// The control queue may have used chains. Hard interrupt context. Returns whether
    /// [`Self::on_control_thread`] shall be called.
    fn on_control_irq(&self) -> bool;

    /// What [`Self::on_control_irq`] left. May sleep.
    fn on_control_thread(&self);

    /// The device may have changed its configuration. May sleep.
    fn on_config_change(&self);
}

/// The MSI-X vectors to tell the device; [`None`] with the interrupt line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vectors {
    /// For configuration changes.
    pub(super) config: Option<u16>,
    /// For the control queue.
    pub(super) control: Option<u16>,
}

/// What an interrupt means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The configuration has changed.
    Config,
    /// The control queue has used chains.
    Control,
    /// Either or both, the device does not say.
    Shared,
    /// The status register says.
    Line,
}

/// Handler of one interrupt.
pub(super) struct Handler<E: Events> {
    source: Source,
    transport: Arc<Transport>,
    events: Arc<E>,
    /// For the thread: the control queue has left something to it.
    control: AtomicFlag,
    /// For the thread: look at the configuration.
    config: AtomicFlag,
}

impl<E: Events> Handler<E> {
    fn new(source: Source, transport: &Arc<Transport>, events: &Arc<E>) -> Self {
        Self {
            source,
            transport: transport.clone(),
            events: events.clone(),
            control: AtomicFlag::new(false),
            config: AtomicFlag::new(false),
        }
    }

    /// Whether the interrupt is about the control queue, and about the configuration. Neither: it
    /// is another device's.
    fn causes(&self) -> (bool, bool) {
        match self.source {
            Source::Config => (false, true),
            Source::Control => (true, false),
            Source::Shared => (true, true),
            Source::Line => {
                // A device that is gone has no interrupts.
                let status = self.transport.isr().unwrap_or(0);
                (status & isr::QUEUE != 0, status & isr::CONFIG != 0)
            }
        }
    }
}

impl<E: Events> ThreadedHandler for Handler<E> {
    fn handle(&self) -> ThreadedIrqReturn {
        let (control, config) = self.causes();
        if !control && !config {
            return ThreadedIrqReturn::None;
        }
        let left = control && self.events.on_control_irq();
        if left {
            self.control.store(true, Release);
        }
        if config {
            self.config.store(true, Release);
        }
        if left || config {
            ThreadedIrqReturn::WakeThread
        } else {
            ThreadedIrqReturn::Handled
        }
    }

    fn handle_threaded(&self) -> IrqReturn {
        if self.control.xchg(false, Full) {
            self.events.on_control_thread();
        }
        if self.config.xchg(false, Full) {
            self.events.on_config_change();
        }
        IrqReturn::Handled
    }
}

/// A way in which the device can interrupt.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// A message for each source.
    Messages,
    /// One message for both.
    Message,
    /// The interrupt line.
    Line,
}

impl Mode {
    /// From the best to the one that always works.
    const ALL: [Self; 3] = [Self::Messages, Self::Message, Self::Line];

    fn kind(self) -> pci::IrqType {
        match self {
            Self::Messages | Self::Message => pci::IrqType::MsiX,
            Self::Line => pci::IrqType::Intx,
        }
    }

    fn sources(self) -> &'static [Source] {
        match self {
            Self::Messages => &[Source::Config, Source::Control],
            Self::Message => &[Source::Shared],
            Self::Line => &[Source::Line],
        }
    }

    fn vectors(self) -> Vectors {
        let (config, control) = match self {
            Self::Messages => (Some(0), Some(1)),
            Self::Message => (Some(0), Some(0)),
            Self::Line => (None, None),
        };
        Vectors { config, control }
    }
}

impl Source {
    fn name(self) -> &'static CStr {
        match self {
            Self::Config => c"ochre-virtio-config",
            Self::Control => c"ochre-virtio-control",
            Self::Shared | Self::Line => c"ochre-virtio",
        }
    }

    fn flags(self) -> Flags {
        match self {
            Self::Line => Flags::SHARED,
            Self::Config | Self::Control | Self::Shared => Flags::TRIGGER_NONE,
        }
    }
}

/// The handlers of a device; none runs any more once this has been dropped.
pub(super) struct Interrupts<'a, E: Events> {
    // Dropped in this order: the handlers go before the vectors are given back.
    _handlers: KVec<Pin<KBox<ThreadedRegistration<'a, Handler<E>>>>>,
    _registration: Pin<KBox<pci::IrqVectorRegistration<'a>>>,
    vectors: Vectors,
}

impl<'a, E: Events> Interrupts<'a, E> {
    /// Registers handlers in the best way that kernel and device agree on, and asks the device by
    /// writing the vectors; they have to be written again after each reset.
    ///
    /// The device must have been reset, and `control_queue` must not be set up yet.
    ///
    /// # Safety
    ///
    /// The value must be dropped, not forgotten, before the device is unbound.
    pub(super) unsafe fn register(
        pdev: &'a pci::Device<Bound>,
        transport: &Arc<Transport>,
        events: &Arc<E>,
        control_queue: u16,
    ) -> Result<Self> {
        // As `mode` says. What fails is dropped at once, in the order of `Self`.
        let register_as = |mode: Mode| {
            let sources = mode.sources();
            let wanted = u32::try_from(sources.len())?;
            let types = pci::IrqTypes::default().with(mode.kind());
            let registration = pdev.alloc_irq_vectors(wanted, wanted, types)?;
            let registration = KBox::pin(registration, GFP_KERNEL)?;
            // SAFETY: It stands in a box of its own, which moves into `Self` and is dropped after
            // the handlers (order of the fields; here: `handlers` is declared later). Nobody
            // outside sees the longer lifetime.
            let shared: &'a pci::IrqVectorRegistration<'a> =
                unsafe { &*core::ptr::from_ref(&*registration) };

            let mut handlers = KVec::with_capacity(sources.len(), GFP_KERNEL)?;
            for (index, &source) in sources.iter().enumerate() {
                let handler = Handler::new(source, transport, events);
                // SAFETY: By the contract of this function the registration is dropped and not
                // forgotten.
                let handler = unsafe {
                    ThreadedRegistration::new(
                        shared.index(index)?.into(),
                        source.flags(),
                        source.name(),
                        Ok(handler),
                    )
                };
                handlers.push(KBox::pin_init(handler, GFP_KERNEL)?, GFP_KERNEL)?;
            }

            let vectors = mode.vectors();
            transport.set_config_vector(vectors.config)?;
            transport.set_queue_vector(control_queue, vectors.control)?;
            Ok(Self {
                _handlers: handlers,
                _registration: registration,
                vectors,
            })
        };

        for mode in Mode::ALL {
            match register_as(mode) {
                Err(ENODEV) => return Err(ENODEV),
                Err(error) => dev_dbg!(pdev, "interrupts: no {:?}: {:?}\n", mode, error),
                registered => return registered,
            }
        }
        dev_err!(pdev, "no interrupts to be had\n");
        Err(ENOSPC)
    }

    /// The vectors that the device has to be told after a reset.
    pub(super) fn vectors(&self) -> Vectors {
        self.vectors
    }
}
