// SPDX-License-Identifier: GPL-2.0
//! A vfio-user client that can also misbehave, and a device to connect it to.

// Each test file uses its own part.
#![allow(dead_code)]

use std::io;
use std::io::IoSlice;
use std::io::IoSliceMut;
use std::io::Read;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;

use ochre_vfio_user as vfu;
use vfu::index;
use vfu::Errno;

pub const VERSION: u16 = 1;
pub const DMA_MAP: u16 = 2;
pub const DMA_UNMAP: u16 = 3;
pub const GET_INFO: u16 = 4;
pub const GET_REGION_INFO: u16 = 5;
pub const GET_REGION_IO_FDS: u16 = 6;
pub const GET_IRQ_INFO: u16 = 7;
pub const SET_IRQS: u16 = 8;
pub const REGION_READ: u16 = 9;
pub const REGION_WRITE: u16 = 10;
pub const RESET: u16 = 13;
pub const WRITE_MULTI: u16 = 15;

pub const BAR0_SIZE: u64 = 0x4000;
pub const VRAM_SIZE: u64 = 1 << 20;
pub const VECTORS: u32 = 20;

/// Builds a little-endian payload out of integers.
#[macro_export]
macro_rules! payload {
    ($($field:expr),* $(,)?) => {{
        let mut bytes: Vec<u8> = Vec::new();
        $(bytes.extend($field.to_le_bytes());)*
        bytes
    }};
}

/// BAR0 is plain bytes; everything that happens is counted.
#[derive(Default)]
pub struct TestDevice {
    pub bar0: Mutex<Vec<u8>>,
    pub reads: AtomicU32,
    pub writes: AtomicU32,
    pub resets: AtomicU32,
    pub connects: AtomicU32,
    pub disconnects: AtomicU32,
}

impl TestDevice {
    pub fn new() -> Self {
        Self {
            bar0: Mutex::new(vec![0; BAR0_SIZE as usize]),
            ..Self::default()
        }
    }
}

impl vfu::Device for TestDevice {
    fn region_read(&self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Errno> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        match region {
            index::region::BAR0 => {
                let at = offset as usize;
                data.copy_from_slice(&self.bar0.lock().unwrap()[at..at + data.len()]);
                Ok(())
            }
            index::region::BAR4 => Err(Errno::IO),
            _ => {
                data.fill(0xa5);
                Ok(())
            }
        }
    }

    fn region_write(&self, region: u32, offset: u64, data: &[u8]) -> Result<(), Errno> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        match region {
            index::region::BAR0 => {
                let at = offset as usize;
                self.bar0.lock().unwrap()[at..at + data.len()].copy_from_slice(data);
                Ok(())
            }
            index::region::BAR4 => Err(Errno::IO),
            _ => Ok(()),
        }
    }

    fn reset(&self) -> Result<(), Errno> {
        self.resets.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn connected(&self) {
        self.connects.fetch_add(1, Ordering::Relaxed);
    }

    fn disconnected(&self) {
        self.disconnects.fetch_add(1, Ordering::Relaxed);
    }
}

pub fn info(vram: &Arc<vfu::SharedMemory>) -> vfu::DeviceInfo {
    let areas = vec![
        vfu::MapArea {
            offset: 0x1000,
            size: 0x1000,
        },
        vfu::MapArea {
            offset: 0x8000,
            size: VRAM_SIZE - 0x8000,
        },
    ];
    vfu::DeviceInfo::pci()
        .with_region(index::region::BAR0, vfu::Region::io(BAR0_SIZE))
        .with_region(
            index::region::BAR2,
            vfu::Region::mapped(VRAM_SIZE, Arc::clone(vram)).with_areas(areas),
        )
        .with_region(
            index::region::BAR3,
            vfu::Region::mapped(VRAM_SIZE, Arc::clone(vram)),
        )
        .with_region(index::region::BAR4, vfu::Region::io(0x1000))
        .with_region(
            index::region::CONFIG,
            vfu::Region::io(vfu::pci::CONFIG_SIZE),
        )
        .with_region(index::region::ROM, vfu::Region::io(0x1000).read_only())
        .with_irq(index::irq::MSIX, vfu::Irq::msix(VECTORS))
        .with_irq(
            index::irq::INTX,
            vfu::Irq {
                count: 1,
                flags: vfu::IrqFlags::EVENTFD | vfu::IrqFlags::MASKABLE,
            },
        )
}

/// A server on a thread of its own, with a client connected to it.
pub struct Rig {
    pub client: Client,
    pub device: Arc<TestDevice>,
    pub server: Arc<vfu::Server>,
    pub vram: Arc<vfu::SharedMemory>,
    thread: thread::JoinHandle<Result<vfu::End, vfu::ServerError>>,
}

