//! What carries a connection: streams, and what a handler may take over.

// What HTTP/2 needs of a stream beside what every connection needs.
pub(crate) mod non_blocking;
pub(crate) mod session; // What a handler sees of TLS.
pub(crate) mod stream; // What a connection needs of the stream under it.
pub(crate) mod upgraded; // A connection that a handler has taken over.
