// SPDX-License-Identifier: GPL-2.0

//! What the device said about something, for whoever asks later.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// The first error that the device answered, if it answered one. Written in interrupts.
pub(super) struct Verdict(Atomic<i32>);

impl Verdict {
    /// No error until now.
    pub(super) fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Notes an answer. An error is kept if it is the first.
    pub(super) fn note(&self, result: Result) {
        if let Err(error) = result {
            // The first one stays.
            let _ = self.0.cmpxchg(0, error.to_errno(), Relaxed);
        }
    }

    /// The error, if there is one. It stays.
    pub(super) fn get(&self) -> Result {
        Self::result(self.0.load(Relaxed))
    }

    /// The error, if there is one. It is told once.
    pub(super) fn take(&self) -> Result {
        match self.0.load(Relaxed) {
            0 => Ok(()),
            _ => Self::result(self.0.xchg(0, Relaxed)),
        }
    }

    fn result(errno: i32) -> Result {
        match errno {
            0 => Ok(()),
            _ => Err(Error::from_errno(errno)),
        }
    }
}

#[kunit_tests(ochre_virtio_verdict)]
mod tests {
    use super::*;

    #[test]
    fn first_error_is_kept_until_it_is_taken_once() {
        let verdict = Verdict::new();
        verdict.note(Ok(()));
        assert_eq!(verdict.get(), Ok(()));
        verdict.note(Err(ENOMEM));
        verdict.note(Err(EIO));
        assert_eq!(verdict.get(), Err(ENOMEM));
        assert_eq!(verdict.take(), Err(ENOMEM));
        assert_eq!(verdict.take(), Ok(()));
        verdict.note(Err(EIO));
        assert_eq!(verdict.take(), Err(EIO));
    }
}
