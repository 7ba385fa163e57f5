//! Plainweave: plain blocking code, woven onto a few cores.
//!
//! A *fiber* is a closure with its own stack. You write it like a thread: it calls [`net::TcpStream::read`](net) or
//! [`time::sleep`], and the call returns when there is data or the time has come. Meanwhile its *worker*, an OS thread,
//! runs other fibers. A million of them fit in one process. I/O goes through io_uring, or epoll where io_uring is not
//! allowed.
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
//!     // A call that runs into the deadline returns an ordinary error.
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
//!         // A scope's fibers may borrow, because the scope returns only after they have ended.
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
//! # From `std`
//!
//! Every call below also works on a plain thread, which it blocks. Those that wait return an `io::Result` where `std`
//! has none, because a fiber can be cancelled or run into a deadline while it waits.
//!
//! | `std` | here |
//! |---|---|
//! | `thread::spawn`, `Builder`, `JoinHandle` | [`spawn`], [`Builder`], [`JoinHandle`] |
//! | `thread::scope` | [`scope()`] |
//! | `thread::sleep` | [`time::sleep`] |
//! | `thread::current`, `park`, `unpark`, `yield_now` | [`current`], [`park`], [`Fiber::unpark`], [`yield_now`] |
//! | `thread_local!` | the same: each fiber has its own, as if it were a thread |
//! | `net`, `os::unix::net` | [`net`]: TCP and Unix streams |
//! | `set_read_timeout` | [`time::with_timeout`], around any number of calls |
//! | `sync`: `Mutex`, `RwLock`, `Condvar`, `OnceLock` and so on | [`sync`], under the same names |
//! | `sync::mpsc` | [`sync::channel`], with any number of receivers |
//! | `fs` | [`fs`], which reads and writes on a pool of threads |
//!
//! # From Tokio
//!
//! | Tokio | here |
//! |---|---|
//! | `#[tokio::main]`, `Runtime` | [`run`], [`Runtime`] |
//! | `tokio::spawn(async { .. })` | [`spawn`] a closure, or [`spawn_future`] for async code |
//! | `.await` | an ordinary call; [`block_on`] for a future of an async crate |
//! | `spawn_blocking` | usually nothing ([below](#movement-and-storage)); [`blocking`] bounds the threads |
//! | `time::timeout` | [`time::with_timeout`] |
//! | `select!`, `JoinSet` | [`sync::select!`](crate::sync::select!), [`sync::JoinSet`] |
//! | `mpsc`, `oneshot` | [`sync::channel`], [`sync::promise()`] |
//! | `watch`, `broadcast` | [`sync::watch`], [`sync::broadcast`] |
//! | `Notify`, `Semaphore` | [`sync::Notify`], [`sync::Semaphore`] |
//! | `abort`, `CancellationToken` | [`JoinHandle::cancel`]: the next call that waits returns an error |
//! | `task_local!` | `thread_local!` |
//! | `signal` | [`signal`] |
//! | tokio-console | [`dump()`], [`trace`], [`metrics()`] |
//!
//! # Movement and storage
//!
//! [`Movement`] says when a fiber may change its worker: at any time (the default), until it first runs, or never.
//! [`Storage`] says which thread-local variables it sees. By default it has its own: to the language it is a thread,
//! and may move safely at any time. Fibers can share their worker's variables instead, which saves memory and a few
//! nanoseconds per switch, but is `unsafe` to choose: see [`RuntimeBuilder::shared_storage`].
//!
//! A fiber may compute for long, or block its thread with a lock of `std` or a call into C: other workers, if need be a
//! spare one ([`RuntimeBuilder::max_workers`]), run the fibers that are ready behind it. A fiber that may not move
//! waits until its worker is free. [`RuntimeBuilder::on_stall`] reports which fiber held up a worker, and where
//! ([`stall`]).
//!
//! # Limits
//!
//! Linux on x86-64; a shared glibc for storage of a fiber's own. TCP and Unix streams, no UDP. No preemption: see above
//! for what takes its place. A lock of `std` that is held while its fiber waits blocks every worker that wants it; use
//! those of [`sync`] there. C code whose stack frames exceed 64 KiB can jump over the guard of a fiber's stack: give
//! its fiber a larger one ([`Builder::stack_size`]).
//!
//! # Where to look
//!
//! * [`Runtime`] and [`RuntimeBuilder`] start workers and set policy, driver and limits.
//! * [`spawn`], [`Builder`] and [`scope()`] start fibers; [`is_cancelled`] recognises the error of a cancelled one.
//! * [`net`], [`fs`], [`time`], [`sync`] and [`signal`] are what fibers call; [`mod@future`] runs async code on them.
//! * [`policy`] decides which fiber runs next; [`queue`] has the queues that policies are built from.
//! * [`pools`] puts several runtimes side by side, with calls and bounded queues between them.
//! * [`mod@dump`] lists all fibers and what each waits for; [`trace`] shows what the workers did.

mod abort;
mod added_workers;
mod aging;
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
