//! What is said over a connection: requests, responses and their parts. Nothing here does I/O.

// `uri-host [ ":" port ]`, as `Host` and request-targets have it (RFC 9110, 7.2; RFC 3986, 3.2).
pub(crate) mod authority;
pub mod body; // Message bodies, sans I/O.
// Response heads, sans I/O, appended to a buffer that is used again and again.
pub(crate) mod encode;
pub(crate) mod error; // The library's one error type: opaque, asked by `is_*()`.
// The record of an exchange, passed to a hook for access logs and metrics.
pub(crate) mod exchange;
// Whose request a proxy passes on, by the fields `Forwarded` (RFC 7239) and `X-Forwarded-For`.
pub mod forwarded;
pub(crate) mod head; // A request head as a view of the receive buffer: nothing is copied.
pub(crate) mod header_lines; // Header fields as encoded lines, checked when they are added.
pub mod parse; // Request heads, sans I/O, as strict as RFC 9112 allows.
pub mod proxy; // The PROXY protocol, versions 1 and 2, sans I/O.
pub(crate) mod request; // What a handler gets.
pub(crate) mod response; // What a handler gives back.
// A response body that its producer writes, in place of one that is read.
pub(crate) mod writer;
