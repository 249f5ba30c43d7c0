// SPDX-License-Identifier: GPL-2.0
//! A machine on the bench with a small driver: registers, memory and time under the test's hand, no
//! QEMU, no threads.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;

use ochre_vfio_user as vfu;
use ochre_virtio_gpu::config::Config;
use ochre_virtio_gpu::irq::Sink;
use ochre_virtio_gpu::machine::Machine;
use ochre_virtio_gpu::machine::Next;
use ochre_virtio_gpu::transport::place;
use ochre_virtio_gpu::wire::feature::Features;
use ochre_virtio_gpu::wire::flag;
use ochre_virtio_gpu::wire::status;
use ochre_virtio_gpu::wire::Cmd;
use ochre_virtio_gpu::wire::Header;
use ochre_virtio_gpu::wire::Resp;
use ochre_virtio_gpu::wire::HEADER;
use vfu::Access;
use vfu::GuestMemory;
use vfu::Memory;
use vfu::SharedMemory;

/// DMA address at which the bench's memory begins.
pub const DMA: u64 = 0x4000_0000;
/// Its size.
pub const BYTES: u64 = 16 << 20;
/// Descriptors of the queue that the bench uses.
pub const SIZE: u16 = 16;

/// Builds bytes out of integers.
#[macro_export]
macro_rules! bytes {
    ($($field:expr),* $(,)?) => {{
        let mut bytes: Vec<u8> = Vec::new();
        $(bytes.extend($field.to_le_bytes());)*
        bytes
    }};
}

/// Interrupts that were sent: vectors, and the pin as -1.
#[derive(Clone, Default)]
pub struct Sent(pub Arc<Mutex<Vec<i32>>>);

impl Sink for Sent {
    fn message(&self, vector: u16) -> bool {
        self.0.lock().unwrap().push(vector.into());
        true
    }

    fn pin(&self) -> bool {
        self.0.lock().unwrap().push(-1);
        true
    }
}

/// A chain as the bench's driver made it available.
#[derive(Clone, Copy, Debug)]
pub struct Posted {
    pub head: u16,
    pub response: u64,
    pub room: u32,
}

pub struct Bench {
    pub machine: Machine,
    pub system: SharedMemory,
    pub window: Arc<SharedMemory>,
    pub sent: Sent,
    pub now: Instant,
    /// The control queue's parts.
    pub desc: u64,
    pub avail: u64,
    pub used: u64,
    next: u64,
    free: Vec<u16>,
    avail_index: u16,
    seen: u16,
}

impl Bench {
    /// A usual board whose driver is ready.
    pub fn new() -> Self {
        Self::with(Config::default())
    }

    pub fn with(config: Config) -> Self {
        let features = config.features;
        let mut bench = Self::cold(config);
        bench.start(features);
        bench
    }

    /// A board after power-on.
    pub fn cold(config: Config) -> Self {
        let system = SharedMemory::new("bench", BYTES).unwrap();
        let guest = Arc::new(GuestMemory::new());
        let access = Access::READ | Access::WRITE;
        guest
            .map(DMA, BYTES, access, Some((system.fd(), 0)))
            .unwrap();
        let window = Arc::new(SharedMemory::new("window", config.window.max(4096)).unwrap());
        let sent = Sent::default();
        let shown = (config.window != 0).then(|| window.clone());
        let mut machine = Machine::new(config, guest, shown, Box::new(sent.clone()));
        machine.set_bus_master(true);
        machine.irq.set_messages(true);
        Self {
            machine,
            system,
            window,
            sent,
            now: Instant::now(),
            desc: 0,
            avail: 0,
            used: 0,
            next: 0x1000,
            free: Vec::new(),
            avail_index: 0,
            seen: 0,
        }
    }

    // Registers.

    pub fn write(&mut self, at: u64, value: &[u8]) {
        self.machine.write(at, value);
    }

    pub fn read(&mut self, at: u64, width: usize) -> u32 {
        let mut data = [0; 4];
        self.machine.read(at, &mut data[..width]);
        u32::from_le_bytes(data)
    }

    pub fn status(&mut self) -> u8 {
        self.read(20, 1) as u8
    }

    /// Sets the driver up, as far as it is told to.
    pub fn negotiate(&mut self, features: Features) {
        self.write(20, &[0]);
        self.write(20, &[status::ACKNOWLEDGE]);
        self.write(20, &[status::ACKNOWLEDGE | status::DRIVER]);
        for (select, word) in [(0u32, features.bits()), (1, features.bits() >> 32)] {
            self.write(8, &select.to_le_bytes());
            self.write(12, &(word as u32).to_le_bytes());
        }
        let ok = status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK;
        self.write(20, &[ok]);
    }

