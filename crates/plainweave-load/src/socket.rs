//! A connection of either family.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use plainweave::net::{TcpStream, UnixStream};

/// Where connections go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Ip(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Ip(address) => address.fmt(f),
            Place::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A connection to a server.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects, on a fiber.
    pub(super) fn connect(place: &Place) -> io::Result<Self> {
        match place {
            Place::Ip(address) => {
                let stream = TcpStream::connect(*address)?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
            Place::Unix(path) => UnixStream::connect(path).map(Socket::Unix),
        }
    }

    /// Ends all calls that wait, and all that come.
    #[cfg(feature = "http2")]
    pub(super) fn close(&self) {
        match self {
            Socket::Tcp(stream) => stream.close(),
            Socket::Unix(stream) => stream.close(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).read(into),
            Socket::Unix(stream) => (&*stream).read(into),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).write(bytes),
            Socket::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
