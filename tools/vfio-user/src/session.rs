// SPDX-License-Identifier: GPL-2.0
//! One client: its messages are checked, carried out and answered, in the order they arrive.
//!
//! A command's handler appends the reply's payload to `self.reply`, behind room for the header, or
//! returns the errno for an error reply (which has no payload). Only what leaves the stream without
//! a known next message, or breaks the protocol before there is an agreement, ends the session.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;

use crate::device::Device;
use crate::device::DeviceInfo;
use crate::device::Region;
use crate::irq::Interrupts;
use crate::irq::SetIrqs;
use crate::memory::Access;
use crate::memory::GuestMemory;
use crate::proto;
use crate::proto::device_flags;
use crate::proto::flags;
use crate::proto::region_flags;
use crate::proto::Command;
use crate::proto::Fields;
use crate::proto::Header;
use crate::proto::HEADER_SIZE;
use crate::socket::Connection;
use crate::socket::Message;
use crate::socket::SocketError;
use crate::socket::StopEvent;
use crate::version::Agreement;

/// Sizes of the payloads' fixed parts, as their `argsz` fields count them.
const INFO_SIZE: u32 = 16;
const REGION_INFO_SIZE: u32 = 32;
const IRQ_INFO_SIZE: u32 = 16;
const SET_IRQS_SIZE: u32 = 20;
const DMA_MAP_SIZE: u32 = 32;
const DMA_UNMAP_SIZE: u32 = 24;

/// What a session works with; all of it outlives the session.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) info: &'a DeviceInfo,
    pub(crate) device: &'a dyn Device,
    pub(crate) memory: &'a GuestMemory,
    pub(crate) interrupts: &'a Interrupts,
}

/// A connected client.
pub(crate) struct Session<'a> {
    context: Context<'a>,
    connection: Connection<'a>,
    agreement: Option<Agreement>,
    /// The message being built; its first [`HEADER_SIZE`] bytes are the header's.
    reply: Vec<u8>,
}

