// SPDX-License-Identifier: GPL-2.0

//! What devfreq and the thermal core want, put down where their callbacks can reach it.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

use crate::algo::power::levels::Domain;

/// Wishes from outside the turn. Each is a number of its own: a turn that sees half of a change sees
/// the other half in the next one, which whoever changes something kicks.
pub(super) struct Wishes {
    /// Range of each clock in kHz: people's `min_freq` and `max_freq`, or twice what a governor of
    /// the kernel's has chosen.
    min_khz: [Atomic<u32>; 2],
    max_khz: [Atomic<u32>; 2],
    /// What devfreq last asked for, in kHz.
    asked_khz: [Atomic<u32>; 2],
    /// What our governor has decided, in kHz.
    decided_khz: [Atomic<u32>; 2],
    /// How many of the fastest core levels the cooling device takes away.
    cooling: Atomic<u32>,
}

impl Wishes {
    pub(super) fn new() -> Self {
        Self {
            min_khz: [Atomic::new(0), Atomic::new(0)],
            max_khz: [Atomic::new(u32::MAX), Atomic::new(u32::MAX)],
            asked_khz: [Atomic::new(0), Atomic::new(0)],
            decided_khz: [Atomic::new(0), Atomic::new(0)],
            cooling: Atomic::new(0),
        }
    }

    fn of(values: &[Atomic<u32>; 2], domain: Domain) -> &Atomic<u32> {
        let [core, memory] = values;
        match domain {
            Domain::Core => core,
            Domain::Memory => memory,
        }
    }

    /// Range that devfreq allows, in kHz.
    pub(super) fn range(&self, domain: Domain) -> (u32, u32) {
        (
            Self::of(&self.min_khz, domain).load(Relaxed),
            Self::of(&self.max_khz, domain).load(Relaxed),
        )
    }

    pub(super) fn set_range(&self, domain: Domain, min: u32, max: u32) {
        Self::of(&self.min_khz, domain).store(min, Relaxed);
        Self::of(&self.max_khz, domain).store(max, Relaxed);
    }

    /// What devfreq last asked for, in kHz.
    pub(super) fn asked(&self, domain: Domain) -> u32 {
        Self::of(&self.asked_khz, domain).load(Relaxed)
    }

    pub(super) fn set_asked(&self, domain: Domain, khz: u32) {
        Self::of(&self.asked_khz, domain).store(khz, Relaxed);
    }

    /// What our governor has decided, in kHz.
    pub(super) fn decided(&self, domain: Domain) -> u32 {
        Self::of(&self.decided_khz, domain).load(Relaxed)
    }

    pub(super) fn set_decided(&self, domain: Domain, khz: u32) {
        Self::of(&self.decided_khz, domain).store(khz, Relaxed);
    }

    /// How many of the fastest core levels the cooling device takes away.
    pub(super) fn cooling(&self) -> u32 {
        self.cooling.load(Relaxed)
    }

    pub(super) fn set_cooling(&self, levels: u32) {
        self.cooling.store(levels, Relaxed);
    }
}
