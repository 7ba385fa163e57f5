//! Plainweave: plain blocking code, woven onto a few cores.

#[cfg(not(loom))]
mod abort;
mod atomics;
#[cfg(not(loom))]
mod blocking;
#[cfg(not(loom))]
mod fiber;
#[cfg(not(loom))]
mod fiber_local;
#[cfg(not(loom))]
pub mod fs;
#[cfg(not(loom))]
mod io;
#[cfg(not(loom))]
mod metrics;
#[cfg(not(loom))]
pub mod net;
#[cfg(not(loom))]
pub mod policy;
mod prefetch;
pub mod queue;
#[cfg(not(loom))]
mod runtime;
#[cfg(not(loom))]
mod sched;
#[cfg(not(loom))]
mod scope;
mod shim;
#[cfg(not(loom))]
pub mod signal;
#[cfg(not(loom))]
mod stack;
#[cfg(not(loom))]
pub mod sync;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
pub mod thread;
#[cfg(not(loom))]
pub mod time;
mod timer;
#[cfg(not(loom))]
mod watchdog;

#[cfg(not(loom))]
mod api {
    pub use crate::blocking::blocking;
    pub use crate::fiber::cancel::{CancelReason, Cancelled, cancel_reason, is_cancelled};
    pub use crate::fiber::{FiberTask, Movement, Reason};
    pub use crate::fiber_local::Storage;
    pub use crate::io::probe::Choice as Io;
    pub use crate::metrics::{Metrics, metrics};
    pub use crate::runtime::{Runtime, RuntimeBuilder, Shutdown, run};
    pub use crate::scope::{Scope, ScopedJoinHandle, scope};
    pub use crate::thread::{
        Builder, Fiber, JoinError, JoinHandle, LocalJoinHandle, current, on_fiber, park, park_timeout, spawn,
        spawn_local, yield_now,
    };
    pub use crate::watchdog::report::{self as stall, Stall};
}
#[cfg(not(loom))]
pub use api::*;

/// The README's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
