// SPDX-License-Identifier: GPL-2.0
//! QUEUE_CREATE, QUEUE_DESTROY and RESET_QUERY.

use anyhow::Context;
use guest::child;
use guest::ochre::abi::*;
use guest::ochre::Gpu;
use guest::ochre::Queue;
use guest::ochre::Stream;
use guest::ochre::Vm;
use guest::raw;
use guest::refuses;
use guest::refuses_arrays;
use guest::refuses_by;
use guest::until_enospc;
use guest::Desk;
use guest::Errno;
use guest::Foreign;
use guest::Ledger;
use guest::Outcome;

guest::tests! {
    wrong_queue_create_is_refused,
    wrong_property_is_refused,
    property_given_twice_is_refused,
    wrong_array_of_properties_is_refused,
    each_property_is_taken_at_both_ends_of_its_range,
    each_engine_can_be_chosen,
    high_priorities_need_cap_sys_nice,
    wrong_queue_destroy_is_refused,
    wrong_reset_query_is_refused,
    reset_query_of_a_good_queue_says_that_all_is_well,
    queues_are_enospc_at_some_number_and_all_can_be_had_again,
    destroyed_queue_cancels_its_jobs,
}

fn good(vm: &Vm<'_>) -> drm_ochre_queue_create {
    drm_ochre_queue_create {
        vm: vm.handle(),
        engine_class: DRM_OCHRE_ENGINE_COMPUTE as u16,
        engine_instance: DRM_OCHRE_ENGINE_ANY as u16,
        ..Default::default()
    }
}

fn prop(name: u32, value: u64) -> drm_ochre_queue_prop {
    drm_ochre_queue_prop {
        name,
        pad: 0,
        value,
    }
}

fn wrong_queue_create_is_refused() -> Outcome {
    let (gpu, other) = (Gpu::open()?, Gpu::open()?);
    let vm = Vm::new(&gpu)?;
    let others = Foreign::new(|| Vm::new(&other), Vm::handle)?;
    let queue = refuses(
        &gpu,
        good(&vm),
        &[
            ("VM 0", &|q| q.vm = 0, Errno::ENOENT),
            ("last VM", &|q| q.vm = u32::MAX, Errno::ENOENT),
            (
                "another file's VM",
                &|q| q.vm = others.handle,
                Errno::ENOENT,
            ),
            ("first flag", &|q| q.flags = 1, Errno::EINVAL),
            ("last flag", &|q| q.flags = 1 << 31, Errno::EINVAL),
            (
                "first unknown class",
                &|q| q.engine_class = 2,
                Errno::EINVAL,
            ),
            ("last class", &|q| q.engine_class = u16::MAX, Errno::EINVAL),
            (
                "first engine too many",
                &|q| q.engine_instance = 2,
                Errno::EINVAL,
            ),
            (
                "last engine but any",
                &|q| q.engine_instance = 0xfffe,
                Errno::EINVAL,
            ),
            ("extensions", &|q| q.extensions = 8, Errno::EINVAL),
        ],
    )?;
    assert_ne!(queue.queue, 0);
    Ok(())
}

/// Makes a queue with these properties and destroys it.
fn create(gpu: &Gpu, vm: &Vm<'_>, props: &[drm_ochre_queue_prop]) -> Result<(), Errno> {
    let stride = stride::<drm_ochre_queue_prop>();
    create_by(gpu, vm, (pointer(props), count(props), stride))
}

/// The same, with an array of properties that may be a wrong one.
fn create_by(
    gpu: &Gpu,
    vm: &Vm<'_>,
    (props, prop_count, prop_stride): guest::Array,
) -> Result<(), Errno> {
    let mut argument = drm_ochre_queue_create {
        props,
        prop_count,
        prop_stride,
        ..good(vm)
    };
    raw::call(gpu, &mut argument)?;
    let mut destroy = drm_ochre_queue_destroy {
        queue: argument.queue,
        pad: 0,
    };
    raw::call(gpu, &mut destroy)
}

