// SPDX-License-Identifier: GPL-2.0
//! Tables of arguments that an ioctl has to refuse.

use anyhow::ensure;
use nix::errno::Errno;
use ochre::abi::stride;
use ochre::abi::Argument;
use ochre::Gpu;
use ochre::SyncOp;
use ochre::Syncobj;

use crate::ledger::Ledger;
use crate::many::Foreign;
use crate::pointers;
use crate::raw;
use crate::zerocopy::bytes_of;

/// A way to spoil a good argument: its description, the change, and the errno that it has to give.
pub type Case<'a, A> = (&'a str, &'a dyn Fn(&mut A), Errno);

/// Checks that the ioctl refuses `good` once it is spoiled in each of these ways, with the right
/// errno and without leaving anything, and that `good` itself is taken at the end. Returns what
/// the ioctl made of it.
///
/// # Errors
///
/// Names the cases that went wrong.
pub fn refuses<A: Argument + Copy>(gpu: &Gpu, good: A, cases: &[Case<'_, A>]) -> anyhow::Result<A> {
    refuses_by(gpu, good, &|argument| raw::call(gpu, argument), cases)
}

/// The same for something that gets into an ioctl by `call`, such as an element of an array.
///
/// # Errors
///
/// Names the cases that went wrong.
pub fn refuses_by<A: Copy>(
    gpu: &Gpu,
    good: A,
    call: &dyn Fn(&mut A) -> Result<(), Errno>,
    cases: &[Case<'_, A>],
) -> anyhow::Result<A> {
    let before = Ledger::read(gpu)?;
    let mut wrong = Vec::new();
    for (what, spoil, errno) in cases {
        let mut argument = good;
        spoil(&mut argument);
        let got = call(&mut argument);
        if got != Err(*errno) {
            wrong.push(format!("{what}: {got:?} instead of {errno:?}"));
        }
        if got.is_err() {
            before.check(gpu, what)?;
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut argument = good;
    let got = call(&mut argument);
    ensure!(got.is_ok(), "the good argument: {got:?}");
    Ok(argument)
}

/// Checks a sync in an ioctl that `call` makes: what none of them takes, and `more`. `good` is a
/// binary one that is taken; `addr` an address that would do for a user fence.
///
/// # Errors
///
/// Names the cases that went wrong.
pub fn refuses_syncs(
    gpu: &Gpu,
    good: SyncOp,
    addr: u64,
    call: &dyn Fn(&mut SyncOp) -> Result<(), Errno>,
    more: &[Case<'_, SyncOp>],
) -> anyhow::Result<()> {
    let other = Gpu::open()?;
    let others = Foreign::new(|| Syncobj::new(&other), Syncobj::handle)?;
    let empty = Syncobj::new(gpu)?;
    let cases: &[Case<'_, SyncOp>] = &[
        ("first unknown type", &|s| s.type_ = 3, Errno::EINVAL),
        ("last type", &|s| s.type_ = u32::MAX, Errno::EINVAL),
        ("first unknown flag", &|s| s.flags |= 2, Errno::EINVAL),
        ("last flag", &|s| s.flags |= 1 << 31, Errno::EINVAL),
        ("handle 0", &|s| s.handle = 0, Errno::ENOENT),
        ("last handle", &|s| s.handle = u32::MAX, Errno::ENOENT),
        (
            "another file's handle",
            &|s| s.handle = others.handle,
            Errno::ENOENT,
        ),
        ("pad", &|s| s.pad = 1, Errno::EINVAL),
        ("binary with a point", &|s| s.value = 1, Errno::EINVAL),
        ("binary with an address", &|s| s.addr = addr, Errno::EINVAL),
        ("timeline without a point", &|s| s.type_ = 1, Errno::EINVAL),
        (
            "timeline with an address",
            &|s| (s.type_, s.value, s.addr) = (1, 1, addr),
            Errno::EINVAL,
        ),
        ("waiting for nothing", &|s| *s = empty.wait(), Errno::EINVAL),
        (
            "waiting for a point of nothing",
            &|s| *s = empty.point(1),
            Errno::EINVAL,
        ),
    ];
    refuses_by(gpu, good, call, &[cases, more].concat()).map(drop)
}

/// An array as an ioctl gets it: pointer, count, stride.
pub type Array = (u64, u32, u32);

/// Checks an array of `E` in an ioctl that `call` makes: bad addresses, numbers beyond `max`,
/// strides. `good` is an element that is taken as often as one likes.
///
/// # Errors
///
/// Names the cases that went wrong.
pub fn refuses_arrays<E: Copy>(
    gpu: &Gpu,
    good: E,
    max: u32,
    call: &dyn Fn(Array) -> Result<(), Errno>,
) -> anyhow::Result<()> {
    let size = size_of::<E>();
    let good_array = [good];
    let one = (good_array.as_ptr() as u64, 1, stride::<E>());
    let many = vec![good; max as usize + 1];

    // A longer element, as a program that is newer than the kernel has it.
    let mut long = vec![0u8; 4096 + 8];
    long[..size].copy_from_slice(bytes_of(&good));
    let mut dirty = long.clone();
    dirty[size] = 1;
    let mut dirty_end = long.clone();
    dirty_end[4095] = 0x80;

    let mut cliff = pointers::Cliff::new();
    let halfway = cliff.put(&bytes_of(&good)[..size - 8]);
    let mut alone = pointers::Cliff::new();
    let last = alone.put(bytes_of(&good));

    let mut cases: Vec<(String, Array, Errno)> = pointers::bad()
        .into_iter()
        .map(|(what, addr)| (what.to_string(), (addr, 1, one.2), Errno::EFAULT))
        .collect();
    let mut add = |what: &str, array, errno| cases.push((what.to_string(), array, errno));
    add(
        "an element that ends nowhere",
        (halfway, 1, one.2),
        Errno::EFAULT,
    );
    add("a second element nowhere", (last, 2, one.2), Errno::EFAULT);
    add(
        "one too many",
        (many.as_ptr() as u64, max + 1, one.2),
        Errno::EINVAL,
    );
    add("2^31 elements", (one.0, 1 << 31, one.2), Errno::EINVAL);
    add("2^32 - 1 elements", (one.0, u32::MAX, one.2), Errno::EINVAL);
    add("stride 0", (one.0, 1, 0), Errno::EINVAL);
    add("a byte too short", (one.0, 1, one.2 - 1), Errno::EINVAL);
    add(
        "longer and not zero",
        (dirty.as_ptr() as u64, 1, one.2 + 8),
        Errno::E2BIG,
    );
    add(
        "not zero far away",
        (dirty_end.as_ptr() as u64, 1, 4096),
        Errno::E2BIG,
    );
    add(
        "longer than 4096",
        (long.as_ptr() as u64, 1, 4097),
        Errno::E2BIG,
    );
    add(
        "2^32 - 1 bytes",
        (long.as_ptr() as u64, 1, u32::MAX),
        Errno::E2BIG,
    );

    let before = Ledger::read(gpu)?;
    let mut wrong = Vec::new();
    for (what, array, errno) in &cases {
        let got = call(*array);
        if got != Err(*errno) {
            wrong.push(format!("{what}: {got:?} instead of {errno:?}"));
        }
        if got.is_err() {
            before.check(gpu, what)?;
        }
    }
    for (what, array) in [
        ("one", one),
        ("the last before nothing", (last, 1, one.2)),
        ("longer and zero", (long.as_ptr() as u64, 1, one.2 + 8)),
        ("4096 bytes and zero", (long.as_ptr() as u64, 1, 4096)),
        ("as many as may be", (many.as_ptr() as u64, max, one.2)),
    ] {
        let got = call(array);
        if got.is_err() {
            wrong.push(format!("{what}: {got:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
