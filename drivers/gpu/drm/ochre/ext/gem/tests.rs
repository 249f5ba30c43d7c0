// SPDX-License-Identifier: GPL-2.0

//! Objects on devices without hardware: what becomes of them as dma-bufs, and used together.

use kernel::sync::atomic::Relaxed;

use super::{
    test_driver::{
        byte,
        dma_buf_of,
        import_to,
        is_attached,
        object,
        with_device,
        Bo,
        MOVES, //
    },
    *, //
};
use crate::ext::{
    dma_fence::{
        context_alloc,
        Fence,
        TEST_NAME, //
    },
    dma_resv::Usage, //
};

#[kunit_tests(ochre_ext_gem)]
mod objects {
    use super::*;

    #[test]
    fn kernel_writes_to_an_object_through_its_dma_buf() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let obj = object(drm, dev, 3)?;
            let buf = dma_buf_of(&obj)?;
            assert_eq!(buf.size(), 3 * PAGE_SIZE);
            assert_eq!(obj.exports.load(Relaxed), 1);

            let mut map = bindings::iosys_map::default();
            // SAFETY: The dma-buf is valid; it has 3 pages.
            unsafe {
                to_result(bindings::dma_buf_vmap_unlocked(buf.as_raw(), &mut map))?;
                let memory: *mut u8 = map.__bindgen_anon_1.vaddr.cast();
                memory.add(PAGE_SIZE + 904).write(42);
                bindings::dma_buf_vunmap_unlocked(buf.as_raw(), &mut map);
            }
            assert_eq!(byte(&obj, PAGE_SIZE + 904)?, 42);
            assert_eq!(byte(&obj, 904)?, 0);
            Ok(())
        })
    }

    #[test]
    fn own_dma_buf_gives_the_same_object_back() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let obj = object(drm, dev, 1)?;
            let buf = dma_buf_of(&obj)?;
            let again = import_to(drm, &buf)?;
            assert!(again.is_same(&obj));
            assert!(!is_attached(&buf));
            Ok(())
        })
    }

    #[test]
    fn dma_buf_keeps_its_object_alive() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let buf = dma_buf_of(&*object(drm, dev, 1)?)?;
            assert!(import_to(drm, &buf)?.pages.as_ref().is_some());
            Ok(())
        })
    }

    #[test]
    fn other_device_gets_the_memory_and_the_fences() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let obj = object(drm, dev, 5)?;
            let buf = dma_buf_of(&obj)?;
            with_device(c"ochre-importer", |other, _| {
                let imported = import_to(other, &buf)?;
                assert!(!imported.is_same(&obj));
                assert_eq!(imported.size(), 5 * PAGE_SIZE);
                assert!(ptr::eq(imported.resv(), obj.resv()));
                assert!(is_attached(&buf));

                let attachment = imported.attachment.as_ref().ok_or(EINVAL)?;
                let total = attachment.with_segments(|segments| segments.map(|s| s.len).sum());
                assert_eq!(total, Ok(5 * PAGE_SIZE as u64));

                let fence = Fence::prealloc(GFP_KERNEL)?.init(TEST_NAME, context_alloc(1), 1);
                obj.resv()
                    .publish(Usage::Write, || Some(fence.reference()))?;
                assert!(!imported.resv().is_signaled(Usage::Write));
                Ok(())
            })?;
            assert!(!is_attached(&buf));
            Ok(())
        })
    }

    #[test]
    fn imported_memory_outlives_its_object_while_the_attachment_is_kept() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let buf = dma_buf_of(&*object(drm, dev, 2)?)?;
            with_device(c"ochre-importer", |other, _| {
                let imported = import_to(other, &buf)?;
                let kept = imported.attachment.clone().ok_or(EINVAL)?;
                drop(imported);
                assert!(is_attached(&buf));
                assert!(kept.with_segments(|_| ()).is_ok());
                drop(kept);
                assert!(!is_attached(&buf));
                Ok(())
            })
        })
    }

    #[test]
    fn importer_is_told_once_that_its_memory_moves() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let buf = dma_buf_of(&*object(drm, dev, 2)?)?;
            with_device(c"ochre-importer", |other, _| {
                let imported = import_to(other, &buf)?;
                let attachment = imported.attachment.as_ref().ok_or(EINVAL)?;
                let before = MOVES.load(Relaxed);
                for _ in 0..2 {
                    // SAFETY: The lock is taken around the call, as it asks.
                    unsafe {
                        bindings::dma_resv_lock(buf.resv().as_raw(), ptr::null_mut());
                        bindings::dma_buf_invalidate_mappings(buf.as_raw());
                        bindings::dma_resv_unlock(buf.resv().as_raw());
                    }
                }
                assert_eq!(MOVES.load(Relaxed), before + 1);
                assert_eq!(attachment.with_segments(|_| ()), Err(EAGAIN));
                attachment.map()?;
                assert_eq!(attachment.with_segments(|_| ()), Ok(()));
                Ok(())
            })
        })
    }

    #[test]
    fn unbound_importer_has_no_mapping_and_gets_none() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let buf = dma_buf_of(&*object(drm, dev, 2)?)?;
            let kept = with_device(c"ochre-importer", |other, _| {
                let imported = import_to(other, &buf)?;
                imported.attachment.clone().ok_or(EINVAL)
            })?;
            assert_eq!(kept.with_segments(|_| ()), Err(EAGAIN));
            assert_eq!(kept.map(), Err(ENODEV));
            drop(kept);
            assert!(!is_attached(&buf));
            Ok(())
        })
    }

    #[test]
    fn object_that_shares_nothing_is_not_attached_to() -> Result {
        with_device(c"ochre-exporter", |drm, _| {
            let obj = new_object::<Bo>(drm, PAGE_SIZE, None)?;
            let buf = dma_buf_of(&obj)?;
            with_device(c"ochre-importer", |other, _| {
                assert_eq!(import_to(other, &buf).err(), Some(EOPNOTSUPP));
                Ok(())
            })?;
            assert!(!is_attached(&buf));
            Ok(())
        })
    }

    #[test]
    fn array_publishes_one_fence_to_all_its_objects() -> Result {
        with_device(c"ochre-exporter", |drm, _| {
            let first = new_object::<Bo>(drm, PAGE_SIZE, None)?;
            let second = new_object::<Bo>(drm, PAGE_SIZE, None)?;
            let array = ObjectArray::of(&[&first, &second])?;
            assert_eq!(array.len(), 2);
            let fence = Fence::prealloc(GFP_KERNEL)?.init(TEST_NAME, context_alloc(1), 1);
            array.publish(Usage::Write, || Some(fence.reference()))?;
            assert!(!first.resv().is_signaled(Usage::Read));
            assert!(!second.resv().is_signaled(Usage::Read));
            fence.signal(Ok(()));
            assert!(array
                .iter()
                .all(|object| object.resv().is_signaled(Usage::Read)));
            Ok(())
        })
    }

    #[test]
    fn array_with_an_object_twice_is_refused_before_the_work_is_submitted() -> Result {
        with_device(c"ochre-exporter", |drm, _| {
            let first = new_object::<Bo>(drm, PAGE_SIZE, None)?;
            let second = new_object::<Bo>(drm, PAGE_SIZE, None)?;
            let array = ObjectArray::of(&[&first, &second, &first])?;
            let mut submitted = false;
            let result = array.publish(Usage::Write, || {
                submitted = true;
                None
            });
            assert_eq!(result.err(), Some(EALREADY));
            assert!(!submitted);
            // And nothing stays locked.
            assert!(first.resv().publish(Usage::Write, || None)?.is_none());
            assert!(second.resv().publish(Usage::Write, || None)?.is_none());
            Ok(())
        })
    }

    #[test]
    fn array_lives_as_long_as_its_objects_are_used() -> Result {
        with_device(c"ochre-exporter", |drm, dev| {
            let array = ObjectArray::of(&[&*object(drm, dev, 1)?])?;
            let first = array.iter().next().ok_or(EINVAL)?;
            assert_eq!(byte(first, 0)?, 0);
            Ok(())
        })
    }
}
