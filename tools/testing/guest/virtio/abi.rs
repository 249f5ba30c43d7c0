// SPDX-License-Identifier: GPL-2.0
//! What the ioctls of virtgpu_drm.h take and what they refuse: those of the device and of a file's
//! context. Those of BOs are in objects.rs, EXECBUFFER is in submit.rs. An ioctl that fails leaves no
//! descriptor, and nothing at the device.

use guest::pointers;
use guest::pointers::Cliff;
use guest::virtio::abi::*;
use guest::virtio::base_line;
use guest::virtio::refuses;
use guest::virtio::Node;
use guest::virtio::Trace;
use guest::Board;
use guest::Errno;
use guest::Outcome;

guest::tests! {
    argument_that_faults_is_refused_by_every_ioctl,
    number_without_an_ioctl_is_refused,
    getparam_knows_its_parameters_and_no_others,
    get_caps_refuses_what_is_wrong_and_cuts_to_the_size_of_the_program,
    context_init_refuses_what_is_wrong,
    context_is_made_once,
    debug_name_is_a_string_that_is_cut_when_it_is_too_long,
}

/// Pairs of parameter and value.
type Params<'a> = &'a [(u64, u64)];

fn argument_that_faults_is_refused_by_every_ioctl() -> Outcome {
    base_line()?;
    let node = Node::open()?;
    let trace = Trace::begin()?;
    for (name, request) in REQUESTS {
        for (what, address) in pointers::bad() {
            let got = node.call_at(request, address);
            trace.refused(&format!("{name} at {what}"), got, Errno::EFAULT)?;
        }
    }
    Ok(())
}

fn number_without_an_ioctl_is_refused() -> Outcome {
    base_line()?;
    let node = Node::open()?;
    let trace = Trace::begin()?;
    let argument = [0u64; 32];
    for number in [0x40, 0x4c, 0x4d, 0x9f] {
        let got = node.call_at(0xc010_6400 | number, argument.as_ptr() as u64);
        trace.refused(&format!("number {number:#x}"), got, Errno::EINVAL)?;
    }
    Ok(())
}

fn getparam_knows_its_parameters_and_no_others() -> Outcome {
    let node = Node::open()?;
    // 3D, the fix of the query, blobs, window, UUIDs, contexts, capsets, names.
    let known: Vec<i32> = (1..=8)
        .map(|param| node.param(param))
        .collect::<Result<_, _>>()?;
    assert_eq!(known, [1, 1, 1, 1, 1, 1, 0x16, 1]);
    // The alignment of blobs is a feature that this board does not have.
    assert_eq!(node.param(9), Err(Errno::ENOENT));
    for param in [0, 10, 1 << 31, 1 << 32 | 1, u64::MAX] {
        assert_eq!(node.param(param), Err(Errno::EINVAL), "{param:#x}");
    }
    for (what, value) in pointers::bad() {
        let got = node.call(&mut drm_virtgpu_getparam { param: 1, value });
        assert_eq!(got, Err(Errno::EFAULT), "{what}");
    }
    // 32 bits are written, no more.
    let mut edge = Cliff::new();
    let value = edge.put(&[0; 4]);
    node.call(&mut drm_virtgpu_getparam { param: 1, value })?;
    Ok(())
}

fn get_caps_refuses_what_is_wrong_and_cuts_to_the_size_of_the_program() -> Outcome {
    base_line()?;
    let node = Node::open()?;
    let mut bytes = vec![0xeeu8; 512];
    let nowhere = pointers::unmapped();
    let good = drm_virtgpu_get_caps {
        cap_set_id: 4,
        cap_set_ver: 0,
        addr: bytes.as_mut_ptr() as u64,
        size: 512,
        pad: 0,
    };
    refuses(
        &node,
        good,
        &[
            ("padding", &|a| a.pad = 1, Errno::EINVAL),
            ("no bytes", &|a| a.size = 0, Errno::EINVAL),
            ("capset 0", &|a| a.cap_set_id = 0, Errno::EINVAL),
            ("a capset in between", &|a| a.cap_set_id = 3, Errno::EINVAL),
            ("capset 64", &|a| a.cap_set_id = 64, Errno::EINVAL),
            (
                "the last capset",
                &|a| a.cap_set_id = u32::MAX,
                Errno::EINVAL,
            ),
            ("a version too new", &|a| a.cap_set_ver = 1, Errno::EINVAL),
            (
                "the last version",
                &|a| a.cap_set_ver = u32::MAX,
                Errno::EINVAL,
            ),
            ("no memory", &|a| a.addr = nowhere, Errno::EFAULT),
            ("NULL", &|a| a.addr = 0, Errno::EFAULT),
            (
                "the kernel's memory",
                &|a| a.addr = 0xffff_8880_0000_0000,
                Errno::EFAULT,
            ),
        ],
    )?;
    // The set has 160 bytes: what the program has beyond stays.
    assert_eq!(bytes[..160], node.capset(4, 0, 160)?);
    assert!(bytes[160..].iter().all(|byte| *byte == 0xee));
    assert_eq!(node.capset(4, 0, 1)?, bytes[..1]);
    let mut edge = Cliff::new();
    let addr = edge.put(&[0; 160]);
    // A size beyond the set, up to the last, is not written to.
    node.call(&mut drm_virtgpu_get_caps {
        addr,
        size: u32::MAX,
        ..good
    })?;
    let short = drm_virtgpu_get_caps {
        addr: addr + 8,
        ..good
    };
    assert_eq!(node.call(&mut { short }), Err(Errno::EFAULT));
    Ok(())
}

