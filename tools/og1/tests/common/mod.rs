// SPDX-License-Identifier: GPL-2.0
//! A board on the bench: registers, memory and time under the test's hand, no QEMU, no threads.
#![allow(dead_code)]

pub mod asm;
pub mod space;

use std::sync::Arc;
use std::sync::Mutex;

use ochre_vfio_user as vfu;
use og1::board::Board;
use og1::config::Config;
use og1::config::MIB;
use og1::firmware;
use og1::hw::mem::*;
use og1::hw::packets::*;
use og1::hw::regs as hw;
use og1::irq::MessageSink;
use og1::judge::Rule;
use og1::machine::Next;
use og1::regs::fields;
use og1::regs::Reg;
use vfu::Access;
use vfu::GuestMemory;
use vfu::Memory;
use vfu::SharedMemory;

/// DMA address at which the bench's system memory begins.
pub const DMA: u64 = 0x4000_0000;
/// Its size.
pub const SYSTEM_BYTES: u64 = 16 << 20;

/// Messages that the board sent, by vector.
#[derive(Default)]
pub struct Messages(pub Mutex<Vec<usize>>);

struct Sink(Arc<Messages>);

impl MessageSink for Sink {
    fn send(&self, vector: usize) -> bool {
        self.0 .0.lock().unwrap().push(vector);
        true
    }
}

/// A small board for tests.
pub fn small() -> Config {
    Config {
        vram: 16 * MIB,
        aperture: 16 * MIB,
        ..Config::default()
    }
}

/// The bench.
pub struct Bench {
    pub board: Arc<Board>,
    pub guest: Arc<GuestMemory>,
    pub system: SharedMemory,
    pub messages: Arc<Messages>,
    next: u64,
}

/// A queue that the bench made.
#[derive(Clone)]
pub struct Queue {
    pub id: u16,
    pub engine: usize,
    pub slot: usize,
    pub desc: u64,
    pub ring: u64,
    pub control: u64,
    pub save: u64,
    pub words: u64,
    pub wptr: u64,
}

/// What a queue is made with.
#[derive(Clone)]
pub struct Props {
    pub privileged: bool,
    pub ctx: u16,
    pub priority: u8,
    pub quantum_us: u32,
    pub ring_log2: u32,
}

impl Default for Props {
    fn default() -> Self {
        Self {
            privileged: true,
            ctx: 1,
            priority: 1,
            quantum_us: 1000,
            ring_log2: 9,
        }
    }
}

pub fn offset(reg: Reg, i: usize) -> u64 {
    (reg.def().offset + i * reg.def().stride) as u64
}

impl Bench {
    /// Power is on, bus mastering too; nothing else has been done.
    pub fn cold(config: Config) -> Self {
        let guest = Arc::new(GuestMemory::default());
        let system = SharedMemory::new("bench", SYSTEM_BYTES).unwrap();
        let rw = Access::READ | Access::WRITE;
        guest
            .map(DMA, SYSTEM_BYTES, rw, Some((system.fd(), 0)))
            .unwrap();
        let vram = Arc::new(SharedMemory::new("vram", config.vram).unwrap());
        let messages = Arc::new(Messages::default());
        let sink = Box::new(Sink(messages.clone()));
        let board = Arc::new(Board::new(config, vram, guest.clone(), sink).unwrap());
        board.set_bus_master(true);
        Self {
            board,
            guest,
            system,
            messages,
            next: DMA,
        }
    }

    /// Firmware runs, vectors are unmasked, the fault ring is in use.
    pub fn with(config: Config) -> Self {
        let mut bench = Self::cold(config);
        bench.bring_up();
        bench
    }

    pub fn new() -> Self {
        Self::with(small())
    }

    pub fn bring_up(&mut self) {
        let image = firmware::default_image(1 << 16).image();
        assert_eq!(self.load_firmware(&image), (hw::FW_RUNNING, 0));
        for v in 0..self.board.front().config().vectors() {
            self.write(Reg::IRQ_STATUS, v, !0);
            self.write(Reg::IRQ_MASK, v, 0);
        }
        let ring = self.alloc(64 << 4);
        self.write(Reg::FAULT_RING_LO, 0, ring as u32);
        self.write(Reg::FAULT_RING_HI, 0, (ring >> 32) as u32);
        self.write(Reg::FAULT_SIZE, 0, 4);
        self.write(Reg::FAULT_CTRL, 0, 1);
        self.messages.0.lock().unwrap().clear();
    }

    /// Loads an image; returns state and error.
    pub fn load_firmware(&mut self, image: &[u8]) -> (u32, u32) {
        let at = self.alloc(image.len() as u64);
        self.poke_bytes(at, image);
        self.write(Reg::FW_ADDR_LO, 0, at as u32);
        self.write(
            Reg::FW_ADDR_HI,
            0,
            (at & !PA_SYSTEM).checked_shr(32).unwrap() as u32,
        );
        self.write(Reg::FW_SIZE, 0, image.len() as u32);
        self.write(Reg::FW_CTRL, 0, 1);
        let status = self.read(Reg::FW_STATUS, 0);
        (
            fields::FW_STATUS::state.get(status),
            fields::FW_STATUS::error.get(status),
        )
    }

