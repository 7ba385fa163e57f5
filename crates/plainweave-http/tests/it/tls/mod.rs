//! TLS: real handshakes with rustls's client, in memory and over sockets.

mod admission;
mod certificates;
pub(crate) mod conversations;
mod faults;
pub(crate) mod peer;
mod reload;
mod sessions;
mod sockets;
