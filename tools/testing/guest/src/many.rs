// SPDX-License-Identifier: GPL-2.0
//! Many things of a kind: as many as there are, and those of another file.

use std::io;

use anyhow::ensure;
use anyhow::Context;
use nix::errno::Errno;

use crate::harness::errno;

/// A handle that another file has given out and the file under test has not: numbers count up in
/// each file, so the last of several is beyond those of a test.
#[derive(Debug)]
pub struct Foreign<T> {
    /// The handle.
    pub handle: u32,
    _all: Vec<T>,
}

impl<T> Foreign<T> {
    /// Makes several things with `new`, by way of the other file.
    ///
    /// # Errors
    ///
    /// What `new` gives.
    pub fn new(
        new: impl Fn() -> io::Result<T>,
        handle: impl Fn(&T) -> u32,
    ) -> anyhow::Result<Self> {
        const NUMBER: usize = 8;
        let all: Vec<_> = (0..NUMBER).map(|_| new()).collect::<Result<_, _>>()?;
        let handle = handle(all.last().context("several")?);
        Ok(Self { handle, _all: all })
    }
}

/// Makes things with `new` until it says `ENOSPC`, and returns them all.
///
/// # Errors
///
/// Another errno, or there are `limit` of them, which is more than there can be.
pub fn until_enospc<T>(limit: usize, new: impl Fn() -> io::Result<T>) -> anyhow::Result<Vec<T>> {
    let mut all = Vec::new();
    loop {
        match new() {
            Ok(one) => all.push(one),
            error => {
                let errno = errno(error);
                ensure!(
                    errno == Some(Errno::ENOSPC),
                    "{errno:?} after {}",
                    all.len()
                );
                return Ok(all);
            }
        }
        ensure!(all.len() < limit, "more than there can be");
    }
}
