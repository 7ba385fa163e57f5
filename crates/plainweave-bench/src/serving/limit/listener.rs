//! Where the loops listen, and what they read into.

use std::io;
use std::net::TcpListener;

use anyhow::Context;

use crate::harness::report;

/// Every server reads into a buffer of this size, larger than a message: a server cannot know how
/// long one is, and a read that fills its buffer would make an edge-triggered server ask once more.
pub(crate) const BUFFER: usize = 4096;

/// Connections that the kernel holds until they are accepted.
const BACKLOG: i32 = 4096;

/// Listens on a free port, with room for a crowd and small answers sent at once.
pub(crate) fn listen() -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    rustix::net::listen(&listener, BACKLOG)?;
    // Accepted sockets inherit it.
    rustix::net::sockopt::set_tcp_nodelay(&listener, true)?;
    Ok(listener)
}

/// Tells the parent where the loop listens.
pub(super) fn say_address(listener: &TcpListener) -> io::Result<()> {
    report::say(&listener.local_addr()?.to_string());
    Ok(())
}