fn wrong_property_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let vm = Vm::new(&gpu)?;
    let call = |prop: &mut drm_ochre_queue_prop| create(&gpu, &vm, std::slice::from_ref(prop));
    let priority = prop(DRM_OCHRE_QUEUE_PRIORITY, DRM_OCHRE_PRIORITY_LOW.into());
    refuses_by(
        &gpu,
        priority,
        &call,
        &[
            ("first unknown property", &|p| p.name = 4, Errno::EINVAL),
            ("last property", &|p| p.name = u32::MAX, Errno::EINVAL),
            ("pad", &|p| p.pad = 1, Errno::EINVAL),
            ("first unknown priority", &|p| p.value = 4, Errno::EINVAL),
            (
                "a priority above 32 bits",
                &|p| p.value = 1 << 32,
                Errno::EINVAL,
            ),
            ("last priority", &|p| p.value = u64::MAX, Errno::EINVAL),
        ],
    )?;
    refuses_by(
        &gpu,
        prop(DRM_OCHRE_QUEUE_TIMEOUT_MS, 1000),
        &call,
        &[
            ("timeout 0", &|p| p.value = 0, Errno::EINVAL),
            ("timeout too long", &|p| p.value = 60_001, Errno::EINVAL),
            (
                "timeout above 32 bits",
                &|p| p.value = 1 << 32 | 1,
                Errno::EINVAL,
            ),
            ("last timeout", &|p| p.value = u64::MAX, Errno::EINVAL),
        ],
    )?;
    refuses_by(
        &gpu,
        prop(DRM_OCHRE_QUEUE_QUANTUM_US, 1000),
        &call,
        &[
            ("quantum 0", &|p| p.value = 0, Errno::EINVAL),
            ("quantum too short", &|p| p.value = 99, Errno::EINVAL),
            ("quantum too long", &|p| p.value = 1_000_001, Errno::EINVAL),
            (
                "quantum above 32 bits",
                &|p| p.value = 1 << 32 | 100,
                Errno::EINVAL,
            ),
            ("last quantum", &|p| p.value = u64::MAX, Errno::EINVAL),
        ],
    )?;
    refuses_by(
        &gpu,
        prop(DRM_OCHRE_QUEUE_BOOST, 1),
        &call,
        &[
            ("boost 2", &|p| p.value = 2, Errno::EINVAL),
            (
                "boost above 32 bits",
                &|p| p.value = 1 << 32 | 1,
                Errno::EINVAL,
            ),
            ("last boost", &|p| p.value = u64::MAX, Errno::EINVAL),
        ],
    )?;
    Ok(())
}

fn property_given_twice_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let vm = Vm::new(&gpu)?;
    let all = [
        prop(DRM_OCHRE_QUEUE_PRIORITY, DRM_OCHRE_PRIORITY_LOW.into()),
        prop(DRM_OCHRE_QUEUE_TIMEOUT_MS, 1000),
        prop(DRM_OCHRE_QUEUE_QUANTUM_US, 1000),
        prop(DRM_OCHRE_QUEUE_BOOST, 1),
    ];
    assert_eq!(create(&gpu, &vm, &all), Ok(()));
    for twice in all {
        assert_eq!(create(&gpu, &vm, &[twice, twice]), Err(Errno::EINVAL));
        assert_eq!(
            create(&gpu, &vm, &[all[0], all[1], twice, all[2], all[3]]),
            Err(Errno::EINVAL)
        );
    }
    Ok(())
}

fn wrong_array_of_properties_is_refused() -> Outcome {
    let gpu = Gpu::open()?;
    let vm = Vm::new(&gpu)?;
    // Only one can be given of each, so more than one element is never right.
    refuses_arrays(&gpu, prop(DRM_OCHRE_QUEUE_TIMEOUT_MS, 1000), 1, &|array| {
        create_by(&gpu, &vm, array)
    })
}

fn each_property_is_taken_at_both_ends_of_its_range() -> Outcome {
    let gpu = Gpu::open()?;
    let vm = Vm::new(&gpu)?;
    let longest = gpu.query::<drm_ochre_query_hardware>()?[0].timeout_max_ms;
    for (name, values) in [
        (DRM_OCHRE_QUEUE_PRIORITY, [0, 1]),
        (DRM_OCHRE_QUEUE_PRIORITY, [2, 3]),
        (DRM_OCHRE_QUEUE_TIMEOUT_MS, [1, longest.into()]),
        (DRM_OCHRE_QUEUE_QUANTUM_US, [100, 1_000_000]),
        (DRM_OCHRE_QUEUE_BOOST, [0, 1]),
    ] {
        for value in values {
            assert_eq!(
                create(&gpu, &vm, &[prop(name, value)]),
                Ok(()),
                "{name}: {value}"
            );
        }
    }
    Ok(())
}

fn each_engine_can_be_chosen() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    for engine in gpu.query::<drm_ochre_query_engine>()? {
        let (class, instance) = (engine.klass.into(), engine.instance.into());
        let queue = Queue::with(&desk.vm, class, instance, &[])?;
        let mark = u64::from(class * 16 + instance + 1);
        desk.run(&queue, Stream::new().write(desk.word_addr(0), mark))?;
        assert_eq!(desk.word(0), mark);
    }
    Ok(())
}

fn high_priorities_need_cap_sys_nice() -> Outcome {
    let gpu = Gpu::open()?;
    let vm = Vm::new(&gpu)?;
    let with = |priority: u32| {
        create(
            &gpu,
            &vm,
            &[prop(DRM_OCHRE_QUEUE_PRIORITY, priority.into())],
        )
    };
    assert_eq!(with(DRM_OCHRE_PRIORITY_HIGH), Ok(()));
    assert_eq!(with(DRM_OCHRE_PRIORITY_REALTIME), Ok(()));
    let before = Ledger::read(&gpu)?;
    child::as_nobody(|| {
        assert_eq!(with(DRM_OCHRE_PRIORITY_NORMAL), Ok(()));
        assert_eq!(with(DRM_OCHRE_PRIORITY_LOW), Ok(()));
        assert_eq!(with(DRM_OCHRE_PRIORITY_HIGH), Err(Errno::EACCES));
        assert_eq!(with(DRM_OCHRE_PRIORITY_REALTIME), Err(Errno::EACCES));
        Ok(())
    })?;
    before.check(&gpu, "a priority that was refused")
}

