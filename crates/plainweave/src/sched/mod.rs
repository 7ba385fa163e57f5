//! The scheduler.

pub(crate) mod blocking_pool;
pub(crate) mod children;
pub(crate) mod closure;
mod end;
pub(crate) mod idle_conn;
pub(crate) mod io_call;
mod load;
mod local_policy;
mod mailbox;
mod outside;
pub(crate) mod pool;
mod recycle;
mod sleep;
pub(crate) mod wait;
pub(crate) mod wake;
pub(crate) mod worker;
pub(crate) mod worker_io;
mod worker_shared;
