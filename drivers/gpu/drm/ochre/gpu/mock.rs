// SPDX-License-Identifier: GPL-2.0

//! A board that is nothing but memory: [`Hal`] for tests, and an example of how little a board has
//! to implement.
//!
//! Nothing happens by itself. [`Mock::run`] lets the board work on what it was given and sends its
//! interrupts; its clock stands still but for [`Mock::pass`]. What goes wrong is told beforehand by
//! the address of an indirect buffer ([`Mock::hang_at`], [`Mock::fault_at`]) or of the whole board.
//!
//! A packet is three words: a kind and two operands.

use kernel::{
    fmt,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use crate::{
    algo::{
        ring::Pos,
        sched::SlotId,
        va::{
            Attrs,
            LeafSize,
            VaRange, //
        }, //
    },
    gpu::{
        device::Parts,
        mock_tables::{
            self,
            Tables, //
        },
        Gpu, //
    },
    hal::{
        Access,
        Activity,
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
        FenceValue,
        Hal,
        HwQueue,
        Info,
        LeafPlace,
        PageTableShape,
        QueueConfig,
        Reset,
        ResetProgress,
        SlotState,
        Status,
        Table,
        Words, //
    }, //
};

/// Words of a ring.
const RING_WORDS: u64 = 256;
/// Words of a packet.
const PACKET: u64 = 3;
/// Hardware ids.
const QUEUES: u16 = 8;
/// Slots of each engine.
const SLOTS: u8 = 2;
/// Board time without progress after which a queue is reset. Long, since the watchdog looks by the
/// CPU's clock, too, and should not look in the middle of a test's step.
pub(super) const TIMEOUT_MS: u32 = 10_000;

const WAIT: u64 = 1;
const INDIRECT: u64 = 2;
const SIGNAL: u64 = 3;
const CLEAR: u64 = 4;
const FENCE: u64 = 5;

/// Memory of one queue: what driver and board share.
struct Memory {
    ring: KVec<u64>,
    wptr: u64,
    status: Status,
    fence: FenceValue,
}

/// What the board does, or does not do.
#[derive(Default)]
struct State {
    time: u64,
    /// The board answers nothing any more.
    gone: bool,
    stopped: bool,
    /// By hardware id.
    queues: KVec<Option<Arc<Mutex<Memory>>>>,
    /// By engine and slot.
    slots: KVec<[Option<u16>; SLOTS as usize]>,
    faults: KVec<Fault>,
    /// Words in memory that have been stored to: address and value.
    words: KVec<(u64, u64)>,
    /// Indirect buffers that ran, in order.
    ran: KVec<u64>,
    /// Bytes of VRAM that were cleared.
    cleared: u64,
    /// An indirect buffer that never ends.
    hang_at: Option<u64>,
    /// An indirect buffer whose turn does not come.
    starve_at: Option<u64>,
    /// An indirect buffer that faults.
    fault_at: Option<u64>,
    /// No engine event is sent.
    mute: bool,
    /// The widest reset that is refused.
    refuse: Option<Reset>,
    /// Resets that were begun.
    resets: KVec<Reset>,
}

/// The board.
#[pin_data]
pub(super) struct Mock {
    info: Info,
    /// All page tables.
    pub(super) tables: Arc<Tables>,
    #[pin]
    state: Mutex<State>,
}

impl Mock {
    /// A board with a compute and a copy engine, and the driver for it.
    pub(super) fn new() -> Result<(Arc<Self>, Arc<Gpu>)> {
        let mut engines = KVec::new();
        let mut state = State::default();
        for class in EngineClass::ALL {
            let engine = Engine {
                class,
                instance: 0,
                slots: SLOTS,
                lanes: 32,
                block_items_max: 1024,
                local_bytes: 0,
            };
            engines.push(engine, GFP_KERNEL)?;
            state.slots.push([None; SLOTS as usize], GFP_KERNEL)?;
        }
        for _ in 0..QUEUES {
            state.queues.push(None, GFP_KERNEL)?;
        }
        let info = Info {
            name: *b"Mock\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            vendor: 0,
            device: 0,
            revision: 1 << 16,
            firmware: 1 << 16,
            vram_size: 16 << 20,
            aperture_size: 16 << 20,
            va: 4096..1 << 47,
            page_table: PageTableShape {
                levels: 4,
                entries_log2: 9,
            },
            contexts: 16,
            queues: QUEUES,
            ring_words: RING_WORDS,
            job_words_max: 1 << 20,
            timestamp_hz: 1_000_000_000,
            engines,
        };
        let tables = Tables::new()?;
        let mock = Arc::pin_init(
            pin_init!(Self {
                info,
                tables,
                state <- new_mutex!(state, "ochre_mock"),
            }),
            GFP_KERNEL,
        )?;
        let gpu = Gpu::new(Parts {
            hal: Arc::new(Board(mock.clone()), GFP_KERNEL)?,
            dev: None,
            timeout_ms: TIMEOUT_MS,
        })?;
        Ok((mock, gpu))
    }

    /// Lets board time pass.
    pub(super) fn pass(&self, ms: u64) {
        self.state.lock().time += ms * 1_000_000;
    }

    /// The indirect buffer at `addr` will never end.
    pub(super) fn hang_at(&self, addr: u64) {
        self.state.lock().hang_at = Some(addr);
    }

    /// The turn of the indirect buffer at `addr` does not come, or does again.
    pub(super) fn starve_at(&self, addr: Option<u64>) {
        self.state.lock().starve_at = addr;
    }

    /// The indirect buffer at `addr` will fault.
    pub(super) fn fault_at(&self, addr: u64) {
        self.state.lock().fault_at = Some(addr);
    }

    /// Engine events are sent no more, or again.
    pub(super) fn mute(&self, mute: bool) {
        self.state.lock().mute = mute;
    }

    /// The board claims that the jobs of a queue are over up to `seqno`.
    pub(super) fn claim(&self, queue: u16, seqno: u64) -> Result {
        let state = self.state.lock();
        let memory = state
            .queues
            .get(usize::from(queue))
            .and_then(Option::as_ref);
        memory.ok_or(EINVAL)?.lock().fence = FenceValue { seqno };
        Ok(())
    }

    /// Resets of this scope and below are refused.
    pub(super) fn refuse(&self, reset: Reset) {
        self.state.lock().refuse = Some(reset);
    }

    /// The board reads as all ones from now on.
    pub(super) fn vanish(&self) {
        self.state.lock().gone = true;
    }

    /// Indirect buffers that ran, in order.
    pub(super) fn ran(&self) -> Result<KVec<u64>> {
        let mut ran = KVec::new();
        ran.extend_from_slice(&self.state.lock().ran, GFP_KERNEL)?;
        Ok(ran)
    }

    /// Resets that were begun, in order.
    pub(super) fn resets(&self) -> Result<KVec<Reset>> {
        let mut resets = KVec::new();
        resets.extend_from_slice(&self.state.lock().resets, GFP_KERNEL)?;
        Ok(resets)
    }

    /// Bytes of VRAM that were cleared.
    pub(super) fn cleared(&self) -> u64 {
        self.state.lock().cleared
    }

    /// The word at `addr`.
    pub(super) fn word(&self, addr: u64) -> u64 {
        self.state.lock().word(addr)
    }

    /// Stores a word, as another program would.
    pub(super) fn store(&self, addr: u64, value: u64) -> Result {
        self.state.lock().store(addr, value)
    }

    /// Whether the board was stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Lets all engines work until they have nothing more to do, and sends their interrupts.
    pub(super) fn run(&self, gpu: &Arc<Gpu>) -> Result {
        let engines = u8::try_from(self.info.engines.len())?;
        for engine in 0..engines {
            let mut state = self.state.lock();
            if state.gone || state.stopped {
                continue;
            }
            let slots = *state.slots.get(usize::from(engine)).ok_or(EINVAL)?;
            for queue in slots.into_iter().flatten() {
                state.work(queue)?;
            }
            let mute = state.mute;
            let faulted = !state.faults.is_empty();
            drop(state);
            if !mute {
                gpu.on_engine_event(EngineId(engine));
            }
            if faulted {
                gpu.on_fault();
            }
        }
        Ok(())
    }

    fn check(&self) -> Result {
        let state = self.state.lock();
        if state.gone || state.stopped {
            return Err(ENODEV);
        }
        Ok(())
    }
}

impl State {
    fn word(&self, addr: u64) -> u64 {
        let found = self.words.iter().find(|(at, _)| *at == addr);
        found.map_or(0, |(_, value)| *value)
    }

    fn store(&mut self, addr: u64, value: u64) -> Result {
        self.words.retain(|(at, _)| *at != addr);
        Ok(self.words.push((addr, value), GFP_KERNEL)?)
    }

    /// Works on one queue as far as it goes.
    fn work(&mut self, queue: u16) -> Result {
        let place = self.queues.get(usize::from(queue)).ok_or(EINVAL)?;
        let memory = place.clone().ok_or(EINVAL)?;
        let mut memory = memory.lock();
        if matches!(memory.status.activity, Activity::Faulted { .. }) {
            return Ok(());
        }
        while memory.status.rptr < memory.wptr {
            let [kind, a, b] = memory.packet()?;
            memory.status.activity = Activity::Ready;
            match kind {
                WAIT if self.word(a) < b => {
                    memory.status.activity = Activity::Waiting;
                    return Ok(());
                }
                WAIT => {}
                INDIRECT if self.starve_at == Some(a) => return Ok(()),
                INDIRECT if self.hang_at == Some(a) => {
                    memory.status.busy_ns += 1000;
                    return Ok(());
                }
                INDIRECT if self.fault_at == Some(a) => {
                    memory.status.activity = Activity::Faulted { code: 1 };
                    let fault = Fault {
                        queue,
                        code: 1,
                        addr: a,
                        pc: 0x44,
                        access: Access::Exec,
                    };
                    return Ok(self.faults.push(fault, GFP_KERNEL)?);
                }
                INDIRECT => self.ran.push(a, GFP_KERNEL)?,
                SIGNAL => self.store(a, b)?,
                CLEAR => self.cleared += b,
                FENCE => memory.fence = FenceValue { seqno: a },
                _ => return Err(EINVAL),
            }
            memory.status.rptr += PACKET;
            memory.status.retired += 1;
            memory.status.busy_ns += 1000;
        }
        memory.status.activity = Activity::Idle;
        Ok(())
    }

    fn slot(&mut self, slot: SlotId) -> Result<&mut Option<u16>> {
        let engine = self.slots.get_mut(usize::from(slot.engine)).ok_or(EINVAL)?;
        engine.get_mut(usize::from(slot.slot)).ok_or(EINVAL)
    }
}

impl Memory {
    /// The packet that is next.
    fn packet(&self) -> Result<[u64; 3]> {
        let word = |n: u64| -> Result<u64> {
            let index = usize::try_from((self.status.rptr + n) % RING_WORDS)?;
            self.ring.get(index).copied().ok_or(EINVAL)
        };
        Ok([word(0)?, word(1)?, word(2)?])
    }
}

/// The driver's side of a queue.
struct MockQueue {
    id: u16,
    mock: Arc<Mock>,
    memory: Arc<Mutex<Memory>>,
}

impl HwQueue for MockQueue {
    fn write(&self, index: usize, words: &[u64]) -> Result {
        let mut memory = self.memory.lock();
        let end = index.checked_add(words.len()).ok_or(EINVAL)?;
        let place = memory.ring.get_mut(index..end).ok_or(EINVAL)?;
        place.copy_from_slice(words);
        Ok(())
    }

    fn encode(&self, command: &Command, out: &mut Words<'_>) -> Result {
        let words = match *command {
            Command::Wait { addr, value } => [WAIT, addr, value],
            Command::Indirect { addr, words } => [INDIRECT, addr, u64::from(words)],
            Command::Signal { addr, value } => [SIGNAL, addr, value],
            Command::ClearVram { start, bytes } => [CLEAR, start, bytes],
            Command::Fence { seqno } => [FENCE, seqno, 0],
        };
        words.into_iter().try_for_each(|word| out.push(word))
    }

    fn publish(&self, wptr: Pos) -> u64 {
        let mut memory = self.memory.lock();
        memory.wptr = wptr.get();
        memory.status.rptr
    }

    fn doorbell(&self) -> Result {
        self.mock.check()
    }

    fn status(&self) -> Status {
        self.memory.lock().status
    }

    fn fence(&self) -> FenceValue {
        self.memory.lock().fence
    }

    fn bind(&self, slot: SlotId, start: Pos, resume: bool) -> Result {
        self.mock.check()?;
        if !resume {
            self.memory.lock().status.rptr = start.get();
        }
        let mut state = self.mock.state.lock();
        let place = state.slot(slot)?;
        if place.is_some() {
            return Err(EBUSY);
        }
        *place = Some(self.id);
        Ok(())
    }

    fn unbind(&self, slot: SlotId) -> Result {
        self.mock.check()?;
        let mut state = self.mock.state.lock();
        match state.slot(slot)?.take() {
            Some(id) if id == self.id => Ok(()),
            _ => Err(EINVAL),
        }
    }
}

impl Drop for MockQueue {
    fn drop(&mut self) {
        let mut state = self.mock.state.lock();
        if let Some(place) = state.queues.get_mut(usize::from(self.id)) {
            *place = None;
        }
    }
}

/// The board as the driver holds it.
struct Board(Arc<Mock>);

impl Hal for Board {
    fn info(&self) -> &Info {
        &self.0.info
    }

    fn clocks(&self) -> Result<Clocks> {
        self.0.check()?;
        Ok(Clocks {
            core_khz: 1,
            core_max_khz: 1,
            memory_khz: 1,
            memory_max_khz: 1,
        })
    }

    fn has_counter(&self, _counter: Counter) -> bool {
        false
    }

    fn counter(&self, _counter: Counter) -> Result<u64> {
        Err(EINVAL)
    }

    fn register_groups(&self) -> &'static [&'static CStr] {
        &[]
    }

    fn dump_registers(&self, _group: usize, _out: &mut dyn fmt::Write) -> Result {
        Err(EINVAL)
    }

    fn time(&self) -> Result<u64> {
        self.0.check()?;
        Ok(self.0.state.lock().time)
    }

    fn correlate(&self, cpu: &mut dyn FnMut() -> i64) -> Result<Correlation> {
        let cpu_before = cpu();
        let board = self.time()?;
        Ok(Correlation {
            cpu_before,
            cpu_after: cpu(),
            board,
        })
    }

    fn new_table(&self) -> Result<KBox<dyn Table>> {
        self.0.tables.new_table()
    }

    fn leaf_place(&self, size: LeafSize) -> LeafPlace {
        match size {
            LeafSize::Size4K => LeafPlace {
                level: 0,
                entries: 1,
                step: 0,
            },
            LeafSize::Size64K => LeafPlace {
                level: 0,
                entries: 16,
                step: 4096,
            },
            LeafSize::Size2M => LeafPlace {
                level: 1,
                entries: 1,
                step: 0,
            },
        }
    }

    fn leaf(&self, addr: BoardAddr, size: LeafSize, _attrs: Attrs) -> u64 {
        mock_tables::leaf(addr, size)
    }

    fn sparse_leaf(&self, size: LeafSize) -> u64 {
        mock_tables::sparse_leaf(size)
    }

    fn table_entry(&self, addr: BoardAddr) -> u64 {
        mock_tables::table_entry(addr)
    }

    fn set_context(&self, _context: ContextId, _root: Option<BoardAddr>) -> Result {
        self.0.check()
    }

    fn invalidate_tlb(&self, _context: ContextId, _range: Option<VaRange>) -> Result {
        self.0.check()
    }

    fn new_queue(&self, config: &QueueConfig) -> Result<KBox<dyn HwQueue>> {
        self.0.check()?;
        let memory = Memory {
            ring: KVec::zeroed(usize::try_from(RING_WORDS)?, GFP_KERNEL)?,
            wptr: 0,
            status: Status {
                rptr: 0,
                activity: Activity::Idle,
                retired: 0,
                busy_ns: 0,
            },
            fence: FenceValue { seqno: 0 },
        };
        let memory = Arc::pin_init(new_mutex!(memory, "ochre_mock_queue"), GFP_KERNEL)?;
        let mut state = self.0.state.lock();
        let place = state.queues.get_mut(usize::from(config.id)).ok_or(EINVAL)?;
        if place.replace(memory.clone()).is_some() {
            return Err(EBUSY);
        }
        drop(state);
        let queue = MockQueue {
            id: config.id,
            mock: self.0.clone(),
            memory,
        };
        Ok(KBox::new(queue, GFP_KERNEL)?)
    }

    fn words(&self, _command: &Command) -> u64 {
        PACKET
    }

    fn slot(&self, slot: SlotId) -> Result<SlotState> {
        self.0.check()?;
        Ok(match *self.0.state.lock().slot(slot)? {
            Some(queue) => SlotState::Holds { queue },
            None => SlotState::Empty,
        })
    }

    fn next_fault(&self) -> Result<Option<Fault>> {
        self.0.check()?;
        let mut state = self.0.state.lock();
        if state.faults.is_empty() {
            return Ok(None);
        }
        Ok(state.faults.remove(0).ok())
    }

    fn reset(&self, what: Reset) -> Result {
        self.0.check()?;
        Ok(self.0.state.lock().resets.push(what, GFP_KERNEL)?)
    }

    fn poll_reset(&self, what: Reset) -> Result<ResetProgress> {
        self.0.check()?;
        let mut state = self.0.state.lock();
        let refused = match state.refuse {
            None => false,
            Some(Reset::Slot(_)) => matches!(what, Reset::Slot(_)),
            Some(Reset::Engine(_)) => !matches!(what, Reset::Device),
            Some(Reset::Device) => true,
        };
        if refused {
            return Ok(ResetProgress::Refused);
        }
        match what {
            Reset::Slot(slot) => *state.slot(slot)? = None,
            Reset::Engine(engine) => {
                let slots = state.slots.get_mut(engine.index()).ok_or(EINVAL)?;
                *slots = [None; SLOTS as usize];
            }
            Reset::Device => {
                for slots in state.slots.iter_mut() {
                    *slots = [None; SLOTS as usize];
                }
            }
        }
        Ok(ResetProgress::Done)
    }

    fn halt(&self) {
        for slots in &mut self.0.state.lock().slots {
            *slots = [None; SLOTS as usize];
        }
    }

    fn stop(&self) {
        self.0.state.lock().stopped = true;
    }
}