impl Rig {
    /// Connected, nothing said yet.
    pub fn silent() -> Self {
        let vram = Arc::new(vfu::SharedMemory::new("vram", VRAM_SIZE).unwrap());
        let server = Arc::new(vfu::Server::detached(info(&vram)).unwrap());
        let device = Arc::new(TestDevice::new());
        let (client, theirs) = UnixStream::pair().unwrap();
        let thread = {
            let (server, device) = (Arc::clone(&server), Arc::clone(&device));
            thread::spawn(move || server.serve_stream(theirs, &*device))
        };
        Self {
            client: Client {
                stream: client,
                next_id: 0x100,
            },
            device,
            server,
            vram,
            thread,
        }
    }

    /// Connected, with an agreement as QEMU makes it.
    pub fn new() -> Self {
        let mut rig = Self::silent();
        rig.client.negotiate(QEMU_CAPABILITIES).unwrap();
        rig
    }

    /// Disconnects and returns how the session ended. Fails if the server panicked.
    pub fn finish(self) -> Result<vfu::End, vfu::ServerError> {
        drop(self.client);
        let end = self.thread.join().expect("the server panicked");
        let connects = self.device.connects.load(Ordering::Relaxed);
        let disconnects = self.device.disconnects.load(Ordering::Relaxed);
        assert_eq!(connects, disconnects, "the device hears both, or neither");
        assert_eq!(
            self.server.memory().unmap_all(),
            0,
            "maps survived the session"
        );
        end
    }
}

pub const QEMU_CAPABILITIES: &str = r#"{"capabilities": {"migration": {"pgsize": 4096, "max_bitmap_size": 268435456}, "max_msg_fds": 16, "max_data_xfer_size": 1048576, "pgsizes": 4096, "max_dma_maps": 65535, "write_multiple": true}}"#;

/// A reply as it came.
#[derive(Debug)]
pub struct Reply {
    pub id: u16,
    pub command: u16,
    pub flags: u32,
    pub error: u32,
    pub payload: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

impl Reply {
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.payload[at..at + 4].try_into().unwrap())
    }

    pub fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.payload[at..at + 8].try_into().unwrap())
    }
}

pub struct Client {
    pub stream: UnixStream,
    next_id: u16,
}

impl Client {
    pub fn over(stream: UnixStream) -> Self {
        Self { stream, next_id: 1 }
    }

    pub fn negotiate(&mut self, capabilities: &str) -> Result<Reply, Errno> {
        let mut payload = payload![0u16, 0u16];
        payload.extend(capabilities.as_bytes());
        payload.push(0);
        self.call(VERSION, &payload, &[])
    }

