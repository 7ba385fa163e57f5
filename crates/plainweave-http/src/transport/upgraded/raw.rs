//! A transport whose type nobody needs to know, and what its errors are called.

use std::io::{self, Read, Write};
use std::time::Duration;

use super::readable::Branch;
use crate::transport::non_blocking::NonBlocking;
use crate::transport::stream::{Layered, Transport};

/// Names a timeout as fibers' sockets do, where `std`'s say that the call would block.
pub(super) fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        io::ErrorKind::TimedOut.into()
    } else {
        error
    }
}

pub(super) fn unsupported() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "this connection has only calls that wait: serve it on fibers",
    )
}

/// A transport whose type nobody needs to know.
pub(crate) trait Raw: Read + Write + Send {
    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()>;
    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()>;
    fn shutdown_write(&mut self) -> io::Result<()>;
    fn non_blocking(&mut self) -> Option<&mut dyn NonBlocking>;
    /// Returns what makes a read possible, if something says it.
    fn readable_branch(&self) -> Option<Branch<'_>>;
    fn holds_input(&self) -> bool;
}

impl<S: Transport> Raw for S {
    fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        Transport::set_read_timeout(self, timeout)
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        Transport::set_write_timeout(self, timeout)
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        Transport::shutdown_write(self)
    }

    fn non_blocking(&mut self) -> Option<&mut dyn NonBlocking> {
        // What it offers takes a fiber.
        if plainweave::on_fiber() {
            Transport::non_blocking(self)
        } else {
            None
        }
    }

    fn readable_branch(&self) -> Option<Branch<'_>> {
        Transport::readable_branch(self).map(Branch::Socket)
    }

    fn holds_input(&self) -> bool {
        Layered::holds_input(self)
    }
}
