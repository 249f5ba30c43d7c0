// SPDX-License-Identifier: GPL-2.0
//! The board as `gpu/` sees it: [`Hal`] for og1, which hands each question to the file that knows.

use kernel::{
    device,
    device::Bound,
    fmt,
    io::poll,
    new_mutex,
    pci,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use super::{
    counters::Counters,
    debugfs::{
        self,
        Present, //
    },
    discovery::{
        Board,
        EngineKind, //
    },
    faults::FaultRing,
    firmware::{
        Image,
        Start, //
    },
    hw::{
        isa::STACK_BASE,
        mem::{
            PT_LEVELS,
            VA_BITS, //
        },
        packets::INDIRECT_WORDS_MAX,
        regs::{
            PCI_DEVICE,
            PCI_VENDOR,
            RESET_MAGIC, //
        }, //
    },
    page_table::{
        self,
        Contexts,
        PageTable,
        CONTEXTS, //
    },
    queue::{
        self,
        Queue,
        RING_WORDS, //
    },
    regs::{
        self,
        Regs, //
    },
    slots::Slots, //
};
use crate::{
    algo::{
        sched::SlotId,
        va::{
            Attrs,
            LeafSize,
            VaRange, //
        }, //
    },
    ext,
    hal::{
        BoardAddr,
        Clocks,
        Command,
        ContextId,
        Correlation,
        Counter,
        Engine,
        EngineClass,
        EngineId,
        Fault,
        Hal,
        HwQueue,
        Info,
        LeafPlace,
        PageTableShape,
        Power,
        QueueConfig,
        Reset,
        ResetProgress,
        SlotState,
        Table, //
    }, //
};

/// How long the reset of a slot or an engine may take.
const RESET_TIMEOUT: Delta = Delta::from_secs(1);
/// How long the reset of the board may take, with the start of its firmware.
const DEVICE_RESET_TIMEOUT: Delta = Delta::from_secs(8);
/// How long the board may take to come to rest when the driver goes.
const STOP_TIMEOUT: Delta = Delta::from_secs(2);

/// A reset in progress.
struct Resetting {
    /// The board was reset and starts its firmware.
    starting: bool,
    deadline: Instant<Monotonic>,
}

/// An og1 board that the driver is bound to.
#[pin_data]
pub(super) struct Og1 {
    pdev: ARef<pci::Device>,
    /// Whether the driver is still bound; held while DMA memory is allocated, which only a bound
    /// device may do. Nothing else is taken inside.
    #[pin]
    bound: Mutex<bool>,
    regs: Arc<Regs>,
    slots: Arc<Slots>,
    info: Info,
    vectors: usize,
    /// Its clocks and voltages can be set.
    has_power: bool,
    image: Image,
    #[pin]
    contexts: Contexts,
    #[pin]
    faults: FaultRing,
    #[pin]
    counters: Counters,
    /// Which registers there are, for debugfs.
    present: Present,
    /// The reset that was begun last, until it has ended. Registers are accessed inside.
    #[pin]
    reset: Mutex<Option<Resetting>>,
    /// Guards what reading or writing one register latches in another, until that has been read.
    #[pin]
    latch: Mutex<()>,
}

impl Og1 {
    /// A board whose registers and discovery table were read. Its firmware runs when
    /// [`Self::bring_up`] has returned.
    pub(super) fn new<'a>(
        pdev: &'a pci::Device<Bound>,
        regs: Arc<Regs>,
        board: Board,
        image: Image,
    ) -> impl PinInit<Self, Error> + 'a {
        let dev: &device::Device<Bound> = pdev.as_ref();
        pin_init::pin_init_scope(move || {
            let mut board = board;
            let fuses = image.info().engines;
            board
                .engines
                .retain(|engine| fuses >> engine.index & 1 != 0);
            if board.engines.is_empty() {
                dev_err!(pdev, "the firmware's fuses leave no engine switched on\n");
                return Err(EINVAL);
            }
            let info = describe(&board, &image)?;
            let present = Present::new(&board);
            let mut engines = KVec::with_capacity(board.engines.len(), GFP_KERNEL)?;
            for engine in &board.engines {
                engines.push(engine.index, GFP_KERNEL)?;
            }
            let slots = Arc::new(Slots::new(regs.clone(), engines), GFP_KERNEL)?;
            Ok(try_pin_init!(Self {
                pdev: pdev.into(),
                bound <- new_mutex!(true),
                regs,
                counters <- Counters::new(board.counters, slots.clone()),
                present,
                slots,
                info,
                vectors: usize::try_from(board.vectors)?,
                has_power: board.power,
                image,
                contexts <- Contexts::new(dev),
                faults <- FaultRing::new(dev),
                reset <- new_mutex!(None),
                latch <- new_mutex!(()),
            }))
        })
    }

    /// Resets the board, starts its firmware and sets up what the driver keeps in its registers.
    /// Sleeps until that is done. Errors: `EIO`, `ETIMEDOUT`, `ENODEV`; the log says what failed.
    pub(super) fn bring_up(&self) -> Result {
        self.reset(Reset::Device)?;
        let progress = poll::read_poll_timeout(
            || self.poll_reset(Reset::Device),
            |progress| *progress != ResetProgress::Pending,
            Delta::from_millis(1),
            DEVICE_RESET_TIMEOUT,
        )?;
        match progress {
            ResetProgress::Done => Ok(()),
            _ => Err(EIO),
        }
    }

    /// Interrupt vectors of the board.
    pub(super) fn vectors(&self) -> usize {
        self.vectors
    }

    /// The engine with number `index` in the registers, if it is switched on.
    pub(super) fn engine_at(&self, index: u8) -> Option<EngineId> {
        self.slots.engine_at(index)
    }

    /// Engines and their slots.
    pub(super) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The firmware.
    pub(super) fn image(&self) -> &Image {
        &self.image
    }

    /// Guards what reading one register latches in another, and the time of the alarm.
    pub(super) fn latch(&self) -> &Mutex<()> {
        &self.latch
    }

    /// Its registers.
    pub(super) fn regs(&self) -> &Regs {
        &self.regs
    }

    /// Lets the vectors send messages, or not.
    pub(super) fn mask_interrupts(&self, masked: bool) -> Result {
        let mask = regs::IRQ_MASK::from(u32::from(masked));
        for vector in 0..self.vectors {
            self.regs.write_at(vector, mask)?;
        }
        Ok(())
    }

    fn dev(&self) -> &device::Device {
        self.pdev.as_ref()
    }

    /// Calls `f` with the device while it is sure to stay bound. `ENODEV` when it is not.
    fn with_bound<R>(&self, f: impl FnOnce(&device::Device<Bound>) -> Result<R>) -> Result<R> {
        let bound = self.bound.lock();
        if !*bound {
            return Err(ENODEV);
        }
        // SAFETY: `stop` clears `bound` under the lock that is held here, and runs before the driver
        // is unbound; so the device is bound until the lock is released, and the reference does
        // not outlive this call of `f`.
        f(unsafe { self.dev().as_bound() })
    }

    /// Sets up the registers after a reset, as far as the driver keeps things in them.
    fn set_up(&self) -> Result {
        self.contexts.commit(&self.regs)?;
        self.faults.enable(&self.regs)?;
        self.mask_interrupts(false)
    }

    /// Begins to reset the board.
    fn start_device_reset(&self) -> Result {
        self.counters.freeze(&self.regs);
        self.regs
            .write_ordered(regs::DEVICE_RESET::from(RESET_MAGIC))
    }

    /// Carries a reset of the board on by one step.
    fn poll_device_reset(&self, resetting: &mut Resetting) -> Result<ResetProgress> {
        if !resetting.starting {
            if u32::from(self.regs.read::<regs::STATUS>()?.resetting()) != 0 {
                return Ok(ResetProgress::Pending);
            }
            self.counters.thaw();
            self.image.begin(&self.regs)?;
            resetting.starting = true;
        }
        match self.image.poll(self.dev(), &self.regs)? {
            Start::Pending => Ok(ResetProgress::Pending),
            Start::Refused => Ok(ResetProgress::Refused),
            Start::Running => {
                self.set_up()?;
                Ok(ResetProgress::Done)
            }
        }
    }
}

