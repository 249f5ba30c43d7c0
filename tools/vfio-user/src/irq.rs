// SPDX-License-Identifier: GPL-2.0
//! Interrupts: eventfds of the client, one per vector.
//!
//! The client says with SET_IRQS which eventfd a vector signals. The device fires a vector from any
//! thread: one uncontended lock and one write(2), which never blocks.

use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::device::Irq;
use crate::device::IrqFlags;

bitflags::bitflags! {
    /// Flags of SET_IRQS (`VFIO_IRQ_SET_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct SetFlags: u32 {
        const DATA_NONE = 1 << 0;
        const DATA_BOOL = 1 << 1;
        const DATA_EVENTFD = 1 << 2;
        const ACTION_MASK = 1 << 3;
        const ACTION_UNMASK = 1 << 4;
        const ACTION_TRIGGER = 1 << 5;

        const DATA = Self::DATA_NONE.bits() | Self::DATA_BOOL.bits() | Self::DATA_EVENTFD.bits();
        const ACTION = Self::ACTION_MASK.bits()
            | Self::ACTION_UNMASK.bits()
            | Self::ACTION_TRIGGER.bits();
    }
}

/// What became of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The client's eventfd was signalled.
    Delivered,
    /// The vector is masked; the interrupt is remembered and delivered when it is unmasked.
    Masked,
    /// The client has given no (working) eventfd for the vector; the interrupt is lost.
    Unassigned,
    /// The device has no such vector.
    NoSuchVector,
}

/// The state of one vector.
#[derive(Debug, Default)]
struct Vector {
    trigger: Option<OwnedFd>,
    /// Signalled when the vector becomes masked.
    on_mask: Option<OwnedFd>,
    /// Signalled when the vector becomes unmasked.
    on_unmask: Option<OwnedFd>,
    masked: bool,
    /// An interrupt waits for the end of the mask.
    pending: bool,
}

impl Vector {
    fn fire(&mut self) -> Delivery {
        if self.masked {
            self.pending = true;
            return Delivery::Masked;
        }
        match &self.trigger {
            Some(fd) if signal(fd) => Delivery::Delivered,
            _ => Delivery::Unassigned,
        }
    }

    fn mask(&mut self) {
        if !self.masked {
            self.masked = true;
            self.on_mask.as_ref().map(signal);
        }
    }

    fn unmask(&mut self) {
        if self.masked {
            self.masked = false;
            self.on_unmask.as_ref().map(signal);
            if std::mem::take(&mut self.pending) {
                self.fire();
            }
        }
    }
}

/// Adds 1 to an eventfd; says whether somebody will hear it.
fn signal(fd: &OwnedFd) -> bool {
    match rustix::io::write(fd, &1u64.to_ne_bytes()) {
        // A counter at its limit is a signal that has not been taken yet.
        Ok(_) | Err(Errno::AGAIN) => true,
        Err(error) => {
            log::warn!("eventfd of an interrupt: {error}");
            false
        }
    }
}

/// All vectors of one interrupt type.
#[derive(Debug)]
struct Type {
    flags: IrqFlags,
    /// Each lock guards one vector and is held only for writes to non-blocking descriptors. No two
    /// are held together.
    vectors: Vec<Mutex<Vector>>,
}

/// The interrupts of a device, by type (see [`crate::index::irq`]) and vector.
#[derive(Debug)]
pub struct Interrupts {
    types: Vec<Type>,
}

/// The fixed part of a SET_IRQS message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetIrqs {
    pub(crate) flags: u32,
    pub(crate) index: u32,
    pub(crate) start: u32,
    pub(crate) count: u32,
}

/// What SET_IRQS does to its vectors.
#[derive(Clone, Copy)]
enum Action {
    Mask,
    Unmask,
    Trigger,
}

impl Interrupts {
    /// The given types, no vector with an eventfd.
    pub fn new(irqs: &[Irq]) -> Self {
        let types = irqs
            .iter()
            .map(|irq| Type {
                flags: irq.flags,
                vectors: (0..irq.count).map(|_| Mutex::default()).collect(),
            })
            .collect();
        Self { types }
    }

    /// Signals a vector. Never blocks; from any thread.
    pub fn fire(&self, index: u32, vector: u32) -> Delivery {
        match self.vector(index, vector) {
            Some(mut vector) => vector.fire(),
            None => Delivery::NoSuchVector,
        }
    }

