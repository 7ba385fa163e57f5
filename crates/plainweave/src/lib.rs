//! Plainweave: plain blocking code, woven onto a few cores.

#[cfg(not(loom))]
mod abort;
#[cfg(not(loom))]
mod block;
#[cfg(not(loom))]
mod blocking;
/// Under loom the lock-free parts, and some with locks, are all there is.
#[cfg(loom)]
mod blocking {
    mod jobs;
}
#[cfg(not(loom))]
mod cancel;
#[cfg(not(loom))]
mod fiber;
#[cfg(loom)]
mod fiber {
    pub(crate) mod join;
    pub(crate) mod state;
}
#[cfg(not(loom))]
pub mod fs;
#[cfg(not(loom))]
mod io;
#[cfg(not(loom))]
mod metrics;
#[cfg(not(loom))]
mod monitor;
#[cfg(loom)]
mod monitor {
    mod bell;
}
#[cfg(not(loom))]
pub mod net;
mod park;
#[cfg(not(loom))]
pub mod policy;
#[cfg(not(loom))]
mod pool;
mod prefetch;
pub mod queue;
#[cfg(not(loom))]
mod runtime;
#[cfg(not(loom))]
mod scope;
mod shim;
#[cfg(not(loom))]
pub mod signal;
#[cfg(not(loom))]
mod stack;
#[cfg(not(loom))]
pub mod stall;
#[cfg(loom)]
mod stall {
    pub(crate) mod board;
}
#[cfg(not(loom))]
pub mod sync;
#[cfg(loom)]
mod sync {
    pub(crate) mod spin;
}
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
pub mod time;
mod timer;
#[cfg(not(loom))]
mod tls;
#[cfg(not(loom))]
mod worker;
#[cfg(loom)]
mod worker {
    pub(crate) mod claim;
}

#[cfg(not(loom))]
mod api {
    pub use crate::blocking::blocking;
    pub use crate::cancel::{CancelReason, Cancelled, cancel_reason, is_cancelled};
    pub use crate::fiber::{FiberTask, Movement, Reason};
    pub use crate::io::probe::Choice as Io;
    pub use crate::metrics::{Metrics, metrics};
    pub use crate::runtime::{Runtime, RuntimeBuilder, Shutdown, run};
    pub use crate::scope::{Scope, ScopedJoinHandle, scope};
    pub use crate::stall::Stall;
    pub use crate::thread::{
        Builder, Fiber, JoinError, JoinHandle, LocalJoinHandle, current, on_fiber, park, park_timeout, spawn,
        spawn_local, yield_now,
    };
    pub use crate::tls::Storage;
}
#[cfg(not(loom))]
pub use api::*;

/// The README's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
