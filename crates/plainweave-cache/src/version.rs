//! What the cache says that it is.

/// What `version` says: the memcached whose protocol this is, and ourselves.
pub(crate) const VERSION: &str = concat!("1.6.18-plainweave-", env!("CARGO_PKG_VERSION"));
/// What `--license` says.
pub(super) const LICENSE: &str = concat!(
    "Plainweave is free software under the terms of ",
    env!("CARGO_PKG_LICENSE"),
    '.'
);
