//! TCP and Unix sockets in the shape of `std`'s: calls that block the calling fiber, not its
//! worker.
//!
//! The types also work on plain threads, which wait by `poll(2)`. Cancellation and deadlines
//! surface as errors ([`crate::is_cancelled`], [`std::io::ErrorKind::TimedOut`]). A stream can be
//! shared by `&`: `Read` and `Write` are implemented for `&TcpStream` too, and one fiber may read
//! while another writes.

mod addr;
mod async_listener;
mod async_stream;
mod async_traits;
mod connection;
mod direction;
mod idle;
mod listener;
mod stream;
mod unix;

pub use addr::ToSocketAddrs;
pub use async_listener::AsyncTcpListener;
pub use async_stream::AsyncTcpStream;
pub use idle::{HasSocket, SocketRef, each_readable, on_readable};
pub use listener::{Incoming, TcpListener};
pub use stream::TcpStream;
pub use unix::{UnixIncoming, UnixListener, UnixStream};
