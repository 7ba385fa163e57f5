//! Listening sockets, with a remedy in each error.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

/// Binds a listener to an address.
pub(super) fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => "is another server on it? choose another with --listen",
            ErrorKind::AddrNotAvailable => "this machine has no such address; choose another with --listen",
            ErrorKind::PermissionDenied => {
                "ports below 1024 need root or CAP_NET_BIND_SERVICE; choose another with --listen"
            }
            _ => "choose another address with --listen",
        };
        anyhow::Error::new(error).context(format!("cannot listen on {address} ({remedy})"))
    })
}