    /// Sends these very bytes.
    pub fn send_raw(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        use rustix::net::SendAncillaryBuffer;
        use rustix::net::SendAncillaryMessage;
        use rustix::net::SendFlags;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let sent = rustix::net::sendmsg(
            &self.stream,
            &[IoSlice::new(bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )?;
        self.stream.write_all(&bytes[sent..])
    }

    pub fn header(&mut self, command: u16, payload: usize, flags: u32) -> Vec<u8> {
        self.next_id = self.next_id.wrapping_add(1);
        payload![self.next_id, command, 16 + payload as u32, flags, 0u32]
    }

    /// Sends a command without waiting for anything.
    pub fn post(&mut self, command: u16, flags: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut message = self.header(command, payload.len(), flags);
        message.extend(payload);
        self.send_raw(&message, fds).unwrap();
    }

    /// Receives one reply; an end of the stream is an error.
    pub fn receive(&mut self) -> io::Result<Reply> {
        use rustix::net::RecvAncillaryBuffer;
        use rustix::net::RecvAncillaryMessage;
        use rustix::net::RecvFlags;
        let mut header = [0; 16];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let message = rustix::net::recvmsg(
            &self.stream,
            &mut [IoSliceMut::new(&mut header)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(new) = message {
                fds.extend(new);
            }
        }
        if message.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // As QEMU: the header comes in one piece.
        assert_eq!(message.bytes, 16, "the reply's header came in pieces");
        let size = u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize;
        let mut payload = vec![0; size.checked_sub(16).expect("impossible size of a reply")];
        self.stream.read_exact(&mut payload)?;
        Ok(Reply {
            id: u16::from_le_bytes(header[0..2].try_into().unwrap()),
            command: u16::from_le_bytes(header[2..4].try_into().unwrap()),
            flags: u32::from_le_bytes(header[8..12].try_into().unwrap()),
            error: u32::from_le_bytes(header[12..16].try_into().unwrap()),
            payload,
            fds,
        })
    }

    /// Sends a command and takes its reply; an error reply becomes its errno.
    pub fn call(
        &mut self,
        command: u16,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Reply, Errno> {
        self.post(command, 0, payload, fds);
        let reply = self.receive().expect("no reply");
        assert_eq!((reply.id, reply.command), (self.next_id, command));
        assert_eq!(reply.flags & 0xf, 1, "no reply type");
        if reply.flags & 0x20 != 0 {
            assert!(reply.payload.is_empty(), "an error reply has no payload");
            assert!(reply.fds.is_empty(), "an error reply has no descriptors");
            assert_ne!(reply.error, 0, "an error reply says which");
            return Err(Errno::from_raw_os_error(reply.error as i32));
        }
        assert_eq!(reply.error, 0);
        Ok(reply)
    }

    pub fn read(&mut self, region: u32, offset: u64, count: u32) -> Result<Vec<u8>, Errno> {
        let reply = self.call(REGION_READ, &payload![offset, region, count], &[])?;
        assert_eq!(reply.payload[..16], payload![offset, region, count]);
        Ok(reply.payload[16..].to_vec())
    }

    pub fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let mut payload = payload![offset, region, data.len() as u32];
        payload.extend(data);
        let reply = self.call(REGION_WRITE, &payload, &[])?;
        assert_eq!(reply.payload, payload[..16]);
        Ok(())
    }

    pub fn map(
        &mut self,
        address: u64,
        size: u64,
        flags: u32,
        file: Option<(BorrowedFd<'_>, u64)>,
    ) -> Result<(), Errno> {
        let offset = file.map_or(0, |(_, offset)| offset);
        let payload = payload![32u32, flags, offset, address, size];
        let fds: Vec<_> = file.into_iter().map(|(fd, _)| fd).collect();
        let reply = self.call(DMA_MAP, &payload, &fds)?;
        assert!(reply.payload.is_empty());
        Ok(())
    }

    pub fn unmap(&mut self, address: u64, size: u64, flags: u32) -> Result<(), Errno> {
        let payload = payload![24u32, flags, address, size];
        let reply = self.call(DMA_UNMAP, &payload, &[])?;
        assert_eq!(reply.payload, payload);
        Ok(())
    }

    pub fn set_irqs(
        &mut self,
        flags: u32,
        index: u32,
        start: u32,
        count: u32,
        data: &[u8],
        fds: &[OwnedFd],
    ) -> Result<(), Errno> {
        let mut payload = payload![20 + data.len() as u32, flags, index, start, count];
        payload.extend(data);
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        let reply = self.call(SET_IRQS, &payload, &fds)?;
        assert!(reply.payload.is_empty());
        Ok(())
    }

    /// The server still answers sense.
    pub fn ping(&mut self) {
        let reply = self
            .call(GET_INFO, &payload![16u32, 0u32, 0u32, 0u32], &[])
            .unwrap();
        assert_eq!(reply.payload, payload![16u32, 3u32, 9u32, 5u32]);
    }
}

/// A memfd with `size` bytes that count up, so that every word tells where it is.
pub fn memfd(size: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let words: Vec<u8> = (0..size / 4)
        .flat_map(|word| (word as u32).to_le_bytes())
        .collect();
    let mut file = std::fs::File::from(fd);
    file.write_all(&words).unwrap();
    file.set_len(size).unwrap();
    file.into()
}

pub fn eventfd() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()
}

/// Takes the count of an eventfd; 0 if it was not signalled.
pub fn take(fd: &OwnedFd) -> u64 {
    let flags = rustix::fs::fcntl_getfl(fd).unwrap();
    rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut count = [0; 8];
    match rustix::io::read(fd, &mut count) {
        Ok(_) => u64::from_le_bytes(count),
        Err(Errno::AGAIN) => 0,
        Err(error) => panic!("eventfd: {error}"),
    }
}

/// Number of open descriptors of this process that are pipes' or sockets' or files' named so.
pub fn open_descriptors(name: &str) -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().contains(name))
        .count()
}

/// How often a random test goes round: `ROUNDS` in the environment, else the usual number.
pub fn rounds(usual: u64) -> u64 {
    let rounds = std::env::var("ROUNDS").ok();
    rounds
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(usual)
}

/// xorshift64*: enough for tests, and the same everywhere.
pub struct Random(u64);

impl Random {
    /// From `SEED` in the environment, else from the clock; prints what reproduces the run.
    pub fn new(test: &str) -> Self {
        let seed = std::env::var("SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or_else(|| {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                now.unwrap().as_nanos() as u64 | 1
            });
        println!("{test}: SEED={seed}");
        Self(seed.max(1))
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}