fn context_init_refuses_what_is_wrong() -> Outcome {
    base_line()?;
    let node = Node::open()?;
    let trace = Trace::begin()?;
    let capset = VIRTGPU_CONTEXT_PARAM_CAPSET_ID;
    let rings = VIRTGPU_CONTEXT_PARAM_NUM_RINGS;
    let mask = VIRTGPU_CONTEXT_PARAM_POLL_RINGS_MASK;
    let name = VIRTGPU_CONTEXT_PARAM_DEBUG_NAME;
    let nowhere = pointers::unmapped();
    let lists: &[(&str, Params<'_>, Errno)] = &[
        ("parameter 0", &[(0, 0)], Errno::EINVAL),
        ("parameter 5", &[(5, 0)], Errno::EINVAL),
        ("parameter 2^32 + 1", &[(1 << 32 | 1, 4)], Errno::EINVAL),
        ("the last parameter", &[(u64::MAX, 0)], Errno::EINVAL),
        ("capset 0", &[(capset, 0)], Errno::EINVAL),
        ("a capset in between", &[(capset, 3)], Errno::EINVAL),
        ("capset 64", &[(capset, 64)], Errno::EINVAL),
        ("capset 2^32 + 4", &[(capset, 1 << 32 | 4)], Errno::EINVAL),
        ("a capset twice", &[(capset, 4), (capset, 4)], Errno::EINVAL),
        ("65 rings", &[(rings, 65)], Errno::EINVAL),
        ("2^64 - 1 rings", &[(rings, u64::MAX)], Errno::EINVAL),
        ("rings twice", &[(rings, 1), (rings, 1)], Errno::EINVAL),
        ("a ring beyond", &[(rings, 2), (mask, 4)], Errno::EINVAL),
        ("a ring without rings", &[(mask, 1)], Errno::EINVAL),
        (
            "a name nowhere",
            &[(capset, 4), (name, nowhere)],
            Errno::EFAULT,
        ),
        ("a name at NULL", &[(name, 0)], Errno::EFAULT),
    ];
    for (what, list, errno) in lists {
        trace.refused(what, node.init_context(list), *errno)?;
    }
    let list = [drm_virtgpu_context_set_param {
        param: capset,
        value: 4,
    }; 5];
    let at = list.as_ptr() as u64;
    refuses(
        &node,
        drm_virtgpu_context_init {
            num_params: 1,
            pad: 0,
            ctx_set_params: at,
        },
        &[
            ("padding", &|a| a.pad = 1, Errno::EINVAL),
            ("five parameters", &|a| a.num_params = 5, Errno::EINVAL),
            (
                "2^32 - 1 of them",
                &|a| a.num_params = u32::MAX,
                Errno::EINVAL,
            ),
            (
                "parameters nowhere",
                &|a| a.ctx_set_params = nowhere,
                Errno::EFAULT,
            ),
            (
                "parameters at NULL",
                &|a| a.ctx_set_params = 0,
                Errno::EFAULT,
            ),
        ],
    )?;
    Ok(())
}

fn context_is_made_once() -> Outcome {
    base_line()?;
    let (made, used) = (Node::open()?, Node::open()?);
    let capset = [(VIRTGPU_CONTEXT_PARAM_CAPSET_ID, 2)];
    made.init_context(&capset)?;
    // The first ioctl that renders makes one, too.
    let (handle, _) = used.texture(16, 16)?;
    used.wait(handle, 0)?;
    let trace = Trace::begin()?;
    for node in [&made, &used] {
        trace.refused("another context", node.init_context(&capset), Errno::EEXIST)?;
        trace.refused("a plain one", node.init_context(&[]), Errno::EEXIST)?;
    }
    assert!(Board.ask("contexts")?.contains("capset=2"));
    Ok(())
}

fn debug_name_is_a_string_that_is_cut_when_it_is_too_long() -> Outcome {
    base_line()?;
    let (mut edge, mut open) = (Cliff::new(), Cliff::new());
    // It may end where memory ends, and longer than 64 bytes it is cut.
    let whole = edge.put(b"short\0");
    let long = [b'x'; 300];
    let name = VIRTGPU_CONTEXT_PARAM_DEBUG_NAME;
    for at in [whole, long.as_ptr() as u64] {
        Node::open()?.init_context(&[(name, at)])?;
    }
    // One that memory ends.
    base_line()?;
    let node = Node::open()?;
    let trace = Trace::begin()?;
    let at = open.put(b"no end");
    trace.refused(
        "a name without end",
        node.init_context(&[(name, at)]),
        Errno::EFAULT,
    )
}
