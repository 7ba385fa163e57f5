//! Plainweave: plain blocking code, woven onto a few cores.
//!
//! A *fiber* is a closure with a stack of its own. It is written like a thread: it calls [`net::TcpStream::read`](net)
//! or [`time::sleep`] and waits there, and meanwhile its *worker*, an OS thread, runs other fibers. A million of them
//! fit in one process. I/O goes to io_uring, or to epoll where that is not allowed.
//!
//! ```
//! use std::io::{self, Read, Write};
//! use std::time::Duration;
//!
//! use plainweave::net::{TcpListener, TcpStream};
//! use plainweave::{scope, spawn, time};
//!
//! fn echo(mut stream: TcpStream) -> io::Result<()> {
//!     let mut buf = [0; 1024];
//!     // A deadline is an ordinary error of the call that runs into it.
//!     time::with_timeout(Duration::from_secs(10), || loop {
//!         match stream.read(&mut buf)? {
//!             0 => return Ok(()),
//!             n => stream.write_all(&buf[..n])?,
//!         }
//!     })
//! }
//!
//! plainweave::run(|| -> io::Result<()> {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     let server = spawn(move || listener.accept().and_then(|(stream, _)| echo(stream)));
//!
//!     let mut answer = [0; 5];
//!     scope(|s| {
//!         // Fibers of a scope may borrow, and have ended when it returns.
//!         s.spawn(|| {
//!             let mut stream = TcpStream::connect(address)?;
//!             stream.write_all(b"hello")?;
//!             stream.read_exact(&mut answer)
//!         })
//!         .join()
//!         .expect("no panic")
//!     })?;
//!     assert_eq!(&answer, b"hello");
//!     server.join().expect("no panic")
//! })
//! .unwrap();
//! ```
//!
//! # Movement and thread-local storage
//!
//! A runtime's [`Movement`] says when a fiber may change its worker: at any time, which is the default; until it first
//! runs; or never. [`Storage`] says which thread-local variables it sees: its own, the default, so that it is a thread
//! to the language and may move safely at any time; or its worker's, which is `unsafe` to choose because two fibers
//! then see the same variables.
//!
//! A fiber may compute, or block its thread with a lock of `std` or a socket of `std::net`: others run the fibers
//! behind it, if need be on a spare worker ([`RuntimeBuilder::max_workers`]). A fiber that does not move waits until
//! its worker is back; [`RuntimeBuilder::stall_after`] and [`stall`] tell of such fibers.
//!
//! # Where to look
//!
//! [`Runtime`] and [`RuntimeBuilder`] start workers and set policy, driver and limits. [`spawn`], [`thread`] and
//! [`scope()`] start fibers; [`net`], [`fs`], [`time`], [`sync`] and [`signal`] have the shapes of `std`, and
//! [`blocking`] runs what would hold up a worker. A call ends early with an error when its fiber is cancelled
//! ([`is_cancelled`]) or its deadline has passed. [`mod@future`] runs async code on fibers. [`policy`] decides which
//! fiber runs next, and [`queue`] is what policies are built from. [`pools`] puts several runtimes side by side.
//! [`trace`] shows what workers did.
//! [`mod@dump`] lists all fibers and what each of them waits for.

mod abort;
mod added_workers;
mod atomics;
mod blocking;
mod builder;
pub mod dump;
mod fiber;
mod fiber_local;
pub mod fs;
pub mod future;
mod io;
mod metrics;
pub mod net;
pub mod policy;
pub mod pools;
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
pub mod trace;
mod watchdog;

mod api {
    pub use crate::added_workers::AddedWorkers;
    pub use crate::blocking::blocking;
    pub use crate::builder::RuntimeBuilder;
    pub use crate::dump::{Dump, dump};
    pub use crate::fiber::cancel::{CancelReason, Cancelled, cancel_reason, is_cancelled};
    pub use crate::fiber::{FiberTask, Movement, Reason};
    pub use crate::fiber_local::Storage;
    pub use crate::future::{block_on, spawn_future};
    pub use crate::io::probe::Io;
    pub use crate::metrics::{Metrics, WorkerMetrics, metrics};
    pub use crate::runtime::{Runtime, Shutdown, run};
    pub use crate::scope::{Scope, ScopedJoinHandle, scope};
    pub use crate::thread::{
        Builder, Fiber, JoinError, JoinHandle, LocalJoinHandle, current, on_fiber, park, park_timeout, spawn,
        spawn_local, worker_index, yield_local, yield_now, yield_shared,
    };
    pub use crate::watchdog::report::{self as stall, Stall};
}
pub use api::*;

/// The README's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The tour's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tour.md")]
struct Tour;