    pub fn set_up_queue(&mut self) {
        let size = u64::from(SIZE);
        self.desc = self.alloc(size * 16);
        self.avail = self.alloc(6 + size * 2);
        self.used = self.alloc(6 + size * 8);
        self.write(22, &0u16.to_le_bytes());
        self.write(24, &SIZE.to_le_bytes());
        self.write(26, &1u16.to_le_bytes());
        for (at, address) in [(32, self.desc), (40, self.avail), (48, self.used)] {
            self.write(at, &(address as u32).to_le_bytes());
            self.write(at + 4, &((address >> 32) as u32).to_le_bytes());
        }
        self.write(16, &0u16.to_le_bytes());
        self.write(28, &1u16.to_le_bytes());
        self.free = (0..SIZE).rev().collect();
        self.avail_index = 0;
        self.seen = 0;
    }

    pub fn start(&mut self, features: Features) {
        self.negotiate(features);
        self.set_up_queue();
        self.write(20, &[15]);
        self.clean();
    }

    // Memory.

    pub fn alloc(&mut self, bytes: u64) -> u64 {
        // Commands reuse the memory of those long ago.
        if self.next + bytes > BYTES {
            self.next = 1 << 20;
        }
        let at = self.next;
        self.next += bytes.next_multiple_of(4096);
        self.poke(DMA + at, &vec![0; bytes as usize]);
        DMA + at
    }

    pub fn poke(&self, at: u64, bytes: &[u8]) {
        self.system.write(at - DMA, bytes).unwrap();
    }

    pub fn peek(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.system.read(at - DMA, &mut bytes).unwrap();
        bytes
    }

    pub fn peek16(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.peek(at, 2).try_into().unwrap())
    }

    // The queue.

    pub fn descriptor(&self, index: u16, addr: u64, len: u32, flags: u16, next: u16) {
        let at = self.desc + u64::from(index) * 16;
        self.poke(at, &bytes![addr, len, flags, next]);
    }

    /// Makes a head available without a notification.
    pub fn publish(&mut self, head: u16) {
        let at = self.avail + 4 + 2 * u64::from(self.avail_index % SIZE);
        self.poke(at, &head.to_le_bytes());
        self.avail_index = self.avail_index.wrapping_add(1);
        self.poke(self.avail + 2, &self.avail_index.to_le_bytes());
    }

    pub fn notify(&mut self) {
        self.write(place::NOTIFY, &0u16.to_le_bytes());
    }

    /// Posts a command with room for a response, and notifies.
    pub fn post(&mut self, command: &[u8], room: u32) -> Posted {
        let head = self.free.pop().expect("a free descriptor");
        let second = self.free.pop().expect("a free descriptor");
        let request = self.alloc(command.len() as u64);
        let response = self.alloc(room.into());
        self.poke(request, command);
        self.descriptor(head, request, command.len() as u32, 1, second);
        self.descriptor(second, response, room, 2, 0);
        self.publish(head);
        self.notify();
        Posted {
            head,
            response,
            room,
        }
    }

    /// Works until there is nothing to do at this time.
    pub fn settle(&mut self) -> Next {
        for _ in 0..10_000 {
            match self.machine.step(self.now) {
                Next::Again => {}
                next => return next,
            }
        }
        panic!("the machine does not come to rest");
    }

    pub fn wait(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.settle();
    }

    /// The next entry of the used ring: id and length.
    pub fn take_used(&mut self) -> Option<(u32, u32)> {
        if self.peek16(self.used + 2) == self.seen {
            return None;
        }
        let at = self.used + 4 + 8 * u64::from(self.seen % SIZE);
        self.seen = self.seen.wrapping_add(1);
        // Ask for an interrupt at the next.
        self.poke(
            self.avail + 4 + 2 * u64::from(SIZE),
            &self.seen.to_le_bytes(),
        );
        let entry = self.peek(at, 8);
        let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap());
        Some((word(0), word(4)))
    }

    /// The response to a posted command, if there is one by now.
    pub fn answer(&mut self, posted: Posted) -> Option<(Header, Vec<u8>)> {
        let (id, len) = self.take_used()?;
        assert_eq!(id, u32::from(posted.head), "another command was answered");
        self.recycle(posted);
        Some(self.response(posted, len))
    }

    /// The descriptors of a command are free again.
    pub fn recycle(&mut self, posted: Posted) {
        let next = self.peek16(self.desc + u64::from(posted.head) * 16 + 14);
        self.free.extend([next, posted.head]);
    }

    pub fn response(&self, posted: Posted, len: u32) -> (Header, Vec<u8>) {
        let bytes = self.peek(posted.response, len as usize);
        let header: [u8; HEADER] = bytes[..HEADER].try_into().unwrap();
        (Header::parse(&header), bytes[HEADER..].to_vec())
    }

    /// Executes a command; returns its response.
    pub fn run(&mut self, command: &[u8]) -> (u32, Vec<u8>) {
        let posted = self.post(command, 4096);
        self.settle();
        let (header, body) = self.answer(posted).expect("no answer");
        (header.kind, body)
    }

    /// Executes a command that has to succeed.
    pub fn ok(&mut self, command: &[u8]) -> Vec<u8> {
        let (kind, body) = self.run(command);
        assert!(
            kind < Resp::ErrUnspec.code(),
            "{kind:#x} {:?}",
            self.violations()
        );
        body
    }

    pub fn violations(&self) -> Vec<String> {
        let log = self.machine.judge.log();
        log.map(|violation| violation.rule.name().to_string())
            .collect()
    }

    pub fn clean(&self) {
        assert_eq!(self.violations(), Vec::<String>::new());
    }
}

