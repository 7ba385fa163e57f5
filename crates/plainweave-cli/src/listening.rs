//! How the servers open a listening socket.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Opens one. `backlog`: how many connections the kernel may hold until they are accepted.
/// `only_v6`: an IPv6 address is not for IPv4 clients, so `0.0.0.0` can be listened on beside
/// `[::]`.
pub(crate) fn open(address: SocketAddr, backlog: i32, only_v6: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM.cloexec(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if only_v6 {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(TcpListener::from(socket))
}
