//! Plainweave: plain blocking code, woven onto a few cores.
//!
//! A *fiber* is a closure with its own stack. You write it like a thread: it calls
//! [`net::TcpStream::read`](net) or [`time::sleep`], and the call returns when there is data or the
//! time has come. Meanwhile its *worker*, an OS thread, runs other fibers. A process can hold a
//! million fibers. I/O goes through io_uring, or epoll where io_uring is not allowed.
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
//!     // Ten seconds for the whole connection: a call that runs into the deadline returns an ordinary error.
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
//! Blocking calls also work on a plain thread, and block it; what starts a fiber does not: use the
//! methods of [`Runtime`] there. Most calls that wait return a `Result` even where those of `std`
//! do not: a waiting fiber can be cancelled or reach its deadline. Sockets of `std::net` work too,
//! but block the fiber's worker: use those of [`net`].
//!
//! | `std` | here |
//! |---|---|
//! | `thread::spawn`, `Builder`, `JoinHandle` | [`spawn`], [`Builder`], [`JoinHandle`] |
//! | `thread::scope` | [`scope()`] |
//! | `thread::sleep` | [`time::sleep`] |
//! | `thread::current`, `park`, `unpark`, `yield_now` | [`current`], [`park`], [`Fiber::unpark`], [`yield_now`] |
//! | `thread_local!` | the same: each fiber has its own, as if it were a thread |
//! | `net`, `os::unix::net` | [`net`]: TCP, UDP, Unix; any descriptor: [`net::Readiness`] |
//! | `set_read_timeout` | [`time::with_timeout`], around any number of calls |
//! | `sync`: `Mutex`, `RwLock`, `Condvar`, `OnceLock` and so on | [`sync`], under the same names |
//! | `sync::mpsc` | [`sync::channel`], with any number of receivers |
//! | `fs` | [`fs`]: by io_uring where the kernel has the call |
//! | `process` | [`process`] |
//! | `io::pipe`, `stdin`, `stdout` | [`pipe`] |
//!
//! # From Tokio
//!
//! | Tokio | here |
//! |---|---|
//! | `#[tokio::main]`, `Runtime` | [`#[plainweave::main]`](macro@main), [`run`], [`Runtime`] |
//! | `#[tokio::test]` | [`#[plainweave::test]`](macro@test), which also ends what hangs |
//! | `tokio::spawn(async { .. })` | [`spawn`] a closure, or [`spawn_future`] for async code |
//! | `.await` | an ordinary call; [`block_on`] for a future of an async crate |
//! | `spawn_blocking` | [`blocking`], on a bounded pool; or [not at all](#movement-and-storage), for short calls |
//! | `time::timeout` | [`time::with_timeout`]: blocking calls inside it fail with `TimedOut` |
//! | `time::interval` | [`time::interval`] |
//! | `select!`, `JoinSet` | [`sync::select!`](crate::sync::select!), [`sync::JoinSet`] |
//! | `mpsc`, `oneshot` | [`sync::channel`], [`sync::promise()`] |
//! | `watch`, `broadcast` | [`sync::watch`], [`sync::broadcast`] |
//! | `Notify`, `Semaphore` | [`sync::Notify`], [`sync::Semaphore`] |
//! | `abort`, `CancellationToken` | [`JoinHandle::cancel`]: the current or next blocking call returns an error |
//! | `task_local!` | `thread_local!`, where fibers have storage of their own (the default) |
//! | `signal` | [`signal`] |
//! | tokio-console | [`dump()`], [`trace`], [`metrics()`] |
//!
//! # Movement and storage
//!
//! [`Movement`] says when a fiber may change its worker: at any time (the default), until it first
//! runs, or never. [`Storage`] says which thread-local variables it sees. By default each fiber has
//! its own. They move with it, as if the fiber were an OS thread, so changing workers is safe at
//! any time. Fibers can share their worker's variables instead, which saves 5 KiB per fiber and 7
//! to 32 ns per switch, by processor, but is `unsafe` to choose: see
//! [`RuntimeBuilder::shared_storage`].
//!
//! If a fiber computes for a long time, or blocks its thread in a lock of `std` or in C code, other
//! workers, or a spare one ([`RuntimeBuilder::max_workers`]), run what is queued behind it, except
//! fibers that may not move: these wait until their worker is free. [`RuntimeBuilder::on_stall`]
//! reports which fiber held up a worker, and where ([`stall`]).
//!
//! # Limits
//!
//! Linux on x86-64; for storage of a fiber's own, also Linux 5.9 and a dynamically linked glibc.
//! No preemption: see above for what replaces it. If a fiber waits while it holds a `std` lock,
//! each fiber that then locks it blocks its worker: use the locks of [`sync`]. C code whose stack
//! frames exceed 64 KiB can jump over the guard of a fiber's stack: call it in [`on_big_stack`], or
//! give its fiber a larger one ([`Builder::stack_size`]).
//!
//! # Where to look
//!
//! * [`Runtime`] and [`RuntimeBuilder`] start workers and set policy, driver and limits.
//! * [`macro@main`] and [`macro@test`] put a program or a test on a fiber; a panic there says which
//!   fiber it is of ([`name_panics`]).
//! * [`spawn`], [`Builder`] and [`scope()`] start fibers; [`is_cancelled`] recognises the error of
//!   a cancelled one, which may still finish something ([`cancel::shielded`]).
//! * [`net`], [`fs`], [`time`], [`sync`] and [`signal`] are what fibers call; [`mod@future`] runs
//!   async code on them.
//! * [`policy`] decides which fiber runs next; [`queue`] has the queues that policies are built
//!   from.
//! * [`pools`] puts several runtimes side by side, with calls and bounded queues between them.
//! * [`mod@dump`] lists all fibers and what each waits for; [`trace`] shows what the workers did.

