// SPDX-License-Identifier: GPL-2.0
//! Interrupts of og1: MSI-X with one vector for faults, one for the alarm and one per engine.
//!
//! Each vector has a threaded handler. An engine's needs no register: what happened stands in the
//! memory of the queues, where `gpu/` looks for it. Specification, section "Interrupts".

use kernel::{
    device::Bound,
    irq::{
        Flags,
        IrqReturn,
        ThreadedHandler,
        ThreadedRegistration, //
    },
    pci,
    prelude::*,
    sync::Arc, //
};

use super::{
    board::Og1,
    hw::regs::{
        IRQ_THERMAL,
        IRQ_THROTTLE,
        VECTOR_ENGINE0,
        VECTOR_FAULT, //
    },
    regs, //
};
use crate::{
    ext::tracepoint,
    gpu::device::Gpu,
    hal::EngineId, //
};

/// What a vector is for.
#[derive(Clone, Copy)]
enum Purpose {
    /// Faults, and what concerns the whole board.
    Fault,
    /// The alarm.
    Time,
    /// An engine.
    Engine(EngineId),
    /// An engine that the fuses switched off.
    Nothing,
}

impl Purpose {
    fn of(board: &Og1, vector: usize) -> Result<Self> {
        Ok(match vector {
            VECTOR_FAULT => Self::Fault,
            v if v < VECTOR_ENGINE0 => Self::Time,
            v => board
                .engine_at(u8::try_from(v - VECTOR_ENGINE0)?)
                .map_or(Self::Nothing, Self::Engine),
        })
    }

    fn name(self) -> &'static CStr {
        match self {
            Self::Fault => c"ochre-fault",
            Self::Time => c"ochre-time",
            Self::Engine(_) | Self::Nothing => c"ochre-engine",
        }
    }
}

/// Handler of one vector.
pub(super) struct Vector {
    index: usize,
    purpose: Purpose,
    board: Arc<Og1>,
    gpu: Arc<Gpu>,
}

impl Vector {
    /// Clears what is pending. A board that is gone has nothing to clear.
    ///
    /// Returns what was.
    fn acknowledge(&self) -> Result<u32> {
        let regs = self.board.regs();
        let pending = regs.read_at::<regs::IRQ_STATUS>(self.index)?;
        regs.write_at(self.index, pending)?;
        Ok(pending.into())
    }
}

impl ThreadedHandler for Vector {
    fn handle_threaded(&self) -> IrqReturn {
        // CAST: One of at most 18.
        tracepoint::irq(self.gpu.dev(), self.index as u32);
        match self.purpose {
            Purpose::Engine(engine) => self.gpu.on_engine_event(engine),
            Purpose::Fault => {
                // Before the ring is read, so that a fault that comes meanwhile raises anew.
                let pending = self.acknowledge();
                self.gpu.on_fault();
                // Ends of changes need no look: the alarm is set for each.
                if pending.is_ok_and(|pending| pending & (IRQ_THERMAL | IRQ_THROTTLE) != 0) {
                    self.gpu.on_power_event();
                }
            }
            Purpose::Time => {
                let _ = self.acknowledge();
                self.gpu.on_power_event();
            }
            Purpose::Nothing => {
                let _ = self.acknowledge();
            }
        }
        IrqReturn::Handled
    }
}

/// A registered handler.
type Handler<'a> = Pin<KBox<ThreadedRegistration<'a, Vector>>>;

/// All handlers of a board; none runs any more once this has been dropped.
pub(super) struct Interrupts<'a> {
    // Dropped in this order: the handlers go before the vectors are given back.
    _handlers: KVec<Handler<'a>>,
    _vectors: Pin<KBox<pci::IrqVectorRegistration<'a>>>,
}

impl<'a> Interrupts<'a> {
    /// Allocates the board's vectors and registers a handler for each. The board keeps them masked
    /// until it is told otherwise.
    ///
    /// # Safety
    ///
    /// The value must be dropped, not forgotten, before the device is unbound.
    pub(super) unsafe fn register(
        pdev: &'a pci::Device<Bound>,
        board: &Arc<Og1>,
        gpu: &Arc<Gpu>,
    ) -> Result<Self> {
        let count = board.vectors();
        let wanted = u32::try_from(count)?;
        let types = pci::IrqTypes::default().with(pci::IrqType::MsiX);
        let vectors = pdev
            .alloc_irq_vectors(wanted, wanted, types)
            .inspect_err(|_| dev_err!(pdev, "no {} MSI-X vectors to be had\n", wanted))?;
        let vectors = KBox::pin(vectors, GFP_KERNEL)?;

        // SAFETY: The vectors stand in a box of their own, which moves into `Self` and is dropped
        // after the handlers (order of the fields; here: `handlers` is declared later). Nobody
        // outside sees the longer lifetime.
        let shared: &'a pci::IrqVectorRegistration<'a> =
            unsafe { &*core::ptr::from_ref(&*vectors) };

        let mut handlers = KVec::with_capacity(count, GFP_KERNEL)?;
        for index in 0..count {
            let purpose = Purpose::of(board, index)?;
            let vector = Vector {
                index,
                purpose,
                board: board.clone(),
                gpu: gpu.clone(),
            };
            // SAFETY: By the contract of this function the registration is dropped and not
            // forgotten.
            let handler = unsafe {
                ThreadedRegistration::new(
                    shared.index(index)?.into(),
                    Flags::TRIGGER_NONE,
                    purpose.name(),
                    Ok(vector),
                )
            };
            handlers.push(KBox::pin_init(handler, GFP_KERNEL)?, GFP_KERNEL)?;
        }

        Ok(Self {
            _handlers: handlers,
            _vectors: vectors,
        })
    }
}
