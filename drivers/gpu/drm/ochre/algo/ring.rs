// SPDX-License-Identifier: GPL-2.0

//! Ring arithmetic: how much fits, where it goes, whether to ring, and whether to believe RPTR.
//!
//! Positions count 64-bit words since the queue was made and never wrap; the word in the ring is
//! the position modulo the ring's size, a power of two. So full and empty need no spare word and no
//! flag: the ring holds `WPTR - RPTR` words. (og1.rst, section "Doorbells".)
//!
//! The producer reserves words, writes them, commits, stores the new WPTR where the board sees it,
//! issues a full barrier, and asks [`Commit::needs_doorbell`] with the EVENT that it reads then.

use core::ops::Range;

use kernel::{
    error::Error,
    prelude::*, //
};

/// Value that a read gives when the device is gone; no position ever gets there.
const ALL_ONES: u64 = u64::MAX;

/// A position in a ring: 64-bit words since the beginning, never wrapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pos(u64);

impl Pos {
    /// Makes a position of a number of words.
    pub(crate) const fn new(words: u64) -> Self {
        Self(words)
    }

    /// Words since the beginning.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// Words between an older position and this one; 0 if it is not older.
    pub(crate) const fn words_since(self, older: Self) -> u64 {
        self.0.saturating_sub(older.0)
    }
}

/// Why the ring refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingError {
    /// A ring of this many words cannot be: `EINVAL`.
    Size,
    /// More words than the ring has, or none: `EINVAL`.
    Length,
    /// Not now, the board has to read some first: `EAGAIN`.
    Full,
    /// RPTR went back: `EIO`.
    Backwards {
        /// What was read before.
        seen: u64,
        /// What was read now.
        read: u64,
    },
    /// RPTR is beyond what was written: `EIO`.
    Beyond {
        /// What was written.
        wptr: u64,
        /// What was read.
        read: u64,
    },
    /// RPTR reads all ones: `ENODEV`.
    Gone,
}

impl From<RingError> for Error {
    fn from(e: RingError) -> Self {
        match e {
            RingError::Size | RingError::Length => EINVAL,
            RingError::Full => EAGAIN,
            RingError::Backwards { .. } | RingError::Beyond { .. } => EIO,
            RingError::Gone => ENODEV,
        }
    }
}

/// Returns whether the doorbell has to be rung after WPTR went from `old` to `new`: exactly if the
/// board asked to be told when the word at `event` is written, the rule of virtio's event index.
pub(crate) const fn needs_doorbell(old: Pos, new: Pos, event: u64) -> bool {
    old.0 <= event && event < new.0
}

/// The producer's side of one ring. Guarded by the lock of the queue.
///
/// # Invariants
///
/// `capacity` is a power of two that fits `usize`, and `rptr <= wptr <= rptr + capacity`.
#[derive(Debug)]
pub(crate) struct Ring {
    capacity: u64,
    wptr: Pos,
    rptr: Pos,
}

impl Ring {
    /// Makes an empty ring of `words` 64-bit words, a power of two, at position 0.
    pub(crate) fn new(words: u64) -> Result<Self, RingError> {
        Self::starting_at(words, Pos(0))
    }

    /// Makes an empty ring that goes on from `start`.
    pub(crate) fn starting_at(words: u64, start: Pos) -> Result<Self, RingError> {
        if !words.is_power_of_two() || usize::try_from(words).is_err() || start.0 == ALL_ONES {
            return Err(RingError::Size);
        }
        // INVARIANT: Just checked, and the ring is empty.
        Ok(Self {
            capacity: words,
            wptr: start,
            rptr: start,
        })
    }

    /// Words that the ring holds at most.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Words that can be reserved now.
    pub(crate) fn space(&self) -> u64 {
        self.capacity - self.wptr.words_since(self.rptr)
    }

    /// Position of the next word to write.
    pub(crate) fn wptr(&self) -> Pos {
        self.wptr
    }

    /// Position up to which the board is known to have read.
    pub(crate) fn rptr(&self) -> Pos {
        self.rptr
    }