mod abort; // The end of the process where nothing sound can follow.
mod aging; // A free list that knows which items have long been unused.
mod atomics; // The words that threads meet at: one protocol a file, each with loom models.
mod blocking; // `blocking`: work that would hold up a worker.
mod builder; // The settings of a runtime, and how it is built.
pub mod cancel; // What a cancelled fiber may still do: `shielded`.
mod context; // The switch from one stack to another.
pub mod dump; // What every fiber does at the moment.
#[doc(hidden)]
pub mod entry; // Where a program of `#[plainweave::main]` begins.
mod fiber; // A fiber as data; it knows no worker.
mod fiber_local; // Fiber-local storage: what a block is, and its life.
pub mod fs; // Files and directories.
pub mod future; // Fibers that wait for futures, and futures that wait for fibers.
mod io; // Drivers, which know no fiber.
mod metrics; // Figures of a running runtime.
pub mod net; // TCP, UDP and Unix sockets in the shape of `std`; any descriptor.
mod panics; // Panics that say which fiber they are of.
pub mod pipe; // Pipes, FIFOs, standard input.
pub mod policy; // What runs next: the trait, and the policies.
pub mod pools; // Named runtimes side by side: spawning and calling from one into another.
mod prefetch; // Asking for memory before it is needed.
pub mod process; // Child processes in the shape of `std::process`.
pub mod queue; // The queues that policies are made of.
mod runtime; // A runtime: running code on it, ending it.
mod sched; // The scheduler: the life of a fiber, step by step.
mod scope; // Fibers that borrow, and calls into other pools.
mod shim; // Atomics, cells and locks: `std`, or loom in a model.
pub mod signal; // Signals, waited for.
pub mod sim; // Programs on simulated time.
mod stack; // Stacks: slots, slabs, and the life of a free one.
pub mod sync; // Locks and channels in the shape of `std::sync`.
mod sys; // System calls that several layers make.
#[doc(hidden)]
pub mod testing; // What `#[plainweave::test]` expands to.
pub mod thread; // Fibers in the shape of `std::thread`: spawn, join, park, handles.
pub mod time; // Sleep, deadlines, intervals.
mod timer; // A hierarchical timing wheel.
pub mod trace; // What a runtime's workers did last: the public side.
mod watchdog; // Notices a worker that a fiber holds up, and takes over its I/O.
mod worker_local; // Values of a worker, and code that runs on a worker's thread-local storage.

mod api {
    pub use crate::blocking::blocking;
    pub use crate::builder::RuntimeBuilder;
    pub use crate::dump::{Dump, dump};
    pub use crate::fiber::cancel::{CancelReason, Cancelled, cancel_reason, is_cancelled};
    pub use crate::fiber::{FiberTask, Movement, Reason};
    pub use crate::fiber_local::Storage;
    pub use crate::future::{block_on, spawn_future};
    pub use crate::io::probe::Io;
    pub use crate::metrics::{Metrics, WorkerMetrics, metrics};
    pub use crate::panics::name_panics;
    pub use crate::runtime::{AddedWorkers, Runtime, Shutdown, run};
    pub use crate::scope::{Scope, ScopedJoinHandle, on_big_stack, scope};
    pub use crate::sys::trim_heap;
    pub use crate::thread::{
        Builder, Fiber, JoinError, JoinHandle, LocalJoinHandle, current, on_fiber, park,
        park_timeout, spawn, spawn_local, worker_index, yield_local, yield_now, yield_shared,
    };
    pub use crate::watchdog::report::{self as stall, Stall};
    pub use crate::worker_local::{WorkerLocal, owns_storage, with_worker_storage};
}
pub use api::*;
#[cfg(feature = "macros")]
pub use plainweave_macros::{main, test};

/// The README's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The tour's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tour.md")]
struct Tour;