    /// Whether an interrupt waits for the end of the vector's mask.
    pub fn pending(&self, index: u32, vector: u32) -> bool {
        self.vector(index, vector)
            .is_some_and(|vector| vector.pending)
    }

    /// Forgets eventfds, masks and pending interrupts of all vectors.
    pub(crate) fn clear(&self) {
        self.types.iter().for_each(Type::clear);
    }

    /// Carries out a SET_IRQS message; `data` follows its fixed part. `fds` that are not kept are closed.
    pub(crate) fn set(
        &self,
        request: SetIrqs,
        data: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<(), Errno> {
        let flags = SetFlags::from_bits(request.flags).ok_or(Errno::INVAL)?;
        let irq = self.types.get(request.index as usize).ok_or(Errno::INVAL)?;
        let action = match flags & SetFlags::ACTION {
            SetFlags::ACTION_MASK => Action::Mask,
            SetFlags::ACTION_UNMASK => Action::Unmask,
            SetFlags::ACTION_TRIGGER => Action::Trigger,
            _ => return Err(Errno::INVAL),
        };
        if !matches!(action, Action::Trigger) && !irq.flags.contains(IrqFlags::MASKABLE) {
            return Err(Errno::INVAL);
        }
        let data_kind = flags & SetFlags::DATA;
        if data_kind != SetFlags::DATA_EVENTFD && !fds.is_empty() {
            return Err(Errno::INVAL);
        }
        if data_kind != SetFlags::DATA_BOOL && !data.is_empty() {
            return Err(Errno::INVAL);
        }

        // The one message about no vector: it switches the whole type off, also one without vectors.
        if request.count == 0 {
            let disable = matches!(action, Action::Trigger)
                && data_kind == SetFlags::DATA_NONE
                && request.start == 0;
            if !disable {
                return Err(Errno::INVAL);
            }
            irq.clear();
            return Ok(());
        }

        let start = request.start as usize;
        let end = start
            .checked_add(request.count as usize)
            .ok_or(Errno::INVAL)?;
        let vectors = irq.vectors.get(start..end).ok_or(Errno::INVAL)?;
        match data_kind {
            SetFlags::DATA_NONE => vectors.iter().for_each(|vector| act(vector, action)),
            SetFlags::DATA_BOOL => {
                if data.len() != vectors.len() {
                    return Err(Errno::INVAL);
                }
                vectors
                    .iter()
                    .zip(data)
                    .filter(|(_, chosen)| **chosen != 0)
                    .for_each(|(vector, _)| act(vector, action));
            }
            SetFlags::DATA_EVENTFD => return assign(irq, vectors, action, fds),
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn vector(&self, index: u32, vector: u32) -> Option<MutexGuard<'_, Vector>> {
        let vector = self
            .types
            .get(index as usize)?
            .vectors
            .get(vector as usize)?;
        Some(lock(vector))
    }
}

impl Type {
    fn clear(&self) {
        self.vectors
            .iter()
            .for_each(|vector| *lock(vector) = Vector::default());
    }
}

/// A vector is consistent after every statement, so a panic of another holder did not break it.
fn lock(vector: &Mutex<Vector>) -> MutexGuard<'_, Vector> {
    vector.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does by hand what the eventfd forms arrange.
fn act(vector: &Mutex<Vector>, action: Action) {
    let mut vector = lock(vector);
    match action {
        Action::Mask => vector.mask(),
        Action::Unmask => vector.unmask(),
        Action::Trigger => {
            vector.fire();
        }
    }
}

/// Gives each vector its eventfd, or, without any, takes them away.
fn assign(
    irq: &Type,
    vectors: &[Mutex<Vector>],
    action: Action,
    fds: Vec<OwnedFd>,
) -> Result<(), Errno> {
    if !irq.flags.contains(IrqFlags::EVENTFD) || (!fds.is_empty() && fds.len() != vectors.len()) {
        return Err(Errno::INVAL);
    }
    for fd in &fds {
        // Signalling must not block, whatever the client has sent.
        let flags = rustix::fs::fcntl_getfl(fd.as_fd())?;
        rustix::fs::fcntl_setfl(fd.as_fd(), flags | OFlags::NONBLOCK)?;
    }
    let mut fds = fds.into_iter();
    for vector in vectors {
        let fd = fds.next();
        let mut vector = lock(vector);
        match action {
            Action::Mask => vector.on_mask = fd,
            Action::Unmask => vector.on_unmask = fd,
            Action::Trigger => vector.trigger = fd,
        }
    }
    Ok(())
}
