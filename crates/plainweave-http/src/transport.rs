//! What a connection needs of the stream under it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::TlsSession;

/// A byte stream with timeouts, in the shape of `std`'s sockets.
///
/// A call that outlasts its timeout fails with [`io::ErrorKind::TimedOut`] or, as `std`'s sockets do, with
/// [`io::ErrorKind::WouldBlock`]; the stream stays usable. `write_vectored` should be a real one: heads and bodies
/// are sent together through it.
pub trait Transport: Read + Write {
    /// Bounds every following read.
    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()>;

    /// Bounds every following write.
    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()>;

    /// Ends our direction; the peer reads what was sent, then end of file.
    fn shutdown_write(&mut self) -> io::Result<()>;

    /// Whether [`Transport::send_file`] is more than a refusal.
    const SENDS_FILES: bool = false;

    /// Returns whether [`Transport::send_file`] is more than a refusal on this connection.
    fn sends_files(&self) -> bool {
        Self::SENDS_FILES
    }

    /// Writes bytes that another write follows soon, so that the last segment need not leave half full.
    fn write_more(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write(buf)
    }

    /// Sends up to `len` bytes of a file from `offset` on from where they are; gives the number sent, 0 at the end of
    /// the file. [`io::ErrorKind::Unsupported`]: this stream, or this file, cannot; the bytes are then read and
    /// written.
    fn send_file(&mut self, _file: &File, _offset: u64, _len: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Returns the address of the peer, if it has one.
    fn peer(&self) -> Option<SocketAddr> {
        None
    }

    /// Returns what ends a [`Transport::wait_readable`] in progress from another thread, by ending the reading side of
    /// the stream: bytes that have arrived can still be read, then comes the end of file.
    ///
    /// `None`, the default: nothing does, and a server that stops waits for this stream's timeouts. That of
    /// [`std::net::TcpStream`] takes a second descriptor for each connection.
    fn closer(&self) -> Option<Box<dyn Fn() + Send>> {
        None
    }

    /// Waits until a read would not block (there is data, end of file or an error), without holding any buffer.
    /// `Ok(false)`: the time has passed, or the connection is to be closed for another reason while it is idle.
    ///
    /// Only [`Server::serve`](crate::Server::serve) asks. The default does not wait: a buffer is then pinned by the
    /// read that follows.
    fn wait_readable(&mut self, timeout: Duration) -> io::Result<bool> {
        self.set_read_timeout(timeout).map(|()| true)
    }

    /// Returns whether a read would find something that was received before: then there is no wait for the socket,
    /// which may have nothing more to come. Only streams that buffer, as TLS does, have a reason to say so.
    fn holds_input(&self) -> bool {
        false
    }

    /// Bounds the time until a handshake is over, from now on. Streams without one, the default, ignore it.
    fn set_handshake_timeout(&mut self, _timeout: Duration) {}

    /// Ends a connection on which everything was said, before it is dropped. A stream on which the peer can tell an end
    /// from a break, as TLS can, tells it, without waiting for long; others do nothing.
    fn end(&mut self) {}

    /// Returns what TLS knows of the connection, once its handshake is over.
    fn tls(&self) -> Option<&Arc<TlsSession>> {
        None
    }
}

/// Threads instead of fibers: for tests, and for programs that want the library alone.
impl Transport for TcpStream {
    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        TcpStream::set_read_timeout(self, Some(timeout))
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        TcpStream::set_write_timeout(self, Some(timeout))
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.peer_addr().ok()
    }

    fn closer(&self) -> Option<Box<dyn Fn() + Send>> {
        let stream = self.try_clone().ok()?;
        Some(Box::new(move || drop(stream.shutdown(Shutdown::Read))))
    }

    fn wait_readable(&mut self, timeout: Duration) -> io::Result<bool> {
        TcpStream::set_read_timeout(self, Some(timeout))?;
        loop {
            match self.peek(&mut [0]) {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Fibers.
impl Transport for plainweave::net::TcpStream {
    const SENDS_FILES: bool = true;

    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        plainweave::net::TcpStream::set_read_timeout(self, Some(timeout))
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        plainweave::net::TcpStream::set_write_timeout(self, Some(timeout))
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }

    fn write_more(&mut self, buf: &[u8]) -> io::Result<usize> {
        plainweave::net::TcpStream::write_more(self, buf)
    }

    fn send_file(&mut self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        plainweave::net::TcpStream::send_file(self, file, offset, len).map_err(|error| match error.kind() {
            // A file system without it.
            io::ErrorKind::InvalidInput => io::ErrorKind::Unsupported.into(),
            _ => error,
        })
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.peer_addr().ok()
    }

    fn closer(&self) -> Option<Box<dyn Fn() + Send>> {
        let stream = self.try_clone().ok()?;
        Some(Box::new(move || drop(stream.shutdown(Shutdown::Read))))
    }

    fn wait_readable(&mut self, timeout: Duration) -> io::Result<bool> {
        plainweave::net::TcpStream::set_read_timeout(self, Some(timeout))?;
        match plainweave::net::TcpStream::wait_readable(self) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(false),
            Err(error) => Err(error),
        }
    }
}