/// What `gpu/` wants to know of the board.
fn describe(board: &Board, image: &Image) -> Result<Info> {
    let mut engines = KVec::with_capacity(board.engines.len(), GFP_KERNEL)?;
    let mut counts = [0u16; EngineClass::ALL.len()];
    for engine in &board.engines {
        let class = match engine.kind {
            EngineKind::Compute => EngineClass::Compute,
            EngineKind::Copy => EngineClass::Copy,
        };
        let count = &mut counts[class.index()];
        engines.push(
            Engine {
                class,
                instance: *count,
                slots: engine.slots,
                lanes: engine.lanes,
                block_items_max: engine.block_items,
                local_bytes: engine.local_bytes,
            },
            GFP_KERNEL,
        )?;
        *count += 1;
    }

    Ok(Info {
        name: image.info().name,
        vendor: PCI_VENDOR.into(),
        device: PCI_DEVICE.into(),
        revision: board.version,
        firmware: image.info().version,
        vram_size: board.vram,
        aperture_size: board.aperture,
        // The first page stays free, so that a null pointer faults; from the stacks' window on,
        // addresses do not reach the page tables.
        va: 4096..STACK_BASE.min(1 << board.va_bits.min(VA_BITS)),
        page_table: PageTableShape {
            levels: PT_LEVELS as u8,
            entries_log2: 9,
        },
        contexts: CONTEXTS,
        queues: board.queue_ids,
        ring_words: RING_WORDS as u64,
        job_words_max: INDIRECT_WORDS_MAX,
        timestamp_hz: board.time_hz,
        engines,
    })
}