pub fn header(cmd: Cmd) -> Header {
    Header {
        kind: cmd.code(),
        ..Header::default()
    }
}

/// A command: its header, in a context, and its body.
pub fn command(cmd: Cmd, ctx: u32, body: &[u8]) -> Vec<u8> {
    let mut header = header(cmd);
    header.ctx_id = ctx;
    let mut bytes = header.bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// The same with a fence, on a timeline of its context or the device's.
pub fn fenced(mut command: Vec<u8>, id: u64, ring: Option<u8>) -> Vec<u8> {
    let flags = flag::FENCE | if ring.is_some() { flag::RING_IDX } else { 0 };
    command[4..8].copy_from_slice(&flags.to_le_bytes());
    command[8..16].copy_from_slice(&id.to_le_bytes());
    command[20] = ring.unwrap_or(0);
    command
}

pub fn on_resource(cmd: Cmd, ctx: u32, id: u32) -> Vec<u8> {
    command(cmd, ctx, &bytes![id, 0u32])
}

pub fn create_context(ctx: u32) -> Vec<u8> {
    let mut body = bytes![4u32, 0u32];
    body.extend(b"test");
    body.resize(72, 0);
    command(Cmd::CtxCreate, ctx, &body)
}

/// A texture of four bytes a pixel.
pub fn create_3d(id: u32, width: u32, height: u32, levels: u32) -> Vec<u8> {
    let body = bytes![id, 2u32, 1u32, 0u32, width, height, 1u32, 1u32, levels, 0u32, 0u32, 0u32];
    command(Cmd::ResourceCreate3d, 0, &body)
}

pub fn attach(id: u32, pieces: &[(u64, u32)]) -> Vec<u8> {
    let mut body = bytes![id, pieces.len() as u32];
    for (addr, len) in pieces {
        body.extend(bytes![*addr, *len, 0u32]);
    }
    command(Cmd::AttachBacking, 0, &body)
}

pub fn create_blob(
    ctx: u32,
    id: u32,
    mem: u32,
    flags: u32,
    size: u64,
    pieces: &[(u64, u32)],
) -> Vec<u8> {
    let mut body = bytes![id, mem, flags, pieces.len() as u32, 7u64, size];
    for (addr, len) in pieces {
        body.extend(bytes![*addr, *len, 0u32]);
    }
    command(Cmd::CreateBlob, ctx, &body)
}

pub fn map(id: u32, offset: u64) -> Vec<u8> {
    command(Cmd::MapBlob, 0, &bytes![id, 0u32, offset])
}

pub fn submit(ctx: u32, words: &[u32]) -> Vec<u8> {
    let mut body = bytes![words.len() as u32 * 4, 0u32];
    body.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    command(Cmd::Submit3d, ctx, &body)
}

pub struct Box3 {
    pub at: [u32; 3],
    pub size: [u32; 3],
}

pub fn transfer(
    cmd: Cmd,
    ctx: u32,
    id: u32,
    part: &Box3,
    level: u32,
    offset: u64,
    stride: u32,
) -> Vec<u8> {
    let [x, y, z] = part.at;
    let [w, h, d] = part.size;
    let body = bytes![x, y, z, w, h, d, offset, id, level, stride, 0u32];
    command(cmd, ctx, &body)
}
