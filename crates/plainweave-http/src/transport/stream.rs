//! What a connection needs of the stream under it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use plainweave::net::{self, HasSocket, SocketRef};
use plainweave::sync::select::ReadinessBranch;
use plainweave_serve::Closer;
use rustix::net::RecvFlags;

use super::non_blocking::NonBlocking;
use super::session::TlsSession;

/// A byte stream with timeouts, in the shape of `std`'s sockets.
///
/// A call that outlasts its timeout fails with [`io::ErrorKind::TimedOut`] or, as `std`'s sockets
/// do, with [`io::ErrorKind::WouldBlock`]; the stream stays usable. `write_vectored` should be a
/// real one: heads and bodies are sent together through it. A stream that keeps what it has taken
/// sends it by `flush`, which follows each answer.
pub trait Transport: Read + Write + Send {
    /// Bounds every following read.
    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()>;

    /// Bounds every following write.
    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()>;

    /// Ends our direction; the peer reads what was sent, then end of file.
    fn shutdown_write(&mut self) -> io::Result<()>;

    /// Descriptors that a connection takes, with that of its [`Transport::closer`].
    const DESCRIPTORS: usize = 1;

    /// Whether [`Transport::send_file`] is more than a refusal.
    const SENDS_FILES: bool = false;

    /// Returns whether [`Transport::send_file`] is more than a refusal on this connection.
    fn sends_files(&self) -> bool {
        Self::SENDS_FILES
    }

    /// Writes bytes that another write follows soon, so that the last segment need not leave half
    /// full.
    fn write_more(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write(buf)
    }

    /// Sends up to `len` bytes of a file from `offset` on from where they are; gives the number
    /// sent, 0 at the end of the file. [`io::ErrorKind::Unsupported`]: this stream, or this file,
    /// cannot; the bytes are then read and written.
    fn send_file(&mut self, _file: &File, _offset: u64, _len: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the address of the peer, if it has one.
    fn peer(&self) -> Option<SocketAddr> {
        None
    }

    /// Returns what ends calls in progress from another thread. With [`Shutdown::Read`] it ends a
    /// [`Transport::wait_readable`]: bytes that have arrived can still be read, then comes the end
    /// of file. With [`Shutdown::Both`] it ends reads and writes too.
    ///
    /// `None`, the default: nothing does, and a server that stops waits for this stream's timeouts.
    /// That of [`std::net::TcpStream`] takes a second descriptor for each connection.
    fn closer(&self) -> Option<Closer> {
        None
    }

    /// Waits until a read would not block (there is data, end of file or an error), without holding
    /// any buffer. `Ok(false)`: the time has passed, or the connection is to be closed for another
    /// reason while it is idle.
    ///
    /// Only [`Server::serve_stream`](crate::Server::serve_stream) asks. The default does not wait:
    /// a buffer is then pinned by the read that follows.
    fn wait_readable(&mut self, timeout: Duration) -> io::Result<bool> {
        self.set_read_timeout(timeout).map(|()| true)
    }

    /// Returns the socket on which [`Server::serve`](crate::Server::serve) may have the connection
    /// wait for its next request without a fiber, in place of [`Transport::wait_readable`]. `None`,
    /// the default: it waits on the fiber or thread that serves it.
    ///
    /// Only for a stream that is readable just when this socket is, but for what its
    /// [`Layer::holds_input`] says.
    fn idle_socket(&self) -> Option<SocketRef<'_>> {
        None
    }

    /// Returns what says, in a `select!`, that a read may find something which has not been
    /// received yet. `None`, the default, if nothing does.
    fn readable_branch(&self) -> Option<ReadinessBranch<'_>> {
        None
    }

    /// Returns the means to have several requests in progress at a time, as HTTP/2 does. `None`,
    /// the default: it is not spoken on this stream. Those of `plainweave::net` have them, and so
    /// have TLS streams over these.
    fn non_blocking(&mut self) -> Option<&mut dyn NonBlocking> {
        None
    }

    /// Returns the protocol between this stream and its socket, such as TLS. `None`, the default:
    /// there is none.
    fn layer(&self) -> Option<&dyn Layer> {
        None
    }

    /// Returns the same, to be changed.
    fn layer_mut(&mut self) -> Option<&mut dyn Layer> {
        None
    }
}

/// What a protocol between HTTP and the socket has to say, as TLS does: it begins with a handshake,
/// keeps what it has received, and can tell an end from a break.
pub trait Layer {
    /// Returns whether the handshake is not over yet.
    fn is_handshaking(&self) -> bool;

    /// Goes on with the handshake by what has arrived, without waiting for more. An error: the
    /// connection is of no use.
    fn step(&mut self) -> io::Result<Handshake>;

    /// Bounds the time until the handshake is over, from now on.
    fn set_handshake_timeout(&mut self, timeout: Duration);

    /// Has it expect a header of the PROXY protocol, before the handshake.
    fn expect_proxy_header(&mut self);

    /// Returns the client's address, if such a header has told it.
    fn proxied(&self) -> Option<SocketAddr>;

