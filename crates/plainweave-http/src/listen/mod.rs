//! A server that accepts: loops over listeners, and what becomes of each connection.

pub(crate) mod refuse; // The refusal of a request that a server has no means to serve.
pub(crate) mod serve; // A server that accepts.
pub(crate) mod turns; // Connections that have a fiber only while they are served.
