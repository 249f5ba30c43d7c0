// SPDX-License-Identifier: GPL-2.0

//! Each request, byte for byte.

use super::*;

/// The bytes that the device reads.
fn bytes(request: &Request) -> KVec<u8> {
    let mut bytes = KVec::new();
    for word in request.words() {
        // Without memory the comparison fails.
        let _ = bytes.extend_from_slice(&word.to_ne_bytes(), GFP_KERNEL);
    }
    bytes.truncate(request.bytes() as usize);
    bytes
}

/// The bytes of a header and words.
fn expected(kind: u32, context: u32, body: &[u32]) -> KVec<u8> {
    let mut bytes = KVec::new();
    for words in [&[kind, 0, 0, 0, context, 0], body] {
        for word in words {
            let _ = bytes.extend_from_slice(&word.to_le_bytes(), GFP_KERNEL);
        }
    }
    bytes
}

#[kunit_tests(ochre_virtio_wire)]
mod requests {
    use super::*;

    #[test]
    fn requests_without_payload_are_the_structures_of_the_c_header() {
        let cases = [
            (get_display_info(), expected(0x100, 0, &[])),
            (resource_unref(7), expected(0x102, 0, &[7, 0])),
            (get_capset_info(3), expected(0x108, 0, &[3, 0])),
            (get_capset(4, 2), expected(0x109, 0, &[4, 2])),
            (resource_detach_backing(8), expected(0x107, 0, &[8, 0])),
            (resource_assign_uuid(9), expected(0x10b, 0, &[9, 0])),
            (ctx_destroy(5), expected(0x201, 5, &[])),
            (ctx_attach_resource(5, 6), expected(0x202, 5, &[6, 0])),
            (ctx_detach_resource(5, 6), expected(0x203, 5, &[6, 0])),
            (
                resource_map_blob(6, 0x1_2345_6000),
                expected(0x208, 0, &[6, 0, 0x2345_6000, 1]),
            ),
            (resource_unmap_blob(6), expected(0x209, 0, &[6, 0])),
        ];
        for (request, expected) in &cases {
            assert!(bytes(request)[..] == expected[..]);
        }
    }

    #[test]
    fn requests_that_make_resources_are_the_structures_of_the_c_header() {
        let image = Create2d {
            format: 67,
            width: 640,
            height: 480,
        };
        let request = resource_create_2d(8, &image);
        assert!(bytes(&request)[..] == expected(0x101, 0, &[8, 67, 640, 480])[..]);

        let any = Create3d {
            target: 1,
            format: 2,
            bind: 3,
            width: 4,
            height: 5,
            depth: 6,
            array_size: 7,
            last_level: 8,
            nr_samples: 9,
            flags: 10,
        };
        let body = [11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0];
        let request = resource_create_3d(11, &any);
        assert!(bytes(&request)[..] == expected(0x204, 0, &body)[..]);

        let body = [12, 2, 5, 3, 0x89ab_cdef, 0x0123_4567, 0x2000, 1];
        let request = resource_create_blob(4, 12, 2, 5, 0x0123_4567_89ab_cdef, 0x1_0000_2000, 3);
        assert!(bytes(&request)[..] == expected(0x10c, 4, &body)[..]);

        let request = resource_attach_backing(12, 99);
        assert!(bytes(&request)[..] == expected(0x106, 0, &[12, 99])[..]);
        let entry = mem_entry(0x1122_3344_5566_7788, 0x99aa_bbcc);
        let expected = [
            0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0xcc, 0xbb, 0xaa, 0x99, 0, 0, 0, 0,
        ];
        assert!(entry == expected);
    }

    #[test]
    fn transfers_are_the_structures_of_the_c_header() {
        let what = Transfer3d {
            region: [1, 2, 3, 4, 5, 6],
            offset: 0x7_0000_0008,
            level: 9,
            stride: 10,
            layer_stride: 11,
        };
        let body = [1, 2, 3, 4, 5, 6, 8, 7, 12, 9, 10, 11];
        let request = transfer_to_host_3d(13, 12, &what);
        assert!(bytes(&request)[..] == expected(0x205, 13, &body)[..]);
        let request = transfer_from_host_3d(13, 12, &what);
        assert!(bytes(&request)[..] == expected(0x206, 13, &body)[..]);
        let body = [1, 2, 4, 5, 8, 7, 12, 0];
        let request = transfer_to_host_2d(12, &what);
        assert!(bytes(&request)[..] == expected(0x105, 0, &body)[..]);
    }

    #[test]
    fn context_name_is_cut_at_64_bytes() {
        let request = ctx_create(3, 4, b"abcde");
        let mut body = [0; 18];
        body[..4].copy_from_slice(&[5, 4, 0x6463_6261, 0x65]);
        assert!(bytes(&request)[..] == expected(0x200, 3, &body)[..]);

        let request = ctx_create(3, 4, &[0x78; 100]);
        let mut body = [0x7878_7878; 18];
        body[..2].copy_from_slice(&[64, 4]);
        assert!(bytes(&request)[..] == expected(0x200, 3, &body)[..]);
    }

    #[test]
    fn fence_changes_flags_number_and_ring_only() {
        let mut request = submit_3d(2, 4096);
        request.set_fence(0x5_0000_0006, None);
        let words = [0x207, 1, 6, 5, 2, 0, 4096, 0].map(u32::to_le);
        assert!(request.words()[..8] == words);
        assert!(request.bytes() == 32);

        request.set_fence(7, Some(9));
        let words = [0x207, 3, 7, 0, 2, 9, 4096, 0].map(u32::to_le);
        assert!(request.words()[..8] == words);
    }

    #[test]
    fn each_error_of_the_device_has_an_errno_and_nonsense_is_eio() {
        for kind in 0x1100..=0x1106 {
            assert_eq!(outcome(kind, 24), Ok(()));
        }
        let errors = [EIO, ENOMEM, ENOENT, ENOENT, ENOENT, EINVAL];
        for (kind, error) in (0x1200..).zip(errors) {
            assert_eq!(outcome(kind, 24), Err(error));
        }
        for kind in [0, 0x100, 0x10ff, 0x1107, 0x1206, u32::MAX] {
            assert_eq!(outcome(kind, 24), Err(EIO));
        }
        assert_eq!(outcome(0x1100, 23), Err(EIO));
    }

    #[test]
    fn capset_with_an_id_that_cannot_be_is_none() {
        let mut body = [0; CAPSET_INFO_BYTES];
        for (id, valid) in [
            (0, false),
            (1, true),
            (63, true),
            (64, false),
            (u32::MAX, false),
        ] {
            body[..4].copy_from_slice(&id.to_le_bytes());
            body[4..8].copy_from_slice(&2u32.to_le_bytes());
            body[8..12].copy_from_slice(&1384u32.to_le_bytes());
            let info = CapsetInfo {
                id,
                max_version: 2,
                max_size: 1384,
            };
            assert_eq!(CapsetInfo::decode(&body), valid.then_some(info));
        }
    }
}
