//! TCP, UDP and Unix sockets in the shape of `std`'s: calls that block the calling fiber, not its
//! worker.
//!
//! The types also work on plain threads, which wait by `poll(2)`. Cancellation and deadlines
//! surface as errors ([`crate::is_cancelled`], [`std::io::ErrorKind::TimedOut`]). A stream can be
//! shared by `&`: `Read` and `Write` are implemented for `&TcpStream` too, and one fiber may read
//! while another writes.

mod addr; // Names to addresses, off the workers.
mod async_listener; // Listening sockets in async code.
mod async_stream; // Connections in async code.
mod async_traits; // The traits of futures-io and tokio, behind features.
mod connect; // Connecting to the one of several addresses that answers first.
mod connection; // What connected sockets of all families have.
mod datagram; // Datagrams of any family, one or many in a call.
mod direction; // One direction of a socket, waited for by a task.
mod idle; // Idle connections without a fiber: the public side.
mod likely; // Whether a socket has another datagram.
mod listener; // Listening sockets: what all have, and TCP.
mod readiness; // Any descriptor that can be polled.
mod stream; // TCP connections.
mod udp; // UDP sockets.
mod unix; // Unix sockets.

pub use addr::ToSocketAddrs;
pub use async_listener::AsyncTcpListener;
pub use async_stream::AsyncTcpStream;
pub(crate) use connection::Connection;
pub use idle::{HasSocket, SocketRef, each_readable, on_readable};
pub use listener::{Incoming, TcpListener};
pub use readiness::Readiness;
pub use stream::TcpStream;
pub use udp::{Batch, Datagram, Segments, UdpSocket};
pub use unix::{Credentials, UnixDatagram, UnixIncoming, UnixListener, UnixStream};
