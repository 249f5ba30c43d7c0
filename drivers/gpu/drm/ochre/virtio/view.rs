// SPDX-License-Identifier: GPL-2.0

//! How the CPU sees a blob of the host: through the [window](super::window), if the device wants.
//!
//! A view begins as nothing. It is *asked* for when the blob is made, or later if the program said
//! so: a place is taken and the device gets a command. Its answer decides, once and for all, whether
//! the blob is *shown*, with which caching, or the view *refused*. Whoever needs to know waits for
//! the answer, interruptibly and without a lock.

use core::mem;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use super::{
    bo::Remains,
    control::{
        CleanupNode,
        Command,
        Reply,
        Room, //
    },
    device::Device,
    keep::Keep,
    window::{
        Place,
        Window, //
    },
    wire, //
};
use crate::ext::{
    gem::Caching,
    pci::WindowRange,
    uapi_virtio as uapi, //
};

/// Bytes of the answer behind its header: how to cache, and padding.
const ANSWER_BYTES: usize = 8;

/// Everything that asking takes and that could fail.
pub(super) struct Show {
    place: Place,
    reply: Arc<Reply>,
    unmap: CleanupNode,
}

impl Show {
    /// Takes a place for `len` bytes in the window. Waits, interruptibly and with no lock held, if
    /// there is none but one is about to come back.
    ///
    /// [`ENOSPC`], [`ENOMEM`], [`ENODEV`], [`ERESTARTSYS`].
    pub(super) fn new(device: &Arc<Device>, window: &Window, len: u64) -> Result<Self> {
        Ok(Self {
            unmap: CleanupNode::new(GFP_KERNEL_ACCOUNT)?,
            reply: Reply::new(device, ANSWER_BYTES)?,
            place: match window.take(len) {
                Err(error) if error == ENOSPC => {
                    // Blobs that are only kept by commands that are over go with them.
                    device.reap();
                    device.tidy();
                    if window.is_being_left() {
                        catch_up(device)?;
                    }
                    window.take(len)?
                }
                taken => taken?,
            },
        })
    }
}

/// Waits until the device has answered all that it was told before, and drops what that kept alive:
/// a program that has freed a blob expects its place to be free.
#[cold]
fn catch_up(device: &Arc<Device>) -> Result {
    let reply = Reply::new(device, wire::DISPLAY_INFO_BYTES)?;
    let mut room = device.reserve(1)?;
    let command = Command::new(wire::get_display_info()).reply(reply.clone());
    device.submit(&mut room, command);
    drop(room);
    device.flush();
    match reply.wait(None) {
        Err(error) if error == ERESTARTSYS || error == ENODEV => return Err(error),
        // Refused or lost in a reset, it says that all before it is over.
        _ => {}
    }
    device.tidy();
    Ok(())
}

/// Where the CPU finds a blob.
pub(super) struct Seen {
    /// The part of the window.
    pub(super) range: WindowRange,
    /// How it may be cached.
    pub(super) caching: Caching,
}

/// Only ever changes to a later one.
enum State {
    Nothing,
    Asked(Show),
    Shown(Show, Caching),
    /// The device shows it, in a way that makes no sense: its place is taken all the same.
    Unusable(Show, Error),
    Refused(Error),
}

/// The view of one blob.
#[pin_data]
pub(super) struct View {
    /// A leaf but for the locks of the control queue and of the window.
    #[pin]
    state: Mutex<State>,
}

/// How far a view is.
enum Progress {
    Nothing,
    Asked(Arc<Reply>),
    Shown(Seen),
}

