// SPDX-License-Identifier: GPL-2.0
//! What the kernel tells programs that watch over the machine.

use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use anyhow::ensure;
use nix::errno::Errno;
use nix::poll::poll;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::poll::PollTimeout;

/// The group of the kernel's own events.
const KERNEL_EVENTS: u32 = 1;
/// How long an event may take, in ms.
const EVENT_MS: u16 = 20_000;

/// Events from a moment on.
#[derive(Debug)]
pub struct Events {
    socket: OwnedFd,
}

impl Events {
    /// From now on.
    ///
    /// # Errors
    ///
    /// The kernel does not let one listen.
    pub fn from_now() -> anyhow::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
        // SAFETY: Makes a new file descriptor, which is owned here.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT);
            OwnedFd::from_raw_fd(Errno::result(fd)?)
        };
        // SAFETY: Integers, of which zero is a value.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = KERNEL_EVENTS;
        let size = size_of_val(&address) as libc::socklen_t;
        let pointer = std::ptr::from_ref(&address).cast();
        // SAFETY: The address is as long as it says.
        Errno::result(unsafe { libc::bind(socket.as_raw_fd(), pointer, size) })?;
        Ok(Self { socket })
    }

    /// The value of `key` in the next event that has it.
    ///
    /// # Errors
    ///
    /// None comes.
    pub fn next(&self, key: &str) -> anyhow::Result<String> {
        loop {
            let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            let events = poll(&mut ready, PollTimeout::from(EVENT_MS))?;
            ensure!(events > 0, "no event with {key}");
            let mut message = [0u8; 8192];
            let place = message.as_mut_ptr().cast();
            // SAFETY: The buffer is as long as it says.
            let n = unsafe { libc::recv(self.socket.as_raw_fd(), place, message.len(), 0) };
            let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
            let text = String::from_utf8_lossy(&message[..n]);
            let mut fields = text.split('\0').filter_map(|field| field.split_once('='));
            if let Some((_, value)) = fields.find(|(name, _)| *name == key) {
                return Ok(value.to_string());
            }
        }
    }
}
