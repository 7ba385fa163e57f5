//! The scheduler.

pub(crate) mod closure;
pub(crate) mod idle_conn;
pub(crate) mod io_call;
mod local_policy;
mod mailbox;
mod outside;
pub(crate) mod pool;
mod recycle;
mod spread;
pub(crate) mod wait;
pub(crate) mod worker;
pub(crate) mod worker_io;
mod worker_shared;
