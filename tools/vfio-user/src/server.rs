// SPDX-License-Identifier: GPL-2.0
//! The server: a listening socket, one client at a time, and the way to stop.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::event::PollFlags;
use rustix::io::Errno;
use thiserror::Error;

use crate::device::Device;
use crate::device::DeviceInfo;
use crate::device::InfoError;
use crate::irq::Interrupts;
use crate::memory::GuestMemory;
use crate::session::Context;
use crate::session::Session;
use crate::socket::SocketError;
use crate::socket::StopEvent;

/// Why a server could not start or go on.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The device's declaration is wrong.
    #[error(transparent)]
    Info(#[from] InfoError),
    /// The socket file cannot be made.
    #[error("socket {path}: {source}")]
    Bind {
        /// Where it should be.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// [`Server::serve`] on a server without a listening socket.
    #[error("the server has no listening socket")]
    Detached,
    /// The client broke the protocol so that its messages could not be followed any more.
    #[error("protocol: {0}")]
    Protocol(String),
    /// The kernel refused something.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// How long [`Server::serve`] goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serve {
    /// Until the first client has gone.
    Once,
    /// One client after the other, until stopped.
    UntilStopped,
}

/// Why a client's session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client closed the connection.
    Disconnected,
    /// [`Stopper::stop`] was called.
    Stopped,
}

/// Ends a server from another thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<StopEvent>);

impl Stopper {
    /// Makes the server return as soon as the device's current call does; for good.
    pub fn stop(&self) {
        self.0.request();
    }
}

/// A listening socket; its file goes when it is dropped.
#[derive(Debug)]
struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            log::debug!("{}: {error}", self.path.display());
        }
    }
}

/// A vfio-user server for one device.
#[derive(Debug)]
pub struct Server {
    listener: Option<Listener>,
    info: DeviceInfo,
    memory: Arc<GuestMemory>,
    interrupts: Arc<Interrupts>,
    stop: Arc<StopEvent>,
}

impl Server {
    /// A server that listens at `path`.
    ///
    /// A socket file that a dead server left there is replaced.
    ///
    /// # Errors
    ///
    /// [`ServerError::Info`] if the device cannot be; [`ServerError::Bind`] if there is a live
    /// server, or something that is no socket, or the kernel refuses.
    pub fn bind(path: impl AsRef<Path>, info: DeviceInfo) -> Result<Self, ServerError> {
        let mut server = Self::detached(info)?;
        let path = path.as_ref();
        let bind_error = |source| ServerError::Bind {
            path: path.into(),
            source,
        };
        remove_dead_socket(path).map_err(bind_error)?;
        let socket = UnixListener::bind(path).map_err(bind_error)?;
        socket.set_nonblocking(true)?;
        server.listener = Some(Listener {
            socket,
            path: path.into(),
        });
        Ok(server)
    }

    /// A server without a listening socket, for [`Self::serve_stream`].
    ///
    /// # Errors
    ///
    /// [`ServerError::Info`] if the device cannot be.
    pub fn detached(info: DeviceInfo) -> Result<Self, ServerError> {
        info.check()?;
        let interrupts = Arc::new(Interrupts::new(&info.irqs));
        let stop = Arc::new(StopEvent::new().map_err(io::Error::from)?);
        Ok(Self {
            listener: None,
            info,
            memory: Arc::default(),
            interrupts,
            stop,
        })
    }

    /// The client's memory.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// The client's interrupts.
    pub fn interrupts(&self) -> &Arc<Interrupts> {
        &self.interrupts
    }

    /// A handle that ends this server.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Waits for clients and serves them on this thread.
    ///
    /// # Errors
    ///
    /// With [`Serve::Once`] what [`Self::serve_stream`] says. With [`Serve::UntilStopped`] a
    /// client's errors are logged, and only those of the listening socket are returned.
    pub fn serve(&self, device: &dyn Device, mode: Serve) -> Result<(), ServerError> {
        let listener = &self.listener.as_ref().ok_or(ServerError::Detached)?.socket;
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::AGAIN) => {
                        match self.stop.wait_for(listener.as_fd(), PollFlags::IN) {
                            Ok(()) => continue,
                            Err(SocketError::Stopped) => return Ok(()),
                            Err(error) => return Err(protocol_error(&error)),
                        }
                    }
                    // A client that gave up while it waited.
                    Some(Errno::INTR | Errno::CONNABORTED) => continue,
                    _ => return Err(error.into()),
                },
            };
            let result = self.serve_stream(stream, device);
            match (mode, result) {
                (Serve::Once, result) => return result.map(drop),
                (Serve::UntilStopped, Ok(End::Stopped)) => return Ok(()),
                (Serve::UntilStopped, Ok(End::Disconnected)) => {}
                (Serve::UntilStopped, Err(error)) => log::warn!("client dropped: {error}"),
            }
        }
    }

    /// Serves one connected client on this thread, and cleans up behind it.
    ///
    /// # Errors
    ///
    /// [`ServerError::Protocol`] if the client had to be disconnected; [`ServerError::Io`] if its
    /// socket fails.
    pub fn serve_stream(
        &self,
        stream: UnixStream,
        device: &dyn Device,
    ) -> Result<End, ServerError> {
        let context = Context {
            info: &self.info,
            device,
            memory: &self.memory,
            interrupts: &self.interrupts,
        };
        let (end, agreed) = match Session::new(stream, &self.stop, context) {
            Ok(mut session) => (session.run(), session.agreed()),
            Err(error) => (error, false),
        };
        self.interrupts.clear();
        let pieces = self.memory.unmap_all();
        log::info!("session over ({end}); {pieces} DMA maps removed");
        if agreed {
            device.disconnected();
        }
        match end {
            SocketError::Closed => Ok(End::Disconnected),
            SocketError::Stopped => Ok(End::Stopped),
            SocketError::Io(error) => Err(ServerError::Io(error.into())),
            other => Err(protocol_error(&other)),
        }
    }
}

fn protocol_error(error: &SocketError) -> ServerError {
    ServerError::Protocol(error.to_string())
}

/// Removes the file at `path` if it is a socket that nobody listens to.
fn remove_dead_socket(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) => Err(error),
    }
}