    /// Returns whether a read would find something that was received before: then there is no wait
    /// for the socket, which may have nothing more to come.
    fn holds_input(&self) -> bool;

    /// Returns whether a part of something has come, whose rest a read would need. The default is
    /// false.
    fn holds_part(&self) -> bool {
        false
    }

    /// Ends a connection on which everything was said, before it is dropped, so that the peer can
    /// tell that from a break. Does not wait for long.
    fn end(&mut self);

    /// Returns what is known of the connection, once its handshake is over.
    fn session(&self) -> Option<&Arc<TlsSession>>;
}

/// Where a handshake stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// It is over, and data can be read and written.
    Done,
    /// It needs more from the peer, which has this much time left.
    Waits(Duration),
}

/// Asks a stream's layer, if there is one.
pub(crate) trait Layered: Transport {
    fn is_handshaking(&self) -> bool {
        self.layer().is_some_and(|layer| layer.is_handshaking())
    }

    fn holds_input(&self) -> bool {
        self.layer().is_some_and(|layer| layer.holds_input())
    }

    fn end(&mut self) {
        if let Some(layer) = self.layer_mut() {
            layer.end();
        }
    }

    fn tls(&self) -> Option<&Arc<TlsSession>> {
        self.layer().and_then(|layer| layer.session())
    }

    /// Returns whether the peers have agreed on HTTP/2.
    fn agreed_on_http2(&self) -> bool {
        self.tls()
            .is_some_and(|tls| tls.alpn.as_deref() == Some(b"h2"))
    }
}

impl<S: Transport> Layered for S {}

/// Implements [`Transport`] for a socket of `std`: threads instead of fibers, for tests, and for
/// programs that want the library alone. The second argument finds the peer's address.
macro_rules! threads {
    ($stream:ty, $peer:expr) => {
        impl Transport for $stream {
            const DESCRIPTORS: usize = 2;

            fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
                Self::set_read_timeout(self, Some(timeout))
            }

            fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
                Self::set_write_timeout(self, Some(timeout))
            }

            fn shutdown_write(&mut self) -> io::Result<()> {
                self.shutdown(Shutdown::Write)
            }

            fn peer(&self) -> Option<SocketAddr> {
                $peer(self)
            }

            fn closer(&self) -> Option<Closer> {
                let stream = self.try_clone().ok()?;
                Some(Box::new(move |how| drop(stream.shutdown(how))))
            }

            fn wait_readable(&mut self, timeout: Duration) -> io::Result<bool> {
                Self::set_read_timeout(self, Some(timeout))?;
                loop {
                    match rustix::net::recv(&*self, &mut [0], RecvFlags::PEEK)
                        .map_err(io::Error::from)
                    {
                        Ok(_) => return Ok(true),
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            return Ok(false);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    };
}

/// Implements [`Transport`] for a socket of `plainweave`: fibers. The other arguments find the
/// peer's address, and write bytes that others follow.
macro_rules! fibers {
    ($stream:ty, $peer:expr, $write_more:expr) => {
        impl Transport for $stream {
            const SENDS_FILES: bool = true;

            fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
                Self::set_read_timeout(self, Some(timeout))
            }

            fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
                Self::set_write_timeout(self, Some(timeout))
            }

            fn shutdown_write(&mut self) -> io::Result<()> {
                self.shutdown(Shutdown::Write)
            }

            fn write_more(&mut self, buf: &[u8]) -> io::Result<usize> {
                $write_more(self, buf)
            }

            fn send_file(&mut self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
                Self::send_file(self, file, offset, len).map_err(|error| match error.kind() {
                    // A file system without it.
                    io::ErrorKind::InvalidInput => io::ErrorKind::Unsupported.into(),
                    _ => error,
                })
            }

            fn peer(&self) -> Option<SocketAddr> {
                $peer(self)
            }

            fn non_blocking(&mut self) -> Option<&mut dyn NonBlocking> {
                Some(self)
            }

            fn idle_socket(&self) -> Option<SocketRef<'_>> {
                Some(self.socket())
            }

            fn readable_branch(&self) -> Option<ReadinessBranch<'_>> {
                Some(Self::readable_branch(self))
            }

            fn closer(&self) -> Option<Closer> {
                let stream = self.try_clone().ok()?;
                Some(Box::new(move |how| drop(stream.shutdown(how))))
            }

            fn wait_readable(&mut self, timeout: Duration) -> io::Result<bool> {
                Self::set_read_timeout(self, Some(timeout))?;
                match Self::wait_readable(self) {
                    Ok(()) => Ok(true),
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(false),
                    Err(error) => Err(error),
                }
            }
        }
    };
}

threads!(TcpStream, |stream: &TcpStream| stream.peer_addr().ok());
threads!(UnixStream, |_: &UnixStream| None);
fibers!(
    net::TcpStream,
    |stream: &net::TcpStream| stream.peer_addr().ok(),
    net::TcpStream::write_more
);
fibers!(
    net::UnixStream,
    |_: &net::UnixStream| None,
    net::UnixStream::write
);
