//! `plainweave cache`: a server that speaks memcached's protocol.
//!
//! [`store`] keeps the items. It does no I/O and knows nothing of fibers.

pub mod store;
