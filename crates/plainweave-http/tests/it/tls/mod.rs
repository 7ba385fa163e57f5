//! TLS: real handshakes with rustls's client, in memory and over sockets.

mod certificates;
mod conversations;
mod faults;
mod peer;
mod reload;
mod sessions;
mod sockets;