    // Registers.

    pub fn read(&self, reg: Reg, i: usize) -> u32 {
        self.read_at(offset(reg, i))
    }

    pub fn read_at(&self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.board.mmio_read(offset, &mut data);
        u32::from_le_bytes(data)
    }

    pub fn write(&self, reg: Reg, i: usize, value: u32) {
        self.write_at(offset(reg, i), value);
    }

    pub fn write_at(&self, offset: u64, value: u32) {
        self.board.mmio_write(offset, &value.to_le_bytes());
    }

    pub fn time(&self) -> u64 {
        let low = self.read(Reg::TIME_LO, 0);
        u64::from(low) | (u64::from(self.read(Reg::TIME_HI, 0)) << 32)
    }

    pub fn counter(&self, unit: usize, counter: u32) -> u64 {
        self.write(Reg::CTR_SELECT, 0, ((unit as u32) << 8) | counter);
        let low = self.read(Reg::CTR_LO, 0);
        u64::from(low) | (u64::from(self.read(Reg::CTR_HI, 0)) << 32)
    }

    pub fn slot_state(&self, q: &Queue) -> u32 {
        let status = self.read(Reg::SLOT_STATUS, q.engine * hw::SLOTS_MAX + q.slot);
        fields::SLOT_STATUS::state.get(status)
    }

    // Memory, by board address.

    /// `bytes` of system memory, zeroed, aligned to a page. Returns its board address.
    pub fn alloc(&mut self, bytes: u64) -> u64 {
        let at = self.next;
        self.next += bytes.max(1).next_multiple_of(4096);
        assert!(
            self.next <= DMA + SYSTEM_BYTES,
            "the bench is out of memory"
        );
        at | PA_SYSTEM
    }

    fn at(&self, pa: u64) -> (&vfu::Mapping, u64) {
        if pa & PA_SYSTEM != 0 {
            (&self.system, (pa & PA_MASK) - DMA)
        } else {
            (self.board.vram(), pa)
        }
    }

    pub fn poke(&self, pa: u64, value: u64) {
        let (m, at) = self.at(pa);
        m.store(at, value).unwrap();
    }

    pub fn peek(&self, pa: u64) -> u64 {
        let (m, at) = self.at(pa);
        m.load(at).unwrap()
    }

    pub fn poke_bytes(&self, pa: u64, bytes: &[u8]) {
        let (m, at) = self.at(pa);
        m.write(at, bytes).unwrap();
    }

    pub fn peek_bytes(&self, pa: u64, len: usize) -> Vec<u8> {
        let (m, at) = self.at(pa);
        let mut bytes = vec![0; len];
        m.read(at, &mut bytes).unwrap();
        bytes
    }

    // Queues.

    /// Writes the descriptor of a queue; does not bind it.
    pub fn make_queue(&mut self, engine: usize, slot: usize, id: u16, props: &Props) -> Queue {
        let (desc, control) = (self.alloc(128), self.alloc(4096));
        let (ring, save) = (
            self.alloc(8 << props.ring_log2),
            self.alloc(SAVE_BYTES as u64),
        );
        let flags = if props.privileged {
            QUEUE_PRIVILEGED
        } else {
            0
        };
        self.poke(desc, u64::from(QUEUE_MAGIC) | (u64::from(flags) << 32));
        self.poke(
            desc + 8,
            u64::from(id) | (u64::from(props.ctx) << 16) | (u64::from(props.priority) << 32),
        );
        self.poke(
            desc + 16,
            u64::from(props.quantum_us) | (u64::from(props.ring_log2) << 32),
        );
        self.poke(desc + 24, ring);
        self.poke(desc + 32, control);
        self.poke(desc + 40, save);
        let words = 1 << props.ring_log2;
        Queue {
            id,
            engine,
            slot,
            desc,
            ring,
            control,
            save,
            words,
            wptr: 0,
        }
    }

    pub fn bind(&self, q: &Queue) {
        let i = q.engine * hw::SLOTS_MAX + q.slot;
        self.write(Reg::SLOT_DESC_LO, i, q.desc as u32);
        self.write(Reg::SLOT_DESC_HI, i, (q.desc >> 32) as u32);
        self.write(Reg::SLOT_CTRL, i, 1);
        self.write(Reg::SLOT_COMMIT, q.engine, 1 << q.slot);
    }

    pub fn unbind(&self, q: &Queue) {
        let i = q.engine * hw::SLOTS_MAX + q.slot;
        self.write(Reg::SLOT_CTRL, i, 0);
        self.write(Reg::SLOT_COMMIT, q.engine, 1 << q.slot);
    }

