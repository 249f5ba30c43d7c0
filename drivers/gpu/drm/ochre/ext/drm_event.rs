// SPDX-License-Identifier: GPL-2.0

//! Events that a program reads from its DRM file.
//!
//! C header: [`include/drm/drm_file.h`](srctree/include/drm/drm_file.h)

use core::ptr::NonNull;

use kernel::{
    bindings,
    drm,
    error::to_result,
    prelude::*, //
};

/// An event with nothing but a type, for which its file has kept room.
///
/// The file may be closed before the event is sent; then nobody reads it. Dropping an event that was
/// not sent takes it back. The drop gives up a reference to the DRM device: if it could be the last,
/// which it is not while the device is registered, only in process context; else in any.
///
/// # Invariants
///
/// `dev` is a device that `self` has a reference to. `pending` is an event of it that was reserved and
/// not sent.
pub(crate) struct Event {
    dev: NonNull<bindings::drm_device>,
    pending: Option<NonNull<Pending>>,
}

/// An event as C sees it. The core frees it, wherefore `base` is the first field.
#[repr(C)]
struct Pending {
    base: bindings::drm_pending_event,
    event: bindings::drm_event,
}

const _: () = assert!(core::mem::offset_of!(Pending, base) == 0);

// SAFETY: A pending event may be sent or taken back from any thread; the device's lock guards it.
unsafe impl Send for Event {}
// SAFETY: A shared event offers nothing.
unsafe impl Sync for Event {}

impl Event {
    /// Makes an event of the driver's type `kind` for `file`. Allocates.
    ///
    /// Returns [`ENOMEM`] also when the program has left too many events unread.
    pub(crate) fn reserve<F: drm::file::DriverFile>(
        file: &drm::File<F>,
        kind: u32,
    ) -> Result<Self> {
        // CAST: `drm::File` is a transparent wrapper of an open `drm_file`.
        let file: *mut bindings::drm_file = core::ptr::from_ref(file).cast_mut().cast();
        let mut pending = KBox::new(
            Pending {
                base: Default::default(),
                event: bindings::drm_event {
                    type_: kind,
                    length: u32::try_from(size_of::<bindings::drm_event>())?,
                },
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        // SAFETY: An open file has a minor, which keeps its device alive. The event is valid and says
        // how long it is; it stays in place, as the core frees it.
        let dev = unsafe {
            let dev = (*(*file).minor).dev;
            let event: *mut bindings::drm_event = &mut pending.event;
            to_result(bindings::drm_event_reserve_init(
                dev,
                file,
                &mut pending.base,
                event,
            ))?;
            bindings::drm_dev_get(dev);
            dev
        };
        let pending = KBox::into_raw(pending);
        // INVARIANT: The event was reserved and the reference taken just now.
        // SAFETY: Neither pointer is null.
        Ok(unsafe {
            Self {
                dev: NonNull::new_unchecked(dev),
                pending: Some(NonNull::new_unchecked(pending)),
            }
        })
    }

    /// Lets the program read the event. Does nothing the second time.
    ///
    /// In any context, also a hard interrupt; takes the device's `event_lock`.
    pub(crate) fn send(&mut self) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        // SAFETY: By the type invariant. The core owns the event from now on, also when the file is
        // closed.
        unsafe { bindings::drm_send_event(self.dev.as_ptr(), pending.as_ptr().cast()) };
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(pending) = self.pending.take() {
            // SAFETY: By the type invariant; this frees the event.
            unsafe { bindings::drm_event_cancel_free(self.dev.as_ptr(), pending.as_ptr().cast()) };
        }
        // SAFETY: By the type invariant; the reference is given up.
        unsafe { bindings::drm_dev_put(self.dev.as_ptr()) };
    }
}

#[kunit_tests(ochre_ext_drm_event)]
mod tests {
    use kernel::types::Opaque;

    use super::{
        super::gem::test_driver::{
            with_device,
            Driver,
            File, //
        },
        *,
    };

    const KIND: u32 = 0x9000_0000;

    /// As much of an open file as events need.
    struct Reader(Pin<KBox<Opaque<bindings::drm_file>>>);

    impl Reader {
        /// A file with room for `events`.
        fn new(dev: &drm::Device<Driver>, events: usize) -> Result<Self> {
            let dev: *mut bindings::drm_device = core::ptr::from_ref(dev).cast_mut().cast();
            let file = KBox::pin(Opaque::<bindings::drm_file>::zeroed(), GFP_KERNEL)?;
            let raw = file.get();
            // SAFETY: The file is zeroed memory of ours, and the device is registered.
            unsafe {
                (*raw).minor = (*dev).primary;
                (*raw).event_space = i32::try_from(events * size_of::<bindings::drm_event>())?;
                for head in [
                    &raw mut (*raw).pending_event_list,
                    &raw mut (*raw).event_list,
                ] {
                    (*head).next = head;
                    (*head).prev = head;
                }
                bindings::__init_waitqueue_head(
                    &raw mut (*raw).event_wait,
                    c"ochre-test".as_char_ptr(),
                    kernel::static_lock_class!().as_ptr(),
                );
            }
            Ok(Self(file))
        }

        fn file(&self) -> &drm::File<File> {
            // SAFETY: `Event` uses what `new` has filled in.
            unsafe { drm::File::from_raw(self.0.get()) }
        }

        /// Takes one event out, as `read(2)` does.
        fn read(&self) -> Option<u32> {
            // SAFETY: The list is valid, its elements are `Pending` from `link` back, and nobody else
            // uses the file.
            unsafe {
                let head = &raw mut (*self.0.get()).event_list;
                let link = (*head).next;
                if core::ptr::eq(link, head) {
                    return None;
                }
                (*(*link).next).prev = head;
                (*head).next = (*link).next;
                let base = kernel::container_of!(link, bindings::drm_pending_event, link);
                let pending = KBox::from_raw(base.cast::<Pending>());
                (*self.0.get()).event_space += i32::try_from(pending.event.length).unwrap_or(0);
                Some(pending.event.type_)
            }
        }
    }

    #[test]
    fn sent_event_can_be_read_once() -> Result {
        with_device(c"ochre-events", |dev, _| {
            let reader = Reader::new(dev, 1)?;
            let mut event = Event::reserve(reader.file(), KIND)?;
            assert_eq!(reader.read(), None);
            event.send();
            event.send();
            assert_eq!(reader.read(), Some(KIND));
            assert_eq!(reader.read(), None);
            Ok(())
        })
    }

    #[test]
    fn file_has_room_for_so_many_events_and_no_more() -> Result {
        with_device(c"ochre-events", |dev, _| {
            let reader = Reader::new(dev, 2)?;
            let first = Event::reserve(reader.file(), KIND)?;
            let second = Event::reserve(reader.file(), KIND + 1)?;
            assert_eq!(Event::reserve(reader.file(), KIND).err(), Some(ENOMEM));
            drop(first);
            let mut third = Event::reserve(reader.file(), KIND + 2)?;
            third.send();
            drop(third);
            drop(second);
            assert_eq!(reader.read(), Some(KIND + 2));
            assert_eq!(reader.read(), None);
            Ok(())
        })
    }
}