fn wrong_queue_destroy_is_refused() -> Outcome {
    let (gpu, other) = (Gpu::open()?, Gpu::open()?);
    let (vm, other_vm) = (Vm::new(&gpu)?, Vm::new(&other)?);
    let queue = Queue::new(&vm, DRM_OCHRE_ENGINE_COMPUTE)?;
    let new = || Queue::new(&other_vm, DRM_OCHRE_ENGINE_COPY);
    let others = Foreign::new(new, Queue::handle)?;
    let good = drm_ochre_queue_destroy {
        queue: queue.handle(),
        pad: 0,
    };
    refuses(
        &gpu,
        good,
        &[
            ("handle 0", &|q| q.queue = 0, Errno::ENOENT),
            ("last handle", &|q| q.queue = u32::MAX, Errno::ENOENT),
            (
                "another file's handle",
                &|q| q.queue = others.handle,
                Errno::ENOENT,
            ),
            ("pad", &|q| q.pad = 1, Errno::EINVAL),
        ],
    )?;
    let mut again = good;
    assert_eq!(
        raw::call(&gpu, &mut again),
        Err(Errno::ENOENT),
        "destroyed twice"
    );
    Ok(())
}

fn wrong_reset_query_is_refused() -> Outcome {
    let (gpu, other) = (Gpu::open()?, Gpu::open()?);
    let (vm, other_vm) = (Vm::new(&gpu)?, Vm::new(&other)?);
    let queue = Queue::new(&vm, DRM_OCHRE_ENGINE_COMPUTE)?;
    let new = || Queue::new(&other_vm, DRM_OCHRE_ENGINE_COPY);
    let others = Foreign::new(new, Queue::handle)?;
    let good = drm_ochre_reset_query {
        queue: queue.handle(),
        ..Default::default()
    };
    refuses(
        &gpu,
        good,
        &[
            ("handle 0", &|q| q.queue = 0, Errno::ENOENT),
            ("last handle", &|q| q.queue = u32::MAX, Errno::ENOENT),
            (
                "another file's handle",
                &|q| q.queue = others.handle,
                Errno::ENOENT,
            ),
            ("first flag", &|q| q.flags = 1, Errno::EINVAL),
            ("last flag", &|q| q.flags = 1 << 31, Errno::EINVAL),
            ("pad", &|q| q.pad = 1, Errno::EINVAL),
            ("extensions", &|q| q.extensions = 8, Errno::EINVAL),
        ],
    )?;
    Ok(())
}

fn reset_query_of_a_good_queue_says_that_all_is_well() -> Outcome {
    let gpu = Gpu::open()?;
    let vm = Vm::new(&gpu)?;
    let queue = Queue::new(&vm, DRM_OCHRE_ENGINE_COMPUTE)?;
    let mut query = drm_ochre_reset_query {
        queue: queue.handle(),
        state: 99,
        fault_code: 99,
        fault_addr: 99,
        fault_pc: 99,
        fault_access: 99,
        queue_resets: 99,
        ..Default::default()
    };
    raw::call(&gpu, &mut query)?;
    assert_eq!(query.state, DRM_OCHRE_QUEUE_OK);
    assert_eq!((query.fault_code, query.fault_access), (0, 0));
    assert_eq!((query.fault_addr, query.fault_pc), (0, 0));
    assert_eq!(query.queue_resets, 0);
    Ok(())
}

fn queues_are_enospc_at_some_number_and_all_can_be_had_again() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let before = Ledger::read(&gpu)?;
    let mut counts = Vec::new();
    for _ in 0..2 {
        let queues = until_enospc(1000, || Queue::new(&desk.vm, DRM_OCHRE_ENGINE_COPY))?;
        assert!(queues.len() >= 16, "only {} queues", queues.len());
        counts.push(queues.len());
        // The last is as good as the first.
        let last = queues.last().context("a queue")?;
        desk.run(last, Stream::new().write(desk.word_addr(0), 77))?;
        assert_eq!(desk.word(0), 77);
        desk.set_word(0, 0);
    }
    assert_eq!(counts[0], counts[1]);
    before.check(&gpu, "making all queues that there are")
}

fn destroyed_queue_cancels_its_jobs() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(DRM_OCHRE_ENGINE_COPY)?;
    let at_work = desk.start(&queue, desk.wait_for_word(0))?;
    let behind = desk.start(&queue, Stream::new().write(desk.word_addr(1), 1))?;
    let handle = queue.handle();
    drop(queue);
    at_work.ends_with(Errno::ECANCELED)?;
    behind.ends_with(Errno::ECANCELED)?;
    assert_eq!(desk.word(1), 0);
    let mut query = drm_ochre_reset_query {
        queue: handle,
        ..Default::default()
    };
    assert_eq!(raw::call(&gpu, &mut query), Err(Errno::ENOENT));
    Ok(())
}