    /// A privileged queue in slot 0 of an engine.
    pub fn queue(&mut self, engine: usize) -> Queue {
        self.queue_with(engine, 0, engine as u16, &Props::default())
    }

    pub fn queue_with(&mut self, engine: usize, slot: usize, id: u16, props: &Props) -> Queue {
        let q = self.make_queue(engine, slot, id, props);
        self.bind(&q);
        assert_eq!(
            self.slot_state(&q),
            hw::SLOT_IDLE,
            "bind: {:?}",
            self.violations()
        );
        q
    }

    /// Writes words into the ring and moves WPTR; rings only if EVENT asks, as a driver does.
    pub fn push(&self, q: &mut Queue, words: &[u64]) {
        let old = q.wptr;
        for word in words {
            self.poke(q.ring + (q.wptr % q.words) * 8, *word);
            q.wptr += 1;
        }
        self.poke(q.control + control::WPTR, q.wptr);
        let event = self.peek(q.control + control::EVENT);
        if (old..q.wptr).contains(&event) {
            self.ring(q.id);
        }
    }

    pub fn ring(&self, id: u16) {
        self.write_at(
            hw::DOORBELL_BASE as u64 + (u64::from(id) << hw::DOORBELL_SHIFT),
            1,
        );
    }

    /// A fence behind what was pushed; returns the address of its record.
    pub fn push_fence(&mut self, q: &mut Queue, value: u64) -> u64 {
        let record = self.alloc(16);
        self.push(q, &fence(record, value, true));
        record
    }

    pub fn control(&self, q: &Queue, at: u64) -> u64 {
        self.peek(q.control + at)
    }

    // Time.

    /// Steps until there is nothing to do; panics if that takes too long. Time that hanging and
    /// waiting queues need does not pass.
    pub fn run(&self) -> Next {
        for _ in 0..2_000_000 {
            match self.board.step(0) {
                Next::Again => {}
                next => return next,
            }
        }
        panic!("the board does not come to rest");
    }

    /// Steps while the wall clock goes on by `ns`.
    pub fn pass(&self, ns: u64) {
        let end = self.time() + ns;
        while self.time() < end && self.run() == Next::Later {
            self.board.step((end - self.time()).min(100_000));
        }
    }

    // Violations and faults.

    pub fn violations(&self) -> Vec<String> {
        self.board
            .front()
            .judge
            .log()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    pub fn assert_clean(&self) {
        assert_eq!(self.violations(), Vec::<String>::new());
    }

    /// Exactly these rules were broken, in this order; forgets them.
    #[track_caller]
    pub fn assert_broken(&self, rules: &[Rule]) {
        let log: Vec<Rule> = self
            .board
            .front()
            .judge
            .log()
            .iter()
            .map(|v| v.rule)
            .collect();
        assert_eq!(log, rules, "{:?}", self.violations());
        self.board.front().judge.clear();
    }

    /// Code of the fault that stopped a queue.
    pub fn error(&self, q: &Queue) -> u32 {
        (self.control(q, control::STATE) >> 32) as u32
    }
}

/// Offsets in the control page.
pub mod control {
    pub const WPTR: u64 = 0;
    pub const RPTR: u64 = 64;
    pub const EVENT: u64 = 128;
    pub const STATE: u64 = 192;
    pub const RETIRED: u64 = 200;
    pub const RETIRED_AT: u64 = 208;
    pub const BUSY: u64 = 216;
    pub const CYCLES: u64 = 224;
    pub const INSTRUCTIONS: u64 = 232;
}

// Packets.

pub fn pkt(opcode: u8, flags: u16, imm: u32, operands: &[u64]) -> Vec<u64> {
    let mut words = vec![pkt_header(opcode, operands.len() as u8 + 1, flags, imm)];
    words.extend_from_slice(operands);
    words
}

pub fn fence(record: u64, value: u64, interrupt: bool) -> Vec<u64> {
    pkt(
        PKT_FENCE,
        if interrupt { FLAG_INTERRUPT } else { 0 },
        0,
        &[record, value],
    )
}

/// A copy between board addresses.
pub fn copy(src: u64, dst: u64, bytes: u64) -> Vec<u64> {
    pkt(PKT_COPY, FLAG_PHYSICAL, 0, &[src, dst, bytes])
}

pub fn dispatch(kernel: u64, args: u64, grid: [u32; 3], block: [u32; 3], lds: u32) -> Vec<u64> {
    let two = |a: u32, b: u32| u64::from(a) | (u64::from(b) << 32);
    let [gx, gy, gz] = grid;
    let [bx, by, bz] = block;
    pkt(
        PKT_DISPATCH,
        0,
        lds,
        &[kernel, args, two(gx, gy), two(gz, bx), two(by, bz), 0, 0],
    )
}