    /// Returns whether the board is known to have read everything.
    pub(crate) fn is_idle(&self) -> bool {
        self.rptr == self.wptr
    }

    /// Index in the ring of the word at a position.
    fn index(&self, pos: u64) -> usize {
        // The capacity fits `usize`, so the index does.
        usize::try_from(pos & (self.capacity - 1)).unwrap_or(0)
    }

    /// Reserves the next `words` words: [`RingError::Full`] is worth waiting for, and
    /// [`RingError::Length`] is not.
    pub(crate) fn reserve(&mut self, words: u64) -> Result<Reservation<'_>, RingError> {
        if words == 0 || words > self.capacity {
            return Err(RingError::Length);
        }
        if words > self.space() {
            return Err(RingError::Full);
        }
        let end = self.wptr.0.checked_add(words).ok_or(RingError::Length)?;
        if end == ALL_ONES {
            return Err(RingError::Length);
        }
        Ok(Reservation {
            end: Pos(end),
            ring: self,
        })
    }

    /// Takes over the RPTR that the board published and returns how many words it has freed.
    ///
    /// It must lie between the last one and WPTR; what does not is an error, and is not taken.
    pub(crate) fn update_rptr(&mut self, read: u64) -> Result<u64, RingError> {
        if read == ALL_ONES {
            return Err(RingError::Gone);
        }
        if read < self.rptr.0 {
            return Err(RingError::Backwards {
                seen: self.rptr.0,
                read,
            });
        }
        if read > self.wptr.0 {
            return Err(RingError::Beyond {
                wptr: self.wptr.0,
                read,
            });
        }
        let freed = read - self.rptr.0;
        // INVARIANT: The checks above.
        self.rptr = Pos(read);
        Ok(freed)
    }
}

/// Words that may be written and are not yet the board's. Dropping it gives them back.
#[derive(Debug)]
#[must_use = "reserved words reach the board only by commit"]
pub(crate) struct Reservation<'a> {
    ring: &'a mut Ring,
    end: Pos,
}

impl Reservation<'_> {
    /// Position of the first word.
    pub(crate) fn start(&self) -> Pos {
        self.ring.wptr
    }

    /// Number of words.
    pub(crate) fn words(&self) -> u64 {
        self.end.words_since(self.start())
    }

    /// Index in the ring of word `n` of the reservation.
    pub(crate) fn index(&self, n: u64) -> Option<usize> {
        (n < self.words()).then(|| self.ring.index(self.start().0 + n))
    }

    /// The words as indexes into the ring: to its end, and from its beginning (empty unless it
    /// wraps).
    pub(crate) fn spans(&self) -> (Range<usize>, Range<usize>) {
        let first = self.ring.index(self.start().0);
        // `words <= capacity`, and both fit `usize`.
        let words = usize::try_from(self.words()).unwrap_or(0);
        let capacity = usize::try_from(self.ring.capacity).unwrap_or(0);
        let to_end = words.min(capacity - first);
        (first..first + to_end, 0..words - to_end)
    }

    /// Hands the words to the board: the caller stores `new` as WPTR next.
    pub(crate) fn commit(self) -> Commit {
        let commit = Commit {
            old: self.ring.wptr,
            new: self.end,
        };
        // INVARIANT: `reserve` saw the space, and the ring was borrowed since.
        self.ring.wptr = self.end;
        commit
    }
}

/// What a commit changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "WPTR has to be stored and the doorbell thought of"]
pub(crate) struct Commit {
    /// WPTR before.
    pub(crate) old: Pos,
    /// WPTR now.
    pub(crate) new: Pos,
}

impl Commit {
    /// See [`needs_doorbell`]; `event` has to be read after WPTR was stored and a full barrier.
    pub(crate) const fn needs_doorbell(&self, event: u64) -> bool {
        needs_doorbell(self.old, self.new, event)
    }
}

#[kunit_tests(ochre_algo_ring)]
mod tests {
    use super::*;
    use crate::algo::prng::for_each_seed;

