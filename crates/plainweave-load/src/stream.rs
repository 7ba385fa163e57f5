//! What the bytes of a connection go through: a socket, or TLS on it.

use std::io::{self, Read, Write};

use plainweave::time;

use super::socket::{Place, Socket};
use super::tally::{Failure, Handshake, Opening};
use super::target;
use super::tls::{Session, Tls};

/// A connection's bytes.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(Socket),
    Tls(Session),
}

impl Stream {
    /// Connects; over TLS, if it is given with the name to check.
    pub(super) fn open(
        address: &Place,
        tls: Option<(&Tls, &str)>,
    ) -> Result<(Self, Opening), Failure> {
        let (stream, connect) = target::connect(address)?;
        let (stream, handshake) = match tls {
            Some((tls, host)) => {
                let began = time::now();
                let (session, resumed) = tls.connect(host, stream)?;
                let took = target::since(began);
                (Self::Tls(session), Some(Handshake { took, resumed }))
            }
            None => (Self::Plain(stream), None),
        };
        Ok((stream, Opening { connect, handshake }))
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into),
            Self::Tls(session) => session.read(into),
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes),
            // It reports a failure of the socket when all is to leave.
            Self::Tls(session) => session.write_all(bytes).and_then(|()| session.flush()),
        }
    }
}
