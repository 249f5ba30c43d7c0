// SPDX-License-Identifier: GPL-2.0

//! Numbers by which the device knows resources and contexts.
//!
//! A number is a value: as long as somebody has it, nobody else gets it. So it goes with the
//! command that makes the device forget what it names, and comes back when that was answered.

use core::marker::PhantomData;

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::ext::ida::Ida;

/// Numbers from 1 on; some of the C side's interfaces take them for an `int`.
const RANGE: core::ops::RangeInclusive<u32> = 1..=0x7fff_ffff;

/// All numbers of one kind.
pub(super) struct Ids<T>(Arc<Ida>, PhantomData<fn() -> T>);

impl<T> Ids<T> {
    /// All are free.
    pub(super) fn new() -> Result<Self> {
        Ok(Self(Arc::pin_init(Ida::new(), GFP_KERNEL)?, PhantomData))
    }

    /// Takes a number. [`ENOMEM`], [`ENOSPC`].
    pub(super) fn alloc(&self) -> Result<Id<T>> {
        Ok(Id {
            number: self.0.alloc(RANGE)?,
            ids: self.0.clone(),
            kind: PhantomData,
        })
    }
}

/// A number in use. Dropping it, in any context, gives it back.
pub(super) struct Id<T> {
    number: u32,
    ids: Arc<Ida>,
    kind: PhantomData<fn() -> T>,
}

impl<T> Id<T> {
    /// The number, not 0.
    pub(super) fn get(&self) -> u32 {
        self.number
    }
}

impl<T> Drop for Id<T> {
    fn drop(&mut self) {
        self.ids.free(self.number);
    }
}

/// Kinds of numbers.
pub(super) enum Resource {}
/// As above.
pub(super) enum Context {}

/// Number of a resource.
pub(super) type ResourceId = Id<Resource>;
/// Number of a context.
pub(super) type ContextId = Id<Context>;

#[kunit_tests(ochre_virtio_ids)]
mod tests {
    use super::*;

    #[test]
    fn number_is_not_given_out_again_while_somebody_has_it() -> Result {
        let ids = Ids::<Resource>::new()?;
        let first = ids.alloc()?;
        let second = ids.alloc()?;
        assert_eq!((first.get(), second.get()), (1, 2));
        drop(first);
        assert_eq!(ids.alloc()?.get(), 1);
        assert_eq!(second.get(), 2);
        Ok(())
    }
}
