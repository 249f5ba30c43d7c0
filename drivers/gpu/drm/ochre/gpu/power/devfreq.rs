// SPDX-License-Identifier: GPL-2.0

//! Both clocks under devfreq: the core's as the board's own, the memory's as that of a child device.
//!
//! With the governor `ochre` the kernel does not decide: it is told what was decided, for its
//! statistics, and asked for the range that people allow. With another governor what that asks for
//! is the wish, within the same limits as ever.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    devres, faux, new_mutex,
    prelude::*,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    },
};

use super::{
    board,
    faces::Face,
    DOMAINS, //
};
use crate::{
    algo::power::{
        fixed::{
            mul_div,
            signed,
            unsigned, //
        },
        levels::Domain, //
    },
    ext::devfreq::{
        self,
        Instance,
        Ops,
        Point,
        Status, //
    },
    gpu::Gpu, //
};

/// Board time, and how much of it the domain had to do, in ns.
#[derive(Clone, Copy, Default)]
struct Mark {
    time: u64,
    busy: u64,
}

/// A clock.
#[pin_data]
struct Clock {
    face: Face,
    domain: Domain,
    /// When a governor asked last. A leaf.
    #[pin]
    asked: Mutex<Mark>,
}

impl Clock {
    fn khz(&self) -> Result<u32> {
        self.face.look(|_, sample| {
            let [core, memory] = &sample.domains;
            Ok(match self.domain {
                Domain::Core => core.khz,
                Domain::Memory => memory.khz,
            })
        })
    }

    /// How much there was to do until now.
    fn mark(&self) -> Result<Mark> {
        let gpu = &self.face.0;
        let power = gpu.hal().power().ok_or(ENODEV)?;
        self.face.with(|state| {
            if state.is_held() {
                return Err(EBUSY);
            }
            let seen = board::read(gpu.hal(), power)?;
            let busy = match self.domain {
                // An engine that works needs the core.
                Domain::Core => seen.sample.busy_ns.iter().copied().max().unwrap_or(0),
                Domain::Memory => {
                    let [_, memory] = &seen.raw.domains;
                    let bytes_per_ms =
                        u64::from(power.costs().bytes_per_cycle).saturating_mul(memory.khz.into());
                    let traffic = signed(seen.sample.traffic);
                    unsigned(mul_div(traffic, 1_000_000, signed(bytes_per_ms.max(1))))
                }
            };
            Ok(Mark {
                time: seen.raw.time,
                busy,
            })
        })
    }
}

impl Ops for Clock {
    fn set(&self, hz: u64) -> Result {
        let khz = u32::try_from(hz / 1000)?;
        let wishes = &self.face.0.power.wishes;
        let before = wishes.asked(self.domain);
        wishes.set_asked(self.domain, khz);
        if khz != before && khz != wishes.decided(self.domain) {
            self.face.set(|state| {
                state.change();
                Ok(())
            })?;
        }
        Ok(())
    }

    fn get(&self) -> Result<u64> {
        Ok(u64::from(self.khz()?) * 1000)
    }

    fn status(&self) -> Result<Status> {
        let now = self.mark()?;
        let before = core::mem::replace(&mut *self.asked.lock(), now);
        // An idle board's time stands still. Governors take no time for a full load.
        let total = now.time.saturating_sub(before.time).max(1);
        Ok(Status {
            total,
            busy: now.busy.saturating_sub(before.busy).min(total),
        })
    }

    fn taken(&self) {
        let result = self.face.set(|state| {
            state.change();
            Ok(())
        });
        // Without a board there is nothing to decide.
        let _ = result;
    }

    fn wanted(&self) -> u64 {
        let wishes = &self.face.0.power.wishes;
        u64::from(wishes.decided(self.domain)) * 1000
    }
}

fn clock(gpu: &Arc<Gpu>, domain: Domain) -> Result<(Arc<Clock>, KVec<Point>)> {
    let clock = Arc::pin_init(
        pin_init!(Clock {
            face: Face(gpu.clone()),
            domain,
            asked <- new_mutex!(Mark::default(), "ochre_devfreq_asked"),
        }),
        GFP_KERNEL,
    )?;
    let mut points = KVec::new();
    clock.face.with(|state| {
        for level in state.table(domain).levels().iter().rev() {
            let point = Point {
                hz: u64::from(level.khz) * 1000,
                uv: level.uv,
            };
            points.push(point, GFP_KERNEL)?;
        }
        Ok(())
    })?;
    let khz = clock.khz()?;
    gpu.power.wishes.set_decided(domain, khz);
    Ok((clock, points))
}

/// Puts both clocks under devfreq.
pub(super) fn register(dev: &Device<Bound>, gpu: &Arc<Gpu>) -> Result<[Arc<Instance>; 2]> {
    let (clock_of_core, points) = clock(gpu, Domain::Core)?;
    let core = devfreq::register(dev, &points, clock_of_core)?;

    // One instance per device, so the memory is one of its own.
    let name = CString::try_from_fmt(fmt!("{}-memory", dev.name()))?;
    let child = faux::Registration::new(&name, Some(dev))?;
    let (clock_of_memory, points) = clock(gpu, Domain::Memory)?;
    let memory = devfreq::register(child.as_ref().as_ref(), &points, clock_of_memory)?;
    devres::register(dev, child, GFP_KERNEL)?;
    Ok([core, memory])
}

impl Gpu {
    fn power_clocks(&self) -> [Option<Arc<Instance>>; 2] {
        self.power.faces.lock().clocks.clone()
    }

    /// Asks devfreq for what is allowed, or wanted.
    pub(super) fn power_ask_devfreq(&self) {
        let wishes = &self.power.wishes;
        for (domain, instance) in DOMAINS.into_iter().zip(self.power_clocks()) {
            let Some(range) = instance.and_then(|instance| instance.range()) else {
                continue;
            };
            // The kernel has no more than whole kHz in it, and no more of those than 32 bits.
            let khz = |hz: u64| u32::try_from(hz / 1000).unwrap_or(u32::MAX);
            let (min, max) = match (range.is_ours, wishes.asked(domain)) {
                (false, asked) if asked > 0 => (asked, asked),
                _ => (khz(range.min_hz), khz(range.max_hz)),
            };
            wishes.set_range(domain, min, max);
        }
    }

    /// Tells devfreq what was decided.
    pub(super) fn power_tell_devfreq(&self) {
        let decided = match &*self.power.state.lock() {
            Some(state) if !state.is_held() => state.decided_khz(),
            _ => None,
        };
        let Some(decided) = decided else { return };
        for (domain, khz) in DOMAINS.into_iter().zip(decided) {
            self.power.wishes.set_decided(domain, khz);
        }
        for instance in self.power_clocks().into_iter().flatten() {
            // What does not work will show in the next sample.
            let _ = instance.update();
        }
        self.power_tell_thermal();
    }
}
