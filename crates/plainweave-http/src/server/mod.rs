//! A server as its connections know it: the handler, the limits, and what they borrow of it.

// Buffers, and the pool that lends them to connections while these have a request in progress.
pub(crate) mod buffer;
// The connections of a server that speak HTTP/2: those that a stop wakes, and how many are idle.
#[cfg(feature = "http2")]
pub(crate) mod http2_connections;
pub(crate) mod link; // One connection's stream while it is busy.
pub(crate) mod shared; // What all connections of a server share.
