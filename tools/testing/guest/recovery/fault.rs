// SPDX-License-Identifier: GPL-2.0
//! Faults of the GPU: what a program does wrong on the GPU hits its own queue only, and it is told.

use guest::ochre::abi::*;
use guest::ochre::access;
use guest::ochre::hw;
use guest::ochre::region::SYSTEM;
use guest::ochre::region::VRAM;
use guest::ochre::Dispatch;
use guest::ochre::Gpu;
use guest::ochre::Stream;
use guest::Desk;
use guest::Errno;
use guest::Outcome;

guest::tests! {
    each_fault_of_a_packet_is_reported_with_its_code,
    each_fault_of_an_address_is_reported_with_address_and_access,
    each_fault_of_a_kernel_is_reported_with_its_pc,
    neighbours_of_a_faulting_queue_go_on,
    jobs_of_many_queues_may_fault_at_once,
    user_fence_at_a_bad_address_is_a_fault,
    job_at_an_unmapped_address_is_a_fault,
}

const COPY: u32 = DRM_OCHRE_ENGINE_COPY;
const COMPUTE: u32 = DRM_OCHRE_ENGINE_COMPUTE;

// "Codes" of section "Faults" in og1.rst.
const NOT_PRESENT: u32 = 1;
const PERMISSION: u32 = 2;
const ALIGNMENT: u32 = 5;
const RANGE: u32 = 6;
const PACKET: u32 = 16;
const PRIVILEGE: u32 = 17;
const ENGINE: u32 = 18;
const ILLEGAL: u32 = 32;
const BARRIER: u32 = 33;

const READ: u32 = 0;
const WRITE: u32 = 1;
const EXEC: u32 = 2;
const ATOMIC: u32 = 3;

/// An address at which nothing is mapped.
const NOWHERE: u64 = 0x66_6660_0000;

/// Runs packets that have to fault; returns what is known of it.
#[track_caller]
fn fault(desk: &Desk<'_>, class: u32, what: &str, stream: Stream) -> drm_ochre_reset_query {
    let run = || -> anyhow::Result<drm_ochre_reset_query> {
        let queue = desk.queue(class)?;
        desk.start(&queue, stream)?.ends_with(Errno::EFAULT)?;
        Ok(queue.reset_query()?)
    };
    let query = match run() {
        Ok(query) => query,
        Err(error) => panic!("{what}: {error:?}"),
    };
    assert_eq!(query.state, DRM_OCHRE_QUEUE_FAULTED, "{what}");
    assert_eq!(query.queue_resets, 1, "{what}");
    query
}

