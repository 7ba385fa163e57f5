//! Plainweave: plain blocking code, woven onto a few cores.

mod abort;
mod atomics;
mod blocking;
mod builder;
mod fiber;
mod fiber_local;
pub mod fs;
mod io;
mod metrics;
pub mod net;
pub mod policy;
mod prefetch;
pub mod queue;
mod runtime;
mod sched;
mod scope;
mod shim;
pub mod signal;
mod stack;
pub mod sync;
mod sys;
pub mod thread;
pub mod time;
mod timer;
mod watchdog;

mod api {
    pub use crate::blocking::blocking;
    pub use crate::builder::RuntimeBuilder;
    pub use crate::fiber::cancel::{CancelReason, Cancelled, cancel_reason, is_cancelled};
    pub use crate::fiber::{FiberTask, Movement, Reason};
    pub use crate::fiber_local::Storage;
    pub use crate::io::probe::Choice as Io;
    pub use crate::metrics::{Metrics, metrics};
    pub use crate::runtime::{Runtime, Shutdown, run};
    pub use crate::scope::{Scope, ScopedJoinHandle, scope};
    pub use crate::thread::{
        Builder, Fiber, JoinError, JoinHandle, LocalJoinHandle, current, on_fiber, park, park_timeout, spawn,
        spawn_local, yield_now,
    };
    pub use crate::watchdog::report::{self as stall, Stall};
}
pub use api::*;

/// The README's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
