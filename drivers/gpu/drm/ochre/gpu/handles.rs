// SPDX-License-Identifier: GPL-2.0

//! Numbers by which an open file names its VMs and queues.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// Objects of one file by handle. A handle is never 0; the lowest free one is given out.
#[pin_data]
pub(crate) struct Handles<T: Send + Sync> {
    /// Slot `n` has handle `n + 1`. A leaf lock: what is taken out is dropped outside it.
    #[pin]
    slots: Mutex<KVec<Option<Arc<T>>>>,
    max: usize,
}

impl<T: Send + Sync> Handles<T> {
    /// A table for at most `max` objects.
    pub(crate) fn new(max: usize) -> impl PinInit<Self> {
        pin_init!(Self {
            slots <- new_mutex!(KVec::new(), "ochre_handles"),
            max,
        })
    }

    /// Gives `object` a handle. [`ENOSPC`]: the file has as many as it may.
    pub(crate) fn insert(&self, object: Arc<T>) -> Result<u32> {
        let mut slots = self.slots.lock();
        let free = slots.iter().position(Option::is_none);
        let index = free.unwrap_or(slots.len());
        if index >= self.max {
            return Err(ENOSPC);
        }
        let handle = u32::try_from(index)?.checked_add(1).ok_or(ENOSPC)?;
        match slots.get_mut(index) {
            Some(slot) => *slot = Some(object),
            None => slots.push(Some(object), GFP_KERNEL_ACCOUNT)?,
        }
        Ok(handle)
    }

    /// The object with this handle. [`ENOENT`] if there is none.
    pub(crate) fn get(&self, handle: u32) -> Result<Arc<T>> {
        let slots = self.slots.lock();
        Self::index(handle)
            .and_then(|index| slots.get(index)?.clone())
            .ok_or(ENOENT)
    }

    /// Takes the object with this handle out. [`ENOENT`] if there is none.
    pub(crate) fn remove(&self, handle: u32) -> Result<Arc<T>> {
        let mut slots = self.slots.lock();
        Self::index(handle)
            .and_then(|index| slots.get_mut(index)?.take())
            .ok_or(ENOENT)
    }

    /// Takes any object out; [`None`] when the table is empty.
    pub(crate) fn take_one(&self) -> Option<Arc<T>> {
        self.slots.lock().iter_mut().find_map(Option::take)
    }

    /// All objects. [`ENOMEM`].
    pub(crate) fn all(&self) -> Result<KVec<Arc<T>>> {
        let slots = self.slots.lock();
        let mut all = KVec::with_capacity(slots.len(), GFP_KERNEL)?;
        for object in slots.iter().flatten() {
            all.push(object.clone(), GFP_KERNEL)?;
        }
        Ok(all)
    }

    /// Calls `f` with each object.
    pub(crate) fn for_each(&self, f: impl FnMut(&Arc<T>)) {
        self.slots.lock().iter().flatten().for_each(f);
    }

    fn index(handle: u32) -> Option<usize> {
        usize::try_from(handle).ok()?.checked_sub(1)
    }
}

#[kunit_tests(ochre_gpu_handles)]
mod tests {
    use super::*;

    fn table(max: usize) -> Result<Pin<KBox<Handles<u32>>>> {
        KBox::pin_init(Handles::new(max), GFP_KERNEL)
    }

    #[test]
    fn handle_is_never_zero_and_zero_is_never_found() -> Result {
        let table = table(4)?;
        assert_eq!(table.insert(Arc::new(7, GFP_KERNEL)?)?, 1);
        assert_eq!(*table.get(1)?, 7);
        assert_eq!(table.get(0).err(), Some(ENOENT));
        assert_eq!(table.get(2).err(), Some(ENOENT));
        assert_eq!(table.get(u32::MAX).err(), Some(ENOENT));
        Ok(())
    }

    #[test]
    fn removed_handle_is_gone_and_its_number_free_again() -> Result {
        let table = table(2)?;
        table.insert(Arc::new(1, GFP_KERNEL)?)?;
        table.insert(Arc::new(2, GFP_KERNEL)?)?;
        assert_eq!(table.insert(Arc::new(3, GFP_KERNEL)?).err(), Some(ENOSPC));
        assert_eq!(*table.remove(1)?, 1);
        assert_eq!(table.remove(1).err(), Some(ENOENT));
        assert_eq!(table.insert(Arc::new(3, GFP_KERNEL)?)?, 1);
        assert_eq!(*table.get(2)?, 2);
        Ok(())
    }

    #[test]
    fn emptied_table_holds_nothing() -> Result {
        let table = table(4)?;
        table.insert(Arc::new(1, GFP_KERNEL)?)?;
        table.insert(Arc::new(2, GFP_KERNEL)?)?;
        while table.take_one().is_some() {}
        assert_eq!(table.get(1).err(), Some(ENOENT));
        let mut seen = 0;
        table.for_each(|_| seen += 1);
        assert_eq!(seen, 0);
        Ok(())
    }
}