fn each_fault_of_a_packet_is_reported_with_its_code() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let word = desk.word_addr(0);
    let raw = |words: &[u64]| {
        words
            .iter()
            .fold(Stream::new(), |stream, &word| stream.word(word))
    };
    let new = Stream::new;
    let dispatch = Dispatch {
        kernel: word,
        grid: [1, 1, 1],
        block: [1, 1, 1],
        ..Default::default()
    };
    let with = |change: &dyn Fn(&mut Dispatch)| {
        let mut spoiled = dispatch;
        change(&mut spoiled);
        new().dispatch(&spoiled)
    };
    let physical = hw::FLAG_PHYSICAL;
    let cases = [
        (
            "first unknown opcode",
            COPY,
            PACKET,
            new().packet(0x0e, 0, 0, &[]),
        ),
        (
            "last user opcode",
            COPY,
            PACKET,
            new().packet(0x7f, 0, 0, &[]),
        ),
        (
            "a fence",
            COPY,
            PRIVILEGE,
            new().packet(hw::PKT_FENCE, 0, 0, &[word, 1]),
        ),
        (
            "a TLB invalidation",
            COPY,
            PRIVILEGE,
            new().packet(hw::PKT_TLB_INVALIDATE, 0, 1, &[0, 0, 0]),
        ),
        (
            "a register write",
            COPY,
            PRIVILEGE,
            new().packet(hw::PKT_REG_WRITE, 0, 0, &[0x3028, 1]),
        ),
        (
            "an unknown privileged opcode",
            COPY,
            PRIVILEGE,
            new().packet(0xff, 0, 0, &[]),
        ),
        (
            "a copy by board addresses",
            COPY,
            PRIVILEGE,
            new().packet(hw::PKT_COPY, physical, 0, &[0, 4096, 8]),
        ),
        (
            "a fill by board addresses",
            COPY,
            PRIVILEGE,
            new().packet(hw::PKT_FILL, physical, 0, &[0, 8]),
        ),
        (
            "a write by board addresses",
            COPY,
            PRIVILEGE,
            new().packet(hw::PKT_WRITE_IMM, physical, 0, &[0, 8]),
        ),
        (
            "a signal by board addresses",
            COPY,
            PRIVILEGE,
            new().packet(hw::PKT_SEM_SIGNAL, physical, 0, &[0, 8]),
        ),
        (
            "a time stamp by board addresses",
            COPY,
            PRIVILEGE,
            new().packet(hw::PKT_TIMESTAMP, physical, 0, &[0]),
        ),
        (
            "an indirect buffer in one",
            COPY,
            PACKET,
            new().packet(hw::PKT_INDIRECT, 0, 1, &[desk.page.addr]),
        ),
        ("length 0", COPY, PACKET, raw(&[0])),
        (
            "a copy that is too short",
            COPY,
            PACKET,
            new().packet(hw::PKT_COPY, 0, 0, &[word, word]),
        ),
        (
            "a copy that is too long",
            COPY,
            PACKET,
            new().packet(hw::PKT_COPY, 0, 0, &[word, word, 8, 0]),
        ),
        (
            "a packet over the end of the job",
            COPY,
            PACKET,
            raw(&[hw::pkt_header(hw::PKT_NOP, 9, 0, 0)]),
        ),
        (
            "an unknown flag",
            COPY,
            PACKET,
            new().packet(hw::PKT_WRITE_IMM, 2, 0, &[word, 1]),
        ),
        (
            "an immediate that is not used",
            COPY,
            PACKET,
            new().packet(hw::PKT_COPY, 0, 1, &[word, word, 8]),
        ),
        (
            "an unknown comparison",
            COPY,
            PACKET,
            new().sem_wait(word, 1, 6),
        ),
        (
            "32 bits with more of them",
            COPY,
            PACKET,
            new().packet(hw::PKT_WRITE_IMM, hw::FLAG_32BIT, 0, &[word, 1 << 32]),
        ),
        ("a fill of 6 bytes", COPY, PACKET, new().fill(word, 6, 1)),
        (
            "a fill aligned to 2",
            COPY,
            ALIGNMENT,
            new().fill(word + 2, 4, 1),
        ),
        (
            "rows that overlap",
            COPY,
            PACKET,
            new().copy_2d((word, 4), (word, 64), (8, 2)),
        ),
        (
            "skipping over the end",
            COPY,
            PACKET,
            new().predicate(word, 1, hw::CMP_EQ, 1),
        ),
        (
            "skipping 2^32 - 1 words",
            COPY,
            PACKET,
            new().predicate(word, 1, hw::CMP_EQ, u32::MAX),
        ),
        (
            "a dispatch on a copy engine",
            COPY,
            ENGINE,
            new().dispatch(&dispatch),
        ),
        ("a grid of none", COMPUTE, PACKET, with(&|d| d.grid[1] = 0)),
        (
            "a grid that is too large",
            COMPUTE,
            PACKET,
            with(&|d| d.grid[0] = hw::GRID_MAX + 1),
        ),
        (
            "a block of none",
            COMPUTE,
            PACKET,
            with(&|d| d.block[2] = 0),
        ),
        (
            "a block that is too large",
            COMPUTE,
            PACKET,
            with(&|d| d.block = [32, 32, 2]),
        ),
        (
            "a block that wraps",
            COMPUTE,
            PACKET,
            with(&|d| d.block = [1 << 16, 1 << 16, 1 << 16]),
        ),
        (
            "too much local memory",
            COMPUTE,
            PACKET,
            with(&|d| d.local_bytes = 65537),
        ),
        (
            "a kernel aligned to 2",
            COMPUTE,
            ALIGNMENT,
            with(&|d| d.kernel += 2),
        ),
        (
            "a stack aligned to 8",
            COMPUTE,
            PACKET,
            with(&|d| (d.stack, d.stack_bytes) = (word + 8, 16)),
        ),
        (
            "8 bytes of stack",
            COMPUTE,
            PACKET,
            with(&|d| (d.stack, d.stack_bytes) = (word, 8)),
        ),
    ];
    let mut wrong = Vec::new();
    for (what, class, code, stream) in cases {
        let query = fault(&desk, class, what, stream);
        if query.fault_code != code {
            wrong.push(format!("{what}: {query:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn each_fault_of_an_address_is_reported_with_address_and_access() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let word = desk.word_addr(0);
    let new = Stream::new;
    let read_only = desk.vm.buffer(SYSTEM, 8192, access::READ)?.addr;
    let held = desk.vm.buffer(VRAM, 4096, access::READ_WRITE)?;
    let write_only = desk.vm.buffer(VRAM, 4096, DRM_OCHRE_BIND_WRITE)?.addr;
    let no_atomic = held.addr;
    let high = 1 << 48;
    let window = 0xffff_0000_0000;
    // The BO of a mapping lives as long as the mapping.
    let cases = [
        (
            "reading nothing",
            NOT_PRESENT,
            READ,
            NOWHERE,
            new().copy(NOWHERE, word, 8),
        ),
        (
            "writing nothing",
            NOT_PRESENT,
            WRITE,
            NOWHERE,
            new().copy(word, NOWHERE, 8),
        ),
        (
            "filling nothing",
            NOT_PRESENT,
            WRITE,
            NOWHERE,
            new().fill(NOWHERE, 8, 1),
        ),
        (
            "waiting for nothing",
            NOT_PRESENT,
            READ,
            NOWHERE + 8,
            new().sem_wait(NOWHERE + 8, 0, 0),
        ),
        (
            "signalling nothing",
            NOT_PRESENT,
            WRITE,
            NOWHERE,
            new().sem_signal(NOWHERE, 1),
        ),
        (
            "adding to nothing",
            NOT_PRESENT,
            ATOMIC,
            NOWHERE,
            new().atomic_add(NOWHERE, 1),
        ),
        (
            "asking nothing",
            NOT_PRESENT,
            READ,
            NOWHERE,
            new().predicate(NOWHERE, 0, 0, 0),
        ),
        (
            "the time to nowhere",
            NOT_PRESENT,
            WRITE,
            NOWHERE,
            new().timestamp(NOWHERE),
        ),
        (
            "running over the end of a mapping",
            NOT_PRESENT,
            READ,
            read_only + 8192,
            new()
                .copy(read_only + 4096, held.addr, 4096)
                .copy(read_only + 8184, held.addr, 16),
        ),
        (
            "writing what is to be read",
            PERMISSION,
            WRITE,
            read_only,
            new().write(read_only, 1),
        ),
        (
            "reading what is to be written",
            PERMISSION,
            READ,
            write_only,
            new().copy(write_only, word, 8),
        ),
        (
            "adding without ATOMIC",
            PERMISSION,
            ATOMIC,
            no_atomic,
            new().atomic_add(no_atomic, 1),
        ),
        (
            "a write aligned to 4",
            ALIGNMENT,
            WRITE,
            word + 4,
            new().write(word + 4, 1),
        ),
        (
            "a wait aligned to 4",
            ALIGNMENT,
            READ,
            word + 4,
            new().sem_wait(word + 4, 0, 0),
        ),
        (
            "an addition aligned to 1",
            ALIGNMENT,
            ATOMIC,
            word + 1,
            new().atomic_add(word + 1, 1),
        ),
        (
            "an address of 49 bits",
            RANGE,
            WRITE,
            high,
            new().write(high, 1),
        ),
        (
            "the last address",
            RANGE,
            READ,
            u64::MAX - 7,
            new().sem_wait(u64::MAX - 7, 0, 0),
        ),
        (
            "a window of kernels",
            RANGE,
            WRITE,
            window,
            new().write(window, 1),
        ),
    ];
    let mut wrong = Vec::new();
    for (what, code, access, addr, stream) in cases {
        let query = fault(&desk, COPY, what, stream);
        if (query.fault_code, query.fault_access, query.fault_addr) != (code, access, addr) {
            wrong.push(format!("{what}: {query:x?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// What a kernel does, its code, its argument; code, access and address of the fault.
type KernelCase<'a> = (&'a str, &'a [u32], u64, u32, u32, Option<u64>);

fn each_fault_of_a_kernel_is_reported_with_its_pc() -> Outcome {
    const NOP: u32 = 0x0000_0013;
    const RET: u32 = 0x0000_8067;
    // a0 holds the argument.
    const LD: u32 = 0x0005_3283; // ld t0, 0(a0)
    const SD: u32 = 0x0055_3023; // sd t0, 0(a0)
    const AMO: u32 = 0x0055_302f; // amoadd.d zero, t0, (a0)
    const JR: u32 = 0x0005_0067; // jr a0
    const ECALL: u32 = 0x0000_0073;
    const EBREAK: u32 = 0x0010_0073;
    const UNKNOWN_CSR: u32 = 0x7c00_22f3; // csrr t0, 0x7c0
    const READ_ONLY_CSR: u32 = 0xcc00_1073; // csrw 0xcc0, zero
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let word = desk.word_addr(0);
    let local = 0xffff_0000_0000;
    let cases: &[KernelCase<'_>] = &[
        ("no instruction", &[NOP, 0], 0, ILLEGAL, EXEC, None),
        ("ECALL", &[NOP, ECALL], 0, ILLEGAL, EXEC, None),
        ("EBREAK", &[NOP, EBREAK], 0, ILLEGAL, EXEC, None),
        (
            "an unknown CSR",
            &[NOP, UNKNOWN_CSR],
            0,
            ILLEGAL,
            EXEC,
            None,
        ),
        (
            "writing an id",
            &[NOP, READ_ONLY_CSR],
            0,
            ILLEGAL,
            EXEC,
            None,
        ),
        (
            "loading nothing",
            &[NOP, LD, RET],
            NOWHERE,
            NOT_PRESENT,
            READ,
            Some(NOWHERE),
        ),
        (
            "storing nothing",
            &[NOP, SD, RET],
            NOWHERE,
            NOT_PRESENT,
            WRITE,
            Some(NOWHERE),
        ),
        (
            "AMO on nothing",
            &[NOP, AMO, RET],
            NOWHERE,
            NOT_PRESENT,
            ATOMIC,
            Some(NOWHERE),
        ),
        (
            "loading what is not aligned",
            &[NOP, LD, RET],
            word + 1,
            ALIGNMENT,
            READ,
            Some(word + 1),
        ),
        (
            "storing what is not aligned",
            &[NOP, SD, RET],
            word + 4,
            ALIGNMENT,
            WRITE,
            Some(word + 4),
        ),
        (
            "loading beyond 48 bits",
            &[NOP, LD, RET],
            1 << 50,
            RANGE,
            READ,
            Some(1 << 50),
        ),
        (
            "local memory that was not asked for",
            &[NOP, LD, RET],
            local,
            RANGE,
            READ,
            Some(local),
        ),
    ];
    let mut wrong = Vec::new();
    for (what, code, args, want, access, addr) in cases {
        let kernel = desk.kernel(code)?;
        let dispatch = Dispatch {
            kernel: kernel.addr,
            args: *args,
            grid: [1, 1, 1],
            block: [1, 1, 1],
            ..Default::default()
        };
        let query = fault(&desk, COMPUTE, what, Stream::new().dispatch(&dispatch));
        let right = query.fault_code == *want
            && query.fault_pc == kernel.addr + 4
            && addr.is_none_or(|addr| (query.fault_addr, query.fault_access) == (addr, *access));
        if !right {
            wrong.push(format!("{what}, kernel at {:#x}: {query:x?}", kernel.addr));
        }
    }

    // Instructions where none may be.
    for (what, to, want) in [
        ("running nothing", NOWHERE, NOT_PRESENT),
        ("running data", desk.page.addr, PERMISSION),
        ("running local memory", local, RANGE),
    ] {
        let kernel = desk.kernel(&[NOP, JR])?;
        let dispatch = Dispatch {
            kernel: kernel.addr,
            args: to,
            grid: [1, 1, 1],
            block: [1, 1, 1],
            ..Default::default()
        };
        let query = fault(&desk, COMPUTE, what, Stream::new().dispatch(&dispatch));
        let found = (
            query.fault_code,
            query.fault_access,
            query.fault_addr,
            query.fault_pc,
        );
        if found != (want, EXEC, to, to) {
            wrong.push(format!("{what}: {query:x?}"));
        }
    }

    // Lane 0 leaves, the others wait.
    let lane = 0xcd00_22f3; // csrr t0, 0xcd0
    let leave = 0x0002_8463; // beqz t0, +8
    let barrier = 0x8000_1073; // csrw 0x800, zero
    let kernel = desk.kernel(&[lane, leave, barrier, RET])?;
    let dispatch = Dispatch {
        kernel: kernel.addr,
        grid: [1, 1, 1],
        block: [2, 1, 1],
        ..Default::default()
    };
    let query = fault(&desk, COMPUTE, "barrier", Stream::new().dispatch(&dispatch));
    if query.fault_code != BARRIER {
        wrong.push(format!("a barrier that one left: {query:x?}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn neighbours_of_a_faulting_queue_go_on() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let neighbour = desk.queue(COPY)?;
    let waiting = desk.start(
        &neighbour,
        desk.wait_for_word(0).write(desk.word_addr(1), 1),
    )?;
    fault(&desk, COPY, "beside it", Stream::new().write(NOWHERE, 1));
    assert!(waiting.is_at_work()?);
    desk.set_word(0, 1);
    waiting.ends_well()?;
    assert_eq!(desk.word(1), 1);
    assert_eq!(neighbour.reset_query()?.state, DRM_OCHRE_QUEUE_OK);
    Ok(())
}

fn jobs_of_many_queues_may_fault_at_once() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let mut jobs = Vec::new();
    for i in 0..24u64 {
        let class = if i % 2 == 0 { COPY } else { COMPUTE };
        let queue = desk.queue(class)?;
        let addr = NOWHERE + i * 4096;
        jobs.push((
            desk.start(&queue, Stream::new().write(addr, 1))?,
            queue,
            addr,
        ));
    }
    for (job, queue, addr) in &jobs {
        job.ends_with(Errno::EFAULT)?;
        let query = queue.reset_query()?;
        assert_eq!(
            (query.state, query.fault_addr),
            (DRM_OCHRE_QUEUE_FAULTED, *addr)
        );
    }
    Ok(())
}

fn user_fence_at_a_bad_address_is_a_fault() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let fence = guest::ochre::SyncOp::user_fence(NOWHERE, 1);
    for (sync, access) in [(fence, READ), (fence.signal(), WRITE)] {
        let queue = desk.queue(COPY)?;
        desk.start_with(&queue, Stream::new().nop(), &[sync])?
            .ends_with(Errno::EFAULT)?;
        let query = queue.reset_query()?;
        assert_eq!((query.fault_code, query.fault_addr), (NOT_PRESENT, NOWHERE));
        assert_eq!(query.fault_access, access);
    }
    Ok(())
}

fn job_at_an_unmapped_address_is_a_fault() -> Outcome {
    let gpu = Gpu::open()?;
    let desk = Desk::new(&gpu)?;
    let queue = desk.queue(COPY)?;
    let done = guest::ochre::Syncobj::new(&gpu)?;
    let syncs = [done.signal()];
    queue.submit(&[guest::ochre::Job {
        addr: NOWHERE,
        words: 4,
        syncs: &syncs,
    }])?;
    let waited = gpu.wait(&[done.wait()], guest::ochre::in_seconds(60))?;
    assert_eq!(Errno::from_raw(waited.error), Errno::EFAULT);
    let query = queue.reset_query()?;
    assert_eq!((query.fault_code, query.fault_addr), (NOT_PRESENT, NOWHERE));
    Ok(())
}