impl Hal for Og1 {
    fn info(&self) -> &Info {
        &self.info
    }

    fn power(&self) -> Option<&dyn Power> {
        self.has_power.then_some(self)
    }

    fn clocks(&self) -> Result<Clocks> {
        let image = self.image.info();
        Ok(Clocks {
            core_khz: self.regs.read::<regs::CORE_CLOCK>()?.into(),
            core_max_khz: image.core_max_khz,
            memory_khz: self.regs.read::<regs::MEMORY_CLOCK>()?.into(),
            memory_max_khz: image.memory_max_khz,
        })
    }

    fn has_counter(&self, counter: Counter) -> bool {
        self.counters.has(counter)
    }

    fn counter(&self, counter: Counter) -> Result<u64> {
        self.counters.read(&self.regs, counter)
    }

    fn register_groups(&self) -> &'static [&'static CStr] {
        debugfs::GROUP_NAMES
    }

    fn dump_registers(&self, group: usize, out: &mut dyn fmt::Write) -> Result {
        // Whatever one register latches in another belongs to this look.
        let _latch = self.latch.lock();
        self.present.dump(group, &self.regs, &self.counters, out)
    }

    fn time(&self) -> Result<u64> {
        // The high word is as of the last read of the low one, by whomever.
        let _latch = self.latch.lock();
        self.regs.read_pair::<regs::TIME_LO, regs::TIME_HI>()
    }

    fn correlate(&self, cpu: &mut dyn FnMut() -> i64) -> Result<Correlation> {
        let latch = regs::LATCH::zeroed().with_const_latch::<1>();
        let _latch = self.latch.lock();
        let cpu_before = cpu();
        self.regs.write_ordered(latch)?;
        // The write is posted: only what is read back says that it has been done.
        let board = self.regs.read_pair::<regs::LATCH_LO, regs::LATCH_HI>()?;
        let cpu_after = cpu();
        Ok(Correlation {
            cpu_before,
            cpu_after,
            board,
        })
    }

    fn new_table(&self) -> Result<KBox<dyn Table>> {
        let table = self.with_bound(PageTable::new)?;
        Ok(KBox::new(table, GFP_KERNEL_ACCOUNT)?)
    }

    fn leaf_place(&self, size: LeafSize) -> LeafPlace {
        page_table::leaf_place(size)
    }

    fn leaf(&self, addr: BoardAddr, size: LeafSize, attrs: Attrs) -> u64 {
        page_table::leaf(addr, size, attrs)
    }

    fn sparse_leaf(&self, size: LeafSize) -> u64 {
        page_table::sparse_leaf(size)
    }

    fn table_entry(&self, addr: BoardAddr) -> u64 {
        page_table::table_entry(addr)
    }

    fn set_context(&self, context: ContextId, root: Option<BoardAddr>) -> Result {
        self.contexts.set(&self.regs, context, root)
    }

    fn invalidate_tlb(&self, context: ContextId, range: Option<VaRange>) -> Result {
        self.contexts.invalidate(&self.regs, context, range)
    }

    fn new_queue(&self, config: &QueueConfig) -> Result<KBox<dyn HwQueue>> {
        let queue = self.with_bound(|dev| Queue::new(dev, self.slots.clone(), config))?;
        Ok(KBox::new(queue, GFP_KERNEL_ACCOUNT)?)
    }

    fn words(&self, command: &Command) -> u64 {
        queue::words(command)
    }

    fn slot(&self, slot: SlotId) -> Result<SlotState> {
        self.slots.state(slot)
    }

    fn next_fault(&self) -> Result<Option<Fault>> {
        self.faults.next(self.dev(), &self.regs)
    }

    fn reset(&self, what: Reset) -> Result {
        let mut current = self.reset.lock();
        let timeout = match what {
            Reset::Slot(slot) => {
                self.slots.reset(slot)?;
                RESET_TIMEOUT
            }
            Reset::Engine(engine) => {
                self.slots.reset_engine(engine)?;
                RESET_TIMEOUT
            }
            Reset::Device => {
                self.start_device_reset()?;
                DEVICE_RESET_TIMEOUT
            }
        };
        *current = Some(Resetting {
            starting: false,
            deadline: Instant::now() + timeout,
        });
        Ok(())
    }

    fn poll_reset(&self, what: Reset) -> Result<ResetProgress> {
        let mut current = self.reset.lock();
        let Some(resetting) = &mut *current else {
            return Ok(ResetProgress::Refused);
        };
        let progress = match what {
            Reset::Slot(slot) => self.slots.poll_reset(slot)?,
            Reset::Engine(engine) => self.slots.poll_reset_engine(engine)?,
            Reset::Device => self.poll_device_reset(resetting)?,
        };
        if progress == ResetProgress::Pending {
            if !(resetting.deadline - Instant::now()).is_negative() {
                return Ok(ResetProgress::Pending);
            }
            dev_err!(self.dev(), "reset took too long: {:?}\n", what);
        }
        *current = None;
        Ok(match progress {
            ResetProgress::Pending => ResetProgress::Refused,
            other => other,
        })
    }

    fn stop(&self) {
        *self.bound.lock() = false;
        self.halt();
        // Even a board that did not listen, and comes back one day, must not reach for memory that
        // is someone else's by then.
        ext::pci::clear_master(&self.pdev);
    }

    fn halt(&self) {
        // A board that does not answer any more cannot be told anything: every error here means so.
        let _ = self.mask_interrupts(true);
        if self.start_device_reset().is_err() {
            return;
        }
        let _ = poll::read_poll_timeout(
            || self.regs.read::<regs::STATUS>(),
            |status| u32::from(status.resetting()) == 0,
            Delta::from_millis(1),
            STOP_TIMEOUT,
        );
    }
}
