// SPDX-License-Identifier: GPL-2.0

//! A bitmap with summary levels: the next or previous set bit of millions in a handful of steps.

use core::ops::Range;

use kernel::{
    alloc::AllocError,
    prelude::*, //
};

/// Bits of one word.
const WORD_BITS: u64 = 64;

/// Most levels: 64^6 bits are more than any board has pages.
const MAX_LEVELS: usize = 6;

/// Where one level begins in [`Bitmap::words`], and how many words it has.
#[derive(Clone, Copy, Default)]
struct Level {
    offset: u64,
    words: u64,
}

/// A fixed-size bitmap in which level 0 holds the bits, and each level above one bit per word of
/// the level below, set if that word is not zero.
///
/// All memory is allocated in [`Bitmap::new`]: 1.016 bits per bit. Setting and clearing touch one
/// word per level, searching at most two.
pub(super) struct Bitmap {
    bits: u64,
    words: KVVec<u64>,
    levels: [Level; MAX_LEVELS],
    depth: usize,
}

/// Splits a bit's index into the index of its word and the bit in it.
fn split(bit: u64) -> (u64, u64) {
    (bit / WORD_BITS, bit % WORD_BITS)
}

impl Bitmap {
    /// Allocates a bitmap of `bits` bits, all clear.
    pub(super) fn new(bits: u64) -> Result<Self, AllocError> {
        let mut levels = [Level::default(); MAX_LEVELS];
        let mut depth = 0;
        let mut total = 0;
        let mut below = bits.max(1);
        for level in &mut levels {
            let words = below.div_ceil(WORD_BITS);
            *level = Level {
                offset: total,
                words,
            };
            total += words;
            depth += 1;
            below = words;
            if words == 1 {
                break;
            }
        }
        if below != 1 {
            return Err(AllocError);
        }
        let total = usize::try_from(total).map_err(|_| AllocError)?;
        Ok(Self {
            bits,
            words: KVVec::from_elem(0, total, GFP_KERNEL)?,
            levels,
            depth,
        })
    }

    /// Index of a word of a level in `words`; `None` outside.
    fn position(&self, level: usize, word: u64) -> Option<usize> {
        let l = self.levels.get(level)?;
        if word >= l.words {
            return None;
        }
        usize::try_from(l.offset + word).ok()
    }

    /// A word of a level; outside there are no bits.
    fn word(&self, level: usize, word: u64) -> u64 {
        self.position(level, word)
            .and_then(|i| self.words.get(i))
            .copied()
            .unwrap_or(0)
    }

    /// Returns whether a bit is set.
    pub(super) fn get(&self, bit: u64) -> bool {
        let (word, shift) = split(bit);
        self.word(0, word) >> shift & 1 != 0
    }

    /// Sets a bit and tells the levels above.
    pub(super) fn set(&mut self, bit: u64) {
        let mut bit = bit;
        for level in 0..self.depth {
            let (word, shift) = split(bit);
            let Some(w) = self
                .position(level, word)
                .and_then(|i| self.words.get_mut(i))
            else {
                return;
            };
            let before = *w;
            *w |= 1 << shift;
            if before != 0 {
                return;
            }
            bit = word;
        }
    }

    /// Clears a bit and tells the levels above.
    pub(super) fn clear(&mut self, bit: u64) {
        let mut bit = bit;
        for level in 0..self.depth {
            let (word, shift) = split(bit);
            let Some(w) = self
                .position(level, word)
                .and_then(|i| self.words.get_mut(i))
            else {
                return;
            };
            *w &= !(1 << shift);
            if *w != 0 {
                return;
            }
            bit = word;
        }
    }

    /// Returns the lowest set bit in `range`.
    pub(super) fn first_in(&self, range: Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        let mut from = range.start;
        for level in 0..self.depth {
            let (word, shift) = split(from);
            let w = self.word(level, word) & (u64::MAX << shift);
            if w != 0 {
                let bit = word * WORD_BITS + u64::from(w.trailing_zeros());
                let found = self.descend(level, bit, |w| u64::from(w.trailing_zeros()));
                return (found < range.end).then_some(found);
            }
            from = word + 1;
        }
        None
    }

    /// Returns the highest set bit in `range`.
    pub(super) fn last_in(&self, range: Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        // The walk upwards only sees words before the end, so that has to be within the bitmap.
        let mut before = range.end.min(self.bits);
        for level in 0..self.depth {
            let (word, shift) = split(before.checked_sub(1)?);
            let w = self.word(level, word) & (u64::MAX >> (WORD_BITS - 1 - shift));
            if w != 0 {
                let bit = word * WORD_BITS + u64::from(w.ilog2());
                let found = self.descend(level, bit, |w| u64::from(w.checked_ilog2().unwrap_or(0)));
                return (found >= range.start).then_some(found);
            }
            before = word;
        }
        None
    }

    /// Follows a set bit of `level` down to a bit of level 0; `pick` chooses in each word.
    fn descend(&self, level: usize, bit: u64, pick: impl Fn(u64) -> u64) -> u64 {
        let mut bit = bit;
        for l in (0..level).rev() {
            bit = bit * WORD_BITS + pick(self.word(l, bit));
        }
        bit
    }
}

#[kunit_tests(ochre_algo_bitmap)]
mod tests {
    use super::*;
    use crate::algo::prng::for_each_seed;

    #[test]
    fn search_agrees_with_a_plain_array() -> Result {
        for_each_seed("bitmap", |rng| {
            for bits in [1, 63, 64, 65, 4096, 4097, 9000u64] {
                let mut map = Bitmap::new(bits)?;
                let mut model = KVec::from_elem(false, 9100, GFP_KERNEL)?;
                for _ in 0..300 {
                    let bit = rng.below(bits);
                    let value = rng.chance(45);
                    if value {
                        map.set(bit);
                    } else {
                        map.clear(bit);
                    }
                    model[bit as usize] = value;
                    assert!(map.get(bit) == value);

                    // Ranges may reach beyond the end.
                    let a = rng.below(bits + 70);
                    let b = rng.below(bits + 70);
                    let expected = (a..b).find(|i| model[*i as usize]);
                    assert!(map.first_in(a..b) == expected);
                    let expected = (a..b).rev().find(|i| model[*i as usize]);
                    assert!(map.last_in(a..b) == expected);
                }
            }
            Ok(())
        })
    }

    #[test]
    fn bits_outside_are_clear_and_stay_so() -> Result {
        let mut map = Bitmap::new(100)?;
        map.set(1 << 40);
        assert!(!map.get(1 << 40));
        assert!(map.first_in(0..u64::MAX).is_none());
        assert!(map.last_in(0..u64::MAX).is_none());
        Ok(())
    }
}
