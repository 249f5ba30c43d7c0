// SPDX-License-Identifier: GPL-2.0
//! Messages on a Unix stream socket: a header, a payload, and the file descriptors sent with them.
//!
//! The socket is non-blocking; where nothing can be moved, the thread waits for the socket or for a
//! stop request, whichever comes first.

use std::io::IoSlice;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use rustix::event::EventfdFlags;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::RecvAncillaryBuffer;
use rustix::net::RecvAncillaryMessage;
use rustix::net::RecvFlags;
use rustix::net::ReturnFlags;
use rustix::net::SendAncillaryBuffer;
use rustix::net::SendAncillaryMessage;
use rustix::net::SendFlags;
use thiserror::Error;

use crate::proto::Header;
use crate::proto::HEADER_SIZE;
use crate::proto::MAX_FDS;
use crate::proto::MAX_MESSAGE;

/// Descriptors that the kernel lets into one message (`SCM_MAX_FD`). Room for all of them means that
/// none is dropped silently before they are counted.
const KERNEL_MAX_FDS: usize = 253;

/// Why a connection cannot go on.
#[derive(Debug, Error)]
pub(crate) enum SocketError {
    /// Somebody asked the server to stop.
    #[error("stop requested")]
    Stopped,
    /// The client closed the connection between two messages.
    #[error("the client disconnected")]
    Closed,
    /// The client closed it inside a message.
    #[error("the client disconnected in the middle of a message")]
    Truncated,
    /// The header's size field is impossible; where the next message starts is unknown.
    #[error("message of {0} bytes")]
    BadSize(u32, Header),
    /// The header's flags are no command's.
    #[error("message with flags {0:#x} is no command")]
    BadType(u32),
    /// The first message was no acceptable version proposal.
    #[error("no agreement on a version: {0}")]
    NoAgreement(Errno),
    /// The socket failed.
    #[error("socket: {0}")]
    Io(#[from] Errno),
}

/// A request to stop that a thread can wait for.
#[derive(Debug)]
pub(crate) struct StopEvent {
    /// Readable from the first request on, for ever.
    fd: OwnedFd,
    /// The same, to be looked at without a system call.
    requested: AtomicBool,
}

impl StopEvent {
    pub(crate) fn new() -> Result<Self, Errno> {
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            fd,
            requested: AtomicBool::new(false),
        })
    }

    pub(crate) fn request(&self) {
        self.requested.store(true, Ordering::Release);
        if let Err(error) = rustix::io::write(&self.fd, &1u64.to_ne_bytes()) {
            // Only a counter at its limit can refuse, and that one is readable already.
            log::debug!("stop event: {error}");
        }
    }

    pub(crate) fn requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    /// Waits until `fd` has one of `events`, or for the request to stop.
    pub(crate) fn wait_for(
        &self,
        fd: BorrowedFd<'_>,
        events: PollFlags,
    ) -> Result<(), SocketError> {
        loop {
            if self.requested() {
                return Err(SocketError::Stopped);
            }
            let mut fds = [
                PollFd::from_borrowed_fd(fd, events),
                PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::IN),
            ];
            match rustix::event::poll(&mut fds, None) {
                Ok(_) if !fds[0].revents().is_empty() => return Ok(()),
                // The stop event; the loop's head sees it.
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A message from the client; its payload is in the buffer it was received into.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) header: Header,
    /// Descriptors that came with it; `EINVAL` if there were more than [`MAX_FDS`] (they are closed).
    pub(crate) fds: Result<Vec<OwnedFd>, Errno>,
}

/// A connection to a client.
#[derive(Debug)]
pub(crate) struct Connection<'a> {
    stream: UnixStream,
    stop: &'a StopEvent,
}

/// Collects the descriptors of one message.
struct Collected(Result<Vec<OwnedFd>, Errno>);

impl Collected {
    fn add(&mut self, ancillary: &mut RecvAncillaryBuffer<'_>, truncated: bool) {
        // Draining takes ownership of every descriptor; those not kept are closed here.
        for message in ancillary.drain() {
            if let (RecvAncillaryMessage::ScmRights(new), Ok(fds)) = (message, &mut self.0) {
                fds.extend(new);
            }
        }
        if truncated || self.0.as_ref().is_ok_and(|fds| fds.len() > MAX_FDS) {
            self.0 = Err(Errno::INVAL);
        }
    }
}

impl<'a> Connection<'a> {
    pub(crate) fn new(stream: UnixStream, stop: &'a StopEvent) -> Result<Self, SocketError> {
        rustix::io::ioctl_fionbio(&stream, true)?;
        Ok(Self { stream, stop })
    }

    /// Receives one message, its payload into `payload`, whose old contents are lost.
    pub(crate) fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Message, SocketError> {
        let mut fds = Collected(Ok(Vec::new()));
        let mut header = [0; HEADER_SIZE];
        self.fill(&mut header, &mut fds, SocketError::Closed)?;
        let header = Header::from_bytes(&header);
        let size = match usize::try_from(header.size) {
            Ok(size) if (HEADER_SIZE..=MAX_MESSAGE).contains(&size) => size - HEADER_SIZE,
            _ => return Err(SocketError::BadSize(header.size, header)),
        };
        payload.clear();
        payload.resize(size, 0);
        self.fill(payload, &mut fds, SocketError::Truncated)?;
        Ok(Message { header, fds: fds.0 })
    }

    /// Receives exactly `buffer.len()` bytes; `at_start` is the error for an end before the first.
    fn fill(
        &mut self,
        buffer: &mut [u8],
        fds: &mut Collected,
        at_start: SocketError,
    ) -> Result<(), SocketError> {
        let mut done = 0;
        while done < buffer.len() {
            if self.stop.requested() {
                return Err(SocketError::Stopped);
            }
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(KERNEL_MAX_FDS))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let received = rustix::net::recvmsg(
                &self.stream,
                &mut [IoSliceMut::new(&mut buffer[done..])],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
            );
            match received {
                Ok(message) => {
                    fds.add(&mut ancillary, message.flags.contains(ReturnFlags::CTRUNC));
                    if message.bytes == 0 {
                        return Err(if done == 0 {
                            at_start
                        } else {
                            SocketError::Truncated
                        });
                    }
                    done += message.bytes;
                }
                Err(Errno::AGAIN) => self.stop.wait_for(self.stream.as_fd(), PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => {
                    return Err(if done == 0 {
                        at_start
                    } else {
                        SocketError::Truncated
                    });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends a whole message, with at most one descriptor.
    pub(crate) fn send(
        &mut self,
        message: &[u8],
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<(), SocketError> {
        let fds: &[BorrowedFd<'_>] = fd.as_slice();
        let mut done = 0;
        while done < message.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            // Descriptors travel with the first byte.
            if done == 0 && !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds))
            {
                return Err(Errno::NOBUFS.into());
            }
            let sent = rustix::net::sendmsg(
                &self.stream,
                &[IoSlice::new(&message[done..])],
                &mut ancillary,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            );
            match sent {
                Ok(bytes) => done += bytes,
                Err(Errno::AGAIN) => self.stop.wait_for(self.stream.as_fd(), PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(SocketError::Closed),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