impl View {
    /// Nobody has asked.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            state <- new_mutex!(State::Nothing, "ochre_view"),
        })
    }

    /// Asks the device to show the resource `id`, if nobody has. Whoever calls has to flush.
    pub(super) fn ask(&self, device: &Arc<Device>, room: &mut Room<'_>, id: u32, show: Show) {
        let mut state = self.state.lock();
        if matches!(*state, State::Nothing) {
            let request = wire::resource_map_blob(id, show.place.offset());
            device.submit(room, Command::new(request).reply(show.reply.clone()));
            *state = State::Asked(show);
        }
    }

    fn progress(&self) -> Result<Progress> {
        match &*self.state.lock() {
            State::Nothing => Ok(Progress::Nothing),
            State::Asked(show) => Ok(Progress::Asked(show.reply.clone())),
            State::Shown(show, caching) => Ok(Progress::Shown(Seen {
                range: show.place.range().clone(),
                caching: *caching,
            })),
            State::Unusable(_, error) | State::Refused(error) => Err(*error),
        }
    }

    /// Notes the answer of the device: that it shows the blob, with which caching, or that it does not.
    fn settle(&self, answer: Result<Result<Caching>>) {
        let mut state = self.state.lock();
        let now = mem::replace(&mut *state, State::Nothing);
        *state = match (now, answer) {
            (State::Asked(show), Ok(Ok(caching))) => State::Shown(show, caching),
            (State::Asked(show), Ok(Err(error))) => State::Unusable(show, error),
            // The device does not show it, so its place is free.
            (State::Asked(_), Err(error)) => State::Refused(error),
            // Another thread was faster.
            (now, _) => now,
        };
    }

    /// Waits until the blob is shown, interruptibly: no lock may be held but the `mmap` lock of
    /// `mmap()`, which the kernel takes.
    ///
    /// `ask` is called if nobody has asked the device; it does so, or fails. Errors: those of `ask`;
    /// what the device answered; [`EIO`] if it was reset; [`ENODEV`]; [`ERESTARTSYS`].
    pub(super) fn wait(&self, ask: impl FnOnce() -> Result) -> Result<Seen> {
        let mut progress = self.progress()?;
        if matches!(progress, Progress::Nothing) {
            ask()?;
            progress = self.progress()?;
        }
        if let Progress::Asked(reply) = progress {
            match reply.wait(None) {
                Ok(()) => self.settle(Ok(caching(&reply))),
                // Asked for, but the task does not want to wait.
                Err(error) if error == ERESTARTSYS => return Err(error),
                Err(error) => self.settle(Err(error)),
            }
            progress = self.progress()?;
        }
        match progress {
            Progress::Shown(seen) => Ok(seen),
            Progress::Nothing | Progress::Asked(_) => Err(EIO),
        }
    }

    /// Where the blob is shown, if it is known to be.
    pub(super) fn seen(&self) -> Option<Seen> {
        match self.progress() {
            Ok(Progress::Shown(seen)) => Some(seen),
            _ => None,
        }
    }

    /// Tells the device not to show the resource `id`, which was made in `generation`, any more.
    /// `remains` is kept until it has answered. Whoever calls has to flush.
    pub(super) fn withdraw(
        &self,
        device: &Arc<Device>,
        generation: u64,
        id: u32,
        remains: &Arc<Remains>,
    ) {
        let state = mem::replace(&mut *self.state.lock(), State::Refused(ENODEV));
        // What the device has refused by now, it will refuse again: without harm.
        if let State::Asked(mut show) | State::Shown(mut show, _) | State::Unusable(mut show, _) =
            state
        {
            show.place.leave();
            device.submit_cleanup(
                show.unmap,
                generation,
                wire::resource_unmap_blob(id),
                Some(Keep::Place(show.place, remains.clone())),
            );
        }
    }
}

/// What the device says about caching in its answer.
fn caching(reply: &Reply) -> Result<Caching> {
    let mut info = [0; size_of::<u32>()];
    if reply.read(&mut info)? < info.len() {
        return Err(EIO);
    }
    decode_caching(u32::from_le_bytes(info))
}

/// Understands `map_info`. A device that names nothing means memory like any other.
fn decode_caching(info: u32) -> Result<Caching> {
    match info & uapi::VIRTIO_GPU_MAP_CACHE_MASK {
        uapi::VIRTIO_GPU_MAP_CACHE_NONE | uapi::VIRTIO_GPU_MAP_CACHE_CACHED => Ok(Caching::Cached),
        uapi::VIRTIO_GPU_MAP_CACHE_UNCACHED => Ok(Caching::Uncached),
        uapi::VIRTIO_GPU_MAP_CACHE_WC => Ok(Caching::WriteCombined),
        _ => Err(EIO),
    }
}

#[kunit_tests(ochre_virtio_view)]
mod tests {
    use super::*;

    #[test]
    fn caching_is_what_the_device_names_and_nonsense_is_an_error() -> Result {
        assert_eq!(decode_caching(0)?, Caching::Cached);
        assert_eq!(decode_caching(1)?, Caching::Cached);
        assert_eq!(decode_caching(2)?, Caching::Uncached);
        assert_eq!(decode_caching(3)?, Caching::WriteCombined);
        assert_eq!(decode_caching(4).err(), Some(EIO));
        // Bits beyond the mask are for later versions of the protocol.
        assert_eq!(decode_caching(0xf1)?, Caching::Cached);
        Ok(())
    }
}
