//! HTTP/1: a connection that has one request in progress.
//!
//! It reads a request, calls the handler and writes the response. A connection that turns out to
//! speak HTTP/2 is handed on.

// The life of a connection: read a request, call the handler, write the response.
pub(crate) mod conn;
pub(crate) mod incoming; // A request body as the handler reads it.
pub(crate) mod outgoing; // A response on its way out.