/// One write of REGION_WRITE_MULTI.
struct Write<'a> {
    region: u32,
    offset: u64,
    data: &'a [u8],
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        stream: UnixStream,
        stop: &'a StopEvent,
        context: Context<'a>,
    ) -> Result<Self, SocketError> {
        let connection = Connection::new(stream, stop)?;
        Ok(Self {
            context,
            connection,
            agreement: None,
            reply: Vec::new(),
        })
    }

    /// Whether a version was agreed on, so that the device knows of the client.
    pub(crate) fn agreed(&self) -> bool {
        self.agreement.is_some()
    }

    /// Serves the client until it goes, breaks the protocol, or a stop is requested.
    pub(crate) fn run(&mut self) -> SocketError {
        let mut payload = Vec::new();
        loop {
            let result = match self.connection.receive(&mut payload) {
                Ok(message) => self.answer(message, &payload),
                Err(SocketError::BadSize(size, header)) => {
                    // The last thing that can be said: what comes next is not known to be a header.
                    let last = self.send(&header, Err(Errno::INVAL));
                    last.and(Err(SocketError::BadSize(size, header)))
                }
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                return error;
            }
        }
    }

    /// Carries out one message and sends its reply.
    fn answer(&mut self, message: Message, payload: &[u8]) -> Result<(), SocketError> {
        let header = message.header;
        if header.flags & flags::TYPE != flags::COMMAND {
            // This server sends no commands, so there is nothing to reply to.
            return Err(SocketError::BadType(header.flags));
        }
        self.reply.clear();
        self.reply.resize(HEADER_SIZE, 0);
        let result = self.execute(&header, message.fds, payload);
        // Without an agreement no later message has a meaning.
        let fatal = match result {
            Err(error) if self.agreement.is_none() => Some(error),
            _ => None,
        };
        self.send(&header, result)?;
        match fatal {
            Some(error) => Err(SocketError::NoAgreement(error)),
            None => Ok(()),
        }
    }

    /// Sends the reply to `header`'s command, if it wants one.
    fn send(
        &mut self,
        header: &Header,
        result: Result<Option<BorrowedFd<'a>>, Errno>,
    ) -> Result<(), SocketError> {
        if let Err(error) = result {
            log::debug!(
                "command {} ({:#x} bytes): {error}",
                header.command,
                header.size
            );
        }
        if !header.wants_reply() {
            return Ok(());
        }
        let mut reply = Header {
            flags: flags::REPLY,
            error: 0,
            ..*header
        };
        let fd = match result {
            Ok(fd) => fd,
            Err(error) => {
                reply.flags |= flags::ERROR;
                // An errno is a small positive number.
                reply.error = error.raw_os_error().unsigned_abs();
                self.reply.clear();
                self.reply.resize(HEADER_SIZE, 0);
                None
            }
        };
        reply.size = u32::try_from(self.reply.len()).map_err(|_| Errno::MSGSIZE)?;
        if let Some(room) = self.reply.first_chunk_mut::<HEADER_SIZE>() {
            reply.put(room);
        }
        self.connection.send(&self.reply, fd)
    }

    /// Finds and calls the command's handler. Returns the descriptor to send with the reply.
    fn execute(
        &mut self,
        header: &Header,
        fds: Result<Vec<OwnedFd>, Errno>,
        payload: &[u8],
    ) -> Result<Option<BorrowedFd<'a>>, Errno> {
        let fds = fds?;
        if header.flags & !(flags::TYPE | flags::NO_REPLY) != 0 {
            return Err(Errno::INVAL);
        }
        let command = Command::from_number(header.command).ok_or(Errno::INVAL)?;
        if self.agreement.is_some() == (command == Command::Version) {
            return Err(Errno::INVAL);
        }
        if !fds.is_empty() && !matches!(command, Command::DmaMap | Command::SetIrqs) {
            return Err(Errno::INVAL);
        }
        let fields = Fields(payload);
        match command {
            Command::Version => self.version(payload)?,
            Command::DmaMap => self.dma_map(fields, fds)?,
            Command::DmaUnmap => self.dma_unmap(fields)?,
            Command::GetInfo => self.get_info(fields)?,
            Command::GetRegionInfo => return self.get_region_info(fields),
            Command::GetIrqInfo => self.get_irq_info(fields)?,
            Command::SetIrqs => self.set_irqs(fields, fds)?,
            Command::RegionRead => self.region_read(fields)?,
            Command::RegionWrite => self.region_write(fields)?,
            Command::RegionWriteMulti => self.region_write_multi(fields)?,
            Command::Reset => {
                fields.end()?;
                self.context.device.reset()?;
            }
            Command::Unsupported => return Err(Errno::NOTSUP),
        }
        Ok(None)
    }

    fn version(&mut self, payload: &[u8]) -> Result<(), Errno> {
        let agreement = Agreement::from_proposal(payload)?;
        self.reply.extend(agreement.answer());
        self.agreement = Some(agreement);
        self.context.device.connected();
        Ok(())
    }

    fn dma_map(&mut self, mut fields: Fields<'_>, mut fds: Vec<OwnedFd>) -> Result<(), Errno> {
        check_argsz(fields.u32()?, DMA_MAP_SIZE)?;
        let access = Access::from_bits(fields.u32()?).ok_or(Errno::INVAL)?;
        let (offset, address, size) = (fields.u64()?, fields.u64()?, fields.u64()?);
        fields.end()?;
        let fd = fds.pop();
        if !fds.is_empty() {
            return Err(Errno::INVAL);
        }
        log::debug!(
            "map {address:#x}+{size:#x} {access:?}, {} at {offset:#x}",
            if fd.is_some() { "file" } else { "no file" },
        );
        let file = fd.as_ref().map(|fd| (fd.as_fd(), offset));
        self.context.memory.map(address, size, access, file)
    }

    fn dma_unmap(&mut self, mut fields: Fields<'_>) -> Result<(), Errno> {
        let request = fields.rest();
        check_argsz(fields.u32()?, DMA_UNMAP_SIZE)?;
        let unmap_flags = fields.u32()?;
        let (address, size) = (fields.u64()?, fields.u64()?);
        fields.end()?;
        let count = match unmap_flags {
            0 => self.context.memory.unmap(address, size)?,
            // The range has no meaning then.
            proto::DMA_UNMAP_ALL => self.context.memory.unmap_all(),
            _ => return Err(Errno::INVAL),
        };
        log::debug!("unmap {address:#x}+{size:#x} flags {unmap_flags:#x}: {count} pieces");
        self.reply.extend(request);
        Ok(())
    }

    fn get_info(&mut self, mut fields: Fields<'_>) -> Result<(), Errno> {
        check_argsz(fields.u32()?, INFO_SIZE)?;
        // The fields of the reply, which a request leaves 0 and the server does not need.
        for _ in 0..3 {
            fields.u32()?;
        }
        fields.end()?;
        let info = self.context.info;
        self.put_u32(INFO_SIZE);
        self.put_u32(device_flags::RESET | device_flags::PCI);
        self.put_u32(len_u32(info.regions.len())?);
        self.put_u32(len_u32(info.irqs.len())?);
        Ok(())
    }

    fn get_region_info(&mut self, mut fields: Fields<'_>) -> Result<Option<BorrowedFd<'a>>, Errno> {
        let argsz = fields.u32()?;
        check_argsz(argsz, REGION_INFO_SIZE)?;
        let (_flags, index, _cap_offset) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (_size, _offset) = (fields.u64()?, fields.u64()?);
        fields.end()?;
        let region = region(self.context.info, index)?;
        // A client that takes no descriptor can map nothing.
        let can_map = self
            .agreement
            .is_some_and(|agreement| agreement.client_fds > 0);
        let backing = region.backing.as_ref().filter(|_| can_map);

        let mut region_flags = 0;
        if region.readable {
            region_flags |= region_flags::READ;
        }
        if region.writable {
            region_flags |= region_flags::WRITE;
        }
        let mut capability = Vec::new();
        if let Some(backing) = backing {
            region_flags |= region_flags::MMAP | region_flags::CAPS;
            capability.extend(proto::CAP_SPARSE_MMAP.to_le_bytes());
            // Version 1; no next capability.
            capability.extend(1u16.to_le_bytes());
            capability.extend(0u32.to_le_bytes());
            capability.extend(len_u32(backing.areas.len())?.to_le_bytes());
            capability.extend(0u32.to_le_bytes());
            for area in &backing.areas {
                capability.extend(area.offset.to_le_bytes());
                capability.extend(area.size.to_le_bytes());
            }
        }
        let needed = REGION_INFO_SIZE + len_u32(capability.len())?;

        self.put_u32(needed);
        self.put_u32(region_flags);
        self.put_u32(index);
        self.put_u32(if capability.is_empty() {
            0
        } else {
            REGION_INFO_SIZE
        });
        self.put_u64(region.size);
        self.put_u64(backing.map_or(0, |backing| backing.offset));
        if argsz >= needed {
            self.reply.extend(capability);
        }
        Ok(backing.map(|backing| backing.memory.fd()))
    }

    fn get_irq_info(&mut self, mut fields: Fields<'_>) -> Result<(), Errno> {
        check_argsz(fields.u32()?, IRQ_INFO_SIZE)?;
        let (_flags, index, _count) = (fields.u32()?, fields.u32()?, fields.u32()?);
        fields.end()?;
        let irq = *self
            .context
            .info
            .irqs
            .get(index as usize)
            .ok_or(Errno::INVAL)?;
        self.put_u32(IRQ_INFO_SIZE);
        self.put_u32(irq.flags.bits());
        self.put_u32(index);
        self.put_u32(irq.count);
        Ok(())
    }

    fn set_irqs(&mut self, mut fields: Fields<'_>, fds: Vec<OwnedFd>) -> Result<(), Errno> {
        check_argsz(fields.u32()?, SET_IRQS_SIZE)?;
        let request = SetIrqs {
            flags: fields.u32()?,
            index: fields.u32()?,
            start: fields.u32()?,
            count: fields.u32()?,
        };
        log::debug!("{request:?}, {} descriptors", fds.len());
        self.context.interrupts.set(request, fields.rest(), fds)
    }

    fn region_read(&mut self, mut fields: Fields<'_>) -> Result<(), Errno> {
        let (offset, index, count) = (fields.u64()?, fields.u32()?, fields.u32()?);
        fields.end()?;
        if !checked_region(self.context.info, index, offset, count)?.readable {
            return Err(Errno::PERM);
        }
        self.put_u64(offset);
        self.put_u32(index);
        self.put_u32(count);
        let start = self.reply.len();
        // At most MAX_TRANSFER: `checked_region` has looked.
        self.reply.resize(start + count as usize, 0);
        if count == 0 {
            return Ok(());
        }
        self.context
            .device
            .region_read(index, offset, &mut self.reply[start..])
    }

    fn region_write(&mut self, mut fields: Fields<'_>) -> Result<(), Errno> {
        let (offset, index, count) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let data = fields.rest();
        if data.len() != count as usize {
            return Err(Errno::INVAL);
        }
        if !checked_region(self.context.info, index, offset, count)?.writable {
            return Err(Errno::PERM);
        }
        if count != 0 {
            self.context.device.region_write(index, offset, data)?;
        }
        self.put_u64(offset);
        self.put_u32(index);
        self.put_u32(count);
        Ok(())
    }

    fn region_write_multi(&mut self, mut fields: Fields<'_>) -> Result<(), Errno> {
        if !self
            .agreement
            .is_some_and(|agreement| agreement.write_multiple)
        {
            return Err(Errno::NOTSUP);
        }
        let count = fields.u64()?;
        let writes = fields.rest();
        let expected = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(proto::MULTI_WRITE_SIZE));
        if expected != Some(writes.len()) {
            return Err(Errno::INVAL);
        }
        // A malformed message has no effect, so all writes are checked before the first is done.
        let writes = || writes.chunks_exact(proto::MULTI_WRITE_SIZE);
        for write in writes() {
            self.parse_write(write)?;
        }
        for write in writes() {
            let write = self.parse_write(write)?;
            if !write.data.is_empty() {
                self.context
                    .device
                    .region_write(write.region, write.offset, write.data)?;
            }
        }
        self.put_u64(count);
        Ok(())
    }

    /// Checks one entry of REGION_WRITE_MULTI.
    fn parse_write<'w>(&self, entry: &'w [u8]) -> Result<Write<'w>, Errno> {
        let mut fields = Fields(entry);
        let (offset, index, count) = (fields.u64()?, fields.u32()?, fields.u32()?);
        // An entry has room for 8 bytes; a greater count finds none.
        let data = fields.rest().get(..count as usize).ok_or(Errno::INVAL)?;
        if !checked_region(self.context.info, index, offset, count)?.writable {
            return Err(Errno::PERM);
        }
        Ok(Write {
            region: index,
            offset,
            data,
        })
    }

    fn put_u32(&mut self, value: u32) {
        self.reply.extend(value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.reply.extend(value.to_le_bytes());
    }
}

/// A client's structure may be larger than the one known here, not smaller.
fn check_argsz(argsz: u32, needed: u32) -> Result<(), Errno> {
    if argsz < needed {
        return Err(Errno::INVAL);
    }
    Ok(())
}

/// A length that [`DeviceInfo::check`] has bounded.
fn len_u32(len: usize) -> Result<u32, Errno> {
    u32::try_from(len).map_err(|_| Errno::OVERFLOW)
}

fn region(info: &DeviceInfo, index: u32) -> Result<&Region, Errno> {
    info.regions.get(index as usize).ok_or(Errno::INVAL)
}

/// The region, if it contains `offset..offset + count`, and the count is within the transfer limit.
fn checked_region(
    info: &DeviceInfo,
    index: u32,
    offset: u64,
    count: u32,
) -> Result<&Region, Errno> {
    let region = region(info, index)?;
    let end = offset.checked_add(u64::from(count)).ok_or(Errno::INVAL)?;
    if count > proto::MAX_TRANSFER || end > region.size {
        return Err(Errno::INVAL);
    }
    Ok(region)
}
