//! What carries a connection: streams, what is listened on, and what a handler may take over.

pub(crate) mod listener; // What a server needs of a listening socket.
// What HTTP/2 needs of a stream beside what every connection needs.
pub(crate) mod non_blocking;
pub(crate) mod session; // What a handler sees of TLS.
pub(crate) mod stream; // What a connection needs of the stream under it.
pub(crate) mod upgraded; // A connection that a handler has taken over.