    #[test]
    fn only_powers_of_two_make_a_ring() {
        for words in [0, 3, 100, u64::MAX] {
            assert!(Ring::new(words).is_err());
        }
        assert!(Ring::new(1).is_ok());
        assert!(Ring::new(1 << 16).is_ok());
    }

    #[test]
    fn a_full_ring_says_so_and_a_request_that_never_fits_is_another_error() -> Result {
        let mut ring = Ring::new(8)?;
        assert!(matches!(ring.reserve(0), Err(RingError::Length)));
        assert!(matches!(ring.reserve(9), Err(RingError::Length)));
        let _ = ring.reserve(8)?.commit();
        assert!(ring.space() == 0);
        assert!(matches!(ring.reserve(1), Err(RingError::Full)));
        assert!(ring.update_rptr(3) == Ok(3));
        assert!(ring.reserve(3).is_ok());
        assert!(matches!(ring.reserve(4), Err(RingError::Full)));
        Ok(())
    }

    #[test]
    fn dropped_reservation_changes_nothing() -> Result {
        let mut ring = Ring::new(8)?;
        drop(ring.reserve(5)?);
        assert!(ring.is_idle());
        assert!(ring.space() == 8);
        Ok(())
    }

    #[test]
    fn read_pointer_outside_what_was_written_is_refused_and_forgotten() -> Result {
        let mut ring = Ring::starting_at(16, Pos::new(100))?;
        let _ = ring.reserve(10)?.commit();
        assert!(ring.update_rptr(105) == Ok(5));
        let backwards = RingError::Backwards {
            seen: 105,
            read: 104,
        };
        assert!(ring.update_rptr(104) == Err(backwards));
        let beyond = RingError::Beyond {
            wptr: 110,
            read: 111,
        };
        assert!(ring.update_rptr(111) == Err(beyond));
        assert!(ring.update_rptr(u64::MAX) == Err(RingError::Gone));
        assert!(ring.rptr() == Pos::new(105));
        assert!(ring.update_rptr(110) == Ok(5));
        assert!(ring.is_idle());
        Ok(())
    }

    #[test]
    fn doorbell_is_rung_exactly_for_events_in_the_new_words() {
        let (old, new) = (Pos::new(10), Pos::new(13));
        for event in 0..20 {
            assert!(needs_doorbell(old, new, event) == (10..13).contains(&event));
        }
        // A board that is awake, and a commit of nothing.
        assert!(!needs_doorbell(old, new, u64::MAX));
        assert!(!needs_doorbell(old, old, 10));
    }

    #[test]
    fn what_is_written_is_what_the_board_reads_across_the_wrap() -> Result {
        for_each_seed("ring", |rng| {
            const WORDS: usize = 32;
            let start = rng.below(1 << 40);
            let mut ring = Ring::starting_at(WORDS as u64, Pos::new(start))?;
            let mut memory = [0u64; WORDS];
            let mut read = start;
            for _ in 0..3000 {
                let words = 1 + rng.below(WORDS as u64);
                match ring.reserve(words) {
                    Ok(r) => {
                        let first = r.start().get();
                        let (a, b) = r.spans();
                        assert!((a.len() + b.len()) as u64 == words);
                        for (n, i) in (0..).zip([a, b].into_iter().flatten()) {
                            assert!(r.index(n) == Some(i));
                            memory[i] = first + n;
                        }
                        assert!(r.index(words).is_none());
                        let commit = r.commit();
                        assert!(commit.old.get() == first);
                        assert!(commit.new.words_since(commit.old) == words);
                    }
                    Err(e) => assert!(e == RingError::Full && words > ring.space()),
                }
                // The board reads some, each word as it was written.
                let some = rng.below(ring.wptr().get() - read + 1);
                for pos in read..read + some {
                    assert!(memory[(pos % WORDS as u64) as usize] == pos);
                }
                read += some;
                assert!(ring.update_rptr(read) == Ok(some));
                assert!(ring.space() == WORDS as u64 - (ring.wptr().get() - read));
            }
            Ok(())
        })
    }
}
